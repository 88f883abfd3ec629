"""Prefixes of blocks at API level 1: counters per parent, and the ``name_scope()`` of children."""

from __future__ import annotations

import re
import threading
from typing import Any

from ..base.naming import Prefix, _scopes, current_manager
from .parameter_dict import ParameterDict

__all__ = ["BlockScope", "hint_of"]


class _Current(threading.local):
    scope: BlockScope | None = None
    counters: dict[str, int] | None = None


_current = _Current()


def hint_of(block: Any) -> str:
    """The name that a block's counter is made from: its ``_alias()``, or the class in lower case."""
    alias = getattr(block, "_alias", None)
    return re.sub(r"\W", "", alias() if alias is not None else type(block).__name__).lower()


class BlockScope:
    """Naming below one block. ``with block.name_scope():`` makes it the scope of new blocks."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._counter: dict[str, int] = {}
        self._old: list[Any] = []

    @staticmethod
    def create(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
        """The full prefix and the parameter dictionary of a new block."""
        current = _current.scope
        if current is None:
            if prefix is None:
                # Blocks and Symbols share their numbers, and begin anew in a NameManager's scope.
                prefix = current_manager().get(None, hint) + "_"
            if params is None:
                return prefix, ParameterDict(prefix)
            return prefix, ParameterDict(params.prefix, params)
        if prefix is None:
            number = current._counter.get(hint, 0)
            current._counter[hint] = number + 1
            prefix = f"{hint}{number}_"
        full = current._block.prefix + prefix
        if params is None:
            parent = current._block._params
            return full, ParameterDict(parent.prefix + prefix, parent._shared)
        return full, ParameterDict(params.prefix, params)

    def __enter__(self) -> BlockScope:
        if self._block._empty_prefix:
            self._old.append(None)
            return self
        self._old.append((_current.scope, _scopes.manager))
        _current.scope = self
        _scopes.manager = Prefix(self._block.prefix)
        return self

    def __exit__(self, *exception: object) -> None:
        before = self._old.pop()
        if before is not None:
            _current.scope, _scopes.manager = before


def reset_counters() -> None:
    """Start the numbers of top-level blocks anew (for reproducible names)."""
    current_manager()._counter.clear()
