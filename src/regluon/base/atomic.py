"""Writing files so that a reader sees the old file or the whole new one, never half of it."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["atomic_path", "atomic_writer", "write_text"]


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str], lasting: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file next to ``path``; it takes that name when the block ends without an error.

    The bytes are on the disk before the name changes: if the program or the machine stops at any moment,
    the old file or the new one is there. The permissions are those of the file that is replaced, or what
    the umask gives a new file. A device or pipe is written to directly. What can be made again need not be
    ``lasting``: then nothing waits for the disk, and the file is its owner's only.
    """
    target = os.path.realpath(os.fspath(path))
    if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
        with open(target, "wb") as stream:
            yield stream
        return
    with atomic_path(path, lasting) as temporary, open(temporary, "wb") as stream:
        yield stream


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str], lasting: bool = True) -> Iterator[str]:
    """The name of a temporary file for a library that opens files itself; see `atomic_writer`.

    Raises
    ------
    OSError
        Where no file can be written: ``path`` is a folder, its folder is missing, or may not be written to.
    """
    target = os.path.realpath(os.fspath(path))
    folder = os.path.dirname(target)
    if os.path.isdir(target) or os.fspath(path).endswith(os.sep):
        raise _refused(errno.EISDIR, path, "give the path of a file, in this folder or beside it", target)
    if not os.path.isdir(folder):
        if os.path.exists(folder):
            raise _refused(errno.ENOTDIR, path, "choose a path whose folder is no file", folder)
        raise _refused(errno.ENOENT, path, "make its folder first, or correct the path", folder)
    try:
        descriptor, temporary = tempfile.mkstemp(
            prefix=f".{os.path.basename(target)}.", suffix=".part", dir=folder
        )
    except OSError as error:
        remedy = "a new file must be made in its folder first: choose another folder, or see to this one"
        raise _refused(error.errno or errno.EIO, path, remedy, folder) from error
    os.close(descriptor)
    try:
        yield temporary
        if lasting:
            with open(temporary, "rb+") as stream:
                os.fsync(stream.fileno())
            os.chmod(temporary, _permissions(target))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_text(path: str | os.PathLike[str], text: str, lasting: bool = True) -> None:
    """Replace the file ``path`` by ``text`` in UTF-8."""
    with atomic_writer(path, lasting) as stream:
        stream.write(text.encode("utf-8"))


def _refused(number: int, path: str | os.PathLike[str], remedy: str, place: str) -> OSError:
    """The error for a path; the system's would name the temporary file, which means nothing to the reader."""
    return OSError(number, f"{os.strerror(number)}: cannot write {os.fspath(path)!r}; {remedy}", place)


def _permissions(target: str) -> int:
    try:
        return os.stat(target).st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
