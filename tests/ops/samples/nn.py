"""Samples of the neural-network operators: dense, activation, convolution, pooling, normalisation,
attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import erf, sqrt
from typing import Any

import numpy as np

from . import Sample

_random = np.random.RandomState(20)


def normal(*shape: int) -> np.ndarray:
    return _random.randn(*shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return _random.uniform(0.5, 1.5, shape).astype(np.float32)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


# --- dense and attention ---


def _dense(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    flat = x.reshape(len(x), -1) @ w.T
    return flat if b is None else flat + b


def _parts(x: np.ndarray, heads: int, parts: int) -> list[np.ndarray]:
    """Interleaved projections (length, batch, heads * parts * size) as (batch, heads, length, size) each."""
    length, batch, width = x.shape
    pieces = x.reshape(length, batch, heads, parts, width // heads // parts)
    return [pieces[:, :, :, part].transpose(1, 2, 0, 3) for part in range(parts)]


def _scores(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / sqrt(query.shape[-1])
    return scores.reshape(-1, *scores.shape[2:])


def _weighted(attention: np.ndarray, value: np.ndarray) -> np.ndarray:
    batch, heads, length, size = value.shape
    weights = attention.reshape(batch, heads, -1, length)
    return np.einsum("bhqk,bhkd->qbhd", weights, value).reshape(weights.shape[2], batch, heads * size)


def _window(length: int, dilation: np.ndarray, w: int, symmetric: bool) -> list[tuple[int, int, int, int]]:
    """All (query, head, slot, key) of a sliding window that lie inside the sequence."""
    slots = range(-w, w + 1) if symmetric else range(-w, 1)
    return [
        (i, head, slot, i + move * int(step))
        for i in range(length)
        for head, step in enumerate(dilation)
        for slot, move in enumerate(slots)
        if 0 <= i + move * int(step) < length
    ]


def _window_score(q: np.ndarray, k: np.ndarray, dilation: np.ndarray) -> np.ndarray:
    out = np.zeros((*q.shape[:3], 3), q.dtype)
    for i, head, slot, j in _window(q.shape[1], dilation, 1, True):
        out[:, i, head, slot] = (q[:, i, head] * k[:, j, head]).sum(-1)
    return out


def _window_context(score: np.ndarray, v: np.ndarray, dilation: np.ndarray) -> np.ndarray:
    out = np.zeros_like(v)
    for i, head, slot, j in _window(v.shape[1], dilation, 1, True):
        out[:, i, head] += score[:, i, head, slot, None] * v[:, j, head]
    return out


def _window_mask(score: np.ndarray, dilation: np.ndarray, valid: np.ndarray) -> np.ndarray:
    out = np.zeros_like(score)
    for i, head, slot, j in _window(score.shape[1], dilation, 1, True):
        out[:, i, head, slot] = (i < valid) & (j < valid)
    return out


_DILATION = np.array([1, 2], np.int32)

DENSE: dict[str, list[Sample]] = {
    "FullyConnected": [
        Sample([normal(2, 3, 4), normal(5, 12), normal(5)], {"num_hidden": 5}, _dense),
        Sample([normal(3, 4), normal(5, 4)], {"num_hidden": 5, "no_bias": True}, _dense),
        Sample(
            [normal(2, 3, 4), normal(5, 4), normal(5)],
            {"num_hidden": 5, "flatten": False},
            lambda x, w, b: x @ w.T + b,
        ),
    ],
    "dot": [
        Sample([normal(2, 3), normal(3, 4)], {}, np.dot),
        Sample(
            [normal(3, 2), normal(4, 3)], {"transpose_a": True, "transpose_b": True}, lambda a, b: a.T @ b.T
        ),
        Sample([normal(2, 3, 4), normal(4, 5)], {}, lambda a, b: np.tensordot(a, b, 1)),
    ],
    "batch_dot": [
        Sample([normal(2, 3, 4), normal(2, 4, 5)], {}, np.matmul),
        Sample(
            [normal(2, 3, 4), normal(2, 5, 4)], {"transpose_b": True}, lambda a, b: a @ b.transpose(0, 2, 1)
        ),
    ],
    "_contrib_interleaved_matmul_selfatt_qk": [
        Sample([normal(3, 2, 24)], {"heads": 2}, lambda x: _scores(*_parts(x, 2, 3)[:2]))
    ],
    "_contrib_interleaved_matmul_selfatt_valatt": [
        Sample(
            [normal(3, 2, 24), normal(4, 3, 3)], {"heads": 2}, lambda x, a: _weighted(a, _parts(x, 2, 3)[2])
        )
    ],
    "_contrib_interleaved_matmul_encdec_qk": [
        Sample(
            [normal(3, 2, 8), normal(5, 2, 16)],
            {"heads": 2},
            lambda q, kv: _scores(_parts(q, 2, 1)[0], _parts(kv, 2, 2)[0]),
        )
    ],
    "_contrib_interleaved_matmul_encdec_valatt": [
        Sample(
            [normal(5, 2, 16), normal(4, 3, 5)], {"heads": 2}, lambda kv, a: _weighted(a, _parts(kv, 2, 2)[1])
        )
    ],
    "_contrib_sldwin_atten_score": [
        Sample(
            [normal(1, 6, 2, 3), normal(1, 6, 2, 3), _DILATION], {"w": 1, "symmetric": True}, _window_score
        )
    ],
    "_contrib_sldwin_atten_context": [
        Sample(
            [normal(1, 6, 2, 3), normal(1, 6, 2, 3), _DILATION], {"w": 1, "symmetric": True}, _window_context
        )
    ],
    "_contrib_sldwin_atten_mask_like": [
        Sample(
            [normal(1, 6, 2, 3), _DILATION, np.array([4], np.int32)],
            {"w": 1, "symmetric": True},
            _window_mask,
            gradient=False,
        )
    ],
}

# --- activations ---


def _prelu(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, x * gamma.reshape(-1, 1, 1))


def _masked(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    weights = np.exp(x) * mask
    return weights / weights.sum(-1, keepdims=True)


def _short_softmax(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    for row, length in enumerate(lengths):
        out[row, :length] = softmax(x[row, :length])
    return out


def _masked_log(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(_masked(x, mask))


_MASK = np.array([[True, True, False, True], [False, True, True, True]])
_FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "softrelu": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "log_sigmoid": lambda x: -np.log1p(np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
}
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
_LEAKY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "leaky": lambda x: np.where(x > 0, x, 0.25 * x),
    "elu": lambda x: np.where(x > 0, x, 0.25 * np.expm1(x)),
    "selu": lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(x)),
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2,
    "rrelu": lambda x: np.where(x > 0, x, (0.125 + 0.333999991) / 2 * x),
}

ACTIVATION: dict[str, list[Sample]] = {
    "Activation": [
        Sample([normal(3, 4)], {"act_type": name}, formula) for name, formula in _FORMULAS.items()
    ],
    "LeakyReLU": [
        *(Sample([normal(3, 4)], {"act_type": name}, formula) for name, formula in _LEAKY.items()),
        Sample([normal(2, 3, 2, 2), positive(3)], {"act_type": "prelu"}, _prelu),
    ],
    "softmax": [
        Sample([normal(3, 4)], {}, softmax),
        Sample([normal(2, 3, 4)], {"axis": 1, "temperature": 2.0}, lambda x: softmax(x / 2, 1)),
        Sample([normal(2, 4), np.array([3, 1], np.int32)], {"use_length": True}, _short_softmax),
    ],
    "softmin": [Sample([normal(3, 4)], {"axis": 0}, lambda x: softmax(-x, 0))],
    "log_softmax": [Sample([normal(3, 4)], {"temperature": 2.0}, lambda x: np.log(softmax(x / 2)))],
    "masked_softmax": [Sample([normal(2, 4), _MASK], {}, _masked)],
    "masked_log_softmax": [Sample([normal(2, 4), _MASK], {}, _masked_log, gradient=False)],
    "SoftmaxActivation": [
        Sample([normal(2, 3)], {}, softmax),
        Sample([normal(2, 3, 2)], {"mode": "channel"}, lambda x: softmax(x, 1)),
    ],
    "Dropout": [
        Sample([normal(3, 4)], {"p": 0.5}, lambda x: x),
        Sample([normal(3, 4)], {"p": 0.0, "mode": "always"}, lambda x: x),
    ],
}

# --- convolution and pooling ---


def _windows(
    x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], fill: float = 0.0
) -> np.ndarray:
    """(N, C, *places, *kernel): every window of the padded data."""
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)], constant_values=fill)
    axes = tuple(range(2, x.ndim))
    views = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), axis=axes)
    return views[(slice(None), slice(None), *(slice(None, None, s) for s in stride))]


def _conv2d(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, stride: int = 1, pad: int = 0
) -> np.ndarray:
    windows = _windows(x, w.shape[2:], (stride,) * 2, (pad,) * 2)
    out = np.einsum("nchwij,ocij->nohw", windows, w)
    return out if b is None else out + b[:, None, None]


def _conv1d_groups(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    halves = zip(np.split(x, 2, 1), np.split(w, 2, 0), strict=True)
    return np.concatenate(
        [np.einsum("ncwi,oci->now", _windows(a, (2,), (1,), (0,)), b) for a, b in halves], 1
    )


def _deconv2d(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Stride 2, no padding: each input pixel adds its scaled kernel to the output."""
    batch, _, height, width = x.shape
    kernel = w.shape[2:]
    out = np.zeros((batch, w.shape[1], (height - 1) * 2 + kernel[0], (width - 1) * 2 + kernel[1]), x.dtype)
    for i, j in product(range(height), range(width)):
        out[:, :, 2 * i : 2 * i + kernel[0], 2 * j : 2 * j + kernel[1]] += np.einsum(
            "nc,cokl->nokl", x[:, :, i, j], w
        )
    return out


