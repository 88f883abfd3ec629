"""Functions of mx.sym whose signatures differ from their operators'."""

from __future__ import annotations

from typing import Any

from ..base import dtypes
from ..ops.registry import get
from ..runtime.handles import kinds
from ..runtime.invoke import invoke

__all__ = ["arange", "eye", "full", "hypot", "linspace", "maximum", "minimum", "ones", "power", "zeros"]


def _create(operator: str, name: str | None, attr: Any, **attrs: Any) -> Any:
    given = {key: value for key, value in attrs.items() if value is not None}
    if "dtype" in given:
        given["dtype"] = dtypes.to_torch(given["dtype"])
    return invoke(get(operator), [], given, None, name, kinds.symbol, attr)


def zeros(shape: Any, dtype: Any = None, name: str | None = None, attr: Any = None, **kwargs: Any) -> Any:
    """A Symbol of zeros of a shape."""
    return _create("_zeros", name, attr, shape=shape, dtype=dtype or "float32")


def ones(shape: Any, dtype: Any = None, name: str | None = None, attr: Any = None, **kwargs: Any) -> Any:
    """A Symbol of ones of a shape."""
    return _create("_ones", name, attr, shape=shape, dtype=dtype or "float32")


def full(
    shape: Any, val: float, dtype: Any = None, name: str | None = None, attr: Any = None, **kwargs: Any
) -> Any:
    """A Symbol of a shape filled with ``val``."""
    return _create("_full", name, attr, shape=shape, value=val, dtype=dtype or "float32")


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, name: str | None = None, attr: Any = None) -> Any:
    """A Symbol of an identity matrix, with ones on the k-th diagonal."""
    return _create("_eye", name, attr, N=N, M=M, k=k, dtype=dtype or "float32")


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: Any = None,
    attr: Any = None,
) -> Any:
    """A Symbol of evenly spaced values; see ``mx.nd.arange``."""
    if stop is None and not infer_range:
        start, stop = 0, start
    return _create(
        "_arange", name, attr, start=start, stop=stop, step=step, repeat=repeat, dtype=dtype or "float32"
    )


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    name: str | None = None,
    dtype: Any = None,
    attr: Any = None,
) -> Any:
    """A Symbol of ``num`` evenly spaced values."""
    return _create(
        "_linspace", name, attr, start=start, stop=stop, num=num, endpoint=endpoint, dtype=dtype or "float32"
    )


def _pair(operator: str, scalar: str, rscalar: str, left: Any, right: Any) -> Any:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        raise TypeError(f"{operator}: at least one operand must be a Symbol; received two numbers")
    if isinstance(right, (int, float)):
        return invoke(get(scalar), [left], {"scalar": right})
    if isinstance(left, (int, float)):
        return invoke(get(rscalar), [right], {"scalar": left})
    return invoke(get(operator), [left, right], {})


def maximum(left: Any, right: Any) -> Any:
    """The larger of two Symbols, or of a Symbol and a number, by element."""
    return _pair("broadcast_maximum", "_maximum_scalar", "_maximum_scalar", left, right)


def minimum(left: Any, right: Any) -> Any:
    """The smaller of two Symbols, or of a Symbol and a number, by element."""
    return _pair("broadcast_minimum", "_minimum_scalar", "_minimum_scalar", left, right)


def power(base: Any, exp: Any) -> Any:
    """``base ** exp`` by element."""
    return _pair("broadcast_power", "_power_scalar", "_rpower_scalar", base, exp)


def hypot(left: Any, right: Any) -> Any:
    """``sqrt(left**2 + right**2)`` by element."""
    return _pair("broadcast_hypot", "_hypot_scalar", "_hypot_scalar", left, right)
