"""Running operators: the mode of the thread, the one way an operator is invoked, tracing, autograd.

In public, `mx.runtime` tells what this build can do.
"""

from __future__ import annotations

from .features import Feature, Features, feature_list

__all__ = ["Feature", "Features", "feature_list"]
