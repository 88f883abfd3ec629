"""Samples of the quantization operators, with references in NumPy on int64 and float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Sample

_DRAW = np.random.RandomState(90)
REAL = _DRAW.uniform(-2, 2, (2, 3)).astype(np.float32)
SIGNED = _DRAW.randint(-127, 128, (2, 4)).astype(np.int8)
UNSIGNED = _DRAW.randint(0, 256, (2, 4)).astype(np.uint8)
WEIGHT = _DRAW.randint(-127, 128, (3, 4)).astype(np.int8)
BIAS = _DRAW.randint(-127, 128, 3).astype(np.int8)
IMAGE = _DRAW.randint(0, 256, (1, 2, 4, 4)).astype(np.uint8)
FILTERS = _DRAW.randint(-127, 128, (3, 2, 3, 3)).astype(np.int8)
WHOLE = _DRAW.randint(-60000, 60000, (2, 3)).astype(np.int32)
LOW, HIGH = np.float32([-1.5]), np.float32([1.0])
NONE = np.float32([0.0])
LARGEST = 2**31 - 1


def _range(*ends: float) -> tuple[np.ndarray, ...]:
    return tuple(np.float32([end]) for end in ends)


def _levels(data: np.ndarray) -> float:
    return 127.5 if data.dtype == np.int8 else 255.5


def _whole_levels(data: np.ndarray) -> float:
    return 127 if data.dtype == np.int8 else 255


def _real(data: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return data * (max(abs(low[0]), abs(high[0])) / np.float64(_levels(data)))


def _narrow(values: np.ndarray, dtype: Any) -> np.ndarray:
    return np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def _kept(result: np.ndarray) -> tuple[np.ndarray, ...]:
    return result, LOW, HIGH


def _largest_product(data: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """The range of sums of products: data of -1.5 to 1, weights of -0.5 to 0.25."""
    end = np.float64(1.5) * 0.5 * LARGEST / (_whole_levels(data) * _whole_levels(weight))
    return _range(-end, end)


def _offset(data: np.ndarray, bias: np.ndarray) -> np.ndarray:
    step = 1.5 / _levels(data) * 0.5 / 127
    return np.rint(bias.astype(np.float64) * 0.2 / 127 / step)


def _dense(data: np.ndarray, weight: np.ndarray, *rest: np.ndarray) -> tuple[np.ndarray, ...]:
    total = data.astype(np.int64) @ weight.astype(np.int64).T
    if len(rest) == 7:
        total = total + _offset(data, rest[0])
    return total.astype(np.int32), *_largest_product(data, weight)


def _windows(data: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(data, (size, size), (2, 3))


def _conv(data: np.ndarray, weight: np.ndarray, *rest: np.ndarray) -> tuple[np.ndarray, ...]:
    total = np.einsum("nchwij,ocij->nohw", _windows(data.astype(np.int64), 3), weight.astype(np.int64))
    if len(rest) == 7:
        total = total + _offset(data, rest[0]).reshape(-1, 1, 1)
    return total.astype(np.int32), *_largest_product(data, weight)


def _norm(data: Any, gamma: Any, beta: Any, mean: Any, variance: Any, low: Any, high: Any) -> Any:
    def along(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float64).reshape(1, -1)

    real = (_real(data, low, high) - along(mean)) / np.sqrt(along(variance) + 1e-3)
    return _narrow((real * along(gamma) + along(beta)) * 127.5 / 2, np.int8), *_range(-2, 2)


def _concat(a: Any, b: Any, *ends: Any) -> Any:
    joined = np.concatenate([_real(a, *ends[:2]), _real(b, *ends[2:])], 1)
    return _narrow(joined * 127.5 / 3, np.int8), *_range(-3, 2)


def _sum(a: Any, b: Any, *ends: Any) -> np.ndarray:
    return _real(a, *ends[:2]) + _real(b, *ends[2:])


def _fused(data: Any, weight: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> Any:
    total = np.einsum("nchwij,ocij->nohw", _windows(data.astype(np.float64), 3), weight.astype(np.float64))
    scale = gamma / np.sqrt(variance + 1e-3)
    return np.maximum(total * scale.reshape(-1, 1, 1) + (beta - mean * scale).reshape(-1, 1, 1), 0)


_THREE = [np.float32(v) for v in ([0.9, 1.1, 1.2], [0.1, -0.2, 0.3], [0.2, -0.1, 0.0], [1.0, 0.8, 1.3])]
_FOUR = [np.append(v, v[:1]) for v in _THREE]
_ENDS = [LOW, HIGH, *_range(-0.5, 0.25)]
_TWO_RANGES = [*_range(-1, 2), *_range(-3, 1)]
_OTHER = SIGNED[::-1].copy()
_DENSE_BIAS = [BIAS, *_ENDS, *_range(-0.2, 0.1)]
# 1,000 values in three bins around zero and one far out: the outlier is worth clipping.
_COUNTS = np.float32([0, 0, 1, 0, 0, 300, 400, 300, 0, 0, 0, 0, 0])
_EDGES = np.linspace(-6.5, 6.5, 14).astype(np.float32)

SAMPLES: dict[str, list[Sample]] = {
    "_contrib_quantize": [
        Sample([REAL, LOW, HIGH], {"out_type": "int8"},
               lambda x, a, b: (_narrow(x / np.float64(1.5) * 127, np.int8), *_range(-1.5, 1.5))),
        Sample([REAL, NONE, HIGH], {}, lambda x, a, b: (_narrow(x * np.float64(255), np.uint8), a, b)),
    ],
    "_contrib_quantize_v2": [
        Sample([REAL], {"out_type": "auto", "min_calib_range": 0.0, "max_calib_range": 1.5},
               lambda x: (_narrow(x / np.float64(1.5) * 255.5, np.uint8), *_range(0, 1.5))),
        Sample([REAL], {}, lambda x: (_narrow(x * (127.5 / np.abs(x).max().astype(np.float64)), np.int8),
                                      *_range(-np.abs(x).max(), np.abs(x).max()))),
    ],
    "_contrib_dequantize": [
        Sample([SIGNED, LOW, HIGH], {}, _real),
        Sample([UNSIGNED, NONE, HIGH], {}, _real),
        Sample([SIGNED, -np.float32([1, 2]), np.float32([1, 2])], {},
               lambda x, a, b: x * np.float64([[1], [2]]) / 127.5),
    ],
    "_contrib_requantize": [
        Sample([WHOLE, *_range(-30000, 20000)], {"min_calib_range": -0.5, "max_calib_range": 0.4},
               lambda x, a, b: (_narrow(x * 3e4 / LARGEST / 0.5 * 127, np.int8), *_range(-0.5, 0.5))),
        Sample([WHOLE, *_range(-30000, 20000)],
               {"min_calib_range": 0.0, "max_calib_range": 0.5, "out_type": "uint8"},
               lambda x, a, b: (_narrow(x * 3e4 / LARGEST / 0.5 * 255, np.uint8), *_range(0, 0.5))),
    ],
    "_contrib_quantized_conv": [
        Sample([IMAGE, FILTERS, *_ENDS], {"kernel": (3, 3), "num_filter": 3, "no_bias": True}, _conv),
        Sample([IMAGE, FILTERS, *_DENSE_BIAS], {"kernel": (3, 3), "num_filter": 3}, _conv, atol=1),
    ],
    "_contrib_quantized_fully_connected": [
        Sample([SIGNED, WEIGHT, *_ENDS], {"num_hidden": 3, "no_bias": True}, _dense),
        Sample([UNSIGNED, WEIGHT, *_DENSE_BIAS], {"num_hidden": 3}, _dense, atol=1),
    ],
    "_contrib_quantized_embedding": [
        Sample([np.float32([2, 0]), WEIGHT, LOW, HIGH], {"input_dim": 3, "output_dim": 4},
               lambda i, w, a, b: (w[i.astype(int)], a, b)),
    ],
    "_contrib_quantized_act": [
        Sample([SIGNED, LOW, HIGH], {"act_type": "relu"}, lambda x, a, b: (np.maximum(x, 0), a, b)),
    ],
    "_contrib_quantized_pooling": [
        Sample([IMAGE, LOW, HIGH], {"kernel": (2, 2), "stride": (2, 2)},
               lambda x, a, b: (_windows(x, 2)[:, :, ::2, ::2].max((-1, -2)), a, b)),
        Sample([IMAGE, LOW, HIGH], {"kernel": (1, 1), "global_pool": True, "pool_type": "avg"},
               lambda x, a, b: (np.rint(x.mean((2, 3), keepdims=True)).astype(np.uint8), a, b)),
    ],
    "_contrib_quantized_flatten": [
        Sample([IMAGE, LOW, HIGH], {}, lambda x, a, b: (x.reshape(1, -1), a, b)),
    ],
    "_contrib_quantized_reshape": [
        Sample([IMAGE, LOW, HIGH], {"shape": (0, -1, 2)}, lambda x, a, b: (x.reshape(1, -1, 2), a, b)),
    ],
    "_npx_quantized_reshape": [
        Sample([IMAGE, LOW, HIGH], {"newshape": (-2, -1, 2)}, lambda x, a, b: (x.reshape(1, -1, 2), a, b)),
    ],
    "_contrib_quantized_transpose": [
        Sample([SIGNED, LOW, HIGH], {"axes": (1, 0)}, lambda x, a, b: (x.T, a, b)),
    ],
    "_contrib_quantized_elemwise_add": [
        Sample([SIGNED, _OTHER, *_TWO_RANGES], {"min_calib_range": -2.0, "max_calib_range": 2.5},
               lambda *x: (_narrow(_sum(*x) * 127.5 / 2.5, np.int8), *_range(-2, 2.5))),
        Sample([SIGNED, UNSIGNED, *_TWO_RANGES], {},
               lambda *x: (_narrow(_sum(*x) * LARGEST / 5, np.int32), *_range(-5, 5)), atol=2),
    ],
    "_contrib_quantized_elemwise_mul": [
        Sample([SIGNED, _OTHER, *_ENDS], {},
               lambda a, b, *ends: (a.astype(np.int32) * b, *_largest_product(a, b))),
        Sample([SIGNED, _OTHER, *_ENDS], {"enable_float_output": True},
               lambda a, b, *ends: _real(a, *ends[:2]) * _real(b, *ends[2:])),
    ],
    "_contrib_quantized_concat": [
        Sample([SIGNED, UNSIGNED, *_TWO_RANGES], {"dim": 1}, _concat),
    ],
    "_contrib_quantized_batch_norm": [
        Sample([SIGNED, *_FOUR, LOW, HIGH],
               {"min_calib_range": -2.0, "max_calib_range": 2.0, "fix_gamma": False}, _norm),
    ],
    "_contrib_calibrate_entropy": [
        # 5 bins hold all but the outlier, which joins the lowest of them.
        Sample([_COUNTS, _EDGES], {"num_quantized_bins": 3}),
    ],
    "_sg_mkldnn_conv": [
        Sample([IMAGE.astype(np.float32), FILTERS.astype(np.float32) / 127, *_THREE],
               {"kernel": (3, 3), "num_filter": 3, "no_bias": True, "with_bn": True, "with_relu": True,
                "fix_gamma": False}, _fused, rtol=1e-4),
    ],
}  # fmt: skip
for _cases in SAMPLES.values():
    for _case in _cases:
        _case.gradient = False
