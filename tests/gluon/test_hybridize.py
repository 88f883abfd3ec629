"""hybridize(): what activates it, what it records, when it is recorded again, and what switches it off."""

from __future__ import annotations

import inspect
import itertools
import re
import warnings
from functools import partial
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.gluon import nn


def values(array: Any) -> Any:
    return array.asnumpy()


def two_layers(block: Any) -> None:
    block.first = nn.Dense(5, activation="relu")
    block.second = nn.Dense(3)


def run_two_layers(block: Any, F: Any, x: Any) -> Any:
    return block.second(block.first(x))


# Contracts -------------------------------------------------------------------------


def test_children_of_a_hybrid_block_are_hybrid(style: Any) -> None:
    class Plain(gluon.Block):
        def forward(self, x: Any) -> Any:
            return x

    with pytest.raises(ValueError, match=r"must also be HybridBlock[\s\S]*try HybridSequential instead"):
        style.block(run_two_layers, lambda block: setattr(block, "child", Plain()))
    net = style.block(run_two_layers, two_layers)
    with pytest.raises(ValueError, match=r"must also be HybridBlock"):
        net.register_child(nn.Sequential())
    with pytest.raises(ValueError, match=r"HybridSequential"):
        nn.HybridSequential().add(nn.Lambda("relu"))


def test_layers_are_hybrid_blocks() -> None:
    for layer in (nn.Dense(2), nn.Dropout(0.5), nn.Flatten(), nn.BatchNorm(), nn.Conv2D(2, 3)):
        assert isinstance(layer, gluon.HybridBlock)


