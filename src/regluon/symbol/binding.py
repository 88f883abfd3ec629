"""Binding a Symbol to arrays: what ``bind``, ``simple_bind`` and ``eval`` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch

from ..base import dtypes
from ..base.device import device
from ..base.errors import MXNetError
from ..runtime.handles import kinds
from .executor import Executor, grad_requests
from .inference import infer_shapes, infer_symbol_types, is_decided

__all__ = ["evaluate", "simple_bind"]


def _shapes(symbol: Any, shapes: Mapping[str, Any], type_dict: Mapping[str, Any]) -> tuple[Any, Any]:
    """((argument and auxiliary shapes), (their types)) for the given input shapes and types."""
    shown = "\n".join(f"{name}: {shape}" for name, shape in shapes.items())
    names = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
    known = {name: shape for name, shape in shapes.items() if name in names}
    try:
        arg_shapes, _, aux_shapes = infer_shapes(symbol._list(), (), known, partial=True)
        types = {name: dtype for name, dtype in type_dict.items() if name in names}
        arg_types, _, aux_types = infer_symbol_types(symbol._list(), (), types, partial=True)
    except (MXNetError, ValueError) as error:
        raise MXNetError(f"simple_bind error. Arguments:\n{shown}\n{error}") from error
    listed = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    pairs = zip(listed, [*arg_shapes, *aux_shapes], strict=True)
    missing = [f"{name}: {shape}" for name, shape in pairs if not is_decided(shape)]
    if missing:
        raise MXNetError(
            f"simple_bind error. Arguments:\n{shown}\nCannot decide shapes for the following arguments: "
            f"{', '.join(missing)}. Please consider providing them as inputs"
        )
    # What nothing is known of is float32.
    filled = [[dtype or numpy.float32 for dtype in group] for group in (arg_types, aux_types)]
    return (arg_shapes, aux_shapes), filled


class _Allocator:
    """Makes the arrays of an executor, or takes them from a buffer or another executor."""

    def __init__(self, symbol: Any, ctx: Any, shared_buffer: Any, shared: Executor | None) -> None:
        self.cls = kinds.np if symbol._kind == "np" else kinds.nd
        self.ctx = ctx
        self.buffer = shared_buffer
        self.shared = shared

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.cls.zeros_on(shape, dtypes.to_torch(dtype), self.ctx)

    def argument(self, name: str, shape: Sequence[int], dtype: Any) -> Any:
        """An argument from the shared buffer, where it is large enough; what is made is kept there."""
        if self.buffer is None:
            return self.zeros(shape, dtype)
        known = self.buffer.get(name)
        size = int(torch.Size(shape).numel())
        if known is None or known.size < size or known._t.dtype is not dtypes.to_torch(dtype):
            self.buffer[name] = self.zeros(shape, dtype)
            return self.buffer[name]
        return self.cls._wrap(known._t.reshape(-1)[:size].view(tuple(shape)), self.ctx)

    def parameter(self, name: str, shape: Sequence[int], dtype: Any, bound: Mapping[str, Any]) -> Any:
        """The array of the other executor, which must have this shape and type."""
        array = bound.get(name)
        if array is None:
            return self.zeros(shape, dtype)
        if tuple(array.shape) != tuple(shape) or array._t.dtype is not dtypes.to_torch(dtype):
            raise MXNetError(
                f"simple_bind: the shared array {name} has shape {array.shape} and type "
                f"{dtypes.to_name(array.dtype)}; this graph needs {tuple(shape)} and {dtypes.to_name(dtype)}"
            )
        return array


def simple_bind(
    symbol: Any,
    ctx: Any,
    grad_req: Any,
    type_dict: Mapping[str, Any] | None,
    shared_arg_names: Sequence[str] | None,
    shared_exec: Executor | None,
    shared_buffer: dict[str, Any] | None,
    shapes: Mapping[str, Any],
) -> Executor:
    """An executor with zeros for all arrays; see `Symbol.simple_bind`."""
    ctx = device(ctx)
    (arg_shapes, aux_shapes), (arg_types, aux_types) = _shapes(symbol, shapes, type_dict or {})
    names, aux_names = symbol.list_arguments(), symbol.list_auxiliary_states()
    requests = grad_requests(grad_req, names)
    allocator = _Allocator(symbol, ctx, shared_buffer, shared_exec)
    shared_names = set(shared_arg_names or ()) if shared_exec is not None else set()
    bound = shared_exec.arg_dict if shared_exec is not None else {}
    gradients = shared_exec.grad_dict if shared_exec is not None else {}
    args: list[Any] = []
    grads: list[Any] = []
    for name, shape, dtype in zip(names, arg_shapes, arg_types, strict=True):
        shared = name in shared_names
        args.append(
            allocator.parameter(name, shape, dtype, bound)
            if shared
            else allocator.argument(name, shape, dtype)
        )
        if requests[name] == "null":
            grads.append(None)
        else:
            grads.append(allocator.parameter(name, shape, dtype, gradients if shared else {}))
    states = shared_exec.aux_dict if shared_exec is not None else {}
    aux = [
        allocator.parameter(name, shape, dtype, states)
        for name, shape, dtype in zip(aux_names, aux_shapes, aux_types, strict=True)
    ]
    return Executor(symbol, ctx, args, grads, requests, aux)


def evaluate(symbol: Any, ctx: Any, arrays: Mapping[str, Any]) -> list[Any]:
    """The outputs for named arrays; see `Symbol.eval`."""
    names, aux_names = symbol.list_arguments(), symbol.list_auxiliary_states()
    missing = [name for name in (*names, *aux_names) if name not in arrays]
    if missing:
        raise MXNetError(
            f"eval needs an array for {', '.join(missing)}; received {', '.join(arrays) or 'none'}"
        )
    context = next(iter(arrays.values())).context if ctx is None and arrays else device(ctx)
    executor = Executor(
        symbol,
        context,
        {name: arrays[name] for name in names},
        None,
        "null",
        {name: arrays[name] for name in aux_names},
    )
    return executor.forward()
