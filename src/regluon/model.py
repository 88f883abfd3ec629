"""Checkpoints of a symbol and its parameters, and `FeedForward`, the oldest training interface."""

from __future__ import annotations

import logging
import os
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from . import serial, symbol

__all__ = ["BatchEndParam", "load_checkpoint", "load_params", "save_checkpoint"]

#: What a batch-end callback gets: epoch, number of the batch, metric, and the training loop's variables.
BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])


def params_file(prefix: Any, epoch: int) -> str:
    """Name of the file of parameters of an epoch."""
    return f"{os.fspath(prefix)}-{int(epoch):04d}.params"


def pack_params(arg_params: Mapping[str, Any], aux_params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under the names that they have in a file."""
    packed = {f"arg:{name}": array for name, array in arg_params.items()}
    packed.update((f"aux:{name}", array) for name, array in aux_params.items())
    return packed


def unpack_params(fname: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments and auxiliary states of a file of parameters.

    Raises
    ------
    ValueError
        When a name is neither ``arg:...`` nor ``aux:...``.
    """
    loaded = serial.load(fname)
    if not loaded:
        logging.warning("Params file '%s' is empty", fname)
        return {}, {}
    parts: dict[str, dict[str, Any]] = {"arg": {}, "aux": {}}
    for key, array in loaded.items() if isinstance(loaded, dict) else [("", None)]:
        kind, colon, name = key.partition(":")
        if not colon or kind not in parts:
            raise ValueError(
                f"{fname}: a checkpoint's arrays are named 'arg:NAME' or 'aux:NAME', got {key!r}. Read a "
                "file of net.save_parameters with net.load_parameters, any other with mx.nd.load"
            )
        parts[kind][name] = array
    return parts["arg"], parts["aux"]


def save_checkpoint(
    prefix: Any,
    epoch: int,
    symbol: Any,
    arg_params: Mapping[str, Any],
    aux_params: Mapping[str, Any],
    remove_amp_cast: bool = True,
) -> None:
    """Write ``prefix-symbol.json`` (without a symbol it is left out) and ``prefix-0001.params``.

    Parameters
    ----------
    prefix : path
        Beginning of the files' names.
    epoch : int
        The number in the name of the parameters' file.
    symbol : Symbol or None
        The network.
    arg_params, aux_params : dict of str to NDArray
        Parameters and auxiliary states.
    remove_amp_cast : bool
        Leave the casts of mixed precision out of the symbol.
    """
    if symbol is not None:
        symbol.save(f"{os.fspath(prefix)}-symbol.json", remove_amp_cast=remove_amp_cast)
    fname = params_file(prefix, epoch)
    serial.save(fname, pack_params(arg_params, aux_params))
    logging.info('Saved checkpoint to "%s"', fname)


def load_params(prefix: Any, epoch: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and auxiliary states of a checkpoint.

    Raises
    ------
    OSError
        When the file cannot be opened.
    ValueError
        When it is no checkpoint's.
    """
    return unpack_params(params_file(prefix, epoch))


def load_checkpoint(prefix: Any, epoch: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Symbol, parameters and auxiliary states of a checkpoint.

    Raises
    ------
    OSError
        When a file cannot be opened.
    ValueError
        When the parameters' file is no checkpoint's.
    """
    network = symbol.load(f"{os.fspath(prefix)}-symbol.json")
    return (network, *load_params(prefix, epoch))


def __getattr__(name: str) -> Any:
    # FeedForward stands on modules, which stand on this file.
    if name == "FeedForward":
        from .module.feed_forward import FeedForward

        return FeedForward
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
