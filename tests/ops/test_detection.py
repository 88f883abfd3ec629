"""Operators for object detection in use: many boxes, empty inputs, refusals, programs, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import gluon


def boxes(count: int, seed: int = 0, size: float = 0.1) -> np.ndarray:
    draw = np.random.RandomState(seed)
    low = draw.uniform(0, 0.9, (count, 2))
    return np.concatenate([low, low + draw.uniform(0.2, 1.0, (count, 2)) * size], 1).astype(np.float32)


def suppress(rows: np.ndarray, threshold: float, classes: bool) -> np.ndarray:
    """Row by row, on NumPy."""
    order = np.argsort(-rows[:, 1], kind="stable")
    left: list[int] = []
    for index in order:
        row = rows[index]
        if left:
            others = rows[left]
            low, high = np.maximum(row[2:4], others[:, 2:4]), np.minimum(row[4:6], others[:, 4:6])
            inner = np.clip(high - low, 0, None).prod(1)
            areas = (others[:, 4:6] - others[:, 2:4]).prod(1)
            overlap = inner / (areas + (row[4:6] - row[2:4]).prod() - inner)
            if classes:
                overlap = np.where(others[:, 0] == row[0], overlap, 0)
            if (overlap > threshold).any():
                continue
        left.append(int(index))
    return rows[left]


@pytest.mark.parametrize("classes", [True, False])
def test_suppression_of_more_boxes_than_one_block_is_that_of_a_loop(classes: bool) -> None:
    count = 2500
    draw = np.random.RandomState(3)
    rows = np.concatenate(
        [
            draw.randint(0, 3, (count, 1)),
            draw.permutation(count).reshape(-1, 1) / count + 0.01,
            boxes(count, 3),
        ],
        1,
    ).astype(np.float32)
    found = mx.nd.contrib.box_nms(
        mx.nd.array(rows), overlap_thresh=0.3, id_index=0 if classes else -1
    ).asnumpy()
    expected = suppress(rows, 0.3, classes)
    assert 0 < len(expected) < count
    np.testing.assert_array_equal(found[: len(expected)], expected)
    assert (found[len(expected) :] == -1).all()


def test_suppression_of_nothing_and_of_a_batch_of_rows_without_one() -> None:
    assert (
        mx.nd.contrib.box_nms(mx.nd.zeros((2, 3, 6)), valid_thresh=0.5).asnumpy().tolist()
        == [[[-1.0] * 6] * 3] * 2
    )
    assert mx.npx.box_nms(mx.np.zeros((0, 6))).shape == (0, 6)
    assert mx.npx.box_nms(mx.np.zeros((2, 0, 6))).shape == (2, 0, 6)


def test_regions_may_be_none_at_all() -> None:
    data = mx.np.ones((1, 4, 5, 5))
    data.attach_grad()
    rois = mx.np.zeros((0, 5))
    with mx.autograd.record():
        results = [
            mx.npx.roi_pooling(data, rois, pooled_size=(2, 3), spatial_scale=1.0),
            mx.nd.contrib.ROIAlign(data, rois, pooled_size=(2, 3), spatial_scale=1.0),
        ]
        total = results[0].sum() + results[1].sum()
    total.backward()
    assert [result.shape for result in results] == [(0, 4, 2, 3)] * 2
    assert (data.grad.asnumpy() == 0).all()


def test_aligned_regions_of_no_size_are_empty_not_refused() -> None:
    data, roi = mx.nd.ones((1, 1, 4, 4)), mx.nd.array([[0, 2, 2, 2, 2]])
    found = mx.nd.contrib.ROIAlign(data, roi, pooled_size=(2, 2), spatial_scale=1.0, aligned=True)
    assert found.shape == (1, 1, 2, 2)
    assert np.isfinite(found.asnumpy()).all()


def test_regions_of_a_diverged_network_are_not_read_out_of_memory() -> None:
    data, roi = mx.nd.ones((1, 1, 4, 4)), mx.nd.array([[0, np.nan, 1, 2, np.nan], [7, 0, 0, 2, 2]])
    for pool in (mx.nd.ROIPooling, mx.nd.contrib.ROIAlign):
        found = pool(data, roi, pooled_size=(2, 2), spatial_scale=1.0).asnumpy()
        assert np.isfinite(found).all()
        assert (found[1] == 0).all()


def test_region_gradient_is_that_of_the_mean() -> None:
    data = mx.nd.array(np.random.RandomState(0).rand(1, 1, 6, 6))
    data.attach_grad()
    with mx.autograd.record():
        found = mx.nd.contrib.ROIAlign(
            data,
            mx.nd.array([[0, 0.5, 0.5, 4.5, 4.5]]),
            pooled_size=(1, 1),
            spatial_scale=1.0,
            sample_ratio=4,
        )
    found.backward()
    # Samples lie on the pixels 1 to 4 of both axes.
    expected = np.zeros((6, 6))
    expected[1:5, 1:5] = 1 / 16
    np.testing.assert_allclose(data.grad.asnumpy()[0, 0], expected, atol=1e-6)


def test_minimum_of_negative_samples_is_kept() -> None:
    anchors = mx.nd.array(boxes(30, 5, 0.2)[None])
    label = mx.nd.array(np.concatenate([[[[1]]], boxes(1, 6, 0.2)[None]], 2))
    scores = mx.nd.array(np.random.RandomState(1).rand(1, 3, 30))
    options: dict[str, Any] = {"negative_mining_ratio": 1.0, "negative_mining_thresh": 0.9}
    _, mask, few = mx.nd.contrib.MultiBoxTarget(anchors, label, scores, **options)
    taken = int(mask.asnumpy().sum() // 4)
    assert taken >= 1
    assert int((few.asnumpy() == 0).sum()) == taken
    *_, many = mx.nd.contrib.MultiBoxTarget(anchors, label, scores, minimum_negative_samples=9, **options)
    assert int((many.asnumpy() == 0).sum()) == 9
    assert int((many.asnumpy() == -1).sum()) == 30 - 9 - taken


def test_sketch_and_transforms() -> None:
    rows = np.random.RandomState(4).rand(3, 6).astype(np.float32)
    there = mx.nd.contrib.fft(mx.nd.array(rows))
    assert there.shape == (3, 12)
    np.testing.assert_allclose(mx.nd.contrib.ifft(there).asnumpy() / 6, rows, atol=1e-6)


_ONE = {"scales": (1,), "ratios": (1,)}


@pytest.mark.parametrize(
    "name, shapes, options, text",
    [
        ("box_iou", [(2, 5), (2, 4)], {}, r"lhs expects boxes \(\.\.\., 4\); received \(2, 5\)"),
        ("box_nms", [(3, 5)], {}, r"width of at least 6 .* received \(3, 5\)"),
        ("box_decode", [(1, 3, 4), (1, 2, 4)], {}, r"received \(1, 3, 4\) and \(1, 2, 4\)"),
        ("box_encode", [(1, 2), (1, 2), (1, 3, 4), (1, 1, 4), (4,), (4,)], {}, r"samples and matches"),
        ("MultiBoxPrior", [(1, 2, 3, 3)], {"sizes": (0.0,)}, r"sizes and ratios above 0"),
        ("MultiBoxPrior", [(1, 2, 3, 3)], {"steps": (1.0,)}, r"received steps=\(1\.0,\)"),
        ("MultiBoxTarget", [(1, 3, 4), (1, 2, 4), (1, 2, 3)], {}, r"label \(B, L, 5 or more\)"),
        ("MultiBoxDetection", [(1, 2, 3), (1, 11), (1, 3, 4)], {}, r"loc_pred \(B, 4 N\)"),
        ("ROIAlign", [(1, 2, 3, 3), (1, 4)], {"pooled_size": (2, 2), "spatial_scale": 1}, r"rois \(R, 5\)"),
        ("ROIAlign", [(1, 2, 3, 3), (1, 5)], {"pooled_size": (0, 2), "spatial_scale": 1}, r"above 0"),
        ("Proposal", [(2, 2, 3, 3), (2, 4, 3, 3), (2, 3)], _ONE, "takes one image"),
        ("Proposal", [(1, 3, 3, 3), (1, 4, 3, 3), (1, 3)], _ONE, "A=1 for 1"),
        ("count_sketch", [(2, 3), (1, 2), (1, 3)], {"out_dim": 2}, r"h and s \(1, D\)"),
        ("ifft", [(2, 3)], {}, "even size"),
    ],
)  # fmt: skip
def test_refusals_say_what_is_expected(
    name: str, shapes: list[tuple[int, ...]], options: dict[str, Any], text: str
) -> None:
    arrays = [mx.nd.ones(shape) for shape in shapes]
    with pytest.raises(mx.MXNetError, match=text):
        getattr(mx.nd.contrib, name)(*arrays, **options).asnumpy()


class SmallDetector(gluon.HybridBlock):
    """A single-shot detector of one map, in the style of 1.x."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = gluon.nn.Conv2D(4, 3, strides=4, padding=1, activation="relu")
            self.classes = gluon.nn.Conv2D(3 * 3, 3, padding=1)
            self.places = gluon.nn.Conv2D(3 * 4, 3, padding=1)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = self.body(x)
        anchors = F.contrib.MultiBoxPrior(x, sizes=(0.3, 0.5), ratios=(1, 2))
        classes = F.reshape(F.transpose(self.classes(x), (0, 2, 3, 1)), (0, -1, 3))
        scores = F.softmax(classes, axis=-1)
        places = F.flatten(F.transpose(self.places(x), (0, 2, 3, 1)))
        found = F.contrib.MultiBoxDetection(
            F.transpose(scores, (0, 2, 1)), places, anchors, nms_threshold=0.4, nms_topk=20
        )
        regions = F.slice_axis(F.contrib.box_nms(found, overlap_thresh=0.3), axis=1, begin=0, end=2)
        regions = F.reshape(F.slice_axis(regions, axis=2, begin=2, end=6), (-1, 4)) * 16
        regions = F.concat(F.zeros_like(F.slice_axis(regions, axis=1, begin=0, end=1)), regions, dim=1)
        return found, F.contrib.ROIAlign(x, regions, pooled_size=(2, 2), spatial_scale=0.25)


