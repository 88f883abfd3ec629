"""An iterator of batches over a Gluon DataLoader, for modules."""

from __future__ import annotations

from typing import Any

from .. import ndarray
from ..io import DataBatch, DataDesc, DataIter

__all__ = ["DataLoaderIter"]


class DataLoaderIter(DataIter):
    """Give a DataLoader's batches, pairs of data and label, as those of an iterator.

    The last batch is filled up with its first rows where it is smaller; ``pad`` says by how many.

    Parameters
    ----------
    loader : gluon.data.DataLoader
        Over a dataset of pairs.
    data_name, label_name : str
        The variables of the symbol.
    dtype : dtype
        Type that data and labels are converted to.
    """

    def __init__(
        self,
        loader: Any,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
    ) -> None:
        self._loader = loader
        self._iterator = iter(loader)
        self.dtype = dtype
        first_data, first_label = next(self._iterator)
        super().__init__(first_data.shape[0])
        self.provide_data = [DataDesc(data_name, first_data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, first_label.shape, dtype)]
        # An iterator of batches is not asked for its first batch twice.
        self._first: tuple[Any, Any] | None = (first_data, first_label)

    def reset(self) -> None:
        """Go back to the first batch."""
        self._first = None
        self._iterator = iter(self._loader)

    def _filled(self, array: Any, pad: int) -> Any:
        array = array.as_nd_ndarray().astype(self.dtype)
        if not pad:
            return array
        repeats = -(-pad // array.shape[0])
        return ndarray.concat(array, *[array] * repeats, dim=0)[: self.batch_size]

    def next(self) -> DataBatch:
        """The next batch.

        Raises
        ------
        StopIteration
            After the last one.
        """
        data, label = self._first if self._first is not None else next(self._iterator)
        self._first = None
        pad = self.batch_size - data.shape[0]
        return DataBatch([self._filled(data, pad)], [self._filled(label, pad)], pad=pad)
