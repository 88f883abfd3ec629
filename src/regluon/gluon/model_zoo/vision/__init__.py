"""gluon.model_zoo.vision: networks for images."""

from __future__ import annotations

from typing import Any

from . import alexnet as _alexnet
from . import resnet as _resnet
from .alexnet import *  # noqa: F403
from .alexnet import AlexNet, alexnet
from .resnet import *  # noqa: F403
from .resnet import get_resnet

__all__ = ["AlexNet", "alexnet", "get_model", "get_resnet", *_resnet.__all__]

_MODELS: dict[str, Any] = {
    "alexnet": alexnet,
    **{
        f"resnet{depth}_v{version}": getattr(_resnet, f"resnet{depth}_v{version}")
        for version in (1, 2)
        for depth in _resnet.resnet_spec
    },
}
del _alexnet


def get_model(name: str, **kwargs: Any) -> Any:
    """A network by name, for example ``resnet18_v1``.

    Raises
    ------
    ValueError
        For an unknown name; the message lists those there are.
    """
    key = name.lower()
    if key not in _MODELS:
        listed = "\n\t".join(sorted(_MODELS))
        raise ValueError(f"Model {name} is not supported. Available options are\n\t{listed}")
    return _MODELS[key](**kwargs)
