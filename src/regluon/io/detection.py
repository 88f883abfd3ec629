"""`ImageDetRecordIter`: batches of images with the boxes of their objects, from RecordIO files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy

from ..base.errors import MXNetError
from . import boxes, pixels
from .base import DataDesc
from .images import Normalization
from .pixels import Image, Random
from .records import HOW_IT_WORKS, RecordIter, given

__all__ = ["ImageDetRecordIter"]

SHAPE_ENTRIES = 4  # before a label: channels, height and width of the image in the batch, and its length
WHOLE = numpy.array([0.0, 0.0, 1.0, 1.0])


@dataclass(frozen=True)
class CropSampler:
    """Draws windows until one fits: within the ranges of its scale and aspect ratio, and with an object whose
    overlap (intersection over union), sample coverage (over the window) and object coverage (over the object)
    are in their ranges."""

    trials: int
    scales: tuple[float, float]
    ratios: tuple[float, float]
    overlaps: tuple[float, float]
    sample_coverages: tuple[float, float]
    object_coverages: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("scales", "ratios", "overlaps", "sample_coverages", "object_coverages"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"the crop {name} have a minimum above the maximum: {low} and {high}")

    def draw(self, objects: Any, shape: float, random: Random) -> Any:
        """A window that fits, or None. ``shape`` is the image's width over its height."""
        for _ in range(self.trials):
            scale = random.uniform(*self.scales)
            low, high = max(self.ratios[0] / shape, scale**2), min(self.ratios[1] / shape, 1 / scale**2)
            if scale <= 0 or low > high:
                continue
            root = math.sqrt(random.uniform(low, high))
            size = numpy.minimum([scale * root, scale / root], 1)
            origin = random.uniform(size=2) * (1 - size)
            window = numpy.concatenate([origin, origin + size])
            if self._fits(objects, window):
                return window
        return None

    def _fits(self, objects: Any, window: Any) -> bool:
        shared = boxes.intersections(objects, window)
        area = float(numpy.prod(window[2:] - window[:2]))
        union = boxes.areas(objects) + area - shared
        good = numpy.ones(len(objects), bool)
        for values, (low, high) in (
            (shared / union, self.overlaps),
            (shared / area, self.sample_coverages),
            (boxes.covered(objects, window), self.object_coverages),
        ):
            if low > 0 or high < 1:
                good &= (values >= low) & (values <= high)
        return bool(good.any())


