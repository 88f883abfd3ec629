"""Shape operators with NumPy's semantics: 0 is a size, 0-dimensional arrays exist, any axis may be
negative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.defs.joining import concatenated, cut, cut_specs, join
from regluon.ops.defs.shape import keeps_dtype, squeezed
from regluon.ops.opdef import Floats, Shape, Shapes, Spec, operator
from regluon.ops.padding import pad_axes

Attrs = dict[str, Any]


# --- reshaping and reordering --------------------------------------------------------------------


def _check_order(order: str) -> None:
    if order != "C":
        raise MXNetError(f"reshape: only the row-major order='C' is supported, received order={order!r}")


@operator(
    "_npx_reshape",
    aliases=("_npi_reshape",),
    npx="reshape",
    infer=keeps_dtype(lambda shape, attrs: shaping.npx_reshape(shape, attrs["newshape"], attrs["reverse"])),
)
def npx_reshape(a: Tensor, *, newshape: Shape, reverse: bool = False, order: str = "C") -> Tensor:
    """Give the elements a new shape.

    In ``newshape`` -1 is computed, -2 copies a dimension, -3 drops one of size 1, -4 copies all remaining
    ones, -5 merges the next two and -6 splits one into the two numbers after it; ``reverse`` matches from
    the right.
    """
    _check_order(order)
    return a.reshape(shaping.npx_reshape(a.shape, newshape, reverse))


@operator(
    "_np_reshape", infer=keeps_dtype(lambda shape, attrs: shaping.plain_reshape(shape, attrs["newshape"]))
)
def np_reshape(a: Tensor, *, newshape: Shape, order: str = "C") -> Tensor:
    """Give the elements a new shape; at most one dimension may be -1, which is computed."""
    _check_order(order)
    return a.reshape(shaping.plain_reshape(a.shape, newshape))


@operator(
    "_npi_transpose",
    aliases=("_np_transpose",),
    infer=keeps_dtype(
        lambda shape, attrs: tuple(shape[axis] for axis in shaping.permutation(attrs["axes"], len(shape)))
    ),
)
def np_transpose(a: Tensor, *, axes: Shape | None = None) -> Tensor:
    """Permute the dimensions; without ``axes`` their order is reversed."""
    return a.permute(shaping.permutation(axes, a.dim()))


@operator(
    "_npi_squeeze",
    aliases=("_np_squeeze",),
    infer=keeps_dtype(lambda shape, attrs: squeezed(shape, attrs["axis"])),
)
def np_squeeze(a: Tensor, *, axis: Shape | None = None) -> Tensor:
    """Drop dimensions of size 1: all of them, or those in ``axis`` (MXNetError if one is larger)."""
    return a.reshape(squeezed(tuple(a.shape), axis))


def _moved(ndim: int, source: Sequence[int], destination: Sequence[int]) -> tuple[int, ...]:
    if len(source) != len(destination):
        raise MXNetError(f"moveaxis: source {source} and destination {destination} must have one length")
    origin = shaping.normalise_axes(source, ndim, "source axis")
    target = shaping.normalise_axes(destination, ndim, "destination axis")
    order = [axis for axis in range(ndim) if axis not in origin]
    for position, axis in sorted(zip(target, origin, strict=True)):
        order.insert(position, axis)
    return tuple(order)


@operator(
    "_npi_moveaxis",
    aliases=("_np_moveaxis",),
    infer=keeps_dtype(
        lambda shape, attrs: tuple(
            shape[axis] for axis in _moved(len(shape), attrs["source"], attrs["destination"])
        )
    ),
)
def np_moveaxis(a: Tensor, *, source: Shape, destination: Shape) -> Tensor:
    """Move the axes ``source`` to the positions ``destination``; the others keep their order."""
    return a.permute(_moved(a.dim(), source, destination))


def rolled_axis(ndim: int, axis: int, start: int) -> tuple[int, ...]:
    """Order of the axes after rolling ``axis`` back until it lies before position ``start``."""
    axis = shaping.normalise_axis(axis, ndim)
    if not -ndim <= start <= ndim:
        raise MXNetError(f"rollaxis: start={start} must lie in [{-ndim}, {ndim}]")
    start = start + ndim if start < 0 else start
    order = [i for i in range(ndim) if i != axis]
    order.insert(start - 1 if axis < start else start, axis)
    return tuple(order)


@operator(
    "_npi_rollaxis",
    infer=keeps_dtype(
        lambda shape, attrs: tuple(shape[i] for i in rolled_axis(len(shape), attrs["axis"], attrs["start"]))
    ),
)
def np_rollaxis(data: Tensor, *, axis: int, start: int = 0) -> Tensor:
    """Roll ``axis`` backwards until it lies before position ``start``."""
    return data.permute(rolled_axis(data.dim(), axis, start))


@operator("_npi_roll", aliases=("_np_roll",), infer=keeps_dtype(lambda shape, attrs: shape))
def np_roll(data: Tensor, *, shift: Shape | None = None, axis: Shape | None = None) -> Tensor:
    """Shift the elements cyclically along ``axis``; without an axis the flattened array is rolled."""
    if shift is None:
        raise MXNetError("roll: shift is required")
    if axis is None:
        return data.reshape(-1).roll(sum(shift)).reshape(data.shape)
    axes = tuple(shaping.normalise_axis(one, data.dim()) for one in axis)
    shifts = tuple(shift) * len(axes) if len(shift) == 1 else tuple(shift)
    if len(shifts) != len(axes):
        raise MXNetError(f"roll: shift={shift} and axis={axis} must have one length")
    return data.roll(shifts, axes)


def _rotation(ndim: int, k: int, axes: Sequence[int] | None) -> tuple[int, tuple[int, ...]]:
    plane = shaping.normalise_axes(axes if axes is not None else (0, 1), ndim)
    if len(plane) != 2:
        raise MXNetError(f"rot90: axes must name two different axes, received {axes}")
    return k % 4, plane


def _rotated(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    turns, (first, second) = _rotation(len(shape), attrs["k"], attrs["axes"])
    dims = list(shape)
    if turns % 2:
        dims[first], dims[second] = dims[second], dims[first]
    return tuple(dims)


@operator("_npi_rot90", infer=keeps_dtype(_rotated))
def np_rot90(data: Tensor, *, k: int = 1, axes: Shape | None = None) -> Tensor:
    """Rotate by ``k`` quarter turns in the plane of two axes, from the first towards the second."""
    turns, plane = _rotation(data.dim(), k, axes)
    return torch.rot90(data, turns, plane)


@operator("_npi_flip", infer=keeps_dtype(lambda shape, attrs: shape))
def np_flip(data: Tensor, *, axis: Shape | None = None) -> Tensor:
    """Reverse the order of the elements along ``axis``, or along every axis."""
    if axis is None:
        return data.flip(tuple(range(data.dim())))
    return data.flip(shaping.normalise_axes(axis, data.dim()))


def _at_least(ndim: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) >= ndim:
        return shape
    if ndim == 3 and len(shape) == 2:
        return (*shape, 1)
    if ndim == 3 and len(shape) == 1:
        return (1, *shape, 1)
    return (1,) * (ndim - len(shape)) + shape


def _define_at_least(ndim: int) -> None:
    def at_least(*arys: Tensor, num_args: int | None = None) -> Tensor | tuple[Tensor, ...]:
        results = tuple(array.reshape(_at_least(ndim, tuple(array.shape))) for array in arys)
        return results if len(results) > 1 else results[0]

    at_least.__name__ = at_least.__qualname__ = f"atleast_{ndim}d"
    at_least.__doc__ = (
        f"View every input as an array of at least {ndim} dimension(s), as ``numpy.atleast_{ndim}d``."
    )
    operator(
        f"_npi_atleast_{ndim}d",
        aliases=(f"_np_atleast_{ndim}d",),
        num_args_key="num_args",
        outputs=lambda attrs: attrs["num_args"] or 1,
        infer=lambda specs, attrs: [Spec(_at_least(ndim, spec.shape), spec.dtype) for spec in specs],
    )(at_least)


for _ndim in (1, 2, 3):
    _define_at_least(_ndim)


# --- joining and splitting -----------------------------------------------------------------------


def _columns(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (prod(shape), 1) if len(shape) < 2 else shape


_STACKERS: dict[str, tuple[Callable[[tuple[int, ...]], tuple[int, ...]], Callable[[int], int], str]] = {
    # operator: (shape given to every input, axis for their number of dimensions, what it does)
    "_npi_hstack": (lambda s: _at_least(1, s), lambda ndim: 0 if ndim == 1 else 1, "along the second axis"),
    "_npi_vstack": (lambda s: _at_least(2, s), lambda ndim: 0, "along the first axis, vectors as rows"),
    "_npi_dstack": (lambda s: _at_least(3, s), lambda ndim: 2, "along the third axis"),
    "_npi_column_stack": (_columns, lambda ndim: 1, "along the second axis, vectors as columns"),
}


def _define_stacker(name: str) -> None:
    reshaped, axis_of, text = _STACKERS[name]

    def infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
        shaped = [Spec(reshaped(spec.shape), spec.dtype) for spec in specs]
        return concatenated(shaped, axis_of(len(shaped[0].shape)), name)

    def compute(arrays: Sequence[Tensor]) -> Tensor:
        shaped = [array.reshape(reshaped(tuple(array.shape))) for array in arrays]
        return join(shaped, axis_of(shaped[0].dim()), name)

    def stack_without_dim(*data: Tensor, num_args: int | None = None) -> Tensor:
        return compute(data)

    def stack_with_dim(*data: Tensor, num_args: int | None = None, dim: int | None = 1) -> Tensor:
        return compute(data)

    function = stack_with_dim if name in ("_npi_hstack", "_npi_dstack") else stack_without_dim
    function.__name__ = function.__qualname__ = name.removeprefix("_npi_")
    function.__doc__ = f"Join arrays {text}, as ``numpy.{function.__name__}`` does."
    operator(name, amp="widest", num_args_key="num_args", infer=infer)(function)


for _name in _STACKERS:
    _define_stacker(_name)


def _define_split(name: str, axis_of: Callable[[int], int], text: str) -> None:
    def split(
        data: Tensor, *, indices: Shape, axis: int = 1, squeeze_axis: bool = False, sections: int = 0
    ) -> Tensor | tuple[Tensor, ...]:
        return cut(data, indices, sections, axis_of(data.dim()), squeeze_axis, name)

    def infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
        axis = axis_of(len(specs[0].shape))
        return cut_specs(specs[0], attrs["indices"], attrs["sections"], axis, attrs["squeeze_axis"], name)

    split.__name__ = split.__qualname__ = name.removeprefix("_npi_")
    split.__doc__ = f"Split along {text}; ``axis`` is ignored. See ``_split_v2`` for the attributes."
    operator(
        name,
        outputs=lambda attrs: attrs["sections"] if attrs["sections"] > 0 else len(attrs["indices"]),
        infer=infer,
    )(split)


_define_split("_npi_hsplit", lambda ndim: 0 if ndim < 2 else 1, "the second axis (of a vector the first)")
_define_split("_npi_dsplit", lambda ndim: 2, "the third axis")


# --- repeating, broadcasting, padding ------------------------------------------------------------


def _repeats_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    repeats, axis = attrs["repeats"], attrs["axis"]
    size = prod(shape) if axis is None else shape[shaping.normalise_axis(axis, len(shape))]
    if repeats is None or len(repeats) not in (1, size) or any(count < 0 for count in repeats):
        raise MXNetError(
            f"repeat: repeats must be one number or one per element of the axis (size {size}), "
            "none negative; "
            f"received {repeats}"
        )
    total = repeats[0] * size if len(repeats) == 1 else sum(repeats)
    if axis is None:
        return (total,)
    axis = shaping.normalise_axis(axis, len(shape))
    return (*shape[:axis], total, *shape[axis + 1 :])


@operator("_npi_repeats", infer=keeps_dtype(_repeats_rule))
def np_repeats(data: Tensor, *, repeats: Shape | None, axis: int | None = None) -> Tensor:
    """Repeat each element as often as ``repeats`` says: one number for all, or one per position of the
    axis."""
    _repeats_rule(tuple(data.shape), {"repeats": repeats, "axis": axis})
    counts = tuple(repeats or ())
    if axis is None:
        data, axis = data.reshape(-1), 0
    if len(counts) == 1:
        return torch.repeat_interleave(data, counts[0], dim=axis)
    positions = [i for i, count in enumerate(counts) for _ in range(count)]
    return data.index_select(axis, torch.tensor(positions, dtype=torch.int64, device=data.device))


def _np_broadcast_rule(shape: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    target = tuple(attrs["shape"])
    # Negative sizes keep a dimension, counted from the right.
    padded = (1,) * (len(target) - len(shape)) + shape
    if len(padded) == len(target):
        target = tuple(old if new < 0 else new for new, old in zip(target, padded, strict=True))
    if len(target) < len(shape) or any(old not in (1, new) for new, old in zip(target, padded, strict=True)):
        raise MXNetError(f"broadcast_to: an array of shape {shape} cannot be broadcast to {attrs['shape']}")
    return target


@operator("_npi_broadcast_to", infer=keeps_dtype(_np_broadcast_rule))
def np_broadcast_to(array: Tensor, *, shape: Shape = ()) -> Tensor:
    """Broadcast to ``shape`` by NumPy's rule; a negative size keeps the dimension."""
    return array.expand(_np_broadcast_rule(tuple(array.shape), {"shape": shape}))


