"""After amp.init operators compute in the types of their classes: at once, hybridized, in all threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import amp, autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn
from regluon.runtime.state import state

TYPES = ["bfloat16", "float16"]


def kind(array: Any) -> str:
    return str(array._t.dtype).removeprefix("torch.")


def values(array: Any) -> np.ndarray:
    return array.astype("float32").asnumpy()


@pytest.mark.parametrize("low", TYPES)
def test_classes_decide_the_type_of_a_result(low: str) -> None:
    x, w = mx.nd.ones((2, 3)), mx.nd.ones((4, 3))
    amp.init(low)
    y = mx.nd.FullyConnected(x, w, num_hidden=4, no_bias=True)
    assert kind(y) == low
    assert kind(mx.nd.relu(y)) == low
    assert kind(mx.nd.exp(y)) == kind(mx.nd.softmax(y)) == kind(y.sum()) == "float32"
    assert kind(mx.nd.exp(y) + y) == kind(mx.nd.concat(y, mx.nd.ones((2, 1)))) == "float32"
    assert kind(y * y) == kind(mx.nd.dot(x, w.T)) == low
    assert kind(mx.nd.Activation(y, act_type="relu")) == low
    assert kind(mx.nd.Activation(y, act_type="softrelu")) == "float32"
    assert kind(mx.np.matmul(mx.np.ones((2, 2)), mx.np.ones((2, 2)))) == low
    assert kind(x) == kind(w) == "float32"


def test_wide_and_integer_arrays_are_left_alone() -> None:
    amp.init("bfloat16")
    for dtype in ("float64", "int32"):
        x = mx.nd.ones((2, 2), dtype=dtype)
        assert kind(mx.nd.dot(x, x)) == kind(mx.nd.exp(x)) == kind(x + x) == dtype
    index = mx.nd.array([0, 1], dtype="int32")
    assert kind(mx.nd.take(mx.nd.ones((3, 2)), index)) == "float32"


def test_nothing_happens_before_init_and_after_reset() -> None:
    x = mx.nd.ones((2, 3))
    plain = state.plain
    assert kind(mx.nd.dot(x, x.T)) == "float32"
    amp.init("bfloat16")
    assert not state.plain
    amp.reset()
    assert state.plain is plain is True
    assert kind(mx.nd.dot(x, x.T)) == "float32"


def test_gradients_arrive_in_the_type_of_the_array() -> None:
    x = mx.nd.array([[1.0, 2.0], [3.0, 4.0]])
    w = mx.nd.array([[0.5, -1.0], [2.0, 0.25]])
    for array in (x, w):
        array.attach_grad()
    amp.init("bfloat16")
    with autograd.record():
        loss = mx.nd.dot(x, w).sum()
    loss.backward()
    assert kind(x.grad) == kind(w.grad) == "float32"
    # d sum(x w) / dx = 1 w^T, and all these numbers are exact in bfloat16.
    np.testing.assert_array_equal(x.grad.asnumpy(), [[-0.5, 2.25], [-0.5, 2.25]])
    np.testing.assert_array_equal(w.grad.asnumpy(), [[4.0, 4.0], [6.0, 6.0]])


def test_threads_that_run_already_and_later_ones_take_part() -> None:
    found: dict[str, str] = {}
    ready, go = threading.Event(), threading.Event()
    x = mx.nd.ones((2, 2))

    def run(name: str, wait: bool) -> None:
        if wait:
            mx.nd.dot(x, x) + 1
            ready.set()
            go.wait(10)
        found[name] = kind(mx.nd.dot(x, x))

    early = threading.Thread(target=run, args=("early", True))
    early.start()
    ready.wait(10)
    amp.init("bfloat16")
    go.set()
    late = threading.Thread(target=run, args=("late", False))
    late.start()
    for thread in (early, late):
        thread.join()
    assert found == {"early": "bfloat16", "late": "bfloat16"}


def test_initialisation_of_parameters_is_in_full_precision() -> None:
    amp.init("float16")
    net = nn.Dense(3, in_units=3)
    net.initialize(mx.init.Orthogonal(1.0))
    assert kind(net.weight.data()) == "float32"
    w = net.weight.data().asnumpy()
    np.testing.assert_allclose(w @ w.T, np.eye(3), atol=1e-5)


def test_own_lists_take_the_place_of_the_default_ones() -> None:
    x = mx.nd.ones((2, 2))
    amp.init("bfloat16", target_precision_ops=["FullyConnected"], fp32_ops=["relu"])
    y = mx.nd.FullyConnected(x, x, num_hidden=2, no_bias=True)
    assert kind(y) == kind(mx.nd.exp(y)) == "bfloat16"
    assert kind(mx.nd.dot(x, x)) == kind(mx.nd.relu(y)) == "float32"
    amp.init("bfloat16", conditional_fp32_ops=[("Activation", "act_type", ["relu"])])
    assert kind(mx.nd.Activation(y, act_type="relu")) == "float32"
    assert kind(mx.nd.Activation(y, act_type="softrelu")) == "bfloat16"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"target_dtype": "float32"}, "only float16 or bfloat16 as a target_dtype; received 'float32'"),
        ({"target_dtype": "int7"}, "received 'int7'"),
        ({"target_precision_ops": ["FullConnected"]}, r"not there: FullConnected \(nearest: FullyConnected"),
        ({"target_precision_ops": ["softmax"]}, "in two or more lists.*softmax"),
        ({"fp32_ops": ["exp"], "target_precision_ops": ["exp"]}, "in two or more lists.*exp"),
        ({"conditional_fp32_ops": [("Activation", "act_type")]}, "list of .operator, attribute"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(MXNetError, match=text):
        amp.init(**arguments)
    assert state.amp is None


# Hybridized ----------------------------------------------------------------------


def convolutional() -> tuple[Any, tuple[int, ...]]:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2))
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(5))
    return net, (3, 2, 8, 8)


class New(gluon.HybridBlock):
    """2.0 style: shapes are read, types are mixed."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = nn.Dense(6, flatten=False), nn.LayerNorm()

    def forward(self, x: Any) -> Any:
        y = self.norm(self.dense(x)) + x[:, :, :1]
        both = mx.np.concatenate([y, self.dense(x)], axis=-1)
        return mx.np.exp(y), both.reshape(both.shape[0], -1).mean(axis=1), self.dense(x)


