"""Adam and its relatives: AdamW, Adamax, Nadam, AdaBelief, LAMB, LANS."""

from __future__ import annotations

import math
from typing import Any

import torch

from regluon.base import config
from regluon.optimizer.optimizer import Optimizer, State, _dense

Tensor = torch.Tensor


class _Moments(Optimizer):
    """Keeps decaying means of the gradient and of its square."""

    def __init__(
        self, learning_rate: float, beta1: float, beta2: float, epsilon: float, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_state(self, index: Any, weight: Any) -> State:
        return (self._zeros(weight), self._zeros(weight))

    def _corrections(self, count: int) -> tuple[float, float]:
        """What the means of the first ``count`` steps are short of: 1 - beta ** count."""
        return 1.0 - math.pow(self.beta1, count), 1.0 - math.pow(self.beta2, count)

    def _accumulate(self, state: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        mean, square = state
        mean.mul_(self.beta1).add_(grad, alpha=1.0 - self.beta1)
        square.mul_(self.beta2).addcmul_(grad, grad, value=1.0 - self.beta2)
        return mean, square


@Optimizer.register
class Adam(_Moments):
    """Adam. Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015.

    ``m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; weight -= rate * m / (sqrt(v) +
    epsilon)``, with
    ``rate = lr * sqrt(1 - beta2^t) / (1 - beta1^t)`` and ``g`` including ``wd * weight``.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.lazy_update = config.api_level() < 2 if lazy_update is None else lazy_update

    def _apply_all(
        self,
        indices: list[Any],
        weights: list[Any],
        grads: list[Any],
        states: list[State],
        lrs: list[float],
        wds: list[float],
        counts: list[int],
    ) -> None:
        groups: dict[Any, tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]] = {}
        for index, weight, grad, state, lr, wd, count in zip(
            indices, weights, grads, states, lrs, wds, counts, strict=True
        ):
            value = weight._t
            if value.dtype not in (torch.float32, torch.float64):
                moments = tuple(part._t for part in state)
                self._apply(index, value, _dense(grad), moments, lr, wd, count)
                continue
            group = groups.setdefault((lr, wd, count, value.dtype, value.device), ([], [], [], []))
            group[0].append(value)
            group[1].append(_dense(grad))
            group[2].append(state[0]._t)
            group[3].append(state[1]._t)
        for (lr, wd, count, *_), (values, gradients, means, squares) in groups.items():
            self._apply_group(values, gradients, means, squares, lr, wd, count)

    def _apply_group(
        self,
        values: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
        lr: float,
        wd: float,
        count: int,
    ) -> None:
        """The same rule for many weights at once, through torch's list kernels."""
        first, second = self._corrections(count)
        changes: Any = gradients
        if self.rescale_grad != 1:
            changes = torch._foreach_mul(gradients, self.rescale_grad)
        decay_first = config.api_level() < 2
        if wd and decay_first:
            changes = torch._foreach_add(changes, values, alpha=wd)
        if self.clip_gradient is not None and self.clip_gradient >= 0:
            changes = torch._foreach_clamp_max(changes, self.clip_gradient)
            torch._foreach_clamp_min_(changes, -self.clip_gradient)
        if wd and not decay_first:
            changes = torch._foreach_add(changes, values, alpha=wd)
        if _FUSED is not None and values[0].device.type == "cpu":
            # torch's kernel divides the root by sqrt(second) before it adds epsilon; here it is added before.
            step = torch.tensor(float(count))
            options = {"lr": lr, "beta1": self.beta1, "beta2": self.beta2, "weight_decay": 0.0}
            eps = self.epsilon / math.sqrt(second)
            _FUSED(
                values, changes, means, squares, [], [step] * len(values), **options, eps=eps, amsgrad=False,
                maximize=False,
            )  # fmt: skip
            # torch counts no write for this kernel; by that count packed copies of weights are made anew.
            torch.autograd.graph.increment_version([*values, *means, *squares])
            return
        torch._foreach_lerp_(means, changes, 1.0 - self.beta1)
        torch._foreach_mul_(squares, self.beta2)
        torch._foreach_addcmul_(squares, changes, changes, 1.0 - self.beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, self.epsilon)
        torch._foreach_addcdiv_(values, means, roots, -lr * math.sqrt(second) / first)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        first, second = self._corrections(count)
        value = weight.float()
        grad = self._decayed_then_clipped(grad.float(), value, wd)
        mean = state[0].float() * self.beta1 + grad * (1.0 - self.beta1)
        square = state[1].float() * self.beta2 + grad * grad * (1.0 - self.beta2)
        state[0].copy_(mean)
        state[1].copy_(square)
        weight.copy_(value - lr * math.sqrt(second) / first * mean / (square.sqrt() + self.epsilon))


# One pass over everything, private to torch; the list kernels do without it.
_FUSED: Any = getattr(torch, "_fused_adam_", None)


@Optimizer.register
class AdamW(_Moments):
    """Adam whose weight decay is not part of the gradient.

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019. ``correct_bias=False``
    leaves out the corrections of the first steps.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        correct_bias: bool = True,
        use_fused_step: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_fused_step=use_fused_step, **kwargs)
        self.correct_bias = correct_bias

    def _rate(self, lr: float, count: int) -> float:
        if not self.correct_bias:
            return lr
        first, second = self._corrections(count)
        return lr * math.sqrt(second) / first

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        mean, square = self._accumulate(state, self._gradient(grad))
        change = mean / (square.sqrt() + self.epsilon)
        rate = self._rate(lr, count)
        # The fused kernel decays the old weight, the other form the new one.
        if wd and self.use_fused_step:
            weight.mul_(1 - rate * wd)
        weight.sub_(change, alpha=rate)
        if wd and not self.use_fused_step:
            weight.mul_(1 - rate * wd)


@Optimizer.register
class AdaBelief(AdamW):
    """Adam with the squared distance of the gradient from its mean in place of its square.

    Source: Zhuang and others, "AdaBelief optimizer: adapting stepsizes by the belief in observed
    gradients", 2020.
    """

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        mean, square = state
        grad = self._clip((grad * self.rescale_grad).add(weight, alpha=wd))
        mean.mul_(self.beta1).add_(grad, alpha=1.0 - self.beta1)
        distance = grad - mean
        square.mul_(self.beta2).addcmul_(distance, distance, value=1.0 - self.beta2).add_(self.epsilon)
        weight.sub_(mean / (square.sqrt() + self.epsilon), alpha=self._rate(lr, count))


@Optimizer.register
class Adamax(_Moments):
    """Adam with the largest gradient in place of the mean square. Source: section 7 of Kingma and Ba,
    2015."""

    def __init__(
        self,
        learning_rate: float = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float | None = None,
        **kwargs: Any,
    ) -> None:
        chosen = epsilon if epsilon is not None else (1e-8 if config.api_level() >= 2 else 0.0)
        super().__init__(learning_rate, beta1, beta2, chosen, **kwargs)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        mean, largest = state
        grad = self._decayed_then_clipped(grad, weight, wd)
        mean.mul_(self.beta1).add_(grad, alpha=1.0 - self.beta1)
        largest.copy_(torch.maximum(self.beta2 * largest, grad.abs()))
        weight.sub_(mean / (largest + self.epsilon), alpha=lr / self._corrections(count)[0])


@Optimizer.register
class Nadam(_Moments):
    """Adam with Nesterov's momentum. Source: Dozat, "Incorporating Nesterov momentum into Adam", 2016."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.schedule_decay = schedule_decay
        #: Product of the momenta so far. One for all weights and advanced by each, as in MXNet.
        self.m_schedule = 1.0

    def _momentum(self, count: int) -> float:
        return self.beta1 * (1.0 - 0.5 * math.pow(0.96, count * self.schedule_decay))

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        grad = self._decayed_then_clipped(grad, weight, wd)
        now, after = self._momentum(count), self._momentum(count + 1)
        self.m_schedule *= now
        following = self.m_schedule * after
        mean, square = self._accumulate(state, grad)
        blend = grad * ((1.0 - now) / (1.0 - self.m_schedule)) + mean * (after / (1.0 - following))
        corrected = square / self._corrections(count)[1]
        weight.sub_(blend / (corrected.sqrt_() + self.epsilon), alpha=lr)


class _Layerwise(_Moments):
    """Scales the step of each layer by the norm of its weight, kept within bounds."""

    def __init__(
        self,
        learning_rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        lower_bound: float | None,
        upper_bound: float | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def _trust(self, weight: Tensor, change: Tensor) -> Tensor:
        norm = weight.norm()
        if self.lower_bound is not None or self.upper_bound is not None:
            norm = norm.clamp(self.lower_bound, self.upper_bound)
        length = change.norm()
        return torch.where((norm == 0) | (length == 0), torch.ones_like(norm), norm / length)


@Optimizer.register
class LAMB(_Layerwise):
    """Adam for large batches, with the step of each layer scaled by the norm of its weight.

    Source: You and others, "Large batch optimization for deep learning: training BERT in 76 minutes", 2020.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, lower_bound, upper_bound, **kwargs)
        self.bias_correction = bias_correction

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        mean, square = self._accumulate(state, self._gradient(grad))
        first, second = self._corrections(count) if self.bias_correction else (1.0, 1.0)
        change = (mean / first) / ((square / second).sqrt_() + self.epsilon)
        if wd:
            change.add_(weight, alpha=wd)
        weight.sub_(change * self._trust(weight, change), alpha=lr)


@Optimizer.register
class LANS(_Layerwise):
    """LAMB with normalised gradients and a Nesterov step.

    Source: Zheng and others, "Accelerated large batch optimization of BERT pretraining in 54 minutes", 2020.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, lower_bound, upper_bound, **kwargs)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        grad = grad * self.rescale_grad
        length = grad.norm()
        grad = self._clip(torch.where(length > 0, grad / length, grad))
        mean, square = self._accumulate(state, grad)
        first, second = self._corrections(count)
        scale = (square / second).sqrt_() + self.epsilon
        by_mean, by_grad = mean / first / scale, grad / scale
        if wd:
            by_mean.add_(weight, alpha=wd)
            by_grad.add_(weight, alpha=wd)
        trust_mean, trust_grad = self._trust(weight, by_mean), self._trust(weight, by_grad)
        weight.sub_(self.beta1 * trust_mean * by_mean + (1 - self.beta1) * trust_grad * by_grad, alpha=lr)
