"""Loops and branches in symbol JSON: the originals' layout of their nodes, from and to bodies.

In a file every body is a graph whose variables are matched with the node's inputs by places: the attributes
``in_data_locs``, ``cond_input_locs`` and so on, in the order in which the graph meets its variables. All that
goes from step to step must be used in it. Here all bodies of a node have the same inputs in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ..base.errors import MXNetError
from ..exec.bodies import Body
from ..graph.json import NodeRecord, short
from ..graph.node import Entry, Node, rebuild, topological
from ..ops.params import _literal
from ..ops.registry import get

__all__ = ["Layout", "holds_bodies", "laid_out", "read"]

Entries = list[Entry]
# Marks loops over arrays of the NumPy kind, in which an element of a vector has no axes.
_NP = "__regluon_np__"
_MOST_NESTED = 64


def holds_bodies(operator: str) -> bool:
    """Whether nodes of this operator hold graphs."""
    return operator in _READERS


@dataclasses.dataclass
class Layout:
    """What a file says of a node: its inputs, attributes, and the outputs of its graphs."""

    inputs: Entries
    attributes: dict[str, str]
    graphs: list[Entries]


# Writing ----------------------------------------------------------------------


def _variables(outputs: Sequence[Entry]) -> list[Node]:
    """A graph's variables in the order in which files have them."""
    return [node for node in topological(outputs, sizes=False) if node.op is None]


def _places(variables: Sequence[Node], wanted: Sequence[Node]) -> list[int]:
    known = {id(node): place for place, node in enumerate(variables)}
    return [known[id(node)] for node in wanted if id(node) in known]


def _reading(output: Entry, variable: Node, np: bool) -> Entry:
    """The same value, from a node that also reads ``variable``: in a file, all must be read."""
    zeros = Node(get("zeros_like"), f"{variable.name}_zeros", [Entry(variable, 0)])
    nothing = Node(get("_npi_sum" if np else "sum"), f"{variable.name}_nothing", [Entry(zeros, 0)])
    spec, own = output.spec, Entry(variable, 0).spec
    if spec is not None and (own is None or own.dtype is not spec.dtype):
        nothing = Node(get("Cast"), f"{variable.name}_cast", [Entry(nothing, 0)], {"dtype": spec.dtype})
    total = Node(
        get("_npi_add" if np else "broadcast_add"), f"{output.node.name}_same", [output, Entry(nothing, 0)]
    )
    total.specs = None if spec is None else [spec]
    return Entry(total, 0)


def _reading_all(outputs: Entries, variables: Sequence[Node], places: Sequence[int], np: bool) -> Entries:
    """The outputs; those at ``places`` also read their variables where nothing does."""
    used = {id(node) for node in _variables(outputs)}
    result = list(outputs)
    for variable, place in zip(variables, places, strict=True):
        if id(variable) not in used:
            result[place] = _reading(result[place], variable, np)
    return result


def laid_out(node: Node) -> Layout:
    """The node as the originals write it."""
    assert node.op is not None
    layout = _WRITERS[node.op.name](node, node.full_attrs)
    attributes = {
        **layout.attributes,
        "num_args": str(len(layout.inputs) + len(layout.graphs)),
        "num_outputs": str(node.outputs),
    }
    return Layout(layout.inputs, attributes, layout.graphs)


def _write_foreach(node: Node, attrs: dict[str, Any]) -> Layout:
    (body,) = attrs["subgraphs"]
    count = attrs["num_data"]
    states = attrs["num_outputs"] - attrs["num_out_data"]
    own, rest = body.inputs[: count + states], body.inputs[count + states :]
    places = [0] * count + list(range(attrs["num_out_data"], attrs["num_outputs"]))
    outputs = _reading_all(list(body.outputs), own, places, attrs["np"])
    variables = _variables(outputs)
    kept = [place for place, variable in enumerate(body.inputs) if variable in variables]
    attributes = {
        "num_out_data": str(attrs["num_out_data"]),
        "in_data_locs": str(_places(variables, own[:count])),
        "in_state_locs": str(_places(variables, own[count:])),
        "remain_locs": str(_places(variables, rest)),
    }
    if attrs["np"]:
        attributes[_NP] = "1"
    return Layout([node.inputs[place] for place in kept], attributes, [outputs])


