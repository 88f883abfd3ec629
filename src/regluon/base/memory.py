"""How the C library's allocator and the kernel treat this process's memory."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from pathlib import Path

__all__ = [
    "give_back",
    "in_large_pages",
    "keep_freed_memory",
    "lies_in_large_pages",
    "most_kept",
    "use_large_pages",
]

# Parameters of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_MOST_BLOCKS = 65536
# The advice to use large pages (Linux, mman.h), and what they take.
_LARGE_PAGES, _LARGE_PAGE = 14, 2 << 20
# Address space that is taken ahead, at first and whenever it is used up: memory is used only where something
# is written.
_AHEAD, _MORE = 1 << 30, 64 << 20
# The largest block for which the heap grows; where what was taken ahead does not hold those above, they have
# pages of their own, which go back at once. glibc's limit.
_LARGEST = 32 << 20
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class _Heap:
    """The C library, and up to where its heap is to lie in large pages."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
        library.malloc.argtypes = library.malloc_trim.argtypes = [ctypes.c_size_t]
        library.sbrk.argtypes = [ctypes.c_ssize_t]
        library.free.argtypes = [ctypes.c_void_p]
        library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.end = 0
        # How many blocks may have pages of their own; none where freed blocks of any size stay.
        self.blocks = _MOST_BLOCKS

    def extend(self) -> None:
        """Take address space ahead, and ask for large pages there."""
        self.library.mallopt(_MMAP_MAX, 0)
        block = self.library.malloc(most_kept())
        if block is not None:
            self.advise(block)
            self.library.free(block)
        self.library.mallopt(_MMAP_MAX, self.blocks)

    def keep_all(self) -> bool:
        """Let freed blocks of any size stay."""
        self.blocks = 0
        return bool(self.library.mallopt(_MMAP_MAX, 0))

    def advise(self, start: int) -> None:
        """Ask for large pages from an address to the end of the heap."""
        end = self.library.sbrk(0)
        if end is not None and self.advise_between(start, end):
            self.end = end

    def advise_between(self, start: int, end: int) -> bool:
        """Ask for large pages between two addresses; gives whether there is room for one."""
        first = -(-start // _LARGE_PAGE) * _LARGE_PAGE
        if first < end:
            self.library.madvise(first, end - first, _LARGE_PAGES)
        return first < end


def most_kept() -> int:
    """Bytes that are taken ahead: freed arrays that lay there stay with the process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(_AHEAD, memory // 8)


def _may_ask_for_large_pages() -> bool:
    try:
        return "[never]" not in _SETTING.read_text()
    except OSError:
        return False


@functools.cache
def _heap() -> _Heap | None:
    """The heap, once its settings are made; None where there are no such settings, or they are not wanted."""
    if os.environ.get("REGLUON_KEEP_MEMORY", "").strip().lower() in ("0", "false", "no", "off"):
        return None
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        settings = ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, _MORE))
        if not all(library.mallopt(*each) for each in settings):
            return None
        heap = _Heap(library)
    except (OSError, AttributeError):
        return None
    # Another allocator, loaded before this one, has its own ways.
    if "malloc" not in os.environ.get("LD_PRELOAD", "") and _may_ask_for_large_pages():
        heap.extend()
    return heap


def use_large_pages() -> bool:
    """Let arrays lie in large pages, which stay when they are freed; gives whether that was possible.

    That is for as much memory as is taken ahead, `most_kept`, and for arrays of up to 32 MB above that.

    By default glibc gives blocks back to the kernel as soon as they are freed, and every page of the next one
    is faulted in and cleared again. Pages of 4 KiB cost time as well: the processor remembers where some
    thousands of them are, which is less than a network's weights and activations take. Only glibc on Linux
    has these settings; elsewhere, or with ``REGLUON_KEEP_MEMORY=0``, nothing is changed.
    """
    heap = _heap()
    if heap is None:
        return False
    if heap.end and heap.library.sbrk(0) != heap.end:
        heap.advise(min(heap.end, heap.library.sbrk(0)))
    return True


def lies_in_large_pages() -> bool:
    """Whether freed memory is kept, and lies in large pages."""
    heap = _heap()
    return heap is not None and bool(heap.end)


def in_large_pages(start: int, size: int) -> None:
    """Let a block that was not written to yet lie in large pages, wherever it is.

    Blocks for which what was taken ahead has no room left are outside of it.
    """
    heap = _heap()
    if heap is not None and heap.end and size >= 2 * _LARGE_PAGE:
        heap.advise_between(start, start + size)


def keep_freed_memory() -> bool:
    """Let freed blocks of any size stay with this process from now on; gives whether that was possible."""
    heap = _heap()
    return heap is not None and use_large_pages() and heap.keep_all()


def give_back() -> None:
    """Give freed memory back to the system now."""
    heap = _heap()
    if heap is not None:
        heap.library.malloc_trim(0)
        if heap.end:
            heap.extend()
