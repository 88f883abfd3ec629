"""MNIST, Fashion-MNIST, CIFAR and folders of images, from local files.

Nothing is downloaded: a missing file is an error that names the files and the folder to put them into.
"""

from __future__ import annotations

import gzip
import os
import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

from .._arrays import batch_kind, wrap_numpy
from ..dataset import Dataset, RecordFileDataset

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
]

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CIFAR_PIXELS = 3 * 32 * 32
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".npy")


def default_root(name: str) -> str:
    """The folder of a dataset: ``$MXNET_HOME/datasets/name``, or below ``~/.mxnet``."""
    return os.path.join(os.environ.get("MXNET_HOME", os.path.join("~", ".mxnet")), "datasets", name)


def read_idx(path: Path) -> numpy.ndarray:
    """Read an array of the IDX format, gzipped when the name ends in ``.gz``.

    The format (Y. LeCun, "The MNIST database"): two zero bytes, a type code, the number of dimensions, their
    sizes as big-endian 32-bit numbers, and the elements in big-endian C order.

    Raises
    ------
    ValueError
        When the file is no IDX file or shorter or longer than its header says.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
        content = file.read()
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise ValueError(f"{path} is no IDX file: it begins with {content[:4].hex(' ') or 'nothing'}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path} ends inside its header")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    dtype = numpy.dtype(IDX_TYPES[content[2]])
    expected = start + dtype.itemsize * int(numpy.prod(shape, dtype=object))
    if len(content) != expected:
        raise ValueError(f"{path} has {len(content)} bytes; its header, shape {shape}, asks for {expected}")
    return numpy.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


class _LocalDataset(Dataset):
    """Images of shape (count, height, width, channels) and labels of shape (count,), read at once."""

    def __init__(self, root: str, transform: Callable[[Any, Any], Any] | None) -> None:
        if transform is not None:
            warnings.warn(
                f"{type(self).__name__}(transform=...) is deprecated: use the dataset's .transform() or "
                ".transform_first()",
                DeprecationWarning,
                stacklevel=3,
            )
        self._transform = transform
        self._root = Path(root).expanduser()
        images, labels = self._read()
        self._data = wrap_numpy(images, batch_kind([]))
        self._label = labels

    def _read(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        raise NotImplementedError

    def _find(self, *names: str) -> Path:
        """The first of several spellings of a file that exists, also in a folder below."""
        for name in names:
            for path in (self._root / name, *sorted(self._root.glob(f"*/{name}"))):
                if path.is_file():
                    return path
        raise FileNotFoundError(
            f"{type(self).__name__} found none of {', '.join(names)} in {self._root}. Datasets are not "
            "downloaded: put the file there, or pass the folder that holds it as root="
        )

    def __getitem__(self, idx: int) -> Any:
        image, label = self._data[idx], self._label[idx]
        return (image, label) if self._transform is None else self._transform(image, label)

    def __len__(self) -> int:
        return len(self._label)


class MNIST(_LocalDataset):
    """Handwritten digits from the four IDX files in ``root``, plain or gzipped.

    A sample is an image of shape (28, 28, 1), uint8, and its label, int32.
    """

    _files = (("train-images", "train-labels"), ("t10k-images", "t10k-labels"))
    _name = "mnist"

    def __init__(
        self, root: str | None = None, train: bool = True, transform: Callable[[Any, Any], Any] | None = None
    ) -> None:
        self._train = train
        super().__init__(default_root(self._name) if root is None else root, transform)

    def _read(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        image_stem, label_stem = self._files[0 if self._train else 1]
        images = read_idx(self._find_idx(image_stem, 3))
        labels = read_idx(self._find_idx(label_stem, 1))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise ValueError(
                f"{self._root}: images of shape {images.shape} do not go with labels of shape {labels.shape}"
            )
        return images[..., None], labels.astype(numpy.int32)

    def _find_idx(self, stem: str, dimensions: int) -> Path:
        names = [f"{stem}{separator}idx{dimensions}-ubyte{end}" for separator in "-." for end in (".gz", "")]
        return self._find(*names)


class FashionMNIST(MNIST):
    """Zalando's articles of clothing, in the format of `MNIST`."""

    _name = "fashion-mnist"


