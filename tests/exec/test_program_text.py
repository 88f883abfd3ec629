"""The text of programs: names that are given on, parts of long programs, text that is compiled once."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator

import numpy
import pytest
import torch

import regluon as mx
from regluon.exec import Program, interpret, writing
from regluon.exec import program as program_module
from regluon.exec.memory import Memory
from regluon.graph.node import Entry, Node, topological
from regluon.ops.internal import UNARY, InternalOp, Slot
from regluon.ops.opdef import Spec
from regluon.passes import lint


@pytest.fixture(params=[3, 320])
def longest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """How many nodes a part has: programs of a few parts, and of one."""
    monkeypatch.setattr(writing, "LONGEST", request.param)
    yield request.param


def _program(symbol: mx.sym.Symbol, recording: bool = False) -> tuple[Program, list[Node]]:
    entries = list(symbol._entries)
    variables = [node for node in topological(entries) if node.op is None]
    return Program(variables, entries, False, recording), variables


def _wide() -> mx.sym.Symbol:
    """Values that live long, several outputs, one of them unread, and an input that is an output too."""
    x, y = mx.sym.var("x"), mx.sym.var("y")
    first = mx.sym.exp(x)
    parts = mx.sym.split(first * y, num_outputs=3, axis=1)
    total = parts[0] + mx.sym.sum(y, axis=1, keepdims=True)
    for _ in range(5):
        total = mx.sym.tanh(total) * 0.5 + parts[2]
    return mx.sym.Group([total, first, mx.sym.sqrt(first), parts[2] * float("inf"), y])


@pytest.mark.parametrize("recording", [False, True])
def test_a_program_of_parts_computes_what_its_nodes_do(longest: int, recording: bool) -> None:
    program, variables = _program(_wide(), recording)
    tensors = [torch.rand(2, 3) + 1 for _ in variables]
    values = {id(node): tensor for node, tensor in zip(variables, tensors, strict=True)}
    expected = interpret(program.outputs, values, False, 0)
    for result, value in zip(program(0, tensors), expected, strict=True):
        torch.testing.assert_close(result, value, rtol=0, atol=0)
    assert program.source.count("def ") == (
        1 if longest > len(program.nodes) else -(-len(program.nodes) // 3) + 1
    )


def test_every_node_is_watched(longest: int) -> None:
    program, variables = _program(_wide())
    tensors = [torch.rand(2, 3) + 1 for _ in variables]
    seen: list[tuple[int, int]] = []
    plain = program(0, tensors)
    results = program.run(
        0, tensors, program.watched(lambda place, values: seen.append((place, len(values))))
    )
    assert seen == [(place, node.outputs) for place, node in enumerate(program.nodes)]
    for result, value in zip(results, plain, strict=True):
        torch.testing.assert_close(result, value, rtol=0, atol=0)


def test_an_error_names_its_node(longest: int) -> None:
    x = mx.sym.var("x")
    value = x
    for _ in range(4):
        value = mx.sym.tanh(value)
    program, _ = _program(mx.sym.Reshape(value, shape=(5, 5), name="impossible"))
    with pytest.raises(mx.MXNetError, match="impossible"):
        program(0, [torch.rand(2, 3)])


def test_a_value_is_freed_after_its_last_use(longest: int) -> None:
    living: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def step(data: torch.Tensor) -> torch.Tensor:
        nonlocal most
        most = max(most, sum(each() is not None for each in living))
        made = data + 1
        living.append(weakref.ref(made))
        return made

    op = InternalOp("step", step, arguments=(Slot(0),))
    source = Node(None, "x")
    entry = Entry(source, 0)
    for number in range(20):
        entry = Entry(Node(op, f"step{number}", [entry]), 0)
    (result,) = Program([source], [entry], False, False)(0, [torch.zeros(3)])
    assert result.tolist() == [20.0] * 3
    # The value that a step reads, and the list through which parts hand it on does not hold it longer.
    assert most == 1


def test_a_program_is_written_when_it_first_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    plain = writing.Text.__init__
    monkeypatch.setattr(
        writing.Text,
        "__init__",
        lambda self, nodes, *rest: (written.append(len(nodes)), plain(self, nodes, *rest))[1],
    )
    net = mx.gluon.nn.Dense(3, in_units=2)
    net.initialize()
    x = mx.np.ones((4, 2))
    net.optimize_for(x, static_alloc=True, static_shape=True)
    expected = numpy.array(x.asnumpy() @ net.weight.data().asnumpy().T)
    numpy.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5)
    cached = net._graph_cache()
    (call,) = cached.exact.values()
    assert call.recorded.program._text is None and written
    # It is there when it is needed: other shapes run it.
    numpy.testing.assert_allclose(
        call.recorded.program(0, [x._t, net.weight.data()._t, net.bias.data()._t])[0], expected, rtol=1e-5
    )


def test_a_variable_without_a_value_is_an_error() -> None:
    program, variables = _program(mx.sym.var("x") + mx.sym.var("y"))
    with pytest.raises(mx.MXNetError, match="the variable y of this graph has no value"):
        Program(variables[:1], program.outputs, False, False)


def test_equal_text_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LONGEST", 10)
    writing._compiled.cache_clear()
    value = mx.sym.var("x")
    for _ in range(50):
        value = mx.sym.tanh(value) * 0.5
    program, _ = _program(value)
    x = torch.rand(3)
    expected = x
    for _ in range(50):
        expected = torch.tanh(expected) * 0.5
    torch.testing.assert_close(program(0, [x])[0], expected)
    assert len(program.text.parts) == 11 and writing._compiled.cache_info().misses <= 4


def _chain(op: InternalOp, count: int, shape: tuple[int, ...]) -> tuple[Node, list[Node]]:
    source = Node(None, "x", specs=[mx.ops.opdef.Spec(shape, torch.float32)])
    nodes = [source]
    for number in range(count):
        nodes.append(
            Node(op, f"n{number}", [Entry(nodes[-1], 0)], {"kind": "tanh", "scalars": ()}, specs=source.specs)
        )
    return source, nodes[1:]


def test_memory_of_a_long_chain_of_views_takes_linear_time() -> None:
    view = InternalOp("view", lambda x: x, arguments=(Slot(0),), fresh=False)
    times = []
    for count in (2_000, 32_000):
        _, nodes = _chain(view, count, (2, 3))
        begin = time.process_time()
        Memory(nodes, [Entry(nodes[-1], 0)])
        times.append(time.process_time() - begin)
    assert times[1] < 64 * times[0]


def test_layouts_of_a_deep_chain_of_images() -> None:
    from regluon.exec.layouts import Layouts

    source, nodes = _chain(UNARY, 5_000, (1, 2, 3, 3))
    layouts = Layouts()
    layouts.note(source)
    assert layouts.is_last(Entry(nodes[-1], 0))
    assert not Layouts().is_last(Entry(nodes[-1], 0))


def test_graphs_are_checked_in_these_tests() -> None:
    from regluon.passes.lint import check

    node = Node(UNARY, "broken", [Entry(Node(None, "x"), 3)])
    for each in (check, lint):
        with pytest.raises(mx.MXNetError, match="after my_pass: node broken uses output 3 of x"):
            each([Entry(node, 0)], "my_pass")


@pytest.mark.parametrize("small", [False, True])
def test_a_first_run_node_by_node_gives_what_the_function_gives(small: bool, monkeypatch) -> None:
    monkeypatch.setattr(program_module, "_are_small", lambda nodes: small)
    program, variables = _program(_wide())
    torch.manual_seed(0)
    tensors = [torch.rand(4, 3) for _ in variables]
    first = program(0, tensors)
    assert program._text is None, "the first run has no text"
    second = program(0, tensors)
    assert program._text is not None
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other)


def test_values_are_freed_one_by_one_unless_all_of_them_are_small() -> None:
    def nodes(*shapes: tuple[int, ...]) -> list[Node]:
        return [Node(UNARY, "a", specs=[Spec(shape, torch.float32)]) for shape in shapes]

    assert program_module._are_small(nodes((1000,), (2, 3)))
    assert not program_module._are_small(nodes(*[(1 << 20,)] * 3))
    assert not program_module._are_small([*nodes((1,)), Node(UNARY, "without a shape")])
