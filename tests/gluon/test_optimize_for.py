"""optimize_for, hybridize(backend=...) and the registry of backends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regluon as mx
from regluon import autograd, gluon
from regluon.exec import backends
from regluon.exec.partition import Subgraph, make_node, partition
from regluon.gluon import nn
from regluon.graph.node import Entry, Node, rebuild, topological
from regluon.ops import registry

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(autouse=True)
def own_backends() -> Iterator[None]:
    """Backends that a test registers are forgotten after it."""
    before = set(backends.list_backends())
    yield
    for name in set(backends.list_backends()) - before:
        backends.unregister(name)


def network(style: Any) -> tuple[Any, Any, numpy.ndarray]:
    """Dense-relu-Dense with known weights: network, input, expected result."""
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu", in_units=3), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Uniform(1))
    x = numpy.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    w0, b0, w1, b1 = (p.data().asnumpy() for p in net.collect_params().values())
    return net, style.array(x), numpy.maximum(x @ w0.T + b0, 0) @ w1.T + b1


def counting(name: str = "counting", **options: Any) -> list[dict[str, Any]]:
    """Register a backend that changes nothing; gives the options of each of its runs."""
    runs: list[dict[str, Any]] = []

    @backends.register(name, **options)
    def rewrite(entries: Any, given: Any) -> Any:
        """Counts."""
        runs.append(given)
        return entries

    return runs


class Kernels(TorchDispatchMode):
    """Notes every operation on real tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if any(t.device.type != "meta" for t in tensors):
            self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


# optimize_for ----------------------------------------------------------------------


