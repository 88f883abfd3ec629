"""The symbol JSON file: read every old form of it, write one that every release of MXNet since 1.0 reads.

This file knows records only: `parse` gives a `GraphRecord`, `render` writes one. Turning records into graph
nodes and back needs the operator table (`symbol/convert.py`).
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import MXNetError

__all__ = ["GraphRecord", "NodeRecord", "parse", "parse_object", "portable", "render", "restored", "short"]

WRITTEN_VERSION = 10901
# The attribute that keeps an operator's own name where it is written under one that both generations have.
ORIGINAL_OPERATOR = "__regluon_op__"
# Attributes that files before 1.0 write bare, and later ones between double underscores.
_BARE = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "init", "shape", "dtype")
_LONG = re.compile(r"(?<=\d)L\b")
# What a list or object takes in memory at least, and how much memory reading a file may take.
_CONTAINER_BYTES, _MEMORY_FACTOR, _MEMORY_FREE = 64, 4, 1 << 26
# Shows what was received in an error text: never more than a line of it.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


@dataclass
class NodeRecord:
    """One node: a variable has the operator ``null``. Inputs are (node index, output index)."""

    operator: str
    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    inputs: list[tuple[int, int]] = field(default_factory=list)
    outputs: int = 1
    subgraphs: list[Any] = field(default_factory=list)


@dataclass
class GraphRecord:
    """Nodes in topological order, the heads as (node index, output index), and graph-level attributes."""

    nodes: list[NodeRecord]
    heads: list[tuple[int, int]]
    attributes: dict[str, int | str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The MXNet version that wrote the file, as an integer; 0 where the file does not say."""
        version = self.attributes.get("mxnet_version", 0)
        return version if isinstance(version, int) else 0


def parse(text: str | bytes, source: str = "symbol JSON") -> GraphRecord:
    """Read symbol JSON of any version.

    Parameters
    ----------
    text : str or bytes
        The content of a ``-symbol.json`` file.
    source : str
        What error texts call the file.

    Raises
    ------
    MXNetError
        If the text is no symbol JSON: it says where.
    """
    try:
        _check_size(text, source)
        loaded = json.loads(text)
        _check_characters(text, loaded)
        return parse_object(loaded, source)
    except ValueError as error:
        raise MXNetError(f"{source} is not JSON: {error}. Expected the text of Symbol.tojson") from error
    except RecursionError as error:
        raise MXNetError(
            f"{source} is not JSON of a symbol: its values are nested too deeply. Expected the text of "
            "Symbol.tojson"
        ) from error


def _check_size(text: str | bytes, source: str) -> None:
    """Refuse a text that would take many times its size in memory: it consists of brackets."""
    text = text.encode("utf-8", "replace") if isinstance(text, str) else text
    containers = text.count(b"[") + text.count(b"{")
    if containers * _CONTAINER_BYTES > _MEMORY_FACTOR * len(text) + _MEMORY_FREE:
        raise MXNetError(
            f"{source} is not a symbol: it has {containers} lists and objects in {len(text)} bytes"
        )


def _check_characters(text: str | bytes, loaded: Any) -> None:
    """Refuse halves of surrogate pairs, which JSON can spell and no file can be written with."""
    if (b"\\u" if isinstance(text, bytes) else "\\u") in text:  # type: ignore[operator]
        json.dumps(loaded, ensure_ascii=False).encode("utf-8")


def parse_object(loaded: Any, source: str) -> GraphRecord:
    """The same for what JSON text of a symbol was read to, such as a graph inside of a node."""
    if not isinstance(loaded, dict) or not isinstance(loaded.get("nodes"), list) or "heads" not in loaded:
        raise MXNetError(
            f"{source} is not a symbol: expected an object with the keys nodes and heads, received "
            f"{_SHORT.repr(sorted(loaded)) if isinstance(loaded, dict) else type(loaded).__name__}"
        )
    nodes = [_node(item, index, source) for index, item in enumerate(loaded["nodes"])]
    heads = _entries(loaded["heads"], len(nodes), f"the heads of {source}")
    attributes: dict[str, int | str] = {}
    graph_attributes = loaded.get("attrs") or {}
    if not isinstance(graph_attributes, dict):
        raise MXNetError(
            f"{source} is malformed: expected its attrs to be an object, received "
            f"{_SHORT.repr(graph_attributes)}"
        )
    if not heads:
        raise MXNetError(f"{source} is malformed: it has no heads, so it computes nothing")
    for key, pair in graph_attributes.items():
        value = pair[1] if isinstance(pair, list) and len(pair) == 2 else pair
        if isinstance(value, (int, str)):
            attributes[key] = value
    return GraphRecord(nodes, heads, attributes)


