"""Symbolic recurrent cells with convolutions from the input and from the state (Shi 2015)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from .. import symbol
from ..gluon.rnn.rnn_cell import activated, gru_step, lstm_step
from .cells import BaseRNNCell, RNNParams, SymbolicCellError

__all__ = ["BaseConvRNNCell", "ConvGRUCell", "ConvLSTMCell", "ConvRNNCell"]

_leaky = functools.partial(symbol.LeakyReLU, act_type="leaky", slope=0.2)


class BaseConvRNNCell(BaseRNNCell):
    """What all convolutional cells share.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of the inputs, batch axis included.
    num_hidden : int
        Channels of state and output.
    h2h_kernel, h2h_dilate : tuple of int
        Size (odd) and dilation of the kernel over the state, which keeps its size.
    i2h_kernel, i2h_stride, i2h_pad, i2h_dilate : tuple of int
        Settings of the convolution over the input.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer : Initializer
        Of the parameters.
    activation : str or callable
        Of outputs and new values.
    prefix, params
        See `BaseRNNCell`.
    conv_layout : str
        Axes of inputs, states and outputs.

    Raises
    ------
    ValueError
        (an AssertionError too) when ``h2h_kernel`` is even.
    """

    _states = 1

    def __init__(
        self,
        input_shape: Sequence[int],
        num_hidden: int,
        h2h_kernel: Sequence[int],
        h2h_dilate: Sequence[int],
        i2h_kernel: Sequence[int],
        i2h_stride: Sequence[int],
        i2h_pad: Sequence[int],
        i2h_dilate: Sequence[int],
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        activation: Any,
        prefix: str = "",
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        if any(size % 2 == 0 for size in h2h_kernel):
            raise SymbolicCellError(f"Only support odd number, get h2h_kernel= {tuple(h2h_kernel)}")
        self._num_hidden = num_hidden
        self._activation = activation
        self._layout = conv_layout
        self._channel_axis = conv_layout.find("C")
        same = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel, strict=True))
        settings = {
            "i2h": (i2h_kernel, i2h_stride, i2h_pad, i2h_dilate),
            "h2h": (h2h_kernel, (1,) * len(same), same, h2h_dilate),
        }
        self._settings: dict[str, dict[str, Any]] = {
            side: dict(zip(("kernel", "stride", "pad", "dilate"), map(tuple, values), strict=True))
            for side, values in settings.items()
        }
        initial = {
            "i2h": (i2h_weight_initializer, i2h_bias_initializer),
            "h2h": (h2h_weight_initializer, h2h_bias_initializer),
        }
        self._variables = {
            (side, kind): self._params.get(f"{side}_{kind}", init=init)
            for side, pair in initial.items()
            for kind, init in zip(("weight", "bias"), pair, strict=True)
        }
        self._state_shape = self._inferred(tuple(input_shape))

    def _inferred(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a state, with 0 for the batch: what the input's convolution leaves."""
        data = symbol.var("data")
        settings: dict[str, Any] = {"layout": self._layout, **self._settings["i2h"]}
        result = symbol.Convolution(data, num_filter=self._num_hidden, **settings)
        shape = list(result.infer_shape(data=input_shape)[1][0])
        shape[self._layout.find("N")] = 0
        return tuple(shape)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """One state (two for an LSTM) in the layout of the cell."""
        return [{"shape": self._state_shape, "__layout__": self._layout} for _ in range(self._states)]

    def _sums(self, inputs: Any, states: Any) -> tuple[Any, Any]:
        self._counter += 1
        return tuple(
            symbol.Convolution(
                value,
                self._variables[side, "weight"],
                self._variables[side, "bias"],
                num_filter=self._num_hidden * len(self._gate_names),
                name=self._step_name(side),
                **{"layout": self._layout, **self._settings[side]},
            )
            for side, value in (("i2h", inputs), ("h2h", states[0]))
        )  # type: ignore[return-value]


class _ConvCell(BaseConvRNNCell):
    """The defaults of the three cells."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_hidden: int,
        h2h_kernel: Sequence[int] = (3, 3),
        h2h_dilate: Sequence[int] = (1, 1),
        i2h_kernel: Sequence[int] = (3, 3),
        i2h_stride: Sequence[int] = (1, 1),
        i2h_pad: Sequence[int] = (1, 1),
        i2h_dilate: Sequence[int] = (1, 1),
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        activation: Any = _leaky,
        prefix: str | None = None,
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ) -> None:
        super().__init__(
            input_shape,
            num_hidden,
            h2h_kernel,
            h2h_dilate,
            i2h_kernel,
            i2h_stride,
            i2h_pad,
            i2h_dilate,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            activation,
            f"{type(self).__name__.removesuffix('Cell')}_" if prefix is None else prefix,
            params,
            conv_layout,
        )


class ConvRNNCell(_ConvCell):
    """A recurrent cell with convolutions; parameters as in `BaseConvRNNCell`."""

    @property
    def _gate_names(self) -> Sequence[str]:
        return ("",)

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        i2h, h2h = self._sums(inputs, states)
        output = self._named(activated(symbol, i2h + h2h, self._activation, self._step_name("out")), "out")
        return output, [output]


class ConvLSTMCell(_ConvCell):
    """An LSTM cell with convolutions; parameters as in `BaseConvRNNCell`."""

    _states = 2

    @property
    def _gate_names(self) -> Sequence[str]:
        return ("_i", "_f", "_c", "_o")

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        i2h, h2h = self._sums(inputs, states)
        sums, axis = i2h + h2h, self._channel_axis
        return lstm_step(self, symbol, sums, states[1], self._activation, "sigmoid", axis)


class ConvGRUCell(_ConvCell):
    """A GRU cell with convolutions; parameters as in `BaseConvRNNCell`."""

    @property
    def _gate_names(self) -> Sequence[str]:
        return ("_r", "_z", "_o")

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        sums, axis = self._sums(inputs, states), self._channel_axis
        return gru_step(self, symbol, sums, states[0], self._activation, "sigmoid", axis)
