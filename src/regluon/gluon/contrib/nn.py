"""gluon.contrib.nn: the 1.x names of layers that are in gluon.nn, and SparseEmbedding."""

from __future__ import annotations

from typing import Any

from ..nn import Concatenate as Concurrent
from ..nn import Embedding, Identity, PixelShuffle1D, PixelShuffle2D, PixelShuffle3D, SyncBatchNorm
from ..nn import HybridConcatenate as HybridConcurrent

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


class SparseEmbedding(Embedding):
    """An `Embedding` whose gradient is row_sparse, so that lazy optimizers change the rows in use only.

    Parameters
    ----------
    input_dim, output_dim : int
        Number of rows and their length.
    dtype : dtype
        Of the table.
    weight_initializer : Initializer, optional
        Of the table.

    Shapes: input (...), output (..., output_dim).
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: Any = "float32",
        weight_initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_dim, output_dim, dtype, weight_initializer, True, **kwargs)
