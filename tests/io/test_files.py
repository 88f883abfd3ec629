"""Iterators over files: CSV, LibSVM, MNIST's IDX and RecordIO; values by NumPy and 1.9.1's rules."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import recordio

X = numpy.arange(20).reshape(10, 2).astype("f")


def labels(data: Any) -> list[tuple[list[float], int]]:
    found = [(batch.label[0].asnumpy().tolist(), batch.pad) for batch in data]
    data.reset()
    return found


# CSV ----------------------------------------------------------------------


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    numpy.savetxt(tmp_path / "x.csv", X, delimiter=",")
    numpy.savetxt(tmp_path / "y.csv", numpy.arange(10), delimiter=",")
    return tmp_path


def test_csv_goes_round(csv: Path) -> None:
    data = mx.io.CSVIter(
        data_csv=csv / "x.csv", data_shape=(2,), label_csv=str(csv / "y.csv"), label_shape=(1,), batch_size=4
    )
    assert data.provide_data == [("data", (4, 2))] and data.provide_label == [("softmax_label", (4,))]
    assert isinstance(data, mx.io.MXDataIter)
    # The two rows that fill up the first epoch are not read again in the second.
    assert labels(data) == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9, 0, 1], 2)]
    assert labels(data) == [([2, 3, 4, 5], 0), ([6, 7, 8, 9], 0)]
    batch = next(data)
    assert batch.index.tolist() == [0, 1, 2, 3] and batch.data[0].asnumpy()[:, 1].tolist() == [1, 3, 5, 7]
    same = mx.io.CSVIter(csv / "x.csv", (1, 2), 4, round_batch=False, dtype="int32")
    for _ in range(2):
        assert [batch.pad for batch in same] == [0, 0, 2]
        same.reset()
    batch = next(same)
    assert batch.data[0].dtype is numpy.int32 and batch.data[0].shape == (4, 1, 2)
    assert batch.label[0].asnumpy().tolist() == [0] * 4


def test_csv_reads_folders_and_says_what_is_wrong(csv: Path) -> None:
    folder = csv / "parts"
    folder.mkdir()
    for number in (1, 0):
        (folder / f"part{number}.csv").write_text(f"{number},{number}\n")
    data = mx.io.CSVIter(data_csv=folder, data_shape=(2,), batch_size=2)
    assert next(data).data[0].asnumpy().tolist() == [[0, 0], [1, 1]]
    with pytest.raises(mx.MXNetError, match=r"no file 'none\.csv'"):
        mx.io.CSVIter(data_csv="none.csv", data_shape=(2,), batch_size=1)
    with pytest.raises(mx.MXNetError, match=r"2 values; the shape \(3,\) needs 3"):
        mx.io.CSVIter(data_csv=csv / "x.csv", data_shape=(3,), batch_size=1)
    (csv / "bad.csv").write_text("1,a\n")
    with pytest.raises(mx.MXNetError, match=r"cannot read .*bad\.csv"):
        mx.io.CSVIter(data_csv=csv / "bad.csv", data_shape=(2,), batch_size=1)
    with pytest.raises(mx.MXNetError, match="as many labels as rows of data, got 1 and 10"):
        mx.io.CSVIter(csv / "x.csv", (2,), 1, label_csv=folder / "part0.csv", label_shape=(2,))


# LibSVM ----------------------------------------------------------------------


def test_libsvm_rows(tmp_path: Path) -> None:
    file = tmp_path / "data.t"
    file.write_text("1.0 0:0.5 2:1.2\n-2.0\n-3.0 0:0.6 1:2.4 2:1.2\n4 2:-1.2 # comment\n")
    data = mx.io.LibSVMIter(data_libsvm=file, data_shape=(3,), batch_size=3)
    rows = numpy.array([[0.5, 0, 1.2], [0, 0, 0], [0.6, 2.4, 1.2], [0, 0, -1.2]], "f")
    first, second = data
    assert first.data[0].stype == "csr" and first.data[0].data.size == 5
    assert (first.data[0].asnumpy() == rows[:3]).all() and first.label[0].asnumpy().tolist() == [1, -2, -3]
    assert (second.data[0].asnumpy() == rows[[3, 0, 1]]).all() and second.pad == 2
    assert second.label[0].asnumpy().tolist() == [4, 1, -2] and second.index.tolist() == [3, 0, 1]
    part = mx.io.LibSVMIter(data_libsvm=file, data_shape=(3,), batch_size=2, num_parts=2, part_index=1)
    assert labels(part) == [([-3, 4], 0)]
    pairs = mx.io.LibSVMIter(file, (3,), 2, label_libsvm=file, label_shape=(3,))
    assert (next(pairs).label[0].asnumpy() == rows[:2]).all()
    file.write_text("1 0:1\n2 a:1\n")
    with pytest.raises(mx.MXNetError, match=r"line 2: expected 'label index:value"):
        mx.io.LibSVMIter(data_libsvm=file, data_shape=(3,), batch_size=1)
    file.write_text("1 3:1\n")
    with pytest.raises(mx.MXNetError, match=r"line 1: index 3 is outside the shape \(3,\)"):
        mx.io.LibSVMIter(data_libsvm=file, data_shape=(3,), batch_size=1)
    with pytest.raises(ValueError, match="part_index expected 0 to 1"):
        mx.io.LibSVMIter(data_libsvm=tmp_path, data_shape=(4,), batch_size=1, num_parts=2, part_index=2)


# MNIST ----------------------------------------------------------------------


def test_mnist_files(tmp_path: Path) -> None:
    pixels = numpy.random.randint(0, 256, (10, 4, 3)).astype("u1")
    images, digits = tmp_path / "images", tmp_path / "labels.gz"
    images.write_bytes(struct.pack(">IIII", 2051, 10, 4, 3) + pixels.tobytes())
    digits.write_bytes(gzip.compress(struct.pack(">II", 2049, 10) + bytes(range(10))))
    plain = mx.io.MNISTIter(image=images, label=digits, batch_size=4, shuffle=False)
    assert plain.provide_data == [("data", (4, 1, 4, 3))]
    assert labels(plain) == labels(plain) == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)]
    assert (next(plain).data[0].asnumpy()[:, 0] == pixels[:4] / numpy.float32(256)).all()
    flat = mx.io.MNISTIter(
        image=images,
        label=digits,
        batch_size=5,
        flat=True,
        shuffle=False,
        num_parts=2,
        part_index=1,
        data_shape=(12,),
        silent=True,
    )
    assert flat.provide_data == [("data", (5, 12))] and labels(flat) == [([5, 6, 7, 8, 9], 0)]
    orders = [
        labels(mx.io.MNISTIter(image=images, label=digits, batch_size=10, seed=seed)) for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[2][0][0]) == list(range(10))
    with pytest.raises(mx.MXNetError, match="no file"):
        mx.io.MNISTIter(image=tmp_path / "none", label=digits)
    with pytest.raises(mx.MXNetError, match="begins with 2049; an IDX file of 3 axes begins with 2051"):
        mx.io.MNISTIter(image=digits, label=digits)
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(mx.MXNetError, match="announces 120 bytes and holds 119"):
        mx.io.MNISTIter(image=images, label=digits)


# Images ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, list[numpy.ndarray]]:
    """Five pictures in RGB order, without loss in the file."""
    folder = tmp_path_factory.mktemp("images")
    names = str(folder / "r.idx"), str(folder / "r.rec")
    random = numpy.random.RandomState(0)
    made = [random.randint(0, 256, (20 + number, 24, 3)).astype("u1") for number in range(5)]
    writer = recordio.MXIndexedRecordIO(*names, "w")
    for number, image in enumerate(made):
        header = recordio.IRHeader(0, [number, number + 0.5], number, 0)
        writer.write_idx(number, recordio.pack_img(header, image[:, :, ::-1], img_fmt=".png"))
    writer.close()
    return (*names, made)


def middle(image: numpy.ndarray, size: int) -> numpy.ndarray:
    top, left = ((length - size) // 2 for length in image.shape[:2])
    return image[top : top + size, left : left + size].transpose(2, 0, 1).astype("f")


def test_images_are_cropped_normalized_and_mirrored(images: tuple[str, str, list[numpy.ndarray]]) -> None:
    _, records, made = images
    data = mx.io.ImageRecordIter(
        path_imgrec=records, data_shape=(3, 16, 16), batch_size=2, label_width=2, preprocess_threads=2
    )
    assert data.provide_data == [("data", (2, 3, 16, 16))] and data.provide_label == [
        ("softmax_label", (2, 2))
    ]
    for _ in range(2):
        batches = list(data)
        assert batches[0].label[0].asnumpy().tolist() in ([[0, 0.5], [1, 1.5]], [[1, 1.5], [2, 2.5]])
        row = int(batches[0].label[0].asnumpy()[1, 0])
        assert (batches[0].data[0].asnumpy()[1] == middle(made[row], 16)).all()
        data.reset()
    normal = mx.io.ImageRecordIter(
        path_imgrec=records,
        data_shape=(3, 16, 16),
        batch_size=2,
        label_width=2,
        mirror=True,
        scale=0.5,
        mean_r=10,
        mean_g=20,
        mean_b=30,
        std_r=2,
        std_g=3,
        std_b=4,
    )
    mean, deviation = (numpy.array(values, "f")[:, None, None] for values in ([10, 20, 30], [2, 3, 4]))
    wanted = ((middle(made[0], 16) - mean) * 0.5 / deviation)[:, :, ::-1]
    numpy.testing.assert_allclose(next(normal).data[0].asnumpy()[0], wanted, rtol=1e-5, atol=1e-5)


def test_images_in_any_order_and_part(images: tuple[str, str, list[numpy.ndarray]]) -> None:
    index, records, _ = images
    common: dict[str, Any] = {"path_imgrec": records, "data_shape": (3, 8, 8), "label_width": 2}
    shuffled = mx.io.ImageRecordIter(**common, path_imgidx=index, batch_size=5, shuffle=True, seed=3)
    orders = [firsts(shuffled)[0][0] for _ in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == [0, 1, 2, 3, 4] and orders[0] != orders[1]
    part = mx.io.ImageRecordIter(**common, batch_size=3, num_parts=2, part_index=1)
    assert firsts(part) == [([3, 4, 3], 1)]
    padded = mx.io.ImageRecordIter(**common, batch_size=4, round_batch=False)
    assert firsts(padded)[1] == ([4, 0, 0, 0], 3)
    large = mx.io.ImageRecordIter(**{**common, "data_shape": (1, 30, 40)}, batch_size=5, resize=32)
    assert next(large).data[0].shape == (5, 1, 30, 40)
    assert next(mx.io.ImageRecordUInt8Iter(**common, batch_size=1)).data[0].dtype is numpy.uint8
    mx.random.seed(1)
    cropped = mx.io.ImageRecordIter(**common, batch_size=1, rand_crop=True, rand_mirror=True)
    seen = {next(cropped).data[0].asnumpy().tobytes() for _ in range(20) if cropped.reset() is None}
    assert len(seen) > 10


def firsts(iterator: Any) -> list[tuple[list[float], int]]:
    """The first number of every label, and the pad, of each batch of an epoch."""
    found = [(batch.label[0].asnumpy()[:, 0].tolist(), batch.pad) for batch in iterator]
    iterator.reset()
    return found


def test_image_options_that_are_not_there(images: tuple[str, str, list[numpy.ndarray]]) -> None:
    common: dict[str, Any] = {"path_imgrec": images[1], "data_shape": (3, 8, 8), "batch_size": 1}
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        mx.io.ImageRecordIter(**common, foo=1)
    with pytest.raises(mx.MXNetError, match=r"no file 'none\.rec'"):
        mx.io.ImageRecordIter(**{**common, "path_imgrec": "none.rec"})
    with pytest.raises(mx.MXNetError, match=r"label_width is 3, the record has 2"):
        next(mx.io.ImageRecordIter(**common, label_width=3))
    with pytest.raises(ValueError, match=r"expected data_shape \(3 or 1 or 4, height, width\)"):
        mx.io.ImageRecordIter(**{**common, "data_shape": (8, 8)})
