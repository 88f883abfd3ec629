"""mx.nd.random: samplers, for numbers and for arrays as parameters."""

from __future__ import annotations

from ..runtime.handles import kinds
from ..runtime.samplers import legacy_samplers

_made = legacy_samplers(lambda: kinds.nd, __name__)
globals().update(_made)
__all__ = list(_made)
