"""Which nodes of a graph draw random numbers when they run."""

from __future__ import annotations

from collections.abc import Iterable

from ..graph.node import Node, topological
from .bodies import Body

__all__ = ["draws"]


def draws(nodes: Iterable[Node], training: bool) -> bool:
    """Whether one of these nodes draws in this mode: dropout does not, in predict mode.

    A loop or a branch draws where something in its bodies does.
    """
    return any(_draws(node, training) for node in nodes)


def _draws(node: Node, training: bool) -> bool:
    if node.op is None or not node.op.uses_rng:
        return False
    attrs = node.full_attrs
    bodies = [body for body in attrs.get("subgraphs") or () if isinstance(body, Body)]
    if bodies:
        return any(draws(topological(body.outputs), training) for body in bodies)
    return not node.op.uses_training or training or attrs.get("mode") == "always"
