"""Functions of bounding boxes as NumPy arrays: rows of (xmin, ymin, xmax, ymax) and further columns.

Coordinates are pixels; in the functions of corners and sizes (``xywh``) a box of one pixel has size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from ......data._arrays import host_seed

__all__ = [
    "bbox_clip_xyxy",
    "bbox_crop",
    "bbox_flip",
    "bbox_iou",
    "bbox_random_crop_with_constraints",
    "bbox_resize",
    "bbox_translate",
    "bbox_xywh_to_xyxy",
    "bbox_xyxy_to_xywh",
]

_Box = numpy.ndarray[Any, Any]
# The least overlap of a crop with a box, and the most, of which one pair is drawn for each crop.
_CONSTRAINTS = ((0.1, None), (0.3, None), (0.5, None), (0.7, None), (0.9, None), (None, 1))


def _pair(value: Any, name: str) -> tuple[float, float]:
    if len(value) != 2:
        raise ValueError(f"{name} requires length 2 tuple, given {len(value)}")
    return value[0], value[1]


def _columns(boxes: Any, name: str, change: Callable[..., Sequence[Any]]) -> Any:
    """``change`` of the four columns of an array, or of the four numbers of one box."""
    if isinstance(boxes, (tuple, list)):
        if len(boxes) != 4:
            raise IndexError(f"Bounding boxes must have 4 elements, given {len(boxes)}")
        made = change(*boxes)
        return tuple(value.item() if isinstance(value, numpy.generic) else value for value in made)
    if isinstance(boxes, numpy.ndarray):
        if boxes.ndim != 2 or boxes.shape[1] != 4:
            raise IndexError(f"Bounding boxes must have n * 4 elements, given {boxes.shape}")
        return numpy.stack(numpy.broadcast_arrays(*change(*boxes.T)), axis=1)
    raise TypeError(f"Expect input {name} a list, tuple or numpy.ndarray, given {type(boxes)}")


def bbox_crop(bbox: _Box, crop_box: Any = None, allow_outside_center: bool = True) -> _Box:
    """The boxes within a crop, from its corner; those with nothing in it are left out.

    Parameters
    ----------
    bbox : numpy.ndarray
        Boxes (n, 4 or more).
    crop_box : tuple, optional
        (x, y, width, height); None for a size reaches to the end.
    allow_outside_center : bool
        Whether boxes are kept whose middle is outside of the crop.

    Raises
    ------
    ValueError
        If ``crop_box`` has not four elements.
    """
    bbox = bbox.copy()
    if crop_box is None:
        return bbox
    if len(crop_box) != 4:
        raise ValueError(f"Invalid crop_box parameter, requires length 4, given {crop_box!s}")
    if all(value is None for value in crop_box):
        return bbox
    left, top, width, height = crop_box
    left, top = left or 0, top or 0
    right = left + (width if width else numpy.inf)
    bottom = top + (height if height else numpy.inf)
    middle = (bbox[:, :2] + bbox[:, 2:4]) / 2
    inside = ((middle >= (left, top)) & (middle < (right, bottom))).all(1)
    bbox[:, :2] = numpy.maximum(bbox[:, :2], (left, top)) - (left, top)
    bbox[:, 2:4] = numpy.minimum(bbox[:, 2:4], (right, bottom)) - (left, top)
    kept = (bbox[:, :2] < bbox[:, 2:4]).all(1)
    return bbox[kept if allow_outside_center else kept & inside]


def bbox_flip(bbox: _Box, size: Any, flip_x: bool = False, flip_y: bool = False) -> _Box:
    """The boxes in an image of ``size`` (width, height) that is mirrored left to right, or upside down."""
    width, height = _pair(size, "size")
    bbox = bbox.copy()
    if flip_x:
        bbox[:, [0, 2]] = width - bbox[:, [2, 0]]
    if flip_y:
        bbox[:, [1, 3]] = height - bbox[:, [3, 1]]
    return bbox


def bbox_resize(bbox: _Box, in_size: Any, out_size: Any) -> _Box:
    """The boxes in an image of ``in_size`` that is resized to ``out_size``, both (width, height)."""
    before, after = _pair(in_size, "in_size"), _pair(out_size, "out_size")
    bbox = bbox.copy().astype(float)
    for place in range(4):
        bbox[:, place] *= after[place % 2] / before[place % 2]
    return bbox


def bbox_translate(bbox: _Box, x_offset: float = 0, y_offset: float = 0) -> _Box:
    """The boxes moved by offsets."""
    bbox = bbox.copy()
    bbox[:, :4] += (x_offset, y_offset, x_offset, y_offset)
    return bbox


def bbox_iou(bbox_a: _Box, bbox_b: _Box, offset: float = 0) -> _Box:
    """Areas of intersections over those of unions: (n, m) of boxes (n, 4) and (m, 4).

    ``offset`` is added to widths and heights: 1 where coordinates are those of pixels inside.

    Raises
    ------
    IndexError
        If rows have fewer than four elements.
    """
    if bbox_a.shape[1] < 4 or bbox_b.shape[1] < 4:
        raise IndexError("Bounding boxes axis 1 must have at least length 4")
    low = numpy.maximum(bbox_a[:, None, :2], bbox_b[:, :2])
    high = numpy.minimum(bbox_a[:, None, 2:4], bbox_b[:, 2:4])
    shared = numpy.prod(high - low + offset, axis=2) * (low < high).all(axis=2)
    first = numpy.prod(bbox_a[:, 2:4] - bbox_a[:, :2] + offset, axis=1)
    second = numpy.prod(bbox_b[:, 2:4] - bbox_b[:, :2] + offset, axis=1)
    return numpy.asarray(shared / (first[:, None] + second - shared))


def bbox_xywh_to_xyxy(xywh: Any) -> Any:
    """Corners from a corner and sizes, of one box or of rows."""
    return _columns(
        xywh,
        "xywh",
        lambda x, y, w, h: (x, y, x + numpy.maximum(0, w - 1), y + numpy.maximum(0, h - 1)),
    )


def bbox_xyxy_to_xywh(xyxy: Any) -> Any:
    """A corner and sizes from corners, of one box or of rows."""
    return _columns(
        xyxy, "xyxy", lambda left, top, right, bottom: (left, top, right - left + 1, bottom - top + 1)
    )


def bbox_clip_xyxy(xyxy: Any, width: float, height: float) -> Any:
    """The box, or rows of boxes, with corners inside an image."""

    def clipped(left: Any, top: Any, right: Any, bottom: Any) -> Sequence[Any]:
        limits = (width - 1, height - 1, width - 1, height - 1)
        pairs = zip((left, top, right, bottom), limits, strict=True)
        return [numpy.minimum(limit, numpy.maximum(0, value)) for value, limit in pairs]

    return _columns(xyxy, "xyxy", clipped)


def bbox_random_crop_with_constraints(
    bbox: _Box,
    size: Any,
    min_scale: float = 0.3,
    max_scale: float = 1,
    max_aspect_ratio: float = 2,
    constraints: Any = None,
    max_trial: int = 50,
) -> tuple[_Box, tuple[int, int, int, int]]:
    """A random crop that overlaps the boxes as wanted, as SSD's training draws it (Liu et al., 2016).

    Parameters
    ----------
    bbox : numpy.ndarray
        Boxes (n, 4 or more).
    size : tuple
        (width, height) of the image.
    min_scale, max_scale : float
        Bounds of the crop's size over the image's.
    max_aspect_ratio : float
        The crop's width over height lies between this and its inverse, relative to the image's.
    constraints : sequence of (least overlap or None, most or None), optional
        A crop is looked for with each; one of those found, or the whole image, is chosen.
    max_trial : int
        Draws for each.

    Returns
    -------
    tuple
        The boxes in the crop, and the crop as (x, y, width, height).

    The draws follow ``mx.random.seed``.
    """
    width, height = _pair(size, "size")
    draw = numpy.random.RandomState(host_seed() % 2**32)
    found = [(0, 0, int(width), int(height))]
    for least, most in _CONSTRAINTS if constraints is None else constraints:
        least = -numpy.inf if least is None else least
        most = numpy.inf if most is None else most
        for _ in range(max_trial):
            scale = draw.uniform(min_scale, max_scale)
            low, high = max(1 / max_aspect_ratio, scale * scale), min(max_aspect_ratio, 1 / (scale * scale))
            ratio = draw.uniform(low, high)
            wide, tall = int(width * scale * ratio**0.5), int(height * scale / ratio**0.5)
            if not (0 < wide <= width and 0 < tall <= height):
                continue
            left, top = draw.randint(int(width) - wide + 1), draw.randint(int(height) - tall + 1)
            corners = numpy.array([[left, top, left + wide, top + tall]])
            overlaps = bbox_iou(bbox, corners) if len(bbox) else numpy.zeros(0)
            if not len(bbox) or (least <= overlaps.min() and overlaps.max() <= most):
                found.append((left, top, wide, tall))
                break
    while found:
        crop = found.pop(draw.randint(len(found)))
        boxes = bbox_crop(bbox, crop, allow_outside_center=False)
        if len(boxes) or not len(bbox):
            return boxes, crop
    return bbox, (0, 0, int(width), int(height))


def as_host(bbox: Any) -> _Box:
    """Boxes of any kind as an array of float32 on the host.

    Raises
    ------
    ValueError
        If they have no rows of at least four elements.
    """
    if isinstance(bbox, torch.Tensor):
        boxes = bbox.numpy()
    else:
        boxes = bbox.asnumpy() if hasattr(bbox, "asnumpy") else numpy.asarray(bbox)
    if boxes.ndim != 2 or boxes.shape[1] < 4:
        raise ValueError(f"bbox must have the shape (boxes, 4 or more); received {boxes.shape}")
    return boxes.astype("float32")
