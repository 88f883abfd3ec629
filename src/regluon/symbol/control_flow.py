"""foreach, while_loop and cond on arrays, in a trace and on Symbols: one mechanism for all namespaces.

On arrays they are plain Python loops, through which gradients flow as through any operators. While a block is
recorded, and on Symbols, each body is recorded once and becomes a graph within one node (see
`regluon.ops.defs.control_flow`); what a body uses from outside, parameters included, is an input of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..base import rng
from ..base.errors import ValueReadError
from ..exec.bodies import Part, cut, reads_inside
from ..graph.node import Entry, Node
from ..ops.defs.control_flow import is_true
from ..ops.opdef import Spec
from ..ops.registry import get
from ..passes.amp import Caster
from ..runtime import autograd
from ..runtime.handles import kinds
from ..runtime.invoke import invoke
from ..runtime.state import state
from . import composition

__all__ = ["cond", "foreach", "while_loop"]

Values = list[Any]


class LoopTypeError(TypeError, AssertionError):
    """Something that is no array was given or returned; the originals raise AssertionError."""


class LoopStructureError(ValueError, AssertionError):
    """States or outputs have another structure than before; the originals raise AssertionError."""


# Nested lists ----------------------------------------------------------------------


class _Nest:
    """How values are nested in lists and tuples; ``items`` is None for a single value."""

    def __init__(self, cls: Any = None, items: list[_Nest] | None = None) -> None:
        self.cls, self.items = cls, items

    def alike(self, other: _Nest) -> bool:
        """Whether both have lists (or tuples) of the same lengths in the same places."""
        if self.items is None or other.items is None:
            return self.items is other.items
        return len(self.items) == len(other.items) and all(map(_Nest.alike, self.items, other.items))

    def fill(self, values: Iterator[Any]) -> Any:
        """Values in this structure."""
        if self.items is None:
            return next(values)
        made = [item.fill(values) for item in self.items]
        return (
            made if self.cls is list else self.cls(*made) if hasattr(self.cls, "_fields") else self.cls(made)
        )

    def __repr__(self) -> str:
        return "array" if self.items is None else f"[{', '.join(map(repr, self.items))}]"


def _flatten(value: Any, what: str) -> tuple[Values, _Nest]:
    """The arrays in nested lists, and their structure.

    Raises
    ------
    TypeError
        If something in it is neither an array nor a Symbol.
    """
    if isinstance(value, (list, tuple)):
        flat: Values = []
        items = []
        for item in value:
            found, nest = _flatten(item, what)
            flat += found
            items.append(nest)
        return flat, _Nest(type(value), items)
    if isinstance(value, kinds.symbol):
        parts = value._items or [type(value)._of([entry]) for entry in value._list()]
        if len(parts) > 1:
            return list(parts), _Nest(list, [_Nest() for _ in parts])
        return [value], _Nest()
    if isinstance(value, kinds.nd):
        return [value], _Nest()
    raise LoopTypeError(
        f"{what} must be an array or a Symbol, or a (nested) list of those; received {value!r} of type "
        f"{type(value).__name__}"
    )


def _pair(result: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(result, (list, tuple)) or len(result) != 2:
        shown = f"{len(result)} values" if isinstance(result, (list, tuple)) else type(result).__name__
        raise ValueError(f"{what} must return two things: its outputs and its states; received {shown}")
    return result[0], result[1]


def _check_states(what: str, before: _Nest, after: _Nest) -> None:
    if not before.alike(after):
        raise LoopStructureError(
            f"{what}: the input and output states have different formats: the body received {before} and "
            f"returned {after}. Return the states as they come in"
        )


def _callable(function: Any, what: str) -> None:
    if not callable(function):
        raise TypeError(f"{what} must be a function; received {type(function).__name__}")


def _as_list(value: Any) -> Any:
    """A single value alone, several as a list."""
    return list(value) if isinstance(value, tuple) and not hasattr(value, "_fields") else value


# Recording ----------------------------------------------------------------------


class _Recorder:
    """Records bodies: in the trace that is on, or (without one) as Symbols are composed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tracer = state.tracer
        # Whatever is made from here on, but for variables, belongs to the bodies.
        self.start = Node(None, name).serial
        self._parts: list[Part] = []
        self._draws = 0
        self._names: set[str] = set()

    def inside(self, node: Node) -> bool:
        return node.serial > self.start

    def entry(self, value: Any) -> Entry:
        entry = value._single() if self.tracer is None else self.tracer.entry_of(value)
        return entry  # type: ignore[no-any-return]

    def placeholders(
        self, values: Sequence[Any], of_elements: bool, np: bool = True
    ) -> tuple[Values, list[Node]]:
        """Variables that stand for ``values``, or for an element of each, in a body."""
        made, nodes = [], []
        for value in values:
            entry = self.entry(value)
            spec, sizes = entry.spec, None
            if spec is not None and (spec.shape or not of_elements):
                shape = spec.shape[1:] if of_elements else spec.shape
                if self.tracer is not None:
                    sizes = self.tracer.shape(entry)[1 if of_elements else 0 :]
                if of_elements and not np and not shape:
                    shape, sizes = (1,), (1,)
                spec = Spec(tuple(shape), spec.dtype)
            elif of_elements:
                spec = None
            name = entry.node.name if entry.node.op is None else entry.node.output_name(entry.index)
            node = Node(None, self._name(name), specs=None if spec is None else [spec])
            if self.tracer is None:
                made.append(type(value)._of([Entry(node, 0)]))
            else:
                if sizes is not None:
                    # Sizes read in the body are those of the value outside.
                    self.tracer._shape_cache[id(node), 0] = (Entry(node, 0), sizes)
                made.append(self.tracer.wrap(Entry(node, 0), type(value)))
            nodes.append(node)
        return made, nodes

    def _name(self, outer: str) -> str:
        """A name for a variable that stands for ``outer``, as the originals give: with a number behind it."""
        number = 0
        while f"{outer}-{number}" in self._names:
            number += 1
        self._names.add(f"{outer}-{number}")
        return f"{outer}-{number}"

    @contextmanager
    def body(self) -> Iterator[None]:
        """The scope in which a body is recorded."""
        tracer = self.tracer
        if tracer is None:
            casts, composition._casters[:] = list(composition._casters), []
            try:
                yield
            finally:
                composition._casters[:] = casts
            return
        caster, draws = tracer._caster, tracer.random_nodes
        # A cast made in a body is no value outside of it.
        tracer._caster, tracer.depth = Caster(), tracer.depth + 1
        self._draws = draws
        try:
            yield
        finally:
            tracer._caster, tracer.random_nodes, tracer.depth = caster, draws, tracer.depth - 1

    def take(self, nodes: Sequence[Node], values: Sequence[Any]) -> None:
        """Note what a body computes, given what it returned; within its scope."""
        draws = None if self.tracer is None else range(self._draws, self.tracer.random_nodes)
        self._parts.append(Part(nodes, [self.entry(value) for value in values], draws))

    def finish(self, operator: str, own: Sequence[Any], attrs: dict[str, Any], like: Sequence[Any]) -> Values:
        """Make the node: its outputs, of the classes of the values ``like``."""
        bodies, outside = cut(self._parts, self.inside)
        entries = [*(self.entry(value) for value in own), *outside]
        attrs = {"subgraphs": tuple(bodies), **attrs}
        definition = get(operator)
        if self.tracer is None:
            for entry in outside:
                # As in the originals: what only a body uses as an auxiliary state is an argument.
                entry.node.is_aux = False
            cls = kinds.symbol
            symbols = [cls._of([entry]) for entry in entries]
            group = cls._compose(definition, symbols, attrs, None, None, operator)
            return [type(v)._of([e]) for v, e in zip(like, group._list(), strict=True)]
        self._guard(entries)
        arrays = [self.tracer.wrap(entry, kinds.np) for entry in entries]
        made = self.tracer.invoke(definition, arrays, attrs, kinds.np, None, None, None, operator)
        made = made if isinstance(made, list) else [made]
        classes = [
            kinds.symbol if self.tracer.symbol_style and type(v) is kinds.nd else type(v) for v in like
        ]
        return [self.tracer.wrap(value._s.get(), cls) for value, cls in zip(made, classes, strict=True)]

    def _guard(self, entries: Sequence[Entry]) -> None:
        """Sizes of values inside, read by Python, follow from the sizes outside: guard those instead."""
        guards, reads = self.tracer.guards, self.tracer.reads
        kept = [(g, r) for g, r in zip(guards, reads, strict=True) if not reads_inside(g, self.inside)]
        moved = [r for g, r in zip(guards, reads, strict=True) if reads_inside(g, self.inside)]
        if not moved:
            return
        for entry in entries:
            for size in self.tracer.shape(entry) if entry.spec is not None else ():
                kept.append((size, moved[0]))
        guards[:], reads[:] = [g for g, _ in kept], [r for _, r in kept]


