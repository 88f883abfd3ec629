"""What hybridizing used to change without a word, or refuse: lessons 1 to 17."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError, ValueReadError
from regluon.gluon import nn

equal = numpy.testing.assert_allclose


def test_shapes_are_readable_and_other_shapes_get_their_own_answer(style: Any) -> None:
    """Lessons 1 and 2: no AttributeError, and no size of the first call kept for later ones."""
    net = style.block(lambda self, x: x.reshape((x.shape[0], -1)) * x.shape[-1])
    net.hybridize()
    for shape in ((2, 3), (4, 5), (2, 3, 4), (1, 1)):
        x = numpy.arange(numpy.prod(shape), dtype="float32").reshape(shape)
        equal(net(style.array(x)).asnumpy(), x.reshape(shape[0], -1) * shape[-1])


def test_a_branch_on_a_shape_is_taken_anew(style: Any) -> None:
    """Lesson 2."""
    net = style.block(lambda self, x: x * 2 if x.shape[0] > 2 else x * 3)
    net.hybridize()
    for rows, factor in ((1, 3), (2, 3), (3, 2), (5, 2), (2, 3)):
        assert net(style.array(numpy.ones(rows))).asnumpy().tolist() == [factor] * rows


@pytest.mark.parametrize(
    "key",
    [0, -1, slice(1, 3), (slice(None), slice(1, 3)), (slice(None), slice(None, None, -1)), (0, 1), (..., 2)],
    ids=str,
)
def test_indexing_means_the_same(style: Any, key: Any) -> None:
    """Lesson 3: sym[i] picked an output, so x[0] was the whole tensor."""
    x = numpy.arange(12, dtype="float32").reshape(3, 4)
    net = style.block(lambda self, x: x[key] + 1)
    plain = net(style.array(x))
    net.hybridize()
    hybrid = net(style.array(x))
    assert hybrid.shape == plain.shape
    equal(hybrid.asnumpy(), plain.asnumpy())
    equal(hybrid.asnumpy().reshape(-1), numpy.asarray(x[key] + 1).reshape(-1))


def test_outputs_of_a_multi_output_operator_are_still_selected() -> None:
    """Lesson 3: the one place where an index does mean an output."""
    first = mx.sym.split(mx.sym.var("data"), num_outputs=2, axis=0)[1]
    out = first.bind(mx.cpu(), {"data": mx.nd.array([[1.0], [2.0]])}).forward()[0]
    assert out.asnumpy().tolist() == [[2.0]]


@pytest.mark.parametrize(
    "operation",
    [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / (b + 1)],
    ids=["add", "subtract", "multiply", "divide"],
)
def test_arithmetic_broadcasts_after_hybridize(style: Any, operation: Any) -> None:
    """Lesson 4."""
    a, b = numpy.ones((3, 4), "float32") * 5, numpy.arange(4, dtype="float32").reshape(1, 4)
    net = style.block(lambda self, a, b: operation(a, b))
    net.hybridize()
    equal(net(style.array(a), style.array(b)).asnumpy(), operation(a, b))


def test_an_explicit_elementwise_operator_keeps_its_check() -> None:
    """Lesson 4: with the user's file and line in the error."""
    mx.set_api(1)

    class Strict(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, a: Any, b: Any) -> Any:
            return F.elemwise_add(a, b)

    net = Strict()
    net.hybridize()
    with pytest.raises(MXNetError, match=r"elemwise_add.*test_hybridize_traps\.py:\d+"):
        net(mx.nd.ones((2, 3)), mx.nd.ones((1, 3)))


def test_a_branch_on_the_mode_is_not_frozen(style: Any) -> None:
    """Lesson 5: the training graph was returned in predict mode."""
    net = style.block(lambda self, x: x * 10 if autograd.is_training() else x)
    net.hybridize()
    x = style.array([1.0])
    for _ in range(2):
        with autograd.record():
            assert net(x).asnumpy().tolist() == [10.0]
        assert net(x).asnumpy().tolist() == [1.0]
        with autograd.train_mode():
            assert net(x).asnumpy().tolist() == [10.0]


def test_attributes_of_any_block_below_are_guarded(style: Any) -> None:
    """Lesson 5: ``net.k = 5`` was ignored for ever; also scalars in lists and dictionaries."""

    def prepare(net: Any) -> None:
        net.child = style.block(lambda self, x: x * self.k)
        net.child.k = 2.0
        net.settings = {"shift": 1.0, "many": [1.0, 2.0]}

    net = style.block(
        lambda self, x: self.child(x) + self.settings["shift"] + self.settings["many"][1], prepare
    )
    net.hybridize()
    x = style.array([1.0])
    assert net(x).asnumpy().tolist() == [5.0]
    net.child.k = 4.0
    assert net(x).asnumpy().tolist() == [7.0]
    net.settings = {"shift": 10.0, "many": [1.0, 2.0]}
    assert net(x).asnumpy().tolist() == [16.0]


