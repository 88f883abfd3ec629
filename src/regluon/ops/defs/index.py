"""Operators that read or write at positions held by another array, one-hot codes and sequence masks."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.opdef import DType, Shape, Spec, operator

Attrs = dict[str, Any]
Shapes = list[tuple[int, ...] | None]
Mode = Literal["clip", "raise", "wrap"]


def as_index(indices: Tensor) -> Tensor:
    """Convert indices of any dtype to int64; fractions are cut off, as the originals do."""
    return indices if indices.dtype == torch.int64 else indices.to(torch.int64)


def bounded(index: Tensor, size: int, mode: str, name: str) -> Tensor:
    """Bring int64 ``index`` into [0, size): clip, wrap round, or raise MXNetError for one outside.

    Only in mode "raise" do negative indices count from the end.
    """
    if mode == "clip":
        return index.clamp(0, max(size - 1, 0))
    if mode == "wrap":
        return index.remainder(max(size, 1))
    if index.device.type != "meta" and bool(((index < -size) | (index >= size)).any()):
        raise MXNetError(f"{name}: an index is out of bounds for an axis of size {size} (mode='raise')")
    return torch.where(index < 0, index + size, index)


# --- take and Embedding --------------------------------------------------------------------------


def _take_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    axis = shaping.normalise_axis(attrs["axis"], len(shape))
    return [Spec((*shape[:axis], *specs[1].shape, *shape[axis + 1 :]), specs[0].dtype)]


@operator("take", aliases=("_npi_take",), infer=_take_infer)
def take(a: Tensor, indices: Tensor, *, axis: int = 0, mode: Mode = "clip") -> Tensor:
    """Read the slices of ``a`` along ``axis`` at ``indices``, whose shape takes the place of the axis.

    ``mode`` says what becomes of an index outside: clip to the nearest, wrap round, or raise MXNetError.
    """
    axis = shaping.normalise_axis(axis, a.dim())
    if a.shape[axis] == 0 and indices.numel() > 0:
        raise MXNetError(f"take: cannot read from axis {axis} of size 0 (array of shape {tuple(a.shape)})")
    index = bounded(as_index(indices), a.shape[axis], mode, "take")
    rows = a.index_select(axis, index.reshape(-1))
    return rows.reshape(*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :])


def _embedding_fill(shapes: Shapes, attrs: Attrs) -> Shapes:
    return [shapes[0], (attrs["input_dim"], attrs["output_dim"])]


def _embedding_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    expected = (attrs["input_dim"], attrs["output_dim"])
    if tuple(specs[1].shape) != expected:
        raise MXNetError(
            f"Embedding: weight must have shape (input_dim, output_dim) = {expected}, "
            f"received {tuple(specs[1].shape)}"
        )
    return [Spec((*specs[0].shape, expected[1]), specs[1].dtype)]


def _embedding(data: Tensor, weight: Tensor, input_dim: int, output_dim: int) -> Tensor:
    if tuple(weight.shape) != (input_dim, output_dim):
        raise MXNetError(
            f"Embedding: weight must have shape (input_dim, output_dim) = {(input_dim, output_dim)}, "
            f"received {tuple(weight.shape)}"
        )
    return torch.nn.functional.embedding(as_index(data).clamp(0, max(input_dim - 1, 0)), weight)


@operator(
    "Embedding",
    aliases=("_npx_embedding", "_sparse_Embedding"),
    npx="embedding",
    fill=_embedding_fill,
    infer=_embedding_infer,
)
def embedding(
    data: Tensor,
    weight: Tensor,
    *,
    input_dim: int,
    output_dim: int,
    dtype: DType | None = torch.float32,
    sparse_grad: bool = False,
) -> Tensor:
    """Look up rows of ``weight`` (input_dim, output_dim): data (...) -> (..., output_dim).

    Indices outside [0, input_dim) are clipped.
    """
    return _embedding(data, weight, input_dim, output_dim)


@operator("_contrib_SparseEmbedding", fill=_embedding_fill, infer=_embedding_infer)
def sparse_embedding(
    data: Tensor,
    weight: Tensor,
    *,
    input_dim: int,
    output_dim: int,
    dtype: DType | None = torch.float32,
    sparse_grad: bool = False,
) -> Tensor:
    """Look up rows of ``weight``; the older name of Embedding with sparse gradients."""
    return _embedding(data, weight, input_dim, output_dim)


# --- indices for several dimensions at once ------------------------------------------------------


def split_indices(indices: Tensor, shape: tuple[int, ...], name: str) -> tuple[Tensor, ...]:
    """Turn (M, ...) into M index tensors for the first M dimensions."""
    if indices.dim() < 1 or indices.shape[0] > len(shape):
        raise MXNetError(
            f"{name}: indices of shape {tuple(indices.shape)} hold more rows than the {len(shape)} "
            "dimension(s) "
            f"of the data, {shape}"
        )
    return tuple(as_index(indices).unbind(0))


def _gather_nd_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape, index = specs[0].shape, specs[1].shape
    if not index or index[0] > len(shape):
        raise MXNetError(f"gather_nd: indices of shape {index} do not fit data of shape {shape}")
    return [Spec((*index[1:], *shape[index[0] :]), specs[0].dtype)]


@operator("gather_nd", aliases=("_npi_gather_nd", "_npx_gather_nd"), npx="gather_nd", infer=_gather_nd_infer)
def gather_nd(data: Tensor, indices: Tensor) -> Tensor:
    """Read ``data[indices[0], indices[1], ...]``: indices (M, Y...) -> (Y..., data.shape[M:]).

    Negative indices count from the end; IndexError for one outside.
    """
    return data[split_indices(indices, tuple(data.shape), "gather_nd")]


@operator("scatter_nd", infer=lambda specs, attrs: [Spec(tuple(attrs["shape"]), specs[0].dtype)])
def scatter_nd(data: Tensor, indices: Tensor, *, shape: Shape) -> Tensor:
    """Write ``data`` (Y..., shape[M:]) into zeros of ``shape`` at ``indices`` (M, Y...).

    Of several values for one position one is kept, which one is not defined.
    """
    zeros = torch.zeros(tuple(shape), dtype=data.dtype, device=data.device)
    return zeros.index_put(split_indices(indices, tuple(shape), "scatter_nd"), data)


@operator("_scatter_set_nd", aliases=("_npi_scatter_set_nd",), infer=lambda specs, attrs: [specs[0]])
def scatter_set_nd(lhs: Tensor, rhs: Tensor, indices: Tensor, *, shape: Shape) -> Tensor:
    """Return ``lhs`` with ``rhs``, broadcast, written at ``indices`` (M, Y...)."""
    return lhs.index_put(split_indices(indices, tuple(lhs.shape), "_scatter_set_nd"), rhs.to(lhs.dtype))


def _strides(shape: tuple[int, ...]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return list(reversed(strides))


@operator(
    "_ravel_multi_index",
    aliases=("ravel_multi_index",),
    gradient="zero",
    infer=lambda specs, attrs: [Spec(specs[0].shape[1:], specs[0].dtype)],
)
def ravel_multi_index(data: Tensor, *, shape: Shape | None = None) -> Tensor:
    """Turn indices (M, Y...) into positions (Y...) in the flattened array of ``shape``, whose first size is
    not used."""
    if shape is None or len(shape) != data.shape[0]:
        raise MXNetError(
            f"ravel_multi_index: data {tuple(data.shape)} needs one row per size of shape={shape}"
        )
    strides = torch.tensor(_strides(tuple(shape)), dtype=torch.int64, device=data.device)
    weights = strides.reshape(-1, *([1] * (data.dim() - 1)))
    return (as_index(data) * weights).sum(0).to(data.dtype)


@operator(
    "_unravel_index",
    aliases=("unravel_index", "_npi_unravel_index"),
    gradient="zero",
    infer=lambda specs, attrs: [Spec((len(attrs["shape"]), *specs[0].shape), specs[0].dtype)],
)
def unravel_index(data: Tensor, *, shape: Shape | None = None) -> Tensor:
    """Turn positions (Y...) in a flattened array of ``shape`` into indices (M, Y...); the first size is not
    used."""
    if not shape:
        raise MXNetError("unravel_index: shape is required")
    remaining = as_index(data)
    rows = []
    for stride in _strides(tuple(shape)):
        rows.append(torch.div(remaining, stride, rounding_mode="floor"))
        remaining = remaining.remainder(stride)
    return torch.stack(rows).to(data.dtype)


# --- one element per position --------------------------------------------------------------------


def _picked(shape: tuple[int, ...], index: tuple[int, ...], attrs: Attrs) -> tuple[int, tuple[int, ...]]:
    """Return the axis and the shape of the index with that axis kept."""
    if attrs["axis"] is None:
        raise MXNetError("pick: axis is required")
    axis = shaping.normalise_axis(attrs["axis"], len(shape))
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    dropped = (*shape[:axis], *shape[axis + 1 :])
    if tuple(index) not in (kept, dropped):
        raise MXNetError(
            f"pick: index must have shape {dropped} or {kept} for data {tuple(shape)} and axis={axis}, "
            f"received {tuple(index)}"
        )
    return axis, kept


def _pick_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    axis, kept = _picked(specs[0].shape, specs[1].shape, attrs)
    return [Spec(kept if attrs["keepdims"] else (*kept[:axis], *kept[axis + 1 :]), specs[0].dtype)]


@operator("pick", aliases=("_npx_pick", "choose_element_0index"), npx="pick", infer=_pick_infer)
def pick(
    data: Tensor,
    index: Tensor,
    *,
    axis: int | None = -1,
    keepdims: bool = False,
    mode: Literal["clip", "wrap"] = "clip",
) -> Tensor:
    """Pick one element along ``axis`` for every other position, at ``index`` (data's shape without the
    axis)."""
    axis, kept = _picked(tuple(data.shape), tuple(index.shape), {"axis": axis})
    positions = bounded(as_index(index).reshape(kept), data.shape[axis], mode, "pick")
    result = data.gather(axis, positions)
    return result if keepdims else result.squeeze(axis)


@operator("batch_take", infer=lambda specs, attrs: [Spec(specs[1].shape, specs[0].dtype)])
def batch_take(a: Tensor, indices: Tensor) -> Tensor:
    """Pick ``a[i, indices[i]]`` from every row of the matrix ``a``."""
    rows = a.reshape(a.shape[0], -1)
    positions = as_index(indices).clamp(0, rows.shape[1] - 1)
    return rows.gather(1, positions.reshape(-1, 1)).reshape(indices.shape)


@operator("fill_element_0index", infer=lambda specs, attrs: [specs[0]])
def fill_element_0index(lhs: Tensor, mhs: Tensor, rhs: Tensor) -> Tensor:
    """Return the matrix ``lhs`` with ``lhs[i, rhs[i]] = mhs[i]``."""
    return lhs.scatter(1, as_index(rhs).reshape(-1, 1), mhs.reshape(-1, 1).to(lhs.dtype))


def _one_hot(indices: Tensor, depth: int, on_value: float, off_value: float, dtype: torch.dtype) -> Tensor:
    codes = torch.arange(depth, device=indices.device)
    hot = as_index(indices).unsqueeze(-1) == codes
    on = torch.tensor(on_value, dtype=dtype, device=indices.device)
    off = torch.tensor(off_value, dtype=dtype, device=indices.device)
    return torch.where(hot, on, off)


@operator(
    "one_hot",
    aliases=("_npx_one_hot",),
    npx="one_hot",
    gradient="zero",
    infer=lambda specs, attrs: [Spec((*specs[0].shape, attrs["depth"]), attrs["dtype"] or torch.float32)],
)
def one_hot(
    indices: Tensor,
    *,
    depth: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: DType | None = torch.float32,
) -> Tensor:
    """Return (..., depth): ``on_value`` where the last index equals the value of ``indices``, else
    ``off_value``.

    An index outside [0, depth) gives a row of ``off_value``.
    """
    return _one_hot(indices, depth, on_value, off_value, dtype or torch.float32)


@operator("_onehot_encode", gradient="zero", infer=lambda specs, attrs: [specs[1]])
def onehot_encode(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Return the one-hot rows of ``lhs`` with the shape (n, depth) and dtype of ``rhs``."""
    return _one_hot(lhs, rhs.shape[-1], 1.0, 0.0, rhs.dtype)


