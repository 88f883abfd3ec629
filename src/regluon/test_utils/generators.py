"""Tests of random generators: by buckets, mean and variance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .tolerances import as_numpy

__all__ = [
    "chi_square_check",
    "gen_buckets_probs_with_ppf",
    "mean_check",
    "var_check",
    "verify_generator",
]


def _statistics() -> Any:
    try:
        import scipy.stats
    except ImportError as error:
        raise ImportError(
            "the tests of random generators need scipy, which is not installed: pip install scipy"
        ) from error
    return scipy.stats


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """Buckets of equal probability, from the inverse of a distribution function."""
    edges = [ppf(number / nbuckets) for number in range(nbuckets + 1)]
    return list(itertools.pairwise(edges)), [1 / nbuckets] * nbuckets


def mean_check(generator: Callable[[int], Any], mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the mean of a sample is within three standard errors of ``mu``."""
    mean = as_numpy(generator(nsamples)).mean()
    return bool(abs(mean - mu) < 3 * sigma / numpy.sqrt(nsamples))


def var_check(generator: Callable[[int], Any], sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the variance of a sample of a normal distribution is within three standard errors."""
    variance = as_numpy(generator(nsamples)).astype("float64").var(ddof=1)
    return bool(abs(variance - sigma**2) < 3 * numpy.sqrt(2 * sigma**4 / (nsamples - 1)))


def chi_square_check(
    generator: Callable[[int], Any],
    buckets: Sequence[Any],
    probs: Sequence[float],
    nsamples: int = 1000000,
) -> tuple[float, list[float], Any]:
    """Pearson's test of a sample against the probabilities of buckets.

    Parameters
    ----------
    generator : callable
        From a number to a sample of that many elements.
    buckets : list
        Pairs of ends (the higher one belongs to the next bucket), or single values.
    probs : list of float
        Their probabilities.
    nsamples : int
        Size of the sample.

    Returns
    -------
    p, observed, expected
        The probability of a deviation as large or larger, and the counts.

    Raises
    ------
    ValueError
        When there are not as many probabilities as buckets.
    ImportError
        Without SciPy.
    """
    statistics = _statistics()
    if not buckets or len(buckets) != len(probs):
        raise ValueError(f"there are {len(buckets)} buckets and {len(probs)} probabilities")
    sample = as_numpy(generator(nsamples)).reshape(-1)[:nsamples]
    if isinstance(buckets[0], (list, tuple)):
        observed = [float(((sample >= low) & (sample < high)).sum()) for low, high in buckets]
    else:
        observed = [float((sample == value).sum()) for value in buckets]
    expected = numpy.asarray(probs, dtype="float64") * nsamples
    # What fell beside all buckets counts against the hypothesis, too.
    deviation = float(((numpy.asarray(observed) - expected) ** 2 / expected).sum())
    p = float(statistics.chi2.sf(deviation, len(buckets) - 1))
    return p, observed, expected


def verify_generator(
    generator: Callable[[int], Any],
    buckets: Sequence[Any],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """Refuse a generator that fails `chi_square_check` at level ``alpha`` too often.

    Raises
    ------
    AssertionError
        When fewer than ``success_rate`` of ``nrepeat`` samples pass.
    """
    results = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    found = [p for p, _, _ in results]
    passed = sum(p > alpha for p in found)
    if passed < nrepeat * success_rate:
        raise AssertionError(
            f"Generator test fails, Chi-square p={found}, {passed} of {nrepeat} samples passed "
            f"alpha={alpha}. \nbuckets={list(buckets)}, probs={list(probs)}\nobserved={results[-1][1]}, "
            f"expected={results[-1][2]}"
        )
    return found
