"""What a hybridized block may be called with, and what happens where its Python needs values."""

from __future__ import annotations

import math
import threading
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

Pair = namedtuple("Pair", "first second")


# Arguments -------------------------------------------------------------------------


def optional_arguments(style: Any) -> Any:
    class Old(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any, mask: Any = None, bias: Any = None) -> Any:
            style.entered.append(F)
            x = x * 1 if mask is None else x * mask
            return x if bias is None else x + bias

    class New(gluon.HybridBlock):
        def forward(self, x: Any, mask: Any = None, bias: Any = None) -> Any:
            style.entered.append(None)
            x = x * 1 if mask is None else x * mask
            return x if bias is None else x + bias

    return Old() if style.level == 1 else New()


def test_optional_arrays(style: Any) -> None:
    net = optional_arguments(style)
    net.hybridize()
    x, m = style.array([1.0, 2.0]), style.array([0.0, 1.0])
    for _ in range(2):
        style.assert_same(net(x), style.array([1.0, 2.0]))
        style.assert_same(net(x, None), style.array([1.0, 2.0]))
        style.assert_same(net(x, m), style.array([0.0, 2.0]))
        style.assert_same(net(x, mask=m), style.array([0.0, 2.0]))
        style.assert_same(net(x, bias=m), style.array([1.0, 3.0]))
        style.assert_same(net(x, bias=m, mask=m), style.array([0.0, 3.0]))
    # A keyword is the same call as its place: net(x, m) and net(x, mask=m) share a graph.
    assert len(style.entered) == 5
    with pytest.raises(TypeError, match=r"(Old|New): .*argument"):
        net(x, masc=m)


def test_keyword_only_arguments(style: Any) -> None:
    class Net(gluon.HybridBlock):
        pass

    def forward(self: Any, x: Any, *, scale: Any = 1, **more: Any) -> Any:
        style.entered.append(1)
        return x * scale + sum(more.values())

    def hybrid_forward(self: Any, F: Any, x: Any, *, scale: Any = 1, **more: Any) -> Any:
        style.entered.append(1)
        return x * scale + sum(more.values())

    if style.level == 1:
        Net.hybrid_forward = hybrid_forward  # type: ignore[assignment]
    else:
        Net.forward = forward  # type: ignore[assignment]
    net = Net()
    x, y = style.array([1.0]), style.array([4.0])
    for active in (False, True):
        net.hybridize(active)
        style.entered.clear()
        for _ in range(2):
            style.assert_same(net(x, scale=y), style.array([4.0]))
            style.assert_same(net(x, scale=2, other=y), style.array([6.0]))
        assert len(style.entered) == (2 if active else 4)
    if style.level == 2:
        with pytest.raises(TypeError, match=r"argument"):
            net(x, y, y)


def test_nested_arguments_and_results_keep_their_structure(style: Any) -> None:
    def body(block: Any, F: Any, pair: Any, table: Any, rest: Any) -> Any:
        total = pair.first + pair.second
        return {"sum": total, "rest": [total * r for r in rest]}, Pair(table["a"] + total, (total,))

    net = style.block(body)
    a, b, c = (style.array([float(i)]) for i in (1, 2, 3))
    plain = net(Pair(a, b), {"a": c, "n": 4}, (a, [b])[:1])
    net.hybridize()
    for _ in range(2):
        result = net(Pair(a, b), {"a": c, "n": 4}, (a,))
        assert (
            isinstance(result, tuple) and isinstance(result[1], Pair) and isinstance(result[1].second, tuple)
        )
        assert list(result[0]) == ["sum", "rest"] and isinstance(result[0]["rest"], list)
        style.assert_same(result, plain)
    assert len(style.entered) == 2


def test_other_objects_are_constants_by_identity(style: Any) -> None:
    class Config:
        def __init__(self, scale: float) -> None:
            self.scale = scale

    net = style.block(lambda block, F, x, config, name, dtype: x.astype(dtype) * config.scale)
    net.hybridize()
    x, first, second = style.array([1.0]), Config(2.0), Config(3.0)
    for config, expected in ((first, 2), (first, 2), (second, 3)):
        assert net(x, config, "a", "float64").asnumpy().tolist() == [expected]
    assert len(style.entered) == 2
    with pytest.raises(TypeError, match=r"received a NumPy array. Convert it with"):
        net(numpy.ones(2), first, "a", "float64")


