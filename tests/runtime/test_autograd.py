"""Recording, backward and grad, against torch's own autograd and analytic derivatives."""

from __future__ import annotations

import numpy
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn

VALUES = numpy.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]], dtype="float32")


def leaf(values=VALUES, request="write", kind=mx.nd, dtype="float32"):
    array = kind.array(values, dtype=dtype)
    array.attach_grad(request)
    return array


def modes():
    return autograd.is_recording(), autograd.is_training()


# Scopes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (lambda: autograd.record(), (True, True)),
        (lambda: autograd.record(train_mode=False), (True, False)),
        (lambda: autograd.pause(), (False, False)),
        (lambda: autograd.pause(train_mode=True), (False, True)),
        (lambda: autograd.train_mode(), (False, True)),
        (lambda: autograd.predict_mode(), (False, False)),
    ],
)
def test_a_scope_sets_the_modes_and_restores_them(scope, expected):
    assert modes() == (False, False)
    with scope():
        assert modes() == expected
    assert modes() == (False, False)


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (lambda: autograd.pause(), (False, False)),
        (lambda: autograd.pause(train_mode=True), (False, True)),
        (lambda: autograd.predict_mode(), (True, False)),
        (lambda: autograd.train_mode(), (True, True)),
    ],
)
def test_scopes_nest(inner, expected):
    with autograd.record():
        with inner():
            assert modes() == expected
        assert modes() == (True, True)


def test_a_scope_restores_the_modes_after_an_exception():
    with pytest.raises(KeyError, match="stop"), autograd.record():
        raise KeyError("stop")
    assert modes() == (False, False)


def test_one_scope_object_can_be_entered_again_and_nested():
    scope = autograd.record()
    with scope:
        with scope:
            assert modes() == (True, True)
        assert modes() == (True, True)
    assert modes() == (False, False)


def test_setting_a_mode_gives_what_it_was():
    assert autograd.set_recording(True) is False
    assert autograd.set_training(True) is False
    assert modes() == (True, True)
    assert autograd.set_recording(False) is True
    assert autograd.set_training(False) is True
    assert modes() == (False, False)


def test_what_runs_in_a_pause_is_a_constant():
    x = leaf()
    with autograd.record():
        y = x * 2
        with autograd.pause():
            factor = y * y
        z = y * factor
    z.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), 2 * (2 * VALUES) ** 2, rtol=1e-6)


# Backward ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [mx.nd, mx.np], ids=["nd", "np"])
def test_a_chain_of_operators_has_the_gradients_that_torch_finds(kind):
    rng = numpy.random.RandomState(0)
    values = [rng.randn(*shape).astype("float32") for shape in ((4, 5), (5, 3), (3,))]
    x, w, b = (leaf(value, kind=kind) for value in values)
    with autograd.record():
        y = kind.tanh(kind.dot(x, w) + b)
        loss = (y * y).sum() + kind.exp(y[1:3]).mean()
    loss.backward()
    tx, tw, tb = (torch.tensor(value, requires_grad=True) for value in values)
    ty = torch.tanh(tx @ tw + tb)
    ((ty * ty).sum() + ty[1:3].exp().mean()).backward()
    for array, tensor in ((x, tx), (w, tw), (b, tb)):
        assert type(array.grad) is type(array)
        numpy.testing.assert_allclose(array.grad.asnumpy(), tensor.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_write_overwrites_add_adds_and_null_stays_out():
    written, added, frozen = leaf(), leaf(request="add"), leaf(request="null")
    for _ in range(3):
        with autograd.record():
            y = written * added * frozen
        y.backward()
    numpy.testing.assert_allclose(written.grad.asnumpy(), VALUES**2, rtol=1e-6)
    numpy.testing.assert_allclose(added.grad.asnumpy(), 3 * VALUES**2, rtol=1e-6)
    assert frozen.grad is None


def test_added_gradients_start_again_after_zero_grad():
    x = leaf(request="add")
    for _ in range(2):
        with autograd.record():
            y = x * 3
        y.backward()
    x.zero_grad()
    with autograd.record():
        y = x * 3
    y.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), numpy.full_like(VALUES, 3))


def test_a_view_of_the_gradient_taken_before_sees_later_gradients():
    x = leaf()
    row = x.grad[1:2]
    buffer = x.grad._t.data_ptr()
    for factor in (2.0, 5.0):
        with autograd.record():
            y = x * factor
        y.backward()
        numpy.testing.assert_array_equal(row.asnumpy(), numpy.full((1, 3), factor))
        assert x.grad._t.data_ptr() == buffer


