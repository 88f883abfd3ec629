"""mx.engine: how many operators the originals' engine took together. Here execution is ordered as written.

The numbers are kept, so that programs that set and restore them run; they change nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["bulk", "set_bulk_size"]


class _Size(threading.local):
    value = 0


_size = _Size()


def set_bulk_size(size: int) -> int:
    """Set the size of bulks in this thread; returns what it was."""
    before, _size.value = _size.value, int(size)
    return before


@contextmanager
def bulk(size: int) -> Iterator[None]:
    """A scope with another size of bulks."""
    before = set_bulk_size(size)
    try:
        yield
    finally:
        set_bulk_size(before)
