"""Recurrent cells; containers and modifiers of cells are found here, too."""

from __future__ import annotations

from typing import Any

from ..nn.making import make_parameter
from .base_cell import HybridRecurrentCell, RecurrentCell
from .container_cells import BidirectionalCell, HybridSequentialRNNCell, SequentialRNNCell
from .modifier_cells import DropoutCell, ModifierCell, ResidualCell, VariationalDropoutCell, ZoneoutCell

__all__ = [
    "BidirectionalCell",
    "DropoutCell",
    "GRUCell",
    "HybridRecurrentCell",
    "HybridSequentialRNNCell",
    "LSTMCell",
    "LSTMPCell",
    "ModifierCell",
    "RNNCell",
    "RecurrentCell",
    "ResidualCell",
    "SequentialRNNCell",
    "VariationalDropoutCell",
    "ZoneoutCell",
]

_ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign", "log_sigmoid", "mish")


def activated(F: Any, x: Any, activation: Any, name: str) -> Any:
    """An activation by name, or by a block or function."""
    if not isinstance(activation, str):
        return activation(x)
    if activation in _ACTIVATIONS:
        return F.Activation(x, act_type=activation, name=name)
    return getattr(F, activation)(x, name=name)


def add_gate_parameters(
    cell: Any, shapes: dict[str, tuple[int, ...]], initializers: dict[str, Any], dtype: Any = "float32"
) -> None:
    """The parameters of a cell, as attributes of these names."""
    for name, shape in shapes.items():
        parameter = make_parameter(
            cell, name, shape=shape, init=initializers[name], dtype=dtype, allow_deferred_init=True
        )
        setattr(cell, name, parameter)


def shown_sizes(cell: Any, axis: int = 1) -> str:
    """``3 -> 16``: the sizes of a cell's input and of all its gates."""
    shape = cell.i2h_weight.shape
    unknown = None if cell._level == 1 else -1
    return f"{shape[axis] if shape[axis] > 0 else unknown} -> {shape[0]}"


class _GatedCell(HybridRecurrentCell):
    """A cell with a fully connected layer from the input and one from the state."""

    _gates = 1

    def __init__(
        self,
        hidden_size: int,
        initializers: dict[str, Any],
        input_size: int,
        prefix: str | None,
        params: Any,
        output_size: int | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._input_size = input_size
        rows = self._gates * hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "i2h_weight": (rows, max(input_size, 0)),
            "h2h_weight": (rows, hidden_size if output_size is None else output_size),
        }
        if output_size is not None:
            shapes["h2r_weight"] = (output_size, hidden_size)
        shapes |= {"i2h_bias": (rows,), "h2h_bias": (rows,)}
        add_gate_parameters(self, shapes, initializers)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """One state of (batch, hidden_size)."""
        return [{"shape": (batch_size, self._hidden_size), "__layout__": "NC"}]

    def _shown(self) -> str:
        return shown_sizes(self)

    def _sums(self, F: Any, inputs: Any, state: Any, parameters: dict[str, Any]) -> tuple[Any, Any]:
        """What the input and what the state contribute to all gates."""
        rows = self._gates * self._hidden_size
        return tuple(
            F.FullyConnected(
                value,
                parameters[f"{kind}_weight"],
                parameters[f"{kind}_bias"],
                num_hidden=rows,
                name=self._step_name(kind),
            )
            for kind, value in (("i2h", inputs), ("h2h", state))
        )  # type: ignore[return-value]


class RNNCell(_GatedCell):
    """Elman's cell: ``h' = activation(W x + b + R h + c)``, which is also the output.

    Parameters
    ----------
    hidden_size : int
        Size of state and output.
    activation : str, Block or callable
        Which activation.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer : Initializer
        Of W, R, b and c.
    input_size : int
        Size of the inputs; 0 is inferred at the first call.
    """

    def __init__(
        self,
        hidden_size: int,
        activation: Any = "tanh",
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        super().__init__(hidden_size, initializers, input_size, prefix, params)
        self._activation = activation

    def _alias(self) -> str:
        return "rnn"

    def _shown(self) -> str:
        return f"{shown_sizes(self)}, {self._activation}"

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any, **parameters: Any
    ) -> Any:
        """One step."""
        i2h, h2h = self._sums(F, inputs, states[0], parameters)
        output = activated(F, i2h + h2h, self._activation, self._step_name("out"))
        return output, [output]


