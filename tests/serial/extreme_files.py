"""Files at the far end of what is possible, and a program that measures what reading each of them takes.

Run as ``python extreme_files.py FOLDER``: prints a line of JSON for every file.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import struct
import sys
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

VARIABLE = {"op": "null", "name": "x", "inputs": []}


def graph(*nodes: Any, heads: Any = ((0, 0, 0),), **more: Any) -> bytes:
    return json.dumps({"nodes": [VARIABLE, *nodes], "heads": heads, **more}).encode()


def node(operator: str, inputs: Any = ((0, 0, 0),), name: str = "r", **more: Any) -> dict[str, Any]:
    return {"op": operator, "name": name, "inputs": list(inputs), **more}


def chain(length: int, **last: Any) -> bytes:
    nodes = [node("relu", [[index, 0, 0]], f"n{index}") for index in range(length)]
    nodes[-1].update(last)
    return graph(*nodes, heads=[[length, 0, 0]])


def listed(count: int, *parts: bytes, names: Iterable[bytes] | None = ()) -> bytes:
    raw = struct.pack("<QQQ", 0x112, 0, count) + b"".join(parts)
    if names is None:
        return raw
    names = list(names)
    return raw + struct.pack("<Q", len(names)) + b"".join(struct.pack("<Q", len(one)) + one for one in names)


def array(*sizes: int, code: int = 0, data: bytes = b"") -> bytes:
    return struct.pack(f"<IiI{len(sizes)}qiii", 0xF993FACA, 0, len(sizes), *sizes, 1, 0, code) + data


def row_sparse(rows: int) -> bytes:
    head = struct.pack("<Iii2qi2qiii", 0xF993FAC9, 1, 2, 1, 2, 2, rows, 2, 1, 0, 0)
    return head + struct.pack("<iiq", 6, 1, 1) + bytes(8) + struct.pack("<q", 5)


def npy(shape: str, data: bytes = b"") -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def npz(entries: Iterable[tuple[str, bytes]], packed: bool = False) -> bytes:
    stream = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method, compresslevel=1) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return stream.getvalue()


def overlapping(count: int, size: int) -> bytes:
    """A zip file whose directory names one entry many times."""
    raw = npz([("a.npy", npy(f"({size // 4},)", bytes(size)))])
    begin, end = raw.index(b"PK\x01\x02"), raw.rindex(b"PK\x05\x06")
    directory = raw[begin:end] * count
    number = count % 65536
    tail = struct.pack("<HHIIH", number, number, len(directory), begin, 0)
    return raw[:begin] + directory + raw[end : end + 8] + tail


def own_states(size: int) -> bytes:
    text = {"format": "regluon-optimizer-states-1", "states": [[{"value": 0}, {"array": "0"}]]}
    raw = json.dumps(text).encode()
    return listed(2, array(len(raw), code=3, data=raw), row_sparse(size), names=[b"__states__", b"0"])


def repeated(before: bytes, part: bytes, count: int) -> bytes:
    """A pickle of a tuple of equal parts."""
    return b"\x80\x04" + before + b"(" + part * count + b"t."


def handle(raw: bytes) -> bytes:
    """The state of a pickled array, kept as value 1; its class is value 0."""
    state = b"}X\x06\x00\x00\x00handleB" + struct.pack("<I", len(raw)) + raw + b"s"
    return b"cmxnet.ndarray\nNDArray\nq\x00" + state + b"q\x01"


def record_part(kind: int, content: bytes = b"") -> bytes:
    return struct.pack("<II", 0xCED7230A, kind << 29 | len(content)) + content


TEXT = b"X\x40\x42\x0f\x00" + b"a" * 1_000_000 + b"q\x01"
LAUGHING = b"K\x01" + b"2\x86" * 60

#: Files that are refused: what makes each one, and what the error says.
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "chain with a bad head.json": (
        lambda: graph(*[node("relu")] * 50_000, heads=[[60_000, 0, 0]]),
        "name node 60000",
    ),
    "chain with a bad input.json": (lambda: chain(50_000, inputs=[[10**9, 0, 0]]), "inputs of node 50000"),
    "chain with a bad operator.json": (lambda: chain(50_000, op="nonesuch"), "not here: nonesuch"),
    "unknown operators.json": (
        lambda: graph(*[node(f"none{index}") for index in range(50_000)]),
        "and 49980 more",
    ),
    "a list of lists.json": (
        lambda: b'{"nodes": [' + b"[]," * 2_000_000 + b"[]]}",
        "2000003 lists and objects",
    ),
    "objects of one value.json": (
        lambda: b"[" + b",".join(b'{"%d":1}' % index for index in range(400_000)) + b"]",
        "400001 lists and objects",
    ),
    "attributes.json": (
        lambda: graph(node("relu", attrs={f"k{index}": "1" for index in range(300_000)})),
        "values without an object",
    ),
    "a shape of a million numbers.json": (
        lambda: graph({**VARIABLE, "attrs": {"__shape__": "(" + "1, " * 1_000_000 + ")"}}),
        "node 1 of .*its shape to be a few numbers",
    ),
    "outputs.json": (
        lambda: graph(*[node("SliceChannel", attrs={"num_outputs": "1000000"})] * 100),
        "node r.*1000000 outputs are not possible",
    ),
    "an operator within.json": (
        lambda: graph(node("relu", attrs={"__regluon_op__": "[" * 100_000})),
        "malformed",
    ),
    "empty arrays.params": (lambda: listed(300_000, array(0) * 300_000), "at byte 16 of .*300000 arrays"),
    "empty arrays, cut off.params": (
        lambda: listed(50_000, array(0) * 49_999, names=None),
        "at byte 1599992 of",
    ),
    "a directory.npz": (lambda: overlapping(100_000, 4), "a directory with room for"),
    "one entry many times.npz": (lambda: overlapping(400, 10**6), "entry 'a.npy' at byte 0"),
    "packed zeros.npz": (
        lambda: npz([("a.npy", npy("(25000000,)", bytes(10**8)))], True),
        "entry 'a.npy'",
    ),
    "a packed header.npz": (
        lambda: npz([("a.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 10**7) + bytes(10**7))], True),
        "entry 'a.npy'.*|header of 10000000 bytes",
    ),
    "a sparse array.states": (lambda: own_states(2**28), "kept whole"),
    "lists in the header.states": (
        lambda: listed(
            1, array(3_000_002, code=3, data=b"[" + b"[]," * 1_000_000 + b"1"), names=[b"__states__"]
        ),
        "damaged",
    ),
    "nested.states": (
        lambda: b"\x80\x02}K\x00K\x01" + b"\x85" * 1_000_000 + b"s.",
        "operations in|too deeply",
    ),
    "nothing.states": (lambda: repeated(b"", b"N", 5_000_000), "operations in 5000005 bytes"),
    "short texts.states": (lambda: repeated(b"", b"\x8c\x00", 2_500_000), "operations in"),
    "a laughing key.states": (lambda: b"\x80\x02}" + LAUGHING + b"Ns.", "a key that is a tuple"),
    "a laughing type.states": (lambda: b"\x80\x02cnumpy\ndtype\n" + LAUGHING + b"\x85R.", "short text"),
    "a laughing attribute.states": (
        lambda: b"\x80\x02}cmxnet.optimizer\nSGD\n)\x81}X\x01\x00\x00\x00a" + LAUGHING + b"sb\x86.",
        "hold one another",
    ),
    "one text encoded often.states": (
        lambda: repeated(
            b"c_codecs\nencode\nq\x00" + TEXT + b"X\x06\x00\x00\x00latin1q\x02",
            b"h\x00h\x01h\x02\x86R",
            5_000,
        ),
        "takes .* bytes",
    ),
    "one array often.states": (
        lambda: repeated(handle(array(250_000, data=bytes(10**6))), b"h\x00)\x81h\x01b", 5_000),
        "takes .* bytes",
    ),
    "colliding numbers.states": (
        lambda: (
            b"\x80\x04}("
            + b"".join(
                b"\x8a\x0b" + (index * (2**61 - 1)).to_bytes(11, "little") + b"N" for index in range(20_000)
            )
            + b"u."
        ),
        "very large number",
    ),
    "parts.rec": (lambda: record_part(1) + record_part(2) * 300_000, "no record begins at byte 2400008"),
    "a long record.rec": (lambda: struct.pack("<II", 0xCED7230A, 2**29 - 1), "the record at byte 0"),
    "an index.idx": (lambda: b"1\t1\n" * 500_000 + b"x", "line 500001"),
    "packed digits.gz": (
        lambda: gzip.compress(struct.pack(">IIII", 0x803, 10**5, 10, 100) + bytes(10**8), 1),
        "announces 100000000 bytes",
    ),
}

#: Large files that are right: they load, nearly as fast.
RIGHT: dict[str, Callable[[], bytes]] = {
    "a chain of 100000.json": lambda: chain(100_000),
    "20000 arrays.params": lambda: listed(
        20_000, array(3, data=bytes(12)) * 20_000, names=[b"arg:layer%d_weight" % i for i in range(20_000)]
    ),
    "10000 arrays.npz": lambda: npz((f"a{index}.npy", npy("(1,)", bytes(4))) for index in range(10_000)),
    "10000 arrays.states": lambda: (
        b"\x80\x04"
        + b"cmxnet.ndarray\nNDArray\nq\x00X\x06\x00\x00\x00handleq\x010}("
        + b"".join(
            b"J" + struct.pack("<i", index) + b"h\x00)\x81}h\x01C\x24" + array(1, data=bytes(4)) + b"sb"
            for index in range(10_000)
        )
        + b"u."
    ),
    "parts.rec": lambda: record_part(1) + record_part(2) * 300_000 + record_part(3),
    "an index.idx": lambda: b"".join(b"%d\t%d\n" % (index, index * 40) for index in range(100_000)),
}


def loaders() -> dict[str, Callable[[str], Any]]:
    import regluon as mx
    from regluon import recordio
    from regluon.serial import states

    def load_states(path: str) -> Any:
        with mx.serial.params.naming(path):
            return states.loads(Path(path).read_bytes(), mx.optimizer.SGD())

    return {
        ".json": mx.sym.load,
        ".params": mx.nd.load,
        ".npz": mx.nd.load,
        ".states": load_states,
        ".rec": lambda path: recordio.MXRecordIO(path, "r").read(),
        ".idx": lambda path: recordio.MXIndexedRecordIO(path, path, "r"),
        ".gz": lambda path: mx.io.MNISTIter(path, path, silent=True),
    }


def second() -> float:
    """What a second of a quiet computer is on this one now: a loop that takes about that long, scaled."""
    begin = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number * number % 7
    return 14 * (time.process_time() - begin)


def resident(field: str) -> int:
    """The memory of this process in bytes: now (VmRSS), or at most so far (VmHWM)."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) * 1024


