"""Damaged files: every one is an MXNetError that says where, soon, and in little memory."""

from __future__ import annotations

import io
import json
import pickle
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import regluon as mx
from regluon import serial
from regluon.base.errors import MXNetError
from regluon.serial import states
from regluon.serial.params import ParamsError
from regluon.symbol import convert

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(
    path for part in ("models", "serial") for path in (GOLDEN / part).rglob("*.*") if path.is_file()
)
BINARY = [path for path in FILES if path.suffix != ".json"]
SYMBOLS = [path for path in FILES if path.suffix == ".json"]
WRONG_NUMBERS = [0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1]
WRONG_VALUES = [
    None, True, -1, 3, 2**31, 10**19, 1e308, "", "x", "None", "9999999999", "(1", "((((1,),),),)", "(-7, 0)",
    "\ud800", "é" * 50, [], {}, [[[]]], {"a": [1]}, [0, 0, 0], [10**9, 0, 0], [0, 10**9, 0], "[" * 3000,
    "(" * 3000 + ")" * 3000, "1" + "0" * 5000, "L", "inf", "nan",
]  # fmt: skip


def load(path: Path, raw: bytes) -> None:
    """Read a file as a user does: arrays, optimizer states, or a symbol with its lists."""
    if path.suffix == ".states":
        states.loads(raw, mx.optimizer.SGD())
    elif path.suffix == ".json":
        symbol = mx.sym.load_json(raw.decode("utf-8", "surrogateescape"))
        assert symbol.list_outputs() and isinstance(symbol.list_arguments(), list)
    else:
        serial.loads(raw)


def refuse_or_load(path: Path, raw: bytes) -> None:
    """The file loads, or gives the one kind of error; either within a second."""
    begin = time.process_time()
    try:
        load(path, raw)
    except MXNetError as error:
        assert len(str(error)) < 2000
    assert time.process_time() - begin < 1


def damaged_bytes(raw: bytes, random: np.random.RandomState) -> bytes:
    data = bytearray(raw)
    for _ in range(random.randint(1, 4)):
        if not data:
            break
        place, length, kind = random.randint(len(data)), random.randint(1, 16), random.randint(8)
        wrong = WRONG_NUMBERS[random.randint(len(WRONG_NUMBERS))]
        if kind == 0:
            del data[place:]
        elif kind == 1:
            data[place] = random.randint(256)
        elif kind == 2:
            data[place] ^= 1 << random.randint(8)
        elif kind == 3:
            del data[place : place + length]
        elif kind == 4:
            data[place:place] = random.bytes(length)
        elif kind == 5:
            data[place:place] = data[random.randint(len(data)) :][:length]
        elif kind == 6:
            data[place : place + 8] = struct.pack("<Q", wrong)
        else:
            data[place : place + 4] = struct.pack("<I", wrong % 2**32)
    return bytes(data)


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        found += [(value, key), *places(part)]
    return found


def damaged_json(raw: bytes, random: np.random.RandomState) -> bytes:
    document = json.loads(raw)
    for _ in range(random.randint(1, 4)):
        candidates = places(document)
        container, key = candidates[random.randint(len(candidates))]
        kind = random.randint(4)
        if kind == 0:
            other, place = candidates[random.randint(len(candidates))]
            container[key] = json.loads(json.dumps(other[place]))
        elif kind == 1:
            del container[key]
        elif kind == 2 and isinstance(container, list):
            container.insert(key, json.loads(json.dumps(container[random.randint(len(container))])))
        else:
            container[key] = WRONG_VALUES[random.randint(len(WRONG_VALUES))]
        if not candidates:
            break
    return json.dumps(document).encode()


# The seeds are stored here: the same 2,400 damaged files in every run.
@seed(20150930)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=1200, deadline=None, database=None)
def test_damaged_binary_files(number: int) -> None:
    random = np.random.RandomState(number)
    path = BINARY[random.randint(len(BINARY))]
    refuse_or_load(path, damaged_bytes(path.read_bytes(), random))


