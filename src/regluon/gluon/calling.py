"""Small questions that a call of a hybrid block asks: of its arguments, its classes, and who called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ..array import NDArray
from ..runtime.handles import kinds
from ..symbol import Symbol

__all__ = [
    "arrays_for",
    "blocks_below",
    "config_scope",
    "first_value",
    "in_kind_of",
    "is_users",
    "level_outside",
]

_PACKAGE = __name__.split(".", 1)[0]


def blocks_below(block: Any) -> Iterator[Any]:
    """All hybrid blocks below a block."""
    for child in block._children.values():
        yield child
        yield from blocks_below(child)


def level_outside() -> int:
    """The stack level, as `warnings.warn` counts for the caller, of the code that uses the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".", 1)[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    return level


def config_scope(block: Any) -> Any:
    """The naming scope of a block at level 1 (for Symbols and blocks made in its forward)."""
    return block._scope if block._level == 1 and not block._empty_prefix else _NOTHING


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


_NOTHING = _Nothing()


def first_value(args: Any) -> Any:
    """The first array or Symbol in nested arguments."""
    for value in args if isinstance(args, (list, tuple)) else (args,):
        if isinstance(value, (NDArray, Symbol)):
            return value
        if isinstance(value, (list, tuple)):
            found = first_value(value)
            if found is not None:
                return found
        if isinstance(value, dict):
            found = first_value(list(value.values()))
            if found is not None:
                return found
    return None


def in_kind_of(out: Any, first: Any) -> Any:
    """The result in the kind of the input."""
    cls = type(first)
    if isinstance(out, NDArray):
        return out if type(out) is cls or not isinstance(first, NDArray) else out._as(cls)
    if isinstance(out, (list, tuple)) and not hasattr(out, "_fields"):
        return type(out)(in_kind_of(item, first) for item in out)
    return out


def is_users(function: Any) -> bool:
    return function.__module__.split(".", 1)[0] != _PACKAGE


def arrays_for(args: Any) -> Any:
    """Traced Symbols as traced arrays, for a block written in the 2.0 style."""
    if isinstance(args, Symbol) and args._s is not None:
        return (kinds.np if args._kind == "np" else kinds.nd)._traced(args._s)
    if isinstance(args, Symbol) and args._items is not None:
        return [arrays_for(item) for item in args._items]
    if isinstance(args, (list, tuple)) and not hasattr(args, "_fields"):
        return type(args)(arrays_for(item) for item in args)
    return args
