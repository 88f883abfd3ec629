"""Modes, gradients, deferred initialisation and trainers: lessons 18 to 27, 29, 32, 33, 40 and 50 to 54."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn

equal = numpy.testing.assert_allclose


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_moving_statistics_move_once_and_in_backward(style: Any, hybridized: bool, scale: bool) -> None:
    """Lesson 18: also without scale and center; never in predict mode; usable at once."""
    x = numpy.random.RandomState(0).randn(16, 3).astype("float32") * 2 + 5
    layer = nn.BatchNorm(momentum=0.5, scale=scale, center=scale, epsilon=1e-5)
    layer.initialize()
    layer.hybridize(hybridized)
    data = style.array(x)
    data.attach_grad()
    layer(data)
    with autograd.record():
        out = layer(data)
    equal(layer.running_mean.data().asnumpy(), 0)
    equal(out.asnumpy(), (x - x.mean(0)) / numpy.sqrt(x.var(0) + 1e-5), atol=1e-4)
    out.backward()
    mean, variance = 0.5 * x.mean(0), 0.5 + 0.5 * x.var(0)
    for _ in range(2):
        equal(layer(data).asnumpy(), (x - mean) / numpy.sqrt(variance + 1e-5), atol=1e-4)
        equal(layer.running_mean.data().asnumpy(), mean, rtol=1e-4)
        equal(layer.running_var.data().asnumpy(), variance, rtol=1e-4)


def test_two_forwards_then_two_backwards_commit_twice(style: Any) -> None:
    """Lesson 18."""
    layer = nn.BatchNorm(momentum=0.5, in_channels=1)
    layer.initialize()
    layer.hybridize()
    with autograd.record():
        losses = [layer(style.array([[value], [value]])).sum() for value in (2.0, 4.0)]
    for loss in losses:
        loss.backward()
    equal(layer.running_mean.data().asnumpy(), [2.5])


def test_a_fixed_gamma_is_one_and_gets_no_gradient(style: Any) -> None:
    """Lesson 18."""
    layer = nn.BatchNorm(scale=False, in_channels=2)
    layer.initialize()
    layer.gamma.set_data(style.array([5.0, 5.0]))
    x = style.array([[1.0, 4.0], [3.0, 0.0]])
    x.attach_grad()
    with autograd.record():
        out = layer(x)
    out.backward()
    equal(abs(out.asnumpy()), numpy.ones((2, 2)), rtol=1e-3)
    assert layer.gamma.grad_req == "null"


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}], ids=str)
def test_dropout_masks(style: Any, flags: dict[str, bool]) -> None:
    """Lesson 19: new mask per call, the same in backward, exact at 0, reproducible by one seed."""
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5))
    net.hybridize(**flags)
    x = style.array(numpy.ones((40, 50)))
    x.attach_grad()
    kept = []
    for seed in (7, None, 7):
        if seed is not None:
            mx.random.seed(seed)
        with autograd.record():
            out = net(x)
        out.backward()
        numpy.testing.assert_array_equal(x.grad.asnumpy(), out.asnumpy())
        kept.append(out.asnumpy())
    assert set(numpy.unique(kept[0])) == {0.0, 2.0} and 0.45 < (kept[0] == 0).mean() < 0.55
    numpy.testing.assert_array_equal(kept[0], kept[2])
    assert not numpy.array_equal(kept[0], kept[1])
    numpy.testing.assert_array_equal(net(x).asnumpy(), x.asnumpy())
    with autograd.record():
        numpy.testing.assert_array_equal(nn.Dropout(0.0)(x).asnumpy(), x.asnumpy())


def test_both_kinds_of_arrays_enter_any_block(style: Any) -> None:
    """Lesson 20: the result has the kind of the input."""
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3, activation="relu"), nn.BatchNorm(in_channels=2))
    net.initialize()
    for hybridized in (False, True):
        net.hybridize(hybridized)
        for module in (mx.nd, mx.np):
            x = module.ones((4, 3))
            out = net(x)
            assert type(out) is type(x)
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
        net.zero_grad()
        assert not net[0].weight.grad().asnumpy().any()


def test_comparisons_give_numbers_in_nd_and_booleans_in_np() -> None:
    """Lesson 21."""
    a, b = mx.nd.array([1.0, 2.0]), mx.nd.array([1.0, 3.0])
    assert (a == b).dtype is numpy.float32 and (1 - (a == b)).asnumpy().tolist() == [0.0, 1.0]
    p, q = mx.np.array([1.0, 2.0]), mx.np.array([1.0, 3.0])
    assert (p == q).dtype == numpy.bool_
    assert (1 - (p == q)).asnumpy().tolist() == [0, 1] and ((p == q) * 2.0).asnumpy().tolist() == [2.0, 0.0]
    assert p[p > 1].asnumpy().tolist() == [2.0] and p[p > 5].shape == (0,)


def add_in_place(a: Any, zeros: Any) -> Any:
    b = a * 2
    b += a
    return b


def write_row(a: Any, zeros: Any) -> Any:
    zeros[1] = a * 3
    return zeros.sum()


def scale_view(a: Any, zeros: Any) -> Any:
    b = a * 2
    b[0] *= 10
    return b.sum()


def overwrite(a: Any, zeros: Any) -> Any:
    b = a * 2
    b[:] = 1.0
    return (b * a).sum()


@pytest.mark.parametrize(
    ("change", "gradient"),
    [(add_in_place, [3.0, 3.0]), (write_row, [3.0, 3.0]), (scale_view, [20.0, 2.0]), (overwrite, [1.0, 1.0])],
)
def test_in_place_while_recording_is_right(style: Any, change: Any, gradient: list[float]) -> None:
    """Lesson 22: the right gradient, never a wrong number."""
    a, zeros = style.array([1.0, 2.0]), style.array(numpy.zeros((2, 2)))
    a.attach_grad()
    with autograd.record():
        out = change(a, zeros)
    out.backward()
    assert a.grad.asnumpy().tolist() == gradient


def test_in_place_on_a_leaf_while_recording_is_refused(style: Any) -> None:
    """Lesson 22."""
    a = style.array([1.0, 2.0])
    a.attach_grad()
    with autograd.record():
        with pytest.raises(MXNetError, match="in-place"):
            a += 1
        with pytest.raises(MXNetError, match="in-place"):
            a[0] = 3.0


def test_empty_batches_run_and_train(style: Any) -> None:
    """Lesson 23: 0 is a size when something runs."""
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4, activation="relu"), nn.Dense(2, in_units=3))
    net.initialize()
    for hybridized in (False, True):
        net.hybridize(hybridized)
        x = style.array(numpy.ones((0, 4)))
        with autograd.record():
            out = net(x)
            loss = out.sum()
        loss.backward()
        assert out.shape == (0, 2)
        assert not net[0].weight.grad().asnumpy().any()


def test_three_hundred_lengths_are_one_graph(style: Any) -> None:
    """Lesson 25: no recording for each length."""
    calls = []
    net = style.block(lambda self, x: calls.append(1) or (x * 2).sum(axis=1))
    net.hybridize()
    for length in range(2, 302):
        assert net(style.array(numpy.ones((2, length)))).asnumpy().tolist() == [2.0 * length] * 2
    assert len(calls) == 1


def test_static_allocation_never_hands_out_memory_twice(style: Any) -> None:
    """Lesson 26."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=4, activation="relu"), nn.Dense(4, in_units=4))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    outs = [net(style.array(numpy.full((2, 4), value))) for value in range(4)]
    kept = [out.asnumpy().copy() for out in outs]
    net(style.array(numpy.full((2, 4), 100.0)))
    for out, value in zip(outs, kept, strict=True):
        numpy.testing.assert_array_equal(out.asnumpy(), value)


