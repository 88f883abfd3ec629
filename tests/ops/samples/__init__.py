"""Sample calls of every operator, used by the per-operator test matrix.

Each module here holds ``SAMPLES``: the canonical name of an operator to its sample calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Sample:
    """One call: inputs, attributes, and an independent NumPy reference.

    ``reference`` takes the inputs and gives the visible output (a tuple when there are several). It is None
    where only shapes and gradients can be checked. ``gradient`` says whether the gradient is to be checked by
    finite differences; it is False for operators whose gradient is not that of their output.
    """

    inputs: list[np.ndarray] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    gradient: bool = True
    rtol: float = 1e-5
    atol: float = 1e-6

    def key(self) -> str:
        """A digest of inputs and attributes: what records of the originals know the call by."""
        digest = hashlib.sha256(repr(sorted(self.attrs.items())).encode())
        for value in self.inputs:
            # Rounded, because the last bit of a computed input may differ between NumPy versions.
            rounded = np.round(np.asarray(value, dtype=np.float64), 3) + 0.0
            digest.update(f"{value.dtype.name}{value.shape}".encode() + rounded.tobytes())
        return digest.hexdigest()[:12]
