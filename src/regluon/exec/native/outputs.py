"""New tensors for results, made quickly."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["maker"]

# Bytes of a result of which one is kept to make others after.
_SMALL = 65536


def maker(
    shape: tuple[int, ...], dtype: torch.dtype, layout: torch.memory_format = torch.contiguous_format
) -> Callable[[], Tensor]:
    """A function that makes a tensor without values."""
    make = functools.partial(torch.empty, shape, dtype=dtype, device="cpu", memory_format=layout)
    like = make()
    if like.numel() * like.element_size() <= _SMALL:
        # Half the time, since no shape is read.
        return functools.partial(torch.empty_like, like)
    return make
