"""Blocks that transform an image (height, width, channels) and its boxes (n, 4 or more) together."""

from __future__ import annotations

from typing import Any

import numpy

from ......block import Block
from ......data._arrays import host_seed
from .utils import (
    as_host,
    bbox_crop,
    bbox_flip,
    bbox_random_crop_with_constraints,
    bbox_resize,
    bbox_translate,
)

__all__ = [
    "ImageBboxCrop",
    "ImageBboxRandomCropWithConstraints",
    "ImageBboxRandomExpand",
    "ImageBboxRandomFlipLeftRight",
    "ImageBboxResize",
]


def _like(image: Any, values: Any) -> Any:
    """Host values as an array of the kind of an image."""
    import torch

    return type(image)._wrap(torch.from_numpy(numpy.ascontiguousarray(values)), image._ctx)


def _draw() -> numpy.random.RandomState:
    """Random numbers that follow ``mx.random.seed``."""
    return numpy.random.RandomState(host_seed() % 2**32)


class ImageBboxRandomFlipLeftRight(Block):
    """Mirrors image and boxes from left to right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any, bbox: Any) -> tuple[Any, Any]:
        if self.p <= 0 or (self.p < 1 and _draw().uniform() >= self.p):
            return img, bbox
        boxes = bbox_flip(as_host(bbox), (img.shape[1], img.shape[0]), flip_x=True)
        return img[:, ::-1].copy(), _like(img, boxes)


class ImageBboxCrop(Block):
    """Cuts ``crop``, (x, y, width, height), out of image and boxes; a crop that does not fit changes nothing.

    ``allow_outside_center`` says whether boxes are kept whose middle is outside.
    """

    def __init__(self, crop: Any, allow_outside_center: bool = False) -> None:
        super().__init__()
        if len(crop) != 4:
            raise ValueError(f"crop must be (x, y, width, height); received {crop!r}")
        self._crop = tuple(crop)
        self._allow = allow_outside_center

    def forward(self, img: Any, bbox: Any) -> tuple[Any, Any]:
        left, top, width, height = self._crop
        if min(left, top) < 0 or left + width > img.shape[1] or top + height > img.shape[0]:
            return img, bbox
        boxes = bbox_crop(as_host(bbox), self._crop, self._allow)
        return img[top : top + height, left : left + width], _like(img, boxes)


class ImageBboxRandomCropWithConstraints(Block):
    """With probability ``p`` a random crop that overlaps the boxes as wanted.

    The other arguments are those of `bbox_random_crop_with_constraints`.
    """

    def __init__(
        self,
        p: float = 0.5,
        min_scale: float = 0.3,
        max_scale: float = 1,
        max_aspect_ratio: float = 2,
        constraints: Any = None,
        max_trial: int = 50,
    ) -> None:
        super().__init__()
        self.p = p
        self._arguments = {
            "min_scale": min_scale,
            "max_scale": max_scale,
            "max_aspect_ratio": max_aspect_ratio,
            "constraints": constraints,
            "max_trial": max_trial,
        }

    def forward(self, img: Any, bbox: Any) -> tuple[Any, Any]:
        if self.p <= 0 or (self.p < 1 and _draw().uniform() >= self.p):
            return img, bbox
        size = (img.shape[1], img.shape[0])
        boxes, crop = bbox_random_crop_with_constraints(as_host(bbox), size, **self._arguments)
        left, top, width, height = crop
        return img[top : top + height, left : left + width], _like(img, boxes)


class ImageBboxRandomExpand(Block):
    """With probability ``p`` puts the image on a larger canvas filled with ``fill``.

    The canvas is up to ``max_ratio`` times as wide and as high; with ``keep_ratio`` by the same factor.
    """

    def __init__(
        self, p: float = 0.5, max_ratio: float = 4, fill: float = 0, keep_ratio: bool = True
    ) -> None:
        super().__init__()
        self.p, self._ratio, self._fill, self._keep = p, max_ratio, fill, keep_ratio

    def forward(self, img: Any, bbox: Any) -> tuple[Any, Any]:
        draw = _draw()
        if self._ratio <= 1 or self.p <= 0 or (self.p < 1 and draw.uniform() >= self.p):
            return img, bbox
        height, width, channels = img.shape
        across = draw.uniform(1, self._ratio)
        down = across if self._keep else draw.uniform(1, self._ratio)
        tall, wide = int(height * down), int(width * across)
        top, left = draw.randint(tall - height + 1), draw.randint(wide - width + 1)
        pixels = img.asnumpy()
        canvas = numpy.broadcast_to(numpy.asarray(self._fill, pixels.dtype), (tall, wide, channels)).copy()
        canvas[top : top + height, left : left + width] = pixels
        return _like(img, canvas), _like(img, bbox_translate(as_host(bbox), left, top))


class ImageBboxResize(Block):
    """Resizes image and boxes to ``width`` and ``height``; ``interp`` as in `mx.image.imresize`."""

    def __init__(self, width: int, height: int, interp: int = 1) -> None:
        super().__init__()
        self._size = (width, height)
        self._interp = interp

    def forward(self, img: Any, bbox: Any) -> tuple[Any, Any]:
        from regluon.image import imresize

        boxes = bbox_resize(as_host(bbox), (img.shape[1], img.shape[0]), self._size)
        return imresize(img, *self._size, interp=self._interp), _like(img, boxes.astype("float32"))
