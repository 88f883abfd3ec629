"""RecordIO: files of byte records, with an index for random access, and records of labelled images.

A record is a magic number, a word with the kind of part (3 bits) and its length (29 bits), and the bytes,
padded to four. Where the bytes hold the magic number at a multiple of four, the record is written in parts
without it, so that a reader can find the next record after damage.
"""

from __future__ import annotations

import io
import numbers
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy

from .base import limits
from .base.atomic import write_text
from .base.errors import MXNetError

__all__ = ["IRHeader", "MXIndexedRecordIO", "MXRecordIO", "pack", "pack_img", "unpack", "unpack_img"]

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
WHOLE, FIRST, MIDDLE, LAST = range(4)
LENGTH_BITS = 29
# Records up to this length are read before it is known whether the file has as much.
SHORT = 1 << 20
HEADER = struct.Struct("<IfQQ")
# A line of an index: a key, a tab, a byte position.
INDEX_LINE = re.compile(rb"([^\t\n]{1,4096}\t[0-9]{1,18})?\s*")


class RecordError(MXNetError, ValueError):
    """A damaged RecordIO file, or index of one."""


def _short(line: bytes) -> str:
    """Bytes of a file in an error text."""
    return repr(line) if len(line) <= 80 else f"{line[:80]!r}..."


