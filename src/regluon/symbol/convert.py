"""Graphs to and from JSON records, copies, substitution."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import limits
from ..base.errors import MXNetError
from ..graph import json as files
from ..graph.dims import dims_in, evaluate
from ..graph.json import GraphRecord, NodeRecord
from ..graph.node import Entry, Node, rebuild, topological
from ..graph.subgraphs import lifted, with_auxiliary
from ..ops import registry
from ..ops.opdef import OpDef
from . import body_files
from .composition import HIDDEN

__all__ = [
    "attribute",
    "attributes",
    "copy_entries",
    "described",
    "from_json",
    "number_draws",
    "shown_attributes",
    "to_json",
]

_CASTS = ("amp_cast", "amp_multicast")


def attributes(node: Node) -> dict[str, str]:
    """All attributes of a node as strings."""
    if node.op is None:
        return dict(node.user)
    if body_files.holds_bodies(node.op.name):
        return {**body_files.laid_out(node).attributes, **node.user}
    return {**node.op.format({k: evaluate(v) for k, v in node.attrs.items()}), **node.user}


def attribute(node: Node, key: str) -> str | None:
    """One attribute of a node as a string; a name stands for its form between double underscores too."""
    found = attributes(node)
    return found.get(key, found.get(f"__{key}__"))


def shown_attributes(node: Node) -> dict[str, str]:
    """All attributes of a node; the hidden ones (``__lr_mult__``) under their short names too."""
    found = attributes(node)
    return {**found, **{key: found[f"__{key}__"] for key in HIDDEN if f"__{key}__" in found}}


def described(entries: Sequence[Entry]) -> str:
    """The graph as text, one node a paragraph."""
    lines = ["Symbol Outputs:"]
    lines += [f"\toutput[{place}]={e.node.name}({e.index})" for place, e in enumerate(entries)]
    for node in topological(entries):
        if node.op is None:
            lines.append(f"Variable:{node.name}")
            continue
        lines += ["-" * 20, f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
        for place, entry in enumerate(node.inputs):
            version = " version=0" if entry.node.op is None else ""
            lines.append(f"\targ[{place}]={entry.node.name}({entry.index}){version}")
        found = attributes(node)
        if found:
            lines += ["Attrs:", *(f"\t{key}={value}" for key, value in sorted(found.items()))]
    return "\n".join(lines) + "\n"


def copy_entries(entries: Sequence[Entry]) -> list[Entry]:
    """The same graph with nodes of its own."""
    return rebuild(entries, fresh=True)


def number_draws(order: Sequence[Node]) -> int:
    """Number the random nodes in order; gives how many there are."""
    count = 0
    for node in order:
        if node.op is not None and node.op.uses_rng:
            node.draw = count
            count += 1
    return count


def without_casts(entries: Sequence[Entry]) -> list[Entry]:
    """The graph without the casts of automatic mixed precision."""

    def skip(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        return inputs if node.op is not None and node.op.name in _CASTS else None

    return rebuild(entries, skip)


def to_json(
    entries: Sequence[Entry],
    remove_amp_cast: bool = True,
    graph_attributes: Mapping[str, Any] | None = None,
) -> str:
    """The JSON text of a graph, with graph-level attributes."""
    if remove_amp_cast:
        entries = without_casts(entries)
    order = topological(entries, sizes=False)
    places = {id(node): index for index, node in enumerate(order)}
    records = []
    for node in order:
        inputs, own, graphs = node.inputs, _written(node), []
        if node.op is not None and body_files.holds_bodies(node.op.name):
            layout = body_files.laid_out(node)
            inputs, own = tuple(layout.inputs), {**layout.attributes, **node.user}
            graphs = [_as_object(graph, remove_amp_cast) for graph in layout.graphs]
        record = NodeRecord(
            "null" if node.op is None else node.op.name,
            node.name,
            own,
            [(places[id(entry.node)], entry.index) for entry in inputs],
            node.outputs,
            graphs,
        )
        if node.op is None:
            records.append(record)
            continue
        if node.op.opaque and not registry.exists(node.op.name):
            raise MXNetError(
                f"node {node.name} is Python code without a name, such as an autograd.Function (recorded at "
                f"{node.location}): a file cannot hold it. Use operators, or one registered with "
                "mx.operator.register, or leave it out of the exported block"
            )
        ranks = [len(e.node.specs[e.index].shape) if e.node.specs else None for e in node.inputs]
        records.append(files.portable(record, ranks))
    heads = [(places[id(entry.node)], entry.index) for entry in entries]
    return files.render(GraphRecord(records, heads, dict(graph_attributes or {})))


def _as_object(entries: Sequence[Entry], remove_amp_cast: bool) -> Any:
    """A graph within a node, which has no attributes of its own."""
    written = json.loads(to_json(entries, remove_amp_cast))
    return {key: value for key, value in written.items() if key != "attrs"}


def _written(node: Node) -> dict[str, str]:
    if node.op is None:
        return dict(node.user)
    attrs = node.attrs
    if any(dims_in(value) for value in attrs.values()):
        attrs = {key: frozen(node, key, value) for key, value in attrs.items()}
    texts = node.op.format(attrs)
    if node.op.variadic and node.op.num_args_key and node.op.num_args_key not in texts:
        texts[node.op.num_args_key] = str(len(node.inputs))
    return {**texts, **node.user}


def frozen(node: Node, key: str, value: Any) -> Any:
    """A symbolic size as a constant, or as a code of Reshape that means "as the input"."""
    if key in ("shape", "newshape") and node.op is not None and isinstance(value, tuple):
        copies = 0 if node.op.name == "Reshape" else -2 if node.op.name == "_npx_reshape" else None
        if copies is not None and not (node.op.name == "_npx_reshape" and not _plain_codes(value)):
            return tuple(
                copies if _is_size_of(item, node.inputs[0], axis) else evaluate(item)
                for axis, item in enumerate(value)
            )
    return evaluate(value)


def _plain_codes(shape: tuple[Any, ...]) -> bool:
    return all(dims_in(item) or item >= -1 for item in shape)


def _is_size_of(item: Any, entry: Entry, axis: int) -> bool:
    return (
        bool(dims_in(item))
        and item.function == "size"
        and item.arguments[1] == axis
        and item.arguments[0].node is entry.node
        and item.arguments[0].index == entry.index
    )


def from_json(text: str | bytes, source: str = "symbol JSON") -> tuple[list[Entry], GraphRecord]:
    """The graph in a JSON text of any version, and what else the text says (nodes are not kept).

    Raises
    ------
    MXNetError
        If the text is malformed, or names operators that are not there (all of them are listed).
    """
    with limits.paused_collection():
        record = files.parse(text, source)
        return _built(record, source), record


def _built(record: GraphRecord, source: str) -> list[Entry]:
    """The outputs of a record's graph."""
    records = record.nodes
    for index, item in enumerate(records):
        if files.ORIGINAL_OPERATOR in item.attributes:
            try:
                records[index] = files.restored(item)
            except MXNetError as error:
                raise MXNetError(f"{source}, {error}") from error
    _check_operators({item.operator for item in records}, source)
    nodes = _Builder(source, len(records)).build(records)
    return _checked_entries(nodes, record.heads, f"the heads of {source}")


