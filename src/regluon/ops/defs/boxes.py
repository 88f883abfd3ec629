"""Boxes: overlap, suppression, coding against anchors, and greedy matching.

A corner box is (left, top, right, bottom), a center box (x, y, width, height).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import Spec, operator

Attrs = dict[str, Any]
Format = Literal["center", "corner"]

# Boxes that are compared with all earlier ones at a time: bounds the memory for thousands of boxes.
_ROWS = 512


def fractional(dtype: torch.dtype) -> torch.dtype:
    """The type of results that are fractions: the same, or float32 for whole numbers."""
    return dtype if dtype.is_floating_point else torch.float32


def to_corners(boxes: Tensor) -> Tensor:
    """Center boxes (..., 4) as corner boxes."""
    half = boxes[..., 2:4] / 2
    return torch.cat([boxes[..., 0:2] - half, boxes[..., 0:2] + half], -1)


def to_centers(boxes: Tensor) -> Tensor:
    """Corner boxes (..., 4) as center boxes."""
    low, high = boxes[..., 0:2], boxes[..., 2:4]
    return torch.cat([(low + high) / 2, high - low], -1)


def overlaps(first: Tensor, second: Tensor, edge: float = 0.0) -> Tensor:
    """Intersection over union of corner boxes (..., M, 4) and (..., N, 4): (..., M, N).

    ``edge`` is added to every width and height: 1 where corners are pixels that belong to the box. Boxes
    whose corners are swapped have no area; the overlap of nothing with nothing is 0.
    """
    one, two = first.unsqueeze(-2).unbind(-1), second.unsqueeze(-3).unbind(-1)
    sides = []
    for low, high in ((0, 2), (1, 3)):
        begin, end = torch.maximum(one[low], two[low]), torch.minimum(one[high], two[high])
        sides.append((end - begin + edge).clamp_(min=0))
    inner = sides[0] * sides[1]

    def area(box: tuple[Tensor, ...]) -> Tensor:
        return (box[2] - box[0] + edge).clamp(min=0) * (box[3] - box[1] + edge).clamp(min=0)

    union = area(one) + area(two) - inner
    # Where there is no union there is no intersection either.
    return inner / torch.where(union > 0, union, 1)


def keep_greedily(
    boxes: Tensor,
    valid: Tensor,
    threshold: float,
    classes: Tensor | None = None,
    edge: float = 0.0,
    enough: int | None = None,
) -> Tensor:
    """Which of the boxes (B, N, 4), best first, are left: (B, N) bool; at least the first ``enough`` of them.

    From the best to the worst, a box that is left removes all later ones that overlap it by more than
    ``threshold`` (and have its class).
    """
    left = torch.zeros_like(valid)
    for image in range(len(boxes)):
        places = valid[image].nonzero().squeeze(1)
        kinds = None if classes is None else classes[image, places]
        left[image, _left_of(boxes[image, places], threshold, kinds, edge, enough, places)] = True
    return left


def _left_of(
    boxes: Tensor, threshold: float, classes: Tensor | None, edge: float, enough: int | None, places: Tensor
) -> Tensor:
    """Those of ``places`` whose boxes (N, 4) are left, block by block.

    Within a block not one by one: a box is left when no earlier box that is left removes it, and repeating
    that statement until nothing changes gives its only solution.
    """
    left = places[:0]
    kept, kept_classes = boxes[:0], None if classes is None else classes[:0]
    for start in range(0, len(boxes), _ROWS):
        part, kinds = (
            boxes[start : start + _ROWS],
            None if classes is None else classes[start : start + _ROWS],
        )
        free = ~_removes(kept, part, kept_classes, kinds, threshold, edge).any(0)
        part, number = part[free], places[start : start + _ROWS][free]
        kinds = None if kinds is None else kinds[free]
        inner = _removes(part, part, kinds, kinds, threshold, edge).triu_(1)
        current = torch.ones_like(number, dtype=torch.bool)
        while True:
            updated = ~(inner & current.unsqueeze(1)).any(0)
            if torch.equal(updated, current):
                break
            current = updated
        left = torch.cat([left, number[current]])
        if enough is not None and len(left) >= enough:
            break
        kept = torch.cat([kept, part[current]])
        if kinds is not None and kept_classes is not None:
            kept_classes = torch.cat([kept_classes, kinds[current]])
    return left


def _removes(
    first: Tensor, second: Tensor, kinds: Tensor | None, others: Tensor | None, threshold: float, edge: float
) -> Tensor:
    """Which boxes of ``first`` (M, 4) overlap which of ``second`` (N, 4) enough to remove them: (M, N)."""
    removes = overlaps(first, second, edge) > threshold
    if kinds is not None and others is not None:
        removes &= kinds.unsqueeze(1) == others
    return removes


def check_boxes(shape: tuple[int, ...], what: str, name: str) -> None:
    """Refuse what is not (..., 4)."""
    if len(shape) < 1 or shape[-1] != 4:
        raise MXNetError(f"{name}: {what} expects boxes (..., 4); received {tuple(shape)}")


def _iou_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    for spec, what in zip(specs, ("lhs", "rhs"), strict=True):
        check_boxes(spec.shape, what, "box_iou")
    return [Spec((*specs[0].shape[:-1], *specs[1].shape[:-1]), fractional(specs[0].dtype))]


@operator(
    "_contrib_box_iou",
    amp="widest",
    aliases=("_npx_box_iou",),
    npx="box_iou",
    gradient="zero",
    infer=_iou_infer,
)
def box_iou(lhs: Tensor, rhs: Tensor, *, format: Format = "corner") -> Tensor:
    """Intersection over union of every box of ``lhs`` (*a, 4) with every box of ``rhs`` (*b, 4): (*a, *b)."""
    check_boxes(lhs.shape, "lhs", "box_iou")
    check_boxes(rhs.shape, "rhs", "box_iou")
    dtype = fractional(lhs.dtype)
    one, two = lhs.reshape(-1, 4).to(dtype), rhs.reshape(-1, 4).to(dtype)
    if format == "center":
        one, two = to_corners(one), to_corners(two)
    return overlaps(one, two).reshape(*lhs.shape[:-1], *rhs.shape[:-1])


def _check_columns(shape: tuple[int, ...], attrs: Attrs) -> None:
    most = max(attrs["coord_start"] + 4, attrs["score_index"] + 1, attrs["id_index"] + 1)
    if len(shape) < 2 or attrs["coord_start"] < 0 or attrs["score_index"] < 0 or shape[-1] < most:
        raise MXNetError(
            f"box_nms: expected rows (..., N, width) with a width of at least {most} for coord_start="
            f"{attrs['coord_start']}, score_index={attrs['score_index']}, id_index={attrs['id_index']}, none "
            f"of the first two negative; received {tuple(shape)}"
        )


def _nms_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _check_columns(specs[0].shape, attrs)
    return [specs[0]]


@operator(
    "_contrib_box_nms",
    amp="widest",
    aliases=("_contrib_box_non_maximum_suppression", "_npx_box_nms"),
    npx="box_nms",
    infer=_nms_infer,
)
def box_nms(
    data: Tensor,
    *,
    overlap_thresh: float = 0.5,
    valid_thresh: float = 0.0,
    topk: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = -1,
    background_id: int = -1,
    force_suppress: bool = False,
    in_format: Format = "corner",
    out_format: Format = "corner",
) -> Tensor:
    """Non-maximum suppression over rows (..., N, width) of a score, a box and perhaps a class.

    Rows with a score over ``valid_thresh`` and another class than ``background_id`` are sorted, the best
    first; at most ``topk`` of them count when it is positive, and 0 returns the data as they are. A row
    removes the later ones of its class, or of all classes with ``force_suppress`` or without ``id_index``,
    that overlap it by more than ``overlap_thresh``. The rows left come first in the result, all others are
    -1.
    """
    attrs = {"coord_start": coord_start, "score_index": score_index, "id_index": id_index}
    _check_columns(data.shape, attrs)
    if topk == 0:
        return data.clone()
    rows = data.reshape(math.prod(data.shape[:-2]), *data.shape[-2:])
    fixed = rows.detach()
    scores = fixed[..., score_index]
    valid = scores > valid_thresh
    if id_index >= 0:
        valid = valid & (fixed[..., id_index] != background_id)
    order = torch.where(valid, scores, -math.inf).sort(dim=-1, descending=True, stable=True).indices
    valid = valid.gather(1, order)
    if topk > 0:
        valid[:, topk:] = False
    ordered = fixed.gather(1, order.unsqueeze(-1).expand_as(fixed))
    boxes = ordered[..., coord_start : coord_start + 4]
    boxes = boxes if in_format == "corner" else to_corners(boxes)
    classes = ordered[..., id_index] if id_index >= 0 and not force_suppress else None
    left = keep_greedily(boxes, valid, overlap_thresh, classes)
    # Those left first, in their order.
    place = (~left).to(torch.int8).sort(dim=-1, stable=True).indices
    chosen = rows.gather(1, order.gather(1, place).unsqueeze(-1).expand_as(rows))
    if in_format != out_format:
        chosen = _Reformat.apply(chosen, coord_start, out_format)  # type: ignore[no-untyped-call]
    result = torch.where(left.gather(1, place).unsqueeze(-1), chosen, -1)
    return result.reshape(data.shape)


class _Reformat(torch.autograd.Function):
    """Boxes inside of rows in another format; the gradient passes as it is, as the originals pass it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, start: int, target: str) -> Tensor:
        boxes = rows[..., start : start + 4]
        made = to_corners(boxes) if target == "corner" else to_centers(boxes)
        return torch.cat([rows[..., :start], made, rows[..., start + 4 :]], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0], None, None


