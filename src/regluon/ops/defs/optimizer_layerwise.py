"""Optimizer steps with one learning rate for each layer: LAMB and LARS (see optimizer.py for the
conventions)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regluon.ops.defs.optimizer import infer_weight, master_step, prepared, update_moments, update_operator
from regluon.ops.opdef import Spec, operator


def _infer_master(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(specs[0].shape, torch.float32)]


def _bias_corrected(
    mean: Tensor, var: Tensor, beta1: float, beta2: float, t: int, correct: bool
) -> tuple[Tensor, Tensor]:
    if not correct:
        return mean, var
    return mean / (1.0 - beta1**t), var / (1.0 - beta2**t)


def lamb_direction(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    t: int,
    bias_correction: bool,
    wd: float,
    rescale: float,
    clip: float,
) -> Tensor:
    update_moments(prepared(grad, rescale, clip), mean, var, beta1, beta2)
    first, second = _bias_corrected(mean, var, beta1, beta2, t, bias_correction)
    return first / (second.sqrt() + epsilon) + wd * weight


def bounded(norm: Tensor, lower: float, upper: float) -> Tensor:
    if lower >= 0:
        norm = norm.clamp(min=lower)
    return norm.clamp(max=upper) if upper >= 0 else norm


def trust_ratio(weight_norm: Tensor, step_norm: Tensor) -> Tensor:
    """Ratio of the two norms, 1 where either is zero."""
    usable = (weight_norm != 0) & (step_norm != 0)
    return torch.where(usable, weight_norm / step_norm, torch.ones_like(weight_norm))


@update_operator("lamb_update_phase1", ("mean", "var"))
@torch.no_grad()
def lamb_update_phase1(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    beta1: float = 0.899999976,
    beta2: float = 0.999000013,
    epsilon: float = 9.99999997e-07,
    t: int,
    bias_correction: bool = True,
    wd: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """First half of LAMB (You et al. 2020): the direction ``mean / (sqrt(var) + epsilon) + wd weight``."""
    return lamb_direction(
        weight,
        grad,
        mean,
        var,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        t=t,
        bias_correction=bias_correction,
        wd=wd,
        rescale=rescale_grad,
        clip=clip_gradient,
    )


@operator("mp_lamb_update_phase1", mutates=("mean", "var"), gradient="zero", infer=_infer_master)
@torch.no_grad()
def mp_lamb_update_phase1(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    weight32: Tensor,
    *,
    beta1: float = 0.899999976,
    beta2: float = 0.999000013,
    epsilon: float = 9.99999997e-07,
    t: int,
    bias_correction: bool = True,
    wd: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """lamb_update_phase1 on the float32 copy of a low-precision weight; the direction is float32."""
    return lamb_direction(
        weight32,
        grad.float(),
        mean,
        var,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        t=t,
        bias_correction=bias_correction,
        wd=wd,
        rescale=rescale_grad,
        clip=clip_gradient,
    )


@update_operator("lamb_update_phase2")
@torch.no_grad()
def lamb_update_phase2(
    weight: Tensor,
    g: Tensor,
    r1: Tensor,
    r2: Tensor,
    *,
    lr: float,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
) -> Tensor:
    """Second half of LAMB: ``weight - lr (r1/r2) g`` with the norms r1 of the weight (kept within the bounds)
    and r2 of the direction; the ratio is 1 where either is zero."""
    ratio = trust_ratio(bounded(r1, lower_bound, upper_bound), r2).reshape(())
    return weight - lr * ratio * g


@update_operator("mp_lamb_update_phase2", ("weight32",))
@torch.no_grad()
def mp_lamb_update_phase2(
    weight: Tensor,
    g: Tensor,
    r1: Tensor,
    r2: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
) -> Tensor:
    """lamb_update_phase2 on the float32 copy of a low-precision weight."""
    ratio = trust_ratio(bounded(r1, lower_bound, upper_bound), r2).reshape(())
    return master_step(weight, weight32, weight32 - lr * ratio * g)


@operator("multi_lars", gradient="zero", infer=infer_weight)
@torch.no_grad()
def multi_lars(
    lrs: Tensor,
    weights_sum_sq: Tensor,
    grads_sum_sq: Tensor,
    wds: Tensor,
    *,
    eta: float,
    eps: float,
    rescale_grad: float = 1.0,
) -> Tensor:
    """Layer-wise learning rates (You et al. 2017): ``lr eta |w| / (|g| + wd |w| + eps)`` from sums of
    squares, or ``lr`` where a norm is zero. All inputs have shape (layers,)."""
    weight_norm, grad_norm = weights_sum_sq.sqrt(), grads_sum_sq.sqrt() * rescale_grad
    scaled = lrs * eta * weight_norm / (grad_norm + wds * weight_norm + eps)
    return torch.where((weight_norm > 0) & (grad_norm > 0), scaled, lrs)
