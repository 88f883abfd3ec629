"""Images with their channels in blocks: the format in which channels of one image are joined without copies.

With channels last, the channels of a pixel lie together, so that joining two images along their channels
moves every pixel. In blocks of 16 (8 without AVX-512), the channels of one image that are joined to others
are one piece of memory: a layer writes its result where the joined image is to be.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence

import numpy as np
import torch

from ...graph.node import Entry, Node
from ...ops.internal import CONVOLUTION
from . import interface
from .forms import shape_at
from .interface import Descriptor, Library, Unsupported
from .region import Built, Place, Value

__all__ = ["Joined", "block_of", "blocked", "counts_in_blocks", "gains_by_blocks", "joins"]

# Images of fewer pixels are computed faster with channels last.
_SMALL = 1024
# Numbers of the format in oneDNN's headers (version 3), by the channels of a block.
_TAGS = {16: 78, 8: 102}


@functools.cache
def block_of(api: Library) -> int:
    """The channels of a block, as many as a vector register holds; 0 where there is no such format."""
    count = 16 if torch.backends.cpu.get_cpu_capability().startswith("AVX512") else 8
    data = np.arange(4 * count, dtype=np.float32)
    result = np.empty_like(data)
    shape = (1, 2 * count, 1, 2)
    try:
        step = api.reorder(api.plain(shape, torch.float32), _descriptor(api, shape, count))
    except Unsupported:
        return 0
    api.run_once(step, {interface.SOURCE: data.ctypes.data, interface.DESTINATION: result.ctypes.data})
    expected = data.reshape(2, count, 2).transpose(0, 2, 1)
    return count if np.array_equal(result, expected.reshape(-1)) else 0


def blocked(api: Library, shape: Sequence[int]) -> Descriptor:
    """Images in float32 with their channels in blocks; the last block is filled up with zeros.

    Raises
    ------
    Unsupported
        If there is no such format.
    """
    count = block_of(api)
    if not count:
        raise Unsupported("no channels in blocks")
    return _descriptor(api, shape, count)


def _descriptor(api: Library, shape: Sequence[int], count: int) -> Descriptor:
    kind = interface.TYPES[torch.float32]
    made = api.create("memory_desc_create_with_tag", 4, (ctypes.c_int64 * 4)(*shape), kind, _TAGS[count])
    return Descriptor(made, api)


def joins(node: Node, block: int) -> bool:
    """Whether a node joins channels of one image in float32, each but the last in whole blocks."""
    if node.op is None or node.op.name != "Concat" or node.full_attrs["dim"] != 1 or not node.specs:
        return False
    shape = tuple(node.specs[0].shape)
    if len(shape) != 4 or shape[0] != 1 or node.specs[0].dtype is not torch.float32 or not block:
        return False
    return all(shape_at(entry)[1] % block == 0 for entry in node.inputs[:-1])


def counts_in_blocks(nodes: Sequence[Node], api: Library) -> dict[str, int]:
    """By name, the numbers of nodes, from the first, whose images may lie in blocks.

    Only for one image at a time: that is what these formats were measured with. Kernels for large images are
    faster in blocks, those for small ones with channels last.
    """
    convolutions = [place for place, node in enumerate(nodes) if node.op is CONVOLUTION]
    shapes = [shape_at(Entry(nodes[place], 0)) for place in convolutions]
    if not block_of(api) or any(len(shape) != 4 or shape[0] != 1 for shape in shapes):
        return {}
    if not all(nodes[place].specs[0].dtype is torch.float32 for place in convolutions):  # type: ignore[index]
        return {}
    counts = {"blocks": len(nodes)} if convolutions else {}
    sizes = [math.prod(shape[2:]) for shape in shapes]
    first = next((place for place, size in zip(convolutions, sizes, strict=True) if size < _SMALL), 0)
    if convolutions and first > convolutions[0]:
        counts["blocks first"] = first
    return counts


def gains_by_blocks(nodes: Sequence[Node]) -> bool:
    """Whether channels are joined to channels that were joined before, as often as layers are computed."""
    convolutions = sum(node.op is CONVOLUTION for node in nodes)
    joining = {id(node) for node in nodes if node.op is not None and node.op.name == "Concat"}
    again = sum(id(node) in joining and any(id(e.node) in joining for e in node.inputs) for node in nodes)
    return 4 * again > convolutions


class Joined:
    """Where the results of nodes lie that join channels, and of the nodes whose results are joined.

    Parameters
    ----------
    api : Library
        oneDNN.
    built : Built
        What is told of the buffers that lie inside others.
    nodes : sequence of Node
        The nodes whose values are in blocks, in order.
    """

    def __init__(self, api: Library, built: Built, nodes: Sequence[Node]) -> None:
        self._api, self._built = api, built
        # By node: where its result is to be written, and where what it joins is to lie.
        self._results: dict[int, Value] = {}
        self.parts: dict[int, list[Value]] = {}
        # Buffers of which other values lie in a part.
        self.shared: set[int] = set()
        known = {id(node) for node in nodes if node.outputs == 1}
        block = block_of(api)
        # The last first: what it joins may itself be joined of others.
        for node in reversed(nodes):
            if joins(node, block):
                self._place(node, known)

    def _place(self, node: Node, known: set[int]) -> None:
        whole = self._results.get(id(node))
        if whole is None:
            whole = self._results[id(node)] = self._buffer(shape_at(Entry(node, 0)))
        parts = self.parts[id(node)] = []
        start = 0
        for entry in node.inputs:
            shape = shape_at(entry)
            part = self._buffer(shape)
            self._built.inside[part.place.index] = (whole.place.index, start)
            start += 4 * math.prod(shape)
            parts.append(part)
            if id(entry.node) in known:
                # Of two places, the other is filled by a copy.
                self._results.setdefault(id(entry.node), part)

    def _buffer(self, shape: tuple[int, ...]) -> Value:
        descriptor = blocked(self._api, shape)
        self._built.sizes.append(descriptor.size)
        place = Place("memory", len(self._built.sizes) - 1)
        self.shared.add(place.index)
        return Value(descriptor, place)

    def result(self, node: Node, descriptor: Descriptor) -> Value | None:
        """Where a node is to write a result of this format; None for new memory."""
        found = self._results.get(id(node))
        return found if found is not None and found.descriptor == descriptor else None