def _is_recorded(values: Sequence[Any]) -> bool:
    return state.tracer is not None or any(isinstance(value, kinds.symbol) for value in values)


def _recorded_or_run(values: Sequence[Any], record: Callable[[], Any], run: Callable[[], Any]) -> Any:
    """Record where a trace is on or Symbols are given, else run.

    A trace that may compute values, to infer shapes, follows a body that reads some step by step.
    """
    if not _is_recorded(values):
        # As many draws as a node of a graph takes, so that the same seed gives the same numbers in both.
        with rng.drawing_in_steps():
            return run()
    try:
        return record()
    except ValueReadError:
        if state.tracer is None or state.tracer.on_value_read != "run" or state.tracer.depth:
            raise
        return run()


# Arrays ----------------------------------------------------------------------


def _stack(rows: Sequence[Any]) -> Any:
    return invoke(get("stack"), list(rows), {"axis": 0})


def _zeros(rows: int, like: Any) -> Any:
    return type(like).zeros_on((rows, *like.shape), like._torch_dtype(), like.context)


def _truth(value: Any, what: str) -> bool:
    """The value of a condition: a single number of an array, or anything that Python takes for one."""
    if isinstance(value, kinds.nd) and value._t is not None:
        return is_true(value._t, what)
    return bool(value)


