"""Profiling: what ran, when and for how long, as a trace for a browser and as a table of sums.

``set_config(aggregate_stats=True)``, ``set_state("run")``, the program, ``set_state("stop")``; then
``dumps()`` gives the table, and ``dump()`` writes a file that chrome://tracing and https://ui.perfetto.dev
open. Operators that run by themselves are events, as are the nodes of hybridized programs and the steps of a
backward. While no profiler runs, all that is left is one comparison an operator or call.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import tempfile
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch

from .base.errors import MXNetError
from .exec.measure import backward_steps, size_in_bytes, watch_backward
from .exec.onednn import Step, region_of, watched
from .runtime.state import State

__all__ = [
    "Counter",
    "Domain",
    "Event",
    "Frame",
    "Marker",
    "Task",
    "dump",
    "dump_profile",
    "dumps",
    "pause",
    "profiler_set_config",
    "profiler_set_state",
    "resume",
    "scope",
    "set_config",
    "set_kvstore_handle",
    "set_state",
    "start",
    "stop",
]

# The oldest events go where a run has more than this.
_MOST_EVENTS = 2_000_000
_SORTS = ("total", "avg", "min", "max", "count")
_NO_SCOPE = "<unk>:"
# Shared by all threads of the process, as the time axis of a trace is: microseconds since the epoch.
_ORIGIN = time.time_ns() - time.perf_counter_ns()
_scope: contextvars.ContextVar[str] = contextvars.ContextVar("profiler_scope", default=_NO_SCOPE)

# Settings ----------------------------------------------------------------------

_SETTINGS: dict[str, Any] = {
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


def _setting(name: str, value: Any) -> Any:
    default = _SETTINGS[name]
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
        _check_process(value)
    return os.fspath(value)


def _check_process(process: str) -> None:
    if process not in ("worker", "server"):
        raise MXNetError(f"profile_process is 'worker' or 'server'; received {process!r}")


class _Sums:
    """Count, total, smallest and largest of one name's values."""

    __slots__ = ("count", "largest", "last", "smallest", "total")

    def __init__(self) -> None:
        self.count, self.total, self.last = 0, 0.0, 0.0
        self.smallest, self.largest = float("inf"), float("-inf")

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.last = value
        self.smallest, self.largest = min(self.smallest, value), max(self.largest, value)

    def key(self, sort_by: str) -> float:
        return {
            "total": self.total,
            "avg": self.total / self.count,
            "min": self.smallest,
            "max": self.largest,
            "count": self.count,
        }[sort_by]


Group = dict[str, dict[str, _Sums]]


class _Profiler:
    """Collects events while it is the profiler of `State`."""

    def __init__(self) -> None:
        self.settings = dict(_SETTINGS)
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
            self.sums[kind].setdefault(category, {}).setdefault(name, _Sums()).add(value)

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
        current = _scope.get()
        return None if current == _NO_SCOPE else {"scope": current}

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
        """Write the trace: to a temporary name, which is then renamed."""
        begin = time.perf_counter()
        path = os.path.abspath(self.settings["filename"])
        process = os.getpid()
        names = [("process_name", 0, "regluon")]
        names += [("thread_name", thread, name) for thread, name in list(self.threads.items())]
        labels = [
            {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
            for kind, thread, name in names
        ]
        trace = {"traceEvents": [*labels, *list(self.events)], "displayTimeUnit": "ms"}
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".tmp")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(trace, file)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        self._written = time.perf_counter()
        self._cost = self._written - begin


_profiler = _Profiler()


# Control ----------------------------------------------------------------------


def set_config(**kwargs: Any) -> None:
    """Set what is profiled; what is not given keeps its value.

    Parameters
    ----------
    filename : str
        Where `dump` writes the trace.
    profile_all : bool
        Everything below.
    profile_symbolic, profile_imperative : bool
        Operators of Symbols, and operators that run by themselves; nodes of hybridized programs are
        recorded with either.
    profile_memory : bool
        Bytes of the arrays that are made while the profiler runs.
    profile_api : bool
        Whole calls of hybridized blocks, and of backward.
    continuous_dump : bool
        Write the file every ``dump_period`` seconds while the profiler runs.
    dump_period : float
        In seconds.
    aggregate_stats : bool
        Keep the sums that `dumps` shows.
    gpu_memory_profile_filename_prefix, profile_process : str
        Accepted; there are no server processes, and memory of a GPU is in the trace.

    Raises
    ------
    MXNetError
        For an unknown setting, or a value that does not fit.
    """
    unknown = [name for name in kwargs if name not in _SETTINGS]
    if unknown:
        raise MXNetError(
            f"profiler.set_config has no setting {', '.join(map(repr, unknown))}; there are: "
            f"{', '.join(_SETTINGS)}"
        )
    _profiler.settings.update({name: _setting(name, value) for name, value in kwargs.items()})


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Start (``"run"``) or stop (``"stop"``) the profiler, in all threads.

    Raises
    ------
    ValueError
        For another state.
    """
    _check_process(profile_process)
    if state not in ("run", "stop"):
        raise ValueError(f"the profiler's state is 'run' or 'stop'; received {state!r}")
    if profile_process == "worker":
        _profiler.switch(running=state == "run", paused=False)


def start(profile_process: str = "worker") -> None:
    """``set_state("run")``."""
    set_state("run", profile_process)


def stop(profile_process: str = "worker") -> None:
    """``set_state("stop")``."""
    set_state("stop", profile_process)


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`."""
    _check_process(profile_process)
    if profile_process == "worker":
        _profiler.switch(paused=True)


