"""The .params, .npz and .npy formats: files of the originals, our own bytes, and damaged files."""

from __future__ import annotations

import io
import os
import pathlib
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regluon import serial
from regluon.array import NDArray
from regluon.serial import params

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "serial"
V1, V2 = 0xF993FAC8, 0xF993FAC9


def array(values, dtype=torch.float32):
    return NDArray._wrap(torch.tensor(values, dtype=dtype), None)


def written(data):
    stream = io.BytesIO()
    params.write(stream, data)
    return stream.getvalue()


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0b1"])
def test_reads_what_the_originals_wrote(version):
    folder = GOLDEN / version
    named = serial.load(folder / "dict.params")
    assert list(named) == ["arg:w", "b"]
    np.testing.assert_array_equal(named["arg:w"].asnumpy(), [[1, 2], [3, 4]])
    assert named["b"]._t.dtype == torch.int8 and named["b"].asnumpy().tolist() == [1, -2]
    listed = serial.load(folder / "list.params")
    assert isinstance(listed, list) and [one.shape for one in listed] == [(2, 2), (2,)]
    assert serial.load(folder / "empty.params") == []
    assert len(serial.load(folder / "one.params")) == 1
    for name, value in serial.load(folder / "types.params").items():
        assert str(value._t.dtype) == f"torch.{name}"
        assert value.asnumpy().tolist() == [1, 2, 3]


def test_reads_scalars_and_empty_arrays():
    loaded = serial.load(GOLDEN / "1.9.1" / "scalar.params")
    assert loaded["s"].shape == () and float(loaded["s"].asnumpy()) == 3.0
    assert loaded["e"].shape == (0, 3)
    assert loaded["n"].asnumpy().tolist() == [1, 1]


def test_reads_and_writes_sparse_arrays():
    for name in ("row_sparse", "csr"):
        path = GOLDEN / "1.9.1" / f"{name}.params"
        with open(path, "rb") as stream:
            records = params.read(stream, "file")
        assert written(records) == path.read_bytes()
    (record,) = params.loads((GOLDEN / "1.9.1" / "row_sparse.params").read_bytes()).values()
    assert record.to_dense().tolist() == [[0, 0], [1, 2], [0, 0], [3, 4], [0, 0]]
    (record,) = params.loads((GOLDEN / "1.9.1" / "csr.params").read_bytes()).values()
    assert record.to_dense().tolist() == [[1, 0, 2, 0], [0, 0, 0, 0], [0, 3, 0, 0]]


@pytest.mark.parametrize("name", ["dict", "list", "one", "empty", "types"])
def test_writes_the_bytes_of_1_9_1(name):
    path = GOLDEN / "1.9.1" / f"{name}.params"
    assert written(params.loads(path.read_bytes())) == path.read_bytes()


# csr_matrix([[1, 0, 2], [0, 3, 0]]) as 1.9.1 and 2.0.0b1 save it at once: the storage shape (0,) is stale.
STALE = """
12010000 00000000 00000000 00000000 01000000 00000000 c9fa93f9 02000000 01000000 00000000 00000000 02000000
02000000 00000000 03000000 00000000 01000000 00000000 00000000 06000000 01000000 03000000 00000000 06000000
01000000 03000000 00000000 0000803f 00000040 00004040 00000000 00000000 02000000 00000000 03000000 00000000
00000000 00000000 02000000 00000000 01000000 00000000 00000000 00000000
"""


def test_a_stale_storage_shape_is_not_trusted():
    (record,) = params.loads(bytes.fromhex(STALE))
    assert record.to_dense().tolist() == [[1, 0, 2], [0, 3, 0]]


def test_scalars_and_empty_arrays_are_version_3():
    raw = written({"s": torch.tensor(3.0), "n": torch.ones(2)})
    assert raw[24:28] == struct.pack("<I", 0xF993FACA)
    assert struct.pack("<I", V2) in raw
    assert written(params.loads((GOLDEN / "1.9.1" / "scalar.params").read_bytes())) != b""


