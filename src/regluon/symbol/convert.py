"""Graphs to and from JSON records, copies, substitution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import MXNetError
from ..graph import json as files
from ..graph.dims import dims_in, evaluate
from ..graph.json import GraphRecord, NodeRecord
from ..graph.node import Entry, Node, rebuild, topological
from ..graph.subgraphs import lifted, with_auxiliary
from ..ops import registry
from ..ops.opdef import OpDef
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
    own = {} if node.op is None else node.op.format({k: evaluate(v) for k, v in node.attrs.items()})
    return {**own, **node.user}


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
        record = NodeRecord(
            "null" if node.op is None else node.op.name,
            node.name,
            _written(node),
            [(places[id(entry.node)], entry.index) for entry in node.inputs],
            node.outputs,
        )
        if node.op is None:
            records.append(record)
            continue
        if node.op.name == "_CustomFunction":
            raise MXNetError(
                f"node {node.name} is a custom autograd.Function (recorded at {node.location}): Python "
                f"code cannot be "
                "written to a file. Use operators instead, or leave it out of the exported block"
            )
        ranks = [len(e.node.specs[e.index].shape) if e.node.specs else None for e in node.inputs]
        records.append(files.portable(record, ranks))
    heads = [(places[id(entry.node)], entry.index) for entry in entries]
    return files.render(GraphRecord(records, heads, dict(graph_attributes or {})))


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
    """The graph in a JSON text of any version.

    Raises
    ------
    MXNetError
        If the text is malformed, or names operators that are not there (all of them are listed).
    """
    record = files.parse(text, source)
    unknown = sorted(
        {
            n.operator
            for n in map(files.restored, record.nodes)
            if n.operator != "null" and not registry.exists(n.operator)
        }
    )
    if unknown:
        raise MXNetError(
            f"{source} uses operator(s) that are not here: {', '.join(map(files.short, unknown))}"
        )
    nodes: list[Node] = []
    for index, item in enumerate(record.nodes):
        item = lifted(files.restored(item))
        inputs = _checked_entries(
            nodes, item.inputs, f"the inputs of node {index} ({files.short(item.name)}) of {source}"
        )
        if item.operator == "null":
            nodes.append(Node(None, item.name, user=dict(item.attributes)))
        else:
            nodes.append(with_auxiliary(_operator_node(item, inputs, source)))
    return _checked_entries(nodes, record.heads, f"the heads of {source}"), record


# More outputs than any operator has; a larger count is damage.
_MAXIMUM_OUTPUTS = 1 << 20


def _checked_entries(nodes: Sequence[Node], pairs: Sequence[tuple[int, int]], what: str) -> list[Entry]:
    """Entries by node and output numbers; every output must be there."""
    entries = []
    for place, output in pairs:
        if output and output >= nodes[place].outputs:
            raise MXNetError(
                f"{what} name output {output} of node {place} ({files.short(nodes[place].name)}), which has "
                f"{nodes[place].outputs} output(s)"
            )
        entries.append(Entry(nodes[place], output))
    return entries


def _operator_node(item: NodeRecord, inputs: list[Entry], source: str) -> Node:
    definition = registry.get(item.operator)
    given = {key: value for key, value in item.attributes.items() if key in definition.parameters}
    user = {key: value for key, value in item.attributes.items() if key not in definition.parameters}
    try:
        full = definition.parse(given)
    except MXNetError as error:
        raise MXNetError(f"{source}, node {files.short(item.name)}: {error}") from error
    attrs = {key: full[key] for key in given}
    if len(inputs) > len(definition.inputs) and not definition.variadic:
        raise MXNetError(
            f"{source}, node {files.short(item.name)}: operator {definition.name} takes at most "
            f"{len(definition.inputs)} inputs ({', '.join(definition.inputs)}); received {len(inputs)}"
        )
    inputs = _completed(definition, item.name, inputs, {**definition.defaults, **attrs})
    if user.get(str(definition.num_args_key)):
        user.pop(str(definition.num_args_key))
    node = Node(definition, item.name, inputs, attrs, user)
    if node.outputs > _MAXIMUM_OUTPUTS:
        raise MXNetError(f"{source}, node {files.short(item.name)}: {node.outputs} outputs are not possible")
    return node


def _completed(definition: OpDef, name: str, inputs: list[Entry], attrs: dict[str, Any]) -> list[Entry]:
    """Old files leave inputs out, mostly auxiliary ones; as in the originals, they become variables."""
    if not definition.variadic:
        for missing in definition.input_names(attrs)[len(inputs) :]:
            if missing in definition.aux or missing not in definition.optional:
                node = Node(None, f"{name}_{missing}")
                node.is_aux = missing in definition.aux
                inputs.append(Entry(node, 0))
    return inputs
