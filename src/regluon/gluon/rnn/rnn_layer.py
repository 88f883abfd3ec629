"""Recurrent layers over whole sequences, on the fused operator RNN.

At API level 1 a layer has a parameter for each weight (``lstm0_l0_i2h_weight``), at level 2 one vector,
``rnn_param``, as MXNet 2.0 has it. Files of either form are read by both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ... import initializer
from ...array import NDArray
from ...ops.registry import get
from ...runtime.invoke import invoke
from ...runtime.state import state
from ...symbol import Symbol
from ..hybrid import HybridBlock
from ..nn.making import make_parameter
from ..parameter_errors import ParameterValueError
from .states import made_by, zeros_for

__all__ = ["GRU", "LSTM", "RNN"]

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
_FIRST = re.compile(r"(.*?)l0_i2h_weight$")


class _RNNLayer(HybridBlock):
    """What RNN, LSTM and GRU share."""

    def __init__(
        self,
        mode: str,
        hidden_size: int,
        num_layers: int,
        layout: str,
        dropout: float,
        bidirectional: bool,
        input_size: int,
        initializers: dict[str, Any],
        dtype: Any,
        use_sequence_length: bool,
        prefix: str | None,
        params: Any,
        projection_size: int | None = None,
        clip: tuple[float | None, float | None, bool] = (None, None, False),
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        if layout not in ("TNC", "NTC"):
            raise ParameterValueError(f"Invalid layout {layout}; must be one of ['TNC' or 'NTC']")
        self._mode = mode
        self._hidden_size = hidden_size
        self._num_layers = num_layers
        self._layout = layout
        self._dropout = dropout
        self._dir = 2 if bidirectional else 1
        self._projection_size = projection_size
        self._clip = clip
        self._dtype = dtype
        self._use_sequence_length = use_sequence_length
        if self._level == 1:
            self._make_weights(max(input_size, 0), initializers, dtype)
        else:
            self._make_vector(max(input_size, 0), initializers, dtype)

    # Parameters ----------------------------------------------------------------------

    def _cells(self) -> Iterator[tuple[int, str]]:
        for layer in range(self._num_layers):
            for side in ("l", "r")[: self._dir]:
                yield layer, side

    @property
    def _output_size(self) -> int:
        return self._hidden_size if self._projection_size is None else self._projection_size

    def _weight_names(self) -> list[str]:
        """The weights of one cell, in the order of the vector."""
        names = ["i2h_weight", "h2h_weight"]
        return names if self._projection_size is None else [*names, "h2r_weight"]

    def _shape(self, layer: int, name: str, width: int) -> tuple[int, ...]:
        """The shape of one parameter of a cell, for an input of ``width``."""
        rows = _GATES[self._mode] * self._hidden_size
        if name.endswith("bias"):
            return (rows,)
        if name == "h2r_weight":
            return (self._output_size, self._hidden_size)
        if name == "h2h_weight":
            return (rows, self._output_size)
        return (rows, width if layer == 0 else self._output_size * self._dir)

    def _pieces(self, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The names (``l0_i2h_weight``) and shapes of the vector's pieces, in order."""
        for names in (self._weight_names(), ["i2h_bias", "h2h_bias"]):
            for layer, side in self._cells():
                for name in names:
                    yield f"{side}{layer}_{name}", self._shape(layer, name, width)

    def _make_weights(self, width: int, initializers: dict[str, Any], dtype: Any) -> None:
        names = ["i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias", *self._weight_names()[2:]]
        for layer, side in self._cells():
            for name in names:
                parameter = make_parameter(
                    self,
                    f"{side}{layer}_{name}",
                    shape=self._shape(layer, name, width),
                    init=initializers[name],
                    dtype=dtype,
                    allow_deferred_init=True,
                )
                setattr(self, f"{side}{layer}_{name}", parameter)

    def _make_vector(self, width: int, initializers: dict[str, Any], dtype: Any) -> None:
        init = initializer.RNNFused(
            self._mode,
            self._num_layers,
            self._hidden_size,
            self._dir == 2,
            self._projection_size,
            **{f"{name}_initializer": init for name, init in initializers.items()},
        )
        self.rnn_param = make_parameter(
            self,
            "rnn_param",
            shape=(self._size(width) if width else 0,),
            init=init,
            dtype=dtype,
            allow_deferred_init=True,
        )

    def _size(self, width: int) -> int:
        total = 0
        for _, shape in self._pieces(width):
            total += shape[0] * (shape[1] if len(shape) == 2 else 1)
        return total

    def _width(self) -> int:
        """The size of the input; 0 while it is not known."""
        if self._level == 1:
            return max(int(self.l0_i2h_weight.shape[1]), 0)
        size = int(self.rnn_param.shape[0])
        return (
            (size - self._size(0)) // (_GATES[self._mode] * self._hidden_size * self._dir) if size > 0 else 0
        )

    def infer_shape(self, inputs: Any, *args: Any) -> None:
        """Set the parameters' shapes from the size of the inputs' last axis."""
        width = int(inputs.shape[2])
        if self._level == 1:
            for side in ("l", "r")[: self._dir]:
                getattr(self, f"{side}0_i2h_weight").shape = self._shape(0, "i2h_weight", width)
        else:
            self.rnn_param.shape = (self._size(width),)

    def cast(self, dtype: Any) -> None:
        """Convert all parameters, and the states that `begin_state` makes, to ``dtype``."""
        super().cast(dtype)
        self._dtype = dtype

    # Files ----------------------------------------------------------------------

    def _saved_name(self, name: str) -> str:
        """The name of ``l0_i2h_weight`` in a file of MXNet 1.x: that of a stack of single cells."""
        side, layer, rest = name[0], *name[1:].split("_", 1)
        cell = f"{side}_cell." if self._dir == 2 else ""
        return f"_unfused.{layer}.{cell}{rest}"

    def _collect_with_prefix(self, prefix: str = "") -> dict[str, Any]:
        if self._level >= 2:
            return super()._collect_with_prefix(prefix)
        start = f"{prefix}." if prefix else ""
        return {start + self._saved_name(name): value for name, value in self._reg_params.items()}

    _collect_params_with_prefix = _collect_with_prefix

    def _adapt_saved(self, path: str, values: dict[str, Any]) -> None:
        """Give the arrays of a file that another form of this layer wrote the names of this one."""
        start = f"{path}." if path else ""
        if f"{start}rnn_param" in values:
            if self._level == 1:
                values.update(self._unpacked(start, values.pop(f"{start}rnn_param")))
            return
        found = self._spelled(start, values)
        if found is None:
            return
        arrays = {name: values.pop(key) for name, key in found.items()}
        if self._level == 1:
            values.update({start + self._saved_name(name): array for name, array in arrays.items()})
        else:
            first = next(iter(arrays.values()))
            vector = torch.cat([array._t.reshape(-1) for array in arrays.values()])
            values[f"{start}rnn_param"] = type(first)._wrap(vector, first._ctx)

    def _spelled(self, start: str, values: dict[str, Any]) -> dict[str, str] | None:
        """The names in a file of all pieces, in the order of the vector, if it has them one by one."""
        names = [name for name, _ in self._pieces(1)]
        spellings: list[Callable[[str], str]] = [lambda n: start + self._saved_name(n), lambda n: start + n]
        prefixes = {match[1] for match in map(_FIRST.match, values) if match is not None}
        if not start and len(prefixes) == 1:
            (full,) = prefixes
            spellings.append(lambda n: full + n)
        for spelling in spellings:
            found = {name: spelling(name) for name in names}
            if all(key in values for key in found.values()):
                return found
        return None

    def _unpacked(self, start: str, vector: Any) -> dict[str, Any]:
        rows = _GATES[self._mode] * self._hidden_size * self._dir
        width, rest = divmod(int(vector.shape[0]) - self._size(0), rows)
        if rest or width <= 0:
            raise ParameterValueError(
                f"{self.name} cannot be loaded: no {self!r} has a vector of {vector.shape[0]} parameters. "
                "Build the same layer that was saved."
            )
        found, place = {}, 0
        for name, shape in self._pieces(width):
            count = shape[0] * (shape[1] if len(shape) == 2 else 1)
            piece = vector._t[place : place + count].reshape(shape)
            found[start + self._saved_name(name)] = type(vector)._wrap(piece, vector._ctx)
            place += count
        return found

    # States ----------------------------------------------------------------------

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape, layout and type of each state."""
        cells = self._num_layers * self._dir
        sizes = [self._output_size]
        if self._mode == "lstm":
            sizes.append(self._hidden_size)
        return [
            {"shape": (cells, batch_size, size), "__layout__": "LNC", "dtype": self._dtype} for size in sizes
        ]

    def begin_state(self, batch_size: int = 0, func: Any = None, **kwargs: Any) -> list[Any]:
        """Initial states for a batch.

        Parameters
        ----------
        batch_size : int
            Number of sequences.
        func : callable, optional
            Called with ``shape`` and ``dtype`` for each state; zeros by default.
        **kwargs
            Passed to ``func``, such as ``ctx``.

        Returns
        -------
        list of arrays, each (layers * directions, batch_size, size).
        """
        return made_by(func, self.state_info(batch_size), kwargs)

    def _check_states(self, inputs: Any, states: Any) -> list[Any]:
        states = [states] if isinstance(states, (NDArray, Symbol)) else list(states)
        infos = self.state_info()
        if len(states) != len(infos):
            raise ParameterValueError(
                f"{type(self).__name__} takes {len(infos)} state(s); received {len(states)}. "
                "Use begin_state()."
            )
        if state.tracer is None and isinstance(inputs, NDArray):
            batch = inputs.shape[self._layout.find("N")]
            for given, info in zip(states, self.state_info(batch), strict=True):
                if tuple(given.shape) != info["shape"]:
                    raise ParameterValueError(
                        f"Invalid recurrent state shape. Expecting {info['shape']}, got {tuple(given.shape)}."
                    )
        return states

    # Computation ----------------------------------------------------------------------

    def _vector(self, F: Any, parameters: dict[str, Any]) -> Any:
        if self._level >= 2:
            return parameters["rnn_param"]
        flat = [F.reshape(parameters[name], shape=(-1,)) for name, _ in self._pieces(1)]
        return invoke(get("_rnn_param_concat"), flat, {"dim": 0})

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any = None, sequence_length: Any = None, **parameters: Any
    ) -> Any:
        """The outputs, and the last states where initial ones were given.

        ``inputs`` is (length, batch, size), or (batch, length, size) with ``layout="NTC"``.
        """
        if self._use_sequence_length != (sequence_length is not None):
            raise ParameterValueError(
                f"{type(self).__name__}: sequence_length was {'not ' * self._use_sequence_length}given, but "
                f"use_sequence_length={self._use_sequence_length}; make the layer with "
                f"use_sequence_length={not self._use_sequence_length}, or "
                f"{'pass' if self._use_sequence_length else 'leave out'} sequence_length"
            )
        skip = states is None
        if states is not None:
            states = self._check_states(inputs, states)
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, dim1=0, dim2=1)
        if states is None:
            states = zeros_for(inputs, 1, self.state_info())
        low, high, clip_nan = self._clip
        arrays: dict[str, Any] = dict(zip(("state", "state_cell"), states, strict=False))
        if sequence_length is not None:
            arrays["sequence_length"] = sequence_length
        result = F.RNN(
            inputs,
            self._vector(F, parameters),
            **arrays,
            mode=self._mode,
            state_size=self._hidden_size,
            num_layers=self._num_layers,
            bidirectional=self._dir == 2,
            p=self._dropout,
            state_outputs=True,
            projection_size=self._projection_size,
            lstm_state_clip_min=low,
            lstm_state_clip_max=high,
            lstm_state_clip_nan=clip_nan,
            use_sequence_length=self._use_sequence_length,
        )
        output, *after = (result[index] for index in range(1 + len(states)))
        if self._layout == "NTC":
            output = F.swapaxes(output, dim1=0, dim2=1)
        return output if skip else (output, after)

    def __repr__(self) -> str:
        text = f"{self._width() or None} -> {self._hidden_size}, {self._layout}"
        if self._num_layers != 1:
            text += f", num_layers={self._num_layers}"
        if self._dropout != 0:
            text += f", dropout={self._dropout}"
        if self._dir == 2:
            text += ", bidirectional"
        return f"{type(self).__name__}({text})"


class RNN(_RNNLayer):
    """Elman's recurrent layers: ``h_t = activation(W x_t + b + R h_(t-1) + c)``.

    Parameters
    ----------
    hidden_size : int
        Size of a direction's state.
    num_layers : int
        Layers on top of each other.
    activation : {"relu", "tanh"}
        Which activation.
    layout : {"TNC", "NTC"}
        Axes of inputs and outputs: T length, N batch, C size.
    dropout : float
        Share of what goes from one layer to the next that training sets to zero.
    bidirectional : bool
        Whether a second direction reads the sequence from its end; outputs are concatenated.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer : Initializer
        Of the weights and biases of input (i2h) and state (h2h).
    input_size : int
        Size of the inputs; 0 is inferred at the first call.
    dtype : dtype
        Of parameters and states.
    use_sequence_length : bool
        Whether calls take ``sequence_length`` (batch,): outputs behind it are zeros, and states are those of
        each sequence's last step.

    Call: ``layer(inputs)`` gives the outputs; ``layer(inputs, states)`` the outputs and a list of the last
    states. States are (layers * directions, batch, hidden_size).
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        dtype: Any = "float32",
        use_sequence_length: bool = False,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        if activation not in ("relu", "tanh"):
            raise ParameterValueError(f"RNN: activation is 'relu' or 'tanh'; received {activation!r}")
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        super().__init__(
            f"rnn_{activation}",
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            initializers,
            dtype,
            use_sequence_length,
            prefix,
            params,
        )


class LSTM(_RNNLayer):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), with a state and a cell state.

    Parameters as in `RNN`, and

    Parameters
    ----------
    projection_size : int, optional
        Size that outputs and state are projected to (Sak 2014); the cell state keeps ``hidden_size``.
    h2r_weight_initializer : Initializer, optional
        Of the projection.
    state_clip_min, state_clip_max : float, optional
        Bounds of the cell state at each step.
    state_clip_nan : bool
        Whether clipping replaces NaN, too.
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: Any = "float32",
        use_sequence_length: bool = False,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
            "h2r_weight": h2r_weight_initializer,
        }
        super().__init__(
            "lstm",
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            initializers,
            dtype,
            use_sequence_length,
            prefix,
            params,
            projection_size,
            (state_clip_min, state_clip_max, state_clip_nan),
        )


class GRU(_RNNLayer):
    """Gated recurrent units (Cho 2014), in cuDNN's form: the reset gate multiplies ``R h + c``.

    Parameters as in `RNN`, without ``activation``.
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: Any = "float32",
        use_sequence_length: bool = False,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        super().__init__(
            "gru",
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            initializers,
            dtype,
            use_sequence_length,
            prefix,
            params,
        )
