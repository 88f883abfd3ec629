"""Metrics, compared with the originals' of the same API level and with scikit-learn-free formulas."""

from __future__ import annotations

import json
import math
import pathlib

import numpy as np
import pytest
import torch

from regluon.array import NDArray, ndarray
from regluon.base import config
from regluon.gluon import metric

ROWS = json.loads((pathlib.Path(__file__).parent.parent / "golden" / "metrics.json").read_text())


def array(values, kind=NDArray):
    return kind._wrap(torch.tensor(np.asarray(values, dtype="float32")), None)


@pytest.mark.parametrize("kind", [NDArray, ndarray])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['version']}-{row['name']}-{row['options']}")
def test_values(row, kind):
    config.set_api(1 if row["version"] == "1.9.1" else 2)
    found = getattr(metric, row["name"])(**row["options"])
    for (label, (flat, shape)), expected in zip(row["batches"], row["values"], strict=True):
        found.update([array(label, kind)], [array(np.reshape(flat, shape), kind)])
        np.testing.assert_allclose(found.get()[1], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.get_global()[1], row["values"][-1], rtol=1e-5, atol=1e-6)


def test_create():
    assert isinstance(metric.create("acc"), metric.Accuracy)
    assert isinstance(metric.create("CE"), metric.CrossEntropy)
    assert isinstance(metric.create("top_k_accuracy", top_k=2), metric.TopKAccuracy)
    assert isinstance(metric.create("pearsonr"), metric.PearsonCorrelation)
    assert metric.create(["acc", "mse"]).get()[0] == ["accuracy", "mse"]
    assert metric.create(lambda label, pred: 1.0).name == "custom(<lambda>)"
    instance = metric.Accuracy()
    assert metric.create(instance) is instance
    with pytest.raises(ValueError, match=r"No metric is registered under 'zzz'. Known are acc"):
        metric.create("zzz")
    with pytest.raises(ValueError, match="received 3"):
        metric.create(3)


def test_composite():
    both = metric.CompositeEvalMetric([metric.Accuracy(), metric.TopKAccuracy(2)])
    label, pred = array([0, 1]), array([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]])
    both.update([label], [pred])
    assert both.get() == (["accuracy", "top_k_accuracy_2"], [0.5, 1.0])
    assert str(both) == "EvalMetric: {'accuracy': 0.5, 'top_k_accuracy_2': 1.0}"
    assert both.get_metric(1).name == "top_k_accuracy_2"
    with pytest.raises(ValueError, match="There is no metric 5; there are 2"):
        both.get_metric(5)
    both.reset()
    assert math.isnan(both.get()[1][0])


def test_local_and_global_sums():
    accuracy = metric.Accuracy()
    accuracy.update(array([1]), array([[0.1, 0.9]]))
    accuracy.reset_local()
    assert math.isnan(accuracy.get()[1]) and accuracy.get_global() == ("accuracy", 1.0)
    accuracy.update(array([0]), array([[0.1, 0.9]]))
    assert accuracy.get()[1] == 0.0 and accuracy.get_global_name_value() == [("accuracy", 0.5)]


def test_by_names():
    accuracy = metric.Accuracy(output_names=["softmax_output"], label_names=["softmax_label"])
    labels = {"softmax_label": array([1]), "other": array([5])}
    accuracy.update_dict(labels, {"softmax_output": array([[0.1, 0.9]]), "extra": array([0])})
    assert accuracy.get() == ("accuracy", 1.0)
    assert accuracy.get_config() == {
        "metric": "Accuracy",
        "name": "accuracy",
        "axis": 1,
        "output_names": ["softmax_output"],
        "label_names": ["softmax_label"],
    }


def test_custom_functions():
    def difference(label, pred):
        assert isinstance(label, np.ndarray)
        return float((label - pred).sum()), 2

    found = metric.np(difference)
    assert found.name == "difference"
    found.update([array([1.0, 3.0])], [array([0.0, 0.0])])
    assert found.get()[1] == 2.0
    extra = metric.CustomMetric(lambda label, pred: 1.0, name="extra", allow_extra_outputs=True)
    extra.update([array([1])], [array([1]), array([1])])
    assert extra.get() == ("extra", 1.0)
    with pytest.raises(NotImplementedError, match="holds a function"):
        extra.get_config()


def test_loss_takes_one_array_or_several():
    loss = metric.Loss()
    loss.update(None, array([1.0, 2.0]))
    loss.update(0, [array([3.0]), array([6.0])])
    assert loss.get() == ("loss", 3.0)


def test_cross_entropy_of_scores_along_an_axis():
    draw = np.random.RandomState(0)
    scores, label = draw.normal(0, 1, (2, 4, 3)), draw.randint(0, 4, (2, 3))
    found = metric.CrossEntropy(axis=1, from_logits=True)
    found.update([array(label)], [array(scores)])
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    expected = -np.take_along_axis(logs, label[:, None], 1).mean()
    assert found.get()[1] == pytest.approx(expected, rel=1e-5)


def test_pairwise_distance_of_any_norm():
    found = metric.MeanPairwiseDistance(p=1)
    found.update(array([[1.0, 2.0], [0.0, 0.0]]), array([[2.0, 0.0], [0.0, 5.0]]))
    assert found.get() == ("mpd", 4.0)


def test_perplexity_first_argument():
    config.set_api(1)
    assert metric.Perplexity(3).ignore_label == 3
    config.set_api(2)
    assert metric.Perplexity(1e-6).eps == 1e-6
    with pytest.raises(TypeError, match="eps twice"):
        metric.Perplexity(1e-6, eps=1e-5)


def test_f1_against_counts():
    truth = np.array([1, 1, 0, 0, 1])
    scores = np.array([[0.2, 0.8], [0.7, 0.3], [0.4, 0.6], [0.9, 0.1], [0.1, 0.9]])
    found = metric.F1()
    found.update([array(truth)], [array(scores)])
    precision = recall = 2 / 3
    assert found.get()[1] == pytest.approx(2 * precision * recall / (precision + recall))


@pytest.mark.parametrize(
    ("make", "label", "pred", "message"),
    [
        (
            metric.Accuracy,
            [0, 1, 2],
            [[0.5, 0.5], [0.5, 0.5]],
            "Labels have number 3, predictions have number 2",
        ),
        (metric.F1, [0, 2], [[0.5, 0.5], [0.5, 0.5]], "F1 is binary: labels must be 0 or 1; received"),
        (metric.MSE, [0, 1, 2], [0, 1], "Labels have shape \\(3,\\), predictions \\(2,\\)"),
        (metric.CrossEntropy, [0, 1, 2], [[0.5, 0.5]], "do not fit predictions"),
        (metric.PearsonCorrelation, [0, 1], [[0], [1]], "Labels have shape \\(2,\\)"),
    ],
)
def test_mismatches(make, label, pred, message):
    with pytest.raises(ValueError, match=message):
        make().update([array(label)], [array(pred)])


def test_arguments():
    with pytest.raises(ValueError, match="For 1, use Accuracy"):
        metric.TopKAccuracy()
    with pytest.raises(ValueError, match="Labels have number 1, predictions have number 2"):
        metric.Accuracy().update([array([1])], [array([1]), array([1])])
    with pytest.raises(ValueError, match="average must be"):
        metric.F1(average="mean")
    with pytest.raises(ValueError, match="class_type must be"):
        metric.F1(class_type="many")
    with pytest.raises(NotImplementedError, match="must define update"):
        metric.EvalMetric("name").update([], [])


def test_alias_module():
    from regluon import metric as alias

    assert alias.Accuracy is metric.Accuracy and alias.create is metric.create
