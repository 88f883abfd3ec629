"""Learning-rate schedulers: the rate as a function of the number of updates done so far.

A scheduler is called with the number of updates and answers the rate. All can begin with a warm-up from
``warmup_begin_lr`` to ``base_lr`` over the first ``warmup_steps`` updates.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence

__all__ = ["CosineScheduler", "FactorScheduler", "LRScheduler", "MultiFactorScheduler", "PolyScheduler"]


class LRScheduler:
    """Base of all schedulers.

    Parameters
    ----------
    base_lr : float
        Rate after the warm-up.
    warmup_steps : int
        Number of updates of the warm-up.
    warmup_begin_lr : float
        Rate at the beginning of the warm-up, at most ``base_lr``.
    warmup_mode : {"linear", "constant"}
        Whether the rate grows to ``base_lr`` or stays at ``warmup_begin_lr`` until the warm-up ends.
    """

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        if isinstance(warmup_steps, bool) or not isinstance(warmup_steps, int):
            raise TypeError(f"warmup_steps must be an int; received {warmup_steps!r}.")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must be 0 or more; received {warmup_steps}.")
        if warmup_begin_lr > base_lr:
            raise ValueError(
                f"warmup_begin_lr must not be above base_lr; received {warmup_begin_lr} with "
                f"base_lr={base_lr}."
            )
        if warmup_mode not in ("linear", "constant"):
            raise ValueError(f"warmup_mode must be 'linear' or 'constant'; received {warmup_mode!r}.")
        self.base_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_final_lr = base_lr
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_mode = warmup_mode

    def get_warmup_lr(self, num_update: int) -> float:
        """Rate at an update within the warm-up."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = (self.warmup_final_lr - self.warmup_begin_lr) * float(num_update) / float(self.warmup_steps)
        return self.warmup_begin_lr + rise

    def __call__(self, num_update: int) -> float:
        """Rate at ``num_update`` updates (the first update asks for 1)."""
        raise NotImplementedError(
            f"{type(self).__name__} must define __call__(num_update) and answer the rate."
        )


def _check_factor(factor: float) -> None:
    if factor > 1.0:
        raise ValueError(f"factor must be at most 1, so that the rate falls; received {factor}.")


def _log_change(num_update: int, rate: float) -> None:
    logging.info("Update[%d]: Change learning rate to %0.5e", num_update, rate)


class FactorScheduler(LRScheduler):
    """Multiply the rate by ``factor`` after every ``step`` updates, down to ``stop_factor_lr``."""

    def __init__(
        self,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if step < 1:
            raise ValueError(f"step must be at least 1 update; received {step}.")
        _check_factor(factor)
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr
        self.count = 0

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while num_update > self.count + self.step:
            self.count += self.step
            lower = max(self.base_lr * self.factor, self.stop_factor_lr)
            if lower != self.base_lr:
                self.base_lr = lower
                _log_change(num_update, lower)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiply the rate by ``factor`` after each of the update numbers in ``step``."""

    def __init__(
        self,
        step: Sequence[int],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if isinstance(step, int) or not len(step):
            raise ValueError(
                f"step must be a list of update numbers, such as [1000, 2000]; received {step!r}."
            )
        steps = list(step)
        if any(later <= earlier for earlier, later in itertools.pairwise(steps)) or steps[0] < 1:
            raise ValueError(f"step must be increasing numbers, all at least 1; received {steps}.")
        _check_factor(factor)
        self.step = steps
        self.cur_step_ind = 0
        self.factor = factor
        self.count = 0

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            _log_change(num_update, self.base_lr)
        return self.base_lr


class _DecayScheduler(LRScheduler):
    """Falls from ``base_lr`` to ``final_lr``, which it reaches at ``max_update`` and keeps."""

    def __init__(
        self,
        max_update: int,
        base_lr: float,
        final_lr: float,
        warmup_steps: int,
        warmup_begin_lr: float,
        warmup_mode: str,
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if isinstance(max_update, bool) or not isinstance(max_update, int):
            raise TypeError(f"max_update must be an int; received {max_update!r}.")
        if max_update < 1:
            raise ValueError(f"max_update must be at least 1; received {max_update}.")
        self.base_lr_orig = base_lr
        self.max_update = max_update
        self.final_lr = final_lr
        self.max_steps = max_update - warmup_steps

    def _remaining(self, progress: float) -> float:
        """Share of the fall still ahead, from 1 at progress 0 to 0 at progress 1."""
        raise NotImplementedError

    def __call__(self, num_update: int) -> float:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update >= self.max_update or self.max_steps <= 0:
            self.base_lr = self.final_lr
        else:
            share = self._remaining(float(num_update - self.warmup_steps) / float(self.max_steps))
            self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * share
        return self.base_lr


class PolyScheduler(_DecayScheduler):
    """Fall with the power ``pwr`` of the updates still to come."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def _remaining(self, progress: float) -> float:
        return float((1 - progress) ** self.power)


class CosineScheduler(_DecayScheduler):
    """Fall along half a cosine wave."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)

    def _remaining(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2
