"""One counter that moves whenever an attribute of any block is assigned; graphs are checked again then."""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["clock", "fingerprint"]


class _Clock:
    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0

    def tick(self) -> None:
        """Something that a recorded graph may depend on has changed."""
        self.now += 1


clock = _Clock()

# Attributes of Block and HybridBlock that a recorded graph does not depend on.
INTERNAL = frozenset(
    {
        "_active",
        "_cached",
        "_children",
        "_empty_prefix",
        "_flags",
        "_forward_hooks",
        "_forward_pre_hooks",
        "_last_signature",
        "_level",
        "_name",
        "_op_hooks",
        "_params",
        "_prefix",
        "_ready",
        "_reg_params",
        "_scope",
    }
)


class _Same:
    """Something that is compared by identity, and kept alive so that no other object takes its place."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _simple(value: Any, seen: set[int]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, bytes, numpy.generic)):
        return (type(value), value)
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_simple(item, seen) for item in value))
    if isinstance(value, dict):
        return (dict, tuple((str(key), _simple(item, seen)) for key, item in value.items()))
    if isinstance(value, (set, frozenset)):
        return (type(value), frozenset(value))
    if hasattr(value, "_reg_params"):
        # A block in a list or dict, which is no registered child.
        return _print_of(value, seen)
    return _Same(value)


def _print_of(block: Any, seen: set[int]) -> Any:
    if id(block) in seen:
        return _Same(block)
    seen.add(id(block))
    children = tuple((name, _print_of(child, seen)) for name, child in block._children.items())
    own = tuple((key, _simple(value, seen)) for key, value in block.__dict__.items() if key not in INTERNAL)
    hooks = len(block._forward_hooks) + len(block._forward_pre_hooks)
    parameters = tuple((key, _Same(value), str(value.dtype)) for key, value in block._reg_params.items())
    return (_Same(block), hooks, children, own, parameters)


def fingerprint(block: Any) -> tuple[Any, ...]:
    """Attributes and children of a block and of everything below it, as one comparable value."""
    return _print_of(block, set())  # type: ignore[no-any-return]
