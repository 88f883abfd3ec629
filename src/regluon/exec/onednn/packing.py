"""Memory for packed weights: one block for each region, which it is tried with before."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ...base.pool import empty_bytes
from .region import ALIGNMENT

__all__ = ["Numbers", "Together"]

# A byte that makes numbers of a usual size, whatever their type.
_BYTE = 0x3B


class Together:
    """The packed weights of a region as parts of one block, so that large pages have no gaps between them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._ends = list(accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))
        self._lock = threading.Lock()
        self._block: Tensor | None = None
        self._given: set[int] = set()

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return self._ends[-1]

    def use(self, block: Tensor) -> None:
        """Take this block for the weights that are packed next."""
        with self._lock:
            if self._block is None and block.numel() >= self.size:
                self._block, self._given = block, set()

    def piece(self, block: Tensor, index: int, size: int) -> Tensor:
        """Where a weight lies in a block."""
        start = self._ends[index - 1] if index else 0
        return block[start : start + size]

    def part(self, index: int, size: int) -> Tensor:
        """Memory for a weight, which no other part of the block in use overlaps."""
        with self._lock:
            if self._block is None or index in self._given:
                self._block, self._given = empty_bytes(self._ends[-1]), set()
            made = self.piece(self._block, index, size)
            self._given.add(index)
            if len(self._given) == len(self._ends):
                # From now on it lives as long as its parts do.
                self._block = None
            return made


class Numbers:
    """Memory with numbers that regions are tried with, and into which weights are packed afterwards."""

    def __init__(self) -> None:
        self._block, self._start = torch.empty(0, dtype=torch.uint8), 0

    def numbers(self, size: int) -> Tensor:
        """So many bytes of numbers, which are given again and again until some of them are given away."""
        if self._block.numel() - self._start < size:
            self._block, self._start = empty_bytes(size), 0
            # Python's lock is not held meanwhile.
            ctypes.memset(self._block.data_ptr(), _BYTE, self._block.numel())
        return self._block[self._start : self._start + size]

    def give(self, together: Together) -> None:
        """Let the weights of a region be packed into this memory, if there is enough of it."""
        end = self._start + together.size
        if end <= self._block.numel():
            together.use(self._block[self._start : end])
            self._start = end
