"""Pixels that nothing reads: strides of 1x1 convolutions move to the layers before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.node import Entry, Node, reads_sizes, topological
from ..ops.internal import ADD, AFFINE, CONVOLUTION, UNARY
from ..ops.opdef import Spec
from ..ops.registry import get
from .rewrite import Reads, Settings, make, rewrite, shape_of

__all__ = ["stride_early"]

# Every so many pixels along each axis; () is all of them.
_Steps = tuple[int, ...]
_ALL: _Steps = ()
_BY_PIXEL = (ADD, AFFINE, UNARY)


def stride_early(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Let a layer compute only the pixels that convolutions with a stride and kernels of one pixel read.

    A stride of two moved to the layer before leaves a quarter of its work. It moves through what goes pixel
    by pixel, also through additions whose other value is read whole elsewhere: of that one the pixels are
    picked.
    """
    order = topological(entries)
    convolutions = [node for node in order if node.op is CONVOLUTION]
    if not any(_skips(node) for node in convolutions) or any(map(reads_sizes, order)):
        return list(entries)
    found = _worthwhile(order, _wanted(entries, order))
    if not found:
        return list(entries)

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        steps = found.get(node, _ALL)
        if node.op is CONVOLUTION:
            total = _total(node, steps)
            given = found.get(node.inputs[0].node, _ALL)
            stride = tuple(t // g for t, g in zip(total, given, strict=True)) if given else total
            if stride == node.attrs["stride"] and not given:
                return None
            attrs = {**node.attrs, "stride": stride}
            return [make(CONVOLUTION, node, inputs, attrs, _fewer(Entry(node, 0), steps))]
        if not steps:
            return None
        several = inputs if node.op is ADD else inputs[:1]
        picked = [
            new if found.get(old.node) == steps else _pick(node, new, steps)
            for old, new in zip(node.inputs, several, strict=False)
        ]
        assert node.op is not None
        specs = _fewer(Entry(node, 0), steps)
        return [make(node.op, node, [*picked, *inputs[len(several) :]], node.attrs, specs)]

    return rewrite(entries, replace, ("convolution", "add", "affine", "unary"))


def _is_small(node: Node, axis: int) -> bool:
    """Whether a convolution reads one pixel for each of its own along a spatial axis."""
    weight = shape_of(node.inputs[1])
    return weight is not None and weight[2 + axis] == 1 and node.attrs["pad"][axis] == 0


def _skips(node: Node) -> bool:
    """Whether a convolution leaves out pixels along some axis."""
    strides = enumerate(node.attrs["stride"])
    return not node.attrs["transposed"] and any(s > 1 and _is_small(node, axis) for axis, s in strides)


def _total(node: Node, steps: _Steps) -> _Steps:
    """A convolution's strides where only every so many of its pixels are wanted."""
    own: _Steps = node.attrs["stride"]
    return tuple(a * b for a, b in zip(own, steps, strict=True)) if steps else own


def _fewer(value: Entry, steps: _Steps) -> list[Spec] | None:
    """Shape and type of a value with every so many of its pixels."""
    spec = value.spec
    if not steps or spec is None:
        return None if spec is None else [spec]
    pixels = (-(-size // step) for size, step in zip(spec.shape[2:], steps, strict=True))
    return [Spec((*spec.shape[:2], *pixels), spec.dtype)]


def _pick(node: Node, value: Entry, steps: _Steps) -> Entry:
    """Every so many pixels of a value: means of one pixel, which keep what is no number."""
    attrs = {"kernel": (1,) * len(steps), "stride": steps, "pool_type": "avg"}
    return make(get("Pooling"), node, [value], attrs, _fewer(value, steps), f"{node.name}_pixels")


def _wanted(entries: Sequence[Entry], order: Sequence[Node]) -> dict[Node, _Steps]:
    """Which pixels are read of the nodes of which not all are: what all of their readers agree on."""
    asked: dict[Entry, set[_Steps]] = {entry: {_ALL} for entry in entries}
    wanted: dict[Node, _Steps] = {}
    for node in reversed(order):
        steps = _ALL
        own = asked.get(Entry(node, 0), set())
        if len(own) == 1 and _may_skip(node):
            (steps,) = own
            if steps:
                wanted[node] = steps
        for index, entry in enumerate(node.inputs):
            asked.setdefault(entry, set()).add(_asks(node, index, steps))
    return wanted


def _may_skip(node: Node) -> bool:
    """Whether a node can compute some of its pixels alone."""
    shape = shape_of(Entry(node, 0))
    if shape is None:
        return False
    if node.op is CONVOLUTION:
        return not node.attrs["transposed"]
    if node.op is ADD:
        return all(shape_of(entry) == shape for entry in node.inputs)
    return node.op is UNARY or (node.op is AFFINE and node.attrs["axis"] == 1)


def _asks(node: Node, index: int, steps: _Steps) -> _Steps:
    """Which pixels of an input a node reads, of which every so many are wanted."""
    if node.op in _BY_PIXEL and (index == 0 or node.op is ADD):
        return steps
    if node.op is CONVOLUTION and index == 0 and not node.attrs["transposed"]:
        total = _total(node, steps)
        read = tuple(step if _is_small(node, axis) else 1 for axis, step in enumerate(total))
        return read if max(read) > 1 else _ALL
    return _ALL


def _worthwhile(order: Sequence[Node], wanted: dict[Node, _Steps]) -> dict[Node, _Steps]:
    """Those behind a convolution that computes fewer pixels then; elsewhere picking them is work as well."""
    found: dict[Node, _Steps] = {}
    for node in order:
        steps = wanted.get(node)
        if steps is None:
            continue
        inputs = node.inputs if node.op is ADD else node.inputs[:1]
        if node.op is CONVOLUTION or any(found.get(entry.node) == steps for entry in inputs):
            found[node] = steps
    return found
