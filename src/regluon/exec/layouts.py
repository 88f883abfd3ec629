"""Which images lie channels last in memory, in a graph of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.node import Entry, Node

__all__ = ["Layouts"]

_KEEP_LAYOUT = frozenset(
    {"Pooling", "add", "unary", "relu", "clip", "sigmoid", "tanh", "Activation", "LeakyReLU", "affine"}
    | {"quantize", "dequantize", "quantized_max_pool"}
)

_GIVES_LAST = frozenset(
    {"onednn_convolution", "onednn_quantized_convolution", "convolution_channels_last", "channels_last"}
)


class Layouts:
    """Which 4-dimensional values are known to lie channels last in memory."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, bool]] = {}

    def note(self, node: Node) -> None:
        """A variable whose values lie channels last."""
        self._known[id(node)] = (node, True)

    def is_last(self, entry: Any) -> bool:
        """Whether this value lies channels last."""
        node = entry.node
        if _is_region(node):
            return bool(node.attrs["last"][entry.index])
        if id(node) not in self._known:
            self._settle(node)
        return self._known[id(node)][1]

    def _settle(self, start: Node) -> None:
        """Decide what is before a node first: a chain may be longer than Python's calls go deep."""
        stack = [start]
        while stack:
            node = stack[-1]
            sources = self._sources(node)
            waiting = [e.node for e in sources if id(e.node) not in self._known and not _is_region(e.node)]
            if waiting:
                stack += waiting
                continue
            gives = node.op is not None and node.op.name in _GIVES_LAST
            last = gives or (bool(sources) and all([self.is_last(e) for e in sources]))
            self._known[id(node)] = (node, last)
            stack.pop()

    @staticmethod
    def _sources(node: Node) -> Sequence[Entry]:
        """The inputs that must lie channels last for the result to do so; none where it never does."""
        op, spec = node.op, node.specs[0] if node.specs else None
        if op is None or op.name in _GIVES_LAST or spec is None or len(spec.shape) != 4:
            return ()
        if op.name in ("Concat", "quantized_concatenate"):
            return node.inputs if node.full_attrs.get("dim", 1) == 1 else ()
        if op.name == "add":
            return node.inputs
        return node.inputs[:1] if op.name in _KEEP_LAYOUT else ()


def _is_region(node: Node) -> bool:
    return node.op is not None and node.op.name == "onednn"
