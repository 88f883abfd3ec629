"""gluon.contrib.nn: the 1.x names of layers that are in gluon.nn."""

from __future__ import annotations

from ..nn import Concatenate as Concurrent
from ..nn import HybridConcatenate as HybridConcurrent
from ..nn import Identity, PixelShuffle1D, PixelShuffle2D, PixelShuffle3D, SyncBatchNorm

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SyncBatchNorm",
]
