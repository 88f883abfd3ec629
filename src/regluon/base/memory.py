"""How the C library's allocator treats freed memory."""

from __future__ import annotations

import ctypes
import functools
import platform

__all__ = ["keep_freed_memory"]

# Parameters of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


@functools.cache
def keep_freed_memory() -> bool:
    """Let freed memory stay with this process, for the rest of its life; gives whether that was possible.

    By default glibc gives large blocks back to the kernel as soon as they are freed, and every page of the
    next one is faulted in and cleared again: a fifth of the time of a large network's prediction. Only glibc
    on Linux has these settings; elsewhere nothing is changed.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    try:
        library = ctypes.CDLL("libc.so.6")
        return bool(library.mallopt(_MMAP_MAX, 0) and library.mallopt(_TRIM_THRESHOLD, 2**31 - 1))
    except (OSError, AttributeError):
        return False
