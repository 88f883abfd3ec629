"""Maximum pooling of training programs by oneDNN, beside torch's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.exec.onednn import interface, pools
from regluon.gluon import nn

pytestmark = pytest.mark.skipif(
    interface.library() is None, reason="oneDNN's interface cannot be had on this platform"
)
WINDOWS = [
    ((3, 3), (2, 2), (1, 1)),
    ((2, 2), (2, 2), (0, 0)),
    ((3, 2), (1, 2), (1, 0)),
    ((2, 3), (3, 1), (0, 1)),
]


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_FEWEST", 0)


def _images(shape: tuple[int, ...], dtype: torch.dtype, ties: bool) -> torch.Tensor:
    torch.manual_seed(len(shape) + ties)
    data = torch.randint(-3, 3, shape).to(dtype) if ties else torch.randn(shape).to(dtype)
    return data.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 16, 9, 8), (1, 5, 7, 11)])
def test_maxima_and_their_gradient(
    shape: tuple[int, ...], dtype: torch.dtype, ties: bool, window: Any
) -> None:
    data = _images(shape, dtype, ties).requires_grad_()
    twin = data.detach().clone().requires_grad_()
    found, wanted = pools.maximum_pooling(data, *window), torch.max_pool2d(twin, *window)
    assert found is not None
    assert torch.equal(found, wanted)
    gradient = torch.randn(wanted.shape).to(dtype)
    (one,) = torch.autograd.grad(found, data, gradient)
    (other,) = torch.autograd.grad(wanted, twin, gradient)
    assert torch.allclose(one, other, atol=1e-6 if dtype is torch.float32 else 6e-2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("everywhere", [False, True])
def test_values_that_are_not_finite(value: float, everywhere: bool) -> None:
    data = _images((2, 3, 8, 8), torch.float32, False)
    if everywhere:
        data.fill_(value)
    else:
        data[0, 1, 2, 3] = value
    data.requires_grad_()
    twin = data.detach().clone().requires_grad_()
    found, wanted = pools.maximum_pooling(data, *WINDOWS[0]), torch.max_pool2d(twin, *WINDOWS[0])
    assert found is not None
    np.testing.assert_array_equal(found.detach().numpy(), wanted.detach().numpy())
    (one,) = torch.autograd.grad(found.sum(), data)
    (other,) = torch.autograd.grad(wanted.sum(), twin)
    assert torch.equal(one, other)


def test_gradient_of_the_gradient() -> None:
    data = _images((1, 3, 6, 6), torch.float32, False).requires_grad_()
    seconds = []
    for pool in (pools.maximum_pooling, torch.max_pool2d):
        result: Any = pool(data, *WINDOWS[0])
        (first,) = torch.autograd.grad((result**3).sum(), data, create_graph=True)
        seconds.append(torch.autograd.grad((first**2).sum(), data)[0])
    torch.testing.assert_close(seconds[0], seconds[1])


@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize("convention", ["valid", "full"])
def test_a_network_that_pools(library: bool, convention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    real = pools.PoolKernels.run
    monkeypatch.setattr(pools.PoolKernels, "run", lambda *given: (next(calls), real(*given))[1])
    if not library:
        monkeypatch.setattr(pools, "pool_kernels_for", lambda form: None)
    found = []
    for hybridize in (False, True):
        mx.random.seed(6)
        net = nn.HybridSequential()
        net.add(nn.Conv2D(4, 3, in_channels=2), nn.BatchNorm(in_channels=4), nn.Activation("relu"))
        net.add(nn.MaxPool2D(3, 2, ceil_mode=convention == "full"), nn.Dense(3, in_units=4 * 49))
        net.initialize(mx.init.Xavier())
        x = mx.nd.random.normal(shape=(3, 2, 17, 17))
        x.attach_grad()
        if hybridize:
            net.hybridize()
        with mx.autograd.record():
            out = net(x)
            loss = (out * out).sum()
        loss.backward()
        found.append([out.asnumpy(), x.grad.asnumpy(), net[0].weight.grad().asnumpy()])
    assert next(calls) == (1 if library and convention == "valid" else 0)
    for one, other in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


def test_what_batch_norm_gives_is_not_searched_for_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[bool] = []
    run = pools.PoolKernels.run

    def watched(self: pools.PoolKernels, data: torch.Tensor) -> Any:
        known.append(pools.is_marked(data))
        return run(self, data)

    monkeypatch.setattr(pools.PoolKernels, "run", watched)
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(in_channels=8), nn.Activation("relu"), nn.MaxPool2D(3, 2, 1))
    net.initialize()
    net.hybridize()
    values = np.random.default_rng(0).normal(size=(2, 8, 12, 12)).astype("float32")
    for nan in (False, True):
        if nan:
            values[0, 3, 2, 2] = np.nan
        x = mx.np.array(values)
        with mx.autograd.record():
            result = net(x)
        assert np.isnan(result.asnumpy()).any() == nan
    assert known == [True, False]


class Added(mx.gluon.HybridBlock):
    """Pools what batch normalization gives, with an input added to it."""

    def __init__(self, rectified: bool) -> None:
        super().__init__()
        self.norm, self.pool, self.rectified = nn.BatchNorm(in_channels=8), nn.MaxPool2D(3, 2, 1), rectified

    def forward(self, x: Any, other: Any) -> Any:
        made = self.norm(x) + other
        return self.pool(mx.npx.relu(made) if self.rectified else made)


@pytest.mark.parametrize("rectified", [False, True])
def test_nan_that_is_added_to_what_batch_norm_gives(rectified: bool) -> None:
    net = Added(rectified)
    net.initialize()
    net.hybridize()
    values = np.random.default_rng(0).normal(size=(2, 8, 12, 12)).astype("float32")
    others = np.zeros_like(values)
    for nan in (False, True):
        if nan:
            others[0, 3, 2, 2] = np.nan
        with mx.autograd.record():
            result = net(mx.np.array(values), mx.np.array(others)).asnumpy()
        assert np.isnan(result[0, 3]).any() == nan and not np.isnan(result[1]).any()


def test_images_that_are_written_to_may_have_nan_again() -> None:
    images = torch.zeros(1, 2, 3, 3)
    assert not pools.is_marked(images)
    pools.mark_without_nan(images)
    assert pools.is_marked(images)
    images[0, 0, 0, 0] = float("nan")
    assert not pools.is_marked(images)


def test_a_constant_channel_without_epsilon() -> None:
    values = np.random.default_rng(0).normal(size=(2, 8, 12, 12)).astype("float32")
    values[:, 3] = 2
    found = []
    for compiled in (False, True):
        net = nn.HybridSequential()
        net.add(nn.BatchNorm(epsilon=0.0, in_channels=8), nn.MaxPool2D(3, 2, 1))
        net.initialize()
        if compiled:
            net.hybridize()
        with mx.autograd.record():
            found.append(net(mx.np.array(values)).asnumpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)
