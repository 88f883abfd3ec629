"""Callbacks of training loops: logs of speed and metrics, and checkpoints."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from .model import save_checkpoint

__all__ = [
    "LogValidationMetricsCallback",
    "ProgressBar",
    "Speedometer",
    "do_checkpoint",
    "log_train_metric",
    "module_checkpoint",
]


def module_checkpoint(
    mod: Any, prefix: Any, period: int = 1, save_optimizer_states: bool = False
) -> Callable[..., None]:
    """An epoch-end callback that writes a module's checkpoint every ``period`` epochs.

    Parameters
    ----------
    mod : Module
        The module.
    prefix : path
        Beginning of the files' names.
    period : int
        Epochs from one checkpoint to the next.
    save_optimizer_states : bool
        Write the optimizer's states too, to ``prefix-0001.states``.
    """
    period = max(int(period), 1)

    def callback(iter_no: int, sym: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (iter_no + 1) % period == 0:
            mod.save_checkpoint(prefix, iter_no + 1, save_optimizer_states)

    return callback


def do_checkpoint(prefix: Any, period: int = 1) -> Callable[..., None]:
    """An epoch-end callback that writes ``prefix-symbol.json`` and ``prefix-0001.params`` every ``period``
    epochs."""
    period = max(int(period), 1)

    def callback(iter_no: int, sym: Any, arg: Any, aux: Any) -> None:
        if (iter_no + 1) % period == 0:
            save_checkpoint(prefix, iter_no + 1, sym, arg, aux)

    return callback


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[Any], None]:
    """A batch-end callback that logs the metric every ``period`` batches and, with ``auto_reset``, begins it
    anew."""

    def callback(param: Any) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return callback


class Speedometer:
    """A batch-end callback that logs samples a second, and the metric, every ``frequent`` batches.

    Parameters
    ----------
    batch_size : int
        Samples of a batch.
    frequent : int
        Batches from one line to the next.
    auto_reset : bool
        Begin the metric anew after each line, which then tells of the batches since the last one.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        self.batch_size = batch_size
        self.frequent = frequent
        self.auto_reset = auto_reset
        self.last_count = 0
        self._since: float | None = None

    def __call__(self, param: Any) -> None:
        count = param.nbatch
        if count < self.last_count:
            # A new epoch: the time between epochs is not the batches'.
            self._since = None
        self.last_count = count
        if self._since is None:
            self._since = time.perf_counter()
            return
        if count % self.frequent:
            return
        seconds = time.perf_counter() - self._since
        speed = self.frequent * self.batch_size / seconds if seconds > 0 else float("inf")
        if param.eval_metric is None:
            logging.info("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, count, speed)
        else:
            pairs = param.eval_metric.get_name_value()
            first = 0
            if self.auto_reset:
                param.eval_metric.reset_local()
                first = count - self.frequent
            logging.info(
                "Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec" + "\t%s=%f" * len(pairs),
                param.epoch,
                first,
                count,
                speed,
                *(item for pair in pairs for item in pair),
            )
        self._since = time.perf_counter()


class ProgressBar:
    """A batch-end callback that logs a bar of ``length`` characters, full after ``total`` batches."""

    def __init__(self, total: int, length: int = 80) -> None:
        self.total = total
        self.bar_len = length

    def __call__(self, param: Any) -> None:
        done = param.nbatch / self.total
        filled = round(self.bar_len * done)
        bar = "=" * filled + "-" * (self.bar_len - filled)
        logging.info("[%s] %s%s\r", bar, math.ceil(100.0 * done), "%")


class LogValidationMetricsCallback:
    """A callback for the end of an evaluation that logs its metric."""

    def __call__(self, param: Any) -> None:
        if not param.eval_metric:
            return
        for name, value in param.eval_metric.get_global_name_value():
            logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)
