"""Recorded operators: MXNet's gradient rules on top of torch's engine.

An array's gradient handle ``_g`` is a torch tensor that may require grad. It usually has the array's own
values; where the array holds integers, it is a float shadow of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..graph.dims import evaluate
from ..graph.node import Entry, Node, topological
from ..ops.failure import reraise
from ..ops.opdef import OpDef, run

__all__ = [
    "commit_now",
    "commit_on_backward",
    "commit_values",
    "committing_once",
    "interpret_recorded",
    "kernel_outputs",
    "once",
    "run_recorded",
    "through_integers",
    "zero_link",
]

# Two threads may commit to the same moving statistics.
_committing = threading.Lock()


class _Again(threading.local):
    """The commits that a computation which runs again has made already, by their number in it."""

    made: set[int] | None = None
    count = 0


_again = _Again()


class _ZeroLink(torch.autograd.Function):
    """Gives its first argument on; in backward every other argument gets zeros."""

    @staticmethod
    def forward(context: Any, value: Tensor, *sources: Tensor) -> Tensor:
        # Shapes and types only: the sources' values are neither needed nor kept alive.
        context.sources = [(source.shape, source.dtype, source.device) for source in sources]
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        zeros = (torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in context.sources)
        return gradients[0], *zeros


class _Through(torch.autograd.Function):
    """Gives its first argument on; in backward the second gets the gradient as it is."""

    @staticmethod
    def forward(context: Any, value: Tensor, source: Tensor) -> Tensor:
        context.dtype = source.dtype
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return None, gradients[0].to(context.dtype)


class _Commit(torch.autograd.Function):
    """Gives its argument on, and calls back once when the gradient passes."""

    @staticmethod
    def forward(context: Any, value: Tensor, action: Callable[[], None]) -> Tensor:
        context.action = action
        # The same memory, but no view: torch lets nobody write to views that functions like this one give.
        return torch.empty(0, dtype=value.dtype, device=value.device).set_(value)  # type: ignore[call-overload,no-any-return]

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        action, context.action = context.action, None
        if action is not None:
            action()
        return gradients[0], None


def zero_link(value: Tensor, sources: Sequence[Tensor]) -> Tensor:
    """``value`` connected to ``sources`` in such a way that they get zero gradients."""
    if not value.is_floating_point():
        # A mask or an index goes on into products and selections: its shadow has its values.
        value = value.to(torch.float32)
    return _ZeroLink.apply(value, *sources)  # type: ignore[no-any-return,no-untyped-call]


def through(value: Tensor, source: Tensor) -> Tensor:
    """``value`` connected to ``source`` in such a way that the gradient passes unchanged."""
    if not value.is_floating_point():
        value = value.to(source.dtype)
    return _Through.apply(value, source)  # type: ignore[no-any-return,no-untyped-call]


def commit_now(
    definition: OpDef, auxiliary: Sequence[Tensor], outputs: Sequence[Tensor], attrs: dict[str, Any]
) -> None:
    """Let an operator update its auxiliary states from what a training forward gave."""
    assert definition.commit is not None
    commit_values(definition.commit, auxiliary, outputs, attrs)


def commit_values(update: Callable[..., None], *values: Any) -> None:
    """Call what updates auxiliary states; one such call is made at a time."""
    with torch.no_grad(), _committing:
        update(*values)


@contextmanager
def committing_once(made: set[int]) -> Iterator[None]:
    """A scope for a forward that is computed again: a commit happens unless ``made`` has its number.

    One set belongs to one recorded forward, whose backward may run more than once.
    """
    before = _again.made, _again.count
    _again.made, _again.count = made, 0
    try:
        yield
    finally:
        _again.made, _again.count = before


def once(action: Callable[..., None]) -> Callable[..., None]:
    """``action``, which is to commit; inside of `committing_once` it happens the first time only."""
    made, number = _again.made, _again.count
    if made is None:
        return action
    _again.count += 1

    def commit(*values: Any) -> None:
        if number not in made:
            made.add(number)
            action(*values)

    return commit


def commit_on_backward(
    definition: OpDef, tensors: Sequence[Tensor], outputs: tuple[Tensor, ...], attrs: dict[str, Any]
) -> tuple[Tensor, ...]:
    """The outputs, with the auxiliary update of this operator hung on the backward of the first.

    The update sees the outputs after the first; of the first, which is large, it sees an empty part.
    """
    if not outputs[0].requires_grad:
        return outputs
    auxiliary = [tensors[i] for i, name in enumerate(definition.inputs) if name in definition.aux]
    values = (outputs[0].new_empty(0), *(output.detach() for output in outputs[1:]))

    def action() -> None:
        commit_now(definition, auxiliary, values, attrs)

    first = _Commit.apply(outputs[0], once(action))  # type: ignore[no-untyped-call]
    return (first, *outputs[1:])


def owned(value: Tensor, inputs: Sequence[Any]) -> Tensor:
    """A result with memory of its own: writing to an operator's result must never reach one of its inputs.

    Kernels may return views, which programs use as they are.
    """
    if value._is_view():
        base = value._base
        shared = not value.is_contiguous() or any(
            t is not None and (base is t or base is t._base) for t in inputs
        )
    else:
        shared = any(value is t for t in inputs)
    return value.clone(memory_format=torch.contiguous_format) if shared else value


def kernel_outputs(
    definition: OpDef, tensors: Sequence[Any], attrs: dict[str, Any], training: bool, key: int | None
) -> tuple[Tensor, ...]:
    """All outputs on tensors that may require grad, with this operator's gradient policy.

    Integers cannot carry a gradient in torch: what the policy "identity" passes through them, `run_recorded`
    adds.
    """
    inputs = tensors
    if definition.gradient == "zero":
        inputs = [None if tensor is None else tensor.detach() for tensor in tensors]
    outputs = run(definition, inputs, attrs, training, key)
    outputs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    if definition.commit is not None and training:
        outputs = commit_on_backward(definition, tensors, outputs, attrs)
    return outputs


def run_recorded(
    definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any], training: bool, key: int | None
) -> list[tuple[Tensor, Tensor | None]]:
    """Run under record: (value, gradient handle or None) of every output."""
    handles = [None if a is None else (a._t if a._g is None else a._g) for a in arrays]
    if definition.opaque:
        # Called once, on the values themselves: no gradient passes through integers.
        handles = [
            h if h is None or h.dtype is a._t.dtype else a._t for a, h in zip(arrays, handles, strict=True)
        ]
    sources = [h for h in handles if h is not None and h.requires_grad]
    try:
        if not sources:
            outputs = run(definition, handles, attrs, training, key)
            outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
            return [(out if definition.mutates else owned(out, handles), None) for out in outputs]
        shadowed = any(
            h is not None and h.dtype is not a._t.dtype for a, h in zip(arrays, handles, strict=True)
        )
        if shadowed:
            plain = run(definition, [None if a is None else a._t for a in arrays], attrs, training, key)
            values: Any = (plain,) if isinstance(plain, Tensor) else tuple(plain)
            shadows = _shadow_outputs(definition, handles, values, attrs, training, key)
            # A float32 shadow may round a large integer: a result that is no shadow has its own values.
            linked = tuple(
                through(v, s) if s.requires_grad and v.is_floating_point() else s
                for v, s in zip(values, shadows, strict=True)
            )
        else:
            linked = tuple(
                owned(out, handles) for out in kernel_outputs(definition, handles, attrs, training, key)
            )
            values = linked
    except Exception as error:
        reraise(definition, error, handles)
    if definition.gradient == "identity" and not linked[0].requires_grad:
        linked = (through(values[0], sources[0]), *linked[1:])
    result: list[tuple[Tensor, Tensor | None]] = []
    for value, gradient in zip(values, linked, strict=True):
        if not gradient.requires_grad:
            gradient = zero_link(gradient, sources)
        result.append((value.detach() if value.requires_grad else value, gradient))
    return result


def _shadow_outputs(
    definition: OpDef,
    handles: Sequence[Any],
    values: Sequence[Tensor],
    attrs: dict[str, Any],
    training: bool,
    key: int | None,
) -> tuple[Tensor, ...]:
    """Gradient handles where integer inputs take part: the operator once more, on float shadows of them."""
    if definition.gradient == "zero":
        return tuple(value.detach() for value in values)
    # Operators of the 1.x kind want one type: then the integers beside a shadow are taken as floats too.
    floats = [h if h is None or h.is_floating_point() else h.to(torch.float64) for h in handles]
    for inputs in (handles, floats):
        try:
            return kernel_outputs(definition, inputs, attrs, training, key)
        except (RuntimeError, TypeError):
            continue
    # An operator on integers only (an index, a shift) has no gradient.
    return tuple(value.detach() for value in values)


class Recorded:
    """A value with its gradient handle: of an array, what recorded operators need."""

    __slots__ = ("_g", "_t")

    def __init__(self, value: Tensor, handle: Tensor | None) -> None:
        self._t = value
        self._g = handle


def through_integers(outputs: Sequence[Entry], variables: Sequence[Node]) -> list[int]:
    """The places of the variables whose gradients would pass through integers in this graph.

    Tensors alone cannot do that: `interpret_recorded` can.
    """
    stack: list[Node] = []
    for node in topological(outputs):
        if node.op is not None and node.op.gradient == "identity" and node.specs is not None:
            if not node.specs[0].dtype.is_floating_point:
                stack.append(node)
    reached: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) not in reached and (node.op is None or node.op.gradient != "zero"):
            reached.add(id(node))
            stack.extend(entry.node for entry in node.inputs)
    return [place for place, node in enumerate(variables) if id(node) in reached]


def interpret_recorded(
    outputs: Sequence[Entry], values: dict[int, Any], training: bool, key: int
) -> list[Recorded]:
    """Run a graph node by node as recorded operators: every value has a gradient handle beside it.

    ``values`` maps the ids of variables to arrays. Programs run on one tensor a value and are faster; this is
    the way for graphs and inputs in which integers have gradients.
    """
    results: dict[int, list[Recorded]] = {}

    def at(entry: Any) -> Any:
        node: Node = entry.node
        return values[id(node)] if node.op is None else results[id(node)][entry.index]

    for node in topological(outputs):
        if node.op is None:
            continue
        attrs = {
            name: evaluate(value, lambda entry: tuple(at(entry)._t.shape), lambda entry: at(entry)._t.item())
            for name, value in node.full_attrs.items()
        }
        draw = key + node.draw if node.op.uses_rng else None
        made = run_recorded(node.op, [at(entry) for entry in node.inputs], attrs, training, draw)
        results[id(node)] = [Recorded(value, handle) for value, handle in made]
    return [at(entry) for entry in outputs]
