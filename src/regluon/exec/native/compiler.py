"""Shared libraries of C++ sources: compiled once a machine, and kept in the folder of `cache_folder`."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import tempfile
from pathlib import Path

from ...base import config
from ..cache import cache_folder, machine
from .background import Stopped, run_command

__all__ = ["compiler", "library"]

_FLAGS = (
    *("-x", "c++", "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"),
    *("-fPIC", "-shared", "-Wl,--as-needed"),
)
_failed: set[str] = set()


def compiler() -> tuple[str, ...] | None:
    """The command of a C++ compiler: ``$CXX``, else the first one on the path; None where there is none."""
    if not config.native_code() or platform.system() != "Linux":
        return None
    asked = shlex.split(os.environ.get("CXX", ""))
    if asked:
        return tuple(asked) if shutil.which(asked[0]) else None
    found = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    return None if found is None else (found,)


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    return run_command([*command, "--version"], "/")


@functools.cache
def _features() -> str:
    """What the processor can do: two of one model may differ, such as virtual ones."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = next((line for line in lines if line.split(":")[0].strip() in ("flags", "Features")), "")
    return f"{platform.machine()} {found}"


def library(source: str) -> ctypes.CDLL | None:
    """The library of a source, compiled if it was not before; None where it cannot be had.

    This may take seconds: it is to be called in the background.
    """
    command = compiler()
    if command is None:
        return None
    try:
        words = "\n".join([source, *command, *_FLAGS, _version(command), machine(), _features()])
        name = hashlib.sha256(words.encode()).hexdigest()[:32] + ".so"
        folder = _own_folder()
        if name in _failed or folder is None:
            return None
        path = folder / name
        if not path.exists():
            try:
                _compile(command, source, path)
            except OSError:
                _failed.add(name)
                return None
        # Python is entered by functions of the runtime, so that the lock is held while they run.
        return ctypes.PyDLL(str(path))
    except (OSError, Stopped):
        return None


def _compile(command: tuple[str, ...], source: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="compiling") as folder:
        text, made = Path(folder) / "source.cpp", Path(folder) / "made.so"
        text.write_text(source)
        run_command([*command, *_FLAGS, "-o", str(made), str(text), "-lm"], folder)
        os.replace(made, path)


def _own_folder() -> Path | None:
    """The folder of libraries; None if others could put files there, since what lies there is executed."""
    folder = cache_folder() / "native"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    mine = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if mine else None
