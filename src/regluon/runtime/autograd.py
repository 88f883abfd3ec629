"""Autograd: scopes that record, backward and grad over torch's engine, and custom Functions."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.errors import MXNetError
from .handles import kinds
from .state import state

__all__ = [
    "Function",
    "backward",
    "get_symbol",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "set_recording",
    "set_training",
    "train_mode",
]

_NOT_IN_GRAPH = (
    "Cannot differentiate node because it is not in a computational graph. You need to set is_recording "
    "to true or "
    "use autograd.record() to save computational graphs for backward. If you want to differentiate the "
    "same graph "
    "twice, you need to pass retain_graph=True to backward."
)
_folding = threading.Lock()


def is_recording() -> bool:
    """True inside ``record()``."""
    return state.recording


def is_training() -> bool:
    """True in train mode: inside ``record()`` or ``train_mode()``."""
    return state.training


def set_recording(is_recording: bool) -> bool:
    """Switch recording; gives what it was."""
    before, state.recording = state.recording, bool(is_recording)
    state.update()
    return before


def set_training(train_mode: bool) -> bool:
    """Switch train mode; gives what it was."""
    before, state.training = state.training, bool(train_mode)
    return before


class _Scope:
    """Sets recording and training inside a ``with``; None leaves a mode as it is."""

    __slots__ = ("_before", "_recording", "_training")

    def __init__(self, recording: bool | None, training: bool | None) -> None:
        self._recording = recording
        self._training = training
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> _Scope:
        self._before.append((state.recording, state.training))
        if self._recording is not None:
            state.recording = self._recording
            state.update()
        if self._training is not None:
            state.training = self._training
        return self

    def __exit__(self, *exception: object) -> None:
        state.recording, state.training = self._before.pop()
        state.update()


def record(train_mode: bool = True) -> _Scope:
    """A scope in which operators are recorded for backward, in train mode unless ``train_mode=False``."""
    return _Scope(True, train_mode)


def pause(train_mode: bool = False) -> _Scope:
    """A scope in which nothing is recorded."""
    return _Scope(False, train_mode)


def train_mode() -> _Scope:
    """A scope in which dropout drops and batch normalization uses the batch, without recording."""
    return _Scope(None, True)


def predict_mode() -> _Scope:
    """A scope in which operators behave as at prediction."""
    return _Scope(None, False)


def mark(array: Any, gradient: Any, request: str) -> None:
    """Make ``array`` a leaf whose gradient goes to ``gradient`` as ``request`` says."""
    if request not in ("write", "add", "null"):
        raise MXNetError(f"a gradient request is 'write', 'add' or 'null'; received {request!r}")
    if request == "null":
        array._g = None
        array._grad = None
        array._request = "null"
        return
    value = array._t
    if value.dtype is torch.bool:
        raise MXNetError("a boolean array cannot have a gradient; convert it with astype('float32') first")
    leaf = value.detach() if value.is_floating_point() else value.to(torch.float64)
    leaf.requires_grad_()
    leaf._regluon_array = weakref.ref(array)  # type: ignore[attr-defined]
    array._g = leaf
    array._grad = gradient
    array._request = request
    array._fresh_grad = False


def mark_variables(variables: Any, gradients: Any, grad_reqs: Any = "write") -> None:
    """Make arrays leaves with the given gradient buffers.

    Parameters
    ----------
    variables, gradients : array or list of arrays
        Leaves and the buffers of the same shapes.
    grad_reqs : str or list of str
        ``"write"``, ``"add"`` or ``"null"``.
    """
    if not isinstance(variables, (list, tuple)):
        variables, gradients = [variables], [gradients]
    requests = [grad_reqs] * len(variables) if isinstance(grad_reqs, str) else list(grad_reqs)
    if not len(variables) == len(gradients) == len(requests):
        raise MXNetError(
            f"mark_variables takes as many gradients and requests as variables ({len(variables)}); received "
            f"{len(gradients)} and {len(requests)}"
        )
    for variable, gradient, request in zip(variables, gradients, requests, strict=True):
        if tuple(variable._t.shape) != tuple(gradient._t.shape):
            raise MXNetError(
                f"a gradient buffer has its variable's shape {variable.shape}; received {gradient.shape}"
            )
        mark(variable, gradient, request)


def _leaves(heads: Sequence[Tensor]) -> list[Tensor]:
    """The marked leaves that the heads depend on."""
    found: dict[int, Tensor] = {}
    seen: dict[Any, None] = {}
    stack: list[Any] = []
    for head in heads:
        if head.grad_fn is None:
            found[id(head)] = head
        else:
            stack.append(head.grad_fn)
    while stack:
        function = stack.pop()
        if function in seen:
            continue
        # Keeping the wrapper in `seen` keeps its identity.
        seen[function] = None
        if type(function).__name__ == "AccumulateGrad":
            leaf = function.variable
            found[id(leaf)] = leaf
            continue
        for following, _ in function.next_functions:
            if following is not None and following not in seen:
                stack.append(following)
    return list(found.values())


def _head_tensors(heads: Any, head_grads: Any) -> tuple[list[Tensor], list[Tensor]]:
    heads = list(heads) if isinstance(heads, (list, tuple)) else [heads]
    if head_grads is None:
        head_grads = [None] * len(heads)
    elif not isinstance(head_grads, (list, tuple)):
        head_grads = [head_grads]
    if len(head_grads) != len(heads):
        raise MXNetError(
            f"expected one head gradient for each of {len(heads)} heads; received {len(head_grads)}"
        )
    tensors, gradients = [], []
    for head, gradient in zip(heads, head_grads, strict=True):
        handle = getattr(head, "_g", None)
        if handle is None:
            raise MXNetError(_NOT_IN_GRAPH)
        tensors.append(handle)
        if gradient is None:
            gradients.append(torch.ones_like(handle))
            continue
        value = gradient._g if gradient._g is not None and state.recording else gradient._t
        if tuple(value.shape) != tuple(handle.shape):
            raise MXNetError(
                f"a head gradient has its head's shape {tuple(handle.shape)}; received {tuple(value.shape)}"
            )
        gradients.append(value.to(handle.dtype))
    return tensors, gradients


def _explained(error: RuntimeError) -> Exception:
    text = str(error)
    if isinstance(error, MXNetError):
        return error
    if "modified by an inplace operation" in text:
        return MXNetError(
            "An array that backward needs was changed in-place (+=, -=, x[:]=, ...) after it was "
            "recorded. Call "
            f"backward before changing it, or write to a copy. torch says: {text}"
        )
    if "second time" in text or "already been freed" in text:
        return MXNetError(_NOT_IN_GRAPH)
    return MXNetError(f"backward failed: {text}")


def backward(heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
    """Compute gradients of the heads and put them into the buffers of the marked arrays that they depend on.

    Parameters
    ----------
    heads : array or list of arrays
        Results of recorded operators.
    head_grads : array, list or None
        Gradients of the heads; None stands for ones.
    retain_graph : bool
        Keep the graph for another backward.
    train_mode : bool
        Accepted for compatibility: each operator's mode was fixed when it was recorded.

    Raises
    ------
    MXNetError
        If a head is not in a recorded graph, the graph was used up by an earlier backward, or an array
        that is
        needed was changed in place.
    """
    tensors, gradients = _head_tensors(heads, head_grads)
    leaves = _leaves(tensors)
    if not leaves:
        raise MXNetError("There are no inputs in computation graph that require gradients.")
    with _Scope(False, train_mode):
        try:
            results = torch.autograd.grad(
                tensors, leaves, gradients, retain_graph=retain_graph, allow_unused=True
            )
        except RuntimeError as error:
            raise _explained(error) from error
    with _folding:
        for leaf, result in zip(leaves, results, strict=True):
            reference = getattr(leaf, "_regluon_array", None)
            array = reference() if reference is not None else None
            if array is not None and array._g is leaf and array._grad is not None:
                _fold(array, result)


def _fold(array: Any, result: Tensor | None) -> None:
    buffer = array._grad._t
    array._fresh_grad = True
    if result is None:
        if array._request != "add":
            buffer.zero_()
    elif array._request == "add":
        buffer.add_(result.to(buffer.dtype))
    else:
        buffer.copy_(result)


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> Any:
    """Gradients of the heads with respect to ``variables``, as new arrays; marked buffers stay as they are.

    Parameters
    ----------
    heads : array or list of arrays
        Results of recorded operators.
    variables : array or list of arrays
        Marked arrays (``attach_grad``).
    head_grads : array, list or None
        Gradients of the heads; None stands for ones.
    retain_graph : bool, optional
        Keep the graph; by default when ``create_graph``.
    create_graph : bool
        Record the gradient computation itself, for gradients of gradients.

    Returns
    -------
    list of arrays, or an array
        A list as long as ``variables``; one array where ``variables`` is one.
    """
    single = not isinstance(variables, (list, tuple))
    chosen = [variables] if single else list(variables)
    if not chosen:
        raise ValueError("grad needs at least one variable; received none")
    tensors, gradients = _head_tensors(heads, head_grads)
    sources = [variable._g for variable in chosen]
    if any(source is None for source in sources):
        raise MXNetError(_NOT_IN_GRAPH)
    with _Scope(create_graph, train_mode):
        try:
            results = torch.autograd.grad(
                tensors,
                sources,
                gradients,
                retain_graph=create_graph if retain_graph is None else retain_graph,
                create_graph=create_graph,
                allow_unused=True,
            )
        except RuntimeError as error:
            raise _explained(error) from error
    made = []
    reachable: set[int] | None = None
    for place, (variable, source, result) in enumerate(zip(chosen, sources, results, strict=True)):
        if result is None:
            if reachable is None:
                reachable = {id(leaf) for leaf in _leaves(tensors)}
            if id(source) not in reachable:
                raise MXNetError(
                    f"Cannot differentiate with respect to the {place}-th variable because it is "
                    f"unreachable from "
                    "the outputs."
                )
            result = torch.zeros_like(source)
        value = result.detach().to(variable._t.dtype)
        array = type(variable)._wrap(value, variable._ctx)
        if result.requires_grad:
            array._g = result
        made.append(array)
    return made[0] if single and type(chosen[0]) is kinds.np else made


def get_symbol(x: Any) -> Any:
    """The recorded computation of ``x`` as a Symbol: not kept here.

    Raises
    ------
    NotImplementedError
        Always: record the computation by hybridizing the block and use ``export(path=None)``.
    """
    raise NotImplementedError(
        "get_symbol() is not available: the recorded graph is torch's. Hybridize the block and call "
        "export(path=None) to get a Symbol"
    )


class Function:
    """A differentiable operation written on arrays: override ``forward`` and ``backward``.

    Each instance is called once. ``save_for_backward`` keeps arrays for backward in ``saved_tensors``.
    """

    def __init__(self) -> None:
        self._used = False
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Keep arrays for ``backward``."""
        self.saved_tensors = args

    def forward(self, *inputs: Any) -> Any:
        """Compute the outputs from arrays; not recorded."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(self, *inputs)")

    def backward(self, *output_grads: Any) -> Any:
        """Compute one gradient per input from the gradients of the outputs."""
        raise NotImplementedError(f"{type(self).__name__} must define backward(self, *output_grads)")

    def __call__(self, *inputs: Any) -> Any:
        if getattr(self, "_used", False):
            raise AssertionError(
                f"Each {type(self).__name__} instance can only be called once; make another instance "
                f"for another call."
            )
        self._used = True
        if state.tracer is not None:
            return state.tracer.custom_function(self, inputs)
        outputs, many = _forward(self, inputs)
        if state.recording:
            handles = [array._t if array._g is None else array._g for array in inputs]
            if any(handle.requires_grad for handle in handles):
                connected = _Custom.apply(self, inputs, outputs, *handles)  # type: ignore[no-untyped-call]
                for output, gradient in zip(outputs, connected, strict=True):
                    output._g = gradient
        return outputs if many else outputs[0]


def _forward(function: Function, inputs: Sequence[Any]) -> tuple[list[Any], bool]:
    with _Scope(False, None):
        outputs = function.forward(*inputs)
    many = isinstance(outputs, (list, tuple))
    made = []
    for output in outputs if many else [outputs]:
        # A new handle: an output may be an input, or kept by the Function.
        made.append(type(output)._wrap(output._t, output._ctx))
    return made, many


class _Custom(torch.autograd.Function):
    """Connects a Function's outputs to its inputs in torch's graph."""

    @staticmethod
    def forward(context: Any, function: Function, inputs: Any, outputs: Any, *handles: Tensor) -> Any:
        context.function, context.inputs, context.count = function, inputs, len(handles)
        context.types = [output._t.dtype for output in outputs]
        values = []
        for output in outputs:
            value = output._t
            values.append(value.view_as(value) if value.is_floating_point() else value.to(torch.float64))
        return tuple(values)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        inputs = context.inputs
        cls = type(inputs[0])
        arrays = []
        for gradient, dtype in zip(gradients, context.types, strict=True):
            array = cls._wrap(gradient.detach().to(dtype), inputs[0]._ctx)
            if gradient.requires_grad:
                array._g = gradient
            arrays.append(array)
        with _Scope(torch.is_grad_enabled() and any(g.requires_grad for g in gradients), None):
            results = context.function.backward(*arrays)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        if len(results) != context.count:
            raise MXNetError(
                f"{type(context.function).__name__}.backward must return one gradient for each of the "
                f"{context.count} inputs; received {len(results)}"
            )
        handed = []
        for result, array in zip(results, inputs, strict=True):
            value = None
            if result is not None:
                value = result._g if result._g is not None else result._t
                handle = array._g if array._g is not None else array._t
                value = value.to(handle.dtype)
            handed.append(value)
        return None, None, None, *handed


def function_operator(function: Function, many: bool) -> Any:
    """A fresh operator that runs a copy of ``function``: what a trace records for a call of it."""
    from ..ops.opdef import OpDef

    def custom(*data: Tensor) -> Any:
        instance = copy.copy(function)
        inputs = []
        for tensor in data:
            array = kinds.nd._wrap(tensor.detach(), None)
            if tensor.requires_grad:
                array._g = tensor
            inputs.append(array)
        outputs, _ = _forward(instance, inputs)
        if any(tensor.requires_grad for tensor in data):
            return tuple(_Custom.apply(instance, inputs, outputs, *data))  # type: ignore[no-untyped-call]
        return tuple(output._t for output in outputs)

    return OpDef("_CustomFunction", custom, {"dynamic": True})
