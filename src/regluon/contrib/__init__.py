"""What 1.x kept in ``mx.contrib``, under that name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Where each module lives.
_PLACES = {
    "amp": "regluon.amp",
    "autograd": "regluon.contrib.autograd",
    "io": "regluon.contrib.io",
    "nd": "regluon.ndarray.contrib",
    "ndarray": "regluon.ndarray.contrib",
    "onnx": "regluon.onnx",
    "quantization": "regluon.contrib.quantization",
    "sym": "regluon.symbol.contrib",
    "symbol": "regluon.symbol.contrib",
    "tensorboard": "regluon.contrib.tensorboard",
    "text": "regluon.contrib.text",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_PLACES[name])
    globals()[name] = module
    return module


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