class CIFAR10(_LocalDataset):
    """Small colour images in ten classes, from the files of CIFAR's binary version in ``root``.

    A sample is an image of shape (32, 32, 3), uint8, and its label, int32.
    """

    _name = "cifar10"

    def __init__(
        self, root: str | None = None, train: bool = True, transform: Callable[[Any, Any], Any] | None = None
    ) -> None:
        self._train = train
        super().__init__(default_root(self._name) if root is None else root, transform)

    def _read(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        names = [f"data_batch_{number}.bin" for number in range(1, 6)] if self._train else ["test_batch.bin"]
        return self._read_records([self._find(name) for name in names], label_bytes=1, label_position=0)

    @staticmethod
    def _read_records(
        paths: Sequence[Path], label_bytes: int, label_position: int
    ) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Records of label bytes followed by the red, green and blue planes."""
        size = label_bytes + CIFAR_PIXELS
        parts = []
        for path in paths:
            content = numpy.fromfile(path, dtype=numpy.uint8)
            if content.size == 0 or content.size % size:
                raise ValueError(
                    f"{path} has {content.size} bytes, which is no multiple of a record's {size}"
                )
            parts.append(content.reshape(-1, size))
        records = numpy.concatenate(parts)
        images = records[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return images, records[:, label_position].astype(numpy.int32)


class CIFAR100(CIFAR10):
    """Like `CIFAR10` with 100 classes (``fine_label=True``) or their 20 groups."""

    _name = "cifar100"

    def __init__(
        self,
        root: str | None = None,
        fine_label: bool = False,
        train: bool = True,
        transform: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self._fine_label = fine_label
        super().__init__(root, train, transform)

    def _read(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        path = self._find("train.bin" if self._train else "test.bin")
        return self._read_records([path], label_bytes=2, label_position=int(self._fine_label))


class ImageFolderDataset(Dataset):
    """Images in one folder for each class: ``root/class name/picture.png``.

    ``synsets`` lists the class names in the order of their labels. ``flag`` 1 reads colour, 0 grey.
    """

    def __init__(self, root: str, flag: int = 1, transform: Callable[[Any, Any], Any] | None = None) -> None:
        self._root = Path(root).expanduser()
        self._flag = flag
        self._transform = transform
        if not self._root.is_dir():
            raise FileNotFoundError(f"ImageFolderDataset: there is no folder {self._root}")
        folders = sorted(path for path in self._root.iterdir() if path.is_dir())
        self.synsets = [folder.name for folder in folders]
        self.items: list[tuple[str, int]] = []
        for label, folder in enumerate(folders):
            for path in sorted(folder.iterdir()):
                if path.suffix.lower() in IMAGE_SUFFIXES:
                    self.items.append((str(path), label))
                else:
                    warnings.warn(f"Ignoring {path}: not one of {', '.join(IMAGE_SUFFIXES)}", stacklevel=2)

    def __getitem__(self, idx: int) -> Any:
        path, label = self.items[idx]
        if path.endswith(".npy"):
            image = wrap_numpy(numpy.load(path, allow_pickle=False), batch_kind([]))
        else:
            image = _decode(Path(path).read_bytes(), self._flag, path)
        return (image, label) if self._transform is None else self._transform(image, label)

    def __len__(self) -> int:
        return len(self.items)


class ImageListDataset(Dataset):
    """Images named by a list; a sample is the image and its labels as a float32 array.

    Parameters
    ----------
    root : path
        The folder that the names begin at.
    imglist : path or list
        A list file below ``root``, whose lines are a number, labels and a name between tabs; or a list of
        ``[label, ..., name]`` or ``[labels, name]``.
    flag : int
        1 reads colour, 0 grey.

    Raises
    ------
    ValueError
        For an entry without a label or a name, or another type of list.
    FileNotFoundError
        For a list file or, on reading, an image that is not there.
    """

    def __init__(self, root: Any = ".", imglist: Any = None, flag: int = 1) -> None:
        self._root = Path(root).expanduser()
        self._flag = flag
        if isinstance(imglist, str | os.PathLike):
            lines = (self._root / imglist).read_text().splitlines()
            entries: list[Any] = [line.strip().split("\t")[1:] for line in lines if line.strip()]
        elif isinstance(imglist, list | tuple):
            entries = list(imglist)
        else:
            raise ValueError(
                "imglist must be a file name or a list of [label, ..., name], received "
                f"{type(imglist).__name__}"
            )
        self.items = [self._item(entry) for entry in entries]

    @staticmethod
    def _item(entry: Any) -> tuple[str, numpy.ndarray]:
        try:
            *labels, name = entry
            held = numpy.array(labels[0] if numpy.ndim(labels[0]) else labels, numpy.float32)
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(f"imglist expected entries [label, ..., name], received {entry!r}") from error
        return str(name), held

    def __getitem__(self, idx: int) -> Any:
        name, labels = self.items[idx]
        path = self._root / name
        return _decode(path.read_bytes(), self._flag, str(path)), wrap_numpy(labels, batch_kind([]))

    def __len__(self) -> int:
        return len(self.items)


class ImageRecordDataset(RecordFileDataset):
    """Images packed into a RecordIO file: a sample is the decoded image and the record's label."""

    def __init__(
        self, filename: str, flag: int = 1, transform: Callable[[Any, Any], Any] | None = None
    ) -> None:
        super().__init__(filename)
        self._flag = flag
        self._transform = transform

    def __getitem__(self, idx: int) -> Any:
        from .... import recordio

        header, content = recordio.unpack(super().__getitem__(idx))
        image = _decode(content, self._flag, f"record {idx} of {self.filename}")
        return (image, header.label) if self._transform is None else self._transform(image, header.label)


def _decode(content: bytes, flag: int, name: str) -> Any:
    """Decode an image file's bytes to (height, width, channels), uint8, in RGB order."""
    from .transforms.kernels import opencv

    cv2 = opencv("reading images")
    image = cv2.imdecode(numpy.frombuffer(content, numpy.uint8), flag)
    if image is None:
        raise ValueError(f"{name} is no image that OpenCV can read")
    image = image[..., None] if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return wrap_numpy(image, batch_kind([]))
