"""Optimizers that scale every element by a history of its gradients: AdaGrad, AdaDelta, RMSProp, Ftrl,
FTML."""

from __future__ import annotations

import math
from typing import Any

import torch

from regluon.base import config
from regluon.optimizer.momentum import at_level
from regluon.optimizer.optimizer import Optimizer, State

Tensor = torch.Tensor


@Optimizer.register
class AdaGrad(Optimizer):
    """Step divided by the root of the sum of squared gradients.

    Source: Duchi, Hazan, Singer, "Adaptive subgradient methods for online learning and stochastic
    optimization",
    2011. ``eps`` (1.x) stands under the root and decay is separate; ``epsilon`` (2.0) is added to the root.
    """

    def __init__(
        self,
        eps: float | None = None,
        *,
        epsilon: float | None = None,
        learning_rate: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.under_root = eps is not None or (epsilon is None and config.api_level() < 2)
        self.epsilon = eps if eps is not None else at_level(epsilon, 1e-7, 1e-6)

    @property
    def float_stable_eps(self) -> float:
        """The name of epsilon in 1.x."""
        return float(self.epsilon)

    def create_state(self, index: Any, weight: Any) -> State:
        return self._zeros(weight)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        if self.under_root:
            grad = self._gradient(grad)
            state.addcmul_(grad, grad)
            change = grad / (state + self.epsilon).sqrt_()
            weight.sub_(change.add_(weight, alpha=wd), alpha=lr)
            return
        grad = self._decayed(grad, weight, wd)
        state.addcmul_(grad, grad)
        weight.addcdiv_(grad, state.sqrt().add_(self.epsilon), value=-lr)


@Optimizer.register
class GroupAdaGrad(Optimizer):
    """AdaGrad with one history for each row of the weight. Weight decay is not supported."""

    def __init__(
        self,
        eps: float | None = None,
        *,
        epsilon: float | None = None,
        learning_rate: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.epsilon = eps if eps is not None else at_level(epsilon, 1e-5, 1e-6)

    def create_state(self, index: Any, weight: Any) -> State:
        if len(weight.shape) < 2:
            raise ValueError(
                f"GroupAdaGrad needs weights of at least 2 dimensions; received shape {weight.shape}."
            )
        history = torch.zeros((weight.shape[0], 1), dtype=weight._t.dtype, device=weight._t.device)
        return type(weight)._wrap(history, weight._ctx)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        if wd:
            raise ValueError(
                f"GroupAdaGrad does not support weight decay; received wd={wd} for parameter {index}."
            )
        grad = self._gradient(grad)
        state.add_((grad * grad).flatten(1).mean(1, keepdim=True))
        history = state.reshape((-1, *[1] * (weight.dim() - 1)))
        if config.api_level() < 2:
            weight.sub_(grad / (history + self.epsilon).sqrt(), alpha=lr)
        else:
            weight.sub_(grad / (history.sqrt() + self.epsilon), alpha=lr)


@Optimizer.register
class AdaDelta(Optimizer):
    """AdaGrad with decaying histories of gradients and of steps.

    Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012. At API level 1 there is no
    learning rate, and the decay is ``wd * weight``.
    """

    def __init__(
        self,
        rho: float = 0.9,
        epsilon: float | None = None,
        *,
        learning_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=at_level(learning_rate, None, 1.0), **kwargs)
        self.rho = rho
        self.epsilon = at_level(epsilon, 1e-5, 1e-6)

    def create_state(self, index: Any, weight: Any) -> State:
        return (self._zeros(weight), self._zeros(weight))

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        squares, steps = state
        separate = config.api_level() < 2
        grad = self._gradient(grad) if separate else self._decayed(grad, weight, wd)
        squares.mul_(self.rho).addcmul_(grad, grad, value=1 - self.rho)
        change = (steps + self.epsilon).sqrt_() / (squares + self.epsilon).sqrt_() * grad
        steps.mul_(self.rho).addcmul_(change, change, value=1 - self.rho)
        if separate:
            weight.sub_(change.add_(weight, alpha=wd))
        else:
            weight.sub_(change, alpha=lr)


@Optimizer.register
class RMSProp(Optimizer):
    """Step divided by the root of a decaying mean of squared gradients.

    Without ``centered``: Tieleman and Hinton, 2012; with it, and with momentum: Graves, "Generating
    sequences with
    recurrent neural networks", 2013. ``gamma1`` and ``gamma2`` (1.x) are ``rho`` and ``momentum`` (2.0).
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        gamma1: float | None = None,
        gamma2: float | None = None,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        *,
        rho: float | None = None,
        momentum: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.rho = next((value for value in (gamma1, rho) if value is not None), 0.9)
        self.momentum = next((value for value in (gamma2, momentum) if value is not None), 0.9)
        self.centered = centered
        self.epsilon = epsilon
        self.clip_weights = clip_weights

    @property
    def gamma1(self) -> float:
        """The name of rho in 1.x."""
        return float(self.rho)

    @property
    def gamma2(self) -> float:
        """The name of momentum in 1.x."""
        return float(self.momentum)

    def create_state(self, index: Any, weight: Any) -> State:
        if self.centered:
            return (self._zeros(weight), self._zeros(weight), self._zeros(weight))
        state = self._zeros(weight)
        return state if config.api_level() >= 2 else (state,)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        grad = self._decayed_then_clipped(grad, weight, wd)
        if self.centered:
            squares, mean, change = state
            squares.mul_(self.rho).addcmul_(grad, grad, value=1 - self.rho)
            mean.mul_(self.rho).add_(grad, alpha=1 - self.rho)
            change.mul_(self.momentum).sub_(grad / (squares - mean * mean + self.epsilon).sqrt_(), alpha=lr)
            weight.add_(change)
        else:
            squares = state[0] if isinstance(state, tuple) else state
            squares.mul_(self.rho).addcmul_(grad, grad, value=1 - self.rho)
            root = (
                (squares + self.epsilon).sqrt_()
                if config.api_level() < 2
                else squares.sqrt().add_(self.epsilon)
            )
            weight.sub_(grad / root, alpha=lr)
        if self.clip_weights:
            weight.clamp_(-self.clip_weights, self.clip_weights)


@Optimizer.register
class Ftrl(Optimizer):
    """Follow the regularized leader; ``lamda1`` pulls weights to exact zeros.

    Source: McMahan and others, "Ad click prediction: a view from the trenches", 2013.
    """

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.lamda1 = lamda1
        self.beta = beta

    def create_state(self, index: Any, weight: Any) -> State:
        return (self._zeros(weight), self._zeros(weight))

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        sums, squares = state
        grad = self._gradient(grad)
        updated = squares + grad * grad
        sums.add_(grad - (updated.sqrt() - squares.sqrt()) * weight / lr)
        squares.copy_(updated)
        denominator = (squares.sqrt() + self.beta) / lr + wd
        value = (sums.sign() * self.lamda1 - sums) / denominator
        weight.copy_(torch.where(sums.abs() > self.lamda1, value, torch.zeros_like(value)))


@Optimizer.register
class FTML(Optimizer):
    """Follow the moving leader. Source: Zheng and Kwok, "Follow the moving leader in deep learning", 2017."""

    def __init__(
        self,
        beta1: float = 0.6,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        *,
        learning_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=at_level(learning_rate, None, 0.0025), **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_state(self, index: Any, weight: Any) -> State:
        return (self._zeros(weight), self._zeros(weight), self._zeros(weight))

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        previous, squares, sums = state
        grad = self._decayed_then_clipped(grad, weight, wd)
        squares.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        first = (1 - math.pow(self.beta1, count)) / lr
        scale = ((squares / (1 - math.pow(self.beta2, count))).sqrt_() + self.epsilon) * first
        sigma = scale - self.beta1 * previous
        sums.mul_(self.beta1).add_(grad, alpha=1 - self.beta1).sub_(sigma * weight)
        previous.copy_(scale)
        weight.copy_(-sums / scale)
