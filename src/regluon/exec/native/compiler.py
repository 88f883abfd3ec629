"""Shared libraries of C++ sources: compiled once a machine, and kept in the folder of `cache_folder`.

A library is compiled in a folder of its own, loaded, and only then moved to its place, so that processes may
compile the same one at once. It ends with a digest of its contents: what a crash left half-written is
compiled again, not loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import tempfile
import time
from pathlib import Path

from ...base import config
from ..cache import cache_folder, machine
from .background import Stopped, TookTooLong, run_command

__all__ = ["compiler", "library"]

_FLAGS = (
    *("-x", "c++", "-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"),
    *("-fPIC", "-shared", "-Wl,--as-needed"),
)
# What was not compiled, or not loaded, is not tried again in this process.
_failed: set[str] = set()
# Compilers that did not answer in time are not asked again.
_hanging: set[tuple[str, ...]] = set()
# Bytes of a digest at the end of a library, which the loader does not look at.
_SEAL = hashlib.sha256().digest_size
# Folders of processes that were killed while they compiled are removed after so many seconds.
_UNFINISHED, _ABANDONED = "compiling", 3600.0


def compiler() -> tuple[str, ...] | None:
    """The command of a C++ compiler: ``$CXX``, else the first one on the path; None where there is none."""
    if not config.native_code() or platform.system() != "Linux":
        return None
    try:
        asked = shlex.split(os.environ.get("CXX", ""))
    except ValueError:
        # A quotation mark is missing.
        return None
    names = asked[:1] or ["g++", "c++", "clang++"]
    found = next(filter(None, map(shutil.which, names)), None)
    # It is run in another folder, where a relative path would be another file.
    return None if found is None else (os.path.abspath(found), *asked[1:])


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    return run_command([*command, "--version"], "/")


@functools.cache
def _features() -> str:
    """What the processor can do (two of one model may differ, such as virtual ones), and the C library."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = next((line for line in lines if line.split(":")[0].strip() in ("flags", "Features")), "")
    return f"{platform.machine()} {found} {' '.join(platform.libc_ver())}"


def library(source: str) -> ctypes.CDLL | None:
    """The library of a source, compiled if it was not before; None where it cannot be had.

    This may take seconds: it is to be called in the background.
    """
    command = compiler()
    if command is None or command in _hanging:
        return None
    try:
        words = "\n".join([source, *command, *_FLAGS, _version(command), machine(), _features()])
        name = hashlib.sha256(words.encode(errors="surrogateescape")).hexdigest()[:32] + ".so"
        folder = _own_folder()
        if name in _failed or folder is None:
            return None
        return _found(command, source, folder / name)
    except TookTooLong:
        _hanging.add(command)
    except (OSError, Stopped):
        pass
    return None


def _found(command: tuple[str, ...], source: str, path: Path) -> ctypes.CDLL | None:
    """The library at a path, compiled if there is no whole one."""
    try:
        return _load(path) if _is_whole(path) else _compile(command, source, path)
    except OSError:
        _failed.add(path.name)
        return None


def _load(path: Path) -> ctypes.CDLL:
    # Python is entered by functions of the runtime, so that the lock is held while they run.
    return ctypes.PyDLL(str(path))


def _compile(command: tuple[str, ...], source: str, path: Path) -> ctypes.CDLL:
    _remove_abandoned(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_UNFINISHED) as folder:
        text, made = Path(folder) / "source.cpp", Path(folder) / "made.so"
        text.write_text(source, encoding="utf-8")
        run_command([*command, *_FLAGS, "-o", made.name, text.name, "-lm"], folder)
        _seal(made)
        library = _load(made)
        os.replace(made, path)
    return library


def _seal(made: Path) -> None:
    """Put a digest at the end of a library, and see to it that nobody else may write to it."""
    made.chmod(0o700)
    digest = hashlib.sha256(made.read_bytes()).digest()
    with made.open("ab") as file:
        file.write(digest)


def _is_whole(path: Path) -> bool:
    """Whether there is a library that is as it was when it was made."""
    try:
        contents = path.read_bytes()
    except FileNotFoundError:
        return False
    return hashlib.sha256(contents[:-_SEAL]).digest() == contents[-_SEAL:]


def _remove_abandoned(folder: Path) -> None:
    oldest = time.time() - _ABANDONED
    for path in folder.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)


def _own_folder() -> Path | None:
    """The folder of libraries; None if others could put files there, since what lies there is executed."""
    folder = cache_folder().absolute() / "native"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    mine = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if mine else None
