"""Special functions on NumPy arrays from Python's math module, and fixed inputs, for the sample records."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

SAMPLES: dict[str, list] = {}


def elementwise(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """Apply a function of one number to every element, keeping shape and type."""

    def apply(data: np.ndarray) -> np.ndarray:
        values = [function(float(value)) for value in data.ravel()]
        return np.array(values, dtype=np.float64).reshape(data.shape).astype(data.dtype)

    return apply


def erfinv(value: float) -> float:
    """Inverse of erf through the normal distribution: erf(x) = 2 Phi(x sqrt 2) - 1."""
    return NormalDist().inv_cdf((value + 1.0) / 2.0) / math.sqrt(2.0)


def digamma(value: float) -> float:
    """Shift to the right by psi(x) = psi(x + 1) - 1/x, then the asymptotic series (Abramowitz 6.3.18)."""
    shift = 0.0
    while value < 10.0:
        shift -= 1.0 / value
        value += 1.0
    square = 1.0 / (value * value)
    series = square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0 - square / 240.0)))
    return shift + math.log(value) - 0.5 / value - series


def spread(low: float, high: float, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> np.ndarray:
    """Uniform float32 values in [low, high), the same for every run."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def integers(
    low: int, high: int, shape: tuple[int, ...] = (3, 4), seed: int = 0, dtype: str = "int32"
) -> np.ndarray:
    """Uniform integers in [low, high), the same for every run."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def off_grid(low: int, high: int, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> np.ndarray:
    """Values at least 0.2 away from every multiple of one half, where rounding functions are smooth."""
    whole = np.random.default_rng(seed).integers(2 * low, 2 * high, shape)
    return (0.5 * whole + spread(0.2, 0.3, shape, seed + 1)).astype(np.float32)
