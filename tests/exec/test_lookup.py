"""Functions that a library does not export: found by its symbol table, remembered, and not taken on trust."""

from __future__ import annotations

import ctypes
import json
import platform
import struct
from pathlib import Path

import pytest
import torch

from regluon.exec import native
from regluon.exec.onednn import interface, lookup

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
NAMES = ["dnnl_version", "dnnl_primitive_execute", "dnnl_memory_create"]

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or interface.library() is None,
    reason="oneDNN's functions cannot be had here",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Native code that an earlier test asked for is kept where that test wanted it.
    native.wait()
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with each search through the whole table."""
    seen: list[object] = []
    plain = lookup._Symbols.found
    monkeypatch.setattr(lookup._Symbols, "found", lambda *a: (seen.append(a), plain(*a))[1])
    return seen


def test_parts_of_a_file_are_as_they_are_there() -> None:
    size = LIBRARY.stat().st_size
    with LIBRARY.open("rb") as file:
        symbols = lookup._Symbols(file.fileno(), LIBRARY)
        for start in (0, 4097):
            file.seek(start)
            assert symbols._content(1000, start)[:] == file.read(1000)
        # Zeros where the file ends: none of it counts as the symbol of a function.
        file.seek(size - 10)
        assert symbols._content(100, size - 10)[:] == file.read() + bytes(90)
        assert len(symbols._table()) == symbols._count


def test_a_table_without_symbols_is_no_table(tmp_path: Path) -> None:
    sections = [(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (0, lookup._SYMBOL_TABLE, 0, 0, 64, 0, 0, 0, 0, 24)]
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, 64)
    struct.pack_into("<HH", header, 0x3A, 64, len(sections))
    path = tmp_path / "empty.so"
    path.write_bytes(bytes(header) + b"".join(struct.pack("<IIQQQQIIQQ", *each) for each in sections))
    with pytest.raises(OSError, match=r"Invalid argument|does not name"):
        lookup.addresses(path, NAMES)


def test_what_was_found_is_remembered(folder: Path, searches: list[object]) -> None:
    found = lookup.addresses(LIBRARY, NAMES)
    version = ctypes.CFUNCTYPE(ctypes.c_void_p)(found["dnnl_version"])
    assert ctypes.cast(version(), ctypes.POINTER(ctypes.c_int)).contents.value == 3
    assert lookup.addresses(LIBRARY, NAMES) == found and len(searches) == 1
    # Others are looked for.
    assert lookup.addresses(LIBRARY, NAMES[:1]) == {NAMES[0]: found[NAMES[0]]}
    assert len(searches) == 2


@pytest.mark.parametrize(
    "damage", ["text", "list", "other places", "no places", "out of range", "few exported"]
)
def test_what_is_remembered_is_not_believed(folder: Path, searches: list[object], damage: str) -> None:
    found = lookup.addresses(LIBRARY, NAMES)
    (file,) = folder.iterdir()
    content = json.loads(file.read_text())
    known = content[str(LIBRARY)]
    if damage == "other places":
        known["wanted"] = known["wanted"][::-1]
    elif damage == "no places":
        known["wanted"] = [None, "1", 2.5]
    elif damage == "out of range":
        known["wanted"][0] = 10**12
    elif damage == "few exported":
        known["exported"] = known["exported"][:1]
    text = {"text": "{not json", "list": "[1]"}.get(damage, json.dumps(content))
    file.write_text(text)
    assert lookup.addresses(LIBRARY, NAMES) == found and len(searches) == 2
    assert lookup.addresses(LIBRARY, NAMES) == found and len(searches) == 2


def test_functions_of_any_visibility_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lookup.addresses(LIBRARY, NAMES)
    monkeypatch.setattr(lookup, "_INTERNAL", 99)
    monkeypatch.setenv("REGLUON_CACHE", str(folder / "other"))
    assert lookup.addresses(LIBRARY, NAMES) == found


def test_a_name_that_is_not_there(folder: Path) -> None:
    with pytest.raises(OSError, match=r"does not name dnnl_no_such_function$"):
        lookup.addresses(LIBRARY, [*NAMES, "dnnl_no_such_function"])
    assert not list(folder.iterdir())


def test_exported_functions_that_do_not_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = lookup._Symbols.at

    def moved(self: lookup._Symbols, places: object) -> list[tuple[str, int]]:
        found = plain(self, places)
        return [(name, value + 16 * (number % 2)) for number, (name, value) in enumerate(found)]

    monkeypatch.setattr(lookup._Symbols, "at", moved)
    with pytest.raises(OSError, match="does not lie in memory"):
        lookup.addresses(LIBRARY, NAMES)


def test_a_folder_that_cannot_be_written_only_costs_searching_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searches: list[object]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGLUON_CACHE", str(tmp_path / "file"))
    assert lookup.addresses(LIBRARY, NAMES) == lookup.addresses(LIBRARY, NAMES) and len(searches) == 2
