"""Training graphs that keep few of their values: the others are computed again in the backward pass.

The nodes, in the order in which they run, are cut into segments. A segment keeps what comes into it; when its
gradient is asked for, it runs once more, and torch differentiates that run. With about sqrt(n) segments of n
layers there are about sqrt(n) kept values and sqrt(n) recomputed ones at a time (Chen et al. 2016, "Training
Deep Nets with Sublinear Memory Cost"), for one more forward pass. Random draws have the same keys both times.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import CHANGED_IN_PLACE, MXNetError
from ..graph.dims import relocated
from ..graph.node import Entry, Node, topological
from ..ops.internal import KEY, InternalOp, Slot
from ..passes import Watch
from ..passes.lint import lint
from ..runtime.gradient import committing_once
from .bodies import Cutter
from .cuts import Cost, choose_cuts, entries_read, spec_of
from .program import Program

__all__ = ["Segment", "described", "recompute", "segments_of"]

# Python of the user and writes must not happen twice; shapes that depend on values are found in the call.
_ONCE = ("opaque", "mutates", "dynamic")
# torch answers whether a gradient is wanted; without this function, all of them are taken to be.
_WANTED: Callable[[Any], bool] | None = getattr(torch._C, "_will_engine_execute_node", None)


def recompute(entries: Sequence[Entry], training: bool, watch: Watch | None = None) -> list[Entry]:
    """The graph with segments that compute their inner values again in the backward pass.

    It is left as it is where that would not lower the memory in use.

    Parameters
    ----------
    entries : sequence of Entry
        The outputs of a graph that gradients flow through.
    training : bool
        The train mode the graph was recorded in.
    watch : callable, optional
        ``watch(name, before, after)`` is told of what was done.
    """
    order = [node for node in topological(entries) if node.op is not None]
    cost = Cost(order, entries, _stands_alone, _writes_input)
    ends = choose_cuts(cost)
    result = list(entries) if ends is None else _Rewriter(order, entries, cost, training).run(ends)
    lint(result, "recompute")
    if watch is not None:
        watch("recompute", entries, result)
    return result


def segments_of(program: Program) -> list[Segment]:
    """The segments among the nodes of a program."""
    return [node.op.segment for node in program.nodes if isinstance(node.op, SegmentOp)]


def described(program: Program) -> str:
    """What a program computes again, in words."""
    segments = segments_of(program)
    if not segments:
        return "nothing is computed again in backward, since that would save no memory"
    kept, freed = (sum(sizes) / 2**20 for sizes in zip(*((s.kept, s.freed) for s in segments), strict=True))
    count = sum(segment.operators for segment in segments)
    return (
        f"{count} operators in {len(segments)} segments are computed again in backward: {kept:.1f} MiB of "
        f"values between segments are kept instead of {kept + freed:.1f} MiB"
    )


def _stands_alone(node: Node) -> bool:
    return any(getattr(node.op, name, None) for name in _ONCE)


def _writes_input(node: Node) -> bool:
    """Whether a node of a training graph overwrites its first input (see `training`)."""
    return isinstance(node.op, InternalOp) and node.op.name == "activation"


def _states(node: Node, training: bool) -> set[int]:
    """The places of inputs that a node updates in the backward pass and does not read: moving statistics."""
    inner = node.attrs.get("node")
    definition = inner.op if isinstance(inner, Node) else node.op
    if definition is None or definition.commit is None or not training:
        return set()
    if node.full_attrs.get("use_global_stats"):
        return set()
    return {place for place, name in enumerate(definition.inputs) if name in definition.aux}


# The graph ----------------------------------------------------------------------


class SegmentOp(InternalOp):
    """A segment as an operator; ``aux`` are its inputs that are moving statistics."""

    __slots__ = ("segment",)

    def __init__(self, segment: Segment, names: Sequence[str], states: Sequence[str]) -> None:
        arguments = (KEY, *(Slot(place) for place in range(len(names))))
        outputs = len(segment.program.outputs)
        super().__init__("recomputed", segment, (), arguments, fresh=False, outputs=outputs)
        self.inputs, self.aux = tuple(names), tuple(states)
        self.segment = segment


class _Rewriter:
    """Puts a node in the place of each segment."""

    def __init__(self, order: list[Node], entries: Sequence[Entry], cost: Cost, training: bool) -> None:
        self.order, self.entries, self.cost, self.training = order, entries, cost, training
        self.mapping: dict[tuple[int, int], Entry] = {}

    def run(self, ends: Sequence[int]) -> list[Entry]:
        """``ends`` are the places of the segments' last nodes."""
        begin = 0
        for number, end in enumerate(ends):
            nodes = self.order[begin : end + 1]
            if len(nodes) == 1:
                self._keep(nodes[0])
            else:
                self._join(nodes, begin, end, f"segment{number}")
            begin = end + 1
        return [self._place(entry) for entry in self.entries]

    def _place(self, entry: Any) -> Entry:
        found: Entry = self.mapping.get((id(entry.node), entry.index), entry)
        return found

    def _keep(self, node: Node) -> None:
        new = node.__copy__()
        new.inputs = tuple(map(self._place, node.inputs))
        new.attrs = {key: relocated(value, self._place) for key, value in node.attrs.items()}
        for index in range(node.outputs):
            self.mapping[id(node), index] = Entry(new, index)

    def _join(self, nodes: Sequence[Node], begin: int, end: int, name: str) -> None:
        inside = {id(node) for node in nodes}
        outputs = [
            Entry(node, index)
            for node in nodes
            for index in range(node.outputs)
            if self.cost.last_use(Entry(node, index)) > end
        ]
        cutter = Cutter((), lambda node: id(node) in inside)
        inner = cutter.copy(outputs)
        sources = [entry for entry, _ in cutter.outside.values()]
        variables = [variable for _, variable in cutter.outside.values()]
        states = self._unread(nodes, sources)
        kept = sum(self.cost.size(entry) for entry in outputs)
        freed = self.cost.between(begin, end) - kept
        segment = Segment(Program(variables, inner, self.training, True), states, len(nodes), kept, freed)
        names = [f"input{place}" for place in range(len(sources))]
        operation = SegmentOp(segment, names, [names[place] for place in sorted(states)])
        specs = [spec_of(entry) for entry in outputs]
        node = Node(operation, name, list(map(self._place, sources)))
        node.specs = None if None in specs else specs  # type: ignore[assignment]
        node.covers = tuple(dict.fromkeys(name for each in nodes for name in each.recorded))
        node.location = nodes[0].location
        for index, entry in enumerate(outputs):
            self.mapping[id(entry.node), entry.index] = Entry(node, index)

    def _unread(self, nodes: Sequence[Node], sources: Sequence[Entry]) -> set[int]:
        """The places of sources that all of these nodes update only."""
        updated: set[tuple[int, int]] = set()
        read: set[tuple[int, int]] = set()
        for node in nodes:
            states = _states(node, self.training)
            for place, entry in enumerate(entries_read(node)):
                (updated if place in states else read).add((id(entry.node), entry.index))
        return {
            place for place, entry in enumerate(sources) if (id(entry.node), entry.index) in updated - read
        }


