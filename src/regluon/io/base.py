"""Batches, what describes them, and the base of the iterators that give them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

__all__ = ["DataBatch", "DataDesc", "DataIter"]


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name, shape, type and layout of one input.

    It is the pair ``(name, shape)``, which is all that it is compared by, with two more attributes.

    Parameters
    ----------
    name : str
        The variable of the symbol that takes the input.
    shape : tuple of int
        Sizes of the axes, those of a whole batch.
    dtype : dtype
        Type of the elements.
    layout : str
        A letter for each axis; "N" is the one along which a batch is divided among devices.
    """

    dtype: Any
    layout: str | None

    def __new__(
        cls, name: str, shape: Sequence[int], dtype: Any = numpy.float32, layout: str | None = "NCHW"
    ) -> DataDesc:
        result = super().__new__(cls, name, tuple(shape))
        result.dtype = dtype
        result.layout = layout
        return result

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.name, self.shape, self.dtype, self.layout

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """The place of "N" in a layout; 0 without a layout, -1 when it has no "N"."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(
        shapes: Iterable[tuple[str, Any]], types: Iterable[tuple[str, Any]] | None = None
    ) -> list[DataDesc]:
        """Descriptions from pairs of name and shape, and perhaps pairs of name and type."""
        known = dict(types or ())
        return [
            DataDesc(name, shape, known[name]) if name in known else DataDesc(name, shape)
            for name, shape in shapes
        ]


class DataBatch:
    """One batch.

    Parameters
    ----------
    data, label : list of arrays
        Inputs and labels; ``label`` may be missing.
    pad : int, optional
        How many rows at the end only fill the batch up.
    index : array, optional
        Numbers of the rows in the data set.
    bucket_key : optional
        Which bucket of a BucketingModule the batch belongs to.
    provide_data, provide_label : list of DataDesc, optional
        Descriptions, for batches that differ from each other.

    Raises
    ------
    TypeError
        If data or labels are no lists.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Any = None,
        provide_label: Any = None,
    ) -> None:
        for what, value in (("data", data), ("label", label)):
            if value is not None and not isinstance(value, list | tuple):
                raise TypeError(
                    f"DataBatch expected {what} as a list of arrays, got {type(value).__name__}; "
                    f"write {what}=[array]"
                )
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __str__(self) -> str:
        labels = [array.shape for array in self.label] if self.label else None
        data = [array.shape for array in self.data] if self.data else None
        return f"{type(self).__name__}: data shapes: {data} label shapes: {labels}"


class DataIter:
    """Base of the iterators over batches.

    A subclass has the attributes (or properties) ``provide_data`` and ``provide_label``, lists of
    :class:`DataDesc`, and defines :meth:`reset` and either :meth:`next` or :meth:`iter_next` with
    :meth:`getdata`, :meth:`getlabel`, :meth:`getpad` and :meth:`getindex`.
    """

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.next()

    def reset(self) -> None:
        """Go back to the first batch."""

    def next(self) -> Any:
        """The next batch.

        Raises
        ------
        StopIteration
            After the last one.
        """
        if not self.iter_next():
            raise StopIteration
        return DataBatch(data=self.getdata(), label=self.getlabel(), pad=self.getpad(), index=self.getindex())

    def iter_next(self) -> bool:
        """Go to the next batch; False when there is none."""
        raise NotImplementedError(f"{type(self).__name__} must define next() or iter_next().")

    def getdata(self) -> Any:
        """The inputs of the present batch."""
        raise NotImplementedError(f"{type(self).__name__} must define getdata().")

    def getlabel(self) -> Any:
        """The labels of the present batch."""
        raise NotImplementedError(f"{type(self).__name__} must define getlabel().")

    def getindex(self) -> Any:
        """Numbers of the rows of the present batch, if they are known."""
        return None

    def getpad(self) -> Any:
        """How many rows at the end of the present batch only fill it up."""
        raise NotImplementedError(f"{type(self).__name__} must define getpad().")
