"""register_op_hook: what the callback gets, under every flag, and hooks of blocks with their handles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn
from regluon.graph import tensor_names
from regluon.graph.node import Node
from regluon.ops import registry

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "op_hook_names.json"
FLAGS: list[dict[str, Any]] = [
    {},
    {"static_alloc": True},
    {"static_alloc": True, "static_shape": True},
    {"inline_limit": 0},
    {"forward_bulk_size": 1, "backward_bulk_size": 1},
    {"partition_if_dynamic": False},
    {"backend": "default"},
    {"on_value_read": "break"},
]


def network(style: Any, **flags: Any) -> tuple[Any, list[Any], list[tuple[str, str, Any]]]:
    """Dense(relu), BatchNorm, a sum with a second input, a product with a number; inputs; what hooks saw."""

    def setup(block: Any) -> None:
        block.a = nn.Dense(3, activation="relu")
        block.b = nn.BatchNorm()

    def body(self: Any, F: Any, x: Any, y: Any) -> Any:
        x = self.b(self.a(x))
        return (F.elemwise_add(x, y) if style.level == 1 else x + y), x * 2

    block = style.block(body, setup)
    if flags is not None:
        block.hybridize(**flags)
    inputs = [style.array(numpy.ones((2, 4))), style.array(numpy.ones((2, 3)))]
    return block, inputs, []


def expected_names(style: Any, block: Any, everything: bool) -> list[tuple[str, str]]:
    """The names and operators that the originals report for this network, in order.

    Node names are ours: 1.9.1 has the same, 2.0.0b1 numbers its nodes.
    """
    if style.level == 1:
        p = block.prefix
        dense, relu, norm = f"{p}dense0_fwd", f"{p}dense0_relu_fwd", f"{p}batchnorm0_fwd"
        add, times = f"{p}elemwise_add0", f"{p}_mulscalar0"
        operators = ("elemwise_add", "_mul_scalar")
        add_output = f"{add}_output"
    else:
        dense, relu, norm, add, times = "a_fwd", "a_act_fwd", "b_fwd", "_npi_add0", "_npi_multiply_scalar0"
        operators = ("_npi_add", "_npi_multiply_scalar")
        add_output = f"{add}_0"
    rows = [
        *((f"{dense}_{name}", "FullyConnected") for name in ("data", "weight", "bias")),
        (f"{dense}_output", "FullyConnected"),
        (f"{relu}_input0", "Activation"),
        (f"{relu}_output", "Activation"),
        *((f"{norm}_{n}", "BatchNorm") for n in ("data", "gamma", "beta", "moving_mean", "moving_var")),
        (f"{norm}_output", "BatchNorm"),
        (f"{add}_lhs", operators[0]),
        (f"{add}_rhs", operators[0]),
        (add_output, operators[0]),
        (f"{times}_input0", operators[1]),
        (f"{times}_0", operators[1]),
    ]
    outputs = (f"{dense}_output", f"{relu}_output", f"{norm}_output", add_output, f"{times}_0")
    return rows if everything else [row for row in rows if row[0] in outputs]


@pytest.mark.parametrize("everything", [False, True])
def test_names_operators_and_order_are_those_of_the_originals(style: Any, everything: bool) -> None:
    block, inputs, seen = network(style)
    block(*inputs)
    assert block.register_op_hook(lambda *row: seen.append(row), everything) is None
    block(*inputs)
    assert [row[:2] for row in seen] == expected_names(style, block, everything)
    assert all(type(name) is str and type(operator) is str for name, operator, _ in seen)


def test_the_callback_gets_arrays_with_the_values(style: Any) -> None:
    block, inputs, seen = network(style)
    block.register_op_hook(lambda *row: seen.append(row), monitor_all=True)
    outputs = block(*inputs)
    values = {name: array for name, _, array in seen}
    assert all(isinstance(array, type(inputs[0])) and array.context == mx.cpu() for array in values.values())
    names = [name for name, _ in expected_names(style, block, True)]
    weight = block.a.weight.data().asnumpy()
    numpy.testing.assert_array_equal(values[names[1]].asnumpy(), weight)
    numpy.testing.assert_allclose(values[names[3]].asnumpy(), numpy.ones((2, 4)) @ weight.T, rtol=1e-5)
    relu = numpy.maximum(values[names[4]].asnumpy(), 0)
    numpy.testing.assert_array_equal(values[names[5]].asnumpy(), relu)
    numpy.testing.assert_array_equal(values[names[-1]].asnumpy(), outputs[1].asnumpy())


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_under_every_flag(style: Any, flags: dict[str, Any]) -> None:
    block, inputs, seen = network(style, **flags)
    block.register_op_hook(lambda *row: seen.append(row[:2]), True)
    for _ in range(2):
        block(*inputs)
    assert seen == expected_names(style, block, True) * 2


def test_in_every_mode(style: Any) -> None:
    block, inputs, seen = network(style)
    block.register_op_hook(lambda *row: seen.append(row[0]))
    plain = [name for name, _ in expected_names(style, block, False)]
    with autograd.record():
        loss = block(*inputs)[0].sum()
    loss.backward()
    gradient = block.a.weight.grad().asnumpy()
    assert set(plain) <= set(seen)
    with autograd.train_mode():
        block(*inputs)
    block(*inputs)
    assert seen[-len(plain) :] == plain
    # Watching changes nothing.
    block._op_hooks.clear()
    with autograd.record():
        loss = block(*inputs)[0].sum()
    loss.backward()
    numpy.testing.assert_allclose(block.a.weight.grad().asnumpy(), gradient, rtol=1e-5, atol=1e-7)


def test_before_hybridize_and_before_the_first_call(style: Any) -> None:
    block, inputs, seen = network(style)
    block.hybridize(False)
    block.register_op_hook(lambda *row: seen.append(row[:2]))
    block(*inputs)
    assert seen == []
    block.hybridize()
    block(*inputs)
    assert seen == expected_names(style, block, False)


def test_several_hooks_each_with_its_own_scope(style: Any) -> None:
    block, inputs, seen = network(style)
    more: list[str] = []
    block.register_op_hook(lambda *row: seen.append(row[:2]), True)
    block.register_op_hook(lambda name, operator, array: more.append((name, operator)))
    block(*inputs)
    assert seen == expected_names(style, block, True)
    assert more == expected_names(style, block, False)


@pytest.mark.parametrize("parent", ["block", "hybrid"])
def test_children_that_run_by_themselves_report_too(style: Any, parent: str) -> None:
    """A parent that is not hybridized: its hybridized children have graphs of their own."""

    class Plain(gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            self.child = nn.Dense(2, in_units=2)

        def forward(self, x: Any) -> Any:
            return self.child(x)

    class Hybrid(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.child = nn.Dense(2, in_units=2)

        def forward(self, x: Any) -> Any:
            return self.child(x)

    block = Plain() if parent == "block" else Hybrid()
    block.initialize()
    block.child.hybridize()
    seen: list[str] = []
    block.register_op_hook(lambda name, operator, array: seen.append(operator))
    block(style.array(numpy.ones((1, 2))))
    assert seen == ["FullyConnected"]


def test_on_another_context(style: Any) -> None:
    block, inputs, seen = network(style)
    block.reset_ctx(mx.cpu(1))
    block.register_op_hook(lambda *row: seen.append(row[2].context), True)
    block(*[array.as_in_context(mx.cpu(1)) for array in inputs])
    assert set(seen) == {mx.cpu(1)}


def test_an_error_in_a_callback_reaches_the_caller(style: Any) -> None:
    block, inputs, _ = network(style)

    def fail(*_: Any) -> None:
        raise LookupError("mine")

    block.register_op_hook(fail)
    with pytest.raises(LookupError, match="mine"):
        block(*inputs)


def test_operators_whose_output_shape_depends_on_data(style: Any) -> None:
    def body(self: Any, F: Any, x: Any, mask: Any) -> Any:
        chosen = F.contrib.boolean_mask(x, mask) if style.level == 1 else x[mask.astype("bool")]
        return chosen + 1

    block = style.block(body)
    block.hybridize()
    last: dict[str, Any] = {}
    block.register_op_hook(lambda name, operator, array: last.update({"shape": array.shape}))
    for mask, shape in (([1, 0, 1], (2, 2)), ([0, 0, 1], (1, 2))):
        block(style.array(numpy.ones((3, 2))), style.array(mask))
        assert last["shape"] == shape


# Where the attributes decide which inputs there are.
ATTRIBUTES = {
    "RNN|3": {"mode": "gru"},
    "RNN|4": {"mode": "gru", "use_sequence_length": True},
    "RNN|5": {"mode": "lstm", "use_sequence_length": True},
    "_contrib_quantized_conv|6": {"no_bias": True},
    "_contrib_quantized_fully_connected|6": {"no_bias": True},
}


def test_tensor_names_of_all_operators() -> None:
    """What both originals pass for each operator that their golden cases run."""
    registry.load()
    checked = 0
    for key, text in json.loads(GOLDEN.read_text()).items():
        operator, count = key.split("|")
        if not registry.exists(operator) or registry.get(operator).specialise is not None:
            continue  # what a user's own operator calls its tensors is up to the user
        expected, given = text.split(), int(count)
        node = Node(registry.get(operator), "N", attrs=ATTRIBUTES.get(key))
        assert [name[2:] for name in tensor_names.input_names(node, given)] == expected[:given], operator
        for index, name in enumerate(expected[given:]):
            if operator not in ("SliceChannel", "split"):  # how many outputs depends on an attribute
                assert tensor_names.output_name(node, index)[2:] == name, operator
        checked += 1
    assert checked > 450


def test_names_of_several_outputs() -> None:
    x = mx.sym.split(mx.sym.var("x"), num_outputs=3, name="s")._list()[0].node
    assert [tensor_names.output_name(x, i) for i in range(3)] == ["s_output0", "s_output1", "s_output2"]


# Hooks of blocks ----------------------------------------------------------------------


@pytest.mark.parametrize("hybridize", [False, True])
def test_forward_hooks_with_handles(style: Any, hybridize: bool) -> None:
    net = nn.Dense(2, in_units=2)
    net.initialize()
    if hybridize:
        net.hybridize()
    calls: list[str] = []

    def before(block: Any, inputs: Any) -> None:
        assert block is net and type(inputs) is tuple and inputs[0] is x
        calls.append("before")

    def after(block: Any, inputs: Any, output: Any) -> None:
        assert block is net and inputs[0] is x and output.shape == (1, 2)
        calls.append("after")

    x = style.array(numpy.ones((1, 2)))
    handles = [net.register_forward_pre_hook(before), net.register_forward_hook(after)]
    net(x)
    net(x)
    assert calls == ["before", "after"] * 2
    handles[0].detach()
    net(x)
    assert calls[4:] == ["after"]
    handles[1].detach()
    net(x)
    assert len(calls) == 5
    handles[1].detach()


def test_a_handle_is_a_scope(style: Any) -> None:
    net = nn.Dense(2, in_units=2)
    net.initialize()
    calls: list[int] = []
    x = style.array(numpy.ones((1, 2)))
    with net.register_forward_hook(lambda *_: calls.append(1)):
        net(x)
    net(x)
    assert calls == [1]