@dataclass(frozen=True)
class DetectionAugmentation:
    """Options of the detection augmenter under their names in MXNet.

    ``rand_crop_prob`` and ``rand_pad_prob``, ``rand_mirror_prob`` and the probabilities of colour changes say
    how often each is done. ``resize_mode`` "force" resamples to the data shape, "fit" keeps the shape of the
    image and "shrink" only makes larger ones smaller; what an image leaves of its place is 0.
    """

    resize: int = -1
    rand_crop_prob: float = 0
    min_crop_scales: Any = (0.0,)
    max_crop_scales: Any = (1.0,)
    min_crop_aspect_ratios: Any = (1.0,)
    max_crop_aspect_ratios: Any = (1.0,)
    min_crop_overlaps: Any = (0.0,)
    max_crop_overlaps: Any = (1.0,)
    min_crop_sample_coverages: Any = (0.0,)
    max_crop_sample_coverages: Any = (1.0,)
    min_crop_object_coverages: Any = (0.0,)
    max_crop_object_coverages: Any = (1.0,)
    num_crop_sampler: int = 1
    crop_emit_mode: str = "center"
    emit_overlap_thresh: float = 0.3
    max_crop_trials: Any = (25,)
    rand_pad_prob: float = 0
    max_pad_scale: float = 1
    max_random_hue: int = 0
    random_hue_prob: float = 0
    max_random_saturation: int = 0
    random_saturation_prob: float = 0
    max_random_illumination: int = 0
    random_illumination_prob: float = 0
    max_random_contrast: float = 0
    random_contrast_prob: float = 0
    rand_mirror_prob: float = 0
    fill_value: int = 127
    inter_method: int = 1
    resize_mode: str = "force"

    def __post_init__(self) -> None:
        words = {"crop_emit_mode": ("center", "overlap"), "resize_mode": ("force", "fit", "shrink")}
        for name, allowed in words.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is one of {', '.join(allowed)}; got {getattr(self, name)!r}")
        self.samplers()

    def samplers(self) -> list[CropSampler]:
        """One for each of ``num_crop_sampler`` entries of the crop options; a single entry serves all."""

        def entry(name: str, place: int) -> Any:
            values = getattr(self, name)
            values = tuple(values) if isinstance(values, tuple | list) else (values,)
            if len(values) not in (1, self.num_crop_sampler):
                raise ValueError(
                    f"{name} expected 1 or num_crop_sampler={self.num_crop_sampler} entries, "
                    f"got {len(values)}"
                )
            return values[0] if len(values) == 1 else values[place]

        def span(name: str, place: int) -> tuple[float, float]:
            return entry(f"min_crop_{name}", place), entry(f"max_crop_{name}", place)

        names = "scales aspect_ratios overlaps sample_coverages object_coverages".split()
        return [
            CropSampler(int(entry("max_crop_trials", place)), *(span(name, place) for name in names))
            for place in range(self.num_crop_sampler)
        ]

    def __call__(
        self, image: Image, objects: Any, size: tuple[int, int], random: Random
    ) -> tuple[Image, Any]:
        """The image, not larger than ``size`` (height, width), and its objects.

        ``objects`` has a row for each: the class, left, top, right, bottom, and whatever else.
        """
        if self.resize > 0:
            image = pixels.shorter_side(image, self.resize, self.inter_method, random)
        image = self._coloured(image, random)
        if random.uniform() < self.rand_mirror_prob:
            image = image[:, ::-1]
            objects = _with_boxes(objects, boxes.mirrored(objects[:, 1:5]))
        if self.max_pad_scale > 1 and random.uniform() < self.rand_pad_prob:
            image, objects = self._padded(image, objects, random)
        if random.uniform() < self.rand_crop_prob:
            image, objects = self._cropped(image, objects, random)
        height, width = self._final_size(image.shape, size)
        method = pixels.interpolation(self.inter_method, image.shape, (height, width), random)
        return pixels.resized(numpy.ascontiguousarray(image), height, width, method), objects

    def _coloured(self, image: Image, random: Random) -> Image:
        def amount(most: float, probability: float) -> float:
            return random.uniform(-most, most) if most and random.uniform() < probability else 0

        hue = amount(self.max_random_hue, self.random_hue_prob)
        saturated = amount(self.max_random_saturation, self.random_saturation_prob)
        lightness = amount(self.max_random_illumination, self.random_illumination_prob)
        image = pixels.shift_hls(image, int(hue), int(lightness), int(saturated))
        factor = amount(self.max_random_contrast, self.random_contrast_prob)
        return pixels.brightness(image, 1 + factor) if factor else image

    def _padded(self, image: Image, objects: Any, random: Random) -> tuple[Image, Any]:
        """The image somewhere in a larger one."""
        rows, columns = image.shape[:2]
        scale = random.uniform(1, self.max_pad_scale)
        height, width = int(rows * scale), int(columns * scale)
        top, left = int(random.randint(height - rows + 1)), int(random.randint(width - columns + 1))
        larger = numpy.full((height, width, *image.shape[2:]), self.fill_value, numpy.uint8)
        larger[top : top + rows, left : left + columns] = image
        window = numpy.array([-left / columns, -top / rows, (width - left) / columns, (height - top) / rows])
        return larger, _with_boxes(objects, boxes.seen_from(objects[:, 1:5], window))

    def _cropped(self, image: Image, objects: Any, random: Random) -> tuple[Image, Any]:
        """A part of the image with at least one object; the image where no sampler finds one."""
        rows, columns = image.shape[:2]
        samplers = self.samplers()
        for place in random.permutation(len(samplers)):
            window = samplers[place].draw(objects[:, 1:5], columns / rows, random)
            if window is None:
                continue
            left, top, right, bottom = (window * [columns, rows, columns, rows]).astype(int)
            kept = self._emitted(objects, window)
            if kept.any() and right > left and bottom > top:
                inside = numpy.clip(boxes.seen_from(objects[kept, 1:5], window), 0, 1)
                return image[top:bottom, left:right], _with_boxes(objects[kept], inside)
        return image, objects

    def _emitted(self, objects: Any, window: Any) -> Any:
        """Which objects stay after a crop."""
        if self.crop_emit_mode == "overlap":
            return boxes.covered(objects[:, 1:5], window) > self.emit_overlap_thresh
        middle = (objects[:, 1:3] + objects[:, 3:5]) / 2
        return ((middle >= window[:2]) & (middle <= window[2:])).all(axis=1)

    def _final_size(self, shape: tuple[int, ...], size: tuple[int, int]) -> tuple[int, int]:
        if self.resize_mode == "force":
            return size
        rows, columns = shape[:2]
        scale = min(size[0] / rows, size[1] / columns)
        if self.resize_mode == "shrink":
            scale = min(scale, 1)
        return max(int(rows * scale + 1e-9), 1), max(int(columns * scale + 1e-9), 1)


def _with_boxes(objects: Any, changed: Any) -> Any:
    result = objects.copy()
    result[:, 1:5] = changed
    return result


