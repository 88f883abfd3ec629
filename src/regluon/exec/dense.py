"""Dense layers of a training program: the gradients of large weights are written to their arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..ops.internal import apply_unary
from ..runtime import targets

__all__ = ["dense"]

# With fewer weights, copying their gradients takes less time than a function of Python.
_FEWEST = 1 << 18


class _Dense(torch.autograd.Function):
    """``data weight^T + bias`` of rows."""

    @staticmethod
    def forward(context: Any, data: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        by_data, by_weight, _ = context.needs_input_grad
        # Only what the gradients need: the rest may be written to before they pass.
        context.save_for_backward(data if by_weight else None, weight if by_data else None)
        context.leaf = weight if weight.is_leaf else None
        return functional.linear(data, weight, bias)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        data, weight = context.saved_tensors
        (gradient,) = gradients
        by_data, by_weight, by_bias = context.needs_input_grad
        first = torch.mm(gradient, weight) if by_data else None
        second = None
        if by_weight:
            leaf = None if torch.is_grad_enabled() else context.leaf
            into = None if leaf is None else targets.take(leaf)
            turned = gradient.t()
            second = torch.mm(turned, data) if into is None else torch.mm(turned, data, out=into)
        return first, second, gradient.sum(0) if by_bias else None


def dense(data: Tensor, weight: Tensor, bias: Tensor | None, flatten: bool, kind: str | None) -> Tensor:
    """``kind(data weight^T + bias)``; all but the first axis of the data are made one with ``flatten``."""
    if flatten and data.dim() != 2:
        data = data.flatten(1) if data.dim() > 2 else data.unsqueeze(1)
    types = {data.dtype, weight.dtype} if bias is None else {data.dtype, weight.dtype, bias.dtype}
    if (
        weight.numel() < _FEWEST
        or types != {torch.float32}
        or data.device.type != "cpu"
        or data.dim() < 2
        or not weight.requires_grad
    ):
        return apply_unary(functional.linear(data, weight, bias), kind, in_place=True)
    shape = data.shape
    result: Tensor = _Dense.apply(data.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    result = apply_unary(result, kind, in_place=True)
    return result if len(shape) == 2 else result.view(*shape[:-1], weight.shape[0])
