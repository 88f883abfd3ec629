"""Children made by ``fork`` compute with one thread where their parent had computed with several.

The threads with which OpenMP shares out loops do not exist in such a child, and it waits for them for ever:
torch's operators hang there as well. With one thread they are not asked for, and it stays at one: what torch
calls `set_num_threads` warns there and does nothing else, except where a module imported it by name before.
"""

from __future__ import annotations

import operator
import os
import threading
import warnings
from typing import Any

import torch

__all__: list[str] = []

_FOLDER = "/proc/self/task"


def _foreign() -> int | None:
    """How many threads there are that Python did not start; None where that is not to be known."""
    try:
        return len(os.listdir(_FOLDER)) - threading.active_count()
    except OSError:
        return None


class _Process:
    # NumPy's library may have started some as it was imported.
    idle = _foreign()
    computed = False
    # What sets the number of threads, in a child that is to keep one.
    set_threads: Any = None


def _before() -> None:
    found = _foreign()
    if found is None or _Process.idle is None or found > _Process.idle:
        _Process.computed = True


def _in_parent() -> None:
    # NumPy's library stops its threads for a fork.
    _Process.idle = _foreign()


def _keep_one(threads: int) -> None:
    """Stands for `torch.set_num_threads` in a child whose parent had computed with several threads."""
    if hasattr(threads, "__index__") and operator.index(threads) > 1:
        warnings.warn(
            f"torch.set_num_threads({threads}) has no effect in a process made by fork from one that had "
            "computed with several threads: it would wait for ever for threads that do not exist in it. It "
            "goes on with one. Start it with multiprocessing's 'spawn' or 'forkserver' to compute with more",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    _Process.set_threads(threads)


def _in_child() -> None:
    if _Process.computed and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        _Process.set_threads = torch.set_num_threads
        torch.set_num_threads = _keep_one  # type: ignore[assignment]
    _Process.idle, _Process.computed = _foreign(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
