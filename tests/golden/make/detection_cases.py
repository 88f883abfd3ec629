"""Calls of the operators for object detection, graphs and sketches, with what an original gives.

    OMP_NUM_THREADS=1 MXNET/bin/python tests/golden/make/detection_cases.py tests/golden/1.9.1

writes ``detection_options.json`` and ``.npz`` in the form of the other families (see ../README.md). Every
call runs in a forked child, because some end the process of the original. Inputs are drawn from a seeded
generator; heads of gradients too.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FAMILY = "detection_options"
Case = tuple[str, dict[str, Any], list[np.ndarray], tuple[int, ...]]
random = np.random.RandomState(2017)


def boxes(*shape: int, size: float = 1.0) -> np.ndarray:
    """Corner boxes (*shape, 4) inside of a square of side ``size``."""
    low = random.uniform(0.0, 0.6, (*shape, 2))
    return (np.concatenate([low, low + random.uniform(0.05, 0.4, (*shape, 2))], -1) * size).astype("float32")


def regions(count: int, batch: int, size: float) -> np.ndarray:
    """Rows of image number and corner box."""
    index = random.randint(0, batch, (count, 1)).astype("float32")
    return np.concatenate([index, np.round(boxes(count, size=size), 1)], 1)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    return random.uniform(low, high, shape).astype("float32")


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (random.randn(*shape) * scale).astype("float32")


def prior_cases() -> Iterator[Case]:
    data = normal(1, 3, 4, 5)
    for attrs in (
        {},
        {"sizes": (0.2, 0.4), "ratios": (1, 2, 0.5), "clip": True},
        {"sizes": (0.7,), "ratios": (0.5, 3)},
        {"sizes": (0.4, 0.9), "ratios": (2,), "steps": (0.3, 0.2), "offsets": (0.1, 0.8), "clip": True},
    ):
        yield "_contrib_MultiBoxPrior", attrs, [data], ()
    yield "_contrib_MultiBoxPrior", {"sizes": (0.5, 0.3)}, [data.astype("float64")], ()


def target_cases() -> Iterator[Case]:
    for number, attrs in enumerate(
        (
            {},
            {"overlap_threshold": 0.3, "ignore_label": -2},
            {"negative_mining_ratio": 3, "negative_mining_thresh": 0.5},
            {"negative_mining_ratio": 1, "negative_mining_thresh": 0.2, "minimum_negative_samples": 6},
            {"negative_mining_ratio": 100, "negative_mining_thresh": 0.9, "overlap_threshold": 0.1},
            {"variances": (0.2, 0.1, 0.5, 0.4), "overlap_threshold": 0.7},
            {"overlap_threshold": -1.0},
        )
    ):
        anchors, batch, most = boxes(1, 20), 3, 4
        labels = np.full((batch, most, 5 + number % 2), -1, "float32")
        for image in range(batch):
            count = (2, 0, most)[image]
            labels[image, :count, 0] = random.randint(0, 3, count)
            labels[image, :count, 1:5] = boxes(count)
        if number == 4:  # Equal overlaps: a label twice, and anchors twice.
            labels[0, 1] = labels[0, 0]
            anchors[0, 5] = anchors[0, 4]
        yield "_contrib_MultiBoxTarget", attrs, [anchors, labels, normal(batch, 4, 20)], ()


def detection_cases() -> Iterator[Case]:
    for attrs in (
        {},
        {"threshold": 0.3, "nms_threshold": 0.2, "clip": False},
        {"force_suppress": True, "nms_threshold": 0.3},
        {"background_id": 1, "nms_threshold": 0.4},
        {"background_id": 2},
        {"background_id": -1},
        {"nms_topk": 5, "nms_threshold": 0.3},
        {"nms_topk": 50, "nms_threshold": 0.1, "force_suppress": True},
        {"nms_threshold": -1.0},
        {"nms_threshold": 1.5},
        {"threshold": 0.99},
        {"variances": (0.3, 0.2, 0.1, 0.4), "clip": False},
    ):
        scores = uniform(2, 4, 12) ** 3
        scores /= scores.sum(1, keepdims=True)
        yield (
            "_contrib_MultiBoxDetection",
            attrs,
            [scores.astype("float32"), normal(2, 48, scale=0.7), boxes(1, 12)],
            (),
        )
    scores = np.full((1, 3, 6), 0.5, "float32")
    yield "_contrib_MultiBoxDetection", {}, [scores, np.zeros((1, 24), "float32"), boxes(1, 6)], ()


def suppression_cases() -> Iterator[Case]:
    def rows(*shape: int, columns: int = 6) -> np.ndarray:
        data = uniform(*shape, columns)
        data[..., 0] = random.randint(-1, 3, shape)
        data[..., 2:6] = boxes(*shape)
        return data

    for attrs in (
        {},
        {"overlap_thresh": 0.2, "id_index": 0},
        {"overlap_thresh": 0.2, "id_index": 0, "background_id": 0, "valid_thresh": 0.3},
        {"overlap_thresh": 0.2, "id_index": 0, "background_id": 0, "force_suppress": True},
        {"overlap_thresh": 0.2, "topk": 3},
        {"overlap_thresh": 0.3, "topk": 5, "id_index": 0, "valid_thresh": 0.2},
        {"in_format": "center", "overlap_thresh": 0.2},
        {"in_format": "center", "out_format": "corner", "overlap_thresh": 0.2},
        {"in_format": "corner", "out_format": "center", "overlap_thresh": 0.2},
        {"valid_thresh": 2.0},
        {"topk": 0},
        {"topk": 100, "overlap_thresh": 0.2},
        {"overlap_thresh": 0.0},
        {"overlap_thresh": 1.0},
        {"overlap_thresh": -0.5},
    ):
        yield "_contrib_box_nms", attrs, [rows(2, 9)], (0,)
    yield "_contrib_box_nms", {"overlap_thresh": 0.2}, [rows(2, 2, 5)], (0,)
    moved = np.ascontiguousarray(rows(7)[:, [2, 3, 4, 5, 1, 0]])
    yield (
        "_contrib_box_nms",
        {"overlap_thresh": 0.2, "coord_start": 0, "score_index": 4, "id_index": 5},
        [moved],
        (0,),
    )
    tied = rows(6)
    tied[:, 1] = 0.5
    yield "_contrib_box_nms", {"overlap_thresh": 0.3}, [tied], (0,)
    tied = np.concatenate([tied, tied])
    yield "_contrib_box_nms", {"overlap_thresh": 0.3}, [tied], (0,)
    yield "_contrib_box_nms", {"overlap_thresh": 0.2}, [rows(7).astype("float64")], (0,)
    wide = rows(2, 5, columns=9)
    yield "_contrib_box_nms", {"overlap_thresh": 0.2}, [wide], (0,)


def box_cases() -> Iterator[Case]:
    for attrs in ({}, {"format": "center"}):
        yield "_contrib_box_iou", attrs, [boxes(2, 3), boxes(4)], ()
        yield "_contrib_box_iou", attrs, [boxes(3), boxes(2, 2)], ()
    odd = np.array([[0.5, 0.5, 0.2, 0.9], [0.1, 0.1, 0.1, 0.1], [-1, -1, -1, -1], [0, 0, 1, 1]], "float32")
    yield "_contrib_box_iou", {}, [odd, odd], ()
    yield "_contrib_box_iou", {}, [boxes(3).astype("float64"), boxes(2).astype("float64")], ()
    for attrs in (
        {},
        {"format": "corner"},
        {"std0": 0.1, "std1": 0.2, "std2": 0.3, "std3": 0.4, "clip": 0.5},
        {"clip": 0.0, "format": "corner"},
    ):
        yield "_contrib_box_decode", attrs, [normal(2, 5, 4), boxes(1, 5)], ()
    samples = random.randint(-1, 2, (2, 6)).astype("float32")
    matches = random.randint(0, 3, (2, 6)).astype("float32")
    means, deviations = np.array([0.1, 0, -0.2, 0.3], "float32"), np.array([0.1, 0.1, 0.2, 0.2], "float32")
    yield (
        "_contrib_box_encode",
        {},
        [samples, matches, boxes(2, 6), boxes(2, 3), means, deviations],
        (),
    )
    for attrs in (
        {"threshold": 0.1},
        {"threshold": 1e-12},
        {"threshold": 0.5, "topk": 1},
        {"threshold": 0.2, "topk": 3},
        {"threshold": 0.9, "is_ascend": True},
        {"threshold": 0.5, "is_ascend": True, "topk": 2},
    ):
        yield "_contrib_bipartite_matching", attrs, [uniform(2, 5, 4)], ()
        yield "_contrib_bipartite_matching", attrs, [uniform(3, 6)], ()
    tied = np.array([[0.5, 0.5, 0.2], [0.5, 0.7, 0.7], [0.7, 0.1, 0.5]], "float32")
    for ascending in (False, True):
        yield "_contrib_bipartite_matching", {"threshold": 0.3, "is_ascend": ascending}, [tied], ()
    yield "_contrib_bipartite_matching", {"threshold": 0.4}, [uniform(2, 2, 3, 4)], ()


def pooling_cases() -> Iterator[Case]:
    data = normal(2, 3, 9, 11)
    for attrs in (
        {"pooled_size": (3, 2), "spatial_scale": 1.0},
        {"pooled_size": (2, 3), "spatial_scale": 0.5},
        {"pooled_size": (7, 7), "spatial_scale": 1.0},
    ):
        yield "ROIPooling", attrs, [data, regions(5, 2, 9 / attrs["spatial_scale"])], (0, 1)
    odd = np.array(
        [[0, 2, 2, 2, 2], [1, 5, 5, 3, 3], [0, -3, -3, 4, 4], [1, 6, 6, 20, 20], [0, 30, 30, 40, 40]],
        "float32",
    )
    yield "ROIPooling", {"pooled_size": (2, 2), "spatial_scale": 1.0}, [data, odd], (0, 1)
    tied = np.round(normal(1, 2, 6, 6))
    yield (
        "ROIPooling",
        {"pooled_size": (2, 2), "spatial_scale": 1.0},
        [tied, np.array([[0, 0, 0, 5, 5], [0, 1, 1, 4, 5]], "float32")],
        (0, 1),
    )
    halves = np.array([[0, 0.5, 1.5, 4.5, 5.5], [0, 2.5, 0.5, 7.5, 6.5]], "float32")
    yield "ROIPooling", {"pooled_size": (3, 3), "spatial_scale": 1.0}, [data, halves], (0, 1)
    for attrs in (
        {"pooled_size": (2, 3), "spatial_scale": 1.0},
        {"pooled_size": (2, 3), "spatial_scale": 1.0, "aligned": True},
        {"pooled_size": (3, 3), "spatial_scale": 0.5, "sample_ratio": 3, "aligned": True},
        {"pooled_size": (1, 4), "spatial_scale": 0.25, "sample_ratio": 1},
    ):
        inputs = [data, regions(5, 2, 9 / attrs["spatial_scale"])]
        yield "_contrib_ROIAlign", attrs, inputs, (0, 1)
        yield "_contrib_ROIAlign", attrs, [data, odd], (0, 1)
    unused = np.array([[-1, 0, 0, 4, 4], [1, 1, 1, 6, 5]], "float32")
    yield "_contrib_ROIAlign", {"pooled_size": (2, 2), "spatial_scale": 1.0}, [data, unused], (0, 1)
    yield (
        "_contrib_ROIAlign",
        {"pooled_size": (2, 3), "spatial_scale": 1.0, "position_sensitive": True},
        [normal(2, 12, 7, 8), regions(4, 2, 7)],
        (0, 1),
    )
    turned = np.array(
        [[0, 4, 4, 5, 3, 30], [1, 5, 3, 2, 6, -45], [0, 8, 8, 9, 9, 90], [1, 0, 0, 0.3, 0.2, 10]], "float32"
    )
    for attrs in (
        {"pooled_size": (2, 3), "spatial_scale": 1.0},
        {"pooled_size": (3, 2), "spatial_scale": 0.5, "sampling_ratio": 2},
    ):
        yield "_contrib_RROIAlign", attrs, [data, turned], ()


def position_cases() -> Iterator[Case]:
    data = normal(2, 8, 6, 7)
    yield (
        "_contrib_PSROIPooling",
        {"spatial_scale": 1.0, "output_dim": 2, "pooled_size": 2},
        [data, regions(3, 2, 6)],
        (0,),
    )
    attrs = {"spatial_scale": 1.0, "output_dim": 2, "group_size": 2, "pooled_size": 2}
    moves = normal(3, 2, 2, 2, scale=0.5)
    for more, inputs in (
        ({"no_trans": True, "sample_per_part": 2}, [data, regions(3, 2, 6)]),
        ({"no_trans": True}, [data, regions(3, 2, 6)]),
        ({"trans_std": 0.1, "part_size": 2, "sample_per_part": 2}, [data, regions(3, 2, 6), moves]),
        (
            {"trans_std": 0.2, "pooled_size": 4, "part_size": 2, "sample_per_part": 3, "spatial_scale": 0.5},
            [data, regions(3, 2, 12), moves],
        ),
        (
            {"trans_std": 0.2, "part_size": 2, "sample_per_part": 2},
            [data, regions(3, 2, 6), normal(3, 4, 2, 2, scale=0.5)],
        ),
    ):
        yield (
            "_contrib_DeformablePSROIPooling",
            {**attrs, **more},
            inputs,
            tuple(i for i in range(len(inputs)) if i != 1),
        )


def proposal_cases() -> Iterator[Case]:
    for number, attrs in enumerate(
        (
            {"rpn_pre_nms_top_n": 20, "rpn_post_nms_top_n": 8, "scales": (2, 4), "ratios": (0.5, 1, 2)},
            {"rpn_pre_nms_top_n": 20, "rpn_post_nms_top_n": 6, "scales": (1,), "ratios": (1,),
             "rpn_min_size": 20, "output_score": True},
            {"rpn_pre_nms_top_n": 200, "rpn_post_nms_top_n": 10, "scales": (1, 3), "ratios": (0.5, 2),
             "threshold": 0.3, "feature_stride": 8, "rpn_min_size": 2, "output_score": True},
            {"rpn_pre_nms_top_n": 30, "rpn_post_nms_top_n": 30, "scales": (4,), "ratios": (0.3, 1),
             "threshold": 0.1, "output_score": True, "iou_loss": True},
            {"rpn_pre_nms_top_n": -1, "rpn_post_nms_top_n": 12, "scales": (2,), "ratios": (1.0,)},
        )
    ):  # fmt: skip
        anchors = len(attrs["scales"]) * len(attrs["ratios"])
        info = [[60.0, 80.0, 1.0], [50.0, 70.0, 1.5]]
        scale = 0.3 if number != 3 else 3.0
        for name, batch in (("_contrib_Proposal", 1), ("_contrib_MultiProposal", 2)):
            scores = random.permutation(batch * 2 * anchors * 20).reshape(batch, 2 * anchors, 4, 5)
            yield (
                name,
                attrs,
                [
                    (scores / scores.size).astype("float32"),
                    normal(batch, 4 * anchors, 4, 5, scale=scale),
                    np.array(info[:batch], "float32"),
                ],
                (),
            )


def process_cases() -> Iterator[Case]:
    batch, kinds, steps = 2, 3, 6
    lags = uniform(batch, steps, low=0.1, high=1.5)
    marks = random.randint(0, kinds, (batch, steps)).astype("int32")
    for lengths, most in (([6, 6], [20.0, 20.0]), ([4, 0], [5.5, 3.0])):
        yield (
            "_contrib_hawkesll",
            {},
            [
                uniform(batch, kinds, low=0.5, high=1.5),
                uniform(kinds, low=0.2, high=0.7),
                uniform(kinds, low=0.5, high=2.0),
                uniform(batch, kinds),
                lags,
                marks,
                np.array(lengths, "float32"),
                np.array(most, "float32"),
            ],
            (0, 1, 2, 3),
        )


def all_cases() -> Iterator[Case]:
    for make in (
        prior_cases, target_cases, detection_cases, suppression_cases, box_cases, pooling_cases,
        position_cases, proposal_cases, process_cases,
    ):  # fmt: skip
        yield from make()


def outcome(name: str, attrs: dict[str, str], inputs: list[np.ndarray], asked: tuple[int, ...]) -> Any:
    """Outputs, heads and gradients of a call, or the error."""
    import mxnet as mx
    from mxnet._ctypes.ndarray import _imperative_invoke
    from mxnet.base import _LIB, OpHandle, c_str, check_call

    found = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(found)))
    arrays = [mx.nd.array(value, dtype=value.dtype) for value in inputs]
    for index in asked:
        arrays[index].attach_grad()
    heads, gradients = [], []
    try:
        with mx.autograd.record():
            made = _imperative_invoke(
                found.value, arrays, list(attrs), list(attrs.values()), None, False, True
            )
        results = [value.asnumpy() for value in made]
    except mx.MXNetError as error:
        return {"error": str(error).strip().splitlines()[0]}
    if asked:
        draw = np.random.RandomState(len(results[0]))
        heads = [draw.uniform(-1, 1, value.shape).astype(value.dtype) for value in results]
        try:
            mx.autograd.backward(made, [mx.nd.array(head, dtype=head.dtype) for head in heads])
            gradients = [arrays[i].grad.asnumpy() if i in asked else None for i in range(len(arrays))]
        except mx.MXNetError as error:
            return {"outputs": results, "grad_error": str(error).strip().splitlines()[0]}
    return {"outputs": results, "heads": heads, "gradients": gradients}


def in_child(*call: Any) -> Any:
    """The outcome of a call in a forked child; None when it ends the child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            signal.alarm(60)
            pickle.dump(outcome(*call), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(text) if text else None


def record(number: int, case: Case, arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    """The record of one case, its arrays added to ``arrays``; None where the original refuses or ends."""
    name, attrs, inputs, asked = case
    strings = {key: str(value) for key, value in attrs.items()}
    found = in_child(name, strings, inputs, asked)
    if found is None or "error" in found:
        print(number, name, strings, found, file=sys.stderr)
        return None

    def keep(kind: str, values: list[Any]) -> list[str | None]:
        keys = []
        for index, value in enumerate(values):
            keys.append(None if value is None else f"{number}/{kind}{index}")
            if value is not None:
                arrays[keys[-1]] = value
        return keys

    if "grad_error" in found:
        print(number, name, strings, found["grad_error"], file=sys.stderr)
    return {
        "id": f"{FAMILY}/{name}/{number}", "family": FAMILY, "kind": "value", "op": name,
        "call": {"api": "op", "name": name, "array_type": "nd"}, "attrs": strings, "np_shape": False,
        "train_mode": True, "inputs": keep("in", inputs), "outputs": keep("out", found["outputs"]),
        "head_grads": keep("head", found.get("heads", [])),
        "input_grads": keep("grad", found.get("gradients", [])),
        "mutated_inputs": [], "rtol": 1e-4, "atol": 1e-5,
    }  # fmt: skip


def main(target: str) -> None:
    import mxnet as mx

    del mx  # Imported once, for all children.
    arrays: dict[str, np.ndarray] = {}
    records = [record(number, case, arrays) for number, case in enumerate(all_cases())]
    kept = [json.dumps(item) for item in records if item is not None]
    folder = Path(target)
    (folder / f"{FAMILY}.json").write_text("[\n" + ",\n".join(kept) + "\n]\n")
    np.savez_compressed(folder / f"{FAMILY}.npz", **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
