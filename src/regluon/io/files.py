"""Iterators over files of numbers: CSV, LibSVM, and MNIST's IDX files."""

from __future__ import annotations

import gzip
import math
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from ..array import NDArray
from ..base import dtypes, limits
from ..base.errors import MXNetError
from ..ndarray import array as nd_array
from ..ndarray.sparse import csr_matrix
from .arrays import take_rows
from .base import DataDesc, DataIter

__all__ = ["CSVIter", "LibSVMIter", "MNISTIter", "MXDataIter"]


class MXDataIter(DataIter):
    """Base of the iterators over files: batches of rows that are in memory once read.

    Parameters
    ----------
    data, label : array
        Everything that the file holds.
    batch_size : int
        Rows of a batch.
    last : {'round', 'pad', 'discard'}
        What happens to rows that fill no batch: filled up with the first rows, which the next epoch then
        begins after; filled up with the first rows; or left out.
    data_name, label_name : str
        Names in the descriptions.
    """

    def __init__(
        self,
        data: NDArray,
        label: NDArray,
        batch_size: int,
        last: str,
        data_name: str = "data",
        label_name: str = "softmax_label",
        index: numpy.ndarray | None = None,
    ) -> None:
        super().__init__(int(batch_size))
        if self.batch_size < 1:
            raise ValueError(f"{type(self).__name__} expected a batch_size of at least 1, got {batch_size!r}")
        self._data, self._label = data, label
        self._count = data.shape[0]
        if self._count == 0:
            raise MXNetError(f"{type(self).__name__}: the files hold no rows for this part")
        self._last = last
        self._index = numpy.arange(self._count) if index is None else index
        self._order = numpy.arange(self._count)
        self._next = 0
        self._rows = self._order[:0]
        self._pad = 0
        described = ((data_name, data), (label_name, label))
        self.provide_data, self.provide_label = (
            [DataDesc(name, (self.batch_size, *array.shape[1:]), array.dtype)] for name, array in described
        )

    def reset(self) -> None:
        """Go back to the first batch; with ``round_batch`` to the first row that was not used yet."""
        # Rows that filled up the last batch are not read again.
        self._next = self._pad if self._last == "round" and self._next >= self._count else 0
        self._pad = 0

    def iter_next(self) -> bool:
        end = self._next + self.batch_size
        needed = end if self._last == "discard" else self._next + 1
        if needed > self._count:
            return False
        self._rows = self._order[numpy.arange(self._next, end) % self._count]
        self._pad = max(end - self._count, 0)
        self._next = end
        return True

    def getdata(self) -> list[NDArray]:
        return [take_rows(self._data, self._rows)]

    def getlabel(self) -> list[NDArray]:
        return [take_rows(self._label, self._rows)]

    def getpad(self) -> int:
        return self._pad

    def getindex(self) -> numpy.ndarray:
        return self._index[self._rows].astype(numpy.uint64)


