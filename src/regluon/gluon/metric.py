"""Metrics: how good predictions are, summed up over batches.

Every metric takes ``update(labels, preds)`` with arrays of either kind, or lists of them, and answers
``get()`` with name
and value. Where 1.x and 2.0 sum up differently (means over batches or over samples), the API level decides.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from regluon.gluon.metric_base import (
    Caffe,
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    Loss,
    MetricError,
    Torch,
    _Array,
    _Names,
    alias,
    as_numpy,
    batches,
    check_label_shapes,
    create,
    first_generation,
    np,
    register,
)
from regluon.gluon.metric_regression import (
    MAE,
    MSE,
    RMSE,
    MeanCosineSimilarity,
    MeanPairwiseDistance,
    PearsonCorrelation,
)

__all__ = [
    "F1",
    "MAE",
    "MCC",
    "MSE",
    "PCC",
    "RMSE",
    "Accuracy",
    "BinaryAccuracy",
    "Caffe",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "Fbeta",
    "Loss",
    "MeanCosineSimilarity",
    "MeanPairwiseDistance",
    "MetricError",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "TopKAccuracy",
    "Torch",
    "alias",
    "check_label_shapes",
    "create",
    "np",
    "one_hot",
    "predict_with_threshold",
    "register",
]


def predict_with_threshold(pred: Any, threshold: float | _Array = 0.5) -> Any:
    """1 where the prediction is above the threshold (a number, or one for each class), else 0."""
    return pred > threshold


def one_hot(idx: Any, num: int) -> _Array:
    """Rows of zeros with a 1 at the given places: shape ``idx.shape + (num,)``."""
    return (as_numpy(idx).astype(numpy.int64)[..., None] == numpy.arange(num)).astype(numpy.int32)


# Classification ----------------------------------------------------------------------


@alias("acc")
class Accuracy(EvalMetric):
    """Share of right predictions. Predictions are class scores (classes along ``axis``), or classes."""

    def __init__(
        self,
        axis: int = 1,
        name: str = "accuracy",
        output_names: _Names = None,
        label_names: _Names = None,
    ) -> None:
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            if pred.shape != label.shape:
                pred = pred.argmax(self.axis)
            label, pred = label.astype(numpy.int64).ravel(), pred.astype(numpy.int64).ravel()
            check_label_shapes(label, pred)
            self._add(int((label == pred).sum()), len(label))


@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """Share of labels among the ``top_k`` (at least 2) best-scored classes."""

    def __init__(
        self,
        top_k: int = 1,
        name: str = "top_k_accuracy",
        output_names: _Names = None,
        label_names: _Names = None,
    ) -> None:
        if top_k <= 1:
            raise MetricError(f"top_k must be more than 1; received {top_k}. For 1, use Accuracy.")
        super().__init__(f"{name}_{top_k}", output_names, label_names, top_k=top_k, has_global_stats=True)
        self.top_k = top_k

    def get_config(self) -> dict[str, Any]:
        result = super().get_config()
        result["name"] = self.name.removesuffix(f"_{self.top_k}")
        return result

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            if pred.ndim > 2:
                raise MetricError(f"Predictions must have at most 2 dimensions; received shape {pred.shape}.")
            label = label.astype(numpy.int64).ravel()
            if pred.ndim == 1:
                best = pred.astype(numpy.int64)[:, None]
            else:
                best = numpy.argsort(pred.astype(numpy.float32), axis=1)[:, -min(self.top_k, pred.shape[1]) :]
            check_label_shapes(label, best)
            self._add(int((best == label[:, None]).any(1).sum()), len(label))


@alias()
class BinaryAccuracy(EvalMetric):
    """Share of right predictions, where a score above the threshold means 1."""

    def __init__(
        self,
        name: str = "binary_accuracy",
        output_names: _Names = None,
        label_names: _Names = None,
        threshold: float = 0.5,
    ) -> None:
        super().__init__(name, output_names, label_names, threshold=threshold, has_global_stats=True)
        self.threshold = threshold

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            found = predict_with_threshold(pred, self.threshold).astype(numpy.int64).ravel()
            truth = label.astype(numpy.int64).ravel()
            check_label_shapes(truth, found)
            self._add(int((truth == found).sum()), len(truth))


class _Counts:
    """True and false positives and negatives, per class."""

    def __init__(self) -> None:
        self.true_positives: Any = 0
        self.false_positives: Any = 0
        self.false_negatives: Any = 0
        self.true_negatives: Any = 0

    @property
    def total(self) -> int:
        sums = self.true_positives + self.false_positives + self.false_negatives + self.true_negatives
        return int(numpy.max(sums))

    def add(self, truth: _Array, found: _Array) -> None:
        """Count boolean arrays of shape (samples, classes)."""
        self.true_positives = self.true_positives + (truth & found).sum(0)
        self.false_positives = self.false_positives + (~truth & found).sum(0)
        self.false_negatives = self.false_negatives + (truth & ~found).sum(0)
        self.true_negatives = self.true_negatives + (~truth & ~found).sum(0)

    def fbeta(self, beta: float, pooled: bool) -> Any:
        """F-beta of each class, or with ``pooled`` of all counts together."""
        hits, wrong, missed = (
            numpy.asarray(part, dtype=numpy.float64)
            for part in (self.true_positives, self.false_positives, self.false_negatives)
        )
        if pooled:
            hits, wrong, missed = hits.sum(), wrong.sum(), missed.sum()
        square = beta * beta
        below = (1 + square) * hits + square * missed + wrong
        with numpy.errstate(invalid="ignore", divide="ignore"):
            return numpy.where(below > 0, (1 + square) * hits / below, 0.0)

    def matthews(self) -> float:
        """Matthews' correlation coefficient; factors of the root that are 0 are left out."""
        hits, wrong, missed, rest = (
            float(numpy.sum(part))
            for part in (self.true_positives, self.false_positives, self.false_negatives, self.true_negatives)
        )
        if not self.total:
            return 0.0
        root = 1.0
        for term in (hits + wrong, hits + missed, rest + wrong, rest + missed):
            root *= term if term else 1.0
        return (hits * rest - wrong * missed) / math.sqrt(root)