def test_a_block_that_says_nothing_is_an_error(style: Any) -> None:
    class Nothing(gluon.HybridBlock):
        pass

    for active in (False, True):
        net = Nothing()
        net.hybridize(active)
        with pytest.raises(NotImplementedError, match=r"neither forward.*nor hybrid_forward"):
            net(style.array([1.0]))
    with pytest.raises(NotImplementedError, match=r"defines no forward"):
        gluon.Block()(style.array([1.0]))


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("written", ["hybrid_forward", "forward"])
@pytest.mark.parametrize("kind", ["nd", "np"])
def test_both_styles_work_at_both_levels_on_both_kinds(level: int, written: str, kind: str) -> None:
    mx.set_api(level)

    class Old(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return F.relu(x) * 2

    class New(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return mx.npx.relu(x) * 2

    net = Old() if written == "hybrid_forward" else New()
    x = getattr(mx, kind).array([[-1.0, 2.0]])
    for active in (False, True):
        net.hybridize(active)
        result = net(x)
        assert type(result) is type(x)
        numpy.testing.assert_array_equal(values(result), [[0, 4]])


def test_namespace_of_hybrid_forward(style: Any) -> None:
    mx.set_api(1)
    seen = []

    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get("weight", shape=(2,), init="ones")

        def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
            seen.append((F, type(x), type(weight)))
            return F.broadcast_mul(x, weight)

    net = Net()
    net.initialize()
    x = mx.nd.array([1.0, 2.0])
    net(x)
    net.hybridize()
    net(x)
    assert seen == [(mx.nd, mx.nd.NDArray, mx.nd.NDArray), (mx.sym, mx.sym.Symbol, mx.sym.Symbol)]


def test_flags_have_the_described_names_order_and_defaults() -> None:
    parameters = list(inspect.signature(gluon.HybridBlock.hybridize).parameters.values())[1:]
    described = {
        "active": True,
        "partition_if_dynamic": True,
        "static_alloc": False,
        "static_shape": False,
        "inline_limit": 2,
        "forward_bulk_size": None,
        "backward_bulk_size": None,
    }
    assert {p.name: p.default for p in parameters[: len(described)]} == described


@pytest.mark.parametrize(
    "wrong, near",
    [("static_aloc", "static_alloc"), ("activ", "active"), ("backward_bulk", "backward_bulk_size")],
)
def test_unknown_flags_are_refused_with_the_nearest_name(wrong: str, near: str) -> None:
    for net in (nn.Dense(2), nn.HybridSequential(), gluon.Block()):
        with pytest.raises(
            TypeError, match=rf"unexpected keyword argument '{wrong}'; did you mean '{near}'\?"
        ):
            net.hybridize(**{wrong: True})
    with pytest.raises(TypeError, match=r"'zzz'$"):
        nn.Dense(2).hybridize(zzz=1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("static_alloc", "yes", "True or False"),
        ("static_alloc", None, "True or False"),
        ("static_shape", 2, "True or False"),
        ("recompute", 3, "True or False"),
        ("active", {"static_alloc": True}, "True or False"),
        ("inline_limit", 2.5, "a whole number"),
        ("backward_bulk_size", "many", "a whole number"),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: Any, expected: str) -> None:
    hybrid, plain = nn.HybridSequential(), gluon.Block()
    hybrid.add(nn.Dense(2))
    plain.child = nn.Dense(3)
    hybrid.hybridize(static_shape=True)
    text = re.escape(f"hybridize: {name} is {expected}; received {value!r}")
    for block in (hybrid, plain):
        with pytest.raises(ValueError, match=text):
            block.hybridize(**{name: value})
    assert hybrid._active and hybrid[0]._flags["static_shape"] is True


def test_flags_may_be_numbers_and_words() -> None:
    net = nn.Dense(2)
    net.hybridize(
        numpy.bool_(True), static_alloc="False", static_shape=1, inline_limit=numpy.int64(3), recompute=0
    )
    assert net._active is True
    names = ("static_alloc", "static_shape", "inline_limit", "recompute")
    assert [net._flags[name] for name in names] == [False, True, 3, False]


@pytest.mark.parametrize("value", [1.0, 2, 2.0, -1, "x", []])
@pytest.mark.parametrize("flag", ["active", "static_alloc", "static_shape", "recompute"])
def test_flags_are_on_or_off(flag: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{flag} is True or False; received {re.escape(repr(value))}"):
        nn.Dense(2).hybridize(**{flag: value})


def test_options_are_of_a_backend() -> None:
    net = nn.Dense(2, in_units=2)
    net.initialize()
    for name, call in (
        ("hybridize", net.hybridize),
        ("optimize_for", partial(net.optimize_for, mx.nd.ones((1, 2)))),
    ):
        with pytest.raises(TypeError, match=rf"{name}: backend_opts are options of a backend.*'size': 4"):
            call(backend_opts={"size": 4})
        call(backend_opts={})
        call(backend_opts=None)


def test_options_are_a_dict() -> None:
    net = nn.Dense(2, in_units=2)
    for call in (net.hybridize, partial(net.optimize_for, mx.nd.ones((1, 2)))):
        with pytest.raises(TypeError, match=r"backend_opts is a dict.*received 3 of type int"):
            call(backend="default", backend_opts=3)


def test_on_value_read_takes_two_words() -> None:
    with pytest.raises(ValueError, match=r"'error' or 'break'; received 'ignore'"):
        nn.Dense(2).hybridize(on_value_read="ignore")


def test_a_string_in_second_place_names_a_backend() -> None:
    with pytest.raises(ValueError, match=r"backend 'nothing_like_it' is not registered"):
        nn.Dense(2).hybridize(True, "nothing_like_it")
    net = nn.Dense(2, in_units=2)
    net.initialize(mx.init.One())
    net.hybridize(True, "default")
    numpy.testing.assert_array_equal(values(net(mx.np.ones((1, 2)))), [[2, 2]])


# Recording once -------------------------------------------------------------------------


def test_imperative_until_hybridized_then_one_recording(style: Any) -> None:
    net = style.block(run_two_layers, two_layers)
    x = style.array(numpy.random.rand(4, 6))
    plain = values(net(x))
    net(x)
    assert len(style.entered) == 2
    net.hybridize()
    assert len(style.entered) == 2
    results = [values(net(x)) for _ in range(3)]
    assert len(style.entered) == 3
    for result in results:
        numpy.testing.assert_allclose(result, plain, rtol=1e-6)


def test_each_hybridize_records_anew(style: Any) -> None:
    net = style.block(run_two_layers, two_layers)
    x = style.array(numpy.random.rand(4, 6))
    for count in (1, 2, 3):
        net.hybridize()
        net(x)
        net(x)
        assert len(style.entered) == count
    net.hybridize(clear=False)
    net(x)
    assert len(style.entered) == 3


def test_switching_off_runs_python_again(style: Any) -> None:
    net = style.block(run_two_layers, two_layers)
    x = style.array(numpy.random.rand(4, 6))
    net.hybridize()
    net(x)
    net.hybridize(active=False)
    net(x)
    net(x)
    assert len(style.entered) == 3
    assert not net.first._active


def test_print_shows_an_array_each_time_and_a_symbol_once(capsys: pytest.CaptureFixture[str]) -> None:
    mx.set_api(1)

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            print(x)
            return x + 1

    net = Net()
    x = mx.nd.ones((2, 3))
    net(x)
    net(x)
    assert capsys.readouterr().out.count("<NDArray 2x3 @cpu(0)>") == 2
    for _ in range(2):
        net.hybridize()
        net(x)
        assert capsys.readouterr().out == "<Symbol data>\n"
        net(x)
        assert capsys.readouterr().out == ""


def test_hybridize_is_recursive_and_the_parent_records_one_graph(style: Any) -> None:
    counts = []
    inner_class = style.block_class(lambda block, F, x: (counts.append("inner"), x * 2)[1])
    net = style.block(
        lambda block, F, x: block.inner(block.inner(x)), lambda block: setattr(block, "inner", inner_class())
    )
    net.hybridize(static_alloc=True)
    assert net.inner._active and net.inner._flags["static_alloc"]
    x = style.array([1.0, 2.0])
    for _ in range(3):
        numpy.testing.assert_array_equal(values(net(x)), [4, 8])
    assert counts == ["inner", "inner"]
    assert net.inner._cached is None
    assert net._cached.traces == 1


def test_a_hybridized_child_of_a_plain_parent_has_its_own_graph(style: Any) -> None:
    net = style.block(run_two_layers, two_layers)
    net.first.hybridize()
    x = style.array(numpy.random.rand(2, 3))
    once = values(net(x))
    numpy.testing.assert_allclose(values(net(x)), once, rtol=1e-5)
    assert len(style.entered) == 2
    assert net.first._cached.traces == 1 and net.second._cached is None


def test_a_plain_block_hybridizes_its_hybrid_children(style: Any) -> None:
    calls = []
    hybrid_class = style.block_class(lambda block, F, x: x + 1)

    class Plain(gluon.Block):
        def __init__(self) -> None:
            super().__init__()
            self.nested = nn.Sequential()
            self.nested.add(hybrid_class(), nn.Lambda(lambda x: x * 3))

        def forward(self, x: Any) -> Any:
            calls.append(1)
            return self.nested(x)

    net = Plain()
    net.hybridize()
    for _ in range(3):
        numpy.testing.assert_array_equal(values(net(style.array([1.0]))), [6])
    assert len(calls) == 3 and len(style.entered) == 1


def test_sequential_hybridizes_its_children_and_recommends_hybrid_sequential(style: Any) -> None:
    net = nn.Sequential()
    net.add(nn.Dense(3), nn.Dense(2))
    net.initialize()
    with pytest.warns(UserWarning, match=r"HybridSequential"):
        net.hybridize()
    assert net[0]._active and net[1]._active
    x = style.array(numpy.random.rand(2, 4))
    numpy.testing.assert_allclose(values(net(x)), values(net[1](net[0](x))), rtol=1e-6)


def test_hybridize_after_the_first_forward(style: Any) -> None:
    net = style.block(run_two_layers, two_layers)
    x = style.array(numpy.random.rand(4, 6))
    plain = values(net(x))
    net.hybridize()
    numpy.testing.assert_allclose(values(net(x)), plain, rtol=1e-6)


def test_deferred_initialisation_finishes_at_the_first_hybridized_call(style: Any) -> None:
    net = style.block(run_two_layers, two_layers)
    weight = net.first.weight
    with pytest.raises(gluon.parameter.DeferredInitializationError, match=r"has not been initialized yet"):
        weight.data()
    net.hybridize()
    x = style.array(numpy.random.rand(4, 6))
    result = values(net(x))
    assert weight.shape == (5, 6) and net.second.weight.shape == (3, 5)
    hidden = numpy.maximum(values(x) @ values(weight.data()).T + values(net.first.bias.data()), 0)
    expected = hidden @ values(net.second.weight.data()).T + values(net.second.bias.data())
    numpy.testing.assert_allclose(result, expected, rtol=1e-5)


def test_uninitialized_parameters_are_named(style: Any) -> None:
    net = nn.Dense(3)
    net.hybridize()
    with pytest.raises(RuntimeError, match=r"weight.*has not been initialized"):
        net(style.array([[1.0, 2.0]]))


# Unused values -------------------------------------------------------------------------


def test_unused_inputs_are_named_by_place(style: Any) -> None:
    net = style.block(lambda block, F, x, unused, y: x + y)
    x, y, z = (style.array([float(i), i + 1.0]) for i in range(3))
    net.hybridize()
    with pytest.warns(UserWarning, match=r"The 1-th input to HybridBlock is not used by any computation"):
        first = net(x, y, z)
    numpy.testing.assert_array_equal(values(first), [2, 4])
    numpy.testing.assert_array_equal(values(net(y, x, z)), [3, 5])


def test_unused_parameters_are_named(style: Any) -> None:
    def dead_branch(block: Any, F: Any, x: Any) -> Any:
        block.second(x)
        return block.first(x)

    net = style.block(dead_branch, two_layers)
    net.hybridize()
    unused = [id(net.second.weight), id(net.second.bias)]
    names = [name for name, parameter in net.collect_params().items() if id(parameter) in unused]
    with pytest.warns(UserWarning, match=rf"Parameter {', '.join(names)} is not used by any computation"):
        result = net(style.array(numpy.random.rand(2, 4)))
    assert result.shape == (2, 5)
    # A computed layer is initialized although its result is dropped, as it is without hybridize.
    assert net.second.weight.data().shape == (3, 4)


# Changes after hybridize -------------------------------------------------------------------------


def sequence(*layers: Any) -> Any:
    net = nn.HybridSequential()
    for layer in layers:
        layer.initialize(mx.init.One())
    net.add(*layers)
    return net


def test_adding_a_child_switches_off_with_a_warning(style: Any) -> None:
    net = sequence(nn.Dense(2))
    net.hybridize()
    x = style.array([[1.0, 2.0]])
    assert net(x).shape == (1, 2)
    late = nn.Dense(4)
    late.initialize(mx.init.One())
    with pytest.warns(
        UserWarning, match=r"hybridization is switched off.*change the children.*hybridize\(\) again"
    ):
        net.add(late)
    assert not net._active and net._cached is None
    numpy.testing.assert_array_equal(values(net(x)), [[6, 6, 6, 6]])
    net.hybridize()
    numpy.testing.assert_array_equal(values(net(x)), [[6, 6, 6, 6]])


def test_replacing_and_deleting_a_child_switch_off_too(style: Any) -> None:
    net = style.block(
        lambda block, F, x: block.child(x) if hasattr(block, "child") else x,
        lambda block: setattr(block, "child", nn.HybridLambda(lambda x: x * 2)),
    )
    x = style.array([1.0])
    net.hybridize()
    assert values(net(x)) == [2]
    with pytest.warns(UserWarning, match=r"switched off"):
        net.child = nn.HybridLambda(lambda x: x * 5)
    assert not net._active
    net.hybridize()
    assert values(net(x)) == [5]
    with pytest.warns(UserWarning, match=r"switched off"):
        del net.child
    net.hybridize()
    assert values(net(x)) == [1]


def test_changes_far_below_reach_every_ancestor(style: Any) -> None:
    bottom = sequence(nn.Dense(2, in_units=2))
    middle, top = nn.HybridSequential(), nn.HybridSequential()
    middle.add(bottom)
    top.add(middle)
    top.hybridize()
    x = style.array([[1.0, 2.0]])
    numpy.testing.assert_array_equal(values(top(x)), [[3, 3]])
    numpy.testing.assert_array_equal(values(middle(x)), [[3, 3]])
    late = nn.Dense(1, in_units=2)
    late.initialize(mx.init.One())
    with pytest.warns(UserWarning, match=r"switched off"):
        bottom.add(late)
    assert top._active and middle._active and not bottom._active
    for net in (top, middle, bottom):
        numpy.testing.assert_array_equal(values(net(x)), [[6]])


def test_cast_switches_off_once_for_the_whole_tree(style: Any) -> None:
    net = nn.HybridSequential()
    nested = nn.HybridSequential()
    nested.add(nn.Dense(2))
    net.add(nn.Dense(3), nested)
    net.initialize(mx.init.One())
    net.hybridize()
    x = style.array([[1.0, 2.0]])
    before = values(net(x))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net.cast("float64")
    assert ["cast to another data type" in str(w.message) for w in caught] == [True]
    assert not net._active and not net[1]._active
    result = net(style.array([[1.0, 2.0]], dtype="float64"))
    assert numpy.dtype(result.dtype) == numpy.float64
    numpy.testing.assert_allclose(values(result), before)
    net.hybridize()
    assert numpy.dtype(net(style.array([[1.0, 2.0]], dtype="float64")).dtype) == numpy.float64


def test_sharing_parameters_switches_off(style: Any) -> None:
    one, other = (sequence(nn.Dense(2, in_units=2)) for _ in range(2))
    other.initialize(mx.init.Constant(2), force_reinit=True)
    one.hybridize()
    x = style.array([[1.0, 1.0]])
    numpy.testing.assert_array_equal(values(one(x)), [[2, 2]])
    with pytest.warns(UserWarning, match=r"switched off.*share parameters"):
        one.share_parameters(other.collect_params())
    numpy.testing.assert_array_equal(values(one(x)), [[4, 4]])


def test_blocks_not_hybridized_change_without_a_word(style: Any) -> None:
    net = sequence(nn.Dense(2))
    net(style.array([[1.0, 2.0]]))
    late = nn.Dense(2)
    late.initialize(mx.init.One())
    net.add(late)
    net.cast("float64")
    assert net(style.array([[1.0, 2.0]], dtype="float64")).shape == (1, 2)


# Hooks -------------------------------------------------------------------------


def test_hybridizing_a_block_with_hooks_warns(style: Any) -> None:
    net = sequence(nn.Dense(2))
    net.register_forward_hook(lambda block, inputs, output: None)
    with pytest.warns(UserWarning, match=r"being hybridized while still having forward hook"):
        net.hybridize()


def test_hooks_see_arrays_on_every_call(style: Any) -> None:
    net = sequence(nn.Dense(3, in_units=2), nn.Dense(2))
    seen: list[tuple[str, Any]] = []
    before = net[0].register_forward_pre_hook(
        lambda block, inputs: seen.append(("before", values(inputs[0])))
    )
    after = net[0].register_forward_hook(lambda block, inputs, out: seen.append(("after", values(out))))
    root = net.register_forward_hook(lambda block, inputs, out: seen.append(("root", values(out))))
    with pytest.warns(UserWarning, match=r"forward hook"):
        net.hybridize()
    x = style.array([[1.0, 2.0]])
    for _ in range(2):
        result = values(net(x))
        assert [name for name, _ in seen] == ["before", "after", "root"]
        numpy.testing.assert_array_equal(seen[0][1], values(x))
        numpy.testing.assert_array_equal(seen[1][1], [[3, 3, 3]])
        numpy.testing.assert_array_equal(seen[2][1], result)
        seen.clear()
    for handle in (before, after, root):
        handle.detach()
    net(x)
    assert seen == []
    assert net._cached.traces == 1


def test_a_hook_added_after_recording_is_called(style: Any) -> None:
    net = sequence(nn.Dense(3, in_units=2), nn.Dense(2))
    net.hybridize()
    x = style.array([[1.0, 2.0]])
    net(x)
    seen = []
    with net[1].register_forward_hook(lambda block, inputs, out: seen.append(out.shape)):
        net(x)
        net(x)
    net(x)
    assert seen == [(1, 2), (1, 2)]


def test_hooks_are_not_called_by_inference_of_shapes(style: Any) -> None:
    net = style.block(run_two_layers, two_layers)
    seen = []
    net.first.register_forward_hook(lambda block, inputs, out: seen.append(values(out).shape))
    net.infer_shape(style.array(numpy.ones((2, 4))))
    assert seen == []
    net(style.array(numpy.ones((2, 4))))
    assert seen == [(2, 5)]


# HybridSequential -------------------------------------------------------------------------


def test_hybrid_sequential_is_a_sequence(style: Any) -> None:
    net = sequence(nn.Dense(4, activation="relu"), nn.Dense(3), nn.Dense(2))
    net.hybridize()
    x = style.array(numpy.random.rand(2, 5))
    whole = values(net(x))
    assert len(net) == 3
    assert net[0] is next(iter(net)) and net[-1] is list(net)[2]
    head, tail = net[:2], net[2:]
    assert type(head) is nn.HybridSequential and len(head) == 2 and head[1] is net[1]
    numpy.testing.assert_allclose(values(tail(head(x))), whole, rtol=1e-6)
    with pytest.raises(IndexError):
        net[3]


def test_hybrid_sequential_passes_several_outputs_on(style: Any) -> None:
    split = style.block_class(lambda block, F, x: (x, x * 2))
    add = style.block_class(lambda block, F, x, y: (x + y, x - y))
    net = sequence(split(), add())
    x = style.array([1.0, 2.0])
    for active in (False, True):
        net.hybridize(active)
        result = net(x)
        assert isinstance(result, (tuple, list)) and len(result) == 2
        numpy.testing.assert_array_equal(values(result[0]), [3, 6])
        numpy.testing.assert_array_equal(values(result[1]), [-1, -2])


# Flags -------------------------------------------------------------------------


def small_network() -> Any:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(3, 3), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(), nn.Dropout(0.3), nn.Dense(2)
    )
    return net


def train_three_steps(x: Any, **flags: Any) -> tuple[list[float], Any]:
    mx.random.seed(7)
    net = small_network()
    net.initialize(mx.init.Xavier())
    if flags.pop("active"):
        net.hybridize(**flags)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    losses = []
    for _ in range(3):
        with autograd.record():
            loss = (net(x) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar() if hasattr(loss, "asscalar") else loss))
    return losses, values(net(x))


def test_every_combination_of_flags_gives_equal_results(style: Any) -> None:
    x = style.array(numpy.random.rand(2, 1, 8, 8))
    expected_losses, expected = train_three_steps(x, active=False)
    assert expected_losses[-1] != expected_losses[0]
    for alloc, shape, (inline, forward, backward), partition in itertools.product(
        (False, True), (False, True), ((2, None, None), (0, 1, 15)), (True, False)
    ):
        losses, result = train_three_steps(
            x,
            active=True,
            static_alloc=alloc,
            static_shape=shape,
            inline_limit=inline,
            forward_bulk_size=forward,
            backward_bulk_size=backward,
            partition_if_dynamic=partition,
        )
        numpy.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
        numpy.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)


