"""Training with a scaled loss: the scale, skipped steps, and the accuracy that is reached."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import regluon as mx
from regluon import amp, autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn


def dense() -> Any:
    net = nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    return net


def trainer_of(net: Any, **options: Any) -> Any:
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, **options})


class Gradient:
    """What a scaler reads of a parameter."""

    grad_req = "write"

    def __init__(self, *values: float) -> None:
        self._grad = [mx.nd.array([value]) for value in values]


# The scale -----------------------------------------------------------------


def test_the_scale_halves_on_overflow_and_doubles_after_a_row_of_good_steps() -> None:
    scaler = amp.LossScaler()
    # As in the originals: 2^16 at first, doubled after 2000 steps in a row, at most 2^24.
    assert scaler.loss_scale == 65536.0
    seen = []
    for value in (1.0, float("inf"), 2.0, float("nan"), -float("inf")):
        seen.append((scaler.has_overflow([Gradient(1.0), Gradient(value)]), scaler.loss_scale))
    assert seen == [(False, 65536.0), (True, 32768.0), (False, 32768.0), (True, 16384.0), (True, 8192.0)]
    for _ in range(1999):
        assert not scaler.has_overflow([Gradient(1.0)])
    assert scaler.loss_scale == 8192.0
    scaler.has_overflow([Gradient(1.0)])
    assert scaler.loss_scale == 16384.0
    capped = amp.LossScaler(init_scale=4.0, max_scale=8.0, scale_seq_len=1)
    for _ in range(3):
        capped.has_overflow([])
    assert capped.loss_scale == 8.0


def test_scaled_gradients_are_divided_again_by_the_step_or_by_unscale() -> None:
    amp.init("bfloat16")
    net = dense()
    trainer = trainer_of(net)
    amp.init_trainer(trainer)
    x = mx.np.ones((4, 3))
    for unscaled in (False, True):
        before = net.weight.data().asnumpy().copy()
        with autograd.record():
            loss = net(x).sum()
            with amp.scale_loss(loss, trainer) as scaled:
                scaled.backward()
        assert float(scaled) == float(loss) * 65536
        # Each weight is read once for each of four rows of ones.
        assert np.all(net.weight.grad().asnumpy() == 4 * 65536)
        if unscaled:
            amp.unscale(trainer)
            assert np.all(net.weight.grad().asnumpy() == 4)
            amp.unscale(trainer)
            assert np.all(net.weight.grad().asnumpy() == 4), "a second time changes nothing"
        trainer.step(4)
        np.testing.assert_allclose(net.weight.data().asnumpy(), before - 0.5, rtol=1e-6)


def test_several_losses_are_scaled_as_a_list() -> None:
    amp.init()
    trainer = trainer_of(dense())
    amp.init_trainer(trainer)
    with amp.scale_loss((mx.nd.ones((1,)), mx.nd.ones((2,))), trainer) as losses:
        assert [one.asnumpy().tolist() for one in losses] == [[65536.0], [65536.0, 65536.0]]


def test_own_rescaling_of_the_optimizer_is_kept() -> None:
    amp.init("bfloat16")
    net = dense()
    trainer = trainer_of(net, rescale_grad=0.25)
    amp.init_trainer(trainer)
    with autograd.record():
        with amp.scale_loss(net(mx.np.ones((1, 3))).sum(), trainer) as scaled:
            scaled.backward()
    trainer.step(1)
    np.testing.assert_allclose(net.weight.data().asnumpy(), 1 - 0.5 * 0.25, rtol=1e-6)


@pytest.mark.parametrize("method", ["step", "update"])
def test_a_step_that_overflows_is_skipped_and_halves_the_scale(method: str) -> None:
    amp.init("float16")
    net = dense()
    trainer = trainer_of(net, momentum=0.9)
    amp.init_trainer(trainer)
    # 1000 per gradient times 65536 is beyond the range of float16, 65504.
    x = mx.np.ones((1, 3)) * 1000
    before = net.weight.data().asnumpy().copy()
    with autograd.record():
        with amp.scale_loss(net(x).sum(), trainer) as scaled:
            scaled.backward()
    assert not np.isfinite(net.weight.grad().asnumpy()).all()
    getattr(trainer, method)(1)
    np.testing.assert_array_equal(net.weight.data().asnumpy(), before)
    assert trainer._amp_loss_scaler.loss_scale == 32768.0
    for _ in range(20):
        with autograd.record():
            with amp.scale_loss(net(x).sum(), trainer) as scaled:
                scaled.backward()
        getattr(trainer, method)(1)
        if np.isfinite(net.weight.grad().asnumpy()).all():
            break
    np.testing.assert_allclose(net.weight.data().asnumpy(), before - 0.5 * 1000, rtol=1e-3)
    assert trainer._amp_loss_scaler.loss_scale * 1000 < 65504


def test_wrong_use_is_refused() -> None:
    trainer = trainer_of(dense())
    with pytest.raises(MXNetError, match=r"did you forget to call amp\.init\(\)"):
        amp.init_trainer(trainer)
    amp.init()
    with pytest.raises(MXNetError, match=r"call amp\.init_trainer\(trainer\)"), amp.scale_loss(1.0, trainer):
        pass
    amp.unscale(trainer)
    with pytest.raises(TypeError, match="only compatible with Gluon Trainer; received the optimizer SGD"):
        amp.init_trainer(mx.optimizer.SGD())
    with pytest.raises(
        TypeError, match="should be a Gluon Trainer or an optimizer, instead is <class 'int'>"
    ):
        amp.init_trainer(3)


# Accuracy -----------------------------------------------------------------


def digits() -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(images))
    return (images[order] / 16).astype("float32"), labels[order].astype("float32")


def score(net: Any, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of right answers on the digits after the first thousand, which are for training."""
    answers = net(mx.np.array(images[1000:])).astype("float32").asnumpy().argmax(1)
    return float((answers == labels[1000:]).mean())