def _encode_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _check_encode([spec.shape for spec in specs])
    return [Spec(specs[2].shape, fractional(specs[2].dtype))] * 2


def _check_encode(shapes: list[Any]) -> None:
    samples, matches, anchors, refs = (tuple(shape) for shape in shapes[:4])
    expected = len(samples) == 2 and matches == samples and len(anchors) == len(refs) == 3
    if not expected or anchors[1:] != (samples[1], 4) or refs[0] != samples[0] or refs[2] != 4:
        raise MXNetError(
            "box_encode: expected samples and matches (B, N), anchors (B or 1, N, 4) and refs (B, M, 4); "
            f"received {samples}, {matches}, {anchors} and {refs}"
        )


@operator(
    "_contrib_box_encode",
    amp="widest",
    aliases=("_npx_box_encode",),
    npx="box_encode",
    outputs=2,
    gradient="zero",
    infer=_encode_infer,
)
def box_encode(
    samples: Tensor, matches: Tensor, anchors: Tensor, refs: Tensor, means: Tensor, stds: Tensor
) -> tuple[Tensor, Tensor]:
    """Offsets of matched boxes from their anchors, for training, and the mask of those in use.

    ``samples`` (B, N) is 1 for an anchor in use, ``matches`` (B, N) the number of its box among the corner
    boxes ``refs`` (B, M, 4); ``anchors`` (B, N, 4) are corner boxes. The center's move over the anchor's
    size and the logarithm of the ratio of sizes, minus ``means`` (4,) and over ``stds`` (4,); Ren et al.,
    "Faster R-CNN", 2015. Offsets and masks are (B, N, 4).
    """
    _check_encode([samples.shape, matches.shape, anchors.shape, refs.shape])
    index = matches.to(torch.int64).clamp(0, refs.shape[1] - 1).unsqueeze(-1).expand(-1, -1, 4)
    dtype = fractional(anchors.dtype)
    target, anchor = to_centers(refs.gather(1, index).to(dtype)), to_centers(anchors.to(dtype))
    moves = (target[..., :2] - anchor[..., :2]) / anchor[..., 2:]
    offsets = torch.cat([moves, torch.log(target[..., 2:] / anchor[..., 2:])], -1)
    offsets = (offsets - means.to(dtype)) / stds.to(dtype)
    used = (samples > 0.5).unsqueeze(-1).expand_as(offsets)
    return torch.where(used, offsets, 0), used.to(dtype)