def _binary(label: _Array, pred: _Array, threshold: Any, name: str) -> tuple[_Array, _Array]:
    truth = label.astype(numpy.int64).ravel()
    if len(truth) and (truth.min() < 0 or truth.max() > 1):
        raise MetricError(
            f"{name} is binary: labels must be 0 or 1; received {numpy.unique(truth)[:8].tolist()}. "
            f"For more classes pass class_type='multiclass' (F1, Fbeta), or use PCC."
        )
    if pred.ndim > 1 and pred.shape[-1] == 2 and pred.size == 2 * len(truth):
        found = pred.reshape(-1, 2).argmax(1) == 1
    else:
        found = predict_with_threshold(pred, threshold).ravel()
    check_label_shapes(truth, found)
    return (truth == 1)[:, None], found.astype(bool)[:, None]


class _ConfusionMetric(EvalMetric):
    """A value of the confusion counts: of all batches together (micro), or its mean over batches (1.x
    macro)."""

    per_batch = False

    def reset(self) -> None:
        super().reset()
        self._local = _Counts()
        self._global = _Counts()

    def reset_local(self) -> None:
        super().reset_local()
        self._local = _Counts()

    def _measure(self, counts: _Counts) -> Any:
        raise NotImplementedError

    def _count(self, truth: _Array, found: _Array) -> None:
        if self.per_batch:
            batch = _Counts()
            batch.add(truth, found)
            self._add(self._measure(batch), 1)
            return
        for counts in (self._local, self._global):
            counts.add(truth, found)
        self._add(0.0, len(truth))

    def get(self) -> tuple[Any, Any]:
        if self.per_batch or not self.num_inst:
            return super().get()
        return self.name, self._measure(self._local)

    def get_global(self) -> tuple[Any, Any]:
        if self.per_batch or not self.global_num_inst:
            return super().get_global()
        return self.name, self._measure(self._global)


