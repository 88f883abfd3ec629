"""The page tells what the results are, the bars that are missed included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import plots, report, run
from bench.works import WORKS


@pytest.fixture
def results() -> dict[str, Any]:
    mlp = {
        "samples": {
            "regluon": [20e-6, 22e-6, 21e-6],
            "torch": [40e-6, 44e-6, 42e-6],
            "onnxruntime": [10e-6] * 3,
        },
        "reasons": {"jax": "no wheel\nfor this system"},
        "versions": {"torch": {"torch": "2.13.0"}, "regluon": {"regluon": "0.1.0", "torch": "2.13.0"}},
    }
    memory = {
        "samples": {"regluon": [900 * 2.0**20] * 3, "mxnet-1.9.1": [600 * 2.0**20] * 3},
        "reasons": {},
        "versions": {"mxnet-1.9.1": {"mxnet": "1.9.1"}},
    }
    return {
        "machine": {"processor": "a processor", "cores": "2"},
        "threads": 2,
        "rounds": 3,
        "quick": False,
        "works": {"mlp-b1": mlp, "memory-resnet50-b32": memory},
    }


def test_page_lists_every_bar_reached_or_not(results: dict[str, Any]) -> None:
    page = report.page(results, [("A plot", "plot.png")])
    assert "| MLP 10-20-20, one call | 21.0 us | torch, 42.0 us | 0.70 | 0.50 (0.50 to 0.50) | yes |" in page
    assert "| onnxruntime, 10.0 us | 1.50 (an aim) | 2.10 (2.05 to 2.15) | **no** |" in page
    assert "| 900 MiB | mxnet-1.9.1, 600 MiB | 1.00 | 1.50 (1.50 to 1.50) | **no** |" in page
    assert "| peak memory, ResNet-50 inference, batch 32 | 1.50 (1.50 to 1.50) **slower** | - |" in page
    # Four originals' bars, of which one is compared, and two counted others; the aim is not counted.
    assert "Of 6 bars, those of the next section included, 1 are reached, 2 are not, and 3 could not" in page
    assert "* MLP 10-20-20, one call, jax: no wheel for this system" in page
    assert "![A plot](plot.png)" in page
    assert "| torch | 2.13.0 |" in page
    assert "quick" not in page
    assert "A quick run" in report.page({**results, "quick": True}, [])


def test_page_and_plots_are_made_again_from_stored_numbers(results: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")
    assert run.main(["--report", "--out", str(tmp_path)]) == 2
    (tmp_path / run.DATA).write_text(json.dumps(results))
    assert run.main(["--report", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "benchmarks.md").read_text()
    for name in ("benchmarks-bars.png", "benchmarks-peers.png"):
        assert f"({name})" in page
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert plots.draw({**results, "works": {}}, tmp_path) == []


def test_command_line_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    assert set(WORKS) <= set(capsys.readouterr().out.split())
    assert run.main(["--peers", "caffe"]) == 2
    assert "No peer is called caffe; there are regluon" in capsys.readouterr().err
    assert run.main(["--work", "alexnet"]) == 2
    assert "No work is called like 'alexnet'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9e-6, "seconds", "900 ns"),
        (4.3e-6, "seconds", "4.30 us"),
        (8.314e-3, "seconds", "8.31 ms"),
        (0.0832, "seconds", "83.2 ms"),
        (0.832, "seconds", "832 ms"),
        (12.0, "seconds", "12.0 s"),
        (812 * 2.0**20, "bytes", "812 MiB"),
    ],
)
def test_quantities_have_three_digits(value: float, unit: str, text: str) -> None:
    assert report.quantity(value, unit) == text
