"""mx.executor: Symbols bound to arrays."""

from __future__ import annotations

from .symbol.executor import Executor

__all__ = ["Executor"]
