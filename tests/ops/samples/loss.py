"""Samples of losses and output layers.

The output layers have a gradient that is not that of their output, so finite differences do not apply to
them; the golden cases check those gradients.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from . import Sample

_random = np.random.RandomState(21)


def normal(*shape: int) -> np.ndarray:
    return _random.randn(*shape).astype(np.float32)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def _ctc(data: np.ndarray, labels: np.ndarray, blank: int = 0) -> np.ndarray:
    """Minus log of the summed probability of every path that collapses to the labels (all paths are
    tried)."""
    length, batch, classes = data.shape
    probabilities = softmax(data)
    losses = []
    for sample in range(batch):
        wanted = [int(label) for label in labels[sample] if label != (0 if blank == 0 else -1)]
        total = 0.0
        for path in product(range(classes), repeat=length):
            kept = [c for i, c in enumerate(path) if (i == 0 or c != path[i - 1]) and c != blank]
            if kept == wanted:
                total += np.prod([probabilities[i, sample, c] for i, c in enumerate(path)])
        losses.append(-np.log(total))
    return np.array(losses, data.dtype)


_LABELS = np.array([0, 2, 1], np.float32)

SAMPLES: dict[str, list[Sample]] = {
    "SoftmaxOutput": [
        Sample([normal(3, 4), _LABELS], {}, lambda x, label: softmax(x), gradient=False),
        Sample(
            [normal(2, 3, 4), np.array([[0, 1, 2, 1], [2, 2, 0, 1]], np.float32)],
            {"multi_output": True},
            lambda x, label: softmax(x, 1),
            gradient=False,
        ),
        Sample(
            [normal(2, 3, 4), np.array([[0, 1, 3], [2, 2, 0]], np.float32)],
            {"preserve_shape": True},
            lambda x, label: softmax(x),
            gradient=False,
        ),
    ],
    "LinearRegressionOutput": [Sample([normal(3, 2), normal(3, 2)], {}, lambda x, label: x, gradient=False)],
    "MAERegressionOutput": [Sample([normal(3, 2), normal(3, 2)], {}, lambda x, label: x, gradient=False)],
    "LogisticRegressionOutput": [
        Sample([normal(3, 2), normal(3, 2)], {}, lambda x, label: 1 / (1 + np.exp(-x)), gradient=False)
    ],
    "SVMOutput": [Sample([normal(3, 4), _LABELS], {}, lambda x, label: x, gradient=False)],
    "MakeLoss": [Sample([normal(3, 4)], {"grad_scale": 2.0}, lambda x: x, gradient=False)],
    "CTCLoss": [
        Sample([normal(4, 2, 3), np.array([[1, 2], [2, 0]], np.float32)], {}, _ctc, rtol=1e-4),
        Sample(
            [normal(4, 2, 3), np.array([[1, 0], [1, -1]], np.float32)],
            {"blank_label": "last"},
            lambda x, label: _ctc(x, label, blank=2),
            rtol=1e-4,
        ),
    ],
    "softmax_cross_entropy": [
        Sample(
            [normal(3, 4), _LABELS],
            {},
            lambda x, label: -np.log(softmax(x))[np.arange(3), label.astype(int)].sum(keepdims=True),
        )
    ],
}
