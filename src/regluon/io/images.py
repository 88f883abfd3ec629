"""`ImageRecordIter`: batches of augmented images from RecordIO files."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy

from ..array import NDArray
from ..base import dtypes
from ..base.errors import MXNetError
from ..ndarray import array as nd_array
from . import pixels
from .augment import ImageAugmentation
from .base import DataDesc
from .records import HOW_IT_WORKS, RecordIter, given

__all__ = [
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
]

AUGMENTATION = {field.name for field in dataclasses.fields(ImageAugmentation)} - {"shape"}
INT8_RANGE = (-128, 127)


class Normalization:
    """``((value - mean) * contrast + illumination) * scale / deviation``, where contrast and illumination are
    drawn for each image.

    A mean of all zeros leaves its place to the mean image; a deviation of 0 leaves values alone.
    """

    def __init__(
        self,
        channels: int,
        mean: tuple[float, ...],
        deviation: tuple[float, ...],
        scale: float,
        contrast: float,
        illumination: float,
    ) -> None:
        shape = (channels, 1, 1)
        self.mean: Any = numpy.array(mean[:channels], numpy.float32).reshape(shape)
        divisor = numpy.array([value if value else 1 for value in deviation[:channels]], numpy.float32)
        self._factor = (numpy.float32(scale) / divisor).reshape(shape)
        self._contrast, self._illumination = contrast, illumination

    def __call__(self, values: Any, random: pixels.Random) -> Any:
        """The float32 values of an image, (channels, height, width)."""
        values = values.astype(numpy.float32) - self.mean
        if self._contrast or self._illumination:
            contrast = 1 + random.uniform(-self._contrast, self._contrast)
            illumination = random.uniform(-self._illumination, self._illumination)
            values = values * numpy.float32(contrast) + numpy.float32(illumination)
        return values * self._factor


class ImageRecordIter(RecordIter):
    """Batches of images, shape (batch, channels, height, width) in RGB order, from a RecordIO file.

    An image is resized, transformed, cropped to ``data_shape`` (in the middle, or anywhere with
    ``rand_crop``), changed in colour, mirrored, and each channel becomes ``(value - mean) * scale / std``.

    Parameters
    ----------
    path_imgrec : path
        The RecordIO file, as ``tools/im2rec`` or `regluon.recordio.pack_img` make it.
    path_imgidx : path, optional
        Its index, which saves reading the whole file at the beginning.
    path_imglist : path, optional
        A list file (number, labels, path) whose labels take the place of the records' own.
    data_shape : tuple of int
        Channels (3, 1 for grey or 4 with opacity), height and width.
    batch_size : int
        Images of a batch.
    label_width : int
        Numbers of a label.
    shuffle : bool
        A new order in every epoch.
    seed, seed_aug : int
        ``seed`` chooses orders, crops and all other chance, ``seed_aug`` what happens to images; 0 follows
        ``mx.random.seed``.
    rand_mirror, mirror : bool
        Mirror every second image by chance; mirror all.
    mean_r, mean_g, mean_b, mean_a, std_r, std_g, std_b, std_a, scale : float
        Normalisation.
    mean_img : path, optional
        A file with an image to subtract, ``mean_img`` of shape ``data_shape``; when it does not exist it is
        made from all images of the part.
    max_random_contrast, max_random_illumination : float
        Multiply an image by 1 and up to so much more or less, and add up to so much, before the scale.
    num_parts, part_index : int
        Read only this one of so many parts.
    round_batch : bool
        Fill up the last batch with the first images, which the next epoch then leaves out; else leave its
        rest at zero.
    preprocess_threads : int
        Threads that decode.
    dtype : dtype
        Type of the images, float32 by default. As in MXNet, uint8 images are not normalised and int8 ones
        only lose the mean, and both are limited to their range.
    **options
        ``resize`` (the shorter side's length), ``rand_crop``, ``pad``, ``fill_value``, ``inter_method`` and
        the others of :class:`regluon.io.augment.ImageAugmentation`.

    Raises
    ------
    ValueError, TypeError
        For an option that contradicts itself or that is unknown.
    MXNetError
        For a missing or damaged file, or a label of another width.
    """

    _dtype: Any = numpy.float32

    def __init__(
        self,
        path_imgrec: Any,
        data_shape: Any,
        batch_size: int,
        label_width: int = 1,
        rand_mirror: bool = False,
        mirror: bool = False,
        mean_img: Any = None,
        mean_r: float = 0,
        mean_g: float = 0,
        mean_b: float = 0,
        mean_a: float = 0,
        std_r: float = 1,
        std_g: float = 1,
        std_b: float = 1,
        std_a: float = 1,
        scale: float = 1,
        max_random_contrast: float = 0,
        max_random_illumination: float = 0,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **options: Any,
    ) -> None:
        augmentation = {name: options.pop(name) for name in AUGMENTATION & options.keys()}
        for name in HOW_IT_WORKS & options.keys():
            options.pop(name)
        super().__init__(path_imgrec, data_shape, batch_size, (3, 1, 4), **options)
        self._augment = ImageAugmentation(self._shape, **augmentation)  # type: ignore[arg-type]
        self._label_width = int(label_width)
        self._rand_mirror, self._mirror = bool(rand_mirror), bool(mirror)
        self._normalize = Normalization(
            self._shape[0],
            (mean_r, mean_g, mean_b, mean_a),
            (std_r, std_g, std_b, std_a),
            scale,
            max_random_contrast,
            max_random_illumination,
        )
        kind = numpy.dtype(dtypes.to_numpy(dtype or self._dtype))
        label_shape = (self.batch_size, self._label_width) if self._label_width > 1 else (self.batch_size,)
        self.provide_data = [DataDesc(data_name, (self.batch_size, *self._shape), kind.type)]
        self.provide_label = [DataDesc(label_name, label_shape)]
        self._kind = kind
        if given(mean_img) and not self._normalize.mean.any():
            self._normalize.mean = self._mean_image(os.fspath(mean_img))

    def _mean_image(self, path: str) -> numpy.ndarray:
        """The image of a file, which is made when it is not there."""
        from ..ndarray import load, save

        if not os.path.exists(path):
            total = numpy.zeros(self._shape, numpy.float64)
            jobs = [(offset, place) for place, offset in enumerate(self._offsets)]
            kind, self._kind = self._kind, numpy.dtype(numpy.uint8)
            for values, _ in self._threads.map(self._load, jobs):
                total += values
            self._kind = kind
            save(path, {"mean_img": nd_array(total / len(jobs), dtype="float32")})
        held = load(path)
        image: NDArray | None = held.get("mean_img") if isinstance(held, dict) else None
        if image is None or tuple(image.shape) != self._shape:
            found = "no such array" if image is None else f"shape {tuple(image.shape)}"
            raise MXNetError(f"{path}: expected an array mean_img of shape {self._shape}, got {found}")
        return image.asnumpy()

    def _sample(self, image: Any, label: numpy.ndarray, where: str, random: pixels.Random) -> tuple[Any, Any]:
        if label.size != self._label_width:
            raise MXNetError(
                f"{where}: label_width is {self._label_width}, the record has {label.size} label(s)"
            )
        image = self._augment(image, random)
        if self._mirror or (self._rand_mirror and random.randint(2)):
            image = image[:, ::-1]
        values = pixels.planes(image)
        if self._kind == numpy.uint8:
            pass
        elif self._kind == numpy.int8:
            values = numpy.clip(values - self._normalize.mean, *INT8_RANGE)
        else:
            values = self._normalize(values, random)
        return values, label if self._label_width > 1 else label[0]


class ImageRecordUInt8Iter(ImageRecordIter):
    """`ImageRecordIter` whose images are uint8: neither normalised nor scaled."""

    _dtype = numpy.uint8


class ImageRecordInt8Iter(ImageRecordIter):
    """`ImageRecordIter` whose images are int8: less the mean, limited to -128 to 127."""

    _dtype = numpy.int8


# The first implementations of the original differ in nothing that can be seen here.
ImageRecordIter_v1 = ImageRecordIter
ImageRecordUInt8Iter_v1 = ImageRecordUInt8Iter