def _bilinear(image: np.ndarray, row: float, column: float) -> np.ndarray:
    """Value of (C, H, W) between pixels; zero outside."""
    total = np.zeros(image.shape[0], image.dtype)
    top, left = int(np.floor(row)), int(np.floor(column))
    for i, j in product((top, top + 1), (left, left + 1)):
        if 0 <= i < image.shape[1] and 0 <= j < image.shape[2]:
            total += image[:, i, j] * (1 - abs(row - i)) * (1 - abs(column - j))
    return total


def _deformable(
    x: np.ndarray, offset: np.ndarray, w: np.ndarray, mask: np.ndarray | None = None
) -> np.ndarray:
    out = np.zeros((x.shape[0], w.shape[0], *offset.shape[2:]), x.dtype)
    for n, i, j in product(range(x.shape[0]), *map(range, offset.shape[2:])):
        for tap, (u, v) in enumerate(product(range(w.shape[2]), range(w.shape[3]))):
            row, column = i + u + offset[n, 2 * tap, i, j], j + v + offset[n, 2 * tap + 1, i, j]
            weight = 1.0 if mask is None else mask[n, tap, i, j]
            out[n, :, i, j] += w[:, :, u, v] @ _bilinear(x[n], row, column) * weight
    return out


def _sampler(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    out = np.zeros((*x.shape[:2], *grid.shape[2:]), x.dtype)
    for n, i, j in product(range(x.shape[0]), *map(range, grid.shape[2:])):
        column = (grid[n, 0, i, j] + 1) * (x.shape[3] - 1) / 2
        row = (grid[n, 1, i, j] + 1) * (x.shape[2] - 1) / 2
        out[n, :, i, j] = _bilinear(x[n], row, column)
    return out


def _affine(theta: np.ndarray, height: int = 3, width: int = 4) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    points = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    return (theta.reshape(-1, 2, 3) @ points).reshape(-1, 2, height, width).astype(theta.dtype)


def _correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """kernel_size 1, max_displacement 1, pad_size 1."""
    height, width = a.shape[2:]
    padded = np.pad(b, [(0, 0), (0, 0), (1, 1), (1, 1)])
    planes = [
        (a * padded[:, :, u : u + height, v : v + width]).mean(1) for u, v in product(range(3), range(3))
    ]
    return np.stack(planes, 1)


def _inside(low: float, high: float, *shape: int) -> np.ndarray:
    return _random.uniform(low, high, shape).astype(np.float32)


def _resize_rows(size: int, target: int) -> np.ndarray:
    """Matrix of linear interpolation with aligned corners."""
    places = np.linspace(0, size - 1, target)
    return np.maximum(0, 1 - abs(places[:, None] - np.arange(size)))


def _resize(x: np.ndarray, height: int, width: int) -> np.ndarray:
    rows, columns = _resize_rows(x.shape[2], height), _resize_rows(x.shape[3], width)
    return np.einsum("ih,nchw,jw->ncij", rows, x, columns).astype(x.dtype)


_CONV = {"kernel": (3, 2), "num_filter": 4}
_OFFSET = _inside(0.1, 0.4, 1, 8, 3, 3)
CONVOLUTION: dict[str, list[Sample]] = {
    "Convolution": [
        Sample([normal(2, 3, 5, 5), normal(4, 3, 3, 2), normal(4)], dict(_CONV), _conv2d, rtol=1e-4),
        Sample(
            [normal(1, 3, 5, 5), normal(4, 3, 3, 2)],
            {**_CONV, "no_bias": True, "stride": (2, 2), "pad": (1, 1)},
            lambda x, w: _conv2d(x, w, None, 2, 1),
            rtol=1e-4,
        ),
        Sample(
            [normal(1, 5, 5, 3), normal(4, 3, 2, 3)],
            {**_CONV, "no_bias": True, "layout": "NHWC"},
            lambda x, w: _conv2d(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1),
            rtol=1e-4,
        ),
        Sample(
            [normal(2, 4, 6), normal(4, 2, 2)],
            {"kernel": (2,), "num_filter": 4, "num_group": 2, "no_bias": True},
            _conv1d_groups,
            rtol=1e-4,
        ),
    ],
    "Convolution_v1": [
        Sample([normal(2, 3, 5, 5), normal(4, 3, 3, 2), normal(4)], dict(_CONV), _conv2d, rtol=1e-4)
    ],
    "Deconvolution": [
        Sample(
            [normal(2, 3, 3, 4), normal(3, 2, 3, 2)],
            {"kernel": (3, 2), "num_filter": 2, "stride": (2, 2)},
            _deconv2d,
            rtol=1e-4,
        ),
        Sample(
            [normal(1, 3, 3, 3), normal(3, 2, 2, 2), normal(2)],
            {"kernel": (2, 2), "num_filter": 2, "stride": (2, 2), "target_shape": (4, 4), "no_bias": False},
            lambda x, w, b: _deconv2d(x, w)[:, :, 1:-1, 1:-1] + b[:, None, None],
            rtol=1e-4,
        ),
    ],
    "_contrib_DeformableConvolution": [
        Sample(
            [normal(1, 3, 4, 4), _OFFSET, normal(4, 3, 2, 2)],
            {"kernel": (2, 2), "num_filter": 4, "no_bias": True},
            # Within one pixel past the end the last row and column go on.
            lambda x, offset, w: _deformable(np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)], "edge"), offset, w),
            rtol=1e-4,
        )
    ],
    "_contrib_ModulatedDeformableConvolution": [
        Sample(
            [normal(1, 3, 4, 4), _OFFSET, positive(1, 4, 3, 3), normal(4, 3, 2, 2), normal(4)],
            {"kernel": (2, 2), "num_filter": 4},
            lambda x, offset, mask, w, b: _deformable(x, offset, w, mask) + b[:, None, None],
            rtol=1e-4,
        )
    ],
    "GridGenerator": [
        Sample([normal(2, 6)], {"transform_type": "affine", "target_shape": (3, 4)}, _affine),
        Sample(
            [normal(1, 2, 3, 4)],
            {"transform_type": "warp"},
            lambda x: np.stack(
                [(x[:, 0] + np.arange(4)) * 2 / 3 - 1, (x[:, 1] + np.arange(3)[:, None]) * 2 / 2 - 1], 1
            ),
        ),
    ],
    "BilinearSampler": [Sample([normal(1, 2, 4, 5), _inside(-0.9, 0.9, 1, 2, 3, 3)], {}, _sampler)],
    "SpatialTransformer": [
        Sample(
            [normal(1, 2, 4, 5), np.array([[0.7, 0.1, 0.05, -0.1, 0.8, 0.02]], np.float32)],
            {"target_shape": (3, 4), "transform_type": "affine", "sampler_type": "bilinear"},
            lambda x, theta: _sampler(x, _affine(theta)),
        )
    ],
    "UpSampling": [
        Sample(
            [normal(1, 2, 2, 3)],
            {"scale": 2, "sample_type": "nearest"},
            lambda x: x.repeat(2, 2).repeat(2, 3),
        ),
        Sample(
            [normal(1, 2, 2, 2), normal(1, 1, 4, 4)],
            {"scale": 2, "sample_type": "nearest"},
            lambda a, b: np.concatenate([a.repeat(2, 2).repeat(2, 3), b], 1),
        ),
    ],
    "_contrib_BilinearResize2D": [
        Sample([normal(1, 2, 3, 4)], {"height": 5, "width": 6}, lambda x: _resize(x, 5, 6)),
        Sample([normal(1, 2, 3, 4), normal(1, 1, 4, 2)], {"mode": "like"}, lambda x, like: _resize(x, 4, 2)),
    ],
    "Correlation": [
        Sample([normal(1, 2, 3, 4), normal(1, 2, 3, 4)], {"max_displacement": 1, "pad_size": 1}, _correlation)
    ],
}


