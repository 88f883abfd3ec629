"""CachedGraph: the graphs recorded for one hybridized block, and which of them a call runs.

A call is looked up by its exact signature in one dict. On a miss, graphs recorded for other sizes are tried:
a graph serves every size for which its guards hold. Else the block is recorded again.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from ..base import config, rng
from ..base.device import cpu
from ..base.errors import MXNetError
from ..base.limits import paused_collection
from ..base.memory import use_large_pages
from ..exec import Plan, engines, interpret
from ..exec.backends import engine_of
from ..exec.cuda import seam
from ..exec.cuda.plans import plan_for
from ..exec.native.fragment import offer
from ..exec.onednn.slices import has_large_values
from ..graph.node import Node, remembered_walks
from ..graph.tensor_names import input_names, output_name
from ..runtime.gradient import interpret_recorded, zero_link
from ..runtime.handles import kinds
from ..runtime.state import State, state
from ..runtime.steps import note_graph
from ..runtime.tracer import GraphBreak
from ..symbol import Symbol
from .changes import Broken, ChangingNumbers
from .epoch import clock, fingerprint
from .recorded import InputSpec, Recorded, pattern_of
from .recording import trace
from .shortcut import Shortcut
from .structure import flatten, numbers_in, regroup

__all__ = ["CachedGraph", "on_integers", "tracing"]

MOST_GRAPHS = 8
MOST_PLANS = 8
# Of so many recordings the reasons are kept, for `explain`.
MOST_REASONS = 100
tracing = threading.RLock()


class Call:
    """What is remembered for calls of one exact signature: their graph, and a plan once they repeat."""

    __slots__ = ("chosen", "count", "recorded")

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.chosen: Any = None
        self.count = 0

    def program(self, cached: CachedGraph, tensors: list[torch.Tensor]) -> Any:
        """What runs: the graph's own program at first, a plan for these shapes from the second call on.

        A plan costs time and holds packed weights, so that shapes which come once get none.
        """
        if self.chosen is not None:
            return self.chosen
        self.count += 1
        if self.count < 2 and not cached.plans_at_once(self.recorded, tensors):
            return self.recorded.program
        return self.compile(cached, tensors)

    def compile(self, cached: CachedGraph, tensors: list[torch.Tensor]) -> Any:
        """Choose what runs from now on: a plan where one can be made."""
        self.chosen = chosen = cached.plan(self.recorded, tensors)
        if cached.block._flags.get("static_shape"):
            offer(chosen, tensors, cached, CachedGraph.take)
        return chosen


class _NumberMatters(Exception):
    """A block that was given a symbolic number could not be recorded with it."""


class CachedGraph:
    """All that a hybridized block remembers between calls."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self.exact: dict[Any, Call] = {}
        self.graphs: OrderedDict[int, Recorded] = OrderedDict()
        self.reasons: list[str] = []
        self.broken: Broken | None = None
        self.last: tuple[Any, Any] | None = None
        self.latest: Recorded | None = None
        self.numbers = ChangingNumbers()
        self.warned = False
        self.traces = 0
        self.plans = 0
        self.reports: list[engines.Report] = []
        self.shortcut: Shortcut | None = None

    # Calls ----------------------------------------------------------------------

    def __call__(self, args: tuple[Any, ...]) -> Any:
        flat: list[Any] = []
        structure = flatten(args, flat)
        if self.numbers.lifted:
            structure = self.numbers.lift(structure, flat)
        key = self._key(structure, flat)
        call: Call | None
        try:
            call = self.exact.get(key)
        except TypeError:
            # An unhashable object among the arguments: nothing can be cached by it.
            call, key = None, None
        if call is not None and (call.recorded.epoch == clock.now or self._still_valid(call.recorded)):
            return self._run(call, flat)
        return self._miss(key, structure, flat, args)

    def _key(self, structure: Any, flat: list[Any]) -> Any:
        """Everything that two calls of one program have in common, but for attributes."""
        np_mode = config.is_np_array()
        if state.recording:
            return (
                structure,
                (True, state.training, np_mode, state.amp, state.constraints),
                *[(type(a), a._t.dtype, a._t.shape, a._ctx, a._g is not None) for a in flat],
            )
        return (
            structure,
            (False, state.training, np_mode, state.amp, state.constraints),
            *[(type(a), a._t.dtype, a._t.shape, a._ctx) for a in flat],
        )

    def _still_valid(self, recorded: Recorded) -> bool:
        now = clock.now
        if self.broken is not None or fingerprint(self.block) != recorded.mark:
            return False
        recorded.epoch = now
        return True

    def _miss(self, key: Any, structure: Any, flat: list[Any], args: tuple[Any, ...]) -> Any:
        if config.strict():
            self._refuse_in_strict_mode(structure, flat)
        self._check_kinds(flat)
        if not flat or key is None or self._must_run_imperatively():
            return self.block._imperative(args)
        with tracing:
            if self.numbers.notice(structure):
                structure = self.numbers.lift(structure, flat)
                key = self._key(structure, flat)
            recorded = self._reusable(structure, flat)
            if recorded is None:
                try:
                    recorded = self._record(structure, flat)
                except GraphBreak as error:
                    self.broken = Broken(str(error), self.block)
                except _NumberMatters:
                    return self._miss(*self._with_constants(structure, args), args)
            call = None if recorded is None else Call(recorded)
            if recorded is not None and recorded.volatile:
                self.broken = Broken("Python code depends on a size that depends on values", self.block)
                call = None
            if call is not None and not call.recorded.reads_numbers():
                if len(self.exact) > 1000:
                    self.exact.clear()
                self.exact[key] = call
        if call is None:
            return self.block._imperative(args)
        return self._run(call, flat)

    def _with_constants(self, structure: Any, args: tuple[Any, ...]) -> tuple[Any, Any, list[Any]]:
        """The call with its numbers as constants: the block needs them as numbers."""
        self.numbers.give_up(structure)
        flat: list[Any] = []
        structure = flatten(args, flat)
        return self._key(structure, flat), structure, flat

    def _must_run_imperatively(self) -> bool:
        """Hooks below this block see every call, and a block that gave up recording stays op by op."""
        if self.broken is not None and not self.broken.holds():
            self.broken = None
        return self.broken is not None or hooked_below(self.block)

    def _check_kinds(self, flat: list[Any]) -> None:
        if any(isinstance(value, Symbol) for value in flat):
            raise TypeError(
                f"{self.block.name} was called with arrays and Symbols together; use all arrays or "
                "all Symbols"
            )

    def _refuse_in_strict_mode(self, structure: Any, flat: list[Any]) -> None:
        for item in numbers_in(structure):
            raise ValueError(
                "When hybridized, the input of HybridBlock input must be (nested) list of Symbol or NDArray, "
                f"but got {item} of type {type(item)}"
            )
        if self.last is not None and self.last[0] != structure and self.traces:
            raise ValueError(
                "The argument structure of HybridBlock does not match the cached version: recorded with "
                f"{self.last[0]}, called with {structure}"
            )

    def _reusable(self, structure: Any, flat: list[Any]) -> Recorded | None:
        number = self.find(structure, flat)
        if number is None:
            return None
        self.graphs.move_to_end(number)
        return self.graphs[number]

    def find(self, structure: Any, flat: list[Any]) -> int | None:
        """The number, among ``graphs``, of one that serves a call."""
        pattern = (structure, pattern_of(flat), self._scopes())
        mode = (state.training, state.recording)
        shapes = [tuple(array._t.shape) for array in flat]
        mark = None
        for number, recorded in reversed(self.graphs.items()):
            if recorded.pattern != pattern or recorded.mode != mode or recorded.volatile:
                continue
            if recorded.epoch != clock.now:
                mark = fingerprint(self.block) if mark is None else mark
                if recorded.mark != mark:
                    continue
                recorded.epoch = clock.now
            if self.block._flags.get("static_shape") and recorded.shapes() != shapes:
                continue
            if recorded.holds(flat):
                return number
        return None

    def _scopes(self) -> Any:
        return config.is_np_array(), config.strict(), state.amp, state.constraints

    # Recording ----------------------------------------------------------------------

    def _record(self, structure: Any, flat: list[Any]) -> Recorded:
        self._note_retrace(structure, flat)
        numbers = self.numbers.count(structure)
        if not numbers:
            self.last = (structure, [InputSpec.of(array) for array in flat])
            self.block.__dict__["_last_signature"] = self.last
        try:
            with paused_collection(), remembered_walks():
                recorded = trace(self.block, structure, flat, state.training, state.recording, numbers)
        except GraphBreak:
            raise
        except Exception as error:
            if numbers:
                raise _NumberMatters from error
            raise
        recorded.pattern = (structure, pattern_of(flat), self._scopes())
        recorded.signature = None if numbers else self.last
        recorded.mark = fingerprint(self.block)
        recorded.epoch = clock.now
        self.traces += 1
        self.graphs[self.traces] = recorded
        while len(self.graphs) > MOST_GRAPHS:
            _, dropped = self.graphs.popitem(last=False)
            self.exact = {key: call for key, call in self.exact.items() if call.recorded is not dropped}
        return recorded

    def _note_retrace(self, structure: Any, flat: list[Any]) -> None:
        if not self.graphs:
            return
        self.reasons.append(self._reason(structure, flat))
        del self.reasons[:-MOST_REASONS]
        if self.traces >= MOST_GRAPHS and not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.block.name} was recorded more than {MOST_GRAPHS} times: its calls differ in sizes "
                "that Python code depends on, in attributes, or in argument patterns. The last reason: "
                f"{self.reasons[-1]}. Each recording costs time; net.hybridize(False) runs it "
                "op by op",
                stacklevel=6,
            )

    def _reason(self, structure: Any, flat: list[Any]) -> str:
        """Why the graphs that there are do not serve a call, judged by the latest of the same mode."""
        mode = (state.training, state.recording)
        latest = list(reversed(self.graphs.values()))
        recorded = next((each for each in latest if each.mode == mode), latest[0])
        if recorded.mark != fingerprint(self.block):
            return "an attribute, a child or a parameter changed"
        if recorded.pattern[0] != structure:
            return f"the arguments are {structure}, and were {recorded.pattern[0]}"
        if recorded.pattern[1] != pattern_of(flat):
            return "the arrays have other types, devices, numbers of axes, or sizes of 0 or 1"
        if recorded.mode != mode:
            return f"{_mode_text(mode)}, and was recorded {_mode_text(recorded.mode)}"
        if recorded.pattern[2] != self._scopes():
            return "a scope of arrays, mixed precision or constraints changed"
        broken = recorded.failing(flat)
        if broken is not None and broken[0] >= 0:
            text, place = recorded.reads[broken[0]]
            return f"a size or number was read: {text}, at {place}; now it is {broken[1]}"
        if broken is not None:
            return "the sizes of the inputs do not fit the graph"
        return "static_shape is set, and the shapes are other ones"

    def prepare(self, args: tuple[Any, ...]) -> Recorded:
        """Record for these inputs without running the program (``optimize_for``)."""
        flat: list[Any] = []
        structure = flatten(args, flat)
        with tracing:
            recorded = self._reusable(structure, flat)
            try:
                return recorded if recorded is not None else self._record(structure, flat)
            except GraphBreak as error:
                raise MXNetError(f"{self.block.name} cannot be recorded as one graph: {error}") from None

    def compile(self, recorded: Recorded, args: tuple[Any, ...]) -> None:
        """Make and measure the plan that calls with these inputs are going to run, and pack its weights.

        Where they are not going to run a plan, nothing is done.
        """
        flat: list[Any] = []
        key = self._key(flatten(args, flat), flat)
        hooked = self.block._op_hooks or self._must_run_imperatively()
        if hooked or state.recording or recorded.volatile or recorded.reads_numbers():
            return
        with tracing:
            try:
                call = self.exact.get(key)
            except TypeError:
                # An unhashable object among the arguments.
                return
            if call is None or call.recorded is not recorded:
                call = self.exact[key] = Call(recorded)
            tensors = [array._t for array in recorded.arrays(flat, flat[0]._ctx or _CPU)]
            plan = call.chosen or call.compile(self, tensors)
        assert recorded.program is not None
        if plan is recorded.program or any(n.op and n.op.opaque for n in recorded.program.nodes):
            return
        # A CUDA graph is captured in the second run. The stream of random numbers stays where it is.
        for _ in range(1 if seam.current().kind(tensors) == "cpu" else 2):
            plan(0, tensors)

    def for_export(self) -> Recorded:
        """The graph in predict mode, recorded again from the last call's signature if need be.

        Raises
        ------
        RuntimeError
            If the block never ran.
        MXNetError
            If it cannot be one graph: it reads values, or sizes that depend on data.
        """
        latest = self.latest if self.latest is not None and self.latest.signature is not None else None
        signature = latest.signature if latest is not None else self.last
        signature = signature or self.block.__dict__.get("_last_signature")
        if signature is None:
            raise RuntimeError(
                "Please first call block.hybridize() and then run forward with this block at least once "
                "before calling export."
            )
        if hooked_below(self.block):
            warnings.warn(f"export leaves out the forward hooks of blocks in {self.block.name}", stacklevel=4)
        structure, specs = signature
        for recorded in sorted(reversed(self.graphs.values()), key=lambda graph: graph is not latest):
            fits = recorded.mode == (False, False) and not ChangingNumbers.count(recorded.in_structure)
            # Another pattern of arguments than that of the last call is another network.
            fits = fits and (latest is None or recorded.pattern[:2] == latest.pattern[:2])
            # Casts of mixed precision are in a graph that was recorded with it.
            fits = fits and recorded.pattern[2][2] == state.amp
            if fits and not recorded.volatile and recorded.mark == fingerprint(self.block):
                return recorded
        before = state.training, state.recording
        state.training = state.recording = False
        state.update()
        try:
            with tracing:
                flat = [spec.zeros() for spec in specs]
                recorded = trace(self.block, structure, flat, False, False, breakable=False)
        finally:
            state.training, state.recording = before
            state.update()
        if recorded.volatile:
            raise MXNetError(
                f"{self.block.name} cannot be exported: Python code reads a size that depends on the values "
                f"of its input ({recorded.reads[0][0]}, at {recorded.reads[0][1]}), because of the operator "
                f"{recorded.dynamic_operator()}"
            )
        return recorded

    # Running ----------------------------------------------------------------------

    def _run(self, call: Call, flat: list[Any]) -> Any:
        self.latest = recorded = call.recorded
        context = flat[0]._ctx
        arrays = recorded.arrays(flat, _CPU if context is None else context)
        key = rng.draw(recorded.draws) if recorded.draws else 0
        program = recorded.program
        assert program is not None
        hooks = self.block._op_hooks
        if not state.recording:
            tensors = [array._t for array in arrays]
            if hooks:
                results: Any = self._watched(recorded, tensors, key, False, context)
                results = recorded.owned(results, tensors)
            else:
                chosen = call.program(self, tensors)
                profiler = State.profiler
                if profiler is None or chosen is program:
                    results = chosen(key, tensors)
                else:
                    results = profiler.plan(chosen, key, tensors)
                if chosen is program:
                    results = recorded.owned(results, tensors)
                hooked = self.block._forward_hooks or self.block._forward_pre_hooks
                # A shortcut is not asked for a mode: it is for calls without mixed precision.
                hooked = hooked or state.amp is not None
                self.shortcut = None if hooked else Shortcut.of(recorded, chosen, flat)
                if call.chosen is not chosen:
                    # A faster plan was found meanwhile.
                    self.shortcut = None
            made = [
                cls._wrap(tensor, context) for cls, tensor in zip(recorded.classes, results, strict=False)
            ]
        else:
            tensors = [array._t if array._g is None else array._g for array in arrays]
            if hooks:
                results = self._watched(recorded, tensors, key, True, context)
            elif on_integers(recorded, arrays, tensors):
                return self._run_on_integers(recorded, arrays, key, context)
            else:
                results = program(key, tensors)
            results = recorded.owned(results, tensors)
            made = self._recorded_results(recorded, tensors, results, context)
            note_graph(recorded.outputs, program.inputs, arrays, made, len(flat))
        for (place, _), tensor in zip(recorded.written, results[len(recorded.outputs) :], strict=True):
            _write_back(arrays[place], tensor)
        return regroup(recorded.out_structure, iter(made))

    def _run_on_integers(self, recorded: Recorded, arrays: list[Any], key: int, context: Any) -> Any:
        """Run where integers have gradients: operator by operator, each value with its handle."""
        nodes = [n for n, _ in (*recorded.parameters, *recorded.captured)]
        values = {id(n): array for n, array in zip([*recorded.inputs, *nodes], arrays, strict=True)}
        entries = [*recorded.outputs, *(entry for _, entry in recorded.written)]
        results = interpret_recorded(entries, values, recorded.mode[0], key)
        made = []
        for cls, result in zip(recorded.classes, results, strict=False):
            array = cls._wrap(result._t, context)
            array._g = result._g
            made.append(array)
        for (place, _), result in zip(recorded.written, results[len(recorded.outputs) :], strict=True):
            _write_back(arrays[place], result._t if result._g is None else result._g)
        return regroup(recorded.out_structure, iter(made))

    def engine(self, recorded: Recorded) -> tuple[str, dict[str, Any]] | None:
        """The engine that was asked for, and its options, where it may run this graph: at prediction."""
        chain = self.block._flags.get("backend_chain")
        return engine_of(chain) if chain and recorded.mode == (False, False) else None

    def plans_at_once(self, recorded: Recorded, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether the first call with these shapes makes a plan: elsewhere the second one does.

        It does for an engine that was asked for, and with ``static_shape`` on a GPU, where a plan costs
        little, and where there are large values, which take less memory in a plan.
        """
        if self.engine(recorded):
            return True
        assert recorded.program is not None
        if not self.block._flags.get("static_shape"):
            return False
        return seam.current().kind(tensors) != "cpu" or has_large_values(recorded.program.nodes)

    def plan(self, recorded: Recorded, tensors: list[torch.Tensor]) -> Any:
        """A plan of the graph for these tensors' shapes, or its general program where none can be made."""
        count = len(recorded.inputs)
        assert recorded.program is not None
        if self.plans >= MOST_PLANS or recorded.writes_outside():
            return recorded.program
        engine = self.engine(recorded)
        tune = bool(self.block._flags.get("static_shape"))
        use_large_pages()
        try:
            if engine is None:
                with paused_collection(), remembered_walks():
                    fixed = tune and bool(self.block._flags.get("static_alloc"))
                    plan = plan_for(recorded.program, count, tensors, tune, fixed)
            else:
                plan, report = engines.compile_with(*engine, recorded.program, count, tensors, tune)
                self.reports.append(report)
        except MXNetError:
            # Its operators depend on values, or the inputs do not fit: the general program says which.
            return recorded.program
        self.plans += 1
        return plan

    def take(self, plan: Plan, better: Plan) -> None:
        """Run a plan that was found to be faster in the place of another."""
        for call in list(self.exact.values()):
            if call.chosen is plan:
                call.chosen = better
        shortcut = self.shortcut
        if shortcut is not None and shortcut.plan is plan:
            self.shortcut = None

    def _recorded_results(
        self, recorded: Recorded, tensors: list[torch.Tensor], results: Any, context: Any
    ) -> list[Any]:
        sources = [tensor for tensor in tensors if tensor.requires_grad]
        dead = [tensors[place] for place in recorded.dead if tensors[place].requires_grad]
        made = []
        for cls, tensor in zip(recorded.classes, results, strict=False):
            if not sources:
                made.append(cls._wrap(tensor, context))
                continue
            gradient = tensor
            if not tensor.requires_grad:
                gradient = zero_link(tensor, sources)
            elif dead:
                gradient = zero_link(tensor, dead)
            array = cls._wrap(tensor.detach() if tensor.requires_grad else tensor, context)
            array._g = gradient
            made.append(array)
        return made

    def _watched(
        self, recorded: Recorded, tensors: list[torch.Tensor], key: int, recording: bool, context: Any
    ) -> Any:
        """Run node by node and report to the op hooks."""
        values = {
            id(node): tensor
            for node, tensor in zip(
                [*recorded.inputs, *(n for n, _ in recorded.parameters), *(n for n, _ in recorded.captured)],
                tensors,
                strict=True,
            )
        }
        cls = recorded.classes[0] if recorded.classes else kinds.nd

        def watch(node: Node, inputs: list[torch.Tensor], outputs: tuple[torch.Tensor, ...]) -> None:
            assert node.op is not None
            for callback, everything in self.block._op_hooks:
                if everything:
                    for name, tensor in zip(input_names(node, len(inputs)), inputs, strict=True):
                        callback(name, node.op.name, cls._wrap(tensor.detach(), context))
                for index in range(node.visible):
                    tensor = outputs[index].detach()
                    callback(output_name(node, index), node.op.name, cls._wrap(tensor, context))

        entries = [*recorded.outputs, *(entry for _, entry in recorded.written)]
        return interpret(entries, values, recorded.mode[0], key, recording, watch)


_CPU = cpu()


def _mode_text(mode: tuple[bool, bool]) -> str:
    """Train mode and recording in words."""
    return f"{'in' if mode[0] else 'outside'} train mode, {'' if mode[1] else 'not '}under record()"


def _write_back(array: Any, tensor: torch.Tensor) -> None:
    """A value written into an input while recorded is written into the array that was passed."""
    if state.recording and tensor.requires_grad:
        if array._grad is not None:
            raise MXNetError(
                "the hybridized block writes in-place into an input that has a gradient buffer, while "
                "recording. Write to a copy inside the block"
            )
        array._rebind(tensor)
    else:
        array._t.copy_(tensor)


def hooked_below(block: Any) -> bool:
    """Whether a block below this one has forward hooks."""
    return any(
        child._forward_hooks or child._forward_pre_hooks or hooked_below(child)
        for child in block._children.values()
    )


def on_integers(recorded: Recorded, arrays: Sequence[Any], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether integers have gradients in this call: an input's handle is a float shadow, or a cast's is."""
    if any(tensors[place].requires_grad for place in recorded.integers):
        return True
    return any(tensor.dtype is not array._t.dtype for tensor, array in zip(tensors, arrays, strict=True))
