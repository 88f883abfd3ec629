"""Shapes and types of parameters that are not known when they are made."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon
from regluon.gluon import nn


def parameter(block: Any, name: str, shape: Any) -> Any:
    """A parameter made as its API level makes them."""
    if block._level == 1:
        return block.params.get(name, shape=shape, allow_deferred_init=True)
    return gluon.Parameter(name, shape=shape, allow_deferred_init=True)


def value(block: Any, name: str, given: dict[str, Any]) -> Any:
    """The parameter inside a forward of either style."""
    return given[name] if name in given else getattr(block, name).data()


@pytest.fixture(params=[False, True], ids=["imperative", "hybridized"])
def hybridized(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def run(block: Any, hybridized: bool, *args: Any) -> Any:
    if hybridized:
        block.hybridize()
    return block(*args)


# Through the graph ----------------------------------------------------------------------


def broadcasting(op: Any) -> Any:
    def body(self: Any, F: Any, x: Any, **given: Any) -> Any:
        return op(x, value(self, "w", given))

    return body


@pytest.mark.parametrize("op", [lambda x, w: x * w, lambda x, w: x + w, lambda x, w: w - x])
def test_an_elementwise_operator_tells_unknown_sizes(style: Any, hybridized: bool, op: Any) -> None:
    def setup(block: Any) -> None:
        block.w = parameter(block, "w", (3, 0))

    block = style.block(broadcasting(op), setup)
    x = numpy.random.uniform(1, 2, (3, 4)).astype("float32")
    out = run(block, hybridized, style.array(x))
    assert block.w.shape == (3, 4)
    numpy.testing.assert_allclose(out.asnumpy(), op(x, block.w.data().asnumpy()), rtol=1e-6)


def test_a_layer_on_a_parameter(style: Any, hybridized: bool) -> None:
    """Dense(relu(w)): the weight's width is that of a parameter, not of an input."""

    def setup(block: Any) -> None:
        block.w = parameter(block, "w", (3, 5))
        block.dense = nn.Dense(2)

    def body(self: Any, F: Any, x: Any, **given: Any) -> Any:
        return self.dense(F.relu(value(self, "w", given))) + x

    block = style.block(body, setup)
    run(block, hybridized, style.array(numpy.ones((3, 2))))
    assert block.dense.weight.shape == (2, 5)


def test_unknown_sizes_pass_through_operators(style: Any, hybridized: bool) -> None:
    """The unknown width of w is known only where relu(w) meets x; the next layer needs it."""

    def setup(block: Any) -> None:
        block.w = parameter(block, "w", (0, 0))
        block.dense = nn.Dense(2)

    def body(self: Any, F: Any, x: Any, **given: Any) -> Any:
        return self.dense(F.relu(value(self, "w", given)) * x)

    block = style.block(body, setup)
    run(block, hybridized, style.array(numpy.ones((3, 4))))
    assert block.w.shape == (3, 4) and block.dense.weight.shape == (2, 4)


def test_layers_learn_their_inputs(style: Any, hybridized: bool) -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Flatten(), nn.Dense(5), nn.LayerNorm())
    net.initialize()
    run(net, hybridized, style.array(numpy.ones((2, 3, 8, 8))))
    assert net[0].weight.shape == (4, 3, 3, 3)
    assert net[1].gamma.shape == (4,)
    assert net[3].weight.shape == (5, 4 * 6 * 6)
    assert net[4].gamma.shape == (5,)


# Not through the graph ----------------------------------------------------------------------


def summed(self: Any, F: Any, x: Any, **given: Any) -> Any:
    """The sum of a parameter says nothing about its sizes."""
    return x + value(self, "w", given).sum() + value(self, "v", given).sum()


def unknown_pair(block: Any) -> None:
    block.w = parameter(block, "w", (3, 0))
    block.v = parameter(block, "v", (0,))


def test_what_nothing_tells_is_an_error_with_both_remedies(style: Any, hybridized: bool) -> None:
    block = style.block(summed, unknown_pair)
    unknown = "0" if style.level == 1 else "-1"
    with pytest.raises(RuntimeError) as caught:
        run(block, hybridized, style.array(numpy.ones((2, 3))))
    text = str(caught.value)
    for part in (
        f"w ((3, {unknown}))",
        f"v (({unknown},))",
        "specify the shape in __init__",
        "implement Written.infer_shape",
    ):
        assert part in text, text


