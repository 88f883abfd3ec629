"""ONNX mappings of operators that move, cut, join and look up elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch

from ..graph.node import Entry, Node
from ..ops import shaping
from .emitter import Emitter, Unmapped, maps

__all__: list[str] = []


def _result_shape(m: Emitter, node: Node, index: int = 0) -> list[int]:
    return m.shape(Entry(node, index))


def _rank(m: Emitter, node: Node, place: int = 0) -> int:
    return len(m.spec(node.inputs[place]).shape)


# The same elements in another shape ----------------------------------------------------------------------


@maps(
    "Reshape",
    "_npx_reshape",
    "_np_reshape",
    "reshape_like",
    "expand_dims",
    "squeeze",
    "_npi_squeeze",
)
def _reshape(m: Emitter, node: Node, inputs: list[str]) -> str:
    return m.reshape(inputs[0], _result_shape(m, node))


@maps("_npi_atleast_1d", "_npi_atleast_2d", "_npi_atleast_3d")
def _at_least(m: Emitter, node: Node, inputs: list[str]) -> list[str]:
    return [m.reshape(name, _result_shape(m, node, place)) for place, name in enumerate(inputs)]


@maps("Flatten")
def _flatten(m: Emitter, node: Node, inputs: list[str]) -> str:
    return str(m.add("Flatten", inputs, axis=1))


@maps("transpose", "_npi_transpose")
def _transpose(m: Emitter, node: Node, inputs: list[str]) -> str:
    rank = _rank(m, node)
    axes = [axis % rank for axis in node.full_attrs["axes"] or range(rank - 1, -1, -1)]
    return str(m.add("Transpose", inputs, perm=axes))


@maps("SwapAxis")
def _swap(m: Emitter, node: Node, inputs: list[str]) -> str:
    rank = _rank(m, node)
    first, second = node.full_attrs["dim1"] % rank, node.full_attrs["dim2"] % rank
    axes = list(range(rank))
    axes[first], axes[second] = second, first
    return str(m.add("Transpose", inputs, perm=axes))


@maps("_npi_moveaxis", "_npi_rollaxis")
def _move(m: Emitter, node: Node, inputs: list[str]) -> str:
    rank = _rank(m, node)
    attrs = node.full_attrs
    # What NumPy does to a shape that holds its own axes' numbers is the order of the axes.
    numbers = numpy.empty(range(1, rank + 1))
    if "source" in attrs:
        moved = numpy.moveaxis(numbers, attrs["source"], attrs["destination"])
    else:
        moved = numpy.rollaxis(numbers, attrs["axis"], attrs["start"])
    return str(m.add("Transpose", inputs, perm=[size - 1 for size in moved.shape]))


# Joining and cutting ----------------------------------------------------------------------


@maps("Concat")
def _concat(m: Emitter, node: Node, inputs: list[str]) -> str:
    specs = [m.spec(entry) for entry in node.inputs]
    if node.full_attrs["dim"] is None:
        raise Unmapped(f"joining of flattened arrays (node {node.name}) is not mapped to ONNX")
    kind = node.specs[0].dtype if node.specs else specs[0].dtype
    parts = [m.cast(name, spec.dtype, kind) for name, spec in zip(inputs, specs, strict=True)]
    return str(m.add("Concat", parts, axis=node.full_attrs["dim"] % len(specs[0].shape)))


@maps("stack")
def _stack(m: Emitter, node: Node, inputs: list[str]) -> str:
    rank = _rank(m, node) + 1
    axis = node.full_attrs["axis"] % rank
    kind = node.specs[0].dtype if node.specs else m.spec(node.inputs[0]).dtype
    parts = [m.cast(name, m.spec(e).dtype, kind) for name, e in zip(inputs, node.inputs, strict=True)]
    return str(m.add("Concat", [m.add("Unsqueeze", [part, m.ints([axis])]) for part in parts], axis=axis))


@maps("SliceChannel", "_split_v2")
def _split(m: Emitter, node: Node, inputs: list[str]) -> list[str]:
    attrs = node.full_attrs
    shape = m.spec(node.inputs[0]).shape
    axis = attrs["axis"] % len(shape)
    if m.shape(node.inputs[0])[axis] < 0:
        raise Unmapped(f"{node.name} cuts axis {axis}, whose size is open; give fixed shapes")
    sections = attrs["num_outputs"] if "num_outputs" in attrs else attrs["sections"]
    points = shaping.split_points(shape[axis], attrs.get("indices", ()), sections, node.name)
    parts = []
    for begin, end in points:
        bounds = [(0, size, 1) for size in shape]
        bounds[axis] = (begin, end - begin, 1)
        part = _cut(m, inputs[0], shape, bounds)
        parts.append(m.add("Squeeze", [part, m.ints([axis])]) if attrs["squeeze_axis"] else part)
    return parts


def _cut(m: Emitter, name: str, shape: Sequence[int], bounds: Sequence[tuple[int, int, int]]) -> str:
    """Slices ``(start, length, step)`` per axis."""
    cut = [axis for axis, bound in enumerate(bounds) if bound != (0, shape[axis], 1)]
    if not cut:
        return str(m.add("Identity", [name]))
    starts, ends = [], []
    for axis in cut:
        start, length, step = bounds[axis]
        end = start + length * step
        starts.append(start)
        # Before the first element is no position that ONNX could name, but the smallest number is.
        ends.append(end if end >= 0 else -(2**31))
    steps = [bounds[axis][2] for axis in cut]
    return str(m.add("Slice", [name, m.ints(starts), m.ints(ends), m.ints(cut), m.ints(steps)]))


def _open_sizes(
    m: Emitter, node: Node, bounds: Sequence[tuple[int, int, int]], ends: Sequence[int | None] = ()
) -> None:
    """Refuse to cut axes whose size a model leaves open, also where an end is given that happens to fit."""
    shape = m.spec(node.inputs[0]).shape
    for axis, size in enumerate(m.shape(node.inputs[0])):
        ended = axis < len(ends) and ends[axis] is not None
        if size < 0 and (ended or bounds[axis] != (0, shape[axis], 1)):
            raise Unmapped(f"{node.name} cuts axis {axis}, whose size is open; give fixed shapes")


@maps("slice")
def _slice(m: Emitter, node: Node, inputs: list[str]) -> str:
    shape, attrs = m.spec(node.inputs[0]).shape, node.full_attrs
    bounds = shaping.slice_bounds(shape, attrs["begin"], attrs["end"], attrs["step"])
    _open_sizes(m, node, bounds, attrs["end"])
    return _cut(m, inputs[0], shape, bounds)


@maps("slice_axis")
def _slice_axis(m: Emitter, node: Node, inputs: list[str]) -> str:
    shape, attrs = m.spec(node.inputs[0]).shape, node.full_attrs
    axis = attrs["axis"] % len(shape)
    begin, end = slice(attrs["begin"], attrs["end"]).indices(shape[axis])[:2]
    bounds = [(0, size, 1) for size in shape]
    bounds[axis] = (begin, end - begin, 1)
    if attrs["begin"] < 0 or attrs["end"] is None or not 0 <= attrs["end"] < shape[axis]:
        ends = [None] * axis + [attrs["end"]]
        _open_sizes(m, node, bounds, ends)
    return _cut(m, inputs[0], shape, bounds)


@maps("slice_like")
def _slice_like(m: Emitter, node: Node, inputs: list[str]) -> str:
    assert node.specs is not None
    bounds = [(0, size, 1) for size in node.specs[0].shape]
    _open_sizes(m, node, bounds)
    return _cut(m, inputs[0], m.spec(node.inputs[0]).shape, bounds)


@maps("reverse", "_npi_flip")
def _reverse(m: Emitter, node: Node, inputs: list[str]) -> str:
    shape = m.spec(node.inputs[0]).shape
    rank = len(shape)
    axis = node.full_attrs["axis"]
    axes = range(rank) if axis is None else [a % rank for a in (axis if isinstance(axis, tuple) else (axis,))]
    if not rank or not axes:
        return str(m.add("Identity", inputs))
    count = len(axes)
    return str(
        m.add(
            "Slice",
            [*inputs, m.ints([-1] * count), m.ints([-(2**31)] * count), m.ints(axes), m.ints([-1] * count)],
        )
    )


# Repeating and padding ----------------------------------------------------------------------


@maps("broadcast_to", "_npi_broadcast_to", "broadcast_axis", "broadcast_like")
def _broadcast(m: Emitter, node: Node, inputs: list[str]) -> str:
    assert node.specs is not None
    wanted, open_sizes = list(node.specs[0].shape), _result_shape(m, node)
    given = m.spec(node.inputs[0]).shape
    lead = len(wanted) - len(given)
    for place, size in enumerate(wanted):
        if place >= lead and given[place - lead] == size:
            wanted[place] = 1  # kept as it is
        elif open_sizes[place] < 0:
            raise Unmapped(f"{node.name} repeats as often as a size that is open; give fixed shapes")
    return str(m.add("Expand", [inputs[0], m.ints(wanted)]))


@maps("tile")
def _tile(m: Emitter, node: Node, inputs: list[str]) -> str:
    reps = node.full_attrs["reps"]
    repeats = list(reps) if isinstance(reps, tuple) else [reps]
    rank = _rank(m, node)
    data = inputs[0]
    if len(repeats) > rank:
        data = m.reshape(data, [*[1] * (len(repeats) - rank), *m.shape(node.inputs[0])])
    repeats = [*[1] * (rank - len(repeats)), *repeats]
    return str(m.add("Tile", [data, m.ints(repeats)]))


@maps("repeat")
def _repeat(m: Emitter, node: Node, inputs: list[str]) -> str:
    repeats, axis = node.full_attrs["repeats"], node.full_attrs["axis"]
    shape = m.shape(node.inputs[0])
    if isinstance(repeats, tuple) and len(repeats) == 1:
        repeats = repeats[0]
    if not isinstance(repeats, int) or axis is None or not shape:
        raise Unmapped(f"this kind of repeat (node {node.name}) is not mapped to ONNX")
    axis = axis % len(shape)
    column = m.add("Unsqueeze", [inputs[0], m.ints([axis + 1])])
    sizes = [1] * (len(shape) + 1)
    sizes[axis + 1] = repeats
    return m.reshape(str(m.add("Expand", [column, m.ints(sizes)])), _result_shape(m, node))


@maps("Pad", "_npi_pad")
def _pad(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    spec = m.spec(node.inputs[0])
    width = attrs["pad_width"]
    if node.op is not None and node.op.name == "Pad":
        pairs = list(zip(width[::2], width[1::2], strict=True))
        value = attrs["constant_value"]
    else:
        pairs = [tuple(pair) for pair in width] if width and isinstance(width[0], tuple) else []
        pairs = pairs * len(spec.shape) if len(pairs) == 1 else pairs
        value = attrs["constant_values"]
    if attrs["mode"] not in ("constant", "edge", "reflect") or len(pairs) != len(spec.shape):
        raise Unmapped(f"this kind of padding (node {node.name}) is not mapped to ONNX")
    amounts = m.ints([pair[0] for pair in pairs] + [pair[1] for pair in pairs])
    extra = [m.constant(value, spec.dtype)] if attrs["mode"] == "constant" else []
    return str(m.add("Pad", [inputs[0], amounts, *extra], mode=attrs["mode"]))


@maps("depth_to_space", "space_to_depth")
def _blocks(m: Emitter, node: Node, inputs: list[str]) -> str:
    size = node.full_attrs["block_size"]
    if node.op is not None and node.op.name == "depth_to_space":
        return str(m.add("DepthToSpace", inputs, blocksize=size, mode="DCR"))
    return str(m.add("SpaceToDepth", inputs, blocksize=size))


# Looking up ----------------------------------------------------------------------


def _clipped(m: Emitter, node: Node, name: str, place: int, size: int) -> str:
    """Indices as int64, moved to the nearest place of an axis."""
    spec = m.spec(node.inputs[place])
    index = m.cast(name, spec.dtype, torch.int64)
    bounded = m.add("Min", [m.add("Max", [index, m.ints([0])]), m.ints([max(size - 1, 0)])])
    return str(bounded) if spec.shape else m.reshape(bounded, [])


@maps("take")
def _take(m: Emitter, node: Node, inputs: list[str]) -> str:
    shape, attrs = m.shape(node.inputs[0]), node.full_attrs
    axis = attrs["axis"] % len(shape)
    if attrs["mode"] != "clip" or shape[axis] < 0:
        raise Unmapped(f"take with mode={attrs['mode']!r} (node {node.name}) is not mapped to ONNX")
    return str(m.add("Gather", [inputs[0], _clipped(m, node, inputs[1], 1, shape[axis])], axis=axis))


@maps("pick")
def _pick(m: Emitter, node: Node, inputs: list[str]) -> str:
    shape, attrs = m.shape(node.inputs[0]), node.full_attrs
    if attrs["axis"] is None or attrs["mode"] != "clip":
        raise Unmapped(f"this kind of pick (node {node.name}) is not mapped to ONNX")
    axis = attrs["axis"] % len(shape)
    if shape[axis] < 0:
        raise Unmapped(f"{node.name} picks along an axis whose size is open; give fixed shapes")
    index = _clipped(m, node, inputs[1], 1, shape[axis])
    if _rank(m, node, 1) != len(shape):
        index = str(m.add("Unsqueeze", [index, m.ints([axis])]))
    found = str(m.add("GatherElements", [inputs[0], index], axis=axis))
    return found if attrs["keepdims"] else str(m.add("Squeeze", [found, m.ints([axis])]))


@maps("one_hot")
def _one_hot(m: Emitter, node: Node, inputs: list[str]) -> str:
    assert node.specs is not None
    attrs, made = node.full_attrs, node.specs[0].dtype
    rank = _rank(m, node)
    index = m.cast(inputs[0], m.spec(node.inputs[0]).dtype, torch.int64)
    column = m.add("Unsqueeze", [index, m.ints([rank])])
    same = m.add("Equal", [column, m.ints(range(attrs["depth"]))])
    values = [m.constant(attrs[name], made) for name in ("on_value", "off_value")]
    return str(m.add("Where", [same, *values]))


@maps("_contrib_arange_like")
def _arange_like(m: Emitter, node: Node, inputs: list[str]) -> str:
    assert node.specs is not None
    attrs, spec = node.full_attrs, node.specs[0]
    if attrs["repeat"] != 1 or -1 in _result_shape(m, node):
        raise Unmapped(f"this kind of arange_like (node {node.name}) is not mapped to ONNX")
    count = int(numpy.prod(spec.shape))
    values = attrs["start"] + attrs["step"] * numpy.arange(count, dtype=numpy.float64)
    return m.constant(values.reshape(spec.shape), spec.dtype)


@maps("zeros_like", "ones_like", "_npi_full_like")
def _full_like(m: Emitter, node: Node, inputs: list[str]) -> str:
    assert node.specs is not None and node.op is not None
    value = {"zeros_like": 0.0, "ones_like": 1.0}.get(node.op.name, node.full_attrs.get("fill_value", 0.0))
    number = m.constant(value, node.specs[0].dtype)
    return str(m.add("Expand", [number, m.add("Shape", inputs[:1])]))


@maps("SequenceMask")
def _sequence_mask(m: Emitter, node: Node, inputs: list[str]) -> str:
    attrs = node.full_attrs
    if len(inputs) < 2 or not attrs["use_sequence_length"]:
        return str(m.add("Identity", inputs[:1]))
    shape, spec = m.shape(node.inputs[0]), m.spec(node.inputs[0])
    axis = attrs["axis"]
    if shape[axis] < 0:
        raise Unmapped(f"{node.name} masks along an axis whose size is open; give fixed shapes")
    steps = numpy.arange(shape[axis], dtype=numpy.float64).reshape([-1, *[1] * (len(shape) - 1 - axis)])
    length = m.cast(inputs[1], m.spec(node.inputs[1]).dtype, torch.float32)
    length = m.reshape(length, [-1, *[1] * (len(shape) - 2 + axis)])
    inside = m.add("Less", [m.constant(steps, torch.float32), length])
    return str(m.add("Where", [inside, inputs[0], m.constant(attrs["value"], spec.dtype)]))


@maps("topk")
def _topk(m: Emitter, node: Node, inputs: list[str]) -> str | list[str]:
    attrs, shape = node.full_attrs, m.spec(node.inputs[0]).shape
    if attrs["axis"] is None or attrs["ret_typ"] == "mask":
        raise Unmapped(f"this kind of topk (node {node.name}) is not mapped to ONNX")
    axis = attrs["axis"] % len(shape)
    count = attrs["k"] if 0 < attrs["k"] <= shape[axis] else shape[axis]
    values, places = m.add(
        "TopK",
        [inputs[0], m.ints([count])],
        outputs=2,
        axis=axis,
        largest=int(not attrs["is_ascend"]),
        sorted=1,
    )
    if attrs["ret_typ"] == "value":
        return str(values)
    assert node.specs is not None
    places = m.cast(places, torch.int64, node.specs[-1].dtype)
    return [values, places] if attrs["ret_typ"] == "both" else places
