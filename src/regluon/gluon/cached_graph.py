"""CachedGraph: the graphs recorded for one hybridized block, their guards, and their compiled programs.

A call is looked up by its exact signature in one dict. On a miss, graphs recorded for other sizes are
tried: a graph
serves every size for which its guards hold. Else the block is recorded again.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from ..array import NDArray
from ..base import config, dtypes, rng
from ..base.device import Context, cpu
from ..base.errors import MXNetError
from ..exec import Plan, Program, interpret
from ..graph.dims import Dim, dims_in, evaluate
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node, topological
from ..ops.opdef import Spec
from ..runtime.gradient import zero_link
from ..runtime.handles import TraceHandle, kinds
from ..runtime.state import state
from ..runtime.tracer import GraphBreak, Tracer
from ..symbol import Symbol
from .epoch import clock, fingerprint
from .structure import flatten, regroup

__all__ = ["CachedGraph", "compose", "infer_from"]

MOST_GRAPHS = 8
MOST_PLANS = 8
_tracing = threading.RLock()


class Recorded:
    """One recorded graph of a block, and its program."""

    def __init__(self) -> None:
        self.inputs: list[Node] = []
        self.parameters: list[tuple[Node, Any]] = []
        self.captured: list[tuple[Node, Any]] = []
        self.outputs: list[Entry] = []
        self.written: list[tuple[int, Entry]] = []
        self.in_structure: Any = None
        self.out_structure: Any = None
        self.guards: list[tuple[Dim, Any]] = []
        self.frozen: list[tuple[str, str | None]] = []
        self.pattern: Any = None
        self.mode: tuple[bool, bool] = (False, False)
        self.draws = 0
        self.volatile = False
        self.program: Program | None = None
        self.dead: list[int] = []
        self.epoch = -1
        self.mark: Any = None
        self.classes: list[Any] = []
        self.writes: list[tuple[tuple[str, int], Entry]] = []

    def holds(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether the guards hold for inputs of these shapes."""
        if not self.guards:
            return True
        entries = _guarded(self.guards)
        given: dict[int, Any] = {}
        for node, shape in zip(self.inputs, shapes, strict=True):
            given[id(node)] = (tuple(shape), node.specs[0].dtype if node.specs else None)
        for node, _ in (*self.parameters, *self.captured):
            if node.specs:
                given[id(node)] = (node.specs[0].shape, node.specs[0].dtype)
        try:
            found = GraphShapes(entries, given, self.mode[0]).run()
            for dim, value in self.guards:
                if evaluate(dim, lambda entry: _shape_in(found, entry)) != value:
                    return False
        except (MXNetError, ValueError, TypeError, IndexError):
            return False
        return True


def _shape_in(found: GraphShapes, entry: Any) -> tuple[int, ...]:
    spec = found.spec(entry)
    if spec is None:
        raise MXNetError("unknown")
    return spec.shape


def _guarded(guards: Sequence[tuple[Dim, Any]]) -> list[Entry]:
    entries: list[Entry] = []
    stack: list[Any] = [dim for dim, _ in guards]
    while stack:
        dim = stack.pop()
        if not isinstance(dim, Dim):
            continue
        if dim.function == "size":
            entries.append(dim.arguments[0])
        else:
            stack.extend(dim.arguments)
    return entries


def _pattern(arrays: Sequence[NDArray]) -> Any:
    """What of the inputs is guarded always: kinds, types, devices, ranks, and which sizes are 0 or 1."""
    return tuple(
        (type(a), a._t.dtype, a.context, tuple(size if size < 2 else 2 for size in a._t.shape))
        for a in arrays
    )


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
        if fingerprint(self.block) != recorded.mark:
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
        for item in _values_in(structure):
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
        values = [v for v in _values_in(structure) if isinstance(v, float)]
        if not values:
            return None
        shape = _without_floats(structure)
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

        args = _map_values(structure, iter(flat), swap)
        fresh: list[Any] = []
        return flatten(args, fresh), fresh, args

    def _reusable(self, structure: Any, flat: list[Any]) -> Recorded | None:
        pattern = (structure, _pattern(flat), self._scopes())
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
        return config.is_np_array(), config.strict(), state.amp

    # Recording ----------------------------------------------------------------------

    def _record(self, structure: Any, flat: list[Any], args: tuple[Any, ...]) -> Recorded:
        self._note_retrace()
        self.last = (structure, [_Spec.of(array) for array in flat])
        self.block.__dict__["_last_signature"] = self.last
        recorded = trace(self.block, structure, flat, state.training, state.recording)
        recorded.pattern = (structure, _pattern(flat), self._scopes())
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


