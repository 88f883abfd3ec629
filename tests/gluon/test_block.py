"""Block: attributes, children, names at both API levels, parameters by name, hooks, scopes."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon
from regluon.gluon import nn


class Plain(gluon.Block):
    """A block with a child, a parameter of its own, and a Python forward."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        with self.name_scope():
            self.dense = nn.Dense(2, in_units=3)
            self.scale = (
                self.params.get("scale", shape=(2,), init="ones")
                if mx.api_level() == 1
                else gluon.Parameter("scale", shape=(2,), init="ones")
            )

    def forward(self, x: Any) -> Any:
        return self.dense(x) * self.scale.data()


# Attributes -------------------------------------------------------------------------


def test_blocks_and_parameters_are_registered_by_assignment(style: Any) -> None:
    net = Plain()
    assert list(net._children) == ["dense"] and net._children["dense"] is net.dense
    assert list(net._reg_params) == ["scale"]
    net.other = 3
    assert list(net._children) == ["dense"]
    del net.dense
    assert list(net._children) == [] and not hasattr(net, "dense")


def test_assignment_before_init_is_an_error(style: Any) -> None:
    class Early(gluon.Block):
        def __init__(self) -> None:
            self.dense = nn.Dense(2)

    with pytest.raises(RuntimeError, match=r"Early\.dense is assigned before Block\.__init__ ran"):
        Early()


def test_an_attribute_keeps_its_type(style: Any) -> None:
    net = Plain()
    with pytest.raises(TypeError, match=r"Changing attribute type for dense from .*Dense.* to <class 'int'>"):
        net.dense = 3
    with pytest.raises(TypeError, match=r"Changing attribute type for scale"):
        net.scale = "a"
    net.dense = nn.Dense(7, in_units=3)
    assert net.dense._units == 7 and net._children["dense"] is net.dense


def test_repr_shows_the_tree(style: Any) -> None:
    net = nn.HybridSequential()
    inner = nn.HybridSequential()
    inner.add(nn.Flatten())
    net.add(nn.Dense(3, in_units=2), inner)
    assert repr(net) == (
        "HybridSequential(\n  (0): Dense(2 -> 3, linear)\n  (1): HybridSequential(\n    (0): Flatten\n  )\n)"
    )
    assert repr(nn.Sequential()) == "Sequential(\n\n)"


def test_a_child_may_be_registered_under_a_name(style: Any) -> None:
    net = gluon.Block()
    layer = nn.Dense(2, in_units=2)
    net.register_child(layer, "special")
    net.register_child(nn.Dense(1, in_units=2))
    assert list(net._children) == ["special", "1"]
    if style.level == 2:
        assert list(net.collect_params()) == ["special.weight", "special.bias", "1.weight", "1.bias"]


# Names -------------------------------------------------------------------------


def test_names_at_level_1_are_prefixes() -> None:
    mx.set_api(1)
    with mx.name.NameManager():
        first, second = Plain(), Plain(prefix="mine_")
    assert (first.prefix, first.name, second.prefix, second.name) == ("plain0_", "plain0", "mine_", "mine")
    assert sorted(first.collect_params()) == ["plain0_dense0_bias", "plain0_dense0_weight", "plain0_scale"]
    assert sorted(second.collect_params()) == ["mine_dense0_bias", "mine_dense0_weight", "mine_scale"]
    assert list(first.params) == ["plain0_scale"]
    assert first.dense.weight.name == "plain0_dense0_weight"


def test_names_at_level_2_are_paths() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.HybridSequential())
    net[1].add(nn.BatchNorm())
    assert list(net.collect_params()) == [
        "0.weight",
        "0.bias",
        "1.0.gamma",
        "1.0.beta",
        "1.0.running_mean",
        "1.0.running_var",
    ]
    assert net[0].weight.name == "weight"


def test_numbers_of_blocks_begin_anew_in_a_name_manager() -> None:
    # The expected names are those that MXNet 1.9.1 gives for the same lines.
    mx.set_api(1)
    x = mx.sym.var("x")
    with mx.name.NameManager():
        assert [nn.Dense(2).prefix, nn.Dense(2).prefix, nn.HybridSequential().prefix] == [
            "dense0_",
            "dense1_",
            "hybridsequential0_",
        ]
        with mx.name.NameManager():
            assert nn.Dense(2).prefix == "dense0_"
        assert nn.Dense(2).prefix == "dense2_"
        names = [nn.Activation("relu").prefix, mx.sym.relu(x).name, nn.Activation("relu").prefix]
        assert names == ["relu0_", "relu1", "relu2_"]
    with mx.name.Prefix("a_"):
        assert [nn.Dense(2).prefix, nn.Dense(2, prefix="q_").prefix] == ["a_dense0_", "q_"]
        net = nn.HybridSequential()
        with net.name_scope():
            assert nn.Dense(2).prefix == "a_hybridsequential0_dense0_"
            assert mx.sym.relu(x).name == "a_hybridsequential0_relu0"
            assert mx.sym.relu(x, name="n").name == "a_hybridsequential0_n"


