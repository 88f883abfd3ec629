"""Custom autograd Functions: alone, inside hybridized blocks and in training."""

from __future__ import annotations

import numpy
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn

A = numpy.array([1.0, -2.0, 3.0], dtype="float32")
B = numpy.array([4.0, 5.0, -6.0], dtype="float32")


class Sigmoid(autograd.Function):
    def forward(self, x):
        y = 1 / (1 + mx.nd.exp(-x))
        self.save_for_backward(y)
        return y

    def backward(self, dy):
        (y,) = self.saved_tensors
        return dy * y * (1 - y)


class ProductAndSum(autograd.Function):
    def forward(self, a, b):
        assert not autograd.is_recording()
        self.save_for_backward(a, b)
        return a * b, a + b

    def backward(self, d_product, d_sum):
        a, b = self.saved_tensors
        return d_product * b + d_sum, d_product * a + d_sum


class Scaled(autograd.Function):
    """Identity forward; the gradient is multiplied by ``factor``, which no real derivative would be."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x

    def backward(self, dy):
        return dy * self.factor


def leaves(kind=mx.nd):
    arrays = [kind.array(A), kind.array(B)]
    for array in arrays:
        array.attach_grad()
    return arrays


@pytest.mark.parametrize("kind", [mx.nd, mx.np], ids=["nd", "np"])
def test_several_inputs_and_outputs(kind):
    a, b = leaves(kind)
    with autograd.record():
        product, total = ProductAndSum()(a, b)
        loss = product * 2 + total
    loss.backward()
    assert type(product) is type(a) and type(a.grad) is type(a)
    numpy.testing.assert_array_equal(product.asnumpy(), A * B)
    numpy.testing.assert_array_equal(a.grad.asnumpy(), 2 * B + 1)
    numpy.testing.assert_array_equal(b.grad.asnumpy(), 2 * A + 1)


def test_an_output_that_no_head_uses_gets_zeros():
    a, b = leaves()
    with autograd.record():
        _, total = ProductAndSum()(a, b)
    total.backward()
    numpy.testing.assert_array_equal(a.grad.asnumpy(), [1, 1, 1])
    numpy.testing.assert_array_equal(b.grad.asnumpy(), [1, 1, 1])


def test_it_composes_with_other_operators():
    x, _ = leaves()
    with autograd.record():
        loss = (Sigmoid()(x * 2) * x).sum()
    loss.backward()
    tensor = torch.tensor(A, requires_grad=True)
    (torch.sigmoid(tensor * 2) * tensor).sum().backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), tensor.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_second_order_goes_through_its_backward(hybrid):
    class Cube(autograd.Function):
        def forward(self, x):
            self.save_for_backward(x)
            return x * x * x

        def backward(self, dy):
            (x,) = self.saved_tensors
            return dy * 3 * x * x

    class Net(gluon.HybridBlock):
        def forward(self, x):
            return Cube()(x)

    net = Net()
    net.hybridize(hybrid)
    x, _ = leaves()
    with autograd.record():
        (first,) = autograd.grad(net(x), [x], create_graph=True, retain_graph=True)
    first.backward()
    numpy.testing.assert_array_equal(first.asnumpy(), 3 * A * A)
    numpy.testing.assert_array_equal(x.grad.asnumpy(), 6 * A)


def test_the_gradient_is_the_one_its_backward_gives():
    x, _ = leaves()
    with autograd.record():
        y = Scaled(10)(x) * 3
    y.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), [30, 30, 30])


def test_outside_record_it_only_computes():
    x, _ = leaves()
    y = Scaled(10)(x)
    numpy.testing.assert_array_equal(y.asnumpy(), A)
    with pytest.raises(MXNetError, match="not in a computational graph"):
        y.backward()


def test_a_result_is_no_alias_of_the_input():
    x = mx.nd.array(A)
    y = Scaled(1)(x)
    y += 1
    assert y is not x


def test_training_mode_is_that_of_the_caller():
    seen = []

    class Look(autograd.Function):
        def forward(self, x):
            seen.append((autograd.is_recording(), autograd.is_training()))
            return x * 1

        def backward(self, dy):
            return dy

    x, _ = leaves()
    with autograd.record():
        Look()(x)
    with autograd.record(train_mode=False):
        Look()(x)
    assert seen == [(False, True), (False, False)]


# Errors ---------------------------------------------------------------------------------


def test_an_instance_is_called_once():
    function = Scaled(1)
    x, _ = leaves()
    function(x)
    with pytest.raises(AssertionError, match=r"only be called once\. Please create another instance"):
        function(x)


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda dy: (dy, dy), MXNetError, "one gradient for each of the 1 inputs; received 2"),
        (lambda dy: mx.nd.ones((2,)), MXNetError, r"its input's shape \(3,\); received \(2,\)"),
        (lambda dy: 3.0, TypeError, "must return arrays or None; gradient 0 is float"),
    ],
)
def test_a_backward_that_returns_the_wrong_things(result, error, text):
    class Wrong(autograd.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return result(dy)

    x, _ = leaves()
    with autograd.record():
        y = Wrong()(x)
    with pytest.raises(error, match=text):
        y.backward()


def test_a_none_gradient_stands_for_zeros():
    class Half(autograd.Function):
        def forward(self, a, b):
            return a + b

        def backward(self, dy):
            return dy, None

    a, b = leaves()
    b.grad[:] = 7
    with autograd.record():
        y = Half()(a, b)
    y.backward()
    numpy.testing.assert_array_equal(a.grad.asnumpy(), [1, 1, 1])
    numpy.testing.assert_array_equal(b.grad.asnumpy(), [0, 0, 0])


def test_an_error_in_backward_reaches_the_caller_as_it_is():
    class Broken(autograd.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            raise LookupError("no gradient today")

    x, _ = leaves()
    with autograd.record():
        y = Broken()(x)
    with pytest.raises(LookupError, match="no gradient today"):
        y.backward()
    assert (autograd.is_recording(), autograd.is_training()) == (False, False)


def test_missing_methods_and_wrong_values_are_named():
    class Empty(autograd.Function):
        pass

    class Number(autograd.Function):
        def forward(self, x):
            return 3.0

    x, _ = leaves()
    with pytest.raises(NotImplementedError, match=r"Empty must define forward\(self, \*inputs\)"):
        Empty()(x)
    with pytest.raises(TypeError, match=r"Number\.forward must return arrays; received float"):
        Number()(x)
    with autograd.record(), pytest.raises(TypeError, match=r"input 1 is float.*Give numbers to __init__"):
        ProductAndSum()(x, 2.0)


def test_a_second_backward_needs_retain_graph():
    x, _ = leaves()
    with autograd.record():
        y = Scaled(2)(x)
        first, second = y * 1, y * 1
    first.backward(retain_graph=True)
    first.backward()
    with pytest.raises(MXNetError, match="used up by an earlier backward"):
        second.backward()


# Hybridized ---------------------------------------------------------------------------------


class NewStyle(gluon.HybridBlock):
    def forward(self, a, b):
        product, total = ProductAndSum()(a, b)
        return product * 2 + total


class OldStyle(gluon.HybridBlock):
    def hybrid_forward(self, F, a, b):
        product, total = ProductAndSum()(a, b)
        return product * 2 + total


@pytest.mark.parametrize("kind", [mx.nd, mx.np], ids=["nd", "np"])
@pytest.mark.parametrize("style", [OldStyle, NewStyle])
def test_inside_a_hybridized_block(style, kind):
    net = style()
    net.hybridize()
    for scale in (1.0, 2.0):
        a, b = (kind.array(value * scale) for value in (A, B))
        a.attach_grad()
        b.attach_grad()
        numpy.testing.assert_array_equal(net(a, b).asnumpy(), 2 * scale**2 * A * B + scale * (A + B))
        with autograd.record():
            out = net(a, b)
        out.backward()
        assert type(out) is type(a)
        numpy.testing.assert_array_equal(a.grad.asnumpy(), 2 * scale * B + 1)
        numpy.testing.assert_array_equal(b.grad.asnumpy(), 2 * scale * A + 1)


def test_its_own_arguments_work_in_a_hybridized_block():
    class Net(gluon.HybridBlock):
        def forward(self, x):
            return Scaled(10)(x) * 3

    net = Net()
    net.hybridize()
    x, _ = leaves()
    with autograd.record():
        y = net(x)
    y.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), [30, 30, 30])


class Trained(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = nn.Dense(5)
        self.second = nn.Dense(2)

    def forward(self, x):
        return self.second(Sigmoid()(self.first(x)))


def test_training_gives_the_same_losses_and_weights_when_hybridized():
    x = mx.nd.array(numpy.random.RandomState(0).randn(8, 3))
    runs = []
    for hybrid in (False, True):
        mx.random.seed(3)
        net = Trained()
        net.initialize()
        net.hybridize(hybrid)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.2})
        losses = []
        for _ in range(5):
            with autograd.record():
                loss = ((net(x) - 1) ** 2).sum()
            loss.backward()
            trainer.step(8)
            losses.append(float(loss.asscalar()))
        runs.append([*losses, *net.first.weight.data().asnumpy().ravel()])
    assert runs[0][4] < 0.9 * runs[0][0]
    numpy.testing.assert_allclose(runs[1], runs[0], rtol=1e-5, atol=1e-7)
