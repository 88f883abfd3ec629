"""mx.sym.contrib: loops and branches, beside the operators of that prefix, which are added from the table."""

from __future__ import annotations

import math
from typing import Any

from .control_flow import cond, foreach, while_loop

__all__ = ["cond", "foreach", "rand_zipfian", "while_loop"]


def rand_zipfian(true_classes: Any, num_sampled: int, range_max: int) -> tuple[Any, Any, Any]:
    """Draw classes from a log-uniform distribution, as Symbols; see `mx.nd.contrib.rand_zipfian`.

    Parameters
    ----------
    true_classes : Symbol
        The target classes.
    num_sampled : int
        How many classes to draw.
    range_max : int
        The number of classes.

    Returns
    -------
    samples, expected_count_true, expected_count_sampled : Symbol
        The classes drawn (int64), and how often each target and each drawn class is expected (float64).
    """
    from . import random

    span = math.log(range_max + 1)
    drawn = random.uniform(0, span, shape=(num_sampled,), dtype="float64")
    # The largest draw may round up to the end of the range.
    samples = (drawn.exp().astype("int64") - 1) % range_max

    def expected(classes: Any) -> Any:
        values = classes.astype("float64")
        return ((values + 2) / (values + 1)).log() / span * num_sampled

    return samples, expected(true_classes), expected(samples)
