"""Samples of the operators for object detection, sketches and integer products, with references as plain
loops. The goldens hold their options."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from . import Sample

_DRAW = np.random.RandomState(61)


def boxes(*shape: int, size: float = 1.0) -> np.ndarray:
    low = _DRAW.uniform(0.0, 0.5, (*shape, 2))
    high = low + _DRAW.uniform(0.2, 0.5, (*shape, 2))
    # Sixteenths are the same numbers in every floating type.
    return (np.round(np.concatenate([low, high], -1) * 16) / 16 * size).astype(np.float32)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    return _DRAW.uniform(low, high, shape).astype(np.float32)


def _area(box: np.ndarray) -> float:
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def _overlap(one: np.ndarray, two: np.ndarray) -> float:
    inner = _area(np.concatenate([np.maximum(one[:2], two[:2]), np.minimum(one[2:], two[2:])]))
    union = _area(one) + _area(two) - inner
    return inner / union if union > 0 else 0.0


def _overlaps(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return np.array([[_overlap(a, b) for b in two] for a in one])


def _suppressed(rows: np.ndarray) -> np.ndarray:
    """Of rows of class, score and box: the best of those that overlap by more than 0.25, all classes."""
    left: list[np.ndarray] = []
    for row in sorted(rows, key=lambda row: -row[1]):
        if row[1] > 0.1 and all(_overlap(row[2:], other[2:]) <= 0.25 for other in left):
            left.append(row)
    return np.concatenate([np.array(left), np.full((len(rows) - len(left), rows.shape[1]), -1.0)])


def _centers(corner: np.ndarray) -> np.ndarray:
    return np.concatenate([(corner[..., :2] + corner[..., 2:]) / 2, corner[..., 2:] - corner[..., :2]], -1)


def _encoded(
    samples: np.ndarray,
    matches: np.ndarray,
    anchors: np.ndarray,
    refs: np.ndarray,
    means: np.ndarray,
    deviations: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    targets, masks = np.zeros(anchors.shape), np.zeros(anchors.shape)
    for image, place in zip(*np.nonzero(samples > 0.5), strict=True):
        box = _centers(refs[image, int(matches[image, place])])
        anchor = _centers(anchors[image, place])
        offset = np.concatenate([(box[:2] - anchor[:2]) / anchor[2:], np.log(box[2:] / anchor[2:])])
        targets[image, place], masks[image, place] = (offset - means) / deviations, 1
    return targets, masks


def _decoded(data: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    centers = data[..., :2] * anchors[..., 2:] + anchors[..., :2]
    half = np.exp(data[..., 2:]) * anchors[..., 2:] / 2
    return np.concatenate([centers - half, centers + half], -1)


def _matched(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.full(scores.shape[0], -1.0), np.full(scores.shape[1], -1.0)
    for flat in np.argsort(-scores, axis=None, kind="stable"):
        row, column = divmod(int(flat), scores.shape[1])
        if scores[row, column] > 0.25 and rows[row] < 0 and columns[column] < 0:
            rows[row], columns[column] = column, row
    return rows, columns


def _priors(data: np.ndarray) -> np.ndarray:
    """Sizes 0.5 and 0.25 with ratio 1, then size 0.5 with ratio 2, around every place."""
    height, width = data.shape[2:]
    found = []
    for row, column in product(range(height), range(width)):
        x, y = (column + 0.5) / width, (row + 0.5) / height
        for size, ratio in ((0.5, 1.0), (0.25, 1.0), (0.5, 2.0)):
            w, h = size * height / width * np.sqrt(ratio) / 2, size / np.sqrt(ratio) / 2
            found.append([x - w, y - h, x + w, y + h])
    return np.array([found])


def _pooled(data: np.ndarray, rois: np.ndarray) -> np.ndarray:
    """Maxima over 2 x 2 bins of whole-number regions."""
    result = np.zeros((len(rois), data.shape[1], 2, 2))
    for number, (image, left, top, right, bottom) in enumerate(rois.astype(int)):
        part = data[image, :, top : bottom + 1, left : right + 1]
        height, width = part.shape[1:]
        for i, j in product(range(2), range(2)):
            rows = slice(i * height // 2, -(-(i + 1) * height // 2))
            columns = slice(j * width // 2, -(-(j + 1) * width // 2))
            result[number, :, i, j] = part[:, rows, columns].max((1, 2))
    return result


def _bilinear(image: np.ndarray, row: float, column: float) -> np.ndarray:
    row, column = (float(np.clip(v, 0, n - 1)) for v, n in zip((row, column), image.shape[1:], strict=True))
    top, left = int(row), int(column)
    total = np.zeros(len(image))
    for i, j in product((top, top + 1), (left, left + 1)):
        if i < image.shape[1] and j < image.shape[2]:
            total += image[:, i, j] * (1 - abs(row - i)) * (1 - abs(column - j))
    return total


def _aligned(data: np.ndarray, rois: np.ndarray) -> np.ndarray:
    """Means of 2 x 2 samples over 2 x 2 bins."""
    result = np.zeros((len(rois), data.shape[1], 2, 2))
    for number, (image, left, top, right, bottom) in enumerate(rois):
        height, width = max(bottom - top, 1) / 4, max(right - left, 1) / 4
        for i, j in product(range(4), range(4)):
            value = _bilinear(data[int(image)], top + (i + 0.5) * height, left + (j + 0.5) * width)
            result[number, :, i // 2, j // 2] += value / 4
    return result


def _position_mean(data: np.ndarray, rois: np.ndarray) -> np.ndarray:
    """Means over 2 x 2 bins of whole-number regions of an even size, each bin of its own channels."""
    result = np.zeros((len(rois), data.shape[1] // 4, 2, 2))
    for number, (image, left, top, right, bottom) in enumerate(rois.astype(int)):
        height, width = (bottom + 1 - top) // 2, (right + 1 - left) // 2
        for i, j in product(range(2), range(2)):
            part = data[image, 2 * i + j :: 4]
            rows = slice(top + i * height, top + (i + 1) * height)
            columns = slice(left + j * width, left + (j + 1) * width)
            result[number, :, i, j] = part[:, rows, columns].mean((1, 2))
    return result


_DATA = _DRAW.permutation(2 * 8 * 6 * 6).reshape(2, 8, 6, 6).astype(np.float32) / 576
_REGIONS = np.float32([[0, 0, 0, 3, 5], [1, 1, 2, 4, 5], [0, 2, 0, 5, 3]])
_ROWS = np.concatenate([uniform(8, 1) > 0.5, _DRAW.permutation(8).reshape(8, 1) / 8, boxes(8)], 1)
_LABELS = np.float32([[[1, *boxes(1)[0]], [0, *boxes(1)[0]], [-1] * 5]])
_ANCHORS = boxes(1, 6)
_SCORES = uniform(1, 3, 6)

DETECTION: dict[str, list[Sample]] = {
    "_contrib_box_iou": [Sample([boxes(3), boxes(2)], {}, _overlaps)],
    "_contrib_box_nms": [
        Sample(
            [_ROWS.astype(np.float32)],
            {"overlap_thresh": 0.25, "valid_thresh": 0.1},
            _suppressed,
        )
    ],
    "_contrib_box_encode": [
        Sample(
            [
                np.float32([[1, 0, 1], [-1, 1, 0]]),
                np.float32([[0, 1, 1], [0, 1, 0]]),
                boxes(2, 3),
                boxes(2, 2),
                np.float32([0, 0, 0.125, 0]),
                np.float32([0.5, 0.5, 0.25, 0.25]),
            ],
            {},
            _encoded,
        )
    ],
    "_contrib_box_decode": [Sample([uniform(2, 3, 4), boxes(1, 3)], {}, _decoded)],
    "_contrib_bipartite_matching": [
        Sample([_DRAW.permutation(20).reshape(4, 5).astype(np.float32) / 16], {"threshold": 0.25}, _matched)
    ],
    "_contrib_MultiBoxPrior": [
        Sample([uniform(1, 2, 3, 4)], {"sizes": (0.5, 0.25), "ratios": (1.0, 2.0)}, _priors)
    ],
    "_contrib_MultiBoxTarget": [Sample([_ANCHORS, _LABELS, _SCORES], {})],
    "_contrib_MultiBoxDetection": [Sample([_SCORES, uniform(1, 24), _ANCHORS], {})],
    "_contrib_Proposal": [
        Sample(
            [uniform(1, 4, 3, 3), uniform(1, 8, 3, 3), np.float32([[48, 48, 1]])],
            {"rpn_post_nms_top_n": 4, "scales": (2.0,), "ratios": (0.5, 1.0), "output_score": True},
        )
    ],
    "_contrib_MultiProposal": [
        Sample(
            [uniform(2, 2, 3, 3), uniform(2, 4, 3, 3), np.float32([[48, 48, 1], [40, 40, 1]])],
            {"rpn_post_nms_top_n": 4, "scales": (2.0,), "ratios": (1.0,)},
        )
    ],
}

POOLING: dict[str, list[Sample]] = {
    "ROIPooling": [
        Sample([_DATA, _REGIONS], {"pooled_size": (2, 2), "spatial_scale": 1.0}, _pooled, gradient=False)
    ],
    "_contrib_ROIAlign": [
        Sample(
            [_DATA, _REGIONS],
            {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2},
            _aligned,
            gradient=False,
        )
    ],
    "_contrib_RROIAlign": [
        Sample(
            [_DATA, np.float32([[0, 3, 3, 4, 2, 0], [1, 2, 3, 2, 3, 0]])],
            {"pooled_size": (2, 2), "spatial_scale": 1.0, "sampling_ratio": 2},
            lambda data, rois: _aligned(
                data,
                np.concatenate(
                    [rois[:, :1], rois[:, 1:3] - rois[:, 3:5] / 2, rois[:, 1:3] + rois[:, 3:5] / 2], 1
                ),
            ),
            gradient=False,
        )
    ],
    "_contrib_PSROIPooling": [
        Sample(
            [_DATA, _REGIONS],
            {"spatial_scale": 1.0, "output_dim": 2, "pooled_size": 2},
            _position_mean,
            gradient=False,
        )
    ],
    "_contrib_DeformablePSROIPooling": [
        Sample(
            [_DATA, _REGIONS, np.zeros((3, 2, 2, 2), np.float32)],
            {
                "spatial_scale": 1.0,
                "output_dim": 2,
                "pooled_size": 2,
                "group_size": 2,
                "part_size": 2,
                "sample_per_part": 2,
                "trans_std": 0.1,
            },
            gradient=False,
        )
    ],
}


def _sketched(data: np.ndarray, h: np.ndarray, s: np.ndarray) -> np.ndarray:
    out = np.zeros((len(data), 3))
    for i, place in enumerate(h[0].astype(int)):
        out[:, place] += s[0, i] * data[:, i]
    return out


def _fourier(data: np.ndarray) -> np.ndarray:
    found = np.fft.fft(data)
    return np.stack([found.real, found.imag], -1).reshape(*data.shape[:-1], -1)


def _likelihood(*inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By the definition: intensities at the events, and integrals of the excitement of each past event."""
    background, alpha, beta, state, lags, marks, lengths, ends = inputs
    totals, states = np.zeros(len(background)), np.zeros(background.shape)
    for row in range(len(background)):
        times = np.cumsum(lags[row])[: int(lengths[row])]
        kinds = marks[row][: len(times)].astype(int)

        def excitement(kind: int, when: float, number: int, row: int = row, times: Any = times,
                       kinds: Any = kinds) -> float:  # fmt: skip
            start = state[row, kind] * np.exp(-beta[kind] * when)
            past = [np.exp(-beta[kind] * (when - times[i])) for i in range(number) if kinds[i] == kind]
            return start + sum(past)

        for i, (time, kind) in enumerate(zip(times, kinds, strict=True)):
            rate = background[row, kind] + alpha[kind] * beta[kind] * excitement(kind, time, i)
            totals[row] += np.log(rate)
        for kind in range(background.shape[1]):
            states[row, kind] = excitement(kind, ends[row], len(times))
            begun = state[row, kind] + (kinds == kind).sum()
            totals[row] -= background[row, kind] * ends[row] + alpha[kind] * (begun - states[row, kind])
    return totals, states


