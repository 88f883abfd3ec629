"""mx.attribute: the scope of symbol attributes."""

from __future__ import annotations

from .base.naming import AttrScope

__all__ = ["AttrScope"]