@seed(20150930)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=1200, deadline=None, database=None)
def test_damaged_symbols(number: int) -> None:
    random = np.random.RandomState(number)
    path = SYMBOLS[random.randint(len(SYMBOLS))]
    change = damaged_bytes if random.randint(5) == 0 else damaged_json
    refuse_or_load(path, change(path.read_bytes(), random))


@pytest.mark.parametrize("path", BINARY, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_files_cut_anywhere(path: Path) -> None:
    raw = path.read_bytes()
    load(path, raw)
    for end in range(0, len(raw), max(1, len(raw) // 60)):
        with pytest.raises(MXNetError):
            load(path, raw[:end])


VARIABLE = {"op": "null", "name": "x", "inputs": []}


def symbol(*nodes: Any, heads: Any = ((0, 0, 0),), **more: Any) -> str:
    return json.dumps({"nodes": [VARIABLE, *nodes], "heads": heads, **more})


def relu(*inputs: Any, **more: Any) -> dict[str, Any]:
    return {"op": "relu", "name": "r", "inputs": list(inputs), **more}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            symbol(relu([1, 0, 0]), heads=[[1, 0, 0]]),
            "inputs of node 1 .*name node 1, which does not come before",
        ),
        (
            symbol(relu([2, 0, 0]), relu([1, 0, 0])),
            "inputs of node 1 .*name node 2, which does not come before",
        ),
        (symbol(relu([9, 0, 0])), "inputs of node 1 .*name node 9"),
        (symbol(heads=[[5, 0, 0]]), "heads of .*name node 5"),
        (symbol(heads=[]), "it has no heads"),
        (symbol(heads=[[0, 3, 0]]), "heads of .*name output 3 of node 0"),
        (symbol(relu([0, 1, 0]), heads=[[1, 0, 0]]), "inputs of node 1 .*name output 1 of node 0"),
        (symbol(relu([0, 0, 0]), attrs=[1]), "expected its attrs to be an object"),
        (symbol(relu([0, 0, 0], subgraphs=3)), "node 1 .*expected its subgraphs to be a list, received 3"),
        (symbol({"op": "nonesuch", "name": "n", "inputs": []}), "operator.*not here: nonesuch"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"nodes": ' + "[" * 100_000 + "]" * 100_000 + ', "heads": []}', "nested too deeply"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ('{"a":' * 100_000, "nested too deeply|not JSON"),
        (symbol(relu([0, 0, 0], attrs={"a": "x" * 5_000_000}), heads=[[0, 9, 0]]), "name output 9 of node 0"),
        (
            symbol(
                {
                    "op": "Reshape",
                    "name": "r",
                    "inputs": [[0, 0, 0]],
                    "attrs": {"shape": "(" * 100_000 + ")" * 100_000},
                }
            ),
            "node r: operator Reshape: the attribute shape expects",
        ),
        (
            symbol(
                {
                    "op": "SliceChannel",
                    "name": "s",
                    "inputs": [[0, 0, 0]],
                    "attrs": {"num_outputs": "99999999999"},
                }
            ),
            "node s.*99999999999 outputs",
        ),
        (
            symbol({"op": "relu", "name": "r", "inputs": [[0, 0, 0]] * 3}),
            "node r: operator relu takes at most 1 inputs",
        ),
        (symbol({"op": "null", "name": "half \ud800", "inputs": []}), "surrogates not allowed"),
    ],
)
def test_broken_symbols_say_where(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "broken-symbol.json"
    file.write_text(text)
    begin = time.process_time()
    with pytest.raises(MXNetError, match=message) as caught:
        mx.sym.load(str(file))
    assert time.process_time() - begin < 1
    assert "broken-symbol.json" in str(caught.value) and len(str(caught.value)) < 1000


def test_missing_inputs_become_variables() -> None:
    """The names are those that 1.9.1 gives them."""
    text = symbol({"op": "elemwise_add", "name": "r", "inputs": [[0, 0, 0]]}, heads=[[1, 0, 0]])
    assert mx.sym.load_json(text).list_arguments() == ["x", "r_rhs"]


def test_a_very_long_shape_takes_neither_time_nor_memory() -> None:
    def shaped(shape: str) -> str:
        return symbol({"op": "Reshape", "name": "r", "inputs": [[0, 0, 0]], "attrs": {"shape": shape}})

    text = shaped("(" + "1, " * 100_000 + ")")
    begin = time.process_time()
    mx.sym.load_json(text)
    assert time.process_time() - begin < 1
    tracemalloc.start()
    try:
        mx.sym.load_json(text)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(text) + 64e6
    finally:
        tracemalloc.stop()
    with pytest.raises(MXNetError, match=r"node r.*attribute shape expects"):
        mx.sym.load_json(shaped("(" + "(1,)," * 300_000 + ")"))


def test_damaged_states_name_their_file(tmp_path: Path) -> None:
    file = tmp_path / "cut.states"
    parameter = mx.gluon.Parameter("w", shape=(2,))
    parameter.initialize()
    trainer = mx.gluon.Trainer([parameter], "sgd", {"momentum": 0.9})
    module = mx.mod.Module(mx.sym.LinearRegressionOutput(mx.sym.var("data"), name="softmax"))
    module.bind([("data", (2, 2))], [("softmax_label", (2, 2))])
    module.init_params()
    module.init_optimizer()
    for raw in (b"", b"\x80\x02}q", states.dumps({0: mx.nd.ones((2,))})[:-8]):
        file.write_bytes(raw)
        for load_states in (trainer.load_states, module.load_optimizer_states):
            with pytest.raises(MXNetError, match=r"cut\.states"):
                load_states(str(file))


def test_states_by_name_are_not_a_trainers(tmp_path: Path) -> None:
    file = tmp_path / "named.states"
    file.write_bytes(states.dumps({"fc_weight": mx.nd.ones((2,))}))
    parameter = mx.gluon.Parameter("w", shape=(2,))
    parameter.initialize()
    with pytest.raises(MXNetError, match=r"named\.states' holds .*none with the key 'fc_weight'"):
        mx.gluon.Trainer([parameter], "sgd").load_states(str(file))


def test_bad_text_says_where(tmp_path: Path) -> None:
    file = tmp_path / "latin-symbol.json"
    file.write_bytes(symbol().replace("x", "caf\xe9").encode("latin-1").replace(b"\\u00e9", b"\xe9"))
    with pytest.raises(
        MXNetError, match=r"latin-symbol\.json is not JSON: 'utf-8' codec can't decode byte 0xe9"
    ):
        mx.sym.load(str(file))


def listed(count: int, *parts: bytes) -> bytes:
    return struct.pack("<QQQ", 0x112, 0, count) + b"".join(parts)


def one_array(*sizes: int) -> bytes:
    return struct.pack(f"<IiI{len(sizes)}qiii", 0xF993FAC9, 0, len(sizes), *sizes, 1, 0, 0)


def zip_with(name: str, content: bytes, claimed: int | None = None) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    raw = stream.getvalue()
    if claimed is None:
        return raw
    return raw.replace(struct.pack("<I", len(content)), struct.pack("<I", claimed))


def npy_header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


ABSURD = {
    "many arrays": (listed(2**60), "cannot fit"),
    "many empty entries": (listed(2_500_000, bytes(10_000_000)), "2500000 arrays are too many"),
    "some empty entries": (listed(80_000, bytes(320_000)), "hold no array"),
    "large array": (listed(1, one_array(2**20, 2**20)), "cut off or damaged"),
    "impossible array": (listed(1, one_array(2**62, 2**62)), "is not possible"),
    "long name": (listed(0, struct.pack("<Q", 0)) + b"", None),
    "bad name": (
        listed(1, one_array(1), bytes(4), struct.pack("<QQ", 1, 5_000_000), b"\xff" * 5_000_000),
        "is not UTF-8 text",
    ),
    "large npy": (npy_header("(1000000000, 1000000)"), "is cut off or damaged"),
    "negative npy": (npy_header("(-4,)"), "negative size"),
    "deep npy header": (npy_header("(" * 5000), "no array in NumPy's format"),
    "large npz entry": (zip_with("a.npy", npy_header("(100000000,)"), 800_000_100), "cut off or damaged"),
    "objects": (npy_header("(1,)").replace(b"<f8", b"|O "), "only numbers and booleans|no array in NumPy's"),
    "text": (b"hello, I am a text and no array", "this is no file of arrays"),
}


def test_absurd_lengths_take_neither_time_nor_memory() -> None:
    for name, (raw, message) in ABSURD.items():
        tracemalloc.start()
        begin = time.process_time()
        if message is None:
            assert serial.loads(raw) == []
        else:
            with pytest.raises(ParamsError, match=message):
                serial.loads(raw)
        took, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # Tracing makes Python several times slower.
        assert took < 5, name
        assert peak < 4 * len(raw) + 2**26, name


def test_a_text_of_brackets_is_refused_before_it_is_read() -> None:
    text = "[" + "[]," * 5_000_000 + "[]]"
    tracemalloc.start()
    with pytest.raises(MXNetError, match="it has 5000002 lists and objects"):
        mx.sym.load_json(text)
    assert tracemalloc.get_traced_memory()[1] < 4 * len(text) + 2**26
    tracemalloc.stop()


def laughing() -> bytes:
    """Tuples that hold the one before twice: 2**60 values."""
    value: Any = (1, 1)
    for _ in range(60):
        value = (value, value)
    return pickle.dumps({0: value})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc", "not the states of an optimizer"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"abc", "not the states of an optimizer"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "the value number 2147483647 is kept after"),
        (b"\x80\x04\x95" + struct.pack("<Q", 2**50) + b"}.", "a frame of|not the states"),
        (b"(" * 100_000, "not the states of an optimizer"),
        (b"]" + b"]a" * 0 + b"(" * 1000 + b"t" * 1000 + b".", "not the states|the pickle holds"),
        (laughing(), "their values hold one another"),
        (b"c_codecs\nencode\n(N}X\x05\x00\x00\x00stateK\x01st" + b"b.", "not the states of an optimizer"),
        (b"\x80\x02}K\x00" + b"K\x01" + b"\x85" * 5000 + b"s.", "nested too deeply|not the states"),
    ],
)
def test_malformed_pickles(raw: bytes, message: str) -> None:
    begin = time.process_time()
    with pytest.raises(ParamsError, match=message):
        states.loads(raw, mx.optimizer.SGD())
    assert time.process_time() - begin < 1


def test_a_pickle_cannot_change_the_functions_that_read_it() -> None:
    before = dict(states._safe_encode.__dict__), states._safe_encode.__defaults__
    raw = b"c_codecs\nencode\n(N}X\x0c\x00\x00\x00__defaults__K\x01stb."
    with pytest.raises(ParamsError):
        states.loads(raw, mx.optimizer.SGD())
    assert (dict(states._safe_encode.__dict__), states._safe_encode.__defaults__) == before


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes(raw: bytes) -> None:
    for suffix in (".params", ".states", ".json"):
        refuse_or_load(Path(f"x{suffix}"), raw)
    for head in (struct.pack("<QQQ", 0x112, 0, 1), b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x80\x04"):
        refuse_or_load(Path("x.params"), head + raw)


def test_the_file_and_the_place_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model-0000.params"
    path.write_bytes((GOLDEN / "models" / "1.9.1" / "mlp-0003.params").read_bytes()[:100])
    with pytest.raises(ParamsError, match=r"model-0000.params', at byte \d+ of 100"):
        mx.nd.load(str(path))


def test_convert_reports_the_source() -> None:
    with pytest.raises(MXNetError, match="the buffer is not JSON"):
        convert.from_json("{", "the buffer")
