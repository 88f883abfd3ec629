"""Pooling over regions of feature maps.

A region is a row of the image's number in the batch and a corner box (left, top, right, bottom) in pixels of
the image, which ``spatial_scale`` turns into places of the feature map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.opdef import Shape, Spec, operator

Attrs = dict[str, Any]


def _check(data: Any, rois: Any, columns: int, name: str) -> None:
    if len(data) != 4 or len(rois) != 2 or rois[1] != columns:
        raise MXNetError(
            f"{name}: expected data (N, C, H, W) and rois (R, {columns}); received {tuple(data)} and "
            f"{tuple(rois)}"
        )


def _pooled(attrs: Attrs, name: str) -> tuple[int, int]:
    size = tuple(attrs["pooled_size"])
    if len(size) != 2 or min(size) < 1:
        raise MXNetError(f"{name}: pooled_size expects a height and a width above 0; received {size}")
    return size


def _region_infer(name: str, columns: int = 5) -> Callable[[list[Spec], Attrs], list[Spec]]:
    def infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
        data, rois = specs[0].shape, specs[1].shape
        _check(data, rois, columns, name)
        height, width = _pooled(attrs, name)
        channels = data[1]
        if attrs.get("position_sensitive"):
            channels = _per_position(channels, height * width, name)
        return [Spec((rois[0], channels, height, width), specs[0].dtype)]

    return infer


def _per_position(channels: int, places: int, name: str) -> int:
    if channels % places:
        raise MXNetError(
            f"{name}: position sensitive pooling into {places} places expects a multiple of {places} "
            f"channels; received {channels}"
        )
    return channels // places


def _coordinates(rois: Tensor) -> Tensor:
    """Regions in at least float32 without their gradient; NaN is 0, so that a diverged network still runs."""
    return torch.nan_to_num(rois.detach().to(torch.promote_types(rois.dtype, torch.float32)))


def _round_away(values: Tensor) -> Tensor:
    """Round halves away from zero."""
    return torch.trunc(values + torch.where(values < 0, -0.5, 0.5))


def _bin_edges(start: Tensor, size: Tensor, count: int, limit: int) -> tuple[Tensor, Tensor]:
    """First and last-but-one place (R, count) of the bins of regions that begin at ``start``."""
    step = (size / count).unsqueeze(1)
    number = torch.arange(count, dtype=step.dtype, device=step.device)
    first = torch.floor(number * step) + start.unsqueeze(1)
    last = torch.ceil((number + 1) * step) + start.unsqueeze(1)
    return first.clamp(0, limit).to(torch.int64), last.clamp(0, limit).to(torch.int64)


@operator(
    "ROIPooling",
    aliases=("_npx_roi_pooling",),
    npx="roi_pooling",
    output_names=("output",),
    infer=_region_infer("ROIPooling"),
)
def roi_pooling(data: Tensor, rois: Tensor, *, pooled_size: Shape, spatial_scale: float) -> Tensor:
    """Maxima over a grid of bins in each region: (R, C, *pooled_size).

    Corners are rounded to places, which belong to the region; bins share places where they do not divide it.
    An empty bin is 0. Regions have no gradient. Girshick, "Fast R-CNN", 2015.
    """
    _check(data.shape, rois.shape, 5, "ROIPooling")
    rows, columns = _pooled({"pooled_size": pooled_size}, "ROIPooling")
    _, channels, height, width = data.shape
    fixed = _coordinates(rois)
    corners = _round_away(fixed[:, 1:] * spatial_scale)
    image = fixed[:, 0].to(torch.int64)
    known = (image >= 0) & (image < len(data))
    sizes = (corners[:, 2:] - corners[:, :2] + 1).clamp(min=1)
    top, bottom = _bin_edges(corners[:, 1], sizes[:, 1], rows, height)
    left, right = _bin_edges(corners[:, 0], sizes[:, 0], columns, width)
    filled = (bottom > top).unsqueeze(2) & (right > left).unsqueeze(1) & known.reshape(-1, 1, 1)
    places = _largest_places(data.detach(), image.clamp(0, max(len(data) - 1, 0)), top, bottom, left, right)
    plane = torch.arange(channels, device=data.device).reshape(1, -1, 1, 1)
    flat = (image.clamp(0, max(len(data) - 1, 0)).reshape(-1, 1, 1, 1) * channels + plane) * height * width
    values = data.reshape(-1)[flat + places]
    return torch.where(filled.unsqueeze(1), values, torch.zeros_like(values))


def _largest_places(
    data: Tensor, image: Tensor, top: Tensor, bottom: Tensor, left: Tensor, right: Tensor
) -> Tensor:
    """The place in the map (R, C, rows, columns) of the first largest value of each bin."""
    channels, width = data.shape[1], data.shape[3]
    count, rows, columns = len(image), top.shape[1], left.shape[1]
    result = torch.zeros((count, channels, rows, columns), dtype=torch.int64, device=data.device)
    if count == 0 or data.numel() == 0:
        return result
    # Inside of the map the bins are those of adaptive pooling over the region.
    even = _divides_evenly(top, bottom) & _divides_evenly(left, right)
    ends = torch.stack([image, top[:, 0], bottom[:, -1], left[:, 0], right[:, -1]], 1)
    plain = data.is_floating_point() and data.dtype != torch.float16
    for number, (picture, first, last, begin, end) in enumerate(ends.tolist()):
        if not plain or not bool(even[number]):
            part = (value[number] for value in (top, bottom, left, right))
            result[number] = _places_one_by_one(data[picture], *(value.tolist() for value in part))
            continue
        region = data[picture : picture + 1, :, first:last, begin:end]
        place = functional.adaptive_max_pool2d(region, (rows, columns), return_indices=True)[1][0]
        across = end - begin
        line = torch.div(place, across, rounding_mode="floor")
        result[number] = (line + first) * width + place - line * across + begin
    return result


def _divides_evenly(begin: Tensor, end: Tensor) -> Tensor:
    """Whether bins (R, n) share an interval that is not empty as evenly as whole numbers can."""
    count = begin.shape[1]
    number = torch.arange(count, device=begin.device)
    start = begin[:, :1]
    size = end[:, -1:] - start
    first = start + torch.div(number * size, count, rounding_mode="floor")
    last = start - torch.div(-(number + 1) * size, count, rounding_mode="floor")
    return ((first == begin) & (last == end)).all(1) & (size > 0).squeeze(1)


def _places_one_by_one(
    data: Tensor, top: list[int], bottom: list[int], left: list[int], right: list[int]
) -> Tensor:
    """The same (C, rows, columns) for one region, with bins of any kind; 0 where one is empty."""
    width = data.shape[2]
    result = torch.zeros((len(data), len(top), len(left)), dtype=torch.int64, device=data.device)
    for i, (first, last) in enumerate(zip(top, bottom, strict=True)):
        for j, (begin, end) in enumerate(zip(left, right, strict=True)):
            if last > first and end > begin:
                place = data[:, first:last, begin:end].flatten(1).to(torch.float64).argmax(1)
                line = torch.div(place, end - begin, rounding_mode="floor")
                result[:, i, j] = (line + first) * width + place - line * (end - begin) + begin
    return result


# --- averages of bilinear samples ----------------------------------------------------------------


def _corners_of(place: Tensor, size: int, low: float, high: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lower and upper neighbour of real places, the upper one's weight, and which lie in [low, high]."""
    inside = (place >= low) & (place <= high)
    clamped = torch.where(inside, place, 0).clamp(0, size - 1)
    floor = torch.floor(clamped)
    lower = floor.to(torch.int64)
    return lower, (lower + 1).clamp(max=size - 1), clamped - floor, inside


