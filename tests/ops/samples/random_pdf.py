"""Sample calls of the densities."""

from __future__ import annotations

import math

import numpy as np

from . import Sample

_POINTS = np.array([[0.3, 0.9, 1.4], [0.2, 0.5, 0.8]], dtype=np.float32)
_COUNTS = np.array([[0.0, 1.0, 3.0], [2.0, 4.0, 1.0]], dtype=np.float32)
_A = np.array([0.5, 1.5], dtype=np.float32)
_B = np.array([2.0, 3.0], dtype=np.float32)
_SHARE = np.array([0.3, 0.6], dtype=np.float32)
_SIMPLEX = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], dtype=np.float32)
_ALPHA = np.array([[1.5, 2.0, 1.0], [2.0, 1.0, 3.0]], dtype=np.float32)
_log_gamma = np.vectorize(math.lgamma)


def _poisson(x: np.ndarray, rate: np.ndarray) -> np.ndarray:
    rate = rate[:, None]
    return np.exp(x * np.log(rate) - rate - _log_gamma(x + 1))


def _negative_binomial(x: np.ndarray, k: np.ndarray, p: np.ndarray) -> np.ndarray:
    k, p = k[:, None], p[:, None]
    logarithm = _log_gamma(x + k) - _log_gamma(x + 1) - _log_gamma(k) + k * np.log(p) + x * np.log(1 - p)
    return np.exp(logarithm)


def _one(inputs: list[np.ndarray], reference: object) -> list[Sample]:
    return [Sample(inputs, {"is_log": False}, reference, gradient=False)]  # type: ignore[arg-type]


SAMPLES: dict[str, list[Sample]] = {
    "_random_pdf_uniform": _one(
        [_POINTS, np.zeros(2, np.float32), _B],
        lambda x, low, high: np.ones_like(x) / (high - low)[:, None],
    ),
    "_random_pdf_normal": _one(
        [_POINTS, _A, _B],
        lambda x, mu, sigma: np.exp(-(((x - mu[:, None]) / sigma[:, None]) ** 2) / 2)
        / (sigma[:, None] * math.sqrt(2 * math.pi)),
    ),
    "_random_pdf_exponential": _one(
        [_POINTS, _B], lambda x, lam: lam[:, None] * np.exp(-lam[:, None] * x)
    ),
    "_random_pdf_poisson": _one([_COUNTS, _B], _poisson),
    "_random_pdf_negative_binomial": _one([_COUNTS, _B, _SHARE], _negative_binomial),
    "_random_pdf_gamma": _one([_POINTS, _B, _A], None),
    "_random_pdf_generalized_negative_binomial": _one([_COUNTS, _B, _A], None),
    "_random_pdf_dirichlet": _one([_SIMPLEX, _ALPHA], None),
}
