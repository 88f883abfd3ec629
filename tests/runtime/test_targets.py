"""Gradients that kernels write to their arrays themselves: the same values as copied ones, always."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec.onednn import interface, training
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
