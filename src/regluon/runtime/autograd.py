"""Autograd: scopes that record, backward and grad over torch's engine, and custom Functions."""

from __future__ import annotations

import copy
import re
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..base.errors import CHANGED_IN_PLACE, MXNetError
from . import targets
from .handles import kinds
from .state import State, state

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
    "Cannot differentiate node because it is not in a computational graph. You need to set is_recording to "
    "true or use autograd.record() to save computational graphs for backward. If you want to differentiate "
    "the same graph twice, you need to pass retain_graph=True to backward."
)
_NOTHING_MARKED = (
    "There are no inputs in computation graph that require gradients. Call attach_grad() on the arrays, or "
    "initialize the parameters, before recording."
)
_USED_UP = f"{_NOT_IN_GRAPH} The graph of this array was used up by an earlier backward."
_folding = threading.Lock()


def is_recording() -> bool:
    """True inside ``record()``."""
    return state.recording


def is_training() -> bool:
    """True in train mode: inside ``record()`` or ``train_mode()``."""
    return state.training


def set_recording(is_recording: bool) -> bool:
    """Switch recording on or off; gives what it was."""
    before, state.recording = state.recording, bool(is_recording)
    state.update()
    return before


def set_training(train_mode: bool) -> bool:
    """Switch train mode on or off; gives what it was."""
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


class _Marked(torch.autograd.Function):
    """A recorded result that is marked as well: its gradient is wanted, and flows on below it."""

    @staticmethod
    def forward(context: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0]


def mark(array: Any, gradient: Any, request: str) -> None:
    """Make ``array`` a leaf whose gradient goes to ``gradient`` as ``request`` says.

    A recorded result of np kind stays in its graph, as in MXNet 2; one of nd kind is cut off, as in 1.x.

    Raises
    ------
    MXNetError
        For an unknown request, a value of a block that is being recorded, or a boolean array.
    """
    if request not in ("write", "add", "null"):
        raise MXNetError(f"a gradient request is 'write', 'add' or 'null'; received {request!r}")
    value = array._value("attach_grad()")
    if request == "null":
        array._g = None
        array._grad = None
        array._request = "null"
        return
    if value.dtype is torch.bool:
        raise MXNetError("a boolean array cannot have a gradient; convert it with astype('float32') first")
    recorded = array._g if type(array) is kinds.np and array._grad is None else None
    if recorded is not None:
        leaf = _Marked.apply(recorded)  # type: ignore[no-untyped-call]
        leaf.grad_fn.tensor = weakref.ref(leaf)
    else:
        leaf = value.detach() if value.is_floating_point() else value.to(torch.float64)
        leaf.requires_grad_()
    leaf._regluon_array = weakref.ref(array)
    array._g = leaf
    if recorded is None:
        array._step = None
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


class _Walk:
    """What the graph below some heads holds: marked tensors, and calls of custom Functions."""

    def __init__(self, heads: Sequence[Tensor]) -> None:
        found: dict[int, Tensor] = {}
        self.customs: list[Any] = []
        seen: set[Any] = set()  # also keeps the wrappers, and so their identity, alive
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
            seen.add(function)
            cls = type(function)
            if cls.__name__ == "AccumulateGrad":
                leaf = function.variable
                found[id(leaf)] = leaf
                continue
            if cls is _MARKED:
                marked = function.tensor()
                if marked is not None:
                    found[id(marked)] = marked
            elif cls is _CUSTOM:
                self.customs.append(function)
            for following, _ in function.next_functions:
                if following is not None and following not in seen:
                    stack.append(following)
        self.leaves = list(found.values())


def _release(heads: Any, walk: _Walk) -> None:
    """Let go of a graph that backward has used up: torch frees what it saved, we what we saved."""
    for function in walk.customs:
        function.function = function.inputs = None
    for head in heads if isinstance(heads, (list, tuple)) else [heads]:
        if head._grad is None:
            head._g = head._step = None
            head._spent = True


