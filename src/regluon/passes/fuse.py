"""Fusion: a layer with the addition and the activation after it, and padding with the layer after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.node import Entry, Node
from ..ops.internal import ADD, AFFINE, CONVOLUTION, DENSE, UNARY
from .layers import activation_of
from .rewrite import Reads, Settings, make, rewrite, shape_of

__all__ = ["fuse_activations", "fuse_padding", "pool_first"]

_LAYERS = (CONVOLUTION, DENSE)


def fuse_activations(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """``activation(layer(x) + other)`` as one operator, where nothing else uses the values between."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if node.op is UNARY and reads(0):
            layer = inputs[0].node
            if layer.op in (CONVOLUTION, DENSE, AFFINE) and not layer.attrs.get("kind"):
                assert layer.op is not None
                attrs = {**layer.attrs, "kind": node.attrs["kind"], "scalars": node.attrs["scalars"]}
                return [make(layer.op, layer, layer.inputs, attrs, node.specs)]
        if node.op is ADD:
            for own, other in ((1, 0), (0, 1)):
                fused = _add(node, inputs, own, other) if reads(own) else None
                if fused is not None:
                    return fused
        return None

    return rewrite(entries, replace, ("unary", "add"))


def _add(node: Node, inputs: tuple[Entry, ...], own: int, other: int) -> Any:
    layer = inputs[own].node
    if layer.op not in _LAYERS or layer.attrs.get("kind") or layer.attrs.get("residual"):
        return None
    if layer.attrs.get("transposed") or inputs[other].node is layer:
        return None
    if layer.specs is None or node.specs is None or layer.specs[0] != node.specs[0]:
        return None
    assert layer.op is not None
    attrs = {**layer.attrs, "residual": True}
    return [make(layer.op, layer, [*layer.inputs, inputs[other]], attrs, node.specs)]


def fuse_padding(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Zeros padded on both sides before a convolution are the convolution's own padding."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        pad = inputs[0].node if inputs else None
        if node.op is not CONVOLUTION or pad is None or pad.op is None or pad.op.name != "Pad":
            return None
        attrs = pad.full_attrs
        width = attrs["pad_width"]
        if attrs["mode"] != "constant" or attrs["constant_value"] or node.attrs["transposed"]:
            return None
        pairs = [(width[i], width[i + 1]) for i in range(0, len(width), 2)]
        if any(pairs[0]) or any(pairs[1]) or any(a != b for a, b in pairs) or shape_of(pad.inputs[0]) is None:
            return None
        total = tuple(a + b[0] for a, b in zip(node.attrs["pad"], pairs[2:], strict=True))
        return [make(CONVOLUTION, node, [pad.inputs[0], *inputs[1:]], {**node.attrs, "pad": total})]

    return rewrite(entries, replace, ("convolution",))


def pool_first(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """The maximum of activations as the activation of the maximum: a quarter of the work, or less.

    Exact for an activation that never decreases. A rectifier is left to the layer before it, which does it
    for nothing at prediction.
    """
    return sink_activations(entries, frozenset({"tanh", "sigmoid"}))


def sink_activations(entries: Sequence[Entry], kinds: frozenset[str]) -> list[Entry]:
    """Move activations of these kinds, which must never decrease, behind a maximum pooling."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if node.op is None or node.op.name != "Pooling" or node.full_attrs["pool_type"] != "max":
            return None
        before = inputs[0].node
        activation = activation_of(before)
        if activation is None or activation[0] not in kinds or not reads(0):
            return None
        assert before.op is not None
        pooled = make(node.op, node, [before.inputs[0]], node.attrs)
        return [make(before.op, before, [pooled], before.attrs, node.specs)]

    return rewrite(entries, replace, ("Pooling",))
