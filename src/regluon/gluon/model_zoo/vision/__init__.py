"""gluon.model_zoo.vision: networks for images."""

from __future__ import annotations

from typing import Any

from . import densenet as _densenet
from . import mobilenet as _mobilenet
from . import resnet as _resnet
from . import squeezenet as _squeezenet
from . import vgg as _vgg
from .alexnet import AlexNet, alexnet
from .densenet import *  # noqa: F403
from .inception import Inception3, inception_v3
from .mobilenet import *  # noqa: F403
from .resnet import *  # noqa: F403
from .squeezenet import *  # noqa: F403
from .vgg import *  # noqa: F403

__all__ = [
    "AlexNet", "Inception3", "alexnet", "get_model", "inception_v3", *_densenet.__all__, *_mobilenet.__all__,
    *_resnet.__all__, *_squeezenet.__all__, *_vgg.__all__,
]  # fmt: skip

_WIDTHS = ("1.0", "0.75", "0.5", "0.25")
_MODELS: dict[str, Any] = {
    "alexnet": alexnet,
    "inceptionv3": inception_v3,
    **{f"densenet{depth}": getattr(_densenet, f"densenet{depth}") for depth in _densenet.densenet_spec},
    **{f"mobilenet{width}": getattr(_mobilenet, f"mobilenet{width.replace('.', '_')}") for width in _WIDTHS},
    **{
        f"mobilenetv2_{width}": getattr(_mobilenet, f"mobilenet_v2_{width.replace('.', '_')}")
        for width in _WIDTHS
    },
    **{
        f"resnet{depth}_v{version}": getattr(_resnet, f"resnet{depth}_v{version}")
        for version in (1, 2)
        for depth in _resnet.resnet_spec
    },
    "squeezenet1.0": _squeezenet.squeezenet1_0,
    "squeezenet1.1": _squeezenet.squeezenet1_1,
    **{
        f"vgg{depth}{suffix}": getattr(_vgg, f"vgg{depth}{suffix}")
        for depth in _vgg.vgg_spec
        for suffix in ("", "_bn")
    },
}


def get_model(name: str, **kwargs: Any) -> Any:
    """A network by name, for example ``resnet18_v1``; upper and lower case are alike.

    Raises
    ------
    ValueError
        For an unknown name; the message lists those there are.
    """
    build = _MODELS.get(name.lower())
    if build is None:
        listed = "\n\t".join(sorted(_MODELS))
        raise ValueError(f"Model {name} is not supported. Available options are\n\t{listed}")
    return build(**kwargs)
