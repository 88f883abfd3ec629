"""Files of arrays of every format, opened without reading the numbers: what is in them, how to read one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import torch

from regluon.base import dtypes
from regluon.base.atomic import atomic_path, atomic_writer
from regluon.base.errors import MXNetError
from regluon.serial import npz, params
from regluon.serial.params import ParamsError, SparseTensor

__all__ = ["FORMATS", "ArrayFile", "MissingLibraryError", "StoredArray", "open_arrays", "write_arrays"]

#: Formats of files of arrays, and the endings of their names.
FORMATS = {"params": ".params", "npz": ".npz", "safetensors": ".safetensors"}
# Kept in a safetensors file of arrays that had no names.
_LIST_MARK = {"regluon": "list"}


class MissingLibraryError(MXNetError, ImportError):
    """A file needs a library that is not installed; the message names the extra to install."""


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """One array in a file. ``read`` gives its numbers while the file is open."""

    name: str | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    storage: str
    size: int
    read: Callable[[], torch.Tensor | SparseTensor]

    @property
    def dtype_name(self) -> str:
        """The element type, such as "float32"."""
        return dtypes.to_name(self.dtype)


@dataclasses.dataclass(frozen=True)
class ArrayFile:
    """What a file holds: its format, the versions of its arrays, and the arrays in their order."""

    format: str
    versions: tuple[str, ...]
    named: bool
    arrays: tuple[StoredArray, ...]


@contextlib.contextmanager
def open_arrays(path: str | os.PathLike[str]) -> Iterator[ArrayFile]:
    """Open a ``.params``, ``.npz``, ``.npy`` or ``.safetensors`` file, told by its first bytes.

    Raises
    ------
    ParamsError
        If the file is of another kind or damaged.
    MissingLibraryError
        For a safetensors file where that library is not installed.
    OSError
        If it cannot be opened.
    """
    source = f"File '{os.fspath(path)}'"
    with open(path, "rb") as stream:
        head = stream.read(10)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        if head[:2] == b"PK":
            yield _npz_file(stream, source)
        elif head[:6] == b"\x93NUMPY":
            tensor = npz.read_npy_file(stream, source)
            yield ArrayFile("npy", (), False, (_stored(None, tensor),))
        elif head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
            with _safetensors_file(path, source) as file:
                yield file
        else:
            yield _params_file(stream, source)


def _stored(name: str | None, tensor: torch.Tensor) -> StoredArray:
    size = tensor.numel() * tensor.dtype.itemsize
    return StoredArray(name, tuple(tensor.shape), tensor.dtype, "default", size, lambda: tensor)


def _npz_file(stream: BinaryIO, source: str) -> ArrayFile:
    arrays = []
    for name, shape, dtype, read in npz.scan_npz(stream, source):
        size = dtype.itemsize
        for length in shape:
            size *= length
        arrays.append(StoredArray(name, shape, dtype, "default", size, read))
    return ArrayFile("npz", (), True, tuple(arrays))


def _params_file(stream: BinaryIO, source: str) -> ArrayFile:
    entries = params.scan(stream, source)
    arrays = tuple(
        StoredArray(
            entry.name,
            entry.shape,
            entry.dtype,
            entry.storage,
            entry.size,
            functools.partial(params.read_entry, stream, entry, source),
        )
        for entry in entries
    )
    versions = tuple(f"V{version}" for version in sorted({entry.version for entry in entries}))
    return ArrayFile("params", versions, bool(entries) and entries[0].name is not None, arrays)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingLibraryError(
            "safetensors files need the library of that name: pip install 'regluon[safetensors]'"
        ) from error
    return safetensors


@contextlib.contextmanager
def _safetensors_file(path: str | os.PathLike[str], source: str) -> Iterator[ArrayFile]:
    library = _safetensors()
    try:
        file = library.safe_open(os.fspath(path), framework="pt")
    except library.SafetensorError as error:
        raise ParamsError(f"{source}: this safetensors file is damaged: {error}") from error
    with file as opened:
        named = (opened.metadata() or {}).get("regluon") != _LIST_MARK["regluon"]
        arrays = []
        for name in opened.offset_keys():
            part = opened.get_slice(name)
            shape = tuple(part.get_shape())
            dtype = _SAFE_TYPES.get(part.get_dtype())
            if dtype is None:
                raise ParamsError(
                    f"{source}: '{name}' is of type {part.get_dtype()}, which arrays cannot be."
                )
            size = dtype.itemsize
            for length in shape:
                size *= length
            read = functools.partial(opened.get_tensor, name)
            arrays.append(StoredArray(name if named else None, shape, dtype, "default", size, read))
        yield ArrayFile("safetensors", (), named, tuple(arrays))


_SAFE_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def write_arrays(
    path: str | os.PathLike[str],
    format: str,
    names: Sequence[str],
    arrays: Iterable[torch.Tensor | SparseTensor],
    count: int,
) -> None:
    """Write arrays in one of the `FORMATS`; without names, a list of them.

    The arrays are taken one after the other, so they need not be in memory together (for safetensors they
    are).

    Raises
    ------
    ParamsError
        If the format cannot hold an array: a sparse one in npz or safetensors.
    """
    if format == "params":
        with atomic_writer(path) as stream:
            params.write_each(stream, count, arrays, names)
        return
    keys = list(names) or [f"arr_{index}" for index in range(count)]
    pairs = zip(keys, (_dense(array, format) for array in arrays), strict=True)
    if format == "npz":
        with atomic_writer(path) as stream:
            npz.write_npz(stream, pairs)
        return
    library = _safetensors()
    tensors = {key: tensor.contiguous() for key, tensor in pairs}
    with atomic_path(path) as temporary:
        library.torch.save_file(tensors, temporary, None if names else _LIST_MARK)


def _dense(array: torch.Tensor | SparseTensor, format: str) -> torch.Tensor:
    if isinstance(array, SparseTensor):
        raise ParamsError(
            f"An array of storage type {array.storage} cannot be kept in a {format} file; write .params, or "
            "make it dense (regluon convert --dense)."
        )
    return array
