"""Several threads at once: recording, first calls of one net, training, one program."""

from __future__ import annotations

import threading
import time

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

LIMIT = 60.0


@pytest.fixture(autouse=True)
def switch_often():
    """Let threads interleave between almost any two steps."""
    import sys

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(count, work):
    """Run ``work(number)`` in ``count`` threads that start at one moment; gives the results in order."""
    results, errors = [None] * count, []
    gate = threading.Barrier(count)

    def run(number):
        try:
            gate.wait(LIMIT)
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    deadline = time.monotonic() + LIMIT
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    if errors:
        raise errors[0]
    return results


class OldStyle(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(4, activation="tanh")
        self.out = nn.Dense(2)

    def hybrid_forward(self, F, x):
        return self.out(self.hidden(x))


class NewStyle(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(4, activation="tanh")
        self.out = nn.Dense(2)

    def forward(self, x):
        return self.out(self.hidden(x))


def values_of(net):
    return [parameter.data().asnumpy().astype("float64") for parameter in net.collect_params().values()]


def computed(net, x):
    w0, b0, w1, b1 = values_of(net)
    return numpy.tanh(x @ w0.T + b0) @ w1.T + b1


INPUTS = numpy.random.RandomState(0).randn(8, 3, 3).astype("float32")


def test_modes_belong_to_a_thread():
    seen = []
    with autograd.record():
        thread = threading.Thread(
            target=lambda: seen.append((autograd.is_recording(), autograd.is_training()))
        )
        thread.start()
        thread.join()
        assert autograd.is_recording()
    assert seen == [(False, False)]


def test_independent_graphs_in_four_threads():
    def work(number):
        for step in range(50):
            x = mx.nd.array([number, step])
            x.attach_grad()
            with autograd.record():
                y = x * x * (number + 1)
            y.backward()
            numpy.testing.assert_array_equal(
                x.grad.asnumpy(), [2 * number * (number + 1), 2 * step * (number + 1)]
            )
        return True

    assert together(4, work) == [True] * 4


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_gradients_of_one_shared_net_add_up(hybrid):
    rounds, count, units = 50, 4, 20000  # so large that the sums of two threads would overlap
    net = nn.Dense(units, in_units=3)
    net.initialize()
    net.hybridize(hybrid)
    net.collect_params().setattr("grad_req", "add")

    def work(number):
        x = mx.nd.array(numpy.full((1, 3), number + 1))
        for _ in range(rounds):
            with autograd.record():
                y = net(x)
            y.backward()

    together(count, work)
    total = rounds * sum(range(1, count + 1))
    numpy.testing.assert_array_equal(net.weight.grad().asnumpy(), numpy.full((units, 3), total))
    numpy.testing.assert_array_equal(net.bias.grad().asnumpy(), [rounds * count] * units)


def test_moving_statistics_take_every_commit():
    rounds, count, channels = 50, 4, 20000
    net = nn.BatchNorm(in_channels=channels, momentum=0.99)
    net.initialize()

    def work(number):
        x = mx.nd.ones((2, channels)) * mx.nd.array([[3.0], [5.0]])
        for _ in range(rounds):
            with autograd.record():
                y = net(x)
            y.backward()

    together(count, work)
    expected = 4.0 * (1 - 0.99 ** (rounds * count))
    numpy.testing.assert_allclose(net.running_mean.data().asnumpy(), [expected] * channels, rtol=1e-4)


@pytest.mark.parametrize("style", [OldStyle, NewStyle])
@pytest.mark.parametrize("recording", [False, True], ids=["predicting", "recording"])
def test_eight_threads_call_a_fresh_hybridized_net_first_together(style, recording):
    for _ in range(200 if style is NewStyle else 50):
        net = style()
        net.initialize()
        net.hybridize()

        def work(number, net=net):
            if recording:
                with autograd.record():
                    out = net(mx.nd.array(INPUTS[number]))
                out.backward()
                return out.asnumpy()
            return net(mx.nd.array(INPUTS[number])).asnumpy()

        results = together(8, work)
        for x, result in zip(INPUTS, results, strict=True):
            numpy.testing.assert_allclose(result, computed(net, x), rtol=1e-4, atol=1e-6)


def test_eight_threads_call_a_fresh_imperative_net_first_together():
    for _ in range(25):
        net = NewStyle()
        net.initialize()
        results = together(8, lambda number, net=net: net(mx.nd.array(INPUTS[number])).asnumpy())
        for x, result in zip(INPUTS, results, strict=True):
            numpy.testing.assert_allclose(result, computed(net, x), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}], ids=["plain", "static"])
def test_eight_threads_on_one_program_for_200_rounds(flags):
    net = NewStyle()
    net.initialize()
    net.hybridize(**flags)
    net(mx.nd.array(INPUTS[0]))
    expected = [computed(net, x) for x in INPUTS]

    def work(number):
        x = mx.nd.array(INPUTS[number])
        kept = [net(x) for _ in range(200)]
        return [out.asnumpy() for out in kept]

    for results, right in zip(together(8, work), expected, strict=True):
        for result in results:
            numpy.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-6)


def train(number, hybrid, steps=100):
    """Training of net ``number``, from its own fixed first values."""
    rng = numpy.random.RandomState(number)
    net = NewStyle()
    net.initialize()
    net.hybridize(hybrid, static_alloc=bool(number % 2))
    net(mx.nd.array(INPUTS[0]))
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(rng.randn(*parameter.shape) * 0.3))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    x, target = mx.nd.array(INPUTS[number]), mx.nd.ones((3, 2)) * number
    loss_of = gluon.loss.L2Loss()
    losses = []
    for _ in range(steps):
        with autograd.record():
            loss = loss_of(net(x), target)
        loss.backward()
        trainer.step(3)
        losses.append(loss.asnumpy().sum())
    return losses


def test_eight_threads_train_eight_nets_as_one_thread_would():
    alone = [train(number, hybrid=False) for number in range(8)]
    assert all(losses[-1] < losses[0] for losses in alone)
    for result, right in zip(together(8, lambda n: train(n, hybrid=True)), alone, strict=True):
        numpy.testing.assert_allclose(result, right, rtol=1e-3, atol=1e-5)


def test_hybridizing_again_and_calling_do_not_wait_for_each_other():
    net = NewStyle()
    net.initialize()
    net(mx.nd.array(INPUTS[0]))
    expected = [computed(net, x) for x in INPUTS]

    def work(number):
        for step in range(40):
            if number == 0:
                net.hybridize(step % 2 == 0)
            else:
                result = net(mx.nd.array(INPUTS[number])).asnumpy()
                numpy.testing.assert_allclose(result, expected[number], rtol=1e-4, atol=1e-6)

    together(4, work)


def test_random_draws_of_threads_are_all_different():
    def work(number):
        return [mx.nd.random.uniform(shape=(4,)).asnumpy().tobytes() for _ in range(50)]

    drawn = [values for thread in together(4, work) for values in thread]
    assert len(set(drawn)) == len(drawn)
