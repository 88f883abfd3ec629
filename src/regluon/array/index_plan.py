"""Reading an index key: any key becomes one description, laid against a shape.

The meaning of a key is NumPy's. Only ``True`` and ``False`` depend on the kind of array: they are the
numbers 1 and 0 for an "nd" array, and a new axis of size 1 or 0 for an "np" one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy
import torch
from torch import Tensor

Kind = Literal["nd", "np"]
Bounds = tuple[int, int, int]


@dataclass(frozen=True)
class Whole:
    """An ellipsis: as many whole axes as fit."""


@dataclass(frozen=True)
class NewAxis:
    """None: a new axis of size 1 (of size 0 where it stands for the NumPy key False)."""

    size: int = 1


@dataclass(frozen=True)
class Position:
    """One integer: that position of an axis, which disappears."""

    value: int


@dataclass(frozen=True)
class Range:
    """A slice of one axis."""

    start: int | None
    stop: int | None
    step: int | None

    @property
    def whole(self) -> bool:
        return self.start in (None, 0) and self.stop is None and self.step in (None, 1)


@dataclass(frozen=True)
class Index:
    """An array of positions along one axis; ``array`` is a tensor, a NumPy array or a traced value.

    ``ndim`` is -1 for a traced value of which nothing is known; it may turn out to be a mask.
    """

    array: Any
    ndim: int


@dataclass(frozen=True)
class Mask:
    """A boolean array that covers ``ndim`` axes."""

    array: Any
    ndim: int


Entry = Whole | NewAxis | Position | Range | Index | Mask
ALL = Range(None, None, None)


def optional_int(value: Any, what: str) -> int | None:
    if value is None:
        return None
    try:
        return operator.index(value)
    except TypeError:
        if getattr(value, "ndim", None) == 0 or getattr(value, "shape", None) == (1,):
            return int(value)
        raise TypeError(
            f"the {what} of a slice must be an integer or None, received {value!r} of type "
            f"{type(value).__name__}"
        ) from None


def _is_boolean(dtype: Any) -> bool:
    return "bool" in str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype)


def _array_entry(array: Any, kind: Kind) -> Entry:
    """Classify something with a shape and a dtype; both are None for a value not known yet."""
    if array.shape is None:
        return Index(array, -1)
    ndim = len(array.shape)
    concrete = isinstance(array, numpy.ndarray | numpy.generic | Tensor)
    if _is_boolean(array.dtype):
        return NewAxis(int(bool(array))) if concrete and ndim == 0 else Mask(array, ndim)
    if ndim == 0 and concrete:
        return Position(int(array))
    return Index(array, ndim)


def _host_array(value: Any) -> numpy.ndarray[Any, Any]:
    array = numpy.asarray([] if len(value) == 0 else value)
    if array.size == 0:
        return array.astype(numpy.int64)
    if array.dtype.kind not in "biuf":
        raise IndexError(f"an index list must hold integers or booleans, received {value!r}")
    return array if array.dtype.kind == "b" else array.astype(numpy.int64)


def _entry(item: Any, kind: Kind) -> Entry:
    """Classify one element of a key."""
    if isinstance(item, bool | numpy.bool_):
        return Position(int(item)) if kind == "nd" else NewAxis(int(item))
    if isinstance(item, int):
        return Position(item)
    if item is None:
        return NewAxis()
    if item is Ellipsis:
        return Whole()
    if isinstance(item, slice):
        bounds = optional_int(item.start, "start"), optional_int(item.stop, "stop")
        step = optional_int(item.step, "step")
        if step == 0:
            raise ValueError("the step of a slice cannot be 0")
        return Range(*bounds, step)
    tensor = getattr(item, "_t", None)
    if isinstance(tensor, Tensor):
        item = tensor
    if isinstance(item, list | tuple | range):
        item = _host_array(item)
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        return _array_entry(item, kind)
    try:
        return Position(operator.index(item))
    except TypeError:
        raise IndexError(
            f"unsupported index {item!r} of type {type(item).__name__}; use integers, slices, "
            "None, Ellipsis, "
            "or arrays and lists of integers or booleans"
        ) from None


def read_key(key: Any, kind: Kind = "np") -> list[Entry]:
    """Turn a key into its entries, without looking at any array's shape."""
    items = key if isinstance(key, tuple) else (key,)
    entries = [_entry(item, kind) for item in items]
    if sum(isinstance(entry, Whole) for entry in entries) > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    return entries