class ImageDetRecordIter(RecordIter):
    """Batches of images and objects, for detection, from a RecordIO file.

    A record's label is: the length A of its head (at least 2), the length B of an object's entry (at least
    5), A - 2 more numbers, and for each object B numbers, the class and the left, top, right and bottom as
    fractions of the image. A label of the batch is: channels, height and width of the image within
    ``data_shape``, the label's length, the label, and ``label_pad_value`` up to ``label_pad_width``.

    Parameters
    ----------
    path_imgrec, path_imglist, data_shape, batch_size, shuffle, seed, num_parts, part_index, round_batch
        As for `ImageRecordIter`.
    label_width : int
        The length that all labels must have; -1 for any.
    label_pad_width : int
        The length of the batch's labels, without the first four; 0 or -1 for the longest one's.
    label_pad_value : float
        What fills up labels.
    mean_r, mean_g, mean_b, mean_a, std_r, std_g, std_b, std_a, scale : float
        ``(value - mean) * scale / std``; a std of 0 leaves values alone.
    **options
        Those of :class:`regluon.io.detection.DetectionAugmentation`.

    Raises
    ------
    ValueError, TypeError
        For an option that contradicts itself or that is unknown.
    MXNetError
        For a missing or damaged file, or a label that is not as described.
    """

    def __init__(
        self,
        path_imgrec: Any,
        data_shape: Any,
        batch_size: int,
        label_width: int = -1,
        label_pad_width: int = 0,
        label_pad_value: float = -1,
        mean_img: Any = None,
        mean_r: float = 0,
        mean_g: float = 0,
        mean_b: float = 0,
        mean_a: float = 0,
        std_r: float = 0,
        std_g: float = 0,
        std_b: float = 0,
        std_a: float = 0,
        scale: float = 1,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **options: Any,
    ) -> None:
        names = DetectionAugmentation.__dataclass_fields__.keys() & options.keys()
        augmentation = {name: options.pop(name) for name in names}
        for name in HOW_IT_WORKS & options.keys():
            options.pop(name)
        if given(mean_img):
            raise ValueError(
                "ImageDetRecordIter has images of many sizes and no mean_img; use mean_r, mean_g, mean_b"
            )
        super().__init__(path_imgrec, data_shape, batch_size, (3, 1), **options)
        self._augment = DetectionAugmentation(**augmentation)
        mean, deviation = (mean_r, mean_g, mean_b, mean_a), (std_r, std_g, std_b, std_a)
        self._normalize = Normalization(self._shape[0], mean, deviation, scale, 0, 0)
        self._wanted = int(label_width)
        self._fill = float(label_pad_value)
        width = SHAPE_ENTRIES + self._label_space(int(label_pad_width))
        kind = numpy.dtype(numpy.float32 if dtype is None else dtype).type
        self.provide_data = [DataDesc(data_name, (self.batch_size, *self._shape), kind)]
        self.provide_label = [DataDesc(label_name, (self.batch_size, width))]

    def _label_space(self, wanted: int) -> int:
        longest = 0
        for offset in self._offsets:
            header, _ = self._record(offset)
            label = self._label(header, f"{self._path}, byte {offset}")
            longest = max(longest, label.size)
        if 0 < wanted < longest:
            raise MXNetError(
                f"label_pad_width is {wanted}, but {self._path} has a label of {longest} numbers"
            )
        return max(wanted, longest)

    def _sample(self, image: Image, label: numpy.ndarray, where: str, random: Random) -> tuple[Any, Any]:
        if self._wanted > 0 and label.size != self._wanted:
            raise MXNetError(f"{where}: label_width is {self._wanted}, the record has {label.size} label(s)")
        head, objects = split_label(label, where)
        image, objects = self._augment(image, objects, (self._shape[1], self._shape[2]), random)
        rows, columns = image.shape[:2]
        values = numpy.zeros(self._shape, numpy.float32)
        values[:, :rows, :columns] = self._normalize(pixels.planes(image), random)
        label = numpy.concatenate([head, objects.ravel()])
        row = numpy.full(self.provide_label[0].shape[1], self._fill, numpy.float32)
        row[:SHAPE_ENTRIES] = self._shape[0], rows, columns, label.size
        row[SHAPE_ENTRIES : SHAPE_ENTRIES + label.size] = label
        return values, row


def split_label(label: numpy.ndarray, where: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The head of a detection label and its objects, shape (objects, length of an entry).

    Raises
    ------
    MXNetError
        For a label that is not as `ImageDetRecordIter` describes it.
    """
    head, entry = (int(label[0]), int(label[1])) if label.size > 1 else (0, 0)
    if head < 2 or entry < 5 or label.size <= head or (label.size - head) % entry:
        raise MXNetError(
            f"{where}: expected a detection label, which begins with the length of its head (2 or more) and "
            f"of an object's entry (5 or more) and goes on with whole entries; got {label.size} number(s), "
            f"beginning with {label[:4].tolist()}"
        )
    return label[:head], label[head:].reshape(-1, entry)
