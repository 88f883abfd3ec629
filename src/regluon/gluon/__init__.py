"""Gluon: blocks, parameters, layers, losses, training."""

from __future__ import annotations

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

from . import (
    block,
    data,
    loss,
    metric,
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
    from . import contrib, rnn

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


# What few programs use is imported when they first ask for it.
_LATER = ("contrib", "rnn")


def __getattr__(name: str) -> _ModuleType:
    if name in _LATER:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
