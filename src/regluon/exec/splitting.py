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
    cut: dict[tuple[int, int], Entry] = {}
    sources: list[Entry] = []

    def constant(entry: Entry) -> Entry:
        if entry.node.op is None or not settings.is_constant(entry):
            return entry
        key = (id(entry.node), entry.index)
        if key not in cut:
            spec = entry.spec
            variable = Node(None, f"{entry.node.name}_{entry.index}", specs=None if spec is None else [spec])
            cut[key] = Entry(variable, 0)
            sources.append(entry)
        return cut[key]

    mapping: dict[int, Node] = {}
    for node in topological(entries):
        if node.op is None or settings.is_constant(Entry(node, 0)):
            mapping[id(node)] = node
            continue
        new = node.__copy__()
        new.inputs = tuple(_moved(constant(entry), mapping) for entry in node.inputs)
        mapping[id(node)] = new
    outputs = [_moved(constant(entry), mapping) for entry in entries]
    return outputs, [entry.node for entry in cut.values()], sources


def _moved(entry: Entry, mapping: dict[int, Node]) -> Entry:
    return Entry(mapping.get(id(entry.node), entry.node), entry.index)
