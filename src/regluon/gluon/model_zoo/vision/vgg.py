"""VGG (Simonyan and Zisserman, 2014), with and without batch normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import initializer
from ... import nn
from ...hybrid import HybridBlock
from ..model_store import load_pretrained

__all__ = [
    "VGG", "get_vgg", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
]  # fmt: skip


class VGG(HybridBlock):
    """VGG for images (N, 3, 224, 224).

    Parameters
    ----------
    layers, filters : list of int
        Convolutions in every stage, and their channels.
    classes : int
        Number of outputs.
    batch_norm : bool
        Whether every convolution is followed by batch normalization.
    """

    def __init__(
        self,
        layers: list[int],
        filters: list[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(layers) != len(filters):
            raise ValueError(
                f"layers and filters must be of one length; received {len(layers)} and {len(filters)}"
            )
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            for count, channels in zip(layers, filters, strict=True):
                for _ in range(count):
                    self._add_convolution(channels, batch_norm)
                self.features.add(nn.MaxPool2D(strides=2))
            for _ in range(2):
                dense = nn.Dense(4096, "relu", weight_initializer="normal", bias_initializer="zeros")
                self.features.add(dense, nn.Dropout(rate=0.5))
            self.output = nn.Dense(classes, weight_initializer="normal", bias_initializer="zeros")

    def _add_convolution(self, channels: int, batch_norm: bool) -> None:
        init = initializer.Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
        self.features.add(nn.Conv2D(channels, kernel_size=3, padding=1, weight_initializer=init))
        if batch_norm:
            self.features.add(nn.BatchNorm())
        self.features.add(nn.Activation("relu"))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


vgg_spec: dict[int, tuple[list[int], list[int]]] = {
    11: ([1, 1, 2, 2, 2], [64, 128, 256, 512, 512]),
    13: ([2, 2, 2, 2, 2], [64, 128, 256, 512, 512]),
    16: ([2, 2, 3, 3, 3], [64, 128, 256, 512, 512]),
    19: ([2, 2, 4, 4, 4], [64, 128, 256, 512, 512]),
}


def get_vgg(
    num_layers: int,
    pretrained: bool = False,
    ctx: Any = None,
    root: Any = None,
    device: Any = None,
    **kwargs: Any,
) -> VGG:
    """VGG with 11, 13, 16 or 19 layers; with ``pretrained`` its parameters are read from ``root``.

    Raises
    ------
    ValueError
        For another depth.
    """
    if num_layers not in vgg_spec:
        raise ValueError(f"Invalid number of layers: {num_layers}. Options are {list(vgg_spec)}")
    net = VGG(*vgg_spec[num_layers], **kwargs)
    if pretrained:
        suffix = "_bn" if kwargs.get("batch_norm") else ""
        load_pretrained(net, f"vgg{num_layers}{suffix}", root, ctx if ctx is not None else device)
    return net


def _named(depth: int, batch_norm: bool) -> Callable[..., VGG]:
    def build(**kwargs: Any) -> VGG:
        if batch_norm:
            kwargs["batch_norm"] = True
        return get_vgg(depth, **kwargs)

    build.__name__ = build.__qualname__ = f"vgg{depth}_bn" if batch_norm else f"vgg{depth}"
    build.__doc__ = f"VGG-{depth}{' with batch normalization' if batch_norm else ''}; see `get_vgg`."
    return build


vgg11, vgg13, vgg16, vgg19 = (_named(depth, False) for depth in vgg_spec)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_named(depth, True) for depth in vgg_spec)
