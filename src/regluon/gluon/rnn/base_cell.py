"""What all recurrent cells share: states, the counter of steps, and unrolling over a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.state import state
from ...symbol import Symbol
from ..block import Block
from ..hybrid import HybridBlock
from ..parameter_errors import ParameterValueError
from .states import made_by, namespace, zeros_for

__all__ = ["HybridRecurrentCell", "RecurrentCell", "merged", "steps_of"]


class CellStateError(ParameterValueError):
    """A cell is used in a way that it does not allow."""


class Memory:
    """What a cell remembers from one step to the next. It is no attribute that graphs are compared by."""

    def __init__(self) -> None:
        self.counter = -1
        self.states = -1
        self.kept: dict[str, Any] = {}


def steps_of(inputs: Any, length: int | None, layout: str) -> list[Any]:
    """A sequence as a list of its steps.

    Raises
    ------
    ValueError
        (an AssertionError too) if it has another length than was said.
    """
    if isinstance(inputs, (list, tuple)):
        steps = list(inputs)
    else:
        axis = layout.find("T")
        if length is None:
            length = int(inputs.shape[axis])
        # In a graph the operator below holds for this length only, and says so.
        if state.tracer is None and not isinstance(inputs, Symbol) and inputs.shape[axis] != length:
            raise CellStateError(
                f"unroll: the inputs have {inputs.shape[axis]} steps along axis {axis} (layout {layout}); "
                f"received length={length}"
            )
        F = namespace(inputs)
        parts = F.split(inputs, num_outputs=length, axis=axis, squeeze_axis=True)
        alone = length == 1 and not isinstance(parts, (list, tuple))
        steps = [parts] if alone else [parts[i] for i in range(length)]
    if length is not None and len(steps) != length:
        raise CellStateError(f"unroll: inputs has {len(steps)} steps; received length={length}")
    return steps


def merged(steps: Sequence[Any], axis: int) -> Any:
    """Steps as one array with a new axis of time."""
    return namespace(steps[0]).stack(*steps, axis=axis)


def _masked(sequence: Any, valid_length: Any, axis: int) -> Any:
    F = namespace(sequence)
    return F.SequenceMask(sequence, valid_length, use_sequence_length=True, axis=axis)


def arranged(outputs: list[Any], layout: str, merge_outputs: bool | None, valid_length: Any) -> Any:
    """The outputs of an unrolled cell: masked where sequences have ended, and as they were asked for."""
    axis = layout.find("T")
    if valid_length is None:
        return merged(outputs, axis) if merge_outputs else outputs
    whole = _masked(merged(outputs, axis), valid_length, axis)
    return steps_of(whole, len(outputs), layout) if merge_outputs is False else whole


class RecurrentCell(Block):
    """One step of a recurrent network: ``output, states = cell(inputs, states)``.

    Inputs are (batch, size), and states a list of arrays that `state_info` describes.
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self._memory = Memory()
        self.reset()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown()})"

    def _shown(self) -> str:
        return ""

    @property
    def _counter(self) -> int:
        """Number of the step that runs; names of nodes begin with it in the 1.x style (``t0_``)."""
        return self._memory.counter

    def reset(self) -> None:
        """Forget everything that the cell keeps between steps, before another sequence."""
        memory = self._memory
        memory.counter = memory.states = -1
        memory.kept.clear()
        for cell in self._children.values():
            if hasattr(cell, "reset"):
                cell.reset()

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state; to be overridden."""
        raise NotImplementedError(f"{type(self).__name__} defines no state_info(self, batch_size)")

    def _check_unmodified(self) -> None:
        if self._modified:
            raise CellStateError(
                "After applying modifier cells (e.g. ZoneoutCell) the base cell cannot be called directly. "
                "Call the modifier cell instead."
            )

    def begin_state(self, batch_size: int = 0, func: Any = None, **kwargs: Any) -> list[Any]:
        """Initial states for a batch.

        Parameters
        ----------
        batch_size : int
            Number of sequences.
        func : callable, optional
            Called with ``shape`` for each state; zeros by default.
        **kwargs
            Passed to ``func``, such as ``ctx`` and ``dtype``.
        """
        self._check_unmodified()
        return made_by(func, self.state_info(batch_size), kwargs)

    def _begin_for(self, inputs: Any, batch_axis: int) -> list[Any]:
        """Zeros of the inputs' batch size, type and place."""
        return zeros_for(inputs, batch_axis, self.state_info())

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, list[Any]]:
        """Run the cell over a sequence.

        Parameters
        ----------
        length : int
            Number of steps.
        inputs : array, Symbol or list
            The sequence, with axes as ``layout`` says, or a list of its steps.
        begin_state : list, optional
            Zeros by default.
        layout : str
            Axes of merged inputs and outputs, such as "NTC" or "TNC".
        merge_outputs : bool, optional
            Whether the outputs are one array; else they are a list, unless ``valid_length`` is given.
        valid_length : array, optional
            Number of steps of each sequence (batch,): outputs behind it are zeros, the states are those of
            the last step.

        Returns
        -------
        outputs, states
        """
        self.reset()
        steps = steps_of(inputs, length, layout)
        states = begin_state
        if states is None:
            states = self._begin_for(steps[0], layout.replace("T", "").find("N"))
        outputs, history = [], []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
            if valid_length is not None:
                history.append(states)
        if valid_length is not None:
            F = namespace(outputs[0])
            states = [
                F.SequenceLast(merged(values, 0), valid_length, use_sequence_length=True, axis=0)
                for values in zip(*history, strict=True)
            ]
        self._forget()
        return arranged(outputs, layout, merge_outputs, valid_length), states

    def _forget(self) -> None:
        """Drop what was kept between steps: inside a trace it would outlive it."""
        self._memory.kept.clear()
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                cell._forget()

    def __call__(self, inputs: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        """One step."""
        self._memory.counter += 1
        return super().__call__(inputs, states, *args, **kwargs)

    def forward(self, inputs: Any, states: Any) -> Any:
        """One step; to be overridden: ``(output, new states)``."""
        return super().forward(inputs, states)


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """A `RecurrentCell` that can be hybridized."""

    forward = HybridBlock.forward  # type: ignore[assignment]

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def __repr__(self) -> str:
        return RecurrentCell.__repr__(self)

    def _step_name(self, name: str) -> str:
        """What a node of the step that runs is called."""
        return f"t{self._counter}_{name}"

    def _named(self, value: Any, name: str) -> Any:
        """A result of the step; symbolic cells (`mx.rnn`) name the operator it comes from."""
        return value