# foreach ----------------------------------------------------------------------


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> Any:
    """Run ``body`` for every element of ``data`` along its first axis, handing states on from step to step.

    Parameters
    ----------
    body : callable
        ``body(element, states)`` gives ``(outputs, new states)``: (nested lists of) arrays. States keep their
        structure, and in a hybridized block their shapes and types too.
    data : array or nested list of arrays
        What is gone through; all of one length. The elements come in the same structure.
    init_states : array or nested list of arrays
        The states at the first step.
    name : str
        What the loop is called in error texts.

    Returns
    -------
    outputs, states
        The outputs of all steps, stacked along a new first axis, and the states after the last step.

    Raises
    ------
    TypeError
        If data, states or outputs hold something that is no array.
    ValueError
        If there is no data, or the body gives states of another structure.
    """
    _callable(body, f"{name}: the body")
    items, data_nest = _flatten(data, f"{name}: data")
    states, state_nest = _flatten(init_states, f"{name}: states")
    if not items:
        raise ValueError(f"{name} needs data to go through; received none. Use while_loop to count steps")
    step = _Step(body, name, data_nest, state_nest)
    return _recorded_or_run(
        [*items, *states],
        lambda: _record_foreach(step, items, states),
        lambda: _run_foreach(step, items, states),
    )


class _Step:
    """The body of a foreach on flat lists of values."""

    def __init__(self, body: Callable[..., Any], name: str, data: _Nest, states: _Nest) -> None:
        self.body, self.name, self.data, self.states = body, name, data, states
        self.outputs = _Nest()
        self.after = states

    def __call__(self, items: Sequence[Any], states: Sequence[Any]) -> tuple[Values, Values]:
        result = self.body(self.data.fill(iter(items)), self.states.fill(iter(states)))
        outputs, after = _pair(result, f"{self.name}: the body")
        flat, self.outputs = _flatten(outputs, f"{self.name}: outputs")
        flat_states, self.after = _flatten(after, f"{self.name}: states")
        _check_states(self.name, self.states, self.after)
        return flat, flat_states


