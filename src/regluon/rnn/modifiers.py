"""Symbolic cells that change what another cell does: dropout, zoneout, residual connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import symbol
from ..gluon.rnn.modifier_cells import kept_share
from ..symbol import Symbol
from .cells import BaseRNNCell, RNNParams, SymbolicCellError, sequence
from .containers import BidirectionalCell
from .fused import FusedRNNCell

__all__ = ["DropoutCell", "ModifierCell", "ResidualCell", "ZoneoutCell"]


class DropoutCell(BaseRNNCell):
    """A cell without state that drops a share of its input in training.

    Parameters
    ----------
    dropout : float
        The share.
    prefix, params
        See `BaseRNNCell`.
    """

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None) -> None:
        super().__init__(prefix, params)
        if not isinstance(dropout, (int, float)):
            raise SymbolicCellError(f"DropoutCell: dropout must be a number; received {dropout!r}")
        self.dropout = dropout

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """There is none."""
        return []

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        if self.dropout > 0:
            inputs = symbol.Dropout(data=inputs, p=self.dropout)
        return inputs, states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, Any]:
        """Drop from the whole sequence at once where it is one Symbol; see `BaseRNNCell.unroll`."""
        self.reset()
        inputs = sequence(inputs, length, layout, merge_outputs)
        if isinstance(inputs, Symbol):
            return self(inputs, [])
        return super().unroll(length, inputs, begin_state, layout, merge_outputs)


class ModifierCell(BaseRNNCell):
    """Base of cells that change another one, whose parameters and states they have.

    After that the base cell is not to be called itself.
    """

    def __init__(self, base_cell: BaseRNNCell) -> None:
        self._cells = [base_cell]
        super().__init__()
        base_cell._modified = True
        self.base_cell = base_cell

    @property
    def params(self) -> RNNParams:
        """Those of the base cell."""
        self._own_params = False
        return self.base_cell.params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The states of the base cell."""
        return self.base_cell.state_info

    def begin_state(  # type: ignore[override]
        self, init_sym: Callable[..., Any] = symbol.zeros, **kwargs: Any
    ) -> list[Any]:
        """The initial states of the base cell; see `BaseRNNCell.begin_state`."""
        self._check_unmodified()
        self.base_cell._modified = False
        try:
            return self.base_cell.begin_state(**{"func": init_sym, **kwargs})
        finally:
            self.base_cell._modified = True

    def unpack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the base cell."""
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the base cell."""
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """Keeps, in training, a share of outputs and states as they were in the step before (Krueger 2017).

    Parameters
    ----------
    base_cell : BaseRNNCell
        The cell.
    zoneout_outputs, zoneout_states : float
        The shares.
    """

    def __init__(
        self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0
    ) -> None:
        if isinstance(base_cell, FusedRNNCell):
            raise SymbolicCellError("FusedRNNCell doesn't support zoneout. Please unfuse first.")
        if isinstance(base_cell, BidirectionalCell):
            raise SymbolicCellError(
                "BidirectionalCell doesn't support zoneout since it doesn't support step. Please add "
                "ZoneoutCell to the cells underneath instead."
            )
        self.zoneout_outputs = zoneout_outputs
        self.zoneout_states = zoneout_states
        super().__init__(base_cell)

    def reset(self) -> None:
        """Begin with step 0 again, and forget the output of the step before."""
        super().reset()
        self.prev_output: Any = None

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        output, after = self.base_cell(inputs, states)
        if self.zoneout_outputs:
            before = symbol.zeros_like(output) if self.prev_output is None else self.prev_output
            output = kept_share(symbol, self.zoneout_outputs, output, before)
        if self.zoneout_states:
            after = [
                kept_share(symbol, self.zoneout_states, new, old)
                for new, old in zip(after, states, strict=True)
            ]
        self.prev_output = output
        return output, after


class ResidualCell(ModifierCell):
    """Adds the input to the output of a cell (He 2015)."""

    def _sum(self, output: Any, inputs: Any) -> Any:
        return symbol.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step."""
        output, states = self.base_cell(inputs, states)
        return self._sum(output, inputs), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, Any]:
        """Unroll the base cell, and add the inputs; see `BaseRNNCell.unroll`."""
        self.reset()
        self.base_cell._modified = False
        try:
            outputs, states = self.base_cell.unroll(length, inputs, begin_state, layout, merge_outputs)
        finally:
            self.base_cell._modified = True
        if isinstance(outputs, Symbol):
            return self._sum(outputs, sequence(inputs, length, layout, True)), states
        steps = sequence(inputs, length, layout, False)
        return [self._sum(*pair) for pair in zip(outputs, steps, strict=True)], states
