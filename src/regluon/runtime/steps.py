"""What recorded arrays were computed from: enough to write their computation as a Symbol, and no values.

While recording, the result of an operator gets a `Step`. Steps know each other and hold no tensors, so they
keep none alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import MXNetError
from ..base.naming import NodeNames
from ..graph.dims import dims_in, evaluate
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node
from ..ops.opdef import OpDef, Spec
from ..ops.registry import get
from .handles import kinds
from .tracer import _Value

__all__ = ["note", "note_graph", "note_index", "symbol_of"]


class Step:
    """A computation: an operator or a graph on inputs, an indexing, or a variable without any.

    ``inputs`` are pairs (step, output), None where an optional input was left out.
    """

    __slots__ = ("inputs", "options", "source", "spec")

    def __init__(
        self, source: Any, inputs: Sequence[Any] = (), options: Any = None, spec: Any = None
    ) -> None:
        self.source = source
        self.inputs = inputs
        self.options = options
        self.spec = spec


_UNKNOWN = "unknown"


def _of(array: Any) -> Any:
    """The step of an input; of an array that no recorded operator made, a variable."""
    if array is None:
        return None
    found = array._step
    if found is None:
        recorded = array._g is not None and array._g.grad_fn is not None and array._grad is None
        found = array._step = Step(_UNKNOWN if recorded else None, spec=_spec(array)), 0
    return found


def _spec(array: Any) -> Spec:
    return Spec(tuple(array._t.shape), array._t.dtype)


def note(definition: OpDef, attrs: dict[str, Any], arrays: Sequence[Any], made: Sequence[Any]) -> None:
    """Remember that the recorded arrays ``made`` are the results of an operator."""
    if made and made[0]._g is not None:
        step = Step(definition, [_of(array) for array in arrays], attrs)
        for index, array in enumerate(made):
            array._step = step, index


def note_graph(
    outputs: Sequence[Entry],
    variables: Sequence[Node],
    arrays: Sequence[Any],
    made: Sequence[Any],
    count: int,
) -> None:
    """Remember that the recorded arrays ``made`` are the outputs of a graph whose variables are ``arrays``.

    The sizes of the first ``count`` may differ from those in the recording.
    """
    if made and made[0]._g is not None:
        shapes = [_spec(array) for array in arrays[:count]]
        step = Step(outputs, [_of(array) for array in arrays], variables, shapes)
        for index, array in enumerate(made):
            array._step = step, index


def note_index(base: Any, key: Any, made: Any) -> None:
    """Remember that the recorded array ``made`` is ``base[key]``."""
    made._step = Step("index", [_of(base)], key, _spec(base)), 0


def symbol_of(array: Any) -> Any:
    """The recorded computation of an array as a Symbol; its variables are named var0, var1, ...

    Raises
    ------
    MXNetError
        If the array was not recorded, or by something that is no operator.
    """
    if array._g is None:
        raise MXNetError(
            "this array is not part of a computational graph, so there is no Symbol of it. Compute it inside "
            "autograd.record() from arrays with attach_grad(), and ask before backward uses the graph up"
        )
    entry = _Builder(type(array)._kind).entry(_of(array))
    return (kinds.np_symbol if type(array) is kinds.np else kinds.symbol)._of([entry])


class _Builder:
    """Writes steps as graph nodes."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._names = NodeNames()
        self._made: dict[int, list[Entry]] = {}

    def entry(self, wanted: Any) -> Entry:
        """The graph entry of a step's output."""
        stack = [wanted[0]]
        while stack:
            step = stack[-1]
            if id(step) in self._made:
                stack.pop()
                continue
            missing = [item[0] for item in step.inputs if item is not None and id(item[0]) not in self._made]
            if missing:
                stack += reversed(missing)
                continue
            inputs = [None if item is None else self._made[id(item[0])][item[1]] for item in step.inputs]
            self._made[id(step)] = self._write(step, inputs)
            stack.pop()
        return self._made[id(wanted[0])][wanted[1]]

    def _write(self, step: Step, inputs: list[Any]) -> list[Entry]:
        if step.source is None:
            return [Entry(Node(None, self._names.new(None, "var"), specs=[step.spec]), 0)]
        if isinstance(step.source, OpDef):
            given = {
                name: value
                for name, value in step.options.items()
                if name not in step.source.defaults or step.source.defaults[name] != value
            }
            while inputs and inputs[-1] is None:
                inputs.pop()
            return self._outputs(self._node(step.source, inputs, given))
        if step.source == "index":
            return [self._index(step, inputs[0])]
        if step.source == _UNKNOWN:
            raise MXNetError(
                "a part of this computation is no operator: a custom Function, or a write to a recorded "
                "array (y[i] = ..., y += ...). It cannot be written as a Symbol"
            )
        return self._graph(step, dict(zip(map(id, step.options), inputs, strict=True)))

    def _node(self, definition: OpDef, inputs: Sequence[Any], attrs: dict[str, Any]) -> Node:
        return Node(definition, self._names.new(None, definition.name.lower()), inputs, attrs)

    @staticmethod
    def _outputs(node: Node) -> list[Entry]:
        return [Entry(node, index) for index in range(node.outputs)]

    def _graph(self, step: Step, values: dict[int, Entry]) -> list[Entry]:
        """A copy of a graph on other inputs, with the sizes of those."""
        given: dict[int, Any] = {id(node): tuple(node.specs[0]) for node in step.options if node.specs}
        given.update((id(node), tuple(spec)) for node, spec in zip(step.options, step.spec, strict=False))
        shapes = GraphShapes(step.source, given, False)
        if any(dims_in(value) for node in shapes.order for value in node.attrs.values()):
            shapes.run()

        def sizes(entry: Any) -> tuple[int, ...]:
            spec = shapes.spec(entry)
            if spec is None:
                raise MXNetError(f"the shape of {entry.node.name} is not known")
            return spec.shape

        copies = {node: [entry] for node, entry in values.items()}
        for node in shapes.order:
            if id(node) not in copies:
                assert node.op is not None
                inputs = [copies[id(entry.node)][entry.index] for entry in node.inputs]
                attrs = {name: evaluate(value, sizes) for name, value in node.attrs.items()}
                copies[id(node)] = self._outputs(self._node(node.op, inputs, attrs))
        return [copies[id(entry.node)][entry.index] for entry in step.source]

    def _index(self, step: Step, base: Entry) -> Entry:
        from ..array import indexing

        def call(name: str, inputs: Sequence[Any], **attrs: Any) -> Any:
            entries = []
            for value in inputs:
                if not isinstance(value, _Value):
                    raise MXNetError(
                        "indexing with an array of numbers cannot be written as a Symbol without values; use "
                        "take() or pick()"
                    )
                entries.append(value.entry)
            definition = get(name)
            full = definition.parse(attrs)
            node = self._node(definition, entries, {key: full[key] for key in attrs if key in full})
            return _Value(Entry(node, 0), None)

        value = indexing.getitem_ops(_Value(base, step.spec), step.options, call, self._kind)
        return value.entry  # type: ignore[no-any-return]