@alias()
class F1(_ConfusionMetric):
    """F1: the harmonic mean of precision and recall.

    Parameters
    ----------
    class_type : {"binary", "multiclass", "multilabel"}
        What labels are. Binary predictions are scores of two classes, or of the second one.
    threshold : float or array
        Above which a score means 1 (binary and multilabel).
    average : {"micro", "macro", None}
        At API level 2 (default "micro"): over all counts together, mean over classes, or one value a
        class. At level 1 (default "macro"): over all counts together, or mean over batches.
    """

    def __init__(
        self,
        name: str = "f1",
        output_names: _Names = None,
        label_names: _Names = None,
        class_type: str = "binary",
        threshold: Any = 0.5,
        average: str | None = "",
    ) -> None:
        self._set_up(1.0, class_type, threshold, average)
        super().__init__(
            name,
            output_names,
            label_names,
            class_type=class_type,
            threshold=threshold,
            average=self.average,
            has_global_stats=True,
        )

    def _set_up(self, beta: float, class_type: str, threshold: Any, average: str | None) -> None:
        if class_type not in ("binary", "multiclass", "multilabel"):
            raise MetricError(
                f"class_type must be 'binary', 'multiclass' or 'multilabel'; received {class_type!r}."
            )
        if average == "":
            average = "macro" if first_generation() else "micro"
        if average not in ("micro", "macro", None):
            raise MetricError(f"average must be 'micro', 'macro' or None; received {average!r}.")
        self.beta = beta
        self.class_type = class_type
        self.threshold = threshold
        self.average = average
        self.per_batch = average == "macro" and class_type == "binary" and first_generation()

    def _measure(self, counts: _Counts) -> Any:
        scores = counts.fbeta(self.beta, pooled=self.average == "micro")
        if self.average is None and self.class_type != "binary":
            return scores
        return float(scores.mean())

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            if self.class_type == "binary":
                truth, found = _binary(label, pred, self.threshold, type(self).__name__)
            elif self.class_type == "multiclass":
                classes = pred.shape[-1]
                chosen = pred.reshape(-1, classes).argmax(1)
                check_label_shapes(label.ravel(), chosen)
                truth = one_hot(label.ravel(), classes).astype(bool)
                found = one_hot(chosen, classes).astype(bool)
            else:
                check_label_shapes(label, pred, shape=True)
                classes = pred.shape[-1]
                truth = label.reshape(-1, classes) == 1
                found = predict_with_threshold(pred.reshape(-1, classes), self.threshold)
            self._count(truth, found)


@alias()
class Fbeta(F1):
    """F-beta: recall counts ``beta`` times as much as precision."""

    def __init__(
        self,
        name: str = "fbeta",
        output_names: _Names = None,
        label_names: _Names = None,
        class_type: str = "binary",
        beta: float = 1,
        threshold: Any = 0.5,
        average: str | None = "",
    ) -> None:
        super().__init__(name, output_names, label_names, class_type, threshold, average)
        self.beta = beta
        self._kwargs["beta"] = beta


@alias()
class MCC(_ConfusionMetric):
    """Matthews' correlation coefficient of binary predictions.

    ``average``: over all counts together ("micro", the only way of 2.0), or mean over batches ("macro",
    default of 1.x).
    """

    def __init__(
        self,
        name: str = "mcc",
        output_names: _Names = None,
        label_names: _Names = None,
        average: str | None = None,
    ) -> None:
        average = average or ("macro" if first_generation() else "micro")
        if average not in ("micro", "macro"):
            raise MetricError(f"average must be 'micro' or 'macro'; received {average!r}.")
        self.per_batch = average == "macro"
        self._average = average
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    def _measure(self, counts: _Counts) -> float:
        return counts.matthews()

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            self._count(*_binary(label, pred, 0.5, "MCC"))


@alias()
class PCC(EvalMetric):
    """Multiclass correlation coefficient; for two classes it is Matthews'.

    Source: Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004.
    """

    def __init__(
        self,
        name: str = "pcc",
        output_names: _Names = None,
        label_names: _Names = None,
        has_global_stats: bool = True,
    ) -> None:
        self.k = 2
        super().__init__(name, output_names, label_names, has_global_stats=has_global_stats)

    def reset(self) -> None:
        super().reset()
        self.lcm = numpy.zeros((self.k, self.k))
        self.gcm = numpy.zeros((self.k, self.k))

    def reset_local(self) -> None:
        super().reset_local()
        self.lcm = numpy.zeros((self.k, self.k))

    @staticmethod
    def _coefficient(matrix: _Array) -> float:
        total = matrix.sum()
        if not total:
            return float("nan")
        rows, columns = matrix.sum(1), matrix.sum(0)
        cross = total * numpy.trace(matrix) - rows @ columns
        spread = math.sqrt(max((total**2 - rows @ rows) * (total**2 - columns @ columns), 0.0))
        return float(cross / spread) if spread else float("nan")

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            truth = label.astype(numpy.int64).ravel()
            found = (pred.argmax(1) if pred.shape != label.shape else pred).astype(numpy.int64).ravel()
            check_label_shapes(truth, found)
            classes = int(max(found.max(initial=0), truth.max(initial=0))) + 1
            if classes > self.k:
                grow = ((0, classes - self.k), (0, classes - self.k))
                self.lcm, self.gcm, self.k = numpy.pad(self.lcm, grow), numpy.pad(self.gcm, grow), classes
            batch = numpy.zeros((self.k, self.k))
            numpy.add.at(batch, (found, truth), 1)
            self.lcm = self.lcm + batch
            self.gcm = self.gcm + batch
            self._add(0.0, 1)

    def get(self) -> tuple[Any, Any]:
        return self.name, self._coefficient(self.lcm)

    def get_global(self) -> tuple[Any, Any]:
        return self.name, self._coefficient(self.gcm)


