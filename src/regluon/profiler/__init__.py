"""Profiling: what ran, when and for how long, as a trace for a browser and as a table of sums.

``set_config(aggregate_stats=True)``, ``set_state("run")``, the program, ``set_state("stop")``; then
``dumps()`` gives the table, and ``dump()`` writes a file that chrome://tracing and https://ui.perfetto.dev
open. Operators that run by themselves are events, as are the nodes of hybridized programs and the steps of a
backward. While no profiler runs, all that is left is one comparison an operator or call.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

from ..base.errors import MXNetError
from .collector import NO_SCOPE as _NO_SCOPE
from .collector import SETTINGS as _SETTINGS
from .collector import Profiler as _Profiler
from .collector import check_process as _check_process
from .collector import current_scope as _scope
from .collector import setting as _setting
from .sums import as_json as _json
from .sums import table as _table

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

_SORTS = ("total", "avg", "min", "max", "count")
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
