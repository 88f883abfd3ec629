"""What the passes share: settings, use counts, and which values depend on parameters only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..graph.dims import dims_in
from ..graph.node import Entry, Node, rebuild, topological
from ..ops.opdef import OpDef, Spec

__all__ = ["Settings", "Uses", "has_dims", "make", "rewrite", "shape_of"]


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
            or definition.aux
            or has_dims(node)
        ):
            return False
        return all(self._known[id(e.node)][1] for e in node.inputs)


def has_dims(node: Node) -> bool:
    """Whether an attribute is a size that is only known in a call."""
    return any(dims_in(value) for value in node.attrs.values())


class Uses:
    """How often each value of a graph is used."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        counts: Counter[tuple[int, int]] = Counter((id(e.node), e.index) for e in entries)
        for node in topological(entries):
            for entry in node.inputs:
                counts[id(entry.node), entry.index] += 1
        self._counts = counts

    def once(self, entry: Entry) -> bool:
        """Whether exactly one operator, and no output, uses this value."""
        return self._counts[id(entry.node), entry.index] == 1


Replace = Callable[[Node, tuple[Entry, ...], Callable[[int], bool]], Sequence[Entry] | None]


def rewrite(entries: Sequence[Entry], replace: Replace) -> list[Entry]:
    """Replace nodes: ``replace(node, new inputs, used_once(i))`` gives the new outputs or None to keep it.

    ``used_once(i)`` tells whether the i-th input is used by this node alone.
    """
    uses = Uses(entries)

    def each(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        if node.op is None:
            return None
        return replace(node, inputs, lambda index: uses.once(node.inputs[index]))

    return rebuild(entries, each)


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
