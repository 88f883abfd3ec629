"""mx.random: the seed, and the samplers of mx.nd.random."""

from __future__ import annotations

from typing import Any

from .base import rng
from .runtime.handles import kinds
from .runtime.samplers import legacy_samplers

globals().update(legacy_samplers(lambda: kinds.nd, __name__))


def seed(seed_state: int, ctx: Any = "all", device: Any = None) -> None:
    """Start the sequence of random draws anew, on all devices.

    Parameters
    ----------
    seed_state : int
        Equal seeds give equal draws.
    ctx, device
        Accepted for compatibility: draws do not depend on the device.

    Raises
    ------
    ValueError
        If the seed is no integer.
    """
    del ctx, device
    if not hasattr(seed_state, "__index__"):
        raise ValueError(f"the seed is an integer; received {seed_state!r}")
    rng.seed(int(seed_state))
