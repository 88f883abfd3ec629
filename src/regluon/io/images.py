"""`ImageRecordIter`: batches of images from RecordIO files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import torch

from ..array import NDArray
from ..base import dtypes, rng
from ..base.errors import MXNetError
from ..recordio import MXRecordIO, unpack, unpack_img
from .base import DataDesc, DataIter
from .files import _given, _part

__all__ = ["ImageRecordIter", "ImageRecordUInt8Iter"]

# Options of the original's augmenter that change images and are not built, with what leaves images alone.
UNSUPPORTED = {
    "random_resized_crop": (False, 0),
    "max_rotate_angle": (0,),
    "max_aspect_ratio": (0,),
    "max_shear_ratio": (0,),
    "max_crop_size": (-1,),
    "min_crop_size": (-1,),
    "max_random_scale": (1,),
    "min_random_scale": (1,),
    "brightness": (0,),
    "contrast": (0,),
    "saturation": (0,),
    "pca_noise": (0,),
    "random_h": (0,),
    "random_s": (0,),
    "random_l": (0,),
    "rotate": (-1, 0),
    "max_random_contrast": (0,),
    "max_random_illumination": (0,),
    "mean_img": ("", None),
    "path_imglist": ("", None),
}
# Options that only say how the original works.
IGNORED = {
    "aug_seq",
    "verbose",
    "device_id",
    "shuffle_chunk_size",
    "shuffle_chunk_seed",
    "prefetch_buffer",
    "ctx",
    "max_img_size",
    "min_img_size",
    "min_aspect_ratio",
    "max_random_area",
    "min_random_area",
    "seed_aug",
    "inter_method",
    "fill_value",
    "pad",
}


def _record_offsets(path: str) -> list[int]:
    """Where each record of a file begins."""
    offsets = []
    with MXRecordIO(path, "r") as records:
        file = records._handle(False)
        while True:
            offsets.append(file.tell())
            if records.read() is None:
                return offsets[:-1]


def _indexed_offsets(path: str) -> list[int]:
    """The same from an index file, in its order."""
    return [int(line.split("\t")[1]) for line in Path(path).read_text().splitlines() if line.strip()]


class ImageRecordIter(DataIter):
    """Batches of images, shape (batch, channels, height, width) in RGB order, from a RecordIO file.

    An image is resized, cropped to ``data_shape`` (in the middle, or anywhere with ``rand_crop``), mirrored,
    and each channel becomes ``(value - mean) * scale / std``.

    Parameters
    ----------
    path_imgrec : path
        The RecordIO file, as ``tools/im2rec`` or `regluon.recordio.pack_img` make it.
    path_imgidx : path, optional
        Its index, which saves reading the whole file at the beginning.
    data_shape : tuple of int
        Channels (3, or 1 for grey), height and width.
    batch_size : int
        Images of a batch.
    label_width : int
        Numbers of a label.
    shuffle : bool
        A new order in every epoch.
    seed : int
        Chooses orders, crops and mirrors.
    resize : int
        First make the shorter side this long; -1 leaves the size.
    rand_crop, rand_mirror, mirror : bool
        Crop anywhere; mirror every second image by chance; mirror all.
    mean_r, mean_g, mean_b, std_r, std_g, std_b, scale : float
        Normalisation.
    num_parts, part_index : int
        Read only this one of so many parts.
    round_batch : bool
        Fill up the last batch with the first images, which the next epoch then leaves out; else leave its
        rest at zero.
    preprocess_threads : int
        Threads that decode.
    dtype : dtype
        Type of the images, float32 by default.

    Raises
    ------
    ValueError
        For an augmentation of the original that is not built here.
    MXNetError
        For a missing or damaged file.
    """

    _dtype: Any = numpy.float32

    def __init__(
        self,
        path_imgrec: Any,
        data_shape: Any,
        batch_size: int,
        path_imgidx: Any = None,
        label_width: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        resize: int = -1,
        rand_crop: bool = False,
        rand_mirror: bool = False,
        mirror: bool = False,
        mean_r: float = 0,
        mean_g: float = 0,
        mean_b: float = 0,
        mean_a: float = 0,
        std_r: float = 1,
        std_g: float = 1,
        std_b: float = 1,
        std_a: float = 1,
        scale: float = 1,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        preprocess_threads: int = 4,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **options: Any,
    ) -> None:
        super().__init__(int(batch_size))
        del mean_a, std_a
        self._check_options(options)
        self._path = os.fspath(path_imgrec)
        if not os.path.exists(self._path):
            raise MXNetError(f"{type(self).__name__}: there is no file {self._path!r}")
        self._shape = tuple(int(size) for size in data_shape)
        if len(self._shape) != 3 or self._shape[0] not in (1, 3):
            raise ValueError(
                f"{type(self).__name__} expected data_shape (3 or 1, height, width), got {data_shape}"
            )
        offsets = _indexed_offsets(path_imgidx) if _given(path_imgidx) else _record_offsets(self._path)
        self._offsets = offsets[_part(len(offsets), int(num_parts), int(part_index))]
        if not self._offsets:
            raise MXNetError(f"{type(self).__name__}: {self._path} holds no record for this part")
        self._label_width = int(label_width)
        self._shuffle, self._resize = bool(shuffle), int(resize)
        self._rand_crop, self._rand_mirror, self._mirror = bool(rand_crop), bool(rand_mirror), bool(mirror)
        channels = self._shape[0]
        self._mean = numpy.array([mean_r, mean_g, mean_b], numpy.float32)[:channels]
        self._factor = (scale / numpy.array([std_r, std_g, std_b], numpy.float32))[:channels]
        self._round = bool(round_batch)
        self._random = numpy.random.RandomState(seed if seed else rng.draw_seed() % 2**32)
        self._kind = dtypes.to_torch(dtype or self._dtype)
        self._threads = ThreadPoolExecutor(max(int(preprocess_threads), 1), "ImageRecordIter")
        label_shape = (self.batch_size, self._label_width) if self._label_width > 1 else (self.batch_size,)
        dtype_shown = dtypes.to_numpy(self._kind)
        self.provide_data = [DataDesc(data_name, (self.batch_size, *self._shape), dtype_shown)]
        self.provide_label = [DataDesc(label_name, label_shape)]
        self._order = numpy.arange(len(self._offsets))
        self._next = self._pad = 0
        self._batch: tuple[NDArray, NDArray] | None = None
        if self._shuffle:
            self._random.shuffle(self._order)

    def _check_options(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if name in UNSUPPORTED:
                if value not in UNSUPPORTED[name]:
                    raise ValueError(
                        f"{type(self).__name__} does not build the option {name}={value!r}; augment with "
                        "gluon.data.vision.transforms and a gluon DataLoader instead"
                    )
            elif name not in IGNORED:
                raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {name!r}")

    def __del__(self) -> None:
        threads = getattr(self, "_threads", None)
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def reset(self) -> None:
        """Go back to the first image; with ``round_batch`` to the first that was not used yet."""
        ended = self._next >= len(self._offsets)
        if self._shuffle:
            self._random.shuffle(self._order)
        self._next = self._pad if self._round and ended and not self._shuffle else 0
        self._pad = 0

    def iter_next(self) -> bool:
        count = len(self._offsets)
        if self._next >= count:
            return False
        places = numpy.arange(self._next, self._next + self.batch_size)
        self._pad = max(int(places[-1]) + 1 - count, 0)
        kept = places if self._round else places[places < count]
        # Chance is drawn here, in order, so that results do not depend on the threads.
        jobs = [(self._offsets[self._order[place % count]], self._random.random_sample(3)) for place in kept]
        images = numpy.zeros((self.batch_size, *self._shape), numpy.float32)
        labels = numpy.zeros((self.batch_size, self._label_width), numpy.float32)
        for row, (image, label) in enumerate(self._threads.map(self._load, jobs)):
            images[row], labels[row] = image, label
        data = NDArray._wrap(torch.from_numpy(images).to(self._kind))
        wide = labels if self._label_width > 1 else labels[:, 0]
        self._batch = data, NDArray._wrap(torch.from_numpy(wide.copy()))
        self._next += self.batch_size
        return True

    def _load(self, job: tuple[int, numpy.ndarray]) -> tuple[numpy.ndarray, Any]:
        offset, chance = job
        with MXRecordIO(self._path, "r") as records:
            records._handle(False).seek(offset)
            record = records.read()
        if record is None:
            raise MXNetError(f"{self._path} ends before the record at byte {offset}")
        header, _ = unpack(record)
        label = numpy.atleast_1d(numpy.asarray(header.label, numpy.float32))
        if label.size < self._label_width:
            raise MXNetError(
                f"{self._path}, byte {offset}: label_width is {self._label_width}, the record has "
                f"{label.size} label(s)"
            )
        _, image = unpack_img(record, 1 if self._shape[0] == 3 else 0)
        return self._prepare(image, chance), label[: self._label_width]

    def _prepare(self, image: numpy.ndarray, chance: numpy.ndarray) -> numpy.ndarray:
        _, height, width = self._shape
        image = self._sized(image, height, width)
        free_height, free_width = image.shape[0] - height, image.shape[1] - width
        if self._rand_crop:
            top, left = int(chance[0] * (free_height + 1)), int(chance[1] * (free_width + 1))
        else:
            top, left = free_height // 2, free_width // 2
        image = image[top : top + height, left : left + width]
        image = image[:, :, ::-1] if image.ndim == 3 else image[:, :, None]
        if self._mirror or (self._rand_mirror and chance[2] < 0.5):
            image = image[:, ::-1]
        normal = (image.astype(numpy.float32) - self._mean) * self._factor
        return normal.transpose(2, 0, 1)

    def _sized(self, image: numpy.ndarray, height: int, width: int) -> numpy.ndarray:
        """The image with its shorter side as asked for, and at least as large as the crop."""
        import cv2

        rows, columns = image.shape[:2]
        if self._resize > 0:
            shorter = min(rows, columns)
            rows, columns = rows * self._resize // shorter, columns * self._resize // shorter
        factor = max(height / rows, width / columns, 1)
        if factor > 1:
            rows, columns = max(round(rows * factor), height), max(round(columns * factor), width)
        if (rows, columns) == image.shape[:2]:
            return image
        return cv2.resize(image, (columns, rows), interpolation=cv2.INTER_LINEAR)

    def getdata(self) -> list[NDArray]:
        return [] if self._batch is None else [self._batch[0]]

    def getlabel(self) -> list[NDArray]:
        return [] if self._batch is None else [self._batch[1]]

    def getpad(self) -> int:
        return self._pad


class ImageRecordUInt8Iter(ImageRecordIter):
    """`ImageRecordIter` whose images are uint8."""

    _dtype = numpy.uint8