class Old(gluon.HybridBlock):
    """1.x style, with attention by dot products."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.out = nn.Dense(6), nn.Dense(3)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = self.dense(x)
        weights = F.softmax(F.dot(y, y, transpose_b=True))
        return self.out(F.dot(weights, y) + F.Activation(y, act_type="softrelu"))


NETS = {"convolutional": convolutional, "new": lambda: (New(), (2, 3, 5)), "old": lambda: (Old(), (4, 7))}
# Fused kernels round less often.
TOLERANCE = {"bfloat16": 0.02, "float16": 0.004}


def flat(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (list, tuple)) else [out]


def close(one: list[np.ndarray], other: list[np.ndarray], tolerance: float) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("low", TYPES)
@pytest.mark.parametrize("name", NETS)
def test_hybridized_equals_imperative_at_prediction(name: str, low: str) -> None:
    net, shape = NETS[name]()
    net.initialize(mx.init.Xavier())
    x = mx.np.random.uniform(-1, 1, shape)
    exact = [values(out) for out in flat(net(x))]
    amp.init(low)
    outs = flat(net(x))
    kinds, expected = [kind(out) for out in outs], [values(out) for out in outs]
    assert low in kinds
    close(expected, exact, 5 * TOLERANCE[low])
    net.hybridize()
    for _ in range(3):
        outs = flat(net(x))
        assert [kind(out) for out in outs] == kinds
        close([values(out) for out in outs], expected, TOLERANCE[low])
    amp.reset()
    outs = flat(net(x))
    assert {kind(out) for out in outs} == {"float32"}
    close([values(out) for out in outs], exact, 1e-5)


def step(net: Any, x: Any) -> list[np.ndarray]:
    with autograd.record():
        loss = sum((out.astype("float32") ** 2).sum() for out in flat(net(x)))
    loss.backward()
    grads = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]
    assert {kind(grad) for grad in grads} == {"float32"}
    return [loss.asnumpy(), *[grad.asnumpy() for grad in grads]]


@pytest.mark.parametrize("low", TYPES)
@pytest.mark.parametrize("name", NETS)
def test_hybridized_equals_imperative_in_training(name: str, low: str) -> None:
    net, shape = NETS[name]()
    net.initialize(mx.init.Xavier())
    x = mx.np.random.uniform(-1, 1, shape)
    exact = step(net, x)
    amp.init(low)
    expected = step(net, x)
    close(expected, exact, 10 * TOLERANCE[low])
    net.hybridize()
    for _ in range(2):
        close(step(net, x), expected, TOLERANCE[low])


@pytest.mark.parametrize("hybrid", [False, True])
def test_unknown_sizes_follow_from_the_input(hybrid: bool) -> None:
    amp.init("bfloat16")
    net, shape = convolutional()
    net.initialize()
    net.hybridize(hybrid)
    assert kind(net(mx.np.ones(shape))) == "bfloat16"
    assert net[0].weight.shape == (8, 2, 3, 3)
    assert {kind(p.data()) for p in net.collect_params().values()} == {"float32"}


def test_a_weight_that_is_used_twice_is_cast_once() -> None:
    class Twice(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(3, in_units=3, use_bias=False)

        def forward(self, x: Any) -> Any:
            return self.dense(self.dense(x))

    amp.init("bfloat16")
    net = Twice()
    net.initialize()
    symbol = net(mx.sym.var("data"))
    text = symbol.get_internals().list_outputs()
    assert sum("weight_amp_cast" in name for name in text) == 1


@pytest.mark.parametrize("hybrid", [False, True])
def test_constrained_operators_stay_in_float32(hybrid: bool) -> None:
    class Constrained(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Dense(3, in_units=3), nn.Dense(3, in_units=3)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            with gluon.HybridBlock.OptConstraint.disable_amp():
                return y, self.second(y)

    net = Constrained()
    net.initialize(mx.init.Xavier())
    net.hybridize(hybrid)
    amp.init("bfloat16")
    for _ in range(2):
        assert [kind(out) for out in net(mx.np.ones((2, 3)))] == ["bfloat16", "float32"]


def test_symbols_that_are_composed_get_casts_and_lose_them_in_files(tmp_path: Any) -> None:
    amp.init("float16")
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc")
    symbol = mx.sym.softmax(hidden + mx.sym.exp(hidden), name="sm")
    amp.reset()
    assert symbol.list_arguments() == ["data", "fc_weight", "fc_bias"]
    executor = symbol.simple_bind(mx.cpu(), data=(2, 3))
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 4)))
    assert kind(executor.outputs[0]) == kind(executor.grad_dict["fc_weight"]) == "float32"
    symbol.save(str(tmp_path / "kept.json"), remove_amp_cast=False)
    symbol.save(str(tmp_path / "removed.json"))
    assert "amp_cast" in (tmp_path / "kept.json").read_text()
    assert "amp_cast" not in (tmp_path / "removed.json").read_text()
    back = mx.sym.load(str(tmp_path / "kept.json"))
    assert back.list_arguments() == symbol.list_arguments()
