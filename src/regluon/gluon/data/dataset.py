"""Datasets: collections with a length that give one sample for an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...array import NDArray
from ...base.errors import early_end
from .sampler import FilterSampler, Sampler

__all__ = ["ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset"]


class Dataset:
    """Base of every dataset: a subclass defines ``__getitem__(idx)`` and ``__len__()``."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(self, idx)")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")

    def filter(self, fn: Callable[[Any], Any]) -> Dataset:
        """Keep the samples for which ``fn(sample)`` is true.

        ``fn`` is called once for every sample now; the kept samples are read again when they are indexed.
        """
        return _SampledDataset(self, FilterSampler(fn, self))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """The ``index``-th of ``num_shards`` consecutive parts.

        Sizes differ by at most one; the first ``len(self) % num_shards`` parts hold the extra samples.

        Raises
        ------
        ValueError
            When ``num_shards`` is not positive or ``index`` is outside ``[0, num_shards)``.
        """
        if num_shards <= 0:
            raise ValueError(f"Dataset.shard expected a positive num_shards, got {num_shards}")
        if not 0 <= index < num_shards:
            raise ValueError(
                f"Dataset.shard expected 0 <= index < num_shards = {num_shards}, got index {index}"
            )
        size, extra = divmod(len(self), num_shards)
        start = size * index + min(index, extra)
        return _IndexedDataset(self, range(start, start + size + (index < extra)))

    def take(self, count: int | None) -> Dataset:
        """The first ``count`` samples; all of them when ``count`` is None or larger than the dataset."""
        if count is None or count > len(self):
            count = len(self)
        if count < 0:
            raise ValueError(f"Dataset.take expected a count of at least 0 or None, got {count}")
        return _IndexedDataset(self, range(count))

    def sample(self, sampler: Sampler) -> Dataset:
        """A dataset of the samples, and in the order, that ``sampler`` gives (read once, now)."""
        if not isinstance(sampler, Sampler):
            raise TypeError(
                f"Invalid sampler type: {type(sampler)}. Expected gluon.data.Sampler instead: wrap a list of "
                "indices in a class with __iter__ and __len__ that derives from it."
            )
        return _SampledDataset(self, sampler)

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Apply ``fn`` to every sample; the fields of a tuple sample are given as separate arguments.

        With ``lazy=True`` it runs whenever a sample is read (so random augmentations differ from epoch to
        epoch), with ``lazy=False`` once, now.
        """
        transformed = _TransformedDataset(self, fn)
        return transformed if lazy else SimpleDataset([transformed[i] for i in range(len(transformed))])

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """Apply ``fn`` to the first field of every sample (the image of an image and label pair)."""
        return self.transform(_TransformFirst(fn), lazy)


class SimpleDataset(Dataset):
    """Wrap anything with ``len()`` and integer indexing, such as a list."""

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        return self._data[idx]


class ArrayDataset(Dataset):
    """Zip several arrays or lists of one length: sample ``i`` is ``(first[i], second[i], ...)``.

    A one-dimensional array gives NumPy scalars, so that labels collate into one vector; a single array gives
    its bare rows.

    Raises
    ------
    ValueError
        Without any array, or when their lengths differ.
    """

    def __init__(self, *args: Any) -> None:
        if not args:
            raise ValueError("ArrayDataset needs at least 1 array, got none")
        self._length = len(args[0])
        self._data: list[Any] = []
        for position, data in enumerate(args):
            if len(data) != self._length:
                raise ValueError(
                    "ArrayDataset: all arrays must have the same length, "
                    f"but array 0 has length {self._length} and array {position} has {len(data)}"
                )
            if isinstance(data, NDArray) and len(data.shape) == 1:
                data = data.asnumpy()
            self._data.append(data)

    def __getitem__(self, idx: int) -> Any:
        if len(self._data) == 1:
            return self._data[0][idx]
        return tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length


class RecordFileDataset(Dataset):
    """Samples of a RecordIO file with an index file next to it: ``name.rec`` and ``name.idx``.

    Sample ``i`` is the bytes of the record whose key stands at line ``i`` of the index file. Every process
    and thread opens the file for itself, because reading moves the file's position.
    """

    def __init__(self, filename: str) -> None:
        self.filename = str(filename)
        self.idx_file = str(Path(self.filename).with_suffix(".idx"))
        for path in (self.filename, self.idx_file):
            if not Path(path).is_file():
                raise FileNotFoundError(
                    f"RecordFileDataset({self.filename!r}) needs the file {path!r}, which does not exist"
                )
        self._reader: tuple[Any, Any] | None = None
        self._keys = list(self._record().keys)

    def _record(self) -> Any:
        import os
        import threading

        owner = (os.getpid(), threading.get_ident())
        if self._reader is None or self._reader[0] != owner:
            from ... import recordio

            self._reader = (owner, recordio.MXIndexedRecordIO(self.idx_file, self.filename, "r"))
        return self._reader[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def __getitem__(self, idx: int) -> bytes:
        return self._record().read_idx(self._keys[idx])

    def __len__(self) -> int:
        return len(self._keys)


class _IndexedDataset(Dataset):
    """Some samples of another dataset, by their indices."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self._dataset = dataset
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, idx: int) -> Any:
        return self._dataset[self._indices[idx]]


class _SampledDataset(_IndexedDataset):
    """The samples that a sampler chose, in its order."""

    def __init__(self, dataset: Dataset, sampler: Sampler) -> None:
        super().__init__(dataset, list(sampler))


class _TransformedDataset(Dataset):
    """Another dataset with a function applied whenever a sample is read."""

    def __init__(self, data: Dataset, fn: Callable[..., Any]) -> None:
        self._data = data
        self._fn = fn

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        item = self._data[idx]
        try:
            return self._fn(*item) if isinstance(item, tuple) else self._fn(item)
        except StopIteration as error:
            raise early_end(f"the transform of sample {idx!r} of a {type(self._data).__name__}") from error


class _TransformFirst:
    """Apply a function to the first of several arguments; a class, so that worker processes can receive
    it."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, first: Any, *rest: Any) -> Any:
        return (self._fn(first), *rest) if rest else self._fn(first)
