"""Checkpoints of networks with symbolic cells: with an array for each gate, whatever cells wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import symbol
from ..model import load_checkpoint, save_checkpoint
from .cells import BaseRNNCell

__all__ = ["do_rnn_checkpoint", "load_rnn_checkpoint", "rnn_unroll", "save_rnn_checkpoint"]


def _listed(cells: BaseRNNCell | Sequence[BaseRNNCell]) -> Sequence[BaseRNNCell]:
    return [cells] if isinstance(cells, BaseRNNCell) else cells


def save_rnn_checkpoint(
    cells: BaseRNNCell | Sequence[BaseRNNCell],
    prefix: Any,
    epoch: int,
    symbol: Any,
    arg_params: Mapping[str, Any],
    aux_params: Mapping[str, Any],
) -> None:
    """As `mx.model.save_checkpoint`, with the cells' weights unpacked.

    Parameters
    ----------
    cells : cell or list of cells
        Those whose `unpack_weights` is asked.
    prefix, epoch, symbol, arg_params, aux_params
        See `mx.model.save_checkpoint`.
    """
    arguments = dict(arg_params)
    for cell in _listed(cells):
        arguments = cell.unpack_weights(arguments)
    save_checkpoint(prefix, epoch, symbol, arguments, aux_params)


def load_rnn_checkpoint(
    cells: BaseRNNCell | Sequence[BaseRNNCell], prefix: Any, epoch: int
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Symbol, parameters (packed for these cells) and auxiliary states of a checkpoint.

    The file may have been written with other cells of the same weights: fused here, single there.

    Raises
    ------
    OSError
        When a file cannot be opened.
    KeyError
        When the file has not the weights of a cell.
    """
    network, arguments, auxiliary = load_checkpoint(prefix, epoch)
    for cell in _listed(cells):
        arguments = cell.pack_weights(arguments)
    return network, arguments, auxiliary


def do_rnn_checkpoint(
    cells: BaseRNNCell | Sequence[BaseRNNCell], prefix: Any, period: int = 1
) -> Callable[..., None]:
    """An epoch-end callback that calls `save_rnn_checkpoint` every ``period`` epochs."""
    period = max(int(period), 1)

    def callback(iter_no: int, sym: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (iter_no + 1) % period == 0:
            save_rnn_checkpoint(cells, prefix, iter_no + 1, sym, arg, aux)

    return callback


def rnn_unroll(
    cell: BaseRNNCell,
    length: int,
    inputs: Any = None,
    begin_state: Any = None,
    input_prefix: str = "",
    layout: str = "NTC",
) -> tuple[Any, Any]:
    """The older form of ``cell.unroll``; without inputs they are variables ``t0_data``, ``t1_data``, ..."""
    if inputs is None:
        inputs = [symbol.var(f"{input_prefix}t{number}_data") for number in range(length)]
    return cell.unroll(length, inputs, begin_state=begin_state, layout=layout)
