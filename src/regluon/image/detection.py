"""Augmenters of images with objects: they change an image and the rows of its objects, which are class, left,
top, right, bottom and whatever else; the sides are fractions of the image.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..gluon.data._arrays import wrap
from ..gluon.data.vision.transforms import kernels
from ..io import boxes
from .augmenters import (
    Augmenter,
    CastAug,
    ForceResizeAug,
    ResizeAug,
    colour_augmenters,
    normalization,
    plain,
)
from .functions import opened

__all__ = [
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
]

Label = Any  # a NumPy array of shape (objects, 5 or more)


class DetAugmenter:
    """Base of the augmenters for detection: a subclass defines ``__call__(src, label)``, which gives both.

    Keyword arguments are kept, as plain values, for `dumps`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {name: plain(value) for name, value in kwargs.items()}

    def dumps(self) -> Any:
        """The class's name in small letters and its arguments, as JSON."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: Any, label: Label) -> tuple[Any, Label]:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(src, label).")


class DetBorrowAug(DetAugmenter):
    """An augmenter of images that leaves objects where they are, such as one of colours."""

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise TypeError(f"DetBorrowAug expected an Augmenter, got {type(augmenter).__name__}")
        super().__init__()
        self.augmenter = augmenter

    def dumps(self) -> Any:
        """The class's name in small letters and what the augmenter dumps."""
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: Any, label: Label) -> tuple[Any, Label]:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """One augmenter of a list by chance, or none with probability ``skip_prob``."""

    def __init__(self, aug_list: Any, skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        self.aug_list = list(aug_list) if isinstance(aug_list, list | tuple) else [aug_list]
        for augmenter in self.aug_list:
            if not isinstance(augmenter, DetAugmenter):
                raise ValueError(
                    f"DetRandomSelectAug expected DetAugmenters, got {type(augmenter).__name__}; "
                    "DetBorrowAug makes one of an Augmenter"
                )
        self.skip_prob = skip_prob if self.aug_list else 1

    def dumps(self) -> Any:
        """The class's name in small letters and what the augmenters dump."""
        return [type(self).__name__.lower(), [augmenter.dumps() for augmenter in self.aug_list]]

    def __call__(self, src: Any, label: Label) -> tuple[Any, Label]:
        if kernels.uniform(0, 1) < self.skip_prob:
            return src, label
        return self.aug_list[int(kernels.uniform(0, len(self.aug_list)))](src, label)  # type: ignore[no-any-return]


class DetHorizontalFlipAug(DetAugmenter):
    """Mirror left and right with probability ``p``."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any, label: Label) -> tuple[Any, Label]:
        if kernels.uniform(0, 1) >= self.p:
            return src, label
        image, kind = opened(src, type(self).__name__)
        return wrap(image.flip(1), kind), with_boxes(label, boxes.mirrored(label[:, 1:5]))


def with_boxes(label: Label, changed: Any) -> Label:
    """A label with other sides."""
    result = numpy.array(label)
    result[:, 1:5] = changed
    return result


def _ordered(name: str, values: Any) -> tuple[float, float]:
    low, high = (values, values) if isinstance(values, int | float) else tuple(values)
    if not 0 < low <= high:
        raise ValueError(f"{name} expected a range above 0 with low <= high, got {values}")
    return low, high


class DetRandomCropAug(DetAugmenter):
    """Cut out a random part that holds objects.

    Parameters
    ----------
    min_object_covered : float
        Of each object that a part touches more than this share must be in it.
    aspect_ratio_range : tuple of float
        Width over height of the part, in pixels.
    area_range : tuple of float
        The part's share of the image's area.
    min_eject_coverage : float
        Objects with less than this share in the part are left out of the label.
    max_attempts : int
        After so many parts that do not do, the image stays.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        aspect_ratio_range = _ordered("aspect_ratio_range", aspect_ratio_range)
        area_range = _ordered("area_range", area_range)
        super().__init__(
            min_object_covered=min_object_covered,
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            min_eject_coverage=min_eject_coverage,
            max_attempts=max_attempts,
        )
        self.min_object_covered = min_object_covered
        self.min_eject_coverage = min_eject_coverage
        self.max_attempts = max_attempts
        self.aspect_ratio_range = aspect_ratio_range
        self.area_range = area_range

    def __call__(self, src: Any, label: Label) -> tuple[Any, Label]:
        image, kind = opened(src, type(self).__name__)
        rows, columns = image.shape[:2]
        for _ in range(self.max_attempts):
            area = kernels.uniform(self.area_range[0], max(self.area_range[0], min(self.area_range[1], 1.0)))
            ratio = kernels.uniform(*self.aspect_ratio_range)
            width = round(math.sqrt(area * rows * columns * ratio))
            height = round(math.sqrt(area * rows * columns / ratio))
            if not (0 < width <= columns and 0 < height <= rows):
                continue
            left, top = (int(kernels.uniform(0, free + 1)) for free in (columns - width, rows - height))
            right, bottom = left + width, top + height
            window = numpy.array([left / columns, top / rows, right / columns, bottom / rows])
            kept = self._kept(label[:, 1:5], window)
            if kept.any():
                inside = numpy.clip(boxes.seen_from(label[kept, 1:5], window), 0, 1)
                return wrap(image[top:bottom, left:right].contiguous(), kind), with_boxes(label[kept], inside)
        return src, label

    def _kept(self, objects: Any, window: Any) -> Any:
        """Which objects stay in the label; none where the part does not do."""
        shares = boxes.covered(objects, window)
        touched = shares > 0
        if self.min_object_covered > 0 and not (
            touched.any() and shares[touched].min() > self.min_object_covered
        ):
            return numpy.zeros(len(objects), bool)
        return touched & (shares >= self.min_eject_coverage)


class DetRandomPadAug(DetAugmenter):
    """Put the image somewhere in a larger one.

    Parameters
    ----------
    aspect_ratio_range : tuple of float
        Width over height of the larger image.
    area_range : tuple of float
        Its area over the image's.
    max_attempts : int
        After so many sizes that do not hold the image, it stays.
    pad_val : tuple of number
        The value of each channel around it.
    """

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: Any = (128, 128, 128),
    ) -> None:
        pad_val = tuple(pad_val) if isinstance(pad_val, list | tuple) else (pad_val,)
        aspect_ratio_range = _ordered("aspect_ratio_range", aspect_ratio_range)
        area_range = _ordered("area_range", area_range)
        super().__init__(
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            max_attempts=max_attempts,
            pad_val=pad_val,
        )
        self.pad_val, self.max_attempts = pad_val, max_attempts
        self.aspect_ratio_range, self.area_range = aspect_ratio_range, area_range

    def __call__(self, src: Any, label: Label) -> tuple[Any, Label]:
        image, kind = opened(src, type(self).__name__)
        rows, columns, channels = image.shape
        for _ in range(self.max_attempts):
            area = kernels.uniform(*self.area_range) * rows * columns
            ratio = kernels.uniform(*self.aspect_ratio_range)
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if width < columns or height < rows:
                continue
            left, top = (int(kernels.uniform(0, free + 1)) for free in (width - columns, height - rows))
            larger = torch.empty(height, width, channels, dtype=image.dtype)
            larger[:] = torch.tensor(self.pad_val, dtype=image.dtype)
            larger[top : top + rows, left : left + columns] = image
            window = numpy.array(
                [-left / columns, -top / rows, (width - left) / columns, (height - top) / rows]
            )
            return wrap(larger, kind), with_boxes(label, boxes.seen_from(label[:, 1:5], window))
        return src, label


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """One of several `DetRandomCropAug` by chance: arguments that are lists give one each, others go to all.

    Raises
    ------
    ValueError
        For lists of different lengths.
    """
    given = {
        "min_object_covered": min_object_covered,
        "aspect_ratio_range": aspect_ratio_range,
        "area_range": area_range,
        "min_eject_coverage": min_eject_coverage,
        "max_attempts": max_attempts,
    }
    lists = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    count = max(len(values) for values in lists.values())
    for name, values in lists.items():
        if len(values) not in (1, count):
            raise ValueError(
                f"{name} expected 1 or {count} entries, as the longest list has; got {len(values)}"
            )
    crops = [
        DetRandomCropAug(**{name: values[place % len(values)] for name, values in lists.items()})
        for place in range(count)
    ]
    return DetRandomSelectAug(crops, skip_prob)


def CreateDetAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """The usual list of augmenters for detection: resize, crop, mirror, pad, fit, cast, colour, normalise.

    Parameters
    ----------
    data_shape : tuple of int
        Channels, height and width of the result.
    resize : int
        First make the shorter side this long, if not 0.
    rand_crop, rand_pad : float
        The probability of a `DetRandomCropAug` and of a `DetRandomPadAug`.
    rand_mirror : bool
        Mirror every second image by chance.
    mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray, inter_method
        As for `regluon.image.CreateAugmenter`.
    min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts
        Of the crop, see `CreateMultiRandCropAugmenter`; the pad takes ranges and attempts too.
    pad_val : tuple of number
        The values around a padded image.
    """
    found: list[DetAugmenter] = [DetBorrowAug(ResizeAug(resize, inter_method))] if resize > 0 else []
    if rand_crop > 0:
        found.append(
            CreateMultiRandCropAugmenter(
                min_object_covered,
                aspect_ratio_range,
                area_range,
                min_eject_coverage,
                max_attempts,
                skip_prob=1 - rand_crop,
            )
        )
    if rand_mirror:
        found.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        first = area_range[0] if isinstance(area_range, list) else area_range
        shape = aspect_ratio_range[0] if isinstance(aspect_ratio_range, list) else aspect_ratio_range
        attempts = max_attempts[0] if isinstance(max_attempts, list) else max_attempts
        areas = (max(1.0, first[0]), max(1.0, first[1]))
        found.append(DetRandomSelectAug([DetRandomPadAug(shape, areas, attempts, pad_val)], 1 - rand_pad))
    fitted: Sequence[Augmenter] = [
        ForceResizeAug((data_shape[2], data_shape[1]), inter_method),
        CastAug(),
        *colour_augmenters(brightness, contrast, saturation, hue, pca_noise, rand_gray),
        *normalization(mean, std),
    ]
    return found + [DetBorrowAug(augmenter) for augmenter in fitted]
