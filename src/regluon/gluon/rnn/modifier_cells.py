"""Cells that change what another cell does: dropout, zoneout, residual connections."""

from __future__ import annotations

from typing import Any

from ...runtime.state import state
from ...symbol import Symbol
from ..block import Block
from .base_cell import CellStateError, HybridRecurrentCell, arranged, merged, steps_of
from .container_cells import BidirectionalCell
from .states import namespace

__all__ = ["DropoutCell", "ModifierCell", "ResidualCell", "VariationalDropoutCell", "ZoneoutCell"]


class DropoutCell(HybridRecurrentCell):
    """A cell without state that drops a share of its input in training.

    Parameters
    ----------
    rate : float
        The share.
    axes : tuple of int
        Axes along which one choice serves all elements.
    """

    def __init__(self, rate: float, axes: Any = (), prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        if not isinstance(rate, (int, float)):
            raise CellStateError(f"DropoutCell: rate must be a number; received {rate!r}")
        self._rate = rate
        self._axes = axes

    def _alias(self) -> str:
        return "dropout"

    def _shown(self) -> str:
        return f"rate={self._rate}, axes={self._axes}"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """There is none."""
        return []

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:  # type: ignore[override]
        """One step."""
        if self._rate > 0:
            inputs = F.Dropout(inputs, p=self._rate, axes=self._axes, name=self._step_name("fwd"))
        return inputs, states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Drop from the whole sequence at once where it comes as one array; see `RecurrentCell.unroll`."""
        self.reset()
        whole = not isinstance(inputs, (list, tuple))
        if self._axes or (not whole and not merge_outputs):
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        outputs = inputs if whole else merged(inputs, layout.find("T"))
        if self._rate > 0:
            outputs = namespace(outputs).Dropout(outputs, p=self._rate)
        if merge_outputs is False or valid_length is not None:
            outputs = arranged(steps_of(outputs, length, layout), layout, merge_outputs, valid_length)
        return outputs, []


class ModifierCell(HybridRecurrentCell):
    """Base of cells that change another one, whose parameters and states they have.

    After that the base cell is not to be called itself.
    """

    def __init__(self, base_cell: Any) -> None:
        base_cell._modified = True
        prefix = f"{base_cell.prefix}{self._alias()}_" if base_cell._level == 1 else None
        super().__init__(prefix=prefix, params=None)
        self.base_cell = base_cell

    def _alias(self) -> str:
        return "modifier"

    @property
    def params(self) -> Any:
        """Those of the base cell."""
        return self.base_cell.params

    def _shown(self) -> str:
        return repr(self.base_cell)

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The states of the base cell."""
        return self.base_cell.state_info(batch_size)  # type: ignore[no-any-return]

    def begin_state(self, batch_size: int = 0, func: Any = None, **kwargs: Any) -> list[Any]:
        """The initial states of the base cell; see `RecurrentCell.begin_state`."""
        self._check_unmodified()
        self.base_cell._modified = False
        try:
            return self.base_cell.begin_state(  # type: ignore[no-any-return]
                batch_size=batch_size, func=func, **kwargs
            )
        finally:
            self.base_cell._modified = True

    def _begin_for(self, inputs: Any, batch_axis: int) -> list[Any]:
        return self.base_cell._begin_for(inputs, batch_axis)  # type: ignore[no-any-return]


class _RememberingCell(ModifierCell):
    """A modifier that keeps values from one step to the next: it is Python even when hybridized by itself."""

    def hybridize(self, active: bool = True, *args: Any, **kwargs: Any) -> None:
        """Hybridize the base cell; inside a larger graph this cell is part of that."""
        Block.hybridize(self, active, *args, **kwargs)

    def __call__(self, inputs: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        """One step. On Symbols the steps make one graph, in which values of an earlier step may be used."""
        if isinstance(inputs, Symbol) and state.tracer is None:
            return self.hybrid_forward(namespace(inputs), inputs, states)
        return super().__call__(inputs, states, *args, **kwargs)


def kept_share(F: Any, share: float, new: Any, old: Any) -> Any:
    """New values, of which a share stays as it was before, in training."""
    # Dropped ones mark what is kept from before; without training nothing is.
    return F.where(F.Dropout(F.ones_like(new), p=share), new, old)


class ZoneoutCell(_RememberingCell):
    """Keeps, in training, a share of outputs and states as they were in the step before (Krueger 2017).

    Parameters
    ----------
    base_cell : RecurrentCell
        The cell.
    zoneout_outputs, zoneout_states : float
        The shares.
    """

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        if isinstance(base_cell, BidirectionalCell):
            raise CellStateError(
                "BidirectionalCell doesn't support zoneout since it doesn't support step. Please add "
                "ZoneoutCell to the cells underneath instead."
            )
        super().__init__(base_cell)
        self._zoneout_outputs = zoneout_outputs
        self._zoneout_states = zoneout_states

    def _alias(self) -> str:
        return "zoneout"

    def _shown(self) -> str:
        return f"p_out={self._zoneout_outputs}, p_state={self._zoneout_states}, {self.base_cell!r}"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:  # type: ignore[override]
        """One step."""
        output, after = self.base_cell(inputs, states)
        if self._zoneout_outputs:
            before = self._memory.kept.get("output")
            if before is None:
                before = F.zeros_like(output)
            output = kept_share(F, self._zoneout_outputs, output, before)
        if self._zoneout_states:
            share = self._zoneout_states
            after = [kept_share(F, share, new, old) for new, old in zip(after, states, strict=True)]
        self._memory.kept["output"] = output
        return output, after


class ResidualCell(ModifierCell):
    """Adds the input to the output of a cell (He 2015)."""

    def _alias(self) -> str:
        return "residual"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:  # type: ignore[override]
        """One step."""
        output, states = self.base_cell(inputs, states)
        return output + inputs, states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Unroll the base cell, and add the inputs; see `RecurrentCell.unroll`."""
        self.reset()
        steps = steps_of(inputs, length, layout)
        outputs, states = self.base_cell.unroll(length, steps, begin_state, layout, False, valid_length)
        outputs = [output + step for output, step in zip(outputs, steps, strict=True)]
        return arranged(outputs, layout, merge_outputs, valid_length), states


class VariationalDropoutCell(_RememberingCell):
    """Dropout whose choice is made once for a whole sequence (Gal and Ghahramani 2016).

    Parameters
    ----------
    base_cell : RecurrentCell
        The cell.
    drop_inputs, drop_states, drop_outputs : float
        Shares of the input, of the first state and of the output.

    Call `reset` before another sequence; `unroll` does.
    """

    def __init__(
        self,
        base_cell: Any,
        drop_inputs: float = 0.0,
        drop_states: float = 0.0,
        drop_outputs: float = 0.0,
    ) -> None:
        if drop_states and isinstance(base_cell, BidirectionalCell):
            raise CellStateError(
                "BidirectionalCell doesn't support variational state dropout. Please add "
                "VariationalDropoutCell to the cells underneath instead."
            )
        super().__init__(base_cell)
        self._drop = {"inputs": drop_inputs, "states": drop_states, "outputs": drop_outputs}

    def _alias(self) -> str:
        return "vardrop"

    def __repr__(self) -> str:
        drop = self._drop
        return f"{type(self).__name__}(p_out = {drop['outputs']}, p_state = {drop['states']})"

    def _dropped(self, F: Any, what: str, value: Any) -> Any:
        share = self._drop[what]
        if not share:
            return value
        kept = self._memory.kept
        if what not in kept:
            kept[what] = F.Dropout(F.ones_like(value), p=share)
        return value * kept[what]

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:  # type: ignore[override]
        """One step."""
        states = list(states)
        if states:
            states[0] = self._dropped(F, "states", states[0])
        output, states = self.base_cell(self._dropped(F, "inputs", inputs), states)
        return self._dropped(F, "outputs", output), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Run the cell over a sequence; see `RecurrentCell.unroll`."""
        if not isinstance(self.base_cell, BidirectionalCell):
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()
        steps = steps_of(inputs, length, layout)
        F = namespace(steps)
        steps = [self._dropped(F, "inputs", step) for step in steps]
        outputs, states = self.base_cell.unroll(length, steps, begin_state, layout, False, valid_length)
        outputs = [self._dropped(F, "outputs", output) for output in outputs]
        self._forget()
        return arranged(outputs, layout, merge_outputs, valid_length), states
