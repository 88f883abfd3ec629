"""Devices. A device is a label on an array: several CPU labels share one memory, as in MXNet."""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch

from .errors import MXNetError
from .memory import give_back
from .pool import drop_blocks

__all__ = [
    "Context",
    "Device",
    "cpu",
    "cpu_pinned",
    "cpu_shared",
    "current_context",
    "current_device",
    "device",
    "gpu",
    "gpu_memory_info",
    "num_gpus",
    "torch_device",
]

_TYPES = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}
_NAMES = {code: name for name, code in _TYPES.items()}


class Context:
    """A device label such as ``cpu(0)`` or ``gpu(1)``; a ``with`` scope makes it the default one.

    Parameters
    ----------
    device_type : str, int or Context
        ``"cpu"``, ``"gpu"``, ``"cpu_pinned"``, ``"cpu_shared"``, their MXNet codes, or a context to copy.
    device_id : int
        Number of the device.
    """

    __slots__ = ("_old", "_torch", "device_id", "device_type")
    _current = threading.local()
    devtype2str = _NAMES
    devstr2type = _TYPES

    def __init__(self, device_type: Any, device_id: int = 0) -> None:
        if isinstance(device_type, Context):
            device_type, device_id = device_type.device_type, device_type.device_id
        if isinstance(device_type, int):
            device_type = _NAMES.get(device_type, device_type)
        if device_type not in _TYPES:
            raise MXNetError(f"{device_type!r} is not a kind of device; expected one of {', '.join(_TYPES)}")
        self.device_type: str = device_type
        self.device_id: int = int(device_id)
        self._old: list[Context | None] = []
        self._torch: torch.device | None = None

    @property
    def device_typeid(self) -> int:
        """MXNet's code of the device type."""
        return _TYPES[self.device_type]

    @property
    def torch(self) -> torch.device:
        """The torch device that holds the arrays of this context.

        Raises MXNetError for a GPU that this machine does not have.
        """
        if self._torch is None:
            if self.device_type != "gpu":
                self._torch = torch.device("cpu")
            else:
                if self.device_id >= num_gpus():
                    raise MXNetError(
                        f"{self} is not there: this machine has {num_gpus()} usable GPU(s). "
                        "Use mx.cpu(), or check mx.num_gpus() first"
                    )
                self._torch = torch.device("cuda", self.device_id)
        return self._torch

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context)
            and self.device_type == other.device_type
            and self.device_id == other.device_id
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __str__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    __repr__ = __str__

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.device_type, self.device_id)

    def __enter__(self) -> Context:
        self._old.append(getattr(Context._current, "value", None))
        Context._current.value = self
        return self

    def __exit__(self, *exception: object) -> None:
        Context._current.value = self._old.pop()

    def empty_cache(self) -> None:
        """Give memory that is kept for later back to the system."""
        if self.device_type == "gpu":
            torch.cuda.empty_cache()
        else:
            drop_blocks()
            give_back()


Device = Context
_CPU = Context("cpu", 0)


@functools.lru_cache(maxsize=64)
def _parse(text: str) -> Context:
    kind, _, rest = text.partition("(")
    try:
        return Context(kind.strip(), int(rest.rstrip(")") or 0))
    except ValueError as error:
        raise MXNetError(f"{text!r} is not a device; expected for example 'cpu(0)' or 'gpu(1)'") from error


def device(value: Any, device_id: int = 0) -> Context:
    """A context from a context, a torch device, a string such as ``"cpu(0)"``, or None (the current one)."""
    if value is None or value == "":
        return current_context()
    if isinstance(value, Context):
        return value
    if isinstance(value, torch.device):
        return Context("cpu" if value.type == "cpu" else "gpu", value.index or 0)
    if isinstance(value, str) and "(" in value:
        return _parse(value)
    if isinstance(value, str):
        return Context(value, device_id)
    raise MXNetError(f"a device was expected, such as mx.cpu() or 'gpu(0)'; received {value!r}")


def torch_device(value: Any = None) -> torch.device:
    """The torch device behind a context, a string or None (the current context)."""
    return device(value).torch


def current_context() -> Context:
    """The context that new arrays get: that of the innermost ``with`` scope, else ``cpu(0)``."""
    return getattr(Context._current, "value", None) or _CPU


current_device = current_context


def cpu(device_id: int = 0) -> Context:
    """The context of a CPU label."""
    return _CPU if device_id == 0 else Context("cpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """A CPU label for memory that a GPU copies from fast."""
    return Context("cpu_pinned", device_id)


def cpu_shared(device_id: int = 0) -> Context:
    """A CPU label for memory shared between processes."""
    return Context("cpu_shared", device_id)


def gpu(device_id: int = 0) -> Context:
    """The context of a GPU."""
    return Context("gpu", device_id)


def num_gpus() -> int:
    """How many GPUs torch can use."""
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory."""
    free, total = torch.cuda.mem_get_info(gpu(device_id).torch)
    return int(free), int(total)