# --- conditions ----------------------------------------------------------------------------------


def _where_fill(shapes: Shapes, attrs: Attrs) -> Shapes:
    condition, first, second = shapes
    known = first or second
    return [condition if condition is not None else known, first or known, second or known]


def _where_condition(condition: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape to give a condition: the same, or one value per first index."""
    if tuple(condition) == tuple(shape):
        return tuple(shape)
    if len(condition) == 1 and shape and condition[0] == shape[0]:
        return (shape[0], *([1] * (len(shape) - 1)))
    raise MXNetError(
        f"where: condition must have the shape of x, {tuple(shape)}, or be a vector of its first size; "
        f"received {tuple(condition)}"
    )


def _where_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    if specs[1].shape != specs[2].shape:
        raise MXNetError(f"where: x {specs[1].shape} and y {specs[2].shape} must have one shape")
    _where_condition(specs[0].shape, specs[1].shape)
    return [Spec(specs[1].shape, torch.promote_types(specs[1].dtype, specs[2].dtype))]


@operator("where", amp="widest", aliases=("_sparse_where",), fill=_where_fill, infer=_where_infer)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Take from ``x`` where ``condition`` is not 0, else from ``y``; a vector condition chooses whole
    rows."""
    if x.shape != y.shape:
        raise MXNetError(f"where: x {tuple(x.shape)} and y {tuple(y.shape)} must have one shape")
    shape = _where_condition(tuple(condition.shape), tuple(x.shape))
    return torch.where(condition.reshape(shape) != 0, x, y)


# --- masks over the first or second axis ---------------------------------------------------------


@operator("_contrib_boolean_mask", aliases=("_npi_boolean_mask",), dynamic=True)
def boolean_mask(data: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """Keep the slices along ``axis`` where ``index`` is not 0; an index of several dimensions masks as many
    axes."""
    axis = shaping.normalise_axis(axis, data.dim())
    covered = tuple(data.shape[axis : axis + index.dim()])
    if index.dim() == 0 or covered != tuple(index.shape):
        raise MXNetError(
            f"boolean_mask: an index of shape {tuple(index.shape)} does not fit data of shape "
            f"{tuple(data.shape)} at axis {axis}"
        )
    flat = data.reshape(*data.shape[:axis], index.numel(), *data.shape[axis + index.dim() :])
    return flat.index_select(axis, (index.reshape(-1) != 0).nonzero().squeeze(1))


@operator("_contrib_index_copy", infer=lambda specs, attrs: [specs[0]])
def index_copy(old_tensor: Tensor, index_vector: Tensor, new_tensor: Tensor) -> Tensor:
    """Return ``old_tensor`` with the rows ``index_vector`` replaced by those of ``new_tensor``."""
    return old_tensor.index_copy(0, as_index(index_vector), new_tensor.to(old_tensor.dtype))


def _sequence_active(attrs: Attrs) -> int:
    return 2 if attrs["use_sequence_length"] else 1


def _sequence_fill(shapes: Shapes, attrs: Attrs) -> Shapes:
    if len(shapes) < 2 or shapes[0] is None or len(shapes[0]) < 2:
        return shapes
    return [shapes[0], (shapes[0][1 - attrs["axis"] % 2],)]


def _lengths(data: Tensor, sequence_length: Tensor, axis: int, name: str) -> Tensor:
    """Check the lengths and return them as int64, shaped to broadcast against ``data``."""
    if axis not in (0, 1) or data.dim() < 2:
        raise MXNetError(f"{name}: axis must be 0 or 1 of at least two dimensions, received axis={axis}")
    batch = data.shape[1 - axis]
    if tuple(sequence_length.shape) != (batch,):
        raise MXNetError(
            f"{name}: sequence_length must have shape ({batch},) for data of shape {tuple(data.shape)}, "
            f"received {tuple(sequence_length.shape)}"
        )
    view = [1] * data.dim()
    view[1 - axis] = batch
    return as_index(sequence_length).reshape(view)


def _steps(data: Tensor, axis: int) -> Tensor:
    view = [1] * data.dim()
    view[axis] = data.shape[axis]
    return torch.arange(data.shape[axis], device=data.device).reshape(view)


@operator(
    "SequenceMask",
    aliases=("_npx_sequence_mask",),
    npx="sequence_mask",
    active=_sequence_active,
    fill=_sequence_fill,
    infer=lambda specs, attrs: [specs[0]],
)
def sequence_mask(
    data: Tensor,
    sequence_length: Tensor | None = None,
    *,
    use_sequence_length: bool = False,
    value: float = 0.0,
    axis: int = 0,
) -> Tensor:
    """Set the steps at and after each sequence's length to ``value``; ``axis`` is that of the steps, 0 or
    1."""
    if sequence_length is None or not use_sequence_length:
        return data
    outside = _steps(data, axis) >= _lengths(data, sequence_length, axis, "SequenceMask")
    return data.masked_fill(outside, value)


def _sequence_last_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    axis = attrs["axis"]
    return [Spec((*shape[:axis], *shape[axis + 1 :]), specs[0].dtype)]


@operator(
    "SequenceLast",
    aliases=("_npx_sequence_last",),
    npx="sequence_last",
    active=_sequence_active,
    fill=_sequence_fill,
    infer=_sequence_last_infer,
)
def sequence_last(
    data: Tensor, sequence_length: Tensor | None = None, *, use_sequence_length: bool = False, axis: int = 0
) -> Tensor:
    """Return the last step of each sequence, the one before its length; ``axis`` is that of the steps, 0 or
    1."""
    if sequence_length is None or not use_sequence_length:
        return data.select(axis, data.shape[axis] - 1)
    lengths = _lengths(data, sequence_length, axis, "SequenceLast")
    last = (lengths - 1).clamp(0, data.shape[axis] - 1)
    shape = list(data.shape)
    shape[axis] = 1
    return data.gather(axis, last.expand(shape)).squeeze(axis)


@operator(
    "SequenceReverse",
    aliases=("_npx_sequence_reverse",),
    npx="sequence_reverse",
    active=_sequence_active,
    fill=_sequence_fill,
    infer=lambda specs, attrs: [specs[0]],
)
def sequence_reverse(
    data: Tensor, sequence_length: Tensor | None = None, *, use_sequence_length: bool = False, axis: int = 0
) -> Tensor:
    """Reverse the steps of each sequence up to its length and keep the rest in place; steps are axis 0."""
    if sequence_length is None or not use_sequence_length:
        return data.flip(axis)
    lengths = _lengths(data, sequence_length, axis, "SequenceReverse")
    steps = _steps(data, axis)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return data.gather(axis, source.expand(data.shape))
