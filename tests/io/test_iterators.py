"""Iterators over arrays, and the wrappers; the orders are those of 1.9.1."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy
import pytest

import regluon as mx

X = numpy.arange(20).reshape(10, 2).astype("f")
Y = numpy.arange(10)


def epoch(data: Any) -> list[tuple[list[float], int]]:
    """Labels and padding of every batch; rows must go with their labels."""
    found = []
    for batch in data:
        labels = batch.label[0].asnumpy()
        assert (batch.data[0].asnumpy()[:, 0] == 2 * labels).all()
        found.append((labels.tolist(), batch.pad))
    data.reset()
    return found


def test_descriptions_are_pairs_with_type_and_layout() -> None:
    described = mx.io.DataDesc("data", (2, 3))
    assert described == ("data", (2, 3)) and described.dtype is numpy.float32
    assert repr(described) == "DataDesc[data,(2, 3),<class 'numpy.float32'>,NCHW]"
    assert repr(mx.io.DataDesc("d", (1,), "int8", "T")) == "DataDesc[d,(1,),int8,T]"
    assert [mx.io.DataDesc.get_batch_axis(layout) for layout in ("TNC", "NCHW", None, "TC")] == [1, 0, 0, -1]
    listed = mx.io.DataDesc.get_list([("a", (1, 2)), ("b", (3,))], [("a", "int32")])
    assert listed[0].dtype == "int32" and listed[1].dtype is numpy.float32
    for other in (pickle.loads(pickle.dumps(listed[0])), copy.deepcopy(listed[0])):
        assert other == listed[0] and other.dtype == "int32" and other.layout == "NCHW"


def test_batches_hold_lists() -> None:
    batch = mx.io.DataBatch([mx.nd.ones((2, 3))])
    assert str(batch) == "DataBatch: data shapes: [(2, 3)] label shapes: None"
    assert (batch.label, batch.pad, batch.index, batch.bucket_key, batch.provide_data) == (None,) * 5
    with pytest.raises(TypeError, match=r"data as a list of arrays, got NDArray; write data=\[array\]"):
        mx.io.DataBatch(mx.nd.ones(2))
    with pytest.raises(TypeError, match="label as a list"):
        mx.io.DataBatch([mx.nd.ones(2)], mx.nd.ones(2))


def test_last_batch_is_padded_discarded_or_rolled_over() -> None:
    first, second, third = [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]
    padded = mx.io.NDArrayIter(X, Y, 4)
    assert epoch(padded) == epoch(padded) == [(first, 0), (second, 0), (third, 2)]
    discarding = mx.io.NDArrayIter(X, Y, 4, last_batch_handle="discard")
    assert epoch(discarding) == epoch(discarding) == [(first, 0), (second, 0)]
    rolling = mx.io.NDArrayIter(X, Y, 4, last_batch_handle="roll_over")
    for _ in range(2):
        assert epoch(rolling) == [(first, 0), (second, 0)]
        assert epoch(rolling) == [(third, 2), ([2, 3, 4, 5], 0), ([6, 7, 8, 9], 0)]
    list(rolling)
    # Asking again after the end loses nothing.
    assert not rolling.iter_next()
    rolling.reset()
    assert next(rolling).label[0].asnumpy().tolist() == third
    list(rolling)
    rolling.hard_reset()
    assert next(rolling).label[0].asnumpy().tolist() == first


def test_batches_larger_than_the_data() -> None:
    whole = list(range(10))
    assert epoch(mx.io.NDArrayIter(X, Y, 12)) == [([*whole, 0, 1], 2)]
    assert epoch(mx.io.NDArrayIter(X, Y, 25)) == [([*whole, *whole, 0, 1, 2, 3, 4], 15)]
    assert epoch(mx.io.NDArrayIter(X, Y, 12, last_batch_handle="discard")) == []
    rolling = mx.io.NDArrayIter(X, Y, 12, last_batch_handle="roll_over")
    assert epoch(rolling) == [] and epoch(rolling) == [([*whole, 0, 1], 10)]


def test_a_seed_gives_the_orders_of_the_original() -> None:
    numpy.random.seed(1)
    data = mx.io.NDArrayIter(X, Y, 4, shuffle=True)
    assert [labels for labels, _ in epoch(data)] == [[2, 9, 6, 4], [0, 3, 1, 7], [8, 5, 2, 9]]
    assert [labels for labels, _ in epoch(data)] == [[3, 4, 0, 6], [8, 2, 1, 5], [9, 7, 3, 4]]
    numpy.random.seed(1)
    data = mx.io.NDArrayIter(X, Y, 4, shuffle=True, last_batch_handle="roll_over")
    assert [labels for labels, _ in epoch(data)] == [[2, 9, 6, 4], [0, 3, 1, 7]]
    assert epoch(data) == [([8, 5, 3, 4], 2), ([0, 6, 8, 2], 0), ([1, 5, 9, 7], 0)]


def test_names_types_and_kinds() -> None:
    data = mx.io.NDArrayIter({"b": X, "a": mx.nd.array(X, dtype="int32")}, {"l": Y}, 4, layout="NC")
    assert [(given.name, given.shape, given.dtype, given.layout) for given in data.provide_data] == [
        ("a", (4, 2), numpy.int32, "NC"),
        ("b", (4, 2), numpy.float32, "NC"),
    ]
    batch = next(data)
    assert [array.dtype for array in batch.data + batch.label] == [numpy.int32, numpy.float32, numpy.float32]
    several = mx.io.NDArrayIter([X, X], [Y, Y], 4)
    assert [given.name for given in several.provide_data] == ["_0_data", "_1_data"]
    assert [given.name for given in several.provide_label] == ["_0_softmax_label", "_1_softmax_label"]
    alone = mx.io.NDArrayIter([X.astype("d")], None, 4, data_name="x")
    assert [given.name for given in alone.provide_data] == ["x"] and alone.provide_label == []
    assert next(alone).label == [] and next(alone).data[0].dtype is numpy.float32
    assert isinstance(next(mx.io.NDArrayIter(mx.np.array(X), Y, 4)).data[0], mx.np.ndarray)
    single = mx.io.NDArrayIter(X, Y, 4)
    assert single.iter_next() and single.getpad() == 0 and single.getindex() is None
    assert single.getlabel()[0].asnumpy().tolist() == [0, 1, 2, 3]


def test_sparse_rows_stay_sparse() -> None:
    dense = numpy.arange(15).reshape(5, 3) % 4 * (numpy.arange(3) != 1)
    data = mx.io.NDArrayIter(mx.nd.array(dense).tostype("csr"), None, 2, shuffle=True)
    found = []
    for batch in data:
        assert batch.data[0].stype == "csr"
        batch.data[0].check_format()
        found.append(batch.data[0].asnumpy())
    assert (numpy.concatenate(found) == dense[data._order[numpy.arange(6) % 5]]).all()


def test_batches_are_copies() -> None:
    data = mx.io.NDArrayIter(mx.nd.array(X), Y, 4)
    next(data).data[0][:] = 0
    data.reset()
    assert next(data).data[0].asnumpy()[1, 0] == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((X, Y, 2, False, "foo"), ValueError, "'pad', 'discard' or 'roll_over', got 'foo'"),
        ((X, Y[:5], 2), ValueError, "equally many rows, got data: 10, softmax_label: 5"),
        ((None, Y, 2), ValueError, "at least one array of data, got None"),
        (([], Y, 2), ValueError, "at least one array of data"),
        ((X[:0], None, 2), ValueError, "at least one row"),
        ((X, Y, 0), ValueError, "batch_size of at least 1"),
        (("a", Y, 2), TypeError, "'data' is of type str"),
    ],
)
def test_wrong_arguments_are_named(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mx.io.NDArrayIter(*arguments)


def test_resized_epochs() -> None:
    data = mx.io.ResizeIter(mx.io.NDArrayIter(X, Y, 4), 5)
    wanted = [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9, 0, 1], 2)]
    assert epoch(data) == epoch(data) == [*wanted, *wanted[:2]]
    going_on = mx.io.ResizeIter(mx.io.NDArrayIter(X, Y, 4), 2, reset_internal=False)
    assert epoch(going_on) + epoch(going_on) + epoch(going_on) == wanted * 2
    assert data.provide_data[0] == ("data", (4, 2)) and data.batch_size == 4
    with pytest.raises(ValueError, match="without a single batch"):
        next(mx.io.ResizeIter(mx.io.NDArrayIter(X, Y, 12, last_batch_handle="discard"), 1))


def test_prefetching_joins_iterators() -> None:
    data = mx.io.PrefetchingIter(
        [mx.io.NDArrayIter(X, Y, 4), mx.io.NDArrayIter(X + 100, Y, 4)],
        rename_data=[{"data": "one"}, {"data": "two"}],
        rename_label=[{"softmax_label": "l1"}, {"softmax_label": "l2"}],
    )
    assert [given.name for given in data.provide_data + data.provide_label] == ["one", "two", "l1", "l2"]
    assert data.batch_size == 4
    for _ in range(2):
        batches = list(data)
        assert [batch.pad for batch in batches] == [0, 0, 2]
        assert batches[1].data[1].asnumpy()[:, 0].tolist() == [108, 110, 112, 114]
        with pytest.raises(StopIteration):
            data.next()
        data.reset()
    next(data)
    data.reset()
    assert next(data).label[0].asnumpy().tolist() == [0, 1, 2, 3]
    single = mx.io.PrefetchingIter(mx.io.NDArrayIter(X, Y, 4))
    assert epoch(single) == epoch(single) == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9, 0, 1], 2)]


def test_prefetching_works_ahead_and_passes_errors_on() -> None:
    started = threading.Event()

    class Failing(mx.io.NDArrayIter):
        count = 0

        def next(self) -> Any:
            self.count += 1
            if self.count == 2:
                started.set()
                raise RuntimeError("disk is gone")
            return super().next()

    data = mx.io.PrefetchingIter(Failing(X, Y, 4))
    next(data)
    assert started.wait(10)
    with pytest.raises(RuntimeError, match="disk is gone"):
        next(data)
    unequal = mx.io.PrefetchingIter([mx.io.NDArrayIter(X, Y, 5), mx.io.NDArrayIter(X[:5], Y[:5], 5)])
    next(unequal)
    with pytest.raises(ValueError, match="number 1 ended before the others"):
        next(unequal)
    with pytest.raises(ValueError, match="one dict for each of 1 iterators, got 2"):
        mx.io.PrefetchingIter([mx.io.NDArrayIter(X, Y, 5)], rename_data=[{}, {}])
    with pytest.raises(ValueError, match="at least one iterator"):
        mx.io.PrefetchingIter([])


def test_own_iterators_define_next_or_its_parts() -> None:
    class Parts(mx.io.DataIter):
        left = 2

        def iter_next(self) -> bool:
            self.left -= 1
            return self.left >= 0

        def getdata(self) -> Any:
            return [mx.nd.ones(1)]

        getlabel = getdata

        def getpad(self) -> int:
            return 0

    assert [batch.pad for batch in Parts(3)] == [0, 0]
    with pytest.raises(NotImplementedError, match=r"DataIter must define next\(\) or iter_next\(\)"):
        next(mx.io.DataIter())
