"""Memory for the large values of a training step: freed blocks are used again for values of their size.

A step frees its values in another order than it makes them, and a heap that keeps freed blocks ends with
holes that nothing fits into. Here each block has pages of its own. One that was freed waits for a value of
the same size; before new memory is taken, waiting blocks go back to the system, so that the process never
holds more than the values that were in use at one time, or than `most_kept` where that is more. The packed
weights of a region lie in such a block as well.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from .memory import give_back, lies_in_large_pages, most_kept

__all__ = ["drop_blocks", "empty_beside", "empty_bytes", "empty_images"]

# Smaller values lie in the heap.
_SMALLEST = 2 << 20
# Before so much memory is taken, the heap is tidied.
_MUCH = 16 << 20
_LARGE_PAGE = 2 << 20


class _Block:
    """Pages of their own, and a view of them that starts where a large page does."""

    __slots__ = ("_pages", "size", "start")

    def __init__(self, size: int) -> None:
        self.size = size
        self._pages = mmap.mmap(-1, size + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = torch.frombuffer(self._pages, dtype=torch.uint8, count=1).data_ptr()
        self.start = -address % _LARGE_PAGE
        whole = size // _LARGE_PAGE * _LARGE_PAGE
        # What is left over lies in small pages.
        if whole:
            self._pages.madvise(mmap.MADV_HUGEPAGE, self.start, whole)

    def view(self) -> memoryview:
        return memoryview(self._pages)[self.start : self.start + self.size]


class _Pool:
    """Blocks in use, and those that wait."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        # Blocks whose values were freed, before they are noted: that happens anywhere, also below.
        self._returned: deque[_Block] = deque()
        # By size, the last used size last.
        self._waiting: OrderedDict[int, list[_Block]] = OrderedDict()
        self._most = most
        self._leases: dict[int, weakref.ref[memoryview]] = {}
        # Bytes of all blocks, and of those that wait.
        self.held = self.waiting = 0

    def take(self, size: int) -> memoryview | None:
        """A view of a block, in use until nothing refers to the view; None where there is no memory."""
        with self._lock:
            self._note_returned()
            same = self._waiting.get(size)
            if same:
                block = same.pop()
                self.waiting -= size
            else:
                excess = self.held + size - self._most
                if excess > 0 and size >= _MUCH:
                    # torch's own values lie in the heap: where they were freed, it is full of holes.
                    give_back()
                self._drop(min(size, excess))
                try:
                    block = _Block(size)
                except OSError:
                    return None
                self.held += size
        view = block.view()
        # Called when the view goes; it stays referred to, or it would not be.
        self._leases[id(block)] = weakref.ref(view, partial(self._give, block))
        return view

    def clear(self) -> None:
        """Give all blocks that wait back to the system."""
        with self._lock:
            self._note_returned()
            self._drop(self.waiting)

    def _give(self, block: _Block, _: object) -> None:
        del self._leases[id(block)]
        self._returned.append(block)
        # Whoever holds the lock notes it, or else the next one who does.
        if self._lock.acquire(blocking=False):
            try:
                self._note_returned()
            finally:
                self._lock.release()

    def _note_returned(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._waiting.setdefault(block.size, []).append(block)
            self._waiting.move_to_end(block.size)
            self.waiting += block.size
        self._drop(self.waiting - self._most)

    def _drop(self, least: int) -> None:
        """Give so many bytes of waiting blocks back, those first whose size was not used lately."""
        while least > 0 and self._waiting:
            size, same = next(iter(self._waiting.items()))
            if same:
                same.pop()
                least -= size
                self.waiting -= size
                self.held -= size
            else:
                del self._waiting[size]


_pool: _Pool | None = None


def _the_pool() -> _Pool | None:
    """The process's pool, where memory is kept and lies in large pages."""
    global _pool
    if _pool is None and lies_in_large_pages():
        _pool = _Pool(most_kept())
    return _pool


def _forget() -> None:
    """A forked process starts with a pool of its own: another thread may have been at work in this one."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def empty_images(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Images on the CPU, of shape (N, C, H, W) and channels last, without values."""
    _, channels, height, width = shape
    return _empty(shape, (channels * height * width, 1, channels * width, channels), dtype)


def empty_bytes(size: int) -> Tensor:
    """At least so many bytes on the CPU without values, all in large pages where there are any."""
    if size < 4 * _LARGE_PAGE:
        return torch.empty(size, dtype=torch.uint8)
    return _empty((-(-size // _LARGE_PAGE) * _LARGE_PAGE,), (1,), torch.uint8)


def empty_beside(tensor: Tensor) -> Tensor:
    """A tensor on the CPU without values that is like another one, which has no gaps, in all else."""
    return _empty(tensor.shape, tensor.stride(), tensor.dtype)


def _empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    size = math.prod(shape) * dtype.itemsize
    pool = _the_pool() if size >= _SMALLEST else None
    view = None if pool is None else pool.take(size)
    if view is None:
        return torch.empty_strided(shape, strides, dtype=dtype)
    # Not a view, which torch does not let functions with gradients of their own give. Nor may an object of
    # Python hold the storage: torch adds a second gradient to the first in place only where nothing else
    # does.
    source = torch.frombuffer(view, dtype=dtype)
    return torch.empty(0, dtype=dtype).set_(source, 0, shape, strides)  # type: ignore[call-overload,no-any-return]


def drop_blocks() -> None:
    """Give freed blocks back to the system now."""
    if _pool is not None:
        _pool.clear()
