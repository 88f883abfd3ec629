"""mx.error: the exceptions."""

from __future__ import annotations

from .base.errors import (
    DeferredInitializationError,
    MXNetError,
    NotImplementedForSymbol,
    NotSupportedForSparseNDArray,
    ValueReadError,
)

__all__ = [
    "DeferredInitializationError",
    "MXNetError",
    "NotImplementedForSymbol",
    "NotSupportedForSparseNDArray",
    "ValueReadError",
]
