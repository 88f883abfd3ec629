"""Runs of ways to compute a group of layers, on random values, for those who measure which is the fastest."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...graph.node import Entry, Node, topological
from ...passes.rewrite import Settings
from ..partition import Subgraph
from ..program import Program
from ..splitting import split
from ..tuning import TimedRun, random_value
from .region import Step, watched

__all__ = ["Joined", "StepTimes", "repeated", "trial"]

# What bringing values into another order between two regions may take, of the time of both.
_REORDERED = 1.06


class StepTimes(TimedRun):
    """A run of a region that is timed step by step: each kind of step counts with its fastest run.

    In a network of repeated layers there are few kinds of steps, so that one run times most of them several
    times. Steps are of one kind where the same kernel reads and writes as much.
    """

    def __init__(self, run: Callable[[], Any], steps: Sequence[Step]) -> None:
        self._run = run
        numbers: dict[Any, int] = {}
        kinds = [numbers.setdefault(_kind(step), len(numbers)) for step in steps]
        self._kinds = {id(step): kind for step, kind in zip(steps, kinds, strict=True)}
        self._steps = steps
        self._counts = Counter(kinds)
        self._best: dict[int, float] = {}

    def __call__(self) -> None:
        """Run once."""
        kinds, best, clock = self._kinds, self._best, time.perf_counter
        last = clock()

        def watch(step: Step) -> None:
            nonlocal last
            seconds, kind = clock() - last, kinds[id(step)]
            if seconds < best.get(kind, seconds + 1):
                best[kind] = seconds
            last = clock()

        with watched(watch):
            last = clock()
            self._run()

    @property
    def seconds(self) -> float:
        """What all steps take, by the fastest run of each kind."""
        return sum(count * self._best[kind] for kind, count in self._counts.items())

    def seconds_of(self, nodes: set[int]) -> float:
        """What the steps of the nodes with these ids take."""
        return sum(self._best[self._kinds[id(step)]] for step in self._steps if id(step.node) in nodes)


class Joined(TimedRun):
    """A run of a region whose first nodes are those of one region, and the others those of another.

    What these two take tells what it would take. Only where that is promising it is made, and run itself.
    """

    def __init__(
        self,
        first: StepTimes,
        last: StepTimes,
        nodes: Sequence[Node],
        count: int,
        make: Callable[[], TimedRun | None],
    ) -> None:
        self._parts = (first, {id(node) for node in nodes[:count]}), (last, {id(n) for n in nodes[count:]})
        self._make = make
        self._run: TimedRun | None = None
        self._judged = self._refused = False

    def __call__(self) -> None:
        """Run once, if it was found to be promising."""
        if self._judged and not self._refused and self._run is None:
            self._run = self._make()
            self._refused = self._run is None
            if self._run is not None:
                # As often as the others, for which it waited.
                self._run()
                self._run()
        if self._run is not None:
            self._run()

    @property
    def seconds(self) -> float:
        """What a run takes, or is expected to take."""
        if self._run is not None or self._refused:
            return math.inf if self._run is None else self._run.seconds
        self._judged = True
        return _REORDERED * sum(part.seconds_of(nodes) for part, nodes in self._parts)


def _kind(step: Step) -> tuple[Any, ...]:
    primitive = step.primitive
    sizes = tuple((place, value.descriptor.size) for place, value in step.arguments)
    return primitive.kind, primitive.implementation, sizes


def _cut(outputs: Sequence[Entry], inputs: Sequence[Entry]) -> tuple[list[Entry], list[Node]]:
    """The graph of these outputs with variables in the place of ``inputs``."""
    variables = {
        (id(e.node), e.index): Node(None, f"v{i}", specs=None if e.spec is None else [e.spec])
        for i, e in enumerate(inputs)
    }
    twins: dict[int, Node] = {}

    def moved(entry: Entry) -> Entry:
        variable = variables.get((id(entry.node), entry.index))
        if variable is not None:
            return Entry(variable, 0)
        return Entry(twins.get(id(entry.node), entry.node), entry.index)

    for node in topological(outputs):
        if node.op is not None:
            twin = twins[id(node)] = node.__copy__()
            twin.inputs = tuple(moved(entry) for entry in node.inputs)
    return [moved(entry) for entry in outputs], list(variables.values())


def trial(
    group: Subgraph,
    outputs: Sequence[Entry],
    settings: Settings,
    packed: Callable[[Entry], Tensor | None],
    weight: Callable[[Entry], Tensor],
) -> Callable[[], Any]:
    """A run of nodes that compute a group's outputs, on random values.

    For packed weights, which take long to make, it takes what ``packed`` gives in their place. All else that
    is made of parameters is made of what ``weight`` gives for them.
    """
    cut, changing = _cut(outputs, [entry for entry in group.inputs if not settings.is_constant(entry)])
    entries, made, sources = split(cut, settings)
    given = [packed(entry) for entry in sources]
    others = [entry for entry, known in zip(sources, given, strict=True) if known is None]
    variables = [node for node in topological(others) if node.op is None]
    weights = [weight(Entry(node, 0)) for node in variables]
    with torch.no_grad():
        rest = iter(Program(variables, others, False, False)(0, weights) if others else ())
    constants = [next(rest) if known is None else known for known in given]
    known = {id(node) for node in (*changing, *made)}
    direct = [node for node in topological(entries) if node.op is None and id(node) not in known]
    program = Program([*changing, *direct, *made], entries, False, False)
    values = [*(random_value(Entry(node, 0)) for node in (*changing, *direct)), *constants]

    def run() -> Any:
        with torch.no_grad():
            return program(0, values)

    return run


def repeated(entry: Entry) -> Tensor:
    """One number in the shape and type of an entry: filling memory would take most of a trial."""
    assert entry.spec is not None
    return torch.full((), 0.5).to(entry.spec.dtype).expand(entry.spec.shape)
