"""The events of an `Estimator`: a handler inherits from those that it wants to hear of.

In training: train_begin, then for each epoch epoch_begin, for each batch batch_begin and batch_end, then
epoch_end, at last train_end. In evaluation: the same without train_begin and train_end. Handlers of one event
are called in the order of their ``priority`` (0 if they have none), the smallest first, and in the order
given where that is equal. ``batch_begin`` receives ``batch=``; ``batch_end`` also ``pred=``, ``label=`` and
``loss=``, lists with one array a context. A ``batch_end`` that gives True ends the epoch, an ``epoch_end``
that gives True ends the training.
"""

from __future__ import annotations

from typing import Any

__all__ = ["BatchBegin", "BatchEnd", "EpochBegin", "EpochEnd", "EventHandler", "TrainBegin", "TrainEnd"]


class EventHandler:
    """The base of handlers."""


class TrainBegin(EventHandler):
    """Called when training begins."""

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Does nothing; override it."""


class TrainEnd(EventHandler):
    """Called when training has ended."""

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Does nothing; override it."""


class EpochBegin(EventHandler):
    """Called before the first batch of an epoch."""

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Does nothing; override it."""


class EpochEnd(EventHandler):
    """Called after the last batch of an epoch."""

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Does nothing; override it, and give True to end the training."""
        return False


class BatchBegin(EventHandler):
    """Called before a batch."""

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Does nothing; override it."""


class BatchEnd(EventHandler):
    """Called after forward and backward of a batch."""

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Does nothing; override it, and give True to end the epoch."""
        return False