def test_name_scope_with_an_empty_prefix_adds_nothing() -> None:
    mx.set_api(1)
    outer = nn.HybridSequential(prefix="outer_")
    with outer.name_scope():
        inner = nn.HybridSequential(prefix="")
        with inner.name_scope():
            assert nn.Dense(2).prefix == "outer_dense0_"


# Parameters -------------------------------------------------------------------------


def test_collect_params_selects_by_either_kind_of_name(style: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
    weights = net.collect_params(".*weight")
    assert len(weights) == 2 and all(name.endswith("weight") for name in weights)
    assert [id(p) for p in net.collect_params(r"1\.").values()] == [id(net[1].weight), id(net[1].bias)]
    with pytest.warns(UserWarning, match=r"collect_params\('conv'\) matches no parameter"):
        assert not net.collect_params("conv")


def test_blocks_in_a_list_are_reported(style: Any) -> None:
    net = gluon.Block()
    net.layers = [nn.Dense(2), {"deep": [nn.Dense(3)]}]
    with pytest.warns(
        UserWarning, match=r"layers\" is an unregistered container with Blocks.*register_child"
    ):
        assert not net.collect_params()


def test_apply_goes_from_the_leaves_to_the_root(style: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.HybridSequential())
    net[1].add(nn.Flatten())
    seen: list[str] = []
    assert net.apply(lambda block: seen.append(type(block).__name__)) is net
    assert seen == ["Dense", "Flatten", "HybridSequential", "HybridSequential"]


def test_setattr_zero_grad_and_cast_reach_every_parameter(style: Any) -> None:
    net = Plain()
    net.initialize(mx.init.One())
    net.setattr("grad_req", "add")
    assert {p.grad_req for p in net.collect_params().values()} == {"add"}
    x = style.array([[1.0, 2.0, 3.0]])
    for _ in range(2):
        with mx.autograd.record():
            y = net(x)
        y.backward()
    numpy.testing.assert_array_equal(net.scale.grad().asnumpy(), [12, 12])
    net.zero_grad()
    for parameter in net.collect_params().values():
        assert not parameter.grad().asnumpy().any()
    net.cast("float16")
    assert {str(numpy.dtype(p.dtype)) for p in net.collect_params().values()} == {"float16"}
    assert numpy.dtype(net.scale.data().dtype) == numpy.float16


def test_shared_parameters_of_1_x() -> None:
    mx.set_api(1)
    first = nn.Dense(2, in_units=2)
    second = nn.Dense(2, in_units=2, params=first.params)
    first.initialize(mx.init.One())
    assert second.weight is first.weight
    assert list(second.collect_params()) == list(first.collect_params())


def test_share_parameters_of_2_0(style: Any) -> None:
    first, second = Plain(), Plain()
    first.initialize(mx.init.One())
    assert second.share_parameters(first.collect_params()) is second
    assert second.dense.weight is first.dense.weight and second.scale is first.scale
    with pytest.raises(ValueError, match=r"expects the dict that collect_params\(\) gives"):
        second.share_parameters([first.scale])


def test_moving_to_other_contexts(style: Any) -> None:
    net = Plain()
    net.initialize(mx.init.One())
    net.hybridize()
    x = [[1.0, 2.0, 3.0]]
    net(style.array(x))
    net.reset_ctx(mx.cpu(1))
    assert net.dense.weight.list_ctx() == [mx.cpu(1)]
    y = net(style.array(x).as_in_ctx(mx.cpu(1)))
    assert y.context == mx.cpu(1) and y.asnumpy().tolist() == [[6, 6]]
    net.reset_device([mx.cpu(0), mx.cpu(1)])
    assert net.scale.list_ctx() == [mx.cpu(0), mx.cpu(1)]


# Calls -------------------------------------------------------------------------


def test_a_plain_block_takes_anything(style: Any) -> None:
    class Any_(gluon.Block):
        def forward(self, x: Any, *rest: Any, scale: Any = 1, text: str = "") -> Any:
            return [x * scale, rest, text]

    x = style.array([1.0])
    result = Any_()(x, None, {"a": 1}, scale=2, text="t")
    assert result[0].asnumpy().tolist() == [2] and result[1:] == [(None, {"a": 1}), "t"]


def test_hooks_run_in_order_and_their_handles_detach(style: Any) -> None:
    net = Plain()
    net.initialize(mx.init.One())
    seen: list[str] = []
    x = style.array([[1.0, 1.0, 1.0]])
    before = net.register_forward_pre_hook(lambda block, inputs: seen.append(f"before {len(inputs)}"))
    after = net.register_forward_hook(lambda block, inputs, out: seen.append(f"after {out.shape}"))
    second = net.register_forward_hook(lambda block, inputs, out: seen.append("second"))
    net(x)
    assert seen == ["before 1", "after (1, 2)", "second"]
    after.detach()
    before.detach()
    seen.clear()
    net(x)
    assert seen == ["second"]
    second.detach()
    second.detach()
    net(x)
    assert seen == ["second"]


def test_summary_prints_a_table_and_refuses_hybridized_blocks(
    style: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3), nn.Dense(2, in_units=4, use_bias=False))
    net.initialize()
    x = style.array(numpy.ones((5, 3)))
    net.summary(x)
    printed = capsys.readouterr().out
    for text in ("Layer (type)", "Dense-1", "(5, 4)", "(5, 2)", "Total params: 24", "Trainable params: 24"):
        assert text in printed
    net.hybridize()
    with pytest.raises(AssertionError, match=r"must not be hybridized to print summary"):
        net.summary(x)


