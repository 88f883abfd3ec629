"""What MXNet 1.9.1 says of Symbols and executors, and Symbols from the expressions it was asked with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import regluon as mx

GOLDENS = json.loads((Path(__file__).parents[1] / "golden" / "symbols.json").read_text())


def scoped(S: Any, mx: Any) -> Any:
    """As in tests/golden/make/symbols.py."""
    with mx.AttrScope(ctx_group="dev1", lr_mult="3"), mx.AttrScope(__inner__="yes"):
        return S.FullyConnected(S.var("x", attr={"lr_mult": "5"}), num_hidden=3, name="fc")


def make(text: str) -> Any:
    """The Symbol of an expression of the goldens, with automatic names starting anew."""
    with mx.name.NameManager():
        return eval(text, {"S": mx.sym, "mx": mx, "scoped": scoped})


def shapes(lists: Any) -> Any:
    return tuple([tuple(shape) for shape in group] for group in lists)
