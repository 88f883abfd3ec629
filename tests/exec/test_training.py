"""Fused training graphs: results, gradients of every order and moving statistics are the plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import passes
from regluon.exec import training
from regluon.gluon import nn
from regluon.ops import internal
from regluon.passes import attention


class Block(mx.gluon.HybridBlock):
    """A residual block, in the two orders of ResNet v1 and v2."""

    def __init__(self, before: bool, **norm: Any) -> None:
        super().__init__()
        self.before = before
        self.first = nn.Conv2D(4, 3, padding=1, in_channels=4)
        self.second = nn.Conv2D(4, 3, padding=1, in_channels=4, use_bias=False)
        self.norms = nn.HybridSequential()
        for _ in range(2):
            self.norms.add(nn.BatchNorm(in_channels=4, **norm))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self.before:
            y = self.first(F.relu(self.norms[0](x)))
            return F.relu(self.norms[1](y)) + self.second(x)
        y = F.Activation(self.norms[0](self.first(x)), act_type="relu")
        return F.Activation(self.norms[1](self.second(y)) + x, act_type="relu")


def build(before: bool, hybridize: bool, **norm: Any) -> tuple[Block, mx.nd.NDArray]:
    mx.random.seed(2)
    net = Block(before, **norm)
    net.initialize(mx.init.Xavier())
    for item in net.norms:
        item.gamma.set_data(mx.nd.random.uniform(0.5, 1.5, shape=(4,)))
    x = mx.nd.random.normal(shape=(3, 4, 6, 6))
    x.attach_grad()
    if hybridize:
        net.hybridize()
    return net, x


def state_of(net: mx.gluon.HybridBlock, x: mx.nd.NDArray) -> dict[str, np.ndarray]:
    found = {"x": x.grad.asnumpy()}
    for name, parameter in net._collect_params_with_prefix().items():
        found[name] = parameter.data().asnumpy()
        if parameter.grad_req != "null":
            found[f"{name} gradient"] = parameter.grad().asnumpy()
    return found


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in other.items():
        np.testing.assert_allclose(
            one[name], value, rtol=1e-3, atol=1e-4 * max(1, np.abs(value).max()), err_msg=name
        )


def operators(net: mx.gluon.HybridBlock) -> list[str]:
    recorded = next(r for r in net._cached.graphs.values() if r.mode[1])
    return [node.op.name for node in recorded.program.nodes]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    "norm", [{}, {"scale": False}, {"use_global_stats": True}, {"axis": 3, "in_channels": 6}]
)
def test_a_step_equals_the_imperative_one(before: bool, norm: dict[str, Any]) -> None:
    states = []
    for hybridize in (False, True):
        net, x = build(before, hybridize) if "axis" not in norm else axis_three(before, hybridize)
        if norm and "axis" not in norm:
            net, x = build(before, hybridize, **norm)
        for _ in range(2):
            with mx.autograd.record():
                out = net(x)
                loss = (out * out).mean()
            loss.backward()
        states.append(state_of(net, x))
    same(states[1], states[0])


def axis_three(before: bool, hybridize: bool) -> tuple[Block, mx.nd.NDArray]:
    net, x = build(before, hybridize)
    for item in net.norms:
        item._kwargs["axis"] = 3
        for name in ("gamma", "beta", "running_mean", "running_var"):
            parameter = getattr(item, name)
            parameter.shape = None
            parameter.shape = (6,)
            parameter.initialize(force_reinit=True)
    return net, x


def test_the_operators_are_fused() -> None:
    net, x = build(False, True)
    with mx.autograd.record():
        net(x)
    assert operators(net) == ["convolution_channels_last", "batch_norm"] * 2 + ["contiguous"]


class Various(mx.gluon.HybridBlock):
    """Something for every pass: a norm, a sum, a pooling, attention and a squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(4, 3, padding=1, in_channels=4)
        self.norms = nn.HybridSequential()
        self.norms.add(nn.BatchNorm(in_channels=4))
        self.dense = nn.Dense(8, in_units=16, flatten=False, activation="tanh")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = F.relu(self.norms(self.conv(x)))
        y = F.Pooling(F.tanh(y + x), kernel=(4, 4), stride=(4, 4), pool_type="max")
        y = self.dense(F.reshape(y, shape=(0, -1, 16)))
        weights = F.softmax(F.batch_dot(y, y, transpose_b=True) / 8**0.5)
        return F.mean(F.square(F.batch_dot(weights, y) - y), axis=0, exclude=True)


