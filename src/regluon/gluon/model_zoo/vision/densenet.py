"""DenseNet (Huang et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ...hybrid import HybridBlock
from ..model_store import load_pretrained

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201", "get_densenet"]


def _dense_layer(growth_rate: int, bn_size: int, dropout: float) -> nn.HybridConcatenate:
    """The input and ``growth_rate`` new channels made from it."""
    features = nn.HybridSequential(prefix="")
    features.add(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(bn_size * growth_rate, kernel_size=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(growth_rate, kernel_size=3, padding=1, use_bias=False),
    )
    if dropout:
        features.add(nn.Dropout(dropout))
    layer = nn.HybridConcatenate(axis=1, prefix="")
    layer.add(nn.Identity(), features)
    return layer


def _transition(channels: int) -> nn.HybridSequential:
    part = nn.HybridSequential(prefix="")
    part.add(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(channels, kernel_size=1, use_bias=False),
        nn.AvgPool2D(pool_size=2, strides=2),
    )
    return part


class DenseNet(HybridBlock):
    """DenseNet for images (N, 3, 224, 224).

    Parameters
    ----------
    num_init_features : int
        Channels of the first convolution.
    growth_rate : int
        Channels that every layer adds.
    block_config : list of int
        Layers in every stage.
    bn_size : int
        Channels inside a layer, as a multiple of ``growth_rate``.
    dropout : float
        Rate of dropout after every layer.
    classes : int
        Number of outputs.
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: list[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                nn.Conv2D(num_init_features, kernel_size=7, strides=2, padding=3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(pool_size=3, strides=2, padding=1),
            )
            channels = num_init_features
            for number, count in enumerate(block_config, 1):
                stage = nn.HybridSequential(prefix=f"stage{number}_")
                with stage.name_scope():
                    for _ in range(count):
                        stage.add(_dense_layer(growth_rate, bn_size, dropout))
                self.features.add(stage)
                channels += count * growth_rate
                if number < len(block_config):
                    channels //= 2
                    self.features.add(_transition(channels))
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(pool_size=7), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


densenet_spec: dict[int, tuple[int, int, list[int]]] = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


def get_densenet(
    num_layers: int,
    pretrained: bool = False,
    ctx: Any = None,
    root: Any = None,
    device: Any = None,
    **kwargs: Any,
) -> DenseNet:
    """DenseNet with 121, 161, 169 or 201 layers; with ``pretrained`` its parameters are read from ``root``.

    Raises
    ------
    ValueError
        For another depth.
    """
    if num_layers not in densenet_spec:
        raise ValueError(f"Invalid number of layers: {num_layers}. Options are {list(densenet_spec)}")
    net = DenseNet(*densenet_spec[num_layers], **kwargs)
    if pretrained:
        load_pretrained(net, f"densenet{num_layers}", root, ctx if ctx is not None else device)
    return net


def _named(depth: int) -> Callable[..., DenseNet]:
    def build(**kwargs: Any) -> DenseNet:
        return get_densenet(depth, **kwargs)

    build.__name__ = build.__qualname__ = f"densenet{depth}"
    build.__doc__ = f"DenseNet-{depth}; see `get_densenet` for the arguments."
    return build


densenet121, densenet161, densenet169, densenet201 = (_named(depth) for depth in densenet_spec)
