"""Functions of ``mx.np`` over values: order statistics, counts and sums that no single operator computes."""

from __future__ import annotations

from typing import Any

from ..base.errors import MXNetError
from .tools import apply, as_array, axes_of, is_value

__all__ = [
    "count_nonzero",
    "float_power",
    "isclose",
    "median",
    "nansum",
    "percentile",
    "positive",
    "ptp",
    "quantile",
]

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def positive(x: Any, out: Any = None) -> Any:
    """The array itself, as a copy."""
    return apply("_np_copy", [as_array(x)], out=out)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The range of the values over axes: largest minus smallest."""
    attrs = {"axis": axes_of(axis), "keepdims": keepdims}
    high, low = apply("_npi_max", [a], **attrs), apply("_npi_min", [a], **attrs)
    return apply("_npi_subtract", [high, low], out=out)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many values over axes are not zero, as int64."""
    found = apply("_npi_not_equal_scalar", [as_array(a)], scalar=0)
    return apply("_npi_sum", [found], axis=axes_of(axis), keepdims=keepdims, dtype="int64")


def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The sum over axes with NaN counted as 0."""
    a = as_array(a)
    nan = apply("_npi_isnan", [a])
    kept = apply("_npi_where_lscalar", [nan, a], scalar=0.0)
    kept = kept if kept.dtype == a.dtype else kept.astype(a.dtype)
    return apply("_npi_sum", [kept], out=out, axis=axes_of(axis), dtype=dtype, keepdims=keepdims)


def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Where ``|a - b| <= atol + rtol * |b|``; equal infinities are close."""
    from . import abs as absolute

    a, b = as_array(a), as_array(b)
    near = (absolute(a - b) <= atol + rtol * absolute(b)) & apply("_npi_isfinite", [b])  # type: ignore[misc,attr-defined]
    near = near | (a == b)
    return near | (apply("_npi_isnan", [a]) & apply("_npi_isnan", [b])) if equal_nan else near


def float_power(x1: Any, x2: Any) -> Any:
    """``x1`` to the power ``x2`` in float64."""
    sides = [value.astype("float64") if is_value(value) else float(value) for value in (x1, x2)]
    return sides[0] ** sides[1]


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = None,
    interpolation: str = "linear",
    keepdims: bool = False,
) -> Any:
    """The ``q``-th percentiles over axes; ``q`` is a number or an array of numbers from 0 to 100.

    Raises
    ------
    ValueError
        If ``overwrite_input`` is set or ``interpolation`` is no known way.
    """
    if overwrite_input:
        raise ValueError("percentile: overwrite_input is not supported; leave it out")
    if interpolation not in _METHODS:
        raise ValueError(
            f"percentile: interpolation is one of {', '.join(_METHODS)}; received {interpolation!r}"
        )
    attrs = {"axis": axes_of(axis), "interpolation": interpolation, "keepdims": keepdims}
    if isinstance(q, (int, float)):
        if not 0 <= q <= 100:
            raise MXNetError(f"percentile: q is from 0 to 100; received {q}")
        return apply("_npi_percentile", [a], out=out, q_scalar=float(q), **attrs)
    return apply("_npi_percentile", [a, as_array(q)], out=out, **attrs)


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = None,
    interpolation: str = "linear",
    keepdims: bool = False,
) -> Any:
    """The ``q``-th quantiles over axes; ``q`` is a number or an array of numbers from 0 to 1."""
    scaled = q * 100 if isinstance(q, (int, float)) else as_array(q) * 100
    return percentile(a, scaled, axis, out, overwrite_input, interpolation, keepdims)


def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = None, keepdims: bool = False
) -> Any:
    """The middle value over axes, the mean of the middle two where their number is even."""
    return percentile(a, 50, axis, out, overwrite_input, "midpoint", keepdims)