def test_parameter_buffers_are_never_pointed_elsewhere():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    before = [(p.data()._t.data_ptr(), p.grad()._t.data_ptr()) for p in net.collect_params().values()]
    for hybrid in (False, True):
        net.hybridize(hybrid)
        for _ in range(2):
            with autograd.record():
                loss = net(mx.nd.array(VALUES)).sum()
            loss.backward()
            trainer.step(1)
    after = [(p.data()._t.data_ptr(), p.grad()._t.data_ptr()) for p in net.collect_params().values()]
    assert after == before


def test_a_marked_array_that_the_heads_do_not_depend_on_keeps_its_gradient():
    used, unused = leaf(), leaf()
    unused.grad[:] = 7
    with autograd.record():
        y = used * 2
        unused * 3
    y.backward()
    numpy.testing.assert_array_equal(unused.grad.asnumpy(), numpy.full_like(VALUES, 7))


def test_backward_of_a_marked_array_itself_gives_ones():
    x = leaf()
    x.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), numpy.ones_like(VALUES))


def test_several_heads_with_some_head_gradients():
    x = leaf()
    weights = numpy.arange(6, dtype="float32").reshape(2, 3)
    with autograd.record():
        a, b = x * 2, x * x
    autograd.backward([a, b], [None, mx.nd.array(weights)])
    numpy.testing.assert_allclose(x.grad.asnumpy(), 2 + weights * 2 * VALUES, rtol=1e-6)


def test_a_head_gradient_can_be_a_numpy_array():
    x = leaf()
    with autograd.record():
        y = x * 2
    y.backward(VALUES.astype("float64"))
    numpy.testing.assert_array_equal(x.grad.asnumpy(), 2 * VALUES)


def test_a_retained_graph_serves_again_and_then_other_heads():
    x = leaf(request="add")
    with autograd.record():
        y = x * x
        z = y * y
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    z.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), 2 * 2 * VALUES + 4 * VALUES**3, rtol=1e-6)


def test_backward_inside_the_record_scope():
    x = leaf()
    with autograd.record():
        y = x * x
        y.backward()
        assert modes() == (True, True)
    numpy.testing.assert_array_equal(x.grad.asnumpy(), 2 * VALUES)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integer_arrays_have_integer_gradients(dtype):
    x = leaf(numpy.array([1, 2, 3]), dtype=dtype)
    with autograd.record():
        y = x * x * x
    y.backward()
    assert x.grad.asnumpy().dtype == dtype
    numpy.testing.assert_array_equal(x.grad.asnumpy(), [3, 12, 27])


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_a_cast_to_integers_passes_the_gradient(hybrid):
    class Net(gluon.HybridBlock):
        def forward(self, x):
            whole = x.astype("int32")
            return whole, whole.astype("float32") * 3 * x

    net = Net()
    net.hybridize(hybrid)
    x = leaf()
    with autograd.record():
        whole, y = net(x)
    y.backward()
    truncated = numpy.trunc(VALUES)
    assert whole.dtype == numpy.int32
    numpy.testing.assert_array_equal(whole.asnumpy(), truncated)
    numpy.testing.assert_array_equal(x.grad.asnumpy(), 3 * VALUES + 3 * truncated)


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize("kind", ["int32", "int8"])
def test_the_gradient_of_a_loss_of_integers_in_16_bits(hybrid, kind):
    """What is computed of an integer that was shaped like a marked array goes on in the result's type."""
    x = mx.np.array([[1.0, 2.0], [3.0, 4.0]], dtype="float16")
    label, weight = mx.np.array([[3, 2], [1, 1]], dtype=kind), mx.np.array([[1.0], [0.5]], dtype="float16")
    x.attach_grad()
    loss = gluon.loss.L2Loss()
    if hybrid:
        loss.hybridize()
    with mx.autograd.record():
        total = loss(x, label, weight).sum()
    total.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), [[-1.0, 0.0], [0.5, 0.75]], rtol=1e-3)


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_marked_integers_stay_integers_in_a_block(hybrid):
    class Net(gluon.HybridBlock):
        def forward(self, x):
            return x * x / 2

    net = Net()
    net.hybridize(hybrid)
    x = leaf(numpy.array([3, 5]), dtype="int32")
    with autograd.record():
        y = net(x)
    y.backward()
    assert y.dtype == numpy.int32
    numpy.testing.assert_array_equal(y.asnumpy(), [4, 12])
    numpy.testing.assert_array_equal(x.grad.asnumpy(), [3, 5])


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_recorded_indices_stay_integers_in_a_block(hybrid):
    class Net(gluon.HybridBlock):
        def forward(self, table, rows):
            return mx.np.take(table, rows, axis=0), rows + 16777217

    net = Net()
    net.hybridize(hybrid)
    x, table = leaf(kind=mx.np), leaf(kind=mx.np)
    with autograd.record():
        rows = mx.np.argmax(x, axis=0)
        taken, shifted = net(table, rows)
    taken.backward()
    assert str(shifted.dtype) == "int64"
    numpy.testing.assert_array_equal(shifted.asnumpy(), [16777218, 16777218, 16777217])
    numpy.testing.assert_array_equal(taken.asnumpy(), VALUES[[1, 1, 0]])
    numpy.testing.assert_array_equal(table.grad.asnumpy(), [[1] * 3, [2] * 3])


