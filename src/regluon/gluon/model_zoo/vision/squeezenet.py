"""SqueezeNet (Iandola et al., 2016), versions 1.0 and 1.1."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...hybrid import HybridBlock
from ..model_store import load_pretrained

__all__ = ["SqueezeNet", "get_squeezenet", "squeezenet1_0", "squeezenet1_1"]

# First convolution (channels, kernel) and, between poolings, the squeezed channels of the fire modules.
_SPEC: dict[str, tuple[int, int, list[list[int]]]] = {
    "1.0": (96, 7, [[16, 16, 32], [32, 48, 48, 64], [64]]),
    "1.1": (64, 3, [[16, 16], [32, 32], [48, 48, 64, 64]]),
}


def _convolution(channels: int, kernel: int, padding: int = 0) -> nn.HybridSequential:
    part = nn.HybridSequential(prefix="")
    part.add(nn.Conv2D(channels, kernel, padding=padding), nn.Activation("relu"))
    return part


def _fire(squeezed: int) -> nn.HybridSequential:
    """A 1x1 convolution to few channels, then 1x1 and 3x3 ones side by side to four times as many each."""
    part = nn.HybridSequential(prefix="")
    part.add(_convolution(squeezed, 1))
    expand = nn.HybridConcatenate(axis=1, prefix="")
    expand.add(_convolution(4 * squeezed, 1), _convolution(4 * squeezed, 3, 1))
    part.add(expand)
    return part


class SqueezeNet(HybridBlock):
    """SqueezeNet for images (N, 3, 224, 224).

    Parameters
    ----------
    version : {"1.0", "1.1"}
        Which of the two published networks.
    classes : int
        Number of outputs.
    """

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if version not in _SPEC:
            raise ValueError(
                f"Unsupported SqueezeNet version {version!r}: expected one of {', '.join(_SPEC)}"
            )
        channels, kernel, groups = _SPEC[version]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(nn.Conv2D(channels, kernel_size=kernel, strides=2), nn.Activation("relu"))
            for group in groups:
                self.features.add(nn.MaxPool2D(pool_size=3, strides=2, ceil_mode=True))
                for squeezed in group:
                    self.features.add(_fire(squeezed))
            self.features.add(nn.Dropout(0.5))
            self.output = nn.HybridSequential(prefix="")
            self.output.add(
                nn.Conv2D(classes, kernel_size=1), nn.Activation("relu"), nn.AvgPool2D(13), nn.Flatten()
            )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def get_squeezenet(
    version: str,
    pretrained: bool = False,
    ctx: Any = None,
    root: Any = None,
    device: Any = None,
    **kwargs: Any,
) -> SqueezeNet:
    """SqueezeNet 1.0 or 1.1; with ``pretrained`` its parameters are read from ``root``."""
    net = SqueezeNet(version, **kwargs)
    if pretrained:
        load_pretrained(net, f"squeezenet{version}", root, ctx if ctx is not None else device)
    return net


def squeezenet1_0(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.0; see `get_squeezenet` for the arguments."""
    return get_squeezenet("1.0", **kwargs)


def squeezenet1_1(**kwargs: Any) -> SqueezeNet:
    """SqueezeNet 1.1; see `get_squeezenet` for the arguments."""
    return get_squeezenet("1.1", **kwargs)
