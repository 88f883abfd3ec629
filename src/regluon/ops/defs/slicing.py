"""Operators that cut parts out of an array, or write into such parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.defs.shape import keeps_dtype
from regluon.ops.opdef import Shape, Spec, operator

Attrs = dict[str, Any]


def take_slices(data: Tensor, bounds: Sequence[tuple[int, int, int]]) -> Tensor:
    """Apply ``(start, length, step)`` per axis; the result is a view unless a step is negative."""
    index = []
    flipped = []
    for axis, (start, length, step) in enumerate(bounds):
        if step > 0:
            index.append(slice(start, start + length * step if length else start, step))
        else:
            # torch has no negative steps: read the same elements forwards, then turn them round.
            last = start + (length - 1) * step
            index.append(slice(last, start + 1, -step) if length else slice(0, 0))
            flipped.append(axis)
    result = data[tuple(index)] if index else data
    return result.flip(flipped) if flipped else result


def write_slices(data: Tensor, bounds: Sequence[tuple[int, int, int]], value: Tensor | float) -> None:
    """Write ``value``, broadcast, into the elements that :func:`take_slices` reads, in place."""
    forwards = []
    flipped = []
    for axis, (start, length, step) in enumerate(bounds):
        if step < 0 and length:
            start, step = start + (length - 1) * step, -step
            flipped.append(axis)
        forwards.append((start, length, abs(step)))
    target = take_slices(data, forwards)
    if isinstance(value, Tensor):
        if flipped:
            value = value.expand(target.shape).flip(flipped)
        target.copy_(value)
    else:
        target.fill_(value)


def _slice_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    return tuple(b[1] for b in shaping.slice_bounds(shape, attrs["begin"], attrs["end"], attrs["step"]))


@operator(
    "slice",
    aliases=("_npi_slice", "_npx_slice", "_sparse_slice", "crop"),
    npx="slice",
    infer=keeps_dtype(_slice_rule),
)
def slice_(data: Tensor, *, begin: Shape, end: Shape, step: Shape = ()) -> Tensor:
    """Cut ``[begin, end)`` with ``step`` out of the leading dimensions; None in a tuple means the default."""
    return take_slices(data, shaping.slice_bounds(data.shape, begin, end, step))


def _slice_axis_bounds(shape: Sequence[int], axis: int, begin: int, end: int | None) -> tuple[int, int, int]:
    axis = shaping.normalise_axis(axis, len(shape))
    size = shape[axis]
    first = begin + size if begin < 0 else begin
    last = size if end is None else end + size if end < 0 else end
    if not (0 <= first <= last <= size) or (first == last and size > 0):
        raise MXNetError(
            f"slice_axis: begin={begin}, end={end} select nothing valid on axis {axis} of size {size}; "
            f"expected -{size} <= begin < end <= {size}"
        )
    return axis, first, last


def _slice_axis_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    axis, first, last = _slice_axis_bounds(shape, attrs["axis"], attrs["begin"], attrs["end"])
    return (*shape[:axis], last - first, *shape[axis + 1 :])


@operator("slice_axis", infer=keeps_dtype(_slice_axis_rule))
def slice_axis(data: Tensor, *, axis: int, begin: int, end: int | None) -> Tensor:
    """Cut ``[begin, end)`` out of one axis; negative bounds count from its end and ``end=None`` is that
    end."""
    axis, first, last = _slice_axis_bounds(data.shape, axis, begin, end)
    return data.narrow(axis, first, last - first)


def _slice_like_shape(shape: Sequence[int], like: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    result = list(shape)
    if not axes and len(shape) != len(like):
        raise MXNetError(
            "slice_like: without axes both arrays need as many dimensions; received "
            f"{tuple(shape)} and {tuple(like)}"
        )
    for axis in axes or range(len(shape)):
        position = shaping.normalise_axis(axis, len(shape))
        result[position] = like[shaping.normalise_axis(axis, len(like))]
        if result[position] > shape[position]:
            raise MXNetError(
                f"slice_like: axis {axis} of shape_like {tuple(like)} is longer than that of data "
                f"{tuple(shape)}"
            )
    return tuple(result)


def _slice_like_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    return [Spec(_slice_like_shape(specs[0].shape, specs[1].shape, attrs["axes"]), specs[0].dtype)]


@operator("slice_like", aliases=("_npx_slice_like",), npx="slice_like", infer=_slice_like_infer)
def slice_like(data: Tensor, shape_like: Tensor, *, axes: Shape = ()) -> Tensor:
    """Cut the beginning of ``data`` to the sizes of ``shape_like``, on all axes or on ``axes``."""
    shape = _slice_like_shape(data.shape, shape_like.shape, axes)
    return data[tuple(slice(0, dim) for dim in shape)]


@operator(
    "_slice_assign",
    aliases=("_crop_assign", "_npi_slice_assign"),
    infer=keeps_dtype(lambda shape, attrs: shape),
)
def slice_assign(lhs: Tensor, rhs: Tensor, *, begin: Shape, end: Shape, step: Shape = ()) -> Tensor:
    """Return ``lhs`` with the slice ``[begin, end)`` replaced by ``rhs``, which may broadcast."""
    result = lhs.clone()
    write_slices(result, shaping.slice_bounds(lhs.shape, begin, end, step), rhs)
    return result


@operator(
    "_slice_assign_scalar",
    aliases=("_crop_assign_scalar", "_npi_slice_assign_scalar"),
    infer=keeps_dtype(lambda shape, attrs: shape),
)
def slice_assign_scalar(
    data: Tensor, *, scalar: float = 0.0, begin: Shape, end: Shape, step: Shape = ()
) -> Tensor:
    """Return ``data`` with the slice ``[begin, end)`` filled with ``scalar``."""
    result = data.clone()
    write_slices(result, shaping.slice_bounds(data.shape, begin, end, step), scalar)
    return result


def _crop_shape(shapes: Sequence[tuple[int, ...]], attrs: Attrs) -> tuple[int, int, int, int]:
    """Return ``(top, left, height, width)`` of a Crop."""
    source = shapes[0]
    height, width = shapes[1][2:4] if len(shapes) > 1 else attrs["h_w"]
    top, left = attrs["offset"]
    if attrs["center_crop"]:
        top, left = (source[2] - height) // 2, (source[3] - width) // 2
    if len(source) != 4 or top < 0 or left < 0 or top + height > source[2] or left + width > source[3]:
        raise MXNetError(
            f"Crop: a window of ({height}, {width}) at ({top}, {left}) does not fit into data of "
            f"shape {source}"
        )
    return top, left, height, width


def _crop_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _, _, height, width = _crop_shape([spec.shape for spec in specs], attrs)
    return [Spec((*specs[0].shape[:2], height, width), specs[0].dtype)]


@operator("Crop", num_args_key="num_args", infer=_crop_infer)
def crop(
    *data: Tensor,
    num_args: int | None = None,
    offset: Shape = (0, 0),
    h_w: Shape = (0, 0),
    center_crop: bool = False,
) -> Tensor:
    """Crop (N, C, H, W) to ``h_w``, or to the height and width of a second input, at ``offset``."""
    attrs = {"offset": offset, "h_w": h_w, "center_crop": center_crop}
    top, left, height, width = _crop_shape([tuple(one.shape) for one in data], attrs)
    return data[0][:, :, top : top + height, left : left + width]