_PROCESS = [
    uniform(2, 3, low=0.5, high=1.5),
    uniform(3, low=0.25, high=0.75),
    uniform(3, low=0.5, high=2.0),
    uniform(2, 3),
    uniform(2, 4, low=0.25, high=1.0),
    _DRAW.randint(0, 3, (2, 4)).astype(np.int32),
    np.float32([4, 2]),
    np.float32([5, 4]),
]

SKETCHES: dict[str, list[Sample]] = {
    "_contrib_count_sketch": [
        Sample(
            [uniform(2, 4), np.float32([[0, 2, 2, 1]]), np.float32([[1, -1, 1, -1]])],
            {"out_dim": 3},
            _sketched,
            gradient=False,
        )
    ],
    "_contrib_fft": [Sample([uniform(2, 5)], {}, _fourier)],
    "_contrib_ifft": [
        Sample([uniform(2, 8)], {}, lambda x: np.fft.ifft(x[:, ::2] + 1j * x[:, 1::2]).real * 4)
    ],
    "_contrib_hawkesll": [Sample(_PROCESS, {}, _likelihood, gradient=False)],
}


def _eighths(data: np.ndarray, largest: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(data * (127 / largest[0])), -127, 127)


_WHOLE = _DRAW.randint(-127, 128, (3, 64)).astype(np.int8)
_WEIGHT = _DRAW.randint(-127, 128, (8, 64)).astype(np.int8)


