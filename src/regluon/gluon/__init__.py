"""Gluon: blocks, parameters, layers, losses, training."""

from __future__ import annotations

from . import parameter as parameter  # noqa: I001
from .parameter import Constant, Parameter, ParameterDict
from .block import Block, HybridBlock, SymbolBlock
from . import nn  # noqa: I001
from . import block, contrib, data, loss, metric, model_zoo, trainer, utils
from .trainer import Trainer

__all__ = [
    "Block",
    "Constant",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
    "block",
    "contrib",
    "data",
    "loss",
    "metric",
    "model_zoo",
    "nn",
    "parameter",
    "trainer",
    "utils",
]
