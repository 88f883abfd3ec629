"""Batches computed a few images at a time: what lies between the layers is less, and in a nearer cache.

All of a region runs on the first images, then on the next ones. The primitives are those for so many images;
each slice has memories of its own for its part of the inputs and outputs, and all of them share the weights
and the memory of a call. Images that remain have primitives of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
from .forms import FLATTENINGS, PRODUCTS, shape_at
from .region import Built, Region

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
    built.images, built.times = images, batch // images
    if batch % images:
        built.rest = build(cast(Region, _Part(region, batch % images)))
        built.rest.images = batch % images
    return built


class _Part:
    """A region as it is to be built for fewer images."""

    def __init__(self, region: Region, images: int) -> None:
        self._region = region
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._region, name)


def _key(entry: Entry) -> tuple[int, int]:
    return id(entry.node), entry.index


def _twin(node: Node, inputs: tuple[Entry, ...], images: int) -> Node:
    """A node whose values are of so many images."""
    assert node.specs is not None
    return node.moved(inputs, [Spec((images, *spec.shape[1:]), spec.dtype) for spec in node.specs])
