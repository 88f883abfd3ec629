"""ONNX mapping of the recurrent operator: one ONNX layer for each of its layers."""

from __future__ import annotations

from typing import Any

import torch

from ..graph.node import Node
from .emitter import Emitter, Unmapped, maps

__all__: list[str] = []

# mode -> ONNX operator, number of gates, and the place of each of ONNX's gates among ours
_MODES: dict[str, tuple[str, list[int]]] = {
    "rnn_relu": ("RNN", [0]),
    "rnn_tanh": ("RNN", [0]),
    "lstm": ("LSTM", [0, 3, 1, 2]),
    "gru": ("GRU", [1, 0, 2]),
}


class _Vector:
    """The parameters of all layers as one vector, cut into pieces one after the other."""

    def __init__(self, m: Emitter, name: str) -> None:
        self.m, self.name, self.place = m, name, 0

    def take(self, shape: list[int]) -> str:
        """The next piece, in a shape."""
        m, count = self.m, 1
        for size in shape:
            count *= size
        bounds = [m.ints([self.place]), m.ints([self.place + count]), m.ints([0])]
        self.place += count
        return m.reshape(m.add("Slice", [self.name, *bounds]), shape)


def _gates(m: Emitter, name: str, hidden: int, order: list[int]) -> str:
    """Rows of a weight or a bias with the gates in ONNX's order."""
    if order == list(range(len(order))):
        return name
    parts = m.add("Split", [name, m.ints([hidden] * len(order))], outputs=len(order), axis=0)
    return str(m.add("Concat", [parts[place] for place in order], axis=0))


def _check(node: Node) -> dict[str, Any]:
    attrs = node.full_attrs
    if attrs["projection_size"] or attrs["use_sequence_length"] or attrs["lstm_state_clip_min"] is not None:
        raise Unmapped(f"projections, lengths and clipped states (node {node.name}) are not mapped to ONNX")
    return attrs


@maps("RNN")
def _rnn(m: Emitter, node: Node, inputs: list[str]) -> list[str]:
    attrs = _check(node)
    mode, hidden, layers = attrs["mode"], attrs["state_size"], attrs["num_layers"]
    directions = 2 if attrs["bidirectional"] else 1
    order = _MODES[mode][1]
    rows = len(order) * hidden
    width = m.spec(node.inputs[0]).shape[2]
    vector = _Vector(m, inputs[1])
    weights, biases = [], []
    for layer in range(layers):
        columns = width if layer == 0 else hidden * directions
        pairs = [(vector.take([rows, columns]), vector.take([rows, hidden])) for _ in range(directions)]
        weights.append([[_gates(m, part, hidden, order) for part in pair] for pair in pairs])
    for _ in range(layers):
        pairs = [(vector.take([rows]), vector.take([rows])) for _ in range(directions)]
        biases.append([[_gates(m, part, hidden, order) for part in pair] for pair in pairs])
    data, states = inputs[0], []
    for layer in range(layers):
        data, state = _layer(m, node, data, inputs[2:], layer, (weights[layer], biases[layer]))
        states.append(state)
    if not attrs["state_outputs"]:
        return [data]
    return [data, *(str(m.add("Concat", list(parts), axis=0)) for parts in zip(*states, strict=True))]


def _layer(
    m: Emitter, node: Node, data: str, begin: list[str], layer: int, parameters: tuple[Any, Any]
) -> tuple[str, list[str]]:
    """One layer: its sequence (length, batch, directions * hidden) and its last states."""
    attrs = node.full_attrs
    mode, hidden = attrs["mode"], attrs["state_size"]
    directions = 2 if attrs["bidirectional"] else 1
    kind = _MODES[mode][0]
    stacked = []
    for place in (0, 1):
        parts = [m.add("Unsqueeze", [pair[place], m.ints([0])]) for pair in parameters[0]]
        stacked.append(m.add("Concat", parts, axis=0))
    rows = [m.add("Unsqueeze", [m.add("Concat", pair, axis=0), m.ints([0])]) for pair in parameters[1]]
    stacked.append(m.add("Concat", rows, axis=0))
    bounds = [m.ints([layer * directions]), m.ints([(layer + 1) * directions]), m.ints([0])]
    count = 2 if mode == "lstm" else 1
    first = [m.add("Slice", [state, *bounds]) for state in begin[:count]]
    activation = {"rnn_relu": "Relu", "rnn_tanh": "Tanh"}.get(mode)
    made = m.add(
        kind,
        [data, *stacked, "", *first],
        outputs=1 + count,
        hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward",
        linear_before_reset=1 if mode == "gru" else None,
        activations=None if activation is None else [activation] * directions,
    )
    # (length, directions, batch, hidden) -> (length, batch, directions * hidden)
    turned = m.transpose(made[0], [0, 2, 1, 3])
    return str(m.add("Reshape", [turned, m.ints([0, 0, directions * hidden])])), list(made[1:])


@maps("_rnn_param_concat")
def _join(m: Emitter, node: Node, inputs: list[str]) -> str:
    specs = [m.spec(entry) for entry in node.inputs]
    parts = [
        name if len(spec.shape) == 1 else m.reshape(name, [-1])
        for name, spec in zip(inputs, specs, strict=True)
    ]
    if any(spec.dtype is not torch.float32 for spec in specs):
        raise Unmapped(f"recurrent parameters of other types than float32 (node {node.name}) are not mapped")
    return str(m.add("Concat", parts, axis=0))