def test_reads_npz_and_npy():
    named = serial.load(GOLDEN / "2.0.0b1" / "named.npz")
    assert {name: value.shape for name, value in named.items()} == {"arr_0": (2,), "k": (2, 2), "s": ()}
    (alone,) = serial.load(GOLDEN / "2.0.0b1" / "scalar.npy")
    assert float(alone.asnumpy()) == 3.0


def old_array(version, values):
    data = np.asarray(values, dtype="float32")
    width = "q" if version == 1 else "I"
    head = struct.pack("<I", V1) if version == 1 else b""
    shape = struct.pack(f"<I{data.ndim}{width}", data.ndim, *data.shape)
    return head + shape + struct.pack("<iii", 1, 0, 0) + data.tobytes()


@pytest.mark.parametrize("version", [0, 1])
def test_reads_the_oldest_versions(version):
    raw = struct.pack("<QQQ", 0x112, 0, 2) + old_array(version, [[1, 2, 3]]) + old_array(version, [4])
    raw += struct.pack("<Q", 2) + b"".join(
        struct.pack("<Q", len(name)) + name for name in (b"arg:a", b"aux:b")
    )
    loaded = serial.loads(raw)
    assert loaded["arg:a"].asnumpy().tolist() == [[1, 2, 3]]
    assert loaded["aux:b"].asnumpy().tolist() == [4]


@pytest.mark.parametrize("file_format", ["params", "npz"])
def test_round_trip(tmp_path, file_format):
    types = [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.bool,
    ]
    data = {str(dtype): array([[0, 1, 1]], dtype) for dtype in types}
    data |= {
        "scalar": array(2.5),
        "empty": NDArray._wrap(torch.zeros(2, 0), None),
        "strided": NDArray._wrap(torch.arange(6.0).view(2, 3).T, None),
    }
    path = tmp_path / "file"
    serial.save(path, data, format=file_format)
    loaded = serial.load(path)
    assert list(loaded) == list(data)
    for name, value in data.items():
        assert loaded[name]._t.dtype == value._t.dtype
        assert loaded[name].shape == value.shape
        np.testing.assert_array_equal(loaded[name].asnumpy(), value.asnumpy())


def test_bfloat16(tmp_path):
    value = array([1.0, -2.5], torch.bfloat16)
    serial.save(tmp_path / "b.params", [value])
    assert serial.load(tmp_path / "b.params")[0]._t.dtype == torch.bfloat16
    serial.save(tmp_path / "b.npz", [value], format="npz")
    assert serial.load(tmp_path / "b.npz")["arr_0"].asnumpy().tolist() == [1.0, -2.5]


def test_streaming_read(tmp_path):
    serial.save(tmp_path / "f", {"a": array([1.0]), "b": array([2.0, 3.0])})
    assert [(name, value.asnumpy().tolist()) for name, value in serial.iterate(tmp_path / "f")] == [
        ("a", [1.0]),
        ("b", [2.0, 3.0]),
    ]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "f.params"
    serial.save(path, [array([1.0])])
    with pytest.raises(params.ParamsError, match=r"cannot be written to a .params file"):
        serial.save(path, [array([2.0]), NDArray._wrap(torch.zeros(1, dtype=torch.complex64), None)])
    assert serial.load(path)[0].asnumpy().tolist() == [1.0]
    assert os.listdir(tmp_path) == ["f.params"]


