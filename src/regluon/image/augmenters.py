"""Augmenters: objects that change an image, with `CreateAugmenter`, which makes the usual list of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..array import NDArray
from ..gluon.data._arrays import wrap
from ..gluon.data.vision.transforms import kernels
from .functions import (
    center_crop,
    color_normalize,
    imresize,
    opened,
    random_crop,
    random_size_crop,
    resize_short,
)

__all__ = [
    "Augmenter",
    "BrightnessJitterAug",
    "CastAug",
    "CenterCropAug",
    "ColorJitterAug",
    "ColorNormalizeAug",
    "ContrastJitterAug",
    "CreateAugmenter",
    "ForceResizeAug",
    "HorizontalFlipAug",
    "HueJitterAug",
    "LightingAug",
    "RandomCropAug",
    "RandomGrayAug",
    "RandomOrderAug",
    "RandomSizedCropAug",
    "ResizeAug",
    "SaturationJitterAug",
    "SequentialAug",
]

# Mean and deviation of ImageNet's colours, in 0..255.
IMAGENET_MEAN = (123.68, 116.28, 103.53)
IMAGENET_DEVIATION = (58.395, 57.12, 57.375)
GREY_WEIGHTS = (0.21, 0.72, 0.07)
# From RGB to the Y, I and Q of NTSC television (as in Python's colorsys, in more digits).
YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.321), (0.211, -0.523, 0.311))
RGB = ((1.0, 0.956, 0.621), (1.0, -0.272, -0.647), (1.0, -1.107, 1.705))


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, NDArray):
        return value.asnumpy().tolist()
    if isinstance(value, numpy.ndarray | numpy.generic):
        return value.tolist()
    return value


class Augmenter:
    """Base of the augmenters: a subclass changes an image in ``__call__(src)`` and gives it back.

    Keyword arguments are kept, as plain values, for `dumps`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {name: plain(value) for name, value in kwargs.items()}

    def dumps(self) -> Any:
        """The class's name in small letters and its arguments, as JSON."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(src).")


class _Several(Augmenter):
    """An augmenter made of others."""

    def __init__(self, ts: Sequence[Augmenter]) -> None:
        super().__init__()
        self.ts = ts

    def dumps(self) -> Any:
        """The class's name in small letters and what the parts dump."""
        return [type(self).__name__.lower(), [part.dumps() for part in self.ts]]


class SequentialAug(_Several):
    """Augmenters one after the other."""

    def __call__(self, src: Any) -> Any:
        for part in self.ts:
            src = part(src)
        return src


class RandomOrderAug(_Several):
    """Augmenters one after the other, in a random order."""

    def __call__(self, src: Any) -> Any:
        for part in sorted(self.ts, key=lambda _: kernels.uniform(0, 1)):
            src = part(src)
        return src


class ResizeAug(Augmenter):
    """`resize_short`: the shorter side gets the length ``size``."""

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: Any) -> Any:
        return resize_short(src, self.size, self.interp)


class ForceResizeAug(Augmenter):
    """`imresize` to ``size`` (width, height), whatever the shape."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: Any) -> Any:
        return imresize(src, *self.size, interp=self.interp)


class RandomCropAug(Augmenter):
    """`random_crop` of ``size`` (width, height)."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: Any) -> Any:
        return random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """`random_size_crop` with ranges of areas and aspect ratios; ``min_area`` is an old name of ``area``."""

    def __init__(
        self,
        size: tuple[int, int],
        area: Any,
        ratio: tuple[float, float],
        interp: int = 2,
        *,
        min_area: float | None = None,
    ) -> None:
        area = area if min_area is None else min_area
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.area, self.ratio, self.interp = size, area, ratio, interp

    def __call__(self, src: Any) -> Any:
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class CenterCropAug(Augmenter):
    """`center_crop` of ``size`` (width, height)."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: Any) -> Any:
        return center_crop(src, self.size, self.interp)[0]


class BrightnessJitterAug(Augmenter):
    """Multiply by a factor from ``[1 - brightness, 1 + brightness]``."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: Any) -> Any:
        image, kind = opened(src, type(self).__name__)
        return wrap(kernels.brightness(image, 1 + kernels.uniform(-self.brightness, self.brightness)), kind)


class ContrastJitterAug(Augmenter):
    """Blend with the mean luminance by a factor from ``[1 - contrast, 1 + contrast]``."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast

    def __call__(self, src: Any) -> Any:
        image, kind = opened(src, type(self).__name__)
        return wrap(kernels.contrast(image, 1 + kernels.uniform(-self.contrast, self.contrast)), kind)


class SaturationJitterAug(Augmenter):
    """Blend with each pixel's luminance by a factor from ``[1 - saturation, 1 + saturation]``."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation

    def __call__(self, src: Any) -> Any:
        image, kind = opened(src, type(self).__name__)
        return wrap(kernels.saturation(image, 1 + kernels.uniform(-self.saturation, self.saturation)), kind)


