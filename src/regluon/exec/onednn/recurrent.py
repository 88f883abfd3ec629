"""LSTM layers as one primitive."""

from __future__ import annotations

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
from .region import Place, Value

if TYPE_CHECKING:
    from .builder import _Builder

__all__ = ["lstm"]


def _lstm_part(parameters: Tensor, *, attrs: dict[str, Any], width: int, part: int) -> Tensor:
    """Of all cells: the weights of the data, those of the state, or the sums of the two biases."""
    layout = layout_of(attrs)
    tensors = layout.unpack(parameters, width)
    if part < 2:
        return torch.stack(tensors[part::4])
    return torch.stack([a + b for a, b in zip(tensors[2::4], tensors[3::4], strict=True)])


LSTM_PART = constant_op("lstm_weights", _lstm_part, "attrs", "width", "part")


def lstm_part(node: Node, part: int) -> Entry:
    """A part of an LSTM's parameters as a node of its own."""
    attrs, width = node.full_attrs, shape_at(node.inputs[0])[2]
    cells, rows = attrs["num_layers"] * (2 if attrs["bidirectional"] else 1), 4 * attrs["state_size"]
    shape = (cells, rows) if part == 2 else (cells, rows, width if part == 0 else attrs["state_size"])
    own = {"attrs": attrs, "width": width, "part": part}
    name = f"{node.name}_{('weights', 'recurrent_weights', 'bias')[part]}"
    return make(LSTM_PART, node, [node.inputs[1]], own, [Spec(shape, torch.float32)], name)


def lstm(builder: _Builder, node: Node) -> list[Value]:
    """All layers as one primitive; the weights are cut out of the vector of parameters."""
    api, attrs, inputs = builder.api, node.full_attrs, node.inputs
    (length, batch, width), hidden = shape_at(inputs[0]), attrs["state_size"]
    layers, directions = attrs["num_layers"], 2 if attrs["bidirectional"] else 1
    single = torch.float32
    data = builder._plain(inputs[0], (length, batch, width), node)
    states = [builder._plain(e, (layers, directions, batch, hidden), node) for e in inputs[2:4]]
    shapes = [(layers, directions, each, 4, hidden) for each in (width, hidden)]
    first, second = (api.any(shape, single) for shape in shapes)
    if builder.renewed:
        first, second = (builder.region.packing[builder.weights + i][2] for i in range(2))
    bias = api.plain((layers, directions, 4, hidden), single)
    result = api.plain((length, batch, directions * hidden), single)
    more = node.outputs > 1
    given = (data.descriptor, states[0].descriptor, (first, second), bias, result)
    primitive = api.lstm(*given, directions == 2, more)
    assert primitive.weights is not None and primitive.recurrent_weights is not None
    arguments = dict(zip((interface.STATE, interface.CELL), states, strict=True))
    arguments[interface.SOURCE] = data
    kinds = (
        (interface.WEIGHTS, primitive.weights),
        (interface.RECURRENT_WEIGHTS, primitive.recurrent_weights),
    )
    for part, (place, descriptor) in enumerate(kinds):
        size = shapes[part][2]
        # Rows-first in the parameters: (gates, hidden, inputs).
        rows = 4 * hidden * size
        source = api.plain(shapes[part], single, (directions * rows, rows, 1, hidden * size, size))
        arguments[place] = builder._packed(lambda p=part: lstm_part(node, p), source, descriptor)  # type: ignore[misc]
    place = builder.region.constant((id(node), "bias"), lambda: lstm_part(node, 2))
    arguments[interface.BIAS] = Value(bias, Place("constant", place))
    made = [builder._buffer(result)]
    if more:
        made += [builder._buffer(states[0].descriptor) for _ in range(2)]
        arguments |= dict(zip((interface.LAST_STATE, interface.LAST_CELL), made[1:], strict=True))
    builder._add(primitive, arguments, made[0], node)
    outer = api.plain((layers * directions, batch, hidden), single)
    return [made[0], *(Value(outer, value.place) for value in made[1:])]
