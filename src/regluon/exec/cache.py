"""Where things are kept between processes, and the name of the machine that they hold for."""

from __future__ import annotations

import functools
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

from ..base.atomic import write_text

__all__ = ["cache_folder", "machine", "write_json"]


def cache_folder() -> Path:
    """The folder that ``REGLUON_CACHE`` names, else ``~/.cache/regluon``; it need not exist.

    For a user without a home it is a folder of temporary files.
    """
    folder = os.environ.get("REGLUON_CACHE")
    if folder:
        return Path(folder)
    try:
        return Path.home() / ".cache" / "regluon"
    except RuntimeError:
        # A user without a home, as in some containers.
        return Path(tempfile.gettempdir()) / f"regluon-{os.getuid()}"


def write_json(path: Path, content: Any) -> None:
    """Replace a file of the folder; one that cannot be written to keeps nothing, which only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=0, sort_keys=True), lasting=False)
    except OSError:
        return


@functools.cache
def machine() -> str:
    """The processor and the version of torch."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        # Only here, since it may start a process.
        model = platform.processor() or platform.machine()
    return f"{model}, torch {torch.__version__}"