class _Spec:
    """Kind, shape, type and device of an input, to record again without it."""

    __slots__ = ("cls", "context", "dtype", "shape")

    def __init__(self, cls: Any, shape: tuple[int, ...], dtype: torch.dtype, context: Context | None) -> None:
        self.cls, self.shape, self.dtype, self.context = cls, shape, dtype, context

    @classmethod
    def of(cls, array: Any) -> _Spec:
        return cls(type(array), tuple(array._t.shape), array._t.dtype, array._ctx)

    def zeros(self) -> Any:
        device = self.context.torch if self.context is not None else torch.device("cpu")
        return self.cls._wrap(torch.zeros(self.shape, dtype=self.dtype, device=device), self.context)


def remember(block: Any, args: tuple[Any, ...]) -> None:
    """Keep the signature of a call (not its arrays) for a later export."""
    flat: list[Any] = []
    try:
        structure = flatten(args, flat)
    except TypeError:
        return
    if all(isinstance(array, NDArray) and array._t is not None for array in flat):
        block.__dict__["_last_signature"] = (structure, [_Spec.of(array) for array in flat])


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


def _values_in(structure: Any) -> list[Any]:
    if not isinstance(structure, tuple):
        return []
    if structure[0] == "value":
        return [structure[2]]
    if structure[0] == "dict":
        return [value for _, item in structure[1:] for value in _values_in(item)]
    return [value for item in structure[1:] for value in _values_in(item)]


def _without_floats(structure: Any) -> Any:
    if not isinstance(structure, tuple):
        return structure
    if structure[0] == "value" and isinstance(structure[2], float):
        return ("value", float)
    if structure[0] == "dict":
        return ("dict", *((key, _without_floats(item)) for key, item in structure[1:]))
    return tuple(_without_floats(item) for item in structure)


def _map_values(structure: Any, flat: Any, swap: Any) -> Any:
    if not isinstance(structure, tuple):
        return next(flat)
    kind = structure[0]
    if kind == "value":
        swapped = swap(structure)
        return swapped if swapped is not structure else structure[2]
    if kind == "list":
        return [_map_values(item, flat, swap) for item in structure[1:]]
    if kind == "tuple":
        return tuple(_map_values(item, flat, swap) for item in structure[1:])
    if kind == "dict":
        return {key: _map_values(item, flat, swap) for key, item in structure[1:]}
    if kind == "namedtuple":
        return structure[1](*(_map_values(item, flat, swap) for item in structure[2:]))
    return structure[-1]


def _float_type(array: Any) -> torch.dtype:
    dtype = array._t.dtype
    return dtype if dtype.is_floating_point else torch.float32  # type: ignore[no-any-return]


# Recording a call ----------------------------------------------------------------------


def _paths(block: Any) -> dict[int, str]:
    """Each block's path below ``block``, for node names."""
    paths: dict[int, str] = {}

    def visit(current: Any, path: str) -> None:
        if id(current) in paths:
            return
        paths[id(current)] = path
        for name, child in current._children.items():
            visit(child, f"{path}{name}_")

    visit(block, "")
    return paths


class _BlockTracer(Tracer):
    """A tracer that knows the blocks it records."""

    constraints = 0

    def bind(self, block: Any) -> None:
        self._block = block
        self._structural = block._level >= 2
        self._known = _paths(block)
        for name, parameter in block.collect_params().items():
            self._names_of.setdefault(id(parameter), name)
        self.names.prefixes = ["" if self._structural or block._empty_prefix else block._prefix]

    _names_of: dict[int, str]

    def prefix_of(self, block: Any) -> str:
        """What node names recorded by ``block`` start with."""
        if self._structural:
            return self._known.get(id(block), f"{block._name}_")
        return block._prefix  # type: ignore[no-any-return]


