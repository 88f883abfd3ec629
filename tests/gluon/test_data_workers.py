"""Workers of the DataLoader: errors instead of hangs, nothing left behind, chance that follows one seed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon import gluon
from regluon.gluon import data


class Mishap(data.Dataset):
    """Samples of 1000 numbers; something happens at sample 9."""

    def __init__(self, what: str = "nothing") -> None:
        self._what = what

    def __len__(self) -> int:
        return 24

    def __getitem__(self, idx: int) -> Any:
        if idx == 9 and self._what == "exit":
            os._exit(3)
        if idx == 9 and self._what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if idx == 9 and self._what == "refused":
            raise ConnectionRefusedError("the server of sample nine")
        if idx == 9 and self._what == "stop":
            next(iter([]))
        if idx == 9 and self._what == "sleep":
            time.sleep(2)
        return mx.nd.full((1000,), idx)


class Chance(data.Dataset):
    """Samples of every generator that a transform may use."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, idx: int) -> Any:
        own = float(mx.nd.random.uniform(shape=(1,)).asscalar())
        return numpy.float64([random.random(), numpy.random.rand(), float(torch.rand(())), own])


def loader(what: str = "nothing", **options: Any) -> data.DataLoader:
    return data.DataLoader(Mishap(what), **{"batch_size": 4, "num_workers": 2, **options})


@pytest.mark.parametrize("what", ["exit", "kill"])
def test_a_worker_that_dies_is_an_error_and_no_hang(what: str) -> None:
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=r"(?s)worker process of the DataLoader died .*num_workers=0"):
        list(loader(what))
    assert time.monotonic() - begun < 20
    gc.collect()
    assert not multiprocessing.active_children()


def exhausted(sample: Any) -> Any:
    if sample[0] == 9:
        next(iter([]))
    return sample


class Exhausted(gluon.HybridBlock):
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        next(iter([]))
        return x


def exhausted_batch(samples: list[Any]) -> Any:
    return [exhausted(sample) for sample in samples]


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"thread_pool": True}, {}])
def test_an_iterator_that_is_exhausted_does_not_end_the_epoch(options: dict[str, Any]) -> None:
    end = r"raised StopIteration, which would end the loop over the data .* give next\(\) a default"
    with pytest.raises(RuntimeError, match=rf"(?s)a Mishap or the batchify_fn of a DataLoader {end}"):
        list(loader("stop", **options))
    with pytest.raises(RuntimeError, match=rf"(?s)or the batchify_fn of a DataLoader {end}"):
        list(loader(batchify_fn=exhausted_batch, **options))
    transformed = Mishap().transform(exhausted)
    with pytest.raises(RuntimeError, match=rf"(?s)the transform of sample 9 of a Mishap {end}"):
        list(data.DataLoader(transformed, 4, **{"num_workers": 2, **options}))


@pytest.mark.parametrize("hybridize", [False, True])
def test_an_exhausted_transform_does_not_end_a_dataset(hybridize: bool) -> None:
    with pytest.raises(RuntimeError, match="the transform of sample 9 of a Mishap raised StopIteration"):
        list(Mishap().transform(exhausted))
    net = Exhausted()
    net.hybridize(hybridize)
    for lazy in (True, False):
        with pytest.raises(RuntimeError, match="the transform of sample 0 of a Mishap raised") as caught:
            list(Mishap().transform(net, lazy=lazy))
        assert type(caught.value.__cause__) is StopIteration


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"thread_pool": True}, {}])
def test_an_error_of_the_dataset_says_which_sample_it_was(options: dict[str, Any]) -> None:
    with pytest.raises(ConnectionRefusedError, match="the server of sample nine") as caught:
        list(loader("refused", **options))
    told = str(caught.value) + "\n".join(getattr(caught.value, "__notes__", []))
    if hasattr(caught.value, "add_note"):
        assert "sample 9 of a Mishap" in told


@pytest.mark.parametrize("thread_pool", [False, True])
def test_a_worker_that_is_too_slow(thread_pool: bool) -> None:
    with pytest.raises(RuntimeError, match=r"timed out after 0\.3 seconds"):
        list(loader("sleep", timeout=0.3, thread_pool=thread_pool))


def test_nothing_is_left_after_an_epoch_or_half_of_one() -> None:
    shared = Path("/dev/shm")
    before = sorted(shared.iterdir()) if shared.is_dir() else []
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        held = list(loader())
        for batch in loader():
            assert batch.shape == (4, 1000)
            break
    assert [int(batch.asnumpy()[0, 0]) for batch in held] == [0, 4, 8, 12, 16, 20]
    del held, batch
    gc.collect()
    assert not multiprocessing.active_children()
    assert (sorted(shared.iterdir()) if shared.is_dir() else []) == before
    if files:
        assert len(os.listdir("/proc/self/fd")) <= files + 2


def test_workers_differ_and_follow_the_seed() -> None:
    def drawn(seed: int, workers: int) -> numpy.ndarray:
        mx.random.seed(seed)
        batches = data.DataLoader(Chance(), batch_size=2, num_workers=workers)
        return numpy.concatenate([batch.asnumpy() for batch in batches])

    two, one, other = drawn(7, 2), drawn(7, 1), drawn(8, 2)
    numpy.testing.assert_array_equal(two, one)
    assert (two != other).all()
    for column in two.T:
        assert len(numpy.unique(column)) == len(column), "two samples drew the same number"


def test_epochs_differ_and_threads_follow_the_seed() -> None:
    def own(batches: data.DataLoader) -> list[float]:
        return [float(value) for batch in batches for value in batch.asnumpy()[:, 3]]

    threads = data.DataLoader(Chance(), batch_size=3, num_workers=2, thread_pool=True)
    mx.random.seed(11)
    first, second = own(threads), own(threads)
    mx.random.seed(11)
    assert own(data.DataLoader(Chance(), batch_size=3)) == first
    assert not set(first) & set(second)


def test_workers_after_the_parent_computed_with_several_threads() -> None:
    """A fork after native threads ran must not block in the child."""
    weights = torch.rand(400, 400)
    held, threads = weights @ weights, torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(3):
            held = weights @ held / 400
        assert len(list(loader(timeout=30))) == 6
    finally:
        torch.set_num_threads(threads)
