"""regluon.serial.conversion: formats, names of both generations, symbols."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import regluon as mx
from regluon.base import config
from regluon.base.errors import MXNetError
from regluon.serial import conversion, naming, sources
from regluon.serial.naming import NamingError, Rule

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
EXPORT = GOLDEN / "1.9.1" / "convnet-0001.params"
SYMBOL = GOLDEN / "1.9.1" / "convnet-symbol.json"

NETWORK = """
import regluon as mx


def make():
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2))
        net.add(nn.Flatten(), nn.Dense(8, activation="tanh"), nn.Dropout(0.5), nn.Dense(3))
    return net
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module ``convnet_for_names``, at the first API level."""
    (tmp_path / "convnet_for_names.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    level = config.api_level()
    config.set_api(1)
    yield "convnet_for_names:make"
    config.set_api(level)
    sys.modules.pop("convnet_for_names", None)


def names_in(path: Path) -> list[str]:
    return list(mx.nd.load(str(path)))


@pytest.mark.parametrize("chain", [["npz"], ["safetensors"], ["safetensors", "npz", "params", "safetensors"]])
def test_formats_keep_every_number(chain: list[str], tmp_path: Path) -> None:
    source = tmp_path / "start.params"
    kinds = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "uint16"]
    data = {kind: mx.nd.array([[0, 1, 2]], dtype=kind) for kind in kinds}
    data["scalar"], data["empty"] = mx.nd.array(2.5), mx.nd.zeros((0, 3))
    mx.nd.save(str(source), data)
    for step, kind in enumerate([*chain, "params"]):
        target = tmp_path / f"{step}{sources.FORMATS[kind]}"
        done = conversion.convert(source, target)
        assert (done.format, done.count, done.renamed) == (kind, len(data), {})
        source = target
    loaded = mx.nd.load(str(source))
    assert set(loaded) == set(data)
    for name, value in data.items():
        assert loaded[name].dtype == value.dtype and loaded[name].shape == value.shape
        np.testing.assert_array_equal(loaded[name].asnumpy(), value.asnumpy())


def test_other_libraries_read_what_is_written(tmp_path: Path) -> None:
    want = {name: value.asnumpy() for name, value in mx.nd.load(str(EXPORT)).items()}
    conversion.convert(EXPORT, tmp_path / "a.safetensors")
    conversion.convert(EXPORT, tmp_path / "a.npz")
    for got in (safetensors.numpy.load_file(tmp_path / "a.safetensors"), dict(np.load(tmp_path / "a.npz"))):
        assert set(got) == set(want)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)


def test_lists_stay_lists(tmp_path: Path) -> None:
    mx.nd.save(str(tmp_path / "a.params"), [mx.nd.array([1]), mx.nd.array([2, 3])])
    conversion.convert(tmp_path / "a.params", tmp_path / "a.safetensors")
    conversion.convert(tmp_path / "a.safetensors", tmp_path / "b.params")
    assert [value.asnumpy().tolist() for value in mx.nd.load(str(tmp_path / "b.params"))] == [[1], [2, 3]]
    with pytest.raises(NamingError, match="2 arrays without names"):
        conversion.convert(tmp_path / "a.params", tmp_path / "c.params", names="plain")


def test_bfloat16_and_sparse_arrays(tmp_path: Path) -> None:
    source = tmp_path / "a.params"
    rows = mx.nd.array([[0, 0], [1, 2]]).tostype("row_sparse")
    mx.nd.save(str(source), {"b": mx.nd.array([1, 3], dtype="bfloat16"), "r": rows})
    conversion.convert(source, tmp_path / "same.params")
    assert (tmp_path / "same.params").read_bytes() == source.read_bytes()
    with pytest.raises(MXNetError, match=r"row_sparse cannot be kept in a safetensors file.*--dense"):
        conversion.convert(source, tmp_path / "a.safetensors")
    assert not (tmp_path / "a.safetensors").exists()
    conversion.convert(source, tmp_path / "a.safetensors", dense=True)
    conversion.convert(tmp_path / "a.safetensors", tmp_path / "back.params")
    loaded = mx.nd.load(str(tmp_path / "back.params"))
    assert str(loaded["b"]._t.dtype) == "torch.bfloat16" and loaded["r"].asnumpy().tolist() == [
        [0, 0],
        [1, 2],
    ]


def test_tags_come_and_go(tmp_path: Path) -> None:
    plain, back = tmp_path / "plain.params", tmp_path / "back.params"
    conversion.convert(EXPORT, plain, names="plain")
    assert names_in(plain) == [name[4:] for name in names_in(EXPORT)]
    conversion.convert(plain, back, names="export")
    assert back.read_bytes() == EXPORT.read_bytes()
    odd = tmp_path / "odd.params"
    mx.nd.save(
        str(odd), {"net_batchnorm0_running_mean": mx.nd.ones(4), "counter_running_mean": mx.nd.ones(1)}
    )
    conversion.convert(odd, back, names="export", symbol=SYMBOL)
    assert names_in(back) == ["aux:net_batchnorm0_running_mean", "arg:counter_running_mean"]


def test_names_of_a_network(network: str, tmp_path: Path) -> None:
    structural, full = tmp_path / "s.params", tmp_path / "f.params"
    conversion.convert(EXPORT, structural, names="structural", net=network)
    assert sorted(names_in(structural)) == sorted(names_in(GOLDEN / "1.9.1" / "convnet.params"))
    conversion.convert(structural, full, names="full", net=network)
    assert names_in(full) == [name[4:] for name in names_in(EXPORT)]
    first = mx.nd.load(str(structural))["5.weight"].asnumpy()
    np.testing.assert_array_equal(first, mx.nd.load(str(EXPORT))["arg:net_dense0_weight"].asnumpy())
    # A file of the second generation under names of the first.
    conversion.convert(GOLDEN / "2.0.0b1" / "convnet-0001.params", full, names="full", net=network)
    assert "net_dense1_weight" in names_in(full)
    mx.nd.save(str(structural), {"other": mx.nd.ones(1)})
    with pytest.raises(
        NamingError, match=r"1 of the 1 names in .* are none of the network's 10 parameters.*other"
    ):
        conversion.convert(structural, full, names="full", net=network)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (None, "give it with net"),
        ("convnet_for_names", "given as MODULE:CALLABLE"),
        ("nowhere_at_all:make", "is not there: No module named 'nowhere_at_all'"),
        ("convnet_for_names:absent", "is not there: .*absent"),
        ("convnet_for_names:dict", "is not there: .*dict"),
        ("builtins:dict", "gives a dict; a gluon Block was expected"),
    ],
)
def test_networks_that_are_none(net: Any, message: str, network: str, tmp_path: Path) -> None:
    with pytest.raises(NamingError, match=message):
        conversion.convert(EXPORT, tmp_path / "x.params", names="structural", net=net)


@pytest.mark.parametrize(
    "like", ["2.0.0b1/convnet-symbol.json", "2.0.0b1/convnet.params", "1.9.1/convnet.params"]
)
def test_names_like_another_file(like: str, tmp_path: Path) -> None:
    target = tmp_path / "x.params"
    conversion.convert(EXPORT, target, like=GOLDEN / like)
    loaded, source = mx.nd.load(str(target)), mx.nd.load(str(EXPORT))
    pairs = {
        "0.weight": "arg:net_conv0_weight",
        "1.gamma": "arg:net_batchnorm0_gamma",
        "1.running_var": "aux:net_batchnorm0_running_var",
        "5.weight": "arg:net_dense0_weight",
        "7.bias": "arg:net_dense1_bias",
    }
    for new, old in pairs.items():
        np.testing.assert_array_equal(loaded[new].asnumpy(), source[old].asnumpy())


def test_an_export_is_converted_as_a_pair(tmp_path: Path) -> None:
    """Both files of a 1.9.1 export under the names of 2.0 compute what they computed."""
    want = np.load(GOLDEN / "1.9.1" / "convnet.npz")
    like = GOLDEN / "2.0.0b1" / "convnet-symbol.json"
    conversion.convert(SYMBOL, tmp_path / "new-symbol.json", like=like)
    conversion.convert(EXPORT, tmp_path / "new-0001.params", names="export", like=like)
    assert "arg:0.weight" in names_in(tmp_path / "new-0001.params")
    net = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "new-symbol.json"), ["data"], str(tmp_path / "new-0001.params")
    )
    assert "0.weight" in net.collect_params()
    got = net(mx.nd.array(want["data"])).asnumpy()
    np.testing.assert_allclose(got, want["output"], rtol=1e-4, atol=1e-6)


def test_rules_rename(tmp_path: Path) -> None:
    conversion.convert(
        EXPORT, tmp_path / "x.params", names="plain", rename=[r"^net_(\w+?)0_=\1.", "dense1_=head."]
    )
    assert names_in(tmp_path / "x.params")[:2] == ["conv.weight", "conv.bias"]
    conversion.convert(SYMBOL, tmp_path / "x-symbol.json", rename=["^net_=", "^data$=image"])
    symbol = mx.sym.load(str(tmp_path / "x-symbol.json"))
    assert symbol.list_arguments()[:2] == ["image", "conv0_weight"]
    before, after = json.loads(SYMBOL.read_text()), json.loads((tmp_path / "x-symbol.json").read_text())
    assert [node["op"] for node in after["nodes"]] == [node["op"] for node in before["nodes"]]
    assert after["attrs"] == before["attrs"] and after["heads"] == before["heads"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"names": "short"}, ValueError, "names must be one of keep, plain"),
        ({"format": "onnx"}, ValueError, "format must be one of params, npz, safetensors"),
        ({"target": "x.bin"}, ValueError, "cannot be told from its ending '.bin'"),
        ({"rename": ["abc"]}, NamingError, "a renaming rule is PATTERN=TEXT; received 'abc'"),
        ({"rename": ["(=x"]}, NamingError, "is not a regular expression"),
        ({"rename": [r"weight=\7"]}, NamingError, "is not a regular expression"),
        ({"rename": [".*=same"]}, NamingError, "would both be named"),
        (
            {"like": GOLDEN / "1.9.1" / "mlp-0003.params"},
            NamingError,
            "10 parameters cannot be given 4 names",
        ),
        ({"source": SYMBOL, "names": "plain"}, NamingError, "the names of a symbol are changed with"),
    ],
)
def test_mistakes_leave_nothing_behind(
    options: dict[str, Any], error: Any, message: str, tmp_path: Path
) -> None:
    source, target = options.pop("source", EXPORT), tmp_path / options.pop("target", "x.params")
    with pytest.raises(error, match=message):
        conversion.convert(source, target, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_source_leaves_the_old_target(tmp_path: Path) -> None:
    source, target = tmp_path / "cut.params", tmp_path / "x.npz"
    source.write_bytes(EXPORT.read_bytes()[:1000])
    target.write_text("old")
    with pytest.raises(MXNetError, match=r"cut.params', at byte \d+ of 1000"):
        conversion.convert(source, target)
    assert target.read_text() == "old" and len(list(tmp_path.iterdir())) == 2


def test_matching_is_by_order_ending_and_shape() -> None:
    old = [Rule("a_weight", (2, 3)), Rule("a_bias", (2,)), Rule("b_weight", (4, 2)), Rule("b_bias", (4,))]
    new = [Rule(f"{place}.{kind}", shape) for place, kind, shape in
           [(10, "bias", (4,)), (10, "weight", (4, 0)), (2, "bias", (2,)), (2, "weight", None)]]  # fmt: skip
    new.sort(key=lambda rule: rule.name)
    assert naming.matched(old, new) == {
        "a_weight": "2.weight", "a_bias": "2.bias", "b_weight": "10.weight", "b_bias": "10.bias",
    }  # fmt: skip
    wrong = [Rule("x.weight", (9, 9)), *new[1:]]
    with pytest.raises(NamingError, match=r"'a_weight' of shape .2, 3. has no counterpart"):
        naming.matched(old, wrong)


def test_safetensors_files_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    conversion.convert(EXPORT, path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-5])
    with pytest.raises(MXNetError, match=r"a.safetensors': this safetensors file is damaged"):
        conversion.convert(path, tmp_path / "x.params")


def test_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.startswith("safetensors"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MXNetError, match=r"pip install 'regluon\[safetensors\]'"):
        conversion.convert(EXPORT, tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_progress_sees_every_array(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def watch(arrays: Any, size: int) -> Any:
        for array in arrays:
            seen.append((array.size, size))
            yield array

    conversion.convert(EXPORT, tmp_path / "x.npz", progress=watch)
    assert sum(one for one, _ in seen) == seen[0][1] and len(seen) == 10
