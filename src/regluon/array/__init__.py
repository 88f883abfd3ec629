"""Arrays: NDArray (the 1.x kind) and np.ndarray (the NumPy kind) around one torch tensor, and sparse ones."""

from __future__ import annotations

from . import sparse_operators as sparse_operators
from .ndarray import NDArray, from_torch, ndarray, waitall
from .sparse import BaseSparseNDArray, CSRNDArray, RowSparseNDArray

__all__ = [
    "BaseSparseNDArray",
    "CSRNDArray",
    "NDArray",
    "RowSparseNDArray",
    "from_torch",
    "ndarray",
    "waitall",
]