def decode(offsets: Tensor, anchors: Tensor, deviations: tuple[float, ...], clip: float) -> Tensor:
    """Corner boxes of offsets (..., 4) from center boxes; sizes grow by at most exp(clip) where it is
    positive."""
    scale = torch.tensor(deviations, dtype=offsets.dtype, device=offsets.device)
    scaled = offsets * scale
    center = scaled[..., :2] * anchors[..., 2:] + anchors[..., :2]
    grow = scaled[..., 2:]
    if clip > 0:
        grow = grow.clamp(max=clip)
    half = torch.exp(grow) * anchors[..., 2:] / 2
    return torch.cat([center - half, center + half], -1)


def _decode_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _check_decode(specs[0].shape, specs[1].shape)
    return [Spec(specs[0].shape, fractional(specs[0].dtype))]


def _check_decode(data: Any, anchors: Any) -> None:
    same = len(data) == len(anchors) == 3 and data[1] == anchors[1] and anchors[0] in (1, data[0])
    if not same or data[2] != 4 or anchors[2] != 4:
        raise MXNetError(
            "box_decode: expected data (B, N, 4) and anchors (1, N, 4); received "
            f"{tuple(data)} and {tuple(anchors)}"
        )


@operator(
    "_contrib_box_decode",
    amp="widest",
    aliases=("_npx_box_decode",),
    npx="box_decode",
    gradient="zero",
    infer=_decode_infer,
)
def box_decode(
    data: Tensor,
    anchors: Tensor,
    *,
    std0: float = 1.0,
    std1: float = 1.0,
    std2: float = 1.0,
    std3: float = 1.0,
    clip: float = -1.0,
    format: Format = "center",
) -> Tensor:
    """Corner boxes (B, N, 4) of the predicted offsets ``data`` from ``anchors`` (1, N, 4) of this ``format``.

    Offsets are multiplied by the four deviations first; a positive ``clip`` bounds the logarithm by which
    widths and heights grow.
    """
    _check_decode(data.shape, anchors.shape)
    dtype = fractional(data.dtype)
    centers = anchors.to(dtype) if format == "center" else to_centers(anchors.to(dtype))
    return decode(data.to(dtype), centers, (std0, std1, std2, std3), clip)


