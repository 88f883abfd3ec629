"""Index keys on values whose shape is not known yet, such as ``mx.sym.var("data")`` passed through a block.

Keys that start at the first axis need no sizes: ``slice`` takes the user's numbers. What cannot be expressed
without the shape raises MXNetError and asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from ..base.errors import MXNetError
from .index_plan import Entry, Index, Kind, Mask, NewAxis, Position, Range, Whole, read_key

Call = Callable[..., Any]
# Up to so many positions are read one by one, which leaves no constant in an exported graph.
_FEW = 8
Front = list[Position | Range | NewAxis | Index | Mask]


def _needs_shape(key: Any) -> MXNetError:
    items = key if isinstance(key, tuple) else (key,)
    text = ", ".join("an array" if hasattr(item, "shape") else repr(item) for item in items)
    return MXNetError(
        f"the index [{text}] needs the shape of a value that is not known yet; give it where the value "
        "comes from, for example mx.sym.var('data', shape=(1, 3, 224, 224))"
    )


def _front(key: Any, kind: Kind) -> Front:
    """Entries of a key whose ellipsis, if any, comes last."""
    entries = read_key(key, kind)
    if any(isinstance(entry, Whole) for entry in entries[:-1]):
        raise _needs_shape(key)
    return [entry for entry in entries if not isinstance(entry, Whole)]


def shares_memory(key: Any, kind: Kind) -> bool:
    """Whether a key selects one unbroken piece of any array: integers, then at most one plain slice."""
    entries = read_key(key, kind)
    while entries and isinstance(entries[0], Position):
        entries.pop(0)
    if entries and isinstance(entries[0], Range) and entries[0].step in (None, 1):
        entries.pop(0)
    return all(isinstance(entry, Whole) or (isinstance(entry, Range) and entry.whole) for entry in entries)


def take_constant(x: Any, index: numpy.ndarray[Any, Any], axis: int, call: Call) -> Any:
    """Read the positions ``index``, a constant, of one axis."""
    if index.ndim != 1 or not 0 < len(index) <= _FEW:
        return call("take", [x, index], axis=axis, mode="wrap")
    parts = []
    for position in index.tolist():
        last = position + 1 if position != -1 else None
        parts.append(call("slice_axis", [x], axis=axis, begin=position, end=last))
    return parts[0] if len(parts) == 1 else call("Concat", parts, dim=axis, num_args=len(parts))


def _slice_attributes(front: Front) -> dict[str, Any]:
    axes = [entry for entry in front if isinstance(entry, Position | Range)]
    begin = tuple(entry.value if isinstance(entry, Position) else entry.start for entry in axes)
    end = tuple(
        (entry.value + 1 if entry.value != -1 else None) if isinstance(entry, Position) else entry.stop
        for entry in axes
    )
    step = tuple(None if isinstance(entry, Position) else entry.step for entry in axes)
    attributes: dict[str, Any] = {"begin": begin, "end": end}
    if any(one not in (None, 1) for one in step):
        attributes["step"] = step
    return attributes


def _read_basic(x: Any, front: Front, kind: Kind, call: Call) -> Any:
    axes = [entry for entry in front if not isinstance(entry, NewAxis)]
    if any(not (isinstance(entry, Range) and entry.whole) for entry in axes):
        x = call("slice", [x], **_slice_attributes(front))
    dropped = tuple(i for i, entry in enumerate(axes) if isinstance(entry, Position))
    if dropped:
        # Only the NumPy operator can return a 0-dimensional array.
        x = call("_npi_squeeze" if kind == "np" else "squeeze", [x], axis=dropped)
    position = 0
    for entry in front:
        if isinstance(entry, NewAxis):
            x = call("expand_dims", [x], axis=position)
        position += not isinstance(entry, Position)
    return x


def _read_back(x: Any, back: Sequence[Entry], key: Any, kind: Kind, call: Call) -> Any:
    """Read the entries behind an ellipsis, whose axes are counted from the end."""
    dropped = []
    for axis, entry in enumerate(reversed(back), 1):
        if isinstance(entry, Position):
            last = entry.value + 1 if entry.value != -1 else None
            x = call("slice_axis", [x], axis=-axis, begin=entry.value, end=last)
            dropped.append(-axis)
        elif not isinstance(entry, Range) or entry.step not in (None, 1):
            raise _needs_shape(key)
        elif not entry.whole:
            x = call("slice_axis", [x], axis=-axis, begin=entry.start or 0, end=entry.stop)
    if dropped:
        x = call("_npi_squeeze" if kind == "np" else "squeeze", [x], axis=tuple(reversed(dropped)))
    return x


def getitem_open(x: Any, key: Any, call: Call, kind: Kind) -> Any:
    """Express ``x[key]`` for an ``x`` of unknown shape as operator calls."""
    entries = read_key(key, kind)
    if entries and isinstance(entries[0], Whole):
        return _read_back(x, entries[1:], key, kind, call)
    front = _front(key, kind)
    arrays = [entry for entry in front if isinstance(entry, Index | Mask)]
    if not arrays:
        if any(isinstance(entry, NewAxis) and entry.size == 0 for entry in front):
            raise _needs_shape(key)
        return _read_basic(x, front, kind, call)
    place = front.index(arrays[0])
    whole = all(isinstance(entry, Range) and entry.whole for entry in front[:place])
    if len(arrays) != 1 or not whole or len(front) != place + 1:
        if all(isinstance(entry, Index) and isinstance(entry.array, numpy.ndarray) for entry in front):
            indices = numpy.stack(numpy.broadcast_arrays(*(entry.array for entry in arrays)))
            return call("gather_nd", [x, indices])
        raise _needs_shape(key)
    array = arrays[0].array
    if isinstance(arrays[0], Mask) and arrays[0].ndim == 1:
        return call("_contrib_boolean_mask", [x, array], axis=place)
    if isinstance(array, numpy.ndarray) and isinstance(arrays[0], Index):
        return take_constant(x, array, place, call)
    if place == 0:
        # Integers or a mask: the operator looks at the type when it runs.
        return call("_npi_advanced_indexing", [x, array])
    raise _needs_shape(key)


def setitem_open(x: Any, key: Any, value: Any, call: Call, kind: Kind) -> Any:
    """Express ``x[key] = value`` for an ``x`` of unknown shape; returns the new value of ``x``."""
    front = _front(key, kind)
    number = isinstance(value, bool | int | float | numpy.number | numpy.bool_)
    if len(front) == 1 and isinstance(front[0], Mask):
        if number:
            inputs = [x, front[0].array]
            return call("_npi_boolean_mask_assign_scalar", inputs, value=float(value), start_axis=0)
        return call("_npi_boolean_mask_assign_tensor", [x, front[0].array, value], start_axis=0)
    if any(not isinstance(entry, Position | Range) for entry in front):
        raise _needs_shape(key)
    if number and not front:
        return call("_npi_full_like", [x], fill_value=float(value))
    attributes = _slice_attributes(front)
    if number:
        return call("_slice_assign_scalar", [x], scalar=float(value), **attributes)
    positions = [i for i, entry in enumerate(front) if isinstance(entry, Position)]
    if positions != list(range(len(positions))):
        # The value's dimensions after an integer would have to be counted.
        raise _needs_shape(key)
    return call(
        "_slice_assign", [x, value if hasattr(value, "shape") else numpy.asarray(value)], **attributes
    )
