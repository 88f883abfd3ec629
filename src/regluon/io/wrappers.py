"""Iterators over iterators: epochs of another length, and batches made ahead of their use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .base import DataBatch, DataDesc, DataIter

__all__ = ["PrefetchingIter", "ResizeIter"]


class _Wrapper(DataIter):
    """Gives the batches of other iterators, which `iter_next` puts into ``current_batch``."""

    current_batch: Any = None

    def next(self) -> Any:
        # The inner batch itself: it may have a bucket key and descriptions of its own.
        if not self.iter_next():
            raise StopIteration
        return self.current_batch

    def getdata(self) -> Any:
        return self.current_batch.data

    def getlabel(self) -> Any:
        return self.current_batch.label

    def getindex(self) -> Any:
        return self.current_batch.index

    def getpad(self) -> Any:
        return self.current_batch.pad


class ResizeIter(_Wrapper):
    """Epochs of ``size`` batches of another iterator, which starts anew whenever it ends.

    Parameters
    ----------
    data_iter : DataIter
        The iterator.
    size : int
        Batches of an epoch.
    reset_internal : bool
        Start the inner iterator anew at every :meth:`reset`; else the next epoch goes on where it is.
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        super().__init__(data_iter.batch_size)
        self.data_iter = data_iter
        self.size = size
        self.reset_internal = reset_internal
        self.cur = 0
        self.current_batch = None
        self.provide_data = data_iter.provide_data  # type: ignore[attr-defined]
        self.provide_label = data_iter.provide_label  # type: ignore[attr-defined]
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    def reset(self) -> None:
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        if self.cur == self.size:
            return False
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            try:
                self.current_batch = self.data_iter.next()
            except StopIteration:
                raise ValueError("ResizeIter got an iterator without a single batch") from None
        self.cur += 1
        return True


def _next_batch(iterator: DataIter) -> Any:
    """The next batch, None at the end."""
    try:
        return iterator.next()
    except StopIteration:
        return None


class PrefetchingIter(_Wrapper):
    """The batches of one or several iterators side by side, each made by a thread while the one before is
    used.

    An error in an iterator is raised by the :meth:`next` that would have given its batch.

    Parameters
    ----------
    iters : DataIter or list of DataIter
        Iterators with equally many batches.
    rename_data, rename_label : list of dict, optional
        For each iterator, new names of its inputs and labels.

    Raises
    ------
    ValueError
        Without an iterator, for renamings of another number, and, by :meth:`next`, when one iterator ends
        before another.
    """

    def __init__(
        self,
        iters: Any,
        rename_data: Sequence[Mapping[str, str]] | None = None,
        rename_label: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        self.iters: list[Any] = list(iters) if isinstance(iters, list | tuple) else [iters]
        if not self.iters:
            raise ValueError("PrefetchingIter expected at least one iterator, got none")
        self.n_iter = len(self.iters)
        for what, names in (("rename_data", rename_data), ("rename_label", rename_label)):
            if names is not None and len(names) != self.n_iter:
                raise ValueError(
                    f"PrefetchingIter expected {what} with one dict for each of {self.n_iter} iterators, "
                    f"got {len(names)}"
                )
        self.rename_data = rename_data
        self.rename_label = rename_label
        super().__init__(self.provide_data[0].shape[0])
        self.current_batch = None
        self._threads = ThreadPoolExecutor(self.n_iter, thread_name_prefix="PrefetchingIter")
        self._pending: list[Future[Any]] = []
        self._start()

    def _start(self) -> None:
        self._pending = [self._threads.submit(_next_batch, iterator) for iterator in self.iters]

    def __del__(self) -> None:
        threads = getattr(self, "_threads", None)
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def _provided(self, which: str, renamed: Sequence[Mapping[str, str]] | None) -> list[DataDesc]:
        result: list[DataDesc] = []
        for number, iterator in enumerate(self.iters):
            names = renamed[number] if renamed is not None else {}
            for given in getattr(iterator, which):
                described = given if isinstance(given, DataDesc) else DataDesc(*given)
                name = names.get(described.name, described.name)
                result.append(DataDesc(name, described.shape, described.dtype, described.layout))
        return result

    @property
    def provide_data(self) -> list[DataDesc]:
        """Descriptions of the inputs of all iterators."""
        return self._provided("provide_data", self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Descriptions of the labels of all iterators."""
        return self._provided("provide_label", self.rename_label)

    def reset(self) -> None:
        for pending in self._pending:
            pending.exception()
        for iterator in self.iters:
            iterator.reset()
        self._start()

    def iter_next(self) -> bool:
        batches = [pending.result() for pending in self._pending]
        ended = [batch is None for batch in batches]
        if all(ended):
            return False
        if any(ended):
            raise ValueError(
                f"PrefetchingIter expected iterators with equally many batches; number {ended.index(True)} "
                "ended before the others"
            )
        if len({batch.pad for batch in batches}) > 1:
            raise ValueError(
                "PrefetchingIter expected batches padded alike, got pads "
                + ", ".join(str(batch.pad) for batch in batches)
            )
        self._start()
        first = batches[0]
        self.current_batch = DataBatch(
            [array for batch in batches for array in batch.data],
            [array for batch in batches for array in batch.label or ()],
            first.pad,
            first.index,
            bucket_key=first.bucket_key,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        if self.n_iter == 1 and first.provide_data is not None:
            self.current_batch.provide_data = first.provide_data
            self.current_batch.provide_label = first.provide_label
        return True