class MXRecordIO:
    """Read or write a RecordIO file from its beginning.

    Parameters
    ----------
    uri : str
        Path of the file.
    flag : {'r', 'w'}
        Read, or write a new file.
    """

    def __init__(self, uri: str, flag: str) -> None:
        if flag not in ("r", "w"):
            raise ValueError(f"RecordIO expected flag 'r' or 'w', got {flag!r}")
        self.uri = str(uri)
        self.flag = flag
        self.writable = flag == "w"
        self._file: BinaryIO | None = None
        self._owner = 0
        self.open()

    def open(self) -> None:
        """Open the file; the constructor does."""
        self._file = open(self.uri, "wb" if self.writable else "rb")
        self._owner = os.getpid()

    def close(self) -> None:
        """Close the file; nothing happens when it is closed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def reset(self) -> None:
        """Go back to the beginning (a file being written starts anew)."""
        self.close()
        self.open()

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.writable:
            raise TypeError("a RecordIO file that is being written cannot be sent to another process")
        return {**self.__dict__, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.open()

    def _handle(self, writable: bool) -> BinaryIO:
        if self.writable != writable:
            verb, other = ("write to", "r") if writable else ("read from", "w")
            raise RuntimeError(f"cannot {verb} {self.uri}: it was opened with flag {other!r}")
        if self._file is None:
            raise RuntimeError(f"{self.uri} is closed: call open() or reset()")
        if self._owner != os.getpid():
            # A forked child shares the file's position with its parent: it opens the file for itself.
            if self.writable:
                raise RuntimeError(f"{self.uri} is being written by another process")
            position = self._file.tell()
            self.open()
            self._file.seek(position)
        return self._file

    def write(self, buf: bytes) -> None:
        """Append a record.

        Raises
        ------
        ValueError
            For a record of 2**29 bytes or more.
        """
        file = self._handle(True)
        if len(buf) >= 1 << LENGTH_BITS:
            raise ValueError(f"a record is smaller than 2**29 bytes, got {len(buf)}")
        parts = self._split(bytes(buf))
        for number, part in enumerate(parts):
            if len(parts) == 1:
                kind = WHOLE
            elif number == 0:
                kind = FIRST
            else:
                kind = LAST if number == len(parts) - 1 else MIDDLE
            file.write(MAGIC_BYTES + struct.pack("<I", kind << LENGTH_BITS | len(part)))
            file.write(part + b"\0" * (-len(part) % 4))

    @staticmethod
    def _split(content: bytes) -> list[bytes]:
        """The pieces between aligned magic numbers."""
        parts = []
        start = search = 0
        while (found := content.find(MAGIC_BYTES, search)) >= 0:
            if found % 4 == 0:
                parts.append(content[start:found])
                start = search = found + 4
            else:
                search = found + 1
        return [*parts, content[start:]]

    def read(self) -> bytes | None:
        """The next record, None at the end of the file.

        Raises
        ------
        RecordError
            When the file is damaged; the message tells where.
        """
        file = self._handle(False)
        head = file.read(8)
        if not head:
            return None
        kind, length = divmod(int.from_bytes(head[4:], "little"), 1 << LENGTH_BITS)
        if kind == WHOLE and length <= SHORT and head[:4] == MAGIC_BYTES and len(head) == 8:
            padded = file.read(length + -length % 4)
            if len(padded) >= length:
                return padded[:length]
            file.seek(-len(padded), os.SEEK_CUR)
        parts: list[bytes] = []
        self._record(file, head, lambda length: parts.append(file.read(length)))
        return parts[0] if len(parts) == 1 else MAGIC_BYTES.join(parts)

    def skip(self) -> int | None:
        """Pass over the next record without reading it: its length, or None at the end of the file.

        Raises
        ------
        RecordError
            When the file is damaged; the message tells where.
        """
        file = self._handle(False)
        head = file.read(8)
        if not head:
            return None
        lengths: list[int] = []

        def passed(length: int) -> None:
            lengths.append(length)
            file.seek(length, os.SEEK_CUR)

        self._record(file, head, passed)
        return sum(lengths) + len(MAGIC_BYTES) * (len(lengths) - 1)

    def _record(self, file: BinaryIO, head: bytes, use: Callable[[int], None]) -> None:
        """Go through the parts of a record whose first head was read; ``use(length)`` takes the bytes."""
        end = os.fstat(file.fileno()).st_size
        position = file.tell() - len(head)
        first = True
        while True:
            if len(head) < 8 or head[:4] != MAGIC_BYTES:
                raise RecordError(
                    f"{self.uri}: no record begins at byte {position}: {head.hex(' ') or 'end of file'}"
                )
            kind, length = divmod(int.from_bytes(head[4:], "little"), 1 << LENGTH_BITS)
            position += 8
            if length > end - position:
                raise RecordError(
                    f"{self.uri}: the record at byte {position - 8} has {length} bytes, the file ends before"
                )
            if kind > LAST or (kind in (WHOLE, FIRST)) != first:
                raise RecordError(
                    f"{self.uri}: the record at byte {position - 8} is a part of kind {kind} out of order"
                )
            use(length)
            padding = -length % 4
            if padding:
                file.seek(padding, os.SEEK_CUR)
            position += length + padding
            if kind in (WHOLE, LAST):
                return
            first = False
            head = file.read(8)


class MXIndexedRecordIO(MXRecordIO):
    """A RecordIO file with an index file of lines "key, tab, byte position".

    Parameters
    ----------
    idx_path, uri : str
        Paths of the index and of the records.
    flag : {'r', 'w'}
        Read, or write new files. The index is complete when the file is closed.
    key_type : type
        What keys are, ``int`` by default.
    """

    def __init__(self, idx_path: str, uri: str, flag: str, key_type: Callable[[str], Any] = int) -> None:
        self.idx_path = str(idx_path)
        self.key_type = key_type
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        self.idx, self.keys = {}, []
        if not self.writable:
            self._read_index()

    def _read_index(self) -> None:
        with limits.paused_collection():
            for number, key, position in index_entries(self.idx_path):
                try:
                    name = self.key_type(key.decode("utf-8"))
                except ValueError as error:
                    raise RecordError(
                        f"{self.idx_path}, line {number}: the key {_short(key)} cannot be read"
                    ) from error
                self.idx[name] = position
                self.keys.append(name)

    def close(self) -> None:
        if self._file is not None and self.writable:
            lines = "".join(f"{key}\t{position}\n" for key, position in self.idx.items())
            write_text(self.idx_path, lines)
        super().close()

    def seek(self, idx: Any) -> None:
        """Go to the record with this key.

        Raises
        ------
        KeyError
            When the index has no such key.
        """
        if idx not in self.idx:
            raise KeyError(f"{self.idx_path} has no key {idx!r}")
        self._handle(False).seek(self.idx[idx])

    def tell(self) -> int:
        """The byte position at which the next record is written."""
        return self._handle(True).tell()

    def read_idx(self, idx: Any) -> bytes:
        """The record with this key."""
        self.seek(idx)
        record = self.read()
        if record is None:
            raise RecordError(f"{self.uri} ends before the record with key {idx!r}")
        return record

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Append a record under a key."""
        key = self.key_type(idx)
        position = self.tell()
        self.write(buf)
        self.idx[key] = position
        self.keys.append(key)


