"""Choosing kernels by measuring them, once for each node's operator, shapes and machine.

The winners are kept in ``kernels.json`` in the folder that the environment variable ``REGLUON_CACHE`` names,
else in ``~/.cache/regluon``. Deleting the file is safe: kernels are measured again.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..graph.node import Entry, Node
from ..passes.rewrite import Settings, make
from .cache import cache_folder, machine, write_json
from .kernels import Candidates, Layouts, candidates
from .partition import Subgraph
from .program import Program
from .splitting import split

__all__ = ["TimedRun", "Tuner", "random_value"]

# Each candidate runs this many times, or all together for this many seconds, whichever ends first.
_RUNS, _SECONDS = 10, 0.05
# After so many runs of each, and so many seconds, those that are not on the way to being taken are given up.
_RUNS_TO_JUDGE, _LONG = 3, 0.2
# Another kernel than the usual one must be faster by this factor.
_CLEARLY = 0.9
# The same for whole groups of nodes, whose times differ less; each way is run so many times at least.
_CLEARLY_IN_GROUPS, _FEWEST_OF_GROUPS = 0.96, 6

# Runs of regions that are timed step by step: so many at most, and the factor by which another one than the
# usual way may be slower after two runs to get a third.
_MOST_BY_STEP, _LOOSELY = 6, 1.04

# By name, what prepares a run of each way to compute something; it gives None for one that cannot be used.
Ways = Mapping[str, Callable[[], Callable[[], Any] | None]]


class TimedRun(ABC):
    """A run that tells itself how long it takes: few runs are enough."""

    @abstractmethod
    def __call__(self) -> None:
        """Run once."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """What a run takes, by all runs so far."""


class Tuner:
    """Picks the fastest candidate; `save` keeps what was measured."""

    def __init__(self) -> None:
        self._known = _load(_path())
        self._new: dict[str, str] = {}

    def __call__(self, node: Node, inputs: tuple[Entry, ...], found: Candidates, channels_last: bool) -> str:
        """The name of the fastest candidate for this node."""
        key = _key(node, inputs, channels_last)
        name = self._known.get(key) or self._new.get(key)
        if name not in found:
            name = _fastest(node, inputs, list(found), channels_last)
            self._new[key] = name
        return name

    def prefers(self, group: Subgraph, ways: Ways) -> str:
        """The name of the fastest way to compute a group of nodes."""
        places = {id(node): place for place, node in enumerate(group.nodes)}
        texts = [
            f"{_text(node, node.inputs)} of {[places.get(id(e.node), '') for e in node.inputs]}"
            for node in group.nodes
        ]
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:24]
        what = f"group of {len(texts)} operators, {digest}, as {' or '.join(ways)}"
        return self.choose(what, ways, _CLEARLY_IN_GROUPS, _FEWEST_OF_GROUPS)

    def choose(
        self,
        what: str,
        ways: Ways,
        clearly: float = _CLEARLY,
        fewest: int = 1,
    ) -> str:
        """The name of the fastest way to compute something, of which ``what`` says all that it depends on.

        Another than the first must be faster by the factor ``clearly``, in ``fewest`` runs or more.
        """
        key = _key_of(what)
        name = self._known.get(key) or self._new.get(key)
        if name is None or name not in ways:
            name = self._new[key] = _fastest_run({name: way() for name, way in ways.items()}, clearly, fewest)
        return name

    def known(self, what: str) -> str | None:
        """What `choose` would give without measuring."""
        return self._known.get(_key_of(what))

    def save(self) -> None:
        """Write the winners to disk; a folder that cannot be written to only costs measuring again."""
        if not self._new:
            return
        path = _path()
        write_json(path, {**_load(path), **self._new})


def _path() -> Path:
    return cache_folder() / "kernels.json"


def _load(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _key_of(what: str) -> str:
    return f"{machine()}, {torch.get_num_threads()} threads: {what}"


def _key(node: Node, inputs: tuple[Entry, ...], channels_last: bool) -> str:
    return _key_of(f"{_text(node, inputs)}, {'channels last' if channels_last else 'rows first'}")


def _text(node: Node, inputs: Sequence[Entry]) -> str:
    assert node.op is not None
    attrs = ", ".join(f"{name}={value}" for name, value in sorted(node.attrs.items()))
    shapes = ", ".join(f"{e.spec.dtype}{tuple(e.spec.shape)}" if e.spec else "?" for e in inputs)
    return f"{node.op.name}({shapes}; {attrs})"


def _fastest(node: Node, inputs: tuple[Entry, ...], names: list[str], channels_last: bool) -> str:
    """The candidate with the shortest run; they take turns, so that a busy moment hits all of them."""
    return _fastest_run({name: _prepare(node, inputs, name, channels_last) for name in names})


def _fastest_run(
    runs: dict[str, Callable[[], Any] | None], clearly: float = _CLEARLY, fewest: int = 1
) -> str:
    names = list(runs)
    best = dict.fromkeys(names, float("inf"))
    left = {name: run for name, run in runs.items() if run is not None}
    timed = {name: run for name, run in left.items() if isinstance(run, TimedRun)}
    if len(timed) == len(left) and names[0] in timed:
        return _fastest_by_step(timed, clearly)
    end, spent = time.perf_counter() + _SECONDS, 0.0
    for turn in range(_RUNS + 1):
        for name, run in left.items():
            start = time.perf_counter()
            run()
            if turn:  # the first run of a kernel prepares it
                seconds = time.perf_counter() - start
                best[name], spent = min(best[name], seconds), spent + seconds
        if turn > fewest and time.perf_counter() > end:
            break
        if turn >= _RUNS_TO_JUDGE and spent > _LONG:
            left = _still_promising(left, best, names[0], clearly)
        if len(left) < 2 and turn:
            break
    fastest = min(names, key=lambda name: best[name])
    # What is kept for good should not hang on the noise of one moment.
    return fastest if best[fastest] < clearly * best[names[0]] else names[0]


def _fastest_by_step(runs: dict[str, TimedRun], clearly: float) -> str:
    """The same for runs that tell their times: those that are clearly apart run twice or three times."""
    usual, left = next(iter(runs)), runs
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(_MOST_BY_STEP):
        for run in left.values():
            run()
        if not turn:
            # The first run of each also pays for memory that is new.
            continue
        best |= {name: run.seconds for name, run in left.items()}
        left = _still_promising(left, best, usual, clearly, _LOOSELY if turn == 1 else None)
        others = [name for name in left if name != usual]
        if not others or (turn > 1 and len(others) == 1 and best[others[0]] < clearly**2 * best[usual]):
            break
    fastest = min(runs, key=lambda name: best[name])
    return fastest if best[fastest] < clearly * best[usual] else usual


_Timed = TypeVar("_Timed", bound=Callable[[], Any])


def _still_promising(
    runs: dict[str, _Timed],
    best: dict[str, float],
    usual: str,
    clearly: float,
    loosely: float | None = None,
) -> dict[str, _Timed]:
    """Those that may still be taken, with the usual one if there are any.

    Another one is to be faster than the usual one by half of what it has to be in the end, and not clearly
    slower than the fastest so far; with ``loosely``, not slower than the usual one by this factor.
    """
    gaining = (1 + clearly) / 2 if loosely is None else loosely
    enough = min(gaining * best[usual], min(best.values()) / clearly)
    kept = {name: run for name, run in runs.items() if name == usual or best[name] < enough}
    return kept if len(kept) > 1 else {}


def _prepare(
    node: Node, inputs: tuple[Entry, ...], name: str, channels_last: bool
) -> Callable[[], Any] | None:
    """A run of one candidate on random values; None where it refuses them."""
    constant = [place for place in range(1, len(inputs)) if not _is_residual(node, place, len(inputs))]
    variables = [
        Node(None, f"v{i}", specs=None if e.spec is None else [e.spec]) for i, e in enumerate(inputs)
    ]
    settings = Settings({id(variables[place]) for place in constant})
    layouts = Layouts()
    values = [random_value(entry) for entry in inputs]
    for place, variable in enumerate(variables):
        if place not in constant and channels_last and values[place].dim() == 4:
            values[place] = values[place].contiguous(memory_format=torch.channels_last)
            layouts.note(variable)
    entries = tuple(Entry(variable, 0) for variable in variables)
    assert node.op is not None
    twin = make(node.op, node, entries, node.attrs).node
    try:
        build = candidates(twin, entries, settings, layouts)[name]
        outputs, made, sources = split([Entry(twin, 0) if build is None else build()], settings)
        first = Program(variables, sources, False, False)
        program = Program([*variables, *made], outputs, False, False)
        with torch.no_grad():
            ready = [*values, *first(0, values)]
            program(0, ready)
        return lambda: program(0, ready)
    except (RuntimeError, KeyError):
        return None


def _is_residual(node: Node, place: int, count: int) -> bool:
    return bool(node.attrs.get("residual")) and place == count - 1


def random_value(entry: Entry) -> Tensor:
    """Values of an entry's shape and type to measure with."""
    spec = entry.spec
    assert spec is not None
    return torch.rand(spec.shape, generator=torch.Generator().manual_seed(0)).to(spec.dtype)
