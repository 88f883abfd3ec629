"""gluon.contrib.data.sampler: the 1.x home of a sampler that is in gluon.data."""

from __future__ import annotations

from ...data.sampler import IntervalSampler

__all__ = ["IntervalSampler"]
