"""Operators of the 1.x family that rearrange, join, cut or repeat an array without computing on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.opdef import Shape, Spec, operator
from regluon.ops.padding import pad_axes

Attrs = dict[str, Any]
Shapes = list[tuple[int, ...] | None]


def same_shape_fill(shapes: Shapes, attrs: Attrs) -> Shapes:
    """Give all inputs one shape, known dimension by known dimension."""
    known = [shape for shape in shapes if shape is not None]
    if not known or any(len(shape) != len(known[0]) for shape in known):
        return shapes
    merged = tuple(max(dims) if max(dims) > 0 else -1 for dims in zip(*known, strict=True))
    return [merged] * len(shapes)


def keeps_dtype(rule: Callable[[tuple[int, ...], Attrs], tuple[int, ...]]) -> Callable[..., list[Spec]]:
    """Turn a shape rule of the first input into an inference rule that keeps its dtype."""

    def infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
        return [Spec(tuple(rule(specs[0].shape, attrs)), specs[0].dtype)]

    return infer


# --- reshaping -----------------------------------------------------------------------------------


def _reshape_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    if attrs["shape"] or not attrs["target_shape"]:
        return shaping.legacy_reshape(shape, attrs["shape"], attrs["reverse"])
    # The 0.x form: 0 is the dimension to compute and keep_highest keeps the first one.
    target = [-1 if dim == 0 else dim for dim in attrs["target_shape"]]
    if attrs["keep_highest"]:
        target[0] = shape[0]
    return shaping.plain_reshape(shape, target)


@operator("Reshape", aliases=("reshape",), infer=keeps_dtype(_reshape_rule))
def reshape(
    data: Tensor,
    *,
    shape: Shape = (),
    reverse: bool = False,
    target_shape: Shape = (),
    keep_highest: bool = False,
) -> Tensor:
    """Give the elements of ``data`` a new shape.

    In ``shape`` 0 copies a dimension, -1 is computed from the rest, -2 copies all remaining dimensions, -3
    merges the next two and -4 splits one into the two numbers that follow; ``reverse`` matches from the
    right. ``target_shape`` and ``keep_highest`` are the form of files older than 0.9.

    Raises MXNetError when the number of elements would change.
    """
    attrs = {"shape": shape, "reverse": reverse, "target_shape": target_shape, "keep_highest": keep_highest}
    return data.reshape(_reshape_rule(tuple(data.shape), attrs))


def _reshape_like_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    ranges = (attrs["lhs_begin"], attrs["lhs_end"]), (attrs["rhs_begin"], attrs["rhs_end"])
    return [Spec(shaping.reshape_like(specs[0].shape, specs[1].shape, *ranges), specs[0].dtype)]


@operator("reshape_like", aliases=("_npx_reshape_like",), npx="reshape_like", infer=_reshape_like_infer)
def reshape_like(
    lhs: Tensor,
    rhs: Tensor,
    *,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
) -> Tensor:
    """Give ``lhs`` the shape of ``rhs``, or replace its dimensions ``[lhs_begin, lhs_end)`` by a range of
    rhs's."""
    shape = shaping.reshape_like(
        tuple(lhs.shape), tuple(rhs.shape), (lhs_begin, lhs_end), (rhs_begin, rhs_end)
    )
    return lhs.reshape(shape)


@operator(
    "Flatten",
    aliases=("_npx_batch_flatten", "flatten"),
    npx="batch_flatten",
    infer=keeps_dtype(lambda shape, attrs: (shape[0], prod(shape[1:])) if shape else (1, 1)),
)
def flatten(data: Tensor) -> Tensor:
    """Collapse all dimensions but the first: (a, b, c, ...) -> (a, b*c*...)."""
    if data.dim() == 0:
        return data.reshape(1, 1)
    return data.reshape(data.shape[0], prod(data.shape[1:]))


@operator(
    "expand_dims",
    aliases=("_npi_expand_dims",),
    infer=keeps_dtype(
        lambda shape, attrs: _inserted(shape, shaping.normalise_axis(attrs["axis"], len(shape) + 1))
    ),
)
def expand_dims(data: Tensor, *, axis: int) -> Tensor:
    """Insert a dimension of size 1 before position ``axis``; -1 appends it."""
    return data.unsqueeze(shaping.normalise_axis(axis, data.dim() + 1))


def _inserted(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis:])