def resume(profile_process: str = "worker") -> None:
    """Go on after `pause`."""
    _check_process(profile_process)
    if profile_process == "worker":
        _profiler.switch(paused=False)


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the trace to the configured file.

    With ``finished`` the profiler is stopped, and the next run starts a new trace; else later dumps hold
    these events too.

    Raises
    ------
    MXNetError
        If the profiler never ran.
    """
    _check_process(profile_process)
    if profile_process == "server":
        return
    if not _profiler.ever_ran:
        raise MXNetError("there is nothing to dump, as the profiler never ran: call set_state('run') before")
    _profiler.write()
    if finished:
        _profiler.switch(running=False)
        _profiler.events.clear()


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """The sums of all events by category and name, as text.

    Parameters
    ----------
    reset : bool
        Start the sums anew.
    format : {"table", "json"}
        How they are written. Times are in milliseconds, memory is in kB (1000 bytes).
    sort_by : {"total", "avg", "min", "max", "count"}
        The order within a category.
    ascending : bool
        Smallest first.

    Returns
    -------
    str
        Empty where ``aggregate_stats`` was not set or nothing ran.

    Raises
    ------
    ValueError
        For another format or order.
    """
    if format not in ("table", "json"):
        raise ValueError(f"format is 'table' or 'json'; received {format!r}")
    if sort_by not in _SORTS:
        raise ValueError(f"sort_by is one of {', '.join(_SORTS)}; received {sort_by!r}")
    with _profiler.lock:
        sums = {
            kind: {
                category: dict(
                    sorted(rows.items(), key=lambda item: item[1].key(sort_by), reverse=not ascending)
                )
                for category, rows in group.items()
            }
            for kind, group in _profiler.sums.items()
        }
        text = _table(sums) if format == "table" else _json(sums)
        if reset:
            _profiler.sums = {kind: {} for kind in _profiler.sums}
    return text if any(sums.values()) else ""


_HEADS = {
    "Time": ("Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)"),
    "Value": ("Last", "Min", "Max", "Avg"),
    "Memory": ("Min Use  (kB)", "Max Use  (kB)", "Avg Use  (kB)"),
}


def _numbers(kind: str, row: _Sums) -> dict[str, float]:
    found = {"Min": row.smallest, "Max": row.largest, "Avg": row.total / row.count}
    if kind == "Memory":
        return found
    return {"Total": row.total, **found} if kind == "Time" else {"Last": row.last, **found}


def _table(sums: dict[str, Group]) -> str:
    sections = sorted((category, kind) for kind, group in sums.items() for category in group)
    lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    for category, kind in sections:
        heads = ["Total Count", *_HEADS[kind]]
        lines += [category, "================="]
        lines.append(_row("Name", heads))
        lines.append(_row("----", ["-" * len(head) for head in heads]))
        for name, row in sums[kind][category].items():
            numbers = [f"{value:.4f}" for value in _numbers(kind, row).values()]
            lines.append(_row(name, [str(row.count), *numbers]))
        lines.append("")
    return "\n".join(lines) + "\n"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<25}{cells[0]:>16}{''.join(f' {cell:>16}' for cell in cells[1:])}"


def _json(sums: dict[str, Group]) -> str:
    found: dict[str, Any] = {
        kind: {
            category: {name: {"Count": row.count, **_numbers(kind, row)} for name, row in rows.items()}
            for category, rows in sorted(group.items())
        }
        for kind, group in sums.items()
        if group or kind != "Value"
    }
    return json.dumps({**found, "Unit": {"Time": "ms", "Memory": "kB"}}, indent=4)


def set_kvstore_handle(handle: Any) -> None:
    """Accepted for programs that profile server processes, of which there are none."""
    del handle


@contextlib.contextmanager
def scope(name: str = _NO_SCOPE, append_mode: bool = True) -> Iterator[str]:
    """Mark the events of this thread's code inside with a name.

    Parameters
    ----------
    name : str
        Ends with a colon, which is added where it is missing.
    append_mode : bool
        Put the name behind that of the scope around.
    """
    name = name if name.endswith(":") else f"{name}:"
    around = _scope.get()
    if append_mode and around != _NO_SCOPE:
        name = around + name
    token = _scope.set(name)
    try:
        yield name
    finally:
        _scope.reset(token)


# Old names ----------------------------------------------------------------------


def _warn_old(old: str, new: str) -> None:
    warnings.warn(f"profiler.{old}() is the old name of profiler.{new}()", stacklevel=3)


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """The old `set_config`; ``mode`` is symbolic, imperative, api, memory or all."""
    _warn_old("profiler_set_config", "set_config")
    kinds = ("symbolic", "imperative", "api", "memory")
    if mode not in (*kinds, "all"):
        raise MXNetError(f"mode is one of {', '.join(kinds)} and all; received {mode!r}")
    chosen = {f"profile_{kind}": mode in (kind, "all") for kind in kinds}
    set_config(filename=filename, profile_all=mode == "all", **chosen)


def profiler_set_state(state: str = "stop") -> None:
    """The old `set_state`."""
    _warn_old("profiler_set_state", "set_state")
    set_state(state)


def dump_profile() -> None:
    """The old `dump`."""
    _warn_old("dump_profile", "dump")
    dump(True)


# A program's own events ----------------------------------------------------------------------


class Domain:
    """A group of events of a program's own.

    Parameters
    ----------
    name : str
        The category under which they are shown.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """A `Task` of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """A `Frame` of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """A `Counter` of this domain."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """A `Marker` of this domain."""
        return Marker(self, name)


def _category(domain: Any, suffix: str = "") -> str:
    if not isinstance(domain, Domain):
        raise TypeError(f"a domain is a profiler.Domain; received {type(domain).__name__}")
    return f"{domain.name}{suffix}"


class _Span:
    """Something with a beginning and an end. It can be used in ``with``."""

    def __init__(self, name: str, category: str) -> None:
        self.name = name
        self._category = category
        self._begin: int | None = None

    def start(self) -> None:
        """Begin."""
        self._begin = _profiler.now()

    def stop(self) -> None:
        """End; without a `start` before, nothing."""
        begin, self._begin = self._begin, None
        if begin is not None and _profiler.active:
            _profiler.span(self.name, self._category, begin, _profiler.now())

    def __enter__(self) -> _Span:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.name


class Task(_Span):
    """A piece of work of a domain, from `start` to `stop`."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, _category(domain))


