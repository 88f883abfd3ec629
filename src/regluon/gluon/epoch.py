"""One counter that moves whenever an attribute of any block is assigned; graphs are checked again then."""

from __future__ import annotations

from typing import Any

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


def _simple(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return (type(value), value)
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_simple(item) for item in value))
    if isinstance(value, dict):
        return (dict, tuple((str(key), _simple(item)) for key, item in value.items()))
    return id(value)


def fingerprint(block: Any) -> tuple[Any, ...]:
    """Attributes and children of a block and of everything below it, as one comparable value."""
    own = tuple((key, _simple(value)) for key, value in block.__dict__.items() if key not in INTERNAL)
    hooks = len(block._forward_hooks) + len(block._forward_pre_hooks)
    children = tuple((name, fingerprint(child)) for name, child in block._children.items())
    parameters = tuple((key, id(value), str(value.dtype)) for key, value in block._reg_params.items())
    return (id(block), hooks, own, parameters, children)
