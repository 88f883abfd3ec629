"""Samplers: the order in which a loader reads a dataset, as an iteration over indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ._arrays import host_seed

__all__ = [
    "BatchSampler",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
]


class Sampler:
    """Base of every sampler: a subclass defines ``__iter__()`` over indices and ``__len__()``."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")


class SequentialSampler(Sampler):
    """The indices ``start, start + 1, ..., start + length - 1``."""

    def __init__(self, length: int, start: int = 0) -> None:
        self._length = length
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """The indices ``0 ... length - 1``, each once, in a new random order on every iteration.

    The order follows ``mx.random.seed``.
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(host_seed())
        return iter(torch.randperm(self._length, generator=generator).tolist())

    def __len__(self) -> int:
        return self._length


class FilterSampler(Sampler):
    """The indices of the samples of ``dataset`` for which ``fn(sample)`` is true."""

    def __init__(self, fn: Callable[[Any], Any], dataset: Any) -> None:
        self._fn = fn
        self._dataset = dataset
        self._indices = [index for index in range(len(dataset)) if fn(dataset[index])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class IntervalSampler(Sampler):
    """Every ``interval``-th index of ``0 ... length - 1``: ``0, interval, 2 * interval, ...``.

    With ``rollover=True`` the passes starting at ``1, 2, ...`` follow, so that every index appears once.
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        if not 1 <= interval <= length:
            raise ValueError(
                f"IntervalSampler expected 1 <= interval <= length = {length}, got interval {interval}"
            )
        self._length = length
        self._interval = interval
        self._rollover = rollover

    def __iter__(self) -> Iterator[int]:
        for start in range(self._interval if self._rollover else 1):
            yield from range(start, self._length, self._interval)

    def __len__(self) -> int:
        return self._length if self._rollover else len(range(0, self._length, self._interval))


class BatchSampler(Sampler):
    """Group the indices of ``sampler`` into lists of ``batch_size``.

    Parameters
    ----------
    last_batch : {'keep', 'discard', 'rollover'}
        What happens to a rest that is smaller than a batch: it is given as a smaller batch, dropped, or kept
        for the beginning of the next iteration.
    """

    def __init__(self, sampler: Sampler, batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(
                f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {last_batch}"
            )
        if batch_size < 1:
            raise ValueError(f"BatchSampler expected a batch_size of at least 1, got {batch_size}")
        self._sampler = sampler
        self._batch_size = batch_size
        self._last_batch = last_batch
        self._rest: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._rest = self._rest, []
        for index in self._sampler:
            batch.append(index)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if not batch:
            return
        if self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._rest = batch

    def __len__(self) -> int:
        length = len(self._sampler)
        if self._last_batch == "keep":
            return -(-length // self._batch_size)
        if self._last_batch == "discard":
            return length // self._batch_size
        return (length + len(self._rest)) // self._batch_size
