"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, str]:
    """The processor, its units for speed, cores and memory; what the system does not tell is left out."""
    facts = {"processor": platform.processor() or platform.machine(), "cores": str(cores())}
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = [line.partition(":") for line in information.read_text().splitlines()]
        fields = {name.strip(): value.strip() for name, _, value in reversed(lines)}
        facts["processor"] = fields.get("model name", facts["processor"])
        if fields.get("model name", "").endswith("Processor"):
            numbers = [fields.get(name, "?") for name in ("cpu family", "model")]
            facts["processor"] += f" (family {numbers[0]}, model {numbers[1]})"
        flags = fields.get("flags", "").split()
        units = [
            name
            for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
            if name in flags
        ]
        facts["units"] = ", ".join(units) or "none"
    if hasattr(os, "sysconf"):
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts["memory"] = f"{size / 2**30:.0f} GiB"
    facts["system"] = f"{platform.system()} {platform.machine()}"
    return facts
