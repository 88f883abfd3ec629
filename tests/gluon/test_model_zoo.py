"""The networks of the model zoo: names, layout, files of pretrained parameters."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.base.naming import NameManager
from regluon.gluon import model_zoo, nn
from regluon.gluon.model_zoo import model_store, vision
from regluon.gluon.scope import reset_counters

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "param_names.json").read_text())
VERSIONS = {"1.9.1": 1, "2.0.0beta1": 2}
ALL = [
    pytest.param(version, case, id=f"{version}-{case['name']}-{case['arguments']}")
    for version in VERSIONS
    for case in GOLDEN[version]["networks"]
]


def parameters(version: str, name: str, arguments: dict[str, Any]) -> list[Any]:
    mx.set_api(VERSIONS[version])
    reset_counters()
    with NameManager():
        net = vision.get_model(name, **arguments)
    # Shapes are inferred from the graph; no kernel needs to run.
    size = 299 if name == "inceptionv3" else 64 if name.startswith("resnet") else 224
    net.infer_shape(mx.nd.zeros((1, 3, size, size)))
    return [[name, list(parameter.shape)] for name, parameter in net.collect_params().items()]


@pytest.mark.parametrize(("version", "case"), ALL)
def test_parameters_have_the_originals_names_and_shapes(version: str, case: dict[str, Any]) -> None:
    assert parameters(version, case["name"], case["arguments"]) == case["parameters"]


@pytest.mark.parametrize("version", list(VERSIONS))
@pytest.mark.parametrize("name", sorted(GOLDEN["1.9.1"]["digests"]))
def test_every_network_has_the_originals_parameters(version: str, name: str) -> None:
    text = json.dumps(parameters(version, name, {}))
    assert hashlib.sha1(text.encode()).hexdigest() == GOLDEN[version]["digests"][name]


def test_file_names_are_the_originals() -> None:
    for version in VERSIONS:
        for name, expected in GOLDEN[version]["short_hashes"].items():
            assert model_store.short_hash(name) == expected
    with pytest.raises(ValueError, match="Pretrained model for lenet is not available"):
        model_store.short_hash("lenet")


SIGNATURES = json.loads((Path(__file__).parent.parent / "golden" / "gluon_signatures.json").read_text())
# Differences on purpose: containers take blocks, and an initializer is made anew.
OTHERWISE = {"nn.Sequential", "nn.HybridSequential", "nn.PReLU"}
# Defaults that may be None here.
FREE = ("ctx", "device", "root", "op_name")
PLACES = {
    "nn": nn,
    "loss": mx.gluon.loss,
    "vision": vision,
    "contrib": mx.gluon.contrib.nn,
    "deformable": mx.gluon.contrib.cnn,
}


@pytest.mark.parametrize("version", list(VERSIONS))
def test_signatures_are_the_originals(version: str) -> None:
    wrong = []
    for name, expected in SIGNATURES[version].items():
        place, short = name.split(".")
        if name in OTHERWISE or short in ("Block", "HybridBlock", "SymbolBlock"):
            continue
        value = getattr(PLACES[place], short, None)
        if value is None:
            wrong.append(f"{name} is missing")
            continue
        signature = inspect.signature(value)
        found = {item.name: item for item in signature.parameters.values()}
        takes_any = any(item.kind is item.VAR_KEYWORD for item in found.values())
        named = [item[0] for item in expected if item[1] == "POSITIONAL_OR_KEYWORD"]
        common = [item for item in named if item not in ("prefix", "params")]
        if [item for item in found if item in common] != common and not takes_any:
            wrong.append(f"{name}: expected {named}, found {list(found)}")
        for argument, _, default in expected:
            if argument in found and default is not None and argument not in FREE:
                if repr(found[argument].default) != default:
                    wrong.append(f"{name}: {argument}={found[argument].default!r}, expected {default}")
    assert not wrong, "\n".join(wrong)


def test_get_model_finds_names_in_any_case_and_says_what_there_is() -> None:
    assert isinstance(vision.get_model("ResNet18_V1", classes=10), vision.ResNetV1)
    with pytest.raises(ValueError, match=r"Model lenet is not supported(.|\n)*alexnet(.|\n)*vgg19_bn"):
        vision.get_model("lenet")
    with pytest.raises(
        ValueError, match=r"Invalid number of layers: 20. Options are \[18, 34, 50, 101, 152\]"
    ):
        vision.get_resnet(1, 20)
    with pytest.raises(ValueError, match="Invalid resnet version: 3"):
        vision.get_resnet(3, 18)
    with pytest.raises(ValueError, match="Invalid number of layers: 12"):
        vision.get_vgg(12)
    with pytest.raises(ValueError, match="Unsupported SqueezeNet version '2'"):
        vision.SqueezeNet("2")


@pytest.mark.parametrize("level", [1, 2])
def test_pretrained_parameters_come_from_a_folder(level: int, tmp_path: Path, monkeypatch: Any) -> None:
    mx.set_api(level)
    net = vision.get_model("mobilenet0.25")
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.uniform(shape=(1, 3, 64, 64))
    expected = net(x).asnumpy()
    file = tmp_path / "models" / "mobilenet0.25-9f83e440.params"
    file.parent.mkdir()
    net.save_parameters(str(file))

    by_root = vision.get_model("mobilenet0.25", pretrained=True, root=str(file.parent))
    numpy.testing.assert_allclose(by_root(x).asnumpy(), expected, rtol=1e-6)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    by_home = vision.mobilenet0_25(pretrained=True, ctx=mx.cpu(1))
    assert by_home.output.weight.list_ctx() == [mx.cpu(1)]
    monkeypatch.delenv("MXNET_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    os.makedirs(tmp_path / ".mxnet")
    file.parent.rename(tmp_path / ".mxnet" / "models")
    by_default = vision.mobilenet0_25(pretrained=True, device=mx.cpu())
    numpy.testing.assert_allclose(by_default(x).asnumpy(), expected, rtol=1e-6)


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(mx.MXNetError, match=r"expected the file resnet18_v1-a0666292.params") as caught:
        vision.resnet18_v1(pretrained=True, root=str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "MXNET_HOME" in str(caught.value)


def test_purge_removes_parameter_files_only(tmp_path: Path) -> None:
    for name in ("a.params", "b.txt"):
        (tmp_path / name).write_text("")
    model_store.purge(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_prefix_of_a_network_at_level_1() -> None:
    mx.set_api(1)
    net = vision.resnet18_v1(prefix="foo_")
    assert net.output.weight.name == "foo_dense0_weight"
    assert net.collect_params(".*stage1_conv0_weight").keys() == {"foo_stage1_conv0_weight"}


def test_networks_share_modules_with_model_zoo() -> None:
    assert model_zoo.vision is vision
    assert nn.HybridSequential in type(vision.alexnet().features).__mro__