def test_an_attribute_that_goes_back_finds_its_graph(style: Any) -> None:
    """Lesson 5: a guard that holds again does not record again without end."""
    calls = []
    net = style.block(lambda self, x: calls.append(1) or x * self.k)
    net.k = 1.0
    net.hybridize()
    x = style.array([3.0])
    for k in (1.0, 2.0, 1.0, 2.0, 1.0):
        net.k = k
        assert net(x).asnumpy().tolist() == [3.0 * k]
    assert len(calls) == 2


def test_other_argument_patterns_get_other_graphs() -> None:
    """Lessons 6 and 8: None, missing, more arguments, keywords, lists of other lengths, dictionaries."""

    class Net(gluon.HybridBlock):
        def forward(self, x: Any, mask: Any = None, bias: Any = None, more: Any = ()) -> Any:
            out = x if mask is None else x * mask
            out = out if bias is None else out + bias["value"]
            for item in more:
                out = out + item
            return {"out": out, "count": len(more)}

    net, x, m = Net(), mx.np.ones((2,)), mx.np.array([0.0, 2.0])
    plain = Net()
    net.hybridize()
    for arguments, keywords in (
        ((x,), {}),
        ((x, None), {}),
        ((x, m), {}),
        ((x,), {"mask": m}),
        ((x,), {"bias": {"value": m}}),
        ((x,), {"bias": {"value": m}, "mask": m}),
        ((x, None, None, [m, m]), {}),
        ((x, None, None, (m,)), {}),
        ((x,), {}),
    ):
        got, want = net(*arguments, **keywords), plain(*arguments, **keywords)
        assert got["count"] == want["count"]
        equal(got["out"].asnumpy(), want["out"].asnumpy())
    with pytest.raises(TypeError, match="unexpected keyword argument 'msk'"):
        net(x, msk=m)


def test_keywords_do_not_shift_in_the_older_style() -> None:
    """Lesson 8: hybrid_forward's parameters are no arguments of the call."""
    mx.set_api(1)

    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.scale = self.params.get("scale", shape=(1,), init="ones")

        def hybrid_forward(
            self, F: Any, x: Any, mask: Any = None, bias: Any = None, scale: Any = None
        ) -> Any:
            x = x if mask is None else F.broadcast_mul(x, mask)
            x = F.broadcast_mul(x, scale)
            return x if bias is None else F.broadcast_add(x, bias)

    x, other = mx.nd.array([1.0, 2.0]), mx.nd.array([10.0, 20.0])
    for active in (False, True):
        net = Net()
        net.initialize()
        net.hybridize(active)
        assert net(x, bias=other).asnumpy().tolist() == [11.0, 22.0]
        assert net(x, mask=other).asnumpy().tolist() == [10.0, 40.0]
        assert net(bias=other, mask=other, x=x).asnumpy().tolist() == [20.0, 60.0]


def test_numbers_as_arguments(style: Any) -> None:
    """Lesson 7: a new number gives a new answer; one that keeps changing does not record each time."""
    calls = []
    net = style.block(lambda self, x, k: calls.append(k) or x * k)
    net.hybridize()
    x = style.array([1.0, 2.0])
    for step in range(40):
        rate = 0.5 + 0.25 * step
        equal(net(x, rate).asnumpy(), numpy.array([1.0, 2.0]) * rate)
    assert len(calls) <= 6
    assert net(x, 3).asnumpy().tolist() == [3.0, 6.0]
    assert net(x, style.array([4.0])).asnumpy().tolist() == [4.0, 8.0]


def test_an_input_that_is_an_output_keeps_its_gradient(style: Any) -> None:
    """Lesson 9."""
    net = style.block(lambda self, x, y: (x, y * 2))
    net.hybridize()
    x, y = style.array([1.0, 2.0]), style.array([3.0, 4.0])
    x.attach_grad()
    y.attach_grad()
    with autograd.record():
        a, b = net(x, y)
        loss = (a * a + b).sum()
    loss.backward()
    assert x.grad.asnumpy().tolist() == [2.0, 4.0] and y.grad.asnumpy().tolist() == [2.0, 2.0]
    a[:] = 0
    assert x.asnumpy().tolist() in ([1.0, 2.0], [0.0, 0.0])


def dead_branch(net: Any) -> None:
    net.used, net.unused = nn.Dense(2), nn.Dense(3)


