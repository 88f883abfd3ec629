"""What scripts of MXNet users expect of the process around them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import regluon as mx
from regluon import cli, util


def test_numpy_switches_at_the_top_level() -> None:
    for name in ("is_np_array", "is_np_shape", "np_array", "np_shape", "set_np_shape", "use_np"):
        assert getattr(mx, name) is getattr(util, name)


def test_run_gives_absolute_file_names(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\nimport mxnet as mx\nos.chdir('/')\n"
        "print(os.path.exists(__file__), os.path.exists(mx.__file__), sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "regluon", "run", "train.py", "--epochs", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["True", "True", "['--epochs',", "'3']"], done.stderr


def test_demo_without_its_data_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.app(["demo", "--data", str(tmp_path), "--out", str(tmp_path / "out")], standalone_mode=True)
    assert stop.value.code == 1
    assert "regluon demo: MNIST found none of train-images-idx3-ubyte" in capsys.readouterr().err
