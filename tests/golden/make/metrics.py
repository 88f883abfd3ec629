"""Write values of the original's metrics, a row for each: ``python metrics.py ../metrics.json`` with both
versions."""

import json
import math
import os
import sys

import mxnet as mx
import numpy as np

VERSION = "2.0.0b1" if mx.__version__.startswith("2") else "1.9.1"
METRICS = mx.metric if VERSION == "1.9.1" else mx.gluon.metric

draw = np.random.RandomState(7)


def scores(samples, classes):
    values = draw.rand(samples, classes).astype("float32")
    return values / values.sum(1, keepdims=True)


def favour(labels, classes):
    """Scores that are right more often than not."""
    values = scores(len(labels), classes)
    values[np.arange(len(labels)), labels.astype(int)] += 0.35
    return values / values.sum(1, keepdims=True)


def batches(kind):
    result = []
    for samples in (8, 5):
        if kind == "classes":
            label = draw.randint(0, 4, samples).astype("float32")
            result.append((label, favour(label, 4)))
        elif kind == "binary":
            label = draw.randint(0, 2, samples).astype("float32")
            result.append((label, favour(label, 2)))
        elif kind == "flags":
            label = draw.randint(0, 2, (samples, 3)).astype("float32")
            result.append((label, draw.rand(samples, 3).astype("float32") * 0.6 + label * 0.4))
        elif kind == "axis":
            result.append(
                (
                    draw.randint(0, 3, (samples, 5)).astype("float32"),
                    draw.rand(samples, 3, 5).astype("float32"),
                )
            )
        else:
            first = draw.rand(samples, 3).astype("float32")
            result.append((first, first * 0.7 + draw.rand(samples, 3).astype("float32") * 0.5))
    return result


CASES = [
    ("Accuracy", {}, "classes"),
    ("Accuracy", {"axis": 1}, "axis"),
    ("TopKAccuracy", {"top_k": 2}, "classes"),
    ("TopKAccuracy", {"top_k": 3}, "classes"),
    ("BinaryAccuracy", {}, "flags"),
    ("BinaryAccuracy", {"threshold": 0.7}, "flags"),
    ("F1", {}, "binary"),
    ("F1", {"average": "micro"}, "binary"),
    ("F1", {"average": "macro"}, "binary"),
    ("F1", {"class_type": "multiclass", "average": "micro"}, "classes"),
    ("F1", {"class_type": "multiclass", "average": "macro"}, "classes"),
    ("F1", {"class_type": "multiclass", "average": None}, "classes"),
    ("F1", {"class_type": "multilabel", "average": "macro"}, "flags"),
    ("F1", {"class_type": "multilabel", "average": "micro", "threshold": 0.7}, "flags"),
    ("Fbeta", {"beta": 2}, "binary"),
    ("Fbeta", {"class_type": "multiclass", "average": "macro", "beta": 0.5}, "classes"),
    ("MCC", {}, "binary"),
    ("MCC", {"average": "micro"}, "binary"),
    ("PCC", {}, "classes"),
    ("PCC", {}, "binary"),
    ("CrossEntropy", {}, "classes"),
    ("CrossEntropy", {"ignore_label": 1}, "classes"),
    ("NegativeLogLikelihood", {}, "classes"),
    ("Perplexity", {"ignore_label": None}, "classes"),
    ("Perplexity", {"ignore_label": 1}, "classes"),
    ("MAE", {}, "values"),
    ("MSE", {}, "values"),
    ("RMSE", {}, "values"),
    ("PearsonCorrelation", {}, "values"),
    ("PearsonCorrelation", {"average": "micro"}, "values"),
    ("MeanCosineSimilarity", {}, "values"),
    ("MeanPairwiseDistance", {}, "values"),
    ("Loss", {}, "values"),
]


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


def main(target):
    rows = []
    if os.path.exists(target):
        with open(target) as stream:
            rows = [row for row in json.load(stream) if row["version"] != VERSION]
    create = mx.nd.array if VERSION == "1.9.1" else mx.np.array
    for name, options, kind in CASES:
        data = batches(kind)
        if not hasattr(METRICS, name):
            continue
        try:
            metric = getattr(METRICS, name)(**options)
        except TypeError as error:
            print(VERSION, name, options, error)
            continue
        values = []
        for label, pred in data:
            metric.update([create(label)], [create(pred)])
            values.append(plain(metric.get()[1]))
        if any(not isinstance(value, list) and not math.isfinite(value) for value in values):
            print(VERSION, name, options, values)
            continue
        arrays = [
            [label.tolist(), [[round(float(x), 9) for x in np.ravel(pred)], list(pred.shape)]]
            for label, pred in data
        ]
        rows.append(
            {"version": VERSION, "name": name, "options": options, "batches": arrays, "values": values}
        )
    rows.sort(key=lambda row: (row["version"], row["name"], json.dumps(row["options"])))
    with open(target, "w") as stream:
        stream.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