def _inner(loaded: Any, source: str) -> list[Entry]:
    """The outputs of a graph within a node."""
    return _built(files.parse_object(loaded, source), source)


# How many names an error text lists.
_MOST_LISTED = 20


def _check_operators(names: set[str], source: str) -> None:
    unknown = sorted(name for name in names if name != "null" and not registry.exists(name))
    if unknown:
        listed = ", ".join(map(files.short, unknown[:_MOST_LISTED]))
        more = len(unknown) - _MOST_LISTED
        raise MXNetError(
            f"{source} uses operator(s) that are not here: {listed}{f' and {more} more' if more > 0 else ''}"
        )


# More outputs than any graph has, but for a few of each node; a larger count is damage.
_MAXIMUM_OUTPUTS = 1 << 20


def _checked_entries(nodes: Sequence[Node], pairs: Sequence[tuple[int, int]], what: str) -> list[Entry]:
    """Entries by node and output numbers; every output must be there."""
    entries = []
    for place, output in pairs:
        node = nodes[place]
        if output and output >= node.outputs:
            raise MXNetError(
                f"{what} name output {output} of node {place} ({files.short(node.name)}), which has "
                f"{node.outputs} output(s)"
            )
        entries.append(Entry(node, output))
    return entries


# Attributes up to this length are remembered.
_LONGEST_SHARED = 64


