"""Rectangles of objects: rows of left, top, right and bottom, as fractions of an image's width and height."""

from __future__ import annotations

from typing import Any

import numpy

__all__: list[str] = []


def areas(boxes: Any) -> Any:
    """Areas of boxes; 0 for empty ones."""
    return numpy.maximum(boxes[:, 2] - boxes[:, 0], 0) * numpy.maximum(boxes[:, 3] - boxes[:, 1], 0)


def intersections(boxes: Any, window: Any) -> Any:
    """Areas that boxes share with one window."""
    inside = numpy.empty_like(boxes)
    inside[:, :2] = numpy.maximum(boxes[:, :2], window[:2])
    inside[:, 2:] = numpy.minimum(boxes[:, 2:], window[2:])
    return areas(inside)


def covered(boxes: Any, window: Any) -> Any:
    """The share of each box that lies in the window; 0 for empty boxes."""
    whole = areas(boxes)
    return numpy.divide(intersections(boxes, window), whole, out=numpy.zeros_like(whole), where=whole > 0)


def seen_from(boxes: Any, window: Any) -> Any:
    """Boxes as fractions of a window, limited to it where it lies in the image's boxes."""
    origin, size = window[:2], window[2:] - window[:2]
    return (boxes - numpy.tile(origin, 2)) / numpy.tile(size, 2)


def mirrored(boxes: Any) -> Any:
    """Boxes in the image whose left and right are exchanged."""
    result = boxes.copy()
    result[:, 0], result[:, 2] = 1 - boxes[:, 2], 1 - boxes[:, 0]
    return result
