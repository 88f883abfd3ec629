"""Operators written in Python: as the originals, gradients, other code inside, sparse arrays."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from custom_operators import (
    DATA,
    define,
    fails,
    gradient_of,
    leaf,
    net_of,
    square_forward,
)
from custom_runs import in_numpy_mode, observe

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "custom_operators.json").read_text())


@pytest.mark.parametrize("version", list(GOLDEN))
def test_what_operators_see_and_give_is_the_originals(version: str) -> None:
    new = version.startswith("2")
    mx.set_api(2 if new else 1)
    expected = {key: value for key, value in GOLDEN[version].items() if key != "numpy mode"}
    found = observe(mx, new)
    assert found.keys() == expected.keys()
    for part, value in expected.items():
        assert found[part] == value, part


def test_in_numpy_mode_the_arrays_are_numpy_arrays_as_in_2_0() -> None:
    mx.set_api(2)
    mx.npx.set_np()
    assert json.loads(json.dumps(in_numpy_mode(mx))) == GOLDEN["2.0.0beta1"]["numpy mode"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [("null", [1, 1]), ("write", [5, 6]), ("inplace", [5, 6]), ("add", [6, 7])],
)
@pytest.mark.parametrize("kind", [mx.nd, mx.np])
def test_assign(kind: Any, request_: str, expected: list[int]) -> None:
    for source in (mx.nd.array([5, 6]), numpy.array([5, 6]), mx.np.array([5, 6]), [5, 6]):
        target = kind.ones((2,))
        mx.operator.CustomOp().assign(target, request_, source)
        assert target.asnumpy().tolist() == expected
    scalar = mx.np.array(1.0)
    mx.operator.CustomOp().assign(scalar, "add", 2)
    assert scalar.item() == 3
    with pytest.raises(ValueError, match="one of null, write, inplace, add; received 'set'"):
        mx.operator.CustomOp().assign(target, "set", 1)


def test_defaults_of_a_property() -> None:
    prop = mx.operator.CustomOpProp()
    assert (prop.list_arguments(), prop.list_outputs(), prop.list_auxiliary_states()) == (
        ["data"],
        ["output"],
        [],
    )
    assert prop.infer_shape([(2, 3)]) == ([(2, 3)], [(2, 3)], [])
    assert prop.infer_type([numpy.float32]) == ([numpy.float32], [numpy.float32], [])
    assert prop.declare_backward_dependency([1], [2], [3]) == [1, 2, 3]
    loss = mx.operator.CustomOpProp(need_top_grad=False)
    assert loss.declare_backward_dependency([1], [2], [3]) == [2, 3]
    assert prop.infer_storage_type(["default"]) == (["default"], ["default"], [])
    assert prop.infer_storage_type_backward(["default"], ["undefined"], ["default"], ["default"], []) == (
        *[["default"]] * 4,
        [],
    )
    with pytest.raises(AssertionError, match=r"in_stype\[0\] is 'csr'"):
        prop.infer_storage_type(["csr"])


def test_gradients_are_those_of_finite_differences() -> None:
    def forward(self, is_train, req, in_data, out_data, aux):
        a, b = in_data
        self.assign(out_data[0], req[0], mx.nd.sin(a) * b)
        self.assign(out_data[1], req[1], (b * b).sum(axis=1))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        (a, b), (first, second) = in_data, out_grad
        self.assign(in_grad[0], req[0], first * mx.nd.cos(a) * b)
        self.assign(in_grad[1], req[1], first * mx.nd.sin(a) + 2 * b * second.expand_dims(1))

    define(
        "two_outputs",
        forward,
        backward,
        list_arguments=lambda self: ["a", "b"],
        list_outputs=lambda self: ["product", "norm"],
        infer_shape=lambda self, shapes: (shapes, [shapes[0], shapes[0][:1]], []),
    )
    values = numpy.random.RandomState(1).randn(2, 2, 3)

    def total(a: numpy.ndarray, b: numpy.ndarray) -> float:
        return float((numpy.sin(a) * b).sum() + 3 * (b * b).sum())

    class Block(gluon.HybridBlock):
        def hybrid_forward(self, F, a, b):
            product, norm = F.Custom(b=b, a=a, op_type="two_outputs")
            return F.concat(product.sum().reshape(1), 3 * norm.sum().reshape(1), dim=0)

    expected = numpy.zeros_like(values)
    for place in numpy.ndindex(values.shape):
        shift = numpy.zeros_like(values)
        shift[place] = 1e-6
        expected[place] = (total(*(values + shift)) - total(*(values - shift))) / 2e-6
    block = Block()
    for hybridize in (False, True, True):
        block.hybridize(hybridize)
        arrays = [leaf(value, "float64") for value in values]
        numpy.testing.assert_allclose(gradient_of(block, *arrays), expected, rtol=1e-6)


def test_a_gradient_is_added_where_several_calls_meet_and_where_add_is_asked() -> None:
    x = leaf()
    x.attach_grad("add")
    gradient_of(lambda x: mx.nd.Custom(x, op_type="square") + mx.nd.Custom(x, op_type="square"), x)
    numpy.testing.assert_allclose(x.grad.asnumpy(), 4 * DATA)
    gradient_of(lambda x: mx.nd.Custom(x, op_type="square"), x)
    numpy.testing.assert_allclose(x.grad.asnumpy(), 6 * DATA)


def test_a_graph_can_be_kept_for_another_backward() -> None:
    x = leaf()
    with autograd.record():
        y = mx.nd.Custom(x, op_type="square")
    y.backward(retain_graph=True)
    y.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), 2 * DATA)
    with pytest.raises(MXNetError, match="used up by an earlier backward"):
        y.backward()


def test_backward_has_what_was_declared_and_nothing_else() -> None:
    seen = []

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        seen.append(out_data[0].asnumpy())
        for withheld, name in ((out_grad[0], "out_grad"), (in_data[0], "in_data")):
            for use in (lambda: withheld.shape, lambda: withheld * 2, lambda: numpy.sum(withheld)):  # noqa: B023
                with pytest.raises(MXNetError, match=rf"{name}\[0\] is not there in backward"):
                    use()
        self.assign(in_grad[0], req[0], 2 * out_data[0])

    define("declares", square_forward, backward, declare_backward_dependency=lambda self, g, i, o: o)
    (gradient,) = gradient_of(lambda x: mx.nd.Custom(x, op_type="declares"), leaf())
    numpy.testing.assert_allclose(gradient, 2 * DATA**2)
    numpy.testing.assert_allclose(seen, [DATA**2])


def test_a_gradient_of_higher_order_is_refused_and_a_first_one_is_not() -> None:
    x = leaf()
    with autograd.record():
        gradient = autograd.grad(mx.nd.Custom(x, op_type="square"), x, create_graph=True)[0]
        total = (gradient * x).sum()
    numpy.testing.assert_allclose(gradient.asnumpy(), 2 * DATA)
    with pytest.raises(MXNetError, match=r"'square': the gradient of its gradient .*mx\.autograd\.Function"):
        total.backward()


def test_an_integer_label_beside_data_runs_the_code_once() -> None:
    calls = []

    def forward(self, is_train, req, in_data, out_data, aux):
        calls.append(in_data[1].dtype)
        self.assign(out_data[0], req[0], mx.nd.pick(in_data[0], in_data[1]))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], mx.nd.one_hot(in_data[1], depth=3) * out_grad[0].expand_dims(1))

    define(
        "pick_class",
        forward,
        backward,
        list_arguments=lambda self: ["data", "label"],
        infer_shape=lambda self, shapes: ([shapes[0], shapes[0][:1]], [shapes[0][:1]]),
    )
    expected = [[0, 0, 1], [1, 0, 0]]
    (gradient,) = gradient_of(
        lambda x: mx.nd.Custom(x, x.argmax(axis=1).astype("int32"), op_type="pick_class"), leaf()
    )
    assert gradient.tolist() == expected
    assert calls == [numpy.int32]


def test_writing_to_an_input_before_backward_is_found() -> None:
    x = leaf()
    with autograd.record():
        middle = x * 1
        total = mx.nd.Custom(middle, op_type="square").sum()
    with autograd.pause():
        middle._t.add_(1)
    with pytest.raises(MXNetError, match="changed in-place"):
        total.backward()


def cube_forward(self, is_train, req, in_data, out_data, aux):
    """The gradient of a sum of fourth powers, from a graph of its own."""
    w = in_data[0].copy()
    w.attach_grad()
    with autograd.record():
        total = (w**4).sum()
    total.backward()
    self.assign(out_data[0], req[0], w.grad / 4)


def cube_backward(self, req, out_grad, in_data, out_data, in_grad, aux):
    w = torch.tensor(in_data[0].asnumpy(), requires_grad=True)
    ((w**3) * torch.tensor(out_grad[0].asnumpy())).sum().backward()
    inner = in_data[0].copy()
    inner.attach_grad()
    with autograd.record():
        total = (inner**3 * out_grad[0]).sum()
    total.backward()
    numpy.testing.assert_allclose(inner.grad.asnumpy(), w.grad.numpy(), rtol=1e-6)
    self.assign(in_grad[0], req[0], w.grad.numpy())


def test_autograd_torch_and_numpy_inside() -> None:
    define("cube", cube_forward, cube_backward)
    net = net_of("cube", hybridize=False)
    y = DATA.sum(axis=1, keepdims=True) * numpy.ones((1, 3))
    for hybridize in (False, True, True):
        net.hybridize(hybridize)
        (gradient,) = gradient_of(net, leaf())
        numpy.testing.assert_allclose(gradient, 3 * (3 * y**2), rtol=1e-5)


def test_threads_and_processes_inside_an_operator() -> None:
    inner = nn.Dense(3, in_units=3, weight_initializer=mx.init.One())
    inner.initialize()
    inner.hybridize()
    with ThreadPoolExecutor(3) as pool:

        def forward(self, is_train, req, in_data, out_data, aux):
            parts = pool.map(lambda k: (inner(in_data[0]) * k).asnumpy(), range(4))
            done = subprocess.run(
                [sys.executable, "-c", "print(7)"], capture_output=True, text=True, check=True
            )
            self.assign(out_data[0], req[0], sum(parts) * int(done.stdout))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            def one(k):
                w = in_data[0].copy()
                return gradient_of(lambda w: inner(w) * out_grad[0] * (7 * k), *attached(w))[0]

            self.assign(in_grad[0], req[0], sum(pool.map(one, range(4))))

        def attached(w):
            w.attach_grad()
            return [w]

        define("pooled", forward, backward)
        net = net_of("pooled")
        for _ in range(3):
            (gradient,) = gradient_of(net, leaf())
            # 42 times the product of two matrices of ones, which is 3 everywhere, and columns sum to 3 each.
            numpy.testing.assert_allclose(gradient, numpy.full((2, 3), 42 * 9), rtol=1e-6)


def test_eight_threads_train_and_predict_with_one_block() -> None:
    net = net_of("square")
    expected = (DATA.sum(axis=1, keepdims=True) * numpy.ones((1, 3))) ** 2
    problems = []

    def work() -> None:
        try:
            for _ in range(15):
                x = leaf()
                (gradient,) = gradient_of(net, x)
                numpy.testing.assert_allclose(gradient, numpy.sqrt(expected) * numpy.sign(y) * 6, rtol=1e-5)
                numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
        except Exception as error:
            problems.append(error)

    y = DATA.sum(axis=1, keepdims=True)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
    assert not any(thread.is_alive() for thread in threads)


def test_sparse_arrays_reach_an_operator_that_takes_them() -> None:
    seen = []

    def forward(self, is_train, req, in_data, out_data, aux):
        seen.append((in_data[0].stype, out_data[0].stype))
        self.assign(out_data[0], req[0], in_data[0])

    define("takes_csr", forward, infer_storage_type=lambda self, kinds: (["csr"], ["csr"], []))
    define("takes_dense", forward, lambda *_: None)
    values = numpy.array([[0, 2.0], [0, 0]], dtype="float32")
    array = mx.nd.array(values).tostype("csr")
    for op_type, stype in (("takes_csr", "csr"), ("takes_dense", "default")):
        out = mx.nd.Custom(array, op_type=op_type)
        assert out.stype == stype
        assert out.asnumpy().tolist() == values.tolist()
    assert seen == [("csr", "csr"), ("default", "default")]


@pytest.mark.parametrize("base", [mx.operator.NumpyOp, mx.operator.NDArrayOp])
def test_the_first_form_of_operators_makes_symbols(base: Any) -> None:
    kinds = set()

    class Triple(base):
        def list_arguments(self):
            return ["data", "label"]

        def infer_shape(self, in_shape):
            return [in_shape[0], (in_shape[0][0],)], [in_shape[0]]

        def forward(self, in_data, out_data):
            kinds.update(map(type, (*in_data, *out_data)))
            out_data[0][:] = in_data[0] * 3

        def backward(self, out_grad, in_data, out_data, in_grad):
            kinds.update(map(type, (*out_grad, *in_grad)))
            in_grad[0][:] = out_grad[0] * 3

    symbol = Triple()(mx.sym.var("x") * 1, name="last")
    assert (symbol.list_arguments(), symbol.list_outputs()) == (["x", "last_label"], ["last_output"])
    bound = symbol.simple_bind(mx.cpu(), x=(2, 3))
    bound.arg_dict["x"][:] = mx.nd.array(DATA)
    numpy.testing.assert_allclose(bound.forward(is_train=True)[0].asnumpy(), 3 * DATA)
    bound.backward(mx.nd.ones((2, 3)) * 5)
    assert bound.grad_dict["x"].asnumpy().tolist() == [[15] * 3] * 2
    assert kinds == {numpy.ndarray if base is mx.operator.NumpyOp else mx.nd.NDArray}
    with pytest.raises(MXNetError, match="Python code without a name"):
        symbol.tojson()
    with pytest.raises(NotImplementedError, match="derive from NumpyOp or NDArrayOp"):
        mx.operator.PythonOp()(mx.sym.var("x"))


def test_the_defaults_of_the_first_form() -> None:
    class Loss(mx.operator.NumpyOp):
        def __init__(self):
            super().__init__(need_top_grad=False)

    bound = Loss().get_symbol(mx.sym.var("x")).simple_bind(mx.cpu(), x=(2,))
    bound.arg_dict["x"][:] = 4
    assert bound.forward(is_train=True)[0].asnumpy().tolist() == [4, 4]
    bound.backward()
    assert bound.grad_dict["x"].asnumpy().tolist() == [1, 1]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_errors_of_an_autograd_function_in_a_block_are_the_users(where: str) -> None:
    class Fails(autograd.Function):
        def forward(self, x):
            return fails() if where == "forward" else x * 1

        def backward(self, dy):
            fails()

    class Block(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return Fails()(x * 1) + 1

    net = Block()
    for hybridize in (False, True, True):
        net.hybridize(hybridize)
        with pytest.raises(KeyError, match="from the user"):
            gradient_of(net, leaf())


def test_operators_are_called_by_the_name_of_the_table_too() -> None:
    out = mx.ops.invoke("_npi_Custom", [mx.np.array(DATA)], {"op_type": "square"})
    assert type(out) is mx.np.ndarray
    numpy.testing.assert_allclose(out.asnumpy(), DATA**2)
