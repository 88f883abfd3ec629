"""Making Symbols: variables, groups, and graphs from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..base import dtypes
from ..graph.node import Entry, Node
from . import convert
from .composition import user_attributes
from .symbol import Symbol

__all__ = ["Group", "Variable", "fromjson", "load", "load_json", "np_symbol", "var"]

_STORAGE = {"default": 0, "row_sparse": 1, "csr": 2}


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
        raise TypeError(f"Expect a string for variable `name`; received {name!r}")
    user = user_attributes(attr)
    if shape is not None:
        user["__shape__"] = str((shape,) if isinstance(shape, int) else tuple(shape))
    if lr_mult is not None:
        user["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        user["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        user["__dtype__"] = str(dtypes.to_flag(dtype))
    if init is not None:
        user["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        if stype not in _STORAGE:
            raise ValueError(f"stype is one of {', '.join(_STORAGE)}; received {stype!r}")
        user["__storage_type__"] = str(_STORAGE[stype])
    if profiler_scope is not None:
        user["__profiler_scope__"] = str(profiler_scope)
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(
                f"Attribute name={key} is not supported. Additional attributes must start and end with "
                f"double underscores, e.g, __{key}__"
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
        raise TypeError(f"Expected a list of symbols as input, and at least one; received {symbols!r}")
    return type(symbols[0])._of([entry for symbol in symbols for entry in symbol._list()])


def load_json(json_str: str | bytes) -> Any:
    """A Symbol from the text of `Symbol.tojson` (of any version of MXNet).

    Raises
    ------
    TypeError
        If it is no text.
    MXNetError
        If it is no symbol JSON, or names operators that are not there.
    """
    if not isinstance(json_str, (str, bytes)):
        raise TypeError(
            f"fname required to be string: load_json reads text; received {type(json_str).__name__}"
        )
    entries, _ = convert.from_json(json_str)
    return Symbol._of(entries)


fromjson = load_json


def load(fname: Any) -> Any:
    """A Symbol from a ``-symbol.json`` file.

    Raises
    ------
    TypeError
        If ``fname`` is no path.
    OSError
        If the file cannot be read.
    MXNetError
        If it is no symbol JSON, or names operators that are not there.
    """
    if not isinstance(fname, (str, bytes, os.PathLike)):
        raise TypeError(f"fname need to be string; received {type(fname).__name__}")
    with open(fname, "rb") as file:
        entries, _ = convert.from_json(file.read(), str(fname))
    return Symbol._of(entries)
