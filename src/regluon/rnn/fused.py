"""Several recurrent layers as one operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import initializer, symbol
from ..initializer.rnn import fused_sections
from ..ndarray import concat as nd_concat
from .cells import BaseRNNCell, GRUCell, LSTMCell, RNNCell, RNNParams, sequence
from .containers import BidirectionalCell, SequentialRNNCell

__all__ = ["FusedRNNCell"]


class FusedRNNCell(BaseRNNCell):
    """Recurrent layers that run as one operator, with one vector of parameters. It can only be unrolled.

    Parameters
    ----------
    num_hidden : int
        Size of the state of each layer and direction.
    num_layers : int
        Number of layers.
    mode : {"rnn_relu", "rnn_tanh", "lstm", "gru"}
        Kind of cell.
    bidirectional : bool
        Whether each layer reads the sequence in both directions.
    dropout : float
        Share dropped between layers in training.
    get_next_state : bool
        Whether `unroll` gives the states after the last step; else an empty list.
    forget_bias : float
        Where the forget gate's bias of an LSTM begins.
    prefix : str, optional
        Beginning of names; the mode and "_" by default.
    params : RNNParams, optional
        See `BaseRNNCell`.
    """

    def __init__(
        self,
        num_hidden: int,
        num_layers: int = 1,
        mode: str = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ) -> None:
        super().__init__(f"{mode}_" if prefix is None else prefix, params)
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._mode: Any = mode
        self._bidirectional = bidirectional
        self._dropout = dropout
        self._get_next_state = get_next_state
        self._forget_bias = forget_bias
        self._directions = ["l", "r"] if bidirectional else ["l"]
        init = initializer.FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self._params.get("parameters", init=init)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The states: (layers times directions, batch, num_hidden), two for an LSTM."""
        layers = self._num_layers * len(self._directions)
        count = 2 if self._mode == "lstm" else 1
        return [{"shape": (layers, 0, self._num_hidden), "__layout__": "LNC"} for _ in range(count)]

    @property
    def _gate_names(self) -> Sequence[str]:
        return {"lstm": ("_i", "_f", "_c", "_o"), "gru": ("_r", "_z", "_o")}.get(self._mode, ("",))

    @property
    def _num_gates(self) -> int:
        return len(self._gate_names)

    # Weights ----------------------------------------------------------------------------

    def _pieces(self, size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the arrays of single gates that a vector of ``size`` elements consists of."""
        gates = self._gate_names
        cells = [f"{side}{layer}" for layer in range(self._num_layers) for side in self._directions]
        sections = fused_sections(
            size, len(gates), self._num_layers, self._num_hidden, len(self._directions), None
        )
        for number, (kind, shape) in enumerate(sections):
            group, what = kind.split("_")
            # All weights come first, then all biases; of each cell that from the input, then the other.
            cell = cells[number // 2 % len(cells)]
            for gate in gates:
                yield f"{self._prefix}{cell}_{group}{gate}_{what}", (self._num_hidden, *shape[1:])

    def unpack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters with one array for each gate of each cell (``lstm_l0_i2h_f_weight``) for the vector."""
        result = dict(args)
        vector = result.pop(self._parameter.name)
        place = 0
        for name, shape in self._pieces(vector.size):
            count = math.prod(shape)
            result[name] = vector[place : place + count].reshape(shape).copy()
            place += count
        return result

    def pack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The reverse of `unpack_weights`."""
        result = dict(args)
        first = result[f"{self._prefix}l0_i2h{self._gate_names[0]}_weight"]
        width = self._num_hidden * len(self._directions)
        cells = self._num_layers * len(self._directions)
        inputs = len(self._directions) * first.shape[1] + (cells - len(self._directions)) * width
        rows = self._num_gates * self._num_hidden
        size = rows * (inputs + cells * (self._num_hidden + 2))
        parts = [result.pop(name).reshape((-1,)) for name, _ in list(self._pieces(size))]
        result[self._parameter.name] = nd_concat(*parts, dim=0)
        return result

    # Running ----------------------------------------------------------------------------

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """Refused: the operator needs the whole sequence."""
        raise NotImplementedError("FusedRNNCell cannot be stepped. Please use unroll")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, Any]:
        """The graph of a whole sequence; see `BaseRNNCell.unroll`."""
        self.reset()
        merged = sequence(inputs, length, layout, True)
        if layout == "NTC":
            merged = symbol.swapaxes(merged, dim1=0, dim2=1)
        states = self.begin_state() if begin_state is None else begin_state
        names = ("state", "state_cell")[: len(states)]
        result = symbol.RNN(
            data=merged,
            parameters=self._parameter,
            **dict(zip(names, states, strict=True)),
            state_size=self._num_hidden,
            num_layers=self._num_layers,
            bidirectional=self._bidirectional,
            p=self._dropout,
            state_outputs=self._get_next_state,
            mode=self._mode,
            name=f"{self._prefix}rnn",
        )
        after: list[Any] = []
        outputs = result
        if self._get_next_state:
            outputs, after = result[0], [result[index] for index in range(1, 1 + len(states))]
        if layout == "NTC":
            outputs = symbol.swapaxes(outputs, dim1=0, dim2=1)
        return sequence(outputs, length, layout, merge_outputs), after

    def unfuse(self) -> SequentialRNNCell:
        """A stack of single cells that takes the parameters of `unpack_weights` after its `pack_weights`."""
        make: Callable[[str], BaseRNNCell] = {
            "rnn_relu": lambda prefix: RNNCell(self._num_hidden, activation="relu", prefix=prefix),
            "rnn_tanh": lambda prefix: RNNCell(self._num_hidden, activation="tanh", prefix=prefix),
            "lstm": lambda prefix: LSTMCell(self._num_hidden, prefix=prefix, forget_bias=self._forget_bias),
            "gru": lambda prefix: GRUCell(self._num_hidden, prefix=prefix),
        }[self._mode]
        # The modifiers know this file's class.
        from .modifiers import DropoutCell

        stack = SequentialRNNCell()
        for layer in range(self._num_layers):
            cells = [make(f"{self._prefix}{side}{layer}_") for side in self._directions]
            pair = f"{self._prefix}bi_l{layer}_"
            both = len(cells) == 2
            stack.add(BidirectionalCell(cells[0], cells[1], output_prefix=pair) if both else cells[0])
            if self._dropout > 0 and layer != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{layer}_"))
        return stack