def _record_foreach(step: _Step, items: Values, states: Values) -> Any:
    recorder = _Recorder(step.name)
    np = any(isinstance(value, (kinds.np, kinds.np_symbol)) for value in items)
    elements, element_nodes = recorder.placeholders(items, True, np)
    inner, state_nodes = recorder.placeholders(states, False)
    with recorder.body():
        outputs, after = step(elements, inner)
        recorder.take([*element_nodes, *state_nodes], [*outputs, *after])
    attrs = {
        "num_outputs": len(outputs) + len(after),
        "num_out_data": len(outputs),
        "num_data": len(items),
        "np": np,
    }
    if not attrs["num_outputs"]:
        raise ValueError(
            f"{step.name}: the body gives neither outputs nor states, so that nothing is computed"
        )
    made = recorder.finish("_foreach", [*items, *states], attrs, [*outputs, *after])
    return step.outputs.fill(iter(made)), step.after.fill(iter(made[len(outputs) :]))


def _run_foreach(step: _Step, items: Values, states: Values) -> Any:
    lengths = {int(value.shape[0]) if len(value.shape) else -1 for value in items}
    if len(lengths) != 1 or -1 in lengths:
        raise ValueError(
            f"{step.name} goes along the first axis of its data, which has one length; received the shapes "
            f"{[tuple(value.shape) for value in items]}"
        )
    (length,) = lengths
    if not length:
        return _run_nothing(step, items, states)
    columns: list[Values] = []
    for place in range(length):
        outputs, states = step([value[place] for value in items], states)
        columns = columns or [[] for _ in outputs]
        if len(columns) != len(outputs):
            raise ValueError(f"{step.name}: every step must give as many outputs; received {len(outputs)}")
        for column, value in zip(columns, outputs, strict=True):
            column.append(value)
    return step.outputs.fill(map(_stack, columns)), step.after.fill(iter(states))


def _run_nothing(step: _Step, items: Values, states: Values) -> Any:
    """No element: one step on zeros says what the outputs' shapes are."""
    with autograd.pause():
        first = [
            type(value).zeros_on((1, *value.shape[1:]), value._torch_dtype(), value.context)[0]
            for value in items
        ]
        outputs, _ = step(first, states)
        empty = [_zeros(0, value) for value in outputs]
    return step.outputs.fill(iter(empty)), step.states.fill(iter(states))


# while_loop ----------------------------------------------------------------------


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> Any:
    """Run ``func`` as long as ``cond`` holds, at most ``max_iterations`` times.

    The condition is looked at when the loop runs, in a hybridized block too: the number of steps depends on
    the values.

    Parameters
    ----------
    cond : callable
        ``cond(*loop_vars)`` gives an array with one element, of any type.
    func : callable
        ``func(*loop_vars)`` gives ``(outputs, new loop_vars)``; the outputs may be ``[]`` or None.
    loop_vars : array or nested list of arrays
        The variables, which keep their structure (and, in a hybridized block, their shapes and types).
    max_iterations : int
        The most steps; also the number of rows of the outputs.
    name : str
        What the loop is called in error texts.

    Returns
    -------
    outputs, loop_vars
        The outputs of all steps, stacked along a new first axis of ``max_iterations`` rows; rows of steps
        that did not run are zeros. And the variables after the last step. On NDArrays, outside of a graph, a
        loop of no step has the outputs ``[]``, as in 1.x.

    Raises
    ------
    TypeError
        If variables or outputs hold something that is no array.
    ValueError
        If there are no variables, no ``max_iterations``, or the function changes the variables' structure.
    """
    _callable(cond, f"{name}: cond")
    _callable(func, f"{name}: func")
    if max_iterations is None:
        raise ValueError(f"max_iterations should be specified: {name} gives outputs with so many rows")
    try:
        most = int(max_iterations)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Cannot convert max_iterations to a whole number: received {max_iterations!r}"
        ) from error
    variables, nest = _flatten(loop_vars, f"{name}: loop_vars")
    if not variables:
        raise ValueError(f"loop_vars should contain at least one element; {name} received none")
    if most < 0 and type(variables[0]) in (kinds.np, kinds.np_symbol):
        raise ValueError(f"{name}: max_iterations must be 0 or more; received {most}")
    loop = _Loop(cond, func, name, nest, most)
    return _recorded_or_run(
        variables, lambda: _record_while(loop, variables), lambda: _run_while(loop, variables)
    )


