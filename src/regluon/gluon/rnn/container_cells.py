"""Cells made of cells: stacks, and two directions."""

from __future__ import annotations

from typing import Any

from ..block import _indented
from .base_cell import HybridRecurrentCell, RecurrentCell, arranged, merged, steps_of
from .states import namespace

__all__ = ["BidirectionalCell", "HybridSequentialRNNCell", "SequentialRNNCell"]


class _Stack:
    """What SequentialRNNCell and HybridSequentialRNNCell share."""

    _children: Any

    def add(self, *cells: Any) -> None:
        """Append cells."""
        for cell in cells:
            self.register_child(cell)  # type: ignore[attr-defined]

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The states of all cells, one after another."""
        return [info for cell in self._children.values() for info in cell.state_info(batch_size)]

    def begin_state(self, batch_size: int = 0, func: Any = None, **kwargs: Any) -> list[Any]:
        """The initial states of all cells, one after another; see `RecurrentCell.begin_state`."""
        self._check_unmodified()  # type: ignore[attr-defined]
        cells = self._children.values()
        return [
            state for cell in cells for state in cell.begin_state(batch_size=batch_size, func=func, **kwargs)
        ]

    def _begin_for(self, inputs: Any, batch_axis: int) -> list[Any]:
        return [state for cell in self._children.values() for state in cell._begin_for(inputs, batch_axis)]

    def _step(self, inputs: Any, states: Any) -> tuple[Any, list[Any]]:
        after: list[Any] = []
        states = list(states)
        for cell in self._children.values():
            count = len(cell.state_info())
            inputs, new = cell(inputs, states[len(after) : len(after) + count])
            after += new
        return inputs, after

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Run the cells over a sequence, one after another; see `RecurrentCell.unroll`."""
        self.reset()  # type: ignore[attr-defined]
        cells = list(self._children.values())
        states = begin_state
        if states is None:
            first = steps_of(inputs, length, layout)[0]
            states = self._begin_for(first, layout.replace("T", "").find("N"))
        states = list(states)
        after: list[Any] = []
        for number, cell in enumerate(cells):
            count = len(cell.state_info())
            last = number == len(cells) - 1
            inputs, new = cell.unroll(
                length,
                inputs,
                states[len(after) : len(after) + count],
                layout,
                merge_outputs if last else None,
                valid_length,
            )
            after += new
        return inputs, after

    def __len__(self) -> int:
        return len(self._children)

    def __getitem__(self, key: Any) -> Any:
        return list(self._children.values())[key]

    def __repr__(self) -> str:
        rows = "\n".join(f"({key}): {_indented(repr(cell))}" for key, cell in self._children.items())
        return f"{type(self).__name__}(\n{rows}\n)"


class SequentialRNNCell(_Stack, RecurrentCell):
    """Cells on top of each other: the output of each is the input of the next."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        RecurrentCell.__init__(self, prefix=prefix, params=params)

    def forward(self, inputs: Any, states: Any) -> Any:
        """One step."""
        return self._step(inputs, states)


class HybridSequentialRNNCell(_Stack, HybridRecurrentCell):
    """Cells on top of each other, as one graph when hybridized."""

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        HybridRecurrentCell.__init__(self, prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:  # type: ignore[override]
        """One step."""
        return self._step(inputs, states)


class BidirectionalCell(HybridRecurrentCell):
    """Two cells: one reads a sequence from its beginning, one from its end; outputs are concatenated.

    It can only be unrolled. ``output_prefix`` is accepted for compatibility.
    """

    def __init__(
        self,
        l_cell: Any,
        r_cell: Any,
        output_prefix: str = "bi_",
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix="" if prefix is None else prefix, params=params)
        self.l_cell = l_cell
        self.r_cell = r_cell
        self._output_prefix = output_prefix

    def __call__(self, inputs: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        """Refused: the second direction needs the whole sequence."""
        raise NotImplementedError("Bidirectional cannot be stepped. Please use unroll")

    def _shown(self) -> str:
        return f"forward={self.l_cell!r}, backward={self.r_cell!r}"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The states of the forward and of the backward cell."""
        return [info for cell in (self.l_cell, self.r_cell) for info in cell.state_info(batch_size)]

    def begin_state(self, batch_size: int = 0, func: Any = None, **kwargs: Any) -> list[Any]:
        """The initial states of both cells; see `RecurrentCell.begin_state`."""
        self._check_unmodified()
        cells = (self.l_cell, self.r_cell)
        return [
            state for cell in cells for state in cell.begin_state(batch_size=batch_size, func=func, **kwargs)
        ]

    def _begin_for(self, inputs: Any, batch_axis: int) -> list[Any]:
        return [state for cell in (self.l_cell, self.r_cell) for state in cell._begin_for(inputs, batch_axis)]

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Run both cells over a sequence; see `RecurrentCell.unroll`."""
        self.reset()
        steps = steps_of(inputs, length, layout)
        states = begin_state
        if states is None:
            states = self._begin_for(steps[0], layout.replace("T", "").find("N"))
        own = len(self.l_cell.state_info())
        forward, l_states = self.l_cell.unroll(length, steps, list(states[:own]), layout, False, valid_length)
        backward, r_states = self.r_cell.unroll(
            length, _reversed(steps, valid_length), list(states[own:]), layout, False, valid_length
        )
        F = namespace(steps)
        backward = _reversed(backward, valid_length)
        axis = layout.replace("T", "").find("C")
        outputs = [F.concat(*pair, dim=axis) for pair in zip(forward, backward, strict=True)]
        return arranged(outputs, layout, merge_outputs, valid_length), [*l_states, *r_states]


def _reversed(steps: list[Any], valid_length: Any) -> list[Any]:
    """Steps in reverse order: of each sequence those that it has, the rest stays where it is."""
    if valid_length is None:
        return steps[::-1]
    F = namespace(steps)
    whole = F.SequenceReverse(merged(steps, 0), valid_length, use_sequence_length=True)
    return steps_of(whole, len(steps), "TNC")
