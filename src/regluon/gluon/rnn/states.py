"""States of recurrent layers and cells: their description, and zeros where none are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import ndarray as nd_module
from ... import symbol as symbol_module
from ...array import NDArray, ndarray
from ...base import config, dtypes
from ...base.device import current_context
from ...base.device import device as device_of
from ...runtime.state import state
from ...symbol import Symbol

__all__ = ["made_by", "namespace", "zeros_for"]


def namespace(value: Any) -> Any:
    """The operators for a value (or a list of values): ``mx.sym`` for Symbols, else ``mx.nd``."""
    while isinstance(value, (list, tuple)):
        value = value[0]
    return symbol_module if isinstance(value, Symbol) else nd_module


def made_by(
    func: Callable[..., Any] | None, infos: Sequence[dict[str, Any]], given: dict[str, Any]
) -> list[Any]:
    """Initial states, one for each description, made by ``func(shape=, ...)``; zeros without one."""
    states = []
    for info in infos:
        keywords = {key: value for key, value in {**info, **given}.items() if not key.startswith("__")}
        states.append(_zeros(**keywords) if func is None else func(**keywords))
    return states


def _zeros(
    shape: tuple[int, ...], dtype: Any = "float32", ctx: Any = None, device: Any = None, **unused: Any
) -> Any:
    if unused:
        raise TypeError(
            f"begin_state() got unexpected keyword(s) {', '.join(unused)}; without func it takes "
            "batch_size, dtype and ctx"
        )
    context = ctx if ctx is not None else device
    context = current_context() if context is None else device_of(context)
    kind = ndarray if config.is_np_array() else NDArray
    values = torch.zeros(shape, dtype=dtypes.to_torch(dtype), device=context.torch)
    return kind._wrap(values, context)


def zeros_for(like: Any, batch_axis: int, infos: Sequence[dict[str, Any]]) -> list[Any]:
    """Zeros for each description, of the batch size, type and place of an input.

    Where the input stands for a value, they are computed from it: the graph then serves every batch size.
    """
    if isinstance(like, NDArray) and state.tracer is None:
        tensor, states = like._t, []
        for info in infos:
            shape = list(info["shape"])
            shape[info["__layout__"].find("N")] = tensor.shape[batch_axis]
            states.append(type(like)._wrap(tensor.new_zeros(shape), like._ctx))
        return states
    F, rank = namespace(like), _rank(like, batch_axis)
    one = like
    for axis in range(rank):
        if axis != batch_axis:
            one = F.slice_axis(one, axis=axis, begin=0, end=1)
    one, states, made = F.zeros_like(one), [], {}
    for info in infos:
        sizes, place = tuple(info["shape"]), info["__layout__"].find("N")
        if (sizes, place) not in made:
            start = one
            if (len(sizes), place) != (rank, batch_axis):
                start = F.reshape(one, shape=tuple(-1 if axis == place else 1 for axis in range(len(sizes))))
            others = tuple(axis for axis in range(len(sizes)) if axis != place)
            made[sizes, place] = F.broadcast_axis(start, axis=others, size=tuple(sizes[a] for a in others))
        states.append(made[sizes, place])
    return states


def _rank(like: Any, batch_axis: int) -> int:
    try:
        return len(like.shape)
    except Exception:
        # A Symbol of unknown shape: steps are matrices, sequences have one axis more.
        return 2 if batch_axis == 0 else 3