def sample_mean(
    data: Tensor, image: Tensor, row: Tensor, column: Tensor, weight: Tensor, plane: Tensor | None = None,
    margin: float = 1.0,
) -> Tensor:  # fmt: skip
    """Weighted sums of bilinear samples: (R, P, c).

    ``row``, ``column`` and ``weight`` are (R, P, S): the S samples of P sums in each of R regions. ``data``
    is (N, C, H, W), or with ``plane`` (P,) that names a group of channels for each sum, (N, G, c, H, W).
    Samples further than ``margin`` outside of the map count as 0, nearer ones as the border.
    """
    height, width = data.shape[-2:]
    groups = data.shape[1] if plane is not None else 1
    table = data.movedim(-3, -1).reshape(-1, data.shape[-3])
    top, bottom, down, inside = _corners_of(row, height, -margin, height - 1 + margin)
    left, right, across, inside_too = _corners_of(column, width, -margin, width - 1 + margin)
    known = ((image >= 0) & (image < len(data))).reshape(-1, 1, 1)
    weight = torch.where(inside & inside_too & known, weight, 0)
    base = image.clamp(0, max(len(data) - 1, 0)).reshape(-1, 1, 1) * groups
    if plane is not None:
        base = base + plane.reshape(1, -1, 1)
    base = base * height * width
    index = torch.cat([base + y * width + x for y in (top, bottom) for x in (left, right)], -1)
    shares = torch.cat([v * h * weight for v in (1 - down, down) for h in (1 - across, across)], -1)
    return _weighted_rows(table, index, shares)


