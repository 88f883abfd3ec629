"""Anchors of single-shot detectors: laying them out, targets for training, and reading predictions.

Liu et al., "SSD: Single Shot MultiBox Detector", 2016. Boxes are corner boxes in units of the image.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.boxes import decode, fractional, keep_greedily, overlaps, to_centers
from regluon.ops.opdef import Floats, Spec, operator

Attrs = dict[str, Any]
# Overlaps up to this are none at all.
_NO_OVERLAP = 1e-6


def _check_prior(shape: tuple[int, ...], attrs: Attrs) -> None:
    if len(shape) != 4:
        raise MXNetError(f"MultiBoxPrior: data expects a feature map (N, C, H, W); received {tuple(shape)}")
    sizes, ratios, steps, offsets = (attrs[key] for key in ("sizes", "ratios", "steps", "offsets"))
    if not sizes or not ratios or min(sizes) <= 0 or min(ratios) <= 0:
        raise MXNetError(
            f"MultiBoxPrior: expected sizes and ratios above 0; received sizes={sizes}, ratios={ratios}"
        )
    if len(steps) != 2 or len(offsets) != 2 or (min(steps) <= 0 and tuple(steps) != (-1, -1)):
        raise MXNetError(
            "MultiBoxPrior: expected a row and a column step above 0 (or (-1, -1)), and two offsets; "
            f"received steps={steps}, offsets={offsets}"
        )


def _prior_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _check_prior(specs[0].shape, attrs)
    each = len(attrs["sizes"]) + len(attrs["ratios"]) - 1
    return [Spec((1, specs[0].shape[2] * specs[0].shape[3] * each, 4), specs[0].dtype)]


@operator(
    "_contrib_MultiBoxPrior",
    amp="float32",
    aliases=("_npx_multibox_prior",),
    npx="multibox_prior",
    gradient="zero",
    infer=_prior_infer,
)
def multibox_prior(
    data: Tensor,
    *,
    sizes: Floats = (1.0,),
    ratios: Floats = (1.0,),
    clip: bool = False,
    steps: Floats = (-1.0, -1.0),
    offsets: Floats = (0.5, 0.5),
) -> Tensor:
    """Anchors around every place of a feature map (N, C, H, W): (1, H * W * (S + R - 1), 4).

    At each place there are all sizes with the first ratio, then the first size with the other ratios of width
    to height. A size is relative to the image's height. Centers are at (row + offset) * step, row first;
    without ``steps`` they divide the image evenly. ``clip`` cuts the boxes at the image's border.
    """
    _check_prior(data.shape, {"sizes": sizes, "ratios": ratios, "steps": steps, "offsets": offsets})
    height, width = data.shape[2:]
    down, right = steps if min(steps) > 0 else (1.0 / height, 1.0 / width)
    kinds = [(size, ratios[0]) for size in sizes] + [(sizes[0], ratio) for ratio in ratios[1:]]
    halves = [
        (size * height / width * math.sqrt(ratio) / 2, size / math.sqrt(ratio) / 2) for size, ratio in kinds
    ]
    half = torch.tensor(halves, dtype=torch.float64, device=data.device)
    rows = (torch.arange(height, dtype=torch.float64, device=data.device) + offsets[0]) * down
    columns = (torch.arange(width, dtype=torch.float64, device=data.device) + offsets[1]) * right
    grid = torch.stack([columns.expand(height, width), rows.unsqueeze(1).expand(height, width)], -1)
    center = grid.reshape(-1, 1, 2)
    made = torch.cat([center - half, center + half], -1).reshape(1, -1, 4)
    return (made.clamp(0, 1) if clip else made).to(data.dtype)


def _check_target(anchor: Any, label: Any, prediction: Any, variances: Any) -> None:
    fits = len(anchor) == len(label) == len(prediction) == 3 and anchor[0] == 1 and anchor[2] == 4
    if not fits or label[2] < 5 or prediction[0] != label[0] or prediction[2] != anchor[1]:
        raise MXNetError(
            "MultiBoxTarget: expected anchor (1, N, 4), label (B, L, 5 or more) and cls_pred "
            f"(B, classes, N); received {tuple(anchor)}, {tuple(label)} and {tuple(prediction)}"
        )
    if len(variances) != 4:
        raise MXNetError(f"MultiBoxTarget: variances expects 4 numbers; received {variances}")


def _target_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    anchor, label, prediction = (spec.shape for spec in specs)
    _check_target(anchor, label, prediction, attrs["variances"])
    wide = Spec((label[0], anchor[1] * 4), specs[0].dtype)
    return [wide, wide, Spec((label[0], anchor[1]), specs[0].dtype)]


@operator(
    "_contrib_MultiBoxTarget",
    aliases=("_npx_multibox_target",),
    npx="multibox_target",
    outputs=3,
    output_names=("loc_target", "loc_mask", "cls_target"),
    gradient="zero",
    amp="float32",
    infer=_target_infer,
)
def multibox_target(
    anchor: Tensor,
    label: Tensor,
    cls_pred: Tensor,
    *,
    overlap_threshold: float = 0.5,
    ignore_label: float = -1.0,
    negative_mining_ratio: float = -1.0,
    negative_mining_thresh: float = 0.5,
    minimum_negative_samples: int = 0,
    variances: Floats = (0.1, 0.1, 0.2, 0.2),
) -> tuple[Tensor, Tensor, Tensor]:
    """What a detector should predict for every anchor.

    ``label`` (B, L, 5 or more) holds rows of class and corner box; the first row of class -1 ends an image's.
    Each box takes the free anchor that overlaps it most, the best pair first; then each anchor that overlaps
    a box by more than ``overlap_threshold`` takes the one that it overlaps most. All others are background
    (class 0), or with a positive ``negative_mining_ratio`` that many times the number of anchors taken, at
    least ``minimum_negative_samples``: those with overlaps below ``negative_mining_thresh`` for which
    ``cls_pred`` (B, classes, N) says background least; the rest get ``ignore_label``.

    Returns offsets (B, 4 N), over ``variances``, their mask (B, 4 N) and classes (B, N), counted from 1. An
    image without boxes has ``ignore_label`` everywhere.
    """
    _check_target(anchor.shape, label.shape, cls_pred.shape, variances)
    dtype = anchor.dtype
    anchor, label = anchor.to(fractional(dtype)), label.to(fractional(dtype))
    anchors, count = anchor.reshape(-1, 4), anchor.shape[1]
    present = (label[..., 0] != -1).to(torch.int64).cumprod(1).bool()
    shared = overlaps(anchors.expand(len(label), -1, -1), label[..., 1:5])
    shared = torch.where(present.unsqueeze(1), shared, -1.0)
    best, match = _first_best(shared)
    taken = _match_best_pairs(shared, match)
    positive = taken | (best > overlap_threshold) if overlap_threshold > 0 else taken
    positive &= present.any(1, keepdim=True)
    if negative_mining_ratio > 0:
        number = positive.sum(1)
        wanted = (number * negative_mining_ratio).to(torch.int64)
        wanted = torch.minimum(wanted.clamp(min=minimum_negative_samples), count - number)
        candidates = ~positive & (best < negative_mining_thresh)
        background = torch.softmax(cls_pred.to(torch.float32), 1)[:, 0]
        order = torch.where(candidates, background, math.inf).sort(dim=1, stable=True).indices
        rank = torch.empty_like(order).scatter_(
            1, order, torch.arange(count, device=order.device).expand_as(order)
        )
        negative = candidates & (rank < wanted.unsqueeze(1))
    else:
        negative = ~positive
    negative &= present.any(1, keepdim=True)
    chosen = label.gather(1, match.unsqueeze(-1).expand(-1, -1, label.shape[2]))
    classes = torch.where(positive, chosen[..., 0] + 1, torch.where(negative, 0.0, ignore_label))
    place, target = to_centers(anchors), to_centers(chosen[..., 1:5])
    moves = (target[..., :2] - place[:, :2]) / place[:, 2:]
    offsets = torch.cat([moves, torch.log(target[..., 2:] / place[:, 2:])], -1)
    offsets = offsets / torch.tensor(variances, dtype=offsets.dtype, device=offsets.device)
    mask = positive.unsqueeze(-1).expand_as(offsets)
    return (
        torch.where(mask, offsets, 0).reshape(len(label), -1).to(dtype),
        mask.reshape(len(label), -1).to(dtype),
        classes.to(dtype),
    )


def _first_best(values: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value of the last axis and the first place that has it."""
    best = values.amax(-1)
    return best, (values == best.unsqueeze(-1)).to(torch.int8).argmax(-1)