class Frame(_Span):
    """A round of repeated work of a domain, such as one batch, from `start` to `stop`."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, _category(domain, ",frame"))


class Event(_Span):
    """Something of a thread, in no domain, from `start` to `stop`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "event")


class Counter:
    """A number that changes over time.

    Parameters
    ----------
    domain : Domain
        Where it belongs.
    name : str
        What it is called.
    value : float, optional
        Its first value.
    """

    def __init__(self, domain: Domain, name: str, value: float | None = None) -> None:
        self.name = name
        self._category = _category(domain)
        self._value: float = 0
        self._lock = threading.Lock()
        if value is not None:
            self.set_value(value)

    def set_value(self, value: float) -> None:
        """Make it ``value``."""
        with self._lock:
            self._value = value
            self._note()

    def increment(self, delta: float = 1) -> None:
        """Add ``delta``."""
        with self._lock:
            self._value += delta
            self._note()

    def decrement(self, delta: float = 1) -> None:
        """Subtract ``delta``."""
        self.increment(-delta)

    def _note(self) -> None:
        if _profiler.active:
            _profiler.value(self.name, self._category, self._value)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self

    def __str__(self) -> str:
        return self.name


class Marker:
    """Moments of a domain."""

    # How far a mark is drawn: over the whole trace, a process or a thread.
    _SCOPES: ClassVar[dict[str, str]] = {
        "global": "g",
        "process": "p",
        "thread": "t",
        "task": "t",
        "marker": "t",
    }

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self._category = _category(domain, ",instant_marker")

    def mark(self, scope: str = "process") -> None:
        """Now.

        Raises
        ------
        MXNetError
            For a scope that is not global, process, thread, task or marker.
        """
        if scope not in self._SCOPES:
            raise MXNetError(f"the scope of a mark is one of {', '.join(self._SCOPES)}; received {scope!r}")
        if _profiler.active:
            _profiler.instant(self.name, self._category, self._SCOPES[scope])

    def __str__(self) -> str:
        return self.name
