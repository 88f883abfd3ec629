"""mx.attribute: the scope of symbol attributes."""

from __future__ import annotations

from .base.naming import AttrScope
from .base.naming import current_scope as current

__all__ = ["AttrScope", "current"]
