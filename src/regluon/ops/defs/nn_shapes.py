"""Small helpers shared by the shape rules of the neural-network operators.

A shape is a tuple of sizes or None when nothing is known; a size of 0 or -1 (or None) is an unknown
dimension.  The rules below only ever add knowledge: a known size is never replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from regluon.base.errors import MXNetError

__all__ = ["complete", "dimension", "fill_channel_vectors", "flattened", "is_known", "normal_axis"]

PartialShape = "tuple[int, ...] | None"


def is_known(size: Any) -> bool:
    """True for a size that is decided (a positive integer or a traced dimension)."""
    return size is not None and not (isinstance(size, int) and size <= 0)


def dimension(shape: Sequence[Any] | None, axis: int) -> Any:
    """The size along ``axis``, or -1 when it is not known yet."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return -1
    return shape[axis] if is_known(shape[axis]) else -1


def flattened(shape: Sequence[Any] | None) -> Any:
    """Product of all sizes but the first one (units seen by a dense layer), or -1."""
    if shape is None or not all(is_known(size) for size in shape[1:]):
        return -1
    return prod(shape[1:])


def complete(known: Sequence[Any] | None, wanted: Sequence[Any]) -> tuple[Any, ...]:
    """Merge what is known of a shape with what a rule derives; sizes already known stay as they are."""
    if known is None or len(known) != len(wanted):
        return tuple(wanted)
    return tuple(have if is_known(have) else want for have, want in zip(known, wanted, strict=True))


def fill_channel_vectors(shapes: list[Any], channels: Any) -> list[Any]:
    """Give every input after the first one the shape ``(channels,)``."""
    return [shapes[0], *(complete(shape, (channels,)) for shape in shapes[1:])]


def normal_axis(axis: int, rank: int, operator: str) -> int:
    """``axis`` counted from the front; raises MXNetError when it is outside the data's rank."""
    if not -rank <= axis < rank:
        raise MXNetError(
            f"{operator}: axis {axis} is outside the data, which has {rank} dimensions "
            f"(expected {-rank} <= axis < {rank}); choose an axis of the data or reshape it first"
        )
    return axis % rank