def _new_tracer(block: Any, context: Any, training: bool, real: Any) -> _BlockTracer:
    names: dict[int, str] = {}
    tracer = _BlockTracer(
        context,
        training,
        block._flags.get("on_value_read", "error"),
        lambda parameter: names.get(id(parameter), parameter.name),
        real,
    )
    tracer._names_of = names
    tracer.bind(block)
    return tracer


def input_names(count: int) -> list[str]:
    """``data`` for one input, ``data0``, ``data1``, ... for several."""
    return ["data"] if count == 1 else [f"data{i}" for i in range(count)]


def trace(block: Any, structure: Any, flat: list[Any], training: bool, recording: bool) -> Recorded:
    """Record one call of ``block`` as a graph and compile it."""
    real = _Real(flat)
    tracer = _new_tracer(block, flat[0].context, training, real)
    real.tracer = tracer
    handles = []
    for name, array in zip(input_names(len(flat)), flat, strict=True):
        node = tracer.add_input(name, Spec(tuple(array._t.shape), array._t.dtype))
        handles.append(TraceHandle(Entry(node, 0), tracer))
    real.inputs = tracer.inputs
    symbolic = block._is_symbolic_style()
    tracer.symbol_style = symbolic
    tracer.symbol_np = type(flat[0]) is kinds.np
    args = regroup(structure, iter(_as_values(handles, flat, symbolic)))
    with tracer.active():
        out = block.forward(*args)
    recorded = Recorded()
    recorded.in_structure = structure
    recorded.mode = (training, recording)
    _take_outputs(tracer, recorded, out, type(flat[0]))
    _take_writes(tracer, recorded, handles)
    _finish(block, tracer, recorded, len(flat))
    return recorded


def _as_values(handles: list[TraceHandle], flat: list[Any], symbolic: bool) -> list[Any]:
    values = []
    for handle, array in zip(handles, flat, strict=True):
        np_kind = type(array) is kinds.np
        if symbolic:
            cls = kinds.np_symbol if np_kind else kinds.symbol
        else:
            cls = type(array)
        values.append(cls._traced(handle))
    return values


def _take_outputs(tracer: Tracer, recorded: Recorded, out: Any, cls: Any) -> None:
    values: list[Any] = []
    recorded.out_structure = flatten(out, values)
    recorded.outputs = [tracer.entry_of(value) for value in values]  # type: ignore[misc]
    recorded.classes = [cls] * len(values)


def _take_writes(tracer: Tracer, recorded: Recorded, handles: list[TraceHandle]) -> None:
    places = {id(handle): place for place, handle in enumerate(handles)}
    recorded.captured = [(node, node.value) for node in tracer.captured.values()]
    for key, handle in tracer.written_inputs.items():
        if key in places:
            recorded.writes.append((("input", places[key]), handle.get()))
            continue
        for array_id, (array, lifted) in tracer._lifted.items():
            if lifted is handle:
                del array
                recorded.writes.append((("captured", array_id), handle.get()))


def _finish(block: Any, tracer: Tracer, recorded: Recorded, count: int) -> None:
    """Shapes, unused inputs and parameters, deferred initialisation, guards, and the program."""
    writes = recorded.writes
    entries = [*recorded.outputs, *(entry for _, entry in writes)]
    if any(entry.spec is None for entry in entries):
        tracer.settle(entries)
    order = topological(entries)
    used = {id(node) for node in order}
    for value in _dims_used(order):
        used.add(id(value.node))
    recorded.inputs = list(tracer.inputs)
    recorded.parameters = [(n, n.value) for n in tracer.parameters.values() if id(n) in used]
    captured = [(n, n.value) for n in tracer.captured.values() if id(n) in used]
    positions = {id(node.value): count + len(recorded.parameters) + i for i, (node, _) in enumerate(captured)}
    recorded.captured = captured
    for (kind, place), entry in writes:
        if kind == "input":
            recorded.written.append((place, entry))
        else:
            if place not in positions:
                node = tracer.captured[place]
                positions[place] = count + len(recorded.parameters) + len(captured)
                captured.append((node, node.value))
            recorded.written.append((positions[place], entry))
    _warn_unused(block, tracer, recorded, used)
    _initialize(block, tracer, recorded)
    _compile(block, tracer, recorded)


