"""Models that MXNet wrote: they load under every naming and compute what they computed there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon.base import config
from regluon.base.errors import MXNetError

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
PUBLIC = Path(__file__).parents[2].parent / "shared" / "reference" / "models"
VERSIONS = ["1.9.1", "2.0.0b1"]


@pytest.fixture(autouse=True)
def keep_level() -> Any:
    level = config.api_level()
    yield
    config.set_api(level)


def expected(version: str, name: str = "convnet") -> Any:
    return np.load(GOLDEN / version / f"{name}.npz")


def convnet(level: int) -> Any:
    config.set_api(level)
    nn = mx.gluon.nn
    net = nn.HybridSequential(prefix="net_") if level == 1 else nn.HybridSequential()
    with net.name_scope():
        net.add(
            nn.Conv2D(4, 3, padding=1),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.MaxPool2D(2),
            nn.Flatten(),
            nn.Dense(8, activation="tanh"),
            nn.Dropout(0.5),
            nn.Dense(3),
        )
    return net


@pytest.mark.parametrize("names", [["data"], None])
@pytest.mark.parametrize("version", VERSIONS)
def test_imported_exports_compute_the_same(version: str, names: Any) -> None:
    want, folder = expected(version), GOLDEN / version
    net = mx.gluon.SymbolBlock.imports(
        str(folder / "convnet-symbol.json"), names, str(folder / "convnet-0001.params")
    )
    got = net(mx.nd.array(want["data"])).asnumpy()
    np.testing.assert_allclose(got, want["output"], rtol=1e-4, atol=1e-6)


def stripped(source: Path, target: Path) -> Path:
    mx.nd.save(str(target), {name.removeprefix("net_"): v for name, v in mx.nd.load(str(source)).items()})
    return target


STRUCTURAL = ["1.9.1/convnet.params", "2.0.0b1/convnet.params", "2.0.0b1/convnet-0001.params"]
FULL = ["1.9.1/convnet-full.params", "1.9.1/convnet-0001.params", "stripped"]


@pytest.mark.parametrize(
    ("file", "level"),
    [*((file, level) for file in STRUCTURAL for level in (1, 2)), *((file, 1) for file in FULL)],
)
def test_a_block_takes_every_naming(file: str, level: int, tmp_path: Path) -> None:
    path = GOLDEN / file
    if file == "stripped":
        path = stripped(GOLDEN / "1.9.1" / "convnet-full.params", tmp_path / "stripped.params")
    want = expected("2.0.0b1" if file.startswith("2") else "1.9.1")
    net = convnet(level)
    net.load_parameters(str(path))
    # Unknown sizes (no layer was told its inputs) come from the file.
    assert net[0].weight.shape == (4, 2, 3, 3) and net[5].weight.shape == (8, 36)
    create = mx.nd.array if level == 1 else mx.np.array
    np.testing.assert_allclose(net(create(want["data"])).asnumpy(), want["output"], rtol=1e-4, atol=1e-6)


def test_errors_name_the_nearest(tmp_path: Path) -> None:
    loaded = mx.nd.load(str(GOLDEN / "1.9.1" / "convnet.params"))
    loaded["0.weigth"] = loaded.pop("0.weight")
    mx.nd.save(str(tmp_path / "x.params"), loaded)
    with pytest.raises(MXNetError, match=r"'0.weight' is missing in file.*Nearest: .*0\.weigth"):
        convnet(2).load_parameters(str(tmp_path / "x.params"))
    with pytest.raises(MXNetError, match=r"'0.weigth' loaded from file.*Nearest: .*0\.weight"):
        convnet(2).load_parameters(str(tmp_path / "x.params"), allow_missing=True)


def test_a_checkpoint_predicts_without_its_label() -> None:
    want, folder = expected("1.9.1", "mlp"), GOLDEN / "1.9.1"
    files = str(folder / "mlp-symbol.json"), str(folder / "mlp-0003.params")
    net = mx.gluon.SymbolBlock.imports(files[0], None, files[1])
    np.testing.assert_allclose(net(mx.nd.array(want["data"])).asnumpy(), want["output"], rtol=1e-5)
    named = mx.gluon.SymbolBlock.imports(files[0], ["data", "softmax_label"], files[1])
    got = named(mx.nd.array(want["data"]), mx.nd.zeros((2,))).asnumpy()
    np.testing.assert_allclose(got, want["output"], rtol=1e-5)


def test_inputs_without_a_parameters_file() -> None:
    from regluon.gluon.imported import names_of_inputs
    from regluon.symbol import convert

    for name in ("1.9.1/convnet", "2.0.0b1/convnet", "1.9.1/mlp"):
        entries, _ = convert.from_json((GOLDEN / f"{name}-symbol.json").read_text())
        assert names_of_inputs(entries, None, None) == ["data"]
    weight = mx.sym.var("fc_weight")
    with pytest.raises(MXNetError, match=r"no variable of the graph is left to be an input .*fc_weight"):
        names_of_inputs(mx.sym.relu(weight)._list(), None, None)


def old_form(text: str, version: int) -> str:
    """The JSON of a 1.9.1 symbol as an older release wrote it."""
    document = json.loads(text)
    for node in document["nodes"]:
        attributes = node.pop("attrs", {})
        if version < 900:
            node["param"] = {k: v for k, v in attributes.items() if not k.startswith("__")}
            node["backward_source_id"] = -1
            node["inputs"] = [entry[:2] for entry in node["inputs"]]
            if node["op"] == "BatchNorm":
                node["inputs"] = node["inputs"][:3]
        elif attributes:
            node["attr" if version < 1000 else "attrs"] = attributes
    if version < 900:
        document["heads"] = [entry[:2] for entry in document["heads"]]
        del document["node_row_ptr"], document["attrs"]
    else:
        document["attrs"] = {"mxnet_version": ["int", version]}
    return json.dumps(document, indent=2).replace("\n", "\r\n")


@pytest.mark.parametrize("version", [800, 904, 1100, 10500])
def test_older_forms_of_the_same_symbol(version: int, tmp_path: Path) -> None:
    want, folder = expected("1.9.1"), GOLDEN / "1.9.1"
    file = tmp_path / "old-symbol.json"
    file.write_text(old_form((folder / "convnet-symbol.json").read_text(), version), newline="")
    values = mx.nd.load(str(folder / "convnet-0001.params"))
    if version < 900:
        # Auxiliary states had no nodes; they are named after the operator and its inputs.
        renamed = {"net_batchnorm0_running_mean": "net_batchnorm0_fwd_moving_mean",
                   "net_batchnorm0_running_var": "net_batchnorm0_fwd_moving_var"}  # fmt: skip
        values = {f"{k[:4]}{renamed.get(k[4:], k[4:])}": v for k, v in values.items()}
    mx.nd.save(str(tmp_path / "old.params"), values)
    net = mx.gluon.SymbolBlock.imports(str(file), ["data"], str(tmp_path / "old.params"))
    got = net(mx.nd.array(want["data"])).asnumpy()
    np.testing.assert_allclose(got, want["output"], rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public model files are not beside this checkout")
def test_public_models_match_their_references(tmp_path: Path) -> None:
    """The check that comes with the files, for all but the five slowest, which take most of a minute."""
    ids = sorted(path.name[:3] for path in PUBLIC.iterdir() if path.name[:3].isdigit())
    ids = [number for number in ids if number not in ("001", "003", "019", "022", "039")]
    out = tmp_path / "results.json"
    command = [sys.executable, PUBLIC / "check.py", "regluon", "--ids", ",".join(ids), "--json", out]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    failed = {}
    for record in json.loads(out.read_text()):
        if record.get("error") or any(result is not True for result in record["steps"].values()):
            failed[record["id"]] = record.get("error") or record["steps"]
    assert not failed


def test_the_example_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(code, {})
    assert (tmp_path / "matrix.params").exists()
