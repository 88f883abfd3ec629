"""The table of operators: every name, alias and public place of every operator."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from ..base.errors import MXNetError
from .opdef import _REGISTRY, OpDef

__all__ = ["all_definitions", "exists", "get", "list_names", "load"]

_loaded = False


def load() -> None:
    """Import every file of definitions, once."""
    global _loaded
    if _loaded:
        return
    from . import defs

    for module in pkgutil.iter_modules(defs.__path__):
        importlib.import_module(f"{defs.__name__}.{module.name}")
    _loaded = True


def get(name: str) -> OpDef:
    """The operator with this name or alias.

    Raises
    ------
    MXNetError
        If there is none; the message names the nearest.
    """
    definition = _REGISTRY.get(name)
    if definition is None:
        near = difflib.get_close_matches(name, _REGISTRY, n=3)
        hint = f" Near names: {', '.join(near)}." if near else ""
        raise MXNetError(f"operator {name!r} is not registered.{hint} regluon.ops.list() gives all names.")
    return definition


def exists(name: str) -> bool:
    """Whether an operator has this name or alias."""
    return name in _REGISTRY


def list_names() -> list[str]:
    """All names and aliases, sorted."""
    return sorted(_REGISTRY)


def all_definitions() -> list[OpDef]:
    """Every operator once, by canonical name."""
    seen = {definition.name: definition for definition in _REGISTRY.values()}
    return [seen[name] for name in sorted(seen)]