def test_mark_variables_uses_the_given_buffers():
    x, buffer = mx.nd.array(VALUES), mx.nd.ones((2, 3))
    autograd.mark_variables([x], [buffer], "add")
    with autograd.record():
        y = x * 4
    y.backward()
    numpy.testing.assert_array_equal(buffer.asnumpy(), numpy.full_like(VALUES, 5))
    autograd.mark_variables(x, buffer, "write")
    with autograd.record():
        y = x * 4
    y.backward()
    numpy.testing.assert_array_equal(buffer.asnumpy(), numpy.full_like(VALUES, 4))


def test_mark_variables_refuses_what_does_not_fit():
    x = mx.nd.array(VALUES)
    with pytest.raises(MXNetError, match=r"as many gradients and requests as variables \(1\); received 2"):
        autograd.mark_variables([x], [x.copy(), x.copy()])
    with pytest.raises(MXNetError, match=r"its variable's shape \(2, 3\); received \(3,\)"):
        autograd.mark_variables([x], [mx.nd.ones((3,))])
    with pytest.raises(MXNetError, match="'write', 'add' or 'null'; received 'sum'"):
        autograd.mark_variables([x], [x.copy()], ["sum"])
    with pytest.raises(MXNetError, match=r"boolean array cannot have a gradient.*astype"):
        mx.np.array([True, False], dtype="bool").attach_grad()


def test_marking_a_result_cuts_nd_as_in_1_and_keeps_np_as_in_2():
    for kind, expected in ((mx.nd, 0.0), (mx.np, 10.0)):
        x = leaf(kind=kind)
        with autograd.record():
            y = x * 5
            y.attach_grad()
            z = y * 2
        z.backward()
        numpy.testing.assert_array_equal(y.grad.asnumpy(), numpy.full_like(VALUES, 2))
        numpy.testing.assert_array_equal(x.grad.asnumpy(), numpy.full_like(VALUES, expected))


def test_a_detached_value_is_a_constant():
    x = leaf()
    with autograd.record():
        y = x * 2
        z = y.detach() * x
    z.backward()
    assert y.detach().grad is None
    numpy.testing.assert_array_equal(x.grad.asnumpy(), 2 * VALUES)


def test_a_hidden_state_that_was_used_up_is_a_constant_in_the_next_graph():
    w = leaf(numpy.array([2.0], dtype="float32"))
    hidden = mx.nd.ones((1,))
    for _ in range(3):
        with autograd.record():
            hidden = hidden * w
        hidden.backward()
    numpy.testing.assert_array_equal(w.grad.asnumpy(), [4.0])


ZERO_GRADIENT = {
    "greater": lambda x: x > 0.3,
    "equal": lambda x: x == x,
    "argmax": lambda x: mx.nd.argmax(x, axis=1),
    "argsort": lambda x: mx.nd.argsort(x),
    "topk indices": lambda x: mx.nd.topk(x, k=2),
    "one_hot": lambda x: mx.nd.one_hot(x, 4),
    "ones_like": lambda x: mx.nd.ones_like(x),
    "zeros_like": lambda x: mx.nd.zeros_like(x),
    "BlockGrad": lambda x: mx.nd.BlockGrad(x),
    "sign": lambda x: mx.nd.sign(x),
    "round": lambda x: mx.nd.round(x),
    "floor": lambda x: mx.nd.floor(x),
    "shape_array": lambda x: mx.nd.shape_array(x),
}


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize("name", ZERO_GRADIENT)
def test_operators_without_gradient_write_zeros(name, hybrid):
    class Net(gluon.HybridBlock):
        def forward(self, x):
            return ZERO_GRADIENT[name](x)

    net = Net()
    net.hybridize(hybrid)
    x = leaf()
    x.grad[:] = 7
    with autograd.record():
        y = net(x)
    y.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), numpy.zeros_like(VALUES))


