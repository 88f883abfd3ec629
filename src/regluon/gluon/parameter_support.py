"""What parameters are built from: contexts, partly known shapes, copies, and a scope without recording."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regluon.array import NDArray
from regluon.base.device import Context, current_context
from regluon.base.device import device as as_device
from regluon.gluon.parameter_errors import ParameterValueError
from regluon.runtime.state import state

# Serialises the finishing of deferred initialisations.
INITIALISING = threading.RLock()
GRADIENT_REQUESTS = ("write", "add", "null")
STORAGE_CODES = {"default": 0, "row_sparse": 1, "csr": 2}


class Eager:
    """A scope in which operators run at once: not recorded, not traced, and not in train mode."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = (state.recording, state.training, state.tracer, state.amp)
        state.recording, state.training, state.tracer, state.amp = False, False, None, None
        state.update()

    def __exit__(self, *exception: object) -> None:
        state.recording, state.training, state.tracer, state.amp = self._before
        state.update()


def as_contexts(ctx: Any, device: Any = None) -> list[Context]:
    """Make a list of contexts out of None, one context or a sequence of contexts."""
    chosen = ctx if ctx is not None else device
    if chosen is None:
        return [current_context()]
    if isinstance(chosen, Context):
        return [chosen]
    contexts = [as_device(one) for one in (chosen if isinstance(chosen, list | tuple) else [chosen])]
    if not contexts:
        raise ParameterValueError(
            "At least one context is needed to hold a parameter; received an empty list."
        )
    return contexts


def shape_is_known(shape: tuple[int, ...] | None) -> bool:
    """Tell whether every size of ``shape`` is known (0 and -1 stand for unknown)."""
    return shape is not None and all(size > 0 for size in shape)


def merge_shapes(known: tuple[int, ...], given: tuple[int, ...]) -> tuple[int, ...] | None:
    """Unify two partly known shapes; None when they contradict each other."""
    if len(known) != len(given):
        return None
    merged = []
    for first, second in zip(known, given, strict=True):
        if first > 0 and second > 0 and first != second:
            return None
        merged.append(second if first <= 0 < second else first)
    return tuple(merged)


def copied(array: NDArray, context: Context, dtype: torch.dtype | None = None) -> NDArray:
    """A copy with its own memory on a context, perhaps of another type."""
    tensor = array._t.to(device=context.torch, dtype=dtype or array._t.dtype, copy=True)
    twin: NDArray = type(array)._wrap(tensor, context)
    return twin


def as_shape(shape: Any) -> tuple[int, ...] | None:
    """A shape as a tuple of int: from None, a number or a sequence; 0 and -1 stand for unknown sizes."""
    if shape is None:
        return None
    if isinstance(shape, int | np.integer):
        shape = (shape,)
    sizes = tuple(int(size) for size in shape)
    for size in sizes:
        if size < -1:
            raise ParameterValueError(
                f"A size must be at least 1, or 0 or -1 for unknown; received the shape {sizes}."
            )
    return sizes


def described(init: Any) -> str | None:
    """Text form of an initializer, as Symbol attributes and :class:`InitDesc` carry it."""
    if init is None or isinstance(init, str):
        return init
    dumps = getattr(init, "dumps", None)
    return dumps() if dumps is not None else None


def load_all(pairs: Sequence[tuple[Any, Any]], ctx: Any, cast_dtype: bool, dtype_source: str) -> None:
    """Give parameters their arrays from a file: all of them, or none where one does not fit."""
    for parameter, array in pairs:
        parameter._check_load(array, ctx, cast_dtype, dtype_source)
    for parameter, array in pairs:
        parameter._load_init(array, ctx, cast_dtype=cast_dtype, dtype_source=dtype_source)
