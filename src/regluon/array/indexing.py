"""Indexing engine: one reading of a key, three ways to carry it out.

``plan`` turns any key into one description. ``getitem_torch`` and ``setitem_torch`` carry it out on tensors,
``getitem_ops`` and ``setitem_ops`` express it as operator calls, for traced values and Symbols. The meaning
of a key is NumPy's in all of them. Two things depend on the kind of array: an "nd" array has no 0-dimensional
results (one element has shape (1,)), and ``True`` and ``False`` are the numbers 1 and 0 there; and a basic
slice that is contiguous shares memory with its array, while any other result is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy
import torch
from torch import Tensor

from .index_open import shares_memory
from .index_operators import getitem_ops, setitem_ops
from .index_plan import (
    ALL,
    Bounds,
    Index,
    Kind,
    Mask,
    NewAxis,
    Plan,
    Position,
    device_index,
    empty_axes,
    optional_int,
    plan,
)

__all__ = [
    "Plan",
    "as_value",
    "getitem_ops",
    "getitem_torch",
    "is_view",
    "plan",
    "setitem_ops",
    "setitem_torch",
]


def _forward_index(p: Plan) -> tuple[tuple[Any, ...], list[int]]:
    """Index with positive steps only, and the result axes to flip afterwards."""
    index: list[Any] = []
    flips: list[int] = []
    axis = position = 0
    for entry in p.entries:
        if isinstance(entry, NewAxis):
            index.append(None)
            position += 1
            continue
        start, length, step = p.bounds[axis]
        axis += 1
        if isinstance(entry, Position):
            index.append(start)
            continue
        if step < 0:
            last = start + (length - 1) * step
            index.append(slice(last, start + 1, -step) if length else slice(0, 0))
            flips.append(position)
        else:
            index.append(slice(start, start + length * step, step) if length else slice(0, 0))
        position += 1
    return tuple(index), flips


def _advanced_index(t: Tensor, p: Plan) -> tuple[Tensor, tuple[Any, ...]]:
    """Return the tensor with negative steps already applied, and torch's form of the rest of the key."""
    negative = [axis for axis, bound in enumerate(p.bounds) if bound[2] < 0]
    if negative:
        ranges = [
            bound if bound[2] < 0 else (0, size, 1) for bound, size in zip(p.bounds, p.shape, strict=True)
        ]
        t = _take(t, ranges)
    index: list[Any] = []
    axis = 0
    for entry in p.entries:
        if isinstance(entry, NewAxis):
            index.append(None)
        elif isinstance(entry, Mask):
            mask = entry.array if isinstance(entry.array, Tensor) else torch.as_tensor(entry.array)
            index.append(mask.detach().to(t.device))
            axis += entry.ndim
        elif isinstance(entry, Index):
            index.append(device_index(entry.array, p.shape[axis], axis, t.device))
            axis += 1
        else:
            start, length, step = p.bounds[axis]
            if isinstance(entry, Position):
                # An integer next to arrays broadcasts with them, as in NumPy; torch would drop its axis
                # first.
                index.append(torch.tensor([start], device=t.device))
            elif step < 0:
                index.append(slice(None))
            else:
                index.append(slice(start, start + length * step, step) if length else slice(0, 0))
            axis += 1
    return t, tuple(index)


def _take(t: Tensor, bounds: Sequence[Bounds]) -> Tensor:
    whole = Plan(tuple(t.shape), "np", [ALL] * t.dim(), list(bounds))
    index, flips = _forward_index(whole)
    return t[index].flip(flips) if flips else t[index]


def _apply_advanced(t: Tensor, index: tuple[Any, ...]) -> Tensor:
    try:
        return t[index]
    except (IndexError, RuntimeError) as error:
        shapes = [tuple(item.shape) for item in index if isinstance(item, Tensor)]
        raise IndexError(f"index arrays of shapes {shapes} cannot be used together: {error}") from error


