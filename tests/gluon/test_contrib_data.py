"""gluon.contrib.data: language model data, images with their boxes; expectations are 1.9.1's and 2.0's."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.gluon.contrib import data
from regluon.gluon.contrib.data.vision.transforms import bbox as transforms
from regluon.gluon.contrib.data.vision.transforms.bbox import utils

TEXT = " \n = The Title = \n \n a b a c <unk> d \n b a the a \n"
BOXES = numpy.array([[10, 20, 30, 40, 1], [0, 0, 5, 5, 2], [50, 60, 90, 95, 3.0]])


def test_the_sampler_is_that_of_gluon_data() -> None:
    assert list(data.IntervalSampler(13, 3)) == [0, 3, 6, 9, 12, 1, 4, 7, 10, 2, 5, 8, 11]
    assert list(data.IntervalSampler(13, 3, rollover=False)) == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("kind", [data.text.WikiText2, data.text.WikiText103])
def test_words_and_the_words_after_them(kind: Any, tmp_path: Path) -> None:
    """The numbers that 1.9.1 gives for the same text."""
    (tmp_path / "wiki.train.tokens").write_text(TEXT)
    found = kind(root=tmp_path, segment="train", seq_len=4)
    assert found.vocabulary.idx_to_token == ["<unk>", "<eos>", "a", "=", "b", "The", "Title", "c", "d", "the"]
    samples = [[part.asnumpy().tolist() for part in found[place]] for place in range(len(found))]
    assert samples == [
        [[3, 5, 6, 3], [5, 6, 3, 1]],
        [[1, 2, 4, 2], [2, 4, 2, 7]],
        [[7, 0, 8, 1], [0, 8, 1, 4]],
        [[4, 2, 9, 2], [2, 9, 2, 1]],
    ]
    assert found[0][0].dtype == numpy.int32 and found.frequencies["a"] == 4
    with zipfile.ZipFile(tmp_path / kind._archive, "w") as archive:
        archive.writestr("some/folder/wiki.valid.tokens", TEXT)
    other = kind(root=tmp_path, segment="validation", vocab=found.vocabulary, seq_len=5)
    assert len(other) == 3 and other.frequencies is None
    assert [part.asnumpy().tolist() for part in other[0]] == [[3, 5, 6, 3, 1], [5, 6, 3, 1, 2]]


def test_missing_texts_and_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"wiki.test.tokens or wikitext-2-v1.zip .*Nothing is downloaded"
    ):
        data.text.WikiText2(root=tmp_path, segment="test")
    with pytest.raises(ValueError, match=r"segment is one of train, validation.*received 'all'"):
        data.text.WikiText2(root=tmp_path, segment="all")
    (tmp_path / "wiki.train.tokens").write_text("one two\n")
    with pytest.raises(ValueError, match="has 3 words, seq_len=35 needs one more"):
        data.text.WikiText2(root=tmp_path)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (utils.bbox_crop(BOXES, (5, 5, 30, 30)), [[5, 15, 25, 30, 1]]),
        (utils.bbox_crop(BOXES, (5, 5, None, None)), [[5, 15, 25, 35, 1], [45, 55, 85, 90, 3]]),
        (utils.bbox_crop(BOXES, (0, 0, 80, 60), False), [[10, 20, 30, 40, 1], [0, 0, 5, 5, 2]]),
        (utils.bbox_flip(BOXES, (100, 120), True)[:1], [[70, 20, 90, 40, 1]]),
        (utils.bbox_flip(BOXES, (100, 120), False, True)[:1], [[10, 80, 30, 100, 1]]),
        (utils.bbox_resize(BOXES, (100, 120), (50, 30))[1:], [[0, 0, 2.5, 1.25, 2], [25, 15, 45, 23.75, 3]]),
        (utils.bbox_translate(BOXES, 3, -2)[:1], [[13, 18, 33, 38, 1]]),
        (utils.bbox_xywh_to_xyxy((1, 2, 3, 4)), (1, 2, 3, 5)),
        (utils.bbox_xywh_to_xyxy(BOXES[:, :4])[0], [10, 20, 39, 59]),
        (utils.bbox_xyxy_to_xywh((1, 2, 3, 4)), (1, 2, 3, 3)),
        (utils.bbox_xyxy_to_xywh(BOXES[:, :4])[0], [10, 20, 21, 21]),
        (utils.bbox_clip_xyxy((-1, 2, 300, 4), 100, 100), (0, 2, 99, 4)),
        (utils.bbox_clip_xyxy(BOXES[:, :4], 60, 50)[2], [50, 49, 59, 49]),
        (utils.bbox_iou(BOXES, numpy.array([[20, 20, 40, 40.0]])), [[200 / 600], [0], [0]]),
        (utils.bbox_iou(BOXES, BOXES, 1), numpy.eye(3)),
    ],
)
def test_functions_of_boxes(found: Any, wanted: Any) -> None:
    numpy.testing.assert_allclose(found, wanted)
    assert type(found) is tuple or isinstance(found, numpy.ndarray)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: utils.bbox_crop(BOXES, (1, 2)), ValueError, "Invalid crop_box parameter, requires length 4"),
        (lambda: utils.bbox_flip(BOXES, (3,)), ValueError, "size requires length 2 tuple, given 1"),
        (lambda: utils.bbox_xywh_to_xyxy((1, 2, 3)), IndexError, "must have 4 elements, given 3"),
        (lambda: utils.bbox_xyxy_to_xywh("a"), TypeError, "Expect input xyxy a list, tuple or numpy.ndarray"),
        (lambda: utils.bbox_clip_xyxy(BOXES, 3, 3), IndexError, r"must have n \* 4 elements, given \(3, 5\)"),
        (lambda: utils.bbox_iou(BOXES[:, :3], BOXES), IndexError, "axis 1 must have at least length 4"),
    ],
)
def test_functions_of_boxes_refuse(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def image() -> Any:
    return mx.np.array(numpy.arange(6 * 8 * 3).reshape(6, 8, 3), dtype="uint8")


PAIR = numpy.array([[1, 1, 4, 4, 0], [3, 2, 7, 5, 1.0]])


def test_transforms_move_boxes_with_the_image() -> None:
    picture, boxes = image(), mx.np.array(PAIR)
    pixels = picture.asnumpy()
    flipped, moved = transforms.ImageBboxRandomFlipLeftRight(1)(picture, boxes)
    assert (flipped.asnumpy() == pixels[:, ::-1]).all()
    assert moved.asnumpy().tolist() == [[4, 1, 7, 4, 0], [1, 2, 5, 5, 1]]
    part, inside = transforms.ImageBboxCrop((1, 1, 4, 3))(picture, boxes)
    assert (part.asnumpy() == pixels[1:4, 1:5]).all()
    assert inside.asnumpy().tolist() == [[0, 0, 3, 3, 0]]
    assert transforms.ImageBboxCrop((1, 1, 4, 3), True)(picture, boxes)[1].shape == (2, 5)
    assert transforms.ImageBboxCrop((1, 1, 40, 3))(picture, boxes)[0] is picture
    small, halved = transforms.ImageBboxResize(4, 3)(picture, boxes)
    assert small.shape == (3, 4, 3)
    assert halved.asnumpy().tolist() == [[0.5, 0.5, 2, 2, 0], [1.5, 1, 3.5, 2.5, 1]]
    same, kept = transforms.ImageBboxRandomFlipLeftRight(0)(picture, boxes)
    assert same is picture and kept is boxes


def test_random_expansion_and_crops_keep_boxes_on_their_pixels() -> None:
    mx.random.seed(3)
    picture, boxes = image(), mx.np.array(PAIR)
    pixels = picture.asnumpy()
    for _ in range(5):
        large, moved = transforms.ImageBboxRandomExpand(1, 2, fill=7)(picture, boxes)
        left, top = (moved.asnumpy()[0, :2] - PAIR[0, :2]).astype(int)
        canvas = large.asnumpy()
        assert (canvas[top : top + 6, left : left + 8] == pixels).all()
        assert (canvas == 7).sum() >= (canvas.size - pixels.size)
        part, found = transforms.ImageBboxRandomCropWithConstraints(1)(picture, boxes)
        tall, wide = part.shape[:2]
        assert len(found) and (found.asnumpy()[:, :2] >= 0).all()
        assert (found.asnumpy()[:, 2:4] <= (wide, tall)).all()
    crops = {utils.bbox_random_crop_with_constraints(BOXES, (100, 120))[1] for _ in range(8)}
    assert len(crops) > 1
    whole = utils.bbox_random_crop_with_constraints(BOXES, (100, 120), constraints=[])
    assert whole[1] == (0, 0, 100, 120) and whole[0].shape == BOXES.shape
    with pytest.raises(ValueError, match=r"bbox must have the shape \(boxes, 4 or more\); received \(2,\)"):
        transforms.ImageBboxRandomFlipLeftRight(1)(picture, mx.np.ones(2))
