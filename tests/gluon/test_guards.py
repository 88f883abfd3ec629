"""Everything that a recorded graph depends on is noticed when it changes, and what does not matter is not."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn
from regluon.gluon.epoch import fingerprint


def numbers(array: Any) -> Any:
    return array.asnumpy().tolist()


def scaled(style: Any, **attributes: Any) -> Any:
    def body(block: Any, F: Any, x: Any) -> Any:
        return x * block.k if block.flag else x - block.k

    def setup(block: Any) -> None:
        block.k, block.flag = 2.0, True

    return style.block(body, setup)


def test_attributes_of_the_block(style: Any) -> None:
    net = scaled(style)
    net.hybridize()
    x = style.array([1.0])
    assert numbers(net(x)) == [2]
    net.k = 5.0
    assert numbers(net(x)) == [5]
    net.flag = False
    assert numbers(net(x)) == [-4]
    assert len(style.entered) == 3
    net.k, net.flag = 2.0, True
    assert numbers(net(x)) == [2]
    # The first graph was kept and holds again.
    assert len(style.entered) == 3


def test_assigning_the_same_value_records_nothing(style: Any) -> None:
    net = scaled(style)
    net.hybridize()
    x = style.array([1.0])
    for _ in range(5):
        net.k = 2.0
        nn.Dense(3)
        assert numbers(net(x)) == [2]
    assert len(style.entered) == 1


@pytest.mark.parametrize("depth", [1, 3])
def test_attributes_of_blocks_far_below(style: Any, depth: int) -> None:
    bottom = scaled(style)
    net = bottom
    for _ in range(depth):
        outer = nn.HybridSequential()
        outer.add(net)
        net = outer
    net.hybridize()
    x = style.array([1.0])
    assert numbers(net(x)) == [2]
    bottom.k = 7
    assert numbers(net(x)) == [7]


def test_numbers_in_lists_and_dicts(style: Any) -> None:
    def setup(block: Any) -> None:
        block.scales = [2.0, {"shift": (1, 2)}]
        block.names = {"a"}

    def body(block: Any, F: Any, x: Any) -> Any:
        return x * block.scales[0] + block.scales[1]["shift"][1] + len(block.names)

    net = style.block(body, setup)
    net.hybridize()
    x = style.array([1.0])
    assert numbers(net(x)) == [5]
    net.scales = [3.0, {"shift": (1, 2)}]
    assert numbers(net(x)) == [6]
    net.scales = [3.0, {"shift": (1, 5)}]
    assert numbers(net(x)) == [9]
    net.names = {"a", "b"}
    assert numbers(net(x)) == [10]
    # A change inside a list is seen at the next assignment of any attribute of any block.
    net.scales[0] = 4.0
    net.flag = 1
    assert numbers(net(x)) == [11]


def test_functions_and_arrays_as_attributes(style: Any) -> None:
    def setup(block: Any) -> None:
        block.function = lambda x: x * 2

    net = style.block(lambda block, F, x: block.function(x), setup)
    net.hybridize()
    x = style.array([1.0])
    assert numbers(net(x)) == [2]
    for factor in range(3, 8):
        # Each new function may lie where the one before it did.
        del net.function
        gc.collect()
        net.function = lambda x, factor=factor: x * factor
        assert numbers(net(x)) == [factor]


@pytest.mark.filterwarnings("ignore:.*unregistered container")
def test_blocks_in_lists_are_looked_at_too(style: Any) -> None:
    inner = scaled(style)
    net = style.block(lambda block, F, x: block.layers[0](x), lambda block: setattr(block, "layers", [inner]))
    net.hybridize()
    x = style.array([1.0])
    assert numbers(net(x)) == [2]
    inner.k = 3
    assert numbers(net(x)) == [3]


def test_a_block_that_refers_to_its_parent(style: Any) -> None:
    inner = scaled(style)
    net = nn.HybridSequential()
    net.add(inner)
    inner.owners = [net]
    net.hybridize()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unregistered container")
        assert numbers(net(style.array([1.0]))) == [2]
    assert fingerprint(net) == fingerprint(net)


def test_arrays_from_outside_are_read_at_each_call() -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.table = mx.np.array([1.0, 2.0])

        def forward(self, x: Any) -> Any:
            return x + self.table

    net = Net()
    net.hybridize()
    x = mx.np.zeros(2)
    assert numbers(net(x)) == [1, 2]
    net.table[:] = 5
    assert numbers(net(x)) == [5, 5]
    net.table = mx.np.array([7.0, 8.0])
    assert numbers(net(x)) == [7, 8]
    kept = weakref.ref(net)
    del net
    gc.collect()
    assert kept() is None


def test_types_kinds_and_devices_of_arguments(style: Any) -> None:
    net = style.block(lambda block, F, x: x * 2)
    net.hybridize()
    data = numpy.ones(3)
    for count, x in enumerate(
        [
            mx.nd.array(data),
            mx.np.array(data),
            mx.nd.array(data, dtype="float64"),
            mx.nd.array(data, dtype="int32"),
            mx.nd.array(data, ctx=mx.cpu(1)),
        ],
        start=1,
    ):
        for _ in range(2):
            y = net(x)
            assert type(y) is type(x) and y.dtype == x.dtype and y.context == x.context
            assert len(style.entered) == count


def test_parameters_on_several_contexts(style: Any) -> None:
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = nn.Dense(2, in_units=2)
    net.initialize(mx.init.One(), ctx=contexts)
    net.hybridize()
    for context in contexts:
        y = net(mx.nd.ones((1, 2), ctx=context))
        assert y.context == context and numbers(y) == [[2, 2]]
    net.weight.data(mx.cpu(1))[:] = 3
    assert numbers(net(mx.nd.ones((1, 2), ctx=mx.cpu(1)))) == [[6, 6]]
    assert numbers(net(mx.nd.ones((1, 2), ctx=mx.cpu(0)))) == [[2, 2]]


def test_which_inputs_need_gradients(style: Any) -> None:
    net = style.block(lambda block, F, x, y: x * y)
    net.hybridize()
    x, y = style.array([2.0]), style.array([3.0])
    for array in (x, y, None):
        if array is not None:
            array.attach_grad()
        with autograd.record():
            out = net(x, y)
        out.backward()
        assert numbers(x.grad) == [3]
    assert numbers(y.grad) == [2]


def test_grad_req_of_parameters_may_change(style: Any) -> None:
    net = nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.One())
    net.hybridize()
    x = style.array([[3.0]])
    for request, expected in (("write", 3), ("add", 3), ("add", 6), ("null", None), ("write", 3)):
        if net.weight.grad_req != request:
            net.weight.grad_req = request
        if request == "null":
            x.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        if expected is not None:
            assert numbers(net.weight.grad()) == [[expected]]


def test_new_values_of_parameters_are_used(style: Any) -> None:
    net = nn.Dense(2, in_units=2)
    net.initialize(mx.init.One())
    net.hybridize(static_alloc=True, static_shape=True)
    x = style.array([[1.0, 1.0]])
    for _ in range(3):
        assert numbers(net(x)) == [[2, 2]]
    net.weight.set_data(net.weight.data() * 4)
    assert numbers(net(x)) == [[8, 8]]
    net.weight.data()[:] = 1
    assert numbers(net(x)) == [[2, 2]]
    net.initialize(mx.init.Constant(3), force_reinit=True)
    assert numbers(net(x)) == [[6, 6]]


def test_array_mode_is_guarded() -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.weight = gluon.Parameter("weight", shape=(1,), init="ones")
            self.kinds: list[Any] = []

        def forward(self, x: Any) -> Any:
            seen.append(type(self.weight.data()))
            return x * 2

    seen: list[Any] = []
    net = Net()
    net.initialize()
    net.hybridize()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not used by any computation")
        net(mx.np.ones(1))
        with mx.util.np_array(True):
            net(mx.np.ones(1))
    assert seen == [mx.nd.NDArray, mx.np.ndarray]


def test_constraints_are_guarded(style: Any) -> None:
    net = style.block(lambda block, F, x: x * 2)
    net.hybridize()
    x = style.array([1.0])
    net(x)
    with gluon.HybridBlock.OptConstraint.disable_amp():
        net(x)
        net(x)
    net(x)
    assert len(style.entered) == 2


def test_at_most_eight_graphs_then_a_warning_with_the_reason(style: Any) -> None:
    net = scaled(style)
    net.hybridize()
    x = style.array([1.0])
    for k in range(8):
        net.k = k
        net(x)
    net.k = 8
    with pytest.warns(
        UserWarning, match=r"more than 8 times.*reason: an attribute, a child or a parameter changed"
    ):
        net(x)
    for k in range(9, 12):
        net.k = k
        assert numbers(net(x)) == [k]
    assert len(net._cached.graphs) == 8
    entered = len(style.entered)
    net.k = 11
    net(x)
    net.k = 5
    net(x)
    assert len(style.entered) == entered
    net.k = 0
    net(x)
    assert len(style.entered) == entered + 1


def test_the_warning_names_sizes_that_python_read(style: Any) -> None:
    net = style.block(lambda block, F, x: x * int(x.shape[0]))
    net.hybridize()
    with pytest.warns(
        UserWarning, match=r"a size or number was read: data\.shape\[0\] = \d+, at .*test_guards\.py:\d+"
    ):
        for size in range(2, 12):
            net(style.array(numpy.ones(size)))


def test_globals_closures_and_class_attributes_are_not_guarded(style: Any) -> None:
    state = {"scale": 2.0}
    net = style.block(lambda block, F, x: x * state["scale"])
    net.hybridize()
    x = style.array([1.0])
    assert numbers(net(x)) == [2]
    state["scale"] = 3.0
    assert numbers(net(x)) == [2]
    net.hybridize()
    assert numbers(net(x)) == [3]
