"""mx.npx.random: the seed, and samplers beyond NumPy's."""

from __future__ import annotations

from typing import Any

from ..numpy.random import _sample, _where, bernoulli, seed

__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]


def uniform_n(
    low: Any = 0.0,
    high: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Uniform samples: ``batch_shape`` of them for each parameter."""
    return _sample("uniform_n", {"low": low, "high": high}, batch_shape, dtype, _where(ctx, device), None)


def normal_n(
    loc: Any = 0.0,
    scale: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Normal samples: ``batch_shape`` of them for each parameter."""
    return _sample("normal_n", {"loc": loc, "scale": scale}, batch_shape, dtype, _where(ctx, device), None)
