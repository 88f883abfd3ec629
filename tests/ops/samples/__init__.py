"""Sample calls of every operator, used by the per-operator test matrix.

Each module here holds ``SAMPLES``: the canonical name of an operator to its sample calls.
"""

from __future__ import annotations

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
