"""gluon.contrib.rnn.rnn_cell: unrolling a cell as a loop, and the 1.x home of two cells."""

from __future__ import annotations

from typing import Any

from ....symbol.control_flow import foreach
from ...rnn import LSTMPCell, VariationalDropoutCell
from ...rnn.states import namespace

__all__ = ["LSTMPCell", "VariationalDropoutCell", "dynamic_unroll"]


def dynamic_unroll(
    cell: Any,
    inputs: Any,
    begin_state: Any,
    drop_inputs: float = 0,
    drop_outputs: float = 0,
    layout: str = "TNC",
    valid_length: Any = None,
) -> tuple[Any, Any]:
    """Run a cell over a sequence as one loop: a graph of it is as large for any number of steps.

    Parameters
    ----------
    cell : RecurrentCell
        The cell.
    inputs : array or Symbol
        The sequences, with axes as ``layout`` says.
    begin_state : list of arrays
        The states at the first step, such as ``cell.begin_state(batch_size)``.
    drop_inputs, drop_outputs : float
        Rates of dropout of the inputs and outputs, with one mask for all steps.
    layout : str
        ``"TNC"`` (faster) or ``"NTC"``.
    valid_length : array, optional
        Number of steps of each sequence (batch,): outputs behind it are zeros, and the states are those of
        its last step.

    Returns
    -------
    outputs, states

    Raises
    ------
    ValueError
        For another layout.
    """
    if layout not in ("TNC", "NTC"):
        raise ValueError(f"dynamic_unroll takes the layouts TNC and NTC; received {layout!r}")
    F = namespace(inputs)
    axis = layout.find("T")
    if drop_inputs:
        inputs = F.Dropout(inputs, p=drop_inputs, axes=(axis,))
    data = inputs if axis == 0 else F.swapaxes(inputs, dim1=0, dim2=1)

    def step(element: Any, states: Any) -> tuple[Any, Any]:
        output, states = cell(element, states)
        return (output if valid_length is None else [output, states]), states

    outputs, states = foreach(step, data, begin_state, "dynamic_unroll")
    if valid_length is not None:
        outputs, history = outputs
        outputs = F.SequenceMask(outputs, valid_length, use_sequence_length=True, axis=0)
        states = [
            F.SequenceLast(values, valid_length, use_sequence_length=True, axis=0) for values in history
        ]
    if axis == 1:
        outputs = F.swapaxes(outputs, dim1=0, dim2=1)
    if drop_outputs:
        outputs = F.Dropout(outputs, p=drop_outputs, axes=(axis,))
    return outputs, states
