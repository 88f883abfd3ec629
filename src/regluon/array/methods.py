"""Methods of arrays and Symbols that are operators: each calls the function of its kind's namespace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..ops.registry import get
from ..runtime.handles import kinds
from ..runtime.invoke import invoke

__all__ = ["install", "install_np"]

_ND = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort broadcast_axes "
    "broadcast_like cbrt ceil clip cos cosh degrees depth_to_space diag dot exp expand_dims expm1 fix "
    "flatten flip floor log log10 log1p log2 log_sigmoid log_softmax max mean min mish nanprod nansum "
    "norm one_hot ones_like pad pick prod radians rcbrt reciprocal relu repeat reshape_like rint round "
    "rsqrt shape_array sigmoid sign sin sinh size_array slice slice_axis slice_like softmax softmin sort "
    "space_to_depth split split_v2 sqrt square squeeze sum swapaxes take tan tanh tile topk trunc "
    "zeros_like"
).split()
_NP = (
    "abs all any argmax argmin argsort clip cumsum diag diagonal dot expand_dims max mean min nonzero "
    "prod ravel repeat round sort squeeze std sum swapaxes take tile trace var"
).split()


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


def _slice_assign(self: Any, rhs: Any, begin: Any, end: Any, step: Any) -> Any:
    """Write ``rhs`` into a slice of the array, in place; gives the array."""
    return invoke(get("_slice_assign"), [self, rhs], {"begin": begin, "end": end, "step": step}, out=self)


def _slice_assign_scalar(self: Any, value: float, begin: Any, end: Any, step: Any) -> Any:
    """Write a number into a slice of the array, in place; gives the array."""
    attrs = {"scalar": value, "begin": begin, "end": end, "step": step}
    return invoke(get("_slice_assign_scalar"), [self], attrs, out=self)


def _signed(method: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The method with the signature of the function, which has the array as its first argument."""
    given = inspect.signature(function)
    first, *rest = given.parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    if first.kind is inspect.Parameter.VAR_POSITIONAL:
        rest = [first, *rest]
    method.__signature__ = given.replace(parameters=[own, *rest])  # type: ignore[attr-defined]
    method.__derived__ = True  # type: ignore[attr-defined]
    return method


def install(nd: Any) -> None:
    """Give the nd kinds of values the functions of the namespace ``nd`` as methods."""
    for cls in (kinds.nd, kinds.symbol):
        for name in _ND:
            if name not in cls.__dict__ and hasattr(nd, name):
                setattr(cls, name, _signed(_nd_method(name), getattr(nd, name)))
    kinds.nd.slice_assign, kinds.nd.slice_assign_scalar = _slice_assign, _slice_assign_scalar


def install_np(np: Any) -> None:
    """Give the np kinds of values the functions of the namespace ``np`` as methods."""
    for cls in (kinds.np, kinds.np_symbol):
        for name in _NP:
            setattr(cls, name, _signed(_np_method(name), getattr(np, name)))
        cls.flatten = _flatten
