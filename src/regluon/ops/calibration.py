"""Entropy calibration: at which threshold to clip a distribution before it is quantized.

The method is that of S. Migacz, "8-bit inference with TensorRT" (GTC 2017): of all thresholds take the one
where the quantized distribution tells least apart from the real one, by their Kullback-Leibler divergence.
"""

from __future__ import annotations

import numpy

__all__ = ["best_threshold", "least_threshold"]

# What an empty bin gets, so that the divergence is finite.
_FLOOR = 1e-4


def best_threshold(
    counts: numpy.ndarray, edges: numpy.ndarray, levels: int, every: int = 1, smallest: float = 0.0
) -> tuple[float, float]:
    """The threshold, one of ``edges``, and its divergence.

    Parameters
    ----------
    counts : ndarray
        How many values fall into each of an odd number of bins around zero.
    edges : ndarray
        The edges of the bins, one more than bins.
    levels : int
        In how many steps the values are quantized.
    every : int
        Only each so many-th edge is tried.
    smallest : float
        No threshold below this one is tried.
    """
    middle = len(counts) // 2
    sums = numpy.concatenate([[0.0], numpy.cumsum(counts, dtype=numpy.float64)])
    best, threshold = numpy.inf, float(edges[-1])
    for half in range(middle, levels // 2 - 1, -every):
        first, end = middle - half, middle + half + 1
        if edges[end] < smallest:
            break
        loss = _divergence(counts[first:end], sums[first], sums[-1] - sums[end], levels)
        if loss <= best:
            best, threshold = loss, float(edges[end])
    return threshold, float(best)


def _divergence(inside: numpy.ndarray, below: float, above: float, levels: int) -> float:
    """How much the quantized form of ``inside`` differs from it, with what lies outside at its ends."""
    clipped = inside.astype(numpy.float64)
    clipped[0] += below
    clipped[-1] += above
    used = clipped != 0
    # Equal groups of bins; the last one takes the rest.
    width = len(inside) // levels
    starts = numpy.arange(levels) * width
    totals = numpy.add.reduceat(inside, starts)
    members = numpy.add.reduceat(used.astype(numpy.float64), starts)
    means = numpy.divide(totals, members, out=numpy.zeros(levels), where=members > 0)
    sizes = numpy.full(levels, width)
    sizes[-1] = len(inside) - starts[-1]
    quantized = numpy.where(used, numpy.repeat(means, sizes), 0.0)
    smooth_real, smooth_quantized = _smoothed(clipped), _smoothed(quantized)
    if smooth_real is None or smooth_quantized is None:
        return numpy.inf
    real = smooth_real / smooth_real.sum()
    other = smooth_quantized / smooth_quantized.sum()
    return float((real * numpy.log(real / other)).sum())


def _smoothed(values: numpy.ndarray) -> numpy.ndarray | None:
    """Give every empty bin a little of the others'; None where they have too little."""
    empty = values == 0
    count = int(empty.sum())
    if count == len(values):
        return None
    taken = _FLOOR * count / (len(values) - count)
    if taken >= 1:
        return None
    result = numpy.where(empty, _FLOOR, values - taken)
    return result if (result > 0).all() else None


def least_threshold(counts: numpy.ndarray, edges: numpy.ndarray, steps: float) -> float:
    """The smallest threshold that has no larger mean squared error than no clipping at all.

    ``steps`` are the steps from zero to the threshold. Rounding to steps of width w costs w^2 / 12 a value.
    """
    middle = len(counts) // 2
    folded = counts[middle:] + counts[middle::-1]
    folded[0] /= 2
    centres = (edges[middle:-1] + edges[middle + 1 :]) / 2
    ends = edges[middle + 1 :]

    # Sums over what lies beyond each end: of 1, of the values and of their squares.
    def beyond(terms: numpy.ndarray) -> numpy.ndarray:
        return numpy.append(terms[::-1].cumsum()[::-1][1:], 0.0)

    outside = beyond(folded)
    clipped = beyond(folded * centres**2) - 2 * ends * beyond(folded * centres) + ends**2 * outside
    errors = clipped + (ends / steps) ** 2 / 12 * (folded.sum() - outside)
    return float(ends[numpy.nonzero(errors <= errors[-1])[0][0]])
