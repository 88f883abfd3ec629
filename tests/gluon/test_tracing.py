"""What a recorded forward may do: all of it gives the same numbers and gradients as without hybridize."""

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


def flat(value: Any) -> list[Any]:
    """All arrays of a nested result as NumPy arrays, and its other leaves as they are."""
    if isinstance(value, dict):
        return [item for key in value for item in (key, *flat(value[key]))]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in flat(part)]
    return [value.asnumpy()] if hasattr(value, "asnumpy") else [value]


def assert_same(first: Any, second: Any) -> None:
    left, right = flat(first), flat(second)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        if isinstance(a, numpy.ndarray):
            assert a.shape == b.shape and a.dtype == b.dtype
            numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        else:
            assert a == b


def gradients(net: Any, inputs: list[Any]) -> Any:
    for x in inputs:
        x.attach_grad()
    with autograd.record():
        out = net(*inputs)
        total = sum((part * part).sum() for part in (out if isinstance(out, (list, tuple)) else [out]))
    total.backward()
    return [x.grad for x in inputs]


# Sizes -------------------------------------------------------------------------


def pixels(block: Any, F: Any, x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape((n, c, h * w)).sum(axis=2) * h + w // 2 - (h - 1) / w


def halves(block: Any, F: Any, x: Any) -> Any:
    half = x.shape[1] // 2
    return x[:, :half] - x[:, half : 2 * half]


def branch_on_size(block: Any, F: Any, x: Any) -> Any:
    return x * 2 if x.shape[0] > 3 else x - 1


def rows_by_python(block: Any, F: Any, x: Any) -> Any:
    total = x[0] * 0
    for i in range(x.shape[0]):
        total = total + x[i] * (i + 1)
    return total


def iterate(block: Any, F: Any, x: Any) -> Any:
    return sum(row * len(x) for row in x)


def by_root(block: Any, F: Any, x: Any) -> Any:
    return x / math.sqrt(x.shape[-1]) + x.size + x.ndim


def last_and_reversed(block: Any, F: Any, x: Any) -> Any:
    return x[-1], x[:, ::-1], x[1:-1], x[..., -2:]


def picked_rows(block: Any, F: Any, x: Any) -> Any:
    return x[[0, 2, 1]] + x[-1]


def other_types(block: Any, F: Any, x: Any) -> Any:
    half = "float16" in str(x.dtype)
    return x.astype("float32") * (1 if half else 3)


@pytest.mark.parametrize(
    "body, shapes",
    [
        (pixels, [(2, 3, 4, 5), (3, 2, 6, 4), (2, 3, 4, 5), (1, 3, 4, 5)]),
        (halves, [(3, 4), (2, 6), (3, 5)]),
        (branch_on_size, [(2, 2), (4, 2), (5, 3), (3, 2)]),
        (rows_by_python, [(2, 3), (4, 3), (2, 5)]),
        (iterate, [(2, 3), (4, 3), (2, 2)]),
        (by_root, [(2, 4), (3, 4), (2, 9)]),
        (last_and_reversed, [(3, 4), (5, 4), (4, 6)]),
        (picked_rows, [(3, 4), (5, 2), (4, 4)]),
        (other_types, [(3, 4), (2, 2)]),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_sizes_mean_the_same_after_recording(style: Any, body: Callable[..., Any], shapes: Any) -> None:
    net, plain = style.block(body), style.block(body)
    net.hybridize()
    for shape in shapes:
        data = numpy.random.rand(*shape)
        assert_same(net(style.array(data)), plain(style.array(data)))
        if body is not other_types:
            assert_same(gradients(net, [style.array(data)]), gradients(plain, [style.array(data)]))


@pytest.mark.parametrize(
    "body, recordings",
    [(pixels, 1), (halves, 1), (last_and_reversed, 1), (branch_on_size, 2), (rows_by_python, 4)],
)
def test_one_graph_serves_all_sizes_that_python_does_not_ask_for(
    style: Any, body: Callable[..., Any], recordings: int
) -> None:
    net = style.block(body)
    net.hybridize()
    for size in (2, 3, 4, 5, 3, 2):
        shape = (size, 3, 4, 5) if body is pixels else (size, 6)
        net(style.array(numpy.random.rand(*shape)))
    assert len(style.entered) == recordings


def test_rank_and_sizes_of_zero_and_one_are_guarded(style: Any) -> None:
    net = style.block(lambda block, F, x: x * 2)
    net.hybridize()
    for shape, recordings in [
        ((3, 4), 1),
        ((5, 7), 1),
        ((1, 4), 2),
        ((1, 9), 2),
        ((3,), 3),
        ((0, 4), 4),
        ((3, 4), 4),
    ]:
        assert net(style.array(numpy.ones(shape))).shape == shape
        assert len(style.entered) == recordings, shape


def test_sizes_stay_symbolic_in_creation(style: Any) -> None:
    def mask(block: Any, F: Any, x: Any) -> Any:
        module = mx.np if style.level == 2 else F
        return x * module.zeros((x.shape[0], 1)) + module.ones((1, x.shape[1]))

    net, plain = style.block(mask), style.block(mask)
    net.hybridize()
    for shape in ((2, 3), (4, 5)):
        data = style.array(numpy.random.rand(*shape))
        assert_same(net(data), plain(data))
    assert len(style.entered) == 3


# Aliases and writes -------------------------------------------------------------------------


def add_to_input(block: Any, F: Any, x: Any) -> Any:
    x += 1
    return x * 2


def alias_of_input(block: Any, F: Any, x: Any) -> Any:
    y = x
    y *= 3
    return x + y


def row_of_input(block: Any, F: Any, x: Any) -> Any:
    y = x[0]
    y[:] = 5
    return x * 1


def view_of_a_view(block: Any, F: Any, x: Any) -> Any:
    y = x * 2
    z = y[1:]
    w = z[0]
    w[:] = 7
    y[0] = 1
    z[1, 0] += 10
    return y, z, w


def copy_is_no_view(block: Any, F: Any, x: Any) -> Any:
    y = x.copy()
    y[:] = 0
    z = x[:, 1:]
    z[:] = 4
    return x * 1, y, z


def whole_and_parts(block: Any, F: Any, x: Any) -> Any:
    y = x * 1
    y[:, 1] = x[:, 0]
    y[-1] = 0
    y[:] += 1
    return y


def swap(block: Any, F: Any, x: Any) -> Any:
    y = x * 1
    y[0], y[1] = y[1] * 1, y[0] * 1
    return y


def read_then_written(block: Any, F: Any, x: Any) -> Any:
    before = x * 2
    x[:] = 0
    return before + x


def by_list(block: Any, F: Any, x: Any) -> Any:
    y = x * 1
    y[[0, 2]] = -1
    return y


WRITES = [
    add_to_input,
    alias_of_input,
    row_of_input,
    view_of_a_view,
    copy_is_no_view,
    whole_and_parts,
    swap,
    read_then_written,
    by_list,
]


@pytest.mark.parametrize("body", WRITES, ids=lambda body: body.__name__)
def test_writes_mean_the_same_and_reach_the_arguments(style: Any, body: Callable[..., Any]) -> None:
    net, plain = style.block(body), style.block(body)
    net.hybridize()
    for rows in (3, 3, 5):
        data = numpy.random.rand(rows, 4)
        mine, theirs = style.array(data), style.array(data)
        assert_same(net(mine), plain(theirs))
        assert_same(mine, theirs)


def test_gradients_flow_through_writes(style: Any) -> None:
    def body(block: Any, F: Any, x: Any, y: Any) -> Any:
        z = x * 2
        z[1] = y[0] * y[0]
        z += x
        return z

    data = [numpy.random.rand(3, 4), numpy.random.rand(2, 4)]
    net, plain = style.block(body), style.block(body)
    net.hybridize()
    assert_same(
        gradients(net, [style.array(d) for d in data]), gradients(plain, [style.array(d) for d in data])
    )


def test_writes_to_an_array_from_outside_reach_it(style: Any) -> None:
    counter = style.array([0.0])

    def count(block: Any, F: Any, x: Any) -> Any:
        block.counter += 1
        return x + block.counter

    net = style.block(count, lambda block: setattr(block, "counter", counter))
    if style.level == 1:
        # In the 1.x style arrays and Symbols do not mix.
        pytest.skip("an array of one's own is used with arrays only, in the 2.0 style")
    net.hybridize()
    assert [float(net(style.array([10.0]))[0]) for _ in range(3)] == [11, 12, 13]
    assert float(counter[0]) == 3


def test_results_have_memory_of_their_own(style: Any) -> None:
    def views(block: Any, F: Any, x: Any) -> Any:
        return x.transpose(), x.reshape((-1,)), x[0], x.expand_dims(0)

    net = style.block(views)
    net.hybridize()
    data = numpy.arange(6.0).reshape(2, 3)
    for record in (False, True, False):
        x = style.array(data)
        if record:
            x.attach_grad()
            with autograd.record():
                results = net(x)
        else:
            results = net(x)
        for result in results:
            result[:] = -1
        numpy.testing.assert_array_equal(x.asnumpy(), data)


def test_a_returned_input_keeps_its_gradient(style: Any) -> None:
    net = style.block(lambda block, F, x, y: (x, y * 2))
    net.hybridize()
    x, y = style.array([1.0, 2.0]), style.array([3.0, 4.0])
    for array in (x, y):
        array.attach_grad()
    with autograd.record():
        a, b = net(x, y)
        total = (a * b).sum()
    total.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), [6, 8])
    numpy.testing.assert_array_equal(y.grad.asnumpy(), [2, 4])


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
        assert_same(net(x), style.array([1.0, 2.0]))
        assert_same(net(x, None), style.array([1.0, 2.0]))
        assert_same(net(x, m), style.array([0.0, 2.0]))
        assert_same(net(x, mask=m), style.array([0.0, 2.0]))
        assert_same(net(x, bias=m), style.array([1.0, 3.0]))
        assert_same(net(x, bias=m, mask=m), style.array([0.0, 3.0]))
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
            assert_same(net(x, scale=y), style.array([4.0]))
            assert_same(net(x, scale=2, other=y), style.array([6.0]))
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
        assert_same(result, plain)
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
            assert_same(net(style.array([1.0, 2.0]), n, k), plain(style.array([1.0, 2.0]), n, k))


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
    if style.level == 1 and read in (READS["float"], READS["int"], READS["array"]):
        pytest.skip("a Symbol of 1.x has no such conversion")

    def body(block: Any, F: Any, x: Any) -> Any:
        read(x)
        return x * 2

    net = style.block(body)
    net.hybridize()
    with pytest.raises(mx.base.MXNetError, match=r"needs the value of .*test_tracing\.py:\d+.*on_value_read"):
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
    with pytest.raises(mx.base.MXNetError, match=r"recorded at .*test_tracing\.py:\d+"):
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
        assert_same(result, net(x, style.array(mask)))
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


# Scopes inside forward -------------------------------------------------------------------------


def test_pause_inside_forward_stops_gradients(style: Any) -> None:
    def body(block: Any, F: Any, x: Any) -> Any:
        with autograd.pause():
            y = x * 3
        return x * y

    net = style.block(body)
    x = style.array([1.0, 2.0])
    x.attach_grad()
    for active in (False, True):
        net.hybridize(active)
        with autograd.record():
            out = net(x)
        out.backward()
        numpy.testing.assert_array_equal(x.grad.asnumpy(), [3, 6])


def test_predict_mode_inside_forward(style: Any) -> None:
    def body(block: Any, F: Any, x: Any) -> Any:
        with autograd.predict_mode():
            return block.drop(x)

    net = style.block(body, lambda block: setattr(block, "drop", nn.Dropout(0.5)))
    x = style.array(numpy.ones(100))
    for active in (False, True):
        net.hybridize(active)
        with autograd.record():
            numpy.testing.assert_array_equal(net(x).asnumpy(), numpy.ones(100))


def test_modes_are_guarded(style: Any) -> None:
    def body(block: Any, F: Any, x: Any) -> Any:
        return x * (10 if autograd.is_training() else 1) + (100 if autograd.is_recording() else 0)

    net = style.block(body)
    net.hybridize()
    x = style.array([1.0])
    for _ in range(2):
        assert float(net(x).asnumpy()[0]) == 1
        with autograd.record():
            assert float(net(x).asnumpy()[0]) == 110
        with autograd.record(train_mode=False):
            assert float(net(x).asnumpy()[0]) == 101
        with autograd.train_mode():
            assert float(net(x).asnumpy()[0]) == 10
    assert len(style.entered) == 4


def test_second_order_gradients_through_a_graph(style: Any) -> None:
    net = style.block(lambda block, F, x: x * x * x)
    net.hybridize()
    x = style.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = net(x)
        (first,) = autograd.grad([y], [x], create_graph=True, retain_graph=True)
        total = first.sum()
    total.backward()
    numpy.testing.assert_allclose(first.asnumpy(), [3, 12], rtol=1e-6)
    numpy.testing.assert_allclose(x.grad.asnumpy(), [6, 12], rtol=1e-6)


def test_custom_functions_in_a_graph(style: Any) -> None:
    class Cube(autograd.Function):
        def forward(self, x: Any) -> Any:
            self.save_for_backward(x)
            return x * x * x

        def backward(self, gradient: Any) -> Any:
            (x,) = self.saved_tensors
            return gradient * x * 100

    net = style.block(lambda block, F, x: Cube()(x * 1) + 1)
    net.hybridize()
    x = style.array([1.0, 2.0])
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
        numpy.testing.assert_array_equal(y.asnumpy(), [2, 9])
        numpy.testing.assert_array_equal(x.grad.asnumpy(), [100, 200])
    assert len(style.entered) == 1


# BatchNorm and Dropout -------------------------------------------------------------------------


def test_batch_norm_commits_once_per_backward(style: Any) -> None:
    data = numpy.random.rand(8, 3) * 2 + 5
    mean, variance = data.mean(0), data.var(0)
    for active in (False, True):
        net = nn.HybridSequential()
        net.add(nn.BatchNorm(momentum=0.5, epsilon=1e-5))
        net.initialize()
        net.hybridize(active)
        x = style.array(data)
        moving = net[0].running_mean
        with autograd.record():
            net(x)
        numpy.testing.assert_allclose(moving.data().asnumpy(), numpy.zeros(3))
        with autograd.record():
            y = net(x)
        y.backward()
        numpy.testing.assert_allclose(moving.data().asnumpy(), 0.5 * mean, rtol=1e-5)
        numpy.testing.assert_allclose(net[0].running_var.data().asnumpy(), 0.5 + 0.5 * variance, rtol=1e-5)
        numpy.testing.assert_allclose(y.asnumpy(), (data - mean) / numpy.sqrt(variance + 1e-5), atol=1e-4)
        with autograd.record():
            first, second = net(x), net(x)
        first.backward()
        second.backward()
        numpy.testing.assert_allclose(moving.data().asnumpy(), 0.875 * mean, rtol=1e-5)
        expected = (data - moving.data().asnumpy()) / numpy.sqrt(net[0].running_var.data().asnumpy() + 1e-5)
        numpy.testing.assert_allclose(net(x).asnumpy(), expected, atol=1e-4)


def test_dropout_draws_as_it_does_imperatively(style: Any) -> None:
    results = []
    for active in (False, True):
        net = nn.HybridSequential()
        net.add(nn.Dropout(0.5), nn.Dropout(0.3))
        net.hybridize(active)
        mx.random.seed(3)
        x = style.array(numpy.ones((4, 50)))
        with autograd.record():
            results.append([net(x).asnumpy() for _ in range(2)])
    numpy.testing.assert_array_equal(results[0], results[1])
    assert (results[0][0] != results[0][1]).any()


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


# Export -------------------------------------------------------------------------


def test_export_warns_of_sizes_that_became_constants(style: Any, tmp_path: Any) -> None:
    def body(block: Any, F: Any, x: Any) -> Any:
        return x.reshape((x.shape[0], -1)) * x.shape[1] + math.sqrt(x.shape[2])

    net = style.block(body)
    net.hybridize()
    net(style.array(numpy.ones((2, 3, 4))))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net.export(str(tmp_path / "net"))
    texts = sorted(str(warning.message) for warning in caught)
    assert len(texts) == 2
    assert "data.shape[1]" in texts[0] and "data.shape[2]" in texts[1]
    assert all("test_tracing.py:" in text for text in texts)


def test_export_of_sizes_that_stay_open_warns_of_nothing(style: Any, tmp_path: Any) -> None:
    net = style.block(lambda block, F, x: x.reshape((x.shape[0], -1)) * 2)
    net.hybridize()
    net(style.array(numpy.ones((2, 3, 4))))
    net.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"])
    assert loaded(style.array(numpy.ones((5, 2, 3)))).shape == (5, 6)


def test_export_of_python_that_needs_the_data_is_refused(style: Any, tmp_path: Any) -> None:
    def body(block: Any, F: Any, x: Any) -> Any:
        picked = selected(F, x, x)
        return picked * 10 if picked.shape[0] > 1 else picked

    net = style.block(body)
    net.hybridize()
    net(style.array([1.0, 0.0]))
    with pytest.raises(mx.base.MXNetError, match=r"cannot be exported.*test_tracing\.py:\d+.*boolean_mask"):
        net.export(str(tmp_path / "net"))


def test_export_leaves_hooks_out_and_says_so(style: Any, tmp_path: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = style.array([[1.0, 2.0]])
    expected = net(x)
    net[0].register_forward_hook(lambda block, inputs, out: None)
    net(x)
    with pytest.warns(UserWarning, match=r"export leaves out the forward hooks"):
        net.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    assert_same(loaded(x), expected)
