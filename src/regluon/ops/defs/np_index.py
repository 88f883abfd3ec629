"""Index operators of the NumPy interface: advanced indexing, masks, insert, delete, unique, nonzero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.defs.index import as_index, split_indices
from regluon.ops.failure import ArgumentError
from regluon.ops.opdef import Spec, operator

Attrs = dict[str, Any]


# --- advanced indexing ---------------------------------------------------------------------------


@operator("_npi_advanced_indexing", dynamic=True)
def advanced_indexing(data: Tensor, indices: Tensor) -> Tensor:
    """Return ``data[indices]`` for a boolean mask or an array of integers over the first dimension."""
    return data[indices if indices.dtype in (torch.bool, torch.uint8) else as_index(indices)]


@operator("_npi_advanced_indexing_multiple")
def advanced_indexing_multiple(data: Tensor, indices: Tensor) -> Tensor:
    """Return ``data[indices[0], indices[1], ...]`` for integer ``indices`` (M, Y...)."""
    return data[split_indices(indices, tuple(data.shape), "advanced indexing")]


def _mask_view(data: Tensor, mask: Tensor, start_axis: int) -> Tensor:
    """Check that ``mask`` covers axes of ``data`` from ``start_axis`` on; return it ready to broadcast."""
    start = shaping.normalise_axis(start_axis, max(data.dim(), 1))
    covered = tuple(data.shape[start : start + mask.dim()])
    if covered != tuple(mask.shape):
        raise MXNetError(
            f"boolean index of shape {tuple(mask.shape)} does not match the indexed dimensions "
            f"{covered} of an "
            f"array of shape {tuple(data.shape)}"
        )
    trailing = data.dim() - start - mask.dim()
    return (mask != 0).reshape(*mask.shape, *([1] * trailing))


@operator("_npi_boolean_mask_assign_scalar", infer=lambda specs, attrs: [specs[0]])
def boolean_mask_assign_scalar(
    data: Tensor, mask: Tensor, *, value: float = 0.0, start_axis: int = 0
) -> Tensor:
    """Return ``data`` with ``value`` wherever ``mask``, which covers axes from ``start_axis`` on, is true."""
    return data.masked_fill(_mask_view(data, mask, start_axis), value)


@operator("_npi_boolean_mask_assign_tensor", infer=lambda specs, attrs: [specs[0]])
def boolean_mask_assign_tensor(data: Tensor, mask: Tensor, value: Tensor, *, start_axis: int = 0) -> Tensor:
    """Return ``data`` with ``value`` written where ``mask`` is true.

    ``value`` broadcasts to the selected elements: one row per true entry, or one row for all.
    """
    where = _mask_view(data, mask, start_axis)
    if value.numel() == 1:
        return torch.where(where, value.reshape(()).to(data.dtype), data)
    index: Any = (*(slice(None),) * start_axis, mask != 0)
    result = data.clone()
    result[index] = value.to(data.dtype)
    return result


def _index_operator(name: str, accumulate: bool, text: str) -> None:
    def update(a: Tensor, ind: Tensor, val: Tensor) -> Tensor:
        return a.index_put(split_indices(ind, tuple(a.shape), name), val.to(a.dtype), accumulate)

    update.__name__ = update.__qualname__ = name.removeprefix("_npx_")
    update.__doc__ = f"Return ``a`` with ``val``, broadcast, {text} the positions ``ind`` (M, Y...)."
    operator(name, npx=update.__name__, amp="widest", infer=lambda specs, attrs: [specs[0]])(update)


_index_operator("_npx_index_update", False, "written at")
_index_operator("_npx_index_add", True, "added at")


# --- nonzero, unique, checks ---------------------------------------------------------------------


@operator("_npx_nonzero", aliases=("_npi_nonzero",), npx="nonzero", gradient="zero", dynamic=True)
def nonzero(x: Tensor) -> Tensor:
    """Return (N, ndim) int64: the indices of the elements that are not 0, in row-major order."""
    return x.nonzero()


@operator(
    "_npx_constraint_check",
    npx="constraint_check",
    gradient="zero",
    infer=lambda specs, attrs: [Spec((), torch.bool)],
)
def constraint_check(input: Tensor, *, msg: str = "Constraint violated.") -> Tensor:
    """Return True when every element is true; raise ValueError with ``msg`` otherwise."""
    satisfied = (input != 0).all()
    if input.device.type != "meta" and not bool(satisfied):
        raise ArgumentError(msg)
    return satisfied


def _first_positions(inverse: Tensor, count: int) -> Tensor:
    positions = torch.arange(inverse.numel(), device=inverse.device)
    start = torch.full((count,), inverse.numel(), dtype=torch.int64, device=inverse.device)
    return start.scatter_reduce(0, inverse.reshape(-1), positions, "amin")


@operator(
    "_npi_unique",
    dynamic=True,
    gradient="zero",
    outputs=lambda attrs: 1 + attrs["return_index"] + attrs["return_inverse"] + attrs["return_counts"],
)
def unique(
    data: Tensor,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Return the sorted distinct elements (or slices along ``axis``) and, as asked, int64 arrays with the
    index of the first occurrence, the position of every element among the distinct ones, and the counts.
    """
    if axis is None:
        values, inverse, counts = torch.unique(data.reshape(-1), return_inverse=True, return_counts=True)
    else:
        axis = shaping.normalise_axis(axis, data.dim())
        values, inverse, counts = torch.unique(data, return_inverse=True, return_counts=True, dim=axis)
    result = [values]
    if return_index:
        result.append(_first_positions(inverse, counts.numel()))
    if return_inverse:
        result.append(inverse.reshape(-1))
    if return_counts:
        result.append(counts)
    return tuple(result) if len(result) > 1 else values


