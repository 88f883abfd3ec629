"""mx.symbol.random: samplers, for numbers and for arrays as parameters."""

from __future__ import annotations

from ..runtime.handles import kinds
from ..runtime.samplers import legacy_samplers

globals().update(legacy_samplers(lambda: kinds.symbol, __name__))
