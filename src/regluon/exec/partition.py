"""Parts of a graph that a backend takes over: connected groups of selected nodes, each replaced as one.

A group never contains two nodes with a path between them through a node outside: put in the place of its
group, one replacement has all its inputs ready before it runs, and no cycle arises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..base.errors import MXNetError
from ..graph.dims import dims_in, relocated, sources_of
from ..graph.node import Entry, Node, topological
from ..ops import registry

__all__ = ["Subgraph", "make_node", "partition", "replace_chains"]

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
    given = {definition.renamed.get(key, key) for key in attributes}
    node = Node(definition, name, inputs, {key: value for key, value in full.items() if key in given})
    return [Entry(node, index) for index in range(node.visible)]


def partition(
    entries: Sequence[Entry],
    select: Select,
    replace: Replace,
    is_constant: Callable[[Entry], bool] | None = None,
) -> list[Entry]:
    """Replace groups of selected nodes.

    Parameters
    ----------
    entries : sequence of Entry
        The outputs of the graph.
    select : callable
        ``select(node)`` tells whether the backend takes an operator node.
    replace : callable
        ``replace(subgraph)`` gives the entries (or the entry) that compute the subgraph's outputs, made
        from its inputs; None leaves the group as it is.
    is_constant : callable, optional
        Tells what changes with the parameters only. With it, the time grows with the number of nodes only,
        and groups end where a path through another node may come back. Without it, groups are as large as can
        be, for which every path is looked at.

    Raises
    ------
    MXNetError
        If a replacement has another number of outputs than its group.
    """
    if is_constant is None:
        groups = _Groups.of_selection(entries, select)
    else:
        groups = _Groups.of_levels(entries, select, is_constant)
    return _Partition(entries, groups, replace).run()


def replace_chains(entries: Sequence[Entry], operators: Sequence[str], replace: Replace) -> list[Entry]:
    """Replace every chain of these operators, each of which alone uses the result of the one before it.

    See `partition`, of which this is the special case of a straight line.
    """
    return _Partition(entries, _Groups.of_chains(entries, operators), replace).run()


class _Groups:
    """Which nodes belong together: ``number`` gives the group of a node by its id, ``members`` its nodes."""

    def __init__(self) -> None:
        self.number: dict[int, int] = {}
        self.members: list[list[Node]] = []

    @classmethod
    def of_selection(cls, entries: Sequence[Entry], select: Select) -> _Groups:
        """The connected groups of the selected nodes."""
        groups = cls()
        order = topological(entries)
        for node in order:
            if node.op is not None and select(node):
                groups._place(node)
        place = {id(node): index for index, node in enumerate(order)}
        for members in groups.members:
            members.sort(key=lambda node: place[id(node)])
        return groups

    @classmethod
    def of_levels(
        cls, entries: Sequence[Entry], select: Select, is_constant: Callable[[Entry], bool]
    ) -> _Groups:
        """Groups of selected nodes, in linear time.

        The level of a node is the largest number of changes between selected and other nodes on a path to it.
        A path that leaves a group and comes back changes twice, so that nodes of one level can be joined.
        """
        groups = cls()
        order = [node for node in topological(entries) if node.op and not is_constant(Entry(node, 0))]
        level: dict[int, tuple[int, bool]] = {}
        root: dict[int, int] = {}

        def find(key: int) -> int:
            while root[key] != key:
                root[key] = root[root[key]]
                key = root[key]
            return key

        for node in order:
            chosen = select(node)
            before = [(s, level[id(s)]) for s in _sources(node) if id(s) in level]
            own = max((number + (kind != chosen) for _, (number, kind) in before), default=0)
            level[id(node)] = (own, chosen)
            if chosen:
                root[id(node)] = id(node)
                for source, known in before:
                    if known == (own, True):
                        root[find(id(source))] = find(id(node))
        numbers: dict[int, int] = {}
        for node in order:
            if id(node) in root:
                number = numbers.setdefault(find(id(node)), len(groups.members))
                if number == len(groups.members):
                    groups.members.append([])
                groups.members[number].append(node)
                groups.number[id(node)] = number
        return groups

    @classmethod
    def of_chains(cls, entries: Sequence[Entry], operators: Sequence[str]) -> _Groups:
        """The chains of these operators."""
        groups = cls()
        order = topological(entries)
        uses = Counter(id(source) for node in order for source in _sources(node))
        uses.update(id(entry.node) for entry in entries)
        for last in order:
            chain = [last]
            for name in reversed(operators[:-1]):
                before = [
                    e.node
                    for e in chain[0].inputs
                    if _is(e.node, name) and uses[id(e.node)] == 1 and id(e.node) not in groups.number
                ]
                if not before:
                    break
                chain.insert(0, before[0])
            if _is(last, operators[-1]) and len(chain) == len(operators) and id(last) not in groups.number:
                groups.number.update((id(node), len(groups.members)) for node in chain)
                groups.members.append(chain)
        return groups

    def of(self, node: Node) -> list[Node] | None:
        """The group of a node, None where the backend does not take it."""
        number = self.number.get(id(node))
        return None if number is None else self.members[number]

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


def _is(node: Node, operator: str) -> bool:
    return node.op is not None and (node.op.name == operator or operator in node.op.aliases)


def _sources(node: Node) -> list[Node]:
    """The nodes whose values or sizes a node reads."""
    dims = [dim for value in node.attrs.values() for dim in dims_in(value)]
    return [entry.node for entry in (*node.inputs, *sources_of(dims))]


class _Partition:
    """One pass over the graph, in which a group is one unit."""

    def __init__(self, entries: Sequence[Entry], groups: _Groups, replace: Replace) -> None:
        self.entries, self.groups, self.replace = entries, groups, replace
        self.mapping: dict[tuple[int, int], Entry] = {}
        self.used: set[tuple[int, int]] = {(id(entry.node), entry.index) for entry in entries}
        for node in topological(entries):
            for entry in node.inputs:
                if groups.of(entry.node) is None or groups.of(entry.node) is not groups.of(node):
                    self.used.add((id(entry.node), entry.index))

    def run(self) -> list[Entry]:
        for unit in self._units():
            if self.groups.of(unit[0]) is None:
                self._keep(unit[0])
            else:
                self._take(unit)
        return [self._place(entry) for entry in self.entries]

    def _units(self) -> list[list[Node]]:
        """Single nodes and whole groups, every one after what it reads."""
        done: set[int] = set()
        order: list[list[Node]] = []
        stack = [(entry.node, False) for entry in reversed(self.entries)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            unit = self.groups.of(node) or [node]
            if ready:
                done.update(id(member) for member in unit)
                order.append(unit)
                continue
            stack.append((node, True))
            inside = {id(member) for member in unit}
            before = [source for member in unit for source in _sources(member)]
            stack += [(s, False) for s in reversed(before) if id(s) not in inside and id(s) not in done]
        return order

    def _place(self, entry: Entry) -> Entry:
        return self.mapping[id(entry.node), entry.index]

    def _keep(self, node: Node) -> Node:
        """Put a node into the new graph, as a copy where what it reads has moved."""
        inputs = tuple(self._place(entry) for entry in node.inputs)
        attrs = {key: relocated(value, self._place) for key, value in node.attrs.items()}
        new = node
        if any(
            a.node is not b.node or a.index != b.index for a, b in zip(inputs, node.inputs, strict=True)
        ) or any(attrs[key] is not value for key, value in node.attrs.items()):
            new = node.__copy__()
            new.inputs, new.attrs = inputs, attrs
        for index in range(node.outputs):
            self.mapping[id(node), index] = Entry(new, index)
        return new

    def _take(self, members: list[Node]) -> None:
        """Offer a group to the backend."""
        new = [self._keep(node) for node in members]
        inside = {id(node) for node in new}
        inputs = {(id(e.node), e.index): e for node in new for e in node.inputs if id(e.node) not in inside}
        outputs = [
            (id(node), index)
            for node in members
            for index in range(node.outputs)
            if (id(node), index) in self.used
        ]
        subgraph = Subgraph(new, list(inputs.values()), [self.mapping[key] for key in outputs])
        made = self.replace(subgraph)
        if made is None:
            return
        made = [made] if isinstance(made, Entry) else list(made)
        if len(made) != len(outputs):
            raise MXNetError(
                f"the replacement of {subgraph} has {len(made)} output(s), but {len(outputs)} of its "
                f"values are used outside it: {', '.join(map(_output_name, subgraph.outputs))}"
            )
        self.mapping.update(zip(outputs, made, strict=True))


def _output_name(entry: Entry) -> str:
    return entry.node.output_name(entry.index)
