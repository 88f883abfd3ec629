"""Quantized networks: close to float32, on integers when compiled, exclusions, calibration, files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon import autograd, gluon
from regluon.contrib import quantization
from regluon.demo import digits
from regluon.exec import quantized as kernels
from regluon.exec.onednn import interface, region_of
from regluon.exec.plan import Plan
from regluon.gluon import nn
from regluon.passes import skip


def small_network() -> Any:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(8, 3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(3, 2, 1),
        Residual(),
        nn.GlobalAvgPool2D(),
        nn.Flatten(),
        nn.Dense(5),
    )
    net.initialize(mx.init.Xavier())
    net(batch())
    with autograd.record():
        for _ in range(4):
            net(batch()).backward()
    return net


class Residual(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Conv2D(16, 3, strides=2, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        self.body.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm())
        self.side = nn.Conv2D(16, 1, strides=2)
        self.last = nn.Conv2D(16, 1)

    def forward(self, x: Any) -> Any:
        y = mx.nd.relu(self.body(x) + self.side(x))
        return self.last(y)


def batch(seed: int = 0, kind: Any = mx.nd) -> Any:
    return kind.array(np.random.RandomState(seed).uniform(-1, 1, (2, 3, 12, 12)).astype("float32"))


def operators(net: Any, x: Any) -> set[str]:
    """The operators of the plan of a block."""
    net(x)
    cache = net._graph_cache()
    recorded = cache.prepare((x,))
    tensors = [x._t, *(p.data()._t for _, p in recorded.parameters), *(a._t for _, a in recorded.captured)]
    found = set()
    for node in Plan(recorded.program, 1, tensors).program.nodes:
        region = region_of(node)
        found |= {node.op.name} if region is None else {step.kernel for step in region.steps}
    return found


@pytest.mark.parametrize("mode", ["naive", "entropy"])
def test_a_quantized_network_is_close_to_the_real_one(mode: str) -> None:
    net = small_network()
    x = batch()
    quantized = quantization.quantize_net(net, calib_mode=mode, calib_data=[batch(s) for s in range(4)])
    expected = net(x).asnumpy()
    for _ in range(3):
        result = quantized(x).asnumpy()
        assert np.abs(result - expected).max() < 0.08 * np.abs(expected).max() + 0.02
    if "convolution" in kernels.available():
        found = operators(quantized, x)
        assert "onednn_quantized_convolution" in found
        assert not {"Convolution", "convolution", "onednn_convolution", "_contrib_quantize_v2"} & found


def test_integers_give_what_the_real_graph_gives() -> None:
    quantized = quantization.quantize_net(small_network(), calib_mode="naive", calib_data=[batch()])
    first, second, third = (quantized(batch(9)).asnumpy() for _ in range(3))
    np.testing.assert_array_equal(second, third)
    with skip("use_integers"):
        real = quantization.quantize_net(small_network(), calib_mode="naive", calib_data=[batch()])
        real(batch(9))
    # One integer in a few may round to the other side.
    assert np.abs(first - second).max() < 0.02 * np.abs(first).max()


def test_plain_functions_run_where_kernels_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized = quantization.quantize_net(small_network(), calib_mode="naive", calib_data=[batch()])
    with_kernels = [quantized(batch(3)).asnumpy() for _ in range(2)][1]
    monkeypatch.setattr(kernels, "available", lambda: {})
    monkeypatch.setattr(interface, "library", lambda: None)
    quantized.hybridize()
    plain = [quantized(batch(3)).asnumpy() for _ in range(2)][1]
    found = operators(quantized, batch(3))
    assert {"quantized_convolution", "quantized_dense"} <= found
    np.testing.assert_allclose(plain, with_kernels, atol=2e-2 * np.abs(plain).max())


@pytest.fixture(scope="module")
def trained() -> tuple[Any, Any]:
    """A small network on the digits, trained for a moment."""
    data = digits.load()
    mx.random.seed(1)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, strides=2), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.Conv2D(16, 3, strides=2), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.Flatten(), nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 3e-3})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    images, labels = data.train_images[:3000], data.train_labels[:3000]
    for start in range(0, 3000, 100):
        x, y = mx.nd.array(images[start : start + 100]), mx.nd.array(labels[start : start + 100])
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(100)
    return net, data


@pytest.mark.parametrize("mode", ["naive", "entropy"])
@pytest.mark.parametrize("granularity", ["tensor-wise", "channel-wise"])
def test_accuracy_on_digits_within_half_a_point(trained: Any, mode: str, granularity: str) -> None:
    net, data = trained
    loader = [mx.nd.array(data.train_images[:200])]
    quantized = quantization.quantize_net(
        net, quantize_granularity=granularity, calib_mode=mode, calib_data=loader
    )
    x = mx.nd.array(data.test_images)

    def accuracy(block: Any) -> float:
        results = [block(x).asnumpy() for _ in range(2)][1]
        return 100 * float((results.argmax(1) == data.test_labels).mean())

    real = accuracy(net)
    assert real > 85
    assert accuracy(quantized) >= real - 0.5


def test_excluded_by_path_name_and_pattern() -> None:
    net = small_network()
    common = {"calib_mode": "naive", "calib_data": [batch()]}

    def weights(**more: Any) -> set[str]:
        block = quantization.quantize_net(net, **common, **more)
        return {name for name in block.collect_params() if name.endswith("_quantize")}

    everything = weights()
    assert len(everything) == 6
    assert len(weights(exclude_layers=["4.body"])) == 4
    assert len(weights(exclude_layers=["4.body.3", "7"])) == 4
    assert len(weights(exclude_layers_match=[r"^4\.(side|last)$"])) == 4
    assert len(weights(exclude_operators=["FullyConnected"])) == 5
    # "4.b" is the start of a path's text, and no path.
    for wrong in ({"exclude_layers": ["4.b"]}, {"exclude_layers_match": ["^nothing"]}):
        with pytest.raises(ValueError, match=r"matches none .*4\.body\.0"):
            weights(**wrong)
    with pytest.raises(ValueError, match="no operator is called 'Convolutoin'"):
        weights(exclude_operators=["Convolutoin"])


@pytest.mark.parametrize(
    "options, text",
    [
        ({"calib_mode": "bad"}, "unknown calibration mode bad received, expected `none`"),
        ({"quantized_dtype": "int4"}, "unknown quantized_dtype int4 received"),
        ({"quantize_mode": "half"}, "unknown quantize_mode half received"),
        ({"quantize_granularity": "row"}, "unknown quantize_granularity row received"),
        ({"calib_mode": "naive"}, "calib_data must be provided when calib_mode=naive"),
        ({"calib_mode": "custom", "calib_data": [1]}, "needs LayerOutputCollector"),
        ({}, "needs calib_data, or data_shapes"),
        ({"calib_mode": "naive", "calib_data": []}, "calib_data is empty"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        quantization.quantize_net(small_network(), **options)


def test_only_what_can_be_recorded_is_quantized() -> None:
    with pytest.raises(ValueError, match="takes a HybridBlock"):
        quantization.quantize_net(nn.Sequential(), data_shapes=[(1, 3)])


def test_without_calibration_ranges_are_taken_in_each_call() -> None:
    net = small_network()
    quantized = quantization.quantize_net(net, data_shapes=[(2, 3, 12, 12)])
    for factor in (1, 100):
        x = batch() * factor
        expected = net(x).asnumpy()
        assert np.abs(quantized(x).asnumpy() - expected).max() < 0.1 * np.abs(expected).max()


def test_exported_and_saved(tmp_path: Path) -> None:
    quantized = quantization.quantize_net(small_network(), calib_mode="naive", calib_data=[batch()])
    expected = [quantized(batch()).asnumpy() for _ in range(2)][1]
    quantized.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    np.testing.assert_array_equal([loaded(batch()).asnumpy() for _ in range(2)][1], expected)
    stored = mx.nd.load(str(tmp_path / "net-0000.params"))
    assert sum(array.dtype is np.int8 for array in stored.values()) == 6


def test_a_collector_of_ones_own() -> None:
    class Collector(quantization.CalibrationCollector):
        seen: tuple[str, ...] = ()

        def collect(self, name: str, op_name: str, arr: Any) -> None:
            self.seen += (op_name,)
            self.min_max_dict[name] = (-2.0, 2.0)

    collector = Collector()
    quantized = quantization.quantize_net(
        small_network(), calib_mode="custom", calib_data=[batch()], LayerOutputCollector=collector
    )
    ranges = {n.attrs["max_calib_range"] for n in _nodes(quantized) if n.op.name == "_contrib_quantize_v2"}
    assert ranges == {2.0} and "null" in collector.seen
    old = type(
        "Old",
        (),
        {"min_max_dict": {}, "collect": lambda self, name, arr: self.min_max_dict.update({name: (0, 1)})},
    )()
    quantization.quantize_net_v2(
        small_network(), calib_mode="custom", calib_data=[batch()], LayerOutputCollector=old
    )
    assert "data" in old.min_max_dict


def _nodes(block: Any) -> list[Any]:
    from regluon.graph.node import topological

    return [node for node in topological(block._outputs) if node.op is not None]


def test_the_type_follows_the_range(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("quantization test")
    with caplog.at_level(logging.INFO):
        auto = quantization.quantize_net(
            small_network(), calib_mode="naive", calib_data=[batch()], logger=logger
        )
    assert "quantized to int8" in caplog.text
    kinds = [n.attrs["out_type"] for n in _nodes(auto) if n.op.name == "_contrib_quantize_v2"]
    assert set(kinds) == {"int8", "uint8"}
    signed = quantization.quantize_net(
        small_network(), quantized_dtype="int8", calib_mode="naive", calib_data=[batch()]
    )
    assert {n.attrs["out_type"] for n in _nodes(signed) if n.op.name == "_contrib_quantize_v2"} == {"int8"}


def test_arrays_of_the_np_kind_and_data_loaders() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(6, activation="relu"), nn.Dense(3))
    net.initialize()
    data = np.random.RandomState(0).uniform(-1, 1, (8, 4)).astype("float32")
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(mx.np.array(data), mx.np.zeros(8)), 4)
    quantized = quantization.quantize_net(net, calib_mode="naive", calib_data=loader, num_calib_batches=1)
    x = mx.np.array(data)
    result = quantized(x)
    assert type(result) is mx.np.ndarray
    np.testing.assert_allclose(result.asnumpy(), net(x).asnumpy(), atol=5e-3)


def test_a_symbol_with_its_parameters() -> None:
    data = mx.sym.var("data")
    hidden = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=8, name="a"), act_type="relu")
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=3, name="b"), name="softmax")
    rs = np.random.RandomState(0)
    shapes = {"a_weight": (8, 4), "a_bias": (8,), "b_weight": (3, 8), "b_bias": (3,)}
    params = {name: mx.nd.array(rs.uniform(-1, 1, shape)) for name, shape in shapes.items()}
    inputs = rs.uniform(-1, 1, (16, 4)).astype("float32")
    iterator = mx.io.NDArrayIter(inputs, np.zeros(16), 4)
    qsym, qarg, qaux = quantization.quantize_model(
        symbol, params, {}, calib_mode="naive", calib_data=iterator, excluded_sym_names=["b"]
    )
    assert not qaux and qarg["a_weight_quantize"].dtype is np.int8 and "b_weight" in qarg

    def run(sym: Any, args: dict[str, Any]) -> np.ndarray:
        given = {**args, "data": mx.nd.array(inputs), "softmax_label": mx.nd.zeros(16)}
        return sym.bind(mx.cpu(), given, grad_req="null").forward()[0].asnumpy()

    np.testing.assert_allclose(run(qsym, qarg), run(symbol, params), atol=0.02)
    # In two steps: the values come from outside.
    halves = quantization.quantize_graph(symbol, params, {}, calib_mode="naive")
    for name in halves[3].include_layers:
        halves[3].collect(name, "", mx.nd.array([-1.5, 1.5]))
    calibrated = quantization.calib_graph(*halves[:3], halves[3], calib_mode="naive")
    assert '"max_calib_range": "1.5"' in calibrated[0].tojson()


def test_more_data_after_a_quiet_first_batch() -> None:
    from regluon.contrib._calibration import EntropyCollector

    collector = EntropyCollector("int8", num_bins=1001)
    rs = np.random.RandomState(0)
    collector.collect("x", "", mx.nd.array([1e-6, -1e-6]))
    collector.collect("x", "", mx.nd.array(rs.normal(size=100_000)))
    counts, width, low = collector.hist_dict["x"]
    assert counts.sum() == 100_002 and len(counts) % 2 == 1 and low < -3
    assert width * len(counts) / 2 >= 3
    low, high = collector.post_collect()["x"]
    assert 2.5 < high < 5 and low == -high


@pytest.mark.parametrize("mode", ["naive", "entropy"])
def test_nothing_but_zeros_say_nothing_of_a_range(mode: str) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu", in_units=12), nn.Dense(4, in_units=8))
    net.initialize(mx.init.Uniform(0.5))
    zeros, x = mx.nd.zeros((4, 12)), mx.nd.random.normal(shape=(4, 12))
    with pytest.warns(UserWarning, match=r"give data, \S+ nothing but zeros.*in each call") as told:
        quantized = quantization.quantize_net(net, calib_mode=mode, calib_data=[zeros])
    assert told[0].filename == __file__
    expected = net(x).asnumpy()
    check_all_calls(quantized, x)
    np.testing.assert_allclose(quantized(x).asnumpy(), expected, atol=0.05 * np.abs(expected).max())


def check_all_calls(net: Any, x: Any) -> None:
    """The calls of a hybridized block give what it gives operator by operator."""
    net.hybridize(False)
    expected = net(x).asnumpy()
    assert np.isfinite(expected).all()
    for flags in ({}, {"static_shape": True}):
        net.hybridize(**flags)
        for _ in range(3):
            np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_all_calls_agree_on_values_that_are_no_number(low: float) -> None:
    """Integers hold no NaN: it becomes the lowest value, at the first call and at later ones."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=3), nn.Flatten(), nn.Dense(4, in_units=400))
    net.initialize(mx.init.Uniform(0.5))
    typical = mx.nd.random.uniform(low, 1, (2, 3, 12, 12))
    quantized = quantization.quantize_net(net, calib_mode="naive", calib_data=[typical])
    x = typical.copy()
    x[0, :, 3:5] = float("nan")
    check_all_calls(quantized, x)


