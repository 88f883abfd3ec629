"""mx.npx.random: the seed, and samplers beyond NumPy's."""

from __future__ import annotations

from typing import Any

from ..base import rng
from ..numpy.random import _sample, bernoulli
from ..numpy.tools import apply, as_array, sizes

__all__ = ["bernoulli", "categorical", "multinomial", "normal_n", "seed", "uniform_n"]


def seed(seed: int, device: object = "all", ctx: object = None) -> None:
    """Start the sequence of random draws anew, on all devices (``device`` and ``ctx`` are accepted)."""
    rng.seed(seed)


def uniform_n(
    low: Any = 0.0,
    high: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Samples uniform in [low, high): ``batch_shape`` of them for each parameter, in the leading axes."""
    return _sample("uniform_n", {"low": low, "high": high}, batch_shape, dtype, device, ctx)


def normal_n(
    loc: Any = 0.0,
    scale: Any = 1.0,
    batch_shape: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Normal samples: ``batch_shape`` of them for each parameter, in the leading axes."""
    return _sample("normal_n", {"loc": loc, "scale": scale}, batch_shape, dtype, device, ctx)


def categorical(
    data: Any, shape: Any = None, get_prob: bool = False, dtype: Any = "int32", out: Any = None
) -> Any:
    """Indices drawn with the probabilities in the last axis of ``data``, ``shape`` of them for each row.

    With ``get_prob`` also their log-probabilities, which have a gradient in ``data``.
    """
    attrs = {"shape": () if shape is None else sizes(shape), "get_prob": get_prob, "dtype": dtype}
    return apply("_sample_categorical", [as_array(data)], out, **attrs)


def multinomial(
    n: Any, p: Any, shape: Any = None, ctx: Any = None, dtype: Any = None, out: Any = None
) -> Any:
    """Counts of ``n`` trials over the categories in the last axis of ``p``, ``shape`` of them for each ``n``.

    ``n`` is an array (...), ``p`` one (..., k), the result one (..., shape, k) of the type of ``n``,
    where they are (``ctx`` is accepted).
    """
    result = apply(
        "_sample_multinomial", [as_array(n), as_array(p)], shape=() if shape is None else sizes(shape)
    )
    result = result if dtype is None else result.astype(dtype)
    if out is None:
        return result
    out[...] = result
    return out
