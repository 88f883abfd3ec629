"""Graph nodes. A graph is what is reachable from a list of entries (node, output index)."""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..ops.opdef import OpDef, Spec
from .dims import Dim, dims_in, relocated, sources_of

__all__ = [
    "CONSTRAINT",
    "Entry",
    "Node",
    "arguments_of",
    "dependencies",
    "may_hold_sizes",
    "rebuild",
    "remembered_walks",
    "topological",
]


_SERIALS = itertools.count()
# The attribute of operators that some optimization must leave alone; see gluon/constraints.py.
CONSTRAINT = "__opt_constraint__"


class Entry(NamedTuple):
    """One output of a node."""

    node: Node
    index: int  # type: ignore[assignment]

    @property
    def spec(self) -> Spec | None:
        """Shape and type, where known."""
        specs = self.node.specs
        return None if specs is None else specs[self.index]


class Node:
    """An operator applied to entries, or a variable (``op`` is None).

    ``attrs`` are the typed attributes that were given; ``user`` are free string attributes (``__lr_mult__``).
    ``value`` of a variable is what it stands for in a trace: a parameter or a captured array.
    """

    __slots__ = (
        "_full",
        "_reads",
        "attrs",
        "covers",
        "draw",
        "inputs",
        "is_aux",
        "location",
        "name",
        "op",
        "serial",
        "specs",
        "user",
        "value",
    )

    def __init__(
        self,
        op: OpDef | None,
        name: str,
        inputs: Sequence[Entry] = (),
        attrs: dict[str, Any] | None = None,
        user: dict[str, str] | None = None,
        specs: list[Spec] | None = None,
        value: Any = None,
        location: str | None = None,
    ) -> None:
        self.op = op
        self.name = name
        self.inputs = tuple(inputs)
        self.attrs = attrs or {}
        self.user = user or {}
        self.specs = specs
        self.value = value
        self.location = location
        self.is_aux = False
        # Later nodes have larger numbers: tells what was recorded inside the body of a loop.
        self.serial = next(_SERIALS)
        # The number of this node's random draw within its graph.
        self.draw = 0
        # The names of the recorded nodes that a pass put this one in the place of; empty: only its own.
        self.covers: tuple[str, ...] = ()
        self._full: dict[str, Any] | None = None
        # Inputs, attributes, and the entries that are read because of them.
        self._reads: tuple[Any, Any, Sequence[Entry]] | None = None

    @property
    def recorded(self) -> tuple[str, ...]:
        """The names of the recorded operators that this node computes, or helps to compute."""
        return self.covers or ((self.name,) if self.op is not None else ())

    @property
    def full_attrs(self) -> dict[str, Any]:
        """All attributes, defaults included."""
        if self._full is None:
            self._full = {} if self.op is None else {**self.op.defaults, **self.attrs}
        return self._full

    @property
    def outputs(self) -> int:
        """How many outputs the node has."""
        if self.op is None:
            return 1
        count = self.op.outputs
        return count if count.__class__ is int else count(self.full_attrs)  # type: ignore[operator]

    @property
    def visible(self) -> int:
        """How many outputs a user sees."""
        return 1 if self.op is None else self.op.number_visible(self.full_attrs)

    def output_name(self, index: int) -> str:
        """The name of one output, as in ``list_outputs``."""
        if self.op is None:
            return self.name
        names = self.op.output_names
        if names and index < len(names):
            return f"{self.name}_{names[index]}"
        return f"{self.name}_output" if self.outputs == 1 else f"{self.name}_output{index}"

    def __repr__(self) -> str:
        return f"<{'variable' if self.op is None else self.op.name} {self.name}>"

    def __copy__(self) -> Node:
        twin = Node(
            self.op, self.name, self.inputs, dict(self.attrs), dict(self.user), self.specs, self.value
        )
        twin.location, twin.is_aux, twin.draw = self.location, self.is_aux, self.draw
        twin.covers = self.covers
        return twin

    def moved(self, inputs: tuple[Entry, ...], specs: list[Spec] | None = None) -> Node:
        """A copy that reads other values, and has these shapes if any are given.

        Its attributes are the same objects, since nothing changes them in place.
        """
        twin = Node.__new__(Node)
        twin.op, twin.name, twin.inputs, twin.attrs, twin.user = (
            self.op,
            self.name,
            inputs,
            self.attrs,
            self.user,
        )
        twin.specs = self.specs if specs is None else specs
        twin.value, twin.location, twin.is_aux = self.value, self.location, self.is_aux
        twin.serial = next(_SERIALS)
        twin.draw, twin.covers, twin._full = self.draw, self.covers, self._full
        known = self._reads
        twin._reads = None
        if known is not None and known[1] is self.attrs and known[0] is known[2] is self.inputs:
            # It reads no sizes.
            twin._reads = (inputs, self.attrs, inputs)
        return twin