def _node(item: Any, index: int, source: str) -> NodeRecord:
    where = f"node {index} of {source}"
    if (
        not isinstance(item, dict)
        or not isinstance(item.get("op"), str)
        or not isinstance(item.get("name"), str)
    ):
        raise MXNetError(
            f"{where} is malformed: expected an object with op and name, received {_SHORT.repr(item)}"
        )
    attributes: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        part = item.get(key) or {}
        if not isinstance(part, dict):
            raise MXNetError(
                f"{where} is malformed: expected its {key} to be an object, received {_SHORT.repr(part)}"
            )
        attributes.update({str(name): _text(value) for name, value in part.items()})
    # On operators, shape, dtype and init are parameters.
    bare = _BARE if item["op"] == "null" else _BARE[:5]
    for name in bare:
        if name in attributes and f"__{name}__" not in attributes:
            attributes[f"__{name}__"] = attributes.pop(name)
    if "__shape__" in attributes:
        attributes["__shape__"] = _shape(attributes["__shape__"])
    inputs = _entries(item.get("inputs") or [], index, f"the inputs of {where}")
    subgraphs = item.get("subgraphs") or []
    if not isinstance(subgraphs, list):
        raise MXNetError(
            f"{where} is malformed: expected its subgraphs to be a list, received {_SHORT.repr(subgraphs)}"
        )
    return NodeRecord(item["op"], item["name"], attributes, inputs, subgraphs=list(subgraphs))


def short(name: str) -> str:
    """A name in an error text."""
    return name if len(name) <= 80 else f"{name[:80]}..."


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _shape(text: str) -> str:
    """A shape without Python 2's long suffixes; one number stands for a vector's length."""
    text = _LONG.sub("", text.strip())
    return f"({text},)" if re.fullmatch(r"-?\d+", text) else text


def _entries(items: Any, limit: int, what: str) -> list[tuple[int, int]]:
    if not isinstance(items, list):
        raise MXNetError(f"{what} are malformed: expected a list, received {_SHORT.repr(items)}")
    entries = []
    for item in items:
        node, output = (item[0], item[1]) if isinstance(item, list) and len(item) in (2, 3) else (None, None)
        if type(node) is not int or type(output) is not int or node < 0 or output < 0:
            raise MXNetError(f"{what} are malformed: expected [node, output], received {_SHORT.repr(item)}")
        if node >= limit:
            raise MXNetError(f"{what} name node {node}, which does not come before it")
        entries.append((node, output))
    return entries


def render(graph: GraphRecord) -> str:
    """Write symbol JSON in the layout of the originals: every entry list and attribute object on one line."""
    rows, pointer = [], [0]
    for node in graph.nodes:
        rows.append(_render_node(node))
        pointer.append(pointer[-1] + node.outputs)
    variables = [index for index, node in enumerate(graph.nodes) if node.operator == "null"]
    attributes: dict[str, int | str] = {"mxnet_version": WRITTEN_VERSION, **graph.attributes}
    typed = {
        name: ["int" if isinstance(value, int) else "str", value]
        for name, value in sorted(attributes.items())
    }
    heads = [[node, output, 0] for node, output in graph.heads]
    return (
        '{\n  "nodes": [\n    '
        + ",\n    ".join(rows)
        + f'\n  ],\n  "arg_nodes": {json.dumps(variables)},\n  "node_row_ptr": {json.dumps(pointer)},\n'
        + f'  "heads": {json.dumps(heads)},\n  "attrs": {json.dumps(typed)}\n}}'
    )


def _render_node(node: NodeRecord) -> str:
    lines = [f'"op": {json.dumps(node.operator)}', f'"name": {json.dumps(node.name)}']
    attributes = dict(sorted(node.attributes.items()))
    if "__shape__" in attributes:
        # The C predict interface of 1.x takes -1 for a size; 0 is unknown in every release.
        attributes["__shape__"] = re.sub(r"-1\b", "0", attributes["__shape__"])
    if attributes:
        lines.append(f'"attrs": {json.dumps(attributes)}')
    lines.append(f'"inputs": {json.dumps([[source, output, 0] for source, output in node.inputs])}')
    if node.subgraphs:
        lines.append(f'"subgraphs": {json.dumps(node.subgraphs)}')
    return "{\n      " + ",\n      ".join(lines) + "\n    }"


