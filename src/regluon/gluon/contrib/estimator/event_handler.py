"""The handlers that an `Estimator` works with: stopping, metrics, validation, logs and updates."""

from __future__ import annotations

import math
import time
from typing import Any

from ...metric import EvalMetric
from .checkpoint import CheckpointHandler
from .events import BatchBegin, BatchEnd, EpochBegin, EpochEnd, EventHandler, TrainBegin, TrainEnd
from .monitoring import EarlyStoppingHandler
from .utils import TRAINING, LossMetric, metric_list, pairs

__all__ = [
    "BatchBegin",
    "BatchEnd",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "EventHandler",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Stops after a number of epochs or of batches: those that `Estimator.fit` was given.

    Parameters
    ----------
    max_epoch, max_batch : int, optional
        Used where the estimator has neither.
    """

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None) -> None:
        self.max_epoch = max_epoch
        self.max_batch = max_batch
        self.current_batch = 0
        self.current_epoch = 0
        self.stop_training = False

    def _limits(self, estimator: Any) -> None:
        # Read at every event: a handler that resumes a training shortens what is left of it.
        if estimator.max_epoch is not None or estimator.max_batch is not None:
            self.max_epoch, self.max_batch = estimator.max_epoch, estimator.max_batch

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch = self.current_epoch = 0
        self.stop_training = False
        self._limits(estimator)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self._limits(estimator)
        self.current_batch += 1
        if self.max_batch is not None and self.current_batch >= self.max_batch:
            self.stop_training = True
        return self.stop_training

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self._limits(estimator)
        self.current_epoch += 1
        if self.max_epoch is not None and self.current_epoch >= self.max_epoch:
            self.stop_training = True
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd):
    """Resets metrics as an epoch begins and adds every batch to them.

    Parameters
    ----------
    metrics : EvalMetric or list
        `gluon.metric.Loss` receives the losses, others labels and predictions.
    priority : float
        -1000: after the update of the parameters, before handlers without a priority.
    """

    def __init__(self, metrics: Any, priority: float = -1000) -> None:
        self.metrics = metric_list(metrics)
        self.priority = priority

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            metric.reset()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            self._add(metric, kwargs["label"], kwargs["pred"], kwargs["loss"])

    def _add(self, metric: EvalMetric, label: Any, pred: Any, loss: Any) -> None:
        if isinstance(metric, LossMetric):
            metric.update(0, loss)
        elif hasattr(metric, "metrics"):
            for child in metric.metrics:
                self._add(child, label, pred, loss)
        else:
            metric.update(label, pred)


class ValidationHandler(TrainBegin, BatchEnd, EpochEnd):
    """Evaluates on validation data every so many epochs or batches.

    Parameters
    ----------
    val_data : DataLoader
        The data.
    eval_fn : callable
        Usually ``estimator.evaluate``.
    epoch_period, batch_period : int or None
        Evaluate after every so many; None does not.
    priority : float
        -1000: before handlers that read validation metrics.
    event_handlers : list, optional
        Passed to ``eval_fn``.
    """

    def __init__(
        self,
        val_data: Any,
        eval_fn: Any,
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        priority: float = -1000,
        event_handlers: Any = None,
    ) -> None:
        self.val_data = val_data
        self.eval_fn = eval_fn
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.current_batch = 0
        self.current_epoch = 0
        self.priority = priority
        self.event_handlers = event_handlers

    def _evaluate(self, estimator: Any) -> None:
        self.eval_fn(
            val_data=self.val_data, batch_axis=estimator.batch_axis, event_handlers=self.event_handlers
        )

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch = self.current_epoch = 0

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch += 1
        if self.batch_period and self.current_batch % self.batch_period == 0:
            self._evaluate(estimator)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch += 1
        if self.epoch_period and self.current_epoch % self.epoch_period == 0:
            self._evaluate(estimator)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Writes to ``estimator.logger`` what happens, with times in seconds and the values of metrics.

    Parameters
    ----------
    log_interval : 'epoch' or int
        A line an epoch, or also a line every so many batches.
    metrics : EvalMetric or list, optional
        The metrics whose values are written.
    priority : float
        Infinity: after all other handlers.

    Raises
    ------
    ValueError
        If ``log_interval`` is anything else.
    """

    def __init__(
        self, log_interval: int | str = "epoch", metrics: Any = None, priority: float = math.inf
    ) -> None:
        whole = isinstance(log_interval, int) and not isinstance(log_interval, bool) and log_interval > 0
        if not whole and log_interval != "epoch":
            raise ValueError(
                f"log_interval must be either an integer or string 'epoch'; received {log_interval!r} (a "
                "number of batches is at least 1)"
            )
        self.metrics = metric_list(metrics)
        self.batch_index = 0
        self.current_epoch = 0
        self.processed_samples = 0
        self.priority = priority
        self.log_interval = log_interval
        self.log_interval_time = 0.0
        self._training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self._training = True
        self.train_start = time.time()
        optimizer = estimator.trainer.optimizer
        estimator.logger.info(
            "Training begin: using optimizer %s with current learning rate %.4f ",
            type(optimizer).__name__,
            estimator.trainer.learning_rate,
        )
        if estimator.max_epoch:
            estimator.logger.info("Train for %d epochs.", estimator.max_epoch)
        else:
            estimator.logger.info("Train for %d batches.", estimator.max_batch)
        self.current_epoch = self.batch_index = self.processed_samples = 0
        self.log_interval_time = 0.0

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self._training = False
        seconds = time.time() - self.train_start
        text = f"Train finished using total {int(seconds)}s with {self.current_epoch} epochs. "
        estimator.logger.info((text + self._values()).rstrip())

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self._training or any(metric.name.startswith(TRAINING) for metric in self.metrics):
            rate = estimator.trainer.learning_rate
            estimator.logger.info("[Epoch %d] Begin, current learning rate: %.4f", self.current_epoch, rate)
        else:
            estimator.logger.info("Validation Begin")
        self.epoch_start = time.time()

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        seconds = time.time() - self.epoch_start
        text = f"[Epoch {self.current_epoch}] Finished in {seconds:.3f}s, "
        estimator.logger.info((text + self._values()).rstrip(", "))
        self.current_epoch += 1
        self.batch_index = 0

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.batch_start = time.time()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self.log_interval, int):
            return
        self.log_interval_time += time.time() - self.batch_start
        self.processed_samples += kwargs["batch"][0].shape[estimator.batch_axis]
        if self.batch_index % self.log_interval == 0:
            text = (
                f"[Epoch {self.current_epoch}][Batch {self.batch_index}][Samples {self.processed_samples}] "
                f"time/interval: {self.log_interval_time:.3f}s "
            )
            self.log_interval_time = 0.0
            estimator.logger.info((text + self._values()).rstrip())
        self.batch_index += 1

    def _values(self) -> str:
        return ", ".join(f"{name}: {value:.4f}" for name, value in pairs(self.metrics))


class GradientUpdateHandler(BatchEnd):
    """Changes the parameters after each batch, by gradients over the number of its samples.

    Override `batch_end` to accumulate gradients, or to change them first.

    Parameters
    ----------
    priority : float
        -2000: before the metrics.
    """

    def __init__(self, priority: float = -2000) -> None:
        self.priority = priority

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        losses = kwargs["loss"]
        losses = losses if isinstance(losses, (list, tuple)) else [losses]
        estimator.trainer.step(sum(loss.shape[0] if loss.shape else 1 for loss in losses))
