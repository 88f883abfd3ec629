"""Making Symbols: variables, groups, and graphs from files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import dtypes
from ..base.naming import current_attributes
from ..graph.node import Entry, Node
from . import convert
from .symbol import Symbol, dunder

__all__ = ["Group", "Variable", "fromjson", "load", "load_json", "np_symbol", "var"]


def var(
    name: str,
    attr: dict[str, str] | None = None,
    shape: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: str | None = None,
    profiler_scope: str | None = None,
    **kwargs: str,
) -> Any:
    """A variable: an input of a graph.

    Parameters
    ----------
    name : str
        Its name.
    attr : dict of str
        Free attributes.
    shape : tuple of int
        Its shape; 0 (or -1 in NumPy shape mode) is unknown.
    lr_mult, wd_mult : float
        Factors for optimizers.
    dtype : dtype
        Its type.
    init : Initializer or str
        How it is initialized.
    stype : str
        Its storage type.

    Raises
    ------
    TypeError
        If the name is no string.
    ValueError
        For an extra keyword that is not of the form ``__key__``.
    """
    if not isinstance(name, str):
        raise TypeError(f"a variable's name is a string; received {name!r}")
    user = current_attributes({dunder(key): str(value) for key, value in (attr or {}).items()})
    if shape is not None:
        user["__shape__"] = str(tuple(shape))
    if lr_mult is not None:
        user["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        user["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        user["__dtype__"] = str(dtypes.to_flag(dtype))
    if init is not None:
        user["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        user["__storage_type__"] = str({"default": 0, "row_sparse": 1, "csr": 2}[stype])
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(
                f"var got the keyword {key!r}; extra attributes are written __{key}__ (or passed in attr=)"
            )
        user[key] = str(value)
    return Symbol._of([Entry(Node(None, name, user=user), 0)])


Variable = var


def np_symbol(name: str, **keywords: Any) -> Any:
    """A variable of the NumPy kind."""
    return var(name, **keywords).as_np_ndarray()


def Group(symbols: Sequence[Any], create_fn: Any = None) -> Any:
    """Several Symbols as one with all their outputs."""
    del create_fn
    symbols = list(symbols)
    if not symbols or any(not isinstance(symbol, Symbol) for symbol in symbols):
        raise TypeError(f"Group expects a non-empty list of Symbols; received {symbols!r}")
    return type(symbols[0])._of([entry for symbol in symbols for entry in symbol._list()])


def load_json(json_str: str | bytes) -> Any:
    """A Symbol from the text of `Symbol.tojson` (of any version of MXNet)."""
    entries, _ = convert.from_json(json_str)
    return Symbol._of(entries)


fromjson = load_json


def load(fname: Any) -> Any:
    """A Symbol from a ``-symbol.json`` file."""
    with open(fname, "rb") as file:
        entries, _ = convert.from_json(file.read(), str(fname))
    return Symbol._of(entries)


