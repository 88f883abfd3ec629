"""How exact a comparison is by default, for each type."""

from __future__ import annotations

from typing import Any

import numpy

from ..array import NDArray

__all__ = [
    "as_numpy",
    "default_atols",
    "default_numeric_eps",
    "default_rtols",
    "effective_dtype",
    "get_atol",
    "get_etol",
    "get_rtol",
    "get_tolerance",
    "get_tols",
]

_EXACT = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64")


def _by_dtype(half: float, single: float, double: float) -> dict[numpy.dtype[Any], float]:
    inexact = {"float16": half, "float32": single, "float64": double}
    return {numpy.dtype(name): value for name, value in (inexact | dict.fromkeys(_EXACT, 0)).items()}


def default_rtols() -> dict[numpy.dtype[Any], float]:
    """Relative tolerances by type."""
    return _by_dtype(1e-2, 1e-4, 1e-5)


def default_atols() -> dict[numpy.dtype[Any], float]:
    """Absolute tolerances by type."""
    return _by_dtype(1e-1, 1e-3, 1e-20)


def default_numeric_eps() -> dict[numpy.dtype[Any], float]:
    """Steps of finite differences by type: powers of two, so that they are exact."""
    return {
        numpy.dtype(name): 2.0**power for name, power in (("float16", -6), ("float32", -9), ("float64", -14))
    }


def as_numpy(value: Any) -> numpy.ndarray[Any, Any]:
    """A value as a NumPy array."""
    return value.asnumpy() if isinstance(value, NDArray) else numpy.asarray(value)


def effective_dtype(dat: Any) -> numpy.dtype[Any]:
    """The type that says how exact a value is: its own; float16 where a GPU computes so."""
    return numpy.dtype(as_numpy(dat).dtype)


def get_tolerance(dat: Any, tol: float | dict[Any, float] | None, default_tol: dict[Any, float]) -> float:
    """A tolerance for a value: the given number, or that of its type (1e-5 or so where there is none)."""
    if isinstance(tol, (int, float)):
        return tol
    tolerances = default_tol if tol is None else tol
    dtype = effective_dtype(dat)
    return tolerances.get(dtype, 0.0 if dtype.kind in "biu" else default_tol[numpy.dtype("float64")])


def get_tols(
    x: Any, y: Any, rtol: float | dict[Any, float] | None, atol: float | dict[Any, float] | None
) -> tuple[float, float]:
    """(relative, absolute) tolerance for two values: the larger of both, where none is given."""
    # A bare number is as exact as what it is compared with.
    compared = [value for value in (x, y) if not numpy.isscalar(value)] or [x, y]
    return (
        max(get_tolerance(value, rtol, default_rtols()) for value in compared),
        max(get_tolerance(value, atol, default_atols()) for value in compared),
    )


def get_rtol(rtol: float | None = None, dtype: Any = "float64") -> float:
    """The given relative tolerance, or that of a type."""
    return default_rtols()[numpy.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = "float64") -> float:
    """The given absolute tolerance, or that of a type."""
    return default_atols()[numpy.dtype(dtype)] if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """The given share of elements that may differ, or none."""
    return 0 if etol is None else etol
