"""The binary ``.params`` format: a list of arrays, with or without names.

Layout, all little-endian::

    u64 0x112, u64 0, u64 number of arrays, the arrays, u64 number of names (0 or that many),
    then for each name u64 length and the bytes.

An array begins with a magic number that tells its version:

========== =========================== =====================================================================
version    begins with                 then
========== =========================== =====================================================================
V0 (2015)  u32 rank (no magic)         u32 sizes
V1         0xF993FAC8                  u32 rank, i64 sizes
V2         0xF993FAC9                  i32 storage type, [storage shape], shape; rank 0 is "no array"
V3         0xF993FACA                  the same; rank 0 is a scalar, rank -1 is "no array"
========== =========================== =====================================================================

followed by i32 device type, i32 device id, i32 type code, [auxiliary types and shapes], the data and the
auxiliary data. A file is scanned first: every length is compared with the size of the file before anything is
allocated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import torch

from regluon.base import dtypes, limits
from regluon.base.errors import MXNetError

LIST_MAGIC = 0x112
V1_MAGIC = 0xF993FAC8
V2_MAGIC = 0xF993FAC9
V3_MAGIC = 0xF993FACA

_STORAGE_NAMES = {0: "default", 1: "row_sparse", 2: "csr"}
_AUXILIARY_COUNT = {0: 0, 1: 1, 2: 2}
_MAXIMUM_RANK = 64
_MAXIMUM_ELEMENTS = 1 << 48
# "No array" takes 4 to 16 bytes in a file, and much more in memory: a file of nothing else is damaged.
_MAXIMUM_ABSENT = 1 << 12
# What an array without numbers takes in memory, about.
_ARRAY_BYTES = 768
# Numbers are read in pieces of the first size, arrays up to the second at once; headers, in the third.
_CHUNK, _SMALL, _WINDOW = 1 << 24, 1 << 12, 1 << 14


class ParamsError(MXNetError, ValueError):
    """A file of arrays that is damaged or of an unknown kind; the message names the file and the offset."""


@contextlib.contextmanager
def naming(path: Any) -> Iterator[None]:
    """Put the file's name in front of what is wrong with its bytes."""
    try:
        yield
    except ParamsError as error:
        raise ParamsError(f"File '{os.fspath(path)}': {error}") from error


@dataclasses.dataclass(frozen=True)
class SparseTensor:
    """A sparse array as the file holds it.

    ``storage`` is "row_sparse" (auxiliary: row indices) or "csr" (auxiliary: row pointers, column indices);
    ``shape`` is that of the whole array.
    """

    storage: str
    shape: tuple[int, ...]
    data: torch.Tensor
    auxiliary: tuple[torch.Tensor, ...]

    def to_dense(self) -> torch.Tensor:
        """The whole array, with its zeros."""
        dense = torch.zeros(self.shape, dtype=self.data.dtype)
        if self.storage == "row_sparse":
            (rows,) = self.auxiliary
            dense[rows.long()] = self.data
            return dense
        pointers, columns = (part.long() for part in self.auxiliary)
        rows = torch.repeat_interleave(torch.arange(self.shape[0]), pointers.diff())
        dense.index_put_((rows, columns), self.data, accumulate=True)
        return dense


class _Block(NamedTuple):
    """Raw numbers in the file."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Entry(NamedTuple):
    """Where one array stands in a file, and what it is."""

    name: str | None
    version: int
    storage: str
    shape: tuple[int, ...]
    blocks: tuple[_Block, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.blocks[0].dtype if self.blocks else torch.float32

    @property
    def size(self) -> int:
        """Bytes of numbers, those of a sparse array's places included."""
        return sum(block.size for block in self.blocks)


_NUMBERS = {layout: struct.Struct("<" + layout) for layout in ("Q", "I", "i")}


