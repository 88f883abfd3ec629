"""NumPy's ``.npz`` and ``.npy`` files, as 2.0.0b1 writes them: read and written without pickle.

Headers are compared with the real size of the data before memory is allocated, and what packed data would
become with what reading a file may take (`base/limits.py`).
"""

from __future__ import annotations

import functools
import io
import math
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import torch

from regluon.base import dtypes, limits
from regluon.serial.params import ParamsError

_CHUNK = 1 << 20
# NumPy has no arrays with more axes.
_MAXIMUM_RANK = 32
# Deflate makes at most this many bytes of one (its longest match is 258 bytes, coded in 2 bits).
_LARGEST_RATIO = 1032


# What an entry and its array take in memory besides the numbers, about; how long the fixed part of an entry
# in the directory is; and how long a header may be (NumPy's own limit is below that).
_ENTRY_BYTES, _DIRECTORY_ENTRY, _LONGEST_HEADER = 1200, 46, 1 << 16
# The header as NumPy writes it; others are left to NumPy's parser, which takes ten times as long.
_USUAL_HEADER = re.compile(
    rb"\{'descr': '([<>|][fiub]\d)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,18}, )*\d{0,18},?)\), \}\s*"
)


def _header_text(stream: Any, source: str) -> tuple[bytes, bytes]:
    """The length of the header as it stands after magic number and version, and the header."""
    head = stream.read(8)
    version = tuple(head[6:8])
    if head[:6] != np.lib.format.MAGIC_PREFIX or len(head) < 8:
        raise ValueError("the magic string is not correct")
    if version not in ((1, 0), (2, 0)):
        raise ParamsError(f"{source}: version {version} of NumPy's array format is unknown.")
    field = stream.read(2 * version[0])
    length = int.from_bytes(field, "little")
    if length > _LONGEST_HEADER:
        raise ParamsError(f"{source}: a header of {length} bytes is not possible.")
    text = stream.read(length)
    if len(text) < length:
        raise ValueError(f"the header has {len(text)} of {length} bytes")
    return field, text


