"""Converting files: between formats of arrays, and between the names of the two generations."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regluon.base.atomic import write_text
from regluon.graph import json as symbols
from regluon.serial import params
from regluon.serial.naming import NamingError, Rule, bare, matched, renaming, tagged
from regluon.serial.sources import FORMATS, ArrayFile, StoredArray, open_arrays, write_arrays

__all__ = ["NAMINGS", "Conversion", "convert", "is_symbol"]

NAMINGS = ("keep", "plain", "export", "structural", "full")
Path_ = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What was written: the format, how many arrays and bytes, and the names that changed."""

    format: str
    count: int
    size: int
    renamed: Mapping[str, str]


def is_symbol(path: Path_) -> bool:
    """Whether a file is symbol JSON, by its first bytes."""
    with open(path, "rb") as stream:
        return stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def convert(
    source: Path_,
    target: Path_,
    format: str | None = None,
    names: str = "keep",
    net: Any = None,
    like: Path_ | None = None,
    rename: Sequence[str] = (),
    symbol: Path_ | None = None,
    dense: bool = False,
    progress: Callable[[Iterator[Any], int], Iterator[Any]] | None = None,
) -> Conversion:
    """Write the arrays of a file in another format or under other names; or a symbol with other names.

    Parameters
    ----------
    source, target : path
        Files; the target is replaced in one step. A ``.json`` source is a symbol, of which variables are
        renamed.
    format : {"params", "npz", "safetensors"}, optional
        Format of the target; by default what its name ends with.
    names : {"keep", "plain", "export", "structural", "full"}
        ``plain`` takes ``arg:`` and ``aux:`` away, ``export`` adds them. ``structural`` (``0.weight``) and
        ``full`` (``net0_dense0_weight``) need ``net``.
    net : str or Block, optional
        The network, or ``MODULE:CALLABLE`` that makes it; its code runs.
    like : path, optional
        A file of the same network with the wanted names: arrays or (best) a symbol.
    rename : sequence of str
        ``PATTERN=TEXT`` rules, applied to the names at the end.
    symbol : path, optional
        The symbol that the parameters are of; says with ``names="export"`` which are auxiliary.
    dense : bool
        Whether sparse arrays become dense.
    progress : callable, optional
        Wraps the iterator of arrays, whose total of bytes it is given, to show how far it is.

    Raises
    ------
    MXNetError
        If a file is damaged, or the names cannot be had.
    ValueError
        For an unknown format or naming.
    """
    if names not in NAMINGS:
        raise ValueError(f"names must be one of {', '.join(NAMINGS)}; received {names!r}")
    if is_symbol(source):
        return _convert_symbol(source, target, names, like, renaming(rename))
    chosen = format or _format_of(target)
    if chosen not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}; received {chosen!r}")
    with open_arrays(source) as file:
        found = _names(file, names, net, like, symbol, str(source))
        apply = renaming(rename)
        renamed = {old: apply(new) for old, new in found.items()}
        _check_unique(renamed)
        size = sum(array.size for array in file.arrays)
        arrays: Iterator[Any] = iter(file.arrays)
        if progress is not None:
            arrays = progress(arrays, size)
        read = (_read(array, dense) for array in arrays)
        write_arrays(target, chosen, list(renamed.values()), read, len(file.arrays))
    changed = {old: new for old, new in renamed.items() if old != new}
    return Conversion(chosen, len(file.arrays), size, changed)


def _read(array: StoredArray, dense: bool) -> torch.Tensor | params.SparseTensor:
    value = array.read()
    return value.to_dense() if dense and isinstance(value, params.SparseTensor) else value


def _format_of(target: Path_) -> str:
    ending = Path(target).suffix
    for name, suffix in FORMATS.items():
        if ending == suffix:
            return name
    raise ValueError(
        f"the format of {os.fspath(target)!r} cannot be told from its ending {ending!r}: expected one of "
        f"{', '.join(FORMATS.values())}, or give the format"
    )


