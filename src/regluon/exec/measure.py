"""Programs measured node by node: times, values, memory, and the backward of each node.

What is measured is the generated program itself, with a call after every node. Nothing that it may write
(auxiliary states, arrays that operators change) is the caller's: such tensors are copied first.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Entry, Node
from .onednn import Step, region_of, watched
from .program import Program

__all__ = [
    "Measured",
    "NodeCost",
    "backward_steps",
    "measure",
    "size_in_bytes",
    "time_of",
    "total_bytes",
    "watch_backward",
]

# Rounds of a measurement, and the seconds after which it is content with fewer.
_ROUNDS = 9
_FEWEST = 3
_LONGEST = 1.0


@dataclass
class NodeCost:
    """What one node of a program took.

    Attributes
    ----------
    node : Node
        The node.
    seconds, backward_seconds : float
        Medians over the rounds; the second is 0 without gradients.
    outputs : list of (shape, dtype)
        What it computes.
    steps : list of (Step, float)
        The kernels of a region, each with its seconds.
    """

    node: Node
    seconds: float = 0.0
    backward_seconds: float = 0.0
    outputs: list[tuple[tuple[int, ...], torch.dtype]] = field(default_factory=list)
    steps: list[tuple[Step, float]] = field(default_factory=list)


@dataclass
class Measured:
    """A program's run: its nodes in order, medians of the whole in seconds, and bytes.

    ``peak_bytes`` is the most memory that values made by the program held at one time, without the inputs,
    the parameters, what kernels use while they run, and what torch keeps for a backward.
    """

    nodes: list[NodeCost]
    seconds: float
    backward_seconds: float
    peak_bytes: int
    rounds: int


def size_in_bytes(tensor: Tensor) -> int:
    """The memory of a tensor; packed ones have no storage that can be asked."""
    try:
        return tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return tensor.numel() * tensor.element_size()


def _address(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return id(tensor)


def total_bytes(tensors: Iterable[Tensor], without: Iterable[Tensor] = ()) -> int:
    """The memory of tensors, once where several share it, and not where it is that of the others."""
    known = set(map(_address, without))
    sizes = {_address(tensor): size_in_bytes(tensor) for tensor in tensors}
    return sum(size for address, size in sizes.items() if address not in known)


def time_of(call: Callable[[], Any], device: torch.device) -> float:
    """The median time of a call, in seconds, after one that does not count."""
    call()
    rounds = _Rounds(0, device)
    while rounds.wanted():
        rounds.note(call)
    return statistics.median(rounds.whole)


def measure(program: Program, key: int, tensors: Sequence[Any]) -> Measured:
    """Run a program several times on tensors in the order of its inputs.

    A program of a recording is run under gradients, with a backward after it. The caller's tensors are not
    written to, and no gradient is added to anything.
    """
    given = _Given(program, tensors)
    costs = [NodeCost(node) for node in program.nodes]
    device = tensors[0].device if tensors else torch.device("cpu")
    with torch.set_grad_enabled(program.recording):
        peak = _look(program, key, given, costs)
        rounds = _Rounds(len(costs), device)
        while rounds.wanted():
            rounds.run(program, key, given)
    for cost, seconds, backward in zip(costs, *rounds.medians(), strict=True):
        cost.seconds, cost.backward_seconds = seconds, backward
        region = region_of(cost.node)
        if region is not None:
            cost.steps = [(step, statistics.median(rounds.steps[id(step)])) for step in region.steps]
    whole, backwards = statistics.median(rounds.whole), statistics.median(rounds.backwards or [0.0])
    return Measured(costs, whole, backwards, peak, len(rounds.whole))


class _Given:
    """The inputs of a program, with copies of those that it writes to, and leaves where gradients flow."""

    def __init__(self, program: Program, tensors: Sequence[Any]) -> None:
        self._written = _written_places(program)
        self._tensors = tensors
        self._recording = program.recording

    def fresh(self) -> list[Any]:
        """Inputs for one run."""
        made: list[Any] = []
        for place, tensor in enumerate(self._tensors):
            if not isinstance(tensor, Tensor):
                # A session of another engine.
                made.append(tensor)
                continue
            value = tensor.detach()
            if place in self._written:
                value = value.clone()
            if self._recording and tensor.requires_grad:
                value = value.requires_grad_()
            made.append(value)
        return made


def _written_places(program: Program) -> set[int]:
    """The places of inputs that some operator writes to."""
    places = {id(node): place for place, node in enumerate(program.inputs)}
    written: set[int] = set()
    for node in program.nodes:
        definition = node.attrs["node"].op if isinstance(node.attrs.get("node"), Node) else node.op
        if definition is None:
            continue
        # The bodies of loops and branches may hold operators that write.
        if definition.mutates or definition.opaque or node.full_attrs.get("subgraphs"):
            written.update(places[id(e.node)] for e in node.inputs if id(e.node) in places)
        for name, entry in zip(definition.inputs, node.inputs, strict=False):
            if name in definition.aux and id(entry.node) in places:
                written.add(places[id(entry.node)])
    return written


def _look(program: Program, key: int, given: _Given, costs: list[NodeCost]) -> int:
    """One run that notes shapes and types; gives the most bytes alive at one time."""
    tensors = given.fresh()
    foreign = {_address(tensor) for tensor in tensors if isinstance(tensor, Tensor)}
    frees = program.last_uses()
    alive: dict[Entry, tuple[int, int]] = {}
    peak = 0

    def watch(place: int, values: tuple[Any, ...]) -> None:
        nonlocal peak
        cost = costs[place]
        for index, value in enumerate(values):
            if isinstance(value, Tensor):
                cost.outputs.append((tuple(value.shape), value.dtype))
                alive[Entry(cost.node, index)] = (_address(value), size_in_bytes(value))
        held = {address: size for address, size in alive.values() if address not in foreign}
        region = region_of(cost.node)
        peak = max(peak, sum(held.values()) + (0 if region is None else region.memory))
        for entry in frees.get(place, ()):
            alive.pop(entry, None)

    program.run(key, tensors, program.watched(watch))
    return peak


class _Rounds:
    """Times of several runs."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.whole: list[float] = []
        self.backwards: list[float] = []
        # Of the steps of regions, by the step's id.
        self.steps: dict[int, list[float]] = defaultdict(list)
        self._forward: list[list[float]] = [[] for _ in range(count)]
        self._backward: list[list[float]] = [[] for _ in range(count)]
        self._end = time.perf_counter() + _LONGEST
        self._wait: Callable[[], None] | None = None
        if device.type == "cuda":
            self._wait = torch.cuda.synchronize

    def wanted(self) -> bool:
        """Whether there is to be another round."""
        done = len(self.whole)
        return done < _FEWEST or (done < _ROUNDS and time.perf_counter() < self._end)

    def note(self, call: Callable[[], Any]) -> None:
        """Time one call."""
        begin = self._now()
        result = call()
        self.whole.append(self._now() - begin)
        del result

    def run(self, program: Program, key: int, given: _Given) -> None:
        """The program as it is, then with a clock after each node."""
        tensors = given.fresh()
        self.note(lambda: program.run(key, tensors))
        tensors = given.fresh()
        steps: list[list[Any]] = []
        # Inputs are leaves: none of them has a step of its own.
        known: set[int] = set()
        last = self._now()

        def watch(place: int, values: tuple[Any, ...]) -> None:
            nonlocal last
            now = self._now()
            self._forward[place].append(now - last)
            if program.recording:
                steps.append(backward_steps(values, known))
            last = self._now()

        before = last
        # A step may run several times, on one slice of a batch after another.
        spent: dict[int, float] = defaultdict(float)

        def watch_step(step: Step) -> None:
            nonlocal before
            # The first step of a region also pays for the call of the region.
            begin, before = max(before, last), self._now()
            spent[id(step)] += before - begin

        with watched(watch_step):
            results = program.run(key, tensors, program.watched(watch))
        for step, seconds in spent.items():
            self.steps[step].append(seconds)
        if program.recording:
            self._run_backward(tensors, results, steps)

    def _run_backward(self, tensors: list[Tensor], results: Sequence[Tensor], steps: list[list[Any]]) -> None:
        heads = [tensor for tensor in results if tensor.requires_grad]
        leaves = [tensor for tensor in tensors if tensor.requires_grad]
        if not heads or not leaves:
            return
        spent = [0.0] * len(steps)
        handles: list[Any] = []
        for place, step in enumerate(steps):

            def add(seconds: float, place: int = place) -> None:
                spent[place] += seconds

            handles += watch_backward(step, add, self._now)
        total = torch.stack([head.sum().to(torch.float64) for head in heads]).sum()
        begin = self._now()
        torch.autograd.grad(total, leaves, allow_unused=True)
        self.backwards.append(self._now() - begin)
        for handle in handles:
            handle.remove()
        for place, seconds in enumerate(spent):
            self._backward[place].append(seconds)

    def _now(self) -> float:
        if self._wait is not None:
            self._wait()
        return time.perf_counter()

    def medians(self) -> tuple[list[float], list[float]]:
        """Of each node, forward and backward."""
        return (
            [statistics.median(times) for times in self._forward],
            [statistics.median(times) if times else 0.0 for times in self._backward],
        )


def backward_steps(values: Sequence[Any], known: set[int]) -> list[Any]:
    """The steps of torch's backward that belong to these values and not to those ``known`` by id, which grow.

    Leaves have no step of their own.
    """
    found: list[Any] = []
    stack = [value.grad_fn for value in values if isinstance(value, Tensor)]
    while stack:
        step = stack.pop()
        if step is None or id(step) in known or type(step).__name__ == "AccumulateGrad":
            continue
        known.add(id(step))
        found.append(step)
        stack.extend(following for following, _ in step.next_functions)
    return found


def watch_backward(
    steps: Sequence[Any], add: Callable[[float], None], now: Callable[[], float] = time.perf_counter
) -> list[Any]:
    """Call ``add(seconds)`` after each of these steps in a backward; gives handles that can be removed."""
    handles = []
    for step in steps:
        begin = [0.0]

        def start(gradients: Any, begin: list[float] = begin) -> None:
            del gradients
            begin[0] = now()

        def stop(inputs: Any, outputs: Any, begin: list[float] = begin) -> None:
            del inputs, outputs
            add(now() - begin[0])

        handles += [step.register_prehook(start), step.register_hook(stop)]
    return handles
