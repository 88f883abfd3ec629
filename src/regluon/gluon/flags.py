"""What `hybridize` and `optimize_for` are told: flags are known by name, and of the right type."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any

__all__ = ["check_flags", "checked", "options_of"]

_FLAGS = (
    "active",
    "partition_if_dynamic",
    "static_alloc",
    "static_shape",
    "inline_limit",
    "forward_bulk_size",
    "backward_bulk_size",
    "backend",
    "backend_opts",
    "clear",
    "on_value_read",
    "recompute",
)
# Of `hybridize`, and not of `optimize_for`, which goes on with what hybridize set.
_ONLY_OF_HYBRIDIZE = ("active", "on_value_read", "recompute")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def check_flags(flags: Iterable[str], backend: Any = None, of: str = "hybridize") -> None:
    """Refuse unknown flags; with a backend they are its options, unless a flag is misspelt.

    Raises
    ------
    TypeError
        For an unknown flag; the message names the nearest.
    """
    for name in flags:
        if name in _FLAGS:
            if of == "hybridize" or name not in _ONLY_OF_HYBRIDIZE:
                continue
            hint = f": call hybridize({name}=...) before"
        else:
            near = difflib.get_close_matches(name, _FLAGS, n=1, cutoff=0.6 if backend is None else 0.85)
            if backend is not None and not near:
                continue
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if backend is None and not near and of == "optimize_for":
                hint = ": options need the backend that they are for (backend=...)"
        raise TypeError(f"{of}() got an unexpected keyword argument {name!r}{hint}")


def checked(**flags: Any) -> dict[str, Any]:
    """Flags with values of their types.

    What is on or off is taken as 0, 1 and in words too, and sizes of segments may be None, as in the
    originals.

    Raises
    ------
    ValueError
        For a value of another type.
    """
    return {name: _KINDS[name](name, value) for name, value in flags.items()}


def _truth(name: str, value: Any) -> bool:
    known = _TRUTHS.get(str(value).strip().lower())
    if known is None:
        raise ValueError(f"hybridize: {name} is True or False; received {value!r}")
    return known


def _truth_or_none(name: str, value: Any) -> bool:
    return value is not None and _truth(name, value)


def _size(name: str, value: Any) -> int | None:
    if value is None and name != "inline_limit":
        return None
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"hybridize: {name} is a whole number; received {value!r}") from None


def _on_value_read(name: str, value: Any) -> str:
    if value not in ("error", "break"):
        raise ValueError(f"{name} is 'error' or 'break'; received {value!r}")
    return str(value)


_KINDS = {
    "active": _truth_or_none,
    "partition_if_dynamic": _truth_or_none,
    "static_alloc": _truth,
    "static_shape": _truth,
    "inline_limit": _size,
    "forward_bulk_size": _size,
    "backward_bulk_size": _size,
    "on_value_read": _on_value_read,
    "recompute": _truth_or_none,
}


def options_of(given: Any, more: dict[str, Any], backend: Any, of: str = "hybridize") -> dict[str, Any]:
    """The options of a backend: ``backend_opts`` and other keywords.

    Raises
    ------
    TypeError
        If backend_opts is no dict, or there is no backend that its options are for.
    """
    if given is not None and not isinstance(given, dict):
        raise TypeError(
            f"{of}: backend_opts is a dict with options of the backend, by name; received "
            f"{given!r} of type {type(given).__name__}"
        )
    if given and backend is None:
        raise TypeError(
            f"{of}: backend_opts are options of a backend, and none is asked for; received "
            f"backend_opts={given!r}. Name the backend that they are for (backend=...)"
        )
    return {**(given or {}), **more}
