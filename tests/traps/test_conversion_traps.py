"""RNN layers, mixed precision, int8 and ONNX, where conversions went wrong: lessons 31, 48, 49 and 65."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import amp, autograd, gluon
from regluon.contrib import quantization
from regluon.gluon import nn, rnn

equal = numpy.testing.assert_allclose

LAYERS = [rnn.RNN, rnn.GRU, rnn.LSTM]


def lstm_in_numpy(x: numpy.ndarray, values: list[numpy.ndarray]) -> numpy.ndarray:
    """One LSTM layer over (time, batch, channel) with gates in the order input, forget, cell, output."""
    if len(values) == 1:  # Gluon 2.0 keeps one vector: both matrices, then both biases.
        channels = x.shape[2]
        units = next(n for n in range(1, 99) if 4 * n * (channels + n + 2) == values[0].size)
        ends = numpy.cumsum([4 * units * channels, 4 * units * units, 4 * units])
        values = numpy.split(values[0], ends)
        values = [part.reshape(4 * units, -1) for part in values[:2]] + values[2:]
    into, across, bias, more = values
    hidden = cell = numpy.zeros((x.shape[1], across.shape[1]))
    outputs = []
    for step in x:
        gates = numpy.split(step @ into.T + bias + hidden @ across.T + more, 4, axis=1)
        entry, forget, out = (1 / (1 + numpy.exp(-gates[place])) for place in (0, 1, 3))
        cell = forget * cell + entry * numpy.tanh(gates[2])
        hidden = out * numpy.tanh(cell)
        outputs.append(hidden)
    return numpy.stack(outputs)


@pytest.mark.parametrize("hybridized", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_first_call_of_a_recurrent_layer_takes_lengths(style: Any, layer: Any, hybridized: bool) -> None:
    """Lesson 31: sequence_length and states take part in the inference of unknown shapes."""
    net = layer(4, use_sequence_length=True)
    net.initialize()
    net.hybridize(hybridized)
    x = style.array(numpy.random.RandomState(0).rand(5, 3, 2))
    lengths = style.array([5, 2, 3])
    out, states = net(x, net.begin_state(3), sequence_length=lengths)
    result = out.asnumpy()
    assert result.shape == (5, 3, 4) and not result[2:, 1].any() and not result[3:, 2].any()
    for sample, length in enumerate((5, 2, 3)):
        equal(states[0].asnumpy()[0, sample], result[length - 1, sample], rtol=1e-5)
    alone, _ = net(x[:2], net.begin_state(3), sequence_length=style.array([2, 2, 2]))
    equal(alone.asnumpy()[:, 1], result[:2, 1], rtol=1e-5)
    short = net(x, sequence_length=lengths)
    equal((short[0] if isinstance(short, (list, tuple)) else short).asnumpy(), result, rtol=1e-5)


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_recurrent_layer_takes_any_batch(style: Any, tmp_path: Path, hybridized: bool) -> None:
    """Lesson 31: the states that a layer begins with have the size of each batch, in a file too."""
    net = rnn.LSTM(3)
    net.initialize(mx.init.Xavier())
    net.hybridize(hybridized)
    random = numpy.random.RandomState(1)
    values: list[numpy.ndarray] = []
    for length, batch in ((4, 2), (4, 5), (2, 1), (6, 2)):
        x = random.rand(length, batch, 2).astype("float32")
        found = net(style.array(x)).asnumpy()
        values = values or [p.data().asnumpy().astype("float64") for p in net.collect_params().values()]
        equal(found, lstm_in_numpy(x, values), rtol=1e-4, atol=1e-6)
        given, states = net(style.array(x), net.begin_state(batch_size=batch))
        equal(given.asnumpy(), found, rtol=1e-5)
        assert [state.shape for state in states] == [(1, batch, 3)] * 2
    if hybridized:
        net(style.array(random.rand(4, 2, 2)))
        net.export(tmp_path / "net")
        back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0000.params")
        x = random.rand(5, 7, 2).astype("float32")
        equal(back(style.array(x)).asnumpy(), lstm_in_numpy(x, values), rtol=1e-4, atol=1e-6)


def _classifier() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=4, activation="relu"), nn.BatchNorm(in_channels=8), nn.Dense(3, in_units=8))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_a_network_in_low_precision_works_without_a_gpu(style: Any, low: str, tmp_path: Path) -> None:
    """Lesson 48: near the float32 result; the file has float32 parameters and no casts, and can be read."""
    net = _classifier()
    x = style.array(numpy.random.RandomState(0).rand(5, 4))
    expected = net(x).asnumpy()
    converted = amp.convert_hybrid_block(net, target_dtype=low)
    equal(converted(x).astype("float32").asnumpy(), expected, atol=0.05)
    assert abs(converted(x).astype("float32").asnumpy() - expected).max() > 0, "low precision rounds"
    converted.export(tmp_path / "net")
    nodes = json.loads((tmp_path / "net-symbol.json").read_text())["nodes"]
    assert not [node["op"] for node in nodes if "amp" in node["op"]]
    back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0000.params")
    assert {str(numpy.dtype(p.data().dtype)) for p in back.collect_params().values()} == {"float32"}
    equal(back(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_statistics_and_losses_stay_in_full_precision(style: Any) -> None:
    """Lesson 48: a mean of large values does not overflow, though float16 ends at 65504."""
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(in_channels=2))
    net.initialize()
    net.hybridize()
    x = style.array([[60000.0, 1.0], [30000.0, 3.0]])
    net(x)
    converted = amp.convert_hybrid_block(net, target_dtype="float16")
    assert numpy.isfinite(converted(x).astype("float32").asnumpy()).all()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    scores = style.array([[20.0, 0.0]])
    equal(loss(scores, style.array([1.0])).asnumpy(), [20.0], rtol=1e-4)


def test_layers_are_kept_out_of_int8_by_their_path(style: Any) -> None:
    """Lesson 49: a path of the user's network, whatever fusion calls it; a path that is none is an error."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=3), nn.BatchNorm(in_channels=4), nn.Activation("relu"))
    net.add(nn.Conv2D(4, 3, in_channels=4, activation="relu"), nn.Flatten(), nn.Dense(2, in_units=64))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = style.array(numpy.random.RandomState(0).rand(4, 3, 8, 8))
    expected = net(x).asnumpy()
    options = {"calib_mode": "naive", "calib_data": [x]}

    def in_int8(**more: Any) -> int:
        block = quantization.quantize_net(net, **options, **more)
        equal(block(x).asnumpy(), expected, atol=0.1 * abs(expected).max())
        return sum(name.endswith("_quantize") for name in block.collect_params())

    assert in_int8() == 3
    # The first layer is fused with the normalisation and activation after it.
    assert in_int8(exclude_layers=["0"]) == 2
    assert in_int8(exclude_layers=["0", "5"]) == 1
    with pytest.raises(ValueError, match=r"matches none"):
        in_int8(exclude_layers=["conv0_fwd_of_another_network"])


