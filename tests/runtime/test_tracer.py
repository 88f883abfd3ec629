"""The tracer and its symbolic sizes: what stays symbolic, what is a guard, and how nodes are called."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regluon as mx
from regluon import gluon
from regluon.graph.dims import Dim, described, dims_in, evaluate, numbers_known, reads_numbers, source_of
from regluon.graph.node import Entry, Node
from regluon.ops.opdef import Spec
from regluon.runtime.handles import user_location


def sizes(*shape: int) -> tuple[list[Dim], list[Dim], Entry]:
    """The symbolic sizes of a variable, the list that notes their guards, and the variable."""
    noted: list[Dim] = []
    entry = Entry(Node(None, "data", specs=[Spec(shape, torch.float32)]), 0)
    return [Dim(size, "size", (entry, axis), noted.append) for axis, size in enumerate(shape)], noted, entry


# Sizes -------------------------------------------------------------------------

EXPRESSIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - 3,
    lambda a, b: 10 - b,
    lambda a, b: a * b + 2,
    lambda a, b: 2 * a,
    lambda a, b: (a * b) // 3,
    lambda a, b: 100 // b,
    lambda a, b: a % 4 + 7 % b,
    lambda a, b: a / 2 + 5 / b,
    lambda a, b: -a + (+b),
    lambda a, b: a**2 + 2**b,
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@given(
    first=st.tuples(st.integers(2, 9), st.integers(2, 9)),
    other=st.tuples(st.integers(2, 9), st.integers(2, 9)),
)
def test_arithmetic_stays_symbolic(
    expression: Callable[[Any, Any], Any], first: tuple[int, int], other: tuple[int, int]
) -> None:
    (a, b), noted, _ = sizes(*first)
    result = expression(a, b)
    assert isinstance(result, Dim) and noted == []
    assert evaluate(result) == expression(*first)
    assert evaluate(result, lambda entry: other) == expression(*other)
    source = source_of(result, lambda entry: "x")
    assert eval(source, {"x": numpy.empty(other)}) == expression(*other)


@pytest.mark.parametrize(
    "use",
    [
        int,
        float,
        operator.index,
        hash,
        range,
        lambda n: [0] * n,
        math.sqrt,
        abs,
        round,
        math.floor,
        math.ceil,
    ],
)
def test_a_number_that_python_needs_is_noted(use: Callable[[Any], Any]) -> None:
    (a,), noted, _ = sizes(5)
    assert use(a) == use(5)
    assert len(noted) >= 1 and noted[0].size == 5


@pytest.mark.parametrize(
    "compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
)
@given(size=st.integers(2, 6), other=st.integers(2, 6))
def test_a_comparison_notes_its_answer_only(
    compare: Callable[[Any, Any], bool], size: int, other: int
) -> None:
    (a,), noted, _ = sizes(size)
    answer = compare(a, 4)
    assert answer is compare(size, 4)
    (guard,) = noted
    assert guard.size is answer
    assert evaluate(guard, lambda entry: (other,)) == compare(other, 4)


def test_truth_and_membership() -> None:
    (a, b), noted, _ = sizes(3, 4)
    assert a and not (a - 3)
    assert a in (1, 3) and b not in (1, 3)
    assert (a, b) == (3, 4) and a != b and [a, b] == [3, 4]
    assert all(isinstance(guard.size, bool) for guard in noted)
    assert f"{a} {b!r} {a:03d}" == "3 4 003"


def test_numbers_among_the_arguments() -> None:
    noted: list[Dim] = []
    entry = Entry(Node(None, "number0", specs=[Spec((), torch.float64)]), 0)
    number = Dim(2.5, "item", (entry,), noted.append)
    scaled = number * 2 + 1
    assert evaluate(scaled) == 6 and noted == []
    assert evaluate(scaled, lambda e: (), lambda e: 4.0) == 9
    assert source_of(scaled, lambda e: "k") == "((k.item() * 2) + 1)"
    with pytest.raises(
        mx.base.MXNetError, match=r"number0 is a number that is known when the graph runs only"
    ):
        evaluate(scaled, lambda e: ())
    assert reads_numbers((1, scaled)) and not reads_numbers((1, 2))
    assert numbers_known((1, scaled)) == (1, 6) and noted == [scaled]
    with pytest.raises(TypeError, match=r"'float' object cannot be interpreted as an integer"):
        range(number)


def test_sizes_in_attributes_are_found_and_described() -> None:
    (a, b), _, _ = sizes(3, 4)
    assert dims_in((1, (a, [b]))) == [a, b] or len(dims_in((1, (a, [b])))) == 2
    assert described(a) == "data.shape[0]"
    assert described(a * 2 + b) == "(data.shape[0] * 2) + data.shape[1]"


# Names -------------------------------------------------------------------------

# Expression: name of the node that MXNet 1.9.1 makes for it.
NAMES = {
    "x + y": "_plus0",
    "x + 2": "_plusscalar0",
    "2 + x": "_plusscalar0",
    "x - y": "_minus0",
    "x - 2": "_minusscalar0",
    "2 - x": "_rminusscalar0",
    "x * y": "_mul0",
    "x * 2": "_mulscalar0",
    "x / y": "_div0",
    "x / 2": "_divscalar0",
    "2 / x": "_rdivscalar0",
    "x % y": "_mod0",
    "x % 2": "_modscalar0",
    "2 % x": "_rmodscalar0",
    "x ** y": "_power0",
    "x ** 2": "_powerscalar0",
    "2 ** x": "_rpower_scalar0",
    "x == y": "_equal0",
    "x == 2": "_equal_scalar0",
    "x != 2": "_not_equal_scalar0",
    "x > y": "_greater0",
    "x > 2": "_greater_scalar0",
    "2 > x": "_lesser_scalar0",
    "x >= 2": "_greater_equal_scalar0",
    "x < y": "_lesser0",
    "x <= 2": "_lesser_equal_scalar0",
    "-x": "_mulscalar0",
    "abs(x)": "abs0",
    "F.identity(x)": "identity0",
    "F.swapaxes(x, 0, 1)": "swapaxes0",
    "F.SwapAxis(x, 0, 1)": "swapaxis0",
    "F.Reshape(x, shape=(-1,))": "reshape0",
    "F.split(x, num_outputs=2)[0]": "split0",
    "F.SliceChannel(x, num_outputs=2)[0]": "slicechannel0",
    "F.Concat(x, y)": "concat0",
    "F.flatten(x)": "flatten0",
    "F.broadcast_plus(x, y)": "broadcast_plus0",
    "F.elemwise_add(x, y)": "elemwise_add0",
    "F.add_n(x, y)": "add_n0",
    "F.ElementWiseSum(x, y)": "elementwisesum0",
    "F.cast(x, dtype='int32')": "cast0",
    "F.stop_gradient(x)": "stop_gradient0",
    "F.BlockGrad(x)": "blockgrad0",
    "F.sum_axis(x, axis=0)": "sum_axis0",
    "F.linalg.gemm2(x, y)": "gemm20",
    "F.linalg_gemm2(x, y)": "linalg_gemm20",
    "F.contrib.arange_like(x)": "arange_like0",
    "F.random_uniform(0, 1, shape=(1,))": "random_uniform0",
    "F.softmax(x)": "softmax0",
    "x.reshape((-1,))": "reshape0",
    "x.swapaxes(0, 1)": "swapaxes0",
    "x.split(num_outputs=2)[0]": "split0",
    "x.astype('float64')": "cast0",
    "x.sum()": "sum0",
    "x.flip(axis=0)": "flip0",
}


def test_nodes_are_called_as_in_1_9_1() -> None:
    mx.set_api(1)
    different = {}
    for expression, expected in NAMES.items():

        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F: Any, x: Any, y: Any) -> Any:
                made.append(eval(expression, {"F": F, "x": x, "y": y}).name)  # noqa: B023
                return x + y

        made: list[str] = []
        net = Net(prefix="n_")
        net.hybridize()
        net(mx.nd.ones((2, 2)), mx.nd.ones((2, 2)))
        composed = eval(expression, {"F": mx.sym, "x": mx.sym.var("x"), "y": mx.sym.var("y")})
        if made != ["n_" + expected] or composed.name.rstrip("0123456789") != expected.rstrip("0123456789"):
            different[expression] = (expected, *made, composed.name)
    assert different == {}


def test_names_in_a_network_of_1_x_are_those_of_1_9_1() -> None:
    mx.set_api(1)
    nn = gluon.nn

    class Net(gluon.HybridBlock):
        def __init__(self, **keywords: Any) -> None:
            super().__init__(**keywords)
            with self.name_scope():
                self.first = nn.Dense(2)
                self.second = nn.Dense(2, prefix="e_")
                self.rest = nn.HybridSequential(prefix="")
                with self.rest.name_scope():
                    self.rest.add(nn.Dense(1), nn.Dense(1))
                self.w = self.params.get("w", shape=(1,))

        def hybrid_forward(self, F: Any, x: Any, w: Any) -> Any:
            y, z = self.first(x), self.second(x)
            return self.rest(F.relu(y) + z * 2) * w + F.relu(x, name="mine").sum()

    outputs = Net(prefix="n_")(mx.sym.var("data")).get_internals().list_outputs()
    assert [name for name in outputs if name.endswith("_output")] == [
        "n_dense0_fwd_output",
        "n_relu0_output",
        "n_e_fwd_output",
        "n__mulscalar0_output",
        "n__plus0_output",
        "n_dense1_fwd_output",
        "n_dense2_fwd_output",
        "n__mul0_output",
        "n_mine_output",
        "n_sum0_output",
        "n__plus1_output",
    ]


def test_names_at_level_2_are_paths_and_unique() -> None:
    nn = gluon.nn
    shared = nn.Dense(3, activation="relu")
    net = nn.HybridSequential()
    net.add(nn.HybridSequential(), shared, shared)
    net[0].add(nn.Dense(3, activation="relu"), nn.Flatten())
    outputs = net(mx.sym.var("data")).get_internals().list_outputs()
    names = [name.removesuffix("_output") for name in outputs if name.endswith("_output")]
    assert names[:2] == ["0_0_fwd", "0_0_act_fwd"]
    assert names[3:5] == ["1_fwd", "1_act_fwd"]
    assert len(set(names)) == len(names) == 7
    assert "0.0.weight" in outputs


def test_the_lines_of_calls_are_told_apart_and_those_of_a_loop_are_one() -> None:
    first, second = user_location(), user_location()
    assert first == second, "two calls in one line"
    found = [user_location() for _ in range(3)]
    assert len(set(found)) == 1
    other = user_location()
    lines = [int(text.rsplit(":", 1)[1]) for text in (first, found[0], other)]
    start = lines[0]
    assert lines == [start, start + 2, start + 4]
    assert other is not None and other.startswith(__file__)