def test_infer_shape_fills_what_the_input_tells(style: Any) -> None:
    net = nn.Dense(4)
    net.infer_shape(style.array(numpy.ones((2, 6))))
    assert net.weight.shape == (4, 6)


def test_unknown_shapes_name_parameters_and_both_remedies(style: Any) -> None:
    class Unknown(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.table = (
                    self.params.get("table", shape=(0, 3), allow_deferred_init=True)
                    if style.level == 1
                    else gluon.Parameter("table", shape=(-1, 3), allow_deferred_init=True)
                )

        def hybrid_forward(self, F: Any, x: Any, table: Any) -> Any:
            return F.sum(table) + x

    for active in (False, True):
        net = Unknown()
        net.initialize()
        net.hybridize(active)
        with pytest.raises(
            RuntimeError, match=r"unknown shape: .*table.*in __init__ or implement Unknown\.infer_shape"
        ):
            net(style.array([1.0]))


def test_infer_shape_may_be_overridden(style: Any) -> None:
    class Own(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.table = (
                    self.params.get("table", shape=(0, 3), allow_deferred_init=True, init="ones")
                    if style.level == 1
                    else gluon.Parameter("table", shape=(-1, 3), allow_deferred_init=True, init="ones")
                )

        def infer_shape(self, x: Any, *args: Any) -> None:
            self.table.shape = (x.shape[0], 3)

        def hybrid_forward(self, F: Any, x: Any, table: Any) -> Any:
            return F.sum(table) + x

    for active in (False, True):
        net = Own()
        net.initialize()
        net.hybridize(active)
        assert net(style.array([1.0, 2.0])).asnumpy().tolist() == [7, 8]
        assert net.table.shape == (2, 3)


def test_deferred_initialisation_with_python_that_reads_values(style: Any) -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.weight = (
                    self.params.get("weight", shape=(0,), allow_deferred_init=True, init="ones")
                    if style.level == 1
                    else gluon.Parameter("weight", shape=(-1,), allow_deferred_init=True, init="ones")
                )

        def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
            if x.sum() > 0:
                return x * weight
            return x + weight

    net = Net()
    net.initialize()
    assert net(style.array([1.0, 2.0])).asnumpy().tolist() == [1, 2]
    assert net.weight.shape == (2,)


# Copies -------------------------------------------------------------------------


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_are_independent_and_stay_hybridized(style: Any, copier: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2), nn.BatchNorm())
    net.initialize(mx.init.One())
    net.hybridize()
    x = style.array([[1.0, 2.0]])
    expected = net(x).asnumpy()
    twin = copier(net)
    numpy.testing.assert_allclose(twin(x).asnumpy(), expected)
    assert twin._active and twin._cached.traces == 1
    twin[0].weight.set_data(twin[0].weight.data() * 2)
    numpy.testing.assert_allclose(net(x).asnumpy(), expected)
    assert abs(twin(x).asnumpy() - expected).max() > 1


def test_many_blocks_leave_no_warning_and_no_state(style: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            net = Plain()
            net.initialize()
            net(style.array([[1.0, 2.0, 3.0]]))
