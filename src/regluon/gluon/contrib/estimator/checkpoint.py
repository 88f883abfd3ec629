"""Saving parameters and optimizer states during a training, and going on from them."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

import numpy

from ...hybrid import HybridBlock
from ...metric import EvalMetric
from .events import BatchEnd, EpochEnd, TrainBegin
from .monitoring import better_than, value_of

__all__ = ["CheckpointHandler"]


class CheckpointHandler(TrainBegin, BatchEnd, EpochEnd):
    """Saves parameters and states of the optimizer every so many epochs or batches.

    The files are ``<prefix>-epoch<E>batch<B>.params`` and ``.states`` (epochs and batches count from 0; ``B``
    is the last batch's place for a checkpoint after a batch, the number of batches for one after an epoch, as
    in MXNet), ``<prefix>-best.params`` and ``.states``, and ``<prefix>-symbol.json`` if the network is
    hybridized. Each appears whole or not at all.

    Parameters
    ----------
    model_dir : str
        Folder of the files; it is made if it is missing.
    model_prefix : str
        Start of their names.
    monitor : EvalMetric, optional
        One of ``estimator.train_metrics`` and ``estimator.val_metrics``, for ``save_best``.
    verbose : int
        Above 0 every file is logged.
    save_best : bool
        Also keep the best by ``monitor``.
    mode : {'auto', 'min', 'max'}
        Whether smaller or larger values are better; 'auto' decides by the metric's name.
    epoch_period, batch_period : int or None
        Save after every so many.
    max_checkpoints : int
        Keep so many of the newest.
    resume_from_checkpoint : bool
        Load the newest checkpoint of this name first, and train for what is left of the epochs or batches.

    Raises
    ------
    ValueError
        If ``save_best`` is asked for without a metric, or ``max_checkpoints`` is below 1.
    """

    def __init__(
        self,
        model_dir: str,
        model_prefix: str = "model",
        monitor: EvalMetric | None = None,
        verbose: int = 0,
        save_best: bool = False,
        mode: str = "auto",
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        max_checkpoints: int = 5,
        resume_from_checkpoint: bool = False,
    ) -> None:
        if max_checkpoints < 1:
            raise ValueError(f"max_checkpoints must be at least 1; received {max_checkpoints}")
        self.model_dir = os.fspath(model_dir)
        self.model_prefix = model_prefix
        self.monitor = monitor
        self.verbose = verbose
        self.save_best = save_best
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.current_batch = 0
        self.current_epoch = 0
        self.max_checkpoints = max_checkpoints
        self.resume_from_checkpoint = resume_from_checkpoint
        self.saved_checkpoints: list[str] = []
        self.trained_epoch = self.trained_batch = -1
        if save_best:
            if not isinstance(monitor, EvalMetric):
                raise ValueError(
                    "To save best model only, please provide one of the metric objects from "
                    f"estimator.train_metrics and estimator.val_metrics as monitor; received {monitor!r}."
                )
            self.monitor_op = better_than(monitor, mode, "ModelCheckpoint")
            self.best = -numpy.inf if self.monitor_op is numpy.greater else numpy.inf

    # Events ---------------------------------------------------------------------------

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        os.makedirs(self.model_dir, exist_ok=True)
        self.current_epoch = self.current_batch = 0
        self.trained_epoch = self.trained_batch = -1
        self.saved_checkpoints = []
        if self.save_best:
            self.best = -numpy.inf if self.monitor_op is numpy.greater else numpy.inf
        if self.resume_from_checkpoint:
            self._resume(estimator)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.current_batch == 0:
            self._save_symbol(estimator)
        self.current_batch += 1
        if self.batch_period and self.current_batch % self.batch_period == 0:
            self._save(estimator, self.current_batch - 1)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._save(estimator, self.current_batch)
        self.current_epoch += 1

    # Writing --------------------------------------------------------------------------

    def _save_symbol(self, estimator: Any) -> None:
        path = os.path.join(self.model_dir, f"{self.model_prefix}-symbol.json")
        net = estimator.net
        if isinstance(net, HybridBlock) and net._active:
            net.export(None)[0].save(path)
            return
        estimator.logger.info(
            "Model architecture(symbol file) is not saved, please use HybridBlock to construct your model, "
            "and call net.hybridize() before passing to Estimator in order to save model architecture as %s.",
            path,
        )

    def _write(self, estimator: Any, name: str) -> None:
        start = os.path.join(self.model_dir, name)
        estimator.net.save_parameters(f"{start}.params")
        estimator.trainer.save_states(f"{start}.states")

    def _save(self, estimator: Any, batch: int) -> None:
        epoch = self.current_epoch + self.trained_epoch + 1
        if self.trained_batch >= 0:
            # A training by batches resumes after the batch in the name, one by epochs after so many batches.
            batch += self.trained_batch + (1 if estimator.max_batch else 0)
        name = f"{self.model_prefix}-epoch{epoch}batch{batch}"
        if self.verbose > 0:
            estimator.logger.info(
                "[Epoch %d] CheckpointHandler: trained total %d batches, saving model at %s with prefix: %s",
                self.current_epoch,
                self.current_batch,
                self.model_dir,
                name,
            )
        self._write(estimator, name)
        if name in self.saved_checkpoints:
            self.saved_checkpoints.remove(name)
        self.saved_checkpoints.append(name)
        while len(self.saved_checkpoints) > self.max_checkpoints:
            self._remove(self.saved_checkpoints.pop(0))
        if self.save_best:
            self._save_best(estimator)

    def _remove(self, name: str) -> None:
        for ending in (".params", ".states"):
            path = os.path.join(self.model_dir, name + ending)
            if os.path.exists(path):
                os.remove(path)

    def _save_best(self, estimator: Any) -> None:
        assert self.monitor is not None
        value = value_of(self.monitor)
        name = self.monitor.name
        if value is None:
            warnings.warn(
                f"Skipping save best because {name} is not updated, make sure you pass one of the metric "
                "objects estimator.train_metrics and estimator.val_metrics as monitor",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self.monitor_op(value, self.best):
            best = f"{self.model_prefix}-best"
            self._write(estimator, best)
            if self.verbose > 0:
                estimator.logger.info(
                    "[Epoch %d] CheckpointHandler: %s improved from %0.5f to %0.5f, updating best model at "
                    "%s with prefix: %s",
                    self.current_epoch,
                    name,
                    self.best,
                    value,
                    self.model_dir,
                    best,
                )
            self.best = value
        elif self.verbose > 0:
            estimator.logger.info(
                "[Epoch %d] CheckpointHandler: %s did not improve from %0.5f, skipping updating best model",
                self.current_epoch,
                name,
                self.best,
            )

    # Resuming -------------------------------------------------------------------------

    def _found(self) -> list[tuple[int, int, str]]:
        """Epoch, batch and name of the checkpoints in the folder, oldest first."""
        wanted = re.compile(rf"{re.escape(self.model_prefix)}-epoch(\d+)batch(\d+)\.params")
        matches = [wanted.fullmatch(file) for file in os.listdir(self.model_dir)]
        found = [(int(m[1]), int(m[2]), m[0].removesuffix(".params")) for m in matches if m is not None]
        whole = [one for one in found if os.path.exists(os.path.join(self.model_dir, f"{one[2]}.states"))]
        return sorted(whole)

    def _resume(self, estimator: Any) -> None:
        found = self._found()
        by_epochs = estimator.max_batch is None
        unit = "epoch" if by_epochs else "batch"
        total = estimator.max_epoch if by_epochs else estimator.max_batch
        units = "epochs" if by_epochs else "batches"
        if not found:
            estimator.logger.info(
                "CheckpointHandler: No checkpoint found, training from scratch for %d %s", total, units
            )
            return
        epoch, batch, name = found[-1]
        left = total - (epoch if by_epochs else batch) - 1
        if left < 1:
            raise ValueError(
                f"Found checkpoint with maximum number of {unit} {total} reached, please specify "
                f"resume_from_checkpoint=False (default value) if you want to train from scratch: {name}"
            )
        if by_epochs:
            estimator.max_epoch = left
        else:
            estimator.max_batch = left
        start = os.path.join(self.model_dir, name)
        estimator.net.load_parameters(f"{start}.params", ctx=estimator.context)
        estimator.trainer.load_states(f"{start}.states")
        self.trained_epoch, self.trained_batch = epoch, batch
        self.saved_checkpoints = [one[2] for one in found]
        estimator.logger.info(
            "CheckpointHandler: Checkpoint resumed from epoch %d batch %d, continue to train for %d %s ",
            epoch,
            batch,
            left,
            units,
        )