def _head_tensors(heads: Any, head_grads: Any, recorded: bool) -> tuple[list[Tensor], list[Tensor]]:
    """The handles of the heads, and numbers with the same gradients: each head times its head gradient.

    torch's own way for given gradients costs half a second at its first use, for an import of sympy.
    ``recorded`` keeps the graph of the head gradients.
    """
    heads = list(heads) if isinstance(heads, (list, tuple)) else [heads]
    if head_grads is None:
        head_grads = [None] * len(heads)
    elif not isinstance(head_grads, (list, tuple)):
        head_grads = [head_grads]
    if not heads:
        raise MXNetError("expected at least one head to differentiate; received none")
    if len(head_grads) != len(heads):
        raise MXNetError(
            f"expected one head gradient for each of {len(heads)} heads; received {len(head_grads)}"
        )
    handles, numbers = [], []
    for head, gradient in zip(heads, head_grads, strict=True):
        if not isinstance(head, kinds.nd):
            raise TypeError(f"a head to differentiate must be an array; received {type(head).__name__}")
        handle = head._g
        if handle is None:
            if head._s is not None:
                # Recorded by hybridize: it says which line asks, and that the block can run op by op.
                head._value("a gradient")
            raise MXNetError(_USED_UP if getattr(head, "_spent", False) else _NOT_IN_GRAPH)
        handles.append(handle)
        if gradient is not None:
            handle = handle * _given(gradient, handle, recorded)
        numbers.append(handle if handle.numel() == 1 else handle.sum())
    return handles, numbers


def _given(gradient: Any, head: Tensor, recorded: bool) -> Tensor:
    """A head gradient from the user, of the head's shape and type."""
    if isinstance(gradient, kinds.nd):
        value = gradient._g if recorded and gradient._g is not None else gradient._t
    else:
        try:
            value = torch.as_tensor(gradient, device=head.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"a head gradient must be an array or None; received {type(gradient).__name__}"
            ) from error
    if tuple(value.shape) != tuple(head.shape):
        raise MXNetError(
            f"a head gradient has its head's shape {tuple(head.shape)}; received {tuple(value.shape)}"
        )
    return value.to(device=head.device, dtype=head.dtype)


_CHANGED = re.compile(r"\[torch\.(?:cuda\.)?(\w+)Tensor \[([\d, ]*)\]\]")


def _described(text: str) -> str:
    """Shape and type of the array that torch's message is about."""
    found = _CHANGED.search(text)
    if found is None:
        return ""
    shape = tuple(int(size) for size in found[2].split(",") if size.strip())
    dtype = str(getattr(torch, found[1].lower(), found[1])).removeprefix("torch.")
    return f" of shape {shape} and type {dtype}"


def _reraise(error: RuntimeError) -> NoReturn:
    """Raise what `_explained` gives, from the error it stands for; the causes of both are kept."""
    found = _explained(error)
    if found is error:
        raise error
    raise found from error