def getitem_torch(t: Tensor, key: Any, kind: Kind = "np") -> tuple[Tensor, bool]:
    """Read ``t[key]``; the second result tells whether it shares memory with ``t``.

    A contiguous basic slice is a view, everything else a copy. Errors: see :func:`plan`.
    """
    if type(key) is int and t.dim() > 0:
        size = t.shape[0]
        if not -size <= key < size:
            raise IndexError(f"index {key} is out of bounds for axis 0 with size {size}")
        row = t[key]
        return (row.reshape(1) if kind == "nd" and row.dim() == 0 else row), True
    if type(key) is slice and key.step is None and t.dim() > 0:
        begin, end = optional_int(key.start, "start"), optional_int(key.stop, "stop")
        return t[begin:end], True
    p = plan(key, t.shape, kind)
    if p.basic:
        index, flips = _forward_index(p)
        result = t[index]
        shared = p.contiguous and not flips
        for axis in empty_axes(p):
            result = result.narrow(axis, 0, 0)
        if flips:
            result = result.flip(flips)
        elif not shared:
            result = result.clone(memory_format=torch.contiguous_format)
    else:
        source, index = _advanced_index(t, p)
        result, shared = _apply_advanced(source, index), False
        for axis in empty_axes(p):
            result = result.narrow(axis, 0, 0)
    if kind == "nd" and result.dim() == 0 and t.dim() > 0:
        result = result.reshape(1)
    return result, shared


def as_value(value: Any, dtype: torch.dtype, device: torch.device) -> Tensor | float:
    """Turn the right side of an assignment into a number or a tensor of the given dtype and device.

    Raises TypeError for something that is neither a number nor array-like.
    """
    if isinstance(value, bool | int | float):
        return value
    tensor = getattr(value, "_t", value)
    if not isinstance(tensor, Tensor):
        try:
            array = numpy.asarray(value)
            if array.dtype.kind not in "biuf":
                raise TypeError
            tensor = torch.from_numpy(numpy.ascontiguousarray(array)).reshape(array.shape)
        except (TypeError, ValueError):
            raise TypeError(
                f"cannot assign {value!r} of type {type(value).__name__} to elements of an array; "
                "expected a number, an array or nested lists of numbers"
            ) from None
    return tensor.to(device=device, dtype=dtype)


def _fitted(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast a value to the selected shape; extra leading dimensions of size 1 are dropped."""
    while value.dim() > len(shape) and value.shape[0] == 1:
        value = value[0]
    try:
        return value.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"cannot broadcast a value of shape {tuple(value.shape)} into the selected shape {shape}"
        ) from None


def _set_basic(t: Tensor, p: Plan, value: Tensor | float) -> None:
    index, flips = _forward_index(p)
    target = t[index]
    for axis in empty_axes(p):
        target = target.narrow(axis, 0, 0)
    if not isinstance(value, Tensor):
        target.fill_(value)
        return
    if value.dim() == 1 and value.numel() == 1 and target.dim() == 0:
        value = value.reshape(())
    value = _fitted(value, tuple(target.shape))
    target.copy_(value.flip(flips) if flips else value)


def _set_advanced(t: Tensor, p: Plan, value: Tensor | float) -> None:
    if any(bound[2] < 0 for bound in p.bounds) or empty_axes(p):
        # Find the positions in the flattened array by reading an array that holds them.
        numbers = torch.arange(prod(p.shape), device=t.device).reshape(p.shape)
        source, index = _advanced_index(numbers, p)
        places = _apply_advanced(source, index)
        for axis in empty_axes(p):
            places = places.narrow(axis, 0, 0)
        flat = t.contiguous().reshape(-1).clone()
        flat[places] = _fitted(value, tuple(places.shape)) if isinstance(value, Tensor) else value
        t.copy_(flat.reshape(t.shape))
        return
    _, index = _advanced_index(t, p)
    if isinstance(value, Tensor):
        while value.dim() > 1 and value.shape[0] == 1:
            value = value[0]
    try:
        t[index] = value
    except (RuntimeError, IndexError) as error:
        received = f"a value of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"
        raise ValueError(
            f"cannot write {received} to the elements selected by index arrays: {error}"
        ) from error


def setitem_torch(t: Tensor, key: Any, value: Any, kind: Kind = "np") -> None:
    """Write ``t[key] = value`` in place, broadcasting the value as NumPy does and converting it to the dtype
    of t.

    Raises IndexError as :func:`plan`, ValueError when the value does not broadcast, TypeError for a value
    that is no number and not array-like.
    """
    p = plan(key, t.shape, kind)
    converted = as_value(value, t.dtype, t.device)
    if (
        isinstance(converted, Tensor)
        and converted.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
    ):
        # The two sides may overlap: x[1:] = x[:-1].
        converted = converted.clone()
    if p.basic:
        _set_basic(t, p, converted)
    else:
        _set_advanced(t, p, converted)


def is_view(key: Any, shape: Sequence[int] | None, kind: Kind = "np") -> bool:
    """Whether reading ``key`` gives a view; ``shape`` is None where it is not known."""
    if shape is None:
        return shares_memory(key, kind)
    p = plan(key, shape, kind)
    return p.basic and p.contiguous