def test_refuses_other_data(tmp_path):
    with pytest.raises(TypeError, match="An array, a list of arrays or a dict"):
        serial.save(tmp_path / "f", 3)
    with pytest.raises(TypeError, match="Element 1 of the data must be an NDArray"):
        serial.save(tmp_path / "f", [array([1.0]), "x"])
    with pytest.raises(TypeError, match="Names of arrays must be str; received 3"):
        serial.save(tmp_path / "f", {3: array([1.0])})
    with pytest.raises(ValueError, match="format must be 'params' or 'npz'"):
        serial.save(tmp_path / "f", [], format="zip")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "at byte 0 of 0: the file ends within the header"),
        (b"hello world, this is text", "this is no file of arrays"),
        (struct.pack("<QQQ", 0x112, 0, 2**40), "at byte 16 of 24: 1099511627776 arrays cannot fit"),
        (struct.pack("<QQQI", 0x112, 0, 1, 2**31), "an array of rank 2147483648 is not possible"),
        (
            struct.pack("<QQQIiI2qiii", 0x112, 0, 1, V2, 0, 2, 2**20, 2**20, 1, 0, 0),
            "should have 4398046511104 bytes",
        ),
        (struct.pack("<QQQIiI2qiii", 0x112, 0, 1, V2, 0, 2, 2**40, 2**40, 1, 0, 0), "is not possible"),
        (struct.pack("<QQQIiIqiii", 0x112, 0, 1, V2, 0, 1, -5, 1, 0, 0), "has a negative size"),
        (struct.pack("<QQQIiIqiii", 0x112, 0, 1, V2, 0, 1, 1, 1, 0, 99), "the type code 99 is unknown"),
        (struct.pack("<QQQIiIq", 0x112, 0, 1, V2, 7, 1, 1), "the storage type 7 is unknown"),
        (struct.pack("<QQQQ", 0x112, 0, 0, 5), "there are 0 arrays but 5 names"),
        (b"PK\x03\x04garbage", "this zip file \\(.npz\\) is damaged"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "no array in NumPy's format"),
    ],
)
def test_damaged_files(tmp_path, raw, message):
    path = tmp_path / "broken.params"
    path.write_bytes(raw)
    with pytest.raises(params.ParamsError, match=message) as caught:
        serial.load(path)
    assert "broken.params" in str(caught.value)


def test_sparse_indices_are_checked():
    rows = params.SparseTensor("row_sparse", (2, 1), torch.ones(1, 1), (torch.tensor([5]),))
    with pytest.raises(params.ParamsError, match="row indices outside its 2 rows"):
        params.loads(written([rows]))
    pointers = params.SparseTensor("csr", (1, 2), torch.ones(1), (torch.tensor([0, 7]), torch.tensor([0])))
    with pytest.raises(params.ParamsError, match="row pointers that do not increase"):
        params.loads(written([pointers]))


def test_object_arrays_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "o.npz", a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(params.ParamsError, match=r"only numbers and booleans are|no array in NumPy's format"):
        serial.load(tmp_path / "o.npz")


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_damage_is_one_kind_of_error(data):
    kind = data.draw(st.sampled_from(["params", "npz"]))
    source = GOLDEN / ("1.9.1/csr.params" if kind == "params" else "2.0.0b1/named.npz")
    raw = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        serial.loads(bytes(raw))
    except params.ParamsError as error:
        assert "The buffer" in str(error)


def test_array_functions(tmp_path):
    from regluon.array import ndarray
    from regluon.base import config

    serial.nd_save(tmp_path / "a", {"x": array([1.0])})
    assert type(serial.nd_load(tmp_path / "a")["x"]) is NDArray
    assert isinstance(serial.np_load(tmp_path / "a")["x"], ndarray)
    assert serial.nd_load_frombuffer((tmp_path / "a").read_bytes())["x"].asnumpy().tolist() == [1.0]
    serial.np_savez(tmp_path / "z", array([1.0]), k=array([2.0]))
    assert sorted(serial.np_load(tmp_path / "z")) == ["arr_0", "k"]
    with pytest.raises(ValueError, match="'arr_0' belongs to positional array 0"):
        serial.np_savez(tmp_path / "z", array([1.0]), arr_0=array([2.0]))
    config.set_api(2)
    serial.np_save(tmp_path / "one", array([1.0, 2.0]))
    assert np.load(tmp_path / "one").tolist() == [1.0, 2.0]
    assert serial.np_load(tmp_path / "one").asnumpy().tolist() == [1.0, 2.0]