@pytest.mark.parametrize("end", [0.0, 1e-42, 1e-300])
def test_ranges_of_zeros_in_files(end: float) -> None:
    """As MXNet writes them for a value that was zero in all data: then it is zero in all calls."""
    data, weight = mx.sym.var("data"), mx.sym.var("weight")
    parts = mx.sym.contrib.quantize_v2(data, out_type="int8", min_calib_range=-end, max_calib_range=end)
    layer = mx.sym.FullyConnected(mx.sym.contrib.dequantize(*parts), weight, no_bias=True, num_hidden=3)
    net = gluon.SymbolBlock(layer, [data])
    net.initialize(mx.init.Uniform(0.5))
    x = mx.nd.random.normal(shape=(2, 6))
    check_all_calls(net, x)
    np.testing.assert_allclose(net(x).asnumpy(), 0, atol=1e-40)


def test_calibration_by_entropy_with_very_small_values() -> None:
    def threshold(*batches: np.ndarray) -> float:
        collector = quantization.EntropyCollector()
        for each in batches:
            collector.collect("value", "relu", mx.nd.array(each.astype("float32")))
        return collector.post_collect()["value"][1]

    values = np.random.RandomState(0).normal(0, 1e-6, 4000)
    assert threshold(values * 1e-36) == 0
    # A batch of zeros has no say in how wide bins are.
    assert 2e-6 < threshold(np.zeros(100), values) < 1e-5


