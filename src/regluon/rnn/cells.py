"""The base of all symbolic cells, and the three that are not made of others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import initializer, symbol
from ..gluon.parameter_errors import ParameterValueError
from ..gluon.rnn.base_cell import merged, steps_of
from ..gluon.rnn.rnn_cell import activated, gru_step, lstm_step
from ..graph.node import Entry
from ..ndarray import concat as nd_concat
from ..symbol import Symbol

__all__ = ["BaseRNNCell", "GRUCell", "LSTMCell", "RNNCell", "RNNParams", "SymbolicCellError"]


class SymbolicCellError(ParameterValueError):
    """A symbolic cell is used in a way that it does not allow."""


class RNNParams:
    """The variables of one or more cells, made when they are first asked for.

    Parameters
    ----------
    prefix : str
        Beginning of their names.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Any:
        """The variable ``prefix + name``; keywords are those of `mx.sym.var`, used when it is made."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = symbol.var(name, **kwargs)
        return self._params[name]


def sequence(inputs: Any, length: int, layout: str, merge: bool | None) -> Any:
    """A sequence as one Symbol (``merge=True``), as a list of steps (False), or as it comes (None).

    Raises
    ------
    ValueError
        (an AssertionError too) when there is none, for a group of Symbols, or one of another length.
    """
    if inputs is None:
        raise SymbolicCellError(
            "unroll(inputs=None) has been deprecated. Please create input variables outside unroll."
        )
    if isinstance(inputs, Symbol):
        if len(inputs.list_outputs()) != 1:
            raise SymbolicCellError(
                "unroll doesn't allow grouped symbol as input. Please convert to list with list(inputs) "
                "first or let unroll handle splitting."
            )
        return steps_of(inputs, length, layout) if merge is False else inputs
    steps = steps_of(inputs, length, layout)
    return merged(steps, layout.find("T")) if merge else steps


class BaseRNNCell:
    """One step of a recurrent network on Symbols: ``output, states = cell(inputs, states)``.

    Parameters
    ----------
    prefix : str
        Beginning of the names of parameters and operators.
    params : RNNParams, optional
        Where the variables are; cells with the same one share them.
    """

    _what = "cell"

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        self.reset()

    # States and parameters --------------------------------------------------------------

    def reset(self) -> None:
        """Begin with step 0 again, before another graph is made."""
        self._init_counter = -1
        self._counter = -1
        for cell in getattr(self, "_cells", ()):
            cell.reset()

    @property
    def params(self) -> RNNParams:
        """The variables. From now on they may be shared."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Shape (0 for the batch) and layout of each state; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} defines no state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """The shape of each state, with 0 for the batch."""
        return [info["shape"] for info in self.state_info]

    @property
    def _gate_names(self) -> Sequence[str]:
        return ()

    def _check_unmodified(self) -> None:
        if self._modified:
            raise SymbolicCellError(
                "After applying modifier cells (e.g. DropoutCell) the base cell cannot be called directly. "
                "Call the modifier cell instead."
            )

    def begin_state(self, func: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> list[Any]:
        """Initial states.

        Parameters
        ----------
        func : callable
            Called with ``name`` and ``shape`` for each: zeros of the batch's size by default;
            ``mx.sym.var`` makes them inputs of the graph.
        **kwargs
            Passed to ``func``.
        """
        self._check_unmodified()
        states = []
        for info in self.state_info:
            self._init_counter += 1
            name = f"{self._prefix}begin_state_{self._init_counter}"
            states.append(func(name=name, **{**info, **kwargs}))
        return states

    def _step_name(self, name: str) -> str:
        """What an operator of the step that runs is called."""
        return f"{self._prefix}t{self._counter}_{name}"

    def _named(self, value: Any, name: str) -> Any:
        """The result of the step that runs, under the name that this has in the graph."""
        (entry,) = value._list()
        node = copy.copy(entry.node)
        node.name = f"{self._prefix}t{self._counter}_{name}"
        return type(value)._of([Entry(node, entry.index)])

    # Weights ----------------------------------------------------------------------------

    def unpack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters with one array for each gate (``lstm_i2h_f_weight``) in place of one for all."""
        result = dict(args)
        gates = self._gate_names
        if len(gates) < 2:
            return result
        for group in ("i2h", "h2h"):
            weight = result.pop(f"{self._prefix}{group}_weight")
            bias = result.pop(f"{self._prefix}{group}_bias")
            rows = weight.shape[0] // len(gates)
            for number, gate in enumerate(gates):
                own = slice(number * rows, (number + 1) * rows)
                result[f"{self._prefix}{group}{gate}_weight"] = weight[own].copy()
                result[f"{self._prefix}{group}{gate}_bias"] = bias[own].copy()
        return result

    def pack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The reverse of `unpack_weights`."""
        result = dict(args)
        gates = self._gate_names
        if len(gates) < 2:
            return result
        for group in ("i2h", "h2h"):
            for kind in ("weight", "bias"):
                parts = [result.pop(f"{self._prefix}{group}{gate}_{kind}") for gate in gates]
                result[f"{self._prefix}{group}_{kind}"] = nd_concat(*parts, dim=0)
        return result

    # Running ----------------------------------------------------------------------------

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} defines no step")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, Any]:
        """The graph of a whole sequence.

        Parameters
        ----------
        length : int
            Number of steps.
        inputs : Symbol or list of Symbol
            The sequence, with axes as ``layout`` says, or its steps, each (batch, size).
        begin_state : list, optional
            `begin_state()` by default.
        layout : str
            "NTC" or "TNC": axes of merged inputs and outputs.
        merge_outputs : bool, optional
            Whether the outputs are one Symbol or a list; None leaves it to the cell.

        Returns
        -------
        outputs, states

        Raises
        ------
        ValueError
            (an AssertionError too) for a list of another length, or a group of Symbols.
        """
        self.reset()
        steps = sequence(inputs, length, layout, False)
        states = self.begin_state() if begin_state is None else begin_state
        outputs = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
        return sequence(outputs, length, layout, merge_outputs), states


class _DenseCell(BaseRNNCell):
    """A cell with a fully connected layer from the input and one from the state."""

    def __init__(self, num_hidden: int, prefix: str, params: RNNParams | None, **initial: Any) -> None:
        super().__init__(prefix=prefix, params=params)
        self._num_hidden = num_hidden
        self._variables = {
            (side, kind): self.params.get(f"{side}_{kind}", **initial.get(f"{side}_{kind}", {}))
            for side in ("i2h", "h2h")
            for kind in ("weight", "bias")
        }
        self._own_params = params is None

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """One state of (batch, num_hidden)."""
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"}]

    def _sums(self, inputs: Any, states: Any) -> tuple[Any, Any]:
        """What the input and what the state contribute to all gates."""
        self._counter += 1
        return tuple(
            symbol.FullyConnected(
                value,
                self._variables[side, "weight"],
                self._variables[side, "bias"],
                num_hidden=self._num_hidden * len(self._gate_names),
                name=self._step_name(side),
            )
            for side, value in (("i2h", inputs), ("h2h", states[0]))
        )  # type: ignore[return-value]


class RNNCell(_DenseCell):
    """Elman's cell; see `gluon.rnn.RNNCell` for the equation.

    Parameters
    ----------
    num_hidden : int
        Size of state and output.
    activation : str or callable
        Which activation.
    prefix, params
        See `BaseRNNCell`.
    """

    def __init__(
        self,
        num_hidden: int,
        activation: Any = "tanh",
        prefix: str = "rnn_",
        params: RNNParams | None = None,
    ) -> None:
        super().__init__(num_hidden, prefix, params)
        self._activation = activation

    @property
    def _gate_names(self) -> Sequence[str]:
        return ("",)

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        i2h, h2h = self._sums(inputs, states)
        output = activated(symbol, i2h + h2h, self._activation, self._step_name("out"))
        return output, [output]


class LSTMCell(_DenseCell):
    """Long short-term memory; see `gluon.rnn.LSTMCell` for the equations.

    Parameters
    ----------
    num_hidden : int
        Size of states and output.
    prefix, params
        See `BaseRNNCell`.
    forget_bias : float
        Where the forget gate's bias begins (Jozefowicz 2015).
    """

    def __init__(
        self,
        num_hidden: int,
        prefix: str = "lstm_",
        params: RNNParams | None = None,
        forget_bias: float = 1.0,
    ) -> None:
        bias = {"init": initializer.LSTMBias(forget_bias=forget_bias)}
        super().__init__(num_hidden, prefix, params, i2h_bias=bias)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Output and cell state, each (batch, num_hidden)."""
        return super().state_info * 2

    @property
    def _gate_names(self) -> Sequence[str]:
        return ("_i", "_f", "_c", "_o")

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        i2h, h2h = self._sums(inputs, states)
        return lstm_step(self, symbol, i2h + h2h, states[1], "tanh", "sigmoid")


class GRUCell(_DenseCell):
    """Gated recurrent unit; see `gluon.rnn.GRUCell` for the equations.

    Parameters
    ----------
    num_hidden : int
        Size of state and output.
    prefix, params
        See `BaseRNNCell`.
    """

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, prefix, params)

    @property
    def _gate_names(self) -> Sequence[str]:
        return ("_r", "_z", "_o")

    def _step_name(self, name: str) -> str:
        return super()._step_name(f"_{name}")

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        sums = self._sums(inputs, states)
        return gru_step(self, symbol, sums, states[0], "tanh", "sigmoid")
