"""Nothing is kept that is not needed: after backward, after an error, and by a hybridized block."""

from __future__ import annotations

import gc
import weakref

import numpy
import pytest
from torch.multiprocessing.reductions import StorageWeakRef

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn


@pytest.fixture(autouse=True)
def without_collector():
    """References must be dropped when they are no longer needed, not when the collector comes by."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Memory:
    """Watches the memory of an array, whoever holds it."""

    def __init__(self, array):
        self._storage = StorageWeakRef(array._t.untyped_storage())

    def __call__(self):
        return None if self._storage.expired() else "still there"


class Keeper(autograd.Function):
    """Keeps an array of its own for backward."""

    kept = None

    def forward(self, x):
        y = x * 1
        self.save_for_backward(y)
        type(self).kept = Memory(y)
        return x * 2

    def backward(self, dy):
        return dy * 2


def network(hybrid):
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(), nn.Dropout(0.5), nn.Dense(3)
    )
    net.initialize()
    net.hybridize(hybrid)
    return net


def data(*shape):
    return mx.nd.array(numpy.random.RandomState(0).randn(*shape))


def test_backward_lets_go_of_the_graph_while_the_result_lives():
    x = data(4, 4)
    x.attach_grad()
    with autograd.record():
        hidden = x * x
        loss = mx.nd.sin(hidden)
    watched = Memory(hidden)
    del hidden
    assert watched() is not None  # the cosine of it is the gradient
    loss.backward()
    assert watched() is None
    assert loss.shape == (4, 4)


def test_a_retained_graph_is_kept_until_it_is_used_up():
    x = data(4)
    x.attach_grad()
    with autograd.record():
        loss = Keeper()(x) + 1
    loss.backward(retain_graph=True)
    assert Keeper.kept() is not None
    loss.backward()
    assert Keeper.kept() is None


def test_a_custom_function_lets_go_of_what_it_saved():
    x = data(4)
    x.attach_grad()
    with autograd.record():
        middle = Keeper()(x)
        loss = middle * 3
    loss.backward()
    assert Keeper.kept() is None
    assert middle.shape == (4,)


def test_grad_lets_go_of_the_graph():
    x = data(4)
    x.attach_grad()
    with autograd.record():
        y = Keeper()(x) * 1
    autograd.grad(y, [x])
    assert Keeper.kept() is None


def test_a_dropped_graph_that_was_never_differentiated_is_freed():
    x = data(4)
    x.attach_grad()
    with autograd.record():
        y = Keeper()(x) * 1
    del y
    assert Keeper.kept() is None


def test_second_order_leaves_nothing_behind():
    x = data(4)
    x.attach_grad()
    with autograd.record():
        y = mx.nd.tanh(x * x)
        (first,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
    watched = [Memory(y), Memory(first)]
    first.backward()
    del y, first
    assert [ref() for ref in watched] == [None, None]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_exception_leaves_nothing_behind(where):
    class Fails(autograd.Function):
        def forward(self, x):
            if where == "forward":
                raise KeyError("stop")
            return x * 1

        def backward(self, dy):
            raise KeyError("stop")

    def run():
        x = data(4)
        x.attach_grad()
        try:
            with autograd.record():
                y = Fails()(Keeper()(x))
            y.backward()
        except KeyError:
            return weakref.ref(x)
        raise AssertionError("the error was lost")

    x = run()
    gc.collect()  # a traceback is a cycle with the frame that holds it
    assert x() is None
    assert Keeper.kept() is None


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_a_network_keeps_neither_inputs_nor_results(hybrid):
    net = network(hybrid)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    loss_of.hybridize(hybrid)
    trainer = gluon.Trainer(net.collect_params(), "adam")
    watched = []
    for _ in range(3):
        x, label = data(2, 3, 6, 6), mx.nd.array([0, 2])
        with autograd.record():
            out = net(x)
            loss = loss_of(out, label)
        loss.backward()
        trainer.step(2)
        net(x)
        watched += [kind(thing) for kind in (weakref.ref, Memory) for thing in (x, label, out, loss)]
    del x, label, out, loss
    if hybrid:
        gc.collect()  # recording a graph is done with cycles, which are collected once
    assert [ref() for ref in watched] == [None] * len(watched)


def test_calls_of_a_recorded_graph_make_no_garbage():
    net = network(True)
    for mode in (autograd.record, autograd.pause):
        with mode():
            net(data(2, 3, 6, 6))
    gc.collect()
    x = data(2, 3, 6, 6)
    x.attach_grad()
    with autograd.record():
        out = net(x)
    out.backward()
    net(x)
    watched = [kind(thing) for kind in (weakref.ref, Memory) for thing in (x, out)]
    del x, out
    assert [ref() for ref in watched] == [None] * 4


def test_a_size_read_while_recording_does_not_keep_the_first_input():
    class Net(gluon.HybridBlock):
        def forward(self, x):
            return x * 2 if x.shape[0] > 1 else x

    net = Net()
    net.hybridize()
    x = data(4, 3)
    net(x)
    watched = [weakref.ref(x), Memory(x)]
    del x
    gc.collect()
    assert [ref() for ref in watched] == [None, None]
    assert net(data(4, 3)).shape == (4, 3)


def test_a_dropped_network_is_freed():
    net = network(True)
    with autograd.record():
        loss = net(data(2, 3, 6, 6)).sum()
    loss.backward()
    watched = [Memory(parameter.data()) for parameter in net.collect_params().values()]
    del net, loss
    gc.collect()
    assert [ref() for ref in watched] == [None] * len(watched)


def test_memory_does_not_grow_over_training_steps():
    net = network(True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    x = data(2, 3, 6, 6)

    def step():
        with autograd.record():
            loss = net(x).sum()
        loss.backward()
        trainer.step(2)

    for _ in range(3):
        step()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(20):
        step()
    assert len(gc.get_objects()) - before < 20
