"""Gradient descent and its relatives: SGD, NAG, Signum, DCASGD, SGLD, LARS, LBSGD."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from regluon.base import config, rng
from regluon.optimizer.optimizer import Optimizer, State, _dense

Tensor = torch.Tensor


def at_level(given: Any, first: Any, second: Any) -> Any:
    """The given value; without one, the default of API level 1 or of level 2, where the two differ."""
    if given is not None:
        return given
    return second if config.api_level() >= 2 else first


_FUSED: Any = getattr(torch, "_fused_sgd_", None)


def _fused(
    values: list[Tensor],
    gradients: list[Tensor],
    moments: list[Tensor],
    lr: float,
    momentum: float,
    wd: float,
    rescale: float,
) -> bool:
    """One pass over the memory by torch's fused kernel, where it can; gives whether it did."""
    tensors = (*values, *gradients, *moments)
    if _FUSED is None or values[0].device.type != "cpu" or not rescale:
        return False
    kind = values[0].dtype
    if not all(tensor.is_contiguous() and tensor.dtype is kind for tensor in tensors):
        return False
    # Its momentum has the rate outside, and ours inside: so it gets ours as what dampens, and a rate of -1.
    _FUSED(
        values, gradients, moments, weight_decay=wd / rescale, momentum=momentum, lr=-1.0,
        dampening=1 + lr * rescale, nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip
    # torch counts no write for this kernel; by that count packed copies of weights are made anew.
    torch.autograd.graph.increment_version([*values, *moments])
    return True


@Optimizer.register
class SGD(Optimizer):
    """Stochastic gradient descent with momentum.

    With g the rescaled, clipped gradient plus ``wd * weight``: ``m = momentum * m - lr * g; weight += m``.

    Parameters
    ----------
    learning_rate : float
        0.01 at API level 1, 0.1 at level 2.
    momentum : float
        Share of the last step that is kept.
    lazy_update : bool
        Update only the rows that a row_sparse gradient has; dense gradients ignore it.
    multi_precision : bool
        Keep a float32 copy of low-precision weights.
    """

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool | None = None,
        *,
        learning_rate: float | None = None,
        multi_precision: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=at_level(learning_rate, None, 0.1), multi_precision=multi_precision, **kwargs
        )
        self.momentum = momentum
        self.lazy_update = at_level(lazy_update, True, False)

    def create_state(self, index: Any, weight: Any) -> State:
        return self._zeros(weight) if self.momentum != 0.0 else None

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
        # Weights that share rate and decay go through torch's list kernels: one call for all of them.
        groups: dict[Any, tuple[list[Tensor], list[Tensor], list[Tensor]]] = {}
        for index, weight, grad, state, lr, wd, count in zip(
            indices, weights, grads, states, lrs, wds, counts, strict=True
        ):
            value = weight._t
            if self.clip_gradient is not None or value.dtype not in (torch.float32, torch.float64):
                moment = None if state is None else state._t
                self._apply(index, value, _dense(grad), moment, lr, wd, count)
                continue
            group = groups.setdefault((lr, wd, value.dtype, value.device, state is None), ([], [], []))
            group[0].append(value)
            group[1].append(_dense(grad))
            if state is not None:
                group[2].append(state._t)
        for (lr, wd, *_), (values, gradients, moments) in groups.items():
            self._apply_group(values, gradients, moments, lr, wd)

    def _apply_group(
        self, values: list[Tensor], gradients: list[Tensor], moments: list[Tensor], lr: float, wd: float
    ) -> None:
        if moments and _fused(values, gradients, moments, lr, self.momentum, wd, self.rescale_grad):
            return
        steps = values
        if moments:
            torch._foreach_mul_(moments, self.momentum)
            steps = moments
        if wd:
            if moments:
                torch._foreach_add_(steps, values, alpha=-lr * wd)
            else:
                torch._foreach_mul_(steps, 1 - lr * wd)
        torch._foreach_add_(steps, gradients, alpha=-lr * self.rescale_grad)
        if moments:
            torch._foreach_add_(values, moments)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        # Low precision is computed in float32 and rounded once, as one fused kernel does.
        value = weight.float() if weight.dtype != torch.float64 else weight
        grad = self._decayed(grad.to(value.dtype), value, wd)
        if state is None:
            weight.copy_(value - lr * grad)
            return
        moment = self.momentum * state.to(value.dtype) - lr * grad
        state.copy_(moment)
        weight.copy_(value + moment)


@Optimizer.register
class ccSGD(SGD):
    """Another name of :class:`SGD`, from the first versions."""