class _Builder:
    """Makes the nodes of one file. Equal attributes are read once."""

    def __init__(self, source: str, count: int) -> None:
        self.source = source
        self.outputs_left = _MAXIMUM_OUTPUTS + 8 * count
        self.parsed: dict[tuple[OpDef, str, str], Any] = {}

    def build(self, records: list[Any]) -> list[Node]:
        """A node for each record; the records are let go as they are used."""
        nodes: list[Node] = []
        for index, item in enumerate(records):
            if item.subgraphs:
                item = lifted(item)
            if item.operator == "null":
                nodes.append(Node(None, item.name, user=item.attributes))
            elif body_files.holds_bodies(item.operator):
                inputs = self._inputs(item, index, nodes)
                nodes.append(body_files.read(item, inputs, self.source, _inner))
            else:
                nodes.append(with_auxiliary(self._operator(item, index, nodes)))
            records[index] = None
        records.clear()
        return nodes

    def _fail(self, name: str, problem: Any) -> MXNetError:
        return MXNetError(f"{self.source}, node {files.short(name)}: {problem}")

    def _operator(self, item: NodeRecord, index: int, nodes: list[Node]) -> Node:
        definition = registry.get(item.operator)
        if definition.specialise is not None:
            definition = self._specialised(definition, item)
        attrs, user = self._attributes(definition, item)
        inputs = self._inputs(item, index, nodes)
        if not definition.variadic:
            if len(inputs) > len(definition.inputs):
                raise self._fail(
                    item.name,
                    f"operator {definition.name} takes at most {len(definition.inputs)} inputs "
                    f"({', '.join(definition.inputs)}); received {len(inputs)}",
                )
            if len(inputs) < len(definition.inputs):
                _complete(definition, item.name, inputs, {**definition.defaults, **attrs})
        node = Node(definition, item.name, inputs, attrs, user)
        outputs = definition.outputs if isinstance(definition.outputs, int) else node.outputs
        if outputs > 1:
            self.outputs_left -= outputs
            if self.outputs_left < 0:
                raise self._fail(item.name, f"{outputs} outputs are not possible")
        return node

    def _specialised(self, definition: OpDef, item: NodeRecord) -> OpDef:
        """The definition that an operator of the user has with the attributes of a node."""
        assert definition.specialise is not None
        try:
            return definition.specialise(item.attributes)
        except MXNetError as error:
            raise self._fail(item.name, error) from error

    def _attributes(self, definition: OpDef, item: NodeRecord) -> tuple[dict[str, Any], dict[str, str]]:
        """The operator's own attributes, typed, and the others."""
        attrs: dict[str, Any] = {}
        user: dict[str, str] = {}
        parsed = self.parsed
        try:
            for name, text in item.attributes.items():
                parameter = definition.parameters.get(name)
                if parameter is None:
                    if name != definition.num_args_key or not text:
                        user[name] = text
                    continue
                key = (definition, name, text)
                value = parsed.get(key, self)
                if value is self:
                    value = parameter.read(text, definition.name)
                    if len(text) <= _LONGEST_SHARED:
                        parsed[key] = value
                attrs[name] = value
            if any(name not in attrs for name in definition.required):
                definition.parse(attrs)
        except MXNetError as error:
            raise self._fail(item.name, error) from error
        return attrs, user

    def _inputs(self, item: NodeRecord, index: int, nodes: list[Node]) -> list[Entry]:
        inputs = []
        for place, output in item.inputs:
            if output and output >= nodes[place].outputs:
                what = f"the inputs of node {index} ({files.short(item.name)}) of {self.source}"
                return _checked_entries(nodes, item.inputs, what)
            inputs.append(Entry(nodes[place], output))
        return inputs


def _complete(definition: OpDef, name: str, inputs: list[Entry], attrs: dict[str, Any]) -> None:
    """Old files leave inputs out, mostly auxiliary ones; as in the originals, they become variables."""
    for missing in definition.input_names(attrs)[len(inputs) :]:
        if missing in definition.aux or missing not in definition.optional:
            node = Node(None, f"{name}_{missing}")
            node.is_aux = missing in definition.aux
            inputs.append(Entry(node, 0))
