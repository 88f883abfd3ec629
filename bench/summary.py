"""Medians, ratios with their spread, and whether a bar is reached. Nothing here measures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .works import Bar, Work, bars_of

# The samples of one work: what each peer took in each round, in the rounds' order.
Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians, and the quartiles of the ratios of single rounds, where both ran side by side."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A bar, who it was measured against, the ratio (or seconds), and whether it is reached.

    ``reached`` is None where nothing could be compared; ``reason`` says why.
    """

    bar: Bar
    against: str = ""
    ratio: Ratio | None = None
    reached: bool | None = None
    reason: str = ""


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and third quartile, interpolated between neighbours (the inclusive method).

    Raises
    ------
    ValueError
        For no values.
    """
    if not values:
        raise ValueError("Quartiles need at least one value; received none")
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Ours to theirs. Rounds are compared in pairs, those that only one of the two has in none."""
    pairs = [mine / other for mine, other in zip(ours, theirs, strict=False)]
    low, high = quartiles(pairs)
    return Ratio(statistics.median(ours) / statistics.median(theirs), low, high)


def best(samples: Samples, peers: Sequence[str]) -> str | None:
    """The peer with the lowest median, of those that have samples."""
    there = [peer for peer in peers if samples.get(peer)]
    return min(there, key=lambda peer: statistics.median(samples[peer])) if there else None


def judge(work: Work, bar: Bar, samples: Samples, others: dict[str, Samples] | None = None) -> Verdict:
    """Compare regluon's samples with a bar; ``others`` are the samples of other works of the same run."""
    ours = samples.get("regluon")
    if not ours:
        return Verdict(bar, reason="regluon has no result")
    if bar.absolute:
        low, high = quartiles(ours)
        middle = Ratio(statistics.median(ours), low, high)
        return Verdict(bar, "the clock", middle, middle.value <= bar.limit)
    if bar.work is not None:
        theirs, against = (others or {}).get(bar.work, {}).get("regluon"), bar.work
    else:
        peer = best(samples, bar.against)
        theirs, against = samples.get(peer or ""), peer or ""
    if not theirs:
        return Verdict(bar, reason=f"no result of {' or '.join(bar.against) or bar.work}")
    found = ratio(ours, theirs)
    return Verdict(bar, against, found, found.value <= bar.limit)


def verdicts(work: Work, samples: Samples, others: dict[str, Samples] | None = None) -> list[Verdict]:
    """The verdict on every bar of a work."""
    return [judge(work, bar, samples, others) for bar in bars_of(work)]
