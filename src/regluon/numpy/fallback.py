"""NumPy functions that no operator provides: computed by NumPy on the host, outside of any recorded graph.

Arguments may be arrays of any kind; array results are arrays of the np kind on the current device, with the
dtype that NumPy gives. Inside a block that is being recorded they need values, which a trace does not
have, and say so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy

from ..runtime.handles import kinds
from .creation import array

__all__ = ["install"]

_NAMES = (
    "allclose apply_along_axis apply_over_axes argpartition array_equal array_equiv choose compress "
    "corrcoef correlate count_nonzero cov cumprod digitize divmod extract float_power frexp heaviside "
    "histogram2d histogram_bin_edges histogramdd i0 intersect1d isclose isin ix_ lexsort median "
    "min_scalar_type modf nanargmax nanargmin nancumprod nancumsum nanmax nanmedian nanmin nanpercentile "
    "nanprod nanquantile nanstd nansum nanvar packbits partition piecewise poly polyadd polydiv polyfit "
    "polyint polymul polysub positive promote_types ptp real roots select setdiff1d setxor1d "
    "signbit spacing tril_indices_from trim_zeros union1d unpackbits unwrap "
    "genfromtxt set_printoptions"
).split()


def _msort(a: Any) -> Any:
    """A copy of ``a`` sorted along its first axis."""
    return numpy.sort(a, axis=0)


def _trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """Integrate along an axis by the trapezoidal rule."""
    y = numpy.moveaxis(numpy.asarray(y), axis, -1)
    if x is None:
        widths: Any = dx
    else:
        points = numpy.asarray(x)
        widths = numpy.diff(points if points.ndim == 1 else numpy.moveaxis(points, axis, -1), axis=-1)
    return (widths * (y[..., 1:] + y[..., :-1]) / 2).sum(-1)


# Names that newer NumPy versions no longer have.
_OWN: dict[str, Callable[..., Any]] = {"msort": _msort, "trapz": _trapz, "alltrue": numpy.all}


def _to_host(value: Any) -> Any:
    if isinstance(value, kinds.nd | kinds.symbol):
        return value.asnumpy()
    if isinstance(value, list | tuple):
        return type(value)(_to_host(item) for item in value)
    return value


def _to_array(value: Any) -> Any:
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "biuf":
        return array(value, dtype=value.dtype)
    if isinstance(value, list | tuple):
        return type(value)(_to_array(item) for item in value)
    if isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return array(numpy.asarray(value), dtype=value.dtype)
    return value


def _on_host(name: str, function: Callable[..., Any], home: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        host = {key: _to_host(value) for key, value in kwargs.items()}
        return _to_array(function(*(_to_host(value) for value in args), **host))

    call.__name__ = call.__qualname__ = name
    call.__module__ = home
    return call


def install(module: ModuleType) -> list[str]:
    """Add the functions that ``module`` does not have yet; gives their names."""
    added = []
    found = {name: getattr(numpy, name) for name in _NAMES if hasattr(numpy, name)}
    for name, function in {**found, **_OWN}.items():
        if not hasattr(module, name):
            setattr(module, name, _on_host(name, function, module.__name__))
            added.append(name)
    return added
