"""Operators written in Python inside hybridized blocks, Symbols, executors, modules and files."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy
import pytest
from custom_operators import (
    DATA,
    define,
    gradient_of,
    leaf,
    square_backward,
    square_forward,
)

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.exec.inductor import InductorPlan
from regluon.gluon import nn


class Normalized(gluon.HybridBlock):
    """Its parameters' shapes follow from the operator's ``infer_shape``."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.fc = nn.Dense(4, weight_initializer=mx.init.Constant(0.25))
            later = {"shape": (0,), "allow_deferred_init": True}
            self.weight = self.params.get("weight", init=mx.init.Constant(1.5), **later)
            self.mean = self.params.get("mean", init="zeros", grad_req="null", **later)
            self.norm = nn.BatchNorm()

    def hybrid_forward(self, F, x, weight, mean):
        return F.relu(self.norm(F.Custom(self.fc(x), weight, mean, op_type="moving_mean")))


def test_training_predicting_and_files_of_a_block_with_states(tmp_path: Path) -> None:
    mx.set_api(1)
    rng = numpy.random.RandomState(0)
    x, other = mx.nd.array(rng.randn(5, 3)), mx.nd.array(rng.randn(7, 3))
    results = []
    for flags in ({"active": False}, {}, {"static_alloc": True, "static_shape": True}):
        net = Normalized()
        net.initialize()
        net.hybridize(**{"active": True, **flags})
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for _ in range(3):
            with autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            trainer.step(5)
        predictions = [net(x).asnumpy() for _ in range(3)]
        for again in predictions[1:]:
            numpy.testing.assert_allclose(again, predictions[0], rtol=1e-5)
        states = [net.mean.data(), net.weight.data(), net.norm.running_mean.data()]
        results.append([loss.asnumpy(), predictions[0], net(other).asnumpy(), *(s.asnumpy() for s in states)])
    for hybridized in results[1:]:
        for mine, plain in zip(hybridized, results[0], strict=True):
            numpy.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-6)
    net.export(str(tmp_path / "net"))
    expected = net(x).asnumpy()
    names = str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    for again in (gluon.SymbolBlock.imports(*names), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        for _ in range(3):
            numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-5)


