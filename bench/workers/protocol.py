"""The worker's side of the conversation: requests and answers are JSON, one a line.

Only the standard library is used, since every peer's environment reads this file.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Of the calls of a turn: so many parts are timed, and where calls overlap, each is so many calls at least.
_MOST_PARTS, _FEWEST_PIPELINED = 25, 5


class Unsupported(Exception):
    """The peer cannot do the work at all; the message is the reason that the report gives."""


class Prepared:
    """A work that is ready to be repeated.

    ``call`` does it once; ``finish`` waits for what calls left running. ``first`` holds the seconds of
    a first call, which can be measured once only.
    """

    def __init__(
        self,
        call: Callable[[], Any],
        finish: Callable[[], Any] | None = None,
        first: float | None = None,
    ) -> None:
        self.call = call
        self.finish = finish
        self.first = first

    def run(self, iterations: int) -> float:
        """Seconds a call: the median of parts of a number of calls in a row.

        What else a machine does for some milliseconds hits single parts. Where calls leave something running,
        a part is several calls, and only its end waits.
        """
        least = 1 if self.finish is None else _FEWEST_PIPELINED
        parts = max(1, min(_MOST_PARTS, iterations // least))
        sizes = [iterations // parts + (part < iterations % parts) for part in range(parts)]
        return statistics.median(map(self._part, sizes))

    def _part(self, calls: int) -> float:
        call = self.call
        started = time.perf_counter()
        for _ in range(calls):
            call()
        if self.finish is not None:
            self.finish()
        return (time.perf_counter() - started) / calls


def best_seconds(call: Callable[[], Any], repeats: int = 5, enough: float = 1.0) -> float:
    """The shortest of a few calls, after one that is not counted; ``enough`` seconds of calls suffice."""
    call()
    times: list[float] = []
    while len(times) < repeats and sum(times) < enough:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def peak_memory() -> int:
    """Most bytes of memory that this process has held at one time (VmHWM of Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise Unsupported("peak memory is read from /proc, which this system lacks")


def threads() -> int:
    """The number of threads that every peer is to use."""
    return int(os.environ["BENCH_THREADS"])


def serve(prepare: Callable[[dict[str, Any]], Prepared], versions: Callable[[], dict[str, str]]) -> None:
    """Answer requests until the input ends.

    ``{"do": "prepare", "work": {...}}`` makes a work ready, ``{"do": "run", "iterations": n}`` repeats it,
    and ``{"do": "memory"}`` tells the peak of memory. An answer has ``error`` (a failure) or ``skipped`` (the
    peer has no such thing) in place of its result.
    """
    # What libraries print must not end up between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    ready: list[Prepared] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "prepare":
            ready[:] = [prepare(request["work"])]
            return {"first": ready[0].first}
        if request["do"] == "memory":
            return {"bytes": peak_memory()}
        return {"seconds": ready[0].run(int(request["iterations"]))}

    answers.write(json.dumps({"versions": versions()}) + "\n")
    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        except Unsupported as reason:
            result = {"skipped": str(reason)}
        except Exception as error:
            traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = str(error).strip().splitlines() or [f"at {where.line}"]
            result = {"error": f"{type(error).__name__}: {text[0]}"}
        answers.write(json.dumps(result) + "\n")
