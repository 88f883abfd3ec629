"""What a profiler collects: events, sums of them, and the memory of arrays that are made while it runs."""

from __future__ import annotations

import contextvars
import json
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

import torch

from ..base.atomic import atomic_writer
from ..base.errors import MXNetError
from ..exec.measure import backward_steps, size_in_bytes, watch_backward
from ..exec.onednn import Step, region_of, watched
from ..runtime.state import State

__all__ = ["NO_SCOPE", "SETTINGS", "Group", "Profiler", "Sums", "check_process", "current_scope", "setting"]

# The oldest events go where a run has more than this.
_MOST_EVENTS = 2_000_000
NO_SCOPE = "<unk>:"
# Shared by all threads of the process, as the time axis of a trace is: microseconds since the epoch.
_ORIGIN = time.time_ns() - time.perf_counter_ns()
current_scope: contextvars.ContextVar[str] = contextvars.ContextVar("profiler_scope", default=NO_SCOPE)

# Settings ----------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "filename": "profile.json",
    "gpu_memory_profile_filename_prefix": "gpu_memory_profile",
    "profile_all": False,
    "profile_symbolic": True,
    "profile_imperative": True,
    "profile_memory": True,
    "profile_api": True,
    "continuous_dump": True,
    "dump_period": 1.0,
    "aggregate_stats": False,
    "profile_process": "worker",
}
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def setting(name: str, value: Any) -> Any:
    """A setting's value, checked and in its own type."""
    default = SETTINGS[name]
    if isinstance(default, bool):
        truth = _TRUTHS.get(str(value).strip().lower())
        if truth is None:
            raise MXNetError(f"profiler.set_config: {name} is True or False; received {value!r}")
        return truth
    if isinstance(default, float):
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise MXNetError(f"profiler.set_config: {name} is a number; received {value!r}") from error
    if name == "profile_process":
        check_process(value)
    return os.fspath(value)


def check_process(process: str) -> None:
    """Refuse what is neither a worker nor a server."""
    if process not in ("worker", "server"):
        raise MXNetError(f"profile_process is 'worker' or 'server'; received {process!r}")


class Sums:
    """Count, total, smallest and largest of one name's values."""

    __slots__ = ("count", "largest", "last", "smallest", "total")

    def __init__(self) -> None:
        self.count, self.total, self.last = 0, 0.0, 0.0
        self.smallest, self.largest = float("inf"), float("-inf")

    def add(self, value: float) -> None:
        """Count one value more."""
        self.count += 1
        self.total += value
        self.last = value
        self.smallest, self.largest = min(self.smallest, value), max(self.largest, value)

    def key(self, sort_by: str) -> float:
        """The number to sort by."""
        return {
            "total": self.total,
            "avg": self.total / self.count,
            "min": self.smallest,
            "max": self.largest,
            "count": self.count,
        }[sort_by]


Group = dict[str, dict[str, Sums]]


