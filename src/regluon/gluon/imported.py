"""Which variables of an imported graph are inputs, where the caller does not say it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from ..base.errors import MXNetError
from ..graph.infer import GraphShapes, has_open_sizes
from ..graph.node import Entry, Node, arguments_of, rebuild, topological
from ..graph.roles import parameter_names
from .parameter_errors import ParameterValueError

__all__ = ["are_unused_inputs", "label_names", "names_of_inputs", "without_labels"]

_COUNTED = re.compile("data[0-9]+")

# Output operators of 1.x whose label is read by their gradient only.
_LABELLED = frozenset(
    "SoftmaxOutput LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput SVMOutput".split()
)


def names_of_inputs(entries: Sequence[Entry], names: Any, loaded: Any, written: int = 0) -> list[str]:
    """The names of a graph's inputs, in the order of the graph or, where an export counted them, of the call.

    Parameters
    ----------
    entries : sequence of Entry
        The graph's outputs.
    names : str, list of str or None
        What the caller gave; None or nothing to find out.
    loaded : dict or None
        Values of parameters by name: what has a value is no input. Without it, the variables are taken that
        no layer uses as a parameter.
    written : int
        How many inputs the exported block had; 0 if the file does not say it. Those that no operator uses are
        no variables of the graph, yet arguments of the call.

    Raises
    ------
    ValueError
        (an MXNetError too) if no variable is left to be an input.
    """
    if isinstance(names, str):
        return [names]
    if names:
        return list(names)
    order = topological(entries)
    arguments, _ = arguments_of(order)
    if isinstance(loaded, dict):
        saved = {key.split(":", 1)[1] if key[:4] in ("arg:", "aux:") else key for key in loaded}
        found = [node.name for node in arguments if node.name not in saved]
    else:
        variables = {node.name: node.user for node in order if node.op is None}
        parameters = parameter_names(variables, _uses(order))
        found = [node.name for node in arguments if node.name not in parameters]
    labels = label_names(order)
    inputs = [name for name in dict.fromkeys(found) if name not in labels]
    if not inputs:
        shown = ", ".join(node.name for node in arguments[:20]) or "none"
        raise ParameterValueError(
            f"no variable of the graph is left to be an input (its variables: {shown}): give input_names"
        )
    counted = [f"data{place}" for place in range(written)]
    return counted if written > 1 and set(inputs) < set(counted) else _in_call_order(inputs)


def are_unused_inputs(missing: Sequence[str], variables: Iterable[str]) -> bool:
    """Whether names that a graph lacks are counted like the inputs it has: then no operator uses them."""
    return all(map(_COUNTED.fullmatch, missing)) and any(map(_COUNTED.fullmatch, variables))


def _in_call_order(names: list[str]) -> list[str]:
    """Names that an export counts (data0, data1, ...) in the order of the call, others as they are.

    The order of a graph is that of first use: with ``forward(b, a)`` and ``a`` used first it starts at data1.
    """
    if not all(_COUNTED.fullmatch(name) for name in names):
        return names
    return sorted(names, key=lambda name: int(name.removeprefix("data")))


def _uses(order: Iterable[Node]) -> Iterable[tuple[str, str]]:
    """(slot, name) of each use of a variable by an operator with named inputs."""
    for node in order:
        if node.op is not None and not node.op.variadic:
            for slot, entry in zip(node.op.inputs, node.inputs, strict=False):
                if entry.node.op is None:
                    yield slot, entry.node.name


def _label_slot(node: Node) -> int | None:
    return 1 if node.op is not None and node.op.name in _LABELLED and len(node.inputs) > 1 else None


def label_names(order: Iterable[Node]) -> set[str]:
    """Variables that are nothing but labels of output operators."""
    labels: set[str] = set()
    others: set[str] = set()
    for node in order:
        slot = _label_slot(node)
        for place, entry in enumerate(node.inputs):
            if entry.node.op is None:
                (labels if place == slot else others).add(entry.node.name)
    return labels - others


def without_labels(entries: Sequence[Entry], inputs: Sequence[str], saved: Iterable[str]) -> list[Entry]:
    """The graph with labels that nobody gives replaced by the operator's data, which has a right shape.

    What is computed stays the same: these operators read the label in their gradient only.
    """
    free = label_names(topological(entries)) - set(inputs) - {name.split(":", 1)[-1] for name in saved}

    def replace(node: Node, new: tuple[Entry, ...]) -> list[Entry] | None:
        slot = _label_slot(node)
        if slot is None or node.inputs[slot].node.name not in free:
            return None
        twin = node.__copy__()
        twin.inputs = tuple(new[0] if place == slot else entry for place, entry in enumerate(new))
        return [Entry(twin, index) for index in range(twin.outputs)]

    return rebuild(entries, replace) if free else list(entries)


def open_shapes(
    entries: Sequence[Entry], inputs: Sequence[tuple[Node, tuple[int, ...]]]
) -> dict[int, tuple[Any, ...]]:
    """The shapes of a graph's arrays of unknown sizes, such as the begin states of recurrent cells of 1.x.

    Parameters
    ----------
    entries : sequence of Entry
        The graph's outputs.
    inputs : sequence of (Node, shape)
        The inputs, and the shapes that they have now.

    Returns
    -------
    dict
        By the id of the node: sizes as numbers, or as (number of the input, axis) where one follows that of
        an input. What cannot be found out is left out.
    """
    nodes = [node for node in topological(entries) if has_open_sizes(node)]
    if not nodes:
        return {}

    def found(shapes: Sequence[tuple[int, ...]]) -> list[Any]:
        given = {id(node): (shape, None) for (node, _), shape in zip(inputs, shapes, strict=True)}
        try:
            known = GraphShapes(entries, given, zero_is_unknown=True).run()
        except (MXNetError, ValueError):
            return [None] * len(nodes)
        specs = [known.spec(Entry(node, 0)) for node in nodes]
        return [None if spec is None else spec.shape for spec in specs]

    now = [shape for _, shape in inputs]
    first = found(now)
    sizes = [None if shape is None else list(shape) for shape in first]
    for place, shape in enumerate(now):
        for axis, size in enumerate(shape):
            changed = list(now)
            changed[place] = (*shape[:axis], size + 1, *shape[axis + 1 :])
            for before, after, result in zip(first, found(changed), sizes, strict=True):
                for index, old in enumerate(before or ()):
                    if result is not None and after is not None and (old, after[index]) == (size, size + 1):
                        result[index] = (place, axis)
    return {id(node): tuple(result) for node, result in zip(nodes, sizes, strict=True) if result is not None}
