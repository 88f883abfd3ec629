"""The originals' side: where their Pythons are, and how one process of an original does a list of jobs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import regluon as mx

FOLDER = Path(__file__).parent
VARIABLES = {
    1: ("REGLUON_MXNET_1", "REGLUON_ORACLE1", "~/oracle1/bin/python", "1.9.1"),
    2: ("REGLUON_MXNET_2", "REGLUON_ORACLE2", "~/oracle2/bin/python", "2.0.0b1"),
}


def interpreter(generation: int) -> str | None:
    """The Python that imports this generation of the original, or None."""
    first, second, usual, _ = VARIABLES[generation]
    path = os.path.expanduser(os.environ.get(first) or os.environ.get(second) or usual)
    return path if os.access(path, os.X_OK) else None


def require(generation: int) -> str:
    """That Python; skips the test where there is none."""
    python = interpreter(generation)
    if python is None:
        first, _, usual, version = VARIABLES[generation]
        pytest.skip(f"no MXNet {version}: {first} is not set and {usual} is not there")
    return python


def run_jobs(generation: int, jobs: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    """Run ``jobs`` in one process of the original; outcomes by job name, "" for a good one."""
    listed, results = folder / f"jobs{generation}.json", folder / f"results{generation}.json"
    listed.write_text(json.dumps(jobs))
    # Unfused: the default of 1.9.1 rewrites graphs with oneDNN and is wrong on some of them.
    environment = {
        **os.environ,
        "MXNET_SUBGRAPH_BACKEND": "NONE",
        "OMP_NUM_THREADS": "2",
        "PYTHONPATH": str(FOLDER),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [require(generation), "-W", "ignore", str(FOLDER / "original.py"), str(listed), str(results)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, cwd=folder)
    outcomes = json.loads(results.read_text()) if results.exists() else []
    lost = f"the original ended with {done.returncode}: {done.stderr[-800:]}"
    outcomes += [lost] * (len(jobs) - len(outcomes))
    return {job["name"]: outcome for job, outcome in zip(jobs, outcomes, strict=True)}


class Level:
    """Run code as one of the two generations of Gluon, then as before."""

    def __init__(self, style: int) -> None:
        self._style = style

    def __enter__(self) -> None:
        self._state = mx.base.config.snapshot()
        mx.set_api(self._style)
        if self._style == 2:
            mx.npx.set_np()

    def __exit__(self, *details: object) -> None:
        mx.base.config.restore(self._state)


def job(do: str, name: str, style: int, folder: Path, generation: int) -> dict[str, Any]:
    """One job of ``original.py``."""
    return {
        "name": f"{do}-{name}-{style}",
        "do": do,
        "model": name,
        "style": style,
        "folder": str(folder),
        "out": f"{do}-by-{generation}.npy",
    }
