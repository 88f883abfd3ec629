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

import numpy

from ..base import limits
from ..base.errors import MXNetError

__all__ = ["GraphRecord", "NodeRecord", "parse", "parse_object", "portable", "render", "restored", "short"]

WRITTEN_VERSION = 10901
# The attribute that keeps an operator's own name where it is written under one that both generations have.
ORIGINAL_OPERATOR = "__regluon_op__"
# Attributes that files before 1.0 write bare, and later ones between double underscores.
_BARE = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "init", "shape", "dtype")
_LONG = re.compile(r"(?<=\d)L\b")
# What a list or object takes in memory at least, a filled object more than that, and a number in a list.
_CONTAINER_BYTES, _OBJECT_BYTES, _NUMBER_BYTES = 64, 240, 40
# How many texts may stand together, such as in one object; and how small a text cannot take much.
_MOST_TEXTS, _SURELY_SMALL = 1 << 16, 1 << 16
# No node, and no graph, has more attributes; no shape has more characters. What has is damaged.
_MOST_ATTRIBUTES, _LONGEST_SHAPE = 1 << 12, 1 << 12
# Shows what was received in an error text: never more than a line of it.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


@dataclass(slots=True)
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
        with limits.paused_collection():
            loaded = read_json(text, source)
            _check_characters(text, loaded)
            return parse_object(loaded, source, keep=False)
    except ValueError as error:
        raise MXNetError(f"{source} is not JSON: {error}. Expected the text of Symbol.tojson") from error
    except RecursionError as error:
        raise MXNetError(
            f"{source} is not JSON of a symbol: its values are nested too deeply. Expected the text of "
            "Symbol.tojson"
        ) from error


def read_json(text: str | bytes, source: str, size: int = 0) -> Any:
    """The values in a JSON text, which is refused if it would take many times its size in memory.

    ``size`` is that of the file, where the text is only a part of it.
    """
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if len(raw) > _SURELY_SMALL:
        _check_size(raw, source, max(size, len(raw)))
    return json.loads(text)


def _check_size(raw: bytes, source: str, size: int) -> None:
    """Refuse a text that consists of brackets, of objects that are no nodes, or of numbers or texts."""
    lists, objects = raw.count(b"["), raw.count(b"{")
    others = max(objects - 2 * raw.count(b'"op"'), 0)
    needed = (lists + objects) * _CONTAINER_BYTES + others * _OBJECT_BYTES
    if limits.exceeds(needed, size):
        raise MXNetError(
            f"{source} is damaged: it has {lists + objects} lists and objects in {len(raw)} bytes. "
            f"{limits.REMEDY}"
        )
    codes = numpy.frombuffer(raw, numpy.uint8)
    # Python keeps texts with characters outside of the usual planes in up to four bytes each.
    width = 4 if codes.max() >= 0xF0 else 2 if codes.max() >= 0xC4 else 1
    if limits.exceeds((1 + 2 * width) * len(raw), size):
        raise MXNetError(
            f"{source} is too long for a text with characters of several bytes: {len(raw)} bytes. "
            f"{limits.REMEDY}"
        )
    braces = numpy.flatnonzero((codes == ord("{")) | (codes == ord("}")))
    edges = numpy.concatenate(([0], braces, [len(raw)]))
    begin = int(numpy.diff(edges).argmax())
    longest = raw[edges[begin] : edges[begin + 1]]
    values, texts = longest.count(b","), longest.count(b'"') // 2
    if limits.exceeds(values * _NUMBER_BYTES, size) or texts > _MOST_TEXTS:
        raise MXNetError(
            f"{source} is damaged: between bytes {edges[begin]} and {edges[begin + 1]} there are "
            f"{values + 1} values without an object"
        )


def _check_characters(text: str | bytes, loaded: Any) -> None:
    """Refuse halves of surrogate pairs, which JSON can spell and no file can be written with."""
    if (b"\\u" if isinstance(text, bytes) else "\\u") in text:  # type: ignore[operator]
        json.dumps(loaded, ensure_ascii=False).encode("utf-8")


