"""Memory that something outside regluon may write to, such as a NumPy array or a DLPack consumer.

torch counts the writes it makes itself (a tensor's version); such outside writes it does not see. What is
computed from a tensor and kept, such as packed weights, must therefore not be kept from shared memory.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["is_shared", "mark_shared"]

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
