"""Executor: a Symbol bound to the arrays of its arguments, with forward and backward.

The graph runs as a generated program (`regluon.exec`). A forward in train mode keeps what torch's engine
needs; `backward` puts the gradients into the bound buffers as each argument's request says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

from ..base import config, rng
from ..base.device import device
from ..base.errors import MXNetError
from ..exec import Program, interpret
from ..graph.infer import GraphShapes, has_open_sizes
from ..graph.node import Entry, Node, arguments_of, topological
from ..runtime import autograd
from ..runtime.autograd import _reraise
from ..runtime.gradient import Recorded, interpret_recorded
from ..runtime.handles import kinds
from . import convert
from .monitoring import Watcher

__all__ = ["Executor", "grad_requests"]

_REQUESTS = ("null", "write", "add")


def grad_requests(grad_req: Any, names: Sequence[str]) -> dict[str, str]:
    """The gradient request of every argument from one word, a list in the arguments' order, or a dict.

    An argument that a dict leaves out has no gradient.

    Raises
    ------
    ValueError
        For a request that is none of null, write and add, a list of another length, or another type.
    """
    if isinstance(grad_req, str):
        requests = dict.fromkeys(names, grad_req)
    elif isinstance(grad_req, (list, tuple)):
        if len(grad_req) != len(names):
            raise ValueError(
                f"grad_req has {len(grad_req)} entries, but there are {len(names)} arguments: "
                f"{', '.join(names)}. Give one entry for each, or a dict"
            )
        requests = dict(zip(names, grad_req, strict=True))
    elif isinstance(grad_req, Mapping):
        requests = {name: grad_req.get(name, "null") for name in names}
    else:
        raise ValueError(f"grad_req is a word, a list or a dict of words; received {type(grad_req).__name__}")
    for name, request in requests.items():
        if request not in _REQUESTS:
            raise ValueError(f"grad_req must be in {_REQUESTS}; received {request!r} for {name}")
    return requests


def _named(values: Any, names: Sequence[str], what: str, missing: bool) -> list[Any]:
    """Arrays in the order of ``names`` from a list or a dict; ``missing`` allows absent ones."""
    if values is None:
        values = {} if missing or not names else ()
    if isinstance(values, Mapping):
        found = [values.get(name) for name in names]
        for name, value in zip(names, found, strict=True):
            if value is None and not missing:
                raise ValueError(
                    f"key `{name}` is missing in `{what}`, which has "
                    f"{', '.join(map(str, values)) or 'no keys'}"
                )
    elif isinstance(values, (list, tuple)):
        found = list(values)
        if len(found) != len(names):
            raise ValueError(
                f"Length of {what} does not match the number of arguments: expected {len(names)} "
                f"({', '.join(names)}), received {len(found)}"
            )
    else:
        found = [values]
    for value in found:
        if not isinstance(value, kinds.nd) and not (missing and value is None):
            raise TypeError(
                f"Only accept list of NDArrays or dict of str to NDArray for {what}; received "
                f"{type(value).__name__}"
            )
    return found


class Executor:
    """A graph with arrays for its variables. Made by `Symbol.bind` and `Symbol.simple_bind`.

    Parameters
    ----------
    sym : Symbol
        The graph.
    ctx : Context
        Where results are.
    args : list or dict of arrays
        The arguments, in the order of ``sym.list_arguments()`` or by name. The arrays are used, not copied.
    args_grad : list or dict of arrays, optional
        Buffers for gradients; absent ones get no gradient.
    grad_req : str, list or dict
        ``"write"``, ``"add"`` or ``"null"``: for all, for each, or by name.
    aux_states : list or dict of arrays
        Auxiliary states, in the order of ``sym.list_auxiliary_states()`` or by name.

    Raises
    ------
    ValueError, TypeError
        If arrays are missing or are none, or a request is unknown.
    MXNetError
        If the shapes of the arrays contradict the graph; the message names the node.
    """

    def __init__(
        self,
        sym: Any,
        ctx: Any = None,
        args: Any = None,
        args_grad: Any = None,
        grad_req: Any = "write",
        aux_states: Any = None,
    ) -> None:
        self._symbol = sym
        self._ctx = device(ctx)
        self._entries = convert.copy_entries(sym._list())
        self._order = topological(self._entries)
        for node in self._order:
            node.op = node.op and node.op.bound(self._ctx)
        self._draws = convert.number_draws(self._order)
        arguments, auxiliary = arguments_of(self._order)
        self._arguments, self._auxiliary = arguments, auxiliary
        names, aux_names = [n.name for n in arguments], [n.name for n in auxiliary]
        self.arg_arrays = _named(args, names, "args", False)
        self.grad_arrays = _named(args_grad, names, "args_grad", True)
        self.aux_arrays = _named(aux_states, aux_names, "aux_states", False)
        self._grad_req = grad_requests(grad_req, names)
        np_kind = sym._kind == "np" or any(type(array) is kinds.np for array in self.arg_arrays)
        self._cls = kinds.np if np_kind else kinds.nd
        self._programs: dict[tuple[bool, bool], Program] = {}
        self._monitor: Watcher | None = None
        # Of the last forward: its mode and draw, what backward starts from, and the leaves.
        self._last: tuple[bool, int] | None = None
        self._heads: list[Tensor] | None = None
        self._leaves: list[tuple[int, Tensor]] = []
        self._watched: list[Tensor] = []  # leaves whose gradients only the monitor wants
        self._outputs = self._first_outputs()

    def _first_outputs(self) -> list[Any]:
        """Zeros for the outputs before the first forward; also the check of the shapes."""
        given = {
            id(node): (tuple(array._t.shape), array._t.dtype)
            for node, array in zip(self._variables, self._arrays, strict=True)
        }
        open_nodes = [] if config.is_np_shape() else [node for node in self._order if has_open_sizes(node)]
        shapes = GraphShapes(self._entries, given, zero_is_unknown=bool(open_nodes)).run()
        for node in open_nodes:
            spec = shapes.spec(Entry(node, 0))
            if spec is not None:
                node.attrs = {**node.attrs, "shape": spec.shape}
                node._full = None
        found = [shapes.spec(entry) for entry in self._entries]
        return [
            None if spec is None else self._cls.zeros_on(spec.shape, spec.dtype, self._ctx) for spec in found
        ]

    @property
    def _variables(self) -> list[Node]:
        return [*self._arguments, *self._auxiliary]

    @property
    def _arrays(self) -> list[Any]:
        return [*self.arg_arrays, *self.aux_arrays]

    # What is bound ----------------------------------------------------------------------

    def _dict(self, nodes: Sequence[Node], arrays: Sequence[Any], what: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for node, array in zip(nodes, arrays, strict=True):
            if node.name in result:
                raise ValueError(f"Duplicate names detected among the {what}: {node.name}")
            result[node.name] = array
        return result

    @property
    def arg_dict(self) -> dict[str, Any]:
        """The arguments' arrays by name."""
        return self._dict(self._arguments, self.arg_arrays, "arguments")

    @property
    def grad_dict(self) -> dict[str, Any]:
        """The gradients' arrays by argument name; None where there is none."""
        return self._dict(self._arguments, self.grad_arrays, "arguments")

    @property
    def aux_dict(self) -> dict[str, Any]:
        """The auxiliary states' arrays by name."""
        return self._dict(self._auxiliary, self.aux_arrays, "auxiliary states")

    @property
    def outputs(self) -> list[Any]:
        """The outputs of the last forward (zeros before the first).

        The arrays stay the executor's: each forward gives the same ones new values. `forward` itself gives
        arrays of their own.
        """
        return list(self._outputs)

    @property
    def output_dict(self) -> dict[str, Any]:
        """The outputs of the last forward by name."""
        names = [entry.node.output_name(entry.index) for entry in self._entries]
        if len(set(names)) != len(names):
            raise ValueError(f"Duplicate names detected among the outputs: {', '.join(names)}")
        return dict(zip(names, self._outputs, strict=True))

    # Running ----------------------------------------------------------------------

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[Any]:
        """Compute the outputs; gives them as a list of arrays that later calls leave alone.

        Parameters
        ----------
        is_train : bool
            Dropout drops, batch normalization uses the batch, and `backward` may follow cheaply.
        **kwargs : arrays
            New values for arguments by name, copied into the bound arrays.

        Raises
        ------
        TypeError
            For a name that is no argument.
        ValueError
            For a value of another shape than the bound array, or that is no array.
        """
        if kwargs:
            bound = self.arg_dict
            for name, value in kwargs.items():
                self._feed(bound, name, value)
        key = rng.draw(self._draws) if self._draws else 0
        self._last = (bool(is_train), key)
        self._heads = None
        self._leaves, self._watched = [], []
        results = self._run(bool(is_train), key, bool(is_train) and self._wants_gradients())
        held = self._outputs
        self._outputs = []
        for place, tensor in enumerate(results):
            output = held[place] if place < len(held) else None
            if output is None:
                output = self._cls._wrap(tensor, self._ctx)
            output._rebind(tensor)
            self._outputs.append(output)
        return [self._cls._wrap(tensor, self._ctx) for tensor in results]

    def _feed(self, bound: dict[str, Any], name: str, value: Any) -> None:
        if name not in bound:
            raise TypeError(f"Unknown argument {name}: the arguments are {', '.join(bound)}")
        if not isinstance(value, (kinds.nd, numpy.ndarray)):
            raise ValueError(
                f"only accept keyword argument of NDArrays and numpy.ndarray; {name} is "
                f"{type(value).__name__}"
            )
        if tuple(value.shape) != tuple(bound[name].shape):
            raise ValueError(
                f"Shape not match! Argument {name}, need: {bound[name].shape}, received: {value.shape}. Use "
                "Executor.reshape for other shapes"
            )
        _write(bound[name], value)

    def _wants_gradients(self) -> bool:
        return any(self._wanted(place) for place in range(len(self._arguments)))

    def _wanted(self, place: int) -> bool:
        return self.grad_arrays[place] is not None and self._grad_req[self._arguments[place].name] != "null"

    def _run(self, training: bool, key: int, recording: bool) -> list[Tensor]:
        """The values of the outputs; with ``recording`` also the heads and leaves for backward."""
        tensors = [array._t for array in self._arrays]
        if recording:
            for place in range(len(self._arguments)):
                if self._wanted(place):
                    value = tensors[place]
                    if not value.is_floating_point():
                        return self._run_integers(training, key)
                    leaf = value.detach().requires_grad_()
                    tensors[place] = leaf
                    self._leaves.append((place, leaf))
        if self._monitor is not None:
            if recording:
                self._watch_others(tensors)
            values = {id(node): tensor for node, tensor in zip(self._variables, tensors, strict=True)}
            monitor = self._monitor
            monitor.begin()
            before = monitor.before if recording else None
            results = interpret(
                self._entries, values, training, key, recording, monitor.after, before=before
            )
        else:
            program = self._programs.get((training, recording))
            if program is None:
                program = Program(self._variables, self._entries, training, recording)
                self._programs[training, recording] = program
            results = list(program(key, tensors))
        if recording:
            self._heads = results
        return [_fresh(result, tensors) for result in results]

    def _array(self, tensor: Tensor) -> Any:
        return self._cls._wrap(tensor, self._ctx)

    def _watch_others(self, tensors: list[Tensor]) -> None:
        """Leaves of the arguments without a gradient too: the monitor tells what operators pass to them."""
        self._watched = []
        for place in range(len(self._arguments)):
            if not tensors[place].requires_grad and tensors[place].is_floating_point():
                tensors[place] = tensors[place].detach().requires_grad_()
                self._watched.append(tensors[place])

    def _run_integers(self, training: bool, key: int) -> list[Tensor]:
        """Recorded operators one by one: integer arguments have float shadows for their gradients."""
        values: dict[int, Any] = {}
        self._leaves = []
        for place, (node, array) in enumerate(zip(self._variables, self._arrays, strict=True)):
            value, leaf = array._t, None
            if place < len(self._arguments) and self._wanted(place):
                leaf = value.detach() if value.is_floating_point() else value.to(torch.float64)
                self._leaves.append((place, leaf.requires_grad_()))
            values[id(node)] = Recorded(value, leaf)
        outputs = interpret_recorded(self._entries, values, training, key)
        self._heads = [output._t if output._g is None else output._g for output in outputs]
        return [_fresh(output._t, [array._t for array in self._arrays]) for output in outputs]

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Put the gradients of the arguments into their buffers.

        Parameters
        ----------
        out_grads : array, list or dict by output name, optional
            The gradients of the outputs; ones by default. Outputs that are losses (SoftmaxOutput, MakeLoss,
            the regression outputs) have their own and ignore these.
        is_train : bool
            Accepted for compatibility: the mode is that of the forward.

        Raises
        ------
        MXNetError
            If there was no forward yet, a gradient does not fit its output, or an array that is needed was
            written to since the forward.
        """
        del is_train
        if not self._wants_gradients():
            return
        if self._last is None:
            raise MXNetError("Executor.backward needs a forward(is_train=True) before it; there was none")
        if self._heads is None:
            self._run(*self._last, True)
        assert self._heads is not None
        pairs = [
            (head, gradient)
            for head, gradient in zip(self._heads, self._head_gradients(out_grads), strict=True)
            if head.requires_grad
        ]
        leaves = [leaf for _, leaf in self._leaves]
        results: Sequence[Tensor | None] = [None] * len(leaves)
        if pairs:
            try:
                results = torch.autograd.grad(
                    [head for head, _ in pairs],
                    leaves + self._watched,
                    [gradient for _, gradient in pairs],
                    retain_graph=True,
                    allow_unused=True,
                )
            except RuntimeError as error:
                _reraise(error)
        if self._monitor is not None:
            self._monitor.backward(self._order)
        # Two variables of one name, or arguments that share a buffer, have the sum.
        written: set[int] = set()
        with torch.no_grad():
            for (place, _), result in zip(self._leaves, results, strict=False):
                buffer = self.grad_arrays[place]._t
                if buffer.data_ptr() in written or self._grad_req[self._arguments[place].name] == "add":
                    if result is not None:
                        buffer.add_(result.to(buffer.dtype))
                elif result is None:
                    buffer.zero_()
                else:
                    buffer.copy_(result)
                written.add(buffer.data_ptr())

    def _head_gradients(self, out_grads: Any) -> list[Tensor]:
        heads = self._heads or []
        names = [entry.node.output_name(entry.index) for entry in self._entries]
        if isinstance(out_grads, Mapping):
            unknown = [str(name) for name in out_grads if name not in names]
            if unknown:
                raise MXNetError(
                    f"out_grads names {', '.join(unknown)}, but the outputs are {', '.join(names)}"
                )
            given = [out_grads.get(name) for name in names]
        elif isinstance(out_grads, (list, tuple)):
            given = list(out_grads)
        else:
            given = [None] * len(heads) if out_grads is None else [out_grads]
        if given and len(given) != len(heads):
            raise MXNetError(
                f"out_grads needs one gradient for each of the outputs {', '.join(names)}; received "
                f"{len(given)}"
            )
        result = []
        for name, head, gradient in zip(names, heads, given or [None] * len(heads), strict=True):
            if gradient is None:
                result.append(torch.ones_like(head))
                continue
            value = gradient._t if isinstance(gradient, kinds.nd) else torch.as_tensor(gradient)
            if tuple(value.shape) != tuple(head.shape):
                raise MXNetError(
                    f"out_grads: the gradient of {name} needs its shape {tuple(head.shape)}; received "
                    f"{tuple(value.shape)}"
                )
            result.append(value.to(head.dtype))
        return result

    # Changing what is bound ----------------------------------------------------------------------

    def copy_params_from(
        self, arg_params: Mapping[str, Any], aux_params: Any = None, allow_extra_params: bool = False
    ) -> None:
        """Copy arrays by name into the bound arguments and auxiliary states, converted to their types.

        Raises
        ------
        ValueError
            For a name that is not bound, unless ``allow_extra_params``.
        MXNetError
            For an array of another shape.
        """
        for given, bound, kind, quote in (
            (arg_params, self.arg_dict, "arguments", '"'),
            (aux_params or {}, self.aux_dict, "auxiliary states", ""),
        ):
            for name, array in given.items():
                if name not in bound:
                    if not allow_extra_params:
                        raise ValueError(f"Find name {quote}{name}{quote} that is not in the {kind}")
                    continue
                if tuple(array.shape) != tuple(bound[name].shape):
                    raise MXNetError(
                        f"copy_params_from: {name} is bound with shape {bound[name].shape}; received "
                        f"{tuple(array.shape)}"
                    )
                _write(bound[name], array)

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any
    ) -> Executor:
        """A new executor for other input shapes that shares the arrays of this one.

        An array whose shape stays is the same; a smaller one uses the beginning of the old one's memory; a
        larger one is new.

        Parameters
        ----------
        partial_shaping : bool
            Allow shapes of arguments that are not named to change.
        allow_up_sizing : bool
            Allow arrays that are larger than the old ones.
        **kwargs : tuple
            The new shapes by argument name.

        Raises
        ------
        MXNetError
            If a change is not allowed by the flags, or shapes contradict each other.
        """
        found = self._symbol.infer_shape(**kwargs)
        if found[0] is None:
            raise MXNetError("Executor.reshape: the given shapes do not determine all others")
        arg_shapes, _, aux_shapes = found
        args, grads = [], []
        for node, shape, array, grad in zip(
            self._arguments, arg_shapes, self.arg_arrays, self.grad_arrays, strict=True
        ):
            allowed = partial_shaping or node.name in kwargs
            args.append(_resized(array, shape, node.name, allowed, allow_up_sizing))
            grads.append(None if grad is None else _resized(grad, shape, node.name, True, True))
        aux = [
            _resized(array, shape, node.name, partial_shaping, allow_up_sizing)
            for node, shape, array in zip(self._auxiliary, aux_shapes, self.aux_arrays, strict=True)
        ]
        return Executor(self._symbol, self._ctx, args, grads, self._grad_req, aux)

    def set_monitor_callback(self, callback: Callable[..., Any] | None, monitor_all: bool = False) -> None:
        """Call ``callback(name, array)`` for what every operator computes; None takes it away.

        Each forward tells its outputs, ``<node>_output``, each backward the gradients that it passes to its
        inputs, ``<node>_backward_output``, numbered where there are several. With ``monitor_all`` inputs are
        told too: ``<node>_<input>`` and ``<node>_backward_input<number>``. The graph then runs node by node.

        Raises
        ------
        TypeError
            If ``callback`` cannot be called.
        """
        if callback is None:
            self._monitor = None
            return
        if not callable(callback):
            raise TypeError(f"a monitor callback is callable; received {type(callback).__name__}")
        self._monitor = Watcher(callback, bool(monitor_all), self._array)

    def get_optimized_symbol(self) -> Any:
        """The graph that runs."""
        return type(self._symbol)._of(self._entries)

    def debug_str(self) -> str:
        """The graph as text, and the memory of the bound arrays."""
        arrays = [array for array in (*self._arrays, *self.grad_arrays) if array is not None]
        total = sum(array._t.numel() * array._t.element_size() for array in arrays)
        return f"{self._symbol.debug_str()}Total {total // 2**20} MB allocated\n"


def _fresh(result: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """A result that shares no memory with an argument, without its history."""
    shared = any(
        result.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() for tensor in inputs
    )
    value = result.detach()
    return value.clone() if shared else value


def _write(target: Any, value: Any) -> None:
    with autograd.pause():
        target[:] = value


def _resized(array: Any, shape: tuple[int, ...], name: str, allowed: bool, up_sizing: bool) -> Any:
    """An array of another shape on the same memory where it is large enough."""
    tensor = array._t
    if tuple(tensor.shape) == tuple(shape):
        return array
    if not allowed:
        raise MXNetError(
            f"Shape of unspecified arg: {name} changed from {tuple(tensor.shape)} to {tuple(shape)}. This "
            "can cause the new executor to not share parameters with the old one. Please check for error in "
            "network. If this is intended, set partial_shaping=True to suppress this warning."
        )
    size = 1
    for length in shape:
        size *= length
    if size > tensor.numel():
        if not up_sizing:
            raise MXNetError(
                f"New shape of arg: {name} is larger than original: {tuple(tensor.shape)} to {tuple(shape)}. "
                "First making a big executor and then down sizing it is more efficient than the reverse. If "
                "you really want to up size, set allow_up_sizing=True to enable allocation of new arrays."
            )
        return type(array)._wrap(tensor.new_zeros(shape), array._ctx)
    if not tensor.is_contiguous():
        return type(array)._wrap(tensor.new_zeros(shape), array._ctx)
    return type(array)._wrap(tensor.view(-1)[:size].view(shape), array._ctx)
