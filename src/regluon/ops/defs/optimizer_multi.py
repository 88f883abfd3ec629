"""Optimizer steps over several weights at once.

The variadic input holds, for each weight in turn, its weight, gradient and states (the ``mp_`` forms end each
group with the float32 copy of the weight); AdamW and AdaBelief add one tensor ``rescale_grad`` at the end,
the ``preloaded_`` forms the tensors ``lrs`` and ``wds``. There is one output for each weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.optimizer import (
    decoupled_step,
    master_step,
    prepared,
    sgd_momentum_step,
    sgd_step,
    update_moments,
)
from regluon.ops.defs.optimizer_layerwise import bounded, lamb_direction, trust_ratio
from regluon.ops.opdef import Floats, Shape, Spec, operator


def _groups(data: Sequence[Tensor], count: int, width: int, extra: int, name: str) -> list[Sequence[Tensor]]:
    """Split the variadic input into one group of ``width`` tensors for each weight."""
    if len(data) != count * width + extra:
        raise MXNetError(
            f"{name}: expected {width} tensors for each of {count} "
            f"weights{f' and {extra} more' if extra else ''}, "
            f"{count * width + extra} inputs; received {len(data)}"
        )
    return [data[index * width : (index + 1) * width] for index in range(count)]


def _per_weight(values: Sequence[float], count: int, what: str, name: str) -> Sequence[float]:
    if len(values) != count:
        raise MXNetError(
            f"{name}: expected {count} values in {what}, one for each weight; received {len(values)}"
        )
    return values


def _multi(name: str, width: int, changes: bool = True, count: str = "num_weights") -> Any:
    """Register an operator over groups of ``width`` inputs, whose states (if any) it ``changes``."""

    def infer(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
        weights = [specs[index * width] for index in range(attrs[count])]
        return [Spec(weight.shape, weight.dtype) for weight in weights]

    return operator(
        name,
        outputs=lambda attrs: attrs[count],
        mutates=("data",) if changes else (),
        gradient="zero",
        infer=infer,
    )


def _run_sgd(
    data: Sequence[Tensor],
    count: int,
    rates: Sequence[Any],
    decays: Sequence[Any],
    *,
    momentum: float | None,
    mixed: bool,
    rescale: float,
    clip: float,
    name: str,
    extra: int = 0,
) -> tuple[Tensor, ...]:
    """One gradient step for each weight, with momentum unless that is None."""
    width = 2 + (momentum is not None) + mixed
    results = []
    with torch.no_grad():
        for group, rate, decay in zip(_groups(data, count, width, extra, name), rates, decays, strict=True):
            weight = group[-1] if mixed else group[0]
            grad = group[1].to(weight.dtype)
            if momentum is None:
                updated = sgd_step(weight, grad, lr=rate, wd=decay, rescale=rescale, clip=clip)
            else:
                updated = sgd_momentum_step(
                    weight, grad, group[2], lr=rate, wd=decay, momentum=momentum, rescale=rescale, clip=clip
                )
            results.append(master_step(group[0], weight, updated) if mixed else updated)
    return tuple(results)


def _multi_sgd(name: str, mixed: bool) -> Any:
    def function(
        *data: Tensor,
        lrs: Floats,
        wds: Floats,
        rescale_grad: float = 1.0,
        clip_gradient: float = -1.0,
        num_weights: int = 1,
    ) -> tuple[Tensor, ...]:
        return _run_sgd(
            data,
            num_weights,
            _per_weight(lrs, num_weights, "lrs", name),
            _per_weight(wds, num_weights, "wds", name),
            momentum=None,
            mixed=mixed,
            rescale=rescale_grad,
            clip=clip_gradient,
            name=name,
        )

    function.__name__ = name
    function.__doc__ = f"{'mp_' if mixed else ''}sgd_update for each weight, with its own rate and decay."
    return _multi(name, 2 + mixed, changes=mixed)(function)


def _multi_sgd_mom(name: str, mixed: bool) -> Any:
    def function(
        *data: Tensor,
        lrs: Floats,
        wds: Floats,
        momentum: float = 0.0,
        rescale_grad: float = 1.0,
        clip_gradient: float = -1.0,
        num_weights: int = 1,
    ) -> tuple[Tensor, ...]:
        return _run_sgd(
            data,
            num_weights,
            _per_weight(lrs, num_weights, "lrs", name),
            _per_weight(wds, num_weights, "wds", name),
            momentum=momentum,
            mixed=mixed,
            rescale=rescale_grad,
            clip=clip_gradient,
            name=name,
        )

    function.__name__ = name
    function.__doc__ = f"{'mp_' if mixed else ''}sgd_mom_update for each weight, with its own rate and decay."
    return _multi(name, 3 + mixed)(function)


def _preloaded_sgd(name: str, mixed: bool) -> Any:
    def function(
        *data: Tensor, rescale_grad: float = 1.0, clip_gradient: float = -1.0, num_weights: int = 1
    ) -> tuple[Tensor, ...]:
        return _run_sgd(
            data,
            num_weights,
            data[-2].unbind(0),
            data[-1].unbind(0),
            momentum=None,
            mixed=mixed,
            rescale=rescale_grad,
            clip=clip_gradient,
            name=name,
            extra=2,
        )

    function.__name__ = name
    function.__doc__ = (
        f"{'mp_' if mixed else ''}sgd_update for each weight; the last two inputs are lrs and wds."
    )
    return _multi(name, 2 + mixed, changes=mixed)(function)


def _preloaded_sgd_mom(name: str, mixed: bool) -> Any:
    def function(
        *data: Tensor,
        momentum: float = 0.0,
        rescale_grad: float = 1.0,
        clip_gradient: float = -1.0,
        num_weights: int = 1,
    ) -> tuple[Tensor, ...]:
        return _run_sgd(
            data,
            num_weights,
            data[-2].unbind(0),
            data[-1].unbind(0),
            momentum=momentum,
            mixed=mixed,
            rescale=rescale_grad,
            clip=clip_gradient,
            name=name,
            extra=2,
        )

    function.__name__ = name
    function.__doc__ = (
        f"{'mp_' if mixed else ''}sgd_mom_update for each weight; the last inputs are lrs and wds."
    )
    return _multi(name, 3 + mixed)(function)


multi_sgd_update = _multi_sgd("multi_sgd_update", mixed=False)
multi_mp_sgd_update = _multi_sgd("multi_mp_sgd_update", mixed=True)
multi_sgd_mom_update = _multi_sgd_mom("multi_sgd_mom_update", mixed=False)
multi_mp_sgd_mom_update = _multi_sgd_mom("multi_mp_sgd_mom_update", mixed=True)
preloaded_multi_sgd_update = _preloaded_sgd("preloaded_multi_sgd_update", mixed=False)
preloaded_multi_mp_sgd_update = _preloaded_sgd("preloaded_multi_mp_sgd_update", mixed=True)
preloaded_multi_sgd_mom_update = _preloaded_sgd_mom("preloaded_multi_sgd_mom_update", mixed=False)
preloaded_multi_mp_sgd_mom_update = _preloaded_sgd_mom("preloaded_multi_mp_sgd_mom_update", mixed=True)


def _multi_decoupled(name: str, belief: bool, mixed: bool) -> Any:
    width = 4 + mixed

    def function(
        *data: Tensor,
        lrs: Floats,
        beta1: float = 0.899999976,
        beta2: float = 0.999000013,
        epsilon: float = 9.99999994e-09,
        wds: Floats,
        etas: Floats,
        clip_gradient: float = -1.0,
        num_weights: int = 1,
    ) -> tuple[Tensor, ...]:
        results = []
        with torch.no_grad():
            for index, group in enumerate(_groups(data, num_weights, width, 1, name)):
                weight = group[-1] if mixed else group[0]
                updated = decoupled_step(
                    weight,
                    group[1].to(weight.dtype),
                    group[2],
                    group[3],
                    data[-1],
                    lr=_per_weight(lrs, num_weights, "lrs", name)[index],
                    beta1=beta1,
                    beta2=beta2,
                    epsilon=epsilon,
                    wd=_per_weight(wds, num_weights, "wds", name)[index],
                    eta=_per_weight(etas, num_weights, "etas", name)[index],
                    clip=clip_gradient,
                    belief=belief,
                )
                results.append(master_step(group[0], weight, updated) if mixed else updated)
        return tuple(results)

    function.__name__ = name
    function.__doc__ = (
        f"The {'AdaBelief' if belief else 'AdamW'} step for each weight, with its own lr, wd and eta; the "
        "last input is "
        "rescale_grad, a tensor of one element."
    )
    return _multi(name, width)(function)


multi_adamw_update = _multi_decoupled("_multi_adamw_update", belief=False, mixed=False)
multi_mp_adamw_update = _multi_decoupled("_multi_mp_adamw_update", belief=False, mixed=True)
multi_adabelief_update = _multi_decoupled("_multi_adabelief_update", belief=True, mixed=False)
multi_mp_adabelief_update = _multi_decoupled("_multi_mp_adabelief_update", belief=True, mixed=True)


LayerStep = Callable[[int, Tensor, Tensor, Tensor, Tensor], Tensor]


def _layerwise(
    data: Sequence[Tensor], count: int, mixed: bool, name: str, step: LayerStep
) -> tuple[Tensor, ...]:
    """Run ``step(index, weight, grad, mean, var)`` for each weight on full-precision tensors."""
    results = []
    with torch.no_grad():
        for index, group in enumerate(_groups(data, count, 4 + mixed, 0, name)):
            weight = group[-1] if mixed else group[0]
            updated = step(index, weight, group[1].to(weight.dtype), group[2], group[3])
            results.append(master_step(group[0], weight, updated) if mixed else updated)
    return tuple(results)


def _multi_lamb(name: str, mixed: bool) -> Any:
    def function(
        *data: Tensor,
        learning_rates: Floats,
        beta1: float = 0.899999976,
        beta2: float = 0.999000013,
        epsilon: float = 9.99999997e-07,
        wds: Floats,
        rescale_grad: float = 1.0,
        lower_bound: float = -1.0,
        upper_bound: float = -1.0,
        clip_gradient: float = -1.0,
        bias_correction: bool = True,
        step_count: Shape,
        num_tensors: int = 1,
    ) -> tuple[Tensor, ...]:
        rates = _per_weight(learning_rates, num_tensors, "learning_rates", name)
        decays = _per_weight(wds, num_tensors, "wds", name)
        counts = _per_weight(step_count, num_tensors, "step_count", name)

        def step(index: int, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor) -> Tensor:
            direction = lamb_direction(
                weight,
                grad,
                mean,
                var,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
                t=int(counts[index]),
                bias_correction=bias_correction,
                wd=decays[index],
                rescale=rescale_grad,
                clip=clip_gradient,
            )
            ratio = trust_ratio(bounded(weight.norm(), lower_bound, upper_bound), direction.norm())
            return weight - rates[index] * ratio * direction

        return _layerwise(data, num_tensors, mixed, name, step)

    function.__name__ = name
    function.__doc__ = (
        "LAMB (You et al. 2020) for each weight, with its own rate, decay and step count (from 1)."
    )
    return _multi(name, 4 + mixed, count="num_tensors")(function)


def _multi_lans(name: str, mixed: bool) -> Any:
    def function(
        *data: Tensor,
        learning_rates: Floats,
        beta1: float = 0.899999976,
        beta2: float = 0.999000013,
        epsilon: float = 9.99999997e-07,
        wds: Floats,
        rescale_grad: float = 1.0,
        lower_bound: float = -1.0,
        upper_bound: float = -1.0,
        clip_gradient: float = -1.0,
        step_count: Shape,
        num_tensors: int = 1,
    ) -> tuple[Tensor, ...]:
        rates = _per_weight(learning_rates, num_tensors, "learning_rates", name)
        decays = _per_weight(wds, num_tensors, "wds", name)
        counts = _per_weight(step_count, num_tensors, "step_count", name)

        def step(index: int, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor) -> Tensor:
            total = prepared(grad * rescale_grad / (grad.norm() * rescale_grad), 1.0, clip_gradient)
            update_moments(total, mean, var, beta1, beta2)
            count = int(counts[index])
            scale = (var / (1.0 - beta2**count)).sqrt() + epsilon
            decay = decays[index] * weight
            with_momentum = mean / (1.0 - beta1**count) / scale + decay
            with_gradient = total / scale + decay
            norm = bounded(weight.norm(), lower_bound, upper_bound)
            first = trust_ratio(norm, with_momentum.norm()) * beta1
            second = trust_ratio(norm, with_gradient.norm()) * (1.0 - beta1)
            return weight - rates[index] * (first * with_momentum + second * with_gradient)

        return _layerwise(data, num_tensors, mixed, name, step)

    function.__name__ = name
    function.__doc__ = (
        'LANS (Zheng et al., "Accelerated Large Batch Optimization of BERT Pretraining in 54 minutes", '
        "2020) for each "
        "weight, with its own rate, decay and step count (from 1)."
    )
    return _multi(name, 4 + mixed, count="num_tensors")(function)


multi_lamb_update = _multi_lamb("_multi_lamb_update", mixed=False)
multi_mp_lamb_update = _multi_lamb("_multi_mp_lamb_update", mixed=True)
multi_lans_update = _multi_lans("_multi_lans_update", mixed=False)
multi_mp_lans_update = _multi_lans("_multi_mp_lans_update", mixed=True)
