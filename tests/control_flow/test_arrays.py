"""foreach, while_loop and cond on arrays and in hybridized blocks, against loops over NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import autograd
from regluon.base.errors import MXNetError
from regluon.gluon import HybridBlock

KINDS = ("nd", "np")
MODES = ("arrays", "hybridized", "imported")


class Call(HybridBlock):
    """A block whose forward is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Any) -> Any:
        return self._function(*inputs)


def namespace(kind: str) -> Any:
    return mx.npx if kind == "np" else mx.nd.contrib


def array(kind: str, value: Any) -> Any:
    space = mx.np if kind == "np" else mx.nd
    return space.array(np.asarray(value, "float32"))


def flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (list, tuple)) else [value]


def block_for(mode: str, function: Callable[..., Any], inputs: list[Any], path: Any) -> Callable[..., Any]:
    """The function itself, in a hybridized block, or in a block read from its exported file."""
    if mode == "arrays":
        return function
    net = Call(function)
    net.hybridize()
    net(*inputs)
    if mode == "hybridized":
        return net
    files = net.export(path / "net")
    return mx.gluon.SymbolBlock.imports(files[0], [f"data{i}" for i in range(len(inputs))])


def check(
    kind: str,
    mode: str,
    path: Any,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    values: list[Any],
) -> None:
    """Values three times (so that plans run too), and gradients against finite differences in float64."""
    inputs = [array(kind, value) for value in values]
    run = block_for(mode, function, inputs, path)
    wide = [np.asarray(value, "float64") for value in values]
    expected = flat(reference(*wide))
    for _ in range(3):
        found = flat(run(*inputs))
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.asnumpy(), theirs, rtol=1e-5, atol=1e-6)
    for value in inputs:
        value.attach_grad()
    with autograd.record():
        outputs = flat(run(*inputs))
        loss = sum((output * output).sum() for output in outputs)
    loss.backward()

    def total(*given: np.ndarray) -> float:
        return float(sum((np.asarray(output) ** 2).sum() for output in flat(reference(*given))))

    for place, value in enumerate(inputs):
        numeric = np.zeros_like(wide[place])
        for index in np.ndindex(*numeric.shape):
            step = np.zeros_like(numeric)
            step[index] = 1e-6
            higher = total(*wide[:place], wide[place] + step, *wide[place + 1 :])
            lower = total(*wide[:place], wide[place] - step, *wide[place + 1 :])
            numeric[index] = (higher - lower) / 2e-6
        np.testing.assert_allclose(value.grad.asnumpy(), numeric, rtol=2e-3, atol=2e-3)