def _weighted_rows(table: Tensor, index: Tensor, shares: Tensor) -> Tensor:
    """Sums (R, P, c) of the rows ``index`` (R, P, S) of a table, weighted by ``shares`` (R, P, S)."""
    if index.numel() == 0 or table.numel() == 0:
        return table.new_zeros((*index.shape[:2], table.shape[1])) + 0 * table.sum()
    summed = functional.embedding_bag(
        index.flatten(0, 1), table, mode="sum", per_sample_weights=shares.flatten(0, 1).to(table.dtype)
    )
    return summed.reshape(*index.shape[:2], -1)


def _grid_samples(size: Tensor, bins: int, count: Tensor) -> tuple[Tensor, Tensor]:
    """Offsets (R, bins, most) of evenly spread samples from the begin of regions, and which are in use."""
    most = max(int(count.max()), 1) if count.numel() else 1
    step = (size / bins).reshape(-1, 1, 1)
    number = torch.arange(most, device=size.device)
    offset = torch.arange(bins, device=size.device).reshape(1, -1, 1) * step
    offset = offset + (number + 0.5) * step / count.clamp(min=1).reshape(-1, 1, 1)
    return offset, (number < count.reshape(-1, 1, 1)).expand_as(offset)


def _samples_each(size: Tensor, bins: int, ratio: int) -> Tensor:
    if ratio > 0:
        return torch.full_like(size, ratio)
    return torch.ceil(size / bins)


