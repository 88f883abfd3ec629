"""Which variables of an imported graph are inputs, where the caller does not say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..graph.node import Entry, Node, arguments_of, rebuild, topological
from ..graph.roles import parameter_names
from .parameter_errors import ParameterValueError

__all__ = ["names_of_inputs", "without_labels"]

# Output operators of 1.x whose label is read by their gradient only.
_LABELLED = frozenset(
    "SoftmaxOutput LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput SVMOutput".split()
)


def names_of_inputs(entries: Sequence[Entry], names: Any, loaded: Any) -> list[str]:
    """The names of a graph's inputs, in the order of the graph.

    Parameters
    ----------
    entries : sequence of Entry
        The graph's outputs.
    names : str, list of str or None
        What the caller gave; None or nothing to find out.
    loaded : dict or None
        Values of parameters by name: what has a value is no input. Without it, the variables are taken that
        no layer uses as a parameter.

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
    labels = _label_names(order)
    inputs = [name for name in dict.fromkeys(found) if name not in labels]
    if not inputs:
        shown = ", ".join(node.name for node in arguments[:20]) or "none"
        raise ParameterValueError(
            f"no variable of the graph is left to be an input (its variables: {shown}): give input_names"
        )
    return inputs


def _uses(order: Iterable[Node]) -> Iterable[tuple[str, str]]:
    """(slot, name) of each use of a variable by an operator with named inputs."""
    for node in order:
        if node.op is not None and not node.op.variadic:
            for slot, entry in zip(node.op.inputs, node.inputs, strict=False):
                if entry.node.op is None:
                    yield slot, entry.node.name


def _label_slot(node: Node) -> int | None:
    return 1 if node.op is not None and node.op.name in _LABELLED and len(node.inputs) > 1 else None


def _label_names(order: Iterable[Node]) -> set[str]:
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
    free = _label_names(topological(entries)) - set(inputs) - {name.split(":", 1)[-1] for name in saved}

    def replace(node: Node, new: tuple[Entry, ...]) -> list[Entry] | None:
        slot = _label_slot(node)
        if slot is None or node.inputs[slot].node.name not in free:
            return None
        twin = node.__copy__()
        twin.inputs = tuple(new[0] if place == slot else entry for place, entry in enumerate(new))
        return [Entry(twin, index) for index in range(twin.outputs)]

    return rebuild(entries, replace) if free else list(entries)