def _product(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return data.astype(np.int64) @ weight.T.astype(np.int64)


INTEGERS: dict[str, list[Sample]] = {
    "_contrib_intgemm_maxabsolute": [
        Sample([uniform(3, 8, low=-2)], {}, lambda x: np.abs(x).max().reshape(1))
    ],
    "_contrib_intgemm_prepare_data": [
        Sample([np.float32([[0.5, -1.25, 3, 0.75]]), np.float32([2])], {}, _eighths)
    ],
    "_contrib_intgemm_prepare_weight": [
        Sample([np.rint(uniform(8, 64, low=-127, high=127)), np.float32([127])], {}, _eighths)
    ],
    "_contrib_intgemm_take_weight": [
        Sample([_WEIGHT, np.int32([7, 0, 3, 1, 2, 5, 6, 4])], {}, lambda w, i: w[i])
    ],
    "_contrib_intgemm_fully_connected": [
        Sample(
            [_WHOLE, _WEIGHT, np.float32([0.001]), uniform(8)],
            {"num_hidden": 8},
            lambda x, w, s, b: _product(x, w) * float(s[0]) + b,
        ),
        Sample([_WHOLE, _WEIGHT], {"num_hidden": 8, "no_bias": True, "out_type": "int32"}, _product),
    ],
}


def _steps(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, high = float(data.min()), float(data.max())
    scale = 255 / (high - low)
    shift = 255 - high * scale
    return np.floor(data * scale + shift + 0.5), np.array([scale]), np.array([shift])


def _lstm(
    data: np.ndarray,
    parameters: np.ndarray,
    state: np.ndarray,
    cell: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
) -> np.ndarray:
    """One layer of two units over three inputs: gates input, forget, cell, output."""
    inputs, states = parameters[:24].reshape(8, 3), parameters[24:40].reshape(8, 2)
    bias = parameters[40:48] + parameters[48:]
    hidden, memory, found = state[0], cell[0], []
    for step in (data.astype(np.float64) - shift) / scale:
        enter, forget, new, leave = np.split(step @ inputs.T + hidden @ states.T + bias, 4, 1)
        memory = memory / (1 + np.exp(-forget)) + np.tanh(new) / (1 + np.exp(-enter))
        hidden = np.tanh(memory) / (1 + np.exp(-leave))
        found.append(hidden)
    return np.stack(found)


INTEGERS["_contrib_quantize_asym"] = [Sample([uniform(2, 5, low=-1, high=2)], {}, _steps)]
INTEGERS["_contrib_quantized_rnn"] = [
    Sample(
        [
            _DRAW.randint(0, 256, (3, 2, 3)).astype(np.uint8),
            uniform(56, low=-0.5, high=0.5),
            uniform(1, 2, 2),
            uniform(1, 2, 2),
            np.float32([80]),
            np.float32([128]),
        ],
        {"state_size": 2, "num_layers": 1, "mode": "lstm"},
        _lstm,
        gradient=False,
    )
]

SAMPLES: dict[str, list[Sample]] = {**DETECTION, **POOLING, **SKETCHES, **INTEGERS}
