"""mx.npx: operators beyond NumPy for np arrays, and the switches of the NumPy mode."""

from __future__ import annotations

import sys
from typing import Any

from ..array import waitall
from ..base.device import cpu, cpu_pinned, current_device, gpu, gpu_memory_info, num_gpus
from ..numpy import creation as _creation
from ..runtime import namespaces as _namespaces
from ..runtime.handles import kinds
from ..symbol.control_flow import cond, foreach, while_loop
from ..util import (
    get_cuda_compute_capability,
    is_np_array,
    is_np_default_dtype,
    is_np_shape,
    reset_np,
    set_np,
    set_np_default_dtype,
    use_np,
    use_np_array,
    use_np_shape,
)

__all__ = [
    "cond",
    "cpu",
    "cpu_pinned",
    "current_context",
    "current_device",
    "foreach",
    "from_dlpack",
    "from_numpy",
    "get_cuda_compute_capability",
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
    "set_np_default_dtype",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "use_np",
    "use_np_array",
    "use_np_shape",
    "waitall",
    "while_loop",
]
current_context = current_device


def from_numpy(ndarray: Any, zero_copy: bool = True) -> Any:
    """An array of the values of a NumPy array; with ``zero_copy`` both share memory.

    Raises ValueError when memory is to be shared and the NumPy array is not C-contiguous.
    """
    from ..ndarray.functions import from_numpy as nd_from_numpy

    return nd_from_numpy(ndarray, zero_copy, kinds.np)


def from_dlpack(dlpack: Any) -> Any:
    """An array that shares memory with a DLPack capsule or with an object that has ``__dlpack__``."""
    return _creation.from_dlpack(dlpack)


def to_dlpack_for_read(data: Any) -> Any:
    """A DLPack capsule that shares memory with an array."""
    return data.to_dlpack_for_read()


to_dlpack_for_write = to_dlpack_for_read


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
from .random import seed  # noqa: E402

_namespaces.fill_namespace(sys.modules[__name__], "npx")
_namespaces.publish(sys.modules[__name__], ["random"])
_namespaces.publish(random)
