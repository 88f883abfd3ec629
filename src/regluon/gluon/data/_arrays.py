"""What the data package needs to know of arrays: their kinds, how they cross processes, and the seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy
import torch

from ...array import NDArray, ndarray
from ...base import config


def batch_kind(samples: Sequence[Any]) -> type[NDArray]:
    """The array class of a batch: that of its samples; for NumPy samples, numbers and lists that of the
    API."""
    for sample in samples:
        if isinstance(sample, ndarray):
            return ndarray
    for sample in samples:
        if isinstance(sample, NDArray):
            return NDArray
    return ndarray if config.is_np_array() or config.api_level() == 2 else NDArray


def wrap(tensor: torch.Tensor, kind: type[NDArray]) -> NDArray:
    """An array of the given kind over ``tensor`` (memory is shared)."""
    return kind._wrap(tensor)


def wrap_numpy(value: numpy.ndarray, kind: type[NDArray]) -> NDArray:
    """An array of the given kind with a copy of a NumPy array and its dtype."""
    return wrap(torch.from_numpy(numpy.array(value, order="C")), kind)


def host_seed() -> int:
    """A fresh non-negative 62-bit seed drawn from the stream that ``mx.random.seed`` sets."""
    from ...base import rng

    return rng.draw_seed()


class Packed(NamedTuple):
    """An array on its way from a worker to the parent: torch moves its memory through shared memory."""

    tensor: torch.Tensor
    is_np: bool


def map_structure(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply ``function`` to the leaves of nested lists, tuples (named ones too) and dicts."""
    if isinstance(value, Packed):
        return function(value)
    if isinstance(value, dict):
        return type(value)((key, map_structure(function, item)) for key, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_structure(function, item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_structure(function, item) for item in value)
    return function(value)


def pack(value: Any) -> Any:
    """Replace the arrays of a batch by what can cross a process border."""

    def leaf(item: Any) -> Any:
        return Packed(item._t.cpu(), isinstance(item, ndarray)) if isinstance(item, NDArray) else item

    return map_structure(leaf, value)


def unpack(value: Any, pin_memory: bool = False) -> Any:
    """Undo `pack`; with ``pin_memory`` the arrays lie in page-locked memory when a GPU is present."""

    def leaf(item: Any) -> Any:
        if not isinstance(item, Packed):
            return item
        tensor = item.tensor.pin_memory() if pin_memory and torch.cuda.is_available() else item.tensor
        return wrap(tensor, ndarray if item.is_np else NDArray)

    return map_structure(leaf, value)
