"""Methods of arrays and Symbols that are operators: each calls the function of its kind's namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.handles import kinds

__all__ = ["install"]

_ND = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort broadcast_axes "
    "broadcast_like cbrt ceil clip cos cosh degrees depth_to_space diag dot exp expand_dims expm1 fix "
    "flatten flip floor log "
    "log10 log1p log2 log_sigmoid log_softmax max mean min mish nanprod nansum norm one_hot ones_like "
    "pad pick prod "
    "radians rcbrt reciprocal relu repeat rint round rsqrt shape_array sigmoid sign sin sinh size_array "
    "slice "
    "slice_axis slice_like softmax softmin sort space_to_depth split split_v2 sqrt square squeeze sum "
    "swapaxes take "
    "tan tanh tile topk trunc zeros_like"
).split()
_NP = (
    "all any argmax argmin argsort clip cumsum diag diagonal dot expand_dims flatten max mean min "
    "nonzero prod repeat "
    "round sort squeeze std sum swapaxes take tile trace var abs ravel"
).split()
_RENAMED_NP = {"flatten": "_flatten"}


def _nd_method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        from .. import ndarray

        return getattr(ndarray, name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``mx.nd.{name}`` of this array."
    return method


def _np_method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        from .. import numpy

        return getattr(numpy, name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``mx.np.{name}`` of this array."
    return method


def _flatten(self: Any, order: str = "C") -> Any:
    """A copy of the array with one axis."""
    del order
    return self.reshape(-1).copy()


def install() -> None:
    """Give the four classes of values their methods."""
    from .. import ndarray as nd

    for cls in (kinds.nd, kinds.symbol):
        for name in _ND:
            if name not in cls.__dict__ and hasattr(nd, name):
                setattr(cls, name, _nd_method(name))
    for cls in (kinds.np, kinds.np_symbol):
        for name in _NP:
            setattr(cls, name, _np_method(name))
        cls.flatten = _flatten
