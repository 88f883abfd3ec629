"""What is in a file: symbols, arrays, optimizer states and records, described without reading the numbers."""

from __future__ import annotations

import ast
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regluon.base import dtypes
from regluon.base.errors import MXNetError
from regluon.graph import json as symbols
from regluon.graph.json import GraphRecord, NodeRecord
from regluon.graph.roles import parameter_names
from regluon.serial import params, states
from regluon.serial.naming import bare
from regluon.serial.sources import ArrayFile, open_arrays

__all__ = ["auxiliary_of", "describe", "describe_together", "inputs_of"]

_STATISTICS = ("moving_mean", "moving_var", "running_mean", "running_var")
_RECORD_MAGIC = b"\x0a\x23\xd7\xce"


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Facts about a file, as values that JSON can hold; ``kind`` says what it is.

    Raises
    ------
    MXNetError
        If the file is damaged or of no known kind; the message says where.
    OSError
        If it cannot be read.
    """
    size = os.stat(path).st_size
    with open(path, "rb") as stream:
        head = stream.read(256)
    facts: dict[str, Any] = {"file": os.fspath(path), "kind": "", "bytes": size}
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        facts |= _describe_symbol(symbols.parse(Path(path).read_bytes(), os.fspath(path)), path)
    elif head[:4] == _RECORD_MAGIC:
        facts |= _describe_records(path)
    elif head[:1] in (b"\x80", b"(", b"}", b"]") and head[8:9] != b"{":
        facts |= _describe_states(path)
    else:
        with open_arrays(path) as file:
            facts |= _describe_arrays(file, path)
    return facts


# Symbols ----------------------------------------------------------------------------------------


def _describe_symbol(graph: GraphRecord, path: Any) -> dict[str, Any]:
    from regluon.ops import registry

    registry.load()
    operators = Counter(node.operator for node in _all_nodes(graph.nodes) if node.operator != "null")
    known = {name: registry.exists(name) for name in operators}
    # An operator that kept its own name in an attribute is there under that name.
    for node in graph.nodes:
        if node.operator in known and not known[node.operator]:
            known[node.operator] = registry.exists(symbols.restored(node).operator)
    inputs, auxiliary = inputs_of(graph), auxiliary_of(graph)
    variables = {node.name: node for node in graph.nodes if node.operator == "null"}
    return {
        "kind": "symbol",
        "mxnet_version": _version_text(graph.version),
        "form": _form(path),
        "nodes": len(graph.nodes),
        "operators": dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        "unknown_operators": sorted(name for name, found in known.items() if not found),
        "inputs": [_variable(variables[name]) for name in inputs],
        "parameters": [
            _variable(node)
            for name, node in variables.items()
            if name not in inputs and name not in auxiliary
        ],
        "auxiliary": [_variable(variables[name]) for name in auxiliary if name in variables],
        "outputs": [_output(graph, place, index) for place, index in graph.heads],
        "attributes": dict(graph.attributes),
    }


def _all_nodes(nodes: Iterable[NodeRecord]) -> Iterator[NodeRecord]:
    """Nodes, and those of graphs inside of nodes."""
    for node in nodes:
        yield node
        for inner in node.subgraphs:
            if isinstance(inner, dict):
                yield from _all_nodes(symbols.parse_object(inner, f"a subgraph of {node.name}").nodes)


def _version_text(version: int) -> str:
    if not version:
        return "before 0.9"
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _form(path: Any) -> str:
    """The key of attributes, which tells the generation of the layout."""
    text = Path(path).read_bytes()
    keys = [key for key in ("param", "attr", "attrs") if f'"{key}":'.encode() in text.replace(b" :", b":")]
    return " and ".join(keys) or "without attributes"


def _variable(node: NodeRecord) -> dict[str, Any]:
    found: dict[str, Any] = {"name": node.name, "shape": None, "dtype": None}
    try:
        shape = ast.literal_eval(node.attributes.get("__shape__", "None"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        shape = None
    if isinstance(shape, tuple) and all(type(size) is int for size in shape):
        found["shape"] = [size if size > 0 else None for size in shape]
    code = node.attributes.get("__dtype__", "")
    if code.isdigit() and int(code) in dtypes.FLAG_TO_TORCH:
        found["dtype"] = dtypes.to_name(int(code))
    return found


def _output(graph: GraphRecord, place: int, index: int) -> str:
    node = graph.nodes[place]
    return node.name if node.operator == "null" else f"{node.name}_output{index or ''}"


def _slots(node: NodeRecord) -> Sequence[str]:
    """The names of an operator's inputs; none where it is not known or takes any number."""
    from regluon.ops import registry

    if not registry.exists(node.operator):
        return ()
    definition = registry.get(node.operator)
    return () if definition.variadic else definition.inputs