# What each pass of training puts into the graph of `Various`; two act on the order of others' results.
PUTS = {
    "attend": "training_attention",
    "simplify_losses": "mean_square",
    "pool_first": None,
    "use_norms": "batch_norm",
    "use_common_forms": "convolution_channels_last",
    "join_activations": None,
    "use_pools": "maximum_pooling",
}


def step_of(hybridize: bool) -> tuple[Various, dict[str, np.ndarray]]:
    mx.random.seed(2)
    net = Various()
    net.initialize(mx.init.Xavier())
    net.hybridize(hybridize)
    x = mx.nd.random.normal(shape=(4, 4, 32, 32))
    x.attach_grad()
    with mx.autograd.record():
        out = net(x)
    out.backward()
    return net, {**state_of(net, x), "out": out.asnumpy()}


@pytest.mark.parametrize("name", passes.TRAINING_PASSES)
def test_each_pass_can_be_switched_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "is_worth_it", lambda shape: True)
    net, _ = step_of(hybridize=True)
    whole = operators(net)
    assert PUTS[name] is None or PUTS[name] in whole
    with passes.skip(name):
        net, found = step_of(hybridize=True)
        told = [report.name for report in net.explain(mx.nd.zeros((4, 4, 32, 32)), train=True).passes]
    assert operators(net) != whole and PUTS[name] not in operators(net)
    assert told == [each for each in passes.TRAINING_PASSES if each != name]
    same(found, step_of(hybridize=False)[1])


def test_profiles_tell_operators_of_training_from_those_of_prediction() -> None:
    found = {each for each in vars(training).values() if isinstance(each, internal.InternalOp)}
    found |= set(training._ATTENTIONS.values())
    others = {
        each
        for module in (internal, attention)
        for each in vars(module).values()
        if isinstance(each, internal.InternalOp)
    }
    names = [each.name for each in found | others]
    assert "training_dense" in names
    assert not {name for name in names if names.count(name) > 1}


def test_all_passes_can_be_switched_off() -> None:
    with passes.skip("all"):
        net, found = step_of(hybridize=True)
    assert not {"convolution_channels_last", "sum", "activation", *PUTS.values()} & set(operators(net))
    same(found, step_of(hybridize=False)[1])


@pytest.mark.parametrize("before", [True, False])
def test_gradients_of_gradients(before: bool) -> None:
    found = []
    for hybridize in (False, True):
        net, x = build(before, hybridize)
        with mx.autograd.record():
            loss = (net(x) ** 3).mean()
            (first,) = mx.autograd.grad(loss, [x], create_graph=True)
            penalty = (first * first).sum()
        penalty.backward()
        found.append(state_of(net, x))
    assert max(np.abs(found[0]["x"]).max(), 0) > 0
    same(found[1], found[0])


def test_moving_statistics_move_once_for_each_backward() -> None:
    net, x = build(False, True)
    mean = net.norms[0].running_mean
    before = mean.data().asnumpy()
    with mx.autograd.record():
        net(x)
    assert (mean.data().asnumpy() == before).all(), "a forward alone commits nothing"
    with mx.autograd.record():
        first, second = net(x).sum(), net(x * 2).sum()
    first.backward(retain_graph=True)
    once = mean.data().asnumpy()
    assert (once != before).any()
    first.backward()
    assert (mean.data().asnumpy() == once).all(), "the second backward of one forward commits nothing"
    second.backward()
    assert (mean.data().asnumpy() != once).any()


