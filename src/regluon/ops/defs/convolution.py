"""Convolution and its transpose in one to three dimensions, plain and deformable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.nn_shapes import complete, dimension, is_known
from regluon.ops.opdef import Shape, Spec, operator

Layout = Literal["NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC"]
Tuning = Literal["fastest", "limited_workspace", "off"]

_CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
_TRANSPOSES = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)


def channels_last(layout: str | None) -> bool:
    """True when the layout string puts channels after the spatial axes."""
    return layout is not None and layout[1] != "C"


def to_channels_first(array: Any) -> Any:
    """Move the last axis to place 1 (a view)."""
    return array.movedim(-1, 1)


def _spatial(
    values: Sequence[int], rank: int, default: int, name: str, operator_name: str
) -> tuple[int, ...]:
    """``values`` or ``default`` for each of ``rank`` axes; raises MXNetError when the count is wrong."""
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise MXNetError(
            f"{operator_name}: {name} expects one value for each of the kernel's {rank} axes; received "
            f"{tuple(values)}"
        )
    return tuple(values)


def _check_rank(rank: int, kernel: Sequence[int], operator_name: str) -> None:
    if rank != len(kernel) + 2 or not 1 <= len(kernel) <= 3:
        raise MXNetError(
            f"{operator_name}: a kernel {tuple(kernel)} expects data with {len(kernel) + 2} dimensions "
            "(batch, "
            f"channels and {len(kernel)} spatial axes); received {rank} dimensions. Reshape the data or "
            "change "
            "kernel"
        )


def _weight_shape(attrs: dict[str, Any], channels: Any, transposed: bool) -> tuple[Any, ...]:
    """Shape of the weight: filters x channels per group x kernel, or channels x filters per group x
    kernel."""
    groups, filters, kernel = attrs["num_group"], attrs["num_filter"], tuple(attrs["kernel"])
    if transposed:
        outer, inner = channels, filters // groups
    else:
        outer, inner = filters, (channels // groups if is_known(channels) else -1)
    return (outer, *kernel, inner) if channels_last(attrs["layout"]) else (outer, inner, *kernel)


def _fill_convolution(shapes: list[Any], attrs: dict[str, Any], transposed: bool = False) -> list[Any]:
    channels = dimension(shapes[0], -1 if channels_last(attrs["layout"]) else 1)
    weight = complete(shapes[1], _weight_shape(attrs, channels, transposed))
    return [shapes[0], weight, *(complete(shape, (attrs["num_filter"],)) for shape in shapes[2:])]


def _fill_deconvolution(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    return _fill_convolution(shapes, attrs, transposed=True)


def _output_spec(data: Spec, sizes: list[Any], attrs: dict[str, Any]) -> list[Spec]:
    batch, filters = data.shape[0], attrs["num_filter"]
    last = channels_last(attrs["layout"])
    return [Spec((batch, *sizes, filters) if last else (batch, filters, *sizes), data.dtype)]


def _spatial_sizes(data: Spec, attrs: dict[str, Any]) -> list[Any]:
    return list(data.shape[1:-1] if channels_last(attrs["layout"]) else data.shape[2:])


def _infer_convolution(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data, kernel = specs[0], attrs["kernel"]
    _check_rank(len(data.shape), kernel, "Convolution")
    _check_weight_shape(data.shape, specs[1].shape, attrs, "Convolution", transposed=False)
    rank = len(kernel)
    stride = _spatial(attrs["stride"], rank, 1, "stride", "Convolution")
    dilate = _spatial(attrs["dilate"], rank, 1, "dilate", "Convolution")
    pad = _spatial(attrs["pad"], rank, 0, "pad", "Convolution")
    sizes = [
        (size + 2 * pad[i] - dilate[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i, size in enumerate(_spatial_sizes(data, attrs))
    ]
    if any(isinstance(size, int) and size <= 0 for size in sizes):
        raise MXNetError(
            f"Convolution: the kernel {tuple(kernel)} (dilate {dilate}) is larger than the padded data; data "
            f"{tuple(data.shape)}, pad {pad}. Use larger data, more padding or a smaller kernel"
        )
    return _output_spec(data, sizes, attrs)


def _check_weight_shape(
    data: Any, weight: Any, attrs: dict[str, Any], operator_name: str, transposed: bool
) -> None:
    channels = data[-1] if channels_last(attrs["layout"]) else data[1]
    expected = _weight_shape(attrs, channels, transposed)
    if tuple(weight) != expected or (isinstance(channels, int) and channels % attrs["num_group"]):
        raise MXNetError(
            f"{operator_name}: the weight does not fit data of shape {tuple(data)}: expected weight shape "
            f"{expected} for kernel={tuple(attrs['kernel'])}, num_filter={attrs['num_filter']}, "
            f"num_group={attrs['num_group']} (which must divide the channels), layout={attrs['layout']}; "
            f"received {tuple(weight)}"
        )


def _convolve(
    data: Tensor, weight: Tensor, bias: Tensor | None, attrs: dict[str, Any], operator_name: str
) -> Tensor:
    """Checked convolution in any layout; the common case is one kernel call."""
    kernel = attrs["kernel"]
    rank = len(kernel)
    if data.dim() != rank + 2 or not 1 <= rank <= 3:
        _check_rank(data.dim(), kernel, operator_name)
    _check_weight_shape(data.shape, weight.shape, attrs, operator_name, transposed=False)
    last = channels_last(attrs["layout"])
    if last:
        data, weight = to_channels_first(data), to_channels_first(weight)
    output = _CONVOLUTIONS[rank - 1](
        data,
        weight,
        bias,
        attrs["stride"] or 1,
        attrs["pad"] or 0,
        attrs["dilate"] or 1,
        attrs["num_group"],
    )
    return output.movedim(1, -1) if last else output


@operator(
    "Convolution",
    aliases=("_npx_convolution",),
    npx="convolution",
    active=lambda attrs: 2 if attrs["no_bias"] else 3,
    fill=_fill_convolution,
    infer=_infer_convolution,
    amp="low",
)
def convolution(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    cudnn_tune: Tuning | None = None,
    cudnn_off: bool = False,
    layout: Layout | None = None,
) -> Tensor:
    """Cross-correlate the data with ``num_filter`` filters over 1 to 3 spatial axes.

    ``data`` is (N, C, spatial...) or, by ``layout``, (N, spatial..., C); ``weight`` is (num_filter,
    C/num_group, kernel...) or (num_filter, kernel..., C/num_group).  Each output size is
    ``floor((x + 2 pad - dilate (k-1) - 1) / stride) + 1``.  workspace and the cudnn options are accepted and
    have no effect.  Raises MXNetError when the weight does not fit.
    """
    rank = len(kernel)
    if layout is None or layout[1] == "C":
        shape = weight.shape
        if (
            data.dim() == rank + 2
            and 1 <= rank <= 3
            and shape[0] == num_filter
            and shape[1] * num_group == data.shape[1]
            and shape[2:] == kernel
        ):
            return _CONVOLUTIONS[rank - 1](
                data, weight, None if no_bias else bias, stride or 1, pad or 0, dilate or 1, num_group
            )
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "pad": pad,
        "num_filter": num_filter,
        "num_group": num_group,
        "layout": layout,
    }
    return _convolve(data, weight, None if no_bias else bias, attrs, "Convolution")


@operator(
    "Convolution_v1",
    active=lambda attrs: 2 if attrs["no_bias"] else 3,
    fill=_fill_convolution,
    infer=_infer_convolution,
    amp="low",
)
def convolution_v1(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    cudnn_tune: Tuning | None = None,
    cudnn_off: bool = False,
    layout: Literal["NCHW", "NHWC", "NCDHW", "NDHWC"] | None = None,
) -> Tensor:
    """The convolution operator of model files before 1.0; computes what Convolution does."""
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "pad": pad,
        "num_filter": num_filter,
        "num_group": num_group,
        "layout": layout,
    }
    return _convolve(data, weight, None if no_bias else bias, attrs, "Convolution_v1")


def _transposed_padding(
    sizes: Sequence[int], attrs: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Stride, dilation, padding and extra output size of a transposed convolution.

    ``target_shape``, where given, decides padding and extra size instead of ``pad`` and ``adj``.
    """
    kernel, rank = attrs["kernel"], len(attrs["kernel"])
    stride = _spatial(attrs["stride"], rank, 1, "stride", "Deconvolution")
    dilate = _spatial(attrs["dilate"], rank, 1, "dilate", "Deconvolution")
    pad = _spatial(attrs["pad"], rank, 0, "pad", "Deconvolution")
    extra = _spatial(attrs["adj"], rank, 0, "adj", "Deconvolution")
    if not attrs["target_shape"] or not any(attrs["target_shape"]):
        return stride, dilate, pad, extra
    target = _spatial(attrs["target_shape"], rank, 0, "target_shape", "Deconvolution")
    total = [
        (sizes[i] - 1) * stride[i] + dilate[i] * (kernel[i] - 1) + 1 - target[i] if target[i] else 0
        for i in range(rank)
    ]
    if any(excess < 0 for excess in total):
        raise MXNetError(
            f"Deconvolution: target_shape {target} is larger than what data of spatial size {tuple(sizes)} "
            "with "
            f"kernel {tuple(kernel)} and stride {stride} can fill; choose a smaller target_shape or a larger "
            "stride"
        )
    return stride, dilate, tuple((excess + 1) // 2 for excess in total), tuple(excess % 2 for excess in total)


def _infer_deconvolution(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data, kernel = specs[0], attrs["kernel"]
    _check_rank(len(data.shape), kernel, "Deconvolution")
    _check_weight_shape(data.shape, specs[1].shape, attrs, "Deconvolution", transposed=True)
    spatial = _spatial_sizes(data, attrs)
    stride, dilate, pad, extra = _transposed_padding(spatial, attrs)
    sizes = [
        (size - 1) * stride[i] - 2 * pad[i] + dilate[i] * (kernel[i] - 1) + 1 + extra[i]
        for i, size in enumerate(spatial)
    ]
    return _output_spec(data, sizes, attrs)


@operator(
    "Deconvolution",
    aliases=("_npx_deconvolution",),
    npx="deconvolution",
    active=lambda attrs: 2 if attrs["no_bias"] else 3,
    fill=_fill_deconvolution,
    infer=_infer_deconvolution,
    amp="low",
)
def deconvolution(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    adj: Shape = (),
    target_shape: Shape | None = (),
    num_filter: int,
    num_group: int = 1,
    workspace: int = 512,
    no_bias: bool = True,
    cudnn_tune: Tuning | None = None,
    cudnn_off: bool = False,
    layout: Layout | None = None,
) -> Tensor:
    """Transposed convolution (the gradient of Convolution with respect to its data).

    ``weight`` is (C, num_filter/num_group, kernel...), channels last by ``layout``. Each output size is
    ``(x-1) stride - 2 pad + dilate (k-1) + 1 + adj``; ``target_shape`` sets it directly and chooses pad and
    adj. Raises MXNetError when the weight does not fit or the target cannot be reached.
    """
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "pad": pad,
        "adj": adj,
        "target_shape": target_shape,
        "num_filter": num_filter,
        "num_group": num_group,
        "layout": layout,
    }
    _check_rank(data.dim(), kernel, "Deconvolution")
    _check_weight_shape(data.shape, weight.shape, attrs, "Deconvolution", transposed=True)
    last = channels_last(layout)
    if last:
        data, weight = to_channels_first(data), to_channels_first(weight)
    steps, dilation, padding, extra = _transposed_padding(data.shape[2:], attrs)
    bias = None if no_bias else bias
    if any(more >= steps[i] for i, more in enumerate(extra)):
        raise MXNetError(
            f"Deconvolution: adj must be smaller than stride on every axis; received adj {tuple(adj)}, "
            f"stride {steps}"
        )
    bias = None if no_bias else bias
    output = _TRANSPOSES[len(kernel) - 1](data, weight, bias, steps, padding, extra, num_group, dilation)
    return output.movedim(1, -1) if last else output


def _corner(data: Tensor, row: Tensor, column: Tensor, clamp: bool) -> Tensor:
    """Values of (M, c, H, W) at integer positions (M, P); outside the nearest border (``clamp``) or zero."""
    height, width = data.shape[-2:]
    flat = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).to(torch.int64)
    values = data.flatten(2).gather(2, flat.unsqueeze(1).expand(-1, data.shape[1], -1))
    if clamp:
        return values
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return values * inside.unsqueeze(1)