class _Loop:
    """Condition and function of a while_loop on flat lists of values."""

    def __init__(
        self, cond: Callable[..., Any], func: Callable[..., Any], name: str, nest: _Nest, most: int
    ) -> None:
        self.cond, self.func, self.name, self.nest, self.most = cond, func, name, nest, most
        self.outputs = _Nest(list, [])
        self.after = nest

    def arguments(self, variables: Sequence[Any]) -> Sequence[Any]:
        values = self.nest.fill(iter(variables))
        return (values,) if self.nest.items is None else values

    def step(self, variables: Sequence[Any]) -> tuple[Values, Values]:
        outputs, after = _pair(self.func(*self.arguments(variables)), f"{self.name}: func")
        flat, self.outputs = _flatten([] if outputs is None else outputs, f"{self.name}: outputs")
        changed, self.after = _flatten(after, f"{self.name}: loop_vars")
        if len(changed) != len(variables):
            raise ValueError(
                "The length of loop_vars should be consistent during the loop: "
                f"{self.name} has {len(variables)}, and func returned {len(changed)}"
            )
        alone = self.nest.items is not None and len(self.nest.items) == 1 and self.after.items is None
        if not alone:
            _check_states(self.name, self.nest, self.after)
        return flat, changed

    def result(self, outputs: Sequence[Any], variables: Sequence[Any]) -> Any:
        return self.outputs.fill(iter(outputs)), _as_list(self.nest.fill(iter(variables)))


def _record_while(loop: _Loop, variables: Values) -> Any:
    np = type(variables[0]) in (kinds.np, kinds.np_symbol)
    if loop.most < 1 and not np:
        if state.tracer is None:
            raise ValueError(
                f"{loop.name}: max_iterations must be 1 or more in a Symbol; received {loop.most}"
            )
        return [], _as_list(loop.nest.fill(iter(variables)))
    recorder = _Recorder(loop.name)
    inner, nodes = recorder.placeholders(variables, False)
    recorder._names.clear()
    with recorder.body():
        holds = loop.cond(*loop.arguments(inner))
        if not isinstance(holds, (kinds.nd, kinds.symbol)) or len(_flatten(holds, "cond")[0]) != 1:
            raise ValueError(
                f"Return of cond must be a Symbol or an array with one element; received "
                f"{type(holds).__name__} in {loop.name}, where the condition is part of the graph"
            )
        _check_single(recorder.entry(holds), loop.name)
        recorder.take(nodes, [holds])
    inner, again = recorder.placeholders(variables, False)
    with recorder.body():
        outputs, after = loop.step(inner)
        recorder.take(again, [*outputs, *after])
    attrs = {
        "num_outputs": len(outputs) + len(after),
        "num_out_data": len(outputs),
        "max_iterations": loop.most,
    }
    made = recorder.finish("_while_loop", variables, attrs, [*outputs, *after])
    return loop.result(made, made[len(outputs) :])