def test_a_layer_without_use_is_initialized_and_left_out(style: Any, tmp_path: Path) -> None:
    """Lesson 10: deferred initialisation failed, and export asserted."""

    def body(self: Any, x: Any) -> Any:
        self.unused(x)
        return self.used(x)

    net = style.block(body, dead_branch)
    net.hybridize()
    x = style.range(2, 4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = net(x)
    assert any("is not used by any computation" in str(warning.message) for warning in seen)
    assert net.unused.weight.shape == (3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.export(tmp_path / "net")
    back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0000.params")
    equal(back(x).asnumpy(), out.asnumpy(), rtol=1e-5)
    assert len(back.collect_params()) == 2


def test_an_unused_input_is_no_error(style: Any) -> None:
    """Lesson 10."""
    net = style.block(lambda self, x, unused, y: x + y)
    net.hybridize()
    with pytest.warns(UserWarning, match="1-th input to HybridBlock is not used"):
        out = net(style.array([1.0]), style.array([2.0]), style.array([4.0]))
    assert out.asnumpy().tolist() == [5.0]


def test_an_unused_constant_does_not_stop_deferred_initialisation(style: Any) -> None:
    """Lesson 10."""

    def prepare(net: Any) -> None:
        net.body = nn.HybridSequential()
        net.body.add(nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.LeakyReLU(0.2))
        net.anchors = (
            net.params.get_constant("anchors", numpy.ones((5, 5)))
            if style.level == 1
            else gluon.Constant(numpy.ones((5, 5)))
        )

    net = style.block(lambda self, x, anchors=None: self.body(x), prepare)
    net.hybridize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with autograd.train_mode():
            assert net(style.range(1, 3, 8, 8)).shape == (1, 4, 8, 8)


def test_a_late_layer_far_below_is_seen(style: Any) -> None:
    """Lesson 11: the root kept its graph and gave the old answer."""
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2, in_units=2, use_bias=False))
    middle = nn.HybridSequential()
    middle.add(inner)
    root = nn.HybridSequential()
    root.add(middle)
    root.initialize(mx.init.One())
    root.hybridize()
    x = style.array([[1.0, 1.0]])
    assert root(x).asnumpy().tolist() == [[2.0, 2.0]]
    late = nn.Dense(1, in_units=2, use_bias=False)
    late.initialize(mx.init.One())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner.add(late)
    assert root(x).asnumpy().tolist() == [[4.0]]


def test_a_replaced_child_is_seen(style: Any) -> None:
    """Lesson 11."""

    def prepare(net: Any) -> None:
        net.head = nn.Dense(1, in_units=2, use_bias=False, weight_initializer="ones")

    net = style.block(lambda self, x: self.head(x), prepare)
    net.hybridize()
    x = style.array([[1.0, 2.0]])
    assert net(x).asnumpy().tolist() == [[3.0]]
    other = nn.Dense(1, in_units=2, use_bias=False, weight_initializer=mx.init.Constant(2))
    other.initialize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.head = other
    assert net(x).asnumpy().tolist() == [[6.0]]


def test_hooks_of_children_run_on_every_call_with_arrays(style: Any) -> None:
    """Lesson 12: they saw Symbols once, and nothing later."""
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2, weight_initializer="ones"), nn.Dense(1, in_units=2))
    net.initialize()
    net.hybridize()
    x = style.array([[1.0, 2.0]])
    net(x)
    seen: list[Any] = []
    before = net[0].register_forward_pre_hook(lambda block, inputs: seen.append(inputs[0].asnumpy()))
    after = net[0].register_forward_hook(lambda block, inputs, out: seen.append(out.asnumpy()))
    for _ in range(2):
        net(x)
    assert len(seen) == 4
    equal(seen[2], [[1.0, 2.0]])
    equal(seen[3], [[3.0, 3.0]])
    before.detach()
    after.detach()
    net(x)
    assert len(seen) == 4


def test_monitor_callbacks_work_with_static_flags(style: Any) -> None:
    """Lesson 12."""
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2, activation="relu"), nn.Dense(1, in_units=2))
    net.initialize()
    net.hybridize(static_alloc=True, static_shape=True)
    seen: list[Any] = []
    net.register_op_hook(lambda name, operator, array: seen.append((name, array.shape)))
    for _ in range(2):
        net(style.array([[1.0, 2.0]]))
    assert len(seen) == 6
    assert all(name.endswith("_output") for name, _ in seen)


