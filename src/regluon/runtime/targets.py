"""Gradient arrays that a backward kernel may write to itself, so that its result needs no copy.

While backward runs, it offers the arrays of the leaves whose gradients are written, not added. A kernel
takes the one of its leaf, once: where a leaf is used twice, the second gradient has memory of its own, and
torch adds the two into a third. An array is offered only if nothing else holds its memory: no view, no
recorded operator. What two threads write at the same time is the one's or the other's, never a mixture.

The gradient that a function receives may be overwritten as well, if nothing else will read it: `is_spare`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..base.sharing import is_shared

__all__ = ["claimed_elsewhere", "is_spare", "offering", "take"]

_storage_count: Any = getattr(torch._C, "_storage_Use_Count", None)
_count: Any = getattr(Tensor, "_use_count", None)
# Copying less than this costs less than finding out whether that can be spared.
_FEWEST = 4096
# The arrays that are offered in some thread, by the ids of their tensors.
_claims: set[int] = set()
_lock = threading.Lock()


class _Offers(threading.local):
    """What is offered in this thread: arrays by the ids of their leaves, and the ids of the arrays.

    ``taken`` are the arrays that a kernel has taken.
    """

    arrays: dict[int, Tensor] | None = None
    own: frozenset[int] = frozenset()
    taken: tuple[Tensor, ...] = ()


_offers = _Offers()


def _counts(array: Tensor) -> tuple[int, int]:
    """How many hold a tensor and its memory, the caller's own included."""
    return int(_count(array)), int(_storage_count(array.untyped_storage()._cdata))


@functools.cache
def _counts_alone() -> tuple[int, int] | None:
    """The counts of a tensor that only Python holds, None where torch does not tell them."""
    if _count is None or _storage_count is None:
        return None
    array = torch.zeros(1)
    counts = _counts(array)
    view = array.view(1)
    return counts if _counts(array) != counts and view.numel() else None


def _can_be_written(leaf: Tensor, array: Tensor) -> bool:
    alone = _counts_alone()
    if alone is None or leaf.numel() < _FEWEST or array.device.type != "cpu" or array.dtype is not leaf.dtype:
        return False
    return array.is_contiguous() and array.shape == leaf.shape and _counts(array) == alone


@contextmanager
def offering(pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """A scope in which the arrays of these leaves may be taken; inside of another one, none are offered."""
    if _offers.arrays is not None:
        yield
        return
    chosen = {id(leaf): array for leaf, array in pairs if _can_be_written(leaf, array)}
    with _lock:
        chosen = {leaf: array for leaf, array in chosen.items() if id(array) not in _claims}
        own = frozenset(map(id, chosen.values()))
        _claims.update(own)
    _offers.arrays, _offers.own = chosen, own
    try:
        yield
    finally:
        # Kernels write through an address, which torch does not see.
        torch.autograd.graph.increment_version(_offers.taken)
        _offers.arrays, _offers.own, _offers.taken = None, frozenset(), ()
        with _lock:
            _claims.difference_update(own)


def take(leaf: Tensor) -> Tensor | None:
    """The array that this leaf's gradient is to be written to, with all of it, or None."""
    array = _offers.arrays.pop(id(leaf), None) if _offers.arrays else None
    if array is not None:
        _offers.taken = (*_offers.taken, array)
    return array


def claimed_elsewhere(array: Tensor) -> bool:
    """Whether another thread is writing an array: what it writes counts as written later."""
    return id(array) in _claims and id(array) not in _offers.own


# Received gradients ----------------------------------------------------------------

_Received = tuple[int, int, int]


def _received(gradient: Tensor) -> _Received:
    """How many hold a tensor, its memory, and its object of Python."""
    return (*_counts(gradient), sys.getrefcount(gradient))


def _note(gradient: Tensor, seen: list[_Received]) -> None:
    seen.append(_received(gradient))


class _Probe(torch.autograd.Function):
    """Notes the counts of the gradient that it receives."""

    @staticmethod
    def forward(context: Any, data: Tensor, seen: list[_Received]) -> Tensor:
        context.seen = seen
        return data.clone()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        _note(gradient, context.seen)
        return gradient.clone(), None


def _probed(hook: Callable[[Tensor], Any] | None = None) -> _Received:
    """The counts of a gradient that one function gives and another receives, with a hook between them."""
    seen: list[_Received] = []
    with torch.enable_grad():
        value = _Probe.apply(torch.zeros(2, requires_grad=True), seen)  # type: ignore[no-untyped-call]
        if hook is not None:
            value.register_hook(hook)
        _Probe.apply(value, []).sum().backward()  # type: ignore[no-untyped-call]
    return seen[0]


@functools.cache
def _received_alone() -> _Received | None:
    """The counts of a gradient that nothing else holds, None where torch does not tell them apart."""
    if _counts_alone() is None:
        return None
    kept: list[Tensor] = []
    alone = _probed()
    held = [_probed(kept.append), _probed(lambda gradient: kept.append(gradient.detach()))]
    return None if alone in held else alone


def is_spare(gradient: Tensor) -> bool:
    """Whether nothing reads the gradient that a function's backward received once that function is through.

    To be asked in a backward that received ``(gradient,) = gradients``, by that name: what refers to it in
    Python is counted. Where it holds, and the gradient has no gaps, a kernel may write its result there.
    """
    if gradient.device.type != "cpu" or is_shared(gradient):
        return False
    return _received(gradient) == _received_alone()
