"""mx.context: devices."""

from __future__ import annotations

from .base.device import (
    Context,
    Device,
    cpu,
    cpu_pinned,
    current_context,
    current_device,
    gpu,
    gpu_memory_info,
    num_gpus,
)

__all__ = [
    "Context",
    "Device",
    "cpu",
    "cpu_pinned",
    "current_context",
    "current_device",
    "gpu",
    "gpu_memory_info",
    "num_gpus",
]