def _matching_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _check_matching(specs[0].shape)
    shape = specs[0].shape
    return [Spec(shape[:-1], specs[0].dtype), Spec((*shape[:-2], shape[-1]), specs[0].dtype)]


def _check_matching(shape: Any) -> None:
    if len(shape) < 2:
        raise MXNetError(f"bipartite_matching: expected scores (..., rows, columns); received {tuple(shape)}")


@operator(
    "_contrib_bipartite_matching",
    aliases=("_npx_bipartite_matching",),
    npx="bipartite_matching",
    outputs=2,
    gradient="zero",
    infer=_matching_infer,
)
def bipartite_matching(
    data: Tensor, *, is_ascend: bool = False, threshold: float, topk: int = -1
) -> tuple[Tensor, Tensor]:
    """Match rows and columns of scores (..., N, M) greedily, the best score first, each at most once.

    Scores count that are over ``threshold`` (below it with ``is_ascend``, where small is good). A positive
    ``topk`` ends the search at the first pair beyond that many, which still counts, as in the originals.

    Returns the column of every row (..., N) and the row of every column (..., M), -1 where there is none.
    """
    _check_matching(data.shape)
    rows, columns = data.shape[-2:]
    scores = data.reshape(math.prod(data.shape[:-2]), rows * columns)
    order = scores.sort(dim=-1, descending=not is_ascend, stable=True).indices
    good = (scores < threshold) if is_ascend else (scores > threshold)
    batch = torch.arange(len(scores), device=data.device)
    free = good.clone().reshape(-1, rows, columns)
    of_row = torch.full((len(scores), rows), -1, dtype=data.dtype, device=data.device)
    of_column = torch.full((len(scores), columns), -1, dtype=data.dtype, device=data.device)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(rows * columns, device=data.device).expand_as(order)
    )
    pairs = min(rows, columns) if topk <= 0 else min(rows, columns, topk + 1)
    for _ in range(pairs if len(scores) else 0):
        flat = torch.where(free.flatten(1), rank, rows * columns)
        best, place = flat.min(1)
        found = best < rows * columns
        if not bool(found.any()):
            break
        row, column = torch.div(place, columns, rounding_mode="floor")[found], (place % columns)[found]
        image = batch[found]
        of_row[image, row] = column.to(data.dtype)
        of_column[image, column] = row.to(data.dtype)
        free[image, row] = False
        free[image, :, column] = False
    return of_row.reshape(data.shape[:-1]), of_column.reshape(*data.shape[:-2], columns)
