"""Optimizer steps as operators.

An update operator returns the new weight and changes its states in place; callers write the result over the
weight with ``out=``. A step is written once for full-precision tensors; the ``mp_`` forms keep a float32
master copy of the weight, and the ``multi_`` forms take the tensors of several weights in one variadic input,
interleaved weight by weight.

Every gradient is first multiplied by ``rescale_grad`` and, when ``clip_gradient`` is not negative, limited to
``[-clip_gradient, clip_gradient]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regluon.ops.opdef import Spec, operator

Step = Callable[..., Tensor]


def _clipped(gradient: Tensor, limit: float) -> Tensor:
    return gradient.clamp(-limit, limit) if limit >= 0 else gradient


def prepared(gradient: Tensor, rescale: float, limit: float) -> Tensor:
    return _clipped(gradient * rescale if rescale != 1.0 else gradient, limit)


def infer_weight(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(specs[0].shape, specs[0].dtype)]


def master_step(weight: Tensor, weight32: Tensor, updated: Tensor) -> Tensor:
    """Keep the full-precision result and return it in the weight's own type."""
    weight32.copy_(updated)
    return updated.to(weight.dtype)


def update_operator(
    name: str, states: Sequence[str] = (), aliases: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return operator(name, aliases=tuple(aliases), mutates=tuple(states), gradient="zero", infer=infer_weight)


# --- stochastic gradient descent ---


def sgd_step(weight: Tensor, grad: Tensor, *, lr: Any, wd: Any, rescale: float, clip: float) -> Tensor:
    step: Tensor = lr * (prepared(grad, rescale, clip) + wd * weight)
    return weight - step


def sgd_momentum_step(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: Any,
    wd: Any,
    momentum: float,
    rescale: float,
    clip: float,
) -> Tensor:
    mom.mul_(momentum).sub_(lr * (prepared(grad, rescale, clip) + wd * weight))
    return weight + mom


@update_operator("sgd_update", aliases=("_sparse_sgd_update",))
@torch.no_grad()
def sgd_update(
    weight: Tensor,
    grad: Tensor,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """``weight - lr (grad + wd weight)``."""
    return sgd_step(weight, grad, lr=lr, wd=wd, rescale=rescale_grad, clip=clip_gradient)


@update_operator("sgd_mom_update", ("mom",), ("_sparse_sgd_mom_update",))
@torch.no_grad()
def sgd_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """``mom = momentum mom - lr (grad + wd weight)``; returns ``weight + mom``."""
    return sgd_momentum_step(
        weight, grad, mom, lr=lr, wd=wd, momentum=momentum, rescale=rescale_grad, clip=clip_gradient
    )


@update_operator("mp_sgd_update", ("weight32",))
@torch.no_grad()
def mp_sgd_update(
    weight: Tensor,
    grad: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """sgd_update on the float32 copy of a low-precision weight."""
    updated = sgd_step(weight32, grad.float(), lr=lr, wd=wd, rescale=rescale_grad, clip=clip_gradient)
    return master_step(weight, weight32, updated)


@update_operator("mp_sgd_mom_update", ("mom", "weight32"))
@torch.no_grad()
def mp_sgd_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """sgd_mom_update on the float32 copy of a low-precision weight."""
    updated = sgd_momentum_step(
        weight32, grad.float(), mom, lr=lr, wd=wd, momentum=momentum, rescale=rescale_grad, clip=clip_gradient
    )
    return master_step(weight, weight32, updated)


def _nesterov(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: float,
    wd: float,
    momentum: float,
    rescale: float,
    clip: float,
) -> Tensor:
    step = lr * (prepared(grad, rescale, clip) + wd * weight)
    mom.mul_(momentum).sub_(step)
    return weight + momentum * mom - step


@update_operator("nag_mom_update", ("mom",))
@torch.no_grad()
def nag_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """Nesterov's momentum: ``step = lr (grad + wd weight)``, ``mom = momentum mom - step``; returns
    ``weight + momentum mom - step``."""
    return _nesterov(
        weight, grad, mom, lr=lr, wd=wd, momentum=momentum, rescale=rescale_grad, clip=clip_gradient
    )


@update_operator("mp_nag_mom_update", ("mom", "weight32"))
@torch.no_grad()
def mp_nag_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """nag_mom_update on the float32 copy of a low-precision weight."""
    updated = _nesterov(
        weight32, grad.float(), mom, lr=lr, wd=wd, momentum=momentum, rescale=rescale_grad, clip=clip_gradient
    )
    return master_step(weight, weight32, updated)


@update_operator("signsgd_update")
@torch.no_grad()
def signsgd_update(
    weight: Tensor,
    grad: Tensor,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """``(1 - lr wd) weight - lr sign(grad)`` (Bernstein et al. 2018)."""
    return (1.0 - lr * wd) * weight - lr * torch.sign(grad)


@update_operator("signum_update", ("mom",))
@torch.no_grad()
def signum_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    wd_lh: float = 0.0,
) -> Tensor:
    """``mom = momentum mom - (1 - momentum) (grad + wd weight)``; returns ``(1 - lr wd_lh) weight + lr
    sign(mom)`` (Bernstein et al. 2018; ``wd_lh`` is the decoupled decay of Loshchilov and Hutter 2017)."""
    mom.mul_(momentum).sub_((1.0 - momentum) * (prepared(grad, rescale_grad, clip_gradient) + wd * weight))
    return (1.0 - lr * wd_lh) * weight + lr * torch.sign(mom)


# --- adaptive methods ---


def update_moments(grad: Tensor, mean: Tensor, var: Tensor, beta1: float, beta2: float) -> None:
    mean.mul_(beta1).add_(grad, alpha=1.0 - beta1)
    var.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)


@update_operator("adam_update", ("mean", "var"), ("_sparse_adam_update",))
@torch.no_grad()
def adam_update(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    lr: float,
    beta1: float = 0.899999976,
    beta2: float = 0.999000013,
    epsilon: float = 9.99999994e-09,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """Adam (Kingma and Ba 2015) without bias correction, which callers put into ``lr``.

    ``g = grad + wd weight`` (clipped after that sum), moments of g, returns
    ``weight - lr mean / (sqrt(var) + epsilon)``.
    """
    total = _clipped(grad * rescale_grad + wd * weight, clip_gradient)
    update_moments(total, mean, var, beta1, beta2)
    return weight - lr * mean / (var.sqrt() + epsilon)


@update_operator("rmsprop_update", ("n",))
@torch.no_grad()
def rmsprop_update(
    weight: Tensor,
    grad: Tensor,
    n: Tensor,
    *,
    lr: float,
    rho: float = 0.949999988,
    epsilon: float = 9.99999994e-09,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    gamma1: float | None = None,
) -> Tensor:
    """RMSProp (Tieleman and Hinton 2012): ``n = rho n + (1 - rho) g^2``; returns
    ``weight - lr g / sqrt(n + epsilon)``, limited to ``clip_weights`` when that is not negative.
    ``gamma1`` is the 1.x name of ``rho`` and wins when given."""
    rho = rho if gamma1 is None else gamma1
    total = _clipped(grad * rescale_grad + wd * weight, clip_gradient)
    n.mul_(rho).addcmul_(total, total, value=1.0 - rho)
    return _clipped(weight - lr * total / (n + epsilon).sqrt(), clip_weights)


@update_operator("rmspropalex_update", ("n", "g", "delta"))
@torch.no_grad()
def rmspropalex_update(
    weight: Tensor,
    grad: Tensor,
    n: Tensor,
    g: Tensor,
    delta: Tensor,
    *,
    lr: float,
    rho: float = 0.949999988,
    momentum: float = 0.899999976,
    epsilon: float = 9.99999994e-09,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
    gamma1: float | None = None,
    gamma2: float | None = None,
) -> Tensor:
    """Centred RMSProp with momentum (Graves 2013, eqs. 38 to 45): ``g`` is the mean gradient, and
    ``delta = momentum delta - lr grad / sqrt(n - g^2 + epsilon)`` is added to the weight.
    ``gamma1`` and ``gamma2`` are the 1.x names of ``rho`` and ``momentum`` and win when given."""
    rho = rho if gamma1 is None else gamma1
    momentum = momentum if gamma2 is None else gamma2
    total = _clipped(grad * rescale_grad + wd * weight, clip_gradient)
    n.mul_(rho).addcmul_(total, total, value=1.0 - rho)
    g.mul_(rho).add_(total, alpha=1.0 - rho)
    delta.mul_(momentum).sub_(lr * total / (n - g * g + epsilon).sqrt())
    return _clipped(weight + delta, clip_weights)


@update_operator("ftml_update", ("d", "v", "z"))
@torch.no_grad()
def ftml_update(
    weight: Tensor,
    grad: Tensor,
    d: Tensor,
    v: Tensor,
    z: Tensor,
    *,
    lr: float,
    beta1: float = 0.600000024,
    beta2: float = 0.999000013,
    epsilon: float = 9.9999999392252903e-09,
    t: int,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_grad: float = -1.0,
) -> Tensor:
    """Follow the moving leader (Zheng and Kwok 2017, algorithm 1); ``t`` counts steps from 1."""
    total = _clipped(grad * rescale_grad + wd * weight, clip_grad)
    v.mul_(beta2).addcmul_(total, total, value=1.0 - beta2)
    scale = (1.0 - beta1**t) / lr * ((v / (1.0 - beta2**t)).sqrt() + epsilon)
    z.mul_(beta1).add_((1.0 - beta1) * total - (scale - beta1 * d) * weight)
    d.copy_(scale)
    return -z / scale


@update_operator("ftrl_update", ("z", "n"), ("_sparse_ftrl_update",))
@torch.no_grad()
def ftrl_update(
    weight: Tensor,
    grad: Tensor,
    z: Tensor,
    n: Tensor,
    *,
    lr: float,
    lamda1: float = 0.00999999978,
    beta: float = 1.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """Follow the regularised leader, per coordinate (McMahan et al. 2013, algorithm 1); ``lamda1`` is the L1
    and ``wd`` the L2 strength."""
    total = prepared(grad, rescale_grad, clip_gradient)
    before = n.sqrt()
    n.addcmul_(total, total)
    root = n.sqrt()
    z.add_(total - (root - before) * weight / lr)
    step = (torch.sign(z) * lamda1 - z) / ((beta + root) / lr + wd)
    return torch.where(z.abs() > lamda1, step, torch.zeros_like(step))


@update_operator("_sparse_adagrad_update", ("history",))
@torch.no_grad()
def adagrad_update(
    weight: Tensor,
    grad: Tensor,
    history: Tensor,
    *,
    lr: float,
    epsilon: float = 1.00000001e-07,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """AdaGrad (Duchi et al. 2011): ``history += g^2``; returns ``weight - lr (g / sqrt(history + epsilon) +
    wd weight)``."""
    total = prepared(grad, rescale_grad, clip_gradient)
    history.addcmul_(total, total)
    return weight - lr * (total / (history + epsilon).sqrt() + wd * weight)


@update_operator("_contrib_group_adagrad_update", ("history",))
@torch.no_grad()
def group_adagrad_update(
    weight: Tensor,
    grad: Tensor,
    history: Tensor,
    *,
    lr: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    epsilon: float = 9.99999975e-06,
) -> Tensor:
    """AdaGrad with one history value for each row: ``history += mean(g^2)`` over the row."""
    total = prepared(grad, rescale_grad, clip_gradient)
    rows = total.flatten(1).square().mean(1)
    history.add_(rows.reshape(history.shape))
    scale = (history.reshape(-1, *(1,) * (weight.dim() - 1)) + epsilon).sqrt()
    return weight - lr * total / scale


# --- decoupled weight decay: AdamW and AdaBelief ---


def decoupled_step(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    rescale: Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    wd: float,
    eta: float,
    clip: float,
    belief: bool,
    scale_gradient: bool = False,
) -> Tensor:
    """One AdamW or AdaBelief step; nothing changes when ``rescale`` is zero, infinite or not a number.

    AdaBelief adds its weight decay to the gradient (before clipping), AdamW subtracts it from the weight.
    The choice is made with ``torch.where``, so that no value has to come back from the device.
    """
    factor = rescale.reshape(()).to(weight.dtype)
    usable = torch.isfinite(factor) & (factor != 0)
    total = _clipped(grad * factor + wd * weight if belief else grad * factor, clip)
    new_mean = beta1 * mean + (1.0 - beta1) * total
    if belief:
        new_var = beta2 * var + (1.0 - beta2) * (total - new_mean).square() + epsilon
    else:
        new_var = beta2 * var + (1.0 - beta2) * total.square()
    step = lr * new_mean / (new_var.sqrt() + epsilon)
    updated = weight - eta * (step if belief else step + wd * weight)
    mean.copy_(torch.where(usable, new_mean, mean))
    var.copy_(torch.where(usable, new_var, var))
    if scale_gradient:
        grad.copy_(torch.where(usable, total, grad))
    return torch.where(usable, updated, weight)


def _single_decoupled(name: str, belief: bool, source: str) -> tuple[Any, Any]:
    """Define the plain and the mixed-precision form of one rule."""

    def plain(
        weight: Tensor,
        grad: Tensor,
        mean: Tensor,
        var: Tensor,
        rescale_grad: Tensor,
        *,
        lr: float,
        beta1: float = 0.899999976,
        beta2: float = 0.999000013,
        epsilon: float = 9.99999994e-09,
        wd: float = 0.0,
        eta: float,
        clip_gradient: float = -1.0,
    ) -> Tensor:
        options: dict[str, Any] = {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
            "wd": wd,
            "eta": eta,
        }
        with torch.no_grad():
            return decoupled_step(
                weight,
                grad,
                mean,
                var,
                rescale_grad,
                clip=clip_gradient,
                belief=belief,
                scale_gradient=True,
                **options,
            )

    def mixed(
        weight: Tensor,
        grad: Tensor,
        mean: Tensor,
        var: Tensor,
        weight32: Tensor,
        rescale_grad: Tensor,
        *,
        lr: float,
        beta1: float = 0.899999976,
        beta2: float = 0.999000013,
        epsilon: float = 9.99999994e-09,
        wd: float = 0.0,
        eta: float,
        clip_gradient: float = -1.0,
    ) -> Tensor:
        options: dict[str, Any] = {
            "lr": lr,
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
            "wd": wd,
            "eta": eta,
        }
        with torch.no_grad():
            updated = decoupled_step(
                weight32, grad.float(), mean, var, rescale_grad, clip=clip_gradient, belief=belief, **options
            )
            return master_step(weight, weight32, updated)

    plain.__name__, mixed.__name__ = f"{name}_update", f"mp_{name}_update"
    plain.__doc__ = (
        f"{source}: ``weight - eta (lr mean / (sqrt(var) + epsilon){'' if belief else ' + wd weight'})``, "
        "without bias "
        f"correction{'; wd weight is added to the gradient' if belief else ''}.  "
        "``rescale_grad`` is a tensor of one element; when it is zero, infinite or not a number the step is "
        "skipped. "
        " The gradient is left rescaled and clipped."
    )
    mixed.__doc__ = f"{source} on the float32 copy of a low-precision weight; see _{name}_update."
    return (
        update_operator(f"_{name}_update", ("grad", "mean", "var"))(plain),
        update_operator(f"_mp_{name}_update", ("mean", "var", "weight32"))(mixed),
    )


adamw_update, mp_adamw_update = _single_decoupled(
    "adamw", False, "Adam with decoupled weight decay (Loshchilov and Hutter 2019)"
)
adabelief_update, mp_adabelief_update = _single_decoupled("adabelief", True, "AdaBelief (Zhuang et al. 2020)")