def test_a_number_that_keeps_changing_becomes_an_input(style: Any) -> None:
    net = style.block(lambda block, F, x, k, n: x * k + (k * 2 + n) / 4 - k**2)
    net.hybridize()
    x = style.array([1.0, 2.0])
    for step in range(20):
        k = 0.5 + step / 8
        expected = numpy.array([1.0, 2.0]) * k + (k * 2 + 3) / 4 - k**2
        numpy.testing.assert_allclose(net(x, k, 3).asnumpy(), expected, rtol=1e-5)
    assert len(style.entered) == 4
    x.attach_grad()
    for k in (7.0, 9.0):
        with autograd.record():
            y = net(x, k, 3)
        y.backward()
        numpy.testing.assert_array_equal(x.grad.asnumpy(), [k, k])


def test_whole_numbers_keep_the_type_of_arrays(style: Any) -> None:
    net = style.block(lambda block, F, x, n: x * n + n)
    net.hybridize()
    x = style.array([1, 2], dtype="int32")
    for n in range(2, 12):
        result = net(x, n)
        assert numpy.dtype(result.dtype) == numpy.int32
        assert result.asnumpy().tolist() == [2 * n, 3 * n]
    assert len(style.entered) == 4


def test_numpy_numbers_change_as_python_numbers_do(style: Any) -> None:
    net = style.block(lambda block, F, x, k: x * k)
    net.hybridize()
    for k in numpy.arange(2.0, 12.0) / 4:
        assert net(style.array([2.0]), k).asnumpy().tolist() == [2 * k]
    assert len(style.entered) == 4


def test_arguments_that_cannot_be_compared_run_op_by_op(style: Any) -> None:
    net = style.block(lambda block, F, x, names: x * len(names))
    net.hybridize()
    names = {"a", "b"}
    for expected in (2, 3, 4):
        assert net(style.array([1.0]), names).asnumpy().tolist() == [expected]
        names.add(f"c{expected}")


def test_results_that_are_no_arrays(style: Any) -> None:
    net = style.block(lambda block, F, x: (x * 2, None, 3, "name"))
    net.hybridize()
    for _ in range(2):
        result = net(style.array([1.0]))
        assert result[0].asnumpy().tolist() == [2] and result[1:] == (None, 3, "name")


def test_a_changing_number_that_python_needs_stays_right(style: Any) -> None:
    def body(block: Any, F: Any, x: Any, n: int, k: float) -> Any:
        for _ in range(n):
            x = x + math.exp(k) if k > 1 else x * k
        return x

    net, plain = style.block(body), style.block(body)
    net.hybridize()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*was recorded more than 8 times")
        for n, k in [
            (1, 0.5),
            (2, 0.25),
            (3, 0.125),
            (4, 0.5),
            (5, 0.75),
            (6, 2.0),
            (1, 3.0),
            (2, 0.1),
            (7, 0.9),
        ]:
            style.assert_same(net(style.array([1.0, 2.0]), n, k), plain(style.array([1.0, 2.0]), n, k))


def test_numbers_that_cannot_be_inputs_stay_constants(style: Any) -> None:
    def body(block: Any, F: Any, x: Any, name: float) -> Any:
        return x * {0.5: 1, 1.5: 2, 2.5: 3, 3.5: 4, 4.5: 5}[name]

    net = style.block(body)
    net.hybridize()
    for index, name in enumerate((0.5, 1.5, 2.5, 3.5, 4.5)):
        assert net(style.array([1.0]), name).asnumpy().tolist() == [index + 1]


# Values -------------------------------------------------------------------------

