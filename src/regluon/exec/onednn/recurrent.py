"""LSTM layers, each as one primitive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...graph.node import Entry, Node
from ...ops.defs.rnn import layout_of
from ...ops.internal import constant_op
from ...ops.opdef import Spec
from ...passes.rewrite import make
from . import interface
from .forms import shape_at
from .interface import Descriptor
from .region import Place, Value

if TYPE_CHECKING:
    from .builder import _Builder

__all__ = ["lstm"]

_STATES = (interface.STATE, interface.CELL, interface.LAST_STATE, interface.LAST_CELL)


def _lstm_part(parameters: Tensor, *, attrs: dict[str, Any], width: int, layer: int, part: int) -> Tensor:
    """Of a layer's cells: the weights of the data, those of the state, or the sums of the two biases."""
    layout = layout_of(attrs)
    first = 4 * layout.directions * layer
    tensors = layout.unpack(parameters, width)[first : first + 4 * layout.directions]
    if part < 2:
        return torch.stack(tensors[part::4])
    return torch.stack([a + b for a, b in zip(tensors[2::4], tensors[3::4], strict=True)])


LSTM_PART = constant_op("lstm_weights", _lstm_part, "attrs", "width", "layer", "part")


def lstm_part(node: Node, layer: int, part: int) -> Entry:
    """A part of an LSTM's parameters as a node of its own."""
    attrs, width = node.full_attrs, shape_at(node.inputs[0])[2]
    cells, hidden = 2 if attrs["bidirectional"] else 1, attrs["state_size"]
    inputs = (cells * hidden if layer else width, hidden)
    shape = (cells, 4 * hidden) if part == 2 else (cells, 4 * hidden, inputs[part])
    own = {"attrs": attrs, "width": width, "layer": layer, "part": part}
    name = f"{node.name}_{layer}_{('weights', 'recurrent_weights', 'bias')[part]}"
    return make(LSTM_PART, node, [node.inputs[1]], own, [Spec(shape, torch.float32)], name)


def lstm(builder: _Builder, node: Node) -> list[Value]:
    """One layer after another, with weights cut out of the vector of parameters.

    As one primitive, layers may have one width only, and on a batch of one take up to twice the time.
    """
    api, attrs, inputs, single = builder.api, node.full_attrs, node.inputs, torch.float32
    (length, batch, width), hidden = shape_at(inputs[0]), attrs["state_size"]
    layers, directions = attrs["num_layers"], 2 if attrs["bidirectional"] else 1
    data = builder._plain(inputs[0], (length, batch, width), node)
    shape = (layers, directions, batch, hidden)
    states = [builder._plain(e, shape, node) for e in inputs[2:4]]
    ends = [builder._buffer(states[0].descriptor) for _ in range(2)] if node.outputs > 1 else []
    for layer in range(layers):
        own = api.part(states[0].descriptor, (1, *shape[1:]), (layer, 0, 0, 0))
        data = _layer(builder, node, layer, data, own, states, ends)
    outer = api.plain((layers * directions, batch, hidden), single)
    return [data, *(Value(outer, value.place) for value in ends)]


def _layer(
    builder: _Builder,
    node: Node,
    layer: int,
    data: Value,
    own: Descriptor,
    states: Sequence[Value],
    ends: Sequence[Value],
) -> Value:
    """One layer; ``own`` are its states among those of all layers, and those that it ends with."""
    api, attrs, single = builder.api, node.full_attrs, torch.float32
    (length, batch, width), hidden = shape_at(node.inputs[0]), attrs["state_size"]
    directions = 2 if attrs["bidirectional"] else 1
    width = directions * hidden if layer else width
    shapes = [(1, directions, each, 4, hidden) for each in (width, hidden)]
    first, second = (api.any(shape, single) for shape in shapes)
    if builder.renewed:
        first, second = (builder.region.packing[builder.weights + i][2] for i in range(2))
    bias = api.plain((1, directions, 4, hidden), single)
    result = builder._buffer(api.plain((length, batch, directions * hidden), single))
    given = (data.descriptor, own, (first, second), bias, result.descriptor)
    primitive = api.lstm(*given, directions == 2, bool(ends))
    assert primitive.weights is not None and primitive.recurrent_weights is not None
    arguments = {interface.SOURCE: data}
    for place, value in zip(_STATES, (*states, *ends), strict=False):
        arguments[place] = Value(own, value.place)
    kinds = (
        (interface.WEIGHTS, primitive.weights),
        (interface.RECURRENT_WEIGHTS, primitive.recurrent_weights),
    )
    for part, (place, descriptor) in enumerate(kinds):
        size = shapes[part][2]
        # Rows-first in the parameters: (gates, hidden, inputs).
        rows = 4 * hidden * size
        source = api.plain(shapes[part], single, (directions * rows, rows, 1, hidden * size, size))
        arguments[place] = builder._packed(lambda p=part: lstm_part(node, layer, p), source, descriptor)  # type: ignore[misc]
    place = builder.region.constant((id(node), layer, "bias"), lambda: lstm_part(node, layer, 2))
    arguments[interface.BIAS] = Value(bias, Place("constant", place))
    return builder._add(primitive, arguments, result, node)
