"""Files of blocks: parameters by name, exports, and whole structures."""

from __future__ import annotations

import difflib
import json
import numbers
import warnings
from collections.abc import Iterable
from typing import Any

from .. import serial
from ..base.atomic import write_text
from ..graph.node import auxiliary_ids, topological
from ..runtime.handles import kinds
from ..symbol import convert
from . import structure as structures
from .file_names import append_aliases, bare, match, read_aliases
from .parameter_errors import ParameterValueError
from .parameter_support import load_all

__all__ = ["export", "load_dict", "load_imported", "load_parameters", "save_parameters"]


class MissingParameterError(ParameterValueError):
    """A file has no value for a parameter of the block."""


def _reduced(parameter: Any) -> Any:
    """One array with the value of a parameter (the mean over its contexts, as the originals save it)."""
    arrays = parameter.list_data()
    return arrays[0] if len(arrays) == 1 else parameter._reduce()


def save_parameters(block: Any, filename: Any, deduplicate: bool, format: str | None) -> None:
    """Write the parameters of a block under their structural names; shared ones once with ``deduplicate``."""
    found = block._collect_with_prefix()
    aliases: dict[str, str] = {}
    if deduplicate:
        last = {id(parameter): name for name, parameter in found.items()}
        aliases = {name: last[id(p)] for name, p in found.items() if last[id(p)] != name}
        found = {name: parameter for name, parameter in found.items() if name not in aliases}
    with serial.atomic_writer(filename) as stream:
        serial.write(stream, {name: _reduced(parameter) for name, parameter in found.items()}, format)
        if format != "npz":
            append_aliases(stream, aliases)


def save_full_names(block: Any, filename: Any) -> None:
    """Write the parameters under their full names without the block's own prefix (``save_params`` of 1.x)."""
    prefix = block.prefix
    values = {}
    for name, parameter in block.collect_params().items():
        values[name[len(prefix) :] if prefix and name.startswith(prefix) else name] = _reduced(parameter)
    serial.save(filename, values)


def load_parameters(
    block: Any,
    filename: Any,
    ctx: Any,
    allow_missing: bool,
    ignore_extra: bool,
    cast_dtype: bool,
    dtype_source: str,
) -> None:
    """Read parameters from a file; names may be structural, full, without prefix, or with ``arg:`` and
    ``aux:``.

    Raises
    ------
    AssertionError
        (an MXNetError too) if a parameter is missing in the file.
    ValueError
        (an MXNetError too) if the file has a name that the block does not have, or shapes differ.
    """
    loaded = serial.load(filename)
    if not isinstance(loaded, dict):
        if not loaded and not block._collect_with_prefix():
            return
        raise ParameterValueError(
            f"{filename} holds {len(loaded)} arrays without names; parameters are loaded by name. Save them "
            "with save_parameters"
        )
    for another, name in read_aliases(filename).items():
        if name in loaded and another in block._collect_with_prefix():
            loaded.setdefault(another, loaded[name])
    load_dict(block, loaded, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source, str(filename))


def load_dict(
    block: Any,
    loaded: dict[str, Any],
    ctx: Any,
    allow_missing: bool,
    ignore_extra: bool,
    cast_dtype: bool,
    dtype_source: str,
    source: str = "the dict",
) -> None:
    """Take parameters from named arrays; see `load_parameters`."""
    values = {bare(name): array for name, array in loaded.items()}
    _adapt(block, "", values)
    parameters = block._collect_with_prefix()
    chosen = match(block, parameters, values)
    if not allow_missing:
        done = {id(parameters[name]) for name in chosen}
        for name, parameter in parameters.items():
            if name not in chosen and id(parameter) not in done:
                raise MissingParameterError(
                    f"Parameter '{name}' is missing in file: {source}, which contains parameters: "
                    f"{_listed(values)}.{_near(name, values)} Set allow_missing=True to ignore missing "
                    "parameters."
                )
    extra = [key for key in values if key not in set(chosen.values())]
    extra = [key for key in extra if key not in _names_of_all(block, parameters)]
    if extra and not ignore_extra:
        raise ParameterValueError(
            f"Parameter '{extra[0]}' loaded from file '{source}' is not present in ParameterDict, which "
            f"contains parameters {_listed(parameters)}.{_near(extra[0], parameters)} Set ignore_extra=True "
            "to ignore. "
        )
    pairs = [(parameters[name], values[key]) for name, key in chosen.items()]
    load_all(pairs, ctx, cast_dtype, dtype_source)


def _adapt(block: Any, path: str, values: dict[str, Any]) -> None:
    """Let blocks whose parameters have been saved in several forms bring the arrays into their own."""
    if hasattr(block, "_adapt_saved"):
        block._adapt_saved(path, values)
    for name, child in block._children.items():
        _adapt(child, f"{path}.{name}" if path else name, values)


def _names_of_all(block: Any, parameters: dict[str, Any]) -> set[str]:
    names = set(parameters)
    names.update(parameter.name for parameter in parameters.values())
    return names