def _explained(error: RuntimeError) -> Exception:
    text = str(error)
    if isinstance(error, (MXNetError, NotImplementedError, RecursionError)):
        return error
    if CHANGED_IN_PLACE in text:
        return MXNetError(
            f"An array{_described(text)} that backward needs was changed in-place (+=, -=, x[:]=, ...) after "
            "it was recorded. Call backward before changing it, or write to a copy."
        )
    if "second time" in text or "already been freed" in text:
        return MXNetError(_USED_UP)
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
        If a head is not in a recorded graph, the graph was used up by an earlier backward, a head gradient
        has another shape than its head, or an array that is needed was changed in place.
    """
    handles, numbers = _head_tensors(heads, head_grads, state.recording)
    walk = _Walk(handles)
    leaves = walk.leaves
    if not leaves:
        raise MXNetError(_NOTHING_MARKED)
    profiler = State.profiler
    begin = 0 if profiler is None else profiler.now()
    found = ((leaf, _array_of(leaf)) for leaf in leaves)
    pairs = [
        (leaf, array._grad._t) for leaf, array in found if array is not None and array._request == "write"
    ]
    with _Scope(False, train_mode), targets.offering(pairs):
        try:
            results = torch.autograd.grad(numbers, leaves, retain_graph=retain_graph, allow_unused=True)
        except RuntimeError as error:
            _reraise(error)
        if profiler is not None:
            profiler.call("backward", begin)
        with _folding:
            _fold(leaves, results)
    if not retain_graph:
        _release(heads, walk)


def _array_of(leaf: Tensor) -> Any:
    """The array whose gradient a leaf is for, or None."""
    reference = getattr(leaf, "_regluon_array", None)
    array = reference() if reference is not None else None
    return array if array is not None and array._g is leaf and array._grad is not None else None


def _fold(leaves: Sequence[Tensor], results: Sequence[Tensor | None]) -> None:
    """Put the gradients of leaves into their arrays."""
    buffers, values = [], []
    for leaf, result in zip(leaves, results, strict=True):
        array = _array_of(leaf)
        if array is None:
            continue
        buffer = array._grad._t
        array._fresh_grad = True
        if result is None:
            if array._request != "add":
                buffer.zero_()
        elif array._request == "add":
            buffer.add_(result.to(buffer.dtype))
        elif result is not buffer and not targets.claimed_elsewhere(buffer):
            buffers.append(buffer)
            values.append(result)
    if buffers:
        torch._foreach_copy_(buffers, values)


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
    list of arrays
        As long as ``variables``, also where ``variables`` is one array.
    """
    chosen = list(variables) if isinstance(variables, (list, tuple)) else [variables]
    if not chosen:
        raise ValueError("grad needs at least one variable; received none")
    retain = create_graph if retain_graph is None else retain_graph
    handles, numbers = _head_tensors(heads, head_grads, create_graph or state.recording)
    sources = [variable._g for variable in chosen]
    if any(source is None for source in sources):
        raise MXNetError(_NOT_IN_GRAPH)
    walk = _Walk(handles)
    with _Scope(create_graph, train_mode):
        try:
            results = torch.autograd.grad(
                numbers, sources, retain_graph=retain, create_graph=create_graph, allow_unused=True
            )
        except RuntimeError as error:
            _reraise(error)
    if not retain:
        _release(heads, walk)
    return _as_arrays(chosen, sources, results, walk)


def _as_arrays(chosen: list[Any], sources: list[Tensor], results: Any, walk: _Walk) -> list[Any]:
    """The gradients that `grad` gives; a variable that the heads do not depend on is an error."""
    made = []
    for place, (variable, source, result) in enumerate(zip(chosen, sources, results, strict=True)):
        if result is None:
            if not any(leaf is source for leaf in walk.leaves):
                raise MXNetError(
                    f"Cannot differentiate with respect to the {place}-th variable because it is "
                    "unreachable from the outputs."
                )
            result = torch.zeros_like(source)
        value = result.detach().to(variable._t.dtype)
        array = type(variable)._wrap(value, variable._ctx)
        if result.requires_grad:
            array._g = result
        made.append(array)
    return made


def get_symbol(x: Any) -> Any:
    """The recorded computation of ``x`` as a Symbol, through hybridized blocks too.

    Its variables, named var0, var1, ..., stand for the arrays that no recorded operator made.

    Raises
    ------
    MXNetError
        If ``x`` was not recorded, its graph was used up by backward, or a custom Function is part of it.
    """
    from .steps import symbol_of

    if not isinstance(x, kinds.nd):
        raise TypeError(f"get_symbol() takes a recorded array; received {type(x).__name__}")
    return symbol_of(x)


class Function:
    """A differentiable operation written on arrays: override ``forward`` and ``backward``.

    Each instance is called once. ``save_for_backward`` keeps arrays for backward in ``saved_tensors``. Inside
    a hybridized block every run of the graph works on a copy of the instance that was recorded.
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
        """Compute one gradient per input (None stands for zeros) from the gradients of the outputs."""
        raise NotImplementedError(f"{type(self).__name__} must define backward(self, *output_grads)")

    def __call__(self, *inputs: Any) -> Any:
        if getattr(self, "_used", False):
            raise AssertionError(
                f"Each {type(self).__name__} instance can only be called once. Please create another "
                "instance for another call."
            )
        self._used = True
        if state.tracer is not None:
            return state.tracer.custom_function(self, inputs)
        outputs, many = _forward(self, inputs)
        if state.recording:
            for place, array in enumerate(inputs):
                if not isinstance(array, kinds.nd):
                    raise TypeError(
                        f"{type(self).__name__}: every input must be an array while recording; input "
                        f"{place} is {type(array).__name__}. Give numbers to __init__ instead"
                    )
            handles = [array._t if array._g is None else array._g for array in inputs]
            if any(handle.requires_grad for handle in handles):
                connected = _Custom.apply(self, inputs, outputs, *handles)  # type: ignore[no-untyped-call]
                for output, gradient in zip(outputs, connected, strict=True):
                    output._g = gradient
        return outputs if many else outputs[0]


class _Suspended:
    """A scope in which arrays are computed at once: neither recorded nor traced."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = state.recording, state.tracer
        state.recording, state.tracer = False, None
        state.update()

    def __exit__(self, *exception: object) -> None:
        state.recording, state.tracer = self._before
        state.update()


