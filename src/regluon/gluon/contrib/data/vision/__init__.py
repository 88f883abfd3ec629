"""gluon.contrib.data.vision: transforms of images together with their bounding boxes."""

from __future__ import annotations

from . import transforms
from .transforms import (
    ImageBboxCrop,
    ImageBboxRandomCropWithConstraints,
    ImageBboxRandomExpand,
    ImageBboxRandomFlipLeftRight,
    ImageBboxResize,
)

__all__ = [
    "ImageBboxCrop",
    "ImageBboxRandomCropWithConstraints",
    "ImageBboxRandomExpand",
    "ImageBboxRandomFlipLeftRight",
    "ImageBboxResize",
    "transforms",
]
