"""What the passes share: settings, use counts, and which values depend on parameters only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..graph.dims import dims_in
from ..graph.node import Entry, Node, rebuild, topological
from ..ops.opdef import OpDef, Spec

__all__ = ["Reads", "Settings", "has_dims", "make", "rewrite", "shape_of"]


@dataclass
class Settings:
    """What a pass may know.

    Attributes
    ----------
    constants : set of int
        Ids of the variable nodes that only change between calls by being written: parameters.
    training : bool
        The train mode the graph was recorded in.
    device : str
        ``"cpu"`` or ``"cuda"``.
    """

    constants: set[int] = field(default_factory=set)
    training: bool = False
    device: str = "cpu"
    _known: dict[int, tuple[Node, bool]] = field(default_factory=dict)

    def is_constant(self, entry: Any) -> bool:
        """Whether a value depends on constants only."""
        stack = [entry.node]
        known = self._known
        while stack:
            node = stack[-1]
            if id(node) in known:
                stack.pop()
                continue
            waiting = [e.node for e in node.inputs if id(e.node) not in known]
            if waiting and node.op is not None:
                stack.extend(waiting)
                continue
            # The node is kept so that its id stays its own.
            known[id(node)] = (node, self._decide(node))
            stack.pop()
        return known[id(entry.node)][1]

    def _decide(self, node: Node) -> bool:
        definition = node.op
        if definition is None:
            return id(node) in self.constants
        if (
            definition.uses_rng
            or definition.dynamic
            or definition.mutates
            or definition.opaque
            or definition.aux
            or has_dims(node)
        ):
            return False
        return all(self._known[id(e.node)][1] for e in node.inputs)


def has_dims(node: Node) -> bool:
    """Whether an attribute is a size that is only known in a call."""
    return any(dims_in(value) for value in node.attrs.values())


class Reads:
    """How often values are read, while a graph is being rewritten from its inputs to its outputs.

    Called with a number, tells whether that input of the node at hand is read by this node alone.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        before: Counter[tuple[int, int]] = Counter((id(e.node), e.index) for e in entries)
        for node in topological(entries):
            for entry in node.inputs:
                before[id(entry.node), entry.index] += 1
        self._before = before
        self._now: Counter[tuple[int, int]] = Counter()
        self._node: Node | None = None

    def at(self, node: Node) -> Reads:
        """The same, for the inputs of another node of the graph given."""
        self._node = node
        return self

    def note(self, node: Node, outputs: Sequence[Entry]) -> None:
        """``outputs`` took the place of the node's."""
        for index, entry in enumerate(outputs):
            self._now[id(entry.node), entry.index] += self._before[id(node), index]

    def __call__(self, index: int) -> bool:
        assert self._node is not None
        entry = self._node.inputs[index]
        return self._before[id(entry.node), entry.index] == 1

    def once(self, entry: Any) -> bool:
        """Whether a value of the new graph is read once."""
        return self._now[id(entry.node), entry.index] == 1


Replace = Callable[[Node, tuple[Entry, ...], Reads], Sequence[Entry] | None]


def rewrite(entries: Sequence[Entry], replace: Replace) -> list[Entry]:
    """Replace nodes: ``replace(node, new inputs, reads)`` gives the new outputs, or None to keep the node."""
    reads = Reads(entries)

    def each(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        return None if node.op is None else replace(node, inputs, reads.at(node))

    return rebuild(entries, each, placed=reads.note)


def make(
    op: OpDef,
    like: Node,
    inputs: Sequence[Entry],
    attrs: dict[str, Any] | None = None,
    specs: list[Spec] | None = None,
    name: str | None = None,
) -> Entry:
    """The first output of a new node that takes the place of ``like``."""
    node = Node(op, name or like.name, inputs, attrs, specs=specs, location=like.location)
    if specs is None and like.specs is not None:
        node.specs = like.specs[:1] if op.outputs == 1 else like.specs
    node.draw = like.draw
    return Entry(node, 0)


def shape_of(entry: Entry) -> tuple[int, ...] | None:
    """The shape of a value, where every size is a number."""
    spec = entry.spec
    if spec is None or not all(isinstance(size, int) for size in spec.shape):
        return None
    return tuple(spec.shape)