class _Reader:
    """A binary file with a known end; every read is checked. Headers that stand together are read at once."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self.stream = stream
        self.source = source
        self.end = stream.seek(0, os.SEEK_END)
        self.offset = 0
        self._window, self._start = b"", 0

    def fail(self, problem: str, offset: int | None = None) -> ParamsError:
        where = self.offset if offset is None else offset
        return ParamsError(f"{self.source}, at byte {where} of {self.end}: {problem}")

    def ahead(self, count: int) -> tuple[bytes, int]:
        """Bytes of the file and where in them the offset is; ``count`` follow if the file has as many."""
        place = self.offset - self._start
        if place + count > len(self._window):
            self.stream.seek(self.offset)
            self._window, self._start, place = self.stream.read(max(count, _WINDOW)), self.offset, 0
        return self._window, place

    def take(self, count: int, what: str) -> bytes:
        if count > self.end - self.offset:
            raise self.fail(
                f"the file ends within {what}, which needs {count} bytes where {self.end - self.offset} "
                "are left. It is cut off or damaged; fetch or save it again."
            )
        window, place = self.ahead(count)
        data = window[place : place + count]
        if len(data) != count:
            raise self.fail(f"only {len(data)} of {count} bytes of {what} could be read.")
        self.offset += count
        return data

    def number(self, layout: str, what: str) -> int:
        parser = _NUMBERS[layout]
        return int(parser.unpack(self.take(parser.size, what))[0])

    def skip(self, count: int, what: str) -> int:
        """Pass over a block of numbers; its offset."""
        if count > self.end - self.offset:
            raise self.fail(
                f"{what} should have {count} bytes, but {self.end - self.offset} are left. The file is cut "
                "off or damaged; fetch or save it again."
            )
        begin = self.offset
        self.offset += count
        return begin


def _read_shape(reader: _Reader, layout: str, rank: int | None = None) -> tuple[int, ...]:
    begin = reader.offset
    if rank is None:
        rank = reader.number("i", "the rank of a shape")
    if rank > _MAXIMUM_RANK or rank < 0:
        raise reader.fail(f"an array of rank {rank} is not possible (at most {_MAXIMUM_RANK}).", begin)
    width = struct.calcsize(layout)
    sizes = struct.unpack(f"<{rank}{layout}", reader.take(rank * width, "the sizes of a shape"))
    if any(size < 0 for size in sizes):
        raise reader.fail(f"the shape {sizes} has a negative size.", begin)
    if math.prod(max(size, 1) for size in sizes) > _MAXIMUM_ELEMENTS:
        raise reader.fail(f"an array of shape {sizes} is not possible.", begin)
    return tuple(sizes)


def _read_type(reader: _Reader) -> torch.dtype:
    begin = reader.offset
    code = reader.number("i", "the type code")
    known = dtypes.FLAG_TO_TORCH.get(code)
    if known is None:
        raise reader.fail(
            f"the type code {code} is unknown; known are {sorted(dtypes.FLAG_TO_TORCH)}.", begin
        )
    return known


_HEAD = struct.Struct("<Iii")
_TAILS = [struct.Struct(f"<{rank}qiii") for rank in range(9)]


def _scan_usual(reader: _Reader) -> Entry | None:
    """A dense array of version 2 or 3 in few steps; None where it is another, or anything is wrong."""
    window, place = reader.ahead(_HEAD.size + _TAILS[-1].size)
    if len(window) - place < _HEAD.size:
        return None
    magic, storage, rank = _HEAD.unpack_from(window, place)
    if storage or magic not in (V2_MAGIC, V3_MAGIC) or not 0 <= rank < len(_TAILS):
        return None
    tail = _TAILS[rank]
    place += _HEAD.size
    if (magic == V2_MAGIC and not rank) or len(window) - place < tail.size:
        return None
    *sizes, _, _, code = tail.unpack_from(window, place)
    count = math.prod(sizes)
    dtype = dtypes.FLAG_TO_TORCH.get(code)
    if dtype is None or count > _MAXIMUM_ELEMENTS or (sizes and min(sizes) < (rank > 1)):
        return None
    begin = reader.offset + _HEAD.size + tail.size
    end = begin + count * dtype.itemsize
    if end > reader.end:
        return None
    reader.offset = end
    shape = tuple(sizes)
    return Entry(None, 2 if magic == V2_MAGIC else 3, "default", shape, (_Block(begin, dtype, shape),))


def _scan_array(reader: _Reader) -> Entry:
    return _scan_usual(reader) or _scan_any_array(reader)


def _scan_any_array(reader: _Reader) -> Entry:
    begin = reader.offset
    magic = reader.number("I", "the beginning of an array")
    storage = 0
    if magic in (V2_MAGIC, V3_MAGIC):
        version = 2 if magic == V2_MAGIC else 3
        storage = reader.number("i", "the storage type")
        if storage not in _STORAGE_NAMES:
            raise reader.fail(
                f"the storage type {storage} is unknown; known are 0 (dense), 1 and 2 (sparse).", begin
            )
        if _AUXILIARY_COUNT[storage]:
            _read_shape(reader, "q")
        rank = reader.number("i", "the rank")
        if (version == 2 and rank == 0) or rank == -1:
            return Entry(None, version, "default", (0,), ())
        shape = _read_shape(reader, "q", rank)
        if _AUXILIARY_COUNT[storage] and not shape:
            raise reader.fail(f"a {_STORAGE_NAMES[storage]} array needs a shape of at least one axis.", begin)
    else:
        version = 1 if magic == V1_MAGIC else 0
        rank = reader.number("I", "the rank") if version else magic
        shape = _read_shape(reader, "q" if version else "I", rank)
        if rank == 0:
            return Entry(None, version, "default", (0,), ())
    reader.take(8, "the device of an array")
    kind = _read_type(reader)
    auxiliary = []
    for _ in range(_AUXILIARY_COUNT[storage]):
        auxiliary.append((_read_type(reader), _read_shape(reader, "q")))
    # The storage shape in the file can be that of an earlier moment: the originals write it before they wait
    # for the array. How many places there are tells how many numbers there are.
    data_shape = shape
    if auxiliary:
        count = math.prod(auxiliary[-1][1])
        data_shape = (count, *shape[1:]) if storage == 1 else (count,)
        if math.prod(data_shape) > _MAXIMUM_ELEMENTS:
            raise reader.fail(f"{count} rows of shape {shape[1:]} are not possible.", begin)
    parts = [(kind, data_shape), *auxiliary]
    blocks = []
    for dtype, sizes in parts:
        count = math.prod(sizes) * dtype.itemsize
        blocks.append(_Block(reader.skip(count, f"an array of shape {sizes}"), dtype, sizes))
    return Entry(None, version, _STORAGE_NAMES[storage], shape, tuple(blocks))


def scan(stream: BinaryIO, source: str) -> list[Entry]:
    """Find out what a file holds without reading the numbers.

    Raises
    ------
    ParamsError
        Naming file and offset, if the file is not of this format or is damaged.
    """
    reader = _Reader(stream, source)
    magic = reader.number("Q", "the header")
    if magic != LIST_MAGIC:
        raise reader.fail(
            f"this is no file of arrays: it begins with {magic:#x}, and {LIST_MAGIC:#x} was expected "
            "(.params), or a zip (.npz) or NumPy (.npy) file.",
            0,
        )
    reader.number("Q", "the header")
    begin = reader.offset
    count = reader.number("Q", "the number of arrays")
    if count > (reader.end - reader.offset) // 4:
        raise reader.fail(f"{count} arrays cannot fit into the rest of the file.", begin)
    if limits.exceeds(count * _ARRAY_BYTES, reader.end):
        raise reader.fail(
            f"{count} arrays are too many for a file of this size: they take many times as much memory. "
            f"{limits.REMEDY}",
            begin,
        )
    entries = _scan_arrays(reader, count)
    begin = reader.offset
    names_count = reader.number("Q", "the number of names")
    if names_count not in (0, count):
        raise reader.fail(f"there are {count} arrays but {names_count} names.", begin)
    for index in range(names_count):
        entries[index] = Entry(_read_name(reader), *entries[index][1:])
    return entries


def _read_name(reader: _Reader) -> str:
    begin = reader.offset
    raw = reader.take(reader.number("Q", "the length of a name"), "a name")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise reader.fail(f"the name {raw[:40]!r} is not UTF-8 text.", begin) from error


def _scan_arrays(reader: _Reader, count: int) -> list[Entry]:
    entries, absent = [], 0
    with limits.paused_collection():
        for _ in range(count):
            entry = _scan_array(reader)
            entries.append(entry)
            absent += not entry.blocks
            if absent > _MAXIMUM_ABSENT:
                raise reader.fail(f"more than {_MAXIMUM_ABSENT} entries hold no array; the file is damaged.")
    return entries


def _read_block(stream: BinaryIO, block: _Block, source: str) -> torch.Tensor:
    size = block.size
    if 0 < size <= _SMALL:
        stream.seek(block.offset)
        content = bytearray(stream.read(size))
        if len(content) == size:
            return torch.frombuffer(content, dtype=block.dtype).reshape(block.shape)
    result = torch.empty(block.shape, dtype=block.dtype)
    if not size:
        return result
    raw: Any = result.reshape(-1).view(torch.uint8).numpy()
    view = memoryview(raw)
    stream.seek(block.offset)
    done = 0
    while done < size:
        got = stream.readinto(view[done : done + _CHUNK])  # type: ignore[attr-defined]
        if not got:
            raise ParamsError(
                f"{source}, at byte {block.offset + done}: the file became shorter while it was read."
            )
        done += got
    return result


def read_entry(stream: BinaryIO, entry: Entry, source: str) -> torch.Tensor | SparseTensor:
    """Read the numbers of one array found by :func:`scan`."""
    if not entry.blocks:
        return torch.empty(entry.shape)
    parts = [_read_block(stream, block, source) for block in entry.blocks]
    if entry.storage == "default":
        return parts[0]
    sparse = SparseTensor(entry.storage, entry.shape, parts[0], tuple(parts[1:]))
    _check_sparse(sparse, entry, source)
    return sparse


def _check_sparse(sparse: SparseTensor, entry: Entry, source: str) -> None:
    """Refuse indices that point outside the array."""

    def fail(problem: str) -> ParamsError:
        return ParamsError(
            f"{source}, at byte {entry.blocks[0].offset}: a {sparse.storage} array has {problem}."
        )

    if any(part.dim() != 1 or part.dtype not in (torch.int64, torch.int32) for part in sparse.auxiliary):
        raise fail("indices that are not vectors of integers")
    if sparse.storage == "row_sparse":
        (rows,) = sparse.auxiliary
        if tuple(sparse.data.shape) != (len(rows), *sparse.shape[1:]):
            raise fail(
                f"data of shape {tuple(sparse.data.shape)} for {len(rows)} rows of shape {sparse.shape[1:]}"
            )
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= sparse.shape[0]):
            raise fail(f"row indices outside its {sparse.shape[0]} rows")
        return
    pointers, columns = sparse.auxiliary
    if len(sparse.shape) != 2 or len(pointers) != sparse.shape[0] + 1 or sparse.data.shape != columns.shape:
        raise fail(f"{len(pointers)} row pointers, {len(columns)} columns and {sparse.data.numel()} values")
    if int(pointers[0]) != 0 or bool((pointers.diff() < 0).any()) or int(pointers[-1]) != len(columns):
        raise fail("row pointers that do not increase to the number of values")
    if len(columns) and (int(columns.min()) < 0 or int(columns.max()) >= sparse.shape[1]):
        raise fail(f"column indices outside its {sparse.shape[1]} columns")


def iterate(path: str | os.PathLike[str]) -> Iterator[tuple[str | None, torch.Tensor | SparseTensor]]:
    """Read the arrays of a file one after the other, so that only one is in memory at a time."""
    source = f"File '{os.fspath(path)}'"
    with open(path, "rb") as stream:
        for entry in scan(stream, source):
            yield entry.name, read_entry(stream, entry, source)


def read(
    stream: BinaryIO, source: str
) -> dict[str, torch.Tensor | SparseTensor] | list[torch.Tensor | SparseTensor]:
    """All arrays of a file: a dict if they have names, else a list. Of equal names the last counts."""
    entries = scan(stream, source)
    if entries and entries[0].name is not None:
        return {entry.name or "": read_entry(stream, entry, source) for entry in entries}
    return [read_entry(stream, entry, source) for entry in entries]


def loads(data: bytes) -> dict[str, torch.Tensor | SparseTensor] | list[torch.Tensor | SparseTensor]:
    """All arrays of a file that is in memory."""
    return read(io.BytesIO(data), "The buffer")


def loads_array(data: bytes, source: str = "The buffer") -> tuple[torch.Tensor | SparseTensor, int]:
    """One array without the list around it, as old pickles hold it; with its version."""
    stream = io.BytesIO(data)
    entry = _scan_array(_Reader(stream, source))
    return read_entry(stream, entry, source), entry.version


# Writing ----------------------------------------------------------------------


def _raw(tensor: torch.Tensor) -> memoryview | bytes:
    if not tensor.numel():
        return b""
    host = tensor.detach().cpu().contiguous()
    raw: Any = host.reshape(-1).view(torch.uint8).numpy()
    return memoryview(raw)


def _shape_bytes(shape: Sequence[int]) -> bytes:
    return struct.pack(f"<i{len(shape)}q", len(shape), *shape)


def _flag(dtype: torch.dtype) -> int:
    code = dtypes.TORCH_TO_FLAG.get(dtype)
    if code is None:
        raise ParamsError(
            f"Arrays of type {dtype} cannot be written to a .params file; convert them with astype()."
        )
    return code


def _write_array(stream: BinaryIO, array: torch.Tensor | SparseTensor) -> None:
    device = struct.pack("<ii", 1, 0)
    if isinstance(array, SparseTensor):
        code = {"row_sparse": 1, "csr": 2}[array.storage]
        stream.write(
            struct.pack("<Ii", V2_MAGIC, code) + _shape_bytes(array.data.shape) + _shape_bytes(array.shape)
        )
        stream.write(device + struct.pack("<i", _flag(array.data.dtype)))
        for part in array.auxiliary:
            stream.write(struct.pack("<i", _flag(part.dtype)) + _shape_bytes(part.shape))
        for part in (array.data, *array.auxiliary):
            stream.write(_raw(part))
        return
    # Rank 0 and size 0 mean "no array" and "unknown" in version 2.
    magic = V2_MAGIC if array.dim() and array.numel() else V3_MAGIC
    stream.write(struct.pack("<Ii", magic, 0) + _shape_bytes(array.shape))
    stream.write(device + struct.pack("<i", _flag(array.dtype)))
    stream.write(_raw(array))


def write(
    stream: BinaryIO,
    data: Mapping[str, torch.Tensor | SparseTensor] | Sequence[torch.Tensor | SparseTensor],
) -> None:
    """Write arrays: V2, or V3 for those of rank 0 or size 0, which V2 cannot hold."""
    if isinstance(data, Mapping):
        write_each(stream, len(data), data.values(), list(data))
    else:
        write_each(stream, len(data), data, [])


def write_each(
    stream: BinaryIO, count: int, arrays: Iterable[torch.Tensor | SparseTensor], names: Sequence[str]
) -> None:
    """Write ``count`` arrays one after the other, then their names (none for a list)."""
    stream.write(struct.pack("<QQQ", LIST_MAGIC, 0, count))
    for array in arrays:
        _write_array(stream, array)
    stream.write(struct.pack("<Q", len(names)))
    for name in names:
        encoded = name.encode("utf-8")
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
