"""Extreme files: refused by an error that names file and place within a second and little memory; and how to
read them all the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import extreme_files
import pytest

import regluon as mx
from regluon import serial
from regluon.base import limits
from regluon.base.errors import MXNetError

PROGRAM = Path(extreme_files.__file__)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """What reading every file took, in a process whose memory no other test has used."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the largest memory of a process is read from /proc, which this system does not have")
    folder = str(tmp_path_factory.mktemp("extreme"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), folder], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    return {(row["part"], row["name"]): row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", extreme_files.REFUSED)
def test_extreme_files_are_refused_soon(name: str, measured: dict[tuple[str, str], Any]) -> None:
    row = measured["refused", name]
    assert row["error"] is not None and row["error"][0] == "MXNetError"
    text = row["error"][1]
    assert name in text and re.search(extreme_files.REFUSED[name][1], text) and len(text) < 1500
    assert row["seconds"] < row["second"]
    assert row["memory"] < 4 * row["size"] + 2**26


@pytest.mark.parametrize("name", extreme_files.RIGHT)
def test_large_files_load(name: str, measured: dict[tuple[str, str], Any]) -> None:
    row = measured["right", name]
    assert row["error"] is None
    assert row["seconds"] < 2 * row["second"]
    assert row["memory"] < 4 * row["size"] + 2**26


def zeros(path: Path) -> Path:
    path.write_bytes(extreme_files.npz([("a.npy", extreme_files.npy("(20000000,)", bytes(8 * 10**7)))], True))
    return path


def test_limits_can_be_lifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zeros(tmp_path / "zeros.npz")
    with pytest.raises(
        MXNetError, match=r"zeros\.npz', entry 'a\.npy' .* becomes 80000128 bytes.*without_limits"
    ):
        mx.nd.load(str(path))
    with serial.without_limits():
        assert mx.nd.load(str(path))["a"].shape == (20_000_000,)
    with pytest.raises(MXNetError, match="REGLUON_FILE_LIMITS"):
        mx.nd.load(str(path))
    monkeypatch.setenv("REGLUON_FILE_LIMITS", "0")
    assert mx.nd.load(str(path))["a"].shape == (20_000_000,)


def test_what_is_packed_well_but_small_loads(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    path.write_bytes(extreme_files.npz([("a.npy", extreme_files.npy("(1000000,)", bytes(4 * 10**6)))], True))
    assert path.stat().st_size < 100_000 and mx.nd.load(str(path))["a"].shape == (1_000_000,)


def test_the_allowance_is_four_times_the_file_and_64_megabytes() -> None:
    assert limits.allowance(1000) == 4000 + 2**26
    assert limits.exceeds(2**26 + 4001, 1000) and not limits.exceeds(2**26 + 4000, 1000)


def test_collection_goes_on_after_an_error() -> None:
    import gc

    assert gc.isenabled()
    with pytest.raises(MXNetError):
        mx.sym.load_json("{}")
    assert gc.isenabled()