DATA = np.random.default_rng(1).uniform(0.5, 1.5, (4, 3))
STATE = np.random.default_rng(2).uniform(0.5, 1.5, 3)
WEIGHT = np.random.default_rng(3).uniform(0.5, 1.5, 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
class TestSameAsNumpy:
    """Each with values, gradients of data, states and what the body uses from outside."""

    def test_foreach(self, kind: str, mode: str, tmp_path: Any) -> None:
        def ours(data: Any, state: Any, weight: Any) -> Any:
            return namespace(kind).foreach(lambda x, s: (x * weight + s, s * x), data, state)

        def reference(data: Any, state: Any, weight: Any) -> Any:
            rows = []
            for x in data:
                rows.append(x * weight + state)
                state = state * x
            return np.stack(rows), state

        check(kind, mode, tmp_path, ours, reference, [DATA, STATE, WEIGHT])

    def test_foreach_over_lists_with_nested_states(self, kind: str, mode: str, tmp_path: Any) -> None:
        def ours(first: Any, second: Any, state: Any) -> Any:
            def body(x: Any, s: Any) -> Any:
                assert len(x) == 2 and isinstance(s[1], list)
                return [x[0] + s[0], [x[1] * s[1][0]]], [s[1][0] * x[1], [s[0]]]

            outputs, states = namespace(kind).foreach(body, [first, second], [state, [state * 2]])
            assert isinstance(outputs[1], list) and isinstance(states[1], list)
            return outputs, states

        def reference(first: Any, second: Any, state: Any) -> Any:
            left, right, a, b = [], [], state, state * 2
            for x, y in zip(first, second, strict=True):
                left.append(x + a)
                right.append(y * b)
                a, b = b * y, a
            return np.stack(left), np.stack(right), a, b

        check(kind, mode, tmp_path, ours, reference, [DATA, DATA[::-1], STATE])

    def test_data_and_states_that_the_body_does_not_read(self, kind: str, mode: str, tmp_path: Any) -> None:
        def ours(data: Any, state: Any, weight: Any) -> Any:
            return namespace(kind).foreach(lambda x, s: (weight * 2, weight + 1), data, state)

        def reference(data: Any, state: Any, weight: Any) -> Any:
            return np.stack([weight * 2] * len(data)), weight + 1

        check(kind, mode, tmp_path, ours, reference, [DATA, STATE, WEIGHT])

    def test_nested_loops(self, kind: str, mode: str, tmp_path: Any) -> None:
        def ours(data: Any, state: Any, weight: Any) -> Any:
            loops = namespace(kind)

            def outer(row: Any, s: Any) -> Any:
                inner, last = loops.foreach(lambda x, t: (x * weight + s, t + x), row, s)
                return inner, last * 0.5

            return loops.foreach(outer, data, state)

        def reference(data: Any, state: Any, weight: Any) -> Any:
            rows = []
            for row in data:
                last, inner = state, []
                for x in row:
                    inner.append(x * weight + state)
                    last = last + x
                rows.append(np.stack(inner))
                state = last * 0.5
            return np.stack(rows), state

        data = np.random.default_rng(4).uniform(0.5, 1.5, (2, 3, 2))
        check(kind, mode, tmp_path, ours, reference, [data, STATE[:2], WEIGHT[:2]])

    @pytest.mark.parametrize("most", (3.0, 5.0, 0.5))
    def test_while_loop(self, kind: str, mode: str, tmp_path: Any, most: float) -> None:
        def ours(state: Any, weight: Any) -> Any:
            count = (state * 0).sum()

            def func(i: Any, s: Any) -> Any:
                return [s + i, s], [i + 1, s * weight]

            outputs, variables = namespace(kind).while_loop(
                lambda i, s: i < most, func, [count, state], max_iterations=5
            )
            return outputs, variables[1]

        def reference(state: Any, weight: Any) -> Any:
            first, second, i = np.zeros((5, 3)), np.zeros((5, 3)), 0
            while i < min(most, 5):
                first[i], second[i] = state + i, state
                i, state = i + 1, state * weight
            return first, second, state

        check(kind, mode, tmp_path, ours, reference, [STATE, WEIGHT])

    @pytest.mark.parametrize("sign", (1.0, -1.0))
    def test_cond(self, kind: str, mode: str, tmp_path: Any, sign: float) -> None:
        def ours(choice: Any, state: Any, weight: Any) -> Any:
            return namespace(kind).cond(
                choice.sum() > 0, lambda: [state * weight, state], lambda: [state - 1, weight * 2]
            )

        def reference(choice: Any, state: Any, weight: Any) -> Any:
            return (state * weight, state) if choice.sum() > 0 else (state - 1, weight * 2)

        check(kind, mode, tmp_path, ours, reference, [np.array([sign]), STATE, WEIGHT])

    def test_branch_in_a_loop(self, kind: str, mode: str, tmp_path: Any) -> None:
        def ours(data: Any, state: Any) -> Any:
            loops = namespace(kind)

            def body(x: Any, s: Any) -> Any:
                chosen = loops.cond((x * s).sum() > 3, lambda: s * 0.5 + x, lambda: s * x * 2)
                return chosen, chosen

            return loops.foreach(body, data, state)

        def reference(data: Any, state: Any) -> Any:
            rows = []
            for x in data:
                state = state * 0.5 + x if (x * state).sum() > 3 else state * x * 2
                rows.append(state)
            return np.stack(rows), state

        check(kind, mode, tmp_path, ours, reference, [DATA, STATE])


def test_elements_of_a_vector_have_one_axis_in_1x_and_none_in_numpy() -> None:
    seen: list[tuple[int, ...]] = []

    def body(x: Any, s: Any) -> Any:
        seen.append(tuple(x.shape))
        return x + s, s * x

    for kind, start in (("nd", [1.0]), ("np", 1.0)):
        for hybrid in (False, True):
            net = Call(lambda data, s, kind=kind: namespace(kind).foreach(body, data, s))
            if hybrid:
                net.hybridize()
            outputs, state = net(array(kind, [2.0, 3.0, 4.0]), array(kind, start))
            shape = (1,) if kind == "nd" else ()
            assert outputs.shape == (3, *shape) and state.shape == shape
            assert outputs.asnumpy().ravel().tolist() == [3, 5, 10] and float(state.asnumpy().sum()) == 24
    assert seen == [(1,)] * 4 + [()] * 4


@pytest.mark.parametrize("hybrid", (False, True))
def test_no_element_at_all(hybrid: bool) -> None:
    net = Call(lambda data, s: mx.npx.foreach(lambda x, t: (x + t, t * 2), data, s))
    if hybrid:
        net.hybridize()
    outputs, state = net(mx.np.ones((0, 3)), mx.np.ones(3))
    assert outputs.shape == (0, 3) and state.asnumpy().tolist() == [1, 1, 1]


def test_a_loop_of_no_step_gives_an_empty_list_on_ndarrays_and_zeros_else() -> None:
    def run(kind: str) -> Any:
        return lambda i: namespace(kind).while_loop(lambda i: i < 0, lambda i: (i, i + 1), i, 3)

    outputs, last = run("nd")(array("nd", [7.0]))
    assert outputs == [] and last.asnumpy().tolist() == [7]  # as MXNet 1.9.1
    net = Call(run("nd"))
    net.hybridize()
    for found, last in (net(array("nd", [7.0])), run("np")(array("np", [7.0]))):
        assert found.asnumpy().tolist() == [[0], [0], [0]] and last.asnumpy().tolist() == [7]


def test_how_many_steps_run_is_decided_at_each_call() -> None:
    traced = []

    def steps(most: Any) -> Any:
        traced.append(1)
        return mx.npx.while_loop(lambda i: i < most, lambda i: (i, i + 1), most * 0, max_iterations=9)[1]

    net = Call(steps)
    net.hybridize()
    assert [float(net(mx.np.array([n])).item()) for n in (3.0, 8.0, 0.0, 20.0, 5.0)] == [3, 8, 0, 9, 5]
    assert len(traced) == 1


@pytest.mark.parametrize("dtype", ("bool", "int32", "int64", "float16", "float64"))
@pytest.mark.parametrize("hybrid", (False, True))
def test_conditions_of_every_type(dtype: str, hybrid: bool) -> None:
    net = Call(lambda p, x: mx.npx.cond(p, lambda: x + 1, lambda: x - 1))
    if hybrid:
        net.hybridize()
    x = mx.np.array([1.0, 2.0])
    assert net(mx.np.array([1], dtype=dtype), x).asnumpy().tolist() == [2, 3]
    assert net(mx.np.array([0], dtype=dtype), x).asnumpy().tolist() == [0, 1]


def test_cond_of_2_0_calls_all_functions_with_its_inputs() -> None:
    x, y = mx.np.array([1.0]), mx.np.array([5.0])

    def choose(a: Any, b: Any) -> Any:
        return mx.npx.cond(lambda a, b: a > b[0], lambda a, b: a, lambda a, b: [b[0]] and b[0] * 2, [a, [b]])

    net = Call(choose)
    net.hybridize()
    for run in (choose, net):
        assert run(x, y).item() == 10 and run(y, x).item() == 5
    assert mx.npx.cond(True, lambda a: a + 1, lambda a: a, x).item() == 2


def test_results_share_no_memory_with_inputs() -> None:
    net = Call(lambda d, s: mx.npx.foreach(lambda x, t: (x, t), d, [s, s]))
    net.hybridize()
    data, state = mx.np.ones((2, 3)), mx.np.ones(3)
    for _ in range(3):
        outputs, (first, second) = net(data, state)
        first[:] = 7
        outputs[:] = 7
        assert state.asnumpy().tolist() == second.asnumpy().tolist() == [1, 1, 1] and data.sum().item() == 6


# Errors ----------------------------------------------------------------------

X = [[1.0, 2.0], [3.0, 4.0]]
S = [1.0, 1.0]
WRONG: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "data": (lambda c, x, s: c.foreach(lambda a, b: (a, b), 3, s), TypeError, "data must be an array"),
    "no data": (
        lambda c, x, s: c.foreach(lambda a, b: (a, b), [], s), ValueError,
        "needs data to go through",
    ),
    "states": (lambda c, x, s: c.foreach(lambda a, b: (a, b), x, None), TypeError, "states must be an array"),
    "outputs": (
        lambda c, x, s: c.foreach(lambda a, b: (None, b), x, s), TypeError,
        "outputs must be an array",
    ),
    "output number": (
        lambda c, x, s: c.foreach(lambda a, b: (3, b), x, s), TypeError,
        "received 3 of type int",
    ),
    "one result": (lambda c, x, s: c.foreach(lambda a, b: a, x, s), ValueError, "must return two things"),
    "three results": (
        lambda c, x, s: c.foreach(lambda a, b: (a, b, b), x, s), ValueError,
        "received 3 values",
    ),
    "state nested": (
        lambda c, x, s: c.foreach(lambda a, b: (a, [b]), x, s), ValueError,
        "received array and returned [array]",
    ),
    "states fewer": (
        lambda c, x, s: c.foreach(lambda a, b: (a, [b[0]]), x, [s, s]), ValueError, "different formats",
    ),
    "body": (lambda c, x, s: c.foreach(None, x, s), TypeError, "the body must be a function"),
    "lengths": (
        lambda c, x, s: c.foreach(lambda a, b: (a[0], b), [x, x[:1]], s), (ValueError, MXNetError),
        "one length",
    ),
    "no most": (
        lambda c, x, s: c.while_loop(lambda a: a < 1, lambda a: (a, a), s), ValueError,
        "max_iterations should be specified",
    ),
    "most": (
        lambda c, x, s: c.while_loop(lambda a: a < 1, lambda a: (a, a), s, max_iterations="x"), ValueError,
        "Cannot convert max_iterations",
    ),
    "no variables": (
        lambda c, x, s: c.while_loop(lambda: s, lambda: (s, []), [], max_iterations=2), ValueError,
        "at least one element",
    ),
    "variables": (
        lambda c, x, s: c.while_loop(lambda a: a < 1, lambda a: (a, a), 3, max_iterations=2), TypeError,
        "loop_vars must be an array",
    ),
    "variables fewer": (
        lambda c, x, s: c.while_loop(
            lambda a, b: a.sum() > 0, lambda a, b: (a, a), [s, s], max_iterations=2
        ),
        ValueError, "consistent during the loop",
    ),
    "variables alone": (
        lambda c, x, s: c.while_loop(lambda a: a.sum() > 0, lambda a: a, s, max_iterations=2), ValueError,
        "must return two things",
    ),
    "long condition": (
        lambda c, x, s: c.while_loop(lambda a: a > 0, lambda a: (a, a), s, max_iterations=2),
        (ValueError, MXNetError), "condition with one element; received one of shape (2,)",
    ),
    "long choice": (
        lambda c, x, s: c.cond(s > 0, lambda: s, lambda: s), ValueError, "received one of shape (2,)",
    ),
    "branch": (lambda c, x, s: c.cond(s.sum() > 0, s, s), TypeError, "then_func must be a function"),
    "no inputs": (
        lambda c, x, s: c.cond(s.sum() > 0, lambda: s, lambda: s, []), ValueError, "at least one element",
    ),
}  # fmt: skip
ONLY_RECORDED: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "branches": (
        lambda c, x, s: c.cond(s.sum() > 0, lambda: [s, s], lambda: s), ValueError,
        "Number of outputs differs between then-branch and else-branch",
    ),
    "branch shapes": (
        lambda c, x, s: c.cond(s.sum() > 0, lambda: s, lambda: x), MXNetError, "has shape (2,)",
    ),
    "no outputs": (
        lambda c, x, s: c.cond(s.sum() > 0, lambda: [], lambda: []), ValueError, "give no outputs",
    ),
    "branch number": (
        lambda c, x, s: c.cond(s.sum() > 0, lambda: 3, lambda: s), TypeError, "received 3 of type int",
    ),
    "growing": (
        lambda c, x, s: c.foreach(lambda a, b: (a, mx.np.concatenate([b, a])), x, s), MXNetError,
        "state 0 has shape (2,) before a step and (4,) after it",
    ),
    "changing type": (
        lambda c, x, s: c.foreach(lambda a, b: (a, b.astype("float64")), x, s), MXNetError,
        "is float32 before a step and float64 after it",
    ),
    "python condition": (
        lambda c, x, s: c.while_loop(lambda a: True, lambda a: (a, a), s, max_iterations=2), ValueError,
        "Return of cond must be a Symbol or an array",
    ),
    "value read": (
        lambda c, x, s: c.foreach(lambda a, b: (a, b) if a.sum() > 0 else (b, a), x, s), MXNetError,
        "with where() or cond(), loop with foreach() or while_loop()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("hybrid", (False, True))
@pytest.mark.parametrize("name", [*WRONG, *ONLY_RECORDED])
def test_mistakes_are_told(name: str, hybrid: bool) -> None:
    if name in ONLY_RECORDED and not hybrid:
        function, _, _ = ONLY_RECORDED[name]
        if name not in ("no outputs", "branch number"):
            assert flat(function(mx.npx, mx.np.array(X), mx.np.array(S)))  # plain Python: it may
        return
    function, error, text = {**WRONG, **ONLY_RECORDED}[name]
    net = Call(lambda x, s: function(mx.npx, x, s))
    if hybrid:
        net.hybridize()
    with pytest.raises(error) as caught:
        net(mx.np.array(X), mx.np.array(S))
    assert text in str(caught.value)
