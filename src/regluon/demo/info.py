"""``regluon info``: what this installation runs on."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console
from rich.table import Table

__all__ = ["describe", "print_info"]

PACKAGES = ("regluon", "torch", "numpy", "opencv-python-headless", "onnx", "onnxruntime", "openvino")


def describe() -> dict[str, dict[str, str]]:
    """Facts by section: versions, processor, devices, backends."""
    return {
        "versions": _versions(),
        "processor": _processor(),
        "devices": _devices(),
        "backends": _backends(),
    }


def print_info() -> None:
    """Print every section as rows of one table."""
    table = Table(show_header=False)
    for title, facts in describe().items():
        table.add_section()
        for row, (name, value) in enumerate(facts.items()):
            table.add_row(title if row == 0 else "", name, value)
    Console().print(table)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "system": f"{platform.system()} {platform.release()}"}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if "regluon" not in found:
        from .. import __version__

        found["regluon"] = f"{__version__} (not installed: running from a source folder)"
    return found


def _processor() -> dict[str, str]:
    return {
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "oneDNN": "available" if torch.backends.mkldnn.is_available() else "missing",
        "bfloat16": "native" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "emulated",
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} processors",
    }


def _devices() -> dict[str, str]:
    devices = {"cpu(0)": platform.processor() or platform.machine()}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices[f"gpu({index})"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return devices


def _backends() -> dict[str, str]:
    from ..exec import backends

    found = {}
    for name in backends.list_backends():
        backend = backends.get(name)
        missing = None if backend.engine is None else backend.engine.missing() or backend.engine.trouble()
        text = _first_line(backend.rewrite.__doc__)
        found[name] = text if missing is None else f"{text} (not available here)"
    return found


def _first_line(text: str | None) -> str:
    return text.strip().splitlines()[0] if text and text.strip() else ""
