"""Layers as MXNet's oneDNN backend wrote them to files: convolution with what follows it as one operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.convolution import Layout, _infer_convolution, convolution
from regluon.ops.defs.quantization import quantum, rounded, whole
from regluon.ops.opdef import Shape, Spec, operator

Attrs = dict[str, Any]
_ONE = Spec((1,), torch.float32)


def _active(attrs: Attrs) -> list[str]:
    names = ["data", "weight"]
    if not attrs["no_bias"]:
        names.append("bias")
    if attrs["with_bn"]:
        names += ["gamma", "beta", "moving_mean", "moving_var"]
    if attrs["with_sum"]:
        names.append("addend")
    if attrs["quantized"]:
        names += ["min_data", "max_data"]
        if attrs["with_sum"]:
            names += ["min_addend", "max_addend"]
    return names


def _output_type(attrs: Attrs) -> torch.dtype:
    if not attrs["quantized"]:
        return torch.float32
    if attrs["min_calib_range"] is None:
        return torch.int32
    return torch.uint8 if attrs["with_relu"] or attrs["with_postsum_relu"] else torch.int8


def _infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    real = [Spec(spec.shape, torch.float32) for spec in specs[:2]]
    result = Spec(_infer_convolution(real, attrs)[0].shape, _output_type(attrs))
    return [result, _ONE, _ONE] if attrs["quantized"] else [result]


def _fill(shapes: list[Any], attrs: Attrs) -> list[Any]:
    filled = list(shapes)
    if filled[0] is None:
        return filled
    channels = filled[0][1]
    sizes = {
        "weight": (attrs["num_filter"], channels // attrs["num_group"], *attrs["kernel"]),
        "min_data": (1,), "max_data": (1,), "min_addend": (1,), "max_addend": (1,),
    }  # fmt: skip
    for place, name in enumerate(_active(attrs)):
        if filled[place] is None and name not in ("data", "addend"):
            filled[place] = sizes.get(name, (attrs["num_filter"],))
    return filled


@operator(
    "_sg_mkldnn_conv",
    aliases=("_sg_onednn_conv",),
    outputs=lambda attrs: 3 if attrs["quantized"] else 1,
    output_names=("output", "output_min", "output_max"),
    gradient="zero",
    active=_active,
    fill=_fill,
    infer=_infer,
)
def fused_convolution(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    moving_mean: Tensor | None = None,
    moving_var: Tensor | None = None,
    addend: Tensor | None = None,
    min_data: Tensor | None = None,
    max_data: Tensor | None = None,
    min_addend: Tensor | None = None,
    max_addend: Tensor | None = None,
    *,
    kernel: Shape,
    num_filter: int,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_group: int = 1,
    no_bias: bool = False,
    layout: Layout | None = None,
    eps: float = 1e-3,
    fix_gamma: bool = True,
    quantized: bool = False,
    with_bn: bool = False,
    with_relu: bool = False,
    with_sum: bool = False,
    with_postsum_relu: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> Any:
    """Convolution, BatchNorm with the moving statistics, relu and addition of another value.

    ``quantized``: data and the value added are int8 or uint8 with their ranges; weights are quantized, a
    range for each filter, after BatchNorm went into them. The result is integers of the calibrated range and
    the ends of the range.
    """
    given = (bias, gamma, beta, moving_mean, moving_var, addend, min_data, max_data, min_addend, max_addend)
    attrs = {
        "no_bias": no_bias, "with_bn": with_bn, "with_sum": with_sum, "quantized": quantized,
        "with_relu": with_relu, "with_postsum_relu": with_postsum_relu, "min_calib_range": min_calib_range,
    }  # fmt: skip
    names = _active(attrs)[2:]
    found = [value for value in given if value is not None]
    if len(found) != len(names):
        raise MXNetError(
            f"_sg_mkldnn_conv: expected data, weight, {', '.join(names)}; received {len(found) + 2}"
        )
    more = dict(zip(names, found, strict=True))
    factor, offset = _folded(weight, more, eps, fix_gamma)
    axes = [1] * (weight.dim() - 1)
    # In float32 at each step, as oneDNN: the largest filter value lies on a tie, 127.5 steps, and one bit
    # decides to which side it goes.
    filters = weight * factor.reshape(-1, *axes)
    window: dict[str, Any] = {
        "kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad, "num_filter": num_filter,
        "num_group": num_group, "layout": layout,
    }  # fmt: skip
    if not quantized:
        result = convolution(data, filters.to(data.dtype), offset.to(data.dtype), **window)
        return _finished(result, more.get("addend"), with_relu, with_postsum_relu)
    low, high = more["min_data"], more["max_data"]
    step = quantum(low, high, data.dtype)
    magnitude = filters.abs().reshape(num_filter, -1).amax(1)
    # A number divided by a tensor would be its product with the reciprocal, another bit.
    scales = torch.full_like(magnitude, 127.5) / torch.where(magnitude > 0, magnitude, 1.0)
    whole_filters = rounded(filters * scales.reshape(-1, *axes), torch.int8)
    steps = 1 / scales.double()
    left, right = whole(whole_filters[0].numel(), data, whole_filters)
    total = convolution(left, right, no_bias=True, **window).double()
    unit = (step * steps).reshape(-1, *[1] * len(kernel))
    total += (offset.double() / (step * steps)).round().reshape(unit.shape)
    other = more.get("addend")
    if other is not None:
        other = other.double() * quantum(more["min_addend"], more["max_addend"], other.dtype)
    real = _finished(total * unit, other, with_relu, with_postsum_relu)
    return _narrowed(real, _output_type(attrs), min_calib_range, max_calib_range)


def _folded(weight: Tensor, more: dict[str, Tensor], eps: float, fix_gamma: bool) -> tuple[Tensor, Tensor]:
    """What BatchNorm multiplies the filters by, and the offsets with it."""
    offset = more.get("bias")
    if offset is None:
        offset = torch.zeros(weight.shape[0], device=weight.device)
    if "moving_var" not in more:
        return torch.ones_like(offset), offset
    scale = 1 / torch.sqrt(more["moving_var"].double() + eps)
    if not fix_gamma:
        scale = scale * more["gamma"].double()
    scale = scale.float()
    return scale, more["beta"] + (offset - more["moving_mean"]) * scale


def _finished(result: Tensor, other: Tensor | None, before: bool, after: bool) -> Tensor:
    if before:
        result = result.clamp(min=0)
    if other is not None:
        result = result + other
    return result.clamp(min=0) if after else result


def _narrowed(real: Tensor, dtype: torch.dtype, low: float | None, high: float | None) -> Any:
    if low is None or high is None:
        largest = real.abs().amax().reshape(1)
        integers = rounded(real / torch.where(largest > 0, largest, 1.0) * (2**31 - 1), torch.int32)
        return integers, -largest.float(), largest.float()
    ends = [torch.full((1,), end, dtype=torch.float32, device=real.device) for end in (low, high)]
    return rounded(real / quantum(ends[0], ends[1], dtype), dtype), *ends