def _dims_used(order: Sequence[Node]) -> list[Entry]:
    dims = [(dim, None) for node in order for value in node.attrs.values() for dim in dims_in(value)]
    return _guarded(dims)


def _warn_unused(block: Any, tracer: Tracer, recorded: Recorded, used: set[int]) -> None:
    for place, node in enumerate(recorded.inputs):
        if id(node) not in used:
            warnings.warn(
                f"The {place}-th input to HybridBlock is not used by any computation. Is this intended?",
                stacklevel=8,
            )
    in_graph = {id(parameter) for _, parameter in recorded.parameters}
    unused = [name for name, parameter in block.collect_params().items() if id(parameter) not in in_graph]
    if unused:
        warnings.warn(
            f"Parameter {', '.join(unused)} is not used by any computation. Is this intended?", stacklevel=8
        )


def _initialize(block: Any, tracer: Tracer, recorded: Recorded) -> None:
    """Finish deferred initialisation of all parameters whose shapes the graph told."""
    unknown = []
    for node in tracer.parameters.values():
        parameter = node.value
        shape = parameter._shape
        if shape is None or any(size <= 0 for size in shape):
            unknown.append(f"{node.name} {parameter.shape}")
        elif parameter._deferred_init:
            parameter._finish_deferred_init()
    used = {node.name for node, _ in recorded.parameters}
    unknown = [text for text in unknown if text.split(" ", 1)[0] in used]
    if unknown:
        raise RuntimeError(
            f"{block.name} has parameters with unknown shape: {', '.join(unknown)}. You need to either "
            f"specify the "
            f"shape in __init__ or implement {type(block).__name__}.infer_shape to set the parameter "
            f"shapes based on "
            "the first input."
        )
    for node, parameter in recorded.parameters:
        if parameter._data is None:
            raise parameter._missing()
        del node


def _compile(block: Any, tracer: Tracer, recorded: Recorded) -> None:
    backend = block._flags.get("backend")
    if backend is not None:
        _apply_backend(block, recorded, backend)
    recorded.draws = tracer.random_nodes
    recorded.guards = [(dim, dim.size) for dim in tracer.guards]
    recorded.frozen = list(tracer.frozen)
    if tracer.dynamic and recorded.guards:
        recorded.volatile = _depends_on_dynamic(recorded.guards)
    variables = [
        *recorded.inputs,
        *(node for node, _ in recorded.parameters),
        *(node for node, _ in recorded.captured),
    ]
    entries = [*recorded.outputs, *(entry for _, entry in recorded.written)]
    recorded.program = Program(variables, entries, *recorded.mode)
    recorded.dead = _dead_inputs(recorded, variables) if recorded.mode[1] else []


def _apply_backend(block: Any, recorded: Recorded, name: str) -> None:
    from ..exec import backends

    outputs = list(recorded.outputs)
    rewritten = list(backends.get(name).rewrite(outputs, block._flags.get("backend_opts", {})))
    known = {id(n) for n in recorded.inputs} | {id(n) for n, _ in recorded.parameters}
    for node in topological(rewritten):
        if node.op is None and id(node) not in known and not any(node is n for n, _ in recorded.captured):
            if not isinstance(node.value, NDArray):
                raise MXNetError(f"backend {name!r} made the variable {node.name} without a value")
            recorded.captured.append((node, node.value))
    recorded.outputs = rewritten


def _depends_on_dynamic(guards: Sequence[tuple[Dim, Any]]) -> bool:
    return any(node.op is not None and node.op.dynamic for node in topological(_guarded(guards)))


def _dead_inputs(recorded: Recorded, variables: Sequence[Node]) -> list[int]:
    """Inputs that reach an output only through operators without a gradient: they get zeros."""
    alive: set[int] = set()
    stack = [entry.node for entry in recorded.outputs]
    while stack:
        node = stack.pop()
        if id(node) in alive:
            continue
        alive.add(id(node))
        if node.op is None or node.op.gradient != "zero":
            stack.extend(entry.node for entry in node.inputs)
    reached = {id(node) for node in topological(recorded.outputs)}
    return [i for i, node in enumerate(variables) if id(node) in reached and id(node) not in alive]


