"""Looking into one call of a hybrid block: what is recorded, what the passes make of it, what runs, and how
long it takes.

Nothing of the block changes: a graph that it has not recorded yet is recorded aside, no random number is
drawn, and programs are measured on copies of what they would write to. Two things do happen, as at any
recording: the block's Python runs once, and parameters whose shapes were not known get them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from ..array import NDArray
from ..base import dtypes
from ..base.errors import MXNetError
from ..base.sharing import is_shared
from ..exec import Plan, Program, engines, for_training, recompute
from ..exec.measure import Measured, NodeCost, measure, size_in_bytes, time_of, total_bytes
from ..exec.onednn import Step
from ..exec.recompute import described
from ..graph.node import Entry, Node, topological
from ..passes import skipped
from ..runtime.autograd import pause, record
from ..runtime.tracer import GraphBreak
from .cached_graph import MOST_PLANS, CachedGraph, on_integers, tracing
from .changes import ChangingNumbers
from .explanation import Array, Explanation, Guard, Kernel, Operator, PassReport
from .recorded import Recorded
from .recording import trace
from .structure import flatten, regroup

__all__ = ["explain"]


def explain(block: Any, args: tuple[Any, ...], train: bool) -> Explanation:
    """See `HybridBlock.explain`."""
    flat: list[Any] = []
    structure = flatten(args, flat)
    if not flat or not all(isinstance(value, NDArray) for value in flat):
        raise TypeError(
            "explain takes the arrays of a call, at least one; received "
            f"{', '.join(type(value).__name__ for value in args) or 'nothing'}"
        )
    active = bool(block._active) or block._is_a_graph
    cached = block._cached if block._cached is not None else CachedGraph(block)
    found = Explanation(block.name, "train" if train else "predict", active)
    found.traces, found.retraces = cached.traces, list(cached.reasons)
    with record() if train else pause(train_mode=False), tracing:
        if cached.numbers.lifted:
            structure = cached.numbers.lift(structure, flat)
        reason = _why_not_recorded(block, cached)
        recorded = None
        if reason is None:
            try:
                recorded = _recorded_for(block, cached, structure, flat)
            except GraphBreak as error:
                reason = str(error)
        if recorded is not None and recorded.volatile:
            reason = "Python code reads a size that depends on values: " + recorded.reads[0][0]
        if recorded is None or reason is not None:
            _explain_operators(found, block, flat, str(reason))
            return found
        _Compiled(found, block, cached, recorded, flat).fill()
    return found


def _why_not_recorded(block: Any, cached: CachedGraph) -> str | None:
    """Why calls of this block run operator by operator, as far as it is known without recording."""
    hooked = [child.name for child in _below(block) if child._forward_hooks or child._forward_pre_hooks]
    if hooked:
        return f"forward hooks of {', '.join(hooked)} are to see every call"
    if cached.broken is not None and cached.broken.holds():
        return cached.broken.reason
    return None


def _below(block: Any) -> list[Any]:
    found: list[Any] = []
    for child in block._children.values():
        found += [child, *_below(child)]
    return found


def _recorded_for(block: Any, cached: CachedGraph, structure: Any, flat: list[Any]) -> Recorded:
    """The graph that serves the call, or one recorded for it that the block does not keep."""
    number = cached.find(structure, flat)
    if number is not None:
        return cached.graphs[number]
    from ..runtime.state import state

    numbers = ChangingNumbers.count(structure)
    return trace(block, structure, flat, state.training, state.recording, numbers)


def _explain_operators(found: Explanation, block: Any, flat: Sequence[Any], reason: str) -> None:
    """A block that is not compiled: why, and its children that are."""
    found.why = reason
    found.op_by_op.append(f"{block.name}: {reason}")
    found.inputs = _arrays(flat)
    for child in block._children.values():
        last = child.__dict__.get("_last_signature")
        if child.__dict__.get("_active") and last is not None:
            structure, specs = last
            args = regroup(structure, iter([spec.zeros() for spec in specs]))
            found.parts.append(explain(child, tuple(args), found.mode == "train"))


def _arrays(flat: Sequence[Any]) -> list[Array]:
    names = ["data"] if len(flat) == 1 else [f"data{i}" for i in range(len(flat))]
    return [_array(name, tuple(array.shape), array._t.dtype) for name, array in zip(names, flat, strict=True)]


def _array(name: str, shape: Sequence[int], dtype: torch.dtype) -> Array:
    return Array(name, tuple(int(size) for size in shape), dtypes.to_name(dtype))


class _Compiled:
    """Fills an explanation from a recorded graph and what is made of it."""

    def __init__(
        self, found: Explanation, block: Any, cached: CachedGraph, recorded: Recorded, flat: list[Any]
    ) -> None:
        self.found, self.block, self.cached = found, block, cached
        self.recorded, self.flat = recorded, flat
        context = flat[0].context
        self.arrays = [
            *flat,
            *(parameter.data(context) for _, parameter in recorded.parameters),
            *(array for _, array in recorded.captured),
        ]
        assert recorded.program is not None
        self.program: Program = recorded.program
        self.prepared: set[str] = set()

    def fill(self) -> None:
        """Everything, in the order of a call."""
        found, recorded = self.found, self.recorded
        found.inputs = [
            _array(node.name, array.shape, array._t.dtype)
            for node, array in zip(recorded.inputs, self.flat, strict=True)
        ]
        found.guards = [Guard(text, place) for text, place in recorded.reads]
        found.skipped = sorted(skipped())
        self._note_operators_alone()
        entries = [*recorded.outputs, *(entry for _, entry in recorded.written)]
        if recorded.mode[1]:
            self._fill_training(entries)
        else:
            self._fill_prediction()
        found.operators = _operators(entries, found.kernels, self.prepared)

    def _note_operators_alone(self) -> None:
        """What of the graph is not compiled."""
        found, name = self.found, self.block.name
        if not found.hybridized:
            found.op_by_op.append(f"{name}: it is not hybridized; call hybridize()")
        elif self.block._runs_python():
            found.op_by_op.append(f"{name}: its forward is Python that runs at every call, around the graph")
        if self.block._op_hooks:
            found.op_by_op.append(f"{name}: its op hooks see every operator's values, so each runs by itself")
        for node in self.program.nodes:
            if node.op is not None and node.op.dynamic:
                found.op_by_op.append(f"{node.name}: the output shape of {node.op.name} depends on values")

    # Prediction ----------------------------------------------------------------------

    def _fill_prediction(self) -> None:
        found = self.found
        tensors = [array._t for array in self.arrays]
        plan, found.why = self._plan(tensors)
        if plan is None:
            found.runs = "operators" if self.block._op_hooks else "program"
            found.source = self.program.source
            self._measure(self.program, tensors)
            found.memory["parameters"] = self._parameter_bytes()
            return
        found.runs, found.source = "plan", plan.source
        count = plan.count
        if plan.first is not None:
            found.prepared = dict(Counter(_operator_name(node) for node in plan.first.nodes))
            self.prepared = {name for node in plan.first.nodes for name in node.recorded}
        if type(plan) is Plan:
            direct, made = plan.values_from(tensors[count:])
            self._measure(plan.program, [*tensors[:count], *direct, *made])
            found.memory["packed"] = total_bytes(made, tensors[count:])
        elif plan.is_opaque:
            self._measure_whole(plan, tensors)
        else:
            self._measure(plan.program, [*tensors[:count], *plan._prepare(tensors[count:])[2]])
        found.memory["parameters"] = self._parameter_bytes()

    def _plan(self, tensors: list[torch.Tensor]) -> tuple[Plan | None, str]:
        """The plan that serves this call, or why there is none."""
        count = len(self.recorded.inputs)
        if self.block._op_hooks:
            return None, "op hooks are registered, and see the operators as they were recorded"
        if self.recorded.writes_outside():
            return None, "the graph writes to a parameter or an array from outside"
        if any(map(is_shared, tensors[count:])):
            return None, "a parameter's memory is shared with NumPy or another library: nothing may be kept"
        chosen = [c.chosen for c in self.cached.exact.values() if c.recorded is self.recorded]
        plans = [p for p in chosen if isinstance(p, Plan) and _fits(p, tensors)]
        if not plans and self.cached.plans >= MOST_PLANS:
            return None, f"the block has {MOST_PLANS} plans for other shapes already"
        tune = bool(self.block._flags.get("static_shape"))
        engine = self.cached.engine(self.recorded)
        try:
            if engine is not None:
                return self._engine_plan(engine, plans, tensors, tune)
            plan = Plan(self.program, count, tensors, tune and not plans, self._note_pass)
        except MXNetError as error:
            return None, str(error)
        if plans:
            return plans[-1], "; ".join(filter(None, ("compiled for these shapes", plans[-1].remark)))
        at_once = self.cached.plans_at_once(self.recorded, tensors)
        when = "at the first call" if at_once else "from the second call with these shapes on"
        return plan, f"compiled for these shapes {when}"

    def _engine_plan(
        self, engine: tuple[str, dict[str, Any]], plans: list[Plan], tensors: list[torch.Tensor], tune: bool
    ) -> tuple[Plan, str]:
        """The plan that another engine made, or would make, and its report."""
        count = len(self.recorded.inputs)
        shapes = [tuple(tensor.shape) for tensor in tensors[:count]]
        reports = [report for report in self.cached.reports if report.shapes == shapes]
        if plans and reports:
            plan, report = plans[-1], reports[-1]
        else:
            plan, report = engines.compile_with(*engine, self.program, count, tensors, tune)
        if type(plan) is Plan or plan.is_opaque:
            Plan(self.program, count, tensors, False, self._note_pass)
        if plan.is_opaque:
            self.found.passes = [each for each in self.found.passes if each.name != "choose_kernels"]
        return plan, str(report)

    def _parameter_bytes(self) -> int:
        return sum(size_in_bytes(parameter._data[0]._t) for _, parameter in self.recorded.parameters)

    # Training ----------------------------------------------------------------------

    def _fill_training(self, entries: Sequence[Entry]) -> None:
        found = self.found
        tensors = [array._t if array._g is None else array._g for array in self.arrays]
        found.runs, found.source = "program", self.program.source
        found.why = "gradients flow through the general program"
        if on_integers(self.recorded, self.arrays, tensors):
            found.runs, found.why = "operators", "integers have gradients"
            found.op_by_op.append(f"{self.block.name}: integers have gradients in this call")
        training = self.recorded.mode[0]
        fused = for_training(entries, training, self.flat[0].context.torch.type, self._note_pass)
        if self.block._flags.get("recompute"):
            recompute(fused, training, self._note_pass)
            found.why += f"; {described(self.program)}"
        self._measure(self.program, tensors)
        found.memory["parameters"] = self._parameter_bytes()

    # Both ----------------------------------------------------------------------

    def _note_pass(self, name: str, before: Sequence[Entry], after: Sequence[Entry]) -> None:
        old, new = _kinds(before), _kinds(after)
        known = {id(node) for node in topological(before)}
        changed = any(id(node) not in known for node in topological(after))
        # Removing what nothing else follows makes no new node.
        changed = changed or any(a != b for a, b in zip(before, after, strict=True))
        self.found.passes.append(
            PassReport(name, old.total(), new.total(), dict(old - new), dict(new - old), changed)
        )

    def _measure_whole(self, plan: Plan, tensors: Sequence[torch.Tensor]) -> None:
        """A function of another compiler: it is one kernel."""
        found = self.found
        found.seconds = time_of(lambda: plan(0, tensors), tensors[0].device)
        results = plan(0, tensors)
        found.outputs = [_array(f"output{i}", t.shape, t.dtype) for i, t in enumerate(results)]
        name = type(plan).__name__
        found.kernels = [
            Kernel(name, name, plan.program.recorded, list(found.outputs), found.seconds, 0.0, 1.0)
        ]

    def _measure(self, program: Program, tensors: Sequence[Any]) -> None:
        found = self.found
        measured = measure(program, 0, tensors)
        found.seconds, found.backward_seconds = measured.seconds, measured.backward_seconds
        found.memory["peak"] = measured.peak_bytes
        found.kernels = _kernels(measured)
        shapes = {(id(cost.node), i): spec for cost in measured.nodes for i, spec in enumerate(cost.outputs)}
        given = {
            id(node): (tuple(value.shape), value.dtype)
            for node, value in zip(program.inputs, tensors, strict=True)
            if isinstance(value, torch.Tensor)
        }
        for place, entry in enumerate(program.outputs[: len(self.recorded.outputs)]):
            shape, dtype = shapes.get((id(entry.node), entry.index)) or given[id(entry.node)]
            found.outputs.append(_array(f"output{place}", shape, dtype))


def _fits(plan: Plan, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a plan is for inputs of these shapes and types."""
    variables = plan.program.inputs[: plan.count]
    for node, tensor in zip(variables, tensors[: plan.count], strict=True):
        spec = node.specs[0] if node.specs else None
        if spec is None or tuple(spec.shape) != tuple(tensor.shape) or spec.dtype is not tensor.dtype:
            return False
    return True


