"""Functions of ``mx.np`` for shapes, indices and creation whose signature differs from an operator's.

They are composed of operators, so they work on arrays, on values of a trace and on Symbols alike. Errors of
the arguments are those of the operators (MXNetError) unless a docstring says otherwise.
"""

from __future__ import annotations

from . import creation, products, selection, shaping, statistics, vectors
from .creation import *  # noqa: F403
from .products import *  # noqa: F403
from .selection import *  # noqa: F403
from .shaping import *  # noqa: F403
from .statistics import *  # noqa: F403
from .vectors import *  # noqa: F403

__all__ = [
    *creation.__all__,
    *products.__all__,
    *selection.__all__,
    *shaping.__all__,
    *statistics.__all__,
    *vectors.__all__,
]