def _cross(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of (R, p, s) and (R, q, t), each as (R, p * q, s * t)."""
    shape = (len(rows), rows.shape[1], columns.shape[1], rows.shape[2], columns.shape[2])
    y = rows.reshape(len(rows), rows.shape[1], 1, rows.shape[2], 1).expand(shape)
    x = columns.reshape(len(rows), 1, columns.shape[1], 1, columns.shape[2]).expand(shape)
    return y.flatten(3).flatten(1, 2), x.flatten(3).flatten(1, 2)


@operator(
    "_contrib_ROIAlign",
    amp="widest",
    output_names=("output",),
    infer=_region_infer("ROIAlign"),
)
def roi_align(
    data: Tensor,
    rois: Tensor,
    *,
    pooled_size: Shape,
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: bool = False,
    aligned: bool = False,
) -> Tensor:
    """Means of bilinear samples over a grid of bins in each region: (R, C, *pooled_size).

    A bin has ``sample_ratio`` samples a side, or one for each pixel of its size. ``aligned`` moves regions
    half a pixel to where they belong and leaves small ones small; without, a side is at least 1. With
    ``position_sensitive`` each bin reads its own C / (height * width) channels. Regions have no gradient; an
    image number outside of the batch gives 0. He et al., "Mask R-CNN", 2017.
    """
    _check(data.shape, rois.shape, 5, "ROIAlign")
    rows, columns = _pooled({"pooled_size": pooled_size}, "ROIAlign")
    fixed = _coordinates(rois)
    image = fixed[:, 0].to(torch.int64)
    corners = fixed[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    sizes = corners[:, 2:] - corners[:, :2]
    sizes = sizes.clamp(min=0.0 if aligned else 1.0)
    tall = _samples_each(sizes[:, 1], rows, sample_ratio)
    wide = _samples_each(sizes[:, 0], columns, sample_ratio)
    down, used_down = _grid_samples(sizes[:, 1], rows, tall)
    across, used_across = _grid_samples(sizes[:, 0], columns, wide)
    y, x = _cross(corners[:, 1].reshape(-1, 1, 1) + down, corners[:, 0].reshape(-1, 1, 1) + across)
    in_use = torch.logical_and(*_cross(used_down, used_across))
    weight = in_use / (tall * wide).clamp(min=1).reshape(-1, 1, 1)
    if not position_sensitive:
        return _as_map(sample_mean(data, image, y, x, weight), rows, columns)
    channels = _per_position(data.shape[1], rows * columns, "ROIAlign")
    split = data.reshape(len(data), channels, rows * columns, *data.shape[2:]).transpose(1, 2)
    plane = torch.arange(rows * columns, device=data.device)
    return _as_map(sample_mean(split, image, y, x, weight, plane), rows, columns)


def _as_map(sums: Tensor, rows: int, columns: int) -> Tensor:
    """(R, rows * columns, c) as (R, c, rows, columns)."""
    return sums.transpose(1, 2).reshape(len(sums), sums.shape[2], rows, columns)


@operator(
    "_contrib_RROIAlign",
    amp="widest",
    output_names=("output",),
    infer=_region_infer("RROIAlign", 6),
)
def rotated_roi_align(
    data: Tensor, rois: Tensor, *, pooled_size: Shape, spatial_scale: float, sampling_ratio: int = -1
) -> Tensor:
    """Means of bilinear samples over a grid of bins in turned regions: (R, C, *pooled_size).

    ``rois`` (R, 6) are image number, center, width, height and the angle in degrees by which the region is
    turned. Ma et al., "Arbitrary-Oriented Scene Text Detection via Rotation Proposals", 2018.
    """
    _check(data.shape, rois.shape, 6, "RROIAlign")
    rows, columns = _pooled({"pooled_size": pooled_size}, "RROIAlign")
    fixed = _coordinates(rois)
    image, angle = fixed[:, 0].to(torch.int64), torch.deg2rad(fixed[:, 5]).reshape(-1, 1, 1)
    placed = fixed[:, 1:5] * spatial_scale
    sizes = placed[:, 2:].clamp(min=1.0)
    tall = _samples_each(sizes[:, 1], rows, sampling_ratio)
    wide = _samples_each(sizes[:, 0], columns, sampling_ratio)
    down, used_down = _grid_samples(sizes[:, 1], rows, tall)
    across, used_across = _grid_samples(sizes[:, 0], columns, wide)
    half = sizes.reshape(-1, 1, 1, 2) / 2
    y, x = _cross(down - half[..., 1], across - half[..., 0])
    in_use = torch.logical_and(*_cross(used_down, used_across))
    weight = in_use / (tall * wide).reshape(-1, 1, 1)
    row = y * torch.cos(angle) - x * torch.sin(angle) + placed[:, 1].reshape(-1, 1, 1)
    column = y * torch.sin(angle) + x * torch.cos(angle) + placed[:, 0].reshape(-1, 1, 1)
    return _as_map(sample_mean(data, image, row, column, weight), rows, columns)


# --- regions whose bins read their own channels ---------------------------------------------------


def _square_infer(name: str) -> Callable[[list[Spec], Attrs], list[Spec]]:
    def infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
        _check(specs[0].shape, specs[1].shape, 5, name)
        size = attrs["pooled_size"]
        _check_groups(specs[0].shape, attrs["output_dim"], attrs["group_size"] or size, size, name)
        return [Spec((specs[1].shape[0], attrs["output_dim"], size, size), specs[0].dtype)]

    return infer


def _check_groups(data: Any, channels: int, groups: int, pooled: int, name: str) -> None:
    if channels < 1 or pooled < 1 or groups < 1 or data[1] != channels * groups * groups:
        raise MXNetError(
            f"{name}: expected output_dim * group_size^2 channels; received data {tuple(data)} with "
            f"output_dim={channels}, group_size={groups}, pooled_size={pooled}"
        )


def _pixel_regions(rois: Tensor, scale: float, shift: float) -> tuple[Tensor, Tensor, Tensor]:
    """Image numbers (R,), begins (R, 2) and sizes (R, 2), x then y, of regions whose corners are pixels that
    belong to them."""
    fixed = _coordinates(rois)
    corners = _round_away(fixed[:, 1:])
    begin = corners[:, :2] * scale - shift
    size = ((corners[:, 2:] + 1) * scale - shift - begin).clamp(min=0.1)
    return fixed[:, 0].to(torch.int64), begin, size


def _group_of(bins: int, groups: int, device: torch.device) -> Tensor:
    """The number in a groups x groups square (bins * bins,) that each bin of a square reads."""
    number = torch.arange(bins, device=device) * groups // bins
    return (number.reshape(-1, 1) * groups + number).flatten()


@operator(
    "_contrib_PSROIPooling",
    amp="widest",
    output_names=("output",),
    infer=_square_infer("PSROIPooling"),
)
def position_sensitive_pooling(
    data: Tensor,
    rois: Tensor,
    *,
    spatial_scale: float,
    output_dim: int,
    pooled_size: int,
    group_size: int = 0,
) -> Tensor:
    """Means over a square of bins in each region, each bin of its own channels: (R, output_dim, P, P).

    ``data`` has output_dim * group_size^2 channels (``group_size`` is ``pooled_size`` where it is 0). Regions
    have no gradient. Dai et al., "R-FCN", 2016.
    """
    _check(data.shape, rois.shape, 5, "PSROIPooling")
    groups = group_size or pooled_size
    _check_groups(data.shape, output_dim, groups, pooled_size, "PSROIPooling")
    height, width = data.shape[2:]
    image, begin, size = _pixel_regions(rois, spatial_scale, 0.0)
    top, bottom = _real_edges(begin[:, 1], size[:, 1], pooled_size, height)
    left, right = _real_edges(begin[:, 0], size[:, 0], pooled_size, width)
    tall = max(int((bottom - top).max()), 1) if len(rois) else 1
    wide = max(int((right - left).max()), 1) if len(rois) else 1
    y = top.unsqueeze(2) + torch.arange(tall, device=data.device)
    x = left.unsqueeze(2) + torch.arange(wide, device=data.device)
    row, column = _cross(y, x)
    inside = torch.logical_and(*_cross(y < bottom.unsqueeze(2), x < right.unsqueeze(2)))
    number = inside.sum(-1, keepdim=True).clamp(min=1)
    weight = (inside / number).to(data.dtype)
    split = data.reshape(len(data), output_dim, groups * groups, height, width).transpose(1, 2)
    plane = _group_of(pooled_size, groups, data.device)
    sums = sample_mean(split, image, row.to(weight.dtype), column.to(weight.dtype), weight, plane)
    return _as_map(sums, pooled_size, pooled_size)


def _real_edges(begin: Tensor, size: Tensor, count: int, limit: int) -> tuple[Tensor, Tensor]:
    """First and last-but-one place (R, count) of bins whose borders lie between places."""
    step = (size / count).unsqueeze(1)
    number = torch.arange(count, dtype=step.dtype, device=step.device)
    first = torch.floor(number * step + begin.unsqueeze(1))
    last = torch.ceil((number + 1) * step + begin.unsqueeze(1))
    return first.clamp(0, limit).to(torch.int64), last.clamp(0, limit).to(torch.int64)


@operator(
    "_contrib_DeformablePSROIPooling",
    output_names=("output",),
    amp="float32",
    active=lambda attrs: 2 if attrs["no_trans"] else 3,
    infer=_square_infer("DeformablePSROIPooling"),
)
def deformable_position_sensitive_pooling(
    data: Tensor,
    rois: Tensor,
    trans: Tensor | None = None,
    *,
    spatial_scale: float,
    output_dim: int,
    group_size: int,
    pooled_size: int,
    part_size: int = 0,
    sample_per_part: int = 1,
    trans_std: float = 0.0,
    no_trans: bool = False,
) -> Tensor:
    """Position-sensitive pooling whose bins are moved: (R, output_dim, P, P).

    A bin is the mean of ``sample_per_part`` squared bilinear samples; those outside of the map do not count.
    ``trans`` (R, 2 * classes, part_size, part_size) moves the bins, x then y, by ``trans_std`` times the
    region's size; output_dim / classes channels share a class's moves. Regions have no gradient. Dai et al.,
    "Deformable Convolutional Networks", 2017.
    """
    name = "DeformablePSROIPooling"
    _check(data.shape, rois.shape, 5, name)
    _check_groups(data.shape, output_dim, group_size, pooled_size, name)
    classes = 1 if no_trans or trans is None else trans.shape[1] // 2
    parts = part_size or pooled_size
    if classes < 1 or output_dim % classes or (trans is not None and trans.shape[2:] != (parts, parts)):
        raise MXNetError(
            f"{name}: expected trans (R, 2 * classes, {parts}, {parts}) with classes that divide "
            f"{output_dim}; received {None if trans is None else tuple(trans.shape)}"
        )
    height, width = data.shape[2:]
    image, begin, size = _pixel_regions(rois, spatial_scale, 0.5)
    bins = torch.arange(pooled_size, device=data.device)
    steps = torch.arange(sample_per_part, device=data.device)
    inner = bins.unsqueeze(1) + steps / sample_per_part
    places = begin.reshape(-1, 2, 1, 1) + inner * (size / pooled_size).reshape(-1, 2, 1, 1)
    row, column = _cross(places[:, 1], places[:, 0])
    row, column = (value.unsqueeze(1) for value in (row, column))
    if not no_trans and trans is not None:
        part = torch.div(bins * parts, pooled_size, rounding_mode="floor")
        moves = trans.reshape(len(rois), classes, 2, parts, parts)[..., part, :][..., part].flatten(3)
        moves = moves * trans_std * size.reshape(-1, 1, 2, 1)
        row, column = row + moves[:, :, 1, :, None], column + moves[:, :, 0, :, None]
    inside = (row >= -0.5) & (row <= height - 0.5) & (column >= -0.5) & (column <= width - 0.5)
    weight = inside / inside.sum(-1, keepdim=True).clamp(min=1)
    squares = group_size * group_size
    split = data.reshape(len(data), classes, -1, squares, height, width).transpose(2, 3).flatten(1, 2)
    plane = torch.arange(classes, device=data.device).unsqueeze(1) * squares
    plane = (plane + _group_of(pooled_size, group_size, data.device)).flatten()
    row, column, weight = (value.flatten(1, 2) for value in (row, column, weight))
    sums = sample_mean(split, image, row, column, weight, plane, margin=0.5)
    sums = sums.reshape(len(rois), classes, pooled_size, pooled_size, -1).permute(0, 1, 4, 2, 3)
    return sums.flatten(1, 2)