def _operator_name(node: Node) -> str:
    return "" if node.op is None else node.op.name


def _kinds(entries: Sequence[Entry]) -> Counter[str]:
    return Counter(_operator_name(node) for node in topological(entries) if node.op is not None)


def _kernels(measured: Measured) -> list[Kernel]:
    times = [sum(t for _, t in cost.steps) or cost.seconds + cost.backward_seconds for cost in measured.nodes]
    total = sum(times) or 1.0
    kernels: list[Kernel] = []
    for cost in measured.nodes:
        kernels += _steps(cost, total) if cost.steps else [_kernel(cost, total)]
    return kernels


def _steps(cost: NodeCost, total: float) -> list[Kernel]:
    """The kernels inside a region; one that runs for each slice of a batch is one, with all its time."""
    found: dict[Any, Kernel] = {}
    # A layer may have several kernels of one name in each slice.
    in_slice: Counter[Any] = Counter()
    for step, seconds in cost.steps:
        made = _step(step, seconds, total)
        kind = (id(step.node), made.kernel, made.implementation)
        in_slice[kind, step.first] += 1
        first = found.setdefault((kind, in_slice[kind, step.first]), made)
        if first is not made:
            first.seconds, first.share = first.seconds + made.seconds, first.share + made.share
            first.count += 1
    return list(found.values())