def _write_while(node: Node, attrs: dict[str, Any]) -> Layout:
    condition, body = attrs["subgraphs"]
    count = attrs["num_outputs"] - attrs["num_out_data"]
    places = list(range(attrs["num_out_data"], attrs["num_outputs"]))
    outputs = _reading_all(list(body.outputs), body.inputs[:count], places, False)
    inputs = list(node.inputs[:count])
    locations = []
    for held, results in ((condition, condition.outputs), (body, outputs)):
        found = []
        for variable in _variables(results):
            place = held.inputs.index(variable)
            if place >= count:
                inputs.append(node.inputs[place])
                place = len(inputs) - 1
            found.append(place)
        locations.append(found)
    attributes = {
        "max_iterations": str(attrs["max_iterations"]),
        "num_out_data": str(attrs["num_out_data"]),
        "cond_input_locs": str(locations[0]),
        "func_input_locs": str(locations[1]),
        "func_var_locs": str(_places(_variables(outputs), body.inputs[:count])),
    }
    return Layout(inputs, attributes, [list(condition.outputs), outputs])


def _write_cond(node: Node, attrs: dict[str, Any]) -> Layout:
    head = node.inputs[0]
    name = head.node.name if head.node.op is None else head.node.output_name(head.index)
    same = Node(get("_copy"), f"{node.name}_pred", [Entry(Node(None, name), 0)])
    inputs = [head]
    locations = []
    for body in attrs["subgraphs"]:
        found = []
        for variable in _variables(body.outputs):
            entry = node.inputs[1 + body.inputs.index(variable)]
            if entry not in inputs[1:]:
                inputs.append(entry)
            found.append(inputs.index(entry, 1))
        locations.append(found)
    attributes = {
        "cond_input_locs": "[0]",
        "then_input_locs": str(locations[0]),
        "else_input_locs": str(locations[1]),
    }
    graphs = [[Entry(same, 0)], *(list(body.outputs) for body in attrs["subgraphs"])]
    return Layout(inputs, attributes, graphs)


_WRITERS: dict[str, Callable[[Node, dict[str, Any]], Layout]] = {
    "_foreach": _write_foreach,
    "_while_loop": _write_while,
    "_cond": _write_cond,
}


# Reading ----------------------------------------------------------------------


class _Malformed(Exception):
    """What is wrong with the attributes of a node that holds graphs."""


def read(record: NodeRecord, inputs: Entries, source: str, graph_of: Callable[[Any, str], Entries]) -> Node:
    """The node of a record; ``graph_of(object, source)`` reads one of its graphs.

    Raises
    ------
    MXNetError
        If its attributes, inputs and graphs do not fit together.
    """
    where = f"node {short(record.name)!r} of {source}"
    if where.count(" of node ") > _MOST_NESTED:
        raise MXNetError(f"{where[:200]}...: loops are nested more than {_MOST_NESTED} deep")
    operator, count = _READERS[record.operator]
    try:
        if len(record.subgraphs) != count:
            raise _Malformed(f"it needs {count} subgraph(s) and has {len(record.subgraphs)}")
        graphs = [graph_of(item, f"a subgraph of {where}") for item in record.subgraphs]
        reader = _Reader(record, inputs, graphs)
        entries, attrs = reader.read(operator)
    except _Malformed as error:
        raise MXNetError(
            f"{where} is malformed: {error}. A foreach, while_loop or cond has its graphs under subgraphs, "
            "and attributes such as in_data_locs that say where their inputs are (2.0.0b1 exports npx loops "
            "without those, and cannot read them either)"
        ) from None
    definition = get(operator)
    user = {key: value for key, value in record.attributes.items() if key[:2] == "__" and key != _NP}
    return Node(definition, record.name, entries, attrs, user)