def reads_sizes(node: Node) -> bool:
    """Whether an attribute is a size that is only known in a call."""
    inputs, found = node.inputs, node._reads
    if found is not None and found[0] is inputs and found[1] is node.attrs:
        return found[2] is not inputs
    return dependencies(node) is not inputs


def dependencies(node: Node) -> Sequence[Entry]:
    """The entries that a node reads: its inputs, and values whose sizes its attributes use.

    What is found is kept, since it is asked for in every walk through the graph.
    """
    found = node._reads
    if found is not None and found[0] is node.inputs and found[1] is node.attrs:
        return found[2]
    entries: Sequence[Entry] = node.inputs
    if node.attrs and node.op is not None and may_hold_sizes(node.attrs):
        dims = [dim for value in node.attrs.values() for dim in dims_in(value)]
        entries = (*node.inputs, *sources_of(dims)) if dims else node.inputs
    node._reads = (node.inputs, node.attrs, entries)
    return entries


def may_hold_sizes(attrs: dict[str, Any]) -> bool:
    """Whether an attribute is a Dim or a container: most nodes have neither and read no sizes."""
    for value in attrs.values():
        if value.__class__ not in _PLAIN and isinstance(value, _HOLDERS):
            return True
    return False


_HOLDERS = (Dim, tuple, list)
_PLAIN = frozenset({int, float, bool, str, type(None)})


def topological(
    entries: Iterable[Entry], sizes: bool = True, stop: Callable[[Node], bool] | None = None
) -> list[Node]:
    """All nodes, every one after its inputs: depth first, arguments right before their first use.

    With ``sizes``, values of which a node only reads the size come before it too. Nothing before a node for
    which ``stop`` holds is looked at.
    """
    heads = list(entries)
    found: dict[Any, list[Node]] | None = getattr(_walks, "found", None)
    if stop is not None or found is None:
        return _ordered(heads, sizes, stop)
    key = (sizes, *[id(head[0]) for head in heads])
    order = found.get(key)
    if order is None:
        # The nodes are kept with their ids, so that no other node gets one of these meanwhile.
        order = found[key] = _ordered(heads, sizes, None)
    return order.copy()


_walks = threading.local()


@contextmanager
def remembered_walks() -> Iterator[None]:
    """Let `topological` give what it found before for the same nodes, where no node is changed inside."""
    before = getattr(_walks, "found", None)
    _walks.found = {} if before is None else before
    try:
        yield
    finally:
        _walks.found = before


def _ordered(heads: list[Entry], sizes: bool, stop: Callable[[Node], bool] | None) -> list[Node]:
    read: Callable[[Node], Sequence[Entry]] = dependencies if sizes else _inputs
    if stop is not None:
        inner, ends = read, stop

        def read(node: Node) -> Sequence[Entry]:
            return () if ends(node) else inner(node)

    order: list[Node] = []
    done = order.append
    seen: set[Node] = set()
    # The nodes on the way to the present one, each with what is still to be looked at before it.
    path: list[tuple[Node, Iterator[Entry]]] = []
    for head in heads:
        node = head[0]
        if node in seen:
            continue
        seen.add(node)
        rest = iter(read(node))
        while True:
            for entry in rest:
                child = entry[0]
                if child not in seen:
                    seen.add(child)
                    if child.op is None:
                        done(child)
                        continue
                    path.append((node, rest))
                    node, rest = child, iter(read(child))
                    break
            else:
                done(node)
                if not path:
                    break
                node, rest = path.pop()
    return order


_inputs = operator.attrgetter("inputs")


def auxiliary_ids(order: Iterable[Node]) -> set[int]:
    """The ids of variables that some operator uses as an auxiliary state."""
    found = {id(node) for node in order if node.is_aux}
    for node in order:
        if node.op is not None and node.op.aux:
            for name, entry in zip(node.op.inputs, node.inputs, strict=False):
                if name in node.op.aux and entry.node.op is None:
                    found.add(id(entry.node))
    return found


