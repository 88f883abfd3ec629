"""Watching a metric: which of two values is better, and stopping when it improves no more."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy

from ...metric import EvalMetric
from .events import EpochEnd, TrainBegin, TrainEnd

__all__ = ["EarlyStoppingHandler", "better_than", "value_of"]

_SMALLER = ("loss", "error", "mse", "mae", "entropy", "perplexity", "distance")
_LARGER = ("acc", "f1", "fbeta", "mcc", "pcc", "pearson", "similarity", "precision", "recall", "auc", "iou")


def better_than(monitor: EvalMetric, mode: str, owner: str) -> Any:
    """`numpy.less` or `numpy.greater`: how a value of ``monitor`` must compare with the best to be better.

    Parameters
    ----------
    monitor : EvalMetric
        Its name and class decide with mode "auto".
    mode : {'auto', 'min', 'max'}
        Whether smaller or larger is better.
    owner : str
        Who asks, for the warnings.
    """
    if mode not in ("auto", "min", "max"):
        warnings.warn(
            f"{owner} mode {mode} is unknown, fallback to auto mode: it is one of 'auto', 'min', 'max'",
            RuntimeWarning,
            stacklevel=3,
        )
        mode = "auto"
    if mode != "auto":
        return numpy.less if mode == "min" else numpy.greater
    text = f"{monitor.name} {type(monitor).__name__}".lower()
    if any(word in text for word in _LARGER):
        return numpy.greater
    if any(word in text for word in _SMALLER):
        return numpy.less
    warnings.warn(
        f"`greater` operator will be used to determine if {monitor.name} has improved. Please specify "
        "`mode='min'` to use the `less` operator, or `mode='max'` to disable this warning.",
        UserWarning,
        stacklevel=3,
    )
    return numpy.greater


def value_of(monitor: EvalMetric) -> float | None:
    """The metric's value; None before its first batch.

    Raises
    ------
    ValueError
        If it has several values.
    """
    name, value = monitor.get()
    if isinstance(value, (list, tuple)):
        raise ValueError(
            f"monitor must have one value; {monitor.name!r} has {len(value)} ({', '.join(name)}). "
            "Monitor one of its metrics."
        )
    return None if math.isnan(float(value)) and not monitor.num_inst else float(value)


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Ends the training when a metric has stopped improving.

    Parameters
    ----------
    monitor : EvalMetric
        One of ``estimator.train_metrics`` and ``estimator.val_metrics``.
    min_delta : float
        The smallest change that counts as an improvement.
    patience : int
        Epochs without improvement after which training ends (it ends after the first for 0).
    mode : {'auto', 'min', 'max'}
        Whether smaller or larger values are better; 'auto' decides by the metric's name.
    baseline : float, optional
        The value to be better than from the first epoch on.

    Raises
    ------
    ValueError
        If ``monitor`` is no metric.
    """

    def __init__(
        self,
        monitor: EvalMetric,
        min_delta: float = 0,
        patience: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
    ) -> None:
        if not isinstance(monitor, EvalMetric):
            raise ValueError(
                "Please provide one of the metric objects from estimator.train_metrics and "
                f"estimator.val_metrics as monitor; received {monitor!r}."
            )
        self.monitor = monitor
        self.baseline = baseline
        self.patience = patience
        self.wait = 0
        self.stopped_epoch = 0
        self.current_epoch = 0
        self.stop_training = False
        self.monitor_op = better_than(monitor, mode, "EarlyStopping")
        self.min_delta = min_delta if self.monitor_op is numpy.greater else -min_delta
        self._begin()

    def _begin(self) -> None:
        worst = -numpy.inf if self.monitor_op is numpy.greater else numpy.inf
        self.best = worst if self.baseline is None else self.baseline
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self._begin()

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        value = value_of(self.monitor)
        if value is None:
            warnings.warn(
                f"{self.monitor.name} is not updated, make sure you pass one of the metric objects from "
                "estimator.train_metrics and estimator.val_metrics as monitor.",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self.monitor_op(value - self.min_delta, self.best):
            self.best = value
            self.wait = 0
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch = self.current_epoch
                self.stop_training = True
        self.current_epoch += 1
        return self.stop_training

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.stop_training:
            estimator.logger.info(
                "[Epoch %d] EarlyStoppingHandler: early stopping due to %s not improving",
                self.stopped_epoch,
                self.monitor.name,
            )
