"""Products and averages of ``mx.np`` whose signature differs from an operator's."""

from __future__ import annotations

from typing import Any

from ..base.errors import MXNetError
from .tools import apply, as_array, as_arrays, axes_of

__all__ = ["average", "einsum", "inner", "outer", "tensordot"]


def einsum(*operands: Any, out: Any = None, optimize: Any = False) -> Any:
    """Einstein summation: ``einsum("ij,jk->ik", a, b)``.

    Raises
    ------
    MXNetError
        If the subscripts are no string, or do not fit the operands.
    """
    if not operands or not isinstance(operands[0], str):
        raise MXNetError("einsum: the first argument is the subscripts, such as 'ij,jk->ik'")
    arrays = as_arrays(operands[1:])
    return apply("_npi_einsum", arrays, out=out, subscripts=operands[0], optimize=int(bool(optimize)))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum of products over the last ``axes`` axes of ``a`` and the first of ``b``, or over two lists."""
    if not hasattr(axes, "__iter__"):
        return apply("_npi_tensordot_int_axes", [a, b], axes=axes)
    if len(axes) != 2:
        raise ValueError(f"tensordot: axes is a number or two lists of axes; received {axes!r}")
    left, right = (axes_of(list(side) if hasattr(side, "__iter__") else side) for side in axes)
    if left is None or right is None or len(left) != len(right):
        raise ValueError(f"tensordot: both arrays sum over equally many axes; received {axes!r}")
    return apply("_npi_tensordot", [a, b], a_axes_summed=left, b_axes_summed=right)


def inner(a: Any, b: Any) -> Any:
    """The sum of products over the last axes of both."""
    a, b = as_array(a), as_array(b)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    return tensordot(a, b, [[-1], [-1]])


def outer(a: Any, b: Any) -> Any:
    """All products of an element of ``a`` (flattened) with one of ``b``."""
    return tensordot(as_array(a).reshape(-1), as_array(b).reshape(-1), 0)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, out: Any = None) -> Any:
    """The mean over axes, weighted by ``weights``; with ``returned`` also the sum of the weights.

    ``weights`` has the shape of ``a``, or is a vector along the one ``axis``; MXNetError where it fits
    neither.
    """
    a = as_array(a)
    axes = axes_of(axis)
    if weights is None:
        mean = apply("_npi_mean", [a], out=out, axis=axes, dtype=str(a.dtype))
        if not returned:
            return mean
        count = apply("_npi_sum", [a * 0 + 1], axis=axes)
        return [mean, count.reshape(-1)[0]]
    weights = as_array(weights)
    if weights.shape != a.shape:
        if axes is None or len(axes) != 1 or weights.shape != (a.shape[axes[0]],):
            raise MXNetError(
                f"average: weights of shape {weights.shape} do not fit: expected {a.shape}, or a vector "
                f"along "
                f"the one axis that is averaged; received axis={axis}"
            )
        weights = weights.reshape([-1 if place == axes[0] % a.ndim else 1 for place in range(a.ndim)])
    spread = weights + a * 0
    total = apply("_npi_sum", [spread], axis=axes)
    mean = apply("_npi_true_divide", [apply("_npi_sum", [a * weights], axis=axes), total], out=out)
    return [mean, total] if returned else mean
