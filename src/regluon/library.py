"""mx.library: extension libraries of MXNet, which cannot be loaded here."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from .base import MXNetError

__all__ = ["MXNetError", "load"]


def load(path: Any, verbose: bool = True) -> NoReturn:
    """Refused: extensions are compiled against MXNet's own library.

    Raises
    ------
    MXNetError
        Always; the text names what to use instead.
    """
    if not os.path.exists(path):
        raise MXNetError(f"load path {path} does NOT exist")
    raise MXNetError(
        f"{os.fspath(path)} is an extension for MXNet's shared library, which regluon does not have. Write "
        "the operator in Python with mx.operator.CustomOp or as one of its own (docs/add-an-operator.md), a "
        "graph pass as a backend (docs/add-a-backend.md)"
    )