def test_int8_scores_are_not_all_the_same(style: Any) -> None:
    """Lesson 49: after conversion the classes differ from image to image as they did before."""
    net = _classifier()
    x = style.array(numpy.random.RandomState(3).randn(64, 4))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    labels = style.array(x.asnumpy()[:, :3].argmax(1))
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(40):
        with autograd.record():
            loss = criterion(net(x), labels)
        loss.backward()
        trainer.step(64)
    quantized = quantization.quantize_net(net, calib_mode="naive", calib_data=[x])
    right = (quantized(x).asnumpy().argmax(1) == labels.asnumpy()).mean()
    assert right > 0.85


# ONNX --------------------------------------------------------------------------


@pytest.fixture
def onnx() -> Any:
    return pytest.importorskip("onnx", reason="onnx is not installed here: pip install 'regluon[onnx]'")


@pytest.fixture
def runtime(onnx: Any) -> Any:
    found = pytest.importorskip(
        "onnxruntime", reason="ONNX Runtime is not installed here: pip install 'regluon[onnxruntime]'"
    )
    found.set_default_logger_severity(4)
    return found


def _in_onnxruntime(runtime: Any, path: Path, arrays: dict[str, Any]) -> list[numpy.ndarray]:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == list(arrays)
    return session.run(None, {name: array.asnumpy() for name, array in arrays.items()})


