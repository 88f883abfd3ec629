"""Cutting a graph into what depends on parameters only, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.node import Entry, Node, topological
from ..passes import Settings

__all__ = ["split"]


def split(entries: Sequence[Entry], settings: Settings) -> tuple[list[Entry], list[Node], list[Entry]]:
    """Cut the graph where values that depend on parameters only meet the others.

    Returns the outputs over new variables, those variables, and what each of them stands for.
    """
    order = topological(entries)
    if not settings.constants and all([node.op is None or node.inputs for node in order]):
        return list(entries), [], []
    cut: dict[Entry, Entry] = {}
    sources: list[Entry] = []

    def constant(entry: Entry) -> Entry:
        if entry.node.op is None or not settings.is_constant(entry):
            return entry
        if entry not in cut:
            spec = entry.spec
            variable = Node(None, f"{entry.node.name}_{entry.index}", specs=None if spec is None else [spec])
            cut[entry] = Entry(variable, 0)
            sources.append(entry)
        return cut[entry]

    mapping: dict[Node, Node] = {}

    def moved(entry: Entry) -> Entry:
        entry = constant(entry)
        node = mapping.get(entry[0])
        return entry if node is None else Entry(node, entry[1])

    for node in order:
        if node.op is not None and not settings.is_constant(Entry(node, 0)):
            inputs = tuple([moved(entry) for entry in node.inputs])
            if any([new is not old for new, old in zip(inputs, node.inputs, strict=True)]):
                mapping[node] = node.moved(inputs)
    outputs = [moved(entry) for entry in entries]
    return outputs, [entry.node for entry in cut.values()], sources
