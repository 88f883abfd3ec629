"""NumPy's ``.npz`` and ``.npy`` files, as 2.0.0b1 writes them: read and written without pickle.

Headers are compared with the real size of the data before memory is allocated.
"""

from __future__ import annotations

import functools
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import torch

from regluon.base import dtypes
from regluon.serial.params import ParamsError

_CHUNK = 1 << 20
# Deflate makes at most this many bytes of one (its longest match is 258 bytes, coded in 2 bits).
_LARGEST_RATIO = 1032


def _read_header(stream: Any, source: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ParamsError(f"{source}: version {version} of NumPy's array format is unknown.")
    except ParamsError:
        raise
    except Exception as error:
        raise ParamsError(
            f"{source}, in the first bytes: this is no array in NumPy's format: {error}"
        ) from error
    if dtype.hasobject or dtype.kind not in "fiub":
        raise ParamsError(f"{source}: arrays of type {dtype} are not read; only numbers and booleans are.")
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
    """Read all arrays of a ``.npz`` file by name."""
    try:
        archive = zipfile.ZipFile(stream)
    except Exception as error:  # zipfile raises nearly anything for damaged files
        raise ParamsError(f"{source}: this zip file (.npz) is damaged: {error}") from error
    with archive:
        return {
            info.filename.removesuffix(".npy"): _with_member(archive, info, source, read_npy)
            for info in archive.infolist()
        }


def scan_npz(stream: BinaryIO, source: str) -> Iterator[tuple[str, tuple[int, ...], torch.dtype, Any]]:
    """Name, shape and type of each array of a ``.npz`` file, and a function to read it while that is open.

    Raises
    ------
    ParamsError
        If the file is damaged.
    """
    try:
        archive = zipfile.ZipFile(stream)
    except Exception as error:
        raise ParamsError(f"{source}: this zip file (.npz) is damaged: {error}") from error
    for info in archive.infolist():
        shape, dtype = _with_member(archive, info, source, _checked_header)
        read = functools.partial(_with_member, archive, info, source, read_npy)
        yield info.filename.removesuffix(".npy"), shape, dtypes.to_torch(dtype.newbyteorder("=")), read


def _with_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: str, use: Callable[..., Any]
) -> Any:
    where = f"{source}, entry '{info.filename}' at byte {info.header_offset}"
    try:
        member = archive.open(info)
    except Exception as error:
        raise ParamsError(f"{where}: it cannot be opened: {error}") from error
    with member:
        # The announced size is a claim; the packed bytes are there.
        return use(member, min(info.file_size, info.compress_size * _LARGEST_RATIO), where)


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
