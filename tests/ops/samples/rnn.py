"""Samples of the recurrent operator, with a reference that steps through the sequence in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Sample

_random = np.random.RandomState(31)
_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _step(mode: str, w: dict[str, np.ndarray], x: np.ndarray, h: np.ndarray, c: np.ndarray) -> Any:
    """One step of one direction: the new state and cell state, before a projection."""
    enter, back = x @ w["i2h"].T + w["i2h_bias"], h @ w["h2h"].T + w["h2h_bias"]
    if mode == "lstm":
        i, f, g, o = np.split(enter + back, 4, 1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(c), c
    if mode == "gru":
        (r, z, n), (hr, hz, hn) = np.split(enter, 3, 1), np.split(back, 3, 1)
        update = _sigmoid(z + hz)
        return (1 - update) * np.tanh(n + _sigmoid(r + hr) * hn) + update * h, c
    return (np.tanh if mode == "rnn_tanh" else lambda v: np.maximum(v, 0))(enter + back), c


def _weights(vector: np.ndarray, attrs: dict[str, Any], width: int) -> list[list[dict[str, np.ndarray]]]:
    """The vector's pieces by layer and direction."""
    hidden, layers = attrs["state_size"], attrs["num_layers"]
    directions = 2 if attrs.get("bidirectional") else 1
    projection = attrs.get("projection_size")
    rows, out = _GATES[attrs["mode"]] * hidden, projection or hidden
    cells: list[list[dict[str, np.ndarray]]] = [[{} for _ in range(directions)] for _ in range(layers)]
    place = 0

    def take(cell: dict[str, np.ndarray], name: str, *shape: int) -> None:
        nonlocal place
        size = int(np.prod(shape))
        cell[name] = vector[place : place + size].reshape(shape)
        place += size

    for layer, pair in enumerate(cells):
        for cell in pair:
            take(cell, "i2h", rows, width if layer == 0 else out * directions)
            take(cell, "h2h", rows, out)
            if projection:
                take(cell, "h2r", projection, hidden)
    for pair in cells:
        for cell in pair:
            take(cell, "i2h_bias", rows)
            take(cell, "h2h_bias", rows)
    assert place == len(vector)
    return cells


def reference(attrs: dict[str, Any]) -> Callable[..., Any]:
    """The recurrence of an operator call with these attributes, sequence by sequence."""
    mode = attrs["mode"]
    clip = attrs.get("lstm_state_clip_max")

    def one(x: np.ndarray, cells: Any, h: np.ndarray, c: np.ndarray) -> Any:
        after_h, after_c = h.copy(), c.copy()
        for layer, pair in enumerate(cells):
            outputs = []
            for direction, cell in enumerate(pair):
                place = layer * len(pair) + direction
                order = range(len(x)) if direction == 0 else range(len(x) - 1, -1, -1)
                seen: dict[int, np.ndarray] = {}
                hidden, memory = h[place : place + 1], c[place : place + 1]
                for step in order:
                    hidden, memory = _step(mode, cell, x[step : step + 1], hidden, memory)
                    if clip is not None:
                        bounded = np.clip(memory, attrs["lstm_state_clip_min"], clip)
                        # The output gate is what it was: the state is its share of the clipped cell state.
                        hidden = hidden / np.tanh(memory) * np.tanh(bounded)
                        memory = bounded
                    if "h2r" in cell:
                        hidden = hidden @ cell["h2r"].T
                    seen[step] = hidden[0]
                after_h[place], after_c[place] = hidden, memory
                outputs.append(np.array([seen[step] for step in range(len(x))]).reshape(len(x), h.shape[1]))
            x = np.concatenate(outputs, 1)
        return x, after_h, after_c

    def run(data: np.ndarray, vector: np.ndarray, state: np.ndarray, *rest: np.ndarray) -> Any:
        cells = _weights(vector, attrs, data.shape[2])
        memory = rest[0] if mode == "lstm" else state
        lengths = rest[-1] if attrs.get("use_sequence_length") else [len(data)] * data.shape[1]
        directions = len(cells[0])
        out = np.zeros((*data.shape[:2], state.shape[2] * directions), data.dtype)
        after_h, after_c = state.copy(), memory.copy()
        for item, length in enumerate(np.asarray(lengths, int)):
            shown, h, c = one(data[:length, item], cells, state[:, item], memory[:, item])
            out[:length, item], after_h[:, item], after_c[:, item] = shown, h, c
        if not attrs.get("state_outputs"):
            return out
        return (out, after_h, after_c) if mode == "lstm" else (out, after_h)

    return run


def sample(length: int = 4, batch: int = 3, width: int = 2, lengths: Any = None, **attrs: Any) -> Sample:
    """A call with random inputs."""
    attrs = {"state_size": 3, "num_layers": 1, **attrs}
    directions = 2 if attrs.get("bidirectional") else 1
    hidden, layers = attrs["state_size"], attrs["num_layers"]
    out = attrs.get("projection_size") or hidden
    rows = _GATES[attrs["mode"]] * hidden
    projected = (attrs.get("projection_size") or 0) * hidden
    size = 0
    for layer in range(layers):
        columns = width if layer == 0 else out * directions
        size += directions * (rows * (columns + out + 2) + projected)

    def normal(*shape: int) -> np.ndarray:
        return (_random.randn(*shape) * 0.7).astype(np.float32)

    inputs = [normal(length, batch, width), normal(size), normal(layers * directions, batch, out)]
    if attrs["mode"] == "lstm":
        inputs.append(normal(layers * directions, batch, hidden))
    if lengths is not None:
        attrs["use_sequence_length"] = True
        inputs.append(np.array(lengths, np.float32))
    return Sample(inputs, attrs, reference(attrs), gradient=lengths is None, rtol=1e-4, atol=1e-5)


SAMPLES: dict[str, list[Sample]] = {
    "RNN": [
        sample(mode="rnn_relu", state_outputs=True),
        sample(mode="rnn_tanh", num_layers=2),
        sample(mode="gru", num_layers=2, bidirectional=True, state_outputs=True),
        sample(mode="lstm", num_layers=2, bidirectional=True, state_outputs=True),
        sample(mode="lstm", projection_size=2, num_layers=2, state_outputs=True),
        sample(
            mode="lstm", bidirectional=True, num_layers=2, lstm_state_clip_min=-0.2, lstm_state_clip_max=0.2
        ),
        sample(mode="lstm", num_layers=2, bidirectional=True, state_outputs=True, lengths=[4, 1, 3]),
        sample(mode="gru", bidirectional=True, state_outputs=True, lengths=[2, 0, 4]),
        sample(
            mode="lstm",
            bidirectional=True,
            projection_size=2,
            state_outputs=True,
            lengths=[2, 0, 4],
            lstm_state_clip_min=-0.3,
            lstm_state_clip_max=0.1,
        ),
    ]
}