# Running ----------------------------------------------------------------------


@dataclass(eq=False)
class Segment:
    """A part of a graph that keeps its inputs, and computes the rest again for its gradient.

    Attributes
    ----------
    program : Program
        What it computes.
    states : set of int
        The places of inputs whose values do not matter: moving statistics, written to in backward.
    operators : int
        How many nodes of the graph it stands for.
    kept, freed : int
        Bytes of its results, and of the values that are not kept, for the shapes of the recording.
    """

    program: Program
    states: set[int]
    operators: int
    kept: int
    freed: int

    def __post_init__(self) -> None:
        # For each pattern of inputs with gradients, the outputs that have none.
        self._constant: dict[tuple[bool, ...], list[int]] = {}
        self._lock = threading.Lock()

    def __call__(self, key: int, *tensors: Tensor) -> Any:
        """The outputs, a tensor if there is one."""
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            results = _Again.apply(self, key, *tensors)  # type: ignore[no-untyped-call]
        else:
            results = self.program.run(key, tensors)
        return results[0] if len(results) == 1 else results

    def forward(self, key: int, tensors: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], list[int]]:
        """The outputs, and the places of those without a gradient."""
        pattern = tuple(tensor.requires_grad for tensor in tensors)
        versions = [tensor._version for tensor in tensors]
        constant = self._constant.get(pattern)
        if constant is None:
            # Once, run as in the backward pass to see which outputs have gradients.
            with torch.enable_grad():
                leaves = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
                made = self.program.run(key, leaves)
            constant = [place for place, value in enumerate(made) if not value.requires_grad]
            with self._lock:
                self._constant[pattern] = constant
            results = tuple(_apart(value, leaves) for value in made)
        else:
            results = self.program.run(key, [tensor.detach() for tensor in tensors])
        if versions != [tensor._version for tensor in tensors]:
            raise MXNetError(
                "a segment that is to be computed again writes to one of its inputs, whose first value would "
                f"be lost: one of {', '.join(self.program.recorded)}. Hybridize without recompute=True"
            )
        return results, constant

    def refuse_changed(self, versions: Sequence[tuple[int, Any, int]], error: RuntimeError) -> None:
        """Raise an error that names the inputs written to since ``(place, reference, version)`` was noted."""
        changed = []
        for place, reference, version in versions:
            tensor = reference()
            if tensor is not None and tensor._version != version:
                shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
                changed.append(f"{self.program.inputs[place].name!r} of shape {shape} and type {dtype}")
        if changed:
            raise MXNetError(
                f"{', '.join(changed)}: changed in-place (+=, -=, x[:]=, set_data, ...) between forward and "
                "backward, which computes from it again, as the block is hybridized with recompute=True. "
                "Call backward before changing it, or write to a copy."
            ) from error


