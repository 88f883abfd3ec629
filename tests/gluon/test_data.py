"""Datasets, samplers, batch functions and the loader, against NumPy and what the originals give."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.base import config
from regluon.gluon import data


class Numbers(data.Dataset):
    """Sample i is an array of three i's and the number i."""

    def __init__(self, length: int = 40) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, idx: int) -> Any:
        return mx.nd.full((3,), idx), numpy.float32(idx)


class Failing(Numbers):
    def __getitem__(self, idx: int) -> Any:
        if idx == 5:
            raise KeyError("sample five is broken")
        return super().__getitem__(idx)


class Slow(Numbers):
    def __getitem__(self, idx: int) -> Any:
        time.sleep(0.7)
        return idx


class Noisy(data.Dataset):
    """Samples of all the generators that a transform may use."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, idx: int) -> Any:
        return numpy.float64([numpy.random.rand(), float(mx.nd.random.uniform(shape=(1,)).asscalar())])


def values(dataset: Any) -> list[Any]:
    return [dataset[i] for i in range(len(dataset))]


def test_dataset_views() -> None:
    dataset = data.SimpleDataset([1, 2, 3, 4, 5])
    assert values(dataset.filter(lambda x: x > 2)) == [3, 4, 5]
    assert values(dataset.take(2)) == [1, 2]
    assert values(dataset.take(9)) == values(dataset.take(None)) == [1, 2, 3, 4, 5]
    assert values(dataset.sample(data.SequentialSampler(2, 1))) == [2, 3]
    assert values(dataset.transform(lambda x: 2 * x)) == [2, 4, 6, 8, 10]
    assert isinstance(dataset.transform(lambda x: x, lazy=False), data.SimpleDataset)


@pytest.mark.parametrize(("parts", "expected"), [(2, [[1, 2, 3], [4, 5]]), (3, [[1, 2], [3, 4], [5]])])
def test_shards_are_those_of_the_originals(parts: int, expected: list[list[int]]) -> None:
    dataset = data.SimpleDataset([1, 2, 3, 4, 5])
    assert [values(dataset.shard(parts, index)) for index in range(parts)] == expected


def test_dataset_errors() -> None:
    dataset = data.SimpleDataset([1, 2, 3])
    with pytest.raises(ValueError, match=r"0 <= index < num_shards = 2, got index 2"):
        dataset.shard(2, 2)
    with pytest.raises(ValueError, match="count of at least 0 or None, got -1"):
        dataset.take(-1)
    with pytest.raises(TypeError, match=r"Expected gluon\.data\.Sampler"):
        dataset.sample([0, 1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="array 0 has length 2 and array 1 has 1"):
        data.ArrayDataset([1, 2], [1])
    with pytest.raises(ValueError, match="at least 1 array"):
        data.ArrayDataset()


def test_transform_spreads_tuples_and_first_keeps_the_rest() -> None:
    dataset = data.ArrayDataset([1, 2], [10, 20])
    assert values(dataset.transform(lambda x, y: x + y)) == [11, 22]
    assert values(dataset.transform_first(lambda x: -x)) == [(-1, 10), (-2, 20)]


def test_array_dataset_gives_scalars_of_vectors() -> None:
    item = data.ArrayDataset(mx.nd.array([1, 2]))[0]
    assert isinstance(item, numpy.float32) and item == 1
    rows, label = data.ArrayDataset(mx.nd.ones((2, 3)), [0, 1])[1]
    assert rows.shape == (3,) and label == 1


def test_samplers() -> None:
    assert list(data.SequentialSampler(3, 2)) == [2, 3, 4]
    assert sorted(data.RandomSampler(20)) == list(range(20))
    assert list(data.IntervalSampler(13, 3))[:7] == [0, 3, 6, 9, 12, 1, 4]
    assert list(data.IntervalSampler(13, 3, rollover=False)) == [0, 3, 6, 9, 12]
    assert len(data.IntervalSampler(13, 3, rollover=False)) == 5
    assert list(data.FilterSampler(lambda x: x % 2, data.SimpleDataset([1, 2, 3]))) == [0, 2]
    with pytest.raises(ValueError, match="interval <= length = 2, got interval 3"):
        data.IntervalSampler(2, 3)


@pytest.mark.parametrize(
    ("last_batch", "first", "second"),
    [
        ("keep", [[0, 1, 2, 3], [4, 5]], [[0, 1, 2, 3], [4, 5]]),
        ("discard", [[0, 1, 2, 3]], [[0, 1, 2, 3]]),
        ("rollover", [[0, 1, 2, 3]], [[4, 5, 0, 1], [2, 3, 4, 5]]),
    ],
)
def test_last_batch(last_batch: str, first: list[list[int]], second: list[list[int]]) -> None:
    loader = data.DataLoader(data.SimpleDataset(list(range(6))), batch_size=4, last_batch=last_batch)
    for expected in (first, second):
        assert len(loader) == len(expected)
        assert [batch.asnumpy().tolist() for batch in loader] == expected


def test_last_batch_unknown() -> None:
    with pytest.raises(ValueError, match="must be one of 'keep', 'discard', or 'rollover', but got foo"):
        data.BatchSampler(data.SequentialSampler(5), 2, "foo")


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([1.0, 2.0], numpy.array([1.0, 2.0])),
        ([1, 2], numpy.array([1, 2])),
        ([numpy.float32(1), numpy.float32(2)], numpy.array([1, 2], "float32")),
        ([[1, 2], [3, 4]], numpy.array([[1, 2], [3, 4]])),
        ([True, False], numpy.array([True, False])),
        ([numpy.ones(2, "uint8")] * 2, numpy.ones((2, 2), "uint8")),
    ],
)
def test_batch_of_plain_values(level: int, samples: list[Any], expected: numpy.ndarray) -> None:
    config.set_api(level)
    batch = data.batchify.Stack()(samples)
    assert type(batch) is (mx.nd.NDArray if level == 1 else mx.np.ndarray)
    assert batch.asnumpy().dtype == expected.dtype
    numpy.testing.assert_array_equal(batch.asnumpy(), expected)


def test_arrays_keep_their_kind_in_a_batch() -> None:
    assert type(data.batchify.Stack()([mx.nd.ones(2)] * 2)) is mx.nd.NDArray
    assert type(data.batchify.Stack()([mx.np.ones(2)] * 2)) is mx.np.ndarray


def test_batches_of_tuples_and_dicts() -> None:
    first, second = data.batchify.Stack()(
        [(numpy.float32(1), numpy.ones(2)), (numpy.float32(2), numpy.ones(2))]
    )
    assert first.shape == (2,) and second.shape == (2, 2)
    batch = data.batchify.Stack()([{"a": 1}, {"a": 2}])
    assert batch["a"].asnumpy().tolist() == [1, 2]


def test_stack_errors() -> None:
    with pytest.raises(ValueError, match=r"sample 0 of the batch has \(2,\), sample 1 has \(3,\)"):
        data.batchify.Stack()([numpy.ones(2), numpy.ones(3)])
    with pytest.raises(TypeError, match=r"samples of type str.*AsList"):
        data.batchify.Stack()(["a", "b"])


def test_pad_group_append_as_list() -> None:
    pad = data.batchify.Pad(val=-1, dtype="int32", round_to=4)
    batch = pad([numpy.array([1, 2, 3]), numpy.array([4])])
    assert batch.asnumpy().tolist() == [[1, 2, 3, -1], [4, -1, -1, -1]] and batch.asnumpy().dtype == "int32"
    corner = data.batchify.Pad()([numpy.ones((2, 2)), numpy.ones((3, 1))]).asnumpy()
    assert corner.tolist() == [[[1, 1], [1, 1], [0, 0]], [[1, 0], [1, 0], [1, 0]]]
    numbers, names = data.batchify.Group(data.batchify.Stack(), data.batchify.AsList())([(1, "a"), (2, "b")])
    assert numbers.asnumpy().tolist() == [1, 2] and names == ["a", "b"]
    assert [item.shape for item in data.batchify.Append()([[1, 2, 3], [4]])] == [(1, 3), (1, 1)]
    with pytest.raises(TypeError, match=r"batchify\.Group"):
        data.batchify.Pad()([(1, 2)])
    with pytest.raises(ValueError, match="1 functions and expects as many fields, got 2"):
        data.batchify.Group(data.batchify.Stack())([(1, 2)])
    with pytest.raises(TypeError, match="argument 0 is int"):
        data.batchify.Group(3)


def test_loader_arguments() -> None:
    dataset = data.SimpleDataset([1, 2, 3])
    with pytest.raises(ValueError, match="batch_size must be specified"):
        data.DataLoader(dataset)
    with pytest.raises(ValueError, match="shuffle must not be specified if sampler"):
        data.DataLoader(dataset, batch_size=2, shuffle=True, sampler=data.SequentialSampler(3))
    with pytest.raises(ValueError, match="must not be specified if batch_sampler"):
        data.DataLoader(dataset, batch_size=2, batch_sampler=data.BatchSampler(data.SequentialSampler(3), 2))
    with pytest.raises(ValueError, match="timeout of more than 0 seconds, got 0"):
        data.DataLoader(dataset, batch_size=2, timeout=0)


@pytest.mark.parametrize("thread_pool", [False, True])
def test_workers_keep_order_and_can_be_left_early(thread_pool: bool) -> None:
    loader = data.DataLoader(Numbers(), batch_size=8, num_workers=2, thread_pool=thread_pool, timeout=30)
    for _ in loader:
        break
    batches = list(loader)
    assert all(type(x) is mx.nd.NDArray for x, _ in batches)
    numpy.testing.assert_array_equal(numpy.concatenate([y.asnumpy() for _, y in batches]), numpy.arange(40))
    numpy.testing.assert_array_equal(
        numpy.concatenate([x.asnumpy()[:, 2] for x, _ in batches]), numpy.arange(40)
    )


@pytest.mark.parametrize("thread_pool", [False, True])
def test_worker_settings_are_the_parents(thread_pool: bool) -> None:
    config.set_api(1)
    loader = data.DataLoader(
        data.SimpleDataset([1.0, 2.0]), batch_size=2, num_workers=1, thread_pool=thread_pool, pin_memory=True
    )
    (batch,) = list(loader)
    assert type(batch) is mx.nd.NDArray


def test_worker_exception_has_the_workers_traceback() -> None:
    with pytest.raises(KeyError, match=r"(?s)Original Traceback.*__getitem__.*sample five is broken"):
        list(data.DataLoader(Failing(), batch_size=4, num_workers=1))
    with pytest.raises(KeyError, match="sample five is broken"):
        list(data.DataLoader(Failing(), batch_size=4, num_workers=1, thread_pool=True))


def test_worker_timeout() -> None:
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        list(data.DataLoader(Slow(1), batch_size=1, num_workers=1, timeout=0.2))


def test_one_seed_reaches_shuffling() -> None:
    def order() -> list[int]:
        loader = data.DataLoader(data.SimpleDataset(list(range(50))), batch_size=10, shuffle=True)
        return numpy.concatenate([batch.asnumpy() for batch in loader]).tolist()

    mx.random.seed(3)
    first, next_epoch = order(), order()
    mx.random.seed(3)
    assert order() == first != next_epoch
    assert sorted(first) == list(range(50)) != first


def test_one_seed_reaches_workers_whatever_their_number() -> None:
    def draw(workers: int) -> numpy.ndarray:
        mx.random.seed(5)
        return numpy.concatenate(
            [b.asnumpy() for b in data.DataLoader(Noisy(), batch_size=2, num_workers=workers)]
        )

    one, two = draw(1), draw(2)
    numpy.testing.assert_array_equal(one, two)
    assert len(numpy.unique(one)) == one.size, "workers drew the same numbers"


def test_spawned_workers(tmp_path: Any) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import regluon as mx
            from regluon.gluon import data

            class Squares(data.Dataset):
                def __len__(self):
                    return 6

                def __getitem__(self, idx):
                    return mx.np.array([idx * idx])

            if __name__ == "__main__":
                multiprocessing.set_start_method("spawn")
                loader = data.DataLoader(Squares(), batch_size=2, num_workers=1)
                print([batch.asnumpy().ravel().tolist() for batch in loader])
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[[0.0, 1.0], [4.0, 9.0], [16.0, 25.0]]", done.stderr