def sample_bilinear(data: Tensor, row: Tensor, column: Tensor, border: str = "fade") -> Tensor:
    """Bilinear interpolation of (M, c, H, W) at real positions (M, P); result (M, c, P).

    Outside the map the value fades to zero within one pixel (``fade``), or is zero at once while the last row
    and column reach one pixel further (``cut``).
    """
    cut = border == "cut"
    top, left = torch.floor(row).detach(), torch.floor(column).detach()
    down, right = (row - top).unsqueeze(1), (column - left).unsqueeze(1)
    upper = _corner(data, top, left, cut) * (1 - right) + _corner(data, top, left + 1, cut) * right
    lower = _corner(data, top + 1, left, cut) * (1 - right) + _corner(data, top + 1, left + 1, cut) * right
    result = upper * (1 - down) + lower * down
    if not cut:
        return result
    height, width = data.shape[-2:]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return torch.where(inside.unsqueeze(1), result, 0.0)


def _deformed_columns(
    data: Tensor, offset: Tensor, mask: Tensor | None, attrs: dict[str, Any]
) -> tuple[Tensor, tuple[int, int]]:
    """Sampled inputs (N, C, kh*kw, P) of a deformable convolution, and the output's height and width."""
    kernel, deformable = attrs["kernel"], attrs["num_deformable_group"]
    batch, channels = data.shape[:2]
    stride = _spatial(attrs["stride"], 2, 1, "stride", "DeformableConvolution")
    dilate = _spatial(attrs["dilate"], 2, 1, "dilate", "DeformableConvolution")
    pad = _spatial(attrs["pad"], 2, 0, "pad", "DeformableConvolution")
    height, width = (
        (data.shape[2 + i] + 2 * pad[i] - dilate[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2)
    )
    points = kernel[0] * kernel[1]
    expected = (batch, 2 * deformable * points, height, width)
    if tuple(offset.shape) != expected:
        raise MXNetError(
            f"DeformableConvolution: expected an offset of shape {expected} for data {tuple(data.shape)}; "
            f"received {tuple(offset.shape)}"
        )

    def grid(axis: int, size: int) -> Tensor:
        taps = torch.arange(kernel[axis], device=data.device) * dilate[axis] - pad[axis]
        places = torch.arange(size, device=data.device) * stride[axis]
        view_taps = (-1, 1, 1, 1) if axis == 0 else (1, -1, 1, 1)
        view_places = (1, 1, -1, 1) if axis == 0 else (1, 1, 1, -1)
        total = taps.view(view_taps) + places.view(view_places)
        return total.expand(*kernel, height, width).reshape(1, points, height, width)

    moves = offset.reshape(batch * deformable, points, 2, height, width)
    row = (moves[:, :, 0] + grid(0, height)).reshape(batch * deformable, -1)
    column = (moves[:, :, 1] + grid(1, width)).reshape(batch * deformable, -1)
    parts = data.reshape(batch * deformable, channels // deformable, *data.shape[2:])
    sampled = sample_bilinear(parts, row, column, "cut" if mask is None else "fade")
    if mask is not None:
        sampled = sampled * mask.reshape(batch * deformable, 1, -1)
    return sampled.reshape(batch, channels, points, height * width), (height, width)


def _deformable(
    data: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    attrs: dict[str, Any],
) -> Tensor:
    _check_rank(data.dim(), attrs["kernel"], "DeformableConvolution")
    _check_weight_shape(data.shape, weight.shape, attrs, "DeformableConvolution", transposed=False)
    columns, (height, width) = _deformed_columns(data, offset, mask, attrs)
    batch, channels = data.shape[:2]
    groups, filters = attrs["num_group"], attrs["num_filter"]
    grouped = columns.reshape(batch, groups, channels // groups * columns.shape[2], height * width)
    kernels = weight.reshape(groups, filters // groups, -1)
    output = torch.matmul(kernels, grouped).reshape(batch, filters, height, width)
    return output if bias is None else output + bias.reshape(-1, 1, 1)


def _fill_deformable(shapes: list[Any], attrs: dict[str, Any], weight_at: int = 2) -> list[Any]:
    weight = _weight_shape(attrs, dimension(shapes[0], 1), transposed=False)
    filled = list(shapes)
    filled[weight_at] = complete(shapes[weight_at], weight)
    for index in range(weight_at + 1, len(shapes)):
        filled[index] = complete(shapes[index], (attrs["num_filter"],))
    return filled


def _fill_modulated(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    return _fill_deformable(shapes, attrs, weight_at=3)


@operator(
    "_contrib_DeformableConvolution",
    amp="float32",
    aliases=("_npx_deformable_convolution",),
    npx="deformable_convolution",
    active=lambda attrs: 3 if attrs["no_bias"] else 4,
    fill=_fill_deformable,
)
def deformable_convolution(
    data: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    num_deformable_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None,
) -> Tensor:
    """Convolution whose taps are moved by ``offset`` (Dai et al., "Deformable Convolutional Networks", 2017).

    ``data`` (N, C, H, W); ``offset`` (N, 2 * num_deformable_group * kh * kw, H', W') holds a row and a column
    move for each tap; values between pixels are interpolated, those outside count as zero.
    """
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "pad": pad,
        "num_filter": num_filter,
        "num_group": num_group,
        "num_deformable_group": num_deformable_group,
        "layout": layout,
    }
    return _deformable(data, offset, None, weight, None if no_bias else bias, attrs)


@operator(
    "_contrib_ModulatedDeformableConvolution",
    aliases=("_npx_modulated_deformable_convolution",),
    amp="float32",
    npx="modulated_deformable_convolution",
    active=lambda attrs: 4 if attrs["no_bias"] else 5,
    fill=_fill_modulated,
)
def modulated_deformable_convolution(
    data: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    num_deformable_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    im2col_step: int = 64,
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None,
) -> Tensor:
    """Deformable convolution with a weight for each tap and place, ``mask`` (N, num_deformable_group * kh *
    kw, H', W') (Zhu et al., "Deformable ConvNets v2", 2019)."""
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "pad": pad,
        "num_filter": num_filter,
        "num_group": num_group,
        "num_deformable_group": num_deformable_group,
        "layout": layout,
    }
    return _deformable(data, offset, mask, weight, None if no_bias else bias, attrs)