def _paths(place: Any, what: str) -> list[Path]:
    """A file, or the files of a folder in the order of their names."""
    path = Path(place)
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file())
    if not path.exists():
        raise MXNetError(f"{what}: there is no file {str(place)!r}")
    return [path]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, from 1."""
    number = 0
    with open(path, encoding="utf-8") as file:
        try:
            for line in file:
                number += 1
                yield number, line.rstrip("\n")
        except UnicodeDecodeError as error:
            raise MXNetError(f"{path}, after line {number}: this is no text: {error}") from error


def _given(place: Any) -> bool:
    """Whether an optional path was given; the originals write NULL for none."""
    return place is not None and str(place) not in ("", "NULL")


def _part(count: int, num_parts: int, part_index: int) -> slice:
    """The rows of one of several parts of nearly equal size."""
    if not 0 <= part_index < num_parts:
        raise ValueError(f"part_index expected 0 to {num_parts - 1} (num_parts - 1), got {part_index}")
    return slice(count * part_index // num_parts, count * (part_index + 1) // num_parts)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in value) if isinstance(value, list | tuple) else (int(value),)


def _ordered(values: numpy.ndarray, dtype: Any) -> NDArray:
    return nd_array(values, dtype=dtype or numpy.float32)


class CSVIter(MXDataIter):
    """Batches of the rows of CSV files.

    Parameters
    ----------
    data_csv, label_csv : path
        A file, or a folder all of whose files are read; without labels they are zeros.
    data_shape, label_shape : tuple of int
        Shape of one row's values.
    batch_size : int
        Rows of a batch.
    round_batch : bool
        Whether the next epoch begins after the rows that filled up the last batch of this one.
    dtype : dtype
        Type of the values, float32 by default.

    Raises
    ------
    MXNetError
        For a file that is missing or no CSV, or rows of another length than the shape's.
    """

    def __init__(
        self,
        data_csv: Any,
        data_shape: Any,
        batch_size: int,
        label_csv: Any = None,
        label_shape: Any = (1,),
        round_batch: bool = True,
        prefetch_buffer: int = 4,
        ctx: Any = None,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        del prefetch_buffer, ctx
        kind = dtypes.to_numpy(dtypes.to_torch(dtype or numpy.float32))
        data = self._read(data_csv, _shape(data_shape), kind)
        label_sizes = _shape(label_shape)
        if _given(label_csv):
            label = self._read(label_csv, label_sizes, kind)
            if len(label) != len(data):
                raise MXNetError(
                    f"CSVIter expected as many labels as rows of data, got {len(label)} and {len(data)}"
                )
        else:
            label = numpy.zeros((len(data), *label_sizes), kind)
        if label_sizes == (1,):
            label = label.reshape(-1)
        last = "round" if round_batch else "pad"
        super().__init__(_ordered(data, kind), _ordered(label, kind), batch_size, last, data_name, label_name)

    @staticmethod
    def _read(place: Any, shape: tuple[int, ...], kind: Any) -> numpy.ndarray:
        tables = []
        wanted = int(numpy.prod(shape))
        whole = numpy.issubdtype(kind, numpy.integer)
        for path in _paths(place, "CSVIter"):
            try:
                # Whole numbers are often written as 1.0 or 1e+00, which int() would refuse.
                table = numpy.loadtxt(path, delimiter=",", dtype=numpy.float64 if whole else kind, ndmin=2)
            except ValueError as error:
                raise MXNetError(f"CSVIter cannot read {path}: {error}") from error
            if table.shape[1] != wanted:
                raise MXNetError(
                    f"CSVIter: the rows of {path} have {table.shape[1]} values; the shape {shape} needs "
                    f"{wanted}"
                )
            tables.append(table.astype(kind))
        return numpy.concatenate(tables).reshape(-1, *shape)


class LibSVMIter(MXDataIter):
    """Batches of the rows of LibSVM files, ``label index:value index:value``, indices from 0.

    The rows are sparse (csr).

    Parameters
    ----------
    data_libsvm, label_libsvm : path
        A file, or a folder all of whose files are read. Without a file of labels, the first number of each
        row is its label.
    data_shape, label_shape : tuple of int
        Length of one row.
    batch_size : int
        Rows of a batch.
    num_parts, part_index : int
        Read only this one of so many parts.
    round_batch : bool
        Must be True: the next epoch begins after the rows that filled up the last batch of this one.
    dtype : dtype
        Type of the values, float32 by default.

    Raises
    ------
    MXNetError
        For a missing file or a malformed row, which the message names.
    """

    def __init__(
        self,
        data_libsvm: Any,
        data_shape: Any,
        batch_size: int,
        label_libsvm: Any = None,
        label_shape: Any = (1,),
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        prefetch_buffer: int = 4,
        ctx: Any = None,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        del prefetch_buffer, ctx
        if not round_batch:
            raise ValueError("LibSVMIter expected round_batch=True; CSVIter and NDArrayIter can pad")
        data, first = self._read(data_libsvm, _shape(data_shape), dtype)
        label: Any = _ordered(first, dtype)
        if _given(label_libsvm):
            label, _ = self._read(label_libsvm, _shape(label_shape), dtype)
            if label.shape[0] != data.shape[0]:
                raise MXNetError(
                    "LibSVMIter expected as many labels as rows of data, got "
                    f"{label.shape[0]} and {data.shape[0]}"
                )
        part = _part(data.shape[0], num_parts, part_index)
        super().__init__(data[part], label[part], batch_size, "round", data_name, label_name)

    @staticmethod
    def _read(place: Any, shape: tuple[int, ...], dtype: Any) -> tuple[Any, numpy.ndarray]:
        """The rows as a sparse matrix, and the numbers at their beginnings."""
        if len(shape) != 1:
            raise ValueError(f"LibSVMIter expected a shape of one axis, got {shape}")
        columns, numbers, starts, labels = array("q"), array("d"), array("q", [0]), array("d")
        for path in _paths(place, "LibSVMIter"):
            for number, line in _lines(path):
                words = line.partition("#")[0].split()
                if not words:
                    continue
                try:
                    pairs = [word.partition(":") for word in words[1:]]
                    row = {int(index): float(value) for index, _, value in pairs}
                    labels.append(float(words[0]))
                except ValueError as error:
                    raise MXNetError(
                        f"{path}, line {number}: expected 'label index:value ...', got {line[:200]!r}"
                    ) from error
                outside = [index for index in row if not 0 <= index < shape[0]]
                if outside:
                    raise MXNetError(
                        f"{path}, line {number}: index {outside[0]} is outside the shape {shape}; "
                        "indices begin at 0"
                    )
                for index in sorted(row):
                    columns.append(index)
                    numbers.append(row[index])
                starts.append(len(columns))
        parts = (
            nd_array(numpy.asarray(numbers, numpy.float64), dtype=dtype or numpy.float32),
            nd_array(numpy.asarray(columns, numpy.int64), dtype="int64"),
            nd_array(numpy.asarray(starts), dtype="int64"),
        )
        table = csr_matrix(parts, shape=(len(labels), shape[0]))
        return table, numpy.asarray(labels, numpy.float32)


class MNISTIter(MXDataIter):
    """Batches of handwritten digits from MNIST's IDX files (plain or with gzip), values in [0, 1).

    Parameters
    ----------
    image, label : path
        The two files.
    batch_size : int
        Images of a batch; images that fill none at the end are left out.
    shuffle : bool
        Put the images in one random order, the same in every epoch.
    flat : bool
        Give shape (batch, 784) instead of (batch, 1, 28, 28).
    seed : int
        Chooses the order.
    silent : bool
        Do not log what was read.
    num_parts, part_index : int
        Read only this one of so many parts.
    data_shape, input_shape : tuple, optional
        Accepted, as scripts give them; ``flat`` decides.

    Raises
    ------
    MXNetError
        For a file that is missing or no IDX file of that kind.
    """

    def __init__(
        self,
        image: Any = "./train-images-idx3-ubyte",
        label: Any = "./train-labels-idx1-ubyte",
        batch_size: int = 128,
        shuffle: bool = True,
        flat: bool = False,
        seed: int = 0,
        silent: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
        prefetch_buffer: int = 4,
        ctx: Any = None,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        data_shape: Any = None,
        input_shape: Any = None,
    ) -> None:
        del prefetch_buffer, ctx, data_shape, input_shape
        images, labels = _read_idx(image, 3), _read_idx(label, 1)
        if len(images) != len(labels):
            raise MXNetError(
                f"MNISTIter expected as many labels as images, got {len(labels)} and {len(images)}"
            )
        part = _part(len(images), int(num_parts), int(part_index))
        images, labels = images[part], labels[part]
        if shuffle:
            order = numpy.random.RandomState(seed).permutation(len(images))
            images, labels = images[order], labels[order]
        pixels = images.astype(numpy.float32) / 256
        pixels = pixels.reshape(len(pixels), -1) if flat else pixels[:, None]
        super().__init__(
            _ordered(pixels, dtype),
            _ordered(labels, dtype),
            batch_size,
            "discard",
            data_name,
            label_name,
            numpy.zeros(len(labels), int),
        )
        if not silent:
            import logging

            logging.getLogger("regluon").info(
                "MNISTIter: load %d images, shuffle=%d, shape=%s",
                len(labels),
                bool(shuffle),
                self.provide_data[0].shape,
            )


def _read_idx(place: Any, axes: int) -> numpy.ndarray:
    """The bytes of an IDX file of unsigned bytes."""
    path = _paths(place, "MNISTIter")[0]
    size = path.stat().st_size
    with open(path, "rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        stream: Any = gzip.GzipFile(fileobj=plain) if packed else plain
        try:
            return _idx_body(path, stream, axes, size, packed)
        except (OSError, EOFError, zlib.error) as error:
            raise MXNetError(f"MNISTIter: {path} is damaged: {error}") from error


def _idx_body(path: Path, stream: Any, axes: int, size: int, packed: bool) -> numpy.ndarray:
    head = stream.read(4 + 4 * axes)
    magic = 0x0800 + axes
    found = int.from_bytes(head[:4], "big")
    if len(head) < 4 + 4 * axes or found != magic:
        raise MXNetError(
            f"MNISTIter: {path} begins with {found}; an IDX file of {axes} axes begins with {magic}"
        )
    sizes = tuple(int.from_bytes(head[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(axes))
    wanted = math.prod(sizes)
    if limits.exceeds(wanted, size):
        raise MXNetError(
            f"MNISTIter: {path} announces {wanted} bytes and holds {size}{', packed' if packed else ''}. "
            f"{limits.REMEDY}"
        )
    body = stream.read(wanted)
    if len(body) != wanted or stream.read(1):
        more = len(body) == wanted
        raise MXNetError(
            f"MNISTIter: {path} announces {wanted} bytes and holds {'more' if more else len(body)}"
        )
    return numpy.frombuffer(body, numpy.uint8).reshape(sizes)
