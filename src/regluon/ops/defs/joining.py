"""Operators that join arrays and split them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.defs.shape import Shapes, same_shape_fill
from regluon.ops.opdef import Shape, Spec, operator

Attrs = dict[str, Any]


def concatenated(specs: Sequence[Spec], dim: int | None, name: str) -> list[Spec]:
    """Spec of several arrays joined along ``dim`` (None: all flattened)."""
    dtype = reduce(torch.promote_types, (spec.dtype for spec in specs))
    if dim is None:
        return [Spec((sum(prod(spec.shape) for spec in specs),), dtype)]
    first = specs[0].shape
    axis = shaping.normalise_axis(dim, len(first), f"{name} axis")
    for spec in specs:
        if len(spec.shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(spec.shape, first, strict=True)) if i != axis
        ):
            raise MXNetError(
                f"{name}: all inputs must agree in every dimension but axis {axis}; "
                f"received shapes {[tuple(one.shape) for one in specs]}"
            )
    return [Spec((*first[:axis], sum(spec.shape[axis] for spec in specs), *first[axis + 1 :]), dtype)]


def _concat_fill(shapes: Shapes, attrs: Attrs) -> Shapes:
    """Copy known dimensions between the inputs, except along the joined axis."""
    known = [shape for shape in shapes if shape is not None]
    if not known or attrs["dim"] is None:
        return shapes
    length = len(known[0])
    axis = attrs["dim"] % length if length else 0
    if any(len(shape) != length for shape in known):
        return shapes
    merged = [max((shape[i] for shape in known if shape[i] > 0), default=-1) for i in range(length)]
    result: Shapes = []
    for shape in shapes:
        base = shape if shape is not None else (-1,) * length
        result.append(tuple(d if i == axis or d > 0 else merged[i] for i, d in enumerate(base)))
    return result


def as_specs(arrays: Sequence[Tensor]) -> list[Spec]:
    """Shape and dtype of every tensor."""
    return [Spec(tuple(array.shape), array.dtype) for array in arrays]


def join(arrays: Sequence[Tensor], dim: int | None, name: str) -> Tensor:
    """Concatenate along ``dim`` after checking the shapes; None flattens."""
    if not arrays:
        raise MXNetError(f"{name}: at least one array is needed")
    concatenated(as_specs(arrays), dim, name)
    if dim is None:
        return torch.cat([array.reshape(-1) for array in arrays])
    return torch.cat(list(arrays), dim)


@operator(
    "Concat",
    amp="widest",
    aliases=("_npi_concatenate", "_sparse_concat", "concat"),
    num_args_key="num_args",
    renamed={"axis": "dim"},
    fill=_concat_fill,
    infer=lambda specs, attrs: concatenated(specs, attrs["dim"], "Concat"),
)
def concat(*data: Tensor, num_args: int | None = None, dim: int | None = 1) -> Tensor:
    """Join arrays along the existing axis ``dim``; all other dimensions must agree. ``None`` flattens
    first."""
    return join(data, dim, "Concat")


@operator(
    "_rnn_param_concat",
    aliases=("_npi_rnn_param_concat",),
    num_args_key="num_args",
    infer=lambda specs, attrs: concatenated(specs, attrs["dim"], "_rnn_param_concat"),
)
def rnn_param_concat(*data: Tensor, num_args: int | None = None, dim: int | None = 1) -> Tensor:
    """Join the parameters of a recurrent layer into the vector that ``RNN`` reads."""
    return join(data, dim, "_rnn_param_concat")


def stacked(specs: Sequence[Spec], axis: int, name: str) -> list[Spec]:
    """Spec of arrays of one shape stacked along a new axis."""
    first = specs[0].shape
    if any(spec.shape != first for spec in specs):
        raise MXNetError(f"{name}: all inputs must have one shape; received {[spec.shape for spec in specs]}")
    position = shaping.normalise_axis(axis, len(first) + 1, f"{name} axis")
    dtype = reduce(torch.promote_types, (spec.dtype for spec in specs))
    return [Spec((*first[:position], len(specs), *first[position:]), dtype)]


@operator(
    "stack",
    amp="widest",
    aliases=("_npi_stack",),
    num_args_key="num_args",
    fill=same_shape_fill,
    infer=lambda specs, attrs: stacked(specs, attrs["axis"], "stack"),
)
def stack(*data: Tensor, axis: int = 0, num_args: int | None = None) -> Tensor:
    """Join arrays of one shape along a new dimension at position ``axis``."""
    stacked(as_specs(data), axis, "stack")
    first = data[0].dtype
    if any(array.dtype != first for array in data):
        common = reduce(torch.promote_types, (array.dtype for array in data))
        return torch.stack([array.to(common) for array in data], axis)
    return torch.stack(data, axis)


def cut(
    data: Tensor, indices: Sequence[int], sections: int, axis: int, squeeze_axis: bool, name: str
) -> Tensor | tuple[Tensor, ...]:
    """Split along ``axis``; ``squeeze_axis`` drops it from parts of size 1. A single part comes bare."""
    axis = shaping.normalise_axis(axis, data.dim())
    points = shaping.split_points(data.shape[axis], indices, sections, name)
    parts = tuple(data.narrow(axis, begin, end - begin) for begin, end in points)
    if squeeze_axis:
        if any(part.shape[axis] != 1 for part in parts):
            raise MXNetError(
                f"{name}: squeeze_axis needs parts of size 1, received {[p.shape[axis] for p in parts]}"
            )
        parts = tuple(part.squeeze(axis) for part in parts)
    return parts if len(parts) > 1 else parts[0]


def cut_specs(
    spec: Spec, indices: Sequence[int], sections: int, axis: int, squeeze_axis: bool, name: str
) -> list[Spec]:
    """Specs of the parts that :func:`cut` returns."""
    shape = spec.shape
    axis = shaping.normalise_axis(axis, len(shape))
    result = []
    for begin, end in shaping.split_points(shape[axis], indices, sections, name):
        middle = () if squeeze_axis else (end - begin,)
        result.append(Spec((*shape[:axis], *middle, *shape[axis + 1 :]), spec.dtype))
    return result


@operator(
    "SliceChannel",
    aliases=("_npx_slice_channel", "split"),
    npx="slice_channel",
    outputs=lambda attrs: attrs["num_outputs"],
    output_names=("output0",),  # also where it is the only one
    infer=lambda specs, attrs: cut_specs(
        specs[0], (), attrs["num_outputs"], attrs["axis"], attrs["squeeze_axis"], "SliceChannel"
    ),
)
def slice_channel(
    data: Tensor, *, num_outputs: int, axis: int = 1, squeeze_axis: bool = False
) -> Tensor | tuple[Tensor, ...]:
    """Split along ``axis`` into ``num_outputs`` equal parts; ``squeeze_axis`` drops the axis (parts of size
    1)."""
    if num_outputs < 1:
        raise MXNetError(f"SliceChannel: num_outputs must be positive, received {num_outputs}")
    return cut(data, (), num_outputs, axis, squeeze_axis, "SliceChannel")


@operator(
    "_split_v2",
    aliases=("_npi_array_split", "_npi_split"),
    outputs=lambda attrs: attrs["sections"] if attrs["sections"] > 0 else len(attrs["indices"]),
    infer=lambda specs, attrs: cut_specs(
        specs[0], attrs["indices"], attrs["sections"], attrs["axis"], attrs["squeeze_axis"], "split"
    ),
)
def split_v2(
    data: Tensor, *, indices: Shape, axis: int = 1, squeeze_axis: bool = False, sections: int = 0
) -> Tensor | tuple[Tensor, ...]:
    """Split along ``axis`` into ``sections`` equal parts, or at ``indices``, the beginnings of all parts."""
    return cut(data, indices, sections, axis, squeeze_axis, "split")