def _pool(
    kind: Callable[..., np.ndarray], fill: float = 0.0, **options: Any
) -> Callable[[np.ndarray], np.ndarray]:
    kernel = options.get("kernel", (2, 2))
    stride, pad = options.get("stride", (1,) * len(kernel)), options.get("pad", (0,) * len(kernel))

    def reference(x: np.ndarray) -> np.ndarray:
        windows = _windows(x, kernel, stride, pad, fill)
        return kind(windows, axis=tuple(range(-len(kernel), 0)))

    return reference


_PADDED = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
POOLING: dict[str, list[Sample]] = {
    "Pooling": [
        Sample([normal(1, 2, 5, 6)], {"kernel": (2, 2)}, _pool(np.max)),
        Sample([normal(1, 2, 5, 6)], dict(_PADDED), _pool(np.max, -np.inf, **_PADDED)),
        Sample([normal(1, 2, 5, 5)], {**_PADDED, "pool_type": "avg"}, _pool(np.mean, **_PADDED)),
        Sample([normal(1, 2, 5, 5)], {**_PADDED, "pool_type": "sum"}, _pool(np.sum, **_PADDED)),
        Sample(
            [normal(1, 2, 4, 4)],
            {"kernel": (2, 2), "pool_type": "lp", "p_value": 2},
            lambda x: np.sqrt(_pool(np.sum)(x**2)),
        ),
        Sample(
            [normal(1, 2, 4, 4)],
            {"kernel": (2, 2), "pool_type": "avg", "global_pool": True},
            lambda x: x.mean((2, 3), keepdims=True),
        ),
        Sample(
            [normal(1, 2, 5)],
            {"kernel": (2,), "stride": (2,), "pooling_convention": "full"},
            lambda x: np.stack([x[..., :2].max(-1), x[..., 2:4].max(-1), x[..., 4]], -1),
        ),
    ],
    "Pooling_v1": [
        Sample([normal(1, 2, 5, 5)], dict(_PADDED), _pool(np.max, **_PADDED)),
        Sample([normal(1, 2, 5, 5)], {**_PADDED, "pool_type": "avg"}, _pool(np.mean, **_PADDED)),
    ],
    "_contrib_AdaptiveAvgPooling2D": [
        Sample(
            [normal(1, 2, 4, 6)],
            {"output_size": (2, 3)},
            lambda x: x.reshape(1, 2, 2, 2, 3, 2).mean((3, 5)),
        )
    ],
}

