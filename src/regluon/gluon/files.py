"""Files of blocks: parameters by name, exports, and whole structures."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Iterable
from typing import Any

from .. import serial
from ..graph.node import auxiliary_ids, topological
from ..serial.atomic import write_text
from ..symbol import Symbol, convert
from . import structure as structures
from .parameter_errors import ParameterValueError

__all__ = ["export", "load_dict", "load_imported", "load_parameters", "save_parameters"]


class MissingParameterError(ParameterValueError, AssertionError):
    """A file has no value for a parameter of the block."""


def _reduced(parameter: Any) -> Any:
    """One array with the value of a parameter (the mean over its contexts, as the originals save it)."""
    arrays = parameter.list_data()
    return arrays[0] if len(arrays) == 1 else parameter._reduce()


def save_parameters(block: Any, filename: Any, deduplicate: bool, format: str | None) -> None:
    """Write the parameters of a block under their structural names; shared ones once with ``deduplicate``."""
    found = block._collect_with_prefix()
    if deduplicate:
        last = {id(parameter): name for name, parameter in found.items()}
        found = {name: parameter for name, parameter in found.items() if last[id(parameter)] == name}
    serial.save(filename, {name: _reduced(parameter) for name, parameter in found.items()}, format=format)


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
    values = {_bare(name): array for name, array in loaded.items()}
    parameters = block._collect_with_prefix()
    chosen = _match(block, parameters, values)
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
    for name, key in chosen.items():
        parameters[name]._load_init(values[key], ctx, cast_dtype=cast_dtype, dtype_source=dtype_source)


def _names_of_all(block: Any, parameters: dict[str, Any]) -> set[str]:
    names = set(parameters)
    names.update(parameter.name for parameter in parameters.values())
    return names


def _bare(name: str) -> str:
    return name[4:] if name[:4] in ("arg:", "aux:") else name


def _match(block: Any, parameters: dict[str, Any], values: dict[str, Any]) -> dict[str, str]:
    """For each parameter (by structural name) the name in the file, tried in every spelling."""
    prefix = block.prefix or _common_prefix([p.name for p in parameters.values()])
    common = _common_prefix(list(values))
    by_id: dict[int, str] = {}
    chosen: dict[str, str] = {}
    for name, parameter in parameters.items():
        full = parameter.name
        candidates = [name]
        if full != name and (block._level == 1 or full not in ("weight", "bias")):
            candidates.append(full)
            if prefix and full.startswith(prefix):
                candidates += [full[len(prefix) :], common + full[len(prefix) :]]
        for candidate in candidates:
            if candidate in values:
                chosen[name] = candidate
                by_id.setdefault(id(parameter), candidate)
                break
    for name, parameter in parameters.items():
        if name not in chosen and id(parameter) in by_id:
            chosen[name] = by_id[id(parameter)]
    return chosen


def _common_prefix(names: list[str]) -> str:
    """The block prefix that all names share, up to an underscore."""
    if len(names) < 2:
        return ""
    common = _shared_start(names)
    return common[: common.rfind("_") + 1]


def _shared_start(names: list[str]) -> str:
    first, last = min(names), max(names)
    length = next(
        (i for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
    )
    return first[:length]


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
    load_dict(block, loaded, ctx, allow_missing, ignore_extra, True, "saved", source)


def export(block: Any, path: Any, epoch: int, remove_amp_cast: bool, format: str | None) -> Any:
    """See `HybridBlock.export`."""
    record = block._graph_cache().for_export()
    for node, parameter in record.parameters:
        node.user = {**parameter.var()._single().node.user, **_shape_text(parameter)}
    auxiliary = auxiliary_ids(topological(record.outputs))
    arrays: dict[str, Any] = {}
    for node, parameter in record.parameters:
        tag = "aux" if id(node) in auxiliary else "arg"
        arrays.setdefault(f"{tag}:{node.name}", _reduced(parameter))
    for node, array in record.captured:
        arrays[f"{'aux' if id(node) in auxiliary else 'arg'}:{node.name}"] = array
    for text, location in dict.fromkeys(record.frozen):
        warnings.warn(
            f"export: a size ({text}) was read as a number at {location}: it is a constant in the file, "
            "which is right for inputs of this size only",
            stacklevel=3,
        )
    attributes = {
        "regluon_in": structures.to_text(record.in_structure),
        "regluon_out": structures.to_text(record.out_structure),
    }
    if path is None:
        symbol = Symbol._of(convert.copy_entries(record.outputs))
        return symbol, arrays
    text = convert.to_json(record.outputs, remove_amp_cast, attributes)
    symbol_file, param_file = f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
    serial.save(param_file, arrays, format=format)
    write_text(symbol_file, text)
    return symbol_file, param_file


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