def test_no_kernel_runs(style: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regluon.exec import Program

    net, x, expected = network(style)
    runs = counting()
    with Kernels() as kernels, monkeypatch.context() as patch:
        patch.setattr(Program, "__call__", lambda *_: pytest.fail("a program ran"))
        net.optimize_for(x, backend="counting")
    assert kernels.seen == []
    assert len(runs) == 1
    with Kernels() as kernels:
        out = net(x)
    assert kernels.seen
    numpy.testing.assert_allclose(out.asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_deferred_parameters_are_made_but_nothing_is_computed(style: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.Dense(2))
    net.initialize()
    with Kernels() as kernels:
        net.optimize_for(style.array(numpy.ones((2, 3, 6, 6))), backend="default")
    assert net[0].weight.shape == (4, 3, 3, 3) and net[2].weight.shape == (2, 64)
    work = ("convolution", "addmm", "mm", "relu", "batch_norm", "linear")
    assert not [name for name in kernels.seen if any(part in name for part in work)]


def test_export_right_after(style: Any, tmp_path: Path) -> None:
    net, x, expected = network(style)
    net.optimize_for(x, backend="default")
    symbol, values = net.export(tmp_path / "m")
    again = gluon.SymbolBlock.imports(symbol, ["data"], values)
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert not style.entered


def test_the_call_after_does_not_record_again(style: Any) -> None:
    block = style.block(lambda self, F, x: x * 2)
    runs = counting()
    x = style.array([1.0])
    block.optimize_for(x, backend="counting")
    for _ in range(3):
        assert block(x).asnumpy() == [2]
    assert len(style.entered) == len(runs) == 1


def test_several_inputs_and_options(style: Any) -> None:
    block = style.block(lambda self, F, a, b: a + b)
    runs = counting()
    a, b = style.array([1.0]), style.array([2.0])
    block.optimize_for(a, b, backend="counting", size=3, mode="fast")
    block.optimize_for(a, b, backend="counting", backend_opts={"size": 4}, clear=True)
    block.hybridize(backend="counting", backend_opts={"size": 5})
    assert block(a, b).asnumpy() == [3]
    assert runs == [{"size": 3, "mode": "fast"}, {"size": 4}, {"size": 5}]


def test_options_of_a_backend_among_the_flags_of_hybridize(style: Any) -> None:
    block = style.block(lambda self, F, x: x + 1)
    runs = counting()
    x = style.array([1.0])
    # 1.9.1's form: the backend second, its options as keywords.
    block.hybridize(True, "counting", size=3, backend_opts={"mode": "fast"})
    assert block(x).asnumpy() == [2]
    assert runs == [{"mode": "fast", "size": 3}]
    with pytest.raises(TypeError, match="'static_aloc'; did you mean 'static_alloc'"):
        block.hybridize(backend="counting", static_aloc=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        block.hybridize(size=3)


def test_unknown_flags_of_optimize_for_are_refused(style: Any) -> None:
    block = style.block(lambda self, F, x: x + 1)
    x = style.array([1.0])
    counting()
    for backend in (None, "counting"):
        with pytest.raises(TypeError, match=r"optimize_for.*'static_aloc'; did you mean 'static_alloc'"):
            block.optimize_for(x, backend=backend, static_aloc=True)
        with pytest.raises(TypeError, match=r"'recompute': call hybridize\(recompute=\.\.\.\) before"):
            block.optimize_for(x, backend=backend, recompute=True)
    with pytest.raises(TypeError, match=r"'size': options need the backend"):
        block.optimize_for(x, size=3)


def test_optimize_for_goes_on_with_what_hybridize_set(style: Any) -> None:
    block = style.block(lambda self, F, x: x + 1)
    block.hybridize(on_value_read="break", recompute=True)
    block.optimize_for(style.array([1.0]), backend="default")
    assert block._flags["on_value_read"] == "break" and block._flags["recompute"] is True


def test_flags_are_those_of_hybridize(style: Any) -> None:
    net, x, expected = network(style)
    for flags in ({"static_alloc": True}, {"static_alloc": True, "static_shape": True}, {"inline_limit": 0}):
        net.optimize_for(x, backend="default", clear=True, **flags)
        numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    for key, value in flags.items():
        assert net._flags[key] == value


def test_with_static_shape_everything_is_ready_before_the_first_call(
    style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regluon.exec import Plan, Program, tuning

    monkeypatch.setenv("REGLUON_NATIVE", "0")
    net, x, expected = network(style)
    net.optimize_for(x, static_alloc=True, static_shape=True)
    (call,) = net._graph_cache().exact.values()
    assert type(call.chosen) is Plan and call.chosen._prepared is not None
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "__init__", lambda *_: pytest.fail("a plan was made"))
        patch.setattr(Plan, "_prepare", lambda *_: pytest.fail("weights were packed"))
        patch.setattr(Program, "__call__", lambda *_: pytest.fail("the general program ran"))
        patch.setattr(tuning, "_fastest_run", lambda *_: pytest.fail("kernels were measured"))
        numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    net[1].bias.set_data(net[1].bias.data() + 1)
    numpy.testing.assert_allclose(net(x).asnumpy(), expected + 1, rtol=1e-4, atol=1e-5)


def test_making_ready_leaves_random_numbers_and_values_as_they_are(style: Any) -> None:
    def forward(self: Any, F: Any, x: Any) -> Any:
        draw = mx.np.random.uniform(size=(3,)) if F is mx.npx else F.random.uniform(shape=(3,))
        x[:] = x + draw
        return x * 2

    outputs = []
    for ahead in (False, True):
        block = style.block(forward)
        x = style.array([1.0, 2.0, 3.0])
        mx.random.seed(5)
        if ahead:
            block.optimize_for(x, static_shape=True)
            assert x.asnumpy().tolist() == [1.0, 2.0, 3.0]
        else:
            block.hybridize(static_shape=True)
        outputs.append([block(x).asnumpy() for _ in range(3)])
    numpy.testing.assert_array_equal(*outputs)


def test_making_ready_where_calls_run_no_plan(style: Any) -> None:
    net, x, expected = network(style)
    seen: list[str] = []
    net.register_op_hook(lambda name, operator, array: seen.append(name))
    net.optimize_for(x, static_shape=True)
    assert not seen and not net._graph_cache().plans
    net(x)
    assert seen
    other, x, expected = network(style)
    with autograd.record():
        other.optimize_for(x, static_shape=True)
    assert not other._graph_cache().plans
    for _ in range(3):
        numpy.testing.assert_allclose(other(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_backends_build_on_each_other_until_cleared(style: Any) -> None:
    block = style.block(lambda self, F, x: x + 1)
    order: list[str] = []

    for name, factor in (("double", 2.0), ("triple", 3.0)):

        @backends.register(name)
        def rewrite(entries: Any, options: Any, name: str = name, factor: float = factor) -> Any:
            order.append(name)
            return make_node("_mul_scalar", entries, f"{name}_out", scalar=factor)

    x = style.array([1.0])
    block.optimize_for(x, backend="double")
    assert block(x).asnumpy() == [4]
    block.optimize_for(x, backend="triple")
    assert block(x).asnumpy() == [12] and order == ["double", "double", "triple"]
    block.optimize_for(x, backend="triple")
    assert block(x).asnumpy() == [12]
    block.optimize_for(x, backend="triple", clear=True)
    assert block(x).asnumpy() == [6]
    block.hybridize()
    assert block(x).asnumpy() == [2]


@pytest.mark.parametrize("way", ["optimize_for", "hybridize", "second"])
def test_an_unknown_backend_lists_those_there_are(style: Any, way: str) -> None:
    net, x, _ = network(style)
    counting("mine")
    with pytest.raises(ValueError, match=r"'nope' is not registered; there are: auto, default, .*mine"):
        if way == "optimize_for":
            net.optimize_for(x, backend="nope")
        elif way == "hybridize":
            net.hybridize(backend="nope")
        else:
            net.hybridize(True, "nope")


def test_only_the_block_that_is_asked_gets_the_backend(style: Any) -> None:
    net, x, _ = network(style)
    runs = counting()
    net.hybridize(backend="counting")
    net(x)
    net[0](x)
    assert len(runs) == 1


# Subgraphs ----------------------------------------------------------------------


def test_groups_are_replaced(style: Any, tmp_path: Path) -> None:
    net, x, expected = network(style)
    seen: list[Subgraph] = []

    @backends.register_subgraph("swap", select={"FullyConnected", "Activation"})
    def swap(subgraph: Subgraph, options: Any) -> Any:
        """Dense layers with relu as relu of twice the half: the same numbers from other nodes."""
        seen.append(subgraph)
        dense = subgraph.make("FullyConnected", subgraph.inputs[:3], num_hidden=4)
        half = make_node(
            "_mul_scalar", make_node("Activation", dense, "positive", act_type="relu"), "half", scalar=0.5
        )
        twice = make_node("_mul_scalar", half, "twice", scalar=2.0)
        return make_node("FullyConnected", [*twice, *subgraph.inputs[3:]], "last", num_hidden=2)

    net.optimize_for(x, backend="swap")
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    (group,) = seen
    assert group.operators == ["FullyConnected", "Activation", "FullyConnected"]
    assert group.inputs[0].node.name == "data"
    assert len(group.inputs) == 5 and len(group.outputs) == 1
    symbol, values = net.export(tmp_path / "m")
    operators = [node["op"] for node in json.loads(Path(symbol).read_text())["nodes"] if node["op"] != "null"]
    assert operators == ["FullyConnected", "Activation", "_mul_scalar", "_mul_scalar", "FullyConnected"]
    again = gluon.SymbolBlock.imports(symbol, ["data"], values)
    numpy.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_gradients_go_through_a_replacement(style: Any) -> None:
    net, x, _ = network(style)

    @backends.register_subgraph("relu_only", select="Activation")
    def replace(subgraph: Subgraph, options: Any) -> Any:
        return subgraph.make("_maximum_scalar", scalar=0.0)

    def gradients() -> list[numpy.ndarray]:
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        return [p.grad().asnumpy() for p in net.collect_params().values()]

    plain = gradients()
    net.hybridize(backend="relu_only")
    for ours, theirs in zip(gradients(), plain, strict=True):
        numpy.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_chains_are_replaced_where_nothing_else_uses_their_insides(style: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(4), nn.Dense(4, activation="tanh"))
    net.initialize()
    offered: list[list[str]] = []

    @backends.register_subgraph("chains", chain=["FullyConnected", "Activation"])
    def replace(subgraph: Subgraph, options: Any) -> None:
        offered.append(subgraph.operators)

    x = style.array(numpy.ones((1, 2)))
    net.optimize_for(x, backend="chains")
    assert offered == [["FullyConnected", "Activation"]] * 2

    def body(self: Any, F: Any, x: Any) -> Any:
        y = F.relu(x)
        return F.sigmoid(y) + y

    used_twice = style.block(body)
    offered.clear()
    names = ["relu", "sigmoid"] if style.level == 1 else ["_npx_relu", "_npx_sigmoid"]
    backends.register_subgraph("twice", chain=names)(replace)
    used_twice.optimize_for(x, backend="twice")
    assert offered == []
    backends.register_subgraph("alone", chain=names[1:])(replace)
    used_twice.optimize_for(x, backend="alone")
    assert len(offered) == 1
    for keywords in ({}, {"select": {"relu"}, "chain": ["relu"]}):
        with pytest.raises(TypeError, match="give either select= or chain="):
            backends.register_subgraph("both", **keywords)


def variable(name: str) -> Entry:
    return Entry(Node(None, name), 0)


def apply(operator: str, name: str, *inputs: Entry) -> Entry:
    return Entry(Node(registry.get(operator), name, inputs), 0)


def groups(entries: list[Entry], chosen: str) -> list[list[str]]:
    """The groups that partition offers for the nodes whose names begin with a letter of ``chosen``."""
    registry.load()
    found: list[list[str]] = []
    partition(
        entries,
        lambda node: node.name[0] in chosen,
        lambda subgraph: found.append([node.name for node in subgraph.nodes]),
    )
    return found


def test_a_group_is_connected_and_closed() -> None:
    registry.load()
    x = variable("x")
    a1 = apply("relu", "a1", x)
    b1 = apply("exp", "b1", a1)
    a2 = apply("elemwise_add", "a2", a1, b1)
    # a1 and a2 are neighbours, but b1 lies on a path between them.
    assert groups([a2], "a") == [["a1"], ["a2"]]
    assert groups([a2], "ab") == [["a1", "b1", "a2"]]
    # Not connected: two groups.
    left, right = apply("relu", "a3", x), apply("relu", "a4", x)
    assert groups([apply("elemwise_add", "b2", left, right)], "a") == [["a3"], ["a4"]]
    assert groups([apply("elemwise_add", "a5", left, right)], "a") == [["a3", "a4", "a5"]]


def test_two_groups_do_not_wait_for_each_other() -> None:
    """Two selections that each feed the other would make a cycle of replacements."""
    registry.load()
    x = variable("x")
    a1, c1 = apply("relu", "a1", x), apply("relu", "c1", x)
    b1, b2 = apply("exp", "b1", a1), apply("exp", "b2", c1)
    a2, c2 = apply("elemwise_add", "a2", c1, b1), apply("elemwise_add", "a6", a1, b2)
    out = apply("elemwise_add", "z", a2, c2)
    for chosen in ("a", "ac", "b", "ab", "abc"):
        offered = groups([out], chosen)
        assert sorted(name for group in offered for name in group) == sorted(
            node.name for node in topological([out]) if node.op is not None and node.name[0] in chosen
        )


@pytest.mark.parametrize("seed", range(20))
def test_a_partitioned_graph_computes_the_same(seed: int) -> None:
    """Random graphs, random selections, each group replaced by copies of its nodes."""
    registry.load()
    random = numpy.random.RandomState(seed)
    x = mx.sym.var("x")._list()[0]
    values = [x]
    for index in range(12):
        left, right = (values[i] for i in random.randint(0, len(values), 2))
        operator = ("elemwise_add", "elemwise_mul", "_maximum")[random.randint(3)]
        values.append(apply(operator, f"n{index}", left, right))
    outputs = [values[-1], values[random.randint(1, 12)]]
    chosen = {f"n{i}" for i in range(12) if random.rand() < 0.6}
    before = {id(node): (node.inputs, dict(node.attrs)) for node in topological(outputs)}

    def copies(subgraph: Subgraph) -> Any:
        inside = {id(node) for node in subgraph.nodes}
        assert all(id(entry.node) not in inside for entry in subgraph.inputs)
        return rebuild(subgraph.outputs, fresh=False) if random.rand() < 0.3 else rebuild_nodes(subgraph)

    def rebuild_nodes(subgraph: Subgraph) -> list[Entry]:
        inside = {id(node) for node in subgraph.nodes}
        return rebuild(
            subgraph.outputs,
            lambda node, inputs: (
                [apply(node.op.name, "copy_" + node.name, *inputs)]
                if id(node) in inside and node.op is not None
                else None
            ),
        )

    changed = partition(outputs, lambda node: node.name in chosen, copies)
    # The originals are as they were.
    assert all((node.inputs, node.attrs) == before[id(node)] for node in topological(outputs))
    data = mx.nd.array(random.uniform(0.5, 1, (3,)))
    for old, new in zip(outputs, changed, strict=True):
        results = [mx.sym.Symbol._of([entry]).eval(x=data)[0].asnumpy() for entry in (old, new)]
        numpy.testing.assert_array_equal(*results)


def test_sizes_follow_their_values(style: Any) -> None:
    """A symbolic size of a value that is replaced is read from the replacement."""

    def body(self: Any, F: Any, x: Any) -> Any:
        y = x.exp()
        return y.reshape((y.shape[0], -1)) * y.shape[1]

    block = style.block(body)

    @backends.register_subgraph("logs", select="exp" if style.level == 1 else "_npi_exp")
    def replace(subgraph: Subgraph, options: Any) -> Any:
        return make_node("exp", make_node("relu", subgraph.inputs, "up"), "up_exp")

    block.hybridize(backend="logs")
    for shape in ((2, 3, 4), (5, 2, 2)):
        x = numpy.random.uniform(0, 1, shape).astype("float32")
        expected = numpy.exp(x).reshape(shape[0], -1) * shape[1]
        numpy.testing.assert_allclose(block(style.array(x)).asnumpy(), expected, rtol=1e-5)
    assert len(style.entered) == 1


# Constants ----------------------------------------------------------------------


def folded(style: Any) -> Any:
    """A Dense layer whose weight a backend doubles into a constant."""
    net = nn.Dense(2, in_units=3, use_bias=False)
    net.initialize(mx.init.Uniform(1))

    @backends.register_subgraph("fold", select="FullyConnected", inference_only=True)
    def replace(subgraph: Subgraph, options: Any) -> Any:
        weight = subgraph.inputs[1].node.value.data()
        constant = backends.constant(weight.asnumpy() * 2, "doubled")
        return subgraph.make("FullyConnected", [subgraph.inputs[0], constant], num_hidden=2, no_bias=True)

    return net


def test_constants_are_exported(style: Any, tmp_path: Path) -> None:
    net, x = folded(style), numpy.ones((1, 3), "float32")
    expected = 2 * x @ net.weight.data().asnumpy().T
    net.optimize_for(style.array(x), backend="fold")
    numpy.testing.assert_allclose(net(style.array(x)).asnumpy(), expected, rtol=1e-5)
    symbol, values = net.export(tmp_path / "m")
    assert list(mx.nd.load(values)) == ["arg:doubled"]
    again = gluon.SymbolBlock.imports(symbol, ["data"], values)
    numpy.testing.assert_allclose(again(style.array(x)).asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("move", ["reset_ctx", "reset_device"])
def test_constants_move_with_the_parameters(style: Any, move: str) -> None:
    net, host = folded(style), numpy.ones((1, 3), "float32")
    expected = 2 * host @ net.weight.data().asnumpy().T
    net.optimize_for(style.array(host), backend="fold")
    getattr(net, move)(mx.cpu(1))
    names: list[Any] = []
    net.register_op_hook(lambda name, operator, array: names.append((name, array.context)), monitor_all=True)
    out = net(style.array(host).as_in_context(mx.cpu(1)))
    assert out.context == mx.cpu(1)
    assert {context for _, context in names} == {mx.cpu(1)}
    numpy.testing.assert_allclose(out.asnumpy(), expected, rtol=1e-5)


def test_inference_only_backends_leave_training_alone(style: Any) -> None:
    net, host = folded(style), numpy.ones((1, 3), "float32")
    net.hybridize(backend="fold")
    with autograd.record():
        out = net(style.array(host))
    out.backward()
    numpy.testing.assert_allclose(out.asnumpy(), host @ net.weight.data().asnumpy().T, rtol=1e-5)
    numpy.testing.assert_allclose(net.weight.grad().asnumpy(), numpy.ones((2, 3)), rtol=1e-6)
    numpy.testing.assert_allclose(net(style.array(host)).asnumpy(), 2 * out.asnumpy(), rtol=1e-5)


def test_random_operators_of_a_backend_draw_for_themselves() -> None:
    """A random node that a backend adds does not repeat the draw of one that was there."""

    class Noise(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return x + mx.np.random.normal(size=(1000,))

    @backends.register("more_noise")
    def rewrite(entries: Any, options: Any) -> Any:
        (noise,) = [node for node in topological(entries) if node.op is not None and node.op.uses_rng]
        more = make_node(noise.op.name, noise.inputs, "more", **noise.attrs)
        return make_node("_npi_subtract", [*entries, *more], "difference")

    net = Noise()
    net.hybridize(backend="more_noise")
    out = net(mx.np.zeros((1000,))).asnumpy()
    assert abs(out.std() - 2**0.5) < 0.15


# What a backend may get wrong ----------------------------------------------------------------------


def wrong(name: str, result: Any) -> Any:
    backends.register(name)(lambda entries, options: result(list(entries)))
    return name


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda entries: [], r"must give one graph entry for each of the 1 output\(s\); it gave \[\]"),
        (lambda entries: ["x"], r"must give one graph entry for each of the 1 output"),
        (lambda entries: make_node("sum", entries, "s"), r"changed the output .*: expected .*\(2, 2\)"),
        (
            lambda entries: make_node("elemwise_add", [*entries, variable("v")], "s"),
            "variable v without a value",
        ),
        (
            lambda entries: make_node("_mul", [*entries, backends.constant([1.0], "data")], "s"),
            "a second variable named data",
        ),
        (lambda entries: make_node("no_such_operator", entries, "s"), "no_such_operator"),
        (lambda entries: make_node("relu", entries, "s", slope=1), "relu has no attribute 'slope'"),
        (
            lambda entries: make_node(
                "elemwise_add", [*entries, backends.constant(numpy.ones((7, 5)), "c")], "s"
            ),
            "made the node s, which cannot run",
        ),
    ],
)
def test_errors_name_the_backend(style: Any, result: Any, text: str) -> None:
    net, x, _ = network(style)
    with pytest.raises(mx.base.MXNetError, match=f"backend 'wrong'.*{text}"):
        net.optimize_for(x, backend=wrong("wrong", result))


def test_a_replacement_has_the_outputs_of_its_group(style: Any) -> None:
    net, x, _ = network(style)

    @backends.register_subgraph("short", select="Activation")
    def replace(subgraph: Subgraph, options: Any) -> Any:
        return []

    with pytest.raises(mx.base.MXNetError, match=r"backend 'short'.*has 0 output\(s\), but 1 of its values"):
        net.optimize_for(x, backend="short")


def test_the_registry() -> None:
    assert {"default", "static_shape"} <= set(backends.list_backends())
    counting("mine")
    assert backends.get("mine").name == "mine" and repr(backends.get("mine")) == "<backend mine>"
    second = counting("mine")
    net = nn.Dense(1)
    net.initialize()
    net.optimize_for(mx.np.ones((1, 1)), backend="mine")
    assert len(second) == 1
    backends.unregister("mine")
    for name in ("default", "static_shape"):
        with pytest.raises(ValueError, match="built in; choose another name"):
            counting(name)
        with pytest.raises(ValueError, match="built in and stays"):
            backends.unregister(name)
    with pytest.raises(ValueError, match="'mine' is not registered"):
        backends.unregister("mine")


def test_symbols_too(style: Any) -> None:
    @backends.register_subgraph("swap", select="relu")
    def replace(subgraph: Subgraph, options: Any) -> Any:
        return subgraph.make("_maximum_scalar", scalar=options["least"])

    symbol = mx.sym.relu(mx.sym.var("data")).optimize_for("swap", least=1.5)
    (out,) = symbol.eval(data=mx.nd.array([-1.0, 1.0, 2.0]))
    assert out.asnumpy().tolist() == [1.5, 1.5, 2.0]


# The page about it ----------------------------------------------------------------------


def test_the_page_runs(tmp_path: Path) -> None:
    page = (DOCS / "add-a-backend.md").read_text()
    blocks = [part.split("```", 1)[0] for part in page.split("```python\n")[1:]]
    assert len(blocks) >= 5
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "my_dense_relu" in (tmp_path / "optimized-symbol.json").read_text()
    assert "there are: auto, default" in done.stdout


def test_a_graph_that_was_recorded_again_is_made_ready_too() -> None:
    class Scaled(gluon.HybridBlock):
        factor = 2.0

        def forward(self, x: Any) -> Any:
            return mx.npx.relu(x) * self.factor

    with mx.util.np_array(True), mx.util.np_shape(True):
        net, x = Scaled(), mx.np.ones((2, 3))
        net.optimize_for(x, static_shape=True)
        net.factor = 3.0
        net.optimize_for(x, static_shape=True, clear=False)
        (call,) = net._graph_cache().exact.values()
        assert call.chosen is not None and call.recorded is net._graph_cache().prepare((x,))
        numpy.testing.assert_array_equal(net(x).asnumpy(), numpy.full((2, 3), 3.0))
        assert net._graph_cache().exact[next(iter(net._graph_cache().exact))] is call