def _step(step: Step, seconds: float, total: float) -> Kernel:
    """A kernel inside a region."""
    node = step.node
    outputs = [_array(node.output_name(0), spec.shape, spec.dtype) for spec in (node.specs or [])[:1]]
    kernel = step.primitive.implementation
    covers = list(node.recorded)
    return Kernel(node.name, step.kernel, covers, outputs, seconds, 0.0, seconds / total, kernel)


def _kernel(cost: NodeCost, total: float) -> Kernel:
    seconds = cost.seconds + cost.backward_seconds
    return Kernel(
        cost.node.name,
        _operator_name(cost.node),
        list(cost.node.recorded),
        [_array(cost.node.output_name(i), *spec) for i, spec in enumerate(cost.outputs)],
        cost.seconds,
        cost.backward_seconds,
        seconds / total,
    )


def _operators(entries: Sequence[Entry], kernels: Sequence[Kernel], prepared: set[str]) -> list[Operator]:
    """The recorded operators, each with the kernels that compute it."""
    by_name: dict[str, list[str]] = {}
    for kernel in kernels:
        for name in kernel.covers:
            by_name.setdefault(name, []).append(kernel.name)
    made = []
    for node in topological(entries):
        if node.op is None:
            continue
        specs = node.specs or []
        outputs = [_array(node.output_name(i), s.shape, s.dtype) for i, s in enumerate(specs[: node.visible])]
        operator = Operator(
            node.name, node.op.name, [e.node.name for e in node.inputs], outputs, node.location
        )
        operator.computed_by = by_name.get(node.name, [])
        if not operator.computed_by:
            operator.fate = "prepared" if node.name in prepared else "removed"
        made.append(operator)
    return made
