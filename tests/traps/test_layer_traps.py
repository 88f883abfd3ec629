"""Details of layers that went wrong when networks moved between libraries: lesson 64."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon import gluon
from regluon.gluon import nn

equal = numpy.testing.assert_allclose


@pytest.mark.parametrize("hybridized", [False, True])
def test_convolutions_pad_stride_dilate_and_group(style: Any, hybridized: bool) -> None:
    x = numpy.random.RandomState(0).randn(2, 4, 9, 8).astype("float32")
    layer = nn.Conv2D(6, (3, 2), strides=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)
    layer.initialize(mx.init.Xavier())
    layer.hybridize(hybridized)
    out = layer(style.array(x)).asnumpy()
    weight, bias = layer.weight.data().asnumpy(), layer.bias.data().asnumpy()
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2))).astype("float64")
    assert weight.shape == (6, 2, 3, 2) and out.shape == (2, 6, 5, 10)
    for n, channel, row, column in ((0, 0, 0, 0), (1, 2, 4, 9), (1, 3, 2, 5), (0, 5, 4, 0)):
        group = slice(0, 2) if channel < 3 else slice(2, 4)
        window = padded[n, group, 2 * row : 2 * row + 3, column : column + 3 : 2]
        equal(out[n, channel, row, column], (window * weight[channel]).sum() + bias[channel], rtol=1e-4)


def test_pooling_counts_padding_and_rounds(style: Any) -> None:
    ones = style.array(numpy.ones((1, 1, 4, 4)))
    counted = nn.AvgPool2D(3, 1, padding=1)(ones).asnumpy()[0, 0]
    equal(counted[0, :2], [4 / 9, 6 / 9])
    equal(nn.AvgPool2D(3, 1, padding=1, count_include_pad=False)(ones).asnumpy()[0, 0], numpy.ones((4, 4)))
    eight = style.range(1, 1, 8, 8)
    assert nn.MaxPool2D(3, 2)(eight).shape == (1, 1, 3, 3)
    full = nn.MaxPool2D(3, 2, ceil_mode=True)(eight).asnumpy()[0, 0]
    assert full.shape == (4, 4) and full[3].tolist() == [58.0, 60.0, 62.0, 63.0]


@pytest.mark.parametrize("hybridized", [False, True])
def test_flattening_keeps_the_order_of_channels(style: Any, hybridized: bool) -> None:
    x = numpy.arange(12, dtype="float32").reshape(1, 3, 2, 2)
    layer = nn.Dense(1, use_bias=False)
    layer.initialize()
    layer.hybridize(hybridized)
    layer(style.array(x))
    layer.weight.set_data(style.range(1, 12))
    assert layer(style.array(x)).asnumpy().item() == float((x.ravel() ** 2).sum())


def test_layer_norm_and_its_epsilon(style: Any) -> None:
    layer = nn.LayerNorm(epsilon=0.5, in_channels=2)
    layer.initialize()
    equal(layer(style.array([[1.0, 3.0]])).asnumpy(), [[-1 / 1.5**0.5, 1 / 1.5**0.5]], rtol=1e-5)


def test_cross_entropy_takes_its_axis_and_labels(style: Any) -> None:
    scores = numpy.random.RandomState(1).randn(2, 3, 4).astype("float32")
    labels = numpy.array([[0, 1, 2, 0], [2, 2, 1, 0]], dtype="float32")
    logs = scores - numpy.log(numpy.exp(scores).sum(1, keepdims=True))
    chosen = numpy.take_along_axis(logs, labels[:, None].astype(int), 1)[:, 0]
    loss = gluon.loss.SoftmaxCrossEntropyLoss(axis=1)(style.array(scores), style.array(labels))
    equal(loss.asnumpy(), -chosen.mean(1), rtol=1e-5)


def test_slopes_and_activations(style: Any) -> None:
    x = style.array([-2.0, 3.0])
    prelu = nn.PReLU()
    prelu.initialize()
    equal(prelu(x).asnumpy(), [-0.5, 3.0])
    equal(nn.LeakyReLU(0.1)(x).asnumpy(), [-0.2, 3.0], rtol=1e-6)
    equal(nn.ELU(0.5)(x).asnumpy(), [0.5 * (numpy.exp(-2) - 1), 3.0], rtol=1e-6)
    equal(nn.Swish()(x).asnumpy(), [-2 / (1 + numpy.exp(2)), 3 / (1 + numpy.exp(-3))], rtol=1e-6)


def test_a_fixed_gamma_crosses_to_torch(style: Any) -> None:
    """A module must not use the gamma that a file carries for a layer with scale=False."""
    layer = nn.BatchNorm(scale=False, in_channels=2, epsilon=1e-3)
    layer.initialize()
    layer.gamma.set_data(style.array([7.0, 7.0]))
    layer.running_mean.set_data(style.array([1.0, 0.0]))
    module = layer.to_torch().eval()
    out = module(torch.tensor([[2.0, 1.0]]))
    equal(out.detach().numpy(), numpy.ones((1, 2)) / numpy.sqrt(1.001), rtol=1e-6)


def test_smooth_l1_has_its_bend_at_one_unless_told(style: Any) -> None:
    """Lesson 64: numbers of MXNet 1.9.1 and 2.0.0b1 without ``scalar``."""
    function = mx.nd.smooth_l1 if style.level == 1 else mx.npx.smooth_l1
    equal(function(style.array([0.3, -2.0])).asnumpy(), [0.045, 1.5], rtol=1e-6)
