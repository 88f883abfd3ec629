"""Graph backends: named rewrites of a graph, used by ``optimize_for`` and ``hybridize(backend=...)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph.node import Entry

__all__ = ["Backend", "get", "list_backends", "register"]

_BACKENDS: dict[str, Backend] = {}
Rewrite = Callable[[Sequence[Entry], dict[str, Any]], Sequence[Entry]]


class Backend:
    """A named rewrite of graphs.

    Parameters
    ----------
    name : str
        What ``hybridize(backend=name)`` says.
    rewrite : callable
        ``rewrite(entries, options)`` gives the entries of a new graph; it must not change nodes in place. Use
        `regluon.graph.node.rebuild`.
    """

    def __init__(self, name: str, rewrite: Rewrite) -> None:
        self.name = name
        self.rewrite = rewrite

    def __repr__(self) -> str:
        return f"<backend {self.name}>"


def register(name: str) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function as the backend ``name``.

    Raises
    ------
    ValueError
        If the name is taken by another function.
    """

    def keep(rewrite: Rewrite) -> Rewrite:
        known = _BACKENDS.get(name)
        if known is not None and known.rewrite is not rewrite and name in ("default", "static_shape"):
            raise ValueError(f"the backend name {name!r} is built in; choose another name")
        _BACKENDS[name] = Backend(name, rewrite)
        return rewrite

    return keep


def get(name: str) -> Backend:
    """The backend with this name.

    Raises
    ------
    ValueError
        If there is none; the message lists those there are.
    """
    backend = _BACKENDS.get(name)
    if backend is None:
        raise ValueError(
            f"backend {name!r} is not registered; there are: {', '.join(list_backends())}. Register one with "
            "regluon.exec.backends.register"
        )
    return backend


def list_backends() -> list[str]:
    """The names of all backends."""
    return sorted(_BACKENDS)


def _same(entries: Sequence[Entry], options: dict[str, Any]) -> Sequence[Entry]:
    return entries


_BACKENDS["default"] = Backend("default", _same)
_BACKENDS["static_shape"] = Backend("static_shape", _same)
