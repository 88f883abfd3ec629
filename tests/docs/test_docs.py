"""The documentation does what it says: its code runs, its links lead somewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regluon

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
)
FENCE = re.compile(r"^```python(?: file=(?P<file>\S+))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/hybridize-in-ten-minutes.md",
        "docs/coming-from-mxnet.md",
        "docs/mixed-precision.md",
        "docs/quantization.md",
        "docs/torch.md",
        "docs/images.md",
        "docs/insight.md",
        "docs/backends.md",
        "docs/gpu.md",
        "docs/custom-operators.md",
        "docs/control-flow.md",
        "docs/detection.md",
        "docs/estimator.md",
    ],
)
def test_code_of_a_page_runs_in_order(name: str, tmp_path: Path) -> None:
    blocks = [match["code"] for match in FENCE.finditer((ROOT / name).read_text()) if not match["file"]]
    assert blocks
    done = run_python("\n".join(blocks), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_an_operator_is_two_files(tmp_path: Path) -> None:
    """Follow docs/add-an-operator.md on a copy of the project."""
    page = (ROOT / "docs" / "add-an-operator.md").read_text()
    additions = {match["file"]: match["code"] for match in FENCE.finditer(page) if match["file"]}
    assert len(additions) == 2, "adding an operator changes two files"
    shutil.copytree(Path(regluon.__file__).parent, tmp_path / "src" / "regluon")
    for name in ("ops", "golden/operator_types"):
        shutil.copytree(ROOT / "tests" / name, tmp_path / "tests" / name)
    for name in ("tests/conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, code in additions.items():
        file = tmp_path / name
        file.write_text(f"{file.read_text().rstrip()}\n\n\n{code}")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/ops", "-k", "soft_threshold", "-rs"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    example = [match["code"] for match in FENCE.finditer(page) if not match["file"]][-1]
    done = subprocess.run(
        [sys.executable, "-c", example], env=environment, capture_output=True, text=True, timeout=120
    )
    assert "-1.5" in done.stdout and "0.5" in done.stdout, done.stderr
