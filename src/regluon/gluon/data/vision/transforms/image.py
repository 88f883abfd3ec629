"""Transforms that compute on the values of images, in the data pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ....block import Block
from ..._arrays import wrap
from . import kernels

__all__ = [
    "CenterCrop",
    "CropResize",
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
]

RESIZED_CROP_TRIES = 10


class _ImageTransform(Block):
    """A block whose work is a function on the image's tensor."""

    def forward(self, x: Any) -> Any:
        if len(x.shape) not in (3, 4):
            raise ValueError(
                f"{type(self).__name__} expected an image of three axes or a batch of them, got {x.shape}"
            )
        return wrap(self.apply_to(x._t).contiguous(), type(x))

    def apply_to(self, image: Tensor) -> Tensor:
        raise NotImplementedError


class Resize(_ImageTransform):
    """Resample to ``size``: a number, or (width, height).

    With ``keep_ratio`` and a number, the shorter side gets that length. ``interpolation`` is OpenCV's number.
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._keep, self._interpolation = size, keep_ratio, interpolation

    def apply_to(self, image: Tensor) -> Tensor:
        width, height = kernels.size_pair(self._size, "Resize")
        if self._keep and isinstance(self._size, int):
            tall, wide = image.shape[-3:-1]
            width, height = (width, tall * width // wide) if wide < tall else (wide * height // tall, height)
        return kernels.resize(image, width, height, self._interpolation)


class CenterCrop(_ImageTransform):
    """Cut ``size`` (a number, or width and height) out of the middle; a smaller image is cut less and
    enlarged."""

    def __init__(self, size: Any, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._interpolation = kernels.size_pair(size, "CenterCrop"), interpolation

    def apply_to(self, image: Tensor) -> Tensor:
        width, height = kernels.limit_size(image, *self._size)
        tall, wide = image.shape[-3:-1]
        part = kernels.crop(image, (wide - width) // 2, (tall - height) // 2, width, height)
        return kernels.resize(part, *self._size, self._interpolation)


class CropResize(_ImageTransform):
    """Cut out the rectangle at (``x``, ``y``), then resample it to ``size`` when one is given."""

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: int | None = None
    ) -> None:
        super().__init__()
        self._box = (x, y, width, height)
        self._size = None if not size else kernels.size_pair(size, "CropResize")
        self._interpolation = 1 if interpolation is None else interpolation

    def apply_to(self, image: Tensor) -> Tensor:
        part = kernels.crop(image, *self._box)
        return part if self._size is None else kernels.resize(part, *self._size, self._interpolation)


class RandomCrop(_ImageTransform):
    """Cut ``size`` out of a random place, after adding ``pad`` pixels of ``pad_value`` on each side."""

    def __init__(self, size: Any, pad: Any = None, pad_value: float = 0, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._interpolation = kernels.size_pair(size, "RandomCrop"), interpolation
        if pad is None or isinstance(pad, int):
            pad = ((pad or 0, pad or 0), (pad or 0, pad or 0), (0, 0))
        self._pad, self._pad_value = pad, pad_value

    def apply_to(self, image: Tensor) -> Tensor:
        import torch

        (top, bottom), (left, right), _ = self._pad
        if top or bottom or left or right:
            image = torch.nn.functional.pad(image, (0, 0, left, right, top, bottom), value=self._pad_value)
        width, height = kernels.limit_size(image, *self._size)
        part = _random_crop(image, width, height)
        return kernels.resize(part, *self._size, self._interpolation)


class RandomResizedCrop(_ImageTransform):
    """Cut out a random part and resample it to ``size``.

    Its area is a fraction of the image's from ``scale``, its width over height from ``ratio`` (uniform in the
    logarithm); after C. Szegedy et al., "Going deeper with convolutions", 2015, section 6.
    """

    def __init__(
        self, size: Any, scale: Any = (0.08, 1.0), ratio: Any = (3 / 4, 4 / 3), interpolation: int = 1
    ) -> None:
        super().__init__()
        self._size, self._interpolation = kernels.size_pair(size, "RandomResizedCrop"), interpolation
        self._scale = (scale, 1.0) if isinstance(scale, float) else tuple(scale)
        self._ratio = tuple(ratio)

    def apply_to(self, image: Tensor) -> Tensor:
        tall, wide = image.shape[-3:-1]
        for _ in range(RESIZED_CROP_TRIES):
            area = kernels.uniform(*self._scale) * tall * wide
            ratio = math.exp(kernels.uniform(math.log(self._ratio[0]), math.log(self._ratio[1])))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= wide and 0 < height <= tall:
                part = _random_crop(image, width, height)
                return kernels.resize(part, *self._size, self._interpolation)
        width, height = kernels.limit_size(image, *self._size)
        part = kernels.crop(image, (wide - width) // 2, (tall - height) // 2, width, height)
        return kernels.resize(part, *self._size, self._interpolation)


def _random_crop(image: Tensor, width: int, height: int) -> Tensor:
    tall, wide = image.shape[-3:-1]
    left = int(kernels.uniform(0, wide - width + 1))
    top = int(kernels.uniform(0, tall - height + 1))
    return kernels.crop(image, left, top, width, height)


class _RandomFlip(_ImageTransform):
    """Mirror along one axis with probability ``p``."""

    axis: int

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def apply_to(self, image: Tensor) -> Tensor:
        return image.flip(self.axis) if kernels.uniform(0, 1) < self.p else image


class RandomFlipLeftRight(_RandomFlip):
    """Mirror left and right with probability ``p``."""

    axis = -2


class RandomFlipTopBottom(_RandomFlip):
    """Mirror top and bottom with probability ``p``."""

    axis = -3


class RandomGray(_ImageTransform):
    """With probability ``p`` take the colour away; the three channels stay."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def apply_to(self, image: Tensor) -> Tensor:
        if kernels.uniform(0, 1) >= self.p:
            return image
        return kernels.restore(kernels.grey(image).expand(image.shape), image)


