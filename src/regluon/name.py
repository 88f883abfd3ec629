"""mx.name: how symbols get their names."""

from __future__ import annotations

from .base.naming import NameManager, Prefix
from .base.naming import current_manager as current

__all__ = ["NameManager", "Prefix", "current"]
