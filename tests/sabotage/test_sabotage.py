"""Every sabotage of the library is noticed by some regular test; see sabotages.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from driver import ROOT, covers
from sabotages import SABOTAGES


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the regular tests did without, under and after each sabotage."""
    file = tmp_path_factory.mktemp("sabotage") / "results.json"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("driver.py")), str(file)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert file.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(file.read_text())
    assert found["before"] and len(found["after"]) == len(found["before"]), (
        done.stdout[-3000:] + done.stderr[-3000:]
    )
    return found


def test_there_are_enough_sabotages() -> None:
    assert len(SABOTAGES) >= 35
    assert all(sabotage.apply.__doc__ for sabotage in SABOTAGES.values())


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_is_noticed(results: Any, name: str) -> None:
    outdated = results["outdated"].get(name)
    assert outdated is None, f"the sabotage {name} breaks nothing any more: {outdated}"
    for test in SABOTAGES[name].tests:
        nodes = [node for node in results["under"][name] if covers((test,), node)]
        assert nodes, f"there is no test {test}"
        for node in nodes:
            assert results["before"][node] is None, results["before"][node]
            assert results["after"][node] is None, results["after"][node]
        assert any(results["under"][name][node] for node in nodes), (
            f"{test} passes although {name}: {SABOTAGES[name].apply.__doc__}"
        )
