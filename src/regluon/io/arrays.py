"""`NDArrayIter`: batches of arrays in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import torch

from ..array import NDArray
from ..array.sparse import CSRNDArray
from ..ndarray import array as nd_array
from ..ndarray.sparse import csr_matrix
from .base import DataDesc, DataIter

__all__ = ["NDArrayIter", "named_arrays", "take_rows"]


def named_arrays(value: Any, default: str, what: str) -> list[tuple[str, NDArray]]:
    """Names with arrays, from one array, a list, or a dict (in the order of its names).

    NumPy arrays and the like become float32 arrays; arrays of this package stay as they are.

    Raises
    ------
    TypeError
        For what is no array, list or dict of arrays.
    """
    if value is None:
        return []
    if isinstance(value, Mapping):
        named = sorted(value.items())
    elif isinstance(value, list | tuple):
        several = len(value) > 1
        named = [(f"_{i}_{default}" if several else default, item) for i, item in enumerate(value)]
    else:
        named = [(default, value)]
    result = []
    for name, item in named:
        if not hasattr(item, "shape"):
            raise TypeError(
                f"{what} expected an NDArray, a numpy.ndarray, a list of them or a dict of names to "
                f"them; {name!r} is of type {type(item).__name__}"
            )
        result.append((str(name), item if isinstance(item, NDArray) else nd_array(item)))
    return result


def take_rows(array: NDArray, rows: numpy.ndarray) -> NDArray:
    """A new array of the given rows, in the same storage type."""
    chosen = torch.from_numpy(numpy.ascontiguousarray(rows))
    if isinstance(array, CSRNDArray):
        return _csr_rows(array, chosen)
    stype = getattr(array, "stype", "default")
    dense = array if stype == "default" else array.tostype("default")
    taken = type(dense)._wrap(dense._t.index_select(0, chosen.to(dense._t.device)), dense._ctx)
    return taken if stype == "default" else taken.tostype(stype)


def _csr_rows(array: CSRNDArray, rows: torch.Tensor) -> Any:
    """Rows of a sparse matrix; the rest of it is not touched."""
    starts, columns = array._places
    rows = rows.to(starts.device)
    counts = starts[rows + 1] - starts[rows]
    pointers = torch.zeros(len(rows) + 1, dtype=starts.dtype, device=starts.device)
    torch.cumsum(counts, 0, out=pointers[1:])
    # Where each number of the result is: its row's beginning and its place within the row.
    places = torch.arange(int(pointers[-1]), device=starts.device)
    places += torch.repeat_interleave(starts[rows] - pointers[:-1], counts)
    return csr_matrix(
        tuple(NDArray._wrap(part, array._ctx) for part in (array._values[places], columns[places], pointers)),
        shape=(len(rows), array.shape[1]),
        ctx=array._ctx,
    )


class NDArrayIter(DataIter):
    """Batches of the rows of arrays in memory.

    Parameters
    ----------
    data : array, list or dict of arrays
        Inputs, all with as many rows. NumPy arrays become float32. A dict gives the inputs' names; those
        of a list are ``_0_data``, ``_1_data`` and so on.
    label : array, list or dict of arrays, optional
        Labels, in the same way.
    batch_size : int
        Rows of a batch.
    shuffle : bool
        Put the rows in a new order, drawn from NumPy's global generator, at every :meth:`reset`.
    last_batch_handle : {'pad', 'discard', 'roll_over'}
        What happens to the rows that fill no batch: filled up with the first rows (``batch.pad`` says how
        many), left out, or put at the beginning of the next epoch.
    data_name, label_name : str
        Names where the data have none.
    layout : str
        The layout in the descriptions.

    Raises
    ------
    ValueError
        For arrays of unlike numbers of rows, an empty list of data, or another ``last_batch_handle``.
    TypeError
        For what is no array.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
    ) -> None:
        super().__init__(int(batch_size))
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(
                "NDArrayIter expected last_batch_handle 'pad', 'discard' or 'roll_over', got "
                f"{last_batch_handle!r}"
            )
        if self.batch_size < 1:
            raise ValueError(f"NDArrayIter expected a batch_size of at least 1, got {batch_size!r}")
        self.data = named_arrays(data, data_name, "NDArrayIter's data")
        self.label = named_arrays(label, label_name, "NDArrayIter's label")
        if not self.data:
            raise ValueError(f"NDArrayIter expected at least one array of data, got {data!r}")
        self.num_data = self._count_rows()
        self.num_source = len(self.data)
        self.data_list = [array for _, array in self.data + self.label]
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.layout = layout
        self.idx = numpy.arange(self.num_data)
        self._order = self.idx.copy()
        self.cursor = -self.batch_size
        self._ended = False
        # Rows that the last epoch left over, in the order that they had then.
        self._left_over = self._order[:0]
        if shuffle:
            self._shuffle_data()

    def _count_rows(self) -> int:
        counts = {name: array.shape[0] if array.shape else 0 for name, array in self.data + self.label}
        if len(set(counts.values())) != 1:
            raise ValueError(
                "NDArrayIter expected data and labels with equally many rows, got "
                + ", ".join(f"{name}: {count}" for name, count in counts.items())
            )
        count = next(iter(counts.values()))
        if count == 0:
            raise ValueError("NDArrayIter expected data with at least one row, got none")
        return count

    def _shuffle_data(self) -> None:
        # Shuffled numbers are applied to the order before: a seed gives the order that it gives in 1.x.
        numpy.random.shuffle(self.idx)
        self._order = self._order[self.idx]

    def _descriptions(self, named: list[tuple[str, NDArray]]) -> list[DataDesc]:
        return [
            DataDesc(name, (self.batch_size, *array.shape[1:]), array.dtype, self.layout)
            for name, array in named
        ]

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of the inputs."""
        return self._descriptions(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of the labels."""
        return self._descriptions(self.label)

    def hard_reset(self) -> None:
        """Go back to the first batch and forget left-over rows."""
        if self.shuffle:
            self._shuffle_data()
        self.cursor = -self.batch_size
        self._ended = False
        self._left_over = self._order[:0]

    def reset(self) -> None:
        """Go back to the first batch, which begins with the left-over rows if they are to roll over."""
        rolls = self.last_batch_handle == "roll_over" and self._ended
        # A cursor below 0 stands before rows that had been left over already.
        waiting = self._left_over if self.cursor < 0 else self._order[:0]
        left_over = numpy.concatenate([waiting, self._order[max(self.cursor, 0) :]]) if rolls else waiting[:0]
        self.hard_reset()
        self._left_over = left_over
        self.cursor -= left_over.size

    def iter_next(self) -> bool:
        if self._ended:
            return False
        self.cursor += self.batch_size
        needed = 1 if self.last_batch_handle == "pad" else self.batch_size
        self._ended = self.cursor + needed > self.num_data
        return not self._ended

    def _rows(self) -> numpy.ndarray:
        places = numpy.arange(self.cursor, self.cursor + self.batch_size)
        rows = self._order[places % self.num_data]
        if self.cursor < 0:
            rows[: self._left_over.size] = self._left_over
        return rows

    def _batch(self, named: list[tuple[str, NDArray]]) -> list[NDArray]:
        rows = self._rows()
        return [take_rows(array, rows) for _, array in named]

    def getdata(self) -> list[NDArray]:
        return self._batch(self.data)

    def getlabel(self) -> list[NDArray]:
        return self._batch(self.label)

    def getpad(self) -> int:
        if self.cursor < 0:
            return int(self._left_over.size)
        beyond = self.cursor + self.batch_size - self.num_data
        return max(beyond, 0) if self.last_batch_handle == "pad" else 0
