"""Arrays: NDArray (the 1.x kind) and np.ndarray (the NumPy kind). An array holds one torch tensor."""

from __future__ import annotations

from .ndarray import NDArray, from_torch, ndarray, waitall

__all__ = ["NDArray", "from_torch", "ndarray", "waitall"]