def test_a_mask_multiplies_gradients_like_a_constant():
    x = leaf()
    with autograd.record():
        y = (x > 0) * x * x
    y.backward()
    numpy.testing.assert_allclose(x.grad.asnumpy(), numpy.where(VALUES > 0, 2 * VALUES, 0), rtol=1e-6)


def test_the_sources_of_a_mask_may_be_written_before_backward():
    x, w = leaf(), leaf()
    with autograd.record():
        y = (x > 0) * w
    x[:] = -1
    y.backward()
    numpy.testing.assert_array_equal(w.grad.asnumpy(), VALUES > 0)
    numpy.testing.assert_array_equal(x.grad.asnumpy(), numpy.zeros_like(VALUES))


# Errors ---------------------------------------------------------------------------------


def test_backward_outside_a_graph_says_how_to_record():
    with pytest.raises(MXNetError, match=r"not in a computational graph.*use autograd\.record\(\)"):
        (leaf() * 2).backward()
    with autograd.record():
        y = mx.nd.ones((2,)) * 2
    with pytest.raises(MXNetError, match="not in a computational graph"):
        y.backward()


@pytest.mark.parametrize("make", [lambda x: x + 1, lambda x: x * x, lambda x: x.reshape((3, 2))])
def test_a_second_backward_needs_retain_graph(make):
    x = leaf()
    with autograd.record():
        y = make(x)
    y.backward()
    with pytest.raises(MXNetError, match=r"pass retain_graph=True.*used up by an earlier backward"):
        y.backward()


def test_another_head_over_a_used_up_graph_is_refused():
    x = leaf()
    with autograd.record():
        h = mx.nd.exp(x)
        first, second = h * h, h * 3
    first.backward()
    with pytest.raises(MXNetError, match=r"pass retain_graph=True"):
        second.backward()


def test_head_gradients_that_do_not_fit_are_refused():
    x = leaf()
    with autograd.record():
        y = x * 2
    with pytest.raises(MXNetError, match=r"its head's shape \(2, 3\); received \(3,\)"):
        y.backward(mx.nd.ones((3,)))
    with pytest.raises(MXNetError, match="one head gradient for each of 1 heads; received 2"):
        autograd.backward([y], [None, None])
    with pytest.raises(TypeError, match="head gradient must be an array or None; received str"):
        y.backward("ones")
    with pytest.raises(TypeError, match="head to differentiate must be an array; received float"):
        autograd.backward([1.0])
    with pytest.raises(MXNetError, match="at least one head"):
        autograd.backward([])
    y.backward()
    numpy.testing.assert_array_equal(x.grad.asnumpy(), numpy.full_like(VALUES, 2))


def test_nothing_marked_is_an_error():
    x = leaf()
    with autograd.record():
        y = x * 2
    x.attach_grad("null")
    y.backward()  # the recorded leaf still is there, but nobody takes its gradient
    assert x.grad is None


@pytest.mark.parametrize("write", ["+=", "*=", "[:]"])
def test_writing_to_a_marked_array_while_recording_is_refused(write):
    x = leaf()
    with autograd.record():
        x * x
        with pytest.raises(MXNetError, match=r"in-place.*Write `y = y \+ x` instead"):
            if write == "+=":
                x += 1
            elif write == "*=":
                x *= 2
            else:
                x[:] = 1
    numpy.testing.assert_array_equal(x.asnumpy(), VALUES)


def test_writing_to_a_recorded_result_gives_the_gradients_of_the_new_value():
    x = leaf()
    with autograd.record():
        y = x * 2
        y += x * x
        y[0] = 0
        z = y * y
    z.backward()
    value = 2 * VALUES + VALUES**2
    expected = 2 * value * (2 + 2 * VALUES)
    expected[0] = 0
    numpy.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-5)


def test_writing_between_recording_and_backward_is_found():
    x = leaf()
    with autograd.record():
        y = x * 3
        z = y * y
    y[:] = 0
    with pytest.raises(MXNetError, match=r"array of shape \(2, 3\) and type float.*Call backward before"):
        z.backward()


