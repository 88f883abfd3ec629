"""SGD with momentum by torch's fused kernel, and without it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import regluon as mx
from regluon.optimizer import momentum


def _trajectory(settings: dict[str, float], columns: bool = False) -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    optimizer = mx.optimizer.SGD(**settings)
    update = mx.optimizer.get_updater(optimizer)
    shapes = [(5, 7), (3,), (2, 3, 4)]
    weights = [mx.nd.array(generator.normal(size=shape)) for shape in shapes]
    for step in range(4):
        optimizer.lr = 0.1 / (step + 1)
        gradients = [mx.nd.array(generator.normal(size=shape)) for shape in shapes]
        if columns:
            gradients[0] = mx.nd.array(generator.normal(size=(7, 5))).T
        before = [gradient.asnumpy() for gradient in gradients]
        update(list(range(3)), gradients, weights)
        for gradient, value in zip(gradients, before, strict=True):
            np.testing.assert_array_equal(gradient.asnumpy(), value)
    return [weight.asnumpy() for weight in weights]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    "more", [{}, {"wd": 0.01}, {"rescale_grad": 0.125}, {"wd": 0.01, "rescale_grad": 3.0}]
)
def test_with_and_without_the_fused_kernel(
    more: dict[str, float], columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"momentum": 0.9, **more}
    fused = _trajectory(settings, columns)
    monkeypatch.setattr(momentum, "_FUSED", None)
    for one, other in zip(fused, _trajectory(settings, columns), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.skipif(momentum._FUSED is None, reason="this torch has no fused SGD")
def test_a_fused_step_counts_as_a_write() -> None:
    net = mx.gluon.nn.Dense(3, in_units=4)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5, "momentum": 0.9})
    net.hybridize()
    x = mx.nd.ones((2, 4))
    for _ in range(3):
        before = net(x).asnumpy()
        with mx.autograd.record():
            loss = net(x).sum()
        loss.backward()
        version = net.weight.data()._t._version
        trainer.step(1)
        assert net.weight.data()._t._version > version
        after = net(x).asnumpy()
        assert np.abs(after - before).min() > 0.1
        plain = x.asnumpy() @ net.weight.data().asnumpy().T + net.bias.data().asnumpy()
        np.testing.assert_allclose(after, plain, rtol=1e-5)


def test_torch_has_the_kernel_that_is_asked_for() -> None:
    assert (momentum._FUSED is None) == (not hasattr(torch, "_fused_sgd_"))
