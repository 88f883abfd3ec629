"""CachedGraph: the graphs recorded for one hybridized block, and which of them a call runs.

A call is looked up by its exact signature in one dict. On a miss, graphs recorded for other sizes are tried: a
graph serves every size for which its guards hold. Else the block is recorded again.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from typing import Any

import torch

from ..base import config, rng
from ..base.device import cpu
from ..base.errors import MXNetError
from ..exec import Plan, interpret
from ..graph.node import Node
from ..runtime.gradient import zero_link
from ..runtime.handles import kinds
from ..runtime.state import state
from ..runtime.tracer import GraphBreak
from ..symbol import Symbol
from .epoch import clock, fingerprint
from .recorded import InputSpec, Recorded, pattern_of
from .recording import trace
from .structure import flatten, map_values, regroup, values_in, without_floats

__all__ = ["CachedGraph"]

MOST_GRAPHS = 8
MOST_PLANS = 8
_tracing = threading.RLock()


class Call:
    """What is remembered for calls of one exact signature: their graph, and a plan once they repeat."""

    __slots__ = ("chosen", "count", "recorded")

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.chosen: Any = None
        self.count = 0

    def program(self, cached: CachedGraph, tensors: list[torch.Tensor]) -> Any:
        """What runs: the graph's own program at first, a plan for these shapes from the second call on.

        A plan costs milliseconds and holds packed weights, so that shapes which come once get none.
        """
        if self.chosen is not None:
            return self.chosen
        self.count += 1
        if self.count < 2 and not cached.block._flags.get("static_shape"):
            return self.recorded.program
        self.chosen = cached.plan(self.recorded, tensors)
        return self.chosen


class CachedGraph:
    """All that a hybridized block remembers between calls."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self.exact: dict[Any, Call] = {}
        self.graphs: OrderedDict[int, Recorded] = OrderedDict()
        self.reasons: list[str] = []
        self.broken: str | None = None
        self.last: tuple[Any, Any] | None = None
        self.seen_scalars: dict[Any, set[Any]] = {}
        self.warned = False
        self.traces = 0
        self.plans = 0

    # Calls ----------------------------------------------------------------------

    def __call__(self, args: tuple[Any, ...]) -> Any:
        flat: list[Any] = []
        structure = flatten(args, flat)
        key: Any
        if state.recording:
            key = (
                structure,
                state.training,
                True,
                *[(type(a), a._t.dtype, a._t.shape, a._ctx, a._g is not None) for a in flat],
            )
        else:
            key = (
                structure,
                state.training,
                False,
                *[(type(a), a._t.dtype, a._t.shape, a._ctx) for a in flat],
            )
        call: Call | None
        try:
            call = self.exact.get(key)
        except TypeError:
            # An unhashable object among the arguments: nothing can be cached by it.
            call, key = None, None
        if call is not None and (call.recorded.epoch == clock.now or self._still_valid(call.recorded)):
            return self._run(call, flat)
        return self._miss(key, structure, flat, args)

    def _still_valid(self, recorded: Recorded) -> bool:
        if self.broken is not None:
            return False
        now = clock.now
        if recorded.pattern[2] != self._scopes() or fingerprint(self.block) != recorded.mark:
            return False
        recorded.epoch = now
        return True

    def _miss(self, key: Any, structure: Any, flat: list[Any], args: tuple[Any, ...]) -> Any:
        if config.strict():
            self._refuse_in_strict_mode(structure, flat)
        if not flat:
            return self.block._call_imperative(args)
        self._check_kinds(flat)
        if self._must_run_imperatively():
            return self.block._call_imperative(args)
        with _tracing:
            changed = self._promoted(structure, flat)
            if changed is not None:
                structure, flat, args = changed
                key = None
            recorded = self._reusable(structure, flat) if key is not None else None
            if recorded is None:
                try:
                    recorded = self._record(structure, flat, args)
                except GraphBreak as error:
                    self.broken = str(error)
                    recorded = None
            call = None if recorded is None else Call(recorded)
            if call is not None and key is not None and not call.recorded.volatile:
                if len(self.exact) > 1000:
                    self.exact.clear()
                self.exact[key] = call
        if call is None:
            return self.block._call_imperative(args)
        return self._run(call, flat)

    def _must_run_imperatively(self) -> bool:
        """Hooks below this block see every call, and a block that gave up recording stays op by op."""
        return self.broken is not None or _hooked_below(self.block)

    def _check_kinds(self, flat: list[Any]) -> None:
        for value in flat:
            if isinstance(value, Symbol):
                raise TypeError(
                    f"{self.block.name} was called with arrays and Symbols together; use all arrays or "
                    f"all Symbols"
                )

    def _refuse_in_strict_mode(self, structure: Any, flat: list[Any]) -> None:
        for item in values_in(structure):
            if isinstance(item, (int, float)) and not isinstance(item, bool):
                raise ValueError(
                    "When hybridized, the input of HybridBlock input must be (nested) list of Symbol or "
                    "NDArray, but "
                    f"got {item} of type {type(item)}"
                )
        if self.last is not None and self.last[0] != structure and self.traces:
            raise ValueError(
                "The argument structure of HybridBlock does not match the cached version: recorded with "
                f"{self.last[0]}, called with {structure}"
            )

    def _promoted(self, structure: Any, flat: list[Any]) -> Any:
        """A float argument that keeps changing becomes a 0-d input, so that it is not recorded again each
        time."""
        values = [v for v in values_in(structure) if isinstance(v, float)]
        if not values:
            return None
        shape = without_floats(structure)
        history = self.seen_scalars.setdefault(shape, set())
        history.add(tuple(values))
        if len(history) <= 3:
            return None
        first = flat[0]
        extra: list[Any] = []

        def swap(part: Any) -> Any:
            if (
                isinstance(part, tuple)
                and len(part) == 3
                and part[0] == "value"
                and isinstance(part[2], float)
            ):
                array = type(first)._wrap(
                    torch.tensor(part[2], dtype=_float_type(first), device=first._t.device), first._ctx
                )
                extra.append(array)
                return array
            return part

        args = map_values(structure, iter(flat), swap)
        fresh: list[Any] = []
        return flatten(args, fresh), fresh, args

    def _reusable(self, structure: Any, flat: list[Any]) -> Recorded | None:
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
            if (
                self.block._flags.get("static_shape")
                and [tuple(n.specs[0].shape if n.specs else ()) for n in recorded.inputs] != shapes
            ):
                continue
            if recorded.holds(shapes):
                self.graphs.move_to_end(number)
                return recorded
        return None

    def _scopes(self) -> Any:
        return config.is_np_array(), config.strict(), state.amp, state.constraints

    # Recording ----------------------------------------------------------------------

    def _record(self, structure: Any, flat: list[Any], args: tuple[Any, ...]) -> Recorded:
        self._note_retrace()
        self.last = (structure, [InputSpec.of(array) for array in flat])
        self.block.__dict__["_last_signature"] = self.last
        recorded = trace(self.block, structure, flat, state.training, state.recording)
        recorded.pattern = (structure, pattern_of(flat), self._scopes())
        recorded.mark = fingerprint(self.block)
        recorded.epoch = clock.now
        self.traces += 1
        self.graphs[self.traces] = recorded
        while len(self.graphs) > MOST_GRAPHS:
            _, dropped = self.graphs.popitem(last=False)
            self.exact = {key: call for key, call in self.exact.items() if call.recorded is not dropped}
        return recorded

    def _note_retrace(self) -> None:
        if self.traces >= MOST_GRAPHS and not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.block.name} was recorded more than {MOST_GRAPHS} times: its calls differ in "
                f"sizes that Python "
                "code depends on, in attributes, or in argument patterns. The last reason: "
                f"{self._reason()}. Each recording costs time; net.hybridize(False) runs it op by op",
                stacklevel=6,
            )

    def _reason(self) -> str:
        if not self.graphs:
            return "first call"
        recorded = next(reversed(self.graphs.values()))
        if recorded.mark != fingerprint(self.block):
            return "an attribute, a child or a parameter changed"
        if recorded.guards:
            return f"a size was read as a number at {recorded.frozen[0][1]}"
        return "another argument pattern, type, device or mode"

    def prepare(self, args: tuple[Any, ...]) -> Recorded:
        """Record for these inputs without running the program (``optimize_for``)."""
        flat: list[Any] = []
        structure = flatten(args, flat)
        with _tracing:
            recorded = self._reusable(structure, flat)
            return recorded if recorded is not None else self._record(structure, flat, args)

    def for_export(self) -> Recorded:
        """The graph in predict mode, recorded again from the last call's signature if need be.

        Raises
        ------
        RuntimeError
            If the block never ran.
        """
        signature = self.last or self.block.__dict__.get("_last_signature")
        if signature is None:
            raise RuntimeError(
                "Please first call block.hybridize() and then run forward with this block at least once "
                "before "
                "calling export."
            )
        structure, specs = signature
        for recorded in reversed(self.graphs.values()):
            if recorded.mode == (False, False) and recorded.mark == fingerprint(self.block):
                return recorded
        flat = [spec.zeros() for spec in specs]
        before = state.training, state.recording
        state.training = state.recording = False
        state.update()
        try:
            with _tracing:
                return trace(self.block, structure, flat, False, False)
        finally:
            state.training, state.recording = before
            state.update()

    # Running ----------------------------------------------------------------------

    def _run(self, call: Call, flat: list[Any]) -> Any:
        recorded = call.recorded
        context = flat[0]._ctx
        arrays = list(flat)
        if recorded.parameters:
            if context is None:
                context_key = _CPU
            else:
                context_key = context
            for _, parameter in recorded.parameters:
                data = parameter._data
                if data is not None and len(data) == 1:
                    arrays.append(data[0])
                else:
                    arrays.append(parameter._select(data, context_key))
        for _, array in recorded.captured:
            arrays.append(array)
        key = rng.draw(recorded.draws) if recorded.draws else 0
        program = recorded.program
        assert program is not None
        hooks = self.block._op_hooks
        if not state.recording:
            tensors = [array._t for array in arrays]
            if hooks:
                results: Any = self._watched(recorded, tensors, key, False)
            else:
                results = call.program(self, tensors)(key, tensors)
            made = [
                cls._wrap(tensor, context) for cls, tensor in zip(recorded.classes, results, strict=False)
            ]
        else:
            tensors = [array._t if array._g is None else array._g for array in arrays]
            results = self._watched(recorded, tensors, key, True) if hooks else program(key, tensors)
            made = self._recorded_results(recorded, tensors, results, context)
        for (place, _), tensor in zip(recorded.written, results[len(recorded.outputs) :], strict=True):
            _write_back(arrays[place], tensor)
        return regroup(recorded.out_structure, iter(made))

    def plan(self, recorded: Recorded, tensors: list[torch.Tensor]) -> Any:
        """A plan of the graph for these tensors' shapes, or its general program where none can be made."""
        count = len(recorded.inputs)
        assert recorded.program is not None
        if self.plans >= MOST_PLANS or any(place >= count for place, _ in recorded.written):
            return recorded.program
        try:
            plan = Plan(recorded.program, count, tensors)
        except MXNetError:
            # Its operators depend on values, or the inputs do not fit: the general program says which.
            return recorded.program
        self.plans += 1
        return plan

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

    def _watched(self, recorded: Recorded, tensors: list[torch.Tensor], key: int, recording: bool) -> Any:
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
                    names = node.op.input_names(node.full_attrs, len(inputs))
                    for name, tensor in zip(names, inputs, strict=False):
                        callback(f"{node.name}_{name}", node.op.name, cls._wrap(tensor.detach()))
                for index in range(node.visible):
                    callback(node.output_name(index), node.op.name, cls._wrap(outputs[index].detach()))

        entries = [*recorded.outputs, *(entry for _, entry in recorded.written)]
        return interpret(entries, values, recorded.mode[0], key, recording, watch)


_CPU = cpu()


def _write_back(array: Any, tensor: torch.Tensor) -> None:
    """A value written into an input while recorded is written into the array that was passed."""
    if state.recording and tensor.requires_grad:
        if array._grad is not None:
            raise MXNetError(
                "the hybridized block writes in-place into an input that has a gradient buffer, while "
                "recording. "
                "Write to a copy inside the block"
            )
        array._rebind(tensor)
    else:
        array._t.copy_(tensor)


def _hooked_below(block: Any) -> bool:
    return any(
        child._forward_hooks or child._forward_pre_hooks or _hooked_below(child)
        for child in block._children.values()
    )


def _float_type(array: Any) -> torch.dtype:
    dtype = array._t.dtype
    return dtype if dtype.is_floating_point else torch.float32  # type: ignore[no-any-return]
