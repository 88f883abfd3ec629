"""Recurrent cells with convolutions from the input and from the state (Shi 2015)."""

from __future__ import annotations

from typing import Any

from .base_cell import CellStateError, HybridRecurrentCell
from .rnn_cell import activated, add_gate_parameters, gru_step, lstm_step, shown_sizes

__all__ = [
    "Conv1DGRUCell",
    "Conv1DLSTMCell",
    "Conv1DRNNCell",
    "Conv2DGRUCell",
    "Conv2DLSTMCell",
    "Conv2DRNNCell",
    "Conv3DGRUCell",
    "Conv3DLSTMCell",
    "Conv3DRNNCell",
]

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def _sizes(value: Any, rank: int, what: str) -> tuple[int, ...]:
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank:
        raise CellStateError(f"{what} must be a number or {rank} numbers; received {value!r}")
    return sizes


class _ConvCell(HybridRecurrentCell):
    """What all convolutional cells share.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of one input without the batch axis, in the order of ``conv_layout``.
    hidden_channels : int
        Channels of state and output.
    i2h_kernel, h2h_kernel : int or tuple of int
        Sizes of the kernels over the input and over the state; those over the state are odd, so that it
        keeps its size.
    i2h_pad, i2h_dilate, h2h_dilate : int or tuple of int
        Padding of the input, and dilations.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer : Initializer
        Of the parameters.
    conv_layout : str
        Axes of inputs, states and outputs.
    activation : str, Block or callable
        Of outputs and new values.
    """

    _rank = 2
    _gates = 1
    _kind = "rnn"

    def __init__(
        self,
        input_shape: Any,
        hidden_channels: int,
        i2h_kernel: Any,
        h2h_kernel: Any,
        i2h_pad: Any = 0,
        i2h_dilate: Any = 1,
        h2h_dilate: Any = 1,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        conv_layout: str | None = None,
        activation: Any = "tanh",
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        rank, layout = self._rank, _LAYOUTS[self._rank][0] if conv_layout is None else conv_layout
        if layout not in _LAYOUTS[rank]:
            raise CellStateError(
                f"{type(self).__name__}: conv_layout is one of {', '.join(_LAYOUTS[rank])}; received "
                f"{layout!r}"
            )
        self._hidden_channels = hidden_channels
        self._input_shape = _sizes(input_shape, rank + 1, "input_shape")
        self._conv_layout = layout
        self._activation = activation
        self._i2h_kernel = _sizes(i2h_kernel, rank, "i2h_kernel")
        self._h2h_kernel = _sizes(h2h_kernel, rank, "h2h_kernel")
        if any(size % 2 == 0 for size in self._h2h_kernel):
            raise CellStateError(f"Only support odd number, get h2h_kernel= {h2h_kernel}")
        self._i2h_pad = _sizes(i2h_pad, rank, "i2h_pad")
        self._i2h_dilate = _sizes(i2h_dilate, rank, "i2h_dilate")
        self._h2h_dilate = _sizes(h2h_dilate, rank, "h2h_dilate")
        self._channel_axis = layout.find("C")
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        add_gate_parameters(self, self._parameter_shapes(), initializers)

    def _alias(self) -> str:
        return f"conv_{self._kind}"

    def _parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        rows = self._gates * self._hidden_channels

        def weight(channels: int, kernel: tuple[int, ...]) -> tuple[int, ...]:
            return (rows, channels, *kernel) if self._channel_axis == 1 else (rows, *kernel, channels)

        return {
            "i2h_weight": weight(self._input_shape[self._channel_axis - 1], self._i2h_kernel),
            "h2h_weight": weight(self._hidden_channels, self._h2h_kernel),
            "i2h_bias": (rows,),
            "h2h_bias": (rows,),
        }

    def _state_shape(self) -> tuple[int, ...]:
        """The shape of a state without the batch axis: the space that the input's convolution leaves."""
        space = [size for axis, size in enumerate(self._input_shape) if axis != self._channel_axis - 1]
        left = [
            size + 2 * pad - dilate * (kernel - 1)
            for size, pad, dilate, kernel in zip(
                space, self._i2h_pad, self._i2h_dilate, self._i2h_kernel, strict=True
            )
        ]
        if any(size < 1 for size in left):
            raise CellStateError(
                f"{type(self).__name__}: the kernel {self._i2h_kernel} does not fit the input "
                f"{self._input_shape} with pad {self._i2h_pad}"
            )
        left.insert(self._channel_axis - 1, self._hidden_channels)
        return tuple(left)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """One state (two for an LSTM) in the layout of the cell."""
        info = {"shape": (batch_size, *self._state_shape()), "__layout__": self._conv_layout}
        return [dict(info) for _ in range(2 if self._kind == "lstm" else 1)]

    def _shown(self) -> str:
        return f"{shown_sizes(self, self._channel_axis)}, {self._activation}, {self._conv_layout}"

    def _sums(self, F: Any, inputs: Any, state: Any, parameters: dict[str, Any]) -> tuple[Any, Any]:
        same = tuple(
            dilate * (kernel - 1) // 2
            for dilate, kernel in zip(self._h2h_dilate, self._h2h_kernel, strict=True)
        )
        settings = (
            ("i2h", inputs, self._i2h_kernel, self._i2h_pad, self._i2h_dilate),
            ("h2h", state, self._h2h_kernel, same, self._h2h_dilate),
        )
        return tuple(
            F.Convolution(
                value,
                parameters[f"{name}_weight"],
                parameters[f"{name}_bias"],
                kernel=kernel,
                pad=pad,
                dilate=dilate,
                num_filter=self._gates * self._hidden_channels,
                layout=self._conv_layout,
                name=self._step_name(name),
            )
            for name, value, kernel, pad, dilate in settings
        )  # type: ignore[return-value]

    def hybrid_forward(  # type: ignore[override]
        self, F: Any, inputs: Any, states: Any, **parameters: Any
    ) -> Any:
        """One step."""
        i2h, h2h = self._sums(F, inputs, states[0], parameters)
        axis, activation = self._channel_axis, self._activation
        if self._kind == "lstm":
            return lstm_step(self, F, i2h + h2h, states[1], activation, "sigmoid", axis)
        if self._kind == "gru":
            return gru_step(self, F, (i2h, h2h), states[0], activation, "sigmoid", axis)
        output = activated(F, i2h + h2h, activation, self._step_name("out"))
        return output, [output]


class Conv1DRNNCell(_ConvCell):
    """A recurrent cell with convolutions over one axis."""

    _rank, _gates, _kind = 1, 1, "rnn"


class Conv2DRNNCell(_ConvCell):
    """A recurrent cell with convolutions over two axes."""

    _rank, _gates, _kind = 2, 1, "rnn"


class Conv3DRNNCell(_ConvCell):
    """A recurrent cell with convolutions over three axes."""

    _rank, _gates, _kind = 3, 1, "rnn"


class Conv1DLSTMCell(_ConvCell):
    """An LSTM cell with convolutions over one axis."""

    _rank, _gates, _kind = 1, 4, "lstm"


class Conv2DLSTMCell(_ConvCell):
    """An LSTM cell with convolutions over two axes."""

    _rank, _gates, _kind = 2, 4, "lstm"


class Conv3DLSTMCell(_ConvCell):
    """An LSTM cell with convolutions over three axes."""

    _rank, _gates, _kind = 3, 4, "lstm"


class Conv1DGRUCell(_ConvCell):
    """A GRU cell with convolutions over one axis."""

    _rank, _gates, _kind = 1, 3, "gru"


class Conv2DGRUCell(_ConvCell):
    """A GRU cell with convolutions over two axes."""

    _rank, _gates, _kind = 2, 3, "gru"


class Conv3DGRUCell(_ConvCell):
    """A GRU cell with convolutions over three axes."""

    _rank, _gates, _kind = 3, 3, "gru"
