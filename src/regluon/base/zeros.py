"""Zeros that take memory when they are first written to, and not before."""

from __future__ import annotations

import contextlib
import mmap

import torch
from torch import Tensor

__all__ = ["untouched_zeros_like"]

# A mapping has whole pages, so that small tensors would waste much of theirs.
_SMALLEST = 64 << 10
# From this size on, pages may be large ones.
_LARGE = 2 << 20


def untouched_zeros_like(tensor: Tensor) -> Tensor:
    """``torch.zeros_like``, in pages that the system provides at the first write to each of them.

    For gradient buffers: a network that only predicts never writes to its own. Where the system has no such
    mappings, or the tensor is small, these are ordinary zeros.
    """
    size = tensor.numel() * tensor.element_size()
    flags = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.is_contiguous()
    if not plain or size < _SMALLEST or not flags:
        return torch.zeros_like(tensor)
    try:
        pages = mmap.mmap(-1, size, flags=flags)
        if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                pages.madvise(mmap.MADV_HUGEPAGE)
        return torch.frombuffer(pages, dtype=tensor.dtype, count=tensor.numel()).resize_(tensor.shape)
    except (OSError, TypeError, ValueError, RuntimeError):
        return torch.zeros_like(tensor)