def _apart(value: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """A value without its history; what lies in the memory of another one is still a view."""
    result = value.detach()
    shared = value._is_view() or any(value is leaf for leaf in leaves)
    return result.view_as(result) if shared else result


class _Again(torch.autograd.Function):
    """Runs a segment without keeping its inner values."""

    @staticmethod
    def forward(context: Any, segment: Segment, key: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        results, constant = segment.forward(key, tensors)
        context.mark_non_differentiable(*(results[place] for place in constant))
        context.set_materialize_grads(False)
        context.segment, context.key = segment, key
        # Those of states are changed between forward and backward, by the backward of another call.
        context.states = {place: tensors[place] for place in segment.states}
        kept = [place for place in range(len(tensors)) if place not in segment.states]
        context.save_for_backward(*(tensors[place] for place in kept))
        # To name what is written to before the backward, without keeping it alive.
        context.versions = [(place, weakref.ref(tensors[place]), tensors[place]._version) for place in kept]
        # Which updates of moving statistics were made: each is made once for a forward.
        context.committed = set()
        return results

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> Any:
        segment, states = context.segment, context.states
        try:
            saved = iter(context.saved_tensors)
        except RuntimeError as error:
            # torch names the shape of what was written to; used up graphs are told of elsewhere.
            if CHANGED_IN_PLACE in str(error):
                segment.refuse_changed(context.versions, error)
            raise
        count = len(segment.program.inputs)
        tensors = [states[place] if place in states else next(saved) for place in range(count)]
        wanted = _wanted(context, count)
        again = torch.is_grad_enabled()
        if not any(wanted) or all(gradient is None for gradient in gradients):
            return (None,) * (count + 2)
        with torch.enable_grad(), committing_once(context.committed):
            if again:
                # Aliases: a gradient here is the direct one, though one input may depend on another.
                inputs = [t.view_as(t) if t.requires_grad else t for t in tensors]
            else:
                inputs = [t.detach().requires_grad_(w) for t, w in zip(tensors, wanted, strict=True)]
            results = segment.program.run(context.key, inputs)
        heads = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
        del results
        found = _gradients(heads, inputs, wanted, again)
        return (None, None, *found)


def _gradients(
    heads: list[tuple[Tensor, Tensor]], inputs: Sequence[Tensor], wanted: Sequence[bool], again: bool
) -> list[Tensor | None]:
    """The gradient of each wanted input."""
    places = [place for place, want in enumerate(wanted) if want and inputs[place].requires_grad]
    found: list[Tensor | None] = [None] * len(inputs)
    if heads and places:
        outputs, gradients = zip(*heads, strict=True)
        made = torch.autograd.grad(
            outputs,
            [inputs[place] for place in places],
            gradients,
            create_graph=again,
            allow_unused=True,
        )
        for place, gradient in zip(places, made, strict=True):
            found[place] = gradient
    return found


def _wanted(context: Any, count: int) -> list[bool]:
    """Which inputs' gradients this backward asks for: without the others, nothing is computed for them."""
    needed = context.needs_input_grad[2:]
    return [
        need and _runs(step[0]) for need, step in zip(needed, context.next_functions[-count:], strict=True)
    ]


def _runs(step: Any) -> bool:
    if step is None or _WANTED is None:
        return step is not None
    try:
        return _WANTED(step)
    except RuntimeError:
        # A variable that this gradient is taken for.
        return True
