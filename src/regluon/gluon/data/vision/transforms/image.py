"""Transforms of images (height, width, channels), or batches of them.

Those made of the image operators can be hybridized, be part of a network and be exported with it; `Rotate`,
`RandomRotation` and `RandomGray` compute on values, in the data pipeline.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ....block import Block, HybridBlock
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


def _check_axes(transform: Block, x: Any) -> None:
    if len(x.shape) not in (3, 4):
        raise ValueError(
            f"{type(transform).__name__} expected an image of three axes or a batch of them, got {x.shape}"
        )


class _ImageTransform(HybridBlock):
    """A block made of operators on an image."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        _check_axes(self, x)
        return self.apply_to(F, x)

    def apply_to(self, F: Any, image: Any) -> Any:
        raise NotImplementedError


class _ValueTransform(Block):
    """A block whose work is a function on the image's tensor."""

    def forward(self, x: Any) -> Any:
        _check_axes(self, x)
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

    def apply_to(self, F: Any, image: Any) -> Any:
        size = kernels.size_pair(self._size, "Resize")
        if self._keep and isinstance(self._size, int):
            return F.image.resize(image, size=self._size, keep_ratio=True, interp=self._interpolation)
        return F.image.resize(image, size=size, interp=self._interpolation)


class CenterCrop(_ImageTransform):
    """Cut ``size`` (a number, or width and height) out of the middle; a smaller image is cut less and
    enlarged."""

    def __init__(self, size: Any, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._interpolation = kernels.size_pair(size, "CenterCrop"), interpolation

    def apply_to(self, F: Any, image: Any) -> Any:
        width, height = kernels.limit_size(image, *self._size)
        tall, wide = image.shape[-3:-1]
        part = F.image.crop(image, x=(wide - width) // 2, y=(tall - height) // 2, width=width, height=height)
        return F.image.resize(part, size=self._size, interp=self._interpolation)


class CropResize(_ImageTransform):
    """Cut out the rectangle at (``x``, ``y``), then resample it to ``size`` when one is given."""

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: int | None = None
    ) -> None:
        super().__init__()
        self._box = {"x": x, "y": y, "width": width, "height": height}
        self._size = None if not size else kernels.size_pair(size, "CropResize")
        self._interpolation = 1 if interpolation is None else interpolation

    def apply_to(self, F: Any, image: Any) -> Any:
        part = F.image.crop(image, **self._box)
        return (
            part if self._size is None else F.image.resize(part, size=self._size, interp=self._interpolation)
        )


class RandomCrop(_ImageTransform):
    """Cut ``size`` out of a random place, after adding ``pad`` pixels of ``pad_value`` on each side."""

    def __init__(self, size: Any, pad: Any = None, pad_value: float = 0, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._interpolation = kernels.size_pair(size, "RandomCrop"), interpolation
        if pad is None or isinstance(pad, int):
            pad = ((pad or 0, pad or 0), (pad or 0, pad or 0), (0, 0))
        self._pad, self._pad_value = pad, pad_value

    def apply_to(self, F: Any, image: Any) -> Any:
        (top, bottom), (left, right), _ = self._pad
        if top or bottom or left or right:
            sides = ((0, 0),) * (len(image.shape) - 3) + ((top, bottom), (left, right), (0, 0))
            image = _bordered(F, image, sides, self._pad_value)
        width, height = self._size
        return F.image.random_crop(image, width=width, height=height, interp=self._interpolation)


def _bordered(F: Any, image: Any, sides: tuple[tuple[int, int], ...], value: float) -> Any:
    """Add a border by joining constant images: the pad operator takes (N, C, H, W) alone."""
    first = len(image.shape) - 3
    for axis in (first, first + 1):
        parts = []
        for place, width in enumerate(sides[axis]):
            shape = (*image.shape[:axis], width, *image.shape[axis + 1 :])
            if width:
                parts.append((place, F.cast(F.full(shape, value, dtype="float32"), dtype=image.dtype)))
        before = [part for place, part in parts if place == 0]
        after = [part for place, part in parts if place == 1]
        image = F.concat(*before, image, *after, dim=axis) if parts else image
    return image


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

    def apply_to(self, F: Any, image: Any) -> Any:
        width, height = self._size
        return F.image.random_resized_crop(
            image,
            width=width,
            height=height,
            area=self._scale,
            ratio=self._ratio,
            interp=self._interpolation,
            max_trial=RESIZED_CROP_TRIES,
        )


class RandomFlipLeftRight(_ImageTransform):
    """Mirror left and right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def apply_to(self, F: Any, image: Any) -> Any:
        return F.image.random_flip_left_right(image, p=self.p)


class RandomFlipTopBottom(_ImageTransform):
    """Mirror top and bottom with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def apply_to(self, F: Any, image: Any) -> Any:
        return F.image.random_flip_top_bottom(image, p=self.p)


class RandomGray(_ValueTransform):
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

    property: str

    def __init__(self, amount: float) -> None:
        super().__init__()
        if amount < 0:
            raise ValueError(f"{type(self).__name__} expected an amount of at least 0, got {amount}")
        self._range = {"min_factor": max(0.0, 1 - amount), "max_factor": 1 + amount}

    def apply_to(self, F: Any, image: Any) -> Any:
        return getattr(F.image, f"random_{self.property}")(image, **self._range)


class RandomBrightness(_RandomFactor):
    """Multiply by a random factor around 1."""

    property = "brightness"

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness)


class RandomContrast(_RandomFactor):
    """Blend with the mean luminance by a random factor around 1."""

    property = "contrast"

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast)


class RandomSaturation(_RandomFactor):
    """Blend with each pixel's luminance by a random factor around 1."""

    property = "saturation"

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation)


class RandomHue(_RandomFactor):
    """Rotate hues by up to ``hue`` turns of the colour circle, either way."""

    # The factor counts turns: a whole one changes nothing.
    property = "hue"

    def __init__(self, hue: float) -> None:
        super().__init__(hue)


class RandomColorJitter(_ImageTransform):
    """Change brightness, contrast, saturation and hue by random amounts, in random order."""

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ) -> None:
        super().__init__()
        self._amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
        if min(self._amounts.values()) < 0:
            raise ValueError(f"RandomColorJitter expected amounts of at least 0, got {self._amounts}")

    def apply_to(self, F: Any, image: Any) -> Any:
        return F.image.random_color_jitter(image, **self._amounts)


class RandomLighting(_ImageTransform):
    """Add ImageNet's principal colour components with normal weights of deviation ``alpha``."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha

    def apply_to(self, F: Any, image: Any) -> Any:
        return F.image.random_lighting(image, alpha_std=self._alpha)


class Rotate(_ValueTransform):
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


class RandomRotation(_ValueTransform):
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
