"""Names and attributes of symbols: NameManager, Prefix and AttrScope, with scopes per thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = [
    "AttrScope",
    "NameManager",
    "NodeNames",
    "Prefix",
    "current_attributes",
    "current_manager",
    "current_scope",
]


class _Scopes(threading.local):
    manager: NameManager | None = None
    attributes: AttrScope | None = None


_scopes = _Scopes()


class _Current:
    """A class attribute that reads what is in force in this thread."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self.read = read

    def __get__(self, instance: object, owner: type) -> Any:
        return self.read()


class NameManager:
    """Gives symbols without a name one: the hint and a counter (``fullyconnected0``)."""

    current = _Current(lambda: current_manager())

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

    current = _Current(lambda: current_scope())

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


def current_scope() -> AttrScope:
    """The AttrScope that is open in this thread, or an empty one."""
    return AttrScope() if _scopes.attributes is None else _scopes.attributes


def current_attributes(attributes: dict[str, Any] | None) -> dict[str, Any]:
    """The attributes given, completed by the AttrScope that is open."""
    scope = _scopes.attributes
    return dict(attributes or {}) if scope is None else scope.get(attributes)


class NodeNames:
    """Unique node names: block path, then the operator's name or the given one."""

    def __init__(self) -> None:
        self.prefixes: list[str] = [""]
        self._taken: set[str] = set()
        self._count: dict[str, int] = {}

    @property
    def prefix(self) -> str:
        return self.prefixes[-1]

    def reserve(self, name: str) -> None:
        """Mark a name as taken (a parameter's)."""
        self._taken.add(name)

    def new(self, name: str | None, hint: str) -> str:
        """A name that no node has yet."""
        if name is not None:
            wanted = self.prefix + name
            if wanted not in self._taken:
                self._taken.add(wanted)
                return wanted
            base = wanted
        else:
            base = self.prefix + hint
        while True:
            number = self._count.get(base, 0 if name is None else 1)
            self._count[base] = number + 1
            candidate = f"{base}{number}"
            if candidate not in self._taken:
                self._taken.add(candidate)
                return candidate
