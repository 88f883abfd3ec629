"""MobileNet V1 (Howard et al., 2017) and V2 (Sandler et al., 2018), in four widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ...hybrid import HybridBlock
from ..model_store import load_pretrained

__all__ = [
    "MobileNet",
    "MobileNetV2",
    "get_mobilenet",
    "get_mobilenet_v2",
    "mobilenet0_5",
    "mobilenet0_25",
    "mobilenet0_75",
    "mobilenet1_0",
    "mobilenet_v2_0_5",
    "mobilenet_v2_0_25",
    "mobilenet_v2_0_75",
    "mobilenet_v2_1_0",
]  # fmt: skip

_WIDTHS = (1.0, 0.75, 0.5, 0.25)


class RELU6(HybridBlock):
    """The input between 0 and 6."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.clip(x, a_min=0, a_max=6, name="relu6")


def _add_convolution(
    out: nn.HybridSequential,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    activation: HybridBlock | None = None,
) -> None:
    """Convolution, batch normalization and, where given, an activation."""
    convolution = nn.Conv2D(
        channels, kernel, strides=stride, padding=kernel // 2, groups=groups, use_bias=False
    )
    out.add(convolution, nn.BatchNorm(scale=True))
    if activation is not None:
        out.add(activation)


class LinearBottleneck(HybridBlock):
    """Widen, convolve every channel apart, narrow; with a shortcut where input and output are alike.

    Parameters
    ----------
    in_channels, channels : int
        Channels of input and output.
    t : int
        By how much it widens.
    stride : int
        Of the convolution.
    """

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        with self.name_scope():
            self.out = nn.HybridSequential()
            wide = in_channels * t
            _add_convolution(self.out, wide, activation=RELU6())
            _add_convolution(self.out, wide, 3, stride, groups=wide, activation=RELU6())
            _add_convolution(self.out, channels)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


class MobileNet(HybridBlock):
    """MobileNet for images (N, 3, 224, 224).

    Parameters
    ----------
    multiplier : float
        Factor on all channels.
    classes : int
        Number of outputs.
    """

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        inputs = [32, 64, 128, 128, 256, 256, *[512] * 6, 1024]
        outputs = [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
        strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                relu = nn.Activation
                _add_convolution(self.features, int(32 * multiplier), 3, 2, activation=relu("relu"))
                for source, target, stride in zip(inputs, outputs, strides, strict=True):
                    source, target = int(source * multiplier), int(target * multiplier)
                    _add_convolution(self.features, source, 3, stride, source, relu("relu"))
                    _add_convolution(self.features, target, activation=relu("relu"))
                self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


# Stages of V2: how much the bottlenecks widen, their channels, how many there are, stride of the first.
_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class MobileNetV2(HybridBlock):
    """MobileNet V2 for images (N, 3, 224, 224).

    Parameters
    ----------
    multiplier : float
        Factor on all channels; the last convolution has at least 1280.
    classes : int
        Number of outputs.
    """

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                channels = int(multiplier * 32)
                _add_convolution(self.features, channels, 3, 2, activation=RELU6())
                for widening, width, count, first in _STAGES:
                    target = int(width * multiplier)
                    for index in range(count):
                        stride = first if index == 0 else 1
                        self.features.add(LinearBottleneck(channels, target, widening, stride))
                        channels = target
                last = int(1280 * multiplier) if multiplier > 1.0 else 1280
                _add_convolution(self.features, last, activation=RELU6())
                self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def _width(multiplier: float) -> str:
    """The width in a model's name: 1.0, 0.75, 0.5 or 0.25."""
    return f"{multiplier:.2f}".removesuffix("0") if multiplier in (1.0, 0.5) else f"{multiplier:.2f}"


def get_mobilenet(
    multiplier: float,
    pretrained: bool = False,
    ctx: Any = None,
    root: Any = None,
    device: Any = None,
    **kwargs: Any,
) -> MobileNet:
    """MobileNet; with ``pretrained`` (widths 1, 0.75, 0.5, 0.25) its parameters are read from ``root``."""
    net = MobileNet(multiplier, **kwargs)
    if pretrained:
        load_pretrained(net, f"mobilenet{_width(multiplier)}", root, ctx if ctx is not None else device)
    return net


def get_mobilenet_v2(
    multiplier: float,
    pretrained: bool = False,
    ctx: Any = None,
    root: Any = None,
    device: Any = None,
    **kwargs: Any,
) -> MobileNetV2:
    """MobileNet V2; with ``pretrained`` (widths 1, 0.75, 0.5, 0.25) its parameters are read from ``root``."""
    net = MobileNetV2(multiplier, **kwargs)
    if pretrained:
        load_pretrained(net, f"mobilenetv2_{_width(multiplier)}", root, ctx if ctx is not None else device)
    return net


def _named(get: Callable[..., Any], stem: str, multiplier: float) -> Callable[..., Any]:
    def build(**kwargs: Any) -> Any:
        return get(multiplier, **kwargs)

    build.__name__ = build.__qualname__ = stem + _width(multiplier).replace(".", "_")
    build.__doc__ = f"Width {multiplier}; see `{get.__name__}` for the arguments."
    return build


mobilenet1_0, mobilenet0_75, mobilenet0_5, mobilenet0_25 = (
    _named(get_mobilenet, "mobilenet", width) for width in _WIDTHS
)
mobilenet_v2_1_0, mobilenet_v2_0_75, mobilenet_v2_0_5, mobilenet_v2_0_25 = (
    _named(get_mobilenet_v2, "mobilenet_v2_", width) for width in _WIDTHS
)
