"""Initializers of recurrent layers, whose parameters may be one fused vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .base import InitDesc, Initializer, InitializerError, create, register, write
from .standard import Uniform, Zero

__all__ = ["FusedRNN", "LSTMBias", "RNNFused", "fused_sections"]


@register
class LSTMBias(Initializer):
    """Zeros, with the quarter that belongs to the forget gate set to ``forget_bias``."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, _: str, array: Any) -> None:
        hidden = array.shape[0] // 4
        values = torch.zeros(tuple(array.shape), dtype=torch.float64)
        values[hidden : 2 * hidden] = self.forget_bias
        write(array, values.to(array._t.device))

    _init_bias = _init_weight


_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _gates(mode: str) -> int:
    if mode not in _GATES:
        raise InitializerError(f"mode must be one of {', '.join(_GATES)}; received {mode!r}.")
    return _GATES[mode]


def fused_sections(
    size: int, gates: int, layers: int, hidden: int, directions: int, projection: int | None
) -> list[tuple[str, tuple[int, ...]]]:
    """Kinds and shapes of the pieces of a fused RNN parameter vector, in order.

    All weights come first (for every layer and direction i2h, h2h and, with a projection, h2r), then all
    biases. The size of the input follows from the whole size.
    """
    output = hidden if projection is None else projection
    rows = gates * hidden
    recurrent = rows * output + (0 if projection is None else projection * hidden)
    fixed = directions * (layers * (recurrent + 2 * rows) + (layers - 1) * rows * output * directions)
    inputs, rest = divmod(size - fixed, rows * directions)
    if rest or inputs <= 0:
        raise InitializerError(
            f"A fused RNN parameter of {layers} layers with {hidden} hidden units cannot have {size} "
            "elements."
        )
    sections: list[tuple[str, tuple[int, ...]]] = []
    for layer in range(layers):
        width = inputs if layer == 0 else output * directions
        for _ in range(directions):
            sections += [("i2h_weight", (rows, width)), ("h2h_weight", (rows, output))]
            if projection is not None:
                sections.append(("h2r_weight", (projection, hidden)))
    return sections + [("i2h_bias", (rows,)), ("h2h_bias", (rows,))] * (layers * directions)


def _fill_sections(
    array: Any, sections: Sequence[tuple[str, tuple[int, ...]]], fill: Callable[[str, Any], None]
) -> None:
    """Fill the pieces of a flat parameter one by one."""
    begin = 0
    for kind, shape in sections:
        count = math.prod(shape)
        piece = type(array)._wrap(
            torch.zeros(shape, dtype=array._t.dtype, device=array._t.device), array._ctx
        )
        fill(kind, piece)
        array[begin : begin + count] = piece.reshape((count,))
        begin += count


@register
class RNNFused(Initializer):
    """Fills the one vector that holds all parameters of a fused RNN layer, with an initializer for each kind.

    A kind without an initializer takes the network's (weights) or zeros (biases).
    """

    def __init__(
        self,
        mode: str,
        num_layers: int,
        state_size: int,
        bidirectional: bool = False,
        projection_size: int | None = None,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = None,
        h2h_bias_initializer: Any = None,
        h2r_weight_initializer: Any = None,
    ) -> None:
        given = {
            "i2h_weight_initializer": i2h_weight_initializer,
            "h2h_weight_initializer": h2h_weight_initializer,
            "i2h_bias_initializer": i2h_bias_initializer,
            "h2h_bias_initializer": h2h_bias_initializer,
            "h2r_weight_initializer": h2r_weight_initializer,
        }
        described = {key: init.dumps() if hasattr(init, "dumps") else init for key, init in given.items()}
        super().__init__(
            mode=mode,
            num_layers=num_layers,
            state_size=state_size,
            bidirectional=bidirectional,
            projection_size=projection_size,
            **described,
        )
        self.gates = _gates(mode)
        self.num_layers = num_layers
        self.state_size = state_size
        self.directions = 2 if bidirectional else 1
        self.projection_size = projection_size
        self._initializers = {key.removesuffix("_initializer"): init for key, init in given.items()}

    def _init_weight(self, name: str, array: Any) -> None:
        fallback = getattr(name, "global_init", None)
        if not isinstance(fallback, Initializer) or isinstance(fallback, RNNFused):
            fallback = Uniform()

        def fill(kind: str, piece: Any) -> None:
            init = self._initializers[kind]
            if init is None:
                init = "zeros" if kind.endswith("bias") else fallback
            create(init)(InitDesc(kind, {"__init__": init}), piece)

        sections = fused_sections(
            array.size, self.gates, self.num_layers, self.state_size, self.directions, self.projection_size
        )
        _fill_sections(array, sections, fill)


@register
class FusedRNN(Initializer):
    """MXNet 1.x form of :class:`RNNFused`: one initializer for all weights, zeros for biases.

    An LSTM's forget gate gets the bias ``forget_bias``.
    """

    def __init__(
        self,
        init: Any,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        chosen = None if init is None else create(init)
        super().__init__(
            init=None if chosen is None else chosen.dumps(),
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        self.gates = _gates(mode)
        self._init = chosen
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._directions = 2 if bidirectional else 1
        self._forget_bias = forget_bias

    def _init_weight(self, name: str, array: Any) -> None:
        weights = self._init or getattr(name, "global_init", None)
        if weights is None or isinstance(weights, FusedRNN):
            weights = Uniform()
        biases: Initializer = LSTMBias(self._forget_bias) if self.gates == 4 else Zero()

        def fill(kind: str, piece: Any) -> None:
            chosen = biases if kind.endswith("bias") else weights
            chosen._init_weight(InitDesc(kind), piece)

        sections = fused_sections(
            array.size, self.gates, self._num_layers, self._num_hidden, self._directions, None
        )
        _fill_sections(array, sections, fill)

    def _init_default(self, name: str, array: Any) -> None:
        self._init_weight(name, array)
