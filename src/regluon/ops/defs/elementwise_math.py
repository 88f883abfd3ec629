"""Mathematics that torch lacks, or gives another gradient or rounding rule than MXNet.

Everything here is differentiable twice where the function is, and runs on meta tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# The largest number below one half, by type: adding it rounds halves away from zero without the double
# rounding that adding 0.5 to 0.49999997 would suffer.
_BELOW_HALF = {
    torch.float16: 0.5 - 2.0**-12,
    torch.bfloat16: 0.5 - 2.0**-9,
    torch.float32: 0.5 - 2.0**-25,
    torch.float64: 0.5 - 2.0**-54,
}


def round_half_away(data: Tensor) -> Tensor:
    """Round to the nearest integer, halves away from zero."""
    return torch.copysign(torch.floor(torch.abs(data) + _BELOW_HALF[data.dtype]), data)


def round_half_down(data: Tensor) -> Tensor:
    """Round to the nearest integer, halves to the lower one."""
    lower = torch.floor(data)
    return torch.where(data - lower > 0.5, lower + 1.0, lower)


def _cbrt(data: Tensor) -> Tensor:
    return torch.copysign(torch.pow(torch.abs(data), 1.0 / 3.0), data)


class _Cbrt(Function):
    """Cube root whose derivative at 0 is inf instead of nan."""

    @staticmethod
    def forward(ctx: Any, data: Tensor) -> Tensor:
        ctx.save_for_backward(data)
        return _cbrt(data)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (data,) = ctx.saved_tensors
        root = cbrt(data)
        return gradient / (3.0 * root * root)


def cbrt(data: Tensor) -> Tensor:
    """Real cube root, also of negative numbers."""
    result: Tensor = _Cbrt.apply(data) if data.requires_grad else _cbrt(data)  # type: ignore[no-untyped-call]
    return result


def digamma(data: Tensor) -> Tensor:
    """Logarithmic derivative of the gamma function; inf at 0 and at the negative integers."""
    pole = (data <= 0) & (torch.floor(data) == data)
    return torch.where(pole, math.inf, torch.digamma(data))


def gamma(data: Tensor) -> Tensor:
    """Gamma function ``exp(lgamma(x))`` with the sign that it has left of 0; nan at negative integers."""
    wide = data.to(torch.float64)
    lower = torch.floor(wide)
    negative = (wide < 0) & (torch.remainder(lower, 2.0) == 1.0)
    value = torch.exp(torch.lgamma(wide))
    value = torch.where(negative, -value, value)
    value = torch.where((wide < 0) & (lower == wide), torch.full_like(value, math.nan), value)
    return value.to(data.dtype)


def hard_sigmoid(data: Tensor, alpha: float, beta: float) -> Tensor:
    """``clip(alpha * x + beta, 0, 1)`` with gradient 0 at both edges."""
    line = data * alpha + beta
    if not data.requires_grad:
        return torch.clamp(line, 0.0, 1.0)
    return torch.where((line > 0.0) & (line < 1.0), line, torch.clamp(line.detach(), 0.0, 1.0))


def smooth_l1(data: Tensor, scalar: float) -> Tensor:
    """``(s x)^2 / 2`` where ``|x| < 1 / s^2``, else ``|x| - 1 / (2 s^2)`` (Girshick 2015, with sigma s)."""
    squared = scalar * scalar
    distance = torch.abs(data)
    return torch.where(distance < 1.0 / squared, data * data * (0.5 * squared), distance - 0.5 / squared)


def maximum(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Larger element; a tie sends the whole gradient to ``lhs`` (torch would halve it). nan wins."""
    if lhs.requires_grad or rhs.requires_grad:
        return torch.where((lhs >= rhs) | torch.isnan(lhs), lhs, rhs)
    return torch.maximum(lhs, rhs)


def minimum(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Smaller element; a tie sends the whole gradient to ``lhs``. nan wins."""
    if lhs.requires_grad or rhs.requires_grad:
        return torch.where((lhs <= rhs) | torch.isnan(lhs), lhs, rhs)
    return torch.minimum(lhs, rhs)


def fmax(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Larger element, ignoring nan where the other is a number; a tie belongs to ``lhs``."""
    if lhs.requires_grad or rhs.requires_grad:
        return torch.where((lhs >= rhs) | torch.isnan(rhs), lhs, rhs)
    return torch.fmax(lhs, rhs)


def fmin(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Smaller element, ignoring nan where the other is a number; a tie belongs to ``lhs``."""
    if lhs.requires_grad or rhs.requires_grad:
        return torch.where((lhs <= rhs) | torch.isnan(rhs), lhs, rhs)
    return torch.fmin(lhs, rhs)


def _remainder(function: Callable[[Tensor, Tensor], Tensor], lhs: Tensor, rhs: Tensor) -> Tensor:
    zero = rhs == 0
    # A derivative through a division by 0 would be nan even though the value is replaced, and integers raise.
    if rhs.requires_grad or not rhs.is_floating_point():
        rhs = torch.where(zero, torch.ones_like(rhs), rhs)
    return torch.where(zero, torch.zeros_like(rhs), function(lhs, rhs))


def floor_mod(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Remainder with the sign of the divisor; 0, with gradient 0, where the divisor is 0."""
    return _remainder(torch.remainder, lhs, rhs)


def fmod(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Remainder with the sign of the dividend; 0, with gradient 0, where the divisor is 0."""
    return _remainder(torch.fmod, lhs, rhs)


def floor_divide(lhs: Tensor, rhs: Tensor) -> Tensor:
    """``floor(x / y)``; integers divided by 0 give 0."""
    if lhs.is_floating_point():
        return torch.floor(torch.div(lhs, rhs))
    zero = rhs == 0
    return torch.div(lhs, rhs.masked_fill(zero, 1), rounding_mode="floor").masked_fill(zero, 0)


def integer_divide(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Quotient truncated towards zero, as C divides; a division by 0 gives 0 instead of a crash."""
    zero = rhs == 0
    return torch.div(lhs, rhs.masked_fill(zero, 1), rounding_mode="trunc").masked_fill(zero, 0)


def integer_power(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Power of integers, computed in float64 and truncated, so a negative exponent is allowed."""
    return torch.pow(lhs.to(torch.float64), rhs.to(torch.float64)).to(lhs.dtype)


class _StraightThrough(Function):
    """Forward value ``result``, gradient of the identity on ``data``."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, result: Tensor) -> Tensor:
        return result.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def straight_through(data: Tensor, result: Tensor) -> Tensor:
    """Return ``result`` with the gradient of the identity (the straight-through estimator)."""
    if not data.requires_grad:
        return result
    return _StraightThrough.apply(data, result.detach())  # type: ignore[no-any-return, no-untyped-call]


class _ScaleGradient(Function):
    @staticmethod
    def forward(ctx: Any, data: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return data.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.scale, None


def scale_gradient(data: Tensor, scale: float) -> Tensor:
    """Identity whose gradient is multiplied by ``scale``."""
    if not data.requires_grad:
        return data.clone()
    return _ScaleGradient.apply(data, scale)  # type: ignore[no-any-return, no-untyped-call]


class _LossGradient(Function):
    @staticmethod
    def forward(ctx: Any, data: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return data.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.full_like(gradient, ctx.scale), None


def loss_gradient(data: Tensor, scale: float) -> Tensor:
    """Identity whose gradient is ``scale`` whatever comes from above: ``data`` is a loss."""
    if not data.requires_grad:
        return data.clone()
    return _LossGradient.apply(data, scale)  # type: ignore[no-any-return, no-untyped-call]
