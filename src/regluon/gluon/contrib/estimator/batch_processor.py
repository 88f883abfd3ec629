"""What an `Estimator` does with one batch."""

from __future__ import annotations

from typing import Any

from ....runtime import autograd
from ...utils import split_and_load

__all__ = ["BatchProcessor"]


class BatchProcessor:
    """Forward and backward of a batch; override for batches or networks that are not ``(data, label)``."""

    def _get_data_and_label(self, batch: Any, ctx: Any, batch_axis: int = 0) -> tuple[list[Any], list[Any]]:
        """The first two arrays of a batch, each split over the contexts."""
        if not isinstance(batch, (list, tuple)) or len(batch) < 2:
            received = f"{len(batch)} array(s)" if isinstance(batch, (list, tuple)) else "one array"
            raise ValueError(
                f"BatchProcessor expected batches of data and label; received {received}. Let the dataset "
                "give pairs, or override fit_batch() and evaluate_batch()."
            )
        data, label = (split_and_load(part, ctx, batch_axis, even_split=False) for part in batch[:2])
        return data, label

    def evaluate_batch(
        self, estimator: Any, val_batch: Any, batch_axis: int = 0
    ) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Predictions and losses of a validation batch.

        Parameters
        ----------
        estimator : Estimator
            Whose ``val_net`` and ``val_loss`` are used.
        val_batch : list
            Data and label.
        batch_axis : int
            The axis of samples.

        Returns
        -------
        tuple of lists
            Data, labels, predictions and losses, each with one array a context.
        """
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(part) for part in data]
        loss = [estimator.val_loss(made, wanted) for made, wanted in zip(pred, label, strict=True)]
        return data, label, pred, loss

    def fit_batch(
        self, estimator: Any, train_batch: Any, batch_axis: int = 0
    ) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Forward and backward of a training batch; parameters are changed by `GradientUpdateHandler`.

        Arguments and results are those of `evaluate_batch`, with ``net`` and ``loss``.
        """
        data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
        with autograd.record():
            pred = [estimator.net(part) for part in data]
            loss = [estimator.loss(made, wanted) for made, wanted in zip(pred, label, strict=True)]
        autograd.backward(loss)
        return data, label, pred, loss
