"""Pooling over one to three spatial axes and adaptive average pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.defs.convolution import Layout, channels_last
from regluon.ops.opdef import Shape, Spec, operator

PoolType = Literal["avg", "lp", "max", "sum"]
Convention = Literal["full", "same", "valid"]

_MAX_POOLS: tuple[Callable[..., Tensor], ...] = (torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)
_AVERAGE_POOLS: tuple[Callable[..., Tensor], ...] = (
    functional.avg_pool1d,
    functional.avg_pool2d,
    functional.avg_pool3d,
)


def _checked(data: Sequence[Any], attrs: dict[str, Any], name: str) -> tuple[tuple[int, ...], ...]:
    """Kernel, stride and padding of a window pooling; raises MXNetError when they do not fit the data."""
    kernel = attrs["kernel"]
    rank = len(data) - 2
    if len(kernel) != rank or not 1 <= rank <= 3:
        raise MXNetError(
            f"{name}: a kernel {tuple(kernel)} expects data with {len(kernel) + 2} dimensions (batch, "
            "channels and "
            f"1 to 3 spatial axes); received shape {tuple(data)}. Change kernel, or set global_pool=True"
        )
    stride, pad = attrs["stride"] or (1,) * rank, attrs["pad"] or (0,) * rank
    if len(stride) != rank or len(pad) != rank:
        raise MXNetError(
            f"{name}: stride and pad expect {rank} values, one for each kernel axis; received stride "
            f"{tuple(stride)}, "
            f"pad {tuple(pad)}"
        )
    if any(padding >= size > 0 for padding, size in zip(pad, kernel, strict=True) if padding):
        raise MXNetError(
            f"{name}: pad must be smaller than kernel on every axis; received pad {tuple(pad)}, kernel "
            f"{tuple(kernel)}"
        )
    return tuple(kernel), tuple(stride), tuple(pad)


def _output_sizes(
    spatial: Sequence[Any], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], convention: str
) -> list[Any]:
    sizes = []
    for i, size in enumerate(spatial):
        room = size + 2 * pad[i] - kernel[i]
        if isinstance(room, int) and room < 0 and convention != "same":
            raise MXNetError(
                f"Pooling: the kernel {tuple(kernel)} is larger than the padded data, spatial size "
                f"{tuple(spatial)} "
                f"with pad {tuple(pad)}; use a smaller kernel or more padding"
            )
        if convention == "valid":
            sizes.append(room // stride[i] + 1)
        elif convention == "full":
            sizes.append((room + stride[i] - 1) // stride[i] + 1)
        else:
            sizes.append((size + 2 * pad[i] + stride[i] - 1) // stride[i])
    return sizes


def _infer_pooling(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data = specs[0]
    last = channels_last(attrs.get("layout"))
    shape = tuple(data.shape)
    first = (shape[0], shape[-1], *shape[1:-1]) if last else shape
    if attrs["global_pool"]:
        sizes: list[Any] = [1] * (len(shape) - 2)
    else:
        kernel, stride, pad = _checked(first, attrs, "Pooling")
        sizes = _output_sizes(first[2:], kernel, stride, pad, attrs["pooling_convention"])
    return [Spec((first[0], *sizes, first[1]) if last else (*first[:2], *sizes), data.dtype)]


def _global_pool(data: Tensor, pool_type: str, power: int) -> Tensor:
    axes = tuple(range(2, data.dim()))
    if pool_type == "avg":
        return data.mean(axes, True)
    if pool_type == "sum":
        return data.sum(axes, True)
    if pool_type == "max":
        return _MAX_POOLS[data.dim() - 3](data, data.shape[2:])
    return _root(data.abs().pow(power).sum(axes, True), power)


def _root(total: Tensor, power: int) -> Tensor:
    """``total ** (1/power)`` whose gradient at zero is zero instead of infinite."""
    if power == 1:
        return total
    positive = total > 0
    return torch.where(positive, torch.where(positive, total, 1.0).pow(1.0 / power), 0.0)


def _counts(
    spatial: Sequence[int],
    sizes: Sequence[int],
    window: tuple[tuple[int, ...], ...],
    include_pad: bool,
    like: Tensor,
) -> Tensor:
    """How many elements each window averages over, as a tensor broadcast against the output."""
    kernel, stride, pad = window
    total = torch.ones((), dtype=like.dtype, device=like.device)
    for i, size in enumerate(sizes):
        begin = torch.arange(size, device=like.device) * stride[i] - pad[i]
        end = torch.clamp(begin + kernel[i], max=spatial[i] + pad[i])
        if not include_pad:
            begin, end = begin.clamp(min=0), end.clamp(max=spatial[i])
        count = (end - begin).clamp(min=1).to(like.dtype)
        total = total * count.reshape(-1, *(1,) * (len(sizes) - 1 - i))
    return total


def _window_pool(data: Tensor, attrs: dict[str, Any]) -> Tensor:
    """Pooling for every convention: pad explicitly so that each window is complete, then pool without
    padding."""
    window = _checked(data.shape, attrs, "Pooling")
    kernel, stride, pad = window
    spatial = data.shape[2:]
    sizes = _output_sizes(spatial, kernel, stride, pad, attrs["pooling_convention"])
    amounts: list[int] = []
    for i in reversed(range(len(kernel))):
        needed = (sizes[i] - 1) * stride[i] + kernel[i]
        amounts += [pad[i], needed - spatial[i] - pad[i]]
    kind = attrs["pool_type"]
    if kind == "max":
        lowest = torch.finfo(data.dtype).min if data.is_floating_point() else torch.iinfo(data.dtype).min
        padded = functional.pad(data, amounts, value=lowest) if any(amounts) else data
        return _MAX_POOLS[len(kernel) - 1](padded, kernel, stride)
    power = attrs["p_value"] or 2
    source = data if kind != "lp" else data.abs() if power == 1 else data.abs().pow(power)
    padded = functional.pad(source, amounts) if any(amounts) else source
    total = _AVERAGE_POOLS[len(kernel) - 1](padded, kernel, stride) * prod(kernel)
    if kind == "sum":
        return total
    if kind == "lp":
        return _root(total, power)
    return total / _counts(spatial, sizes, window, attrs["count_include_pad"] is not False, data)


def _pool(data: Tensor, attrs: dict[str, Any]) -> Tensor:
    last = channels_last(attrs["layout"])
    if last:
        data = data.movedim(-1, 1)
    if data.dim() < 3:
        _checked(data.shape, attrs, "Pooling")
    if attrs["global_pool"]:
        power = attrs["p_value"] or 2
        output = _global_pool(data, attrs["pool_type"], power)
    else:
        output = _window_pool(data, attrs)
    return output.movedim(1, -1) if last else output


@operator("Pooling", aliases=("_npx_pooling",), npx="pooling", infer=_infer_pooling)
def pooling(
    data: Tensor,
    *,
    kernel: Shape = (),
    pool_type: PoolType = "max",
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: Convention = "valid",
    stride: Shape = (),
    pad: Shape = (),
    p_value: int | None = None,
    count_include_pad: bool | None = None,
    layout: Layout | None = None,
    output_size: Shape | None = None,
) -> Tensor:
    """Reduce windows of the spatial axes of (N, C, spatial...) or, by ``layout``, (N, spatial..., C).

    ``max``, ``avg``, ``sum`` or ``lp`` (``(sum |x|^p)^(1/p)``). Output size: ``valid`` ``floor((x + 2 pad -
    k) / stride) + 1``, ``full`` the same with ceil, ``same`` ``ceil((x + 2 pad) / stride)``. Averages count
    padding unless ``count_include_pad=False``. ``global_pool`` takes the whole axes and ignores kernel.
    Raises MXNetError when kernel, stride or pad do not fit the data.
    """
    rank = len(kernel)
    plain = pooling_convention == "valid" and (layout is None or layout[1] == "C") and not global_pool
    if plain and data.dim() == rank + 2 and 1 <= rank <= 3:
        padding = pad or (0,) * rank
        if all(2 * amount <= size for amount, size in zip(padding, kernel, strict=True)):
            if pool_type == "max":
                return _MAX_POOLS[rank - 1](data, kernel, stride or (1,) * rank, padding)
            if pool_type == "avg":
                return _AVERAGE_POOLS[rank - 1](
                    data, kernel, stride or (1,) * rank, padding, False, count_include_pad is not False
                )
    attrs = {
        "kernel": kernel,
        "pool_type": pool_type,
        "global_pool": global_pool,
        "pooling_convention": pooling_convention,
        "stride": stride,
        "pad": pad,
        "p_value": p_value,
        "count_include_pad": count_include_pad,
        "layout": layout,
    }
    return _pool(data, attrs)


@operator("Pooling_v1", infer=_infer_pooling)
def pooling_v1(
    data: Tensor,
    *,
    kernel: Shape = (),
    pool_type: Literal["avg", "max", "sum"] = "max",
    global_pool: bool = False,
    pooling_convention: Literal["full", "valid"] = "valid",
    stride: Shape = (),
    pad: Shape = (),
) -> Tensor:
    """The pooling operator of model files before 1.0, for (N, C, H, W) data.

    It differs from Pooling at the border: padding takes part as zeros in a maximum too, and an average always
    divides by the kernel's area.
    """
    attrs: dict[str, Any] = {"kernel": kernel, "stride": stride, "pad": pad}
    if global_pool:
        return _global_pool(data, pool_type, 1)
    kernel, stride, pad = _checked(data.shape, attrs, "Pooling_v1")
    sizes = _output_sizes(data.shape[2:], kernel, stride, pad, pooling_convention)
    padded = (
        functional.pad(data, [amount for side in reversed(pad) for amount in (side, side)])
        if any(pad)
        else data
    )
    lowest = torch.finfo(data.dtype).min if pool_type == "max" else 0.0
    amounts: list[int] = []
    for i in reversed(range(len(kernel))):
        amounts += [0, (sizes[i] - 1) * stride[i] + kernel[i] - padded.shape[2 + i]]
    padded = functional.pad(padded, amounts, value=lowest) if any(amounts) else padded
    if pool_type == "max":
        return _MAX_POOLS[len(kernel) - 1](padded, kernel, stride)
    average = _AVERAGE_POOLS[len(kernel) - 1](padded, kernel, stride)
    return average * prod(kernel) if pool_type == "sum" else average


def _adaptive_size(output_size: Sequence[int] | None) -> tuple[int, int]:
    if not output_size:
        return 1, 1
    if len(output_size) > 2:
        raise MXNetError(
            f"AdaptiveAvgPooling2D: output_size expects one or two values, received {tuple(output_size)}"
        )
    return output_size[0], output_size[-1]


def _infer_adaptive(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data = specs[0]
    return [Spec((*data.shape[:2], *_adaptive_size(attrs["output_size"])), data.dtype)]


@operator("_contrib_AdaptiveAvgPooling2D", infer=_infer_adaptive)
def adaptive_average_pooling(
    data: Tensor,
    *,
    kernel: Shape = (),
    pool_type: PoolType = "max",
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: Convention = "valid",
    stride: Shape = (),
    pad: Shape = (),
    p_value: int | None = None,
    count_include_pad: bool | None = None,
    layout: Layout | None = None,
    output_size: Shape | None = None,
) -> Tensor:
    """Average (N, C, H, W) down to (N, C, *output_size); one value means a square, none means (1, 1).

    Output row i averages input rows ``floor(i H / h)`` to ``ceil((i+1) H / h)``. The other parameters belong
    to Pooling and have no effect here.
    """
    if data.dim() != 4:
        raise MXNetError(
            "AdaptiveAvgPooling2D: expected data of 4 dimensions (N, C, H, W), received shape "
            f"{tuple(data.shape)}"
        )
    return functional.adaptive_avg_pool2d(data, _adaptive_size(output_size))
