"""Attention, dense layers and losses of training programs, beside the same code without compiling."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec import losses
from regluon.exec.dense import dense
from regluon.exec.onednn import attention, interface
from regluon.gluon import nn
from regluon.runtime import targets

needs_onednn = pytest.mark.skipif(
    interface.library() is None, reason="oneDNN's interface cannot be had on this platform"
)
HEADS, WIDTH = 4, 32


class Attention(mx.gluon.HybridBlock):
    """Attention between rows, as programs of the second generation write it."""

    def __init__(self, scale: float | None = 0.3, values: int = WIDTH) -> None:
        super().__init__()
        self.scale, self.values = scale, values
        self.query, self.key, self.value = (
            nn.Dense(units, flatten=False, in_units=WIDTH) for units in (WIDTH, WIDTH, values)
        )

    def forward(self, x: Any, y: Any, mask: Any = None) -> Any:
        np_, npx = mx.np, mx.npx

        def split(rows: Any) -> Any:
            apart = npx.reshape(rows, (-2, -2, HEADS, -1))
            return npx.reshape(np_.transpose(apart, (0, 2, 1, 3)), (-5, -2, -2))

        query, key, value = split(self.query(x)), split(self.key(y)), split(self.value(y))
        scores = npx.batch_dot(query if self.scale is None else query * self.scale, key, transpose_b=True)
        if mask is not None:
            scores = scores + mask
        mixed = npx.reshape(npx.batch_dot(npx.softmax(scores, axis=-1), value), (-6, -1, HEADS, -2, -2))
        return npx.reshape(np_.transpose(mixed, (0, 2, 1, 3)), (-2, -2, -5))


class Interleaved(mx.gluon.HybridBlock):
    """Self-attention by the operators of 1.x."""

    def hybrid_forward(self, F: Any, joined: Any) -> Any:
        scores = F.contrib.interleaved_matmul_selfatt_qk(joined, heads=HEADS)
        return F.contrib.interleaved_matmul_selfatt_valatt(joined, F.softmax(scores), heads=HEADS)


@pytest.fixture
def numpy_arrays() -> Iterator[None]:
    with mx.util.np_shape(True), mx.util.np_array(True):
        yield


def operators(net: mx.gluon.HybridBlock) -> list[str]:
    """The operators of the program that was recorded last."""
    (call,) = net._cached.exact.values()
    return [node.op.name for node in call.recorded.program.nodes]


def steps(net: Any, inputs: list[Any], hybridize: bool, req: str = "write") -> list[np.ndarray]:
    """The outputs of two steps, and all gradients after them."""
    if hybridize:
        net.hybridize(static_alloc=True, static_shape=True)
    parameters = list(net.collect_params().values())
    for parameter in parameters:
        parameter.grad_req = req
        parameter.zero_grad()
    for value in inputs:
        value.attach_grad()
    found = []
    for _ in range(2):
        with mx.autograd.record():
            result = net(*inputs)
            total = (result * result * 0.5).sum()
        total.backward()
        found.append(result.asnumpy())
    found += [value.grad.asnumpy() for value in inputs]
    return found + [parameter.grad().asnumpy() for parameter in parameters]


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    largest = max(float(np.abs(one).max()) for one in expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * largest)


def compare(make: Callable[[], Any], inputs: list[Any], req: str = "write") -> list[str]:
    """Check two steps against the imperative ones; the operators of the program."""
    mx.random.seed(3)
    net = make()
    net.initialize(mx.init.Xavier())
    net(*inputs)
    expected = steps(net, inputs, False, req)
    same(steps(net, inputs, True, req), expected)
    return operators(net)


def normal(*shape: int) -> Any:
    return mx.np.random.normal(size=shape)


# Attention ----------------------------------------------------------------------


@needs_onednn
@pytest.mark.usefixtures("numpy_arrays")
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("keys, values", [(5, WIDTH), (7, WIDTH), (7, 8)])
@pytest.mark.parametrize("req", ["write", "add"])
def test_attention(scale: float | None, keys: int, values: int, req: str) -> None:
    mx.random.seed(keys)
    inputs = [normal(3, 5, WIDTH), normal(3, keys, WIDTH)]
    names = compare(lambda: Attention(scale, values), inputs, req)
    assert names == ["training_dense"] * 3 + ["training_attention_by_rows"]


@pytest.mark.usefixtures("numpy_arrays")
def test_attention_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attention_kernels_for", lambda form: None)
    monkeypatch.setattr(interface, "library", lambda: None)
    names = compare(Attention, [normal(3, 5, WIDTH), normal(3, 7, WIDTH)])
    assert "training_attention_by_rows" in names


@pytest.mark.usefixtures("numpy_arrays")
def test_attention_with_a_mask() -> None:
    mask = mx.np.zeros((3 * HEADS, 1, 7))
    mask[:, :, 4:] = -1e9
    inputs = [normal(3, 5, WIDTH), normal(3, 7, WIDTH), mask]
    assert "training_attention_by_rows" not in compare(Attention, inputs)


def test_interleaved_attention() -> None:
    mx.random.seed(1)
    names = compare(Interleaved, [mx.nd.random.normal(shape=(6, 2, 3 * WIDTH))])
    assert names == ["training_attention_interleaved"]


def _leaves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(2)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def _exact(query: Any, key: Any, value: Any, scale: float, heads: int) -> torch.Tensor:
    apart = [each.unflatten(2, (heads, -1)).transpose(1, 2) for each in (query, key, value)]
    weights = torch.softmax(scale * apart[0] @ apart[1].transpose(2, 3), -1)
    return (weights @ apart[2]).transpose(1, 2).flatten(2)


@needs_onednn
@pytest.mark.parametrize("needed", range(1, 8))
@pytest.mark.parametrize("apart", [False, True])
def test_gradients_of_attention(needed: int, apart: bool) -> None:
    """Of those inputs that need one; also where rows lie with gaps, and a gradient is one number."""
    leaves = _leaves((2, 5, 24), (2, 9, 24), (2, 9, 12))
    for place, leaf in enumerate(leaves):
        leaf.requires_grad_(bool(needed >> place & 1))
    given = [each.transpose(0, 1).contiguous().transpose(0, 1) if apart else each for each in leaves]
    result = attention.attention_of_rows(*given, scale=0.7, heads=3)
    assert result.grad_fn is not None and "Attention" in type(result.grad_fn).__name__
    exact = [leaf.detach().double().requires_grad_(leaf.requires_grad) for leaf in leaves]
    expected = _exact(*exact, 0.7, 3)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-6)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    others = [leaf for leaf in exact if leaf.requires_grad]
    for gradient in (torch.randn(result.shape), torch.ones(()).expand(result.shape)):
        found = torch.autograd.grad(result, wanted, gradient, retain_graph=True)
        right = torch.autograd.grad(expected, others, gradient.double(), retain_graph=True)
        for one, other in zip(found, right, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@needs_onednn
@pytest.mark.parametrize("apart", [False, True])
def test_gradient_of_attentions_gradient(apart: bool) -> None:
    leaves = _leaves((2, 4, 12), (2, 4, 12))
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]

    def second(inputs: list[torch.Tensor], run: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        # Keys are values as well, and may lie with gaps.
        query, key = inputs
        rows = key.flip(0).transpose(0, 1).contiguous().transpose(0, 1) if apart else key * 2
        result = run(query, rows, rows, scale=0.5, heads=3)
        first = torch.autograd.grad(result.sin().sum(), inputs, create_graph=True)
        return list(torch.autograd.grad(sum((each * each).sum() for each in first), inputs))

    found = second(leaves, attention.attention_of_rows)
    for one, other in zip(found, second(exact, _exact), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@needs_onednn
def test_attention_in_threads() -> None:
    leaves = _leaves((2, 64, 32), (2, 64, 32), (2, 64, 32))
    expected = torch.autograd.grad(attention.attention_of_rows(*leaves, scale=1.0, heads=2).sum(), leaves)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            result = attention.attention_of_rows(*leaves, scale=1.0, heads=2)
            found = torch.autograd.grad(result.sum(), leaves)
            if any(not torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_attention_in_other_types(dtype: torch.dtype) -> None:
    leaves = [
        leaf.detach().to(dtype).requires_grad_() for leaf in _leaves((2, 5, 24), (2, 9, 24), (2, 9, 12))
    ]
    result = attention.attention_of_rows(*leaves, scale=0.7, heads=3)
    expected = _exact(*(leaf.double() for leaf in leaves), 0.7, 3)
    assert result.dtype is dtype
    torch.testing.assert_close(
        result.double(), expected, rtol=0, atol=1e-12 if dtype is torch.float64 else 0.05
    )


# Dense layers ----------------------------------------------------------------------


@pytest.mark.parametrize("req", ["write", "add"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("flatten", [True, False])
def test_dense_layers(req: str, bias: bool, flatten: bool) -> None:
    def make() -> Any:
        net = nn.HybridSequential()
        net.add(
            nn.Dense(
                700, in_units=2 * 500 if flatten else 500, use_bias=bias, flatten=flatten, activation="tanh"
            ),
            nn.Dense(600, in_units=700, use_bias=bias, flatten=flatten),
        )
        return net

    mx.random.seed(2)
    assert compare(make, [mx.nd.random.normal(shape=(3, 2, 500))], req) == ["training_dense"] * 2


class Tied(mx.gluon.HybridBlock):
    """One large weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(600, in_units=600)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.dense(F.tanh(self.dense(x)))