class HueJitterAug(Augmenter):
    """Turn the colours by up to ``hue`` half turns in the plane of I and Q of the YIQ space, either way."""

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue

    def __call__(self, src: Any) -> Any:
        image, kind = opened(src, type(self).__name__)
        angle = math.pi * kernels.uniform(-self.hue, self.hue)
        turn = torch.eye(3)
        turn[1:, 1:] = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        matrix = torch.tensor(RGB) @ turn @ torch.tensor(YIQ)
        return wrap(kernels.restore(image.float() @ matrix.T, image), kind)


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation by random amounts, in a random order."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        kinds = (BrightnessJitterAug, ContrastJitterAug, SaturationJitterAug)
        amounts = (brightness, contrast, saturation)
        super().__init__([kind(amount) for kind, amount in zip(kinds, amounts, strict=True) if amount > 0])


class LightingAug(Augmenter):
    """Add principal components of colour with normal weights of deviation ``alphastd``.

    ``eigval`` are the three eigenvalues and ``eigvec`` the eigenvectors, as columns, of the colours'
    covariance (A. Krizhevsky, I. Sutskever, G. Hinton, 2012, section 4.1).
    """

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, eigval, eigvec

    def __call__(self, src: Any) -> Any:
        image, kind = opened(src, type(self).__name__)
        weights = numpy.asarray(kernels.normal(self.alphastd, 3)) * numpy.asarray(plain(self.eigval))
        shift = torch.from_numpy(numpy.asarray(plain(self.eigvec)) @ weights).float()
        return wrap(kernels.restore(image.float() + shift, image), kind)


class ColorNormalizeAug(Augmenter):
    """`color_normalize` by a mean and a deviation for each channel; either may be None."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean, self.std = mean, std

    def __call__(self, src: Any) -> Any:
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """With probability ``p`` take the colour away; the three channels stay."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any) -> Any:
        if kernels.uniform(0, 1) >= self.p:
            return src
        image, kind = opened(src, type(self).__name__)
        grey = (image.float() @ torch.tensor(GREY_WEIGHTS))[..., None]
        return wrap(kernels.restore(grey.expand(image.shape), image).contiguous(), kind)


class HorizontalFlipAug(Augmenter):
    """Mirror left and right with probability ``p``."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any) -> Any:
        image, kind = opened(src, type(self).__name__)
        return wrap(image.flip(1), kind) if kernels.uniform(0, 1) < self.p else src


class CastAug(Augmenter):
    """Convert to a dtype, float32 by default."""

    def __init__(self, typ: Any = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: Any) -> Any:
        return src.astype(self.typ)


def normalization(mean: Any, std: Any) -> list[Augmenter]:
    """A `ColorNormalizeAug` for a mean and a deviation, where True stands for ImageNet's; none without."""
    mean = numpy.array(IMAGENET_MEAN) if mean is True else mean
    std = numpy.array(IMAGENET_DEVIATION) if std is True else std
    for name, values in (("mean", mean), ("std", std)):
        if values is not None and numpy.shape(plain(values))[:1] not in ((1,), (3,)):
            raise ValueError(f"{name} expected 1 or 3 numbers or True, got {values!r}")
    return [] if mean is None and std is None else [ColorNormalizeAug(mean, std)]


def colour_augmenters(
    brightness: float, contrast: float, saturation: float, hue: float, pca_noise: float, rand_gray: float
) -> list[Augmenter]:
    """The augmenters of colour that are asked for, in their usual order."""
    found: list[Augmenter] = []
    if brightness or contrast or saturation:
        found.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        found.append(HueJitterAug(hue))
    if pca_noise > 0:
        eigenvalues, eigenvectors = numpy.array(kernels.EIGENVALUES), numpy.array(kernels.EIGENVECTORS)
        found.append(LightingAug(pca_noise, eigenvalues, eigenvectors))
    if rand_gray > 0:
        found.append(RandomGrayAug(rand_gray))
    return found


def CreateAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """The usual list of augmenters: resize, crop, mirror, cast to float32, colour, normalise.

    Parameters
    ----------
    data_shape : tuple of int
        Channels, height and width of the result.
    resize : int
        First make the shorter side this long, if not 0.
    rand_crop : bool
        Crop anywhere, else in the middle.
    rand_resize : bool
        With ``rand_crop``: a part of random area (8% or more) and shape, resampled.
    rand_mirror : bool
        Mirror every second image by chance.
    mean, std : sequence of 3 numbers or True
        Normalise by these, True by ImageNet's.
    brightness, contrast, saturation, hue, pca_noise, rand_gray : float
        Amounts, and for ``rand_gray`` the probability, of the changes of colour.
    inter_method : int
        OpenCV's number of an interpolation, 9 automatic, 10 random.

    Raises
    ------
    ValueError
        For ``rand_resize`` without ``rand_crop``, or a mean or deviation of another length.
    """
    size = (data_shape[2], data_shape[1])
    found: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    if rand_resize:
        if not rand_crop:
            raise ValueError("rand_resize=True chooses a random crop: it needs rand_crop=True")
        found.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    else:
        found.append((RandomCropAug if rand_crop else CenterCropAug)(size, inter_method))
    if rand_mirror:
        found.append(HorizontalFlipAug(0.5))
    found.append(CastAug())
    found += colour_augmenters(brightness, contrast, saturation, hue, pca_noise, rand_gray)
    return found + normalization(mean, std)