def _pad_pairs(ndim: int, pad_width: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    pairs = [(width[0], width[-1]) for width in pad_width]
    if len(pairs) == 1:
        pairs = pairs * ndim
    if len(pairs) != ndim:
        raise MXNetError(f"pad: pad_width needs one (before, after) per axis ({ndim}), received {pad_width}")
    return pairs


@operator(
    "_npi_pad",
    renamed={"constant_value": "constant_values"},
    infer=keeps_dtype(
        lambda shape, attrs: tuple(
            before + size + after
            for size, (before, after) in zip(shape, _pad_pairs(len(shape), attrs["pad_width"]), strict=True)
        )
    ),
)
def np_pad(
    data: Tensor,
    *,
    pad_width: Shapes,
    mode: Literal["constant", "edge", "maximum", "minimum", "reflect", "symmetric"] = "constant",
    constant_values: float = 0.0,
    reflect_type: str = "even",
) -> Tensor:
    """Pad every axis by its ``(before, after)``, as ``numpy.pad`` does with these modes."""
    if reflect_type != "even":
        raise MXNetError(f"pad: only reflect_type='even' is supported, received {reflect_type!r}")
    return pad_axes(data, _pad_pairs(data.dim(), pad_width), mode, constant_values)


# --- diagonals and triangles ---------------------------------------------------------------------


@operator("_npi_diag", aliases=("_np_diag",))
def np_diag(data: Tensor, *, k: int = 0) -> Tensor:
    """Diagonal ``k`` of a matrix, or the square matrix with a vector on diagonal ``k``."""
    if data.dim() not in (1, 2):
        raise MXNetError(f"diag: expected 1 or 2 dimensions, received shape {tuple(data.shape)}")
    return torch.diag_embed(data, k) if data.dim() == 1 else torch.diagonal(data, k)


@operator("_npi_diagflat", aliases=("_np_diagflat",))
def np_diagflat(data: Tensor, *, k: int = 0) -> Tensor:
    """Square matrix with the flattened input on diagonal ``k``."""
    return torch.diag_embed(data.reshape(-1), k)


@operator("_npi_diagonal", aliases=("_np_diagonal",))
def np_diagonal(data: Tensor, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Diagonal ``offset`` of the planes (axis1, axis2), as the last dimension of the result."""
    first, second = shaping.normalise_axes((axis1, axis2), data.dim())
    return torch.diagonal(data, offset, first, second)


@operator("_npi_trace", amp="float32", aliases=("_np_trace",))
def np_trace(data: Tensor, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Sum along diagonal ``offset`` of the planes (axis1, axis2), in the dtype of the input."""
    first, second = shaping.normalise_axes((axis1, axis2), data.dim())
    return torch.diagonal(data, offset, first, second).sum(-1, dtype=data.dtype)


def _triangle(data: Tensor, k: int, lower: bool) -> Tensor:
    cut_off = torch.tril if lower else torch.triu
    if data.dim() == 0:
        raise MXNetError(f"{'tril' if lower else 'triu'}: the array needs at least one dimension")
    # NumPy broadcasts a vector to the rows of a square matrix first.
    plane = data.expand(data.shape[0], data.shape[0]) if data.dim() == 1 else data
    return cut_off(plane, k)


@operator("_npi_tril")
def np_tril(data: Tensor, *, k: int = 0) -> Tensor:
    """Zero the elements above diagonal ``k`` of the last two dimensions."""
    return _triangle(data, k, lower=True)


@operator("_npi_triu")
def np_triu(data: Tensor, *, k: int = 0) -> Tensor:
    """Zero the elements below diagonal ``k`` of the last two dimensions."""
    return _triangle(data, k, lower=False)


@operator("_npi_diag_indices_from", gradient="zero")
def np_diag_indices_from(data: Tensor) -> Tensor:
    """Return (ndim, n) int64: the indices of the main diagonal of an array with all dimensions equal."""
    if data.dim() < 2 or len(set(data.shape)) != 1:
        raise MXNetError(f"diag_indices_from: all dimensions must be equal, received {tuple(data.shape)}")
    return torch.arange(data.shape[0], device=data.device).expand(data.dim(), data.shape[0])


def _diagonal_positions(shape: Sequence[int], wrap: bool) -> tuple[int, int]:
    """Step and end, in the flattened array, of NumPy's fill_diagonal."""
    if len(shape) < 2:
        raise MXNetError(f"fill_diagonal: the array needs at least two dimensions, received {tuple(shape)}")
    if len(shape) == 2:
        columns = shape[1]
        return columns + 1, prod(shape) if wrap else min(columns * columns, prod(shape))
    if len(set(shape)) != 1:
        raise MXNetError(f"fill_diagonal: all dimensions must be equal, received {tuple(shape)}")
    return 1 + sum(shape[0] ** power for power in range(1, len(shape))), prod(shape)


@operator("_npi_fill_diagonal", infer=keeps_dtype(lambda shape, attrs: shape))
def np_fill_diagonal(a: Tensor, *, val: Floats, wrap: bool = False) -> Tensor:
    """Return ``a`` with its main diagonal set to ``val``, whose values repeat when there are too few."""
    step, end = _diagonal_positions(a.shape, wrap)
    flat = a.reshape(-1).clone()
    target = flat[:end:step]
    values = [val[i % len(val)] for i in range(target.numel())]
    target.copy_(torch.tensor(values, dtype=a.dtype, device=a.device))
    return flat.reshape(a.shape)


@operator("_npi_share_memory", gradient="zero", infer=lambda specs, attrs: [Spec((1,), torch.bool)])
def np_share_memory(a: Tensor, b: Tensor) -> Tensor:
    """Return [True] when both arrays lie in one piece of memory."""
    if a.device.type == "meta" or a.device != b.device:
        shared = False
    else:
        shared = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return torch.tensor((shared,), device=a.device)
