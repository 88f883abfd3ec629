"""Gluon: blocks, parameters, layers, losses, training."""

from __future__ import annotations

from . import (
    block,
    contrib,
    data,
    loss,
    metric,
    model_zoo,
    nn,
    rnn,
    trainer,
    utils,
)
from . import parameter as parameter
from .block import Block, HybridBlock, SymbolBlock
from .parameter import Constant, DeferredInitializationError, Parameter, ParameterDict
from .torch_block import from_torch
from .trainer import Trainer

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