def auxiliary_of(graph: GraphRecord) -> list[str]:
    """Names of the variables that operators change while training, in the order of the graph."""
    from regluon.ops import registry

    registry.load()
    found: dict[str, None] = {}
    for node in graph.nodes:
        auxiliary = registry.get(node.operator).aux if registry.exists(node.operator) else ()
        for slot, (place, _) in zip(_slots(node), node.inputs, strict=False):
            variable = graph.nodes[place]
            if variable.operator == "null" and slot in auxiliary:
                found[variable.name] = None
    for node in graph.nodes:
        if node.operator == "null" and node.name.endswith(_STATISTICS):
            found[node.name] = None
    return [node.name for node in graph.nodes if node.name in found and node.operator == "null"]


def inputs_of(graph: GraphRecord) -> list[str]:
    """Names of the variables that no layer uses as a parameter: the inputs, and labels of old networks."""
    from regluon.ops import registry

    registry.load()
    variables = {node.name: node.attributes for node in graph.nodes if node.operator == "null"}
    uses = [
        (slot, graph.nodes[place].name)
        for node in graph.nodes
        for slot, (place, _) in zip(_slots(node), node.inputs, strict=False)
        if graph.nodes[place].operator == "null"
    ]
    parameters = parameter_names(variables, uses) | set(auxiliary_of(graph))
    return [name for name in variables if name not in parameters]


# Arrays, states, records ----------------------------------------------------------------------------


def _describe_arrays(file: ArrayFile, path: Any) -> dict[str, Any]:
    if file.format == "params" and file.arrays and file.arrays[0].name == states.HEADER:
        return _describe_states(path)
    total: Counter[str] = Counter()
    for array in file.arrays:
        total[array.dtype_name] += 1
    return {
        "kind": "arrays",
        "format": file.format,
        "array_versions": list(file.versions),
        "container": "dict" if file.named else "list",
        "count": len(file.arrays),
        "elements": sum(_elements(array.shape) for array in file.arrays),
        "data_bytes": sum(array.size for array in file.arrays),
        "dtypes": dict(total.most_common()),
        "storage_types": dict(Counter(array.storage for array in file.arrays).most_common()),
        "arrays": [
            {
                "name": array.name,
                "shape": list(array.shape),
                "dtype": array.dtype_name,
                "storage": array.storage,
                "bytes": array.size,
            }
            for array in file.arrays
        ],
    }


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _describe_states(path: Any) -> dict[str, Any]:
    data = Path(path).read_bytes()
    with params.naming(path):
        found, optimizer = states.loads(data)
    own = data[:8] == struct.pack("<Q", params.LIST_MAGIC)
    return {
        "kind": "optimizer states",
        "format": "regluon" if own else "pickle",
        "count": len(found),
        "optimizer": None if optimizer is None else type(optimizer).__name__,
        "states": {str(index): _shapes(state) for index, state in found.items()},
    }


def _shapes(state: Any) -> Any:
    if isinstance(state, (list, tuple)):
        return [_shapes(part) for part in state]
    if hasattr(state, "shape"):
        return {"shape": list(state.shape), "dtype": dtypes.to_name(state._torch_dtype())}
    return state if isinstance(state, (bool, int, float, str, type(None))) else type(state).__name__


def _describe_records(path: Any) -> dict[str, Any]:
    from regluon.recordio import MXRecordIO

    sizes = []
    try:
        with MXRecordIO(os.fspath(path), "r") as reader:
            while (size := reader.skip()) is not None:
                sizes.append(size)
    except ValueError as error:
        raise params.ParamsError(str(error)) from error
    return {
        "kind": "records",
        "format": "RecordIO",
        "count": len(sizes),
        "data_bytes": sum(sizes),
        "smallest": min(sizes, default=0),
        "largest": max(sizes, default=0),
    }


def describe_together(paths: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Describe several files; a file that cannot be read has an ``error`` instead of facts.

    Where symbols and named arrays are among them, what has a value in the arrays is no input of the
    symbols, and variables and arrays without a counterpart are listed as ``without_value`` and ``unused``.
    """
    found = []
    for path in paths:
        try:
            found.append(describe(path))
        except (MXNetError, OSError) as error:
            found.append({"file": os.fspath(path), "kind": "unreadable", "error": str(error)})
    tables = [
        {bare(array["name"]): array["shape"] for array in facts["arrays"]}
        for facts in found
        if facts["kind"] == "arrays" and facts["container"] == "dict"
    ]
    for facts in found:
        if facts["kind"] == "symbol":
            _compare(facts, tables)
    return found


def _compare(facts: dict[str, Any], tables: Sequence[dict[str, list[int]]]) -> None:
    parts = ("inputs", "parameters", "auxiliary")
    names = {variable["name"] for part in parts for variable in facts[part]}
    values: dict[str, list[int]] = {}
    for table in tables:
        if names & set(table):
            values.update(table)
    if not values:
        return
    for part in parts:
        for variable in facts[part]:
            variable["shape"] = values.get(variable["name"], variable["shape"])
    moved = [variable for variable in facts["inputs"] if variable["name"] in values]
    facts["inputs"] = [variable for variable in facts["inputs"] if variable["name"] not in values]
    facts["parameters"] = [*facts["parameters"], *moved]
    facts["without_value"] = sorted(
        variable["name"]
        for part in ("parameters", "auxiliary")
        for variable in facts[part]
        if variable["name"] not in values
    )
    facts["unused"] = sorted(set(values) - names)