@Optimizer.register
class NAG(Optimizer):
    """Nesterov's accelerated gradient.

    ``m = momentum * m - lr * g; weight += momentum * m - lr * g``. Source: Sutskever and others, "On the
    importance of initialization and momentum in deep learning", 2013.
    """

    def __init__(
        self,
        momentum: float | None = None,
        *,
        learning_rate: float | None = None,
        multi_precision: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=at_level(learning_rate, None, 0.1), multi_precision=multi_precision, **kwargs
        )
        self.momentum = at_level(momentum, 0.0, 0.9)

    def create_state(self, index: Any, weight: Any) -> State:
        return self._zeros(weight) if self.momentum != 0.0 else None

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        grad = self._decayed(grad, weight, wd)
        if state is None:
            weight.sub_(grad, alpha=lr)
            return
        state.mul_(self.momentum).sub_(grad, alpha=lr)
        weight.add_(state, alpha=self.momentum).sub_(grad, alpha=lr)


@Optimizer.register
class Signum(Optimizer):
    """Step of equal size for every element, in the direction of the momentum's sign.

    Source: Bernstein and others, "signSGD: compressed optimisation for non-convex problems", 2018.
    ``wd_lh`` is a weight decay that is not part of the gradient.
    """

    def __init__(
        self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum
        self.wd_lh = wd_lh

    def create_state(self, index: Any, weight: Any) -> State:
        return self._zeros(weight) if self.momentum != 0.0 else None

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        if state is None:
            direction = self._gradient(grad).sign()
            weight.mul_(1 - lr * wd).sub_(direction, alpha=lr)
            return
        state.mul_(self.momentum).sub_(self._decayed(grad, weight, wd), alpha=1 - self.momentum)
        weight.mul_(1 - lr * self.wd_lh).add_(state.sign(), alpha=lr)


@Optimizer.register
class DCASGD(Optimizer):
    """Asynchronous SGD that makes up for the delay of gradients.

    Source: Zheng and others, "Asynchronous stochastic gradient descent with delay compensation", 2017.
    """

    def __init__(
        self, momentum: float = 0.0, lamda: float = 0.04, *, learning_rate: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=at_level(learning_rate, None, 0.1), **kwargs)
        self.momentum = momentum
        self.weight_previous: dict[Any, Any] = {}
        self.lamda = lamda

    def create_state(self, index: Any, weight: Any) -> State:
        return (
            self._zeros(weight) if self.momentum != 0.0 else None,
            type(weight)._wrap(weight._t.clone(), weight._ctx),
        )

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        moment, previous = state
        if config.api_level() >= 2:
            grad = self._decayed(grad, weight, wd)
            delta = grad + self.lamda * grad * grad * (weight - previous)
        else:
            grad = self._gradient(grad)
            delta = grad + wd * weight + self.lamda * grad * grad * (weight - previous)
        if moment is None:
            change = delta.mul_(-lr)
        else:
            change = moment.mul_(self.momentum).sub_(delta, alpha=lr)
        previous.copy_(weight)
        weight.add_(change)


@Optimizer.register
class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics: half a step, plus normal noise of variance ``lr``.

    Source: Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics", 2011.
    """

    def __init__(self, learning_rate: float | None = None, **kwargs: Any) -> None:
        super().__init__(learning_rate=at_level(learning_rate, None, 0.1), **kwargs)

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
        for weight, grad, lr, wd in zip(weights, grads, lrs, wds, strict=True):
            value = weight._t
            noise = torch.empty(value.shape, device=value.device)
            noise.normal_(0.0, math.sqrt(lr), generator=rng.generator(rng.draw(), value.device))
            change = self._decayed(_dense(grad), value, wd)
            value.sub_(change, alpha=lr / 2).add_(noise.to(value.dtype))


@Optimizer.register
class LARS(Optimizer):
    """SGD whose rate is scaled, for each layer, by the ratio of the norms of weight and gradient.

    Source: You, Gitman, Ginsburg, "Large batch training of convolutional networks", 2017. Biases and the
    parameters of normalisation layers are not scaled.
    """

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool | None = None,
        eta: float = 0.001,
        eps: float | None = None,
        momentum_correction: bool = True,
        *,
        epsilon: float | None = None,
        learning_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=at_level(learning_rate, None, 0.1), **kwargs)
        self.momentum = momentum
        self.lazy_update = at_level(lazy_update, True, False)
        self.eta = eta
        self.epsilon = at_level(eps if eps is not None else epsilon, 0, 1e-8)
        self.momentum_correction = momentum_correction
        self.last_lr: float | None = None
        self.cur_lr: float | None = None

    @property
    def eps(self) -> float:
        """The name of epsilon in 1.x."""
        return float(self.epsilon)

    def create_state(self, index: Any, weight: Any) -> State:
        return self._zeros(weight) if self.momentum != 0.0 else None

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Set factors on the weight decay; at API level 1, only names that end in _weight are decayed
        without one."""
        super().set_wd_mult(args_wd_mult)
        if config.api_level() < 2:
            for name in self.idx2name.values():
                if not name.endswith("_weight") and name not in args_wd_mult:
                    self.wd_mult[name] = 0.0

    def _ratio(self, index: Any, weight: Tensor, grad: Tensor, wd: float) -> float:
        name = self.idx2name.get(index, "")
        if index in self.param_dict:
            name = self.param_dict[index].name
        if name.endswith(("gamma", "beta", "bias")):
            return 1.0
        weight_norm = float(weight.float().norm())
        grad_norm = float(grad.float().norm())
        if weight_norm <= 0.0 or grad_norm <= 0.0:
            return 1.0
        return float(self.eta * weight_norm / (grad_norm + wd * weight_norm + self.epsilon))

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
        rate = self.learning_rate
        if self.cur_lr is not None and config.api_level() < 2:
            self.last_lr = self.cur_lr
        if self.last_lr is None:
            self.last_lr = rate
        self.cur_lr = rate
        super()._apply_all(indices, weights, grads, states, lrs, wds, counts)

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        rate = lr * self._ratio(index, weight, grad * self.rescale_grad, wd)
        grad = self._decayed(grad, weight, wd)
        if state is None:
            weight.sub_(grad, alpha=rate)
            return
        momentum = self.momentum
        if self.momentum_correction and config.api_level() < 2 and self.last_lr and self.cur_lr is not None:
            momentum *= self.cur_lr / self.last_lr
        state.mul_(momentum).sub_(grad, alpha=rate)
        weight.add_(state)


@Optimizer.register
class LBSGD(Optimizer):
    """SGD for large batches: gradients of ``batch_scale`` steps are summed, and the rate warms up.

    Parameters
    ----------
    momentum : float
        Share of the last step that is kept.
    warmup_strategy : {"linear", "power2", "sqrt", "lars"}
        How the factor on the rate grows to ``batch_scale`` over the warm-up; "lars" scales each layer
        instead.
    warmup_epochs, updates_per_epoch : int
        Length of the warm-up.
    batch_scale : int
        How many steps make one update.
    begin_epoch, num_epochs : int
        Where training begins, and how long it goes on.
    """

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: int = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(multi_precision=multi_precision, **kwargs)
        self.momentum = momentum
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = warmup_epochs
        self.batch_scale = batch_scale
        self.updates_per_epoch = updates_per_epoch
        self.init_updates = begin_epoch * updates_per_epoch
        self.num_epochs = num_epochs
        self.cumgrads: dict[Any, tuple[Tensor, int]] = {}

    def create_state(self, index: Any, weight: Any) -> State:
        return self._zeros(weight) if self.momentum != 0.0 else None

    def _warmup_factor(self, updates: int) -> float:
        full = self.warmup_epochs * self.updates_per_epoch
        scale = float(self.batch_scale)
        if updates >= full:
            return scale
        share = updates / full
        if self.warmup_strategy == "linear":
            return 1.0 + (scale - 1) * share
        if self.warmup_strategy == "power2":
            return 1.0 + (scale - 1) * share * share
        if self.warmup_strategy == "sqrt":
            return 1.0 + (scale - 1) * math.sqrt(share)
        return 1.0

    def _apply(
        self, index: Any, weight: Tensor, grad: Tensor, state: Any, lr: float, wd: float, count: int
    ) -> None:
        total, steps = self.cumgrads.get(index, (torch.zeros_like(grad), 0))
        total, steps = total + grad, steps + 1
        if steps % self.batch_scale:
            self.cumgrads[index] = (total, steps)
            return
        self.cumgrads.pop(index, None)
        grad = self._gradient(total / self.batch_scale)
        if self.warmup_strategy == "lars":
            weight_norm, grad_norm = float(weight.norm()), float(grad.norm())
            factor = math.sqrt(weight_norm**2 / (grad_norm**2 + wd * weight_norm**2 + 1e-18))
            factor = min(max(factor, 0.01), 100.0)
        else:
            factor = self._warmup_factor(self.num_update + self.init_updates)
        rate = lr * factor
        if wd:
            grad = grad.add(weight, alpha=wd)
        if state is None:
            weight.sub_(grad, alpha=rate)
            return
        state.mul_(self.momentum).sub_(grad, alpha=rate)
        weight.add_(state)
