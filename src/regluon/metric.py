"""``mx.metric`` of 1.x: the metrics of :mod:`regluon.gluon.metric`."""

from __future__ import annotations

from regluon.gluon.metric import *  # noqa: F403
from regluon.gluon.metric import __all__ as __all__
