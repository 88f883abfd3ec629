"""What a recorded forward may do: all of it gives the same numbers and gradients as without hybridize."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

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
        style.assert_same(net(style.array(data)), plain(style.array(data)))
        if body is not other_types:
            style.assert_same(
                style.gradients(net, [style.array(data)]), style.gradients(plain, [style.array(data)])
            )


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
        style.assert_same(net(data), plain(data))
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
        style.assert_same(net(mine), plain(theirs))
        style.assert_same(mine, theirs)


def test_gradients_flow_through_writes(style: Any) -> None:
    def body(block: Any, F: Any, x: Any, y: Any) -> Any:
        z = x * 2
        z[1] = y[0] * y[0]
        z += x
        return z

    data = [numpy.random.rand(3, 4), numpy.random.rand(2, 4)]
    net, plain = style.block(body), style.block(body)
    net.hybridize()
    style.assert_same(
        style.gradients(net, [style.array(d) for d in data]),
        style.gradients(plain, [style.array(d) for d in data]),
    )


def test_writes_to_an_array_from_outside_reach_it() -> None:
    class Count(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.counter = mx.np.zeros(1)

        def forward(self, x: Any) -> Any:
            self.counter += 1
            return x + self.counter

    net = Count()
    net.hybridize()
    assert [float(net(mx.np.array([10.0]))[0]) for _ in range(3)] == [11, 12, 13]
    assert float(net.counter[0]) == 3


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


# Export -------------------------------------------------------------------------


def selected(F: Any, x: Any, keep: Any) -> Any:
    return x[keep > 0] if F is mx.npx else F.contrib.boolean_mask(x, keep)


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
    style.assert_same(loaded(x), expected)


@pytest.mark.parametrize("dtype", [None, "float64", "int32"])
def test_an_array_made_of_a_recorded_one_is_a_copy_in_the_graph(dtype: str | None) -> None:
    class Block(mx.gluon.HybridBlock):
        def forward(self, x):
            return mx.np.array(x, dtype=dtype) + 1

    with mx.util.np_array(True), mx.util.np_shape(True):
        net = Block()
        net.hybridize()
        for value in (1.5, 2.5, 3.5):
            x = mx.np.full((2, 2), value)
            expected = mx.np.array(x, dtype=dtype) + 1
            result = net(x)
            assert result.dtype == expected.dtype
            numpy.testing.assert_array_equal(result.asnumpy(), expected.asnumpy())