def test_calls_are_neither_merged_nor_moved_out_of_a_call_nor_baked_in() -> None:
    calls = []

    def forward(self, is_train, req, in_data, out_data, aux):
        calls.append(is_train)
        self.assign(out_data[0], req[0], in_data[0] + len(calls))

    define("counting", forward)

    class Twice(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = gluon.Parameter("weight", shape=(1, 3), init="zeros")
            self._reg_params["weight"] = self.weight

        def hybrid_forward(self, F, x, weight):
            same = F.Custom(x, op_type="counting"), F.Custom(x, op_type="counting")
            return F.broadcast_add(same[0] - same[1], F.Custom(weight, op_type="counting"))

    net = Twice()
    net.initialize()
    net.hybridize(static_shape=True)
    x = mx.nd.array(DATA)
    for number in range(1, 4):
        net(x)
        assert len(calls) == 3 * number
    assert set(calls) == {False}
    program = next(iter(net._graph_cache().graphs.values())).program
    with pytest.raises(MXNetError, match="Python code of its own"):
        InductorPlan(program, 1, [x._t, net.weight.data()._t])


def test_a_loop_over_elements_runs_the_operator_in_each_step() -> None:
    class Loop(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            def step(element, total):
                total = total + F.Custom(element, op_type="square")
                return total, total

            return F.contrib.foreach(step, x, F.zeros((3,)))[0]

    net = Loop()
    for hybridize in (False, True, True):
        net.hybridize(hybridize)
        x = leaf()
        (gradient,) = gradient_of(net, x)
        numpy.testing.assert_allclose(net(x).asnumpy(), numpy.cumsum(DATA**2, axis=0))
        numpy.testing.assert_allclose(gradient, 2 * DATA * [[2], [1]])


def test_sizes_given_as_keywords_are_numbers_of_each_call() -> None:
    seen = []

    def make(self, size, both):
        mx.operator.CustomOpProp.__init__(self)
        seen.append((size, both))

    define("sized", square_forward, square_backward, __init__=make)

    class Sized(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.Custom(x, op_type="sized", size=x.shape[0], both=(x.shape[0], numpy.int64(2)))

    net = Sized()
    net.hybridize()
    for rows in (2, 5, 2):
        net(mx.nd.ones((rows, 3)))
        assert (str(rows), f"({rows}, 2)") in seen


def test_a_numpy_style_block_works_on_numpy_arrays(tmp_path: Path) -> None:
    mx.set_api(2)
    mx.npx.set_np()
    kinds = set()

    def forward(self, is_train, req, in_data, out_data, aux):
        kinds.update(map(type, (*in_data, *out_data)))
        self.assign(out_data[0], req[0], mx.np.where(in_data[0] > 0, in_data[0], 0))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        kinds.update(map(type, (*out_grad, *in_grad)))
        in_grad[0][in_data[0] > 0] = out_grad[0][in_data[0] > 0]

    define("rectify", forward, backward)

    class Modern(gluon.HybridBlock):
        def forward(self, x):
            return mx.npx.Custom(x, op_type="rectify")

    net = Modern()
    for hybridize in (False, True, True):
        net.hybridize(hybridize)
        x = mx.np.array(DATA)
        x.attach_grad()
        (gradient,) = gradient_of(net, x)
        assert type(net(x)) is mx.np.ndarray
        numpy.testing.assert_array_equal(net(x).asnumpy(), numpy.maximum(DATA, 0))
        numpy.testing.assert_array_equal(gradient, DATA > 0)
    net.export(str(tmp_path / "net"))
    again = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"])
    numpy.testing.assert_array_equal(again(x).asnumpy(), numpy.maximum(DATA, 0))
    assert kinds == {mx.np.ndarray}
    assert mx.npx.Custom(mx.np.array(-3.0), op_type="rectify").shape == ()


def test_a_symbol_goes_through_json_pickle_and_copies() -> None:
    data = mx.sym.var("x")
    symbol = mx.sym.Custom(
        mx.sym.FullyConnected(data, num_hidden=3, name="fc"), op_type="square", name="node"
    )
    expected = (DATA.sum(axis=1, keepdims=True) * numpy.ones((1, 3))) ** 2
    values = {"x": mx.nd.array(DATA), "fc_weight": mx.nd.ones((3, 3)), "fc_bias": mx.nd.zeros(3)}
    for each in (
        symbol,
        mx.sym.load_json(symbol.tojson()),
        pickle.loads(pickle.dumps(symbol)),
        copy.copy(symbol),
    ):
        assert each.list_outputs() == ["node_output"]
        assert each.attr_dict()["node"] == {"op_type": "square"}
        (out,) = each.eval(ctx=mx.cpu(), **values)
        numpy.testing.assert_allclose(out.asnumpy(), expected)
    text = symbol.tojson().replace("square", "squar")
    with pytest.raises(
        MXNetError, match=r"node node: Custom operator 'squar' is not registered\. Near names: square"
    ):
        mx.sym.load_json(text)


def test_types_of_a_symbol_follow_infer_type() -> None:
    define("as_int", square_forward, infer_type=lambda self, types: (types, [numpy.int32]))
    symbol = mx.sym.Custom(mx.sym.var("x"), op_type="as_int")
    assert symbol.infer_type(x="float16") == ([numpy.float16], [numpy.int32], [])
    assert mx.nd.Custom(mx.nd.array(DATA), op_type="as_int").dtype == numpy.int32


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_types_are_kept(dtype: str) -> None:
    out = mx.nd.Custom(mx.nd.array([[2, 3]], dtype=dtype), op_type="square")
    assert out.dtype == numpy.dtype(dtype)
    assert out.asnumpy().tolist() == [[4, 9]]
    assert mx.nd.Custom(mx.nd.zeros((0, 3), dtype=dtype), op_type="square").shape == (0, 3)


def test_an_executor_keeps_its_operator_and_a_call_does_not() -> None:
    made = []

    class Counter(mx.operator.CustomOp):
        def __init__(self):
            made.append(self)
            self.calls = 0

        def forward(self, is_train, req, in_data, out_data, aux):
            self.calls += 1
            self.assign(out_data[0], req[0], self.calls)

    define("counter", None, create_operator=lambda *_: Counter())
    symbol = mx.sym.Custom(mx.sym.var("x"), op_type="counter")
    executors = [symbol.bind(mx.cpu(), {"x": mx.nd.zeros((2,))}) for _ in range(2)]
    for number in (1, 2, 3):
        assert executors[0].forward()[0].asnumpy().tolist() == [number] * 2
    assert executors[1].forward()[0].asnumpy().tolist() == [1] * 2
    assert len(made) == 2
    for _ in range(2):
        assert mx.nd.Custom(mx.nd.zeros((2,)), op_type="counter").asnumpy().tolist() == [1] * 2


class Softmax(mx.operator.CustomOp):
    """A softmax in NumPy, whose gradient is that of the cross entropy."""

    def forward(self, is_train, req, in_data, out_data, aux):
        scores = in_data[0].asnumpy()
        powers = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        self.assign(out_data[0], req[0], mx.nd.array(powers / powers.sum(axis=1, keepdims=True)))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        gradient = out_data[0].asnumpy()
        gradient[numpy.arange(len(gradient)), in_data[1].asnumpy().astype(int)] -= 1
        self.assign(in_grad[0], req[0], mx.nd.array(gradient))


@mx.operator.register("numpy_softmax")
class SoftmaxProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Softmax()


def test_a_module_with_a_softmax_of_its_own_learns_as_with_softmax_output() -> None:
    rng = numpy.random.RandomState(0)
    data = rng.randn(100, 6).astype("float32")
    labels = (data @ rng.randn(6, 3)).argmax(axis=1).astype("float32")
    results = []
    for output in (
        lambda scores: mx.sym.SoftmaxOutput(scores, name="softmax"),
        lambda scores: mx.sym.Custom(scores, name="softmax", op_type="numpy_softmax"),
    ):
        mx.random.seed(3)
        module = mx.mod.Module(output(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")))
        batches = mx.io.NDArrayIter(data, labels, 20)
        module.fit(
            batches, num_epoch=4, optimizer_params={"learning_rate": 0.3}, initializer=mx.init.Constant(0.1)
        )
        results.append(module.predict(batches).asnumpy())
        assert dict(module.score(batches, "acc"))["accuracy"] > 0.9
    numpy.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-6)
