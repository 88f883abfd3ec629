"""Where functions of a library are that it does not export: its symbol table tells (ELF, 64 bit).

A table of some hundred thousand symbols takes a third of a second to search, most of it for reading names. So
the places of those that were found are remembered in ``symbols.json``, beside the choices of `exec.tuning`.
Nothing there is believed: what lies at a place must be a function of the name that is looked for.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..cache import cache_folder, write_json

__all__ = ["addresses"]

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_SYMBOL_TABLE, _FUNCTION, _GLOBAL = 2, 2, 1
# Visibilities. Functions of oneDNN are internal ones as a rule, in torch's builds.
_DEFAULT, _INTERNAL = 0, 1
_LONGEST_NAME = 2000
# How many exported functions are compared to find where the library is, and how many must have been found.
_COMPARED, _FEWEST = 12, 2


def addresses(path: Path, names: Sequence[str], start: str = "") -> dict[str, int]:
    """Where the functions of these names are in this process, into which the library is loaded.

    ``start`` is what all of the names begin with.

    Raises
    ------
    OSError
        If the file has no such functions, or does not lie in memory as its symbol table says.
    """
    with path.open("rb") as file:
        symbols = _Symbols(file.fileno(), path)
        known = _remembered(path)
        wanted, exported = symbols.at(known.get("wanted")), symbols.at(known.get("exported"))
        if [name for name, _ in wanted] != list(names) or len(exported) < _FEWEST:
            places, others = symbols.found(names, start), symbols.exported()
            wanted, exported = symbols.at(places), symbols.at(others)
            write_json(_file(), {str(path): {"wanted": places, "exported": others}})
    base = _base(path, exported)
    return {name: base + value for name, value in wanted}


class _Symbols:
    """The symbol table of an open file."""

    def __init__(self, file: int, path: Path) -> None:
        self._file, self._path = file, path
        header = os.pread(file, 64, 0)
        if header[:6] != b"\x7fELF\x02\x01" or len(header) < 64:
            raise OSError(f"{path} is no 64-bit ELF file")
        (start,) = struct.unpack_from("<Q", header, 0x28)
        size, count = struct.unpack_from("<HH", header, 0x3A)
        content = os.pread(file, size * count, start)
        sections = [struct.unpack_from("<IIQQQQIIQQ", content, i * size) for i in range(count)]
        table = next((s for s in sections if s[1] == _SYMBOL_TABLE), None)
        if table is None:
            raise OSError(f"{path} has no symbol table")
        self._start, self._count = table[4], table[5] // _SYMBOL.itemsize
        self._names = sections[table[6]][4]
        self._read: Any = None

    def at(self, places: Any) -> list[tuple[str, int]]:
        """Names and values of the functions at these places; none where there is something else."""
        found: list[tuple[str, int]] = []
        for place in places if isinstance(places, list) else ():
            if type(place) is not int or not 0 <= place < self._count:
                return []
            content = os.pread(self._file, _SYMBOL.itemsize, self._start + place * _SYMBOL.itemsize)
            name, info, _, section, value, _ = struct.unpack("<IBBHQQ", content)
            if info & 15 != _FUNCTION or not section:
                return []
            found.append((self._name(name), value))
        return found

    def _name(self, place: int) -> str:
        content = os.pread(self._file, _LONGEST_NAME, self._names + place)
        return content.split(b"\0", 1)[0].decode("ascii", "replace")

    def found(self, names: Sequence[str], start: str) -> list[int]:
        """The places of the functions of these names."""
        wanted = {name.encode(): name for name in names}
        places: dict[str, int] = {}
        for candidates in self._candidates():
            for place, name in self._starting_with(start.encode(), candidates):
                if name in wanted:
                    places[wanted[name]] = place
            if len(places) == len(wanted):
                return [places[name] for name in names]
        missing = sorted(set(names) - places.keys())
        raise OSError(f"{self._path} does not name {', '.join(missing)}")

    def _candidates(self) -> Iterator[Any]:
        """The places of functions, those that are likely alone at first."""
        table = self._table()
        functions = (table["info"] & 15 == _FUNCTION) & (table["section"] != 0)
        yield np.flatnonzero(functions & (table["other"] & 3 == _INTERNAL))
        yield np.flatnonzero(functions)

    def _table(self) -> Any:
        if self._read is None:
            content = self._content(self._count * _SYMBOL.itemsize, self._start)
            self._read = np.frombuffer(content, _SYMBOL, len(content) // _SYMBOL.itemsize)
        return self._read

    def _content(self, size: int, start: int) -> mmap.mmap:
        """A part of the file, in memory that goes back to the system with it; zeros follow where it ends."""
        content = mmap.mmap(-1, size)
        os.preadv(self._file, [content], start)
        return content

    def _starting_with(self, start: bytes, candidates: Any) -> Iterator[tuple[int, bytes]]:
        """Places and names of those of these symbols whose names begin so."""
        if not len(candidates):
            return
        offsets = self._table()["name"][candidates].astype(np.int64)
        first = int(offsets.min())
        content = self._content(int(offsets.max()) + _LONGEST_NAME - first, self._names + first)
        letters = np.frombuffer(content, np.uint8)
        offsets -= first
        for number, letter in enumerate(start):
            kept = letters[np.minimum(offsets + number, len(letters) - 1)] == letter
            candidates, offsets = candidates[kept], offsets[kept]
        for place, offset in zip(candidates.tolist(), offsets.tolist(), strict=True):
            yield place, content[offset : offset + _LONGEST_NAME].split(b"\0", 1)[0]

    def exported(self) -> list[int]:
        """The places of some functions that the library exports."""
        table = self._table()
        exported = (table["info"] == _GLOBAL << 4 | _FUNCTION) & (table["section"] != 0)
        places = np.flatnonzero(exported & (table["other"] & 3 == _DEFAULT))
        return list(places[:: max(1, len(places) // _COMPARED)].tolist())


def _base(path: Path, exported: Sequence[tuple[str, int]]) -> int:
    """Where the library lies in memory: exported functions must agree."""
    loaded = ctypes.CDLL(str(path))
    bases: list[int] = []
    for name, value in exported:
        try:
            address = ctypes.cast(loaded[name], ctypes.c_void_p).value
        except AttributeError:
            continue
        assert address is not None
        bases.append(address - value)
    if len(bases) < _FEWEST or len(set(bases)) != 1:
        raise OSError(f"{path} does not lie in memory where its symbol table says")
    return bases[0]


# Remembering ----------------------------------------------------------------------


def _remembered(path: Path) -> dict[str, Any]:
    """What was found in this file before."""
    try:
        found = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    known = found.get(str(path)) if isinstance(found, dict) else None
    return known if isinstance(known, dict) else {}


def _file() -> Path:
    return cache_folder() / "symbols.json"
