"""Sample calls of the samplers: only shapes, types and attributes can be checked against them."""

from __future__ import annotations

import numpy as np

from . import Sample

_POSITIVE = np.array([0.4, 0.7], dtype=np.float32)
_COUNTS = np.array([3.0, 5.0], dtype=np.float32)
_CHANCES = np.array([[0.2, 0.8], [0.5, 0.5]], dtype=np.float32)


def _no_gradient(inputs: list[np.ndarray], **attrs: object) -> Sample:
    return Sample(inputs, dict(attrs), gradient=False)


_SCALAR: dict[str, dict[str, float]] = {
    "uniform": {"low": -1.0, "high": 2.0},
    "normal": {"loc": 1.0, "scale": 0.5},
    "exponential": {"lam": 2.0},
    "gamma": {"alpha": 2.0, "beta": 0.5},
    "poisson": {"lam": 3.0},
    "negative_binomial": {"k": 3, "p": 0.4},
    "generalized_negative_binomial": {"mu": 2.0, "alpha": 0.3},
    "binomial": {"n": 5, "p": 0.3},
}
_ONE_INPUT = ("exponential", "poisson")
_NUMPY: dict[str, dict[str, float]] = {
    "uniform": {"low": 0.0, "high": 2.0},
    "uniform_n": {"low": 0.0, "high": 2.0},
    "normal": {"loc": 0.0, "scale": 1.0},
    "normal_n": {"loc": 0.0, "scale": 1.0},
    "laplace": {"loc": 0.0, "scale": 1.0},
    "gumbel": {"loc": 0.0, "scale": 1.0},
    "logistic": {"loc": 0.0, "scale": 1.0},
    "exponential": {"scale": 2.0},
    "rayleigh": {"scale": 2.0},
    "weibull": {"a": 2.0},
    "pareto": {"a": 2.0},
    "powerd": {"a": 2.0},
    "gamma": {"shape": 2.0, "scale": 1.0},
}

SAMPLES: dict[str, list[Sample]] = {
    "_random_randint": [_no_gradient([], low=-2, high=5, shape=(2, 3))],
    "_shuffle": [_no_gradient([_CHANCES])],
    "_sample_categorical": [_no_gradient([_CHANCES], shape=(3,)), _no_gradient([_CHANCES], get_prob=True)],
    "_sample_multinomial": [
        _no_gradient([_COUNTS, _CHANCES], shape=(2,)),
        _no_gradient([_CHANCES], shape=(2, 3), get_prob=True, dtype="float64"),
        _no_gradient([_CHANCES[0]]),
    ],
    "_sample_unique_zipfian": [_no_gradient([], range_max=50, shape=(2, 4))],
    "_npi_bernoulli": [
        _no_gradient([], prob=0.3, size=(4,)),
        _no_gradient([_POSITIVE]),
        _no_gradient([_COUNTS], is_logit=True, size=(3, 2), dtype="bool"),
    ],
    "_npi_choice": [
        _no_gradient([], a=5, size=(3,)),
        _no_gradient([_POSITIVE], size=(2,)),
        _no_gradient([_CHANCES, np.array([0.3, 0.7], dtype=np.float32)], size=(4, 3), weighted=True),
        _no_gradient([_CHANCES[0]], a=2, size=(), replace=False, weighted=True),
    ],
    "_npi_multinomial": [
        _no_gradient([], n=4, pvals=(0.2, 0.8), size=(3,)),
        _no_gradient([_CHANCES[0]], n=4),
    ],
}
for _kind, _attrs in _SCALAR.items():
    SAMPLES[f"_random_{_kind}"] = [_no_gradient([], shape=(2, 3), **_attrs)]
    SAMPLES[f"_random_{_kind}_like"] = [_no_gradient([_CHANCES], **_attrs)]
    _inputs = [_COUNTS] if _kind in _ONE_INPUT else [_COUNTS, _POSITIVE]
    SAMPLES[f"_sample_{_kind}"] = [_no_gradient(_inputs, shape=(3,))]
for _kind, _attrs in _NUMPY.items():
    SAMPLES[f"_npi_{_kind}"] = [
        _no_gradient([], size=(2, 3), **_attrs),
        _no_gradient([_POSITIVE] * len(_attrs)),
        _no_gradient([_POSITIVE] * len(_attrs), size=(3, 2), dtype="float64"),
    ]
