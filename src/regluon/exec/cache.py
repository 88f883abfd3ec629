"""Where things are kept between processes, and the name of the machine that they hold for."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path

import torch

__all__ = ["cache_folder", "machine"]


def cache_folder() -> Path:
    """The folder that ``REGLUON_CACHE`` names, else ``~/.cache/regluon``; it need not exist."""
    folder = os.environ.get("REGLUON_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "regluon"


@functools.cache
def machine() -> str:
    """The processor and the version of torch."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, torch {torch.__version__}"
