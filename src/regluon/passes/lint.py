"""A check of a graph's structure, run around every pass where it is switched on.

It is in the tests of this project, and with ``REGLUON_CHECK_GRAPHS=1`` in the environment: each check walks
through the whole graph, which for a large one is a good part of the time that a pass takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..base.errors import MXNetError
from ..graph.node import Entry, Node, topological

__all__ = ["check", "lint"]

_CHECKING = os.environ.get("REGLUON_CHECK_GRAPHS", "0") != "0"


def check(entries: Sequence[Entry], after: str) -> None:
    """`lint`, where the environment asks for it."""
    if _CHECKING:
        lint(entries, after)


def lint(entries: Sequence[Entry], after: str) -> None:
    """Check that every edge leads to an output that exists, before its use, with matching specs.

    Raises
    ------
    MXNetError
        Naming the pass (``after``) and the node that is wrong.
    """
    seen: set[Node] = set()
    for node in topological(entries):
        count = node.outputs
        if node.specs is not None and len(node.specs) not in (count, node.visible):
            raise MXNetError(
                f"after {after}: node {node.name} has {count} outputs but {len(node.specs)} shapes"
            )
        for entry in node.inputs:
            if entry.node not in seen:
                raise MXNetError(
                    f"after {after}: node {node.name} uses {entry.node.name} before it is computed"
                )
            if not 0 <= entry.index < entry.node.outputs:
                raise MXNetError(
                    f"after {after}: node {node.name} uses output {entry.index} of {entry.node.name}, "
                    f"which has {entry.node.outputs}"
                )
        seen.add(node)
    for entry in entries:
        if not 0 <= entry.index < entry.node.outputs:
            raise MXNetError(f"after {after}: output {entry.index} of {entry.node.name} does not exist")
