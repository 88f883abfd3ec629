"""Modules that few programs use are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["imported_later"]


def imported_later(
    package: dict[str, Any], *names: str, **elsewhere: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : dict
        Its ``globals()``.
    names : str
        Modules in the package.
    elsewhere : str
        For other names, the module that each stands for, relative to the package: ``.module``, ``..amp``.
    """
    places = {**{name: f".{name}" for name in names}, **elsewhere}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        module = package[name] = import_module(places[name], package["__name__"])
        return module

    return get, lambda: sorted({*package, *places})
