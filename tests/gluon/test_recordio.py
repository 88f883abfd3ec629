"""RecordIO: round trips, the bytes that the original writes, damage, and datasets on top."""

from __future__ import annotations

import pickle
import struct
import tempfile
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regluon import MXNetError, recordio
from regluon.gluon import data

MAGIC = struct.pack("<I", 0xCED7230A)


def write(folder: Path, records: list[bytes]) -> tuple[str, str]:
    index, file = str(folder / "a.idx"), str(folder / "a.rec")
    with recordio.MXIndexedRecordIO(index, file, "w") as writer:
        for number, record in enumerate(records):
            writer.write_idx(number, record)
    return index, file


def test_bytes_are_those_of_the_original(tmp_path: Path) -> None:
    index, file = write(tmp_path, [b"hello", b"abcd" + MAGIC + b"efgh"])
    # Written by MXNet 1.9.1 for the same two records.
    assert Path(file).read_bytes().hex() == (
        "0a23d7ce0500000068656c6c6f0000000a23d7ce04000020616263640a23d7ce0400006065666768"
    )
    assert Path(index).read_text() == "0\t0\n1\t16\n"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([b"", b"a", b"bcd", MAGIC, MAGIC[:2]]), max_size=5).map(b"".join), max_size=4
    )
)
def test_round_trip(records: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index, file = write(Path(folder), records)
        with recordio.MXRecordIO(file, "r") as reader:
            assert [reader.read() for _ in records] == records
            assert reader.read() is None
        with recordio.MXIndexedRecordIO(index, file, "r") as reader:
            assert [reader.read_idx(key) for key in reversed(reader.keys)] == records[::-1]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"PK\3\4aaaa", "no record begins at byte 0"),
        (MAGIC + b"\xff\xff\xff\x1f", "has 536870911 bytes, the file ends before"),
        (MAGIC + struct.pack("<I", 2 << 29), "kind 2 out of order"),
        (MAGIC + b"\1", "no record begins at byte 0"),
    ],
)
def test_damage_is_located(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with recordio.MXRecordIO(str(tmp_path / "a"), "r") as reader, pytest.raises(MXNetError, match=text):
        reader.read()


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="flag 'r' or 'w', got 'a'"):
        recordio.MXRecordIO("x", "a")
    index, file = write(tmp_path, [b"x"])
    with recordio.MXIndexedRecordIO(index, file, "r") as reader:
        with pytest.raises(RuntimeError, match="cannot write to"):
            reader.write(b"")
        with pytest.raises(KeyError, match="no key 9"):
            reader.read_idx(9)
        again = pickle.loads(pickle.dumps(reader))
    assert again.read_idx(0) == b"x"
    again.close()
    with pytest.raises(RuntimeError, match="is closed"):
        again.read()


def test_headers() -> None:
    header, content = recordio.unpack(recordio.pack(recordio.IRHeader(0, 3.5, 7, 9), b"img"))
    assert header == (0, 3.5, 7, 9) and content == b"img"
    header, content = recordio.unpack(recordio.pack(recordio.IRHeader(0, [1, 2], 7, 9), b"img"))
    assert header.flag == 2 and header.label.tolist() == [1, 2] and content == b"img"
    with pytest.raises(ValueError, match="header of 24 bytes, got 3"):
        recordio.unpack(b"abc")
    with pytest.raises(ValueError, match="announces 5 labels"):
        recordio.unpack(struct.pack("<IfQQ", 5, 0, 0, 0))


def test_datasets(tmp_path: Path) -> None:
    image = numpy.random.RandomState(0).randint(0, 256, (4, 5, 3), dtype=numpy.uint8)
    record = recordio.pack_img(recordio.IRHeader(0, 2.0, 1, 0), image, quality=3, img_fmt=".png")
    numpy.testing.assert_array_equal(recordio.unpack_img(record)[1], image)
    _, file = write(tmp_path, [record, record])
    plain = data.RecordFileDataset(file)
    assert len(plain) == 2 and plain[1] == record
    picture, label = data.vision.ImageRecordDataset(file)[1]
    numpy.testing.assert_array_equal(picture.asnumpy(), image[..., ::-1])
    assert label == 2
    loader = data.DataLoader(plain, batch_size=1, num_workers=1, batchify_fn=data.batchify.AsList())
    assert list(loader) == [[record], [record]]
    with pytest.raises(FileNotFoundError, match="needs the file"):
        data.RecordFileDataset(str(tmp_path / "none.rec"))


def test_an_index_that_is_a_link_stays_one(tmp_path) -> None:
    (tmp_path / "real.idx").write_text("")
    (tmp_path / "a.idx").symlink_to(tmp_path / "real.idx")
    writer = recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    writer.write_idx(3, b"x")
    writer.close()
    assert (tmp_path / "a.idx").is_symlink() and (tmp_path / "real.idx").read_text() == "3\t0\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.idx", "a.rec", "real.idx"]
