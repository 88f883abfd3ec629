"""From a graph whose shapes are known to an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..graph.node import Entry, Node, topological
from . import elementwise, layers, rnn, shapes
from .emitter import Emitter, Unmapped

__all__ = ["convert", "find_unmapped"]

_SHOWN = 20

# Imported for the mappings that they register.
MAPPINGS = (elementwise, layers, rnn, shapes)


def find_unmapped(nodes: Sequence[Node]) -> dict[str, str]:
    """The nodes that ONNX cannot express, by name, and why.

    Nothing but their attributes, shapes and types is looked at.
    """
    found = {}
    for node in nodes:
        scratch = Emitter()
        for entry in node.inputs:
            scratch.names[id(entry.node), entry.index] = scratch.unique(entry.node.name)
        try:
            scratch.convert(node)
        except Unmapped as error:
            found[node.name] = str(error)
    return found


def convert(
    name: str,
    inputs: Sequence[tuple[Entry, str]],
    values: Sequence[tuple[Entry, torch.Tensor]],
    outputs: Sequence[tuple[Entry, str]],
    other: Callable[[Entry], Sequence[int] | None] | None = None,
) -> Any:
    """An ONNX model of the graph that leads to ``outputs``.

    Parameters
    ----------
    name : str
        The name of the model's graph.
    inputs : sequence of (Entry, str)
        The values that are given in a call, with their names in the model. The graph is not followed beyond
        them.
    values : sequence of (Entry, Tensor)
        Variables that are constants of the model.
    outputs : sequence of (Entry, str)
        What is computed, with its names in the model.
    other : callable, optional
        See `Emitter`.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    Unmapped
        If operators have no counterpart in ONNX: names all of them.
    """
    m = Emitter(other)
    for entry, given in inputs:
        m.names[id(entry.node), entry.index] = m.unique(given)
    for _, given in outputs:
        m.unique(given)
    for entry, tensor in values:
        m.parameter(entry, tensor)
    stops = {id(entry.node) for entry, _ in inputs}
    order = _until([entry for entry, _ in outputs], stops)
    for place, node in enumerate(order):
        if node.op is not None:
            try:
                m.convert(node)
            except Unmapped as error:
                raise _with_others(error, order[place + 1 :]) from error
        elif (id(node), 0) not in m.names:
            # A label: no mapping reads it.
            m.names[id(node), 0] = m.unique(node.name)
    for entry, given in outputs:
        m.nodes.append(m.onnx.helper.make_node("Identity", [m.name_of(entry)], [given], name=given))
    return m.model(
        name,
        [m.value_info(entry, m.name_of(entry)) for entry, _ in inputs],
        [m.value_info(entry, given) for entry, given in outputs],
    )


def _with_others(error: Unmapped, nodes: Sequence[Node]) -> Unmapped:
    """The error with what else cannot be expressed after it, so that nobody meets one operator at a time."""
    others = find_unmapped([node for node in nodes if node.op is not None])
    texts = list(dict.fromkeys([str(error), *others.values()]))
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return Unmapped("; ".join(texts[:_SHOWN]) + more)


def _until(entries: Sequence[Entry], stops: set[int]) -> list[Node]:
    """The nodes that lead to ``entries``, every one after its inputs, without those before the stops."""
    beyond: set[int] = set()
    if stops:
        needed: set[int] = set()
        stack = [entry.node for entry in entries]
        while stack:
            node = stack.pop()
            if id(node) in needed or id(node) in stops:
                continue
            needed.add(id(node))
            stack.extend(entry.node for entry in node.inputs)
        beyond = {id(node) for node in topological(entries)} - needed
    return [node for node in topological(entries) if id(node) not in beyond]
