"""mx.sym: Symbols, and a function for every operator that composes one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..runtime import namespaces as _namespaces
from .executor import Executor
from .symbol import Symbol
from .variables import Group, Variable, fromjson, load, load_json, np_symbol, var

__all__ = ["Group", "Symbol", "Variable", "fromjson", "load", "load_json", "np_symbol", "var"]

from .functions import (
    arange,
    eye,
    full,
    hypot,
    linspace,
    maximum,
    minimum,
    ones,
    power,
    zeros,
)

__all__ += ["arange", "eye", "full", "hypot", "linspace", "maximum", "minimum", "ones", "power", "zeros"]
pow = power

from . import random as random  # noqa: E402

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Functions made from the operator table."""


_namespaces.fill_namespace(sys.modules[__name__], "sym")


def _link() -> None:
    """F.np and F.npx of hybrid_forward."""
    from .. import numpy, numpy_extension

    module = sys.modules[__name__]
    module.np = numpy  # type: ignore[attr-defined]
    module.npx = numpy_extension  # type: ignore[attr-defined]
