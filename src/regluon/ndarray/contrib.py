"""mx.nd.contrib: functions beside the operators of that prefix, which are added from the table."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..runtime.handles import kinds
from ..symbol.control_flow import cond, foreach, while_loop
from .functions import _apply

__all__ = ["cond", "foreach", "isfinite", "isinf", "isnan", "rand_zipfian", "while_loop"]


def isinf(data: Any) -> Any:
    """1 where an element is infinite, else 0, in the type of the data."""
    return data.abs() == math.inf


def isnan(data: Any) -> Any:
    """1 where an element is NaN, else 0, in the type of the data."""
    return data != data


def isfinite(data: Any) -> Any:
    """1 where an element is neither infinite nor NaN, else 0, in the type of the data."""
    return _apply("broadcast_mul", [data == data, data.abs() != math.inf])


def rand_zipfian(
    true_classes: Any, num_sampled: int, range_max: int, ctx: Any = None
) -> tuple[Any, Any, Any]:
    """Draw classes from a log-uniform distribution, for sampled losses over classes sorted by frequency.

    Class ``k`` of [0, range_max) has the probability ``log((k + 2) / (k + 1)) / log(range_max + 1)``; a class
    may be drawn more than once.

    Parameters
    ----------
    true_classes : array
        The target classes.
    num_sampled : int
        How many classes to draw.
    range_max : int
        The number of classes.
    ctx : Context, optional
        Where the samples are.

    Returns
    -------
    samples : array (num_sampled,)
        The classes drawn, int64.
    expected_count_true : array
        How often each target class is expected among them, float64.
    expected_count_sampled : array (num_sampled,)
        How often each drawn class is expected among them, float64.
    """
    from . import random

    span = math.log(range_max + 1)
    drawn = random.uniform(0, span, shape=(num_sampled,), dtype="float64", ctx=ctx).exp().astype("int64") - 1
    # The largest draw may round up to the end of the range.
    samples = kinds.nd._wrap(torch.remainder(drawn._t, range_max), drawn.context)

    def expected(classes: Any) -> Any:
        values = classes.astype("float64")
        return ((values + 2) / (values + 1)).log() / span * num_sampled

    return samples, expected(true_classes.as_in_context(samples.context)), expected(samples)