class _Real:
    """Computes real values of a trace's entries from the call's inputs."""

    def __init__(self, flat: list[Any]) -> None:
        self.flat = flat
        self.inputs: list[Node] = []
        self.memory: dict[int, tuple[torch.Tensor, ...]] = {}
        self.key: int | None = None
        self.tracer: Any = None

    def __call__(self, tracer: Tracer, entries: Sequence[Entry]) -> list[torch.Tensor]:
        values = {id(node): array._t for node, array in zip(tracer.inputs, self.flat, strict=True)}
        for node in tracer.parameters.values():
            parameter = node.value
            if parameter._data is None and parameter._deferred_init:
                parameter._finish_deferred_init()
            if parameter._data is not None:
                values[id(node)] = parameter._data[0]._t
        for node in tracer.captured.values():
            values[id(node)] = node.value._t
        if self.key is None:
            # Draws of a trial run; the program's own come later and are not disturbed by it.
            self.key = 0
        with torch.no_grad():
            return interpret(entries, values, tracer.training, self.key, memory=self.memory)


# Without values ----------------------------------------------------------------------


def compose(block: Any, args: tuple[Any, ...]) -> Any:
    """Call a block on Symbols: a Symbol of its outputs, with its parameters as variables."""
    flat: list[Any] = []
    structure = flatten(args, flat)
    tracer = _new_tracer(block, cpu(), state.training, None)
    handles = []
    for symbol in flat:
        entry = symbol._single()
        if entry.node.op is None and entry.node.specs is None and "__shape__" in entry.node.user:
            _declare(entry.node)
        tracer.names.reserve(entry.node.name)
        handles.append(TraceHandle(entry, tracer))
    cls = type(flat[0])
    tracer.symbol_style = True
    tracer.symbol_np = cls is kinds.np_symbol
    values = [type(symbol)._traced(handle) for symbol, handle in zip(flat, handles, strict=True)]
    with tracer.active():
        out = block.forward(*regroup(structure, iter(values)))
    found: list[Any] = []
    shape = flatten(out, found)
    for node in tracer.parameters.values():
        node.user = {**_variable_attributes(node.value), **node.user}
    symbols = [cls._of([tracer.entry_of(value)]) for value in found]
    return regroup(shape, iter(symbols))


def _variable_attributes(parameter: Any) -> dict[str, str]:
    return dict(parameter.var()._single().node.user)


def _declare(node: Node) -> None:
    import ast

    shape = ast.literal_eval(node.user["__shape__"])
    if all(size is not None and size > 0 for size in shape):
        code = node.user.get("__dtype__")
        dtype = dtypes.to_torch(int(code)) if code not in (None, "-1") else torch.float32
        node.specs = [Spec(tuple(shape), dtype)]


def infer_from(block: Any, args: tuple[Any, ...]) -> None:
    """Fill unknown parameter shapes by recording one call; no kernel runs."""
    flat: list[Any] = []
    structure = flatten(args, flat)
    arrays = [array for array in flat if isinstance(array, NDArray)]
    tracer = _new_tracer(block, arrays[0].context if arrays else cpu(), state.training, _Real(flat))
    handles = []
    for name, array in zip(input_names(len(flat)), flat, strict=True):
        node = tracer.add_input(name, Spec(tuple(array._t.shape), array._t.dtype))
        handles.append(TraceHandle(Entry(node, 0), tracer))
    symbolic = block._is_symbolic_style()
    tracer.symbol_style = symbolic
    tracer.symbol_np = bool(arrays) and type(arrays[0]) is kinds.np
    values = _as_values(handles, flat, symbolic)
    with tracer.active():
        out = block.forward(*regroup(structure, iter(values)))
    found: list[Any] = []
    flatten(out, found)
    tracer.settle([tracer.entry_of(value) for value in found])  # type: ignore[misc]
