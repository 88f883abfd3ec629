"""Settings: strictness, the API level, and the NumPy modes. Scopes are per thread; the level is per
process."""

from __future__ import annotations

import os
import threading
from typing import Any

__all__ = [
    "api_level",
    "is_np_array",
    "is_np_default_dtype",
    "is_np_shape",
    "native_code",
    "restore",
    "set_api",
    "set_np_array",
    "set_np_default_dtype",
    "set_np_shape",
    "set_strict",
    "snapshot",
    "strict",
]


def _flag(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")


class _Process:
    """Settings that all threads share."""

    level = 2
    strict = _flag("REGLUON_STRICT")
    np_array = False
    np_shape = False
    np_dtype = False


class _Thread(threading.local):
    """Settings of one thread; None means what the process has."""

    np_array: bool | None = None
    np_shape: bool | None = None


_process = _Process()
_thread = _Thread()


def strict() -> bool:
    """True when the originals' refusals are asked for (``REGLUON_STRICT=1``)."""
    return _process.strict


def set_strict(value: bool) -> bool:
    """Switch strictness; gives what it was."""
    before, _process.strict = _process.strict, bool(value)
    return before


def native_code() -> bool:
    """Whether C++ may be compiled and run where there is a compiler (not with ``REGLUON_NATIVE=0``)."""
    return os.environ.get("REGLUON_NATIVE", "").strip().lower() not in ("0", "false", "no", "off")


def api_level() -> int:
    """1 for the Gluon of MXNet 1.x (prefixes), 2 for that of 2.0 (structural names)."""
    return _process.level


def set_api(level: int) -> int:
    """Choose the API level that new blocks read; gives the level before.

    Raises
    ------
    ValueError
        For a level other than 1 and 2.
    """
    if level not in (1, 2):
        raise ValueError(f"the API level is 1 (MXNet 1.x) or 2 (MXNet 2.0); received {level!r}")
    before, _process.level = _process.level, level
    return before


def is_np_array() -> bool:
    """True when parameters and loaders give np.ndarray (after ``npx.set_np()``)."""
    value = _thread.np_array
    return _process.np_array if value is None else value


def is_np_shape() -> bool:
    """True when sizes 0 are sizes and -1 is unknown; False when 0 is unknown in symbolic shapes."""
    value = _thread.np_shape
    return _process.np_shape if value is None else value


def set_np_array(active: bool | None, everywhere: bool = False) -> bool | None:
    """Set the array mode of this thread (or of the process); gives the thread's value before."""
    before = _thread.np_array
    if everywhere:
        _process.np_array = bool(active)
        _thread.np_array = None
    else:
        _thread.np_array = active
    return before


def set_np_shape(active: bool | None, everywhere: bool = False) -> bool | None:
    """Set the shape mode of this thread (or of the process); gives the thread's value before."""
    before = _thread.np_shape
    if everywhere:
        _process.np_shape = bool(active)
        _thread.np_shape = None
    else:
        _thread.np_shape = active
    return before


def is_np_default_dtype() -> bool:
    """True when new np arrays are float64 and int64, as in NumPy."""
    return _process.np_dtype


def set_np_default_dtype(active: bool) -> bool:
    """Switch the default type of new np arrays; gives what it was."""
    before, _process.np_dtype = _process.np_dtype, bool(active)
    return before


def snapshot() -> dict[str, Any]:
    """All settings, for `restore`."""
    return {
        "process": {
            name: getattr(_process, name) for name in ("level", "strict", "np_array", "np_shape", "np_dtype")
        },
        "thread": (_thread.np_array, _thread.np_shape),
    }


def restore(state: dict[str, Any]) -> None:
    """Put back what `snapshot` gave."""
    for name, value in state["process"].items():
        setattr(_process, name, value)
    _thread.np_array, _thread.np_shape = state["thread"]
