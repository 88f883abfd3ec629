"""The command line: info, demo and its parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import regluon as mx
from regluon import cli
from regluon.demo import digits, info, training
from regluon.demo.network import DigitNetwork


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regluon", *arguments], capture_output=True, text=True, timeout=300
    )


def test_info_shows_versions_devices_and_backends() -> None:
    facts = info.describe()
    assert facts["versions"]["numpy"] == numpy.__version__
    assert "cpu(0)" in facts["devices"] and facts["processor"]["threads"]
    assert facts["backends"]
    done = command("info")
    assert done.returncode == 0 and numpy.__version__ in done.stdout, done.stderr


def test_help_lists_the_commands() -> None:
    done = command("--help")
    assert done.returncode == 0 and all(name in done.stdout for name in ("demo", "info", "run"))


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "_missing_modules", lambda *names: list(names))
    with pytest.raises(SystemExit) as stop:
        cli.app(["demo"], standalone_mode=True)
    assert stop.value.code == 2
    assert "pip install 'regluon[demo]'" in capsys.readouterr().err


def test_digits_of_the_bundled_sample() -> None:
    data = digits.load()
    assert data.train_images.shape == (4000, 1, 28, 28) and data.test_images.shape == (1000, 1, 28, 28)
    assert (
        data.train_images.dtype == numpy.float32
        and 0 <= data.train_images.min() < data.train_images.max() <= 1
    )
    assert set(data.test_labels.tolist()) == set(range(10))


def test_shift_moves_whole_images() -> None:
    images = numpy.zeros((30, 1, 9, 9), numpy.float32)
    images[:, :, 4, 4] = 1
    moved = training.shift(images, numpy.random.RandomState(0))
    assert moved.shape == images.shape and (moved.sum(axis=(1, 2, 3)) == 1).all()
    positions = {tuple(position) for position in numpy.argwhere(moved)[:, 2:].tolist()}
    assert len(positions) > 5 and all(2 <= part <= 6 for position in positions for part in position)


def test_network_of_the_demo_has_the_described_layers() -> None:
    network = DigitNetwork()
    network.initialize()
    assert network(mx.nd.ones((2, 1, 28, 28))).shape == (2, 10)
    shapes = sorted(
        parameter.shape for parameter in network.collect_params().values() if len(parameter.shape) > 1
    )
    assert shapes == [(6, 1, 5, 5), (10, 84), (16, 6, 5, 5), (84, 120), (120, 256)]


def test_demo_as_a_whole(tmp_path: Path) -> None:
    done = command("demo", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["accuracy"] >= 0.97
    assert set(results["modes"]) == {"imperative", "hybridized", "static_alloc+static_shape"}
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"lenet-symbol.json", "lenet-0000.params", "loss.png", "predictions.png", "results.json"}
    for picture in ("loss.png", "predictions.png"):
        assert (tmp_path / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert str(tmp_path) in done.stdout.replace("\n", "")


def test_version() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "regluon", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == f"regluon {mx.__version__}"