# --- where with numbers --------------------------------------------------------------------------


def _broadcast_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    dtype = specs[1].dtype
    for spec in specs[1:]:
        shape = shaping.broadcast_shapes(shape, spec.shape)
        dtype = torch.promote_types(dtype, spec.dtype)
    return [Spec(shape, dtype)]


@operator("_npi_where", amp="widest", infer=_broadcast_infer)
def np_where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Take from ``x`` where ``condition`` is not 0, else from ``y``; all three broadcast."""
    return torch.where(condition != 0, x, y)


def _like(tensor: Tensor, scalar: float) -> Tensor:
    """The number as a 0-dimensional tensor of the dtype of ``tensor``."""
    return torch.tensor(scalar, dtype=torch.float64, device=tensor.device).to(tensor.dtype)


@operator("_npi_where_lscalar", infer=_broadcast_infer)
def np_where_lscalar(condition: Tensor, x: Tensor, *, scalar: float = 0.0) -> Tensor:
    """Take ``scalar`` where ``condition`` is not 0, else from ``x``."""
    return torch.where(condition != 0, _like(x, scalar), x)


@operator("_npi_where_rscalar", infer=_broadcast_infer)
def np_where_rscalar(condition: Tensor, y: Tensor, *, scalar: float = 0.0) -> Tensor:
    """Take from ``y`` where ``condition`` is not 0, else ``scalar``."""
    return torch.where(condition != 0, y, _like(y, scalar))


@operator(
    "_npi_where_scalar2", gradient="zero", infer=lambda specs, attrs: [Spec(specs[0].shape, torch.float32)]
)
def np_where_scalar2(condition: Tensor, *, x: float = 0.0, y: float = 0.0) -> Tensor:
    """Return float32: ``x`` where ``condition`` is not 0, else ``y``."""
    first = torch.tensor(x, dtype=torch.float32, device=condition.device)
    second = torch.tensor(y, dtype=torch.float32, device=condition.device)
    return torch.where(condition != 0, first, second)


# --- delete and insert ---------------------------------------------------------------------------


def _flat_axis(arr: Tensor, axis: int | None) -> tuple[Tensor, int]:
    if axis is None or arr.dim() == 0:
        return arr.reshape(-1), 0
    return arr, shaping.normalise_axis(axis, arr.dim())


def _slice_of(attrs: tuple[int | None, int | None, int | None], size: int) -> list[int]:
    return list(range(*slice(*attrs).indices(size)))


def _checked_index(index: int, size: int, limit: int) -> int:
    """Normalise one index; ``limit`` is one more than the largest that is allowed."""
    if not -size <= index < limit:
        raise MXNetError(f"index {index} is out of bounds for axis with size {size}")
    return index + size if index < 0 else index


def _uses_object(attrs: Attrs) -> bool:
    return all(attrs[name] is None for name in ("start", "stop", "step", "int_ind"))


@operator("_npi_delete", dynamic=True, active=lambda attrs: 2 if _uses_object(attrs) else 1)
def delete(
    arr: Tensor,
    obj: Tensor | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    int_ind: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """Return ``arr`` without the slices of ``axis`` named by a number, a slice, or the indices or mask
    ``obj``."""
    arr, axis = _flat_axis(arr, axis)
    size = arr.shape[axis]
    keep = torch.ones(size, dtype=torch.bool, device=arr.device)
    if obj is not None and obj.dtype is torch.bool:
        if obj.numel() != size:
            raise MXNetError(f"delete: a mask of {obj.numel()} elements does not fit an axis of size {size}")
        keep = ~obj.reshape(-1)
    elif obj is not None:
        for index in as_index(obj).reshape(-1).tolist():
            keep[_checked_index(index, size, size)] = False
    elif int_ind is not None:
        keep[_checked_index(int_ind, size, size)] = False
    else:
        keep[_slice_of((start, stop, step), size)] = False
    return arr.index_select(axis, keep.nonzero().squeeze(1))


def _insert(arr: Tensor, values: Tensor, positions: Tensor | int, axis: int | None) -> Tensor:
    """Insert ``values`` before ``positions`` along ``axis``, by the rules of ``numpy.insert``."""
    arr, axis = _flat_axis(arr, axis)
    size = arr.shape[axis]
    values = values.to(arr.dtype)
    values = values.reshape((1,) * max(arr.dim() - values.dim(), 0) + tuple(values.shape))
    if isinstance(positions, int):
        # One number: the first dimension of the values becomes the axis.
        values = values.movedim(0, axis)
        place = _checked_index(positions, size, size + 1)
        shape = list(arr.shape)
        shape[axis] = values.shape[axis]
        pieces = arr.narrow(axis, 0, place), values.expand(shape), arr.narrow(axis, place, size - place)
        return torch.cat(pieces, axis)
    index = as_index(positions).reshape(-1)
    if index.device.type != "meta" and bool(((index < -size) | (index > size)).any()):
        raise MXNetError(f"insert: an index is out of bounds for axis with size {size}")
    index = torch.where(index < 0, index + size, index)
    count = index.numel()
    if count == 1:
        count = values.shape[axis]
        index = index.expand(count)
    ordered, order = index.sort(stable=True)
    arange = torch.arange(count, device=arr.device)
    new_places = torch.empty_like(index).scatter(0, order, ordered + arange)
    old = torch.arange(size, device=arr.device)
    old_places = old + torch.searchsorted(ordered, old, right=True)
    shape = list(arr.shape)
    shape[axis] = count
    values = values.expand(shape)
    shape[axis] = size + count
    result = torch.empty(shape, dtype=arr.dtype, device=arr.device)
    return result.index_copy(axis, new_places, values).index_copy(axis, old_places, arr)


def _values(arr: Tensor, values: Tensor | None, val: float | None) -> Tensor:
    if val is not None:
        return torch.tensor(val, dtype=torch.float64, device=arr.device).to(arr.dtype)
    if values is None:
        raise MXNetError("insert: values are required, as an input or as the attribute val")
    return values


def _insert_active(attrs: Attrs) -> int:
    return 1 if attrs["val"] is not None else 2


@operator("_npi_insert_scalar", active=_insert_active)
def insert_scalar(
    arr: Tensor,
    values: Tensor | None = None,
    *,
    val: float | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    int_ind: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """Insert ``values``, or the number ``val``, before index ``int_ind`` of ``axis`` (None: flattened)."""
    return _insert(arr, _values(arr, values, val), int_ind or 0, axis)


@operator("_npi_insert_slice", active=_insert_active)
def insert_slice(
    arr: Tensor,
    values: Tensor | None = None,
    *,
    val: float | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    int_ind: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """Insert ``values``, or the number ``val``, before every index of the slice (start, stop, step)."""
    flat, position = _flat_axis(arr, axis)
    places = _slice_of((start, stop, step), flat.shape[position])
    index = torch.tensor(places, dtype=torch.int64, device=arr.device)
    return _insert(arr, _values(arr, values, val), index, axis)


@operator("_npi_insert_tensor", active=lambda attrs: 2 if attrs["val"] is not None else 3)
def insert_tensor(
    arr: Tensor,
    values: Tensor,
    obj: Tensor | None = None,
    *,
    val: float | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    int_ind: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """Insert ``values`` before the indices ``obj``; with the number ``val`` the second input holds the
    indices."""
    if val is not None:
        return _insert(arr, _values(arr, None, val), values, axis)
    if obj is None:
        raise MXNetError("insert: the indices are required")
    index: Tensor | int = int(obj) if obj.dim() == 0 and obj.device.type != "meta" else obj
    return _insert(arr, values, index, axis)
