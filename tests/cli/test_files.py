"""regluon inspect and regluon convert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import regluon as mx
from regluon import cli, recordio
from regluon.base import config
from regluon.serial import inspection

GOLDEN = Path(__file__).parent.parent / "golden"
EXPORT = GOLDEN / "models" / "1.9.1" / "convnet-0001.params"
SYMBOL = GOLDEN / "models" / "1.9.1" / "convnet-symbol.json"


@pytest.fixture(autouse=True)
def keep_level(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "200")
    level = config.api_level()
    yield
    config.set_api(level)


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def inspected(*files: Any) -> Any:
    done = command("inspect", "--json", *files)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_symbol_and_its_arrays() -> None:
    symbol, arrays = inspected(SYMBOL, EXPORT)
    assert symbol["kind"] == "symbol" and symbol["mxnet_version"] == "1.9.1" and symbol["form"] == "attrs"
    assert symbol["nodes"] == len(json.loads(SYMBOL.read_text())["nodes"])
    assert symbol["operators"]["Activation"] == 2 and symbol["operators"]["BatchNorm"] == 1
    assert symbol["unknown_operators"] == [] and symbol["without_value"] == symbol["unused"] == []
    assert [one["name"] for one in symbol["inputs"]] == ["data"]
    assert symbol["parameters"][0] == {
        "name": "net_conv0_weight", "shape": [4, 2, 3, 3], "dtype": "float32",
    }  # fmt: skip
    assert [one["name"] for one in symbol["auxiliary"]] == [
        "net_batchnorm0_running_mean", "net_batchnorm0_running_var",
    ]  # fmt: skip
    assert symbol["outputs"] == ["net_dense1_fwd_output"]
    assert (arrays["kind"], arrays["format"], arrays["array_versions"]) == ("arrays", "params", ["V2"])
    values = [value.asnumpy() for value in mx.nd.load(str(EXPORT)).values()]
    assert arrays["count"] == len(values) and arrays["elements"] == sum(value.size for value in values)
    assert arrays["data_bytes"] == sum(value.nbytes for value in values) and arrays["dtypes"] == {
        "float32": 10
    }
    assert [tuple(array["shape"]) for array in arrays["arrays"]] == [value.shape for value in values]


def test_what_does_not_belong_together(tmp_path: Path) -> None:
    loaded = mx.nd.load(str(EXPORT))
    loaded["arg:other"] = loaded.pop("arg:net_dense1_bias")
    mx.nd.save(str(tmp_path / "x.params"), loaded)
    symbol, _, other = inspected(SYMBOL, tmp_path / "x.params", GOLDEN / "serial" / "1.9.1" / "types.params")
    assert symbol["without_value"] == ["net_dense1_bias"] and symbol["unused"] == ["other"]
    assert other["container"] == "dict"


def test_labels_and_unknown_operators(tmp_path: Path) -> None:
    text = (GOLDEN / "models" / "1.9.1" / "mlp-symbol.json").read_text()
    (tmp_path / "x.json").write_text(text.replace('"Activation"', '"_newer_activation"'))
    (symbol,) = inspected(tmp_path / "x.json")
    assert symbol["unknown_operators"] == ["_newer_activation"] and symbol["operators"]["FullyConnected"] == 2
    assert [one["name"] for one in symbol["inputs"]] == ["data", "softmax_label"]


@pytest.mark.parametrize(
    ("file", "facts"),
    [
        ("serial/1.9.1/csr.params", {"storage_types": {"csr": 1}, "container": "dict"}),
        ("serial/1.9.1/scalar.params", {"array_versions": ["V3"], "elements": 3}),
        ("serial/1.9.1/list.params", {"container": "list", "count": 2}),
        ("serial/2.0.0b1/named.npz", {"format": "npz", "array_versions": [], "count": 3}),
        ("serial/2.0.0b1/scalar.npy", {"format": "npy", "container": "list", "elements": 1}),
        (
            "serial/1.9.1/adam.full.states",
            {"kind": "optimizer states", "format": "pickle", "optimizer": "Adam"},
        ),
        ("serial/1.9.1/sgd.states", {"kind": "optimizer states", "optimizer": None, "count": 1}),
        ("models/2.0.0b1/convnet-symbol.json", {"mxnet_version": "2.0.0"}),
        ("models/2.0.0b1/convnet-0001.params", {"format": "npz", "count": 10}),
    ],
)
def test_every_kind_of_file(file: str, facts: dict[str, Any]) -> None:
    (found,) = inspected(GOLDEN / file)
    assert {key: found[key] for key in facts} == facts
    assert found["bytes"] == (GOLDEN / file).stat().st_size
    shown = command("inspect", GOLDEN / file)
    assert shown.exit_code == 0 and Path(file).name in shown.stdout.replace("\n", "")


def test_own_states_and_records(tmp_path: Path) -> None:
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", momentum=0.9))
    updater("w", mx.nd.ones((2, 3)), mx.nd.ones((2, 3)))
    (tmp_path / "own.states").write_bytes(updater.get_states(dump_optimizer=True))
    with recordio.MXRecordIO(str(tmp_path / "a.rec"), "w") as writer:
        for size in (3, 10, 4):
            writer.write(b"x" * size)
    own, records = inspected(tmp_path / "own.states", tmp_path / "a.rec")
    assert (own["format"], own["optimizer"], own["states"]) == (
        "regluon", "SGD", {"w": {"shape": [2, 3], "dtype": "float32"}},
    )  # fmt: skip
    assert (records["kind"], records["count"], records["smallest"], records["largest"]) == (
        "records",
        3,
        3,
        10,
    )


def test_tables_cut_long_lists(tmp_path: Path) -> None:
    mx.nd.save(str(tmp_path / "x.params"), {f"p{index}": mx.nd.ones((index + 1,)) for index in range(40)})
    short, whole = (
        command("inspect", tmp_path / "x.params"),
        command("inspect", "--all", tmp_path / "x.params"),
    )
    assert "28 more (--all shows them)" in short.stdout and "p20 (21)" not in short.stdout
    assert all(f"p{index} ({index + 1}) float32" in whole.stdout for index in range(40))


def test_unreadable_files_do_not_hide_others(tmp_path: Path) -> None:
    (tmp_path / "broken.params").write_bytes(EXPORT.read_bytes()[:500])
    done = command("inspect", tmp_path / "broken.params", tmp_path / "absent", SYMBOL)
    assert done.exit_code == 1 and "FullyConnected" in done.stdout
    assert "broken.params', at byte" in done.stderr and "absent" in done.stderr
    found = json.loads(command("inspect", "--json", tmp_path / "broken.params", SYMBOL).stdout)
    assert found[0]["kind"] == "unreadable" and "of 500" in found[0]["error"] and found[1]["kind"] == "symbol"


def test_inspection_does_not_read_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise AssertionError("numbers were read")

    monkeypatch.setattr("regluon.serial.params.read_entry", refuse)
    monkeypatch.setattr("regluon.serial.npz.read_npy", refuse)
    assert inspection.describe(EXPORT)["count"] == 10
    assert inspection.describe(GOLDEN / "models" / "2.0.0b1" / "convnet.params")["count"] == 10


def test_convert_says_what_it_wrote(tmp_path: Path) -> None:
    done = command("convert", EXPORT, tmp_path / "x.npz", "--names", "plain", "--rename", "^net_=")
    assert done.exit_code == 0, done.output
    assert "x.npz: npz, 10 arrays, 1.7 KB, 10 renamed" in done.stdout.replace("\n", "")
    with np.load(tmp_path / "x.npz") as archive:
        assert "conv0_weight" in archive


def test_convert_with_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mynet.py").write_text(
        "import regluon as mx\n\n\ndef make():\n    return mx.gluon.nn.Dense(2, in_units=3, prefix='fc_')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mx.nd.save(str(tmp_path / "a.params"), {"weight": mx.nd.ones((2, 3)), "bias": mx.nd.zeros((2,))})
    done = command(
        "convert", tmp_path / "a.params", tmp_path / "b.params", "--names", "full", "--net", "mynet:make"
    )
    assert done.exit_code == 0, done.output
    assert list(mx.nd.load(str(tmp_path / "b.params"))) == ["fc_weight", "fc_bias"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["x.bin"], 2, "cannot be told from its ending"),
        (["x.npz", "--format", "h5"], 2, "format must be one of"),
        (["x.npz", "--names", "long"], 2, "names must be one of"),
        (["x.npz", "--names", "full"], 2, "give --net"),
        (["x.npz", "--rename", "a"], 1, "a renaming rule is PATTERN=TEXT"),
        (["x.npz", "--like", "absent.params"], 1, "No such file"),
        (["absent/x.npz"], 1, "No such file"),
    ],
)
def test_convert_refuses(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    done = command("convert", EXPORT, tmp_path / arguments[0], *arguments[1:])
    assert done.exit_code == code and message in " ".join(done.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_help_explains_the_options() -> None:
    for name, words in {
        "inspect": ["--json", "--all", "Exit code"],
        "convert": ["--like", "--net", "Exit code"],
    }.items():
        shown = command(name, "--help")
        assert shown.exit_code == 0 and all(word in shown.stdout for word in words)


def test_the_bar_moves_for_large_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            seen.append(options["disable"])

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *details: Any) -> None:
            pass

        def update(self, count: int) -> None:
            seen.append(count)

    class Part:
        size = 7

    monkeypatch.setattr("tqdm.tqdm", Bar)
    assert len(list(cli._progress(iter([Part(), Part()]), 14))) == 2
    assert len(list(cli._progress(iter([Part()]), 1 << 30))) == 1
    # None lets tqdm look whether there is a terminal.
    assert seen == [True, 7, 7, None, 7]
