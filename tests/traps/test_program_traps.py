"""A program after its network changed, and which program a file holds: lessons 6, 10, 26 and 43."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn

equal = numpy.testing.assert_allclose

OPTIMIZERS = (
    "sgd nag adam adamw adagrad rmsprop adadelta adamax nadam ftrl ftml signum lamb lars lans dcasgd".split()
)


def _two_layers() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="tanh"), nn.LayerNorm(in_channels=4), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def _numpy_result(net: Any, x: numpy.ndarray) -> numpy.ndarray:
    """What the two layers give for the parameters they have now."""
    values = [p.data().asnumpy() for p in net.collect_params().values()]
    first, bias, gamma, beta, last, shift = values
    hidden = numpy.tanh(x @ first.T + bias)
    centred = hidden - hidden.mean(1, keepdims=True)
    hidden = centred / numpy.sqrt(hidden.var(1, keepdims=True) + 1e-5) * gamma + beta
    return hidden @ last.T + shift


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_is_seen_by_a_compiled_prediction(optimizer: str) -> None:
    """Lesson 26: weights are packed for prediction; torch's fused Adam kernel counts no write to them."""
    net = _two_layers()
    x = mx.np.array(numpy.random.RandomState(0).rand(5, 3).astype("float32"))
    for _ in range(3):
        equal(net(x).asnumpy(), _numpy_result(net, x.asnumpy()), rtol=1e-4, atol=1e-5)
    before = net(x).asnumpy()
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.1})
    for _ in range(2):
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(1)
    assert abs(net(x).asnumpy() - before).max() > 1e-6
    equal(net(x).asnumpy(), _numpy_result(net, x.asnumpy()), rtol=1e-4, atol=1e-5)


def test_the_arguments_of_the_last_call_are_those_of_the_file(style: Any, tmp_path: Path) -> None:
    """Lesson 6: a network called with and without its mask, trained last with it, is exported with it."""
    net = style.block(lambda self, x, mask=None: x * 2 if mask is None else x * mask)
    net.hybridize()
    x, mask = style.array([1.0, 2.0]), style.array([3.0, 0.0])
    net(x, mask)
    net(x)
    with autograd.record():
        net(x, mask)
    net.export(tmp_path / "masked")
    back = gluon.SymbolBlock.imports(tmp_path / "masked-symbol.json", ["data0", "data1"])
    assert back(x, mask).asnumpy().tolist() == [3.0, 0.0]
    net(x)
    net.export(tmp_path / "plain")
    back = gluon.SymbolBlock.imports(tmp_path / "plain-symbol.json", ["data"])
    assert back(x).asnumpy().tolist() == [2.0, 4.0]


def test_inputs_without_names_are_in_the_order_of_the_call(style: Any, tmp_path: Path) -> None:
    """Lesson 43: a graph begins with the input that is used first, a call with the first argument."""

    def prepare(net: Any) -> None:
        net.layer = nn.Dense(2, use_bias=False, weight_initializer=mx.init.One())

    net = style.block(lambda self, first, second: self.layer(second) - first, prepare)
    net.hybridize()
    first, second = style.array([[5.0, 7.0]]), style.array([[1.0, 2.0, 3.0]])
    expected = net(first, second).asnumpy()
    equal(expected, [[1.0, -1.0]])
    net.export(tmp_path / "net")
    files = tmp_path / "net-symbol.json", tmp_path / "net-0000.params"
    found = gluon.SymbolBlock.imports(files[0], param_file=files[1])
    equal(found(first, second).asnumpy(), expected)
    named = gluon.SymbolBlock.imports(files[0], ["data1", "data0"], files[1])
    equal(named(second, first).asnumpy(), expected)


@pytest.mark.parametrize("named", [False, True])
def test_an_input_without_use_is_an_argument_of_the_import(style: Any, tmp_path: Path, named: bool) -> None:
    """Lessons 10 and 43: what was called with three arrays is called with three after export."""
    net = style.block(lambda self, x, unused, y: x - y)
    net.hybridize()
    arrays = [style.array([value]) for value in (5.0, 100.0, 2.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net(*arrays)
        net.export(tmp_path / "net")
        names = ["data0", "data1", "data2"] if named else None
        back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", names)
        assert back(*arrays).asnumpy().tolist() == [3.0]
        back.hybridize()
        assert back(*arrays).asnumpy().tolist() == [3.0]
    with pytest.raises(ValueError, match=r"has no input .*dat3"):
        gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data0", "data1", "dat3"])
