"""What 1.x kept in ``mx.contrib``, under that name."""

from __future__ import annotations

from ..base.later import imported_later

__getattr__, __dir__ = imported_later(
    globals(),
    *("autograd", "io", "quantization", "tensorboard", "text"),
    amp="..amp",
    nd="..ndarray.contrib",
    ndarray="..ndarray.contrib",
    onnx="..onnx",
    sym="..symbol.contrib",
    symbol="..symbol.contrib",
)
