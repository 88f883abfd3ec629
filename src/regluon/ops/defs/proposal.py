"""Region proposals: boxes that may hold objects, from the two maps of a region proposal network.

Ren et al., "Faster R-CNN", 2015. Corners are pixels that belong to their box, so a box from 3 to 5 is 3 wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.boxes import keep_greedily
from regluon.ops.opdef import Floats, Spec, operator

Attrs = dict[str, Any]
# The score of a place that is no proposal.
_NONE = -1.0


def _check(prediction: Any, offsets: Any, info: Any, attrs: Attrs, name: str) -> None:
    kinds = len(attrs["scales"]) * len(attrs["ratios"])
    fits = len(prediction) == len(offsets) == 4 and kinds > 0
    fits = fits and prediction[1] == 2 * kinds and tuple(offsets[1:]) == (4 * kinds, *prediction[2:])
    if not fits or offsets[0] != prediction[0] or tuple(info) != (prediction[0], 3):
        raise MXNetError(
            f"{name}: expected cls_prob (B, 2 A, H, W), bbox_pred (B, 4 A, H, W) and im_info (B, 3) with "
            f"A={kinds} for {len(attrs['scales'])} scales and {len(attrs['ratios'])} ratios; received "
            f"{tuple(prediction)}, {tuple(offsets)} and {tuple(info)}"
        )
    if name == "Proposal" and prediction[0] != 1:
        raise MXNetError(f"Proposal: takes one image, received {prediction[0]}; MultiProposal takes a batch")
    if attrs["rpn_post_nms_top_n"] < 1 or attrs["feature_stride"] < 1:
        raise MXNetError(
            f"{name}: rpn_post_nms_top_n and feature_stride must be positive; received "
            f"{attrs['rpn_post_nms_top_n']} and {attrs['feature_stride']}"
        )


def _infer(name: str) -> Callable[[list[Spec], Attrs], list[Spec]]:
    def infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
        prediction, offsets, info = (spec.shape for spec in specs)
        _check(prediction, offsets, info, attrs, name)
        count = prediction[0] * attrs["rpn_post_nms_top_n"]
        return [Spec((count, 5), specs[0].dtype), Spec((count, 1), specs[0].dtype)]

    return infer


def base_anchors(stride: int, ratios: Floats, scales: Floats) -> list[list[float]]:
    """The corner boxes around the first place of a map: for each ratio of height to width, every scale."""
    center = (stride - 1) / 2
    found = []
    for ratio in ratios:
        width = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5)
        height = math.floor(width * ratio + 0.5)
        for scale in scales:
            half_width, half_height = (width * scale - 1) / 2, (height * scale - 1) / 2
            found.append(
                [center - half_width, center - half_height, center + half_width, center + half_height]
            )
    return found


def _all_anchors(height: int, width: int, attrs: Attrs, like: Tensor) -> Tensor:
    """Anchors (H * W * A, 4) of all places."""
    kinds = torch.tensor(
        base_anchors(attrs["feature_stride"], attrs["ratios"], attrs["scales"]),
        dtype=like.dtype,
        device=like.device,
    )
    down = torch.arange(height, dtype=like.dtype, device=like.device) * attrs["feature_stride"]
    right = torch.arange(width, dtype=like.dtype, device=like.device) * attrs["feature_stride"]
    x, y = right.expand(height, width), down.unsqueeze(1).expand(height, width)
    return (torch.stack([x, y, x, y], -1).reshape(-1, 1, 4) + kinds).reshape(-1, 4)


def _moved(anchors: Tensor, offsets: Tensor, by_corner: bool) -> Tensor:
    """Anchors with their predicted offsets: of the corners, or of center and logarithm of the sizes."""
    if by_corner:
        return anchors + offsets
    size = anchors[:, 2:] - anchors[:, :2] + 1
    center = anchors[:, :2] + (size - 1) / 2 + offsets[..., :2] * size
    half = (torch.exp(offsets[..., 2:]) * size - 1) / 2
    return torch.cat([center - half, center + half], -1)


def _proposals(prediction: Tensor, offsets: Tensor, info: Tensor, attrs: Attrs) -> tuple[Tensor, Tensor]:
    batch, _, height, width = prediction.shape
    kinds = prediction.shape[1] // 2
    real = torch.promote_types(prediction.dtype, torch.float32)
    scores = prediction[:, kinds:].permute(0, 2, 3, 1).reshape(batch, -1).to(real)
    moves = offsets.to(real).reshape(batch, kinds, 4, height, width).permute(0, 3, 4, 1, 2)
    boxes = _moved(_all_anchors(height, width, attrs, scores), moves.reshape(batch, -1, 4), attrs["iou_loss"])
    info = info.to(real)
    limit = torch.stack([info[:, 1], info[:, 0]] * 2, -1).unsqueeze(1) - 1
    boxes = torch.minimum(boxes.clamp(min=0), limit.clamp(min=0))
    # Places of the map beyond the image, which a batch of images of several sizes has.
    used = torch.trunc(info[:, :2] / attrs["feature_stride"])
    inside = torch.arange(height, device=info.device).reshape(1, -1, 1) < used[:, 0].reshape(-1, 1, 1)
    inside = inside & (torch.arange(width, device=info.device) < used[:, 1].reshape(-1, 1, 1))
    inside = inside.unsqueeze(-1).expand(-1, -1, -1, kinds).reshape(batch, -1)
    scores = torch.where(inside, scores, _NONE)
    least = (attrs["rpn_min_size"] * info[:, 2]).reshape(-1, 1, 1)
    small = ((boxes[..., 2:] - boxes[..., :2] + 1) < least).any(-1)
    grown = boxes + torch.cat([-least / 2, -least / 2, least / 2, least / 2], -1)
    return torch.where(small.unsqueeze(-1), grown, boxes), torch.where(small, _NONE, scores)


def _best(
    prediction: Tensor, offsets: Tensor, info: Tensor, attrs: Attrs, name: str
) -> tuple[Tensor, Tensor]:
    _check(prediction.shape, offsets.shape, info.shape, attrs, name)
    boxes, scores = _proposals(prediction, offsets, info, attrs)
    batch, total = scores.shape
    first = attrs["rpn_pre_nms_top_n"] if attrs["rpn_pre_nms_top_n"] > 0 else total
    first, last = min(first, total), attrs["rpn_post_nms_top_n"]
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :first]
    scores = scores.gather(1, order)
    boxes = boxes.gather(1, order.unsqueeze(-1).expand(-1, -1, 4))
    left = keep_greedily(
        boxes, torch.ones_like(scores, dtype=torch.bool), attrs["threshold"], edge=1.0, enough=last
    )
    # Fewer than are wanted are repeated from the begin.
    place = (~left).to(torch.int8).sort(dim=1, stable=True).indices
    number = left.sum(1, keepdim=True).clamp(max=last)
    turn = torch.arange(last, device=scores.device) % number.clamp(min=1)
    chosen = place.gather(1, turn)
    rows = boxes.gather(1, chosen.unsqueeze(-1).expand(-1, -1, 4))
    image = torch.arange(batch, dtype=rows.dtype, device=rows.device).reshape(-1, 1, 1).expand(-1, last, 1)
    result = torch.cat([image, rows], -1).reshape(-1, 5)
    return result.to(prediction.dtype), scores.gather(1, chosen).reshape(-1, 1).to(prediction.dtype)


def _define(name: str) -> None:
    """The operator for one image, or for a batch of them."""

    @operator(
        f"_contrib_{name}",
        amp="widest",
        outputs=2,
        visible=lambda attrs: 2 if attrs["output_score"] else 1,
        output_names=("output", "score"),
        gradient="zero",
        infer=_infer(name),
    )
    def propose(
        cls_prob: Tensor,
        bbox_pred: Tensor,
        im_info: Tensor,
        *,
        rpn_pre_nms_top_n: int = 6000,
        rpn_post_nms_top_n: int = 300,
        threshold: float = 0.7,
        rpn_min_size: int = 16,
        scales: Floats = (4.0, 8.0, 16.0, 32.0),
        ratios: Floats = (0.5, 1.0, 2.0),
        feature_stride: int = 16,
        output_score: bool = False,
        iou_loss: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Regions that may hold objects: rows (B * rpn_post_nms_top_n, 5) of image number and corner box.

        ``cls_prob`` (B, 2 A, H, W) holds for A = ratios x scales anchors at every place first the
        probabilities of background, then of an object; ``bbox_pred`` (B, 4 A, H, W) the offsets from the
        anchors (of the corners with ``iou_loss``); ``im_info`` (B, 3) height, width and scale of each image.
        Boxes are cut at the image's border; those below ``rpn_min_size`` times the scale come last. The
        ``rpn_pre_nms_top_n`` best go through suppression of overlaps over ``threshold``; fewer than
        ``rpn_post_nms_top_n`` left are repeated. With ``output_score`` the scores (..., 1) are a second
        output.
        """
        attrs = {
            "rpn_pre_nms_top_n": rpn_pre_nms_top_n,
            "rpn_post_nms_top_n": rpn_post_nms_top_n,
            "threshold": threshold,
            "rpn_min_size": rpn_min_size,
            "scales": scales,
            "ratios": ratios,
            "feature_stride": feature_stride,
            "iou_loss": iou_loss,
        }
        return _best(cls_prob, bbox_pred, im_info, attrs, name)


_define("Proposal")
_define("MultiProposal")
