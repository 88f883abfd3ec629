"""Transforms of images as blocks, for ``dataset.transform_first(...)``.

Images are arrays of shape (height, width, channels); `ToTensor` turns them into (channels, height, width).
Those that a compiled network may begin with (`Cast`, `ToTensor`, `Normalize`) are made of operators and can
be hybridized and exported; the others compute on values, in the data pipeline. Random ones follow
``mx.random.seed``.
"""

from __future__ import annotations

from .blocks import Cast, Compose, HybridCompose, HybridRandomApply, Normalize, RandomApply, ToTensor
from .image import (
    CenterCrop,
    CropResize,
    RandomBrightness,
    RandomColorJitter,
    RandomContrast,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipTopBottom,
    RandomGray,
    RandomHue,
    RandomLighting,
    RandomResizedCrop,
    RandomRotation,
    RandomSaturation,
    Resize,
    Rotate,
)

__all__ = [
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "HybridCompose",
    "HybridRandomApply",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomGray",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "ToTensor",
]
