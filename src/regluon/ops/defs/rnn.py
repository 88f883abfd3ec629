"""Recurrent layers as one operator: several layers, both directions, over a whole sequence.

The parameters of all layers are one vector: for each layer and direction the weights of the input (``i2h``),
of the state (``h2h``) and, with a projection, of the projection (``h2r``); then, again for each layer and
direction, the two biases. That is the order of cuDNN, so torch's kernels read the vector in place.

The gates' rows are in torch's order too: input, forget, cell, output for an LSTM; reset, update, new for a
GRU, whose reset gate multiplies ``h2h`` after the bias was added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regluon.base.errors import MXNetError
from regluon.ops.defs.activation import dropout
from regluon.ops.defs.nn_shapes import complete, dimension, is_known
from regluon.ops.opdef import Spec, operator

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
_KERNELS: dict[str, Any] = {
    "rnn_relu": torch.rnn_relu,
    "rnn_tanh": torch.rnn_tanh,
    "lstm": torch.lstm,
    "gru": torch.gru,
}


@dataclass(frozen=True)
class _Layout:
    """The sizes of a stack of recurrent layers."""

    mode: str
    layers: int
    directions: int
    hidden: int
    projection: int | None

    @property
    def output(self) -> int:
        """What one direction gives: the size of its state."""
        return self.hidden if self.projection is None else self.projection

    @property
    def rows(self) -> int:
        """Rows of a weight: all gates together."""
        return _GATES[self.mode] * self.hidden

    def weights(self, width: int) -> list[tuple[int, int]]:
        """The shapes of all weights, in order, for an input of ``width``."""
        shapes = []
        for layer in range(self.layers):
            columns = width if layer == 0 else self.output * self.directions
            for _ in range(self.directions):
                shapes += [(self.rows, columns), (self.rows, self.output)]
                if self.projection is not None:
                    shapes.append((self.projection, self.hidden))
        return shapes

    def size(self, width: int) -> int:
        """Length of the parameter vector."""
        biases = 2 * self.rows * self.layers * self.directions
        return sum(rows * columns for rows, columns in self.weights(width)) + biases

    def width(self, size: int) -> int | None:
        """The size of the input for which the vector has this length, if there is one."""
        fixed = self.size(0)
        inputs, rest = divmod(size - fixed, self.rows * self.directions)
        return inputs if rest == 0 and inputs > 0 else None

    def unpack(self, parameters: Tensor, width: int) -> list[Tensor]:
        """Views of the vector as torch's kernels want them: both weights, both biases, the projection."""
        shapes = self.weights(width)
        cells = self.layers * self.directions
        sizes = [rows * columns for rows, columns in shapes] + [self.rows] * (2 * cells)
        # One split, not slices: its backward is one concatenation.
        pieces = parameters.split_with_sizes(sizes)
        weights = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=False)]
        biases = pieces[len(shapes) :]
        each = len(shapes) // cells
        result: list[Tensor] = []
        for cell in range(cells):
            own = weights[cell * each : (cell + 1) * each]
            result += [*own[:2], *biases[2 * cell : 2 * cell + 2], *own[2:]]
        return result


def layout_of(attrs: dict[str, Any]) -> _Layout:
    """The sizes that an RNN operator's attributes give; raises MXNetError where they do not fit."""
    mode, projection = attrs["mode"], attrs["projection_size"]
    for name in ("state_size", "num_layers"):
        if attrs[name] < 1:
            raise MXNetError(f"RNN: {name} must be at least 1; received {attrs[name]}")
    if projection is not None and mode != "lstm":
        raise MXNetError(
            f"RNN: projection_size={projection} needs mode='lstm', the only one with a projection; received "
            f"mode={mode!r}"
        )
    if projection is not None and not 0 < projection <= attrs["state_size"]:
        raise MXNetError(
            f"RNN: projection_size must be in [1, state_size={attrs['state_size']}]; received {projection}"
        )
    directions = 2 if attrs["bidirectional"] else 1
    return _Layout(mode, attrs["num_layers"], directions, attrs["state_size"], projection)


def _used_inputs(attrs: dict[str, Any]) -> list[str]:
    names = ["data", "parameters", "state"]
    if attrs["mode"] == "lstm":
        names.append("state_cell")
    if attrs["use_sequence_length"]:
        names.append("sequence_length")
    return names


