"""What the passes share: settings, use counts, and which values depend on parameters only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..graph.node import Entry, Node, reads_sizes, rebuild, topological
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
    _known: dict[Node, bool] = field(default_factory=dict)

    def is_constant(self, entry: Any) -> bool:
        """Whether a value depends on constants only."""
        known = self._known
        found = known.get(entry[0])
        if found is not None:
            return found
        stack = [entry[0]]
        while stack:
            node = stack[-1]
            if node in known:
                stack.pop()
                continue
            waiting = [e[0] for e in node.inputs if e[0] not in known]
            if waiting and node.op is not None:
                stack.extend(waiting)
                continue
            known[node] = self._decide(node)
            stack.pop()
        return known[entry[0]]

    def _decide(self, node: Node) -> bool:
        definition = node.op
        if definition is None:
            return id(node) in self.constants
        known = self._known
        for entry in node.inputs:
            if not known[entry[0]]:
                return False
        return not (
            definition.uses_rng
            or definition.dynamic
            or definition.mutates
            or definition.opaque
            or definition.aux
            or has_dims(node)
        )


def has_dims(node: Node) -> bool:
    """Whether an attribute is a size that is only known in a call."""
    return reads_sizes(node)


class Reads:
    """How often values are read, while a graph is being rewritten from its inputs to its outputs.

    Called with a number, tells whether that input of the node at hand is read by this node alone. Nothing is
    counted before the first question.
    """

    def __init__(self, entries: Sequence[Entry], order: Sequence[Node] | None = None) -> None:
        self._entries, self._order = entries, order
        self._counts: dict[tuple[Node, int], int] | None = None
        # What took the place of a node's outputs, for those that did not stay themselves.
        self._moved: dict[Node, Sequence[Entry]] = {}
        self._noted: list[Node] = []
        self._now: dict[tuple[Node, int], int] = {}
        self._node: Node | None = None

    @property
    def _before(self) -> dict[tuple[Node, int], int]:
        if self._counts is None:
            counts: dict[tuple[Node, int], int] = {}
            for entry in self._entries:
                counts[entry] = counts.get(entry, 0) + 1
            for node in topological(self._entries) if self._order is None else self._order:
                for entry in node.inputs:
                    counts[entry] = counts.get(entry, 0) + 1
            self._counts = counts
        return self._counts

    def at(self, node: Node) -> Reads:
        """The same, for the inputs of another node of the graph given."""
        self._node = node
        return self

    def note(self, node: Node, outputs: Sequence[Entry]) -> None:
        """``outputs`` took the place of the node's."""
        self._moved[node] = outputs
        self._noted.append(node)

    def __call__(self, index: int) -> bool:
        assert self._node is not None
        return self._before[self._node.inputs[index]] == 1

    def once(self, entry: Any) -> bool:
        """Whether a value of the new graph is read once."""
        before, now = self._before, self._now
        for node in self._noted:
            for index, new in enumerate(self._moved[node]):
                now[new] = now.get(new, 0) + before.get((node, index), 0)
        self._noted.clear()
        count = now.get(entry, 0)
        if entry[0] not in self._moved:
            count += before.get(entry, 0)
        return count == 1


Replace = Callable[[Node, tuple[Entry, ...], Reads], Sequence[Entry] | None]


def rewrite(
    entries: Sequence[Entry], replace: Replace, operators: Collection[str] | None = None
) -> list[Entry]:
    """Replace nodes: ``replace(node, new inputs, reads)`` gives the new outputs, or None to keep the node.

    With ``operators``, only nodes of operators with these names are asked for.
    """
    order = topological(entries)
    if operators is not None and not any([n.op is not None and n.op.name in operators for n in order]):
        return list(entries)
    reads = Reads(entries, order)

    def each(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        op = node.op
        if op is None or (operators is not None and op.name not in operators):
            return None
        reads._node = node
        return replace(node, inputs, reads)

    return rebuild(entries, each, placed=reads.note, order=order)


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
    if spec is None:
        return None
    for size in spec.shape:
        if not isinstance(size, int):
            return None
    return tuple(spec.shape)