def index_entries(path: str) -> Iterator[tuple[int, bytes, int]]:
    """The number, key and position of each line of an index file.

    Raises
    ------
    RecordError
        Before the first line is given, for a line that is none of an index.
    """
    content = Path(path).read_bytes()
    # A damaged line is found before memory is taken for all the others.
    for number, line in enumerate(io.BytesIO(content), 1):
        if INDEX_LINE.fullmatch(line) is None:
            raise RecordError(
                f"{path}, line {number}: expected a key, a tab and a position, got {_short(line.rstrip())}"
            )
    for number, line in enumerate(io.BytesIO(content), 1):
        key, tab, position = line.strip().partition(b"\t")
        if tab:
            yield number, key, int(position)


class IRHeader(NamedTuple):
    """The head of an image record: ``flag`` is 0 for one label, else the number of labels."""

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: IRHeader, s: bytes) -> bytes:
    """A record of a header and bytes (usually an image file); labels may be a number or a sequence."""
    header = IRHeader(*header)
    if isinstance(header.label, numbers.Number):
        return HEADER.pack(0, float(header.label), header.id, header.id2) + s  # type: ignore[arg-type]
    labels = numpy.asarray(header.label, dtype="<f4").ravel()
    return HEADER.pack(labels.size, 0.0, header.id, header.id2) + labels.tobytes() + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Undo `pack`: the header, with several labels as a float32 array, and the bytes.

    Raises
    ------
    ValueError
        When the record is too short for its header.
    """
    if len(s) < HEADER.size:
        raise RecordError(f"an image record begins with a header of {HEADER.size} bytes, got {len(s)} in all")
    header, content = IRHeader(*HEADER.unpack_from(s)), s[HEADER.size :]
    if header.flag > 0:
        if len(content) < 4 * header.flag:
            raise RecordError(
                f"the image record announces {header.flag} labels and has {len(content)} bytes left"
            )
        labels = numpy.frombuffer(content, dtype="<f4", count=header.flag).astype(numpy.float32)
        header, content = header._replace(label=labels), content[4 * header.flag :]
    return header, content


def pack_img(header: IRHeader, img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """A record of a header and an image, shape (height, width, channels) in BGR order, encoded as
    ``img_fmt``.

    ``quality`` is JPEG's 0 to 100, or PNG's compression 0 to 9.
    """
    from .gluon.data.vision.transforms.kernels import opencv

    cv2 = opencv("packing images")
    options = {".png": cv2.IMWRITE_PNG_COMPRESSION, ".jpg": cv2.IMWRITE_JPEG_QUALITY}
    options[".jpeg"] = options[".jpg"]
    flag = options.get(img_fmt.lower())
    level = min(quality, 9) if img_fmt.lower() == ".png" else quality
    image = img.asnumpy() if hasattr(img, "asnumpy") else numpy.asarray(img)
    good, content = cv2.imencode(img_fmt, image, [] if flag is None else [flag, level])
    if not good:
        raise ValueError(f"OpenCV could not encode an image of shape {image.shape} as {img_fmt}")
    return pack(header, content.tobytes())


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, numpy.ndarray]:
    """Undo `pack_img`: the header and the decoded image in BGR order; ``iscolor`` 1 colour, 0 grey, -1 as
    stored."""
    from .gluon.data.vision.transforms.kernels import opencv

    header, content = unpack(s)
    image = opencv("unpacking images").imdecode(numpy.frombuffer(content, numpy.uint8), iscolor)
    if image is None:
        raise RecordError("the record holds no image that OpenCV can read")
    return header, image
