"""What the iterators over RecordIO files of images share: which records come when, and threads that load."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import torch

from ..array import NDArray
from ..base import rng
from ..base.errors import MXNetError
from ..gluon.data.vision.transforms.kernels import opencv
from ..recordio import IRHeader, MXRecordIO, index_entries, unpack
from .base import DataDesc, DataIter

__all__: list[str] = []

# Options that say how the original works and do not change what it gives.
HOW_IT_WORKS = frozenset(
    "aug_seq verbose device_id shuffle_chunk_size shuffle_chunk_seed prefetch_buffer ctx".split()
)
GREY, COLOUR, AS_STORED = 0, 1, -1  # flags of cv2.imdecode
FLAGS = {1: GREY, 3: COLOUR, 4: AS_STORED}


def given(place: Any) -> bool:
    """Whether an optional path was given; the originals write NULL for none."""
    return place is not None and str(place) not in ("", "NULL")


def read_list(path: Any) -> dict[int, numpy.ndarray]:
    """Labels by record number from a list file: lines of a number, labels and a path, between tabs.

    Raises
    ------
    MXNetError
        For a line that is none.
    """
    labels = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        fields = line.strip().split("\t")
        if fields == [""]:
            continue
        try:
            if len(fields) < 3:
                raise ValueError
            values = [float(value) for value in fields[1:-1]]
            labels[int(float(fields[0]))] = numpy.array(values, numpy.float32)
        except ValueError:
            raise MXNetError(
                f"{path}, line {number}: expected a number, labels and a path between tabs, got {line!r}"
            ) from None
    return labels


def _offsets(path: str, index: Any) -> list[int]:
    """Where each record of a file begins, in the order of its index where there is one."""
    if given(index):
        return [position for _, _, position in index_entries(os.fspath(index))]
    offsets = []
    with MXRecordIO(path, "r") as records:
        file = records._handle(False)
        while True:
            offsets.append(file.tell())
            if records.skip() is None:
                return offsets[:-1]


class RecordIter(DataIter):
    """Batches from records of images. A subclass sets ``provide_data`` and ``provide_label`` and defines
    `_sample`.

    Parameters
    ----------
    path_imgrec : path
        The RecordIO file.
    path_imgidx : path, optional
        Its index.
    path_imglist : path, optional
        A list file whose labels take the place of the records' own.
    data_shape : tuple of int
        Channels, height and width.
    channels : tuple of int
        The numbers of channels that are allowed.
    seed : int
        Of orders and augmentation; 0 follows ``mx.random.seed``.
    seed_aug : int, optional
        Of the augmentation alone.
    """

    def __init__(
        self,
        path_imgrec: Any,
        data_shape: Any,
        batch_size: int,
        channels: tuple[int, ...],
        path_imgidx: Any = None,
        path_imglist: Any = None,
        shuffle: bool = False,
        seed: int = 0,
        seed_aug: int | None = None,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        preprocess_threads: int = 4,
    ) -> None:
        super().__init__(int(batch_size))
        if self.batch_size < 1:
            raise ValueError(f"{type(self).__name__} expected a batch_size of at least 1, got {batch_size}")
        self._path = os.fspath(path_imgrec)
        if not os.path.exists(self._path):
            raise MXNetError(f"{type(self).__name__}: there is no file {self._path!r}")
        self._shape = tuple(int(size) for size in data_shape)
        if len(self._shape) != 3 or self._shape[0] not in channels:
            names = " or ".join(str(count) for count in channels)
            raise ValueError(
                f"{type(self).__name__} expected data_shape ({names}, height, width), got {data_shape}"
            )
        self._labels = read_list(path_imglist) if given(path_imglist) else None
        self._offsets = self._part(_offsets(self._path, path_imgidx), int(num_parts), int(part_index))
        self._shuffle, self._round = bool(shuffle), bool(round_batch)
        self._random = numpy.random.RandomState(seed if seed else rng.draw_seed() % 2**32)
        self._chance = self._random if seed_aug is None else numpy.random.RandomState(int(seed_aug))
        self._threads = ThreadPoolExecutor(max(int(preprocess_threads), 1), type(self).__name__)
        self._order = numpy.arange(len(self._offsets))
        self._next = self._pad = 0
        self._batch: tuple[NDArray, NDArray] | None = None
        if self._shuffle:
            self._random.shuffle(self._order)

    def _part(self, offsets: list[int], parts: int, index: int) -> list[int]:
        if not 0 <= index < parts:
            raise ValueError(f"part_index expected 0 to {parts - 1} (num_parts - 1), got {index}")
        step = -(-len(offsets) // parts)
        chosen = offsets[step * index : step * (index + 1)]
        if not chosen:
            raise MXNetError(f"{type(self).__name__}: {self._path} holds no record for this part")
        return chosen

    def __del__(self) -> None:
        threads = getattr(self, "_threads", None)
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def reset(self) -> None:
        """Go back to the first image; with ``round_batch`` to the first that was not used yet."""
        ended = self._next >= len(self._offsets)
        if self._shuffle:
            self._random.shuffle(self._order)
        goes_on = self._round and ended and not self._shuffle
        self._next = self._pad % len(self._offsets) if goes_on else 0
        self._pad = 0

    def iter_next(self) -> bool:
        count = len(self._offsets)
        if self._next >= count:
            return False
        places = numpy.arange(self._next, self._next + self.batch_size)
        self._pad = max(int(places[-1]) + 1 - count, 0)
        kept = places if self._round else places[places < count]
        # Seeds are drawn here, in order, so that results do not depend on the threads.
        seeds = self._chance.randint(0, 2**32, len(kept), dtype=numpy.uint64)
        jobs = zip((self._offsets[self._order[place % count]] for place in kept), seeds, strict=True)
        self._batch = self._collected(self._threads.map(self._load, jobs))
        self._next += self.batch_size
        return True

    def _load(self, job: tuple[int, Any]) -> tuple[Any, Any]:
        offset, seed = job
        header, content = self._record(offset)
        flag = FLAGS[self._shape[0]]
        image = opencv("reading images").imdecode(numpy.frombuffer(content, numpy.uint8), flag)
        where = f"{self._path}, byte {offset}"
        if image is None:
            raise MXNetError(f"{where}: the record holds no image that OpenCV can read")
        if flag == AS_STORED and (image.ndim != 3 or image.shape[2] != 4):
            raise MXNetError(f"{where}: expected an image of 4 channels, got shape {image.shape}")
        return self._sample(image, self._label(header, where), where, numpy.random.RandomState(int(seed)))

    def _record(self, offset: int) -> tuple[IRHeader, bytes]:
        with MXRecordIO(self._path, "r") as records:
            records._handle(False).seek(offset)
            record = records.read()
        if record is None:
            raise MXNetError(f"{self._path} ends before the record at byte {offset}")
        return unpack(record)

    def _label(self, header: IRHeader, where: str) -> numpy.ndarray:
        if self._labels is None:
            return numpy.atleast_1d(numpy.asarray(header.label, numpy.float32))
        if header.id not in self._labels:
            raise MXNetError(f"{where}: path_imglist has no line for the image number {header.id}")
        return self._labels[header.id]

    def _sample(self, image: Any, label: numpy.ndarray, where: str, random: Any) -> tuple[Any, Any]:
        """The values, (channels, height, width), and the label of one image."""
        raise NotImplementedError

    def _collected(self, samples: Iterable[tuple[Any, Any]]) -> tuple[NDArray, NDArray]:
        """A batch; rows without a sample stay zero."""
        described: tuple[DataDesc, DataDesc] = self.provide_data[0], self.provide_label[0]  # type: ignore[attr-defined]
        images, labels = (numpy.zeros(one.shape, one.dtype) for one in described)
        for row, (image, label) in enumerate(samples):
            images[row] = image
            labels[row] = label
        return NDArray._wrap(torch.from_numpy(images)), NDArray._wrap(torch.from_numpy(labels))

    def getdata(self) -> list[NDArray]:
        return [] if self._batch is None else [self._batch[0]]

    def getlabel(self) -> list[NDArray]:
        return [] if self._batch is None else [self._batch[1]]

    def getpad(self) -> int:
        return self._pad