def test_eight_threads_make_the_first_call_together(style: Any) -> None:
    """Lesson 27: deferred initialisation and recording raced."""
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu"), nn.BatchNorm(), nn.Dense(4))
    net.initialize(mx.init.One())
    net.hybridize()
    barrier, results, errors = threading.Barrier(8), [None] * 8, []

    def work(place: int) -> None:
        try:
            x = style.array(numpy.full((place + 1, 8), place + 1.0))
            barrier.wait()
            for _ in range(5):
                results[place] = net(x).asnumpy()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for place, result in enumerate(results):
        equal(result, numpy.full((place + 1, 4), 8 * (place + 1) / numpy.sqrt(1 + 1e-5) * 16), rtol=1e-4)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_of_a_hybridized_net(style: Any, copier: Any) -> None:
    """Lesson 29: independent weights, the same outputs, still hybridized, still trainable."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3), nn.BatchNorm(), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = style.range(2, 3)
    want = net(x).asnumpy()
    twin = copier(net)
    equal(twin(x).asnumpy(), want, rtol=1e-5)
    assert twin._active
    trainer = gluon.Trainer(twin.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = (twin(x) ** 2).sum()
    loss.backward()
    trainer.step(1)
    assert not numpy.allclose(twin(x).asnumpy(), want)
    equal(net(x).asnumpy(), want, rtol=1e-5)


def test_copies_of_arrays_and_trainers(style: Any) -> None:
    """Lesson 29."""
    x = style.array([1.0, 2.0])
    x.attach_grad("add")
    twin = copy.deepcopy(x)
    twin += 1
    with autograd.record():
        loss = (twin * twin).sum()
    loss.backward()
    assert x.asnumpy().tolist() == [1.0, 2.0] and not x.grad.asnumpy().any()
    assert twin.grad.asnumpy().tolist() == [4.0, 6.0]
    assert pickle.loads(pickle.dumps(x)).asnumpy().tolist() == [1.0, 2.0]


def test_a_layer_that_never_runs_is_named(style: Any) -> None:
    """Lesson 32: with its path, and skipped when that is asked for."""

    def prepare(net: Any) -> None:
        net.used, net.forgotten = nn.Dense(1, use_bias=False, weight_initializer="ones"), nn.Dense(7)

    net = style.block(lambda self, x: self.used(x), prepare)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    with autograd.record():
        loss = net(style.array([[2.0]])).sum()
    loss.backward()
    with pytest.raises(gluon.DeferredInitializationError, match=r"forgotten\.weight.*never called by"):
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)
    assert net.used.weight.data().asnumpy().tolist() == [[-1.0]]
    net.used.weight.data()
    with pytest.raises(gluon.DeferredInitializationError, match="forward never calls"):
        net.forgotten.weight.data()


def test_infer_shape_completes_everything_without_running(style: Any) -> None:
    """Lesson 32."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    net.initialize()
    net.infer_shape(style.range(3, 5))
    assert net[0].weight.shape == (4, 5) and net[1].weight.shape == (2, 4)


