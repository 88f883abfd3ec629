"""mx.name: how symbols get their names."""

from __future__ import annotations

from .base.naming import NameManager, Prefix

__all__ = ["NameManager", "Prefix"]
