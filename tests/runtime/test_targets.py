"""Gradients that kernels write to their arrays themselves: the same values as copied ones, always."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.base.sharing import mark_shared
from regluon.exec import training as training_program
from regluon.exec.onednn import interface, training
from regluon.exec.onednn.norms import NormKernels
from regluon.gluon import nn
from regluon.runtime import targets

needs_kernels = pytest.mark.skipif(
    interface.library() is None, reason="oneDNN's interface cannot be had on this platform"
)
# Weights of 32 x 32 x 3 x 3 values: enough that a copy is worth sparing.
CHANNELS, FILTERS = 32, 32


def images() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(2, CHANNELS, 6, 6)).astype("float32")


class Twice(mx.gluon.HybridBlock):
    """The same weight in two layers, or in a layer and a penalty."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.layer = nn.Conv2D(CHANNELS, 3, padding=1, in_channels=CHANNELS, use_bias=False)

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        if self.how == "layers":
            y = self.layer(mx.npx.relu(y))
        result = (y * y).sum()
        if self.how == "penalty":
            weight = self.layer.weight.data()
            result = result + (weight * weight * weight).sum()
        return result


def step(net: Any, values: np.ndarray) -> None:
    with mx.autograd.record():
        out = net(mx.np.array(values))
        loss = (out * out).sum()
    loss.backward()