def _match_best_pairs(shared: Tensor, match: Tensor) -> Tensor:
    """Give each box its anchor, written into ``match`` (B, N), by overlaps (B, N, L); which anchors are
    taken."""
    batch, count, most = shared.shape
    free = shared.clone()
    taken = torch.zeros(batch, count, dtype=torch.bool, device=shared.device)
    images = torch.arange(batch, device=shared.device)
    for _ in range(min(count, most)):
        best, place = _first_best(free.flatten(1))
        found = best > _NO_OVERLAP
        if not bool(found.any()):
            break
        image, place = images[found], place[found]
        row, column = torch.div(place, most, rounding_mode="floor"), place % most
        taken[image, row] = True
        match[image, row] = column
        free[image, row] = -1.0
        free[image, :, column] = -1.0
    return taken


def _check_detection(prediction: Any, offsets: Any, anchor: Any, variances: Any) -> None:
    fits = len(prediction) == len(anchor) == 3 and len(offsets) == 2
    if not fits or tuple(anchor) != (1, prediction[2], 4) or offsets[1] != 4 * anchor[1]:
        raise MXNetError(
            "MultiBoxDetection: expected cls_prob (B, classes, N), loc_pred (B, 4 N) and anchor (1, N, 4); "
            f"received {tuple(prediction)}, {tuple(offsets)} and {tuple(anchor)}"
        )
    if len(variances) != 4:
        raise MXNetError(f"MultiBoxDetection: variances expects 4 numbers; received {variances}")


