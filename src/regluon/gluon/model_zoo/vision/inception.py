"""Inception V3 (Szegedy et al., 2015)."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...hybrid import HybridBlock
from ..model_store import load_pretrained

__all__ = ["Inception3", "inception_v3"]

# A step of a branch: (channels, kernel, stride, padding) of a convolution, or a pooling.
_Step = Any
_AVERAGE, _MAXIMUM = "average", "maximum"


def _convolution(channels: int, kernel: Any = 1, stride: int = 1, padding: Any = 0) -> nn.HybridSequential:
    part = nn.HybridSequential(prefix="")
    part.add(
        nn.Conv2D(channels, kernel, strides=stride, padding=padding, use_bias=False),
        nn.BatchNorm(epsilon=0.001),
        nn.Activation("relu"),
    )
    return part


def _branch(*steps: _Step) -> nn.HybridSequential:
    part = nn.HybridSequential(prefix="")
    for step in steps:
        if step is _AVERAGE:
            part.add(nn.AvgPool2D(pool_size=3, strides=1, padding=1))
        elif step is _MAXIMUM:
            part.add(nn.MaxPool2D(pool_size=3, strides=2))
        else:
            part.add(_convolution(*step))
    return part


def _forked(*steps: _Step) -> nn.HybridSequential:
    """A branch that ends in 1x3 and 3x1 convolutions side by side."""
    part = nn.HybridSequential(prefix="")
    part.add(_branch(*steps))
    ends = nn.HybridConcatenate(axis=1, prefix="")
    ends.add(_branch((384, (1, 3), 1, (0, 1))), _branch((384, (3, 1), 1, (1, 0))))
    part.add(ends)
    return part


def _module(name: str) -> nn.HybridConcatenate:
    return nn.HybridConcatenate(axis=1, prefix=f"{name}_")


def _a(name: str, pooled: int) -> nn.HybridConcatenate:
    module = _module(name)
    with module.name_scope():
        module.add(
            _branch((64,)),
            _branch((48,), (64, 5, 1, 2)),
            _branch((64,), (96, 3, 1, 1), (96, 3, 1, 1)),
            _branch(_AVERAGE, (pooled,)),
        )
    return module


def _b(name: str) -> nn.HybridConcatenate:
    module = _module(name)
    with module.name_scope():
        module.add(_branch((384, 3, 2)), _branch((64,), (96, 3, 1, 1), (96, 3, 2)), _branch(_MAXIMUM))
    return module


def _c(name: str, inner: int) -> nn.HybridConcatenate:
    def row(channels: int) -> _Step:
        return channels, (1, 7), 1, (0, 3)

    def column(channels: int) -> _Step:
        return channels, (7, 1), 1, (3, 0)

    module = _module(name)
    with module.name_scope():
        module.add(
            _branch((192,)),
            _branch((inner,), row(inner), column(192)),
            _branch((inner,), column(inner), row(inner), column(inner), row(192)),
            _branch(_AVERAGE, (192,)),
        )
    return module


def _d(name: str) -> nn.HybridConcatenate:
    module = _module(name)
    with module.name_scope():
        module.add(
            _branch((192,), (320, 3, 2)),
            _branch((192,), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)),
            _branch(_MAXIMUM),
        )
    return module


def _e(name: str) -> nn.HybridConcatenate:
    module = _module(name)
    with module.name_scope():
        module.add(
            _branch((320,)), _forked((384,)), _forked((448,), (384, 3, 1, 1)), _branch(_AVERAGE, (192,))
        )
    return module


class Inception3(HybridBlock):
    """Inception V3 for images (N, 3, 299, 299).

    Parameters
    ----------
    classes : int
        Number of outputs.
    """

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                _convolution(32, 3, 2),
                _convolution(32, 3),
                _convolution(64, 3, 1, 1),
                nn.MaxPool2D(pool_size=3, strides=2),
                _convolution(80),
                _convolution(192, 3),
                nn.MaxPool2D(pool_size=3, strides=2),
                *(_a(f"A{number}", pooled) for number, pooled in enumerate((32, 64, 64), 1)),
                _b("B"),
                *(_c(f"C{number}", inner) for number, inner in enumerate((128, 160, 160, 192), 1)),
                _d("D"),
                _e("E1"),
                _e("E2"),
                nn.AvgPool2D(pool_size=8),
                nn.Dropout(0.5),
            )
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def inception_v3(
    pretrained: bool = False, ctx: Any = None, root: Any = None, device: Any = None, **kwargs: Any
) -> Inception3:
    """Inception V3; with ``pretrained`` its parameters are read from ``root``."""
    net = Inception3(**kwargs)
    if pretrained:
        load_pretrained(net, "inceptionv3", root, ctx if ctx is not None else device)
    return net
