"""Loops and branches with layers inside: parameters, randomness, sizes, recurrent networks, beam search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import autograd, gluon
from regluon.base.errors import MXNetError
from regluon.gluon import HybridBlock, nn, rnn

X = np.random.default_rng(5).uniform(-1, 1, (5, 2, 3)).astype("float32")


class Shared(HybridBlock):
    """One layer in two loops and a branch, and another one that only the other branch uses."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.first = nn.Dense(3, flatten=False)
            self.second = nn.Dense(3, flatten=False)

    def hybrid_forward(self, F: Any, x: Any, s: Any) -> Any:
        outputs, s = F.contrib.foreach(lambda e, t: (self.first(e) + t, F.tanh(self.first(t))), x, s)
        _, (_, s) = F.contrib.while_loop(
            lambda i, t: i < 2, lambda i, t: ([], [i + 1, self.first(t)]), [F.sum(s) * 0, s], 4
        )
        return F.contrib.cond(
            F.sum(x) > 0, lambda: self.first(s) + F.sum(outputs), lambda: self.second(s) * F.sum(outputs)
        )


def reference(weight: Any, bias: Any, other: Any, x: Any, s: Any) -> float:
    """The sum of squares of what `Shared` gives."""
    outputs = 0.0
    for e in x:
        outputs, s = outputs + (e @ weight.T + bias + s).sum(), np.tanh(s @ weight.T + bias)
    for _ in range(2):
        s = s @ weight.T + bias
    result = s @ weight.T + bias + outputs if x.sum() > 0 else (s @ other.T) * outputs
    return float((result**2).sum())


@pytest.mark.parametrize("hybrid", (False, True))
@pytest.mark.parametrize("sign", (1, -1))
def test_gradients_of_a_layer_in_several_bodies_are_summed(hybrid: bool, sign: int) -> None:
    net = Shared()
    net.initialize(mx.init.Uniform(0.5))
    if hybrid:
        net.hybridize()
    x = np.abs(X) * sign
    s = np.random.default_rng(6).uniform(-1, 1, (2, 3)).astype("float32")
    with autograd.record():
        net.second(mx.nd.array(s))  # both are initialized, and only one of them is used below
        result = net(mx.nd.array(x), mx.nd.array(s))
        loss = (result**2).sum()
    loss.backward()
    values = [
        parameter.data().asnumpy().astype("float64")
        for parameter in (net.first.weight, net.first.bias, net.second.weight)
    ]
    assert loss.asscalar() == pytest.approx(reference(*values, x, s), rel=1e-4)
    for place, parameter in enumerate((net.first.weight, net.first.bias, net.second.weight)):
        found = parameter.grad().asnumpy()
        for index in ((0,) * found.ndim, (2,) * found.ndim):
            step = np.zeros_like(values[place])
            step[index] = 1e-6
            higher = reference(*values[:place], values[place] + step, *values[place + 1 :], x, s)
            lower = reference(*values[:place], values[place] - step, *values[place + 1 :], x, s)
            assert found[index] == pytest.approx((higher - lower) / 2e-6, rel=2e-3, abs=1e-3)


