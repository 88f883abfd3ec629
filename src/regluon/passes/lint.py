"""A check of a graph's structure, run around every pass."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import MXNetError
from ..graph.node import Entry, topological

__all__ = ["lint"]


def lint(entries: Sequence[Entry], after: str) -> None:
    """Check that every edge leads to an output that exists, before its use, with matching specs.

    Raises
    ------
    MXNetError
        Naming the pass (``after``) and the node that is wrong.
    """
    seen: set[int] = set()
    for node in topological(entries):
        count = node.outputs
        if node.specs is not None and len(node.specs) not in (count, node.visible):
            raise MXNetError(
                f"after {after}: node {node.name} has {count} outputs but {len(node.specs)} shapes"
            )
        for entry in node.inputs:
            if id(entry.node) not in seen:
                raise MXNetError(
                    f"after {after}: node {node.name} uses {entry.node.name} before it is computed"
                )
            if not 0 <= entry.index < entry.node.outputs:
                raise MXNetError(
                    f"after {after}: node {node.name} uses output {entry.index} of {entry.node.name}, "
                    f"which has {entry.node.outputs}"
                )
        seen.add(id(node))
    for entry in entries:
        if not 0 <= entry.index < entry.node.outputs:
            raise MXNetError(f"after {after}: output {entry.index} of {entry.node.name} does not exist")
