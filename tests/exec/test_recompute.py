"""``hybridize(recompute=True)``: the same numbers as without it, from fewer kept values."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.exec.cuts import Cost, choose_cuts
from regluon.exec.program import Program
from regluon.gluon import nn
from regluon.graph.node import Entry, Node
from regluon.ops.internal import InternalOp
from regluon.ops.opdef import Spec

# The package has a function of this name too.
again = importlib.import_module("regluon.exec.recompute")


def network(dropout: float = 0.3, **norm: Any) -> nn.HybridSequential:
    net = nn.HybridSequential()
    for _ in range(5):
        net.add(
            nn.Conv2D(6, 3, padding=1),
            nn.BatchNorm(**norm),
            nn.Activation("relu"),
            nn.Dropout(dropout),
        )
    # A pooling whose result the activation overwrites.
    net.add(nn.MaxPool2D(), nn.Activation("tanh"), nn.Flatten())
    net.add(nn.Dense(32, activation="sigmoid"), nn.Dense(7))
    return net


def prepared(net: Any, x: Any, recompute: bool, **flags: Any) -> Any:
    mx.random.seed(3)
    np.random.seed(3)
    net.initialize(mx.init.Xavier())
    net(x)
    net.hybridize(recompute=recompute, **flags)
    mx.random.seed(7)
    return net


def images(batch: int = 3, kind: Any = None) -> Any:
    values = np.random.RandomState(0).randn(batch, 4, 8, 8).astype("float32")
    x = (kind or mx.np).array(values)
    x.attach_grad()
    return x


def state_of(net: Any, *arrays: Any) -> dict[str, np.ndarray]:
    found = {f"input {place}": array.grad.asnumpy() for place, array in enumerate(arrays)}
    for name, parameter in net.collect_params().items():
        found[name] = parameter.data().asnumpy()
        if parameter.grad_req != "null":
            found[f"{name} gradient"] = parameter.grad().asnumpy()
    return found


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    """The same bits, or values that differ by a part of the largest one."""
    assert one.keys() == other.keys()
    for name, value in other.items():
        allowed = tolerance * max(1.0, np.abs(value).max())
        np.testing.assert_allclose(one[name], value, rtol=tolerance, atol=allowed, err_msg=name)


def segments(net: Any) -> list[Any]:
    found: list[Any] = again.segments_of(net._cached.latest.program)
    return found


def trained(recompute: bool, kind: Any = None, **flags: Any) -> dict[str, np.ndarray]:
    x = images(kind=kind)
    net = prepared(network(), x, recompute, **flags)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for _ in range(3):
        with autograd.record():
            y = net(x)
            loss = (y * y).sum()
        loss.backward()
        trainer.step(3)
    assert bool(segments(net)) == recompute
    return {**state_of(net, x), "loss": loss.asnumpy()}


def test_training_gives_the_same_bits_with_dropout_and_batch_norm() -> None:
    same(trained(True), trained(False))


@pytest.mark.parametrize(
    "flags",
    [{"static_alloc": True}, {"static_alloc": True, "static_shape": True}, {"inline_limit": 1}],
    ids=str,
)
def test_other_flags_change_nothing(flags: dict[str, Any]) -> None:
    same(trained(True, **flags), trained(False, **flags))


def test_legacy_arrays() -> None:
    same(trained(True, mx.nd), trained(False, mx.nd))


def kept_bytes(recompute: bool) -> int:
    """The bytes of values that a forward keeps for its backward, without the parameters."""
    x = images(8)
    net = prepared(network(), x, recompute)
    parameters = {p.data()._t.untyped_storage().data_ptr() for p in net.collect_params().values()}
    held: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    for _ in range(2):
        held.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autograd.record():
            result = net(x)
        assert result.shape == (8, 7)
    return sum(held.values())


def test_few_values_are_kept() -> None:
    assert kept_bytes(True) < 0.5 * kept_bytes(False)


# Gradients ----------------------------------------------------------------------


def test_a_backward_that_is_repeated_commits_moving_statistics_once() -> None:
    found = []
    for recompute in (True, False):
        x = images()
        net = prepared(network(), x, recompute)
        for parameter in net.collect_params().values():
            parameter.grad_req = "add" if parameter.grad_req == "write" else "null"
        net.zero_grad()
        with autograd.record():
            y = net(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        found.append(state_of(net, x))
    same(*found)


def test_two_forwards_then_two_backwards() -> None:
    found = []
    for recompute in (True, False):
        x = images()
        net = prepared(network(), x, recompute)
        with autograd.record():
            first, second = net(x).sum(), net(x * 2).sum()
        second.backward()
        first.backward()
        found.append(state_of(net, x))
    same(*found)


def test_no_backward_commits_nothing() -> None:
    x = images()
    net = prepared(network(), x, True)
    before = {k: p.data().asnumpy() for k, p in net.collect_params().items() if "running" in k}
    for _ in range(2):
        with autograd.record():
            net(x)
    assert before
    for name, value in before.items():
        np.testing.assert_array_equal(net.collect_params()[name].data().asnumpy(), value)


def test_gradients_of_some_variables_with_head_gradients() -> None:
    """What is not asked for is not computed: the statistics of layers before it stay as they are."""
    found = []
    for recompute in (True, False):
        x = images()
        net = prepared(network(), x, recompute)
        weight = net.collect_params()["16.weight"]
        with autograd.record():
            y = net(x)
        head = mx.np.array(np.random.RandomState(5).randn(3, 7).astype("float32"))
        (gradient,) = autograd.grad(y, [weight.data()], head_grads=[head])
        found.append({**state_of(net, x), "gradient": gradient.asnumpy()})
    same(*found)


def test_without_being_told_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "_WANTED", None)
    same(trained(True), trained(False))


def test_second_derivatives() -> None:
    found = []
    for recompute in (True, False):
        x = images()
        net = prepared(network(), x, recompute)
        with autograd.record():
            y = net(x)
            (gradient,) = autograd.grad((y * y).sum(), [x], create_graph=True, retain_graph=True)
            penalty = (gradient * gradient).sum() + y.sum()
        penalty.backward()
        found.append({**state_of(net, x), "gradient": gradient.asnumpy()})
    same(*found, tolerance=1e-5)


def test_recording_outside_of_train_mode() -> None:
    found = []
    for recompute in (True, False):
        x = images()
        net = prepared(network(), x, recompute)
        with autograd.record(train_mode=False):
            y = net(x).sum()
        y.backward()
        assert bool(segments(net)) == recompute
        found.append(state_of(net, x))
    same(*found)


def test_parameters_without_gradients() -> None:
    found = []
    for recompute in (True, False):
        x = mx.np.array(images().asnumpy())
        net = prepared(network(), x, recompute)
        for name, parameter in net.collect_params().items():
            if name.split(".")[0] in {str(place) for place in range(9)}:
                parameter.grad_req = "null"
        with autograd.record():
            y = net(x).sum()
        y.backward()
        found.append(state_of(net))
    same(*found)


@pytest.mark.parametrize("place", ["0.weight", "13.gamma", "input"])
def test_what_is_changed_before_backward_is_named(place: str) -> None:
    x = images()
    net = prepared(network(), x, True)
    with autograd.record():
        y = net(x).sum()
    if place == "input":
        x[0] = 1
        name, shape = "data", (3, 4, 8, 8)
    else:
        parameter = net.collect_params()[place]
        parameter.set_data(parameter.data() + 1)
        name, shape = place, parameter.shape
    expected = (
        rf"^'{name}' of shape {re.escape(str(shape))} and type float32: changed in-place .* between forward "
        "and backward, .* recompute=True. Call backward before changing it, or write to a copy"
    )
    with pytest.raises(mx.MXNetError, match=expected):
        y.backward()


def test_every_change_is_named() -> None:
    x = images()
    net = prepared(network(), x, True)
    with autograd.record():
        y = net(x).sum()
    for parameter in (net[0].weight, net[0].bias):
        parameter.set_data(parameter.data() + 1)
    with pytest.raises(mx.MXNetError, match=r"'0.weight' of .*, '0.bias' of shape"):
        y.backward()


def test_a_graph_that_is_used_up() -> None:
    x = images()
    net = prepared(network(), x, True)
    with autograd.record():
        y = net(x)
        z = y.sum()
    z.backward()
    with pytest.raises(mx.MXNetError, match="used up by an earlier backward"):
        y.backward()


# Graphs ----------------------------------------------------------------------


class Mixed(gluon.HybridBlock):
    """Sizes from other values, a value read in several segments, a loop, two outputs and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.HybridSequential()
        for _ in range(8):
            self.layers.add(nn.Dense(8, activation="tanh", in_units=8))
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm(in_channels=8)

    def forward(self, x: Any) -> Any:
        start, shape = x, x.shape
        for layer in self.layers:
            x = self.norm(self.drop(layer(x))) + start
        rows = x.reshape((shape[0] * 2, 4))

        def body(item: Any, states: Any) -> Any:
            state = self.drop(mx.npx.relu(states[0] * 0.5 + item))
            return state, [state]

        outs, states = mx.npx.foreach(body, rows, [rows[0]])
        return outs.reshape(shape), states[0], start.reshape((-1,))


