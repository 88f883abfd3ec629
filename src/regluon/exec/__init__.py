"""From a graph to something that runs: generated Python programs, and an interpreter for watching them."""

from __future__ import annotations

from . import forks as forks
from .plan import Plan
from .program import Program, interpret
from .recompute import recompute
from .training import for_training

__all__ = ["Plan", "Program", "for_training", "interpret", "recompute"]