def _listed(names: Iterable[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return ", ".join(quoted if len(quoted) <= 10 else [*quoted[:5], "...", *quoted[-5:]])


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=3)
    return f" Nearest: {', '.join(near)}." if near else ""


def load_imported(
    block: Any, loaded: Any, source: str, ctx: Any, allow_missing: bool, ignore_extra: bool
) -> None:
    """Give an imported SymbolBlock its parameters."""
    if not isinstance(loaded, dict):
        if loaded:
            raise ParameterValueError(
                f"{source} holds arrays without names; an export's parameters have names"
            )
        loaded = {}
    if not loaded and not block._reg_params:
        return
    try:
        load_dict(block, loaded, ctx, allow_missing, ignore_extra, True, "saved", source)
    except MissingParameterError as error:
        absent = [name for name in block._reg_params if name not in {bare(key) for key in loaded}]
        raise MissingParameterError(
            f"{error} If {', '.join(absent[:5])} is an input of the graph (data, a label), name it in "
            "input_names, or leave input_names out to have the inputs found."
        ) from error


def export(block: Any, path: Any, epoch: int, remove_amp_cast: bool, format: str | None) -> Any:
    """See `HybridBlock.export`."""
    return write_export(block._graph_cache().for_export(), path, epoch, remove_amp_cast, format)


def write_export(record: Any, path: Any, epoch: int, remove_amp_cast: bool, format: str | None) -> Any:
    """Write a recorded graph and its parameters; both files are complete before either takes its name."""
    if isinstance(epoch, bool) or not isinstance(epoch, numbers.Integral) or epoch < 0:
        raise ValueError(f"epoch is the number in the file's name: expected an int >= 0, received {epoch!r}")
    arrays = _named_arrays(record)
    for text, location in dict.fromkeys(record.frozen):
        warnings.warn(
            f"export: a size ({text}) was read as a number at {location}: it is a constant in the file, "
            "which is right for inputs of this size only",
            stacklevel=4,
        )
    if path is None:
        cls = kinds.np_symbol if record.classes and record.classes[0] is kinds.np else kinds.symbol
        return cls._of(convert.copy_entries(record.outputs)), {k: array.copy() for k, array in arrays.items()}
    attributes = {
        "regluon_in": structures.to_text(record.in_structure),
        "regluon_out": structures.to_text(record.out_structure),
    }
    text = convert.to_json(record.outputs, remove_amp_cast, attributes)
    symbol_file, param_file = f"{path}-symbol.json", f"{path}-{int(epoch):04d}.params"
    with serial.atomic_writer(param_file) as params, serial.atomic_writer(symbol_file) as symbol:
        serial.write(params, arrays, format)
        symbol.write(text.encode())
    return symbol_file, param_file


def _named_arrays(record: Any) -> dict[str, Any]:
    """The values of the variables that a graph uses, under ``arg:`` and ``aux:`` names."""
    order = topological(record.outputs, sizes=False)
    used, auxiliary = {id(node) for node in order}, auxiliary_ids(order)
    arrays: dict[str, Any] = {}
    for node, parameter in record.parameters:
        node.user = {**parameter.var()._single().node.user, **_shape_text(parameter)}
        if id(node) in used:
            arrays.setdefault(f"{'aux' if id(node) in auxiliary else 'arg'}:{node.name}", _reduced(parameter))
    for node, array in record.captured:
        if id(node) in used:
            arrays[f"{'aux' if id(node) in auxiliary else 'arg'}:{node.name}"] = array
    return arrays


def _shape_text(parameter: Any) -> dict[str, str]:
    return {"__shape__": str(tuple(parameter.shape))} if parameter.shape is not None else {}


def save_block(block: Any, prefix: str) -> None:
    """Write the structure of a block as JSON and its parameters beside it."""
    write_text(f"{prefix}-model.json", json.dumps(_describe(block), indent=2))
    save_parameters(block, f"{prefix}-model.params", False, None)


def _describe(block: Any) -> dict[str, Any]:
    return {
        "class": type(block).__name__,
        "parameters": {
            name: {"shape": list(p.shape or ()), "dtype": str(p.dtype)}
            for name, p in block._reg_params.items()
        },
        "children": {name: _describe(child) for name, child in block._children.items()},
    }


def load_block(block: Any, prefix: str) -> None:
    """Read back what `save_block` wrote; the structure must be the same."""
    with open(f"{prefix}-model.json", encoding="utf-8") as file:
        saved = json.load(file)
    _compare(_describe(block), saved, type(block).__name__)
    load_parameters(block, f"{prefix}-model.params", None, False, False, False, "current")


def _compare(own: dict[str, Any], saved: dict[str, Any], where: str) -> None:
    if own["class"] != saved.get("class") or list(own["children"]) != list(saved.get("children", {})):
        raise ParameterValueError(
            f"the saved model has {saved.get('class')} with children {list(saved.get('children', {}))} at "
            f"{where}; this block has {own['class']} with children {list(own['children'])}"
        )
    for name, child in own["children"].items():
        _compare(child, saved["children"][name], f"{where}.{name}")
