"""Networks as ONNX files: every mapped operator and whole networks give our results in ONNX Runtime."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon.base.errors import MXNetError
from regluon.gluon import nn
from regluon.gluon.model_zoo import vision
from regluon.graph.node import Entry, Node
from regluon.onnx.convert import convert
from regluon.onnx.emitter import Unmapped, mapped_operators
from regluon.ops import registry
from regluon.ops.opdef import Spec, run

from ..ops import sample_records

SAMPLES = sample_records.all_samples()
# What ONNX Runtime has no kernels for is written right, and cannot be run here.
NO_KERNEL = "Could not find an implementation"


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


def test_without_the_package_an_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert mx.contrib.onnx is mx.onnx
    with pytest.raises(ImportError, match=r"pip install 'regluon\[onnx\]'"):
        mx.onnx.export_model(mx.sym.var("a") * 2, {}, [(1,)])


def test_the_table_of_mappings_names_operators() -> None:
    names = mapped_operators()
    assert names == mx.onnx.get_operator_support()
    assert {"Convolution", "FullyConnected", "BatchNorm", "softmax", "_npi_add", "RNN"} <= set(names)
    assert not [name for name in names if not registry.exists(name)]


def run_model(runtime: Any, model: Any, inputs: dict[str, numpy.ndarray]) -> list[numpy.ndarray]:
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    used = {value.name for value in session.get_inputs()}
    made: list[numpy.ndarray] = session.run(None, {k: v for k, v in inputs.items() if k in used})
    return made


@pytest.mark.parametrize("name", [name for name in mapped_operators() if name in SAMPLES])
def test_operators_give_our_results(name: str, onnx: Any, runtime: Any) -> None:
    definition, checked, reasons = registry.get(name), 0, []
    for sample in SAMPLES[name]:
        attrs = definition.parse(sample.attrs)
        tensors = [torch.from_numpy(numpy.array(value)) for value in sample.inputs]
        expected = run(definition, [tensor.clone() for tensor in tensors], attrs, False, 1)
        expected = (expected,) if isinstance(expected, torch.Tensor) else tuple(expected)
        variables = [
            Entry(Node(None, f"input{place}", specs=[Spec(tuple(t.shape), t.dtype)]), 0)
            for place, t in enumerate(tensors)
        ]
        specs = [Spec(tuple(t.shape), t.dtype) for t in expected]
        node = Node(definition, "node", variables, attrs, specs=specs)
        outputs = [(Entry(node, place), f"output{place}") for place in range(node.visible)]
        try:
            model = convert("one", [(entry, entry.node.name) for entry in variables], [], outputs)
        except Unmapped as error:
            reasons.append(str(error))
            continue
        onnx.checker.check_model(model)
        given = {f"input{place}": tensor.numpy() for place, tensor in enumerate(tensors)}
        try:
            made = run_model(runtime, model, given)
        except Exception as error:
            assert NO_KERNEL in str(error), error
            continue
        for result, wanted in zip(made, expected, strict=False):
            assert result.dtype == wanted.numpy().dtype
            numpy.testing.assert_allclose(
                result.astype("float64"),
                wanted.double().numpy(),
                rtol=1e-4,
                atol=1e-5,
                err_msg=str(sample.attrs),
            )
        checked += 1
    assert checked or not reasons, reasons


@pytest.mark.parametrize("name", ["resnet18_v1", "resnet18_v2", "mobilenetv2_0.25"])
def test_networks_give_our_results(name: str, runtime: Any, onnx: Any, tmp_path: Path) -> None:
    net = vision.get_model(name, classes=10)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = mx.nd.array(numpy.random.uniform(size=(2, 3, 32, 32)))
    expected = net(x).asnumpy()
    symbol, parameters = net.export(str(tmp_path / "net"))
    path = mx.onnx.export_model(
        symbol, parameters, [(2, 3, 32, 32)], numpy.float32, tmp_path / "net.onnx", dynamic=True
    )
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert (model.opset_import[0].version, model.producer_name) == (17, "regluon")
    (made,) = run_model(runtime, model, {"data": x.asnumpy()})
    numpy.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4 * abs(expected).max())
    # The size of a batch stays open.
    more = mx.nd.array(numpy.random.uniform(size=(3, 3, 32, 32)))
    expected = net(more).asnumpy()
    (made,) = run_model(runtime, model, {"data": more.asnumpy()})
    numpy.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4 * abs(expected).max())


def test_open_sizes_hold_for_any_size(runtime: Any, onnx: Any, tmp_path: Path) -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, strides=2, padding=1), nn.MaxPool2D(3, 2, 1), nn.GlobalAvgPool2D(), nn.Dense(2))
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    net(mx.nd.zeros((2, 3, 16, 16)))
    symbol, parameters = net.export(None)
    path = tmp_path / "open.onnx"
    open_sizes = [("batch", 3, None, None)]
    mx.onnx.export_model(
        symbol, parameters, [(2, 3, 16, 16)], onnx_file_path=path, dynamic_input_shapes=open_sizes
    )
    model = onnx.load(str(path))
    for shape in ((2, 3, 16, 16), (1, 3, 13, 18), (3, 3, 27, 9)):
        x = mx.nd.array(numpy.random.uniform(size=shape))
        (made,) = run_model(runtime, model, {"data": x.asnumpy()})
        numpy.testing.assert_allclose(made, net(x).asnumpy(), rtol=1e-4, atol=1e-5)


def test_what_needs_a_size_that_is_open_is_refused(onnx: Any, tmp_path: Path) -> None:
    data = mx.sym.var("data")
    options = {"onnx_file_path": tmp_path / "none.onnx", "dynamic": True}
    for end in (-1, 2):
        with pytest.raises(MXNetError, match="cuts axis 0, whose size is open"):
            mx.onnx.export_model(mx.sym.slice_axis(data, axis=0, begin=0, end=end), {}, [(2, 3)], **options)
    with pytest.raises(MXNetError, match="repeats as often as a size that is open"):
        mx.onnx.export_model(
            mx.sym.broadcast_like(mx.sym.var("one"), data),
            {},
            [(1, 3), (2, 3)],
            onnx_file_path=tmp_path / "none.onnx",
            dynamic_input_shapes=[(1, 3), (None, 3)],
        )


def small() -> tuple[Any, dict[str, Any]]:
    data = mx.sym.var("data")
    dense = mx.sym.FullyConnected(data, num_hidden=3, name="dense")
    symbol = mx.sym.SoftmaxOutput(dense, name="softmax")
    weight = numpy.arange(12, dtype="float32").reshape(3, 4) / 10
    return symbol, {"arg:dense_weight": mx.nd.array(weight), "arg:dense_bias": mx.nd.array([0.0, 0.5, -0.5])}


def test_symbols_with_a_label_are_written_without_it(runtime: Any, onnx: Any, tmp_path: Path) -> None:
    symbol, parameters = small()
    path = str(tmp_path / "small.onnx")
    assert (
        mx.onnx.export_model(symbol, parameters, [(2, 4)], onnx_file_path=path, run_shape_inference=True)
        == path
    )
    model = onnx.load(path)
    assert [value.name for value in model.graph.input] == ["data"]
    assert [value.name for value in model.graph.output] == ["softmax"]
    assert {tensor.name for tensor in model.graph.initializer} == {"dense_weight", "dense_bias"}
    x = numpy.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    scores = x @ parameters["arg:dense_weight"].asnumpy().T + [0.0, 0.5, -0.5]
    expected = numpy.exp(scores) / numpy.exp(scores).sum(axis=1, keepdims=True)
    (made,) = run_model(runtime, model, {"data": x})
    numpy.testing.assert_allclose(made, expected, rtol=1e-5)


def test_named_sizes_and_large_models(runtime: Any, onnx: Any, tmp_path: Path) -> None:
    symbol, parameters = small()
    path = str(tmp_path / "large.onnx")
    mx.onnx.export_model(
        symbol,
        parameters,
        [(2, 4)],
        numpy.float32,
        path,
        dynamic_input_shapes=[("rows", 4)],
        large_model=True,
    )
    assert (tmp_path / "large.onnx.data").exists()
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["rows", 4]
    assert session.run(None, {"data": numpy.zeros((7, 4), dtype="float32")})[0].shape == (7, 3)


def test_mistakes_are_named(onnx: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    symbol, parameters = small()
    path = tmp_path / "none.onnx"
    with pytest.raises(ValueError, match=r"the inputs data.*in_shapes gives 3 shape"):
        mx.onnx.export_model(symbol, parameters, [(2, 4)] * 3, onnx_file_path=path)
    with pytest.raises(ValueError, match=r"in_types gives 2 type\(s\) for the inputs data"):
        mx.onnx.export_model(symbol, parameters, [(2, 4)], ["float32"] * 2, path)
    with pytest.raises(ValueError, match="dense_bias"):
        mx.onnx.export_model(
            symbol, {"dense_weight": parameters["arg:dense_weight"]}, [(2, 4)], onnx_file_path=path
        )
    with pytest.raises(TypeError, match="params is a dictionary"):
        mx.onnx.export_model(symbol, [3], [(2, 4)], onnx_file_path=path)
    with pytest.raises(MXNetError, match=r"the operator sort \(node order\) has no counterpart in ONNX"):
        mx.onnx.export_model(mx.sym.sort(mx.sym.var("a"), name="order"), {}, [(2, 4)], onnx_file_path=path)
    assert not path.exists() and not list(tmp_path.iterdir())
    mx.onnx.export_model(symbol, parameters, [(2, 4)], onnx_file_path=path, verbose=True)
    assert "inputs data (2, 4)" in capsys.readouterr().out


def test_layers_of_gluon_have_a_counterpart(runtime: Any, onnx: Any, tmp_path: Path) -> None:
    image, rows = (2, 4, 8, 8), (2, 4, 6)
    layers = [
        (nn.Conv2DTranspose(3, 2, strides=2), image),
        (nn.Conv2D(4, 3, groups=2, layout="NCHW"), image),
        (nn.GroupNorm(2), image),
        (nn.InstanceNorm(), image),
        (nn.ReflectionPad2D(1), image),
        (nn.BatchNorm(axis=2), rows),
        (nn.LayerNorm(axis=1), rows),
        (nn.PReLU(), image),
        (nn.SELU(), rows),
        (nn.ELU(0.5), rows),
        (nn.Swish(), rows),
        (nn.AvgPool2D(3, 2, 1, count_include_pad=False, ceil_mode=True), image),
        (nn.MaxPool2D(3, 2, ceil_mode=True), image),
        (nn.GlobalMaxPool2D(), image),
        (nn.Embedding(5, 3), rows),
    ]
    for number, (layer, shape) in enumerate(layers):
        layer.initialize(mx.init.Uniform(1))
        layer.hybridize()
        x = mx.nd.array(numpy.random.uniform(0, 4, shape))
        expected = layer(x).asnumpy()
        symbol, parameters = layer.export(None)
        path = mx.onnx.export_model(symbol, parameters, [shape], onnx_file_path=tmp_path / f"{number}.onnx")
        (made,) = run_model(runtime, onnx.load(path), {"data": x.asnumpy()})
        numpy.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5, err_msg=repr(layer))
