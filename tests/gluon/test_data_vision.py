"""Image datasets from files that the tests write, and transforms against NumPy and values of MXNet."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.gluon.data import vision
from regluon.gluon.data.vision import datasets, transforms
from regluon.gluon.data.vision.datasets import read_idx


def write_idx(path: Path, array: numpy.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.astype(numpy.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def mnist_folder(tmp_path: Path) -> Path:
    for stem, count, ending in (("train", 6, ".gz"), ("t10k", 3, "")):
        images = numpy.arange(count * 4).reshape(count, 2, 2)
        write_idx(tmp_path / f"{stem}-images-idx3-ubyte{ending}", images)
        write_idx(tmp_path / f"{stem}-labels-idx1-ubyte{ending}", numpy.arange(count))
    return tmp_path


def test_mnist_from_local_files(mnist_folder: Path) -> None:
    train, test = (vision.MNIST(str(mnist_folder), train=flag) for flag in (True, False))
    assert (len(train), len(test)) == (6, 3)
    image, label = train[2]
    assert image.shape == (2, 2, 1) and image.asnumpy().ravel().tolist() == [8, 9, 10, 11]
    assert label == 2 and label.dtype == numpy.int32
    batches = list(mx.gluon.data.DataLoader(train.transform_first(transforms.ToTensor()), batch_size=4))
    assert batches[0][0].shape == (4, 1, 2, 2)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte\.gz.*not downloaded.*root="):
        vision.MNIST(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"data_batch_1\.bin"):
        vision.CIFAR10(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"PK\3\4xxxx", b"\0\0\x08\x01\0\0\0\x05abc", b"\0\0\x08\x03\0\0"])
def test_damaged_idx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"no IDX file|bytes; its header|ends inside its header"):
        read_idx(path)


def test_cifar_from_local_files(tmp_path: Path) -> None:
    generator = numpy.random.RandomState(0)
    planes = generator.randint(0, 256, size=(4, 3, 32, 32), dtype=numpy.uint8)
    for labels, name in (
        ([[3], [1], [4], [1]], "test_batch.bin"),
        ([[0, 9], [1, 8], [2, 7], [3, 6]], "test.bin"),
    ):
        rows = numpy.hstack([numpy.array(labels, numpy.uint8), planes.reshape(4, -1)])
        (tmp_path / name).write_bytes(rows.tobytes())
    dataset = vision.CIFAR10(str(tmp_path), train=False)
    numpy.testing.assert_array_equal(dataset[2][0].asnumpy(), planes[2].transpose(1, 2, 0))
    assert [dataset[i][1] for i in range(4)] == [3, 1, 4, 1]
    fine, coarse = (vision.CIFAR100(str(tmp_path), fine_label=flag, train=False) for flag in (True, False))
    assert (fine[1][1], coarse[1][1]) == (8, 1)


def test_image_folder(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        numpy.save(tmp_path / name / "a.npy", numpy.full((2, 2, 3), len(name)))
    dataset = vision.ImageFolderDataset(str(tmp_path))
    assert dataset.synsets == ["cat", "dog"] and [label for _, label in dataset.items] == [0, 1]
    assert dataset[1][0].asnumpy().max() == 3


@pytest.fixture
def image() -> numpy.ndarray:
    return numpy.arange(4 * 6 * 3).reshape(4, 6, 3).astype(numpy.uint8)


@pytest.mark.parametrize("kind", ["nd", "np"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_to_tensor_and_normalize(image: numpy.ndarray, kind: str, hybrid: bool) -> None:
    block = transforms.HybridCompose(
        [transforms.ToTensor(), transforms.Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))]
    )
    if hybrid:
        block.hybridize()
    array = getattr(mx, kind).array(image, dtype="uint8")
    mean, deviation = numpy.array([0.5, 0.4, 0.3]), numpy.array([0.1, 0.2, 0.3])
    expected = ((image / 255 - mean) / deviation).transpose(2, 0, 1)
    for _ in range(2):
        result = block(array)
        assert type(result) is type(array)
        numpy.testing.assert_allclose(result.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_sizes_and_crops(image: numpy.ndarray) -> None:
    array = mx.nd.array(image, dtype="uint8")
    # Values of the original on the same image.
    numpy.testing.assert_array_equal(transforms.CenterCrop(2)(array).asnumpy()[..., 0], [[24, 27], [42, 45]])
    numpy.testing.assert_array_equal(
        transforms.CropResize(1, 1, 2, 2)(array).asnumpy()[..., 0], [[21, 24], [39, 42]]
    )
    resized = transforms.Resize(3)(array).asnumpy()
    numpy.testing.assert_array_equal(resized[..., 0], [[4, 10, 16], [29, 35, 41], [52, 58, 64]])
    assert transforms.Resize(3, keep_ratio=True)(array).shape == (3, 4, 3)
    assert transforms.Resize((5, 3))(array).shape == (3, 5, 3)
    assert transforms.CenterCrop(8)(array).shape == (8, 8, 3)
    assert transforms.RandomCrop((3, 3))(array).shape == (3, 3, 3)
    assert transforms.RandomCrop(8, pad=2)(array).shape == (8, 8, 3)
    assert transforms.RandomResizedCrop(3)(array).shape == (3, 3, 3)
    with pytest.raises(mx.MXNetError, match="width 9 and height 9 at x=0, y=0 does not fit"):
        transforms.CropResize(0, 0, 9, 9)(array)


def test_flips_follow_the_seed(image: numpy.ndarray) -> None:
    array = mx.np.array(image)
    numpy.testing.assert_array_equal(transforms.RandomFlipLeftRight(p=1)(array).asnumpy(), image[:, ::-1])
    numpy.testing.assert_array_equal(transforms.RandomFlipTopBottom(p=1)(array).asnumpy(), image[::-1])
    numpy.testing.assert_array_equal(transforms.RandomFlipTopBottom(p=0)(array).asnumpy(), image)
    flip = transforms.RandomFlipLeftRight()
    draws = []
    for _ in range(2):
        mx.random.seed(9)
        draws.append([bool((flip(array).asnumpy() == image).all()) for _ in range(20)])
    assert draws[0] == draws[1] and len(set(draws[0])) == 2


def test_colour_kernels_give_the_originals_values(image: numpy.ndarray) -> None:
    import torch

    from regluon.gluon.data.vision.transforms import kernels

    tripled = torch.from_numpy(image.astype(numpy.float32)) * 3
    corner = {
        "brightness": (kernels.brightness(tripled, 0.5), [0, 4.5, 9]),
        "contrast": (kernels.contrast(tripled, 0.5), [52.972492, 57.472492, 61.972492]),
        # By the formula: the original mixes in the last channel's share of the luminance only.
        "saturation": (kernels.saturation(tripled, 0.5), [1.2225, 10.2225, 19.2225]),
    }
    array = mx.nd.array(image.astype(numpy.float32) * 3)
    hue = mx.nd.image.random_hue(array, min_factor=0.25, max_factor=0.25)
    lighting = mx.nd.image.adjust_lighting(array, alpha=(0.1, 0.2, -0.1))
    corner["hue"] = hue._t, [6, 15, 24]
    corner["lighting"] = lighting._t, [-2.5038095, 6.4961905, 15.496191]
    for name, (result, expected) in corner.items():
        numpy.testing.assert_allclose(result[0, :3, 0].numpy(), expected, rtol=1e-4, atol=1e-4, err_msg=name)


def test_random_colours_keep_shape_and_dtype(image: numpy.ndarray) -> None:
    array = mx.nd.array(image, dtype="uint8")
    for transform in (
        transforms.RandomBrightness(0.3),
        transforms.RandomContrast(0.3),
        transforms.RandomSaturation(0.3),
        transforms.RandomHue(0.3),
        transforms.RandomColorJitter(0.1, 0.1, 0.1, 0.1),
        transforms.RandomLighting(0.1),
        transforms.RandomGray(1.0),
        transforms.RandomApply([transforms.RandomGray(1.0)], p=1),
    ):
        result = transform(array)
        assert result.shape == array.shape and result.dtype == array.dtype


def test_rotate() -> None:
    picture = numpy.arange(25, dtype=numpy.float32).reshape(1, 5, 5)
    turned = transforms.Rotate(90)(mx.nd.array(picture)).asnumpy()
    numpy.testing.assert_allclose(turned, numpy.rot90(picture, axes=(1, 2)), atol=1e-4)
    zoomed = transforms.Rotate(30, zoom_in=True)(mx.nd.ones((1, 5, 5))).asnumpy()
    numpy.testing.assert_allclose(zoomed, 1, atol=1e-5)
    # A value of the original: 30 degrees on 4x6, rows counted from the top.
    pixels = numpy.arange(72, dtype=numpy.float32).reshape(3, 4, 6) / 72
    row = transforms.Rotate(30)(mx.nd.array(pixels)).asnumpy()[0, 1]
    numpy.testing.assert_allclose(
        row, [0.0066373, 0.04656786, 0.10026265, 0.15395744, 0.20765226, 0.26134706], rtol=1e-5
    )
    with pytest.raises(TypeError, match="put ToTensor"):
        transforms.Rotate(30)(mx.nd.ones((1, 5, 5), dtype="uint8"))
    assert transforms.RandomRotation((-10, 10))(mx.nd.ones((1, 5, 5))).shape == (1, 5, 5)


HYBRID = [
    transforms.Resize(8),
    transforms.Resize((7, 9), interpolation=2),
    transforms.Resize(8, keep_ratio=True),
    transforms.CenterCrop((7, 6)),
    transforms.CropResize(1, 1, 4, 3, (5, 6)),
    transforms.RandomCrop((7, 6)),
    transforms.RandomCrop((7, 6), pad=((1, 2), (0, 3), (0, 0)), pad_value=9),
    transforms.RandomResizedCrop((7, 6)),
    transforms.RandomFlipLeftRight(),
    transforms.RandomFlipTopBottom(),
    transforms.RandomBrightness(0.3),
    transforms.RandomContrast(0.3),
    transforms.RandomSaturation(0.3),
    transforms.RandomHue(0.3),
    transforms.RandomColorJitter(0.1, 0.1, 0.1, 0.1),
    transforms.RandomLighting(0.1),
]


@pytest.mark.parametrize("transform", HYBRID, ids=lambda transform: type(transform).__name__)
@pytest.mark.parametrize("kind", ["nd", "np"])
def test_transforms_can_be_hybridized(image: numpy.ndarray, transform: Any, kind: str) -> None:
    """They keep drawing afresh then, as many different results show, and follow the seed."""
    array = getattr(mx, kind).array(image, dtype="uint8")
    net = transforms.HybridCompose([transform, transforms.ToTensor()])
    assert isinstance(transform, mx.gluon.HybridBlock)

    def results() -> list[bytes]:
        mx.random.seed(3)
        return [net(array).asnumpy().tobytes() for _ in range(6)]

    plain = results()
    net.hybridize()
    net(array)
    compiled = results()
    assert results() == compiled
    assert net(array).dtype == numpy.float32 and type(net(array)) is type(array)
    name = type(transform).__name__
    if name.startswith("Random"):
        assert len(set(compiled)) > 1 and len(set(plain)) > 1
    else:
        assert compiled == plain


def test_transforms_are_exported_with_a_network(image: numpy.ndarray, tmp_path: Path) -> None:
    parts = [
        transforms.Resize(8),
        transforms.CropResize(1, 1, 6, 6),
        transforms.RandomFlipLeftRight(1),
        transforms.ToTensor(),
        transforms.Normalize(0.5, 0.2),
    ]
    net = transforms.HybridCompose(parts)
    net.hybridize()
    array = mx.nd.array(image, dtype="uint8")
    expected = net(array).asnumpy()
    net.export(str(tmp_path / "net"))
    again = mx.gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"])
    numpy.testing.assert_allclose(again(array).asnumpy(), expected, rtol=1e-6)


def test_image_list_dataset(image: numpy.ndarray, tmp_path: Path) -> None:
    import cv2

    cv2.imwrite(str(tmp_path / "p.png"), image[..., ::-1])
    (tmp_path / "all.lst").write_text("0\t3\tp.png\n1\t1\t2.5\tp.png\n")
    listed = datasets.ImageListDataset(tmp_path, "all.lst")
    assert len(listed) == 2
    picture, label = listed[1]
    assert (picture.asnumpy() == image).all() and label.asnumpy().tolist() == [1, 2.5]
    given = datasets.ImageListDataset(tmp_path, [[1, 2, "p.png"], [[4, 5], "p.png"], (6, "p.png")], flag=0)
    assert [given[i][1].asnumpy().tolist() for i in range(3)] == [[1, 2], [4, 5], [6]]
    assert given[0][0].shape == (*image.shape[:2], 1) and label.dtype == numpy.float32
    with pytest.raises(ValueError, match=r"expected entries \[label, \.\.\., name\], received 3"):
        datasets.ImageListDataset(tmp_path, [3])
    with pytest.raises(ValueError, match="received NoneType"):
        datasets.ImageListDataset(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"q\.png"):
        datasets.ImageListDataset(tmp_path, [[3, "q.png"]])[0]


def test_datasets_and_transforms_cross_processes(image: numpy.ndarray, tmp_path: Path) -> None:
    """Pickle takes them, as processes that are spawned need it."""
    import pickle

    import cv2

    (tmp_path / "one").mkdir()
    cv2.imwrite(str(tmp_path / "one" / "p.png"), image[..., ::-1])
    chain = transforms.Compose(
        [*HYBRID[:1], transforms.RandomApply([transforms.RandomGray()]), transforms.ToTensor()]
    )
    for made in (
        datasets.ImageFolderDataset(str(tmp_path)),
        datasets.ImageListDataset(tmp_path / "one", [[0, "p.png"]]),
    ):
        changed = pickle.loads(pickle.dumps(made.transform_first(chain)))
        assert changed[0][0].shape == (3, 8, 8)