def test_sums_beyond_the_integers_of_float32_are_exact() -> None:
    terms = 4096
    data = np.full((1, terms), 255, np.uint8)
    weight = np.full((2, terms), 127, np.int8)
    weight[1, ::2] = -127
    weight[1, 0] = -126
    ends = [mx.nd.array([value]) for value in (0, 1, -1, 1)]
    arrays = [mx.nd.array(data, dtype="uint8"), mx.nd.array(weight, dtype="int8")]
    result, _, high = mx.nd.contrib.quantized_fully_connected(*arrays, *ends, num_hidden=2, no_bias=True)
    assert result.asnumpy().tolist() == [[255 * 127 * terms, 255]]
    images = [mx.nd.reshape(value, shape=(0, -1, 1, 1)) for value in arrays]
    total, _, _ = mx.nd.contrib.quantized_conv(*images, *ends, kernel=(1, 1), num_filter=2, no_bias=True)
    assert total.asnumpy().reshape(-1).tolist() == [255 * 127 * terms, 255]
    assert high.asscalar() == pytest.approx((2**31 - 1) / (255 * 127))


@pytest.mark.parametrize("zero", [0, 128])
@pytest.mark.parametrize("kind", [None, "relu", "clip"])
def test_kernels_give_what_the_plain_functions_give(zero: int, kind: Any) -> None:
    if not kernels.available():
        pytest.skip("this torch has no quantized kernels")
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3), Activated(kind), nn.Conv2D(4, 1), nn.Flatten(), nn.Dense(6), Activated(kind))
    net.initialize(mx.init.Xavier(magnitude=8))
    x = batch() + (0 if zero else 1)
    quantized = quantization.quantize_net(net, calib_mode="naive", calib_data=[x])
    expected = net(x).asnumpy()
    result = [quantized(x).asnumpy() for _ in range(2)][1]
    assert np.abs(result - expected).max() < 0.05 * np.abs(expected).max()