class LSTMCell(_GatedCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997).

    With the gates i, f, g, o in this order: ``c' = f c + i g``, ``h' = o activation(c')``. The states are h
    and c; h' is the output.

    Parameters as in `RNNCell`; ``activation`` is that of g and of the output, ``recurrent_activation`` that
    of the gates.
    """

    _gates = 4

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
    ) -> None:
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        super().__init__(hidden_size, initializers, input_size, prefix, params)
        self._activation = activation
        self._recurrent_activation = recurrent_activation

    def _alias(self) -> str:
        return "lstm"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Two states of (batch, hidden_size)."""
        return super().state_info(batch_size) * 2

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any, **parameters: Any
    ) -> Any:
        """One step."""
        i2h, h2h = self._sums(F, inputs, states[0], parameters)
        return lstm_step(self, F, i2h + h2h, states[1], self._activation, self._recurrent_activation)


def lstm_step(cell: Any, F: Any, sums: Any, memory: Any, activation: Any, gate: Any, axis: int = 1) -> Any:
    """Output and states of an LSTM from the sums of its gates, which lie one behind another on ``axis``."""
    name = cell._step_name
    parts = F.split(sums, num_outputs=4, axis=axis, name=name("slice"))
    enter = activated(F, parts[0], gate, name("i"))
    forget = activated(F, parts[1], gate, name("f"))
    new = activated(F, parts[2], activation, name("c"))
    leave = activated(F, parts[3], gate, name("o"))
    after = cell._named(forget * memory + enter * new, "state")
    output = cell._named(leave * activated(F, after, activation, name("state_act")), "out")
    return output, [output, after]


def gru_step(
    cell: Any, F: Any, sums: tuple[Any, Any], before: Any, activation: Any, gate: Any, axis: int = 1
) -> Any:
    """Output and state of a GRU from what the input and the state contribute to its gates."""
    name = cell._step_name
    enter = F.split(sums[0], num_outputs=3, axis=axis, name=name("i2h_slice"))
    back = F.split(sums[1], num_outputs=3, axis=axis, name=name("h2h_slice"))
    reset = activated(F, enter[0] + back[0], gate, name("r_act"))
    update = activated(F, enter[1] + back[1], gate, name("z_act"))
    new = activated(F, enter[2] + reset * back[2], activation, name("h_act"))
    output = cell._named((1.0 - update) * new + update * before, "out")
    return output, [output]


class GRUCell(_GatedCell):
    """Gated recurrent unit (Cho 2014) in cuDNN's form.

    With the gates r, z, n in this order: ``n = activation(W x + b + r (R h + c))``,
    ``h' = (1 - z) n + z h``, which is also the output.

    Parameters as in `LSTMCell`.
    """

    _gates = 3

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
    ) -> None:
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        super().__init__(hidden_size, initializers, input_size, prefix, params)
        self._activation = activation
        self._recurrent_activation = recurrent_activation

    def _alias(self) -> str:
        return "gru"

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any, **parameters: Any
    ) -> Any:
        """One step."""
        sums = self._sums(F, inputs, states[0], parameters)
        return gru_step(self, F, sums, states[0], self._activation, self._recurrent_activation)


class LSTMPCell(_GatedCell):
    """An LSTM whose output is projected to ``projection_size`` (Sak 2014).

    The states are the projected output (batch, projection_size) and the cell state (batch, hidden_size).
    Parameters as in `LSTMCell`, and ``h2r_weight_initializer`` for the projection.
    """

    _gates = 4

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "h2r_weight": h2r_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        super().__init__(hidden_size, initializers, input_size, prefix, params, projection_size)
        self._projection_size = projection_size

    def _alias(self) -> str:
        return "lstmp"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The projected output and the cell state."""
        sizes = (self._projection_size, self._hidden_size)
        return [{"shape": (batch_size, size), "__layout__": "NC"} for size in sizes]

    def _shown(self) -> str:
        return f"{shown_sizes(self)} -> {self._projection_size}"

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any, **parameters: Any
    ) -> Any:
        """One step."""
        i2h, h2h = self._sums(F, inputs, states[0], parameters)
        hidden, (_, memory) = lstm_step(self, F, i2h + h2h, states[1], "tanh", "sigmoid")
        output = F.FullyConnected(
            hidden,
            parameters["h2r_weight"],
            None,
            num_hidden=self._projection_size,
            no_bias=True,
            name=self._step_name("out"),
        )
        return output, [output, memory]