def arguments_of(order: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The argument and the auxiliary variables of a topological order."""
    auxiliary = auxiliary_ids(order)
    variables = [node for node in order if node.op is None]
    return (
        [node for node in variables if id(node) not in auxiliary],
        [node for node in variables if id(node) in auxiliary],
    )


# A replacement joins a handful of nodes; a search that finds more has left its neighbourhood.
_MOST_JOINED = 32


def _inherit(node: Node, inputs: Sequence[Entry], outputs: Sequence[Entry], known: set[Node]) -> None:
    """Tell new nodes which recorded ones they stand for: ``node``, and what was joined with it.

    Joined are the nodes between ``inputs`` and those nodes of the new graph that the replacement reads.
    """
    made: list[Node] = []
    read: set[Node] = set()
    stack = [entry[0] for entry in outputs]
    while stack:
        current = stack.pop()
        if current in known:
            read.add(current)
        elif current.op is not None:
            known.add(current)
            made.append(current)
            stack.extend([entry[0] for entry in current.inputs])
    if not made:
        return
    names = node.recorded
    if not all([entry[0] in read or entry[0].op is None for entry in inputs]):
        found = dict.fromkeys(name for entry in inputs for name in _joined(entry.node, read))
        found.update(dict.fromkeys(names))
        names = tuple(found)
    for each in made:
        each.covers = names


def _joined(start: Node, read: set[Node]) -> list[str]:
    """The recorded names of the nodes on the way from ``start`` up to the nodes ``read``."""
    found: list[Node] = []
    stack, seen = [start], set(read)
    while stack:
        current = stack.pop()
        if current in seen or current.op is None:
            continue
        seen.add(current)
        found.append(current)
        if len(found) > _MOST_JOINED:
            return []
        stack.extend(entry.node for entry in current.inputs)
    return [name for each in reversed(found) for name in each.recorded]


def rebuild(
    entries: Sequence[Entry],
    replace: Callable[[Node, tuple[Entry, ...]], Sequence[Entry] | None] | None = None,
    fresh: bool = False,
    placed: Callable[[Node, Sequence[Entry]], None] | None = None,
    order: Sequence[Node] | None = None,
) -> list[Entry]:
    """A graph with nodes replaced: ``replace(node, new_inputs)`` gives the new outputs, or None to keep the
    node.

    Nodes whose inputs (or sizes that they read) changed are copied, with ``fresh`` all that are kept;
    nothing is changed in place. ``placed(node, outputs)`` is told of the new outputs of every node that does
    not stay itself. ``order`` is the topological order of ``entries``, where it is known.
    """
    mapping: dict[Node, Sequence[Entry]] = {}
    known: set[Node] = set()

    def place(entry: Entry) -> Entry:
        outputs = mapping.get(entry[0])
        return entry if outputs is None else outputs[entry[1]]

    for node in topological(entries) if order is None else order:
        inputs = node.inputs
        for entry in inputs:
            if entry[0] in mapping:
                inputs = tuple([place(entry) for entry in inputs])
                break
        outputs = None if replace is None else replace(node, inputs)
        if outputs is not None:
            new = outputs[0][0] if len(outputs) == 1 else None
            if new is not None and new.inputs is inputs and new not in known:
                # One node in the place of another, on the same values.
                new.covers = node.covers or node.recorded
                known.add(new)
            else:
                _inherit(node, inputs, outputs, known)
                known.update([entry[0] for entry in outputs])
        else:
            new = node
            if fresh:
                new = node.__copy__()
                new.inputs = inputs
            elif inputs is not node.inputs:
                new = node.moved(inputs)
            if reads_sizes(node):
                new = _relocated(new, node, place)
            known.add(new)
            if new is node:
                continue
            outputs = [Entry(new, index) for index in range(new.outputs)]
        mapping[node] = outputs
        if placed is not None:
            placed(node, outputs)
    return [place(entry) for entry in entries]


def _relocated(new: Node, node: Node, place: Callable[[Entry], Entry]) -> Node:
    """The new node, or a copy of it, whose attributes read sizes of the new graph."""
    moved = {key: relocated(value, place) for key, value in node.attrs.items()}
    if all([moved[key] is value for key, value in node.attrs.items()]):
        return new
    if new is node:
        new = node.moved(node.inputs)
    new.attrs, new._full = moved, None
    return new
