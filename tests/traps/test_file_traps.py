"""Names in files, export and import, data loading: lessons 34 to 49 and 55 to 57."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon
from regluon.base.errors import MXNetError
from regluon.gluon import nn

equal = numpy.testing.assert_allclose


def two_layers() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.Dense(2))
    return net


def trained(style: Any) -> tuple[Any, Any, Any]:
    net, x = two_layers(), style.range(2, 3)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(x)
    net[1].running_mean.set_data(style.range(4))
    return net, x, net(x).asnumpy()


def test_a_file_fills_unknown_sizes(style: Any, tmp_path: Path) -> None:
    """Lesson 34: into a net that was not even initialized."""
    net, x, want = trained(style)
    net.save_parameters(tmp_path / "net.params")
    fresh = two_layers()
    fresh.load_parameters(tmp_path / "net.params")
    equal(fresh(x).asnumpy(), want, rtol=1e-5)
    assert fresh[0].weight.shape == (4, 3)


def test_old_files_with_counted_prefixes_load(tmp_path: Path) -> None:
    """Lesson 35: the second instance has other names than the first, which wrote the file."""
    mx.set_api(1)
    nets = []
    for _ in range(2):
        net = nn.HybridSequential()
        with net.name_scope():
            net.add(nn.Dense(2, in_units=3), nn.Dense(1, in_units=2))
        nets.append(net)
    nets[0].initialize(mx.init.Xavier())
    x = mx.nd.ones((1, 3))
    want = nets[0](x).asnumpy()
    nets[0].collect_params().save(str(tmp_path / "full.params"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nets[0].save_params(str(tmp_path / "old.params"))
    for name in ("full.params", "old.params"):
        net = nn.HybridSequential()
        with net.name_scope():
            net.add(nn.Dense(2, in_units=3), nn.Dense(1, in_units=2))
        net.load_parameters(tmp_path / name)
        equal(net(x).asnumpy(), want, rtol=1e-6)


def test_a_missing_name_is_reported_with_its_neighbours(style: Any, tmp_path: Path) -> None:
    """Lesson 35."""
    net, _, _ = trained(style)
    net.save_parameters(tmp_path / "net.params")
    other = nn.HybridSequential()
    other.add(nn.Dense(4), nn.BatchNorm(), nn.Dense(2), nn.Dense(2))
    with pytest.raises(AssertionError, match=r"'3\.weight' is missing in file.*allow_missing"):
        other.load_parameters(tmp_path / "net.params")


def test_exported_files_load_as_parameters(style: Any, tmp_path: Path) -> None:
    """Lesson 36: ``arg:`` and ``aux:`` did not go back."""
    net, x, want = trained(style)
    net.export(tmp_path / "net")
    fresh = two_layers()
    fresh.load_parameters(tmp_path / "net-0000.params")
    equal(fresh(x).asnumpy(), want, rtol=1e-5)


@pytest.mark.parametrize("deduplicate", [False, True])
def test_shared_weights_and_deduplication(style: Any, tmp_path: Path, deduplicate: bool) -> None:
    """Lesson 37: the file lost a name, and a model without the other failed."""

    def shared() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
        net[1].share_parameters(net[0].collect_params())
        return net

    net = shared()
    net.initialize(mx.init.Xavier())
    x = style.range(1, 2)
    net.save_parameters(tmp_path / "net.params", deduplicate=deduplicate)
    fresh = shared()
    fresh.load_parameters(tmp_path / "net.params")
    assert fresh[0].weight is fresh[1].weight
    equal(fresh(x).asnumpy(), net(x).asnumpy(), rtol=1e-6)
    plain = nn.HybridSequential()
    plain.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
    plain.load_parameters(tmp_path / "net.params")
    equal(plain(x).asnumpy(), net(x).asnumpy(), rtol=1e-6)


def test_both_containers_load_in_both_modes(tmp_path: Path) -> None:
    """Lesson 38."""
    net = nn.Dense(2, in_units=3)
    net.initialize()
    want = net(mx.nd.ones((1, 3))).asnumpy()
    for container in (None, "npz"):
        net.save_parameters(tmp_path / "net.params", format=container)
        for module in (mx.nd, mx.np):
            fresh = nn.Dense(2, in_units=3)
            fresh.load_parameters(tmp_path / "net.params")
            equal(fresh(module.ones((1, 3))).asnumpy(), want, rtol=1e-6)


def test_half_precision_files(style: Any, tmp_path: Path) -> None:
    """Lesson 39."""
    net = nn.Dense(2, in_units=3)
    net.initialize(mx.init.Xavier())
    full = net.weight.data().asnumpy()
    net.cast("float16")
    net.save_parameters(tmp_path / "half.params")
    kept, taken, refused = (nn.Dense(2, in_units=3) for _ in range(3))
    kept.load_parameters(tmp_path / "half.params", cast_dtype=True)
    assert kept.weight.data().asnumpy().dtype == numpy.float32
    equal(kept.weight.data().asnumpy(), full, atol=1e-3)
    taken.load_parameters(tmp_path / "half.params", cast_dtype=True, dtype_source="saved")
    assert taken.weight.data().asnumpy().dtype == numpy.float16
    with pytest.raises(ValueError, match="cast_dtype=True"):
        refused.load_parameters(tmp_path / "half.params")


def test_blocks_in_lists_are_warned_about(style: Any) -> None:
    """Lesson 41."""

    def prepare(net: Any) -> None:
        net.layers = [nn.Dense(2), {"more": nn.Dense(2)}]

    net = style.block(lambda self, x: x, lambda net: None)
    prepare(net)
    with pytest.warns(UserWarning, match="unregistered container with Blocks"):
        net.collect_params()


def test_one_block_used_twice_exports_unique_names(style: Any, tmp_path: Path) -> None:
    """Lesson 42."""

    def prepare(net: Any) -> None:
        net.act, net.dense = nn.Activation("relu"), nn.Dense(2, in_units=2)

    net = style.block(lambda self, x: self.act(self.dense(self.act(self.dense(x)))), prepare)
    net.hybridize()
    x = style.array([[1.0, -2.0]])
    want = net(x).asnumpy()
    net.export(tmp_path / "net")
    names = [node["name"] for node in json.loads((tmp_path / "net-symbol.json").read_text())["nodes"]]
    assert len(names) == len(set(names)) == 7
    back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0000.params")
    equal(back(x).asnumpy(), want, rtol=1e-5)
    symbol = mx.sym.load(str(tmp_path / "net-symbol.json"))
    assert all(f"{name}_output" in symbol.get_internals().list_outputs() for name in names if "fwd" in name)


def test_inputs_are_found_without_their_names(style: Any, tmp_path: Path) -> None:
    """Lesson 43."""
    net = style.block(lambda self, a, b: a * 2 + b)
    net.hybridize()
    a, b = style.array([1.0]), style.array([10.0])
    net(a, b)
    net.export(tmp_path / "net")
    files = [path for path in (tmp_path / "net-0000.params",) if path.exists()] or [None]
    back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", None, files[0])
    assert back(a, b).asnumpy().tolist() == [12.0]


def test_labels_are_not_missing_parameters(tmp_path: Path) -> None:
    """Lesson 43: what has no value and looks like an input is said to be one."""
    data, label = mx.sym.var("data"), mx.sym.var("softmax_label")
    out = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=2, name="fc"), label, name="softmax")
    out.save(str(tmp_path / "m-symbol.json"))
    mx.nd.save(
        str(tmp_path / "m.params"), {"arg:fc_weight": mx.nd.ones((2, 3)), "arg:fc_bias": mx.nd.zeros((2,))}
    )
    back = gluon.SymbolBlock.imports(
        tmp_path / "m-symbol.json", ["data", "softmax_label"], tmp_path / "m.params"
    )
    equal(back(mx.nd.ones((1, 3)), mx.nd.zeros((1,))).asnumpy(), [[0.5, 0.5]])
    with pytest.raises(MXNetError, match=r"softmax_label.*name it in input_names"):
        gluon.SymbolBlock.imports(tmp_path / "m-symbol.json", ["data"], tmp_path / "m.params")(
            mx.nd.ones((1, 3))
        )


def test_attributes_of_batch_normalization_are_written(style: Any, tmp_path: Path) -> None:
    """Lesson 45."""
    net = nn.BatchNorm(epsilon=2e-3, axis=2, momentum=0.7, scale=False)
    net.initialize()
    net.hybridize()
    x = style.range(2, 3, 4, 1)
    want = net(x).asnumpy()
    net.export(tmp_path / "bn")
    nodes = json.loads((tmp_path / "bn-symbol.json").read_text())["nodes"]
    (attributes,) = [node["attrs"] for node in nodes if node["op"] != "null"]
    assert float(attributes["eps"]) == 2e-3 and int(attributes["axis"]) == 2
    assert float(attributes["momentum"]) == pytest.approx(0.7) and attributes["fix_gamma"] in ("True", "1")
    back = gluon.SymbolBlock.imports(tmp_path / "bn-symbol.json", ["data"], tmp_path / "bn-0000.params")
    equal(back(x).asnumpy(), want, rtol=1e-5)


def test_an_old_graph_takes_the_defaults_of_its_time() -> None:
    """Lessons 45 and 46: ``param``, two-element inputs, no auxiliary variables, eps of 1e-3."""
    nodes = [
        {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1},
        {"op": "null", "param": {}, "name": "bn_gamma", "inputs": [], "backward_source_id": -1},
        {"op": "null", "param": {}, "name": "bn_beta", "inputs": [], "backward_source_id": -1},
        {
            "op": "BatchNorm",
            "param": {"fix_gamma": "True", "momentum": "0.9"},
            "name": "bn",
            "inputs": [[0, 0], [1, 0], [2, 0]],
            "backward_source_id": -1,
        },
    ]
    symbol = mx.sym.load_json(json.dumps({"nodes": nodes, "arg_nodes": [0, 1, 2], "heads": [[3, 0]]}))
    assert symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    one = mx.nd.ones((1,))
    executor = symbol.bind(
        mx.cpu(),
        {"data": mx.nd.array([[2.0]]), "bn_gamma": one * 7, "bn_beta": one * 0},
        aux_states={"bn_moving_mean": one, "bn_moving_var": one},
    )
    equal(executor.forward()[0].asnumpy(), [[1 / numpy.sqrt(1.001)]], rtol=1e-6)


def test_unknown_operators_of_newer_files_are_named() -> None:
    """Lesson 46."""
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "FutureThing", "name": "f", "inputs": [[0, 0, 0]]},
    ]
    text = json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]]})
    with pytest.raises(MXNetError, match="FutureThing"):
        mx.sym.load_json(text)


def test_an_import_keeps_the_kind_of_arrays(style: Any, tmp_path: Path) -> None:
    """Lesson 20, for files."""
    net, x, want = trained(style)
    net.export(tmp_path / "net", epoch=12)
    back = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0012.params")
    out = back(x)
    assert type(out) is type(x)
    equal(out.asnumpy(), want, rtol=1e-5)


def test_an_unknown_backend_is_refused_with_the_known_ones(style: Any) -> None:
    """Lesson 30: it was printed by C++ and accepted by Python."""
    net, x, _ = trained(style)
    for call in (
        lambda: net.optimize_for(x, backend="no_such_thing"),
        lambda: net.hybridize(backend="no_such_thing"),
    ):
        with pytest.raises(ValueError, match="no_such_thing"):
            call()


class Numbered(gluon.data.Dataset):
    """Samples made of arrays, in worker processes too."""

    def __init__(self, wrong: int = -1) -> None:
        self.wrong = wrong

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if index == self.wrong:
            raise KeyError(f"sample {index} is damaged")
        return mx.nd.full((2,), index), numpy.float32(index)


def test_workers_stop_early_go_on_and_report() -> None:
    """Lesson 55: a broken loop hung, and errors lost their place."""
    loader = gluon.data.DataLoader(Numbered(), batch_size=4, num_workers=1)
    for _ in loader:
        break
    labels = [batch[1].asnumpy() for batch in loader]
    assert numpy.concatenate(labels).tolist() == list(range(12))
    broken = gluon.data.DataLoader(Numbered(wrong=5), batch_size=4, num_workers=1)
    with pytest.raises(Exception, match="sample 5 is damaged"):
        list(broken)


def test_one_seed_reaches_shuffling_and_initializers() -> None:
    """Lesson 56."""

    def draw() -> list[Any]:
        mx.random.seed(3)
        dataset = gluon.data.SimpleDataset(list(range(50)))
        loader = gluon.data.DataLoader(dataset, batch_size=10, shuffle=True)
        order = [int(value) for batch in loader for value in batch.asnumpy()]
        dense = nn.Dense(5, in_units=4)
        dense.initialize(mx.init.Normal())
        return [order, dense.weight.data().asnumpy().tolist()]

    first, second = draw(), draw()
    assert first == second and first[0] != list(range(50)) and sorted(first[0]) == list(range(50))


def test_datasets_and_transforms_can_be_sent_to_other_processes() -> None:
    """Lesson 57: no lambda and no weak reference inside."""
    from regluon.gluon.data.vision import transforms

    pipeline = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])
    dataset = gluon.data.ArrayDataset(numpy.zeros((2, 4, 4, 3), "uint8"), numpy.arange(2))
    moved = pickle.loads(pickle.dumps(dataset.transform_first(pipeline)))
    assert moved[1][0].shape == (3, 4, 4) and float(moved[1][0].asnumpy().max()) == -1.0
