"""``mx.np.linalg``: the functions whose signature differs from an operator's; the others are derived."""

from __future__ import annotations

from typing import Any

from ..base.errors import MXNetError
from .tools import apply, as_array, axes_of

__all__ = ["cholesky", "norm"]


def cholesky(a: Any, upper: bool = False) -> Any:
    """The Cholesky factor of positive definite matrices: lower triangular, or upper."""
    return apply("_npi_cholesky", [a], lower=not upper)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors (one axis) or matrices (two axes); of all elements without ``ord`` and ``axis``.

    ``ord`` of a vector is a number, inf or -inf; of a matrix "fro", "nuc", 1, -1, 2, -2, inf or -inf.

    Raises
    ------
    MXNetError
        If ``axis`` names more than two axes, or ``ord`` is none of these.
    """
    x = as_array(x)
    axes = axes_of(axis)
    if axes is None and ord is None:
        return _root(_total(x * x, None, keepdims))
    axes = tuple(range(x.ndim)) if axes is None else tuple(one % x.ndim for one in axes)
    if len(axes) == 1:
        return _of_vectors(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _of_matrices(x, ord, axes, keepdims)
    raise MXNetError(f"norm: expected one axis or two, received {axis} for an array of {x.ndim} dimension(s)")


def _root(value: Any) -> Any:
    return apply("_npi_sqrt", [value])


def _total(value: Any, axes: Any, keepdims: bool) -> Any:
    return apply("_npi_sum", [value], axis=axes, keepdims=keepdims)


def _size(x: Any) -> Any:
    return apply("_npi_absolute", [x])


def _limit(value: Any, largest: bool, axes: Any, keepdims: bool) -> Any:
    return apply("_npi_max" if largest else "_npi_min", [value], axis=axes, keepdims=keepdims)


def _of_vectors(x: Any, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if isinstance(order, str):
        raise MXNetError(f"norm: order {order!r} is for matrices; give two axes")
    if order in (float("inf"), float("-inf")):
        return _limit(_size(x), order > 0, axes, keepdims)
    if order == 0:
        return _total((x != 0).astype(x.dtype), axes, keepdims)
    if order == 1:
        return _total(_size(x), axes, keepdims)
    if order == 2:
        return _root(_total(x * x, axes, keepdims))
    return _total(_size(x) ** order, axes, keepdims) ** (1.0 / order)


def _of_matrices(x: Any, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if order in (None, "fro"):
        return _root(_total(x * x, axes, keepdims))
    if order in (1, -1, float("inf"), float("-inf")):
        along = axes if abs(order) == 1 else axes[::-1]
        sums = _total(_size(x), (along[0],), True)
        result = _limit(sums, order > 0, (along[1],), True)
    elif order in (2, -2, "nuc"):
        kept = [place for place in range(x.ndim) if place not in axes]
        values = apply("_npi_svd", [x.transpose(*kept, *axes)])[1]
        result = _total(values, (-1,), False) if order == "nuc" else _limit(values, order > 0, (-1,), False)
        for place in sorted(axes):
            result = apply("expand_dims", [result], axis=place)
    else:
        raise MXNetError(f"norm: order of a matrix is fro, nuc, 1, -1, 2, -2, inf, -inf; received {order!r}")
    return result if keepdims else apply("_npi_squeeze", [result], axis=axes)