def overridden(style: Any) -> Any:
    """A block whose infer_shape says what the graph does not; it counts its calls."""
    cls = style.block_class(summed, unknown_pair)
    cls.calls = 0

    def infer_shape(self: Any, x: Any, *args: Any) -> None:
        cls.calls += 1
        self.w.shape = (3, x.shape[1])
        self.v.shape = (x.shape[1] * 2,)

    cls.infer_shape = infer_shape
    return cls


def test_infer_shape_may_be_overridden(style: Any, hybridized: bool) -> None:
    cls = overridden(style)
    block = cls()
    block.initialize()
    run(block, hybridized, style.array(numpy.ones((2, 7))))
    assert (block.w.shape, block.v.shape, cls.calls) == ((3, 7), (14,), 1)
    block(style.array(numpy.ones((5, 7))))
    assert cls.calls == 1


def test_infer_shape_of_a_child(style: Any, hybridized: bool) -> None:
    child = overridden(style)

    def setup(block: Any) -> None:
        block.child = child()

    outer = style.block(lambda self, F, x: self.child(x) * 2, setup)
    out = run(outer, hybridized, style.array(numpy.ones((2, 7))))
    assert outer.child.w.shape == (3, 7) and child.calls == 1
    w, v = (p.data().asnumpy().sum() for p in (outer.child.w, outer.child.v))
    numpy.testing.assert_allclose(out.asnumpy(), numpy.full((2, 7), 2 * (1 + w + v)), rtol=1e-5)


def test_sizes_read_by_infer_shape_do_not_bind_the_graph(style: Any) -> None:
    block = overridden(style)()
    block.initialize()
    block.hybridize()
    for width in (7, 7, 9):
        block(style.array(numpy.ones((2, width))))
    assert len(style.entered) == 1
    block.export(None)


def test_infer_shape_of_the_library_may_be_extended(style: Any, hybridized: bool) -> None:
    def setup(block: Any) -> None:
        block.w = parameter(block, "w", (0,))
        block.scale = parameter(block, "scale", (3, 0))

    def body(self: Any, F: Any, x: Any, **given: Any) -> Any:
        return x * value(self, "scale", given) + value(self, "w", given).sum()

    cls = style.block_class(body, setup)

    def infer_shape(self: Any, x: Any) -> None:
        self.w.shape = (11,)
        super(cls, self).infer_shape(x)

    cls.infer_shape = infer_shape
    block = cls()
    block.initialize()
    run(block, hybridized, style.array(numpy.ones((3, 2))))
    assert (block.w.shape, block.scale.shape) == ((11,), (3, 2))


def test_calling_infer_shape_fills_the_whole_tree_and_runs_nothing(style: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3), nn.Dense(4))
    net.infer_shape(style.array(numpy.ones((2, 5))))
    assert [p.shape for p in net.collect_params().values()] == [(3, 5), (3,), (4, 3), (4,)]
    with pytest.raises(RuntimeError, match="has not been initialized"):
        net[0].weight.data()


def test_contradictions_are_named(style: Any, hybridized: bool) -> None:
    net = nn.Dense(3, in_units=4)
    net.initialize()
    with pytest.raises((mx.base.MXNetError, ValueError), match=r"4.*5|5.*4"):
        run(net, hybridized, style.array(numpy.ones((2, 5))))


# Types ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_infer_type_takes_the_type_of_the_input(style: Any, hybridized: bool, dtype: str) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3), nn.Dense(2))
    x = style.array(numpy.ones((2, 4)), dtype)
    net.infer_type(x)
    assert {numpy.dtype(p.dtype).name for p in net.collect_params().values()} == {dtype}
    net.initialize()
    assert numpy.dtype(run(net, hybridized, x).dtype).name == dtype


def test_indices_say_nothing_about_parameters(style: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Embedding(5, 3), nn.Dense(2))
    net.infer_type(style.array(numpy.ones((2, 4)), "int32"))
    assert {numpy.dtype(p.dtype).name for p in net.collect_params().values()} == {"float32"}


def test_infer_type_may_be_overridden(style: Any, hybridized: bool) -> None:
    def setup(block: Any) -> None:
        block.w = parameter(block, "w", (0,))

    def body(self: Any, F: Any, x: Any, **given: Any) -> Any:
        return x * value(self, "w", given)

    cls = style.block_class(body, setup)

    def infer_type(self: Any, x: Any) -> None:
        self.w.dtype = x.dtype

    cls.infer_type = infer_type
    block = cls()
    block.initialize()
    out = run(block, hybridized, style.array([1.0, 2.0], "float64"))
    assert numpy.dtype(block.w.dtype).name == numpy.dtype(out.dtype).name == "float64"
    assert numpy.dtype(block.w.data().dtype).name == "float64"
