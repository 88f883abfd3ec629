"""Recurrent layers and cells: what the originals print and compute (make/rnn_cases.py), and more."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon.gluon import contrib, rnn
from regluon.gluon.scope import reset_counters

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "gluon_rnn.json").read_text())
VALUES = dict(numpy.load(GOLDEN / "gluon_rnn.npz"))
VERSIONS = {"1.9.1": 1, "2.0.0beta1": 2}
KINDS = {"lstm": rnn.LSTM, "gru": rnn.GRU, "rnn": rnn.RNN}


def wave(shape: Any, phase: float) -> numpy.ndarray:
    """The same values as in the script that made the goldens."""
    size = int(numpy.prod(shape))
    return numpy.sin(2.3 * numpy.arange(size) + 1.7 * phase).astype("float32").reshape(shape)


def stack(container: Any, *cells: Any) -> Any:
    container.add(*cells)
    return container


def fill(style: Any, block: Any) -> None:
    block.initialize(force_reinit=True)
    for phase, parameter in enumerate(block.collect_params().values()):
        parameter.set_data(style.array(wave(parameter.shape, phase)))


def flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [leaf for value in values for leaf in flat(value)]
    return [values]


class Versioned:
    """The style of one original."""

    def __init__(self, version: str) -> None:
        self.level = VERSIONS[version]

    def array(self, values: Any, dtype: str = "float32") -> Any:
        module = mx.nd if self.level == 1 else mx.np
        return module.array(values, dtype=dtype)


def caller(style: Any, block: Any, case: dict[str, Any]) -> Any:
    if case["kind"] == "cell":
        valid = style.array([2, 4]) if case["lengths"] else None
        layout = case["layout"]
        return lambda x: block.unroll(5, x, layout=layout, merge_outputs=True, valid_length=valid)
    state = [style.array(wave(info["shape"], 3 + i)) for i, info in enumerate(block.state_info(2))]
    return lambda x: block(x, state)


ALL = [
    pytest.param(version, place, id=f"{version}-{case['expression']}")
    for version in VERSIONS
    for place, case in enumerate(CASES[version])
]


@pytest.mark.parametrize("version, place", ALL)
@pytest.mark.parametrize("hybrid", [False, True], ids=["eager", "hybrid"])
def test_original(version: str, place: int, hybrid: bool) -> None:
    mx.set_api(VERSIONS[version])
    reset_counters()
    style, case = Versioned(version), CASES[version][place]
    block = eval(case["expression"], {"rnn": rnn, "contrib": contrib.rnn, "stack": stack})
    x = style.array(wave(case["shape"], 9))
    if case["kind"] == "layer":
        block.initialize()
        block(x)
    elif not hybrid:
        assert repr(block) == case["repr"]
    assert [list(info["shape"]) for info in block.state_info(2)] == case["state_info"]
    shapes = [list(parameter.shape) for parameter in block.collect_params().values()]
    assert shapes == [shape for _, shape in case["parameters"]]
    names = [re.sub(r"\d+_", "_", name, count=1) for name, _ in case["parameters"]]
    assert [re.sub(r"\d+_", "_", name, count=1) for name in block.collect_params()] == names
    fill(style, block)
    if hybrid:
        block.hybridize()
    call = caller(style, block, case)
    x.attach_grad()
    with mx.autograd.record(train_mode=False):
        outputs = flat(call(x))
        total = sum((value * value).sum() for value in outputs)
    total.backward()
    assert len(outputs) == case["outputs"]
    for number, output in enumerate(outputs):
        wanted = VALUES[f"{version}/{place}/{number}"]
        numpy.testing.assert_allclose(output.asnumpy(), wanted, rtol=1e-4, atol=2e-5)
    wanted = VALUES[f"{version}/{place}/gradient"]
    numpy.testing.assert_allclose(x.grad.asnumpy(), wanted, rtol=1e-3, atol=1e-4)


def saved_layer() -> Any:
    return rnn.LSTM(3, 2, bidirectional=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_both_originals(style: Any, version: str, tmp_path: Path) -> None:
    layer = saved_layer()
    layer.load_parameters(GOLDEN / f"gluon_rnn-{version}.params")
    x = style.array(wave((5, 2, 4), 9))
    wanted = VALUES[f"{version}/saved"]
    numpy.testing.assert_allclose(layer(x).asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    layer.save_parameters(tmp_path / "p")
    own = "1.9.1" if style.level == 1 else "2.0.0beta1"
    original = mx.nd.load(str(GOLDEN / f"gluon_rnn-{own}.params"))
    written = mx.nd.load(str(tmp_path / "p"))
    assert set(written) == set(original)
    assert {name: value.shape for name, value in written.items()} == {
        name: value.shape for name, value in original.items()
    }


def test_file_of_a_stack_moves_between_levels(style: Any, tmp_path: Path) -> None:
    def build() -> Any:
        net = mx.gluon.nn.Sequential()
        net.add(rnn.GRU(3), rnn.LSTM(4, projection_size=2, bidirectional=True))
        return net

    first, x = build(), style.array(wave((4, 2, 3), 1))
    first.initialize()
    wanted = first(x).asnumpy()
    first.save_parameters(tmp_path / "p")
    mx.set_api(3 - style.level)
    second = build()
    second.load_parameters(tmp_path / "p")
    numpy.testing.assert_allclose(second(x).asnumpy(), wanted, rtol=1e-6)


def test_export_of_1_x_is_read_at_both_levels(tmp_path: Path) -> None:
    mx.set_api(1)
    layer, x = rnn.LSTM(3, prefix="encoder_"), mx.nd.array(wave((4, 2, 3), 1))
    layer.initialize()
    layer.hybridize()
    wanted = layer(x).asnumpy()
    layer.export(str(tmp_path / "m"))
    for level in (1, 2):
        mx.set_api(level)
        twin = rnn.LSTM(3)
        twin.load_parameters(tmp_path / "m-0000.params")
        numpy.testing.assert_allclose(twin(x).asnumpy(), wanted, rtol=1e-6)


def test_vector_of_another_layer_is_refused(tmp_path: Path) -> None:
    mx.set_api(1)
    mx.nd.save(str(tmp_path / "p"), {"rnn_param": mx.nd.ones((31,))})
    with pytest.raises(ValueError, match="vector of 31 parameters"):
        rnn.LSTM(3).load_parameters(tmp_path / "p")


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("mode", KINDS)
def test_one_export_serves_every_batch(style: Any, mode: str, hybrid: bool, tmp_path: Path) -> None:
    layer = KINDS[mode](4, 2, layout="NTC", bidirectional=True)
    layer.initialize()
    if hybrid:
        layer.hybridize()
    x = style.array(wave((3, 5, 2), 0))
    full = layer(x)
    for rows in (1, 2):
        style.assert_same(layer(x[:rows]), full[:rows])
    if hybrid:
        layer.export(str(tmp_path / "m"))
        files = str(tmp_path / "m-symbol.json"), ["data"], str(tmp_path / "m-0000.params")
        imported = mx.gluon.SymbolBlock.imports(*files)
        style.assert_same(imported(x[:2]), full[:2])


def test_given_states_and_their_gradients(style: Any) -> None:
    layer = rnn.LSTM(4, 2)
    layer.initialize()
    x = style.array(wave((5, 2, 3), 0))
    states = [style.array(wave((2, 2, 4), phase)) for phase in (1, 2)]
    eager = style.gradients(lambda *a: flat(layer(a[0], list(a[1:]))), [x, *states])
    layer.hybridize()
    hybrid = style.gradients(lambda *a: flat(layer(a[0], list(a[1:]))), [x, *states])
    style.assert_same(eager, hybrid)
    assert all(float(abs(gradient.asnumpy()).sum()) > 0 for gradient in eager)
    style.assert_same(layer(x, layer.begin_state(batch_size=2))[0], layer(x))


def test_lone_state_and_wrong_states(style: Any) -> None:
    layer = rnn.GRU(4)
    layer.initialize()
    x = style.array(wave((5, 2, 3), 0))
    out, states = layer(x, layer.begin_state(2)[0])
    assert out.shape == (5, 2, 4) and isinstance(states, list)
    with pytest.raises(ValueError, match=r"Expecting \(1, 2, 4\), got \(1, 3, 4\)"):
        layer(x, layer.begin_state(3))
    with pytest.raises(ValueError, match=r"takes 1 state\(s\); received 2"):
        layer(x, layer.begin_state(2) * 2)


def test_layer_equals_torch(style: Any) -> None:
    layer, theirs = (
        rnn.LSTM(4, 2, bidirectional=True, input_size=3),
        torch.nn.LSTM(3, 4, 2, bidirectional=True),
    )
    parts = list(theirs.named_parameters())
    weights = [p for name, p in parts if "weight" in name] + [p for name, p in parts if "bias" in name]
    vector = torch.cat([p.detach().reshape(-1) for p in weights]).numpy()
    mx.set_api(2)
    layer = rnn.LSTM(4, 2, bidirectional=True, input_size=3)
    layer.initialize()
    layer.rnn_param.set_data(style.array(vector))
    x = wave((5, 2, 3), 0)
    wanted = theirs(torch.from_numpy(x))[0].detach().numpy()
    numpy.testing.assert_allclose(layer(style.array(x)).asnumpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", KINDS)
def test_lengths_end_sequences(style: Any, mode: str) -> None:
    layer = KINDS[mode](4, 2, bidirectional=True, use_sequence_length=True)
    layer.initialize()
    x, lengths = style.array(wave((5, 3, 2), 0)), [2, 5, 1]
    states = layer.begin_state(3)
    full, after = layer(x, states, style.array(lengths))
    layer.hybridize()
    style.assert_same(layer(x, states, style.array(lengths, "int32")), (full, after))
    style.assert_same(layer(x, sequence_length=style.array(lengths)), full)
    for item, length in enumerate(lengths):
        part, own = x[:length, item : item + 1], style.array([length])
        alone, ended = layer(part, [state[:, item : item + 1] for state in states], own)
        style.assert_same(full[:length, item : item + 1], alone)
        assert not full[length:, item].asnumpy().any()
        style.assert_same([state[:, item : item + 1] for state in after], ended)


def test_lengths_are_asked_for_and_checked(style: Any) -> None:
    x = style.array(wave((5, 2, 3), 0))
    layer, plain = rnn.GRU(4, use_sequence_length=True), rnn.GRU(4)
    layer.initialize()
    plain.initialize()
    with pytest.raises(ValueError, match="sequence_length was not given"):
        layer(x)
    with pytest.raises(ValueError, match="use_sequence_length=True, or leave out"):
        plain(x, None, style.array([1, 2]))
    with pytest.raises(mx.MXNetError, match=r"sequence_length must be in \[0, 5\].*\[1, 6\]"):
        layer(x, sequence_length=style.array([1, 6]))


def test_dropout_between_layers(style: Any) -> None:
    layer = rnn.RNN(200, 2, activation="tanh", dropout=0.4, input_size=3)
    # The second layer copies what the first gives: its own weights are the identity and zeros.
    layer.initialize(mx.init.Uniform(0.5))
    x = style.array(wave((3, 2, 3), 0))
    plain = layer(x)
    style.assert_same(layer(x), plain)
    with mx.autograd.train_mode():
        mx.random.seed(5)
        first = layer(x)
        mx.random.seed(5)
        style.assert_same(layer(x), first)
        other = layer(x)
        layer.hybridize()
        mx.random.seed(5)
        style.assert_same(layer(x), first)
    assert abs(first.asnumpy() - plain.asnumpy()).max() > 1e-2
    assert abs(first.asnumpy() - other.asnumpy()).max() > 1e-2


def test_second_order_gradient(style: Any) -> None:
    layer = rnn.GRU(3, input_size=2)
    layer.initialize(mx.init.Uniform(0.8))
    x = style.array(wave((3, 1, 2), 0), "float32")
    x.attach_grad()

    def slope(values: Any) -> Any:
        with mx.autograd.record():
            total = layer(values).sum()
            return mx.autograd.grad(total, [values], create_graph=True, retain_graph=True)[0]

    with mx.autograd.record():
        total = layer(x).sum()
        gradient = mx.autograd.grad(total, [x], create_graph=True, retain_graph=True)[0]
        norm = (gradient * gradient).sum()
    norm.backward()
    step, found = 1e-2, x.grad.asnumpy()
    for place in range(6):
        moved = []
        for sign in (1, -1):
            values = wave((3, 1, 2), 0)
            values.flat[place] += sign * step
            other = style.array(values)
            other.attach_grad()
            moved.append(float((slope(other).asnumpy() ** 2).sum()))
        assert found.flat[place] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=2e-2, abs=2e-3)


def test_sizes_of_the_input_are_deferred(style: Any) -> None:
    layer = rnn.LSTM(4, 2, projection_size=3)
    layer.initialize(mx.init.Xavier())
    assert repr(layer) == "LSTM(None -> 4, TNC, num_layers=2)"
    layer.infer_shape(style.array(wave((5, 2, 6), 0)))
    assert repr(layer) == "LSTM(6 -> 4, TNC, num_layers=2)"
    assert layer(style.array(wave((5, 2, 6), 0))).shape == (5, 2, 3)
    with pytest.raises(mx.MXNetError, match="RNN: parameters must have shape"):
        layer(style.array(wave((5, 2, 7), 0)))


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="Invalid layout CTN; must be one of"):
        rnn.LSTM(4, layout="CTN")
    with pytest.raises(ValueError, match="activation is 'relu' or 'tanh'; received 'foo'"):
        rnn.RNN(4, activation="foo")
    with pytest.raises(ValueError, match="h2h_kernel"):
        rnn.Conv2DRNNCell((3, 8, 8), 2, 3, 2)
    with pytest.raises(ValueError, match="conv_layout is one of NCW, NWC; received 'CNW'"):
        rnn.Conv1DRNNCell((3, 8), 2, 3, 3, conv_layout="CNW")
    with pytest.raises(ValueError, match="doesn't support zoneout"):
        rnn.ZoneoutCell(rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2)), 0.1)


def test_begin_state_of_other_functions_and_types(style: Any) -> None:
    ones = mx.nd.ones if style.level == 1 else mx.np.ones
    states = rnn.LSTM(3, 2).begin_state(4, func=ones, dtype="float64")
    assert [state.shape for state in states] == [(2, 4, 3)] * 2
    assert float(states[0].asnumpy().min()) == 1 and str(states[0].asnumpy().dtype) == "float64"
    assert rnn.GRUCell(3).begin_state(2, ctx=mx.cpu(1))[0].context == mx.cpu(1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        rnn.GRUCell(3).begin_state(2, colour=1)


def test_cells_of_half_precision_follow_the_input(style: Any) -> None:
    layer, cell = rnn.LSTM(4), rnn.LSTMCell(4)
    x = style.array(wave((2, 3, 5), 0)).astype("bfloat16")
    for block in (layer, cell):
        block.initialize()
        block.cast("bfloat16")
    outputs = [layer(x), cell.unroll(3, x, merge_outputs=True)[0]]
    assert all("bfloat16" in str(out.dtype) for out in outputs)


@pytest.mark.parametrize("merge", [None, True, False])
def test_forms_of_inputs_and_outputs(style: Any, merge: bool | None) -> None:
    cell = rnn.BidirectionalCell(rnn.LSTMCell(4), rnn.RNNCell(2))
    cell.initialize()
    x = style.array(wave((2, 3, 5), 0))
    whole, states = cell.unroll(3, x, merge_outputs=True)
    steps = [x[:, step] for step in range(3)]
    for inputs in (x, steps):
        outputs, after = cell.unroll(3, inputs, merge_outputs=merge)
        assert isinstance(outputs, list) == (not merge)
        if isinstance(outputs, list):
            style.assert_same(outputs, [whole[:, step] for step in range(3)])
        else:
            style.assert_same(outputs, whole)
        style.assert_same(after, states)
    masked, _ = cell.unroll(3, x, merge_outputs=merge, valid_length=style.array([1, 3]))
    assert isinstance(masked, list) == (merge is False)


def test_unroll_checks_the_length(style: Any) -> None:
    cell = rnn.RNNCell(4)
    cell.initialize()
    x = style.array(wave((2, 3, 5), 0))
    with pytest.raises(ValueError, match=r"3 steps along axis 1 \(layout NTC\); received length=4"):
        cell.unroll(4, x)
    with pytest.raises(ValueError, match="inputs has 2 steps; received length=4"):
        cell.unroll(4, [x[:, 0], x[:, 1]])
    with pytest.raises(NotImplementedError, match="Bidirectional cannot be stepped"):
        rnn.BidirectionalCell(cell, rnn.RNNCell(4))(x[:, 0], [])


def test_modified_cells_are_called_through_their_modifier(style: Any) -> None:
    base = rnn.GRUCell(3)
    cell = rnn.ResidualCell(base)
    with pytest.raises(AssertionError, match="After applying modifier cells"):
        base.begin_state(2)
    cell.initialize()
    x = style.array(wave((2, 3), 0))
    output, states = cell(x, cell.begin_state(2))
    numpy.testing.assert_allclose(output.asnumpy(), states[0].asnumpy() + x.asnumpy(), rtol=1e-5)


def test_zoneout_keeps_what_was(style: Any) -> None:
    cell = rnn.ZoneoutCell(rnn.RNNCell(50, input_size=3), 0.5, 0.3)
    cell.initialize(mx.init.Uniform(0.7))
    x = style.array(wave((2, 4, 3), 0))
    with mx.autograd.train_mode():
        outputs, _ = cell.unroll(4, x)
    plain, _ = cell.unroll(4, x)
    values = [output.asnumpy() for output in outputs]
    # The step before the first is zeros; about half of each output is what the one before it was.
    kept = [(new == old).mean() for new, old in zip(values, [0 * values[0], *values], strict=False)]
    assert all(0.3 < share < 0.7 for share in kept)
    assert not any((new.asnumpy() == 0).any() for new in plain)


def test_variational_dropout_draws_once(style: Any) -> None:
    cell = rnn.VariationalDropoutCell(rnn.RNNCell(60, input_size=3), 0.0, 0.0, 0.5)
    cell.initialize(mx.init.Uniform(0.7))
    x = style.array(wave((2, 4, 3), 0))
    with mx.autograd.train_mode():
        outputs, _ = cell.unroll(4, x)
        again, _ = cell.unroll(4, x)
    zeros = [output.asnumpy() == 0 for output in outputs]
    assert 0.2 < zeros[0].mean() < 0.8
    assert all((zero == zeros[0]).all() for zero in zeros)
    assert ((again[0].asnumpy() == 0) != zeros[0]).any()


class Unrolled(mx.gluon.HybridBlock):
    """A cell over a sequence inside a larger block."""

    def __init__(self, cell: Any, length: int = 4) -> None:
        super().__init__()
        self.cell = cell
        self.length = length

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.cell.unroll(self.length, x, merge_outputs=True)[0]


CELLS = {
    "lstm": lambda: rnn.LSTMCell(5),
    "stack": lambda: stack(rnn.HybridSequentialRNNCell(), rnn.GRUCell(5), rnn.ResidualCell(rnn.RNNCell(5))),
    "both": lambda: rnn.BidirectionalCell(rnn.LSTMCell(5), rnn.GRUCell(5)),
    "zoneout": lambda: rnn.ZoneoutCell(rnn.RNNCell(5), 0.3, 0.3),
    "variational": lambda: rnn.VariationalDropoutCell(rnn.RNNCell(5), 0.3, 0.3, 0.3),
}


@pytest.mark.parametrize("name", CELLS)
def test_unrolled_in_a_graph(style: Any, name: str, tmp_path: Path) -> None:
    net = Unrolled(CELLS[name]())
    net.initialize()
    x = style.array(wave((3, 4, 2), 0))
    eager = net(x)
    with mx.autograd.train_mode():
        mx.random.seed(3)
        trained = net(x)
    net.hybridize()
    style.assert_same(net(x), eager)
    style.assert_same(net(x[:2]), eager[:2])
    net.export(str(tmp_path / "m"))
    files = str(tmp_path / "m-symbol.json"), ["data"], str(tmp_path / "m-0000.params")
    style.assert_same(mx.gluon.SymbolBlock.imports(*files)(x[:1]), eager[:1])
    with mx.autograd.train_mode():
        mx.random.seed(3)
        style.assert_same(net(x), trained)


def test_hybridized_cell_in_single_steps(style: Any) -> None:
    cell = stack(rnn.HybridSequentialRNNCell(), rnn.LSTMCell(4), rnn.DropoutCell(0.5), rnn.GRUCell(3))
    cell.initialize()
    x = style.array(wave((2, 4, 3), 0))
    eager = cell.unroll(4, x)
    cell.hybridize()
    style.assert_same(cell.unroll(4, x), eager)
    assert len(cell) == 3 and isinstance(cell[2], rnn.GRUCell)


@pytest.mark.parametrize("name", CELLS)
def test_unrolled_symbols_share_parameters(name: str) -> None:
    mx.set_api(1)
    cell = CELLS[name]()
    outputs, states = cell.unroll(3, mx.sym.var("data"), merge_outputs=True)
    arguments = outputs.list_arguments()
    assert len(arguments) == len(set(arguments)) == 1 + len(cell.collect_params())
    shapes = outputs.infer_shape(data=(2, 3, 5))
    assert shapes[1][0] == (2, 3, 10 if name == "both" else 5)
    assert len(states) == len(cell.state_info())


def test_symbol_of_a_layer_names_its_variables() -> None:
    mx.set_api(1)
    layer = rnn.LSTM(4, input_size=3, prefix="z_")
    out, states = layer(mx.sym.var("data"), [mx.sym.var("h"), mx.sym.var("c")])
    group = mx.sym.Group([out, *states])
    names = ["data", "z_l0_i2h_weight", "z_l0_h2h_weight", "z_l0_i2h_bias", "z_l0_h2h_bias", "h", "c"]
    assert group.list_arguments() == names
    assert group.list_outputs() == ["z_rnn0_output", "z_rnn0_state_output", "z_rnn0_statecell_output"]
    assert group.infer_shape(data=(5, 2, 3))[1] == [(5, 2, 4), (1, 2, 4), (1, 2, 4)]


def test_operator_of_symbols_completes_its_inputs() -> None:
    data = mx.sym.var("data")
    lstm = mx.sym.RNN(
        data, mode="lstm", state_size=4, num_layers=2, bidirectional=True, state_outputs=True, name="r"
    )
    assert lstm.list_arguments() == ["data", "r_parameters", "r_state", "r_state_cell"]
    assert lstm.infer_shape(data=(5, 2, 3)) == (
        [(5, 2, 3), (736,), (4, 2, 4), (4, 2, 4)],
        [(5, 2, 8), (4, 2, 4), (4, 2, 4)],
        [],
    )
    gru = mx.sym.RNN(data, mode="gru", state_size=4, num_layers=2, use_sequence_length=True, name="g")
    assert gru.list_arguments() == ["data", "g_parameters", "g_state", "g_sequence_length"]
    assert gru.infer_shape(data=(5, 2, 3))[0] == [(5, 2, 3), (228,), (2, 2, 4), (2,)]
    lengths = mx.sym.var("lengths")
    given = mx.sym.RNN(
        data,
        sequence_length=lengths,
        mode="gru",
        state_size=4,
        num_layers=1,
        use_sequence_length=True,
        name="g",
    )
    assert given.list_arguments()[-1] == "lengths"


@pytest.mark.parametrize(
    "attributes, words",
    [
        ({"mode": "gru", "projection_size": 2}, "projection_size=2 needs mode='lstm'"),
        (
            {"mode": "rnn_tanh", "lstm_state_clip_min": -1.0, "lstm_state_clip_max": 1.0},
            "clipping needs mode='lstm'",
        ),
        ({"mode": "rnn_tanh", "p": 1.5}, "0 <= p < 1; received 1.5"),
        ({"mode": "rnn_tanh", "state_size": 0}, "state_size must be at least 1"),
        ({"mode": "lstm"}, "takes the inputs data, parameters, state, state_cell"),
        ({"mode": "rnn_tanh", "state_size": 3}, r"parameters must have shape \(21,\)"),
    ],
)
def test_operator_says_what_is_wrong(attributes: dict[str, Any], words: str) -> None:
    given = {"state_size": 2, "num_layers": 1, **attributes}
    with pytest.raises(mx.MXNetError, match=words):
        mx.nd.RNN(mx.nd.ones((3, 1, 2)), mx.nd.ones((12,)), mx.nd.zeros((1, 1, 2)), **given)


def test_clipping_replaces_nan() -> None:
    shape, size = (1, 1, 1), 4 * (1 + 1 + 2)
    states = [mx.nd.zeros(shape), mx.nd.full(shape, float("nan"))]
    settings = {"state_size": 1, "num_layers": 1, "mode": "lstm", "state_outputs": True}
    bounds = {"lstm_state_clip_min": -0.5, "lstm_state_clip_max": 0.5}
    data, parameters = mx.nd.ones(shape), mx.nd.ones((size,))
    kept = mx.nd.RNN(data, parameters, *states, **settings, **bounds)[2]
    replaced = mx.nd.RNN(data, parameters, *states, **settings, **bounds, lstm_state_clip_nan=True)[2]
    assert numpy.isnan(kept.asscalar()) and replaced.asscalar() == -0.5