def test_an_array_being_traced_cannot_be_marked():
    class Net(gluon.HybridBlock):
        def forward(self, x):
            x.attach_grad()
            return x

    net = Net()
    net.hybridize()
    with pytest.raises(MXNetError, match=r"attach_grad\(\) needs the value of data"):
        net(mx.nd.ones((2,)))


# grad -------------------------------------------------------------------------------------


def test_grad_gives_new_arrays_and_leaves_the_buffers():
    x, w = leaf(), leaf(2 * VALUES)
    x.grad[:] = 7
    with autograd.record():
        y = x * w
    dx, dw = autograd.grad(y, [x, w])
    numpy.testing.assert_array_equal(dx.asnumpy(), 2 * VALUES)
    numpy.testing.assert_array_equal(dw.asnumpy(), VALUES)
    numpy.testing.assert_array_equal(x.grad.asnumpy(), numpy.full_like(VALUES, 7))


def test_grad_of_one_variable_is_a_list_as_in_the_originals():
    x, a = leaf(), leaf(kind=mx.np)
    with autograd.record():
        y, b = x * 2, a * 2
    for found, kind in ((autograd.grad(y, x), mx.nd.NDArray), (autograd.grad(b, a), mx.np.ndarray)):
        assert [type(each) for each in found] == [kind]


def test_grad_with_head_gradients():
    x = leaf()
    with autograd.record():
        y = x * x
    (dx,) = autograd.grad(y, [x], head_grads=mx.nd.array(VALUES))
    numpy.testing.assert_allclose(dx.asnumpy(), 2 * VALUES**2, rtol=1e-6)


def test_grad_names_a_variable_that_cannot_be_reached():
    x, other = leaf(), leaf()
    with autograd.record():
        y = x * 2
        other * 2
    with pytest.raises(MXNetError, match="with respect to the 1-th variable because it is unreachable"):
        autograd.grad(y, [x, other], retain_graph=True)
    with pytest.raises(MXNetError, match="not in a computational graph"):
        autograd.grad(y, [mx.nd.ones((2,))])
    with pytest.raises(ValueError, match="at least one variable"):
        autograd.grad(y, [])


