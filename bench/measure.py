"""Run one work with several peers: each in a process of its own, in rounds in which everybody has a turn."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .environments import EnvironmentFailure, interpreter, settle
from .models import prepare_files
from .peer import Peer, PeerFailure
from .works import ENGINES, RUNS_IN, Work

# Threads of a peer that had its turn go on spinning for up to 0.2 s, as OpenMP runtimes do.
PAUSE = 0.25
TURN_LIMIT = 300.0
# Of works that can be measured once a process: each starts new ones, which takes from seconds to a minute.
MOST_FRESH_ROUNDS = 3


@dataclass(frozen=True)
class Effort:
    """How much is measured: the rounds, the seconds of a turn, and the least calls in one."""

    rounds: int = 7
    seconds: float = 0.7
    least: int = 3
    threads: int = 1


@dataclass
class Result:
    """What a work gave: a number a round for each peer, and the reason for each peer that gave none."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)


class Bench:
    """The environments, the folder of files, and the effort of one run of the benchmark."""

    def __init__(self, folder: Path, effort: Effort, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.models = folder / "models"
        self.effort = effort
        self.tell = tell
        self.pythons: dict[str, Path] = {}
        self._missing: dict[str, str] = {}

    def environment(self, name: str) -> Path | None:
        """The interpreter of an environment, or None where it cannot be made."""
        if name not in self.pythons and name not in self._missing:
            try:
                python = interpreter(name, self.folder)
            except EnvironmentFailure as failure:
                self._missing[name] = str(failure)
            else:
                settle(name, python)
                self.pythons[name] = python
        return self.pythons.get(name)

    def run(self, work: Work, peers: list[str]) -> Result:
        """Measure a work with those of the peers that take part in it."""
        result = Result()
        taking_part = [peer for peer in work.peers if peer in peers]
        for peer in taking_part:
            name = RUNS_IN[peer][0]
            if self.environment(name) is None:
                result.reasons[peer] = self._missing[name]
        there = [peer for peer in taking_part if peer not in result.reasons]
        self.models.mkdir(parents=True, exist_ok=True)
        if any(peer in ENGINES for peer in there):
            self.environment("torch")
        try:
            files = prepare_files(work, there, self.pythons, self.models)
        except PeerFailure as failure:
            files = {}
            dependent = [peer for peer in there if peer in ENGINES]
            result.reasons.update(dict.fromkeys(dependent, str(failure)))
            there = [peer for peer in there if peer not in dependent]
        measure = self._fresh if work.fresh else self._steady
        measure(work, there, files, result)
        return result

    def _start(self, work: Work, name: str, more: dict[str, str] | None = None) -> Peer:
        environment, module = RUNS_IN[name]
        log = self.folder / "logs" / f"{work.name}-{name}.log"
        python = str(self.pythons[environment])
        command = [python, "-W", "ignore", "-m", f"bench.workers.{module}", name, str(self.models)]
        return Peer(name, command, self.models, self.effort.threads, log, more)

    def _attempt(self, result: Result, peer: str, action: Callable[[], Any]) -> Any:
        """What the action returns, or None after noting why the peer failed."""
        try:
            return action()
        except PeerFailure as failure:
            result.reasons[peer] = str(failure)
            result.samples.pop(peer, None)
            self.tell(f"  {peer}: {failure}")
            return None

    def _steady(self, work: Work, names: list[str], files: dict[str, str], result: Result) -> None:
        effort = self.effort
        with ExitStack() as stack:
            peers = {name: stack.enter_context(self._start(work, name)) for name in names}
            calls: dict[str, int] = {}
            for name, peer in peers.items():
                self._attempt(result, name, peer.started)
            for name, peer in peers.items():
                if name not in result.reasons:
                    count = self._attempt(
                        result, name, partial(self._ready, work, peer, files.get(name))
                    )
                    if count:
                        calls[name] = count
                        result.versions[name] = peer.versions
            for number in range(effort.rounds):
                order = list(calls)
                turned = number % max(len(order), 1)
                for name in order[turned:] + order[:turned]:
                    if name in result.reasons:
                        continue
                    taken = self._attempt(result, name, partial(_turn, peers[name], calls[name]))
                    if taken is not None:
                        result.samples.setdefault(name, []).append(taken)

    def _ready(self, work: Work, peer: Peer, file: str | None) -> int:
        """Prepare a work and find how many calls fill a turn."""
        peer.ask(do="prepare", work={**work.request(), "file": file})
        once = min(peer.ask(TURN_LIMIT, do="run", iterations=1)["seconds"] for _ in range(3))
        return max(self.effort.least, round(self.effort.seconds / once))

    def _fresh(self, work: Work, names: list[str], files: dict[str, str], result: Result) -> None:
        for _ in range(min(self.effort.rounds, MOST_FRESH_ROUNDS)):
            for name in names:
                if name in result.reasons:
                    continue
                once = partial(self._once, work, name, files.get(name), result)
                taken = self._attempt(result, name, once)
                if taken is not None:
                    result.samples.setdefault(name, []).append(taken)

    def _once(self, work: Work, name: str, file: str | None, result: Result) -> float:
        # What an earlier process measured or compiled is no part of a first call.
        with (
            tempfile.TemporaryDirectory() as empty,
            self._start(work, name, {"REGLUON_CACHE": empty}) as peer,
        ):
            peer.started()
            result.versions[name] = peer.versions
            answer = peer.ask(do="prepare", work={**work.request(), "file": file})
            if work.kind == "memory":
                return float(peer.ask(do="memory")["bytes"])
            return float(answer["first"])


def _turn(peer: Peer, calls: int) -> float:
    """Seconds a call, after a few calls that bring the caches back."""
    time.sleep(PAUSE)
    peer.ask(TURN_LIMIT, do="run", iterations=max(1, calls // 20))
    return float(peer.ask(TURN_LIMIT, do="run", iterations=calls)["seconds"])
