"""Optimizers that MXNet keeps in ``mx.optimizer.contrib``."""

from __future__ import annotations

from regluon.optimizer.adaptive import GroupAdaGrad

__all__ = ["GroupAdaGrad"]