class Activated(gluon.HybridBlock):
    def __init__(self, kind: str | None) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any) -> Any:
        if self.kind == "clip":
            return mx.nd.clip(x, 0, 6)
        return mx.nd.relu(x) if self.kind else x


def test_max_pooling_of_integers() -> None:
    from regluon.passes.integers import max_pool

    data = torch.from_numpy(np.random.RandomState(0).randint(0, 256, (2, 3, 11, 9)).astype(np.uint8))
    for kernel, stride, pad in (((3, 3), (2, 2), (1, 1)), ((2, 3), (1, 2), (0, 1)), ((5, 1), (3, 1), (2, 0))):
        expected = torch.max_pool2d(data.float(), kernel, stride, pad)
        result = max_pool(data, kernel=kernel, stride=stride, pad=pad)
        assert torch.equal(result.float(), expected)


def test_branches_stay_on_integers() -> None:
    class Branches(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2D(4, 1), nn.Conv2D(4, 3, padding=1)
            self.last = nn.Conv2D(3, 1)

        def forward(self, x: Any) -> Any:
            joined = mx.nd.concat(mx.nd.relu(self.first(x)), mx.nd.relu(self.second(x)), dim=1)
            return self.last(joined)

    net = Branches()
    net.initialize(mx.init.Xavier())
    quantized = quantization.quantize_net(net, calib_mode="naive", calib_data=[batch()])
    expected = net(batch()).asnumpy()
    result = [quantized(batch()).asnumpy() for _ in range(2)][1]
    assert np.abs(result - expected).max() < 0.03 * np.abs(expected).max()
    found = operators(quantized, batch())
    assert found & {"quantized_concatenate", "onednn_concat"} and "_contrib_quantize_v2" not in found


def test_files_of_the_onednn_backend_are_read() -> None:
    import json

    inner = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "null", "name": "w", "inputs": []},
            {
                "op": "Convolution",
                "name": "c",
                "attrs": {"kernel": "(1, 1)", "no_bias": "True", "num_filter": "2"},
                "inputs": [[0, 0, 0], [1, 0, 0]],
            },
        ],
        "arg_nodes": [0, 1],
        "heads": [[2, 0, 0]],
    }
    names = ["data", "weight", "low", "high"]
    attrs = {"quantized": "true", "min_calib_range": "-2.0", "max_calib_range": "2.0"}
    node = {"op": "_sg_mkldnn_conv", "name": "sg", "attrs": attrs, "subgraphs": [inner]}
    node["inputs"] = [[place, 0, 0] for place in range(4)]
    text = json.dumps(
        {
            "nodes": [*({"op": "null", "name": name, "inputs": []} for name in names), node],
            "arg_nodes": [0, 1, 2, 3],
            "heads": [[4, 0, 0], [4, 2, 0]],
        }
    )
    symbol = mx.sym.load_json(text)
    assert symbol.list_outputs() == ["sg_output", "sg_output_max"]
    # Read again after it was written.
    symbol = mx.sym.load_json(symbol.tojson())
    weight = np.float32([[1.0, 0.0], [0.5, -0.25]]).reshape(2, 2, 1, 1)
    data = np.int8([51, 102]).reshape(1, 2, 1, 1)
    given = {
        "data": mx.nd.array(data, dtype="int8"), "weight": mx.nd.array(weight),
        "low": mx.nd.array([-1.0]), "high": mx.nd.array([1.0]),
    }  # fmt: skip
    integers, high = symbol.bind(mx.cpu(), given, grad_req="null").forward()
    # 51 stands for 0.4 and 102 for 0.8: 0.4 and 0 in steps of 2 / 127.5.
    assert integers.dtype is np.int8 and integers.asnumpy().reshape(-1).tolist() == [25, 0]
    assert high.asscalar() == 2