def _check_unique(renamed: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for old, new in renamed.items():
        if new in seen:
            raise NamingError(f"'{seen[new]}' and '{old}' would both be named '{new}'")
        seen[new] = old


def _names(
    file: ArrayFile, names: str, net: Any, like: Path_ | None, symbol: Path_ | None, source: str
) -> dict[str, str]:
    """New names of a file's arrays by their present ones; empty for a list."""
    if not file.named:
        if names != "keep" or like is not None:
            raise NamingError(
                f"{source} holds {len(file.arrays)} arrays without names: nothing can be renamed"
            )
        return {}
    present = [Rule(array.name or "", array.shape) for array in file.arrays]
    found = {rule.name: rule.name for rule in present}
    if len(found) != len(present):
        raise NamingError(f"{source} holds several arrays of one name")
    if like is not None:
        found = dict(matched(present, _rules_of(like)))
    elif names in ("structural", "full"):
        found = _names_of_net(present, names, _network(net), source)
    if names == "plain":
        return {old: bare(new) for old, new in found.items()}
    if names == "export":
        auxiliary = _auxiliary_of(symbol) if symbol is not None else None
        return {old: tagged(new, auxiliary) for old, new in found.items()}
    return found


# Names from other files --------------------------------------------------------------------------


def _read_symbol(path: Path_) -> symbols.GraphRecord:
    return symbols.parse(Path(path).read_bytes(), str(path))


def _shape(text: str | None) -> tuple[int, ...] | None:
    try:
        value = ast.literal_eval(text) if text else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return tuple(value) if isinstance(value, tuple) and all(type(size) is int for size in value) else None


def _rules_of(path: Path_) -> list[Rule]:
    """The names and shapes of the parameters in a file of arrays or a symbol."""
    if not is_symbol(path):
        with open_arrays(path) as file:
            if not file.named:
                raise NamingError(f"{os.fspath(path)} holds arrays without names")
            return [Rule(array.name or "", array.shape) for array in file.arrays]
    from regluon.serial.inspection import inputs_of

    graph = _read_symbol(path)
    inputs = set(inputs_of(graph))
    return [
        Rule(node.name, _shape(node.attributes.get("__shape__")))
        for node in graph.nodes
        if node.operator == "null" and node.name not in inputs
    ]


def _auxiliary_of(path: Path_) -> set[str]:
    from regluon.serial.inspection import auxiliary_of

    return set(auxiliary_of(_read_symbol(path)))


# Names from a network --------------------------------------------------------------------------------


def _network(net: Any) -> Any:
    if net is None:
        raise NamingError(
            "structural and full names are those of a network: give it with net (--net MODULE:CALLABLE), or "
            "a file with the wanted names with like (--like FILE)"
        )
    if not isinstance(net, str):
        return net
    module, colon, name = net.partition(":")
    if not colon or not module or not name:
        raise NamingError(f"the network is given as MODULE:CALLABLE; received {net!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        made: Any = importlib.import_module(module)
        for part in name.split("."):
            made = getattr(made, part)
    except (ImportError, AttributeError) as error:
        raise NamingError(f"the network {net!r} is not there: {error}") from error
    from regluon.gluon import Block

    made = made if isinstance(made, Block) else made()
    if not isinstance(made, Block):
        raise NamingError(f"{net!r} gives a {type(made).__name__}; a gluon Block was expected")
    return made


def _names_of_net(present: Sequence[Rule], names: str, net: Any, source: str) -> dict[str, str]:
    """Names of a network's parameters, which are found under every spelling of theirs."""
    from regluon.gluon.file_names import match

    structural = net._collect_with_prefix()
    by_name = {bare(rule.name): rule for rule in present}
    found: dict[str, str] = {}
    for name, plain in match(net, structural, by_name).items():
        key = by_name[plain].name
        found.setdefault(key, name if names == "structural" else structural[name].name)
    missing = [rule.name for rule in present if rule.name not in found]
    if missing:
        raise NamingError(
            f"{len(missing)} of the {len(present)} names in {source} are none of the network's "
            f"{len(structural)} parameters, such as '{missing[0]}'; the network has "
            f"{', '.join(list(structural)[:5])}"
        )
    return {rule.name: found[rule.name] for rule in present}


# Symbols -------------------------------------------------------------------------------------------


def _convert_symbol(
    source: Path_, target: Path_, names: str, like: Path_ | None, rename: Callable[[str], str]
) -> Conversion:
    """Rename the variables of a symbol; all else in the file stays as it is."""
    if names != "keep":
        raise NamingError(
            "the names of a symbol are changed with like (--like) or rename (--rename), not with "
            f"names={names!r}"
        )
    graph = _read_symbol(source)
    variables = [node.name for node in graph.nodes if node.operator == "null"]
    found = {name: name for name in variables}
    if like is not None:
        found.update({old: bare(new) for old, new in matched(_rules_of(source), _rules_of(like)).items()})
    renamed = {old: rename(new) for old, new in found.items()}
    _check_unique(renamed)
    document = json.loads(Path(source).read_bytes())
    for node in document["nodes"]:
        if node["op"] == "null":
            node["name"] = renamed[node["name"]]
    text = json.dumps(document, indent=2)
    write_text(target, text + "\n")
    changed = {old: new for old, new in renamed.items() if old != new}
    return Conversion("symbol", len(variables), len(text) + 1, changed)
