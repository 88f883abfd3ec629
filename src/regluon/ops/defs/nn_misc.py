"""Spatial sampling, up-sampling, correlation and sliding-window attention."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.defs.convolution import sample_bilinear
from regluon.ops.defs.nn_shapes import complete
from regluon.ops.opdef import Shape, operator


def _linear_axis(size: int, like: Tensor) -> Tensor:
    """``size`` positions evenly spread over [-1, 1]."""
    steps = torch.arange(size, dtype=like.dtype, device=like.device)
    return steps * (2.0 / max(size - 1, 1)) - 1.0


def _affine_grid(theta: Tensor, height: int, width: int) -> Tensor:
    """Sampling places (N, 2, height, width), x then y, of the affine maps ``theta`` (N, 6)."""
    x = _linear_axis(width, theta).expand(height, width)
    y = _linear_axis(height, theta).unsqueeze(1).expand(height, width)
    points = torch.stack([x, y, torch.ones_like(x)]).reshape(3, -1)
    return torch.matmul(theta.reshape(-1, 2, 3), points).reshape(-1, 2, height, width)


def _sample_grid(data: Tensor, grid: Tensor) -> Tensor:
    """Bilinear values of (N, C, H, W) at normalised places (N, 2, h, w); outside counts as zero."""
    batch, channels, height, width = data.shape
    column = (grid[:, 0] + 1.0) * ((width - 1) / 2.0)
    row = (grid[:, 1] + 1.0) * ((height - 1) / 2.0)
    sampled = sample_bilinear(data, row.reshape(batch, -1), column.reshape(batch, -1))
    return sampled.reshape(batch, channels, *grid.shape[2:])


def _target(target_shape: Any, name: str) -> tuple[int, int]:
    if len(target_shape) != 2 or min(target_shape) <= 0:
        raise MXNetError(
            f"{name}: target_shape expects a height and a width above zero; received {tuple(target_shape)}"
        )
    return target_shape[0], target_shape[1]


def _check_theta(theta: Tensor, name: str) -> None:
    if theta.dim() != 2 or theta.shape[1] != 6:
        raise MXNetError(
            f"{name}: expected 6 affine numbers for each sample, (N, 6); received {tuple(theta.shape)}"
        )


@operator("GridGenerator")
def grid_generator(
    data: Tensor, *, transform_type: Literal["affine", "warp"], target_shape: Shape = (0, 0)
) -> Tensor:
    """Places to sample, (N, 2, height, width), x then y, in [-1, 1].

    ``affine``: data (N, 6) holds a 2x3 matrix for each sample. ``warp``: data (N, 2, H, W) holds moves in
    pixels that are added to the regular grid. Jaderberg et al., "Spatial Transformer Networks", 2015.
    """
    if transform_type == "affine":
        _check_theta(data, "GridGenerator")
        return _affine_grid(data, *_target(target_shape, "GridGenerator"))
    if data.dim() != 4 or data.shape[1] != 2:
        raise MXNetError(f"GridGenerator: warp expects moves (N, 2, H, W); received {tuple(data.shape)}")
    height, width = data.shape[2:]
    x = torch.arange(width, dtype=data.dtype, device=data.device)
    y = torch.arange(height, dtype=data.dtype, device=data.device).unsqueeze(1)
    columns = (data[:, 0] + x) * (2.0 / max(width - 1, 1)) - 1.0
    rows = (data[:, 1] + y) * (2.0 / max(height - 1, 1)) - 1.0
    return torch.stack([columns, rows], 1)


@operator("BilinearSampler")
def bilinear_sampler(data: Tensor, grid: Tensor, *, cudnn_off: bool | None = None) -> Tensor:
    """Values of ``data`` (N, C, H, W) at the places ``grid`` (N, 2, h, w), x then y in [-1, 1]; zero
    outside."""
    if data.dim() != 4 or grid.dim() != 4 or grid.shape[1] != 2 or grid.shape[0] != data.shape[0]:
        raise MXNetError(
            "BilinearSampler: expected data (N, C, H, W) and grid (N, 2, h, w); received "
            f"{tuple(data.shape)} and "
            f"{tuple(grid.shape)}"
        )
    return _sample_grid(data, grid)


def _fill_transformer(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    data = shapes[0]
    return shapes if data is None else [data, complete(shapes[1], (data[0], 6))]


@operator("SpatialTransformer", fill=_fill_transformer)
def spatial_transformer(
    data: Tensor,
    loc: Tensor,
    *,
    target_shape: Shape = (0, 0),
    transform_type: Literal["affine"],
    sampler_type: Literal["bilinear"],
    cudnn_off: bool | None = None,
) -> Tensor:
    """Resample ``data`` (N, C, H, W) by the affine maps ``loc`` (N, 6) to (N, C, *target_shape)."""
    _check_theta(loc, "SpatialTransformer")
    shape = tuple(target_shape) if any(target_shape) else tuple(data.shape[2:])
    return _sample_grid(data, _affine_grid(loc, *_target(shape, "SpatialTransformer")))


def _fill_upsampling(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    if attrs["sample_type"] != "bilinear" or len(shapes) != 2:
        return shapes
    scale = attrs["scale"]
    kernel = 2 * scale - scale % 2
    channels = shapes[0][1] if shapes[0] is not None else attrs["num_filter"]
    return [shapes[0], complete(shapes[1], (channels, 1, kernel, kernel))]


def _upsampling_inputs(attrs: dict[str, Any]) -> int | list[str]:
    return ["data", "weight"] if attrs["sample_type"] == "bilinear" else 0


@operator(
    "UpSampling",
    num_args_key="num_args",
    active=_upsampling_inputs,
    initial={"weight": '["bilinear", {}]'},
    fill=_fill_upsampling,
)
def up_sampling(
    *data: Tensor,
    scale: int,
    num_filter: int = 0,
    sample_type: Literal["bilinear", "nearest"],
    multi_input_mode: Literal["concat", "sum"] = "concat",
    workspace: int = 512,
) -> Tensor:
    """Enlarge (N, C, H, W) by ``scale``.

    ``nearest`` repeats pixels; several inputs are brought to the size of the enlarged first one and
    concatenated on axis 1 or summed. ``bilinear`` takes data and a weight (C, 1, k, k), k = 2 scale - scale %
    2, and applies the transposed convolution with it.
    """
    first = data[0]
    if sample_type == "bilinear":
        if len(data) != 2:
            raise MXNetError(
                f"UpSampling: bilinear expects data and a weight, 2 inputs; received {len(data)}"
            )
        pad = (scale - 1 + 1) // 2 if scale % 2 == 0 else (scale - 1) // 2
        return torch.conv_transpose2d(first, data[1], None, scale, pad, 0, first.shape[1])
    height, width = first.shape[2] * scale, first.shape[3] * scale
    enlarged = [_repeat_pixels(part, height, width) for part in data]
    if len(enlarged) == 1:
        return enlarged[0]
    if multi_input_mode == "sum":
        total = enlarged[0]
        for part in enlarged[1:]:
            total = total + part
        return total
    return torch.cat(enlarged, 1)


def _repeat_pixels(part: Tensor, height: int, width: int) -> Tensor:
    if height % part.shape[2] or width % part.shape[3]:
        raise MXNetError(
            f"UpSampling: an input of spatial size {tuple(part.shape[2:])} cannot be repeated to ({height}, "
            f"{width}); "
            "the size must be a divisor"
        )
    return part.repeat_interleave(height // part.shape[2], 2).repeat_interleave(width // part.shape[3], 3)


_ResizeMode = Literal["like", "odd_scale", "size", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"]


def _resized(size: int, fixed: int, scale: float | None, mode: str, like: int | None) -> int:
    """New size of one axis under a resize mode."""
    if mode == "like" and like is not None:
        return like
    if mode == "size":
        return fixed if scale is None else int(scale * size)
    if mode == "odd_scale":
        factor = scale if scale is not None else 1.0
        return int(size * factor) if size % 2 == 0 else int((size - 1) * factor) + 1
    if mode == "to_even_down":
        return size - size % 2
    if mode == "to_even_up":
        return size + size % 2
    return size - 1 + size % 2 if mode == "to_odd_down" else size + 1 - size % 2


@operator("_contrib_BilinearResize2D", active=lambda attrs: 2 if attrs["mode"] == "like" else 1)
def bilinear_resize(
    data: Tensor,
    like: Tensor | None = None,
    *,
    height: int = 1,
    width: int = 1,
    scale_height: float | None = None,
    scale_width: float | None = None,
    mode: _ResizeMode = "size",
    align_corners: bool = True,
) -> Tensor:
    """Resize (N, C, H, W) by bilinear interpolation.

    ``size`` uses height and width or the scales; ``like`` takes the second input's size; ``odd_scale`` keeps
    odd sizes odd; ``to_even_down`` ... ``to_odd_up`` move to the nearest such size.
    """
    if data.dim() != 4 or (mode == "like" and like is None):
        raise MXNetError(
            f"BilinearResize2D: expected data (N, C, H, W), and a second input for mode='like'; received "
            f"{tuple(data.shape)}, mode={mode!r}"
        )
    like_sizes: tuple[int | None, int | None] = (
        (None, None) if like is None else (like.shape[2], like.shape[3])
    )
    rows = _resized(data.shape[2], height, scale_height, mode, like_sizes[0])
    columns = _resized(data.shape[3], width, scale_width, mode, like_sizes[1])
    return functional.interpolate(data, (rows, columns), mode="bilinear", align_corners=align_corners)


@operator("Correlation", amp="widest")
def correlation(
    data1: Tensor,
    data2: Tensor,
    *,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
) -> Tensor:
    """Compare patches of two feature maps (N, C, H, W) (Dosovitskiy et al., "FlowNet", 2015).

    Output channel d holds, for the d-th displacement of the second map (rows, then columns, multiples of
    ``stride2`` up to ``max_displacement``), the mean over channels and a kernel_size square patch of the
    products (or of absolute differences with ``is_multiply=False``).
    """
    if data1.shape != data2.shape or data1.dim() != 4 or kernel_size % 2 == 0:
        raise MXNetError(
            f"Correlation: expected two maps (N, C, H, W) of the same shape and an odd kernel_size; received "
            f"{tuple(data1.shape)}, {tuple(data2.shape)}, kernel_size={kernel_size}"
        )
    reach, radius = max_displacement // stride2, kernel_size // 2
    border = max_displacement + radius
    first = functional.pad(data1, (pad_size,) * 4)
    height, width = first.shape[2:]
    rows = -(-(height - 2 * border) // stride1)
    columns = -(-(width - 2 * border) // stride1)
    if rows < 1 or columns < 1:
        raise MXNetError(
            f"Correlation: max_displacement {max_displacement} and kernel_size {kernel_size} do not fit maps "
            "of shape "
            f"{tuple(data1.shape)} with pad_size {pad_size}; increase pad_size"
        )
    second = functional.pad(data2, (pad_size,) * 4)
    # The patch around each kept centre; windows start at max_displacement in the padded map.
    high = (rows - 1) * stride1 + kernel_size
    wide = (columns - 1) * stride1 + kernel_size
    base = first[:, :, max_displacement : max_displacement + high, max_displacement : max_displacement + wide]
    planes = []
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            top, left = max_displacement + down * stride2, max_displacement + right * stride2
            moved = second[:, :, top : top + high, left : left + wide]
            pair = base * moved if is_multiply else (base - moved).abs()
            planes.append(functional.avg_pool2d(pair.mean(1, keepdim=True), kernel_size, stride1))
    return torch.cat(planes, 1)


def _window_places(length: int, dilation: Tensor, window: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """For each position, head and window slot: the key's position, and whether it lies inside the
    sequence."""
    slots = torch.arange(-window, (window if symmetric else 0) + 1, device=dilation.device)
    moves = dilation.to(torch.int64).reshape(-1, 1) * slots
    places = torch.arange(length, device=dilation.device).reshape(-1, 1, 1) + moves
    return places.clamp(0, length - 1), (places >= 0) & (places < length)


def _window_rows(rows: Tensor, places: Tensor) -> Tensor:
    """Gather (batch, length, heads, size) at ``places`` (length, heads, slots) -> (..., slots, size)."""
    heads = torch.arange(rows.shape[2], device=rows.device).reshape(1, -1, 1)
    return rows[:, places, heads]


@operator(
    "_contrib_sldwin_atten_score",
    amp="float32",
    aliases=("_npx_sldwin_atten_score",),
    npx="sldwin_atten_score",
)
def sliding_window_score(query: Tensor, key: Tensor, dilation: Tensor, *, w: int, symmetric: bool) -> Tensor:
    """Scores of each query with the keys of its window (Beltagy et al., "Longformer", 2020).

    ``query`` and ``key`` are (batch, length, heads, size); the window reaches ``w`` steps of the head's
    ``dilation`` (heads,) back, and ahead when ``symmetric``. Output (batch, length, heads, 2w+1 or w+1), zero
    outside the sequence.
    """
    places, inside = _window_places(query.shape[1], dilation, w, symmetric)
    scores = (query.unsqueeze(3) * _window_rows(key, places)).sum(-1)
    return torch.where(inside, scores, 0.0)


@operator(
    "_contrib_sldwin_atten_context",
    amp="float32",
    aliases=("_npx_sldwin_atten_context",),
    npx="sldwin_atten_context",
)
def sliding_window_context(
    score: Tensor, value: Tensor, dilation: Tensor, *, w: int, symmetric: bool
) -> Tensor:
    """Values (batch, length, heads, size) of each window weighted by ``score`` (batch, length, heads,
    slots)."""
    places, inside = _window_places(value.shape[1], dilation, w, symmetric)
    weights = torch.where(inside, score, 0.0)
    return (weights.unsqueeze(-1) * _window_rows(value, places)).sum(3)


@operator(
    "_contrib_sldwin_atten_mask_like",
    amp="float32",
    aliases=("_npx_sldwin_atten_mask_like",),
    npx="sldwin_atten_mask_like",
    gradient="zero",
)
def sliding_window_mask(
    score: Tensor, dilation: Tensor, valid_length: Tensor, *, w: int, symmetric: bool
) -> Tensor:
    """Float32: 1 where both the query and the window's key lie within ``valid_length`` (batch,), else 0."""
    length = score.shape[1]
    places, inside = _window_places(length, dilation, w, symmetric)
    valid = valid_length.to(torch.int64).reshape(-1, 1, 1, 1)
    position = torch.arange(length, device=score.device).reshape(1, -1, 1, 1)
    return (inside & (places < valid) & (position < valid)).to(torch.float32)