@pytest.mark.parametrize("sizes", [(4,), (4, 6, 5)])
def test_sizes_loops_views_and_several_outputs(sizes: tuple[int, ...]) -> None:
    found = []
    for recompute in (True, False):
        x = mx.np.array(np.random.RandomState(1).randn(4, 8).astype("float32"))
        net = prepared(Mixed(), x, recompute)
        record: dict[str, np.ndarray] = {}
        for size in sizes:
            x = mx.np.array(np.random.RandomState(size).randn(size, 8).astype("float32"))
            x.attach_grad()
            with autograd.record():
                first, second, third = net(x)
                loss = (first * first).sum() + second.sum() + third.sum() * 0.5
            loss.backward()
            record.update({f"{size} {k}": v for k, v in state_of(net, x).items()})
            before = x.asnumpy()
            third[:] = 0
            np.testing.assert_array_equal(x.asnumpy(), before)
        assert bool(segments(net)) == recompute
        found.append(record)
    # A value that several segments read gets its gradients added in another order.
    same(*found, tolerance=1e-6)


class Counting(autograd.Function):
    calls = 0

    def forward(self, x: Any) -> Any:
        Counting.calls += 1
        return x * 2

    def backward(self, dy: Any) -> Any:
        return dy * 2


class WithPython(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.HybridSequential()
        for _ in range(8):
            self.layers.add(nn.Dense(8, activation="tanh", in_units=8))

    def forward(self, x: Any) -> Any:
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if place == 3:
                x = Counting()(x)
        return x


def test_python_of_the_user_runs_once() -> None:
    found = []
    for recompute in (True, False):
        x = mx.np.array(np.random.RandomState(1).randn(4, 8).astype("float32"))
        x.attach_grad()
        net = prepared(WithPython(), x, recompute)
        for _ in range(2):
            Counting.calls = 0
            with autograd.record():
                y = net(x).sum()
            y.backward()
        assert Counting.calls == 1
        found.append(state_of(net, x))
        assert bool(segments(net)) == recompute
    same(*found)


def test_values_that_decide_shapes_are_computed_once() -> None:
    class Chosen(WithPython):
        def forward(self, x: Any) -> Any:
            for layer in list(self.layers)[:4]:
                x = layer(x)
            x = x[x.sum(axis=1) > 0]
            for layer in list(self.layers)[4:]:
                x = layer(x)
            return x

    found = []
    for recompute in (True, False):
        x = mx.np.array(np.random.RandomState(1).randn(16, 8).astype("float32"))
        x.attach_grad()
        net = prepared(Chosen(), x, recompute)
        with autograd.record():
            y = net(x).sum()
        y.backward()
        found.append(state_of(net, x))
    same(*found)


def test_blocks_inside_of_blocks_that_run_op_by_op() -> None:
    found = []
    for recompute in (True, False):
        x = images()
        outer = gluon.Block()
        outer.inner = prepared(network(), x, recompute)
        with autograd.record():
            y = outer.inner(x).sum() + outer.inner(x * 2).sum()
        y.backward()
        found.append(state_of(outer.inner, x))
    same(*found)


def test_mixed_precision() -> None:
    found = []
    for recompute in (True, False):
        x = images()
        net = prepared(network(0.0), x, recompute)
        mx.amp.init("bfloat16")
        try:
            with autograd.record():
                y = net(x).sum()
            y.backward()
        finally:
            mx.amp.reset()
        found.append(state_of(net, x))
    same(*found)


# Flags and looking inside ----------------------------------------------------------------------


def test_explain_says_what_is_computed_again_and_changes_nothing() -> None:
    x = images()
    net = prepared(network(), x, True)
    before = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    explanation = net.explain(x, train=True)
    assert "segments are computed again in backward" in explanation.why
    assert any(each.name == "recompute" and each.changed for each in explanation.passes)
    for name, value in before.items():
        np.testing.assert_array_equal(net.collect_params()[name].data().asnumpy(), value)
    net.hybridize()
    assert "again" not in net.explain(x, train=True).why


def test_a_small_graph_is_left_as_it_is() -> None:
    net = nn.Dense(3, in_units=2)
    net.initialize()
    net.hybridize(recompute=True)
    x = mx.np.ones((2, 2))
    with autograd.record():
        net(x)
    assert not segments(net)
    assert "would save no memory" in net.explain(x, train=True).why


def test_a_misspelt_flag() -> None:
    with pytest.raises(TypeError, match="did you mean 'recompute'"):
        network().hybridize(recompte=True)


def test_optimize_for_keeps_the_flag() -> None:
    x = images()
    net = prepared(network(), x, True)
    net.optimize_for(x)
    assert net._flags["recompute"]


def test_an_error_names_the_operator_once() -> None:
    class Sum(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.HybridSequential()
            for _ in range(8):
                self.layers.add(nn.Dense(8, activation="tanh", in_units=8))

        def forward(self, x: Any, y: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x + y

    x, y = mx.np.ones((4, 8)), mx.np.ones((4, 8))
    net = Sum()
    net.initialize()
    net.hybridize(recompute=True)
    texts = []
    for recompute in (True, False):
        net.hybridize(recompute=recompute)
        with autograd.record():
            net(x, y)
            with pytest.raises(mx.MXNetError) as caught:
                net(x, mx.np.ones((3, 8)))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_a_segment_that_overwrites_its_input_is_refused() -> None:
    def overwrite(data: torch.Tensor) -> torch.Tensor:
        return data.add_(1) if not torch.is_grad_enabled() else data + 1

    writer = InternalOp("writer", overwrite)
    data = Node(None, "data")
    program = Program([data], [Entry(Node(writer, "write", [Entry(data, 0)]), 0)], True, True)
    segment = again.Segment(program, set(), 1, 0, 0)
    tensor = torch.ones(2, requires_grad=True) * 1
    segment(0, tensor)
    with pytest.raises(mx.MXNetError, match="writes to one of its inputs"):
        segment(0, tensor)


# Cuts ----------------------------------------------------------------------


def chain(sizes: list[int], alone: set[int] = frozenset(), writes: set[int] = frozenset()) -> Cost:  # type: ignore[assignment]
    """A chain of nodes whose results have these sizes in bytes; the last is the output."""
    op = InternalOp("layer", lambda data: data)
    nodes: list[Node] = [Node(None, "data", specs=[Spec((1,), torch.uint8)])]
    for place, size in enumerate(sizes):
        specs = [Spec((size,), torch.uint8)]
        nodes.append(Node(op, f"layer{place}", [Entry(nodes[-1], 0)], specs=specs))
    order = nodes[1:]
    return Cost(
        order,
        [Entry(order[-1], 0)],
        lambda node: order.index(node) in alone,
        lambda node: order.index(node) in writes,
    )


def test_a_uniform_chain_has_about_the_square_root_of_segments() -> None:
    ends = choose_cuts(chain([1000] * 100))
    assert ends is not None and ends[-1] == 99
    assert 7 <= len(ends) <= 15


def test_cuts_lie_where_few_bytes_cross() -> None:
    ends = choose_cuts(chain([1000, 1000, 10, 1000] * 16))
    assert ends is not None
    assert len(ends) > 3
    assert all(end % 4 == 2 for end in ends[:-1])


def test_nodes_that_stand_alone_are_segments_of_their_own() -> None:
    ends = choose_cuts(chain([100] * 40, alone={7, 8, 20}))
    assert ends is not None
    assert {6, 7, 8, 19, 20} <= set(ends)


def test_no_cut_parts_a_value_from_what_overwrites_it() -> None:
    writes = {place for place in range(40) if place % 2}
    ends = choose_cuts(chain([100] * 40, writes=writes))
    assert ends is not None
    assert all(end % 2 for end in ends)


def test_a_graph_without_sizes_or_gain_is_not_cut() -> None:
    assert choose_cuts(chain([0] * 10)) is None
    assert choose_cuts(chain([1000])) is None
    assert choose_cuts(Cost([], [], bool, bool)) is None


def test_a_large_graph_is_cut_quickly() -> None:
    cost = chain([100, 100, 50] * 3000)
    ends = choose_cuts(cost)
    assert ends is not None
    assert len(ends) > 20
    assert cost.kept(ends) == 50 * (len(ends) - 1)
