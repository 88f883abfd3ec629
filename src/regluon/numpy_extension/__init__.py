"""mx.npx: operators beyond NumPy for np arrays, and the switches of the NumPy mode."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..array import waitall
from ..base.device import cpu, cpu_pinned, current_device, gpu, gpu_memory_info, num_gpus
from ..runtime import namespaces as _namespaces
from ..util import (
    is_np_array,
    is_np_default_dtype,
    is_np_shape,
    reset_np,
    set_np,
    use_np,
    use_np_array,
    use_np_shape,
)

__all__ = [
    "cpu",
    "cpu_pinned",
    "current_device",
    "gpu",
    "gpu_memory_info",
    "is_np_array",
    "is_np_default_dtype",
    "is_np_shape",
    "load",
    "num_gpus",
    "reset_np",
    "save",
    "savez",
    "seed",
    "set_np",
    "use_np",
    "use_np_array",
    "use_np_shape",
    "waitall",
]
current_context = current_device


def seed(seed: int, device: object = "all", ctx: object = None) -> None:
    """Start the sequence of random draws anew."""
    from ..base import rng

    rng.seed(seed)


def save(file, arr):  # type: ignore[no-untyped-def]
    """Write one array as ``.npy`` (a dict or list of arrays: as `mx.nd.save`)."""
    from .. import serial

    serial.np_save(file, arr)


def savez(file, *args, **kwds):  # type: ignore[no-untyped-def]
    """Write arrays as ``.npz``."""
    from .. import serial

    serial.np_savez(file, *args, **kwds)


def load(file):  # type: ignore[no-untyped-def]
    """Read ``.npy``, ``.npz`` or a ``.params`` file as np arrays."""
    from .. import serial

    return serial.np_load(file)


from . import random as random  # noqa: E402

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Functions made from the operator table."""


_namespaces.fill_namespace(sys.modules[__name__], "npx")
