"""Functions of ``mx.np`` on vectors: differences, counts and products of vectors."""

from __future__ import annotations

from typing import Any

from ..base.errors import MXNetError
from .tools import apply, as_array, is_value

__all__ = ["bincount", "cross", "diff", "ediff1d", "histogram", "interp", "vdot"]


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number of a vector of non-negative integers occurs, or the sum of its ``weights``.

    The result has at least ``minlength`` elements. Raises MXNetError for other arrays.
    """
    if weights is None:
        return apply("_npi_bincount", [as_array(x)], minlength=minlength, has_weights=False)
    return apply("_npi_bincount", [as_array(x), as_array(weights)], minlength=minlength, has_weights=True)


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of 2 or 3 elements; ``axis`` stands for the other three."""
    if axis is not None:
        axisa = axisb = axisc = axis
    return apply("_npi_cross", [as_array(a), as_array(b)], axisa=axisa, axisb=axisb, axisc=axisc)


def _edge(value: Any, a: Any, axis: int) -> Any:
    """What is put before or after ``a``: a number fills one place along the axis."""
    if is_value(value) and len(value.shape) == len(a.shape):
        return value
    value = as_array(value).astype(a.dtype)
    if len(value.shape):
        return value
    shape = [1 if place == axis % len(a.shape) else size for place, size in enumerate(a.shape)]
    return apply("_npi_broadcast_to", [value], shape=tuple(shape))


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The ``n``-th differences of neighbours along an axis, with values put before and after it first."""
    a = as_array(a)
    if prepend is not None or append is not None:
        parts = [_edge(prepend, a, axis)] if prepend is not None else []
        parts.append(a)
        parts += [_edge(append, a, axis)] if append is not None else []
        a = apply("_npi_concatenate", parts, axis=axis)
    return apply("_npi_diff", [a], n=n, axis=axis)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours in the flattened array, between ``to_begin`` and ``to_end``."""
    arrays, attrs = [as_array(ary)], {}
    for key, value in (("to_begin", to_begin), ("to_end", to_end)):
        if value is None or isinstance(value, (int, float)):
            attrs[f"{key}_scalar"] = None if value is None else float(value)
        else:
            arrays.append(as_array(value))
            attrs[f"{key}_arr_given"] = True
    return apply("_npi_ediff1d", arrays, **attrs)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, normed: Any = None, weights: Any = None, density: Any = None
) -> Any:
    """``(counts, edges)`` of the elements: how many lie in each of the bins, as int64.

    ``bins`` is the number of bins of one width over ``range`` (low, high), or an array of their edges.
    Without a range they go from the smallest to the largest element, which needs values: not inside a
    recorded graph.

    Raises
    ------
    NotImplementedError
        For ``normed``, ``weights`` and ``density``.
    """
    for name, value in (("normed", normed), ("weights", weights), ("density", density)):
        if value is not None and value is not False:
            raise NotImplementedError(f"histogram: {name} is not supported; divide the counts instead")
    a = as_array(a)
    if not isinstance(bins, int):
        return tuple(apply("_npi_histogram", [a, as_array(bins)]))
    if range is None:
        if not a.size:
            raise MXNetError("histogram: an empty array has no range; give range=(low, high)")
        low, high = a.min().item(), a.max().item()
        range = (low, high) if low < high else (low - 0.5, high + 0.5)
    return tuple(apply("_npi_histogram", [a], bin_cnt=bins, range=tuple(range)))


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """The piecewise linear function through the points (xp, fp) at ``x``, as float64.

    ``xp`` increases; outside of it the value is ``left`` or ``right``, by default that of the nearest point.
    With ``period`` the points repeat and need no order.
    """
    attrs: dict[str, Any] = {"left": left, "right": right, "period": period}
    points = [as_array(xp), as_array(fp)]
    if isinstance(x, (int, float)):
        return apply("_npi_interp", points, x_scalar=float(x), x_is_scalar=True, **attrs)
    return apply("_npi_interp", [*points, as_array(x)], **attrs)


def vdot(a: Any, b: Any) -> Any:
    """The dot product of both arrays, flattened."""
    return apply("_npi_dot", [as_array(a).reshape(-1), as_array(b).reshape(-1)])
