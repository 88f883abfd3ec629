"""Index reads and writes as operator calls, for values of a trace and Symbols.

Numbers of a key stay as the user wrote them wherever an operator can take them, so that a recorded slice
serves arrays of other sizes too. Exported graphs use operators that the originals know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy
import torch

from .index_open import getitem_open, setitem_open, take_constant
from .index_plan import (
    ALL,
    Bounds,
    Entry,
    Index,
    Kind,
    Mask,
    NewAxis,
    Plan,
    Position,
    Range,
    device_index,
    empty_axes,
    plan,
)

Call = Callable[..., Any]


def _slice_attributes(p: Plan) -> dict[str, tuple[int | None, ...]] | None:
    """Attributes of ``slice`` for the axes that are cut, in the user's own numbers; None when all are whole.

    Numbers are not resolved against the shape, so a recorded slice serves arrays of other sizes too.
    """
    begin: list[int | None] = []
    end: list[int | None] = []
    step: list[int | None] = []
    used = 0
    for entry in p.entries:
        if isinstance(entry, NewAxis):
            continue
        if isinstance(entry, Position) and p.basic:
            begin.append(entry.value)
            end.append(entry.value + 1 if entry.value != -1 else None)
            step.append(None)
        elif isinstance(entry, Range) and not entry.whole:
            begin.append(entry.start)
            end.append(entry.stop)
            step.append(entry.step)
        else:
            count = entry.ndim if isinstance(entry, Mask) else 1
            begin.extend([None] * count)
            end.extend([None] * count)
            step.extend([None] * count)
            continue
        used = len(begin)
    if used == 0:
        return None
    attributes: dict[str, tuple[int | None, ...]] = {"begin": tuple(begin[:used]), "end": tuple(end[:used])}
    if any(one not in (None, 1) for one in step[:used]):
        attributes["step"] = tuple(step[:used])
    return attributes


def _axes_of(p: Plan, wanted: type) -> list[int]:
    """Axes of the array that entries of one type index."""
    axes = []
    axis = 0
    for entry in p.entries:
        if isinstance(entry, NewAxis):
            continue
        if isinstance(entry, wanted):
            axes.append(axis)
        axis += entry.ndim if isinstance(entry, Mask) else 1
    return axes


def _squeeze(x: Any, axes: Sequence[int], kind: Kind, call: Call) -> Any:
    if not axes:
        return x
    # Only the NumPy operator can return a 0-dimensional array.
    name = "_npi_squeeze" if kind == "np" and len(axes) == len(x.shape) else "squeeze"
    return call(name, [x], axis=tuple(axes))


def _expand(x: Any, axes: Sequence[int], call: Call) -> Any:
    for axis in axes:
        x = call("expand_dims", [x], axis=axis)
    return x


def _new_axes(p: Plan) -> list[int]:
    """Positions of new axes in the result of a basic key."""
    axes = []
    position = 0
    for entry in p.entries:
        if isinstance(entry, NewAxis):
            axes.append(position)
        position += not isinstance(entry, Position)
    return axes


def _getitem_basic_ops(x: Any, p: Plan, call: Call) -> Any:
    attributes = _slice_attributes(p)
    if attributes is not None:
        x = call("slice", [x], **attributes)
    new = _new_axes(p)
    dropped = _axes_of(p, Position)
    x = _squeeze(x, dropped, "nd" if new else p.kind, call)
    if new and len(dropped) == len(p.shape) > 0:
        # The legacy squeeze kept one dimension, which serves as the first new axis.
        new = new[1:]
    x = _expand(x, new, call)
    empty = empty_axes(p)
    for axis in empty:
        begin = (None,) * axis + (0,)
        x = call("slice", [x], begin=begin, end=begin)
    return x


@dataclass
class _Arrays:
    """The arrays of an advanced key after new axes were inserted and ranges cut."""

    axes: list[int]
    values: list[Any]
    adjacent: bool


def _prepare(x: Any, p: Plan, call: Call) -> tuple[Any, Plan]:
    """Cut ranges and insert new axes, so that only whole axes, integers and arrays remain."""
    attributes = _slice_attributes(p)
    if attributes is not None:
        x = call("slice", [x], **attributes)
    entries: list[Entry] = []
    bounds: list[Bounds] = []
    shape: list[int] = []
    axis = 0
    for entry in p.entries:
        if isinstance(entry, NewAxis):
            x = call("expand_dims", [x], axis=len(shape))
            entries.append(ALL)
            shape.append(1)
            bounds.append((0, 1, 1))
            continue
        count = entry.ndim if isinstance(entry, Mask) else 1
        for bound in p.bounds[axis : axis + count]:
            length = p.shape[axis] if isinstance(entry, Position) else bound[1]
            shape.append(length)
            bounds.append((0, length, 1))
            axis += 1
        entries.append(ALL if isinstance(entry, Range) else entry)
    return x, Plan(tuple(shape), p.kind, entries, bounds)


def _mask_columns(entry: Mask, call: Call) -> list[Any]:
    """Positions of the true elements, one vector per dimension of the mask."""
    places = call("_npx_nonzero", [entry.array])
    columns = []
    for column in range(entry.ndim):
        part = call("slice_axis", [places], axis=1, begin=column, end=column + 1)
        columns.append(call("Reshape", [part], shape=(-1,)))
    return columns


def _collect(p: Plan, call: Call) -> _Arrays:
    axes: list[int] = []
    values: list[Any] = []
    groups: list[int] = []
    axis = 0
    for number, entry in enumerate(p.entries):
        if isinstance(entry, Mask):
            values.extend(_mask_columns(entry, call))
            axes.extend(range(axis, axis + entry.ndim))
            axis += entry.ndim
            groups.append(number)
            continue
        if isinstance(entry, Index):
            array = entry.array
            if isinstance(array, numpy.ndarray):
                device_index(array, p.shape[axis], axis, torch.device("cpu"))
            elif str(array.dtype).rsplit(".", 1)[-1].strip("'<>") != "int64":
                array = call("Cast", [array], dtype="int64")
            values.append(array)
        elif isinstance(entry, Position):
            values.append(numpy.array([entry.value], dtype=numpy.int64))
        if isinstance(entry, Index | Position):
            axes.append(axis)
            groups.append(number)
        axis += 1
    adjacent = groups[-1] - groups[0] + 1 == len(groups)
    return _Arrays(axes, _without_lone_constants(values, call), adjacent)


def _without_lone_constants(values: list[Any], call: Call) -> list[Any]:
    """Express integers next to computed indices by an operator, so that a graph stores no constant."""
    computed = next((value for value in values if not isinstance(value, numpy.ndarray)), None)
    if computed is None:
        return values
    return [
        call("_npi_full_like", [computed], fill_value=float(value[0]))
        if isinstance(value, numpy.ndarray) and value.shape == (1,)
        else value
        for value in values
    ]


def _broadcast_indices(values: list[Any], call: Call) -> tuple[list[Any], int]:
    """Give all index arrays one shape; also return its number of dimensions."""
    rank = max(len(value.shape) for value in values)
    if all(isinstance(value, numpy.ndarray) for value in values):
        try:
            return [numpy.ascontiguousarray(one) for one in numpy.broadcast_arrays(*values)], rank
        except ValueError:
            shapes = [value.shape for value in values]
            raise IndexError(f"index arrays of shapes {shapes} cannot be broadcast together") from None
    if all(tuple(value.shape) == tuple(values[0].shape) for value in values):
        return values, rank
    ranked = []
    for value in values:
        missing = rank - len(value.shape)
        if isinstance(value, numpy.ndarray):
            ranked.append(value.reshape((1,) * missing + value.shape))
        else:
            ranked.append(_expand(value, [0] * missing, call))
    leader = reduce(lambda a, b: call("broadcast_add", [a, b]), ranked)
    return [call("broadcast_like", [value, leader]) for value in ranked], rank


def _stacked(values: list[Any], call: Call) -> Any:
    if all(isinstance(value, numpy.ndarray) for value in values):
        return numpy.stack(values)
    if len(values) == 1:
        return call("expand_dims", [values[0]], axis=0)
    return call("stack", values, axis=0, num_args=len(values))


def _single_mask(p: Plan) -> tuple[Mask, int] | None:
    """The mask and its axis when a key is one mask and whole axes only."""
    special = [entry for entry in p.entries if not (isinstance(entry, Range) and entry.whole)]
    if len(special) == 1 and isinstance(special[0], Mask):
        return special[0], _axes_of(p, Mask)[0]
    return None


def _getitem_mask_ops(x: Any, mask: Mask, axis: int, call: Call) -> Any:
    array = mask.array
    if mask.ndim > 1:
        for _ in range(mask.ndim - 1):
            # -5 merges two axes, -2 copies one, -4 copies the rest.
            x = call("_npx_reshape", [x], newshape=(*([-2] * axis), -5, -4))
        array = call("_npx_reshape", [array], newshape=(-1,))
    return call("_contrib_boolean_mask", [x, array], axis=axis)


def _unknown_arrays(p: Plan) -> bool:
    return any(isinstance(entry, Index) and entry.ndim < 0 for entry in p.entries)


def getitem_ops(x: Any, key: Any, call: Call, kind: Kind = "np") -> Any:
    """Express ``x[key]`` as operator calls.

    ``x`` has a ``shape``, which is None while it is not known. ``call(operator, inputs, **attributes)``
    applies an operator and returns its value; an input may also be a NumPy array of int64, a constant of
    the key. Errors: see :func:`plan`; MXNetError where the key cannot be carried out without the shape.
    """
    if x.shape is None:
        return getitem_open(x, key, call, kind)
    p = plan(key, x.shape, kind)
    if _unknown_arrays(p):
        return getitem_open(x, key, call, kind)
    if p.basic:
        return _getitem_basic_ops(x, p, call)
    empty = empty_axes(p)
    x, q = _prepare(x, p, call)
    mask = _single_mask(q)
    if mask is not None:
        result = _getitem_mask_ops(x, *mask, call)
    else:
        result = _gather(x, q, call)
    for axis in empty:
        begin = (None,) * axis + (0,)
        result = call("slice", [result], begin=begin, end=begin)
    return result


def _gather(x: Any, p: Plan, call: Call) -> Any:
    arrays = _collect(p, call)
    ndim = len(p.shape)
    if len(arrays.axes) == 1 and isinstance(arrays.values[0], numpy.ndarray):
        return take_constant(x, arrays.values[0], arrays.axes[0], call)
    values, rank = _broadcast_indices(arrays.values, call)
    order = [*arrays.axes, *(axis for axis in range(ndim) if axis not in arrays.axes)]
    if order != list(range(ndim)):
        x = call("transpose", [x], axes=tuple(order))
    result = call("gather_nd", [x, _stacked(values, call)])
    first = arrays.axes[0]
    if arrays.adjacent and first > 0:
        rest = ndim - len(arrays.axes)
        axes = (*range(rank, rank + first), *range(rank), *range(rank + first, rank + rest))
        result = call("transpose", [result], axes=axes)
    return result


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else numpy.shape(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | numpy.number | numpy.bool_)


def _value_input(value: Any) -> Any:
    """Turn lists into arrays; leave arrays and traced values alone."""
    if hasattr(value, "shape"):
        return value
    try:
        array = numpy.asarray(value)
    except ValueError:
        array = numpy.empty((), dtype=object)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"cannot assign {value!r} of type {type(value).__name__} to elements of an array; "
            "expected a number, an array or nested lists of numbers"
        )
    return array


def _check_fits(value: Any, shape: tuple[int, ...]) -> None:
    dims = _shape_of(value)
    while len(dims) > len(shape) and dims[0] == 1:
        dims = dims[1:]
    trailing = shape[len(shape) - len(dims) :] if len(dims) <= len(shape) else None
    if trailing is None or any(a not in (1, b) for a, b in zip(dims, trailing, strict=True)):
        raise ValueError(
            f"cannot broadcast a value of shape {_shape_of(value)} into the selected shape {shape}"
        )


def _aligned_value(value: Any, p: Plan, call: Call) -> Any:
    """Give a value the dimensions of the cut array: those of integers inserted, new ones and extra ones
    dropped."""
    result_shape = p.result_shape
    if p.kind == "nd" and not result_shape and _shape_of(value) == (1,):
        result_shape = (1,)
        return call("Reshape", [value], shape=(1,) * len(p.shape))
    _check_fits(value, result_shape)
    dims = _shape_of(value)
    extra = len(dims) - len(result_shape)
    if extra > 0:
        value = call("_npi_squeeze", [value], axis=tuple(range(extra)))
        dims = dims[extra:]
    # Walk from the right, matching result axes with those of the value.
    squeeze: list[int] = []
    layout: list[str] = []
    left = len(dims)
    for entry in reversed(p.entries):
        if isinstance(entry, Position):
            layout.append("new")
        elif left > 0:
            left -= 1
            if isinstance(entry, NewAxis):
                squeeze.append(left)
            else:
                layout.append("old")
        else:
            break
    while layout and layout[-1] == "new":
        layout.pop()
    if squeeze:
        value = call("_npi_squeeze", [value], axis=tuple(sorted(squeeze)))
    for position, what in enumerate(reversed(layout)):
        if what == "new":
            value = call("expand_dims", [value], axis=position)
    return value


def _setitem_basic_ops(x: Any, p: Plan, value: Any, call: Call) -> Any:
    if empty_axes(p):
        if not _is_number(value):
            _check_fits(value, p.result_shape)
        return x
    attributes = _slice_attributes(p) or {"begin": (None,), "end": (None,)}
    if not p.shape:
        # Nothing can be cut from a 0-dimensional array: replace its only element.
        if _is_number(value):
            return call("_npi_full_like", [x], fill_value=float(value))
        _check_fits(value, p.result_shape)
        return call("Cast", [call("_np_reshape", [value], newshape=())], dtype=_dtype_name(x))
    if _is_number(value):
        return call("_slice_assign_scalar", [x], scalar=float(value), **attributes)
    return call("_slice_assign", [x, _aligned_value(value, p, call)], **attributes)


def _dtype_name(x: Any) -> str:
    dtype = x.dtype
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).rsplit(".", 1)[-1]


def _scatter(x: Any, p: Plan, value: Any, call: Call) -> Any:
    arrays = _collect(p, call)
    values, rank = _broadcast_indices(arrays.values, call)
    ndim = len(p.shape)
    first = arrays.axes[0]
    rest = ndim - len(arrays.axes)
    order = [*arrays.axes, *(axis for axis in range(ndim) if axis not in arrays.axes)]
    if arrays.adjacent and first > 0 and not _is_number(value) and len(_shape_of(value)) > rest - first:
        # The value lies as the result does: (before, index dimensions, after); the operator wants the index
        # first.
        missing = rank + rest - len(_shape_of(value))
        value = _expand(value, [0] * max(missing, 0), call)
        axes = (*range(first, first + rank), *range(first), *range(first + rank, rank + rest))
        value = call("transpose", [value], axes=axes)
    moved = order != list(range(ndim))
    if moved:
        x = call("transpose", [x], axes=tuple(order))
    if _is_number(value):
        value = call("_full", [], shape=(1,), value=float(value), dtype=_dtype_name(x))
    x = call("_scatter_set_nd", [x, value, _stacked(values, call)], shape=tuple(p.shape[i] for i in order))
    if moved:
        back = tuple(order.index(axis) for axis in range(ndim))
        x = call("transpose", [x], axes=back)
    return x


def _setitem_advanced_ops(x: Any, p: Plan, value: Any, call: Call) -> Any:
    """Write into whole axes, integers and arrays; new axes have been moved into the value by the caller."""
    mask = _single_mask(p)
    if mask is None:
        return _scatter(x, p, value, call)
    entry, axis = mask
    if _is_number(value):
        inputs = [x, entry.array]
        return call("_npi_boolean_mask_assign_scalar", inputs, value=float(value), start_axis=axis)
    return call("_npi_boolean_mask_assign_tensor", [x, entry.array, value], start_axis=axis)


def setitem_ops(x: Any, key: Any, value: Any, call: Call, kind: Kind = "np") -> Any:
    """Express ``x[key] = value`` as operator calls and return the new value of ``x``.

    ``call`` is that of :func:`getitem_ops`; ``value`` is a number, an array, nested lists or a traced value.
    """
    if x.shape is None:
        return setitem_open(x, key, value, call, kind)
    p = plan(key, x.shape, kind)
    if _unknown_arrays(p):
        return setitem_open(x, key, value, call, kind)
    if not _is_number(value):
        value = _value_input(value)
    if p.basic:
        return _setitem_basic_ops(x, p, value, call)
    return _set_plan_ops(x, p, value, call)


def _set_plan_ops(x: Any, p: Plan, value: Any, call: Call) -> Any:
    if any(isinstance(entry, NewAxis) for entry in p.entries):
        # Write into the array with the new axes in place, then drop them again.
        axes, inner = _with_new_axes(p)
        written = _set_plan_ops(_expand(x, axes, call), inner, value, call)
        return x if 0 in inner.shape else call("_npi_squeeze", [written], axis=tuple(axes))
    attributes = _slice_attributes(p)
    if attributes is not None:
        # Write into the cut part, then put that part back.
        part, inner = _prepare(x, p, call)
        return call("_slice_assign", [x, _setitem_advanced_ops(part, inner, value, call)], **attributes)
    return _setitem_advanced_ops(x, p, value, call)


def _with_new_axes(p: Plan) -> tuple[list[int], Plan]:
    """Replace the new axes of an advanced key by whole axes of an array that has them; also return where."""
    axes: list[int] = []
    inner = Plan((), p.kind, [])
    shape: list[int] = []
    axis = 0
    for entry in p.entries:
        count = 1
        if isinstance(entry, NewAxis):
            axes.append(len(shape))
            shape.append(entry.size)
            inner.bounds.append((0, entry.size, 1))
            inner.entries.append(ALL)
            continue
        if isinstance(entry, Mask):
            count = entry.ndim
        shape.extend(p.shape[axis : axis + count])
        inner.bounds.extend(p.bounds[axis : axis + count])
        inner.entries.append(entry)
        axis += count
    return axes, Plan(tuple(shape), p.kind, inner.entries, inner.bounds)
