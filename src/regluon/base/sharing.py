"""Memory that something outside regluon may write to, such as a NumPy array or a DLPack consumer.

torch counts the writes it makes itself (a tensor's version); such outside writes it does not see. What is
computed from a tensor and kept, such as packed weights, must therefore not be kept from shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["is_shared", "mark_shared", "with_own_memory"]

_MARK = "_regluon_shared"


def mark_shared(tensor: Tensor) -> Tensor:
    """Note that something else may write to the memory of ``tensor``; gives the tensor."""
    for each in (tensor, tensor._base):
        if each is not None:
            setattr(each, _MARK, True)
    if tensor.dim():
        # Writing nothing counts as a write, so that whoever keeps something made from it looks again.
        tensor.detach()[:0].zero_()
    return tensor


def is_shared(tensor: Tensor) -> bool:
    """Whether something else may write to the memory of ``tensor``."""
    return hasattr(tensor, _MARK) or (tensor._base is not None and hasattr(tensor._base, _MARK))


def with_own_memory(results: Sequence[Tensor], given: Sequence[Any]) -> list[Tensor]:
    """Results that a caller may write to: one that shares memory is copied.

    It shares memory if it is one of the values ``given`` (other things may be among them), a view of one, or
    of a result before it; or if several of its elements are the same number in memory.
    """
    made: list[Tensor] = []
    known: set[int] | None = None
    # Operators with nothing to do, such as Dropout at prediction, give the tensor that they are given.
    seen = set(map(id, given))
    for tensor in results:
        shared = id(tensor) in seen
        seen.add(id(tensor))
        is_view = tensor._is_view()
        if known is None and is_view:
            known = {_memory(each) for each in (*given, *made) if isinstance(each, Tensor)}
        if known is not None:
            shared = shared or _memory(tensor) in known or (is_view and not tensor.is_contiguous())
        if shared:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        if known is not None:
            known.add(_memory(tensor))
        made.append(tensor)
    return made


def _memory(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        # A packed weight has no memory that others could share.
        return id(tensor)
