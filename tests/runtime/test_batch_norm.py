"""When batch normalization moves its statistics: in backward, once for each recorded forward."""

from __future__ import annotations

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

MOMENTUM = 0.75
FIRST = numpy.array([[1.0, 10.0], [3.0, 30.0]], dtype="float32")
SECOND = numpy.array([[5.0, -4.0], [5.0, 4.0]], dtype="float32")


@pytest.fixture(params=[False, True], ids=["imperative", "hybridized"])
def hybrid(request):
    return request.param


def network(hybrid, **options):
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(momentum=MOMENTUM, in_channels=2, **options), nn.Dense(1, in_units=2))
    net.initialize()
    net.hybridize(hybrid)
    return net


def moved(*batches):
    """The moving mean and variance after these batches."""
    mean, variance = numpy.zeros(2), numpy.ones(2)
    for batch in batches:
        mean = MOMENTUM * mean + (1 - MOMENTUM) * batch.mean(axis=0)
        variance = MOMENTUM * variance + (1 - MOMENTUM) * batch.var(axis=0)
    return mean, variance


def assert_statistics(net, *batches):
    mean, variance = moved(*batches)
    numpy.testing.assert_allclose(net[0].running_mean.data().asnumpy(), mean, rtol=1e-5, atol=1e-6)
    numpy.testing.assert_allclose(net[0].running_var.data().asnumpy(), variance, rtol=1e-4)


def forward(net, batch):
    with autograd.record():
        return net(mx.nd.array(batch)).sum()


def test_one_forward_and_backward_move_them_once(hybrid):
    net = network(hybrid)
    loss = forward(net, FIRST)
    assert_statistics(net)
    loss.backward()
    assert_statistics(net, FIRST)


def test_without_backward_they_stay(hybrid):
    net = network(hybrid)
    forward(net, FIRST)
    with autograd.train_mode():
        net(mx.nd.array(FIRST))
    net(mx.nd.array(FIRST))
    assert_statistics(net)


def test_two_forwards_then_two_backwards_move_them_twice(hybrid):
    net = network(hybrid)
    first, second = forward(net, FIRST), forward(net, SECOND)
    first.backward()
    assert_statistics(net, FIRST)
    second.backward()
    assert_statistics(net, FIRST, SECOND)


def test_the_order_is_that_of_the_backwards(hybrid):
    net = network(hybrid)
    first, second = forward(net, FIRST), forward(net, SECOND)
    second.backward()
    first.backward()
    assert_statistics(net, SECOND, FIRST)


def test_a_second_backward_over_a_retained_graph_does_not_move_them_again(hybrid):
    net = network(hybrid)
    loss = forward(net, FIRST)
    loss.backward(retain_graph=True)
    loss.backward()
    assert_statistics(net, FIRST)


def test_two_heads_of_one_forward_move_them_once(hybrid):
    net = network(hybrid)
    with autograd.record():
        out = net(mx.nd.array(FIRST))
        heads = [out.sum(), (out * out).sum()]
    autograd.backward(heads)
    assert_statistics(net, FIRST)


def test_one_layer_called_twice_in_a_forward_moves_them_twice(hybrid):
    class Twice(gluon.HybridBlock):
        def __init__(self, norm, **kwargs):
            super().__init__(**kwargs)
            self.norm = norm

        def forward(self, x, y):
            return self.norm(x) * 2 + self.norm(y)

    net = network(False)
    twice = Twice(net[0])
    twice.hybridize(hybrid)
    with autograd.record():
        loss = twice(mx.nd.array(FIRST), mx.nd.array(FIRST))
    loss.backward()
    assert_statistics(net, FIRST, FIRST)


def test_second_order_moves_them_once(hybrid):
    net = network(hybrid)
    x = mx.nd.array(FIRST)
    x.attach_grad()
    with autograd.record():
        (slope,) = autograd.grad((net(x) ** 2).sum(), [x], create_graph=True, retain_graph=True)
        loss = (slope * slope).sum()
    loss.backward()
    assert_statistics(net, FIRST)


def test_recording_in_predict_mode_uses_them_and_leaves_them(hybrid):
    net = network(hybrid)
    x = mx.nd.array(FIRST)
    x.attach_grad()
    with autograd.record(train_mode=False):
        out = net(x).sum()
    out.backward()
    assert_statistics(net)
    weight = net[1].weight.data().asnumpy()
    expected = numpy.repeat(weight, 2, axis=0) / numpy.sqrt(1 + 1e-5)
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-5)


def test_global_statistics_are_used_and_left_in_training(hybrid):
    net = network(hybrid, use_global_stats=True)
    net[0].running_mean.set_data(mx.nd.array([1.0, 2.0]))
    with autograd.record():
        out = net[0](mx.nd.array(FIRST))
        loss = net(mx.nd.array(FIRST)).sum()
    loss.backward()
    numpy.testing.assert_allclose(
        out.asnumpy(), (FIRST - numpy.array([1.0, 2.0])) / numpy.sqrt(1 + 1e-5), rtol=1e-5
    )
    numpy.testing.assert_array_equal(net[0].running_mean.data().asnumpy(), [1.0, 2.0])
    numpy.testing.assert_array_equal(net[0].running_var.data().asnumpy(), [1.0, 1.0])


def test_a_commit_between_a_predicting_forward_and_its_backward_does_no_harm(hybrid):
    net = network(hybrid)
    x = mx.nd.array(FIRST)
    x.attach_grad()
    training = forward(net, SECOND)
    with autograd.record(train_mode=False):
        out = net(x).sum()
    training.backward()
    assert_statistics(net, SECOND)
    out.backward()
    expected = numpy.repeat(net[1].weight.data().asnumpy(), 2, axis=0) / numpy.sqrt(1 + 1e-5)
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-5)


def test_a_frozen_layer_that_needs_no_gradient_is_not_moved(hybrid):
    """As in the original: no backward passes through it."""
    net = network(hybrid)
    net[0].collect_params().setattr("grad_req", "null")
    forward(net, FIRST).backward()
    assert_statistics(net)


def test_the_statistics_arrays_stay_the_same_memory(hybrid):
    net = network(hybrid)
    before = net[0].running_mean.data()._t.data_ptr(), net[0].running_var.data()._t.data_ptr()
    for _ in range(2):
        forward(net, FIRST).backward()
    after = net[0].running_mean.data()._t.data_ptr(), net[0].running_var.data()._t.data_ptr()
    assert after == before
