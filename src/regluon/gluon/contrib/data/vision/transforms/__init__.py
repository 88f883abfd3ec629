"""Transforms of an image together with its bounding boxes."""

from __future__ import annotations

from . import bbox
from .bbox import (
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
    "bbox",
]