class Profiler:
    """Collects events while it is the profiler of `State`."""

    def __init__(self) -> None:
        self.settings = dict(SETTINGS)
        self.running = self.paused = self.ever_ran = False
        self.events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self.threads: dict[int, str] = {}
        self.sums: dict[str, Group] = {"Time": {}, "Value": {}, "Memory": {}}
        self.lock = threading.RLock()
        self._live: dict[str, int] = {}
        self._held: set[int] = set()
        self._written = 0.0
        self._cost = 0.0

    # Switching ----------------------------------------------------------------------

    def wants(self, name: str) -> bool:
        """Whether a kind of event is recorded."""
        return bool(self.settings["profile_all"] or self.settings[f"profile_{name}"])

    @property
    def active(self) -> bool:
        """Whether events are recorded now."""
        return self.running and not self.paused

    def switch(self, running: bool | None = None, paused: bool | None = None) -> None:
        """Start, stop, pause or resume."""
        with self.lock:
            self.running = self.running if running is None else running
            self.paused = self.paused if paused is None else paused
            if self.active:
                self.ever_ran = True
                self._written = time.perf_counter()
            State.set_profiler(self if self.active else None)

    # Events ----------------------------------------------------------------------

    @staticmethod
    def now() -> int:
        """Nanoseconds, for the beginning of an event."""
        return time.perf_counter_ns()

    def span(self, name: str, category: str, begin: int, end: int, arguments: Any = None) -> None:
        """Something that took from ``begin`` to ``end``, in nanoseconds."""
        self._event(name, category, "X", begin, {"dur": (end - begin) / 1e3}, arguments)
        if self.settings["aggregate_stats"]:
            self._add("Time", category, name, (end - begin) / 1e6)

    def value(self, name: str, category: str, value: float, kind: str = "Value", scale: float = 1.0) -> None:
        """The new value of a counter; the table shows it divided by ``scale``."""
        self._event(name, category, "C", self.now(), {}, {name: value})
        if self.settings["aggregate_stats"]:
            self._add(kind, category, name, value / scale)

    def instant(self, name: str, category: str, scope: str) -> None:
        """A moment."""
        self._event(name, category, "i", self.now(), {"s": scope}, None)
        if self.settings["aggregate_stats"]:
            self._add("Time", category, name, 0.0)

    def _event(
        self, name: str, category: str, phase: str, begin: int, more: dict[str, Any], arguments: Any
    ) -> None:
        thread = threading.get_ident()
        if thread not in self.threads:
            self.threads[thread] = threading.current_thread().name
        event = {"name": name, "cat": category, "ph": phase, "ts": (begin + _ORIGIN) / 1e3, **more}
        event["pid"], event["tid"] = os.getpid(), thread
        if arguments:
            event["args"] = arguments
        self.events.append(event)
        if self.settings["continuous_dump"]:
            # A file is written whole, so that a long run does it less often.
            waited = time.perf_counter() - self._written
            if waited > max(self.settings["dump_period"], 20 * self._cost):
                self.write()

    def _add(self, kind: str, category: str, name: str, value: float) -> None:
        with self.lock:
            self.sums[kind].setdefault(category, {}).setdefault(name, Sums()).add(value)

    # What the package calls ----------------------------------------------------------------------

    def operator(self, name: str, begin: int, arrays: Sequence[Any], made: Sequence[Any]) -> None:
        """An operator ran by itself."""
        tensors = [array._t for array in made if array is not None]
        end = self._end(tensors)
        if self.wants("imperative"):
            self.span(name, "operator", begin, end, self._arguments())
            # The wrappers of the inputs' steps are kept, and with them their identity, during the search.
            before = [a._g.grad_fn for a in arrays if a is not None and a._g is not None]
            if any(array._g is not None for array in made):
                self._follow(name, [array._g for array in made], {id(step) for step in before})
            del before
        self._note_memory(tensors)

    def program(self, program: Any, key: int, tensors: Sequence[Any]) -> Any:
        """Run a compiled graph; each of its nodes is an event."""
        known = {id(tensor.grad_fn) for tensor in tensors}
        return program.run(key, tensors, program.watched(self._watch(program, known, [self.now()])))

    def plan(self, plan: Any, key: int, tensors: Sequence[Any]) -> Any:
        """The same for a compiled graph of fixed shapes; what another compiler made of it is one event."""
        if plan.is_opaque:
            begin = self.now()
            results = plan(key, tensors)
            end = self._end(results)
            if self.wants("imperative") or self.wants("symbolic"):
                computed = {"computes": plan.program.recorded}
                self.span(type(plan).__name__, "operator", begin, end, computed)
            self._note_memory(results)
            return results
        clock = [self.now()]
        with watched(self._step_watch(clock)):
            return plan(key, tensors, plan.program.watched(self._watch(plan.program, set(), clock)))

    def _step_watch(self, clock: list[int]) -> Any:
        """Makes an event of each kernel inside a region; ``clock`` holds the end of the last event."""
        shown = self.wants("imperative") or self.wants("symbolic")

        def watch(step: Step) -> None:
            end = self.now()
            if shown:
                arguments = {"node": step.node.name, "computes": list(step.node.recorded)}
                arguments["implementation"] = step.primitive.implementation
                self.span(step.kernel, "operator", clock[0], end, {**arguments, **(self._arguments() or {})})
            clock[0] = self.now()

        return watch

    def _watch(self, program: Any, known: set[int], clock: list[int]) -> Any:
        shown = self.wants("imperative") or self.wants("symbolic")
        steps: list[Any] = []

        def watch(place: int, values: tuple[Any, ...]) -> None:
            node = program.nodes[place]
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
            end = self._end(tensors)
            # The kernels of a region have made events of their own.
            if shown and region_of(node) is None:
                name = node.op.name
                arguments = {"node": node.name, "computes": list(node.recorded)}
                self.span(name, "operator", clock[0], end, {**arguments, **(self._arguments() or {})})
                if program.recording:
                    steps.extend(self._follow(name, tensors, known, arguments))
            self._note_memory(tensors)
            clock[0] = self.now()

        return watch

    def call(self, name: str, begin: int) -> None:
        """A call of a hybridized block, or of another part of the interface, ended."""
        if self.wants("api"):
            self.span(name, "API", begin, self.now(), self._arguments())

    def _follow(self, name: str, values: Sequence[Any], known: set[int], arguments: Any = None) -> list[Any]:
        """Make events of the backward of an operator."""
        steps = backward_steps(values, known)

        def add(seconds: float) -> None:
            if State.profiler is self:
                end = self.now()
                self.span(f"_backward_{name}", "operator", end - int(seconds * 1e9), end, arguments)

        watch_backward(steps, add)
        return steps

    def _end(self, tensors: Sequence[Any]) -> int:
        if tensors and tensors[0].is_cuda:
            torch.cuda.synchronize(tensors[0].device)
        return self.now()

    @staticmethod
    def _arguments() -> dict[str, str] | None:
        current = current_scope.get()
        return None if current == NO_SCOPE else {"scope": current}

    # Memory ----------------------------------------------------------------------

    def _note_memory(self, tensors: Sequence[Any]) -> None:
        """Count the bytes of arrays that were made while the profiler ran and are still there."""
        if not self.wants("memory"):
            return
        for tensor in tensors:
            device = f"{'gpu' if tensor.is_cuda else 'cpu'}/{tensor.device.index or 0}"
            if tensor.is_cuda:
                self._memory(device, torch.cuda.memory_allocated(tensor.device))
            elif id(tensor) not in self._held and not tensor._is_view():
                size = size_in_bytes(tensor)
                self._held.add(id(tensor))
                weakref.finalize(tensor, self._free, id(tensor), device, size).atexit = False
                with self.lock:
                    self._live[device] = self._live.get(device, 0) + size
                    self._memory(device, self._live[device])

    def _free(self, key: int, device: str, size: int) -> None:
        with self.lock:
            self._held.discard(key)
            self._live[device] -= size
            if State.profiler is self:
                self._memory(device, self._live[device])

    def _memory(self, device: str, size: int) -> None:
        self.value(f"Memory: {device}", "Device Storage", size, "Memory", 1000.0)

    # Results ----------------------------------------------------------------------

    def write(self) -> None:
        """Write the trace. A reader sees the old file or the whole new one."""
        begin = time.perf_counter()
        process = os.getpid()
        names = [("process_name", 0, "regluon")]
        names += [("thread_name", thread, name) for thread, name in list(self.threads.items())]
        labels = [
            {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
            for kind, thread, name in names
        ]
        trace = {"traceEvents": [*labels, *list(self.events)], "displayTimeUnit": "ms"}
        with atomic_writer(self.settings["filename"]) as stream, TextIOWrapper(stream, "utf-8") as file:
            json.dump(trace, file)
        self._written = time.perf_counter()
        self._cost = self._written - begin
