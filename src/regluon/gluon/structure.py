"""Nested arguments: lists, tuples, dicts, None, numbers and arrays as a flat list and a description."""

from __future__ import annotations

import numbers
from typing import Any

import numpy

from ..array import NDArray
from ..symbol import Symbol

__all__ = [
    "Keywords",
    "Leaf",
    "flatten",
    "from_text",
    "has_objects",
    "lifted_numbers",
    "numbers_in",
    "regroup",
    "to_text",
    "without_numbers",
]


class Keywords(dict[str, Any]):
    """Keyword arguments that a forward takes by name only; the last of a call's arguments."""


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
        kind = "keywords" if type(value) is Keywords else "dict"
        return (kind, *((key, flatten(item, flat)) for key, item in value.items()))
    if isinstance(value, numpy.ndarray):
        raise TypeError(
            "a hybridized block takes mx.nd or mx.np arrays; received a NumPy array. Convert it with "
            "mx.nd.array or mx.np.array"
        )
    if value is None or isinstance(value, (numbers.Number, str, bytes, type, numpy.generic)):
        return ("value", type(value), value)
    return ("object", value)


def regroup(structure: Any, flat: Any, numbers: Any = None) -> Any:
    """The value with this structure, taking arrays and lifted numbers from the iterators."""
    if isinstance(structure, Leaf):
        return next(flat)
    kind = structure[0]
    if kind == "list":
        return [regroup(item, flat, numbers) for item in structure[1:]]
    if kind == "tuple":
        return tuple(regroup(item, flat, numbers) for item in structure[1:])
    if kind == "namedtuple":
        return structure[1](*(regroup(item, flat, numbers) for item in structure[2:]))
    if kind in ("dict", "keywords"):
        made = {key: regroup(item, flat, numbers) for key, item in structure[1:]}
        return Keywords(made) if kind == "keywords" else made
    if kind == "number":
        return next(numbers)
    return structure[-1]


def has_objects(structure: Any) -> bool:
    """Whether something in the structure is no array, number, string, None or container of those."""
    if not isinstance(structure, tuple):
        return False
    kind = structure[0]
    if kind in ("dict", "keywords"):
        return any(has_objects(item) for _, item in structure[1:])
    return kind == "object" or (
        kind in ("list", "tuple", "namedtuple") and any(map(has_objects, structure[1:]))
    )


def numbers_in(structure: Any) -> list[Any]:
    """The numbers (no truth values) among the leaves of a structure, in order."""
    found: list[Any] = []

    def collect(leaf: Any) -> Any:
        found.append(leaf[2])
        return leaf

    _map_numbers(structure, collect)
    return found


def without_numbers(structure: Any) -> Any:
    """The structure with only the types of its numbers: what calls that differ in numbers have in common."""
    return _map_numbers(structure, lambda leaf: ("value", leaf[1]))


def lifted_numbers(structure: Any, places: Any) -> tuple[Any, list[Any]]:
    """The structure in which the numbers at ``places`` are ``("number", type)``, and those numbers."""
    taken: list[Any] = []
    position = iter(range(len(numbers_in(structure))))

    def lift(leaf: Any) -> Any:
        if next(position) not in places:
            return leaf
        taken.append(leaf[2])
        return ("number", leaf[1])

    return _map_numbers(structure, lift), taken


def _map_numbers(structure: Any, change: Any) -> Any:
    if not isinstance(structure, tuple):
        return structure
    kind = structure[0]
    if kind == "value":
        kind = structure[1]
        real = kind in (int, float) or issubclass(kind, (numpy.integer, numpy.floating))
        return change(structure) if real else structure
    if kind in ("dict", "keywords"):
        return (kind, *((key, _map_numbers(item, change)) for key, item in structure[1:]))
    if kind in ("list", "tuple"):
        return (kind, *(_map_numbers(item, change) for item in structure[1:]))
    if kind == "namedtuple":
        return (kind, structure[1], *(_map_numbers(item, change) for item in structure[2:]))
    return structure


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
    if kind in ("dict", "keywords"):
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
