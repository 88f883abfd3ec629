"""Initializers that choose by name: from a file, or among several others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import MXNetError
from .base import InitDesc, InitializerError, create

__all__ = ["Load", "Mixed", "load"]


class Load:
    """Values from a file or mapping, by name; ``default_init`` fills what is not there.

    ``param`` maps names (with or without ``arg:`` and ``aux:``) to arrays, or is the path of a file of
    them.
    """

    def __init__(self, param: Any, default_init: Any = None, verbose: bool = False) -> None:
        if isinstance(param, str):
            param = load(param)
        if not isinstance(param, Mapping):
            raise InitializerError(
                f"Load needs a mapping of names to arrays, or a file of one; received {type(param)}."
            )
        self.param = {
            name[4:] if name.startswith(("arg:", "aux:")) else name: value for name, value in param.items()
        }
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, array: Any) -> None:
        """Fill ``array`` with the value stored under ``name``.

        Raises
        ------
        ValueError
            If the stored shape differs, or nothing is stored and there is no default.
        """
        if name in self.param:
            stored = self.param[name]
            if tuple(stored.shape) != tuple(array.shape):
                raise InitializerError(
                    f"Parameter '{name}' has shape {tuple(array.shape)}, but {tuple(stored.shape)} was "
                    "loaded for it."
                )
            array[:] = stored
            return
        if self.default_init is None:
            raise InitializerError(
                f"Nothing was loaded for parameter '{name}' and Load has no default_init. Give one, or load "
                f"a file that holds it; there are {', '.join(sorted(self.param)[:12])}."
            )
        default = create(self.default_init)
        default(name, array)


class Mixed:
    """Several initializers; the first whose pattern matches the name is used."""

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Any]) -> None:
        if len(patterns) != len(initializers):
            raise InitializerError(
                f"Mixed needs one initializer for each pattern; received {len(patterns)} patterns "
                f"and {len(initializers)} initializers."
            )
        self.map = [
            (re.compile(pattern), create(init)) for pattern, init in zip(patterns, initializers, strict=True)
        ]

    def __call__(self, name: str, array: Any) -> None:
        """Fill ``array`` as the first matching pattern says.

        Raises
        ------
        ValueError
            If no pattern matches.
        """
        attributes = dict(getattr(name, "attrs", {}))
        if attributes.get("__init__") is self:
            del attributes["__init__"]
        for pattern, init in self.map:
            if pattern.match(name):
                init(InitDesc(name, attributes), array)
                return
        raise InitializerError(
            f"Parameter '{name}' matches none of the patterns "
            f"{[pattern.pattern for pattern, _ in self.map]}. "
            f"Add '.*' as the last pattern, with a default initializer."
        )


def load(fname: str) -> dict[str, Any] | list[Any]:
    """Read the arrays of a file, for :class:`Load`."""
    from regluon import serial

    try:
        return serial.load(fname)
    except OSError as error:
        raise MXNetError(f"The file '{fname}' of initial values cannot be read: {error}") from error
