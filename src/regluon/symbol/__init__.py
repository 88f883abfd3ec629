"""mx.sym: Symbols, and a function for every operator that composes one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..runtime import namespaces as _namespaces
from . import random as random
from .executor import Executor
from .functions import (
    arange,
    eye,
    full,
    histogram,
    hypot,
    linspace,
    maximum,
    minimum,
    ones,
    power,
    split_v2,
    zeros,
)
from .named import named_module
from .symbol import Symbol
from .variables import Group, Variable, fromjson, load, load_json, np_symbol, var

__all__ = [
    "Executor",
    "Group",
    "Symbol",
    "Variable",
    "arange",
    "eye",
    "fromjson",
    "full",
    "histogram",
    "hypot",
    "linspace",
    "load",
    "load_json",
    "maximum",
    "minimum",
    "np_symbol",
    "ones",
    "power",
    "split_v2",
    "var",
    "zeros",
]

pow = power

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Functions made from the operator table."""


_namespaces.fill_namespace(sys.modules[__name__], "sym")


def _link() -> None:
    """F.np and F.npx of hybrid_forward."""
    from .. import numpy, numpy_extension

    module = sys.modules[__name__]
    np = named_module(numpy, f"{__name__}.numpy")
    npx = named_module(numpy_extension, f"{__name__}.numpy_extension")
    module.np = module.numpy = np  # type: ignore[attr-defined]
    module.npx = module.numpy_extension = npx  # type: ignore[attr-defined]
