"""Reading and writing arrays: the ``.params`` binary of all MXNet versions, ``.npz`` and ``.npy``.

Nothing in a file is ever executed, no length field is trusted, and files are replaced whole (see README.md).
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import torch

from regluon.array import NDArray
from regluon.array import ndarray as np_ndarray
from regluon.array.sparse import STORAGE_TYPES, BaseSparseNDArray
from regluon.base import config, limits
from regluon.base.atomic import atomic_writer, write_text
from regluon.base.limits import lifted as without_limits
from regluon.serial import npz, params
from regluon.serial.params import ParamsError, SparseTensor

__all__ = [
    "ParamsError",
    "SparseTensor",
    "atomic_writer",
    "iterate",
    "load",
    "loads",
    "nd_load",
    "nd_load_frombuffer",
    "nd_save",
    "np_load",
    "np_save",
    "np_savez",
    "save",
    "without_limits",
    "write",
    "write_text",
]

_Path = str | os.PathLike[str]
_Loaded = torch.Tensor | SparseTensor


def _record(value: Any, what: str) -> _Loaded:
    """The tensor (or sparse record) of an array."""
    if isinstance(value, torch.Tensor | SparseTensor):
        return value
    if not isinstance(value, NDArray):
        raise TypeError(
            f"{what} must be an NDArray or mx.np.ndarray; received {type(value).__name__}. Make one with "
            "mx.nd.array."
        )
    if isinstance(value, BaseSparseNDArray):
        return SparseTensor(value.stype, value.shape, value._values, value._places)
    return value._value("saving it")


def _wrap(value: _Loaded, kind: type[Any]) -> Any:
    """An array of the given kind around what a file held; sparse arrays are of the 1.x kind."""
    if not isinstance(value, SparseTensor):
        return kind._wrap(value, None)
    places = [part.long() for part in value.auxiliary]
    return STORAGE_TYPES[value.storage]._made(value.data, places, value.shape)


def _records(data: Any) -> dict[str, _Loaded] | list[_Loaded]:
    if isinstance(data, Mapping):
        for name in data:
            if not isinstance(name, str):
                raise TypeError(f"Names of arrays must be str; received {name!r}.")
        return {name: _record(value, f"The value of '{name}'") for name, value in data.items()}
    if isinstance(data, NDArray | torch.Tensor):
        return [_record(data, "The data")]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return [_record(value, f"Element {index} of the data") for index, value in enumerate(data)]
    raise TypeError(
        "An array, a list of arrays or a dict of names to arrays was expected; received "
        f"{type(data).__name__}."
    )


def save(path: _Path, data: Any, format: str | None = None) -> None:
    """Write an array, a list of arrays or a dict of names to arrays.

    Parameters
    ----------
    path : path
        File to write; it is replaced in one step.
    data : NDArray, list or dict
        What to write.
    format : {None, "params", "npz"}
        The binary ``.params`` format that every MXNet reads (default), or NumPy's, which 2.0 reads.

    Raises
    ------
    TypeError
        If the data is something else.
    """
    with atomic_writer(path) as stream:
        write(stream, data, format)


def write(stream: BinaryIO, data: Any, format: str | None = None) -> None:
    """The same as :func:`save`, into an open file."""
    if format not in (None, "params", "npz"):
        raise ValueError(f"format must be 'params' or 'npz'; received {format!r}.")
    records = _records(data)
    if format == "npz":
        named = (
            records if isinstance(records, dict) else {f"arr_{i}": value for i, value in enumerate(records)}
        )
        npz.write_npz(stream, ((name, _dense(value)) for name, value in named.items()))
    else:
        params.write(stream, records)


def _dense(value: _Loaded) -> torch.Tensor:
    return value.to_dense() if isinstance(value, SparseTensor) else value


def _read(stream: BinaryIO, source: str, kind: type[Any]) -> dict[str, Any] | list[Any]:
    """Arrays of the given kind from an open file of any of the formats."""
    with limits.paused_collection():
        return _wrap_all(_read_tensors(stream, source), kind)


def _read_tensors(stream: BinaryIO, source: str) -> dict[str, Any] | list[Any]:
    magic = stream.read(6)
    stream.seek(0)
    if magic[:2] == b"PK":
        return dict(npz.read_npz(stream, source))
    if magic == b"\x93NUMPY":
        return [npz.read_npy_file(stream, source)]
    return params.read(stream, source)


def _wrap_all(loaded: dict[str, Any] | list[Any], kind: type[Any]) -> dict[str, Any] | list[Any]:
    if isinstance(loaded, dict):
        return {name: _wrap(value, kind) for name, value in loaded.items()}
    return [_wrap(value, kind) for value in loaded]


def load(path: _Path, kind: type[Any] | None = None) -> dict[str, Any] | list[Any]:
    """Read a file of arrays in any of the formats, told by its first bytes.

    Returns a dict if the arrays have names, else a list. ``kind`` is the class of the arrays (NDArray).

    Raises
    ------
    ParamsError
        Naming file and offset, if the file is damaged or of another kind.
    OSError
        If it cannot be opened.
    """
    with open(path, "rb") as stream:
        return _read(stream, f"File '{os.fspath(path)}'", kind or NDArray)


def loads(data: bytes, kind: type[Any] | None = None) -> dict[str, Any] | list[Any]:
    """The same as :func:`load`, for the bytes of a file."""
    return _read(io.BytesIO(data), "The buffer", kind or NDArray)


def iterate(path: _Path, kind: type[Any] | None = None) -> Iterator[tuple[str | None, Any]]:
    """Read the arrays of a ``.params`` file one after the other: pairs of name (or None) and array."""
    for name, value in params.iterate(path):
        yield name, _wrap(value, kind or NDArray)


# Public functions of mx.nd and mx.npx -------------------------------------------------------------


def nd_save(fname: _Path, data: Any, format: str | None = None) -> None:
    """Write an array, a list of arrays or a dict of names to arrays to the file ``fname``."""
    save(fname, data, format)


def nd_load(fname: _Path) -> dict[str, Any] | list[Any]:
    """Read a file written by any MXNet: a dict of NDArrays if they have names, else a list."""
    return load(fname)


def nd_load_frombuffer(buf: bytes) -> dict[str, Any] | list[Any]:
    """Read arrays from the bytes of a file."""
    return loads(buf)


def np_save(file: _Path, arr: Any) -> None:
    """Write arrays: one at API level 2 as ``.npy``; a list, a dict, or anything at level 1 as ``.params``."""
    if config.api_level() >= 2 and isinstance(arr, NDArray):
        record = _dense(_record(arr, "The data"))
        with atomic_writer(file) as stream:
            npz.write_npy(stream, record)
        return
    save(file, arr)


def np_savez(file: _Path, *args: Any, **kwds: Any) -> None:
    """Write arrays to a ``.npz`` file: positional ones as arr_0, arr_1, ..., the others under their names."""
    named: dict[str, Any] = dict(kwds)
    for index, value in enumerate(args):
        key = f"arr_{index}"
        if key in named:
            raise ValueError(
                f"The name '{key}' belongs to positional array {index}; give the keyword another name."
            )
        named[key] = value
    save(file, named, "npz")


def np_load(file: _Path) -> Any:
    """Read a file of arrays as np arrays: a dict if they have names, the array itself if it is alone, else
    a list."""
    loaded = load(file, np_ndarray)
    if isinstance(loaded, list) and len(loaded) == 1:
        return loaded[0]
    return loaded
