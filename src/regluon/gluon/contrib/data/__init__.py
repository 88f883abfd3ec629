"""gluon.contrib.data: a sampler, language model data sets, and images with bounding boxes."""

from __future__ import annotations

from . import sampler, text, vision
from .sampler import IntervalSampler

__all__ = ["IntervalSampler", "sampler", "text", "vision"]
