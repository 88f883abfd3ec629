"""Nested arguments: lists, tuples, dicts, None, numbers and arrays as a flat list and a description."""

from __future__ import annotations

import numbers
from typing import Any

import numpy

from ..array import NDArray
from ..symbol import Symbol

__all__ = ["Leaf", "flatten", "from_text", "map_values", "regroup", "to_text", "values_in", "without_floats"]


class Leaf:
    """The place of an array in a structure."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "array"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf)

    def __hash__(self) -> int:
        return 7


LEAF = Leaf()


def flatten(value: Any, flat: list[Any]) -> Any:
    """Append the arrays in ``value`` to ``flat``; gives the (hashable) structure.

    Raises
    ------
    TypeError
        For something that is neither an array, a number, a string, None nor a container of those.
    """
    if isinstance(value, (NDArray, Symbol)):
        if isinstance(value, Symbol) and value._items is not None:
            return ("list", *(flatten(item, flat) for item in value._items))
        flat.append(value)
        return LEAF
    if isinstance(value, (list, tuple)):
        if hasattr(value, "_fields"):
            return ("namedtuple", type(value), *(flatten(item, flat) for item in value))
        return (
            "list" if isinstance(value, list) else "tuple",
            *(flatten(item, flat) for item in value),
        )
    if isinstance(value, dict):
        return ("dict", *((key, flatten(item, flat)) for key, item in value.items()))
    if isinstance(value, numpy.ndarray):
        raise TypeError(
            "a hybridized block takes mx.nd or mx.np arrays; received a NumPy array. Convert it with "
            "mx.nd.array or "
            "mx.np.array"
        )
    if value is None or isinstance(value, (numbers.Number, str, bytes, type, numpy.generic)):
        return ("value", type(value), value)
    return ("object", value)


def regroup(structure: Any, flat: Any) -> Any:
    """The value with this structure, taking arrays from the iterator ``flat``."""
    if isinstance(structure, Leaf):
        return next(flat)
    kind = structure[0]
    if kind == "list":
        return [regroup(item, flat) for item in structure[1:]]
    if kind == "tuple":
        return tuple(regroup(item, flat) for item in structure[1:])
    if kind == "namedtuple":
        return structure[1](*(regroup(item, flat) for item in structure[2:]))
    if kind == "dict":
        return {key: regroup(item, flat) for key, item in structure[1:]}
    return structure[-1]


def values_in(structure: Any) -> list[Any]:
    if not isinstance(structure, tuple):
        return []
    if structure[0] == "value":
        return [structure[2]]
    if structure[0] == "dict":
        return [value for _, item in structure[1:] for value in values_in(item)]
    return [value for item in structure[1:] for value in values_in(item)]


def without_floats(structure: Any) -> Any:
    if not isinstance(structure, tuple):
        return structure
    if structure[0] == "value" and isinstance(structure[2], float):
        return ("value", float)
    if structure[0] == "dict":
        return ("dict", *((key, without_floats(item)) for key, item in structure[1:]))
    return tuple(without_floats(item) for item in structure)


def map_values(structure: Any, flat: Any, swap: Any) -> Any:
    if not isinstance(structure, tuple):
        return next(flat)
    kind = structure[0]
    if kind == "value":
        swapped = swap(structure)
        return swapped if swapped is not structure else structure[2]
    if kind == "list":
        return [map_values(item, flat, swap) for item in structure[1:]]
    if kind == "tuple":
        return tuple(map_values(item, flat, swap) for item in structure[1:])
    if kind == "dict":
        return {key: map_values(item, flat, swap) for key, item in structure[1:]}
    if kind == "namedtuple":
        return structure[1](*(map_values(item, flat, swap) for item in structure[2:]))
    return structure[-1]


def to_text(structure: Any) -> str:
    """A structure as text for a file: ``*`` is an array; lists, tuples, dicts and constants as JSON."""
    import json

    return json.dumps(_plain(structure))


def _plain(structure: Any) -> Any:
    if isinstance(structure, Leaf):
        return "*"
    kind = structure[0]
    if kind in ("list", "tuple"):
        return {kind: [_plain(item) for item in structure[1:]]}
    if kind == "namedtuple":
        return {"tuple": [_plain(item) for item in structure[2:]]}
    if kind == "dict":
        return {"dict": [[str(key), _plain(item)] for key, item in structure[1:]]}
    value = structure[-1]
    return {"value": value if isinstance(value, (int, float, str, bool)) or value is None else str(value)}


def from_text(text: str) -> Any:
    """The structure that `to_text` wrote; None when the text is no such structure."""
    import json

    try:
        return _structure(json.loads(text))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def _structure(plain: Any) -> Any:
    if plain == "*":
        return LEAF
    ((kind, value),) = plain.items()
    if kind in ("list", "tuple"):
        return (kind, *(_structure(item) for item in value))
    if kind == "dict":
        return ("dict", *((key, _structure(item)) for key, item in value))
    return ("value", type(value), value)
