"""The nodes of a plan as they run on CUDA: torch's public operators, images with their channels last."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ...graph.node import Entry, Node
from ...ops.internal import CONVOLUTION, UNARY, InternalOp, Slot, channels_last, constant_op, convolution
from ...passes.cleanup import RESHAPES, TRANSPOSES
from ...passes.rewrite import Reads, Settings, has_dims, make, rewrite, shape_of
from ..draws import draws
from ..kernels import CHANNELS_LAST, Layouts, candidates
from . import seam

__all__ = ["choose_operators"]

_IMAGES = (torch.float16, torch.bfloat16, torch.float32)
IMAGES = InternalOp("convolution_channels_last", convolution, list(CONVOLUTION.parameters))
PACK = constant_op("pack_convolution", channels_last)


def choose_operators(
    entries: Sequence[Entry], settings: Settings, device: torch.device | None = None
) -> list[Entry]:
    """Replace the common forms by what runs on a GPU; runs after all passes."""
    layouts = Layouts()

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if node.op is None:
            return None
        if node.op is CONVOLUTION:
            return _images(node, inputs, settings, layouts, device)
        if node.op is UNARY or node.op.name in RESHAPES or node.op.name in TRANSPOSES:
            build = next(iter(candidates(node, inputs, settings, layouts).values()))
            return None if build is None else [build()]
        return _quiet(node, inputs, settings) if node.op.uses_rng else None

    return rewrite(entries, replace)


def _images(
    node: Node,
    inputs: tuple[Entry, ...],
    settings: Settings,
    layouts: Layouts,
    device: torch.device | None,
) -> list[Entry] | None:
    """A convolution of images, with its sum and activation, channels last."""
    shape, spec = shape_of(inputs[0]), inputs[0].spec
    if shape is None or len(shape) != 4 or 0 in shape:
        return None
    types = {entry.spec.dtype if entry.spec is not None else None for entry in inputs}
    if spec is None or types != {spec.dtype} or spec.dtype not in _IMAGES:
        return None
    if not seam.current().prefers_channels_last(spec.dtype, device):
        return None
    weight = inputs[1]
    if settings.is_constant(weight):
        name = f"{node.name}_weight_packed"
        packed = make(PACK, node, [weight], {}, None if weight.spec is None else [weight.spec], name)
    else:
        packed = _last(weight, layouts)
    rest = list(inputs[2:])
    if node.attrs.get("residual"):
        rest[-1] = _last(rest[-1], layouts)
    return [make(IMAGES, node, [_last(inputs[0], layouts), packed, *rest], node.attrs)]


def _last(entry: Entry, layouts: Layouts) -> Entry:
    if layouts.is_last(entry):
        return entry
    specs = None if entry.spec is None else [entry.spec]
    return make(CHANNELS_LAST, entry.node, [entry], {}, specs, f"{entry.node.name}_channels_last")


def _quiet(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> list[Entry] | None:
    """An operator that could draw random numbers and does not, in this mode: it needs no generator.

    A generator can neither be made nor seeded while a CUDA graph is captured.
    """
    definition = node.op
    assert definition is not None
    special = has_dims(node) or definition.opaque or "subgraphs" in node.attrs
    if special or draws([node], settings.training):
        return None
    attrs = {key: value for key, value in node.attrs.items() if key in definition.parameters}
    if definition.uses_training:
        attrs["_training"] = settings.training
    function = functools.partial(definition.function, **attrs, _rng=None)
    arguments = [Slot(place) for place in range(len(inputs))]
    op = InternalOp(definition.name, function, arguments=arguments, fresh=False, outputs=node.outputs)
    made = make(op, node, inputs, {}, node.specs)
    return [Entry(made.node, place) for place in range(node.outputs)]
