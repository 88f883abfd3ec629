"""Bodies: graphs that an operator holds, such as the body of a loop, and how they are cut out of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from ..base.errors import MXNetError
from ..graph.dims import dims_in, relocated, sources_of
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node, topological
from ..ops.opdef import Spec
from ..ops.registry import get
from ..passes.rewrite import Reads, Settings, rewrite
from ..runtime.gradient import zero_link
from .program import Program

__all__ = ["Body", "Cutter", "Part", "PlannedBody", "cut", "plan_bodies"]

# Runs a body on a key and on what goes from step to step.
Bound = Callable[[int, Sequence[Tensor]], tuple[Tensor, ...]]
MakePlan = Callable[[Program, int, Sequence[Tensor]], Any]


class Body:
    """A graph over variables of its own, that runs as often as an operator wants it.

    Parameters
    ----------
    inputs : sequence of Node
        Its variables. The graph need not use all of them.
    outputs : sequence of Entry
        What it computes.
    draws : range, optional
        The numbers of the draws made while it was recorded; the results of some may be unused. By default
        draws are numbered in the order of the graph.
    """

    # A body is itself and nothing else; without a hash it is kept in no memory of results.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Entry], draws: range | None = None) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        order = topological(outputs)
        drawing = [node for node in order if node.op is not None and node.op.uses_rng]
        for number, node in enumerate(drawing):
            node.draw = number if draws is None else node.draw - draws.start
        made = 0 if draws is None else len(draws)
        self.draws = max([made, *(node.draw + 1 for node in drawing)])
        reached = {id(node) for node in order if node.op is None}
        self.used = frozenset(place for place, node in enumerate(self.inputs) if id(node) in reached)
        self._programs: dict[tuple[bool, bool], Program] = {}

    def __repr__(self) -> str:
        return f"<body of {len(self.inputs)} inputs and {len(self.outputs)} outputs>"

    def run(self, tensors: Sequence[Tensor], training: bool, recording: bool, key: int) -> tuple[Tensor, ...]:
        """The outputs; ``key`` is the key of the first of ``draws`` random draws."""
        program = self._programs.get((training, recording))
        if program is None:
            program = Program(self.inputs, self.outputs, training, recording)
            self._programs[training, recording] = program
        return program.run(key, tensors)

    def bound(self, outside: Sequence[Tensor], training: bool, recording: bool) -> Bound:
        """The body as a function of a key and of what goes from step to step, the first of its inputs."""

        def run(key: int, own: Sequence[Tensor]) -> tuple[Tensor, ...]:
            return self.run([*own, *outside], training, recording, key)

        return run

    def infer(self, specs: Sequence[Spec]) -> list[Spec]:
        """Shapes and types of the outputs.

        Raises
        ------
        MXNetError
            If an operator refuses, or a shape depends on values.
        """
        given = {
            id(node): (tuple(spec.shape), spec.dtype) for node, spec in zip(self.inputs, specs, strict=True)
        }
        shapes = GraphShapes(self.outputs, given).run()
        found = [shapes.spec(entry) for entry in self.outputs]
        for entry, spec in zip(self.outputs, found, strict=True):
            if spec is None:
                raise MXNetError(
                    f"the shape of {entry.node.name} in the body of a loop or branch is not known"
                )
        return found  # type: ignore[return-value]

    def fill(self, shapes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Partly known shapes (None: unknown) of the inputs, completed, and of the outputs."""
        given = {id(node): (shape, None) for node, shape in zip(self.inputs, shapes, strict=True)}
        found = GraphShapes(self.outputs, given).run().shapes
        return (
            [found.get((id(node), 0), shape) for node, shape in zip(self.inputs, shapes, strict=True)],
            [found.get((id(entry.node), entry.index)) for entry in self.outputs],
        )

    @staticmethod
    def linked(results: Sequence[Tensor], sources: Sequence[Tensor]) -> list[Tensor]:
        """The results, connected to ``sources`` in such a way that they get zero gradients."""
        return [zero_link(value, sources) if value.is_floating_point() else value for value in results]