def test_a_branch_not_taken_has_gradients_of_zero_not_old_ones() -> None:
    class Choice(HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Dense(2, in_units=2), nn.Dense(2, in_units=2)

        def forward(self, x: Any, p: Any) -> Any:
            return mx.npx.cond(p, lambda: self.left(x), lambda: self.right(x))

    net = Choice()
    net.initialize()
    net.hybridize()
    x = mx.np.ones((1, 2))
    for choice in (1, 0, 1):
        with autograd.record():
            loss = net(x, mx.np.array([choice])).sum()
        loss.backward()
        used, other = (net.left, net.right) if choice else (net.right, net.left)
        assert used.weight.grad().asnumpy().tolist() == [[1, 1], [1, 1]]
        assert not other.weight.grad().asnumpy().any()


class Inside(HybridBlock):
    """Layers that are used in a body only."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense, self.out = nn.BatchNorm(axis=-1), nn.Dense(4), nn.Dense(2)

    def forward(self, x: Any) -> Any:
        def body(e: Any, s: Any) -> Any:
            h = mx.npx.relu(self.dense(self.norm(e))) + s
            return self.out(h), h

        return mx.npx.foreach(body, x, mx.np.zeros((2, 4)))[0]


@pytest.mark.parametrize("way", ("imperative", "hybrid", "infer_shape", "loaded"))
def test_deferred_initialisation_of_layers_in_a_body(way: str, tmp_path: Any) -> None:
    net = Inside()
    net.initialize(mx.init.Xavier())
    if way != "imperative":
        net.hybridize()
    if way == "infer_shape":
        net.infer_shape(mx.np.array(X))
        assert net.dense.weight.shape == (4, 3) and net.out.weight.shape == (2, 4)
    first = net(mx.np.array(X))
    assert net.dense.weight.shape == (4, 3) and net.out.weight.shape == (2, 4) and first.shape == (5, 2, 2)
    if way == "loaded":
        net.save_parameters(str(tmp_path / "p"))
        twin = Inside()
        twin.load_parameters(str(tmp_path / "p"))
        np.testing.assert_allclose(twin(mx.np.array(X)).asnumpy(), first.asnumpy(), rtol=1e-6)


def test_batch_norm_in_a_body_updates_once_a_step() -> None:
    found = []
    for hybrid in (False, True):
        mx.random.seed(4)
        net = Inside()
        net.initialize(mx.init.Xavier())
        net(mx.np.array(X))
        if hybrid:
            net.hybridize()
        with autograd.record():
            loss = net(mx.np.array(X)).sum()
        loss.backward()
        found.append(net.norm.running_mean.data().asnumpy())
    expected = np.zeros(3)
    for means in X.mean(axis=1)[::-1]:  # gradients pass from the last step to the first
        expected = expected * 0.9 + means * 0.1
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-6)


class Dropped(HybridBlock):
    """Loops and branches that draw, between other draws."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.inner = nn.HybridSequential()
        self.inner.add(nn.Dropout(0.4), nn.Dropout(0.3))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Dropout(getattr(self, self.kind)(F, F.Dropout(x, p=0.2)), p=0.2)

    def loop(self, F: Any, x: Any) -> Any:
        return F.contrib.foreach(lambda e, t: (F.Dropout(e, p=0.5), t), x, x[0])[0]

    def reversed(self, F: Any, x: Any) -> Any:
        def body(e: Any, t: Any) -> Any:
            first, _, last = (F.Dropout(e * scale, p=0.5) for scale in (1, 2, 3))
            return last - first, t

        return F.contrib.foreach(body, x, x[0])[0]

    def unused_at_the_end(self, F: Any, x: Any) -> Any:
        def body(e: Any, t: Any) -> Any:
            first = F.Dropout(e, p=0.5)
            F.Dropout(e, p=0.5)
            return first, t

        return F.contrib.foreach(body, x, x[0])[0]

    def block(self, F: Any, x: Any) -> Any:
        return F.contrib.foreach(lambda e, t: (self.inner(e), t), x, x[0])[0]

    def branch(self, F: Any, x: Any) -> Any:
        return F.contrib.cond(F.sum(x) > 0, lambda: F.Dropout(x, p=0.5), lambda: x * 2)

    def no_draws(self, F: Any, x: Any) -> Any:
        return F.contrib.foreach(lambda e, t: (e, t), x, x[0])[0]

    def nested(self, F: Any, x: Any) -> Any:
        def body(e: Any, t: Any) -> Any:
            return F.contrib.cond(F.sum(t) > 0, lambda: F.Dropout(e, p=0.5), lambda: e * 2), F.Dropout(t)

        return F.contrib.foreach(body, x, x[0])[0]

    def condition(self, F: Any, x: Any) -> Any:
        def again(i: Any, s: Any) -> Any:
            return F.sum(F.Dropout(s, p=0.5)) > 2 * i

        return F.contrib.while_loop(again, lambda i, s: (F.Dropout(s), [i + 1, s]), [x[0, 0, 0] * 0, x], 6)[
            0
        ][0]


DRAWING = ("loop", "reversed", "unused_at_the_end", "block", "branch", "no_draws", "nested", "condition")


@pytest.mark.parametrize("kind", DRAWING)
def test_the_same_seed_gives_the_same_masks_hybridized_or_not(kind: str) -> None:
    net = Dropped(kind)
    x = mx.nd.ones((4, 2, 3))

    def run() -> list[Any]:
        mx.random.seed(3)
        with autograd.record():
            return [net(x).asnumpy() for _ in range(3)]

    expected = run()
    assert any((one != expected[0]).any() for one in expected)
    # Only the layers below: then both ways of drawing meet in one loop.
    net.inner.hybridize()
    np.testing.assert_array_equal(run(), expected)
    for flags in ({}, {"static_alloc": True, "static_shape": True}):
        net.hybridize(**flags)
        np.testing.assert_array_equal(run(), expected)


def test_all_masks_of_hybridized_layers_in_a_loop_on_arrays_differ() -> None:
    inner = nn.HybridSequential()
    inner.add(nn.HybridLambda(lambda F, x: F.Dropout(x, p=0.5) + 3 * F.Dropout(x, p=0.5)))
    inner.hybridize()
    x = mx.nd.ones((20, 64))
    with autograd.train_mode():
        rows = mx.nd.contrib.foreach(lambda e, t: (inner(e), t), x, x[0])[0].asnumpy()
    masks = [part for row in rows for part in (row % 6 > 0, row >= 6)]
    assert len({mask.tobytes() for mask in masks}) == 40


@pytest.mark.parametrize("hybrid", (False, True))
def test_dropout_in_a_body(hybrid: bool) -> None:
    class Noisy(HybridBlock):
        def forward(self, x: Any, s: Any) -> Any:
            return mx.npx.foreach(lambda e, t: (mx.npx.dropout(e, p=0.5), t), x, s)[0]

    net = Noisy()
    if hybrid:
        net.hybridize()
    x, s = mx.np.ones((6, 400)), mx.np.zeros(1)
    x.attach_grad()
    assert (net(x, s) == 1).all()
    runs = []
    for seed in (1, 1, 2):
        mx.random.seed(seed)
        with autograd.record():
            out = net(x, s)
        out.backward()
        runs.append(out.asnumpy())
        assert (x.grad.asnumpy() == runs[-1]).all()  # the same mask backward: 0 or 2
        assert set(np.unique(runs[-1])) == {0.0, 2.0} and 0.4 < (runs[-1] == 0).mean() < 0.6
        rows = {tuple(row) for row in runs[-1]}
        assert len(rows) == 6  # another mask for each step
    assert (runs[0] == runs[1]).all() and (runs[0] != runs[2]).any()


def test_sizes_read_in_a_body_are_guarded() -> None:
    class Sizes(HybridBlock):
        traces = 0

        def forward(self, x: Any, s: Any) -> Any:
            def body(e: Any, t: Any) -> Any:
                Sizes.traces += 1
                y = e.reshape(1, -1)
                return y[0] * y.shape[1], t + sum(range(e.shape[0]))

            return mx.npx.foreach(body, x, s)

    net = Sizes()
    net.hybridize()
    for length, width in ((2, 3), (4, 3), (5, 3), (5, 4), (3, 4), (2, 3)):
        x = np.ones((length, width), "float32")
        outputs, state = net(mx.np.array(x), mx.np.zeros(2))
        assert (outputs.asnumpy() == x * width).all()
        assert state.asnumpy().tolist() == [length * sum(range(width))] * 2
    assert Sizes.traces == 2  # one for each width; the number of steps may be any


def test_what_a_recorded_body_cannot_do() -> None:
    def refused(function: Any, text: str) -> None:
        class Net(HybridBlock):
            def forward(self, x: Any) -> Any:
                return function(x)

        net = Net()
        net.hybridize()
        with pytest.raises(MXNetError) as caught:
            net(mx.np.array(X))
        assert text in str(caught.value)

    def writes(x: Any) -> Any:
        total = x[0] * 1

        def body(e: Any, s: Any) -> Any:
            total[:] = e
            return e, s

        return mx.npx.foreach(body, x, x[0])[0]

    def escapes(x: Any) -> Any:
        kept = []

        def body(e: Any, s: Any) -> Any:
            kept.append(e + 1)
            return e, s

        return mx.npx.foreach(body, x, x[0])[0] + kept[0]

    refused(writes, "writes into an array from outside")
    refused(escapes, "was used outside of it. Return it from the body")


def test_an_operator_with_a_shape_by_values_in_a_body_runs_op_by_op() -> None:
    class Net(HybridBlock):
        def forward(self, x: Any) -> Any:
            return mx.npx.foreach(lambda e, s: (e[e > 0].sum(), s), x, x[0])[0]

    net = Net()
    net.hybridize()
    assert net(mx.np.array(X)).asnumpy() == pytest.approx([row[row > 0].sum() for row in X], rel=1e-5)


# Recurrent networks ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", (rnn.RNNCell, rnn.LSTMCell, rnn.GRUCell))
def test_a_cell_in_foreach_is_the_unrolled_cell(kind: Any) -> None:
    class Loop(HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.cell = kind(4)

        def hybrid_forward(self, F: Any, x: Any, *states: Any) -> Any:
            return F.contrib.foreach(self.cell, x, list(states))

    net = Loop()
    net.initialize(mx.init.Xavier())
    x = mx.nd.array(X)
    states = net.cell.begin_state(2)
    with autograd.record():
        expected, last = net.cell.unroll(5, x, states, layout="TNC", merge_outputs=True)
        loss = (expected**2).sum() + last[0].sum()
    loss.backward()
    gradients = {name: p.grad().asnumpy().copy() for name, p in net.collect_params().items()}
    for hybrid in (False, True):
        net.hybridize(hybrid)
        with autograd.record():
            outputs, final = net(x, *states)
            loss = (outputs**2).sum() + final[0].sum()
        loss.backward()
        np.testing.assert_allclose(outputs.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(final, last, strict=True):
            np.testing.assert_allclose(ours.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-6)
        for name, parameter in net.collect_params().items():
            np.testing.assert_allclose(parameter.grad().asnumpy(), gradients[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hybrid", (False, True))
@pytest.mark.parametrize("layout", ("TNC", "NTC"))
def test_dynamic_unroll(layout: str, hybrid: bool) -> None:
    class Loop(HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.cell = rnn.LSTMCell(3)

        def hybrid_forward(self, F: Any, x: Any, h: Any, c: Any, lengths: Any) -> Any:
            unroll = gluon.contrib.rnn.rnn_cell.dynamic_unroll
            return unroll(self.cell, x, [h, c], layout=layout, valid_length=lengths)

    net = Loop()
    net.initialize(mx.init.One())
    if hybrid:
        net.hybridize()
    x = mx.nd.arange(24).reshape((4, 3, 2)) / 24
    x = x if layout == "TNC" else x.swapaxes(0, 1)
    states = net.cell.begin_state(3)
    outputs, last = net(x, *states, mx.nd.array([1, 4, 2]))
    outputs = outputs if layout == "TNC" else outputs.swapaxes(0, 1)
    # As MXNet 1.9.1 computes it.
    expected = [[0.011, 0.062, 0.124], [0, 0.375, 0.526], [0, 0.813, 0], [0, 0.968, 0]]
    np.testing.assert_allclose(outputs.asnumpy()[..., 0], expected, atol=6e-4)
    np.testing.assert_allclose(last[0].asnumpy()[:, 0], [0.011, 0.968, 0.526], atol=6e-4)


def test_dynamic_unroll_drops_the_same_at_every_step() -> None:
    cell = rnn.RNNCell(200, input_size=2)
    cell.initialize(mx.init.One())
    for layout, shape, axis in (("TNC", (4, 3, 2), 0), ("NTC", (3, 4, 2), 1)):
        with autograd.record():
            outputs, _ = gluon.contrib.rnn.dynamic_unroll(
                cell, mx.nd.ones(shape), cell.begin_state(3), drop_outputs=0.5, layout=layout
            )
        masks = outputs.asnumpy() == 0
        assert (masks == masks.take([0], axis)).all() and 0.4 < masks.mean() < 0.6
    with pytest.raises(ValueError, match=r"takes the layouts TNC and NTC; received 'NCT'"):
        gluon.contrib.rnn.dynamic_unroll(cell, mx.nd.ones((1, 1, 2)), cell.begin_state(1), layout="NCT")


class Beam(HybridBlock):
    """Beam search over a table of transition scores, until all beams have ended with token 0."""

    def __init__(self, table: Any, width: int) -> None:
        super().__init__()
        self.table, self.width = table, width

    def forward(self, start: Any) -> Any:
        np_, width, count = mx.np, self.width, self.table.shape[1]

        def goes_on(step: Any, token: Any, score: Any) -> Any:
            return (token != 0).sum() > 0

        def search(step: Any, token: Any, score: Any) -> Any:
            ended = (token == 0).reshape(-1, 1)
            only_end = np_.array([0.0] + [-1e9] * (count - 1)).reshape(1, -1)
            scores = np_.where(ended, only_end, np_.take(self.table, token.astype("int32"), axis=0))
            total = (scores + score.reshape(-1, 1)).reshape(-1)
            best = mx.npx.topk(total, k=width, ret_typ="indices", dtype="int32")
            parent, following = best // count, best % count
            return [parent, following], [step + 1, following.astype("float32"), np_.take(total, best)]

        first = np_.array([0.0] + [-1e9] * (width - 1))
        tokens = np_.ones(width) * start
        return mx.npx.while_loop(goes_on, search, [start * 0, tokens, first], max_iterations=12)


def beam_reference(table: Any, width: int, start: int) -> Any:
    tokens, scores, steps = [start] * width, [0.0] + [-1e9] * (width - 1), []
    while any(tokens) and len(steps) < 12:
        options = []
        for beam, (token, score) in enumerate(zip(tokens, scores, strict=True)):
            for following in range(table.shape[1]):
                gain = table[token, following] if token else (0.0 if following == 0 else -1e9)
                options.append((score + gain, beam, following))
        options.sort(key=lambda option: -option[0])
        steps.append(options[:width])
        tokens, scores = [o[2] for o in options[:width]], [o[0] for o in options[:width]]
    return steps, scores


@pytest.mark.parametrize("hybrid", (False, True))
def test_beam_search(hybrid: bool) -> None:
    table = np.log(np.random.default_rng(8).dirichlet((6, 1, 1, 1, 1), 5))
    net = Beam(mx.np.array(table), 3)
    if hybrid:
        net.hybridize()
    for start in (1, 3, 4, 2):
        (parents, tokens), (count, last, scores) = net(mx.np.array([float(start)]))
        steps, expected = beam_reference(table, 3, start)
        assert count.item() == len(steps) < 12
        assert tokens.asnumpy()[: len(steps)].tolist() == [[o[2] for o in step] for step in steps]
        assert parents.asnumpy()[: len(steps)].tolist() == [[o[1] for o in step] for step in steps]
        np.testing.assert_allclose(scores.asnumpy(), expected, rtol=1e-4)
        assert not last.asnumpy().any()


class Repeated(HybridBlock):
    """A layer in the body of each loop and branch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Dense(3, in_units=3, activation="relu", flatten=False)

    def forward(self, x: Any) -> Any:
        outputs, last = mx.npx.foreach(lambda e, s: (self.layer(e) + s, self.layer(s)), x, x[0])
        _, (_, again) = mx.npx.while_loop(
            lambda i, s: i < 3, lambda i, s: ([], [i + 1, self.layer(s) + last]), [last.sum() * 0, last], 5
        )
        return mx.npx.cond(last.sum() > 0, lambda: self.layer(again), lambda: -self.layer(again)) + outputs


def test_bodies_in_a_plan_see_every_write_to_their_weights() -> None:
    plain, compiled = Repeated(), Repeated()
    for net in (plain, compiled):
        net.initialize()
    compiled.hybridize()
    x = mx.np.array(X)
    start = mx.np.array(np.linspace(-0.4, 0.6, 9, dtype="float32").reshape(3, 3))
    for change in (lambda w: start, lambda w: w, lambda w: w * 2, lambda w: -w, lambda w: w + 0.1):
        for net in (plain, compiled):
            net.layer.weight.set_data(change(net.layer.weight.data()))
        for _ in range(3):
            np.testing.assert_allclose(compiled(x).asnumpy(), plain(x).asnumpy(), rtol=1e-5, atol=1e-6)
        for net in (plain, compiled):
            net.layer.weight.data()[0] *= 1.5
        np.testing.assert_allclose(compiled(x).asnumpy(), plain(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_bodies_in_a_plan_are_planned() -> None:
    """The layer in a body is not run by the operator that was recorded."""
    from regluon.exec import bodies

    made: list[Any] = []
    original = bodies.PlannedBody._plan

    def noted(self: Any, tensors: Any, training: bool) -> Any:
        made.append(original(self, tensors, training))
        return made[-1]

    net = Repeated()
    net.initialize()
    net.hybridize()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies.PlannedBody, "_plan", noted)
        for _ in range(4):
            net(mx.np.array(X))
    assert len(made) == 4 and None not in made
    assert all(node.op.name != "FullyConnected" for plan in made for node in plan.program.nodes)


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_while_loop_of_no_steps_is_the_same_in_a_graph(hybridize: bool) -> None:
    """1.9.1 gives no outputs, and 2.0 outputs without rows; 2.0 refuses fewer than none."""

    class Loop(HybridBlock):
        def __init__(self, most: int) -> None:
            super().__init__()
            self.most = most

        def forward(self, i: Any) -> Any:
            loop = mx.npx.while_loop if isinstance(i, mx.np.ndarray) else mx.nd.contrib.while_loop
            return loop(lambda i: i < 3, lambda i: (i * 2, [i + 1]), [i], max_iterations=self.most)

    for most in (0, -1):
        net = Loop(most)
        if hybridize:
            net.hybridize()
        outputs, (last,) = net(mx.nd.array([1.0]))
        assert outputs == [] and last.asnumpy().tolist() == [1.0]
    net = Loop(0)
    if hybridize:
        net.hybridize()
    outputs, (last,) = net(mx.np.array([1.0]))
    assert outputs.shape == (0, 1) and last.asnumpy().tolist() == [1.0]
    net = Loop(-1)
    if hybridize:
        net.hybridize()
    with pytest.raises(ValueError, match="max_iterations must be 0 or more; received -1"):
        net(mx.np.array([1.0]))


class Exhausted(HybridBlock):
    def __init__(self, which: str) -> None:
        super().__init__()
        self.which = which
        self.left: list[int] = []

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        def number() -> int:
            return next(iter(self.left))

        if self.which == "foreach":
            return F.contrib.foreach(lambda item, state: (item * number(), state), x, F.zeros((3,)))[0]
        if self.which == "while_loop":
            start = [F.sum(x) * 0]
            return F.contrib.while_loop(
                lambda i: i < 2, lambda i: (i * number(), [i + 1]), start, max_iterations=2
            )[0]
        return F.contrib.cond(F.ones((1,)), lambda: x * number(), lambda: x)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("which", ["foreach", "while_loop", "cond"])
def test_an_iterator_that_is_exhausted_in_a_body_ends_no_loop(which: str, hybrid: bool) -> None:
    net, x = Exhausted(which), mx.nd.ones((2, 3))
    net.hybridize(hybrid)
    for _ in range(2):
        with pytest.raises(StopIteration, match=r"^$"):
            net(x)
    # Nothing of the failed recordings is left.
    net.left = [2]
    for _ in range(2):
        result = net(x)
        result = result[0] if isinstance(result, list) else result
        np.testing.assert_array_equal(
            result.asnumpy(), [[0], [2]] if which == "while_loop" else np.full((2, 3), 2)
        )