def parse_object(loaded: Any, source: str, keep: bool = True) -> GraphRecord:
    """The same for what JSON text of a symbol was read to, such as a graph inside of a node.

    Unless it is to be kept, each node's object is let go as soon as it is a record.
    """
    if not isinstance(loaded, dict) or not isinstance(loaded.get("nodes"), list) or "heads" not in loaded:
        raise MXNetError(
            f"{source} is not a symbol: expected an object with the keys nodes and heads, received "
            f"{_SHORT.repr(sorted(loaded)) if isinstance(loaded, dict) else type(loaded).__name__}"
        )
    items = loaded["nodes"]
    heads = _entries(loaded["heads"], len(items), "the heads of ", source)
    if not heads:
        raise MXNetError(f"{source} is malformed: it has no heads, so it computes nothing")
    attributes: dict[str, int | str] = {}
    graph_attributes = loaded.get("attrs") or {}
    if not isinstance(graph_attributes, dict):
        raise MXNetError(
            f"{source} is malformed: expected its attrs to be an object, received "
            f"{_SHORT.repr(graph_attributes)}"
        )
    if len(graph_attributes) > _MOST_ATTRIBUTES:
        raise MXNetError(f"{source} is malformed: it has {len(graph_attributes)} attributes of the graph")
    for key, pair in graph_attributes.items():
        value = pair[1] if isinstance(pair, list) and len(pair) == 2 else pair
        if isinstance(value, (int, str)):
            attributes[key] = value
    nodes = []
    for index, item in enumerate(items):
        nodes.append(_node(item, index, source))
        if not keep:
            items[index] = None
    return GraphRecord(nodes, heads, attributes)


def _node(item: Any, index: int, source: str) -> NodeRecord:
    def fail(problem: str) -> MXNetError:
        return MXNetError(f"node {index} of {source} is malformed: expected {problem}")

    if not isinstance(item, dict):
        raise fail(f"an object with op and name, received {_SHORT.repr(item)}")
    operator, name = item.get("op"), item.get("name")
    if not isinstance(operator, str) or not isinstance(name, str):
        raise fail(f"an object with op and name, received {_SHORT.repr(item)}")
    attributes: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        part = item.get(key)
        if not part:
            continue
        if not isinstance(part, dict):
            raise fail(f"its {key} to be an object, received {_SHORT.repr(part)}")
        if len(part) > _MOST_ATTRIBUTES:
            raise fail(f"at most {_MOST_ATTRIBUTES} attributes, received {len(part)}")
        for attribute, value in part.items():
            attributes[attribute] = value if isinstance(value, str) else str(value)
    if attributes:
        _spell_hidden(attributes, operator == "null")
        shape = attributes.get("__shape__")
        if shape is not None:
            if len(shape) > _LONGEST_SHAPE:
                raise fail(f"its shape to be a few numbers, received {len(shape)} characters")
            attributes["__shape__"] = _shape(shape)
    inputs = item.get("inputs")
    subgraphs = item.get("subgraphs")
    if subgraphs and not isinstance(subgraphs, list):
        raise fail(f"its subgraphs to be a list, received {_SHORT.repr(subgraphs)}")
    entries = _entries(inputs, index, "the inputs of node ", f"{index} of {source}") if inputs else []
    return NodeRecord(operator, name, attributes, entries, 1, list(subgraphs) if subgraphs else [])


def _spell_hidden(attributes: dict[str, str], variable: bool) -> None:
    """Attributes that old files write bare, between double underscores."""
    # On operators, shape, dtype and init are parameters.
    for name in _BARE if variable else _BARE[:5]:
        if name in attributes and f"__{name}__" not in attributes:
            attributes[f"__{name}__"] = attributes.pop(name)


def short(name: str) -> str:
    """A name in an error text."""
    return name if len(name) <= 80 else f"{name[:80]}..."


def _shape(text: str) -> str:
    """A shape without Python 2's long suffixes; one number stands for a vector's length."""
    text = _LONG.sub("", text.strip())
    return f"({text},)" if re.fullmatch(r"-?\d+", text) else text


def _entries(items: Any, limit: int, what: str, where: str) -> list[tuple[int, int]]:
    """Pairs of node and output number; ``what`` and ``where`` begin the error texts."""
    if not isinstance(items, list):
        raise MXNetError(f"{what}{where} are malformed: expected a list, received {_SHORT.repr(items)}")
    entries = []
    for item in items:
        node, output = (item[0], item[1]) if type(item) is list and 2 <= len(item) <= 3 else (None, None)
        if type(node) is not int or type(output) is not int or node < 0 or output < 0:
            raise MXNetError(
                f"{what}{where} are malformed: expected [node, output], received {_SHORT.repr(item)}"
            )
        if node >= limit:
            raise MXNetError(f"{what}{where} name node {_SHORT.repr(node)}, which does not come before it")
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
        operator, own = read_json(written, "the attribute")
        attributes = {**kept, **{str(key): str(value) for key, value in own.items()}}
    except (ValueError, TypeError, AttributeError, RecursionError, MXNetError) as error:
        raise MXNetError(
            f"node {short(node.name)!r}: its {ORIGINAL_OPERATOR} is malformed: {short(written)}"
        ) from error
    return NodeRecord(str(operator), node.name, attributes, node.inputs, node.outputs, node.subgraphs)
