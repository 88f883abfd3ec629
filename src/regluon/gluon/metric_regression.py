"""Metrics of predicted numbers: errors, distances, correlation."""

from __future__ import annotations

import math
from typing import Any

import numpy

from regluon.gluon.metric_base import (
    EvalMetric,
    MetricError,
    _Array,
    _Names,
    alias,
    batches,
    check_label_shapes,
    first_generation,
)


class _Regression(EvalMetric):
    """Mean of a distance: over batches at API level 1, over samples at level 2."""

    def __init__(self, name: str, output_names: _Names = None, label_names: _Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def _distance(self, difference: _Array) -> float:
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            if label.size != pred.size:
                raise MetricError(
                    f"Labels have shape {label.shape}, predictions {pred.shape}; they must agree."
                )
            difference = label.reshape(pred.shape).astype(numpy.float64) - pred
            distance = self._distance(difference)
            if first_generation():
                self._add(distance, 1)
            else:
                samples = label.shape[0] if label.ndim else 1
                self._add(distance * samples, samples)


@alias()
class MAE(_Regression):
    """Mean absolute error."""

    def __init__(self, name: str = "mae", output_names: _Names = None, label_names: _Names = None) -> None:
        super().__init__(name, output_names, label_names)

    def _distance(self, difference: _Array) -> float:
        return float(numpy.abs(difference).mean())


@alias()
class MSE(_Regression):
    """Mean squared error."""

    def __init__(self, name: str = "mse", output_names: _Names = None, label_names: _Names = None) -> None:
        super().__init__(name, output_names, label_names)

    def _distance(self, difference: _Array) -> float:
        return float((difference**2).mean())


@alias()
class RMSE(MSE):
    """Root of the mean squared error: of each batch (level 1), or of all samples (level 2)."""

    def __init__(self, name: str = "rmse", output_names: _Names = None, label_names: _Names = None) -> None:
        super().__init__(name, output_names, label_names)

    def _distance(self, difference: _Array) -> float:
        square = super()._distance(difference)
        return math.sqrt(square) if first_generation() else square

    def _value(self, total: Any, count: float) -> Any:
        value = super()._value(total, count)
        return value if first_generation() else math.sqrt(value)


@alias()
class MeanPairwiseDistance(EvalMetric):
    """Mean p-norm of the differences along the last axis."""

    def __init__(
        self, name: str = "mpd", output_names: _Names = None, label_names: _Names = None, p: float = 2
    ) -> None:
        super().__init__(name, output_names, label_names, p=p, has_global_stats=True)
        self.p = p

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            columns = pred.shape[-1] if pred.ndim > 1 else 1
            difference = (label.reshape(pred.shape).astype(numpy.float64) - pred).reshape(-1, columns)
            distances = (numpy.abs(difference) ** self.p).sum(1) ** (1.0 / self.p)
            self._add(float(distances.sum()), len(distances))


@alias()
class MeanCosineSimilarity(EvalMetric):
    """Mean cosine of the angle between label and prediction along the last axis."""

    def __init__(
        self,
        name: str = "cos_sim",
        output_names: _Names = None,
        label_names: _Names = None,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            rows = (1, -1) if pred.ndim == 1 else (-1, pred.shape[-1])
            first = label.reshape(pred.shape).astype(numpy.float64).reshape(rows)
            second = pred.astype(numpy.float64).reshape(rows)
            norms = numpy.linalg.norm(first, axis=1) * numpy.linalg.norm(second, axis=1)
            cosines = (first * second).sum(1) / numpy.maximum(norms, self.eps)
            self._add(float(cosines.sum()), len(cosines))


@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions.

    ``average``: of all elements so far ("micro", the only way of 2.0), or mean over batches ("macro",
    default of 1.x).
    """

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: _Names = None,
        label_names: _Names = None,
        average: str | None = None,
    ) -> None:
        self.average = average or ("macro" if first_generation() else "micro")
        if self.average not in ("micro", "macro"):
            raise MetricError(f"average must be 'micro' or 'macro'; received {average!r}.")
        super().__init__(name, output_names, label_names, average=self.average, has_global_stats=True)

    def reset(self) -> None:
        super().reset()
        self._sums = numpy.zeros(6)
        self._global_sums = numpy.zeros(6)

    def reset_local(self) -> None:
        super().reset_local()
        self._sums = numpy.zeros(6)

    @staticmethod
    def _merge(sums: _Array, first: _Array, second: _Array) -> _Array:
        """Combine count, two means, two sums of squares and the cross sum with those of new elements.

        Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
        variances", 1979.
        """
        count, mean_x, mean_y, square_x, square_y, cross = sums
        added = float(first.size)
        total = count + added
        new_x, new_y = first.mean(), second.mean()
        off_x, off_y = new_x - mean_x, new_y - mean_y
        share = count * added / total
        return numpy.array(
            [
                total,
                mean_x + off_x * added / total,
                mean_y + off_y * added / total,
                square_x + ((first - new_x) ** 2).sum() + off_x**2 * share,
                square_y + ((second - new_y) ** 2).sum() + off_y**2 * share,
                cross + ((first - new_x) * (second - new_y)).sum() + off_x * off_y * share,
            ]
        )

    @staticmethod
    def _correlation(sums: _Array) -> float:
        spread = math.sqrt(sums[3] * sums[4])
        return float(sums[5] / spread) if spread else float("nan")

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            check_label_shapes(label, pred, shape=True)
            first, second = label.astype(numpy.float64).ravel(), pred.astype(numpy.float64).ravel()
            if self.average == "macro":
                self._add(self._correlation(self._merge(numpy.zeros(6), first, second)), 1)
            else:
                self._sums = self._merge(self._sums, first, second)
                self._global_sums = self._merge(self._global_sums, first, second)
                self._add(0.0, 1)

    def get(self) -> tuple[Any, Any]:
        if self.average == "macro" or not self.num_inst:
            return super().get()
        return self.name, self._correlation(self._sums)

    def get_global(self) -> tuple[Any, Any]:
        if self.average == "macro" or not self.global_num_inst:
            return super().get_global()
        return self.name, self._correlation(self._global_sums)
