"""Where pretrained parameters are looked for: a local folder. Nothing is downloaded."""

from __future__ import annotations

import os
from typing import Any

from ...base.errors import MXNetError

__all__ = ["get_model_file", "load_pretrained", "purge", "short_hash"]

# The first 8 digits of the sha1 of the originals' parameter files.
_HASHES = {
    "alexnet": "44335d1f",
    "densenet121": "f27dbf2d",
    "densenet161": "b6c8a957",
    "densenet169": "2603f878",
    "densenet201": "1cdbc116",
    "inceptionv3": "ed47ec45",
    "mobilenet0.25": "9f83e440",
    "mobilenet0.5": "8e9d539c",
    "mobilenet0.75": "529b2c7f",
    "mobilenet1.0": "6b8c5106",
    "mobilenetv2_0.25": "ae8f9392",
    "mobilenetv2_0.5": "aabd26cd",
    "mobilenetv2_0.75": "e2be7b72",
    "mobilenetv2_1.0": "36da4ff1",
    "resnet18_v1": "a0666292",
    "resnet34_v1": "48216ba9",
    "resnet50_v1": "0aee57f9",
    "resnet101_v1": "d988c13d",
    "resnet152_v1": "671c637a",
    "resnet18_v2": "a81db45f",
    "resnet34_v2": "9d6b80bb",
    "resnet50_v2": "ecdde353",
    "resnet101_v2": "18e93e4f",
    "resnet152_v2": "f2695542",
    "squeezenet1.0": "264ba497",
    "squeezenet1.1": "33ba0f93",
    "vgg11": "dd221b16",
    "vgg11_bn": "ee79a809",
    "vgg13": "6bc5de58",
    "vgg13_bn": "7d97a06c",
    "vgg16": "e660d456",
    "vgg16_bn": "7f01cf05",
    "vgg19": "ad2f660d",
    "vgg19_bn": "f360b758",
}


class PretrainedFileError(MXNetError, FileNotFoundError):
    """No pretrained parameters are there."""


def short_hash(name: str) -> str:
    """The hash in the file name of a model.

    Raises
    ------
    ValueError
        If there is no pretrained model of this name.
    """
    if name not in _HASHES:
        raise ValueError(f"Pretrained model for {name} is not available.")
    return _HASHES[name]


def default_root() -> str:
    """``$MXNET_HOME/models``, or ``~/.mxnet/models``."""
    home = os.environ.get("MXNET_HOME", os.path.join(os.path.expanduser("~"), ".mxnet"))
    return os.path.join(home, "models")


def get_model_file(name: str, root: Any = None) -> str:
    """The path of the pretrained parameters of a model.

    Parameters
    ----------
    name : str
        Name of the model.
    root : str, optional
        The folder; see `default_root`.

    Raises
    ------
    MXNetError
        If the file is not there; the message names file and folder.
    """
    folder = os.path.expanduser(default_root() if root is None else os.fspath(root))
    file = f"{name}-{short_hash(name)}.params"
    for candidate in (file, f"{name}.params"):
        path = os.path.join(folder, candidate)
        if os.path.exists(path):
            return path
    raise PretrainedFileError(
        f"the pretrained parameters of {name} are not on this machine: expected the file {file} in the "
        f"folder "
        f"{folder}. Put it there (set root= or MXNET_HOME for another folder), or use pretrained=False"
    )


def load_pretrained(net: Any, name: str, root: Any, ctx: Any) -> None:
    """Read the pretrained parameters of a model into a network, on a context or list of contexts."""
    net.load_parameters(get_model_file(name, root), ctx=ctx)


def purge(root: Any = None) -> None:
    """Remove all parameter files from the folder."""
    folder = os.path.expanduser(default_root() if root is None else os.fspath(root))
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            if name.endswith(".params"):
                os.remove(os.path.join(folder, name))