def test_a_detector_runs_hybridized_and_from_its_file(tmp_path: Path) -> None:
    net = SmallDetector(prefix="ssd_")
    net.initialize(mx.init.Normal(0.5))
    x = mx.nd.array(np.random.RandomState(7).rand(1, 3, 16, 16))
    expected = [array.asnumpy() for array in net(x)]
    assert expected[0].shape == (1, 48, 6)
    net.hybridize()
    for _ in range(3):
        for array, wanted in zip(net(x), expected, strict=True):
            np.testing.assert_allclose(array.asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    net.export(str(tmp_path / "ssd"))
    again = gluon.SymbolBlock.imports(
        str(tmp_path / "ssd-symbol.json"), ["data"], str(tmp_path / "ssd-0000.params")
    )
    for array, wanted in zip(again(x), expected, strict=True):
        np.testing.assert_allclose(array.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_symbols_name_outputs_and_infer_shapes() -> None:
    data = mx.sym.var("data")
    target = mx.sym.contrib.MultiBoxTarget(
        mx.sym.var("anchor"), mx.sym.var("label"), mx.sym.var("scores"), name="t"
    )
    assert target.list_outputs() == ["t_loc_target", "t_loc_mask", "t_cls_target"]
    _, shapes, _ = target.infer_shape(anchor=(1, 6, 4), label=(2, 3, 5), scores=(2, 4, 6))
    assert shapes == [(2, 24), (2, 24), (2, 6)]
    proposal = mx.sym.contrib.Proposal(
        mx.sym.var("p"), mx.sym.var("b"), mx.sym.var("i"), output_score=True, rpn_post_nms_top_n=7, name="rpn"
    )
    assert proposal.list_outputs() == ["rpn_output", "rpn_score"]
    _, shapes, _ = proposal.infer_shape(p=(1, 24, 4, 5), b=(1, 48, 4, 5), i=(1, 3))
    assert shapes == [(7, 5), (7, 1)]
    pooled = mx.sym.ROIPooling(data, mx.sym.var("rois"), pooled_size=(7, 7), spatial_scale=1 / 16)
    assert pooled.infer_shape(data=(2, 8, 20, 20), rois=(5, 5))[1] == [(5, 8, 7, 7)]


def test_training_a_detector_lowers_its_losses() -> None:
    mx.random.seed(3)
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(8, 3, strides=4, padding=1, activation="relu"), gluon.nn.Conv2D(2 * 6, 3, padding=1)
    )
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = mx.nd.array(np.random.RandomState(7).rand(2, 3, 16, 16))
    label = mx.nd.array([[[0, 0.1, 0.1, 0.5, 0.6]], [[0, 0.4, 0.3, 0.9, 0.8]]])
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
    classify, place = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.HuberLoss()
    values = []
    for _ in range(15):
        with mx.autograd.record():
            out = net(x)
            anchors = mx.nd.contrib.MultiBoxPrior(out, sizes=(0.5, 0.3))
            rows = out.transpose((0, 2, 3, 1)).reshape((2, -1, 6))
            moves, mask, kinds = mx.nd.contrib.MultiBoxTarget(
                anchors, label, rows[:, :, :2].transpose((0, 2, 1))
            )
            offsets = rows[:, :, 2:].reshape((2, -1))
            loss = classify(rows[:, :, :2], kinds) + place(offsets * mask, moves * mask)
        loss.backward()
        trainer.step(2)
        values.append(float(loss.mean().asscalar()))
    assert values[-1] < 0.5 * values[0]