def _outputs(attrs: dict[str, Any]) -> int:
    if not attrs["state_outputs"]:
        return 1
    return 3 if attrs["mode"] == "lstm" else 2


def _fill(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    layout, data = layout_of(attrs), shapes[0]
    width = dimension(data, 2)
    if not is_known(width) and shapes[1] is not None and is_known(dimension(shapes[1], 0)):
        found = layout.width(shapes[1][0])
        if found is not None and data is not None and len(data) == 3:
            data, width = (*data[:2], found), found
    batch = dimension(data, 1)
    size = layout.size(width) if is_known(width) else -1
    wanted = {
        "parameters": (size,),
        "state": (layout.layers * layout.directions, batch, layout.output),
        "state_cell": (layout.layers * layout.directions, batch, layout.hidden),
        "sequence_length": (batch,),
    }
    names = _used_inputs(attrs)[1 : len(shapes)]
    return [
        data,
        *(complete(known, wanted[name]) for known, name in zip(shapes[1:], names, strict=False)),
    ]


def _infer(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    layout = layout_of(attrs)
    present = [spec for spec in specs if spec is not None]
    names = _used_inputs(attrs)
    if len(present) != len(names):
        raise MXNetError(
            f"RNN: mode={attrs['mode']!r} with use_sequence_length={attrs['use_sequence_length']} takes the "
            f"inputs {', '.join(names)}; received {len(present)} array(s)"
        )
    data = present[0]
    if len(data.shape) != 3:
        raise MXNetError(
            f"RNN: data must have the 3 axes (sequence length, batch size, input size); received shape "
            f"{tuple(data.shape)}"
        )
    length, batch, width = data.shape
    cells = layout.layers * layout.directions
    wanted = {
        "parameters": (layout.size(width),),
        "state": (cells, batch, layout.output),
        "state_cell": (cells, batch, layout.hidden),
        "sequence_length": (batch,),
    }
    for name, spec in zip(names[1:], present[1:], strict=True):
        if tuple(spec.shape) != wanted[name]:
            raise MXNetError(
                f"RNN: {name} must have shape {wanted[name]} for data {tuple(data.shape)}, "
                f"mode={layout.mode!r}, state_size={layout.hidden}, num_layers={layout.layers}, "
                f"bidirectional={layout.directions == 2}; received {tuple(spec.shape)}"
            )
    result = [Spec((length, batch, layout.output * layout.directions), data.dtype)]
    states = [Spec(wanted["state"], data.dtype), Spec(wanted["state_cell"], data.dtype)]
    return [*result, *states][: _outputs(attrs)]


States = tuple[Tensor, ...]


def _call(layout: _Layout, arguments: tuple[Any, ...], weights: Sequence[Tensor], states: States) -> Any:
    """One call of torch's kernel; ``arguments`` are the data, and the batch sizes where it is packed."""
    tracked = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (arguments[0], *weights, *states)
    )
    layers = len(weights) // (layout.directions * (4 if layout.projection is None else 5))
    start = states if layout.mode == "lstm" else states[0]
    length = arguments[0].shape[0]
    if layout.projection is not None and len(arguments) == 1 and arguments[0].device.type == "cpu" and length:
        # The kernel of whole batches warns that oneDNN knows no projection; that of packed ones does not.
        data = arguments[0]
        sizes = torch.full((length,), data.shape[1], dtype=torch.int64)
        output, *ended = _call(layout, (data.flatten(0, 1), sizes), weights, states)
        return (output.unflatten(0, (length, data.shape[1])), *ended)
    tail = (True, layers, 0.0, tracked, layout.directions == 2)
    if len(arguments) == 1:
        return _KERNELS[layout.mode](arguments[0], start, weights, *tail, False)
    return _KERNELS[layout.mode](*arguments, start, weights, *tail)


def _fused(
    layout: _Layout, data: Tensor, weights: Sequence[Tensor], states: States, lengths: Tensor | None
) -> tuple[Tensor, States]:
    """Layers one after another by a fused kernel; ``lengths`` (on the CPU) says where sequences end."""
    if lengths is None:
        output, *after = _call(layout, (data,), weights, states)
        return output, tuple(after)
    packed = pack_padded_sequence(data, lengths.clamp(min=1), enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None and back is not None
    sorted_states = tuple(state.index_select(1, order) for state in states)
    output, *after = _call(layout, (packed.data, packed.batch_sizes), weights, sorted_states)
    again = PackedSequence(output, packed.batch_sizes, order, back)
    padded, _ = pad_packed_sequence(again, total_length=data.shape[0])
    ended = tuple(state.index_select(1, back) for state in after)
    if bool((lengths == 0).any()):
        # The kernel knows no empty sequence: such a one gives zeros, and its state as it was.
        empty = (lengths == 0).to(data.device)
        padded = padded.masked_fill(empty[None, :, None], 0.0)
        ended = tuple(
            torch.where(empty[None, :, None], old, new) for old, new in zip(states, ended, strict=True)
        )
    return padded, ended


def _clip(cell: Tensor, bounds: tuple[float, float], clip_nan: bool) -> Tensor:
    low, high = bounds
    if clip_nan:
        cell = torch.where(torch.isnan(cell), torch.full_like(cell, low), cell)
    return cell.clamp(low, high)


def _clipped_direction(
    layout: _Layout,
    data: Tensor,
    weights: Sequence[Tensor],
    states: States,
    lengths: Tensor | None,
    backward: bool,
    clip: tuple[tuple[float, float], bool],
) -> tuple[Tensor, States]:
    """One direction of an LSTM whose cell state is clipped at each step; no kernel of torch's does that."""
    hidden, cell = states
    i2h, h2h, i2h_bias, h2h_bias = weights[:4]
    projected = torch.nn.functional.linear(data, i2h, i2h_bias)
    outputs: list[Tensor] = []
    steps = range(data.shape[0] - 1, -1, -1) if backward else range(data.shape[0])
    for step in steps:
        gates = projected[step] + torch.nn.functional.linear(hidden, h2h, h2h_bias)
        enter, forget, new, leave = gates.chunk(4, 1)
        after = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
        after = _clip(after, *clip)
        shown = torch.sigmoid(leave) * torch.tanh(after)
        if len(weights) > 4:
            shown = torch.nn.functional.linear(shown, weights[4])
        if lengths is None:
            hidden, cell = shown, after
            outputs.append(shown)
        else:
            inside = (lengths > step).to(data.device)[:, None]
            hidden, cell = torch.where(inside, shown, hidden), torch.where(inside, after, cell)
            outputs.append(torch.where(inside, shown, torch.zeros_like(shown)))
    return torch.stack(outputs[::-1] if backward else outputs), (hidden, cell)


def _clipped(
    layout: _Layout,
    data: Tensor,
    weights: Sequence[Tensor],
    states: States,
    lengths: Tensor | None,
    clip: tuple[tuple[float, float], bool],
) -> tuple[Tensor, States]:
    """One layer, both directions, of an LSTM with a clipped cell state."""
    each = len(weights) // layout.directions
    parts = [
        _clipped_direction(
            layout,
            data,
            weights[direction * each : (direction + 1) * each],
            tuple(state[direction] for state in states),
            lengths,
            direction == 1,
            clip,
        )
        for direction in range(layout.directions)
    ]
    ended = tuple(torch.stack(values) for values in zip(*(after for _, after in parts), strict=True))
    return torch.cat([output for output, _ in parts], 2), ended


def _lengths(sequence_length: Tensor, length: int) -> Tensor:
    """The lengths as whole numbers on the CPU, checked."""
    lengths = sequence_length.detach().to("cpu", torch.int64)
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= length:
        raise MXNetError(
            f"RNN: sequence_length must be in [0, {length}], the length of the data; received "
            f"{lengths.tolist()}"
        )
    return lengths


@operator(
    "RNN",
    aliases=("_npx_rnn",),
    npx="rnn",
    active=_used_inputs,
    outputs=_outputs,
    output_names=("output", "state_output", "statecell_output"),
    fill=_fill,
    infer=_infer,
    amp="low",
)
def rnn(
    data: Tensor,
    parameters: Tensor,
    state: Tensor,
    state_cell: Tensor | None = None,
    sequence_length: Tensor | None = None,
    *,
    state_size: int,
    num_layers: int,
    bidirectional: bool = False,
    mode: Literal["rnn_relu", "rnn_tanh", "lstm", "gru"],
    p: float = 0.0,
    state_outputs: bool = False,
    projection_size: int | None = None,
    lstm_state_clip_min: float | None = None,
    lstm_state_clip_max: float | None = None,
    lstm_state_clip_nan: bool = False,
    use_sequence_length: bool = False,
    _training: bool = False,
    _rng: torch.Generator | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Recurrent layers over whole sequences: Elman's, LSTM (Hochreiter, Schmidhuber 1997) or GRU (Cho 2014).

    ``data`` is (length, batch, input size); the result is (length, batch, directions * state size). ``state``
    and, for an LSTM, ``state_cell`` are (layers * directions, batch, state size) and begin the recurrence;
    with ``state_outputs`` their last values follow the result. ``parameters`` is the vector of all weights
    and biases that the module's description explains.

    In training a share ``p`` of what goes from one layer to the next is set to zero. ``projection_size``
    shortens an LSTM's output (Sak 2014). ``lstm_state_clip_min`` and ``_max`` bound the cell state at each
    step, where ``lstm_state_clip_nan`` also replaces NaN. With ``use_sequence_length`` each sequence ends
    where ``sequence_length`` (batch,) says: later outputs are 0, the states are those of the last step, and
    the backward direction begins there.

    Raises
    ------
    MXNetError
        For inputs whose shapes do not fit the sizes, a probability outside [0, 1), lengths beyond the data.
    """
    layout = _Layout(mode, num_layers, 2 if bidirectional else 1, state_size, projection_size)
    if sequence_length is None and mode != "lstm":
        # Without a cell state the lengths are the fourth input.
        sequence_length, state_cell = state_cell, None
    given = [data, parameters, state]
    given += [tensor for tensor in (state_cell, sequence_length) if tensor is not None]
    attrs = {
        "mode": mode,
        "state_size": state_size,
        "num_layers": num_layers,
        "bidirectional": bidirectional,
        "projection_size": projection_size,
        "state_outputs": state_outputs,
        "use_sequence_length": use_sequence_length,
    }
    _infer([Spec(tuple(tensor.shape), tensor.dtype) for tensor in given], attrs)
    if not 0.0 <= p < 1.0:
        raise MXNetError(f"RNN: p is the share that is dropped, 0 <= p < 1; received {p}")
    states = (state,) if state_cell is None else (state, state_cell)
    lengths = None
    if use_sequence_length and sequence_length is not None:
        lengths = _lengths(sequence_length, data.shape[0])
    weights = layout.unpack(parameters, data.shape[2])
    clip = _clip_of(mode, lstm_state_clip_min, lstm_state_clip_max, lstm_state_clip_nan)
    dropped = p if _training and num_layers > 1 else 0.0
    if clip is None and dropped == 0.0:
        output, ended = _fused(layout, data, weights, states, lengths)
    else:
        output, ended = _by_layer(layout, data, weights, states, lengths, clip, dropped, _rng)
    return (output, *ended) if state_outputs else output


def _clip_of(
    mode: str, low: float | None, high: float | None, clip_nan: bool
) -> tuple[tuple[float, float], bool] | None:
    if low is None and high is None:
        return None
    if mode != "lstm" or low is None or high is None or low > high:
        raise MXNetError(
            "RNN: clipping needs mode='lstm' and both lstm_state_clip_min <= lstm_state_clip_max; received "
            f"mode={mode!r}, lstm_state_clip_min={low}, lstm_state_clip_max={high}"
        )
    return (low, high), clip_nan


def _by_layer(
    layout: _Layout,
    data: Tensor,
    weights: Sequence[Tensor],
    states: States,
    lengths: Tensor | None,
    clip: tuple[tuple[float, float], bool] | None,
    dropped: float,
    generator: torch.Generator | None,
) -> tuple[Tensor, States]:
    """The layers one by one, with our own dropout between them: torch's draws do not follow our seeds."""
    each = len(weights) // layout.layers
    ended: list[States] = []
    for layer in range(layout.layers):
        own = weights[layer * each : (layer + 1) * each]
        cells = slice(layer * layout.directions, (layer + 1) * layout.directions)
        begin = tuple(state[cells] for state in states)
        if clip is None:
            data, after = _fused(layout, data, own, begin, lengths)
        else:
            data, after = _clipped(layout, data, own, begin, lengths, clip)
        ended.append(after)
        if dropped and layer + 1 < layout.layers:
            data = dropout(data, p=dropped, _training=True, _rng=generator)
    return data, tuple(torch.cat(values) for values in zip(*ended, strict=True))
