"""Parts of a graph that a backend takes over: connected groups of selected nodes, each replaced as one.

A group never contains two nodes with a path between them through a node outside: put in the place of its group,
one replacement has all its inputs ready before it runs, and no cycle arises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..base.errors import MXNetError
from ..graph.dims import dims_in, sources_of
from ..graph.node import Entry, Node, rebuild, topological
from ..ops import registry

__all__ = ["Subgraph", "make_node", "partition"]

Select = Callable[[Node], bool]
Replace = Callable[["Subgraph"], Sequence[Entry] | Entry | None]


class Subgraph:
    """A group of nodes that a backend may replace.

    Attributes
    ----------
    nodes : tuple of Node
        The operators, every one after its inputs. ``node.op.name``, ``node.full_attrs`` and ``node.inputs``
        say what they compute.
    inputs : tuple of Entry
        The values from outside that the group reads, in the order of their first use. A parameter's
        ``entry.node.value`` is the Parameter.
    outputs : tuple of Entry
        The values of the group that are used outside it: a replacement gives one entry for each.
    """

    def __init__(self, nodes: Sequence[Node], inputs: Sequence[Entry], outputs: Sequence[Entry]) -> None:
        self.nodes, self.inputs, self.outputs = tuple(nodes), tuple(inputs), tuple(outputs)

    def __repr__(self) -> str:
        return f"<subgraph of {', '.join(node.name for node in self.nodes)}>"

    @property
    def operators(self) -> list[str]:
        """The names of the operators, in order."""
        return [node.op.name for node in self.nodes if node.op is not None]

    def make(self, operator: str, inputs: Sequence[Entry] | None = None, **attributes: Any) -> list[Entry]:
        """The visible outputs of a new node on the group's inputs, named like the group's last node."""
        name = self.nodes[-1].name
        return make_node(operator, self.inputs if inputs is None else inputs, name, **attributes)


def make_node(operator: str, inputs: Sequence[Entry], name: str, **attributes: Any) -> list[Entry]:
    """The visible outputs of a new node that applies a registered operator.

    Parameters
    ----------
    operator : str
        Any name of the operator table.
    inputs : sequence of Entry
        What it is applied to.
    name : str
        The node's name in files and in hooks.
    **attributes
        Its attributes, as numbers or as strings.

    Raises
    ------
    MXNetError
        If there is no such operator, or it does not take these attributes.
    """
    definition = registry.get(operator)
    full = definition.parse(attributes)
    node = Node(definition, name, inputs, {key: full[key] for key in full if key in _given(definition, attributes)})
    return [Entry(node, index) for index in range(node.visible)]


def _given(definition: Any, attributes: Iterable[str]) -> set[str]:
    return {definition.renamed.get(key, key) for key in attributes}


def partition(entries: Sequence[Entry], select: Select, replace: Replace) -> list[Entry]:
    """Replace groups of selected nodes.

    Parameters
    ----------
    entries : sequence of Entry
        The outputs of the graph.
    select : callable
        ``select(node)`` tells whether the backend takes an operator node.
    replace : callable
        ``replace(subgraph)`` gives the entries (or the entry) that compute the subgraph's outputs, made from its
        inputs; None leaves the group as it is.

    Raises
    ------
    MXNetError
        If a replacement has another number of outputs than its group.
    """
    groups = _Groups(entries, select)
    graph = list(entries)
    for number in range(len(groups.members)):
        graph = _replace_one(graph, groups, number, replace)
    return graph


class _Groups:
    """Which nodes belong together. ``members`` are lists of nodes; a node keeps its original's number."""

    def __init__(self, entries: Sequence[Entry], select: Select) -> None:
        self.number: dict[int, int] = {}
        self.members: list[list[Node]] = []
        order = topological(entries)
        for node in order:
            if node.op is not None and select(node):
                self._place(node)
        self.members = [members for members in self.members if members]
        place = {id(node): index for index, node in enumerate(order)}
        for members in self.members:
            members.sort(key=lambda node: place[id(node)])

    def _place(self, node: Node) -> None:
        near = dict.fromkeys(self.number[id(e.node)] for e in node.inputs if id(e.node) in self.number)
        mine = len(self.members)
        self.members.append([node])
        self.number[id(node)] = mine
        for other in near:
            joined = [*self.members[other], *self.members[mine]]
            if other == mine or self._leaves_and_returns(joined):
                continue
            for member in self.members[mine]:
                self.number[id(member)] = other
            self.members[other], self.members[mine] = joined, []
            mine = other

    def _leaves_and_returns(self, joined: list[Node]) -> bool:
        """Whether, with every group as one node, a path leads out of ``joined`` and back into it."""
        inside = {id(node) for node in joined}
        seen: set[int] = set()
        stack = [source for node in joined for source in _sources(node) if id(source) not in inside]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            group = self.members[self.number[id(node)]] if id(node) in self.number else [node]
            seen.update(id(member) for member in group)
            for member in group:
                for source in _sources(member):
                    if id(source) in inside:
                        return True
                    stack.append(source)
        return False


def _sources(node: Node) -> list[Node]:
    """The nodes whose values or sizes a node reads."""
    dims = [dim for value in node.attrs.values() for dim in dims_in(value)]
    return [entry.node for entry in (*node.inputs, *sources_of(dims))]


def _replace_one(graph: list[Entry], groups: _Groups, number: int, replace: Replace) -> list[Entry]:
    """Replace one group of the graph, in which groups before it may be replaced already."""
    members = groups.members[number]
    inside = {id(node) for node in members}
    inputs: dict[tuple[int, int], Entry] = {}
    for node in members:
        for entry in node.inputs:
            if id(entry.node) not in inside:
                inputs.setdefault((id(entry.node), entry.index), entry)
    outputs = _used_outside(graph, inside)
    made = replace(Subgraph(members, list(inputs.values()), outputs))
    if made is None:
        return graph
    made = [made] if isinstance(made, Entry) else list(made)
    if len(made) != len(outputs):
        raise MXNetError(
            f"the replacement of {', '.join(node.name for node in members)} has {len(made)} output(s); this part "
            f"of the graph has {len(outputs)}"
        )
    moved = {(id(old.node), old.index): new for old, new in zip(outputs, made, strict=True)}
    return _substituted(graph, moved, groups)