def _run_while(loop: _Loop, variables: Values) -> Any:
    first = variables
    columns: list[Values] = []
    steps = 0
    while steps < loop.most and _truth(loop.cond(*loop.arguments(variables)), loop.name):
        outputs, variables = loop.step(variables)
        columns = columns if steps else [[] for _ in outputs]
        if len(columns) != len(outputs):
            raise ValueError("Number of elements in step_output should be the same in each step")
        for column, value in zip(columns, outputs, strict=True):
            column.append(value)
        steps += 1
    if steps:
        return loop.result([_padded(column, loop.most) for column in columns], variables)
    if type(first[0]) is not kinds.np:
        return [], _as_list(loop.nest.fill(iter(first)))
    with autograd.pause():
        outputs, _ = loop.step(first)
        empty = [_zeros(max(loop.most, 0), value) for value in outputs]
    return loop.result(empty, first)


def _padded(rows: Values, length: int) -> Any:
    stacked = _stack(rows)
    if len(rows) == length:
        return stacked
    zeros = invoke(get("zeros_like"), [rows[0]], {})
    return _stack([*rows, *([zeros] * (length - len(rows)))])


# cond ----------------------------------------------------------------------


def cond(
    pred: Any,
    then_func: Callable[..., Any],
    else_func: Callable[..., Any],
    inputs: Any = None,
    name: str = "cond",
) -> Any:
    """Run ``then_func`` where ``pred`` holds, else ``else_func``, as the value says when the branch runs.

    Parameters
    ----------
    pred : array, bool or callable
        An array with one element of any type, or a function of ``inputs`` that gives one.
    then_func, else_func : callable
        Functions of ``inputs`` that give (nested lists of) arrays; in a hybridized block both give as many,
        of the same shapes and types.
    inputs : array or nested list of arrays, optional
        What the functions are called with; without it they are called with nothing. They may use any other
        arrays and parameters as well.
    name : str
        What the branch is called in error texts.

    Returns
    -------
    What the chosen function gives.

    Raises
    ------
    TypeError
        If a branch is no function, or gives something that is no array, in a hybridized block.
    ValueError
        If the condition has several elements, or the branches give different numbers of arrays.
    """
    _callable(then_func, f"{name}: then_func")
    _callable(else_func, f"{name}: else_func")
    arguments: Sequence[Any] = ()
    if inputs is not None:
        flat, nest = _flatten(inputs, f"{name}: inputs")
        if not flat:
            raise ValueError(f"inputs should contain at least one element; {name} received none")
        arguments = (inputs,) if nest.items is None else inputs
    if callable(pred) and not isinstance(pred, (kinds.nd, kinds.symbol)):
        pred = pred(*arguments)
    values = [pred] if isinstance(pred, (kinds.nd, kinds.symbol)) else []

    def run() -> Any:
        return (then_func if _truth(pred, name) else else_func)(*arguments)

    if not values:
        return run()
    return _recorded_or_run(values, lambda: _record_cond(name, pred, then_func, else_func, arguments), run)


def _check_single(entry: Entry, name: str) -> None:
    if entry.spec is not None and any(size != 1 for size in entry.spec.shape):
        raise ValueError(
            f"{name} needs a condition with one element; received one of shape {entry.spec.shape}. Reduce it "
            "with sum, max or min, or choose by element with where"
        )


def _record_cond(
    name: str,
    pred: Any,
    then_func: Callable[..., Any],
    else_func: Callable[..., Any],
    arguments: Sequence[Any],
) -> Any:
    recorder = _Recorder(name)
    if len(_flatten(pred, name)[0]) != 1:
        raise ValueError(f"{name} needs a condition with one output; received {pred!r}")
    entry = recorder.entry(pred)
    _check_single(entry, name)
    found: list[tuple[Values, _Nest]] = []
    for function in (then_func, else_func):
        with recorder.body():
            found.append(_flatten(function(*arguments), f"{name}: outputs"))
            recorder.take([], found[-1][0])
    (chosen, nest), (other, other_nest) = found
    if len(chosen) != len(other) or not nest.alike(other_nest):
        raise ValueError(
            "Number of outputs differs between then-branch and else-branch: "
            f"{name} received {nest} and {other_nest}"
        )
    if not chosen:
        raise ValueError(f"{name}: the branches give no outputs, so that nothing is computed")
    made = recorder.finish("_cond", [pred], {"num_outputs": len(chosen)}, chosen)
    return nest.fill(iter(made))