READS: dict[str, Callable[[Any], Any]] = {
    "asnumpy": lambda x: x.asnumpy(),
    "asscalar": lambda x: x.sum().asscalar() if hasattr(x, "asscalar") else x.sum().item(),
    "item": lambda x: x.sum().item(),
    "bool": lambda x: 1 if x.sum() > 0 else 0,
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "array": lambda x: numpy.asarray(x),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_a_value_names_the_line_and_the_ways_out(style: Any, read: Callable[[Any], Any]) -> None:
    def body(block: Any, F: Any, x: Any) -> Any:
        read(x)
        return x * 2

    net = style.block(body)
    net.hybridize()
    if style.level == 1 and read in (READS["float"], READS["int"]):
        # A Symbol has no such conversion, as in 1.x.
        with pytest.raises(TypeError, match=r"must be"):
            net(style.array([1.0, 2.0]))
        return
    with pytest.raises(
        mx.base.MXNetError, match=r"needs the value of .*test_arguments\.py:\d+.*on_value_read"
    ):
        net(style.array([1.0, 2.0]))


def test_reading_a_value_may_break_the_graph_instead(style: Any) -> None:
    inner = style.block_class(lambda block, F, x: x * 3)

    def body(block: Any, F: Any, x: Any) -> Any:
        x = block.inner(x)
        return x + 1 if x.sum() > 0 else x - 1

    net = style.block(body, lambda block: setattr(block, "inner", inner()))
    net.hybridize(on_value_read="break")
    numbers = [net(style.array([v])).asnumpy().tolist() for v in (1.0, -1.0, 2.0)]
    assert numbers == [[4], [-4], [7]]
    # The child keeps its graph: its Python ran in the given-up recording and once for its own.
    assert net.inner._cached.traces == 1
    assert len(style.entered) == 1 + 3 + 2


def test_a_value_kept_from_a_recording_says_what_it_is() -> None:
    kept = []

    class Net(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            kept.append(x * 2)
            return x + kept[-1]

    net = Net()
    net.hybridize()
    net(mx.np.ones(2))
    with pytest.raises(mx.base.MXNetError, match=r"cannot be kept in attributes or globals"):
        kept[0].asnumpy()
    with pytest.raises(mx.base.MXNetError, match=r"cannot be kept|has no value|being recorded"):
        kept[0] + 1


def test_errors_in_forward_name_the_line(style: Any) -> None:
    net = style.block(lambda block, F, x: x.reshape((5, 7)))
    net.hybridize()
    with pytest.raises(mx.base.MXNetError, match=r"recorded at .*test_arguments\.py:\d+"):
        net(style.array([1.0, 2.0]))


# Shapes that depend on data -------------------------------------------------------------------------


def selected(F: Any, x: Any, keep: Any) -> Any:
    return x[keep > 0] if F is mx.npx else F.contrib.boolean_mask(x, keep)


def masked(block: Any, F: Any, x: Any, keep: Any) -> Any:
    return block.dense(selected(F, x, keep)) * 2


@pytest.mark.parametrize("partition", [True, False])
def test_operators_whose_shape_depends_on_data(style: Any, partition: bool) -> None:
    net = style.block(masked, lambda block: setattr(block, "dense", nn.Dense(2)))
    x = style.array(numpy.random.rand(4, 3))
    masks = [[1, 0, 1, 0], [1, 1, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
    net.hybridize(partition_if_dynamic=partition)
    results = [net(x, style.array(mask)) for mask in masks]
    traces = len(style.entered)
    net.hybridize(False)
    for mask, result in zip(masks, results, strict=True):
        assert result.shape == (sum(mask), 2)
        style.assert_same(result, net(x, style.array(mask)))
    assert traces == 1


def test_python_that_depends_on_such_a_shape_runs_op_by_op(style: Any) -> None:
    def body(block: Any, F: Any, x: Any, keep: Any) -> Any:
        picked = selected(F, x, keep)
        return picked * 10 if picked.shape[0] > 1 else picked

    net = style.block(body)
    net.hybridize()
    x = style.array([1.0, 2.0, 3.0])
    for mask, expected in (([1, 0, 1], [10, 30]), ([0, 1, 0], [2]), ([1, 1, 1], [10, 20, 30])):
        assert net(x, style.array(mask)).asnumpy().tolist() == expected


# Threads -------------------------------------------------------------------------


@pytest.mark.parametrize("active", [False, True])
def test_the_first_call_from_many_threads(style: Any, active: bool) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(4))
    net.initialize()
    net.hybridize(active)
    data = numpy.random.rand(3, 5)
    results: list[Any] = []
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def work() -> None:
        try:
            start.wait()
            for _ in range(3):
                results.append(net(style.array(data)).asnumpy())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(results) == 24
    for result in results:
        numpy.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-6)
    if active:
        assert net._cached.traces == 1