def train(net: Any, images: np.ndarray, labels: np.ndarray, scaled: bool, seed: int, epochs: int) -> None:
    trainer = trainer_of(net, learning_rate=0.1, momentum=0.9)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    if scaled:
        amp.init_trainer(trainer)
    shuffle = np.random.RandomState(seed)
    for epoch in range(epochs):
        if epoch == epochs - 3:
            trainer.set_learning_rate(0.01)
        for batch in np.split(shuffle.permutation(1000), 10):
            x, y = mx.np.array(images[batch]), mx.np.array(labels[batch])
            with autograd.record():
                loss = loss_of(net(x), y)
                if scaled:
                    with amp.scale_loss(loss, trainer) as larger:
                        larger.backward()
            if not scaled:
                loss.backward()
            trainer.step(100)


@lru_cache
def accuracy(low: str | None) -> float:
    """The mean over three trainings: one alone differs by some tenths of a point from the next."""
    images, labels = digits()
    found = []
    for seed in range(3):
        mx.random.seed(seed)
        if low is not None:
            amp.init(low)
        net = nn.HybridSequential()
        net.add(nn.Dense(64, activation="relu"), nn.Dense(10))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        train(net, images, labels, low is not None, seed, 10)
        found.append(score(net, images, labels))
    amp.reset()
    return float(np.mean(found))


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
def test_a_network_learns_digits_as_well(low: str) -> None:
    exact = accuracy(None)
    assert exact > 0.94
    assert accuracy(low) > exact - 0.005


def test_a_converted_network_recognises_digits_as_well() -> None:
    images, labels = digits()
    images = images.reshape(-1, 1, 8, 8)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2))
    net.add(nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    train(net, images, labels, False, 0, 10)
    exact = score(net, images, labels)
    assert exact > 0.95
    for low in ("bfloat16", "float16"):
        for offline in (False, True):
            low_net = amp.convert_hybrid_block(net, low, cast_optional_params=offline)
            assert abs(score(low_net, images, labels) - exact) < 0.005