class OldStyle(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.tanh(x) * x + F.sigmoid(x * x)


class NewStyle(gluon.HybridBlock):
    def forward(self, x):
        return mx.nd.tanh(x) * x + mx.nd.sigmoid(x * x)


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize("style", [OldStyle, NewStyle])
def test_third_order_gradients(style, hybrid):
    net = style()
    net.hybridize(hybrid)
    x = leaf(VALUES.astype("float64"), dtype="float64")
    orders = []
    with autograd.record():
        value = net(x)
        for _ in range(3):
            (value,) = autograd.grad(value, [x], create_graph=True, retain_graph=True)
            orders.append(value.asnumpy())
    value.backward()
    orders.append(x.grad.asnumpy())
    tensor = torch.tensor(VALUES, dtype=torch.float64, requires_grad=True)
    expected = torch.tanh(tensor) * tensor + torch.sigmoid(tensor * tensor)
    for order in orders:
        (expected,) = torch.autograd.grad(expected.sum(), tensor, create_graph=True)
        numpy.testing.assert_allclose(order, expected.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
def test_a_gradient_penalty_reaches_the_parameters(hybrid):
    rng = numpy.random.RandomState(1)
    weights = [rng.randn(4, 3).astype("float32"), rng.randn(1, 4).astype("float32")]
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="tanh", use_bias=False))
    net.add(nn.Dense(1, in_units=4, use_bias=False))
    net.initialize()
    net.hybridize(hybrid)
    net[0].weight.set_data(mx.nd.array(weights[0]))
    net[1].weight.set_data(mx.nd.array(weights[1]))
    x = leaf()
    with autograd.record():
        (slope,) = autograd.grad(net(x), [x], create_graph=True, retain_graph=True)
        penalty = ((slope * slope).sum(axis=1).sqrt() - 1).square().mean()
    penalty.backward()
    tx = torch.tensor(VALUES, requires_grad=True)
    t0, t1 = (torch.tensor(w, requires_grad=True) for w in weights)
    (ts,) = torch.autograd.grad((torch.tanh(tx @ t0.T) @ t1.T).sum(), tx, create_graph=True)
    ((ts * ts).sum(1).sqrt() - 1).square().mean().backward()
    numpy.testing.assert_allclose(net[0].weight.grad().asnumpy(), t0.grad.numpy(), rtol=1e-4, atol=1e-6)
    numpy.testing.assert_allclose(net[1].weight.grad().asnumpy(), t1.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_create_graph_works_outside_the_record_scope():
    x = leaf()
    with autograd.record():
        y = x * x * x
    (first,) = autograd.grad(y, [x], create_graph=True)
    (second,) = autograd.grad(first, [x])
    numpy.testing.assert_allclose(second.asnumpy(), 6 * VALUES, rtol=1e-6)


def test_dropout_drops_the_same_in_every_order():
    x = leaf(numpy.linspace(0.1, 1, 50, dtype="float32"))
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5))
    for hybrid in (False, True):
        net.hybridize(hybrid)
        with autograd.record():
            y = net(x * x)
            (first,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
        kept = y.asnumpy() != 0
        assert 5 < kept.sum() < 45
        first.backward()
        numpy.testing.assert_allclose(first.asnumpy(), numpy.where(kept, 4 * x.asnumpy(), 0), rtol=1e-6)
        numpy.testing.assert_allclose(x.grad.asnumpy(), numpy.where(kept, 4, 0), rtol=1e-6)


# get_symbol -----------------------------------------------------------------------------------


def evaluated(symbol, *values):
    """The value of a Symbol, its arguments in order."""
    names = symbol.list_arguments()
    assert len(names) == len(values)
    return symbol.eval(**dict(zip(names, values, strict=True)))[0].asnumpy()


def test_the_symbol_of_a_recorded_array_computes_it_again():
    x, w = leaf(), mx.nd.ones((4, 3))
    with autograd.record():
        hidden = mx.nd.FullyConnected(x, w, num_hidden=4, no_bias=True)
        z = mx.nd.relu(hidden)[0] * 2 + x.sum() + hidden[1]
    symbol = autograd.get_symbol(z)
    assert symbol.list_arguments() == ["var0", "var1"]
    assert [node for node in symbol.get_internals().list_outputs() if "fullyconnected" in node] == [
        "fullyconnected0_output"
    ]
    other = mx.nd.array(-2 * VALUES)
    expected = numpy.maximum(-2 * VALUES.sum(1)[0], 0) * 2 - 2 * VALUES.sum() - 2 * VALUES.sum(1)[1]
    numpy.testing.assert_allclose(evaluated(symbol, other, w), [expected] * 4, rtol=1e-5)
    z.backward()


@pytest.mark.parametrize("style", [OldStyle, NewStyle])
def test_the_symbol_goes_through_hybridized_blocks(style):
    net = style()
    net.hybridize()
    x = leaf()
    with autograd.record():
        z = net(x * 2) + 1
    symbol = autograd.get_symbol(z)
    assert symbol.list_arguments() == ["var0"]
    double = 2.0 * VALUES
    expected = numpy.tanh(double) * double + 1 / (1 + numpy.exp(-double * double)) + 1
    numpy.testing.assert_allclose(evaluated(symbol, mx.nd.array(VALUES)), expected, rtol=1e-5)


def test_the_symbol_has_the_sizes_of_the_call_and_not_of_the_first_recording():
    class Net(gluon.HybridBlock):
        def forward(self, x):
            return mx.np.reshape(x, (x.shape[1], x.shape[0])) * x.shape[0]

    net = Net()
    net.hybridize()
    for rows in (2, 5):
        x = leaf(numpy.ones((rows, 3)), kind=mx.np)
        with autograd.record():
            y = net(x)
        assert type(autograd.get_symbol(y)) is type(mx.sym.var("x").as_np_ndarray())
        result = evaluated(autograd.get_symbol(y), mx.np.ones((rows, 3)))
        numpy.testing.assert_array_equal(result, numpy.full((3, rows), rows))


def test_what_has_no_symbol_says_why():
    class Twice(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy * 2

    x = leaf()
    with pytest.raises(MXNetError, match="not part of a computational graph"):
        autograd.get_symbol(mx.nd.ones((2,)))
    with pytest.raises(TypeError, match="takes a recorded array; received int"):
        autograd.get_symbol(3)
    with autograd.record():
        y = Twice()(x) + 1
        z = x * 1
        z[0] = 3
        z = z + 1
    for array in (y, z):
        with pytest.raises(MXNetError, match="no operator: a custom Function, or a write"):
            autograd.get_symbol(array)
    y.backward()
    with pytest.raises(MXNetError, match="ask before backward uses the graph up"):
        autograd.get_symbol(y)
