"""Samples of the reductions, of both the 1.x and the NumPy family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Sample
from .references import integers, spread

A = spread(0.2, 2.0, (2, 3, 4), seed=31)
M = spread(-2.0, 2.0, (3, 4), seed=32)
V = spread(-2.0, 2.0, (6,), seed=33)
WEIGHTS = spread(0.1, 1.0, (3, 4), seed=34)
COUNTS = integers(0, 5, (8,), seed=35)
GAPS = np.array([[1.5, np.nan, -0.5], [np.nan, 2.0, 0.5]], np.float32)
TRUTH = np.array([[0, 1, 2], [0, 0, 3]], np.float32)
TIES = np.array([[3, 1, 3], [2, 2, 0]], np.float32)

Reference = Callable[..., Any]


def _whole(value: Any) -> np.ndarray:
    """A 1.x result has at least one dimension."""
    return np.atleast_1d(value)


def _legacy(function: Reference, data: np.ndarray = A, gradient: bool = True) -> list[Sample]:
    last = data.ndim - 1
    return [
        Sample([data], {}, lambda x: _whole(function(x)), gradient),
        Sample([data], {"axis": 0}, lambda x: function(x, axis=0), gradient),
        Sample(
            [data], {"axis": (-1,), "keepdims": True}, lambda x: function(x, axis=-1, keepdims=True), gradient
        ),
        Sample([data], {"axis": (0, last)}, lambda x: _whole(function(x, axis=(0, last))), gradient),
        Sample(
            [data],
            {"axis": 0, "exclude": True},
            lambda x: function(x, axis=tuple(range(1, x.ndim))),
            gradient,
        ),
    ]


def _modern(function: Reference, data: np.ndarray = A, gradient: bool = True) -> list[Sample]:
    last = data.ndim - 1
    return [
        Sample([data], {}, function, gradient),
        Sample([data], {"axis": 0}, lambda x: function(x, axis=0), gradient),
        Sample(
            [data], {"axis": (-1,), "keepdims": True}, lambda x: function(x, axis=-1, keepdims=True), gradient
        ),
        Sample([data], {"axis": (0, last)}, lambda x: function(x, axis=(0, last)), gradient),
        Sample([data], {"axis": ()}, lambda x: function(x, axis=()), gradient),
    ]


def _length(x: np.ndarray, **axes: Any) -> Any:
    return np.sqrt(np.sum(x * x, **axes))


def _square_sum(x: np.ndarray, **axes: Any) -> Any:
    return np.sum(x * x, **axes)


def _first_largest(x: np.ndarray, **axes: Any) -> Any:
    return np.argmax(x, **axes).astype(x.dtype)


def _first_smallest(x: np.ndarray, **axes: Any) -> Any:
    return np.argmin(x, **axes).astype(x.dtype)


def _positions(function: Reference) -> list[Sample]:
    return [
        Sample([TIES], {"axis": 1}, lambda x: function(x, axis=1), False),
        Sample([M], {"axis": 0, "keepdims": True}, lambda x: function(x, axis=0, keepdims=True), False),
    ]


def _legacy_samples() -> dict[str, list[Sample]]:
    rounded = Sample([integers(-9, 9)], {"axis": 1}, lambda x: np.sum(x, 1, dtype=x.dtype), False)
    return {
        "sum": [*_legacy(np.sum), rounded],
        "mean": _legacy(np.mean),
        "prod": _legacy(np.prod),
        "nansum": [*_legacy(np.nansum), *_legacy(np.nansum, GAPS, False)],
        "nanprod": [*_legacy(np.nanprod), *_legacy(np.nanprod, GAPS, False)],
        "max": _legacy(np.max),
        "min": _legacy(np.min),
        "_square_sum": _legacy(_square_sum),
        "norm": [
            Sample([M], {}, lambda x: _whole(_length(x))),
            Sample([M], {"ord": 1, "axis": 1}, lambda x: np.abs(x).sum(1)),
            Sample([A], {"axis": (0, 2), "keepdims": True}, lambda x: _length(x, axis=(0, 2), keepdims=True)),
            Sample([M], {"out_dtype": "float64"}, lambda x: _whole(_length(x).astype(np.float64))),
        ],
        "argmax": [*_positions(_first_largest), Sample([M], {}, lambda x: _whole(_first_largest(x)), False)],
        "argmin": [
            *_positions(_first_smallest),
            Sample([M], {}, lambda x: _whole(_first_smallest(x)), False),
        ],
        "argmax_channel": [Sample([TIES], {}, lambda x: _first_largest(x, axis=1), False)],
        "moments": [
            Sample([A], {"axes": (0, 2)}, lambda x: (x.mean((0, 2)), x.var((0, 2)))),
            Sample([M], {"axes": (0, 1)}, lambda x: (_whole(x.mean()), _whole(x.var()))),
            Sample(
                [A],
                {"axes": (1,), "keepdims": True},
                lambda x: (x.mean(1, keepdims=True), x.var(1, keepdims=True)),
            ),
        ],
        "multi_sum_sq": [
            Sample(
                [M, V],
                {"num_arrays": 2, "scale": 0.5},
                lambda x, y: np.array([(x * x).sum() / 4, (y * y).sum() / 4], np.float32),
                False,
            )
        ],
        "_histogram": [
            Sample([V], {"bin_cnt": 4, "range": (-2.0, 2.0)}, lambda x: _bins(x, 4, (-2.0, 2.0)), False),
            Sample(
                [np.array([0, 1, 2, 2.5, 5, 6], np.float32), np.array([0, 2, 5], np.float32)],
                {},
                _bins,
                False,
            ),
        ],
    }


def _bins(x: np.ndarray, edges: Any, limits: Any = None) -> tuple[np.ndarray, np.ndarray]:
    counts, found = np.histogram(x, edges, limits)
    return counts.astype(np.int64), found.astype(x.dtype)


def _spread(name: str) -> list[Sample]:
    function = getattr(np, name)
    return [
        *_modern(function)[:4],
        Sample([M], {"axis": 1, "ddof": 1}, lambda x: function(x, axis=1, ddof=1)),
        Sample([M], {"dtype": "float64"}, lambda x: function(x, dtype=np.float64)),
    ]


def _average_samples() -> list[Sample]:
    def weighted(x: np.ndarray, w: np.ndarray) -> tuple[Any, Any]:
        return (x * w).sum(1) / w.sum(1), w.sum(1)

    return [
        Sample([M, WEIGHTS], {"axis": 1}, lambda x, w: weighted(x, w)[0]),
        Sample([M, WEIGHTS], {"axis": 1, "returned": True}, weighted),
        Sample([M], {"weighted": False}, np.mean),
    ]


def _percentile_samples() -> list[Sample]:
    def at(q: Any, **more: Any) -> Reference:
        return lambda x, *given: np.percentile(x, q, **more).astype(x.dtype)

    marks = np.array([10, 55, 90], np.float32)
    samples = [
        Sample([M], {"q_scalar": 30.0}, at(30), False),
        Sample([M], {"q_scalar": 25.0, "axis": (0,), "keepdims": True}, at(25, axis=0, keepdims=True), False),
        Sample([A, marks], {"axis": (1, 2)}, at(marks, axis=(1, 2)), False),
    ]
    for method in ("lower", "higher", "midpoint", "nearest"):
        reference = at(60, axis=1, method=method)
        samples.append(
            Sample([M], {"q_scalar": 60.0, "axis": (1,), "interpolation": method}, reference, False)
        )
    return samples


def _ends(x: np.ndarray, begin: Any, end: Any) -> np.ndarray:
    return np.ediff1d(x, to_begin=begin, to_end=end)


def _modern_samples() -> dict[str, list[Sample]]:
    initial = {"axis": 1, "initial": 0.5}
    return {
        "_npi_sum": [
            *_modern(np.sum),
            Sample([M], initial, lambda x: np.sum(x, axis=1, initial=0.5)),
            Sample([TRUTH > 0], {}, lambda x: np.sum(x, dtype=np.int64), False),
            Sample([M], {"dtype": "float64"}, lambda x: np.sum(x, dtype=np.float64)),
        ],
        "_npi_prod": [*_modern(np.prod), Sample([M], initial, lambda x: np.prod(x, axis=1, initial=0.5))],
        "_npi_mean": [
            *_modern(np.mean),
            Sample([COUNTS], {}, lambda x: np.mean(x).astype(np.float32), False),
            Sample([M], {"dtype": "float64"}, lambda x: np.mean(x, dtype=np.float64)),
        ],
        "_npi_max": [*_modern(np.max), Sample([M], initial, lambda x: np.max(x, axis=1, initial=0.5))],
        "_npi_min": [*_modern(np.min), Sample([M], initial, lambda x: np.min(x, axis=1, initial=0.5))],
        "_npi_all": _modern(np.all, TRUTH, False),
        "_npi_any": _modern(np.any, TRUTH, False),
        "_npi_argmax": [*_positions(np.argmax), Sample([M], {}, np.argmax, False)],
        "_npi_argmin": [*_positions(np.argmin), Sample([M], {}, np.argmin, False)],
        "_npi_std": _spread("std"),
        "_npi_var": _spread("var"),
        "_npi_average": _average_samples(),
        "_npi_percentile": _percentile_samples(),
        "_npi_cumsum": [
            Sample([M], {}, np.cumsum),
            Sample([M], {"axis": 1}, lambda x: np.cumsum(x, axis=1)),
            Sample([COUNTS], {"dtype": "int64"}, lambda x: np.cumsum(x, dtype=np.int64), False),
        ],
        "_npi_diff": [
            Sample([M], {}, np.diff),
            Sample([M], {"n": 2, "axis": 0}, lambda x: np.diff(x, 2, 0)),
        ],
        "_npi_ediff1d": [
            Sample([M], {}, np.ediff1d),
            Sample([V], {"to_begin_scalar": 1.0, "to_end_scalar": 2.0}, lambda x: _ends(x, 1.0, 2.0)),
            Sample([V, M], {"to_end_arr_given": True}, lambda x, end: _ends(x, None, end)),
            Sample(
                [V, V, M],
                {"to_begin_arr_given": True, "to_end_arr_given": True},
                _ends,
            ),
        ],
        "_npi_bincount": [
            Sample([COUNTS], {}, lambda x: np.bincount(x).astype(x.dtype), False),
            Sample(
                [COUNTS, spread(0, 1, (8,), seed=36)],
                {"minlength": 7, "has_weights": True},
                lambda x, w: np.bincount(x, w, 7).astype(w.dtype),
                False,
            ),
        ],
    }


SAMPLES: dict[str, list[Sample]] = {**_legacy_samples(), **_modern_samples()}

_POINTS, _VALUES = np.array([0.0, 1.0, 2.5], np.float32), np.array([1.0, 3.0, -2.0], np.float32)
_AT = np.array([[-0.5, 0.25], [1.5, 4.0]], np.float32)
SAMPLES["_npi_interp"] = [
    Sample([_POINTS, _VALUES, _AT], {}, lambda xp, fp, x: np.interp(x, xp, fp), gradient=False),
    Sample(
        [_POINTS, _VALUES, _AT],
        {"left": -1.0, "right": 9.0},
        lambda xp, fp, x: np.interp(x, xp, fp, -1, 9),
        gradient=False,
    ),
    Sample(
        [_POINTS[::-1].copy(), _VALUES, _AT],
        {"period": 3.0},
        lambda xp, fp, x: np.interp(x, xp, fp, period=3),
        gradient=False,
    ),
]
