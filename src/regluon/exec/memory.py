"""Which values of a graph share memory, and where each piece of memory is read for the last time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.node import Entry, Node
from ..ops.internal import InternalOp

__all__ = ["Memory"]

# Operators whose result is always new memory.
_FRESH = frozenset({"Pooling", "Concat", "FullyConnected", "Convolution", "dot", "batch_dot"})


class Memory:
    """The pieces of memory of a program's values: an operator that may give a view joins those of its inputs
    and outputs."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[Entry]) -> None:
        self._parent: dict[Node, Node] = {}
        self._borrowed: set[Node] = set()
        self._last: dict[Node, int] = {}
        for node in nodes:
            if not _is_fresh(node):
                for entry in node.inputs:
                    source, own = self._root(entry[0]), self._root(node)
                    if source is not own:
                        self._parent[source] = own
        for index, node in enumerate(nodes):
            for entry in node.inputs:
                root = self._root(entry[0])
                self._last[root] = index
                if entry[0].op is None:
                    self._borrowed.add(root)
        self._borrowed.update([self._root(entry[0]) for entry in outputs])
        self._index = {node: index for index, node in enumerate(nodes)}

    def _root(self, node: Node) -> Node:
        parent = self._parent
        root = node
        while root in parent:
            root = parent[root]
        # The way is short from now on.
        while node is not root:
            parent[node], node = root, parent[node]
        return root

    def ends_at(self, entry: Any, node: Node) -> bool:
        """Whether a value's memory is the program's own, and nothing reads it after this node, or twice in
        it."""
        root = self._root(entry[0])
        if root in self._borrowed or entry[0].outputs != 1 or self._last[root] != self._index[node]:
            return False
        # Another input may be a view of the same memory.
        return sum([self._root(e[0]) is root for e in node.inputs]) == 1


def _is_fresh(node: Node) -> bool:
    op = node.op
    return op is not None and (op.fresh if isinstance(op, InternalOp) else op.name in _FRESH)