class _RandomFactor(_ImageTransform):
    """Change a property by a factor drawn from ``[max(0, 1 - amount), 1 + amount]``."""

    change: Callable[[Tensor, float], Tensor]

    def __init__(self, amount: float) -> None:
        super().__init__()
        if amount < 0:
            raise ValueError(f"{type(self).__name__} expected an amount of at least 0, got {amount}")
        self._range = (max(0.0, 1 - amount), 1 + amount)

    def apply_to(self, image: Tensor) -> Tensor:
        return type(self).change(image, kernels.uniform(*self._range))


class RandomBrightness(_RandomFactor):
    """Multiply by a random factor around 1."""

    change = staticmethod(kernels.brightness)

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness)


class RandomContrast(_RandomFactor):
    """Blend with the mean luminance by a random factor around 1."""

    change = staticmethod(kernels.contrast)

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast)


class RandomSaturation(_RandomFactor):
    """Blend with each pixel's luminance by a random factor around 1."""

    change = staticmethod(kernels.saturation)

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation)


class RandomHue(_RandomFactor):
    """Rotate hues by up to ``hue`` turns of the colour circle, either way."""

    # The factor counts turns: a whole one changes nothing.
    change = staticmethod(kernels.hue)

    def __init__(self, hue: float) -> None:
        super().__init__(hue)


class RandomColorJitter(_ImageTransform):
    """Change brightness, contrast, saturation and hue by random amounts, in random order."""

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ) -> None:
        super().__init__()
        kinds = (RandomBrightness, RandomContrast, RandomSaturation, RandomHue)
        amounts = (brightness, contrast, saturation, hue)
        self._parts = [kind(amount) for kind, amount in zip(kinds, amounts, strict=True) if amount]

    def apply_to(self, image: Tensor) -> Tensor:
        for part in sorted(self._parts, key=lambda _: kernels.uniform(0, 1)):
            image = part.apply_to(image)
        return image


class RandomLighting(_ImageTransform):
    """Add ImageNet's principal colour components with normal weights of deviation ``alpha``."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha

    def apply_to(self, image: Tensor) -> Tensor:
        return kernels.lighting(image, kernels.normal(self._alpha, 3))


class Rotate(_ImageTransform):
    """Rotate float32 images of shape (channels, height, width) by an angle in degrees.

    ``zoom_in`` enlarges until no empty corner is left, ``zoom_out`` shrinks until no part is lost.
    """

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__()
        if zoom_in and zoom_out:
            raise ValueError("Rotate: zoom_in and zoom_out exclude each other")
        self._degrees, self._zoom = rotation_degrees, (zoom_in, zoom_out)

    def apply_to(self, image: Tensor) -> Tensor:
        _require_float(self, image)
        return kernels.rotate(image, self._degrees, *self._zoom)


class RandomRotation(_ImageTransform):
    """`Rotate` by an angle drawn from ``angle_limits`` (degrees), with probability ``rotate_with_proba``."""

    def __init__(
        self, angle_limits: Any, zoom_in: bool = False, zoom_out: bool = False, rotate_with_proba: float = 1.0
    ) -> None:
        super().__init__()
        low, high = angle_limits
        if low >= high:
            raise ValueError(
                f"RandomRotation expected angle_limits (low, high) with low < high, got {angle_limits}"
            )
        if not 0 <= rotate_with_proba <= 1:
            raise ValueError(f"RandomRotation expected 0 <= rotate_with_proba <= 1, got {rotate_with_proba}")
        if zoom_in and zoom_out:
            raise ValueError("RandomRotation: zoom_in and zoom_out exclude each other")
        self._limits, self._zoom, self._probability = (low, high), (zoom_in, zoom_out), rotate_with_proba

    def apply_to(self, image: Tensor) -> Tensor:
        _require_float(self, image)
        if kernels.uniform(0, 1) >= self._probability:
            return image
        return kernels.rotate(image, kernels.uniform(*self._limits), *self._zoom)


def _require_float(transform: Block, image: Tensor) -> None:
    if not image.dtype.is_floating_point:
        raise TypeError(
            f"{type(transform).__name__} expected float images, got {image.dtype}: put ToTensor() before it"
        )