def _detection_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    prediction, offsets, anchor = (spec.shape for spec in specs)
    _check_detection(prediction, offsets, anchor, attrs["variances"])
    return [Spec((prediction[0], prediction[2], 6), fractional(specs[0].dtype))]


@operator(
    "_contrib_MultiBoxDetection",
    aliases=("_npx_multibox_detection",),
    npx="multibox_detection",
    output_names=("output",),
    gradient="zero",
    amp="float32",
    infer=_detection_infer,
)
def multibox_detection(
    cls_prob: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    *,
    clip: bool = True,
    threshold: float = 0.01,
    background_id: int = 0,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Floats = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> Tensor:
    """Detections (B, N, 6) of class, score and corner box, the best first.

    ``cls_prob`` (B, classes, N) are probabilities, class 0 the background; ``loc_pred`` (B, 4 N) offsets from
    ``anchor`` (1, N, 4) over ``variances``. An anchor whose best class reaches ``threshold`` is a detection;
    ``clip`` cuts its box at the image's border. A detection takes away the class of later ones that overlap
    it by more than ``nms_threshold`` and are of its class (of any with ``force_suppress``); only the
    ``nms_topk`` best keep theirs when that is positive. An ``nms_threshold`` outside of (0, 1] leaves all.
    Classes count without the background; -1 marks rows that are no detections. The originals do not read
    ``background_id``.
    """
    del background_id
    _check_detection(cls_prob.shape, loc_pred.shape, anchor.shape, variances)
    batch, _, count = cls_prob.shape
    dtype = fractional(cls_prob.dtype)
    cls_prob, loc_pred, anchor = (value.to(dtype) for value in (cls_prob, loc_pred, anchor))
    if cls_prob.shape[1] < 2 or count == 0:
        return torch.full((batch, count, 6), -1.0, dtype=dtype, device=cls_prob.device)
    scores, classes = _first_best(cls_prob[:, 1:].transpose(1, 2))
    valid = scores >= threshold
    boxes = decode(loc_pred.reshape(batch, count, 4), to_centers(anchor), variances, -1.0)
    boxes = boxes.clamp(0, 1) if clip else boxes
    rows = torch.cat([torch.stack([classes.to(dtype), scores], -1), boxes], -1)
    # The valid ones first, in the order of the anchors.
    rows, valid = _reordered(rows, valid, (~valid).to(torch.int8).sort(dim=1, stable=True).indices)
    rows = torch.where(valid.unsqueeze(-1), rows, -1.0)
    if not 0 < nms_threshold <= 1:
        return rows
    order = torch.where(valid, rows[..., 1], -math.inf).sort(dim=1, descending=True, stable=True).indices
    ordered, valid = _reordered(rows, valid, order)
    if 0 <= nms_topk < count:
        # What lies behind stays in the order of the anchors, without classes, as the originals have it.
        ordered = torch.cat([ordered[:, :nms_topk], rows[:, nms_topk:]], 1)
        valid[:, nms_topk:] = False
    left = keep_greedily(ordered[..., 2:6], valid, nms_threshold, None if force_suppress else ordered[..., 0])
    return torch.cat([torch.where(left, ordered[..., 0], -1.0).unsqueeze(-1), ordered[..., 1:]], -1)


def _reordered(rows: Tensor, valid: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    return rows.gather(1, order.unsqueeze(-1).expand_as(rows)), valid.gather(1, order)