def test_outputs_and_gradients_lie_rows_first() -> None:
    net, x = build(False, True)
    with mx.autograd.record():
        out = net(x)
    out.backward()
    assert out._t.is_contiguous() and x.grad._t.is_contiguous()


@pytest.mark.parametrize("layers", [("norm",), ("norm", "relu"), ("norm", "pool"), ("conv", "norm")])
def test_a_reshaped_output_is_written_through(layers: tuple[str, ...]) -> None:
    made = {
        "norm": lambda: nn.BatchNorm(in_channels=8),
        "relu": lambda: nn.Activation("relu"),
        "pool": lambda: nn.MaxPool2D(2),
        "conv": lambda: nn.Conv2D(8, 3, in_channels=8),
    }
    net = nn.HybridSequential()
    net.add(*(made[layer]() for layer in layers))
    net.initialize()
    net.hybridize()
    # Legacy arrays: with NumPy's semantics a reshaped array is a copy.
    x = mx.nd.array(np.random.default_rng(0).normal(size=(2, 8, 360, 360)), dtype="float32")
    x.attach_grad()
    with mx.autograd.record():
        y = net(x)
    y.reshape((-1,))[:] = 7
    assert (y.asnumpy() == 7).all()


@pytest.mark.parametrize("hybrid", [False, True])
def test_what_batch_norm_gives_may_be_written_to(hybrid: bool) -> None:
    net = nn.BatchNorm(in_channels=3)
    net.initialize()
    if hybrid:
        net.hybridize()
    x = mx.np.array(np.random.default_rng(0).normal(size=(2, 3, 8, 8)), dtype="float32")
    x.attach_grad()
    with mx.autograd.record():
        y = net(x)
        with mx.autograd.pause():
            y[0, 0, 0, 0] = 5
        loss = (y * y.detach()).sum()
    loss.backward()
    assert float(y[0, 0, 0, 0]) == 5
    assert np.isfinite(x.grad.asnumpy()).all()



@pytest.mark.parametrize("kind", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("norm", [False, True])
def test_pooling_before_the_activation_has_the_same_gradients(kind: str, norm: bool) -> None:
    states = []
    for hybridize in (False, True):
        mx.random.seed(6)
        net = nn.HybridSequential()
        net.add(nn.Conv2D(4, 3, in_channels=2))
        if norm:
            net.add(nn.BatchNorm(in_channels=4))
        net.add(nn.Activation(kind), nn.MaxPool2D(2), nn.Dense(3, in_units=36))
        net.initialize(mx.init.Xavier())
        x = mx.nd.random.normal(shape=(3, 2, 8, 8))
        x.attach_grad()
        if hybridize:
            net.hybridize()
        with mx.autograd.record():
            out = net(x)
            loss = (out * out).sum()
        loss.backward()
        states.append(state_of(net, x))
    assert operators(net)[-4:-2] == ["Pooling", "activation"] or "activation" in operators(net)
    same(states[1], states[0])


def test_an_activation_does_not_overwrite_what_is_read_elsewhere() -> None:
    class Shared(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(5, in_units=6)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            y = self.dense(x)
            z = y + y * 2
            return F.tanh(y) + F.sigmoid(y) * F.relu(z), z, y

    results = []
    for hybridize in (False, True):
        mx.random.seed(4)
        net = Shared()
        net.initialize(mx.init.Normal(1.0))
        x = mx.nd.random.normal(shape=(3, 6))
        x.attach_grad()
        if hybridize:
            net.hybridize()
        with mx.autograd.record():
            outputs = net(x)
            loss = sum((out * out).sum() for out in outputs)
        loss.backward()
        results.append(
            [out.asnumpy() for out in outputs] + [x.grad.asnumpy(), net.dense.weight.grad().asnumpy()]
        )
    for one, other in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
