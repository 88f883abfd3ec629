"""Gluon: blocks, parameters, layers, losses, training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.later import imported_later as _imported_later
from . import (
    block,
    loss,
    model_zoo,
    nn,
    trainer,
    utils,
)
from . import parameter as parameter
from .block import Block, HybridBlock, SymbolBlock
from .parameter import Constant, DeferredInitializationError, Parameter, ParameterDict
from .torch_block import from_torch
from .trainer import Trainer

if TYPE_CHECKING:
    from . import contrib, data, metric, rnn

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
    "block",
    "contrib",
    "data",
    "from_torch",
    "loss",
    "metric",
    "model_zoo",
    "nn",
    "parameter",
    "rnn",
    "trainer",
    "utils",
]

__getattr__, __dir__ = _imported_later(globals(), "contrib", "data", "metric", "rnn")