# --- normalisation ---


def _standardised(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _channels(v: np.ndarray, x: np.ndarray) -> np.ndarray:
    return v.reshape(-1, *(1,) * (x.ndim - 2))


def _batch_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, var: np.ndarray, eps: float = 1e-3
) -> np.ndarray:
    """Prediction: the moving statistics normalise."""
    scale = _channels(gamma / np.sqrt(var + eps), x)
    return (x - _channels(mean, x)) * scale + _channels(beta, x)


def _fixed_gamma(x: np.ndarray, gamma: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    return _batch_norm(x, np.ones_like(gamma), *rest)


def _group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    groups = _standardised(x.reshape(len(x), 2, -1), (2,), 1e-5).reshape(x.shape)
    return groups * _channels(gamma, x) + _channels(beta, x)


def _lrn(x: np.ndarray) -> np.ndarray:
    """nsize 3, alpha 0.1, beta 0.75, knorm 2."""
    squares = np.pad(x**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = sum(squares[:, i : i + x.shape[1]] for i in range(3))
    return x / (2 + 0.1 / 3 * total) ** 0.75


def _statistics(channels: int = 3) -> list[np.ndarray]:
    return [positive(channels), normal(channels), normal(channels), positive(channels)]


def _batch_norm_samples(**attrs: Any) -> list[Sample]:
    return [
        Sample([normal(2, 3, 4, 4), *_statistics()], {"fix_gamma": False, **attrs}, _batch_norm),
        Sample([normal(2, 3, 4), *_statistics()], dict(attrs), _fixed_gamma),
    ]


NORMALIZATION: dict[str, list[Sample]] = {
    "BatchNorm": [
        *_batch_norm_samples(),
        Sample(
            [normal(2, 4, 3), *_statistics()],
            {"fix_gamma": False, "axis": -1},
            lambda x, *rest: np.moveaxis(_batch_norm(np.moveaxis(x, -1, 1), *rest), 1, -1),
        ),
    ],
    "BatchNorm_v1": _batch_norm_samples(),
    "_contrib_SyncBatchNorm": _batch_norm_samples(key="sample"),
    "_contrib_BatchNormWithReLU": [
        Sample(
            [normal(2, 3, 4, 4), *_statistics()],
            {"fix_gamma": False},
            lambda *arrays: np.maximum(_batch_norm(*arrays), 0),
        )
    ],
    "LayerNorm": [
        Sample(
            [normal(2, 3, 4), positive(4), normal(4)],
            {},
            lambda x, g, b: _standardised(x, (2,), 1e-5) * g + b,
        ),
        Sample(
            [normal(2, 3, 4), positive(3), normal(3)],
            {"axis": 1},
            lambda x, g, b: _standardised(x, (1,), 1e-5) * g[:, None] + b[:, None],
        ),
    ],
    "GroupNorm": [
        Sample([normal(2, 4, 3), positive(4), normal(4)], {"num_groups": 2}, _group_norm),
        Sample(
            [normal(2, 4, 3), positive(2), normal(2)],
            {"num_groups": 2},
            lambda x, g, b: _group_norm(x, g.repeat(2), b.repeat(2)),
        ),
    ],
    "InstanceNorm": [
        Sample(
            [normal(2, 3, 5), positive(3), normal(3)],
            {},
            lambda x, g, b: _standardised(x, (2,), 1e-3) * _channels(g, x) + _channels(b, x),
        )
    ],
    "L2Normalization": [
        Sample([normal(2, 3, 4)], {}, lambda x: x / np.sqrt((x**2).sum((1, 2), keepdims=True) + 1e-10)),
        Sample(
            [normal(2, 3, 4)],
            {"mode": "channel"},
            lambda x: x / np.sqrt((x**2).sum(1, keepdims=True) + 1e-10),
        ),
        Sample(
            [normal(2, 3, 4)],
            {"mode": "spatial"},
            lambda x: x / np.sqrt((x**2).sum(2, keepdims=True) + 1e-10),
        ),
    ],
    "LRN": [Sample([normal(2, 5, 2, 2)], {"nsize": 3, "alpha": 0.1}, _lrn)],
}

SAMPLES: dict[str, list[Sample]] = {**DENSE, **ACTIVATION, **CONVOLUTION, **POOLING, **NORMALIZATION}