def convolution(hybridize: bool, request: str = "write") -> Any:
    mx.random.seed(3)
    net = nn.Conv2D(FILTERS, 3, in_channels=CHANNELS)
    net.initialize(mx.init.Xavier())
    net.weight.grad_req = request
    if hybridize:
        net.hybridize()
    return net


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each kernel was given an array to write to."""
    found: list[bool] = []
    real = targets.take

    def take(leaf: torch.Tensor) -> torch.Tensor | None:
        array = real(leaf)
        found.append(array is not None)
        return array

    monkeypatch.setattr(training.targets, "take", take)
    return found


@needs_kernels
@pytest.mark.parametrize("request_", ["write", "add"])
def test_a_gradient_is_written_where_it_belongs(request_: str, taken: list[bool]) -> None:
    net, plain = convolution(True, request_), convolution(False, request_)
    memory = net.weight.grad()._t.data_ptr()
    for factor in (1.0, 2.0):
        version = net.weight.grad()._t._version
        for each in (net, plain):
            step(each, factor * images())
        assert net.weight.grad()._t._version > version
        np.testing.assert_allclose(
            net.weight.grad().asnumpy(), plain.weight.grad().asnumpy(), rtol=1e-4, atol=1e-2
        )
    assert taken == [request_ == "write"] * 2
    assert net.weight.grad()._t.data_ptr() == memory


@needs_kernels
@pytest.mark.parametrize("how", ["layers", "penalty"])
def test_a_weight_that_is_used_twice(how: str, taken: list[bool]) -> None:
    found = []
    for hybridize in (False, True):
        mx.random.seed(4)
        net = Twice(how)
        net.initialize(mx.init.Xavier())
        if hybridize:
            net.hybridize()
        for _ in range(2):
            with mx.autograd.record():
                loss = net(mx.np.array(images()))
            loss.backward()
        found.append(net.layer.weight.grad().asnumpy())
    assert True in taken
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-3 * np.abs(found[0]).max())


@needs_kernels
@pytest.mark.parametrize("holder", ["view", "recorded"])
def test_an_array_that_something_holds_is_not_written_early(holder: str, taken: list[bool]) -> None:
    net, plain = convolution(True), convolution(False)
    for each in (net, plain):
        step(each, images())
    held = net.weight.grad()._t.view(-1) if holder == "view" else None
    found = []
    for each in (net, plain):
        before = each.weight.grad()
        with mx.autograd.record():
            out = each(mx.np.array(images()))
            loss = (out * out).sum()
            if holder == "recorded":
                # Its backward reads what the gradient was.
                loss = loss + (each.weight.data() * before).sum()
        loss.backward()
        found.append(each.weight.grad().asnumpy())
    assert taken == [True, False]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-3 * np.abs(found[1]).max())
    if held is not None:
        np.testing.assert_array_equal(held.view(-1).numpy(), found[0].ravel())


def test_arrays_of_another_thread_are_left_to_it() -> None:
    leaf, array = torch.zeros(100, 100, requires_grad=True), torch.zeros(100, 100)
    found: list[Any] = []

    def other() -> None:
        found.append(targets.claimed_elsewhere(array))
        with targets.offering([(leaf, array)]):
            found.append(targets.take(leaf))

    with targets.offering([(leaf, array)]):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not targets.claimed_elsewhere(array)
        with targets.offering([(leaf, array)]):
            pass
        assert targets.take(leaf) is array
        assert targets.take(leaf) is None
    assert found == [True, None]
    assert not targets.claimed_elsewhere(array)
    assert targets.take(leaf) is None


def test_nothing_stays_claimed_after_a_failure() -> None:
    leaf, array = torch.zeros(100, 100, requires_grad=True), torch.zeros(100, 100)
    with pytest.raises(ValueError, match="broken"), targets.offering([(leaf, array)]):
        raise ValueError("broken")
    with targets.offering([(leaf, array)]):
        assert targets.take(leaf) is array


@pytest.mark.parametrize(
    "array",
    [
        torch.zeros(100, 101),
        torch.zeros(100, 100, dtype=torch.float64),
        torch.zeros(100, 100).T,
        torch.zeros(2, 100, 100)[1],
    ],
)
def test_arrays_that_do_not_fit_are_not_offered(array: torch.Tensor) -> None:
    leaf = torch.zeros(100, 100, requires_grad=True)
    with targets.offering([(leaf, array)]):
        assert targets.take(leaf) is None


def test_without_torchs_counts_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_storage_count", None)
    targets._counts_alone.cache_clear()
    leaf, array = torch.zeros(100, 100, requires_grad=True), torch.zeros(100, 100)
    with targets.offering([(leaf, array)]):
        assert targets.take(leaf) is None
    targets._counts_alone.cache_clear()


# Received gradients ----------------------------------------------------------------


class Received(torch.autograd.Function):
    """Passes its input on, and notes whether the gradient that it receives may be overwritten."""

    @staticmethod
    def forward(context: Any, data: torch.Tensor, seen: list[bool]) -> torch.Tensor:
        context.seen = seen
        return data.clone()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        context.seen.append(targets.is_spare(gradient))
        return gradient.clone(), None


class BothAlike(torch.autograd.Function):
    """The sum of two values, which get the same gradient, not copies of it."""

    @staticmethod
    def forward(context: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first + second

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0], gradients[0]


def received(use: Any) -> list[bool]:
    """Whether the gradient of a value may be overwritten when ``use(value, kept)`` made it."""
    seen: list[bool] = []
    kept: list[Any] = []
    value = Received.apply(torch.ones(3, 4, requires_grad=True) * 2, seen)
    result = use(value, kept)
    if result is not None:
        result.sum().backward()
    return seen


def after(value: torch.Tensor) -> torch.Tensor:
    return Received.apply(value, [])


def keep_whole(value: torch.Tensor, kept: list[Any]) -> torch.Tensor:
    value.register_hook(kept.append)
    return after(value)


def keep_alias(value: torch.Tensor, kept: list[Any]) -> torch.Tensor:
    value.register_hook(lambda gradient: kept.append(gradient.detach()))
    return after(value)


def keep_array(value: torch.Tensor, kept: list[Any]) -> torch.Tensor:
    value.register_hook(lambda gradient: kept.append(gradient.numpy()))
    return after(value)


def keep_before(value: torch.Tensor, kept: list[Any]) -> torch.Tensor:
    value.grad_fn.register_prehook(kept.append)
    return after(value)


def keep_after(value: torch.Tensor, kept: list[Any]) -> torch.Tensor:
    value.grad_fn.register_hook(lambda given, received: kept.append(received))
    return after(value)


@pytest.mark.parametrize(
    ("use", "spare"),
    [
        (lambda value, kept: after(value), True),
        (lambda value, kept: value.relu(), True),
        (lambda value, kept: after(value) + after(value), True),
        # One number in memory, seen as many.
        (lambda value, kept: value, False),
        (lambda value, kept: value.reshape(-1), False),
        (lambda value, kept: BothAlike.apply(value, torch.ones(3, 4, requires_grad=True) * 2), False),
        (lambda value, kept: value.backward(torch.ones(3, 4)), False),
        (keep_whole, False),
        (keep_alias, False),
        (keep_array, False),
        (keep_before, False),
        (keep_after, False),
    ],
)
def test_a_received_gradient_is_spare_only_if_nothing_else_holds_it(use: Any, spare: bool) -> None:
    assert targets._received_alone() is not None
    assert received(use) == [spare]


def test_a_gradient_that_numpy_shares_is_not_spare() -> None:
    class Shared(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, data: torch.Tensor) -> torch.Tensor:
            return data.clone()

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            return mark_shared(gradients[0].clone())

    assert received(lambda value, kept: Shared.apply(value)) == [False]


def test_without_torchs_counts_no_gradient_is_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_received_alone", lambda: None)
    assert received(lambda value, kept: after(value)) == [False]


def _watched(function: Any, overwritten: list[bool]) -> Any:
    def call(*given: Any) -> Any:
        overwritten.append(given[-1] is not None)
        return function(*given)

    return call


@needs_kernels
@pytest.mark.parametrize("held", [False, True])
def test_batch_norm_overwrites_no_gradient_that_a_hook_keeps(
    held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten: list[bool] = []
    monkeypatch.setattr(NormKernels, "gradients", _watched(NormKernels.gradients, overwritten))
    data = torch.randn(2, CHANNELS, 6, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    factors = torch.randn(data.shape).contiguous(memory_format=torch.channels_last)
    vectors = [torch.ones(CHANNELS, requires_grad=True), torch.zeros(CHANNELS, requires_grad=True)]
    kept: list[torch.Tensor] = []
    result = training_program._Norm.apply(data, *vectors, None, 1e-5, False, lambda *statistics: None)
    if held:
        result.register_hook(kept.append)
    (result * factors).sum().backward()
    assert overwritten == [not held]
    assert all(torch.equal(each, factors) for each in kept)


@needs_kernels
def test_gradients_of_images_do_not_change_when_spare_ones_are_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layers that add their input, so that some gradients have two readers."""

    class Residual(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.HybridSequential()
            for _ in range(2):
                self.body.add(nn.Conv2D(CHANNELS, 3, padding=1, in_channels=CHANNELS, use_bias=False))
                self.body.add(nn.BatchNorm(in_channels=CHANNELS))
                self.body.add(nn.Activation("relu"))
            self.last = nn.BatchNorm(in_channels=CHANNELS)

        def forward(self, x: Any) -> Any:
            y = mx.npx.relu(x + self.last(self.body(x)))
            return mx.npx.relu(y + self.last(self.body(y)))

    def gradients() -> list[np.ndarray]:
        mx.random.seed(3)
        net = Residual()
        net.initialize(mx.init.Xavier())
        net.hybridize()
        x = mx.np.array(images())
        x.attach_grad()
        with mx.autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        return [x.grad.asnumpy(), *(p.grad().asnumpy() for p in net.collect_params("(?!.*running)").values())]

    found = gradients()
    overwritten: list[bool] = []
    monkeypatch.setattr(NormKernels, "gradients", _watched(NormKernels.gradients, overwritten))
    assert all(map(np.array_equal, gradients(), found))
    assert any(overwritten)
    monkeypatch.setattr(training_program, "is_spare", lambda gradient: False)
    plain = gradients()
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_array_equal(one, other)
