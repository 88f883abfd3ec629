"""Names and attributes of symbols: NameManager, Prefix and AttrScope, with scopes per thread."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["AttrScope", "NameManager", "Prefix", "current_attributes", "current_manager"]


class _Scopes(threading.local):
    manager: NameManager | None = None
    attributes: AttrScope | None = None


_scopes = _Scopes()


class NameManager:
    """Gives symbols without a name one: the hint and a counter (``fullyconnected0``)."""

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}
        self._old: list[NameManager | None] = []

    def get(self, name: str | None, hint: str) -> str:
        """The given name, or a new one made from ``hint``."""
        if name:
            return name
        number = self._counter.get(hint, 0)
        self._counter[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> NameManager:
        self._old.append(_scopes.manager)
        _scopes.manager = self
        return self

    def __exit__(self, *exception: object) -> None:
        _scopes.manager = self._old.pop()


class Prefix(NameManager):
    """A name manager that puts a prefix before every name."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """The prefix and the given or new name."""
        return self._prefix + super().get(name, hint)


class AttrScope:
    """A scope whose string attributes all symbols made inside get."""

    def __init__(self, **attributes: str) -> None:
        for key, value in attributes.items():
            if not isinstance(value, str):
                raise ValueError(
                    f"Attributes need to be string: {key!r} of AttrScope is {type(value).__name__}"
                )
        self._attributes = dict(attributes)
        self._old: list[AttrScope | None] = []

    def get(self, attributes: dict[str, Any] | None) -> dict[str, Any]:
        """The scope's attributes, overridden by the given ones."""
        if not self._attributes:
            return dict(attributes or {})
        return {**self._attributes, **(attributes or {})}

    def __enter__(self) -> AttrScope:
        outer = _scopes.attributes
        self._old.append(outer)
        if outer is not None:
            merged = AttrScope()
            merged._attributes = {**outer._attributes, **self._attributes}
            _scopes.attributes = merged
        else:
            _scopes.attributes = self
        return self

    def __exit__(self, *exception: object) -> None:
        _scopes.attributes = self._old.pop()


def current_manager() -> NameManager:
    """The name manager of this thread."""
    if _scopes.manager is None:
        _scopes.manager = NameManager()
    return _scopes.manager


def current_attributes(attributes: dict[str, Any] | None) -> dict[str, Any]:
    """The attributes given, completed by the AttrScope that is open."""
    scope = _scopes.attributes
    return dict(attributes or {}) if scope is None else scope.get(attributes)