def test_outputs_of_two_calls_do_not_share_memory(style: Any) -> None:
    net = sequence(nn.Dense(3, in_units=2), nn.Dense(2))
    net.hybridize(static_alloc=True, static_shape=True)
    first = net(style.array([[1.0, 2.0]]))
    kept = values(first)
    net(style.array([[5.0, 6.0]]))
    numpy.testing.assert_array_equal(values(first), kept)


def test_static_shape_records_each_shape(style: Any) -> None:
    net = style.block(lambda block, F, x: x * 2)
    net.hybridize(static_shape=True)
    for size in (2, 3, 2, 3):
        assert net(style.array(numpy.ones(size))).shape == (size,)
    assert len(style.entered) == 2


# A forward beside hybrid_forward -------------------------------------------------------------------------


def test_an_overriding_forward_is_python_on_every_call() -> None:
    mx.set_api(1)
    entered = []

    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.dense = nn.Dense(2, in_units=2)

        def forward(self, x: Any, *args: Any) -> Any:
            entered.append("forward")
            scale = 10 if float(x.sum().asscalar()) > 0 else 1
            return super().forward(x, *args) * scale

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            entered.append("hybrid_forward")
            return self.dense(x)

    net = Net()
    net.initialize(mx.init.One())
    net.hybridize()
    numpy.testing.assert_array_equal(values(net(mx.nd.array([[1.0, 2.0]]))), [[30, 30]])
    numpy.testing.assert_array_equal(values(net(mx.nd.array([[-1.0, -2.0]]))), [[-3, -3]])
    assert entered == ["forward", "hybrid_forward", "forward"]
