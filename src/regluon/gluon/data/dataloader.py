"""`DataLoader`: batches of a dataset, made in this process, in threads or in worker processes.

Worker processes, their queues, shared memory, time-outs and the transport of exceptions with the worker's own
traceback are ``torch.utils.data``'s. What is ours is in `_BatchSource`: one item of it is one batch, made
under the parent's settings and a seed that belongs to the batch, so that results depend neither on the
number of workers, none included, nor on their timing.
"""

from __future__ import annotations

import multiprocessing
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy
import torch.utils.data

from ...base import config, rng
from ...base.errors import early_end
from ._arrays import host_seed, pack, unpack
from .batchify import default_batchify_fn
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "default_batchify_fn", "default_mp_batchify_fn"]

default_mp_batchify_fn = default_batchify_fn

WORKER_DIED = (
    "A worker process of the DataLoader died ({}). Usual reasons are too little memory, too small a /dev/shm "
    "and a crash in native code. num_workers=0 runs the dataset in this process; thread_pool=True needs "
    "neither processes nor shared memory."
)


class DataLoader:
    """Load a dataset in batches.

    Parameters
    ----------
    dataset
        Anything with ``len()`` and integer indexing.
    batch_size : int
        Samples of one batch; needed unless ``batch_sampler`` is given.
    shuffle : bool
        Read in a new random order, which follows ``mx.random.seed``, in every epoch.
    sampler : Sampler
        The order of reading; excludes ``shuffle``.
    last_batch : {'keep', 'discard', 'rollover'}
        See `BatchSampler`; 'keep' by default.
    batch_sampler : Sampler
        Gives lists of indices; excludes the four arguments above.
    batchify_fn : callable
        Merges a list of samples into a batch; `default_batchify_fn` stacks them.
    num_workers : int
        Worker processes (or threads); 0 makes batches in this process when they are asked for. Processes
        start by ``multiprocessing``'s start method; where that is not "fork", the dataset is sent to them by
        pickle.
    pin_memory : bool
        Put arrays of a batch into page-locked memory, where a GPU is present. ``pin_device_id`` is accepted.
    prefetch : int
        Batches made ahead of their use, ``2 * num_workers`` by default; ignored without workers.
    thread_pool : bool
        Use threads instead of processes: good for datasets whose work releases the interpreter lock.
    timeout : float
        Seconds to wait for a batch of a worker before an error is raised.
    auto_reload, try_nopython
        Accepted for both API generations; they do not change results.

    Raises
    ------
    ValueError
        When arguments exclude each other or ``batch_size`` is missing.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        auto_reload: bool = False,
        try_nopython: bool | None = None,
    ) -> None:
        if batch_sampler is None:
            if batch_size is None:
                raise ValueError("batch_size must be specified unless batch_sampler is specified")
            if sampler is not None and shuffle:
                raise ValueError("shuffle must not be specified if sampler is specified")
            if sampler is None:
                sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
            batch_sampler = BatchSampler(sampler, batch_size, last_batch or "keep")
        elif batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "batch_size, shuffle, sampler and last_batch must not be specified if batch_sampler is "
                "specified."
            )
        if timeout <= 0:
            raise ValueError(f"DataLoader expected a timeout of more than 0 seconds, got {timeout}")
        self._dataset = dataset
        self._batch_sampler = batch_sampler
        self._batchify_fn = default_batchify_fn if batchify_fn is None else batchify_fn
        self._num_workers = max(0, num_workers)
        self._pin_memory = pin_memory
        self._prefetch = max(1, 2 * self._num_workers if prefetch is None else int(prefetch))
        self._thread_pool = thread_pool
        self._timeout = timeout

    def __len__(self) -> int:
        """The number of batches of one epoch."""
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if self._num_workers == 0:
            return self._iterate_here()
        return self._iterate_threads() if self._thread_pool else self._iterate_processes()

    def refresh(self) -> None:
        """Accepted for 1.x code: workers start anew with every iteration, so nothing can be stale."""

    def clean(self) -> None:
        """Accepted for 1.x code: workers end with their iteration."""

    def _iterate_here(self) -> Iterator[Any]:
        for seed, indices in self._jobs():
            batch = self._make(seed, indices)
            yield unpack(pack(batch), True) if self._pin_memory else batch

    def _jobs(self) -> _Jobs:
        return _Jobs(self._batch_sampler, host_seed())

    def _make(self, seed: int, indices: Any) -> Any:
        """A batch whose random draws, of `mx.random` and of transforms, follow from its seed."""
        with rng.drawing_from(seed):
            return _batch(self._dataset, indices, self._batchify_fn)

    def _iterate_threads(self) -> Iterator[Any]:
        settings = _Settings()

        def work(seed: int, indices: Any) -> Any:
            settings.apply_to_thread()
            return self._make(seed, indices)

        executor = ThreadPoolExecutor(self._num_workers, thread_name_prefix="regluon-data")
        waiting: deque[Future[Any]] = deque()
        try:
            for seed, indices in self._jobs():
                waiting.append(executor.submit(work, seed, indices))
                if len(waiting) > self._prefetch:
                    yield self._take(waiting.popleft())
            while waiting:
                yield self._take(waiting.popleft())
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _take(self, future: Future[Any]) -> Any:
        try:
            batch = future.result(self._timeout)
        except FutureTimeoutError as error:
            if future.done():  # the dataset's own TimeoutError, not ours
                raise
            raise RuntimeError(
                f"DataLoader timed out after {self._timeout} seconds waiting for a batch of a worker "
                "thread: raise timeout=, or look for what blocks in the dataset's __getitem__ or "
                "transform with num_workers=0."
            ) from error
        return unpack(pack(batch), True) if self._pin_memory else batch

    def _iterate_processes(self) -> Iterator[Any]:
        jobs = self._jobs()
        loader = torch.utils.data.DataLoader(
            _BatchSource(self._dataset, self._batchify_fn),
            batch_size=None,
            sampler=jobs,
            collate_fn=_unchanged,
            num_workers=self._num_workers,
            prefetch_factor=max(1, -(-self._prefetch // self._num_workers)),
            timeout=self._timeout,
            generator=torch.Generator().manual_seed(jobs.seed),
            multiprocessing_context=multiprocessing.get_start_method(),
        )
        batches = iter(loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (RuntimeError, OSError, EOFError) as error:
                if _is_of_a_dead_worker(error):
                    raise RuntimeError(WORKER_DIED.format(error)) from error
                raise
            yield unpack(batch, self._pin_memory)


def _batch(dataset: Any, indices: Any, batchify_fn: Callable[[list[Any]], Any]) -> Any:
    try:
        return batchify_fn(_samples(dataset, indices))
    except StopIteration as error:
        # From a worker process it would be taken for the end of the epoch.
        raise early_end(f"a {type(dataset).__name__} or the batchify_fn of a DataLoader") from error


def _samples(dataset: Any, indices: Any) -> list[Any]:
    """Samples by index; an exception tells at which one it came (from Python 3.11 on)."""
    found = []
    for index in indices:
        try:
            found.append(dataset[index])
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"This was sample {index!r} of a {type(dataset).__name__} in a DataLoader.")
            raise
    return found


def _is_of_a_dead_worker(error: Exception) -> bool:
    text = str(error)
    if "Original Traceback" in text:  # a worker lived to report an error of the dataset
        return False
    return isinstance(error, (OSError, EOFError)) or "exited unexpectedly" in text or "killed by" in text


class _Settings:
    """The settings of the parent, which a worker takes over."""

    def __init__(self) -> None:
        self._all = config.snapshot()
        self._modes = (config.is_np_shape(), config.is_np_array())

    def apply_to_thread(self) -> None:
        config.set_np_shape(self._modes[0])
        config.set_np_array(self._modes[1])

    def apply_to_process(self) -> None:
        config.restore(self._all)


class _Jobs(torch.utils.data.Sampler[Any]):
    """The batches of one epoch as (seed, indices)."""

    def __init__(self, batch_sampler: Any, seed: int) -> None:
        self._batch_sampler = batch_sampler
        self.seed = seed

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        for number, indices in enumerate(self._batch_sampler):
            # Odd multiplier, so distinct batches get distinct seeds modulo 2^62.
            yield (self.seed + number * 0x9E3779B97F4A7C15) % (1 << 62), indices


class _BatchSource(torch.utils.data.Dataset[Any]):
    """A map from (seed, indices) to a batch, as torch's worker loop wants it."""

    def __init__(self, dataset: Any, batchify_fn: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._batchify_fn = batchify_fn
        self._settings = _Settings()

    def __getitem__(self, job: tuple[int, Any]) -> Any:
        seed, indices = job
        self._settings.apply_to_process()
        _seed_everything(seed)
        with rng.drawing_from(seed):
            return pack(_batch(self._dataset, indices, self._batchify_fn))


def _seed_everything(seed: int) -> None:
    """Seed every generator that a dataset or transform may draw from in a worker."""
    from ... import random as mx_random

    mx_random.seed(seed % (1 << 31))
    random.seed(seed)
    numpy.random.seed(seed % (1 << 32))
    torch.manual_seed(seed)


def _unchanged(batch: Any) -> Any:
    return batch