def test_an_error_inside_forward_arrives_as_it_is(style: Any) -> None:
    """Lesson 33: it was re-raised as "shape cannot be inferred"."""

    def prepare(net: Any) -> None:
        net.dense = nn.Dense(2)

    def body(self: Any, x: Any) -> Any:
        raise KeyError("mine")

    for hybridized in (False, True):
        net = style.block(body, prepare)
        net.hybridize(hybridized)
        with pytest.raises(KeyError, match="mine"):
            net(style.range(2, 3))


def test_trainer_states_move_between_contexts(style: Any, tmp_path: Path) -> None:
    """Lesson 40: states were tied to devices, and each device counted its own steps."""
    weights = []
    for contexts in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]):
        net = nn.Dense(1, in_units=2, use_bias=False)
        net.initialize(mx.init.One(), ctx=contexts)
        schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.1)
        settings = {"learning_rate": 0.1, "lr_scheduler": schedule}
        trainer = gluon.Trainer(net.collect_params(), "adam", settings)
        if len(contexts) > 1:
            trainer.load_states(tmp_path / "states")
        for _ in range(2):
            with autograd.record():
                losses = [net(style.array([[1.0, 3.0]]).copyto(context)).sum() for context in contexts]
            for loss in losses:
                loss.backward()
            trainer.step(len(contexts))
        trainer.save_states(tmp_path / "states")
        weights.append([array.asnumpy() for array in net.weight.list_data()])
    numpy.testing.assert_array_equal(weights[1][0], weights[1][1])
    # Adam's first steps are the rates themselves; the second trainer goes on at steps three and four.
    equal(weights[0][0], numpy.full((1, 2), 1 - 0.1 - 0.05), rtol=1e-4)
    equal(weights[1][0], numpy.full((1, 2), 1 - 0.025 - 0.0125), rtol=1e-4)


def test_gradients_add_over_layers_and_calls(style: Any) -> None:
    """Lesson 50: one layer five times, and grad_req="add" set after the first recording."""

    def prepare(net: Any) -> None:
        net.dense = nn.Dense(1, in_units=1, use_bias=False, weight_initializer=mx.init.Constant(2))

    def body(self: Any, x: Any) -> Any:
        for _ in range(5):
            x = self.dense(x)
        return x

    net = style.block(body, prepare)
    net.hybridize()
    x = style.array([[1.0]])
    for expected in (80.0, 80.0):
        with autograd.record():
            loss = net(x)
        loss.backward()
        assert net.dense.weight.grad().asnumpy().item() == expected
    net.dense.weight.grad_req = "add"
    for expected in (80.0, 160.0):
        with autograd.record():
            loss = net(x)
        loss.backward()
        assert net.dense.weight.grad().asnumpy().item() == expected


def test_stale_gradients_are_listed_once(style: Any) -> None:
    """Lesson 51."""
    net = nn.HybridSequential()
    net.add(nn.Dense(1, in_units=1), nn.Dense(1, in_units=1))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    with autograd.record():
        loss = net[0](style.array([[1.0]])).sum()
    loss.backward()
    before = net[0].weight.data().asnumpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"2 parameters .*1\.bias'.*1\.weight'"):
            trainer.step(1)
    numpy.testing.assert_array_equal(net[0].weight.data().asnumpy(), before)


