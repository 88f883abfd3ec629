"""Symbolic cells give the outputs, gradients, names and files of 1.9.1."""

from __future__ import annotations

import importlib.util
import json
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest

import regluon as mx

GOLDEN = Path(__file__).parents[1] / "golden"
RECORD = json.loads((GOLDEN / "symbolic_rnn.json").read_text())


def shared() -> ModuleType:
    """The runs, which the original's Python does too."""
    spec = importlib.util.spec_from_file_location("symbolic_runs", Path(__file__).parent / "symbolic_runs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUNS = shared()


def golden(start: str) -> dict[str, Any]:
    with numpy.load(GOLDEN / "symbolic_rnn.npz") as archive:
        return {
            key.removeprefix(f"{start}/"): archive[key]
            for key in archive.files
            if key.startswith(f"{start}/")
        }


def close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        numpy.testing.assert_allclose(found[key], value, rtol=2e-5, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("case", list(RUNS.cases()), ids=lambda case: case[0] + "-" + case[1])
def test_graph_equals_the_original(case: tuple[str, str, bool]) -> None:
    name, layout, merge = case
    label = "-".join((name, layout, "merged" if merge else "steps"))
    record = RECORD["graphs"][label]
    symbol, shapes = RUNS.graph_of(mx, name, layout, merge)
    values = RUNS.values_of(symbol, shapes)
    assert {key: list(value.shape) for key, value in values.items()} == record["arguments"]
    named = [name for name in record["outputs"] if "_t" in name or name.startswith("f_rnn")]
    assert [name for name in symbol.list_outputs() if name in named] == named
    attributes = symbol.attr_dict()
    for variable, wanted in record["attributes"].items():
        if "__init__" in wanted:
            assert attributes[variable]["__init__"] == wanted["__init__"]
    close(RUNS.computed(mx, symbol, values), golden(label))


@pytest.mark.parametrize("label", [label for label in RECORD["graphs"] if "json" in RECORD["graphs"][label]])
def test_graphs_that_the_original_wrote(label: str) -> None:
    # Their begin states are zeros of an unknown batch, which only what comes after them tells.
    record = RECORD["graphs"][label]
    symbol = mx.sym.load_json(record["json"])
    values = {
        name: RUNS.wave(record["arguments"][name], number)
        for number, name in enumerate(sorted(record["arguments"]))
    }
    close(RUNS.computed(mx, symbol, values), golden(label))
    shapes = {name: value.shape for name, value in values.items() if name.startswith("data")}
    found, _, _ = symbol.infer_shape(**shapes)
    assert dict(zip(symbol.list_arguments(), found, strict=True)) == {
        name: tuple(shape) for name, shape in record["arguments"].items()
    }


@pytest.mark.parametrize("label", ["lstm-TNC-merged", "stack-TNC-merged", "fused_lstm-TNC-merged"])
def test_graphs_that_the_original_wrote_as_blocks(label: str) -> None:
    record, wanted = RECORD["graphs"][label], golden(label)
    net = mx.gluon.SymbolBlock(mx.sym.load_json(record["json"]), [mx.sym.var("data")])
    net.initialize()
    # Made for another batch first: the begin states follow the batch of each call.
    assert net(mx.nd.ones((3, 2, 5)))[1].shape[-2:] == (2, 3)
    parameters = net.collect_params()
    for number, name in enumerate(sorted(record["arguments"])):
        value = RUNS.wave(record["arguments"][name], number)
        if name == "data":
            data = mx.nd.array(value)
        else:
            parameters[name].set_data(mx.nd.array(value))
    for _ in range(3):
        for number, array in enumerate(net(data)):
            numpy.testing.assert_allclose(array.asnumpy(), wanted[f"out{number}"], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_batches_equal_the_original(layout: str, caplog: pytest.LogCaptureFixture) -> None:
    wanted = golden(f"batches-{layout}")
    found = RUNS.batches(mx, layout)
    assert len(found) == len(wanted)
    for number, (key, data, label) in enumerate(found):
        numpy.testing.assert_array_equal(numpy.stack([data, label]), wanted[f"{number:03d}-{key}"])
    assert "discarded 9 sentences longer than the largest bucket." in caplog.text


def test_training_on_buckets_equals_the_original() -> None:
    history, parameters = RUNS.trained(mx)
    numpy.testing.assert_allclose(history, RECORD["perplexity"], rtol=1e-4)
    wanted = golden("trained")
    assert parameters.keys() == wanted.keys()
    for name, value in wanted.items():
        numpy.testing.assert_allclose(parameters[name], value, rtol=1e-3, atol=2e-4, err_msg=name)


def test_fused_weights_are_unpacked_as_in_the_original() -> None:
    vector = mx.nd.array(numpy.arange(504))
    cell = RUNS.CELLS["fused_lstm"](mx)
    unpacked = cell.unpack_weights({"f_parameters": vector})
    close({name: value.asnumpy() for name, value in unpacked.items()}, golden("unpacked"))
    numpy.testing.assert_array_equal(cell.pack_weights(unpacked)["f_parameters"].asnumpy(), vector.asnumpy())


def test_a_checkpoint_of_fused_cells_serves_single_ones(tmp_path: Path) -> None:
    fused, single = RUNS.CELLS["fused_lstm"](mx), RUNS.CELLS["unfused_lstm"](mx)
    outputs, _ = fused.unroll(3, mx.sym.var("data"), merge_outputs=True)
    values = RUNS.values_of(outputs, {"data": (4, 3, 5)})
    arrays = {name: mx.nd.array(value) for name, value in values.items()}
    expected = outputs.bind(mx.cpu(), arrays).forward()[0].asnumpy()
    weights = {"f_parameters": arrays["f_parameters"]}
    mx.rnn.do_rnn_checkpoint(fused, tmp_path / "net")(0, outputs, weights, {})
    assert "f_r1_h2h_o_weight" in " ".join(mx.nd.load(str(tmp_path / "net-0001.params")))
    _, arguments, auxiliary = mx.rnn.load_rnn_checkpoint([single], tmp_path / "net", 1)
    assert auxiliary == {} and "f_l0_i2h_weight" in arguments
    outputs, _ = single.unroll(3, mx.sym.var("data"), merge_outputs=True)
    result = outputs.bind(mx.cpu(), {**arguments, "data": arrays["data"]}).forward()[0].asnumpy()
    numpy.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_parameters_begin_with_the_forget_bias() -> None:
    cell = mx.rnn.LSTMCell(2, forget_bias=2.5)
    outputs, _ = cell.unroll(2, mx.sym.var("data"), merge_outputs=True)
    module = mx.mod.Module(outputs, data_names=["data"], label_names=None)
    module.bind([("data", (1, 2, 3))], for_training=False)
    module.init_params(mx.init.Xavier())
    bias = module.get_params()[0]["lstm_i2h_bias"].asnumpy()
    numpy.testing.assert_array_equal(bias, [0, 0, 2.5, 2.5, 0, 0, 0, 0])


def test_a_block_of_an_old_graph_begins_with_the_forget_bias() -> None:
    outputs, _ = mx.rnn.LSTMCell(2, forget_bias=2.5).unroll(2, mx.sym.var("data"), merge_outputs=True)
    net = mx.gluon.SymbolBlock(mx.sym.load_json(outputs.tojson()), [mx.sym.var("data")])
    net.initialize()
    net(mx.nd.ones((1, 2, 3)))
    bias = net.collect_params()["lstm_i2h_bias"].data().asnumpy()
    numpy.testing.assert_array_equal(bias, [0, 0, 2.5, 2.5, 0, 0, 0, 0])


def test_zoneout_keeps_a_share_in_training_only() -> None:
    cell = mx.rnn.ZoneoutCell(mx.rnn.RNNCell(50), zoneout_outputs=0.5, zoneout_states=0.0)
    outputs, _ = cell.unroll(2, mx.sym.var("data"), merge_outputs=True)
    executor = outputs.simple_bind(mx.cpu(), data=(8, 2, 4), grad_req="null")
    for number, array in enumerate(executor.arg_arrays):
        array[:] = RUNS.wave(array.shape, number + 1)
    assert (executor.forward(is_train=False)[0].asnumpy() != 0).all()
    first, second = executor.forward(is_train=True)[0].asnumpy().swapaxes(0, 1)
    # Before the first step all was zero; at the second a share equals the first.
    assert 0.35 < (first == 0).mean() < 0.65
    assert 0.35 < (first == second).mean() < 0.65


def test_states_as_inputs() -> None:
    states = mx.rnn.LSTMCell(3).begin_state(func=mx.sym.var)
    assert [state.name for state in states] == ["lstm_begin_state_0", "lstm_begin_state_1"]
    assert states[0].attr("__shape__") == "(0, 3)" and states[1].attr("__layout__") == "NC"
    cell = mx.rnn.RNNCell(3)
    outputs, _ = cell.unroll(2, mx.sym.var("data"), begin_state=[mx.sym.var("first")], merge_outputs=True)
    assert "first" in outputs.list_arguments()


def test_encoding() -> None:
    sentences = [["a", "b", "c"], ["b", "d"]]
    assert mx.rnn.encode_sentences(sentences) == (
        [[0, 1, 2], [1, 3]],
        {"\n": -1, "a": 0, "b": 1, "c": 2, "d": 3},
    )
    assert mx.rnn.encode_sentences(sentences, invalid_label=1)[0] == [[0, 2, 3], [2, 4]]
    known = {"a": 5, "b": 6, "c": 7}
    encoded, vocabulary = mx.rnn.encode_sentences(sentences, dict(known), unknown_token="<unk>")
    assert encoded == [[5, 6, 7], [6, 0]] and vocabulary == {**known, "<unk>": 0}
    assert mx.rnn.encode_sentences(sentences, dict(known), unknown_token="a")[0] == [[5, 6, 7], [6, 5]]
    with pytest.raises(ValueError, match="Unknown token d: the vocabulary given lacks it"):
        mx.rnn.encode_sentences(sentences, known)


def test_old_unroll_makes_its_inputs() -> None:
    outputs, _ = mx.rnn.rnn_unroll(mx.rnn.RNNCell(2), 2, input_prefix="in_")
    assert [name for name in outputs[1].list_arguments() if "data" in name] == ["in_t1_data", "in_t0_data"]


def modified() -> Any:
    cell = mx.rnn.LSTMCell(3)
    mx.rnn.ResidualCell(cell)
    return cell


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mx.rnn.LSTMCell(3).unroll(2, None), AssertionError, "has been deprecated"),
        (lambda: mx.rnn.LSTMCell(3).unroll(2, [mx.sym.var("a")]), ValueError, "received length=2"),
        (
            lambda: mx.rnn.GRUCell(3).unroll(2, mx.sym.Group([mx.sym.var("a"), mx.sym.var("b")])),
            AssertionError,
            "doesn't allow grouped symbol",
        ),
        (lambda: mx.rnn.FusedRNNCell(3)(mx.sym.var("a"), []), NotImplementedError, "cannot be stepped"),
        (lambda: RUNS.pair(mx)(mx.sym.var("a"), []), NotImplementedError, "cannot be stepped"),
        (lambda: modified().begin_state(), ValueError, "Call the modifier cell instead"),
        (lambda: mx.rnn.ZoneoutCell(mx.rnn.FusedRNNCell(3)), AssertionError, "Please unfuse first"),
        (lambda: mx.rnn.ZoneoutCell(RUNS.pair(mx)), AssertionError, "cells underneath instead"),
        (lambda: mx.rnn.DropoutCell("much"), ValueError, "must be a number; received 'much'"),
        (lambda: mx.rnn.ConvGRUCell((1, 3, 4, 4), 2, h2h_kernel=(2, 2)), ValueError, "odd number"),
        (lambda: mx.rnn.BucketSentenceIter([[1]], 1, layout="NTC"), ValueError, "must be NT"),
        (lambda: mx.rnn.BucketSentenceIter([[1]], 2), ValueError, "of no length there are 2 sentences"),
        (lambda: mx.rnn.BaseRNNCell().state_info, NotImplementedError, "defines no state_info"),
    ],
)
def test_mistakes_are_named(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_cells_of_a_container_share_variables_in_one_way_only() -> None:
    params = mx.rnn.RNNParams("own_")
    cell = mx.rnn.LSTMCell(3)
    # From now on the cell's variables may be somebody else's.
    assert isinstance(cell.params, mx.rnn.RNNParams)
    with pytest.raises(ValueError, match="Either specify params"):
        mx.rnn.SequentialRNNCell(params=params).add(cell)


def test_nothing_is_logged_without_long_sentences(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        mx.rnn.BucketSentenceIter([[1, 2]], 1)
    assert caplog.text == ""
