"""The mode of a thread: recording for autograd, training, tracing. One object, read on every call."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar

__all__ = ["State", "state"]


class _Thread:
    """The values of one thread, for as long as it lives."""

    __slots__ = ("__weakref__", "values")

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


_threads: weakref.WeakSet[_Thread] = weakref.WeakSet()


class State(threading.local):
    """``plain`` is True when neither recording, tracing, mixed precision nor profiling is on: the short way
    may be taken. ``profiler`` is what watches the operators of all threads, or None."""

    recording = False
    training = False
    tracer: Any = None
    amp: Any = None
    constraints = 0
    plain = True
    profiler: ClassVar[Any] = None

    def __init__(self) -> None:
        self._thread = _Thread(self.__dict__)
        _threads.add(self._thread)

    def update(self) -> None:
        """Recompute ``plain`` after a change."""
        self.plain = (
            not self.recording and self.tracer is None and self.amp is None and State.profiler is None
        )

    @classmethod
    def set_precision(cls, policy: Any) -> None:
        """Make ``policy`` (or None) the mixed precision of all threads, those to come included."""
        cls.amp = policy
        for thread in list(_threads):
            thread.values["amp"] = policy
        cls._update_all()

    @classmethod
    def set_profiler(cls, profiler: Any) -> None:
        """Let ``profiler`` (or None) watch the operators of all threads, those to come included."""
        cls.profiler = profiler
        cls._update_all()

    @classmethod
    def _update_all(cls) -> None:
        cls.plain = cls.amp is None and cls.profiler is None
        for thread in list(_threads):
            values = thread.values
            values["plain"] = (
                not values.get("recording")
                and values.get("tracer") is None
                and values.get("amp", cls.amp) is None
                and cls.profiler is None
            )


state = State()
