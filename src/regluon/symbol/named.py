"""mx.sym.np and mx.sym.npx: mx.np and mx.npx, whose functions all take ``name`` and ``attr`` for Symbols."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from ..base.naming import AttrScope
from .symbol import Symbol
from .variables import Group

__all__ = ["named_module"]


def named_module(module: types.ModuleType, full_name: str) -> types.ModuleType:
    """A view of a namespace; functions composed of several operators name the last one.

    Parameters
    ----------
    module : module
        ``mx.np``, ``mx.npx`` or one of their submodules.
    full_name : str
        The view's name.
    """
    return _Named(module, full_name)


class _Named(types.ModuleType):
    def __init__(self, module: types.ModuleType, full_name: str) -> None:
        super().__init__(full_name, module.__doc__)
        self.__dict__["_module"] = module
        if hasattr(module, "__all__"):
            self.__dict__["__all__"] = list(module.__all__)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__dict__["_module"], name)
        if isinstance(value, types.ModuleType):
            value = _Named(value, f"{self.__name__}.{name}")
        elif isinstance(value, types.FunctionType) and not hasattr(value, "__operator__"):
            value = _with_name(value)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_module"])


def _with_name(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        if "name" not in kwargs and "attr" not in kwargs:
            return function(*args, **kwargs)
        name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
        with AttrScope(**(attr or {})):
            return _renamed(function(*args, **kwargs), name)

    return named


def _renamed(result: Any, name: str | None) -> Any:
    """Symbols with another name for the operator that makes them; anything else as it is."""
    if name is None:
        return result
    if isinstance(result, Symbol):
        return result(name=name)
    if isinstance(result, (list, tuple)) and result and all(isinstance(one, Symbol) for one in result):
        group = Group(list(result))(name=name)
        return type(result)(group[place] for place in range(len(result)))
    return result
