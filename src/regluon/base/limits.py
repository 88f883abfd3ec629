"""What reading a file may cost: a few times its size in memory, whatever the file claims.

A file of some bytes can claim, or describe in few bytes, what would take gigabytes or minutes: a damaged
length, zeros that are packed a thousandfold, a million empty arrays. Readers estimate what they are about to
make and ask `check` first. Real models stay far below; for a file that does not, the limits can be lifted.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import os
from collections.abc import Iterator

__all__ = ["FACTOR", "FREE", "REMEDY", "allowance", "exceeds", "lifted", "paused_collection"]

#: Reading may take this many times the size of a file, and so many bytes more.
FACTOR, FREE = 4, 1 << 26
#: The end of every message about a limit.
REMEDY = (
    "If the file is right, read it within `with regluon.serial.without_limits():`, or set the environment "
    "variable REGLUON_FILE_LIMITS=0."
)

# Pauses of the search for cycles that will end with it switched on again.
_pauses: set[object] = set()

_lifted: contextvars.ContextVar[bool] = contextvars.ContextVar("file_limits_lifted", default=False)


def allowance(size: int) -> int:
    """How many bytes reading a file of ``size`` bytes may take."""
    return FACTOR * size + FREE


def exceeds(needed: int, size: int) -> bool:
    """Whether ``needed`` bytes are more than a file of ``size`` bytes may take, and limits are in force."""
    return needed > allowance(size) and not _lifted.get() and os.environ.get("REGLUON_FILE_LIMITS") != "0"


@contextlib.contextmanager
def lifted() -> Iterator[None]:
    """Read files in this context whatever they take."""
    token = _lifted.set(True)
    try:
        yield
    finally:
        _lifted.reset(token)


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """Put off Python's search for cycles while many objects are made, none of which is garbage.

    The search visits everything that there is each time that their number has grown by some: with it,
    reading a file of 100,000 objects takes five times as long.
    """
    pause, active = object(), gc.isenabled()
    if active:
        _pauses.add(pause)
        gc.disable()
    try:
        yield
    finally:
        if active:
            _pauses.discard(pause)
            gc.enable()


def _resume() -> None:
    """A forked process has none of the threads that would end a pause."""
    if _pauses:
        _pauses.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume)