def test_backward_twice_and_an_alias_as_head(style: Any) -> None:
    """Lesson 52."""
    x = style.array([1.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    y.backward(style.array([1.0, 0.0, 2.0]))
    assert x.grad.asnumpy().tolist() == [2.0, 0.0, 12.0]
    with pytest.raises(MXNetError, match="retain_graph"):
        y.backward()
    with autograd.record():
        alias = x
    alias.backward()
    assert x.grad.asnumpy().tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("hybridized", [False, True])
def test_second_order_through_layers(style: Any, hybridized: bool) -> None:
    """Lesson 53: a gradient penalty, also through a hybridized block."""
    net = nn.HybridSequential()
    net.add(nn.Dense(1, in_units=1, use_bias=False, weight_initializer=mx.init.Constant(3.0)))
    net.initialize()
    net.hybridize(hybridized)
    x = style.array([[2.0]])
    x.attach_grad()
    with autograd.record():
        (slope,) = autograd.grad((net(x) ** 2).sum(), [x], create_graph=True, retain_graph=True)
        penalty = (slope * slope).sum()
    penalty.backward()
    # d/dw (2 w^2 x)^2 = 16 w^3 x^2
    equal(net[0].weight.grad().asnumpy(), [[16 * 27 * 4.0]])


def test_frozen_parameters_stay(style: Any) -> None:
    """Lesson 54: no weight decay on them either."""
    net = nn.HybridSequential()
    net.add(nn.Dense(1, in_units=1), nn.Dense(1, in_units=1))
    net.initialize(mx.init.One())
    net[0].setattr("grad_req", "null")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 1.0})
    with autograd.record():
        loss = net(style.array([[1.0]])).sum()
    loss.backward()
    trainer.step(1)
    assert net[0].weight.data().asnumpy().item() == 1.0
    equal(net[1].weight.data().asnumpy(), [[1 - 0.1 * (1 + 1)]], rtol=1e-6)


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_stopped_gradient_is_zero(style: Any, hybridized: bool) -> None:
    """Lesson 50: and what is beside it goes on."""

    def body(self: Any, x: Any) -> Any:
        if style.level == 2:
            return x * mx.npx.stop_gradient(x) + mx.npx.stop_gradient(x * x)
        F = mx.sym if isinstance(x, mx.sym.Symbol) else mx.nd
        return x * F.BlockGrad(x) + F.stop_gradient(x * x)

    net = style.block(body)
    net.hybridize(hybridized)
    x = style.array([3.0])
    x.attach_grad()
    with autograd.record():
        out = net(x)
    out.backward()
    assert out.asnumpy().tolist() == [18.0] and x.grad.asnumpy().tolist() == [3.0]


def test_contexts_and_batches_share_one_update(style: Any) -> None:
    """Lesson 51: gradients are summed over contexts and divided by the whole batch, also an uneven one."""
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One(), ctx=contexts)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    parts = gluon.utils.split_and_load(style.array([[1.0], [2.0], [6.0]]), contexts, even_split=False)
    with autograd.record():
        losses = [net(part).sum() for part in parts]
    for loss in losses:
        loss.backward()
    trainer.step(3)
    assert [array.asnumpy().tolist() for array in net.weight.list_data()] == [[[-2.0]], [[-2.0]]]


def test_gradients_are_clipped_together(style: Any) -> None:
    """By their common norm, in place, and only when it is too large."""
    arrays = [style.array([3.0, 0.0]), style.array([[4.0]])]
    assert gluon.utils.clip_global_norm(arrays, 1.0) == pytest.approx(5.0)
    equal(arrays[0].asnumpy(), [0.6, 0.0], rtol=1e-5)
    equal(arrays[1].asnumpy(), [[0.8]], rtol=1e-5)
    kept = [array.asnumpy() for array in arrays]
    gluon.utils.clip_global_norm(arrays, 5.0)
    for array, value in zip(arrays, kept, strict=True):
        equal(array.asnumpy(), value)


def test_metrics_count_over_batches(style: Any) -> None:
    """A smaller last batch counts by its samples."""
    accuracy = mx.metric.Accuracy()
    accuracy.update(style.array([0, 1, 1]), style.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]))
    accuracy.update(style.array([0]), style.array([[0.1, 0.9]]))
    assert accuracy.get() == ("accuracy", 0.5)
    accuracy.reset()
    assert numpy.isnan(accuracy.get()[1])


@pytest.mark.parametrize("hybridized", [False, True])
def test_an_input_on_another_context_is_refused(style: Any, hybridized: bool) -> None:
    """Lesson 32: by name, instead of computing somewhere else."""
    net = nn.Dense(1, in_units=1)
    net.initialize(ctx=mx.cpu(0))
    net.hybridize(hybridized)
    net(style.array([[1.0]]))
    with pytest.raises(MXNetError, match=r"was not initialized on cpu\(1\); it is on \[cpu\(0\)\]"):
        net(style.array([[1.0]]).copyto(mx.cpu(1)))
    net.reset_ctx(mx.cpu(1))
    assert net(style.array([[1.0]]).copyto(mx.cpu(1))).context == mx.cpu(1)