@pytest.mark.parametrize("req", ["write", "add"])
def test_a_weight_that_is_used_twice(req: str) -> None:
    mx.random.seed(2)
    compare(Tied, [mx.nd.random.normal(shape=(4, 600))], req)


def test_the_gradient_of_a_large_weight_is_written_to_its_array(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Dense(600, in_units=600)
    net.initialize()
    net.hybridize()
    x = mx.nd.random.normal(shape=(4, 600))
    taken: list[Any] = []
    take = targets.take
    monkeypatch.setattr(targets, "take", lambda leaf: taken.append(take(leaf)) or taken[-1])
    for _ in range(3):
        with mx.autograd.record():
            total = net(x).sum()
        total.backward()
        expected = np.tile(x.asnumpy().sum(0), (600, 1))
        np.testing.assert_allclose(net.weight.grad().asnumpy(), expected, rtol=1e-4, atol=1e-4)
    assert [each is not None and each is net.weight.grad()._t for each in taken] == [True] * 3


def test_gradient_of_a_dense_layers_gradient() -> None:
    leaves = _leaves((3, 512), (600, 512), (600,))
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]

    def second(inputs: list[torch.Tensor], run: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        result = run(*inputs)
        first = torch.autograd.grad(result.sin().sum(), inputs, create_graph=True)
        return list(torch.autograd.grad(sum((each * each).sum() for each in first), inputs))

    assert "Dense" in type(dense(*leaves, False, None).grad_fn).__name__
    found = second(leaves, lambda *given: dense(*given, False, None))
    for one, other in zip(found, second(exact, torch.nn.functional.linear), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


# Losses ----------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("samples", [False, True])
def test_the_squared_error(weight: float | None, axis: int, samples: bool) -> None:
    mx.random.seed(4)
    inputs = [mx.nd.random.normal(shape=(4, 3, 5)) for _ in range(2)]
    if samples:
        inputs.append(mx.nd.random.uniform(shape=(4, 3, 5)))
    loss = mx.gluon.loss.L2Loss(weight=weight, batch_axis=axis)
    names = compare(lambda: loss, inputs)
    near = weight is None or weight / 2 <= 4
    expected = "mean_square" if near and not samples else "squared_difference"
    assert expected in names and "square" not in names


@pytest.mark.parametrize("axis", [0, 1])
def test_the_squared_error_of_batches_of_several_sizes(axis: int) -> None:
    loss = mx.gluon.loss.L2Loss(batch_axis=axis)
    loss.hybridize()
    for size in (5, 3, 2, 4, 5, 1):
        x, label = (mx.nd.random.normal(shape=(size, 3)) for _ in range(2))
        x.attach_grad()
        with mx.autograd.record():
            result = loss(x, label)
        result.backward()
        difference = x.asnumpy() - label.asnumpy()
        np.testing.assert_allclose(result.asnumpy(), (difference**2).mean(1 - axis) / 2, rtol=1e-5, atol=1e-6)
        expected = difference / difference.shape[1 - axis]
        np.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["L1Loss", "HuberLoss", "SigmoidBinaryCrossEntropyLoss"])
def test_other_losses(kind: str) -> None:
    mx.random.seed(4)
    inputs = [mx.nd.random.uniform(shape=(4, 3)) for _ in range(2)]
    compare(getattr(mx.gluon.loss, kind), inputs)


@pytest.mark.parametrize("count", [1000, 3_000_000])
def test_the_mean_of_many_squares(count: int) -> None:
    torch.manual_seed(1)
    first = torch.rand(2, count) + 0.5
    second = torch.zeros(2, count)
    found = losses._mean_square(first, second, axes=(1,), keepdims=False)
    expected = first.double().square().mean(1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


def test_gradient_of_a_squared_errors_gradient() -> None:
    leaves = _leaves((2, 3), (2, 3))
    found, expected = [], []
    for into, run in (
        (found, lambda a, b: losses._mean_square(a, b, axes=(1,), keepdims=False)),
        (expected, lambda a, b: ((a - b) ** 2).mean(1)),
    ):
        first = torch.autograd.grad(run(*leaves).sin().sum(), leaves, create_graph=True)
        into += torch.autograd.grad(sum((each**3).sum() for each in first), leaves)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_squared_error_that_is_not_finite() -> None:
    for value in (math.nan, math.inf):
        found = losses._mean_square(
            torch.tensor([[value, 1.0]]), torch.zeros(1, 2), axes=(1,), keepdims=False
        )
        assert not math.isfinite(float(found))


# Writes between forward and backward ------------------------------------------------------


@pytest.mark.parametrize("weight", [1.0, 100.0])
@pytest.mark.parametrize("place", [0, 1])
def test_what_was_subtracted_may_be_written_to_before_backward(weight: float, place: int) -> None:
    """As op by op, where backward needs the difference only."""
    found = []
    for hybridize in (False, True):
        mx.random.seed(5)
        loss = mx.gluon.loss.L2Loss(weight=weight)
        if hybridize:
            loss.hybridize()
        x, label = mx.nd.random.normal(shape=(3, 4)), mx.nd.random.normal(shape=(3, 4))
        x.attach_grad()
        with mx.autograd.record():
            data = x * 2
            result = loss(data, label)
        (data, label)[place][:] = 7
        result.backward()
        found.append(x.grad.asnumpy())
    assert np.abs(found[0]).max() > 0.1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_data", [False, True])
def test_a_large_weight_may_be_written_to_where_backward_does_not_need_it(by_data: bool) -> None:
    for hybridize in (False, True):
        net = nn.Dense(600, in_units=600)
        net.initialize()
        if hybridize:
            net.hybridize()
        x = mx.nd.ones((2, 600))
        if by_data:
            x.attach_grad()
        with mx.autograd.record():
            total = net(x).sum()
        net.weight.data()[:] = 3
        if by_data:
            with pytest.raises(mx.MXNetError, match="changed in-place"):
                total.backward()
        else:
            total.backward()
            assert (net.weight.grad().asnumpy() == 2).all()