class _Reader:
    """Puts the inputs and graphs of one record in order."""

    def __init__(self, record: NodeRecord, inputs: Entries, graphs: list[Entries]) -> None:
        self.attributes, self.inputs, self.graphs = record.attributes, inputs, graphs
        self.variables = [_variables(graph) for graph in graphs]

    def read(self, operator: str) -> tuple[Entries, dict[str, Any]]:
        return {"_foreach": self._foreach, "_while_loop": self._while, "_cond": self._cond}[operator]()

    def number(self, key: str, least: int = 0) -> int:
        value = self._value(key)
        if not isinstance(value, int) or value < least:
            raise _Malformed(f"its attribute {key} is {short(str(value))}, not a number from {least}")
        return value

    def places(self, key: str, limit: int) -> list[int]:
        value = self._value(key)
        values = [value] if isinstance(value, int) else value
        if not isinstance(values, (list, tuple)) or not all(
            isinstance(item, int) and 0 <= item < limit for item in values
        ):
            raise _Malformed(f"its attribute {key} is {short(str(value))}, not places below {limit}")
        return list(values)

    def _value(self, key: str) -> Any:
        text = self.attributes.get(key)
        if text is None:
            raise _Malformed(f"it has no attribute {key}")
        try:
            return _literal(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise _Malformed(f"its attribute {key} cannot be read: {short(text)}") from None

    def matched(self, graph: int, locations: Sequence[int]) -> list[Node | None]:
        """For every input of the node, the variable of a graph that stands for it."""
        if len(locations) != len(self.variables[graph]):
            raise _Malformed(
                f"its subgraph {graph} has {len(self.variables[graph])} inputs, but places for "
                f"{len(locations)}"
            )
        found: list[Node | None] = [None] * len(self.inputs)
        twins: dict[int, Node] = {}
        for variable, place in zip(self.variables[graph], locations, strict=True):
            known = found[place]
            if known is not None:
                twins[id(variable)] = known
            else:
                found[place] = variable
        if twins:
            self.graphs[graph] = rebuild(
                self.graphs[graph],
                lambda node, inputs: [Entry(twins[id(node)], 0)] if id(node) in twins else None,
            )
        return found

    def body(self, graph: int, variables: Sequence[Node | None]) -> Body:
        inputs = [Node(None, f"unused{i}") if node is None else node for i, node in enumerate(variables)]
        return Body(inputs, self.graphs[graph])

    def outputs(self, graph: int) -> dict[str, int]:
        count, inner = self.number("num_outputs", 1), self.number("num_out_data")
        if count != len(self.graphs[graph]) or inner > count:
            raise _Malformed(
                f"num_outputs is {count} and num_out_data {inner}, but the body has "
                f"{len(self.graphs[graph])} outputs"
            )
        return {"num_outputs": count, "num_out_data": inner}

    def _foreach(self) -> tuple[Entries, dict[str, Any]]:
        variables = self.variables[0]
        keys = ("in_data_locs", "in_state_locs", "remain_locs")
        groups = [self.places(key, len(variables)) for key in keys]
        order = [place for group in groups for place in group]
        attrs: dict[str, Any] = {**self.outputs(0), "num_data": len(groups[0]), "np": _NP in self.attributes}
        if sorted(order) != list(range(len(variables))) or len(order) != len(self.inputs):
            raise _Malformed(f"the places {groups} are not those of {len(self.inputs)} inputs")
        if not groups[0] or len(groups[1]) != attrs["num_outputs"] - attrs["num_out_data"]:
            raise _Malformed(f"it has {len(groups[0])} data inputs and {len(groups[1])} states")
        attrs["subgraphs"] = (self.body(0, [variables[place] for place in order]),)
        return self.inputs, attrs

    def _while(self) -> tuple[Entries, dict[str, Any]]:
        attrs: dict[str, Any] = {**self.outputs(1), "max_iterations": self.number("max_iterations", 1)}
        used = self.places("func_input_locs", len(self.inputs))
        states = [used[place] for place in self.places("func_var_locs", len(used))]
        if len(states) != attrs["num_outputs"] - attrs["num_out_data"] or len(set(states)) != len(states):
            raise _Malformed(f"it has {len(states)} loop variables")
        if len(self.graphs[0]) != 1:
            raise _Malformed(f"its condition has {len(self.graphs[0])} outputs")
        order = [*states, *(place for place in range(len(self.inputs)) if place not in set(states))]
        condition = self.matched(0, self.places("cond_input_locs", len(self.inputs)))
        func = self.matched(1, used)
        attrs["subgraphs"] = (
            self.body(0, [condition[place] for place in order]),
            self.body(1, [func[place] for place in order]),
        )
        return [self.inputs[place] for place in order], attrs

    def _cond(self) -> tuple[Entries, dict[str, Any]]:
        count = self.number("num_outputs", 1)
        if any(len(graph) != count for graph in self.graphs[1:]) or len(self.graphs[0]) != 1:
            raise _Malformed(f"its graphs have {[len(graph) for graph in self.graphs]} outputs")
        head = self.matched(0, self.places("cond_input_locs", len(self.inputs)))
        given = {id(node): self.inputs[place] for place, node in enumerate(head) if node is not None}
        # The graph of the condition becomes part of the graph around.
        (pred,) = rebuild(
            self.graphs[0], lambda node, inputs: [given[id(node)]] if id(node) in given else None
        )
        if pred.node.op is not None and pred.node.op.name == "_copy":
            (pred,) = pred.node.inputs
        bodies = []
        for graph, key in ((1, "then_input_locs"), (2, "else_input_locs")):
            bodies.append(self.body(graph, self.matched(graph, self.places(key, len(self.inputs)))))
        return [pred, *self.inputs], {"num_outputs": count, "subgraphs": tuple(bodies)}


_READERS = {
    f"{prefix}{name}": (f"_{name}", count)
    for prefix in ("_", "_npx_")
    for name, count in (("foreach", 1), ("while_loop", 2), ("cond", 3))
}
