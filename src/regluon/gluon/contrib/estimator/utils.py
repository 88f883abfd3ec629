"""Metrics that an `Estimator` makes when it is given none."""

from __future__ import annotations

import copy
from typing import Any

from ... import loss as losses
from ...metric import Accuracy, CompositeEvalMetric, EvalMetric
from ...metric import Loss as LossMetric

__all__ = ["Accuracy", "CompositeEvalMetric", "EvalMetric", "LossMetric"]

TRAINING, VALIDATION = "training ", "validation "


def metric_list(metrics: Any) -> list[EvalMetric]:
    """A metric, or a list of them, as a list.

    Raises
    ------
    ValueError
        If there is anything else among them.
    """
    if metrics is None:
        return []
    listed = list(metrics) if isinstance(metrics, (list, tuple)) else [metrics]
    if not all(isinstance(metric, EvalMetric) for metric in listed):
        raise ValueError(
            f"metrics must be a Metric or a list of Metric, refer to mxnet.gluon.metric.EvalMetric: {metrics}"
        )
    return listed


def default_metrics(loss: Any) -> list[EvalMetric]:
    """The mean loss and, for classes, the accuracy."""
    metrics: list[EvalMetric] = []
    if isinstance(loss, losses.SoftmaxCrossEntropyLoss) and loss._sparse_label:
        metrics.append(Accuracy())
    name = loss.name.rstrip("1234567890") if getattr(loss, "_level", 2) == 1 else type(loss).__name__
    metrics.append(LossMetric(name))
    return metrics


def mark(metric: EvalMetric, start: str) -> None:
    """Let a metric's name say what it is measured on."""
    for other in (TRAINING, VALIDATION):
        metric.name = metric.name.removeprefix(other)
    metric.name = start + metric.name
    for child in getattr(metric, "metrics", []):
        mark(child, start)


def validation_twin(metric: EvalMetric) -> EvalMetric:
    """A metric of the same kind and arguments for validation."""
    twin = copy.deepcopy(metric)
    twin.reset()
    mark(twin, VALIDATION)
    return twin


def pairs(metrics: list[EvalMetric]) -> list[tuple[str, Any]]:
    """Names and values of metrics; those of several metrics in one are told apart."""
    return [pair for metric in metrics for pair in metric.get_name_value()]


def known_metrics(metrics: list[EvalMetric]) -> list[EvalMetric]:
    """The metrics and those that they are made of."""
    return [one for metric in metrics for one in (metric, *known_metrics(getattr(metric, "metrics", [])))]
