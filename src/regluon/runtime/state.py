"""The mode of a thread: recording for autograd, training, tracing. One object, read on every call."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["State", "state"]


class State(threading.local):
    """``plain`` is True when neither recording, tracing nor monitoring is on: the short way may be taken."""

    recording = False
    training = False
    tracer: Any = None
    amp: Any = None
    constraints = 0
    plain = True

    def update(self) -> None:
        """Recompute ``plain`` after a change."""
        self.plain = not self.recording and self.tracer is None and self.amp is None


state = State()