def squeezed(shape: tuple[int, ...], axis: tuple[int, ...] | None) -> tuple[int, ...]:
    """Shape without its dimensions of size 1, or without those named; raise for a larger one."""
    if axis is None:
        return tuple(dim for dim in shape if dim != 1)
    axes = shaping.normalise_axes(axis, len(shape), "squeeze axis")
    for position in axes:
        if shape[position] != 1:
            raise MXNetError(
                f"squeeze: axis {position} of an array of shape {shape} has size {shape[position]}, not 1"
            )
    return tuple(dim for position, dim in enumerate(shape) if position not in axes)


def _legacy_squeezed(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    # 1.x has no 0-dimensional arrays: the last dimension stays.
    return squeezed(shape, attrs["axis"]) or ((1,) if shape else ())


@operator("squeeze", infer=keeps_dtype(_legacy_squeezed))
def squeeze(data: Tensor, *, axis: Shape | None = None) -> Tensor:
    """Drop dimensions of size 1: all of them, or those in ``axis`` (MXNetError if one is larger)."""
    return data.reshape(_legacy_squeezed(tuple(data.shape), {"axis": axis}))


# --- reordering ----------------------------------------------------------------------------------


@operator(
    "transpose",
    infer=keeps_dtype(
        lambda shape, attrs: tuple(shape[axis] for axis in shaping.permutation(attrs["axes"], len(shape)))
    ),
)
def transpose(data: Tensor, *, axes: Shape = ()) -> Tensor:
    """Permute the dimensions; without ``axes`` their order is reversed."""
    return data.permute(shaping.permutation(axes, data.dim()))


def _swapped(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    first = shaping.normalise_axis(attrs["dim1"], len(shape), "dim1")
    second = shaping.normalise_axis(attrs["dim2"], len(shape), "dim2")
    dims = list(shape)
    dims[first], dims[second] = dims[second], dims[first]
    return tuple(dims)


@operator("SwapAxis", aliases=("_npi_swapaxes", "swapaxes"), infer=keeps_dtype(_swapped))
def swap_axis(data: Tensor, *, dim1: int = 0, dim2: int = 0) -> Tensor:
    """Exchange two dimensions."""
    _swapped(tuple(data.shape), {"dim1": dim1, "dim2": dim2})
    return data.transpose(dim1, dim2)


@operator("reverse", aliases=("flip",), infer=keeps_dtype(lambda shape, attrs: shape))
def reverse(data: Tensor, *, axis: Shape) -> Tensor:
    """Reverse the order of the elements along each of ``axis``."""
    return data.flip(shaping.normalise_axes(axis, data.dim()))


def _block_error(name: str, shape: tuple[int, ...], block: int, what: str) -> MXNetError:
    return MXNetError(
        f"{name}: an array of shape {shape} cannot be rearranged with block_size={block}; expected "
        f"(N, C, H, W) with {what}"
    )


def _depth_to_space_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    block = attrs["block_size"]
    if len(shape) != 4 or block < 1 or shape[1] % (block * block):
        raise _block_error("depth_to_space", shape, block, "C divisible by block_size squared")
    return shape[0], shape[1] // (block * block), shape[2] * block, shape[3] * block


@operator("depth_to_space", infer=keeps_dtype(_depth_to_space_rule))
def depth_to_space(data: Tensor, *, block_size: int) -> Tensor:
    """Move blocks of channels into space: (N, C*b*b, H, W) -> (N, C, H*b, W*b)."""
    shape = _depth_to_space_rule(tuple(data.shape), {"block_size": block_size})
    batch, _, height, width = data.shape
    blocks = data.reshape(batch, block_size, block_size, shape[1], height, width)
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(shape)


def _space_to_depth_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    block = attrs["block_size"]
    if len(shape) != 4 or block < 1 or shape[2] % block or shape[3] % block:
        raise _block_error("space_to_depth", shape, block, "H and W divisible by block_size")
    return shape[0], shape[1] * block * block, shape[2] // block, shape[3] // block


@operator("space_to_depth", infer=keeps_dtype(_space_to_depth_rule))
def space_to_depth(data: Tensor, *, block_size: int) -> Tensor:
    """Move blocks of space into channels: (N, C, H*b, W*b) -> (N, C*b*b, H, W)."""
    shape = _space_to_depth_rule(tuple(data.shape), {"block_size": block_size})
    batch, channels = data.shape[:2]
    blocks = data.reshape(batch, channels, shape[2], block_size, shape[3], block_size)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(shape)


# --- repeating and broadcasting ------------------------------------------------------------------


def _tile_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    reps = tuple(attrs["reps"])
    length = max(len(reps), len(shape))
    left = (1,) * (length - len(shape)) + shape
    right = (1,) * (length - len(reps)) + reps
    return tuple(a * b for a, b in zip(left, right, strict=True))


@operator("tile", aliases=("_npi_tile",), infer=keeps_dtype(_tile_rule))
def tile(data: Tensor, *, reps: Shape) -> Tensor:
    """Repeat the whole array ``reps`` times along each axis; the shorter of shape and reps is led by ones."""
    return torch.tile(data, tuple(reps))


def _repeat_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    if attrs["repeats"] < 0:
        raise MXNetError(f"repeat: repeats must not be negative, received {attrs['repeats']}")
    if attrs["axis"] is None:
        return (prod(shape) * attrs["repeats"],)
    axis = shaping.normalise_axis(attrs["axis"], len(shape))
    return (*shape[:axis], shape[axis] * attrs["repeats"], *shape[axis + 1 :])


@operator("repeat", aliases=("_np_repeat", "_npi_repeat"), infer=keeps_dtype(_repeat_rule))
def repeat(data: Tensor, *, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat every element ``repeats`` times along ``axis``; without an axis the array is flattened first."""
    _repeat_rule(tuple(data.shape), {"repeats": repeats, "axis": axis})
    return torch.repeat_interleave(data, repeats, dim=axis)


def _broadcast_to_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    target = tuple(attrs["shape"])
    if len(target) == len(shape):
        target = tuple(size if dim == 0 else dim for dim, size in zip(target, shape, strict=True))
    if shaping.broadcast_shapes(shape, target) != target:
        raise MXNetError(f"broadcast_to: an array of shape {shape} cannot be broadcast to {attrs['shape']}")
    return target


@operator("broadcast_to", infer=keeps_dtype(_broadcast_to_rule))
def broadcast_to(data: Tensor, *, shape: Shape = ()) -> Tensor:
    """Repeat dimensions of size 1 so that the result has ``shape``; 0 keeps a dimension."""
    return data.expand(_broadcast_to_rule(tuple(data.shape), {"shape": shape}))


def _broadcast_axis_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    axes = shaping.normalise_axes(attrs["axis"], len(shape))
    if len(axes) != len(attrs["size"]):
        raise MXNetError(
            f"broadcast_axis: axis={attrs['axis']} and size={attrs['size']} must have the same length"
        )
    result = list(shape)
    for axis, size in zip(axes, attrs["size"], strict=True):
        if shape[axis] != 1:
            raise MXNetError(f"broadcast_axis: axis {axis} of shape {shape} must have size 1")
        result[axis] = size
    return tuple(result)


@operator("broadcast_axis", aliases=("broadcast_axes",), infer=keeps_dtype(_broadcast_axis_rule))
def broadcast_axis(data: Tensor, *, axis: Shape = (), size: Shape = ()) -> Tensor:
    """Repeat each of the dimensions ``axis``, which have size 1, to the size given for it."""
    return data.expand(_broadcast_axis_rule(tuple(data.shape), {"axis": axis, "size": size}))


def _broadcast_like_shape(
    shape: tuple[int, ...],
    like: tuple[int, ...],
    axes: tuple[int, ...] | None,
    like_axes: tuple[int, ...] | None,
) -> tuple[int, ...]:
    if axes is None and like_axes is None:
        if shaping.broadcast_shapes(shape, like) != like:
            raise MXNetError(f"broadcast_like: an array of shape {shape} cannot be broadcast to {like}")
        return like
    if not axes or not like_axes or len(axes) != len(like_axes):
        raise MXNetError(
            f"broadcast_like: lhs_axes={axes} and rhs_axes={like_axes} must both be given with one length"
        )
    result = list(shape)
    for axis, like_axis in zip(axes, like_axes, strict=True):
        position = shaping.normalise_axis(axis, len(shape), "lhs_axes")
        size = like[shaping.normalise_axis(like_axis, len(like), "rhs_axes")]
        if shape[position] not in (1, size):
            raise MXNetError(f"broadcast_like: axis {axis} of {shape} cannot be broadcast to size {size}")
        result[position] = size
    return tuple(result)


@operator(
    "broadcast_like",
    aliases=("_npx_broadcast_like",),
    npx="broadcast_like",
    infer=lambda specs, attrs: [
        Spec(
            _broadcast_like_shape(specs[0].shape, specs[1].shape, attrs["lhs_axes"], attrs["rhs_axes"]),
            specs[0].dtype,
        )
    ],
)
def broadcast_like(
    lhs: Tensor, rhs: Tensor, *, lhs_axes: Shape | None = None, rhs_axes: Shape | None = None
) -> Tensor:
    """Broadcast ``lhs`` to the shape of ``rhs``, or only its ``lhs_axes`` to the sizes of ``rhs_axes``."""
    return lhs.expand(_broadcast_like_shape(tuple(lhs.shape), tuple(rhs.shape), lhs_axes, rhs_axes))


@operator("Pad", aliases=("_npx_pad", "pad"), npx="pad")
def pad(
    data: Tensor,
    *,
    mode: Literal["constant", "edge", "reflect"],
    pad_width: Shape,
    constant_value: float = 0.0,
) -> Tensor:
    """Pad the spatial axes of (N, C, H, W) or (N, C, D, H, W).

    ``pad_width`` holds the numbers before and after for every axis, those of N and C being 0.
    """
    if data.dim() not in (4, 5) or len(pad_width) != 2 * data.dim() or any(pad_width[:4]):
        raise MXNetError(
            f"Pad: expected 4 or 5 dimensions and two numbers per dimension, the first four 0; received data "
            f"of shape {tuple(data.shape)} and pad_width={tuple(pad_width)} (np.pad pads any axis)"
        )
    pairs = list(zip(pad_width[::2], pad_width[1::2], strict=True))
    return pad_axes(data, pairs, mode, constant_value)


@operator("_identity_with_attr_like_rhs", fill=same_shape_fill, infer=lambda specs, attrs: [specs[0]])
def identity_with_attr_like_rhs(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Return ``lhs``; its shape and storage are taken to be those of ``rhs``."""
    return lhs


# --- diagonals and information about shapes ------------------------------------------------------


@operator("diag")
def diag(data: Tensor, *, k: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return diagonal ``k`` of the planes (axis1, axis2), or put a vector on the diagonal of a square
    matrix."""
    if data.dim() == 1:
        return torch.diag_embed(data, k)
    return torch.diagonal(data, k, axis1, axis2)


@operator(
    "shape_array",
    aliases=("_npx_shape_array",),
    npx="shape_array",
    gradient="zero",
    infer=lambda specs, attrs: [Spec((len(specs[0].shape),), torch.int64)],
)
def shape_array(data: Tensor) -> Tensor:
    """Return the shape of ``data`` as an int64 vector."""
    return torch.tensor(tuple(data.shape), dtype=torch.int64, device=data.device)


@operator("size_array", gradient="zero", infer=lambda specs, attrs: [Spec((1,), torch.int64)])
def size_array(data: Tensor) -> Tensor:
    """Return the number of elements of ``data`` as an int64 vector of length 1."""
    return torch.tensor((data.numel(),), dtype=torch.int64, device=data.device)


@operator("_contrib_dynamic_reshape", dynamic=True)
def dynamic_reshape(data: Tensor, shape: Tensor) -> Tensor:
    """Reshape to the values of the integer vector ``shape`` (codes as in ``Reshape``)."""
    target = [int(dim) for dim in shape.tolist()]
    return data.reshape(shaping.legacy_reshape(data.shape, target))


# --- sliding windows -----------------------------------------------------------------------------


def _windows(
    kernel: Sequence[int], stride: Sequence[int], dilate: Sequence[int], pad: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    length = len(kernel)
    if length not in (1, 2):
        raise MXNetError(f"im2col and col2im take 1 or 2 spatial dimensions, received kernel={tuple(kernel)}")
    return (
        tuple(kernel),
        tuple(stride) or (1,) * length,
        tuple(dilate) or (1,) * length,
        tuple(pad) or (0,) * length,
    )


@operator("im2col")
def im2col(data: Tensor, *, kernel: Shape, stride: Shape = (), dilate: Shape = (), pad: Shape = ()) -> Tensor:
    """Lay out every window of (N, C, spatial...) as a column: (N, C * prod(kernel), number of windows)."""
    kernel, stride, dilate, pad = _windows(kernel, stride, dilate, pad)
    if len(kernel) == 1:
        data, kernel, stride = data.unsqueeze(2), (1, *kernel), (1, *stride)
        dilate, pad = (1, *dilate), (0, *pad)
    return functional.unfold(data, kernel, dilate, pad, stride)


@operator("col2im")
def col2im(
    data: Tensor,
    *,
    output_size: Shape,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
) -> Tensor:
    """Sum columns, as ``im2col`` lays them out, back into (N, C, *output_size)."""
    kernel, stride, dilate, pad = _windows(kernel, stride, dilate, pad)
    if len(kernel) == 1:
        kernel, stride, dilate, pad = (1, *kernel), (1, *stride), (1, *dilate), (0, *pad)
        return functional.fold(data, (1, *output_size), kernel, dilate, pad, stride).squeeze(2)
    return functional.fold(data, tuple(output_size), kernel, dilate, pad, stride)