# What the threads behind lesson 65 could not convert.
PIECES = {
    "adaptive pooling": lambda F, x: F.contrib.AdaptiveAvgPooling2D(x, output_size=(2, 3)),
    "global pooling": lambda F, x: F.contrib.AdaptiveAvgPooling2D(x),
    "upsampling": lambda F, x: F.UpSampling(x, scale=2, sample_type="nearest"),
    "split of an axis": lambda F, x: F.reshape(x, shape=(0, -4, 2, -1, 0, 0)),
    "best values": lambda F, x: F.topk(F.flatten(x), k=3, ret_typ="value"),
    "slice like": lambda F, x: F.slice_like(x, F.slice_axis(x, axis=2, begin=0, end=2), axes=(2,)),
}


@pytest.mark.parametrize("name", list(PIECES))
def test_operators_that_could_not_leave(runtime: Any, name: str, tmp_path: Path) -> None:
    """Lesson 65: written, and the same numbers in another engine."""
    x = mx.nd.array(numpy.random.RandomState(0).rand(2, 4, 5, 4))
    expected = PIECES[name](mx.nd, x).asnumpy()
    path = tmp_path / "piece.onnx"
    mx.onnx.export_model(PIECES[name](mx.sym, mx.sym.var("data")), {}, [x.shape], onnx_file_path=path)
    (found,) = _in_onnxruntime(runtime, path, {"data": x})
    equal(found, expected, rtol=1e-5, atol=1e-6)


def test_an_exported_network_leaves_with_its_inputs_in_order(
    runtime: Any, tmp_path: Path, style: Any
) -> None:
    """Lesson 65: two inputs, the second used first, any batch, BatchNorm with moved statistics."""

    def prepare(net: Any) -> None:
        net.layer, net.norm = nn.Dense(3), nn.BatchNorm()

    net = style.block(lambda self, first, second: self.norm(self.layer(second)) - first, prepare)
    net.hybridize()
    first, second = style.array(numpy.ones((2, 3))), style.range(2, 5)
    with autograd.record():
        loss = net(first, second).sum()
    loss.backward()
    net(first, second)
    net.export(tmp_path / "net")
    path = tmp_path / "net.onnx"
    symbol = mx.sym.load(str(tmp_path / "net-symbol.json"))
    order = [name for name in symbol.list_inputs() if name.startswith("data")]
    shapes = {"data0": (2, 3), "data1": (2, 5)}
    files = str(tmp_path / "net-symbol.json"), str(tmp_path / "net-0000.params")
    mx.onnx.export_model(*files, [shapes[name] for name in order], onnx_file_path=path, dynamic=True)
    for batch in (2, 7):
        arrays = {"data0": style.range(batch, 3), "data1": style.range(batch, 5) / 10}
        expected = net(arrays["data0"], arrays["data1"]).asnumpy()
        (found,) = _in_onnxruntime(runtime, path, {name: arrays[name] for name in order})
        equal(found, expected, rtol=1e-4, atol=1e-5)


def test_all_that_cannot_leave_is_named_before_anything_is_written(onnx: Any, tmp_path: Path) -> None:
    """Lesson 65: every operator without a counterpart in one message."""
    x = mx.sym.var("data")
    symbol = mx.sym.khatri_rao(mx.sym.linalg.potrf(x, name="root"), mx.sym.linalg.inverse(x))
    path = tmp_path / "none.onnx"
    with pytest.raises(mx.MXNetError) as caught:
        mx.onnx.export_model(symbol, {}, [(2, 2)], onnx_file_path=path)
    for name in ("_linalg_potrf", "khatri_rao", "_linalg_inverse", "root"):
        assert name in str(caught.value)
    assert not path.exists()
