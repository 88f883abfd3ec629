"""From a graph to something that runs: generated Python programs, and an interpreter for watching them."""

from __future__ import annotations

from .program import Program, interpret

__all__ = ["Program", "interpret"]
