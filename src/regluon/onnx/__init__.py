"""ONNX: networks as files for other programs, and the conversion that backends use.

Needs the package ``onnx`` (``pip install 'regluon[onnx]'``) when a model is made, not when this is imported.
"""

from __future__ import annotations

from .export import export_model, get_operator_support

__all__ = ["export_model", "get_operator_support"]