Spelled = tuple[str, dict[str, str]] | None
Spelling = Callable[[Mapping[str, str], Sequence[int | None]], "Spelled"]


def _as(name: str, *allowed: str, needed: str | None = None) -> Spelling:
    """The operator ``name`` with the ``allowed`` attributes, where no other attribute says anything."""

    def spell(attributes: Mapping[str, str], ranks: Sequence[int | None]) -> Spelled:
        said = {key: value for key, value in attributes.items() if key[:2] != "__" and value != "None"}
        if "dtype" in said or "initial" in said or (needed is not None and needed not in said):
            return None
        return name, {key: said[key] for key in allowed if key in said}

    return spell


def _spell_dot(attributes: Mapping[str, str], ranks: Sequence[int | None]) -> Spelled:
    left, right = ranks
    if left and right and right <= 2:
        return "_npi_tensordot_int_axes", {"axes": "1"}
    return None


# Operators of 2.0 that no release of 1.x has, and an operator of both that computes the same. The reductions
# are rewritten over named axes only: over all axes the two generations give different ranks.
_SHARED: dict[str, Spelling] = {
    "_npi_sum": _as("sum", "axis", "keepdims", needed="axis"),
    "_npi_max": _as("max", "axis", "keepdims", needed="axis"),
    "_npi_min": _as("min", "axis", "keepdims", needed="axis"),
    "_npi_transpose": _as("transpose", "axes"),
    "_npi_squeeze": _as("squeeze", "axis"),
    "_npi_copy": _as("_copy"),
    "_npi_dot": _spell_dot,
}
# Names of one operator that both generations have, where its usual name is not one.
_ALIASES = {"_npi_any": "_np_sometrue", "_npi_cumsum": "cumsum", "_npi_prod": "_np_product"}
# Attributes that 1.9.1 does not know and refuses; at these values they say nothing.
_UNKNOWN_BEFORE_2 = {
    "Pooling": {"output_size": "None"},
    "_npi_cholesky": {"lower": "True"},
    "multi_sum_sq": {"scale": "1.0"},
}


def portable(node: NodeRecord, ranks: Sequence[int | None] = ()) -> NodeRecord:
    """The node as both generations of MXNet read it, where there is a way; else the node itself.

    ``ranks`` are the numbers of dimensions of the inputs, None where unknown. An operator that is written
    under another name keeps its own one in an attribute, which `parse`'s caller restores with `restored`.
    """
    silent = _UNKNOWN_BEFORE_2.get(node.operator, {})
    attributes = {key: value for key, value in node.attributes.items() if silent.get(key) != value}
    operator = _ALIASES.get(node.operator, node.operator)
    spell = _SHARED.get(operator.replace("_np_", "_npi_", 1))
    if spell is not None:
        spelled = spell(attributes, list(ranks) if ranks else [None] * len(node.inputs))
        if spelled is not None:
            own = {key: value for key, value in attributes.items() if not key.startswith("__")}
            kept = {key: value for key, value in attributes.items() if key.startswith("__")}
            operator, attributes = spelled[0], {**kept, **spelled[1]}
            attributes[ORIGINAL_OPERATOR] = json.dumps([node.operator, own])
    return NodeRecord(operator, node.name, attributes, node.inputs, node.outputs, node.subgraphs)


def restored(node: NodeRecord) -> NodeRecord:
    """The node under the name that `portable` took from it; the node itself if it kept its name."""
    written = node.attributes.get(ORIGINAL_OPERATOR)
    if written is None:
        return node
    kept = {
        key: value
        for key, value in node.attributes.items()
        if key.startswith("__") and key != ORIGINAL_OPERATOR
    }
    try:
        operator, own = json.loads(written)
        attributes = {**kept, **{str(key): str(value) for key, value in own.items()}}
    except (ValueError, TypeError, AttributeError) as error:
        raise MXNetError(
            f"node {short(node.name)!r}: its {ORIGINAL_OPERATOR} is malformed: {short(written)}"
        ) from error
    return NodeRecord(str(operator), node.name, attributes, node.inputs, node.outputs, node.subgraphs)