def measure(path: Path, load: Callable[[str], Any]) -> dict[str, Any]:
    """Seconds of work, bytes of memory, and the error of reading a file."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before, error = resident("VmRSS"), None
    begin = time.process_time()
    try:
        result = load(str(path))
    except Exception as caught:
        error = [_kind(caught), str(caught)]
        result = None
    took = time.process_time() - begin
    peak = resident("VmHWM") - before
    del result
    return {"seconds": took, "memory": peak, "error": error, "size": path.stat().st_size}


def _kind(error: BaseException) -> str:
    from regluon.base.errors import MXNetError

    return "MXNetError" if isinstance(error, MXNetError) else type(error).__name__


def main(folder: Path) -> None:
    known = loaders()
    # Searching all of the library for cycles before every file would take longer than the files.
    gc.collect()
    gc.freeze()
    for part, files in (("refused", {name: make for name, (make, _) in REFUSED.items()}), ("right", RIGHT)):
        for name, make in files.items():
            path = folder / name
            path.write_bytes(make())
            unit = second()
            first = measure(path, known[path.suffix])
            again = measure(path, known[path.suffix]) if first["seconds"] > unit / 3 else first
            first["seconds"] = min(first["seconds"], again["seconds"])
            print(json.dumps({"part": part, "name": name, "second": unit, **first}), flush=True)
            path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