def _parse_header(field: bytes, text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    usual = _USUAL_HEADER.fullmatch(text)
    if usual is None:
        wide = len(field) > 2
        read = np.lib.format.read_array_header_2_0 if wide else np.lib.format.read_array_header_1_0
        return read(io.BytesIO(field + text))
    shape = tuple(int(size) for size in usual[3].split(b",") if size.strip())
    return shape, usual[2] == b"True", np.dtype(usual[1].decode())


def _read_header(stream: Any, source: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        shape, fortran, dtype = _parse_header(*_header_text(stream, source))
    except ParamsError:
        raise
    except Exception as error:
        raise ParamsError(
            f"{source}, in the first bytes: this is no array in NumPy's format: {error}"
        ) from error
    if dtype.hasobject or dtype.kind not in "fiub":
        raise ParamsError(f"{source}: arrays of type {dtype} are not read; only numbers and booleans are.")
    if len(shape) > _MAXIMUM_RANK:
        raise ParamsError(f"{source}: an array of {len(shape)} axes is not possible.")
    if any(size < 0 for size in shape):
        raise ParamsError(f"{source}: the shape {shape} has a negative size.")
    return shape, fortran, dtype


def read_npy(stream: Any, available: int, source: str) -> torch.Tensor:
    """Read one array; ``available`` is the size in bytes of header and data together.

    Raises
    ------
    ParamsError
        If the data is not such an array, or is cut off.
    """
    shape, fortran, dtype = _read_header(stream, source)
    count = _check_length(shape, dtype, available, source)
    array: np.ndarray[Any, Any] = np.empty(count, dtype=dtype)
    _fill(stream, array.view(np.uint8).data, source)
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
    return torch.from_numpy(
        np.ascontiguousarray(array.reshape(shape, order="F" if fortran else "C")).reshape(shape)
    )


def _check_length(shape: tuple[int, ...], dtype: np.dtype[Any], available: int, source: str) -> int:
    count = math.prod(shape)
    if count * dtype.itemsize > available:
        raise ParamsError(
            f"{source}: an array of shape {shape} and type {dtype} needs {count * dtype.itemsize} bytes, "
            f"but the file holds {available}. It is cut off or damaged."
        )
    return count


def _fill(stream: Any, view: memoryview, source: str) -> None:
    """Read the numbers in pieces to where they stay."""
    done = 0
    while done < len(view):
        try:
            piece = stream.read(min(_CHUNK, len(view) - done))
        except Exception as error:
            # zipfile, zlib and the file itself each have errors of their own.
            raise ParamsError(f"{source}: the data is damaged: {error}") from error
        if not piece:
            raise ParamsError(f"{source}: {done} bytes of data, where {len(view)} were expected.")
        view[done : done + len(piece)] = piece
        done += len(piece)


def read_npz(stream: BinaryIO, source: str) -> dict[str, torch.Tensor]:
    """Read all arrays of a ``.npz`` file by name.

    Raises
    ------
    ParamsError
        If the file is damaged, or so well packed that the arrays would take many times its size.
    """
    archive, size = _open_archive(stream, source)
    with archive:
        infos = archive.infolist()
        total = 0
        for info in infos:
            total += _unpacked(info)
            if limits.exceeds(total, size):
                raise _too_large(info, total, size, source)
        return {
            info.filename.removesuffix(".npy"): _with_member(archive, info, source, read_npy)
            for info in infos
        }


def _open_archive(stream: BinaryIO, source: str) -> tuple[zipfile.ZipFile, int]:
    """The open archive, and the size of the file."""
    size = stream.seek(0, os.SEEK_END)
    count = _directory_size(stream, size) // _DIRECTORY_ENTRY
    if limits.exceeds(count * _ENTRY_BYTES, size):
        raise ParamsError(
            f"{source}, at the end: a directory with room for {count} entries is too large for a file of "
            f"{size} bytes. {limits.REMEDY}"
        )
    stream.seek(0)
    try:
        return zipfile.ZipFile(stream), size
    except Exception as error:  # zipfile raises nearly anything for damaged files
        raise ParamsError(f"{source}: this zip file (.npz) is damaged: {error}") from error


def _directory_size(stream: BinaryIO, size: int) -> int:
    """How many bytes the end of a zip file says that its directory has, as far as the file has them."""
    tail = min(size, (1 << 16) + 22)
    stream.seek(size - tail)
    content = stream.read(tail)
    place = content.rfind(b"PK\5\6")
    if place < 0 or len(content) - place < 22:
        return 0
    (length,) = struct.unpack_from("<I", content, place + 12)
    return min(int(length), size)


def _unpacked(info: zipfile.ZipInfo) -> int:
    """How many bytes an entry can become: the announced size is a claim, the packed bytes are there."""
    return min(info.file_size, info.compress_size * _LARGEST_RATIO)


def _too_large(info: zipfile.ZipInfo, total: int, size: int, source: str) -> ParamsError:
    return ParamsError(
        f"{source}, entry '{info.filename}' at byte {info.header_offset}: with it, the file of {size} bytes "
        f"becomes {total} bytes. {limits.REMEDY}"
    )


def scan_npz(stream: BinaryIO, source: str) -> Iterator[tuple[str, tuple[int, ...], torch.dtype, Any]]:
    """Name, shape and type of each array of a ``.npz`` file, and a function to read it while that is open.

    Raises
    ------
    ParamsError
        If the file is damaged.
    """
    archive, size = _open_archive(stream, source)
    for info in archive.infolist():
        shape, dtype = _with_member(archive, info, source, _checked_header)
        read = functools.partial(_read_scanned, archive, info, size, source)
        yield info.filename.removesuffix(".npy"), shape, dtypes.to_torch(dtype.newbyteorder("=")), read


def _read_scanned(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int, source: str) -> torch.Tensor:
    if limits.exceeds(_unpacked(info), size):
        raise _too_large(info, _unpacked(info), size, source)
    return _with_member(archive, info, source, read_npy)  # type: ignore[no-any-return]


def _with_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: str, use: Callable[..., Any]
) -> Any:
    where = f"{source}, entry '{info.filename}' at byte {info.header_offset}"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # Python reads the others at once, however long they become.
        raise ParamsError(f"{where}: NumPy packs by method 8 (deflate), and this by {info.compress_type}.")
    try:
        member = archive.open(info)
    except Exception as error:
        raise ParamsError(f"{where}: it cannot be opened: {error}") from error
    with member:
        return use(member, _unpacked(info), where)


def _checked_header(stream: Any, available: int, source: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, _, dtype = _read_header(stream, source)
    _check_length(shape, dtype, available, source)
    return shape, dtype


def read_npy_file(stream: BinaryIO, source: str) -> torch.Tensor:
    """Read a ``.npy`` file."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return read_npy(stream, size, source)


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    if tensor.dtype == torch.bfloat16:
        # NumPy has no such type; float32 holds every value.
        tensor = tensor.float()
    return tensor.detach().cpu().contiguous().numpy()


def write_npz(stream: BinaryIO, data: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Write arrays under their names, uncompressed; bfloat16 becomes float32."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, tensor in data:
            info = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _to_numpy(tensor), allow_pickle=False)


def write_npy(stream: BinaryIO, tensor: torch.Tensor) -> None:
    """Write one array as a ``.npy`` file."""
    np.lib.format.write_array(stream, _to_numpy(tensor), allow_pickle=False)