def _forward(function: Function, inputs: Sequence[Any]) -> tuple[list[Any], bool]:
    """The outputs as fresh arrays, and whether the Function gave a list of them."""
    with _Suspended():
        outputs = function.forward(*inputs)
    many = isinstance(outputs, (list, tuple))
    made = []
    for output in outputs if many else [outputs]:
        if not isinstance(output, kinds.nd):
            raise TypeError(
                f"{type(function).__name__}.forward must return arrays; received {type(output).__name__}"
            )
        # A new handle: an output may be an input, or kept by the Function.
        made.append(type(output)._wrap(output._t, output._ctx))
    return made, many


class _Custom(torch.autograd.Function):
    """Connects a Function's outputs to its inputs in torch's graph."""

    @staticmethod
    def forward(context: Any, function: Function, inputs: Any, outputs: Any, *handles: Tensor) -> Any:
        context.function, context.inputs = function, inputs
        context.types = [output._t.dtype for output in outputs]
        values = []
        for output in outputs:
            value = output._t
            values.append(value.view_as(value) if value.is_floating_point() else value.to(torch.float64))
        return tuple(values)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        function, inputs = context.function, context.inputs
        if function is None:
            raise MXNetError(_USED_UP)
        cls = type(inputs[0])
        arrays = []
        for gradient, dtype in zip(gradients, context.types, strict=True):
            array = cls._wrap(gradient.detach().to(dtype), inputs[0]._ctx)
            if gradient.requires_grad:
                array._g = gradient
            arrays.append(array)
        with _Scope(torch.is_grad_enabled(), None):
            results = function.backward(*arrays)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        if len(results) != len(inputs):
            raise MXNetError(
                f"{type(function).__name__}.backward must return one gradient for each of the "
                f"{len(inputs)} inputs; received {len(results)}"
            )
        handed = [
            _input_gradient(function, place, result, array)
            for place, (result, array) in enumerate(zip(results, inputs, strict=True))
        ]
        return None, None, None, *handed


_CUSTOM: Any = _Custom._backward_cls  # type: ignore[attr-defined]
_MARKED: Any = _Marked._backward_cls  # type: ignore[attr-defined]


def _input_gradient(function: Function, place: int, result: Any, array: Any) -> Tensor | None:
    """The gradient of one input of a Function as torch wants it."""
    if result is None:
        return None
    name = type(function).__name__
    if not isinstance(result, kinds.nd):
        raise TypeError(
            f"{name}.backward must return arrays or None; gradient {place} is {type(result).__name__}"
        )
    value = result._g if result._g is not None else result._t
    handle = array._g if array._g is not None else array._t
    if value.shape != handle.shape:
        raise MXNetError(
            f"{name}.backward: gradient {place} has its input's shape {tuple(handle.shape)}; received "
            f"{tuple(value.shape)}"
        )
    return value.to(handle.dtype)  # type: ignore[no-any-return]


def function_operator(function: Function, cls: Any, context: Any) -> Any:
    """A fresh operator that runs a copy of ``function``: what a trace records for a call of it."""
    from ..ops.opdef import OpDef

    def custom(*data: Tensor) -> Any:
        instance = copy.copy(function)
        inputs = []
        for tensor in data:
            array = cls._wrap(tensor.detach(), context)
            if tensor.requires_grad:
                array._g = tensor
            inputs.append(array)
        outputs, _ = _forward(instance, inputs)
        if any(tensor.requires_grad for tensor in data):
            return tuple(_Custom.apply(instance, inputs, outputs, *data))  # type: ignore[no-untyped-call]
        return tuple(output._t for output in outputs)

    return OpDef("_CustomFunction", custom, {"dynamic": True, "opaque": True})
