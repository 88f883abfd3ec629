"""The tracer: records the operators that a block calls as graph nodes.

One tracer serves both styles. Inputs and parameters are variables; arrays from outside are captured by
reference. Shapes are known from the call's real inputs; sizes that Python code asks for are noted as guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch

from ..base import config, dtypes
from ..base.errors import MXNetError, ValueReadError
from ..base.naming import NodeNames
from ..graph.dims import Dim, described, dims_in, evaluate, numbers_known
from ..graph.infer import GraphShapes, merge
from ..graph.node import CONSTRAINT, Entry, Node, may_hold_sizes
from ..ops.infer import infer_specs
from ..ops.opdef import OpDef, Spec
from ..ops.registry import get
from ..passes.amp import Caster, cast_name, constraints_of
from .handles import TraceHandle, kinds, user_location
from .state import state

__all__ = ["GraphBreak", "Tracer", "current", "suspend"]


class GraphBreak(Exception):
    """Raised inside a trace that cannot go on, where the block chose to run op by op then."""


def current() -> Any:
    """The tracer that is recording in this thread, or None."""
    return state.tracer


class _Suspension:
    def __init__(self) -> None:
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append(state.tracer)
        state.tracer = None
        state.update()

    def __exit__(self, *exception: object) -> None:
        state.tracer = self._before.pop()
        state.update()


def suspend() -> _Suspension:
    """A scope in which operators run at once although a trace is on."""
    return _Suspension()


class _Value:
    """A graph entry as the indexing engine sees it; without a shape while that is not known."""

    def __init__(self, entry: Entry, spec: Spec | None) -> None:
        self.entry = entry
        if spec is None:
            self.shape = self.ndim = self.dtype = None
            return
        self.shape = spec.shape
        self.ndim = len(spec.shape)
        self.dtype = (
            numpy.dtype("float32")
            if spec.dtype is torch.bfloat16
            else numpy.dtype(dtypes.to_name(spec.dtype))
        )


class Tracer:
    """Records one call of a block.

    Parameters
    ----------
    context : Context
        The device of the call.
    training : bool
        Whether the call is in train mode.
    on_value_read : {"error", "break", "run"}
        What happens when Python asks for a value; "run" computes it, for inference that keeps no graph.
    evaluate_real : callable, optional
        Computes real tensors of entries from the call's inputs, for operators whose output shape depends
        on data.
    """

    recording = False
    breakable = True
    symbol_np = False
    # How many bodies of loops and branches are being recorded around the present operator.
    depth = 0

    def __init__(
        self,
        context: Any,
        training: bool,
        on_value_read: str = "error",
        parameter_names: Callable[[Any], str] | None = None,
        evaluate_real: Callable[[Tracer, Sequence[Entry]], list[torch.Tensor]] | None = None,
    ) -> None:
        self.context = context
        self.training = training
        self.on_value_read = on_value_read
        self.names = NodeNames()
        self.inputs: list[Node] = []
        self.parameters: dict[int, Node] = {}
        self.captured: dict[int, Node] = {}
        self.guards: list[Dim] = []
        self.reads: list[tuple[str, str | None]] = []
        self.dynamic = False
        self.random_nodes = 0
        self.written_inputs: dict[int, TraceHandle] = {}
        self._parameter_names = parameter_names
        self._evaluate_real = evaluate_real
        self._real: dict[tuple[int, int], torch.Tensor] = {}
        self._shape_cache: dict[tuple[int, int], Any] = {}
        self._lifted: dict[int, tuple[Any, TraceHandle]] = {}
        self.symbol_style = False
        self._caster = Caster()

    @contextmanager
    def active(self) -> Iterator[Tracer]:
        """The scope in which this tracer records."""
        before, state.tracer = state.tracer, self
        state.update()
        try:
            yield self
        finally:
            state.tracer = before
            state.update()

    # Variables ----------------------------------------------------------------------

    def add_input(self, name: str, spec: Spec | None, user: dict[str, str] | None = None) -> Node:
        """A variable for an input of the block."""
        self.names.reserve(name)
        node = Node(None, name, specs=None if spec is None else [spec], user=user)
        self.inputs.append(node)
        return node

    def add_number(self, name: str, value: torch.Tensor) -> Dim:
        """A variable for a number among the arguments, as the symbolic number that Python code sees."""
        node = self.add_input(name, Spec((), value.dtype))
        return Dim(value.item(), "item", (Entry(node, 0),), self._note)

    def parameter_handle(self, parameter: Any, ctx: Any = None) -> Any:
        """The value of a parameter inside the trace, as an array or (in the symbolic style) a Symbol."""
        del ctx
        node = self.parameter_node(parameter)
        cls = kinds.np if config.is_np_array() else kinds.nd
        if self.symbol_style:
            cls = kinds.np_symbol if self.symbol_np else kinds.symbol
        return self.wrap(Entry(node, 0), cls)

    def parameter_node(self, parameter: Any) -> Node:
        """The variable of a parameter."""
        node = self.parameters.get(id(parameter))
        if node is None:
            name = parameter.name if self._parameter_names is None else self._parameter_names(parameter)
            shape = parameter._shape
            known = shape is not None and all(size > 0 for size in shape)
            dtype = dtypes.to_torch(parameter.dtype)
            node = Node(None, name, specs=[Spec(tuple(shape), dtype)] if known else None, value=parameter)
            self.names.reserve(name)
            self.parameters[id(parameter)] = node
        return node

    def lift(self, array: Any) -> TraceHandle:
        """The handle of any array inside the trace; a real array is captured by reference."""
        if array._s is not None:
            if array._s.tracer is not self:
                raise MXNetError(
                    "a value of another recorded block was used here: values made while a block is recorded "
                    "cannot be kept in attributes or globals. Return them instead"
                )
            return array._s  # type: ignore[no-any-return]
        found = self._lifted.get(id(array))
        if found is None:
            node = Node(None, self.names.new(None, "constant"), value=array)
            node.specs = [Spec(tuple(array._t.shape), array._t.dtype)]
            self.captured[id(array)] = node
            found = (array, TraceHandle(Entry(node, 0), self))
            found[1].depth = 0
            self._lifted[id(array)] = found
        return found[1]

    def entry_of(self, value: Any) -> Entry | None:
        """The graph entry of an operator's input."""
        if value is None:
            return None
        handle = value._s
        if handle is None and isinstance(value, kinds.symbol):
            return value._single()  # type: ignore[no-any-return]
        if handle is None or (handle.tracer is not self and not isinstance(value, kinds.symbol)):
            handle = self.lift(value)
        if handle.depth > self.depth:
            raise MXNetError(
                "a value made in the body of a foreach, while_loop or cond was used outside of it. Return it "
                "from the body: as an output or a state"
            )
        return handle.get()  # type: ignore[no-any-return]

    def wrap(self, entry: Entry, cls: Any) -> Any:
        """A value of class ``cls`` for a graph entry."""
        return cls._traced(TraceHandle(entry, self))

    # Operators ----------------------------------------------------------------------

    def invoke(
        self,
        definition: OpDef,
        arrays: Sequence[Any],
        attrs: dict[str, Any],
        cls: Any,
        name: str | None,
        user: dict[str, str] | None,
        out: Any,
        hint: str | None = None,
    ) -> Any:
        """Record one operator call; gives its visible outputs as values."""
        entries = [self.entry_of(array) for array in arrays]
        while entries and entries[-1] is None:
            entries.pop()
        if definition.active is not None:
            entries = definition.in_use(entries, {**definition.defaults, **attrs})
        if None in entries:
            raise MXNetError(f"operator {definition.name}: an input in the middle is missing")
        if state.amp is not None:
            entries = self._in_precision(definition, entries, attrs, user)  # type: ignore[arg-type, assignment]
        if self.symbol_style and cls is kinds.nd:
            cls = kinds.symbol
        if definition.uses_training and state.training != self.training:
            self.give_up("train_mode() or predict_mode() is opened inside its forward")
        node = self.record(definition, entries, attrs, name, user, hint)  # type: ignore[arg-type]
        if out is None and definition.visible is None and definition.outputs == 1 and not self.recording:
            return cls._traced(TraceHandle(Entry(node, 0), self))
        made = [Entry(node, index) for index in range(node.visible)]
        if self.recording and not state.recording:
            # Inside autograd.pause(): nothing flows back from here.
            made = [Entry(self.record(get("BlockGrad"), [entry], {}), 0) for entry in made]
        results = [self.wrap(entry, cls) for entry in made]
        if out is not None:
            targets = list(out) if isinstance(out, (list, tuple)) else [out]
            for target, value in zip(targets, results, strict=False):
                self.assign(target, value)
            return out
        if len(results) == 1:
            return results[0]
        if cls is kinds.symbol or cls is kinds.np_symbol:
            return cls._group(results)
        return results

    def _in_precision(
        self,
        definition: OpDef,
        entries: Sequence[Entry],
        attrs: dict[str, Any],
        user: dict[str, str] | None,
    ) -> Sequence[Entry]:
        """The inputs of an operator in the types that the mixed precision of this thread wants."""
        if any(entry.spec is None for entry in entries):
            # A parameter learns its shape from the operator, which will not see it behind a cast.
            self._fill(Node(definition, "", entries, attrs))
        mask = state.constraints | constraints_of(user)
        full = {**definition.defaults, **attrs}
        return self._caster.inputs(state.amp, definition, entries, full, mask, self._cast)

    def _cast(self, entry: Entry, goal: torch.dtype) -> Entry:
        return Entry(self.record(get("amp_cast"), [entry], {"dtype": goal}, cast_name(entry, goal)), 0)

    def record(
        self,
        definition: OpDef,
        entries: Sequence[Entry],
        attrs: dict[str, Any],
        name: str | None = None,
        user: dict[str, str] | None = None,
        hint: str | None = None,
    ) -> Node:
        """Append a node; its shapes are inferred where the inputs' are known."""
        if may_hold_sizes(attrs):
            attrs = {key: value if key == "scalar" else numbers_known(value) for key, value in attrs.items()}
        if (
            definition.variadic
            and definition.num_args_key
            and definition.num_args_key in definition.parameters
        ):
            attrs = {**attrs, definition.num_args_key: len(entries)}
        elif definition.active is not None:
            entries = definition.in_use(entries, {**definition.defaults, **attrs})
        if definition.variadic is False:
            self._check_count(definition, entries, attrs)
        hint = (hint or definition.name).lower()
        if state.constraints:
            user = dict(user or {})
            mask = state.constraints | int(user.get(CONSTRAINT, "0"))
            user[CONSTRAINT] = str(mask)
        node = Node(definition, self.names.new(name, hint), entries, attrs, user, location=user_location())
        if definition.uses_rng:
            node.draw = self.random_nodes
            self.random_nodes += 1
        try:
            self._infer(node)
        except (MXNetError, ValueError, TypeError, IndexError) as error:
            if node.location is None or getattr(error, "_located", False):
                raise
            located = type(error)(f"{error} (node {node.name}, recorded at {node.location})")
            located._located = True  # type: ignore[union-attr]
            raise located from error
        return node

    @staticmethod
    def _check_count(definition: OpDef, entries: Sequence[Entry], attrs: dict[str, Any]) -> None:
        least = len(definition.inputs) - len(definition.optional)
        if definition.active is not None:
            least = min(least, len(definition.input_names({**definition.defaults, **attrs})))
        if len(entries) < least or len(entries) > len(definition.inputs):
            raise MXNetError(
                f"operator {definition.name} takes the inputs {', '.join(definition.inputs)}; received "
                f"{len(entries)}"
            )

    def _infer(self, node: Node) -> None:
        definition = node.op
        assert definition is not None
        if definition.dynamic:
            self._run_real(node)
            return
        specs = [entry.spec for entry in node.inputs]
        if None in specs:
            self._fill(node)
            specs = [entry.spec for entry in node.inputs]
        if None in specs:
            return
        attrs = node.full_attrs
        if may_hold_sizes(attrs):
            attrs = {key: evaluate(value) for key, value in attrs.items()}
        node.specs = infer_specs(definition, attrs, specs, self.training)

    def _fill(self, node: Node) -> None:
        """Let the operator complete the unknown shapes of parameters among its inputs."""
        definition = node.op
        if definition is None or definition.fill is None or any(dims_in(v) for v in node.attrs.values()):
            return
        shapes = [self._partial(entry) for entry in node.inputs]
        if all(shape is None for shape in shapes):
            return
        filled = definition.fill(list(shapes), node.full_attrs)
        for entry, old, new in zip(node.inputs, shapes, filled, strict=False):
            if entry.node.specs is None and entry.node.op is None and new is not None:
                try:
                    shape = merge(old, new)
                except ValueError as error:
                    raise MXNetError(
                        f"{entry.node.name} has shape {old}, but {definition.name} needs {tuple(new)}"
                    ) from error
                self.learn(entry.node, shape)

    def _partial(self, entry: Entry) -> Any:
        spec = entry.spec
        if spec is not None:
            return spec.shape
        if entry.node.op is None:
            return _declared(entry.node)
        return None

    def learn(self, node: Node, shape: Any) -> None:
        """Note the (perhaps partly known) shape of a variable."""
        parameter = node.value
        if parameter is not None and hasattr(parameter, "_shape"):
            parameter.shape = shape
            shape = parameter._shape
        else:
            node.user = {**node.user, "__shape__": str(tuple(shape))}
        if shape is not None and all(size > 0 for size in shape):
            dtype = dtypes.to_torch(parameter.dtype) if parameter is not None else torch.float32
            node.specs = [Spec(tuple(shape), dtype)]

    def settle(self, entries: Sequence[Entry]) -> None:
        """Infer over the graph of ``entries`` whatever is still unknown, backward too."""
        given: dict[int, Any] = {}
        shapes = GraphShapes(entries, given, self.training)
        for node in shapes.order:
            if node.op is None:
                spec = node.specs[0] if node.specs else None
                dtype = spec.dtype if spec else _declared_dtype(node)
                given[id(node)] = (spec.shape if spec else _declared(node), dtype)
            elif node.op.dynamic and node.specs:
                given[id(node)] = (node.specs[0].shape, node.specs[0].dtype)
        shapes = GraphShapes(entries, given, self.training)
        for node in shapes.order:
            if node.specs is not None and node.op is not None:
                for index, spec in enumerate(node.specs):
                    shapes.shapes[id(node), index] = spec.shape
                    shapes.dtypes[id(node), index] = spec.dtype
                shapes.done.add(id(node))
        shapes.run()
        for node in shapes.order:
            if node.specs is None:
                if node.op is None:
                    shape = shapes.shapes.get((id(node), 0))
                    if shape is not None:
                        self.learn(node, shape)
                else:
                    found = [shapes.spec(Entry(node, index)) for index in range(node.outputs)]
                    if all(spec is not None for spec in found):
                        node.specs = found  # type: ignore[assignment]

    # Shapes ----------------------------------------------------------------------

    def spec(self, entry: Entry) -> Spec:
        """The spec of an entry; infers over the graph when it is not known yet."""
        spec = entry.spec
        if spec is None:
            self.settle([entry])
            spec = entry.spec
        if spec is None:
            raise MXNetError(
                f"the shape of {entry.node.name} is not known while the block is recorded: a parameter or an "
                "input before it has unknown sizes. Give the whole shape in __init__ (in_units, in_channels, "
                "shape=)"
            )
        return spec

    def shape(self, entry: Entry) -> tuple[Any, ...]:
        """The sizes of an entry as symbolic integers."""
        key = (id(entry.node), entry.index)
        known = self._shape_cache.get(key)
        if known is None:
            spec = self.spec(entry)
            known = (
                entry,
                tuple(Dim(size, "size", (entry, axis), self._note) for axis, size in enumerate(spec.shape)),
            )
            self._shape_cache[key] = known
        return known[1]  # type: ignore[no-any-return]

    def _note(self, dim: Dim) -> None:
        self.guards.append(dim)
        text = described(dim)
        if not isinstance(dim.size, bool):
            text += f" = {dim.size}"
        elif not dim.size:
            text = f"not ({text})"
        self.reads.append((text, user_location()))

    # Values ----------------------------------------------------------------------

    def give_up(self, reason: str) -> None:
        """This call cannot be one graph: it is to run op by op.

        Raises
        ------
        GraphBreak
            Always, or MXNetError where a graph is all that is wanted.
        """
        if self.breakable:
            raise GraphBreak(reason)
        where = user_location()
        raise MXNetError(
            f"the block cannot be recorded as one graph: {reason}" + (f", at {where}" if where else "")
        )

    def read_value(self, array: Any, what: str) -> Any:
        """Python asks for a value: refuse with advice, or give up the trace."""
        node = array._s.get().node
        if self.on_value_read == "run" and self._evaluate_real is not None and not self.depth:
            return self._evaluate_real(self, [array._s.get()])[0]
        where = user_location()
        if state.tracer is not self:
            raise ValueReadError(
                f"{what} needs the value of {node.name}, which was made while a block was recorded and has "
                "no value: values made in forward cannot be kept in attributes or globals of a hybridized "
                "block. Return them instead"
            )
        if self.on_value_read == "break" and self.breakable:
            raise GraphBreak(f"its Python reads a value: {what}" + (f", at {where}" if where else ""))
        raise ValueReadError(
            f"{what} needs the value of {node.name} while the hybridized block is recorded"
            + (f", at {where}" if where else "")
            + ". Recorded once, a branch on a value would be wrong for the next input. Choose by value "
            "with where() or cond(), loop with foreach() or while_loop() (in npx, nd.contrib and F.contrib), "
            'leave this block unhybridized, or call hybridize(on_value_read="break") to run it op by op'
        )

    def _run_real(self, node: Node) -> None:
        """The output shape depends on data: compute it from this call's inputs."""
        assert node.op is not None
        self._refuse_in_body(f"the operator {node.op.name}, whose output shape depends on values,")
        self.dynamic = True
        if self._evaluate_real is None:
            return
        outputs = self._evaluate_real(self, [Entry(node, index) for index in range(node.outputs)])
        node.specs = [Spec(tuple(out.shape), out.dtype) for out in outputs]

    def _refuse_in_body(self, what: str) -> None:
        if self.depth:
            self.give_up(f"{what} is used in the body of a foreach, while_loop or cond")

    def custom_function(self, function: Any, inputs: Sequence[Any]) -> Any:
        """Record a call of an autograd.Function."""
        self._refuse_in_body(f"the function {type(function).__name__}")
        from .autograd import function_operator

        np_kind = any(type(a) in (kinds.np, kinds.np_symbol) for a in inputs)
        definition = function_operator(function, kinds.np if np_kind else kinds.nd, self.context)
        entries = [self.entry_of(array) for array in inputs]
        node = Node(definition, self.names.new(None, type(function).__name__.lower()), entries)  # type: ignore[arg-type]
        node.location = user_location()
        self.dynamic = True
        if self._evaluate_real is None:
            raise MXNetError("a custom Function cannot be composed into a Symbol without values")
        outputs = self._evaluate_real(self, [Entry(node, -1)])
        definition.outputs = len(outputs)
        node.specs = [Spec(tuple(out.shape), out.dtype) for out in outputs]
        if self.symbol_style:
            cls = kinds.np_symbol if self.symbol_np else kinds.symbol
        else:
            cls = kinds.np if np_kind else kinds.nd
        results = [self.wrap(Entry(node, index), cls) for index in range(len(outputs))]
        return results if len(results) > 1 else results[0]

    # Indexing and writing ----------------------------------------------------------------------

    def _call(self, name: str, inputs: Sequence[Any], **attrs: Any) -> _Value:
        entries = []
        for value in inputs:
            if isinstance(value, _Value):
                entries.append(value.entry)
            elif isinstance(value, numpy.ndarray):
                entries.append(self._constant(value))
            else:
                entries.append(self.entry_of(value))  # type: ignore[arg-type]
        definition = get(name)
        full = definition.parse(attrs)
        node = self.record(definition, entries, {key: full[key] for key in attrs if key in full})
        entry = Entry(node, 0)
        return self._valued(entry)

    def _valued(self, entry: Entry) -> _Value:
        if entry.spec is None:
            self.settle([entry])
        return _Value(entry, entry.spec)

    def _constant(self, value: Any) -> Entry:
        """A NumPy constant as a captured array."""
        array = kinds.nd._wrap(dtypes.from_numpy(numpy.ascontiguousarray(value)))
        return self.lift(array).get()  # type: ignore[no-any-return]

    def _key(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(self._key(item) for item in key)
        if isinstance(key, (kinds.nd, kinds.symbol)):
            entry = self.entry_of(key)
            assert entry is not None
            return self._valued(entry)
        return key

    def getitem(self, array: Any, key: Any, kind: Any) -> Any:
        """``array[key]`` inside the trace; a contiguous basic index is a view."""
        from ..array import indexing

        base = array._s if array._s is not None else self.lift(array)
        key = self._key(key)

        def read(entry: Entry) -> Entry:
            value = indexing.getitem_ops(self._valued(entry), key, self._call, kind)
            return value.entry  # type: ignore[no-any-return]

        def write(entry: Entry, part: Entry) -> Entry:
            target = self._valued(entry)
            value = indexing.setitem_ops(target, key, self._valued(part), self._call, kind)
            return value.entry  # type: ignore[no-any-return]

        entry = base.get()
        handle = TraceHandle(read(entry), self)
        if indexing.is_view(key, self._valued(entry).shape, kind):
            handle.base = base
            handle.view = (read, write, base.version)
        return type(array)._traced(handle)

    def setitem(self, array: Any, key: Any, value: Any, kind: Any) -> None:
        """``array[key] = value`` inside the trace, as a new value of the same handle."""
        from ..array import indexing

        handle = array._s if array._s is not None else self.lift(array)
        entry = handle.get()
        if isinstance(value, (kinds.nd, kinds.symbol)):
            source = self.entry_of(value)
            assert source is not None
            value = self._valued(source)
        result = indexing.setitem_ops(self._valued(entry), self._key(key), value, self._call, kind)
        handle.set(result.entry)
        self._wrote(array, handle)

    def assign(self, target: Any, value: Any) -> None:
        """``target op= value`` or ``out=target`` inside the trace."""
        handle = target._s if target._s is not None else self.lift(target)
        entry = self.entry_of(value)
        assert entry is not None
        old, new = handle.get().spec, entry.spec
        if old is not None and new is not None:
            if old.shape != new.shape:
                raise MXNetError(
                    f"a result of shape {new.shape} cannot be written into an array of shape {old.shape}"
                )
            if old.dtype is not new.dtype:
                entry = Entry(self.record(get("Cast"), [entry], {"dtype": old.dtype}), 0)
        handle.set(entry)
        self._wrote(target, handle)

    def _wrote(self, array: Any, handle: TraceHandle) -> None:
        root = handle
        while root.base is not None:
            root = root.base
        if root.depth < self.depth:
            raise MXNetError(
                "the body of a foreach, while_loop or cond writes into an array from outside. A recorded "
                "body gives its results back: make the array a state (a loop variable), and return it"
            )
        self.written_inputs[id(root)] = root


def _declared(node: Node) -> Any:
    """The partly known shape of a variable."""
    if node.value is not None and hasattr(node.value, "_shape"):
        shape = node.value._shape
        return None if shape is None else tuple(-1 if size <= 0 else size for size in shape)
    text = node.user.get("__shape__")
    if text is None:
        return None
    import ast

    shape = ast.literal_eval(text)
    return tuple(-1 if size is None or size <= 0 else int(size) for size in shape)


def _declared_dtype(node: Node) -> Any:
    if node.value is not None and hasattr(node.value, "dtype"):
        return dtypes.to_torch(node.value.dtype)
    code = node.user.get("__dtype__")
    return None if code in (None, "-1") else dtypes.to_torch(int(code))
