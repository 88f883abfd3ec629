"""Work that nobody waits for. One thread does it; it ends with the work, and with the interpreter.

A child made by ``fork`` has no such thread, whatever its parent had begun: what was waiting is dropped there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Stopped", "TookTooLong", "run_command", "submit", "wait"]

# Seconds that a compiler may take, and that the end of the interpreter waits for the thread.
_LONGEST_COMMAND, _LONGEST_STOP = 120.0, 5.0
# Added to the niceness of a command. It gives way to the program, but not for long: while it competes for the
# processors, threads of OpenMP that wait for one of their own keep calls waiting too.
_NICENESS = 5
# A group of its own: all that a compiler starts is ended with it, and Ctrl-C does not reach it. A session of
# its own would do that too, but Linux may share the processor between sessions whatever their priorities are.
_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}


class Stopped(Exception):
    """The interpreter ends."""


class TookTooLong(Exception):
    """A command did not end in time, and was ended."""


class _Worker:
    """The jobs that wait, the thread that does them, and the command that it runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: deque[Callable[[], None]] = deque()
        self.thread: threading.Thread | None = None
        self.stopping = False

    def submit(self, job: Callable[[], None]) -> None:
        with self.lock:
            if self.stopping:
                return
            self.jobs.append(job)
            if self.thread is None:
                self.thread = threading.Thread(target=self._work, name="regluon-native", daemon=True)
                try:
                    self.thread.start()
                except RuntimeError:
                    # No thread can be had, as at the end of the interpreter.
                    self.thread = None
                    self.jobs.clear()

    def _work(self) -> None:
        while True:
            with self.lock:
                if self.stopping or not self.jobs:
                    self.thread = None
                    return
                job = self.jobs.popleft()
            # A job that fails leaves things as they were, which is right, if slower.
            with contextlib.suppress(Exception):
                job()
            # What a job holds (a network's graph) is not kept until the next.
            del job

    def living(self) -> threading.Thread | None:
        """The thread that does the jobs; None where none are left."""
        with self.lock:
            return self.thread

    def stop(self) -> None:
        with self.lock:
            self.stopping = True
            self.jobs.clear()
            thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LONGEST_STOP)


_worker = _Worker()


def _start_afresh() -> None:
    global _worker
    _worker = _Worker()


def _stop() -> None:
    _worker.stop()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def submit(job: Callable[[], None]) -> None:
    """Do a job in the background; its exceptions are dropped."""
    _worker.submit(job)


def wait(seconds: float = 120.0) -> bool:
    """Wait until no job is left; False if some still are after so many seconds."""
    end = time.monotonic() + seconds
    while (thread := _worker.living()) is not None:
        left = end - time.monotonic()
        if left <= 0:
            return False
        thread.join(min(left, 0.05))
    return True


def run_command(words: Sequence[str], folder: str) -> str:
    """What a command prints, run at a lower priority, in a folder that also takes its temporary files.

    Raises
    ------
    Stopped
        If the interpreter ends meanwhile.
    TookTooLong
        If it does not end in time.
    OSError
        If it cannot be run, or fails.
    """
    worker = _worker
    process = subprocess.Popen(
        list(words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, "TMPDIR": folder, "LC_ALL": "C"},
        **_GROUP,
    )
    try:
        _lower(process.pid)
        end = time.monotonic() + _LONGEST_COMMAND
        while True:
            try:
                printed, _ = process.communicate(timeout=0.05)
                break
            except subprocess.TimeoutExpired:
                if worker.stopping:
                    raise Stopped(words[0]) from None
                if time.monotonic() > end:
                    raise TookTooLong(words[0]) from None
    except BaseException:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()
    if process.returncode:
        raise OSError(f"{words[0]} ended with {process.returncode}")
    text: str = printed.decode(errors="replace")
    return text


def _lower(group: int) -> None:
    """Lower the priority of a group of processes: of those that a compiler has started already, too."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PGRP, group, min(os.nice(0) + _NICENESS, 19))
    if "start_new_session" in _GROUP:
        with contextlib.suppress(OSError):
            Path(f"/proc/{group}/autogroup").write_text(str(_NICENESS))
