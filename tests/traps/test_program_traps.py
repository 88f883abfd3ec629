"""Programs after their network changed, in files, with branches, with Python inside."""

from __future__ import annotations

import threading
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


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_layer_shared_by_branches_gets_the_sum_of_its_gradients(hybridize: bool) -> None:
    """Lesson 14: the gradient of a branch that is not taken was unwritten memory."""

    class Chosen(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Dense(2, in_units=2, use_bias=False)

        def hybrid_forward(self, F: Any, x: Any, first: Any, second: Any) -> Any:
            a = F.contrib.cond(first, lambda: self.layer(x), lambda: x * 0)
            return a + F.contrib.cond(second, lambda: self.layer(x * 10), lambda: x)

    net = Chosen()
    net.initialize(mx.init.One())
    if hybridize:
        net.hybridize()
    x = mx.nd.array([[1.0, 2.0]])
    x.attach_grad()
    for first, second, factor in ((1, 1, 11), (1, 0, 1), (0, 1, 10), (0, 0, 0)):
        net.layer.weight.zero_grad()
        with mx.autograd.record():
            out = net(x, mx.nd.array([first]), mx.nd.array([second]))
        out.backward()
        numpy.testing.assert_allclose(out.asnumpy(), 3.0 * factor + (0 if second else x.asnumpy()))
        gradient = net.layer.weight.grad().asnumpy()
        numpy.testing.assert_allclose(gradient, factor * numpy.array([[1, 2], [1, 2]]))


def test_operators_in_python_run_in_many_threads() -> None:
    """Lesson 28: they ran on another thread, and waited for each other."""

    class Twice(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            # Work of its own inside: a compiled network, whose lock must not be held here.
            self.assign(out_data[0], req[0], inner(in_data[0]) * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("trap_twice")
    class TwiceProp(mx.operator.CustomOpProp):
        def create_operator(self, context, shapes, types):
            return Twice()

    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return F.Custom(x, op_type="trap_twice") + 1

    inner = nn.Dense(3, in_units=3, use_bias=False)
    inner.initialize(mx.init.One())
    inner.hybridize()
    net = Net()
    net.hybridize()
    results: dict[int, list[float]] = {}

    def work(place: int) -> None:
        for _ in range(25):
            results[place] = net(mx.nd.ones((place + 1, 3)) * place).asnumpy().ravel().tolist()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    assert results == {place: [6.0 * place + 1] * (3 * (place + 1)) for place in range(8)}
