"""gluon.contrib.cnn: the 1.x home of layers that are in gluon.nn."""

from __future__ import annotations

from ..nn import DeformableConvolution, ModulatedDeformableConvolution

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]
