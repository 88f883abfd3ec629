"""Recording a call of a block as a graph: variables, outputs, writes, parameters' shapes, guards, program."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..array import NDArray
from ..base import dtypes
from ..base.device import Context, cpu
from ..exec import Program, for_training, interpret, recompute
from ..graph.dims import Dim, described, dims_in, evaluate, sources_of
from ..graph.node import Entry, Node, reads_sizes, topological
from ..ops.opdef import Spec
from ..runtime.gradient import through_integers
from ..runtime.handles import TraceHandle, kinds
from ..runtime.state import state
from ..runtime.tracer import Tracer
from ..symbol import convert
from .parameter_support import copied
from .recorded import Recorded, guarded
from .structure import flatten, regroup

__all__ = ["compose", "infer_from", "trace"]


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

    def bind(self, block: Any) -> None:
        self._block = block
        self._structural = block._level >= 2
        self._known = _paths(block)
        for name, parameter in block.collect_params().items():
            self._names_of.setdefault(id(parameter), name)
        self.names.prefixes = ["" if self._structural or block._empty_prefix else block._prefix]

    _names_of: dict[int, str]
    composing = False

    def parameter_node(self, parameter: Any) -> Node:
        """The variable of a parameter; Symbols composed by several calls have it in common."""
        node = super().parameter_node(parameter)
        if self.composing:
            known = parameter._variables.get(node.name)
            if known is None or known.specs != node.specs:
                known = parameter._variables[node.name] = node
            node = self.parameters[id(parameter)] = known
        return node

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


def trace(
    block: Any,
    structure: Any,
    flat: list[Any],
    training: bool,
    recording: bool,
    numbers: int = 0,
    breakable: bool = True,
) -> Recorded:
    """Record one call of ``block`` as a graph and compile it.

    The last ``numbers`` arrays are numbers that Python code sees as symbolic ones. Unless ``breakable``, a
    forward that cannot be one graph is an MXNetError instead of a GraphBreak, and hooks are passed over.
    """
    real = _Real(flat)
    tracer = _new_tracer(block, flat[0].context, training, real)
    tracer.recording, tracer.breakable = recording, breakable
    count = len(flat) - numbers
    handles = []
    for name, array in zip(input_names(count), flat[:count], strict=True):
        node = tracer.add_input(name, Spec(tuple(array._t.shape), array._t.dtype))
        handles.append(TraceHandle(Entry(node, 0), tracer))
    scalars = [tracer.add_number(f"number{i}", array._t) for i, array in enumerate(flat[count:])]
    symbolic = block._is_symbolic_style()
    tracer.symbol_style = symbolic
    tracer.symbol_np = type(flat[0]) is kinds.np
    args = regroup(structure, iter(_as_values(handles, flat[:count], symbolic)), iter(scalars))
    with tracer.active():
        block._tell_parameters(tracer, args)
        out = block._recorded_forward(args)
    recorded = Recorded(structure, (training, recording))
    _take_outputs(tracer, recorded, out, type(flat[0]))
    _take_writes(tracer, recorded, handles)
    _finish(block, tracer, recorded, len(flat), numbers)
    # Guards keep the tracer for as long as the graph is used, but the inputs of this call are not its own.
    real.flat, real.memory = [], {}
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


def _finish(block: Any, tracer: Tracer, recorded: Recorded, count: int, numbers: int) -> None:
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
    _warn_unused(block, recorded, recorded.inputs[: count - numbers], used)
    _initialize(block, tracer, recorded)
    _compile(block, tracer, recorded)


def _dims_used(order: Sequence[Node]) -> list[Entry]:
    return sources_of(dim for node in order for value in node.attrs.values() for dim in dims_in(value))


def _warn_unused(block: Any, recorded: Recorded, inputs: Sequence[Node], used: set[int]) -> None:
    for place, node in enumerate(inputs):
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
    """Finish the deferred initialisation of all parameters whose shapes the graph tells."""
    unknown = []
    for node in tracer.parameters.values():
        parameter = node.value
        shape = parameter._shape
        if shape is None or any(size <= 0 for size in shape):
            unknown.append(f"{node.name} ({parameter.shape})")
        elif parameter._deferred_init:
            parameter._finish_deferred_init()
    used = {node.name for node, _ in recorded.parameters}
    unknown = [text for text in unknown if text.split(" ", 1)[0] in used]
    if unknown:
        raise RuntimeError(
            f"{block.name} has parameters with unknown shape: {', '.join(unknown)}. You need to either "
            f"specify the shape in __init__ or implement {type(block).__name__}.infer_shape to set the "
            "parameter shapes based on the first input."
        )
    for node, parameter in recorded.parameters:
        if parameter._data is None:
            raise parameter._missing()
        del node


def _compile(block: Any, tracer: Tracer, recorded: Recorded) -> None:
    recorded.draws = tracer.random_nodes
    if block._flags.get("backend_chain"):
        _apply_backends(block._flags["backend_chain"], tracer.context, recorded)
    recorded.guards = [(dim, dim.size) for dim in tracer.guards]
    recorded.reads = list(tracer.reads)
    recorded.frozen = [*recorded.reads, *_constants(recorded.outputs)]
    if tracer.dynamic and recorded.guards:
        recorded.volatile = _depends_on_dynamic(recorded.guards)
    variables = [
        *recorded.inputs,
        *(node for node, _ in recorded.parameters),
        *(node for node, _ in recorded.captured),
    ]
    entries = [*recorded.outputs, *(entry for _, entry in recorded.written)]
    if recorded.mode[1]:
        entries = for_training(entries, recorded.mode[0], tracer.context.torch.type)
    again = recorded.mode[1] and block._flags.get("recompute")
    computed = recompute(entries, recorded.mode[0]) if again else entries
    recorded.program = Program(variables, computed, *recorded.mode)
    recorded.dead = _dead_inputs(recorded, variables) if recorded.mode[1] else []
    recorded.integers = through_integers(entries, variables) if recorded.mode[1] else []


def _apply_backends(chain: Sequence[tuple[str, Any]], context: Context, recorded: Recorded) -> None:
    """Let the backends that were asked for rewrite the graph; constants that they make are captured."""
    from ..exec import backends

    entries = [*recorded.outputs, *(entry for _, entry in recorded.written)]
    rewritten = backends.apply(chain, entries, *recorded.mode)
    places = [place for place, _ in recorded.written]
    recorded.outputs = rewritten[: len(recorded.outputs)]
    recorded.written = list(zip(places, rewritten[len(recorded.outputs) :], strict=True))
    known = {id(n) for n in recorded.inputs}
    known.update(id(n) for n, _ in (*recorded.parameters, *recorded.captured))
    for node in topological(rewritten):
        if node.op is None and id(node) not in known:
            value = node.value if node.value.context == context else copied(node.value, context)
            recorded.captured.append((node, value))
        elif node.op is not None and node.op.uses_rng:
            recorded.draws = max(recorded.draws, node.draw + 1)


def _constants(outputs: Sequence[Entry]) -> list[tuple[str, str | None]]:
    """Symbolic sizes among the attributes that a file holds as numbers."""
    found = []
    for node in filter(reads_sizes, topological(outputs)):
        for key, value in node.attrs.items():
            dims = dims_in(value)
            if dims and convert.frozen(node, key, value) == evaluate(value):
                found.append((f"{', '.join(map(described, dims))}, in {node.name}", node.location))
    return found


def _depends_on_dynamic(guards: Sequence[tuple[Dim, Any]]) -> bool:
    return any(node.op is not None and node.op.dynamic for node in topological(guarded(guards)))


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
            shape = parameter._shape
            known = shape is not None and all(size > 0 for size in shape)
            if parameter._data is None and parameter._deferred_init and known:
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
    tracer.breakable, tracer.composing = False, True
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
        out = block._recorded_forward(regroup(structure, iter(values)))
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
    """Fill unknown parameter shapes by recording one call; kernels run only where Python reads a value."""
    flat: list[Any] = []
    structure = flatten(args, flat)
    arrays = [array for array in flat if isinstance(array, NDArray)]
    real = _Real(flat)
    tracer = _new_tracer(block, arrays[0].context if arrays else cpu(), state.training, real)
    tracer.on_value_read, tracer.breakable = "run", False
    handles = []
    for name, array in zip(input_names(len(flat)), flat, strict=True):
        node = tracer.add_input(name, Spec(tuple(array._t.shape), array._t.dtype))
        handles.append(TraceHandle(Entry(node, 0), tracer))
    symbolic = block._is_symbolic_style()
    tracer.symbol_style = symbolic
    tracer.symbol_np = bool(arrays) and type(arrays[0]) is kinds.np
    values = _as_values(handles, flat, symbolic)
    with tracer.active():
        out = block._recorded_forward(regroup(structure, iter(values)))
    found: list[Any] = []
    flatten(out, found)
    tracer.settle([tracer.entry_of(value) for value in found])  # type: ignore[misc]