@alias("ce")
class CrossEntropy(EvalMetric):
    """Mean of -log of the probability given to the label.

    Parameters
    ----------
    eps : float
        Added to probabilities, so that the logarithm of 0 is finite.
    ignore_label : int, optional
        Label that does not count.
    axis : int
        Axis of the classes.
    from_logits : bool
        Predictions are scores, of which softmax makes probabilities.
    """

    def __init__(
        self,
        eps: float = 1e-12,
        ignore_label: int | None = None,
        axis: int = -1,
        from_logits: bool = False,
        name: str = "cross-entropy",
        output_names: _Names = None,
        label_names: _Names = None,
    ) -> None:
        super().__init__(
            name,
            output_names,
            label_names,
            eps=eps,
            ignore_label=ignore_label,
            axis=axis,
            from_logits=from_logits,
            has_global_stats=True,
        )
        self.eps = eps
        self.ignore_label = ignore_label
        self.axis = axis
        self.from_logits = from_logits

    def _negative_logs(self, label: _Array, pred: _Array) -> tuple[_Array, _Array]:
        """-log of the label's probability for every sample, and which samples count."""
        scores = numpy.moveaxis(pred, self.axis, -1).astype(numpy.float64)
        scores = scores.reshape(-1, scores.shape[-1])
        truth = label.astype(numpy.int64).ravel()
        if len(truth) != len(scores):
            raise MetricError(
                f"Labels of shape {label.shape} do not fit predictions of shape {pred.shape} "
                f"with classes along axis {self.axis}."
            )
        counted = numpy.ones(len(truth), dtype=bool)
        if self.ignore_label is not None:
            counted = truth != self.ignore_label
        picked = scores[numpy.arange(len(truth)), numpy.clip(truth, 0, scores.shape[1] - 1)]
        if self.from_logits:
            top = scores.max(1)
            return numpy.log(numpy.exp(scores - top[:, None]).sum(1)) + top - picked, counted
        return -numpy.log(self._guard(picked)), counted

    def _guard(self, probabilities: _Array) -> _Array:
        return probabilities + self.eps

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in batches(labels, preds):
            losses, counted = self._negative_logs(label, pred)
            self._add(float(losses[counted].sum()), int(counted.sum()))


@alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """The same as :class:`CrossEntropy`, under its other name."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "nll-loss",
        output_names: _Names = None,
        label_names: _Names = None,
    ) -> None:
        super().__init__(eps, name=name, output_names=output_names, label_names=label_names)
        self._kwargs = {"eps": eps}


@alias()
class Perplexity(CrossEntropy):
    """Exponential of the cross-entropy.

    The first positional argument is ``ignore_label`` at API level 1 and ``eps`` at level 2, as in the
    originals.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        order = (
            ("ignore_label", "axis") if first_generation() else ("eps", "ignore_label", "axis", "from_logits")
        )
        order = (*order, "name", "output_names", "label_names")
        if len(args) > len(order):
            raise TypeError(
                f"Perplexity takes at most {len(order)} positional arguments; received {len(args)}."
            )
        given = dict(zip(order, args, strict=False))
        twice = given.keys() & kwargs.keys()
        if twice:
            raise TypeError(f"Perplexity received {', '.join(sorted(twice))} twice.")
        options = {"name": "perplexity", **given, **kwargs}
        options["axis"] = -1 if options.get("axis") is None else options["axis"]
        super().__init__(**options)

    def _guard(self, probabilities: _Array) -> _Array:
        return numpy.maximum(probabilities, 1e-10) if first_generation() else probabilities + self.eps

    def _value(self, total: Any, count: float) -> Any:
        return math.exp(total / count) if count else float("nan")
