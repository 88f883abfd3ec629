"""Batches computed a few images at a time: what lies between the layers is less, and in a nearer cache.

All of a region runs on the first images, then on the next ones. The primitives are those for so many images;
each slice has memories of its own for its part of the inputs and outputs, and all of them share the weights
and the memory of a call. Images that remain have primitives of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import torch

from ...graph.node import Entry, Node
from ...ops.internal import ADD, AFFINE, CONVOLUTION, DENSE, UNARY
from ...ops.opdef import Spec
from ...passes.cleanup import CASTS
from ...passes.integers import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZED_CONCATENATE,
    QUANTIZED_CONVOLUTION,
    QUANTIZED_DENSE,
    QUANTIZED_MAX_POOL,
    QUANTIZED_RESHAPE,
)
from ..partition import Subgraph
from . import interface
from .builder import Refused
from .forms import FLATTENINGS, PRODUCTS, shape_at
from .interface import DESTINATION
from .region import Built, Place, Region, Step, Value, plan_memory

__all__ = ["batch_of", "build_in_slices", "gains_by_slices", "has_large_values", "sizes_of_slices"]

_CONVOLUTIONS = (CONVOLUTION, QUANTIZED_CONVOLUTION)
# Each image is computed by itself, where all values have the images along their first axis.
_BY_IMAGE = frozenset(
    {
        *_CONVOLUTIONS,
        DENSE,
        UNARY,
        AFFINE,
        ADD,
        QUANTIZED_DENSE,
        QUANTIZED_MAX_POOL,
        QUANTIZED_RESHAPE,
        QUANTIZE,
        DEQUANTIZE,
    }
)
_NAMES_BY_IMAGE = frozenset({"Pooling", "LayerNorm", *FLATTENINGS, *PRODUCTS, *CASTS})
# Slices, as images for each thread. In float32 the usual ones were not slower than the whole batch on two
# threads with 2 MB of cache each (batch 32: ResNet-50 in 0.96 of the time, ResNet-18 in 1.00); those of half
# as many images were, by 4 % and more. In bfloat16 slices took 4 % more: they are only taken where measured.
_USUAL, _SMALLER, _LARGER = 4, 2, 8
# Bytes of a large value.
_LARGE = 32 << 20
# Bytes between layers for which the first layers are computed on one image for each thread, and the part of
# them that remains where further layers are worth it: what is gained is memory. Images of fewer pixels fill
# no kernel.
_MUCH, _GAIN, _FEW_PIXELS = 8 << 20, 0.8, 128
# Weights of dense layers are read as they are where they take so many bytes or more: a little slower for some
# rows, but without a copy of them.
_LEAST_UNPACKED = 1 << 20


def _is_by_image(node: Node) -> bool:
    op = node.op
    if op is None or op in _BY_IMAGE or op.name in _NAMES_BY_IMAGE:
        return op is not None
    joins = {"Concat": "dim", QUANTIZED_CONCATENATE.name: "axis"}
    return op.name in joins and node.full_attrs[joins[op.name]] == 1


def batch_of(group: Subgraph, inputs: Sequence[Entry]) -> int:
    """The number of images of a group whose layers compute each image by itself; 0 for another group.

    ``inputs`` are those that change between calls.
    """
    if not any(node.op in _CONVOLUTIONS for node in group.nodes):
        return 0
    values = [*inputs, *(Entry(node, index) for node in group.nodes for index in range(node.outputs))]
    sizes = {shape_at(entry)[:1] for entry in values}
    if len(sizes) != 1 or not all(map(_is_by_image, group.nodes)):
        return 0
    return next(iter(sizes))[0] if () not in sizes else 0


def sizes_of_slices(group: Subgraph, inputs: Sequence[Entry]) -> list[int]:
    """Numbers of images that may be computed at a time, in place of the whole batch; the usual one first."""
    batch, threads = batch_of(group, inputs), torch.get_num_threads()
    if batch < 2 * _USUAL * threads:
        return []
    return [size for count in (_USUAL, _SMALLER, _LARGER) if 2 * (size := count * threads) <= batch]


def gains_by_slices(group: Subgraph) -> bool:
    """Whether the first of the sizes is taken without measuring: layers in float32."""
    convolutions = [node for node in group.nodes if node.op in _CONVOLUTIONS]
    return all(node.specs and node.specs[0].dtype is torch.float32 for node in convolutions)


def has_large_values(nodes: Iterable[Node]) -> bool:
    """Whether the result of a layer takes more than a few caches."""
    specs = [spec for node in nodes for spec in node.specs or ()]
    return any(math.prod(spec.shape) * spec.dtype.itemsize > _LARGE for spec in specs)


def build_in_slices(region: Region, images: int, build: Callable[[Region], Built]) -> Built:
    """The steps for so many images, and how often they run.

    ``build`` makes steps for a region; weights are packed for the first of those that it makes.
    """
    batch = batch_of(region.group, region.inputs)
    built = build(cast(Region, _Part(region, images)))
    fewer = torch.get_num_threads()
    if built.total >= _MUCH and images % fewer == 0 and images > fewer:
        # Without kernels for so few images, all layers are computed on all images of a slice.
        with suppress(Refused):
            few = build(cast(Region, _Part(region, fewer)))
            built = _with_first_layers(built, images, few, fewer)
    built.images, built.times = images, batch // images
    if batch % images:
        built.rest = build(cast(Region, _Part(region, batch % images)))
        built.rest.images = batch % images
    return built


def _is_read_as_it_is(weight: Spec) -> bool:
    """Whether the weights of a dense layer with one row for each image are not packed, in slices."""
    size = math.prod(weight.shape) * weight.dtype.itemsize
    return weight.dtype is torch.float32 and len(weight.shape) == 2 and _LEAST_UNPACKED <= size <= _LARGE


# The first layers ------------------------------------------------------------------


def _with_first_layers(whole: Built, images: int, few: Built, fewer: int) -> Built:
    """The steps of a slice, the first ones on fewer images and so much more often.

    The first layers of a network have the largest values.
    """
    best = whole
    for cut in _cuts(whole, few):
        made = _joined(whole, few, cut, images // fewer, fewer)
        if made.total < best.total * _GAIN:
            best = made
    return best


def _cuts(whole: Built, few: Built) -> Iterator[int]:
    """Numbers of steps after which one value alone goes on, which has its images in turn."""
    if whole.inside or few.inside:
        return
    last: dict[int, int] = {}
    for number, step in enumerate(whole.steps):
        last.update({value.place.index: number for value in _in_memory(step)})
    going: set[int] = set()
    for number, (step, other) in enumerate(zip(whole.steps, few.steps, strict=False)):
        if not _are_alike(step, other) or any(value.place.where == "output" for _, value in step.arguments):
            return
        going |= {value.place.index for value in _in_memory(step)}
        going = {buffer for buffer in going if last[buffer] > number}
        result = dict(step.arguments)[DESTINATION]
        if going == {result.place.index} and _are_in_turn(step) and _are_in_turn(other):
            yield number + 1


def _are_in_turn(step: Step) -> bool:
    """Whether the result of a layer are images with channels last, one after another, of many pixels."""
    api, shape = interface.library(), shape_at(Entry(step.node, 0))
    assert api is not None and step.node.specs is not None
    if len(shape) != 4 or math.prod(shape[2:]) < _FEW_PIXELS:
        return False
    return dict(step.arguments)[DESTINATION].descriptor == api.images(shape, step.node.specs[0].dtype)


def _in_memory(step: Step) -> Iterator[Value]:
    return (value for _, value in step.arguments if value.place.where == "memory")


def _are_alike(step: Step, other: Step) -> bool:
    """Whether the same kernel is called, on values that share memory with others in the same way."""

    def kernel(step: Step) -> list[Any]:
        places = [(name, value.place.where, value.place.index) for name, value in step.arguments]
        kind = step.primitive.kind
        # There is more than one kernel for changes of format, all of them fast.
        return [step.node.op, kind, "" if kind == "reorder" else step.primitive.implementation, *places]

    return kernel(step) == kernel(other)


def _joined(whole: Built, few: Built, cut: int, times: int, fewer: int) -> Built:
    """The first ``cut`` steps of ``few``, so many times, and then the other ones of ``whole``."""
    joined = Built()
    joined.sizes = list(whole.sizes)
    end = dict(whole.steps[cut - 1].arguments)[DESTINATION].place.index
    for turn in range(times):
        buffers: dict[int, int] = {}

        def moved(value: Value, turn: int = turn, buffers: dict[int, int] = buffers) -> Value:
            if value.place.where != "memory":
                return value
            index = value.place.index
            if index not in buffers:
                buffers[index] = len(joined.sizes)
                joined.sizes.append(few.sizes[index])
                if index == end:
                    joined.inside[buffers[index]] = (end, turn * few.sizes[index])
            return Value(value.descriptor, Place("memory", buffers[index]))

        for step in few.steps[:cut]:
            arguments = [(name, moved(value)) for name, value in step.arguments]
            joined.steps.append(Step(step.primitive, arguments, step.node, turn * fewer))
    joined.steps += whole.steps[cut:]
    plan_memory(joined)
    return joined


class _Part:
    """A region as it is to be built for fewer images."""

    def __init__(self, region: Region, images: int) -> None:
        self._region, self._images = region, images
        self.inputs = [Entry(_twin(entry.node, (), images), entry.index) for entry in region.inputs]
        found = dict(zip(map(_key, region.inputs), self.inputs, strict=True))

        def moved(entry: Entry) -> Entry:
            return found.get(_key(entry), entry)

        nodes: list[Node] = []
        for node in region.group.nodes:
            twin = _twin(node, tuple(map(moved, node.inputs)), images)
            nodes.append(twin)
            found.update({(id(node), index): Entry(twin, index) for index in range(node.outputs)})
        outputs = [moved(entry) for entry in region.group.outputs]
        self.group = Subgraph(nodes, [moved(entry) for entry in region.group.inputs], outputs)

    def reads_as_it_is(self, weight: Spec, rows: int) -> bool:
        """Whether weights are not packed: a copy takes much memory, and saves little for few rows."""
        # The same for any number of images: packed weights are counted.
        return rows == self._images and _is_read_as_it_is(weight)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._region, name)


def _key(entry: Entry) -> tuple[int, int]:
    return id(entry.node), entry.index


def _twin(node: Node, inputs: tuple[Entry, ...], images: int) -> Node:
    """A node whose values are of so many images."""
    assert node.specs is not None
    return node.moved(inputs, [Spec((images, *spec.shape[1:]), spec.dtype) for spec in node.specs])