def test_cast_after_use_then_export(style: Any, tmp_path: Path) -> None:
    """Lesson 13: 2.0.0b1 silently switched off, and export then refused."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4), nn.BatchNorm(), nn.Dense(2))
    net.initialize()
    net.hybridize()
    host = numpy.arange(15.0).reshape(3, 5)
    net(style.array(host))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.cast("float64")
    want = net(style.array(host, "float64"))
    net.export(tmp_path / "net")
    back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0000.params")
    out = back(style.array(host, "float64"))
    assert numpy.dtype(out.dtype) == numpy.dtype(want.dtype) == numpy.float64
    equal(out.asnumpy(), want.asnumpy(), rtol=1e-12)


def test_reading_a_value_is_an_error_with_file_and_line(style: Any) -> None:
    """Lessons 14 and 17: never a constant in the graph."""
    for read in (
        lambda x: float(x.sum().asnumpy()),
        lambda x: x.sum().item(),
        lambda x: 1 if x.sum() > 0 else 2,
    ):
        net = style.block(lambda self, x, read=read: x * read(x))
        net.hybridize()
        with pytest.raises(ValueReadError, match=r"test_hybridize_traps\.py:\d+"):
            net(style.array([1.0, 2.0]))


def test_a_value_read_can_run_op_by_op(style: Any) -> None:
    """Lessons 14 and 17."""
    net = style.block(lambda self, x: x * 2 if x.sum().asnumpy().item() > 0 else x * 3)
    net.hybridize(on_value_read="break")
    assert net(style.array([1.0])).asnumpy().tolist() == [2.0]
    assert net(style.array([-1.0])).asnumpy().tolist() == [-3.0]


def test_shapes_that_depend_on_data(style: Any) -> None:
    """Lesson 15: with a deferred layer before it, and a mask that takes nothing."""

    def prepare(net: Any) -> None:
        net.fc = nn.Dense(2, flatten=False, weight_initializer="ones")

    def body(self: Any, x: Any, mask: Any) -> Any:
        if style.level == 1:
            return (mx.sym if isinstance(x, mx.sym.Symbol) else mx.nd).contrib.boolean_mask(self.fc(x), mask)
        return self.fc(x)[mask]

    net = style.block(body, prepare)
    net.hybridize()
    x = style.range(4, 2)
    for keep in ([0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1]):
        mask = style.array(keep, "float32" if style.level == 1 else "bool")
        out = net(x, mask)
        equal(
            out.asnumpy(),
            numpy.arange(8.0).reshape(4, 2).sum(1, keepdims=True).repeat(2, 1)[numpy.array(keep) == 1],
        )


def test_a_dynamic_operator_cannot_be_exported_without_a_call(style: Any, tmp_path: Path) -> None:
    """Lesson 15: the error names what to do."""
    net = style.block(lambda self, x: x * 2)
    net.hybridize()
    with pytest.raises(RuntimeError, match="run forward with this block at least once"):
        net.export(tmp_path / "net")


def test_a_misspelled_flag_is_refused_at_once() -> None:
    """Lesson 16."""
    with pytest.raises(TypeError, match=r"static_aloc.*did you mean 'static_alloc'"):
        nn.Dense(3).hybridize(static_aloc=True)
    with pytest.raises(TypeError, match=r"static_shpe.*did you mean 'static_shape'"):
        nn.Sequential().hybridize(static_shpe=True)


def test_an_operator_error_names_the_line_and_the_shapes(style: Any) -> None:
    """Lesson 17: not ``net0__mul0`` from another line."""
    net = style.block(lambda self, a, b: (a * 2) + b)
    net.hybridize()
    with pytest.raises(MXNetError, match=r"test_hybridize_traps\.py:\d+") as caught:
        net(style.range(2, 3), style.range(2, 4))
    assert "3" in str(caught.value) and "4" in str(caught.value)


def test_inputs_changed_in_place_inside_the_block(style: Any) -> None:
    """Lesson 22: aliases and views mean what they mean without hybridize."""

    def body(self: Any, x: Any) -> Any:
        y = x * 1
        alias = y
        alias += 1
        y[0] = 7
        row = y[1]
        row[:] = -1
        return y, alias

    net = style.block(body)
    plain = [out.asnumpy() for out in net(style.range(3, 2))]
    net.hybridize()
    hybrid = [out.asnumpy() for out in net(style.range(3, 2))]
    for one, other in zip(plain, hybrid, strict=True):
        equal(other, one)
        assert one.tolist() == [[7.0, 7.0], [-1.0, -1.0], [5.0, 6.0]]


def test_nested_arguments_survive_export(style: Any, tmp_path: Path) -> None:
    """Lesson 44: a flat list only, and no file that could be read without parameters."""
    net = style.block(lambda self, a, rest: [a * rest[0], (rest[1],)])
    net.hybridize()
    a, b, c = (style.array([value, 2.0]) for value in (1.0, 3.0, 5.0))
    assert [type(part) for part in net(a, [b, c])] == [type(a), tuple]
    net.export(tmp_path / "net")
    assert json.loads((tmp_path / "net-symbol.json").read_text())["nodes"]
    files = [tmp_path / "net-0000.params"] if (tmp_path / "net-0000.params").exists() else [None]
    back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data0", "data1", "data2"], files[0])
    for out in (back(a, [b, c]), back(a, b, c)):
        flat = [out[0], out[1][0] if isinstance(out[1], (list, tuple)) else out[1]]
        equal([value.asnumpy() for value in flat], [[3.0, 4.0], [5.0, 2.0]])
