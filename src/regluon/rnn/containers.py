"""Symbolic cells made of cells: stacks, and two directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import symbol
from .cells import BaseRNNCell, RNNParams, SymbolicCellError, sequence

__all__ = ["BidirectionalCell", "SequentialRNNCell"]


class _Container(BaseRNNCell):
    """What a stack and a pair share: states and parameters are those of the cells, one after another."""

    def __init__(self, params: RNNParams | None) -> None:
        self._cells: list[BaseRNNCell] = []
        super().__init__(prefix="", params=params)
        self._override_cell_params = params is not None

    def _take(self, cell: BaseRNNCell) -> None:
        """Append a cell, and share variables with it."""
        if self._override_cell_params:
            if not cell._own_params:
                raise SymbolicCellError(
                    f"Either specify params for {type(self).__name__} or child cells, not both."
                )
            cell.params._params.update(self._params._params)
        self._params._params.update(cell.params._params)
        self._cells.append(cell)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """The states of all cells, one after another."""
        return [info for cell in self._cells for info in cell.state_info]

    def begin_state(self, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        """The initial states of all cells; see `BaseRNNCell.begin_state`."""
        self._check_unmodified()
        return [state for cell in self._cells for state in cell.begin_state(**kwargs)]

    def unpack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of all cells with one array for each gate."""
        result = dict(args)
        for cell in self._cells:
            result = cell.unpack_weights(result)
        return result

    def pack_weights(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The reverse of `unpack_weights`."""
        result = dict(args)
        for cell in self._cells:
            result = cell.pack_weights(result)
        return result

    def _shares(self, states: Any) -> list[Any]:
        """The states that belong to each cell."""
        shares, place = [], 0
        for cell in self._cells:
            count = len(cell.state_info)
            shares.append(list(states[place : place + count]))
            place += count
        return shares


class SequentialRNNCell(_Container):
    """Cells on top of each other: the output of each is the input of the next.

    Parameters
    ----------
    params : RNNParams, optional
        Variables that all cells share.
    """

    def __init__(self, params: RNNParams | None = None) -> None:
        super().__init__(params)

    def add(self, cell: BaseRNNCell) -> None:
        """Append a cell."""
        self._take(cell)

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """One step.

        Raises
        ------
        ValueError
            (an AssertionError too) when a BidirectionalCell is among the cells.
        """
        self._counter += 1
        after: list[Any] = []
        for cell, own in zip(self._cells, self._shares(states), strict=True):
            if isinstance(cell, BidirectionalCell):
                raise SymbolicCellError(
                    "SequentialRNNCell: a BidirectionalCell needs the whole sequence; use unroll"
                )
            inputs, new = cell(inputs, own)
            after += new
        return inputs, after

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> tuple[Any, Any]:
        """The graph of a whole sequence, cell by cell; see `BaseRNNCell.unroll`."""
        self.reset()
        states = self.begin_state() if begin_state is None else begin_state
        after: list[Any] = []
        for number, (cell, own) in enumerate(zip(self._cells, self._shares(states), strict=True)):
            merge = merge_outputs if number == len(self._cells) - 1 else None
            inputs, new = cell.unroll(length, inputs, own, layout, merge)
            after += new
        return inputs, after


class BidirectionalCell(_Container):
    """Two cells: one reads a sequence from its beginning, one from its end; outputs are concatenated.

    It can only be unrolled. The states that `unroll` gives are two lists, as in 1.x: those of each cell.

    Parameters
    ----------
    l_cell, r_cell : BaseRNNCell
        The cells.
    params : RNNParams, optional
        Variables that both share.
    output_prefix : str
        Beginning of the outputs' names.
    """

    def __init__(
        self,
        l_cell: BaseRNNCell,
        r_cell: BaseRNNCell,
        params: RNNParams | None = None,
        output_prefix: str = "bi_",
    ) -> None:
        super().__init__(params)
        self._output_prefix = output_prefix
        self._take(l_cell)
        self._take(r_cell)

    def __call__(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        """Refused: the second direction needs the whole sequence."""
        raise NotImplementedError("Bidirectional cannot be stepped. Please use unroll")

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
        steps = sequence(inputs, length, layout, False)
        states = self.begin_state() if begin_state is None else begin_state
        l_states, r_states = self._shares(states)
        l_cell, r_cell = self._cells
        forward, l_states = l_cell.unroll(length, steps, l_states, layout, False)
        backward, r_states = r_cell.unroll(length, steps[::-1], r_states, layout, False)
        outputs = [
            symbol.concat(*pair, dim=1, name=f"{self._output_prefix}t{number}")
            for number, pair in enumerate(zip(forward, backward[::-1], strict=True))
        ]
        return sequence(outputs, length, layout, merge_outputs), [l_states, r_states]
