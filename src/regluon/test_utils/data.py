"""Data sets of tests, from local files, and an iterator that gives one batch again and again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import numpy

from ..gluon.data.vision import CIFAR10, MNIST
from ..io import DataBatch, DataIter, MNISTIter

__all__ = ["DummyIter", "download", "get_cifar10", "get_mnist", "get_mnist_iterator", "get_mnist_ubyte"]


def download(
    url: str,
    fname: str | None = None,
    dirname: str | None = None,
    overwrite: bool = False,
    retries: int = 5,
) -> str:
    """The path that a file of this address would be stored at, when it is there already.

    Raises
    ------
    OSError
        When it is not: nothing is downloaded.
    """
    path = Path(dirname or ".") / (fname or url.split("/")[-1])
    if path.is_file():
        return str(path) if dirname else (fname or path.name)
    raise OSError(f"nothing is downloaded: get {url} by other means and put it at {os.path.abspath(path)}")


def _found(path: str, name: str) -> str:
    """The folder of a data set: the given one, else Gluon's."""
    if os.path.isdir(path):
        return path
    home = os.environ.get("MXNET_HOME", os.path.join(os.path.expanduser("~"), ".mxnet"))
    return os.path.join(home, "datasets", name)


def get_mnist(path: str = "data") -> dict[str, Any]:
    """The handwritten digits of MNIST, as NumPy arrays.

    Parameters
    ----------
    path : path
        The folder of the four idx files (gzipped or not); Gluon's (``~/.mxnet/datasets/mnist``) without it.

    Returns
    -------
    dict
        ``train_data`` and ``test_data``: float32 (samples, 1, 28, 28) in [0, 1]; ``train_label`` and
        ``test_label``: int (samples,).

    Raises
    ------
    ValueError, OSError
        When the files are not there; the message names them.
    """
    folder = _found(path, "mnist")
    result: dict[str, Any] = {}
    for part, train in (("train", True), ("test", False)):
        digits = MNIST(folder, train=train)
        result[f"{part}_data"] = digits._data.asnumpy().reshape(-1, 1, 28, 28).astype("float32") / 255
        result[f"{part}_label"] = numpy.asarray(digits._label)
    return result


def get_mnist_ubyte(path: str = "data") -> None:
    """Make sure that the four idx files of MNIST are in a folder.

    Raises
    ------
    OSError
        When one is missing: nothing is downloaded.
    """
    names = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    _require(path, names, "MNIST")


def get_cifar10(path: str = "data") -> None:
    """Make sure that the record files of CIFAR-10 are in ``path/cifar``.

    Raises
    ------
    OSError
        When one is missing: nothing is downloaded.
    """
    _require(os.path.join(path, "cifar"), ["train.rec", "test.rec"], CIFAR10.__name__)


def _require(folder: str, names: list[str], what: str) -> None:
    missing = [name for name in names if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        _refuse(folder, missing, what)


def _refuse(folder: str, missing: list[str], what: str) -> NoReturn:
    raise OSError(
        f"{what}: nothing is downloaded, and {', '.join(missing)} is not in {os.path.abspath(folder)}. Put "
        "the files there"
    )


def get_mnist_iterator(
    batch_size: int,
    input_shape: tuple[int, ...],
    num_parts: int = 1,
    part_index: int = 0,
    path: str = "data",
) -> tuple[Any, Any]:
    """Iterators over the digits for training and for testing; flat where ``input_shape`` has one size.

    Raises
    ------
    OSError
        When the files are not there.
    """
    get_mnist_ubyte(path)

    def iterator(part: str, shuffle: bool) -> Any:
        return MNISTIter(
            image=os.path.join(path, f"{part}-images-idx3-ubyte"),
            label=os.path.join(path, f"{part}-labels-idx1-ubyte"),
            input_shape=input_shape,
            batch_size=batch_size,
            shuffle=shuffle,
            flat=len(input_shape) != 3,
            num_parts=num_parts,
            part_index=part_index,
        )

    return iterator("train", True), iterator("t10k", False)


class DummyIter(DataIter):
    """The first batch of an iterator, without end: to measure what the rest costs."""

    def __init__(self, real_iter: Any) -> None:
        super().__init__()
        self.real_iter = real_iter
        self.provide_data = real_iter.provide_data
        self.provide_label = real_iter.provide_label
        self.batch_size = real_iter.batch_size
        self.the_batch = next(real_iter)

    def __iter__(self) -> DummyIter:
        return self

    def next(self) -> DataBatch:
        """The batch."""
        batch: DataBatch = self.the_batch
        return batch
