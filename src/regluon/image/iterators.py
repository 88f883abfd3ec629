"""`ImageIter` and `ImageDetIter`: batches of augmented images from RecordIO files, list files or lists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

from ..array import NDArray, ndarray
from ..base import config
from ..base.errors import MXNetError, early_end
from ..gluon.data._arrays import wrap, wrap_numpy
from ..gluon.data.vision.transforms import kernels
from ..io import DataBatch, DataDesc, DataIter
from ..recordio import MXIndexedRecordIO, MXRecordIO, unpack
from .augmenters import CreateAugmenter
from .detection import CreateDetAugmenter
from .functions import imdecode

__all__ = ["ImageDetIter", "ImageIter"]

LABEL_TYPES = ("float32", "float64", "int32", "int64")
ENDINGS = ("pad", "discard", "roll_over")


class ImageIter(DataIter):
    """Batches of images, float32 of shape (batch, channels, height, width), with a list of augmenters.

    Parameters
    ----------
    batch_size : int
        Images of a batch.
    data_shape : tuple of int
        Channels (3), height and width; the augmenters must give this size.
    label_width : int
        Numbers of a label.
    path_imgrec : path, optional
        A RecordIO file; ``path_imgidx`` is its index, which random order and parts need.
    path_imglist : path, optional
        A list file: number, labels and path, between tabs. With ``path_imgrec`` it gives the labels.
    imglist : list, optional
        The same as a list of ``[label or labels, path]``.
    path_root : path, optional
        The folder that the paths of lists begin at.
    shuffle : bool
        A new order in every epoch, which follows ``mx.random.seed``.
    part_index, num_parts : int
        Read only this one of so many parts.
    aug_list : list of Augmenter, optional
        By default ``CreateAugmenter(data_shape, **kwargs)``.
    dtype : str
        Type of the labels.
    last_batch_handle : {'pad', 'discard', 'roll_over'}
        What an incomplete batch at the end does: the first images fill it up, it is left out, or its images
        begin the next epoch.
    **kwargs
        For `CreateAugmenter`.

    Raises
    ------
    ValueError, TypeError
        For arguments that contradict each other or that are unknown.
    MXNetError
        For a damaged file or a label of another width.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Any,
        label_width: int = 1,
        path_imgrec: Any = None,
        path_imglist: Any = None,
        path_root: Any = None,
        path_imgidx: Any = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Any = None,
        imglist: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(int(batch_size))
        if not (path_imgrec or path_imglist or isinstance(imglist, list)):
            raise ValueError(f"{type(self).__name__} needs path_imgrec, path_imglist or imglist")
        for name, value, allowed in (
            ("dtype", numpy.dtype(dtype).name, LABEL_TYPES),
            ("last_batch_handle", last_batch_handle, ENDINGS),
        ):
            if value not in allowed:
                raise ValueError(f"{name} is one of {', '.join(allowed)}; got {value!r}")
        self.check_data_shape(data_shape)
        self.data_shape = tuple(data_shape)
        self.label_width = label_width
        self.dtype = numpy.dtype(dtype)
        self.shuffle = shuffle
        self.path_root = os.fspath(path_root) if path_root is not None else "."
        self.last_batch_handle = last_batch_handle
        self.imgrec: MXRecordIO | None = None
        self.imglist: dict[int, tuple[numpy.ndarray, str]] | None = None
        self._open(path_imgrec, path_imgidx, path_imglist, imglist)
        self._choose(int(part_index), int(num_parts))
        self.auglist = self._augmenters(kwargs) if aug_list is None else aug_list
        self.cur = 0
        self._left: list[tuple[Any, Any]] = []  # of the last epoch, for roll_over
        kind = (self.batch_size, label_width) if label_width > 1 else (self.batch_size,)
        self.provide_data = [DataDesc(data_name, (self.batch_size, *self.data_shape))]
        self.provide_label = [DataDesc(label_name, kind, self.dtype.type)]
        self.reset()

    def _augmenters(self, options: dict[str, Any]) -> list[Any]:
        return CreateAugmenter(self.data_shape, **options)  # type: ignore[arg-type]

    # Where images come from ----------------------------------------------------------------------

    def _open(self, records: Any, index: Any, list_file: Any, given: Any) -> None:
        self.seq: list[int] | None = None
        if list_file or isinstance(given, list):
            self.imglist = _read_list(list_file) if list_file else dict(enumerate(map(_listed, given)))
            self.seq = list(self.imglist)
        if records:
            if index:
                self.imgrec = MXIndexedRecordIO(os.fspath(index), os.fspath(records), "r")
                self.seq = self.seq or list(self.imgrec.keys)
            else:
                self.imgrec = MXRecordIO(os.fspath(records), "r")
                self.seq = None

    def _choose(self, part: int, parts: int) -> None:
        if not 0 <= part < parts:
            raise ValueError(f"part_index expected 0 to {parts - 1} (num_parts - 1), got {part}")
        if self.seq is None:
            if self.shuffle or parts > 1:
                raise ValueError(
                    f"{type(self).__name__}: shuffle and num_parts need path_imgidx, the index of path_imgrec"
                )
            return
        count = len(self.seq)
        self.seq = self.seq[count * part // parts : count * (part + 1) // parts]

    def reset(self) -> None:
        """Begin a new epoch."""
        if self.seq is not None and self.shuffle:
            order = torch.randperm(
                len(self.seq), generator=torch.Generator().manual_seed(kernels.host_seed())
            )
            self.seq = [self.seq[place] for place in order.tolist()]
        if self.imgrec is not None and self.seq is None:
            self.imgrec.reset()
        self.cur = 0

    def hard_reset(self) -> None:
        """Begin anew, without the images that ``roll_over`` kept."""
        self._left = []
        self.reset()

    def next_sample(self) -> tuple[Any, bytes]:
        """The label and the bytes of the next image.

        Raises
        ------
        StopIteration
            After the last one.
        """
        if self.seq is None:
            record = self.imgrec.read() if self.imgrec is not None else None
            if record is None:
                raise StopIteration
            self.cur += 1
            header, content = unpack(record)
            return header.label, content
        if self.cur >= len(self.seq):
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if isinstance(self.imgrec, MXIndexedRecordIO):
            header, content = unpack(self.imgrec.read_idx(key))
            return (header.label if self.imglist is None else self.imglist[key][0]), content
        assert self.imglist is not None
        label, name = self.imglist[key]
        return label, self.read_image(name)

    def read_image(self, fname: str) -> bytes:
        """The bytes of an image file below ``path_root``."""
        return Path(self.path_root, fname).read_bytes()

    # From images to batches ----------------------------------------------------------------------

    def imdecode(self, s: bytes) -> Any:
        """Decode an image; the message of an error says which one it is."""
        try:
            return imdecode(s)
        except MXNetError as error:
            where = f"image number {self.cur - 1} of {type(self).__name__}"
            if self.imglist is not None and self.seq is not None:
                where += f", {self.imglist[self.seq[self.cur - 1]][1]}"
            raise MXNetError(f"{where}: {error}") from error

    def augmentation_transform(self, data: Any) -> Any:
        """An image after all augmenters."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data

    def postprocess_data(self, datum: Any) -> Any:
        """From (height, width, channels) to (channels, height, width)."""
        return wrap(datum._t.permute(2, 0, 1), type(datum))

    def check_data_shape(self, data_shape: Any) -> None:
        """Refuse what is no shape of an image of three channels."""
        if not isinstance(data_shape, list | tuple) or len(data_shape) != 3:
            raise ValueError(
                f"data_shape should have length 3, with dimensions CxHxW (channels, height, width); "
                f"got {data_shape}"
            )
        if data_shape[0] != 3:
            raise ValueError(f"This iterator expects inputs to have 3 channels; got data_shape {data_shape}")

    def check_valid_image(self, data: Any) -> None:
        """Refuse what is no image."""
        if len(data[0].shape) == 0:
            raise RuntimeError("Data shape is wrong")

    def _sample(self) -> tuple[Any, Any]:
        """The next image, (channels, height, width), and its label."""
        label, content = self.next_sample()
        image = self._augmented(self.imdecode(content))
        label = numpy.atleast_1d(numpy.asarray(label))
        if label.size != self.label_width:
            raise MXNetError(
                f"{type(self).__name__}: label_width is {self.label_width}, image number {self.cur - 1} has "
                f"{label.size} label(s)"
            )
        return self._checked(image), label if self.label_width > 1 else label[0]

    def _augmented(self, *given: Any) -> Any:
        try:
            return self.augmentation_transform(*given)
        except StopIteration as error:
            raise early_end(f"an augmenter of {type(self).__name__}") from error

    def _checked(self, image: Any) -> Any:
        values = self.postprocess_data(image)
        if tuple(values.shape) != self.data_shape:
            raise ValueError(
                f"{type(self).__name__}: the augmenters gave an image of shape {tuple(values.shape)}, "
                f"expected data_shape {self.data_shape}; end aug_list with a crop or ForceResizeAug"
            )
        return values

    def _empty_labels(self) -> numpy.ndarray:
        return numpy.zeros(self.provide_label[0].shape, self.dtype)

    def next(self) -> DataBatch:
        """The next batch."""
        samples, self._left = self._left, []
        pad = 0
        while len(samples) < self.batch_size:
            try:
                samples.append(self._sample())
            except StopIteration:
                if not samples or self.last_batch_handle != "pad":
                    self._left = samples if self.last_batch_handle == "roll_over" else []
                    raise
                pad = pad or self.batch_size - len(samples)
                samples += self._first(self.batch_size - len(samples))
        images = numpy.zeros((self.batch_size, *self.data_shape), numpy.float32)
        labels = self._empty_labels()
        for row, (image, label) in enumerate(samples):
            images[row] = image.asnumpy()
            self._put(labels, row, label)
        kind = ndarray if config.is_np_array() else NDArray
        return DataBatch([wrap_numpy(images, kind)], [wrap_numpy(labels, kind)], pad=pad)

    def _first(self, count: int) -> list[tuple[Any, Any]]:
        """The first images again, as many as there are up to ``count``; afterwards the epoch is over."""
        if self.imgrec is not None and self.seq is None:
            self.imgrec.reset()
        self.cur = 0
        found: list[tuple[Any, Any]] = []
        try:
            while len(found) < count:
                found.append(self._sample())
        except StopIteration:
            return found
        self._finish()
        return found

    def _finish(self) -> None:
        if self.seq is not None:
            self.cur = len(self.seq)
        elif self.imgrec is not None:
            while self.imgrec.read() is not None:
                pass

    def _put(self, labels: numpy.ndarray, row: int, label: Any) -> None:
        labels[row] = label


def _listed(entry: Any) -> tuple[numpy.ndarray, str]:
    labels = entry[0] if len(entry) == 2 else entry[:-1]
    return numpy.atleast_1d(numpy.asarray(labels, numpy.float32)), str(entry[-1])


def _read_list(path: Any) -> dict[int, tuple[numpy.ndarray, str]]:
    found = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        fields = line.strip().split("\t")
        if fields == [""]:
            continue
        try:
            key, labels = int(float(fields[0])), [float(value) for value in fields[1:-1]]
        except ValueError:
            labels = []
        if not labels:
            raise MXNetError(
                f"{path}, line {number}: expected a number, labels and a path between tabs, got {line!r}"
            )
        found[key] = numpy.array(labels, numpy.float32), fields[-1]
    return found


class ImageDetIter(ImageIter):
    """Batches of images with the objects in them.

    A record's label is: the length A of its head (at least 2), the length B of an object's entry (at least
    5), A - 2 more numbers, and for each object B numbers, the class and the left, top, right and bottom as
    fractions of the image. The label of a batch has shape (batch, most objects of an image, B); rows without
    an object are -1.

    Parameters are those of `ImageIter` without ``label_width`` and ``dtype``; ``aug_list`` are DetAugmenters,
    by default ``CreateDetAugmenter(data_shape, **kwargs)``.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Any,
        path_imgrec: Any = None,
        path_imglist: Any = None,
        path_root: Any = None,
        path_imgidx: Any = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Any = None,
        imglist: Any = None,
        data_name: str = "data",
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            batch_size,
            data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=aug_list,
            imglist=imglist,
            data_name=data_name,
            label_name=label_name,
            last_batch_handle=last_batch_handle,
            **kwargs,
        )
        self.label_shape = self._estimate_label_shape()
        self._describe_labels()

    def _augmenters(self, options: dict[str, Any]) -> list[Any]:
        return CreateDetAugmenter(self.data_shape, **options)  # type: ignore[arg-type]

    def _describe_labels(self) -> None:
        shape = (self.batch_size, *self.label_shape)
        self.provide_label = [DataDesc(self.provide_label[0].name, shape)]

    def _estimate_label_shape(self) -> tuple[int, int]:
        """The most objects of an image, and the length of an entry."""
        most, widths = 0, set()
        try:
            while True:
                objects = self._parse_label(self.next_sample()[0])
                most = max(most, len(objects))
                widths.add(objects.shape[1])
        except StopIteration:
            pass
        self.reset()
        if len(widths) > 1:
            raise MXNetError(f"ImageDetIter expected entries of one length, got {sorted(widths)}")
        return most, widths.pop() if widths else 5

    def _parse_label(self, label: Any) -> numpy.ndarray:
        """The objects of a label, (objects, length of an entry), without those of no size."""
        raw = numpy.asarray(label.asnumpy() if isinstance(label, NDArray) else label, numpy.float32).ravel()
        head, entry = (int(raw[0]), int(raw[1])) if raw.size > 1 else (0, 0)
        where = f"ImageDetIter, image number {self.cur - 1}"
        if head < 2 or entry < 5 or raw.size <= head or (raw.size - head) % entry:
            raise MXNetError(
                f"{where}: expected a label that begins with the length of its head (2 or more) and of an "
                f"object's entry (5 or more) and goes on with whole entries; got {raw.size} number(s), "
                f"beginning with {raw[:4].tolist()}"
            )
        objects = raw[head:].reshape(-1, entry)
        objects = objects[(objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])]
        if not len(objects):
            raise MXNetError(f"{where}: the label has no object of a size; left < right, top < bottom")
        return objects

    def _sample(self) -> tuple[Any, Any]:
        label, content = self.next_sample()
        image, objects = self._augmented(self.imdecode(content), self._parse_label(label))
        return self._checked(image), objects

    def augmentation_transform(self, data: Any, label: Any = None) -> Any:
        """An image and its objects after all augmenters."""
        for augmenter in self.auglist:
            data, label = augmenter(data, label)
        return data, label

    def _empty_labels(self) -> numpy.ndarray:
        return numpy.full(self.provide_label[0].shape, -1, numpy.float32)

    def _put(self, labels: numpy.ndarray, row: int, label: Any) -> None:
        count = min(len(label), labels.shape[1])
        labels[row, :count] = label[:count]

    # Shapes ----------------------------------------------------------------------

    def check_label_shape(self, label_shape: Any) -> None:
        """Refuse a shape of labels that is none, or has room for fewer objects or other entries."""
        if len(label_shape) != 2:
            raise ValueError(
                f"label_shape should have length 2 (objects, length of an entry), got {label_shape}"
            )
        if label_shape[0] < self.label_shape[0]:
            raise ValueError(
                f"Attempts to reduce label count from {self.label_shape[0]} to {label_shape[0]}, not allowed."
            )
        if label_shape[1] != self.label_shape[1]:
            raise ValueError(
                f"label_shape object width inconsistent: {self.label_shape[1]} vs {label_shape[1]}."
            )

    def reshape(self, data_shape: Any = None, label_shape: Any = None) -> None:
        """Change the shape of images, which the augmenters must give, or make room for more objects."""
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.data_shape = tuple(data_shape)
            self.provide_data = [DataDesc(self.provide_data[0].name, (self.batch_size, *self.data_shape))]
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self.label_shape = tuple(label_shape)
            self._describe_labels()

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Make room for as many objects as the other iterator has, in both; gives the other."""
        del verbose
        if not isinstance(it, ImageDetIter):
            raise TypeError(f"sync_label_shape expected an ImageDetIter, got {type(it).__name__}")
        if it.label_shape[1] != self.label_shape[1]:
            raise ValueError(
                f"label_shape object width inconsistent: {self.label_shape[1]} vs {it.label_shape[1]}."
            )
        shape = max(self.label_shape[0], it.label_shape[0]), self.label_shape[1]
        self.reshape(label_shape=shape)
        it.reshape(label_shape=shape)
        return it

    def draw_next(
        self,
        color: Any = None,
        thickness: int = 2,
        mean: Any = None,
        std: Any = None,
        clip: bool = True,
        waitKey: int | None = None,
        window_name: str = "draw_next",
        id2labels: Any = None,
    ) -> Iterator[numpy.ndarray]:
        """Give the augmented images with their objects drawn, as uint8 arrays in RGB order.

        Parameters
        ----------
        color : tuple of int, optional
            Of all boxes; by default each has one of its own.
        thickness : int
            Pixels of a line.
        mean, std : sequence or True, optional
            What a normalisation subtracted and divided by, to undo it; True for ImageNet's.
        clip : bool
            Limit values to 0..255.
        waitKey : int, optional
            Also show each image in a window for so many milliseconds (0 until a key is pressed).
        id2labels : dict, optional
            Names of classes, which are written at the boxes.
        """
        from .augmenters import IMAGENET_DEVIATION, IMAGENET_MEAN

        cv2 = kernels.opencv("drawing boxes")
        while True:
            try:
                values, objects = self._sample()
            except StopIteration:
                return
            image = values.asnumpy().transpose(1, 2, 0)
            if std is not None:
                image = image * numpy.asarray(IMAGENET_DEVIATION if std is True else std)
            if mean is not None:
                image = image + numpy.asarray(IMAGENET_MEAN if mean is True else mean)
            image = numpy.ascontiguousarray(
                (numpy.clip(image, 0, 255) if clip else image).astype(numpy.uint8)
            )
            rows, columns = image.shape[:2]
            for entry in objects:
                corners = (entry[1:5] * [columns, rows, columns, rows]).astype(int).tolist()
                own = tuple(int(kernels.uniform(0, 256)) for _ in range(3)) if not color else color
                cv2.rectangle(image, tuple(corners[:2]), tuple(corners[2:]), own, thickness)
                if id2labels is not None and int(entry[0]) in id2labels:
                    text = str(id2labels[int(entry[0])])
                    place = corners[0] + 2, corners[1] + 12
                    cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.4, own)
            if waitKey is not None:
                cv2.imshow(window_name, image[..., ::-1])
                cv2.waitKey(waitKey)
            yield image
