"""Whole training runs equal those of 1.9.1: parameters, states, outputs, and the lines of the log."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy
import pytest

import regluon as mx

GOLDEN = Path(__file__).parents[1] / "golden"


def shared() -> ModuleType:
    """The runs, which the original's Python does too."""
    spec = importlib.util.spec_from_file_location("module_runs", Path(__file__).parent / "module_runs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUNS = shared()


def numbers(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"=([0-9.]+)", line)]


@pytest.mark.filterwarnings("ignore:The optimizer's learning rate")
@pytest.mark.parametrize("name", RUNS.RUNS)
def test_run_equals_the_original(name: str) -> None:
    found, lines = RUNS.logged(RUNS.RUNS[name], mx)
    with numpy.load(GOLDEN / "module_runs.npz") as archive:
        wanted = {key.partition("/")[2]: archive[key] for key in archive.files if key.startswith(f"{name}/")}
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        numpy.testing.assert_allclose(found[key], value, rtol=2e-4, atol=2e-5, err_msg=f"{name}: {key}")
    logs = json.loads((GOLDEN / "module_runs.json").read_text())["logs"][name]
    assert [re.sub(r"[0-9]+\.[0-9]+", "*", line) for line in lines] == [
        re.sub(r"[0-9]+\.[0-9]+", "*", line) for line in logs
    ]
    for line, log in zip(lines, logs, strict=True):
        numpy.testing.assert_allclose(numbers(line), numbers(log), atol=5e-5, err_msg=log)