def _consumed(entries: Sequence[Entry]) -> int:
    return sum(
        entry.ndim if isinstance(entry, Mask) else 0 if isinstance(entry, Whole | NewAxis) else 1
        for entry in entries
    )


@dataclass
class Plan:
    """A key laid against a shape.

    ``entries`` hold one element for every axis of the array in order (a mask: for several), with NewAxis
    elements between. ``bounds`` are (start, length, step) per axis, whole where an array indexes the axis.
    """

    shape: tuple[int, ...]
    kind: Kind
    entries: list[Entry]
    bounds: list[Bounds] = field(default_factory=list)

    @property
    def basic(self) -> bool:
        """Whether the key holds no arrays."""
        return not any(isinstance(entry, Index | Mask) for entry in self.entries)

    @property
    def contiguous(self) -> bool:
        """Whether a basic key selects one unbroken piece of a row-major array."""
        inner_whole = True
        for size, (_, length, step) in zip(reversed(self.shape), reversed(self.bounds), strict=True):
            if length != 1 and (step != 1 or not inner_whole):
                return False
            inner_whole = inner_whole and length == size
        return True

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the result of a basic key, before an nd array turns () into (1,)."""
        dims: list[int] = []
        axis = 0
        for entry in self.entries:
            if isinstance(entry, NewAxis):
                dims.append(entry.size)
                continue
            if not isinstance(entry, Position):
                dims.append(self.bounds[axis][1])
            axis += 1
        return tuple(dims)


def _bounds_of(entry: Entry, axis: int, size: int) -> Bounds:
    if isinstance(entry, Position):
        if not -size <= entry.value < size:
            raise IndexError(f"index {entry.value} is out of bounds for axis {axis} with size {size}")
        return entry.value % size, 1, 1
    if isinstance(entry, Range):
        start, stop, step = slice(entry.start, entry.stop, entry.step).indices(size)
        length = len(range(start, stop, step))
        return start, length, step
    return 0, size, 1


def plan(key: Any, shape: Sequence[int], kind: Kind = "np") -> Plan:
    """Lay ``key`` against an array of ``shape``.

    Raises IndexError for too many indices, an integer out of bounds, a mask that does not fit, or a key of no
    known form; TypeError for a slice with bounds that are no integers.
    """
    dims = tuple(shape)
    entries = read_key(key, kind)
    used = _consumed(entries)
    if used > len(dims):
        raise IndexError(
            f"too many indices: the array has {len(dims)} dimension(s) {dims}, but {used} were indexed"
        )
    filler: list[Entry] = [ALL] * (len(dims) - used)
    place = next((i for i, entry in enumerate(entries) if isinstance(entry, Whole)), None)
    full = [*entries, *filler] if place is None else [*entries[:place], *filler, *entries[place + 1 :]]
    result = Plan(dims, kind, full)
    axis = 0
    for entry in full:
        if isinstance(entry, NewAxis):
            continue
        if isinstance(entry, Mask):
            covered = dims[axis : axis + entry.ndim]
            if covered != tuple(entry.array.shape):
                raise IndexError(
                    f"a boolean index of shape {tuple(entry.array.shape)} does not match the "
                    "indexed dimensions "
                    f"{covered} of an array of shape {dims}"
                )
            result.bounds.extend((0, size, 1) for size in covered)
            axis += entry.ndim
            continue
        result.bounds.append(_bounds_of(entry, axis, dims[axis]))
        axis += 1
    return result


def empty_axes(p: Plan) -> list[int]:
    """Result axes that a False in the key makes empty."""
    axes = []
    position = 0
    for entry in p.entries:
        if isinstance(entry, NewAxis) and entry.size == 0:
            axes.append(position)
        position += not isinstance(entry, Position)
    return axes


def device_index(array: Any, size: int, axis: int, device: torch.device) -> Tensor:
    """Bring an array of positions onto the device as int64, checked against the size of its axis."""
    tensor = array if isinstance(array, Tensor) else torch.as_tensor(numpy.asarray(array))
    tensor = tensor.detach().to(torch.int64)
    if tensor.numel():
        low, high = int(tensor.min()), int(tensor.max())
        if low < -size or high >= size:
            wrong = low if low < -size else high
            raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {size}")
    return tensor.to(device)