class PlannedBody(Body):
    """A body within a plan: it has a plan of its own, made when it first runs.

    The shapes and types of its inputs are always the same: those with which the plan around it was made.

    Parameters
    ----------
    body : Body
        The body.
    held : sequence of int
        The places of its inputs that depend on parameters only.
    make : callable
        ``make(program, count, tensors)`` gives a plan, as the class `Plan` does.
    """

    def __init__(self, body: Body, held: Sequence[int], make: MakePlan) -> None:
        self.inputs, self.outputs = body.inputs, body.outputs
        self.draws, self.used, self._programs = body.draws, body.used, body._programs
        self.held = tuple(held)
        self._moving = tuple(place for place in range(len(self.inputs)) if place not in self.held)
        self._make = make
        # By train mode; None where no plan can be made.
        self._plans: dict[bool, Any] = {}

    def bound(self, outside: Sequence[Tensor], training: bool, recording: bool) -> Bound:
        """The body as a function of a key and of what goes from step to step."""
        if recording:
            return super().bound(outside, training, recording)
        own = len(self.inputs) - len(outside)
        moving = [outside[place - own] for place in self._moving if place >= own]
        rest = [*moving, *(outside[place - own] for place in self.held)]

        def run(key: int, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
            tensors = [*given, *rest]
            try:
                plan = self._plans[training]
            except KeyError:
                plan = self._plans[training] = self._plan(tensors, training)
            if plan is None:
                return self.run([*given, *outside], training, recording, key)
            return plan(key, tensors)  # type: ignore[no-any-return]

        return run

    def _plan(self, tensors: Sequence[Tensor], training: bool) -> Any:
        """A plan of the inputs in the order: those that change, then those that are held."""
        inputs = [self.inputs[place] for place in (*self._moving, *self.held)]
        try:
            return self._make(Program(inputs, self.outputs, training, False), len(self._moving), tensors)
        except MXNetError:
            return None


def plan_bodies(entries: Sequence[Entry], settings: Settings, make: MakePlan) -> list[Entry]:
    """The graph of a plan, in which loops and branches have bodies with plans of their own."""
    if not any(node.op is not None and "subgraphs" in node.attrs for node in topological(entries)):
        return list(entries)

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Sequence[Entry] | None:
        attrs = node.attrs
        if "subgraphs" not in attrs:
            return None
        own = attrs.get("num_data", 0) + (
            attrs["num_outputs"] - attrs["num_out_data"] if "num_out_data" in attrs else 0
        )
        planned = []
        for body in attrs["subgraphs"]:
            # What goes from step to step comes first among the inputs, and changes.
            sources = node.inputs[len(node.inputs) - len(body.inputs) :]
            held = [place for place, e in enumerate(sources) if place >= own and settings.is_constant(e)]
            planned.append(PlannedBody(body, held, make))
        new = node.__copy__()
        new.inputs, new.attrs = inputs, {**attrs, "subgraphs": tuple(planned)}
        return [Entry(new, index) for index in range(new.outputs)]

    return rewrite(entries, replace)


class Cutter:
    """Copies the part of a graph that lies inside a body; what it reads from outside becomes variables."""

    def __init__(self, placeholders: Sequence[Node], inside: Callable[[Node], bool]) -> None:
        self.own = {id(node) for node in placeholders}
        self.inside = inside
        self.outside: dict[tuple[int, int], tuple[Entry, Node]] = {}
        self.copies: dict[int, Node] = {}

    def is_leaf(self, node: Node) -> bool:
        return node.op is None or not self.inside(node)

    def place(self, entry: Any) -> Entry:
        """An entry of the whole graph as an entry of the body."""
        node = entry.node
        if id(node) in self.own:
            return Entry(node, 0)
        if not self.is_leaf(node):
            return Entry(self.copies[id(node)], entry.index)
        key = (id(node), entry.index)
        if key not in self.outside:
            name = node.name if node.op is None else node.output_name(entry.index)
            spec = entry.spec
            variable = Node(None, name, user=dict(node.user) if node.op is None else None)
            variable.specs = None if spec is None else [spec]
            self.outside[key] = (entry, variable)
        return Entry(self.outside[key][1], 0)

    def copy(self, outputs: Sequence[Entry]) -> list[Entry]:
        for node in topological(outputs, stop=self.is_leaf):
            if not self.is_leaf(node):
                twin = node.__copy__()
                twin.inputs = tuple(self.place(entry) for entry in node.inputs)
                twin.attrs = {key: relocated(value, self.place) for key, value in node.attrs.items()}
                self.copies[id(node)] = twin
        made = []
        for number, entry in enumerate(outputs):
            placed = self.place(entry)
            if placed.node.op is None:
                # As in the originals: an output is always a node's.
                spec = placed.spec
                same = Node(get("_copy"), f"identity{number}", [placed])
                same.specs = None if spec is None else [spec]
                placed = Entry(same, 0)
            made.append(placed)
        return made


class Part(NamedTuple):
    """A part of a graph that becomes a body.

    Attributes
    ----------
    placeholders : sequence of Node
        The variables that stand for what goes from step to step.
    outputs : sequence of Entry
        What it computes.
    draws : range, optional
        See `Body`.
    """

    placeholders: Sequence[Node]
    outputs: Sequence[Entry]
    draws: range | None


def cut(parts: Sequence[Part], inside: Callable[[Node], bool]) -> tuple[list[Body], list[Entry]]:
    """Cut bodies out of a graph.

    Parameters
    ----------
    parts : sequence of Part
        What becomes a body each.
    inside : callable
        Whether an operator's node was recorded inside one of the bodies.

    Returns
    -------
    (list of Body, list of Entry)
        The bodies, and what they use from outside. The inputs of every body are its placeholders, then a
        variable for each of these.
    """
    cutters = [Cutter(part.placeholders, inside) for part in parts]
    copied = [cutter.copy(part.outputs) for cutter, part in zip(cutters, parts, strict=True)]
    outside: dict[tuple[int, int], Entry] = {}
    for cutter in cutters:
        for key, (entry, _) in cutter.outside.items():
            outside.setdefault(key, entry)
    made = []
    for cutter, part, outputs in zip(cutters, parts, copied, strict=True):
        variables = [cutter.place(entry).node for entry in outside.values()]
        made.append(Body([*part.placeholders, *variables], outputs, part.draws))
    return made, list(outside.values())


def reads_inside(dim: Any, inside: Callable[[Node], bool]) -> bool:
    """Whether a size or number read while recording is one of a value inside of a body."""
    return any(inside(entry.node) for entry in sources_of(dims_in(dim)))
