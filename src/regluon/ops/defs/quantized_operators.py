"""Layers and functions on quantized values: integers, and the range of real values that they stand for.

What a quantized value is, and its steps, is in `quantization`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.defs.convolution import Layout, _infer_convolution, convolution
from regluon.ops.defs.dense import fully_connected
from regluon.ops.defs.index import as_index
from regluon.ops.defs.pooling import _infer_pooling, pooling
from regluon.ops.defs.quantization import (
    _LARGEST,
    _ONE,
    _WHOLE,
    _check,
    _larger,
    _real,
    _scalar,
    quantum,
    rounded,
    whole,
)
from regluon.ops.opdef import Shape, Spec, operator

__all__: list[str] = []

Attrs = dict[str, Any]
# Every operator here gives a quantized value.
_operator = partial(operator, outputs=3, output_names=("output", "min_output", "max_output"), gradient="zero")

# Layers on integers -----------------------------------------------------------------------------


def _product_range(data: Tensor, weight: Tensor, ends: tuple[Tensor, ...]) -> Tensor:
    """The real value of the largest int32 of a product."""
    steps = _larger(ends[0], ends[1]) / _WHOLE[data.dtype] * _larger(ends[2], ends[3]) / _WHOLE[weight.dtype]
    return steps * _LARGEST[torch.int32]


def _completed(
    total: Tensor, data: Tensor, weight: Tensor, bias: Tensor | None, ends: tuple[Tensor, ...], axis: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The exact sum with a quantized bias, in the steps of the sum, and the ends of its range."""
    largest = _product_range(data, weight, ends)
    if bias is not None:
        step = quantum(ends[0], ends[1], data.dtype) * _larger(ends[2], ends[3]) / 127
        own = (bias.double() * _larger(ends[4], ends[5]) / 127 / step).round()
        shape = [1] * total.dim()
        shape[axis] = -1
        total = total.double() + own.reshape(shape)
    return rounded(total.double(), torch.int32), _scalar(-largest, data), _scalar(largest, data)


_CONV_INPUTS = "data weight bias min_data max_data min_weight max_weight min_bias max_bias".split()
_WITHOUT_BIAS = [name for name in _CONV_INPUTS if "bias" not in name]


def _active(attrs: Attrs) -> list[str]:
    return _WITHOUT_BIAS if attrs["no_bias"] else _CONV_INPUTS


def _checked(
    name: str, data: Tensor, weight: Tensor, no_bias: bool, given: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, tuple[Tensor, ...]]:
    """The bias and the ends of the ranges among the inputs after the weight.

    Raises
    ------
    MXNetError
        If inputs are missing, or of other types.
    """
    found = [value for value in given if value is not None]
    expected = 4 if no_bias else 7
    if len(found) != expected:
        wanted = ", ".join(_active({"no_bias": no_bias}))
        raise MXNetError(f"{name}: expected the inputs {wanted}; received {len(found) + 2} inputs")
    _check(name, data, torch.int8, torch.uint8)
    _check(f"{name}: weight", weight, torch.int8)
    return (None, tuple(found)) if no_bias else (found[0], tuple(found[1:]))


def _infer_conv(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    real = [Spec(spec.shape, torch.float32) for spec in specs[:2]]
    return [Spec(_infer_convolution(real, attrs)[0].shape, torch.int32), _ONE, _ONE]


@_operator(
    "_contrib_quantized_conv",
    aliases=("_npx_quantized_conv",),
    npx="quantized_conv",
    active=_active,
    infer=_infer_conv,
)
def quantized_conv(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    min_data: Tensor | None = None,
    max_data: Tensor | None = None,
    min_weight: Tensor | None = None,
    max_weight: Tensor | None = None,
    min_bias: Tensor | None = None,
    max_bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    cudnn_tune: Literal["fastest", "limited_workspace", "off"] | None = None,
    cudnn_off: bool = False,
    layout: Layout | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Convolution of int8 or uint8 data with int8 filters: exact int32 sums and the ends of their range.

    Shapes as in Convolution. A quantized bias is brought to the steps of the sums. workspace and the cudnn
    options have no effect.
    """
    del workspace, cudnn_tune, cudnn_off
    given = (bias, min_data, max_data, min_weight, max_weight, min_bias, max_bias)
    bias, ends = _checked("quantized_conv", data, weight, no_bias, given)
    left, right = whole(weight[0].numel(), data, weight)
    total = convolution(
        left, right, kernel=kernel, stride=stride, dilate=dilate, pad=pad, num_filter=num_filter,
        num_group=num_group, no_bias=True, layout=layout,
    )  # fmt: skip
    axis = 1 if layout is None or layout[1] == "C" else -1
    return _completed(total, data, weight, bias, ends, axis)


def _infer_dense(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    lead = shape[:1] if attrs["flatten"] else shape[:-1]
    return [Spec((*lead, attrs["num_hidden"]), torch.int32), _ONE, _ONE]


@_operator(
    "_contrib_quantized_fully_connected",
    aliases=("_npx_quantized_fully_connected",),
    npx="quantized_fully_connected",
    active=_active,
    infer=_infer_dense,
)
def quantized_fully_connected(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    min_data: Tensor | None = None,
    max_data: Tensor | None = None,
    min_weight: Tensor | None = None,
    max_weight: Tensor | None = None,
    min_bias: Tensor | None = None,
    max_bias: Tensor | None = None,
    *,
    num_hidden: int,
    no_bias: bool = False,
    flatten: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """``data weight^T + bias`` of int8 or uint8 data: exact int32 sums and the ends of their range.

    Shapes as in FullyConnected. A quantized bias is brought to the steps of the sums.
    """
    given = (bias, min_data, max_data, min_weight, max_weight, min_bias, max_bias)
    bias, ends = _checked("quantized_fully_connected", data, weight, no_bias, given)
    left, right = whole(weight.shape[-1], data, weight)
    total = fully_connected(left, right, num_hidden=num_hidden, no_bias=True, flatten=flatten)
    return _completed(total, data, weight, bias, ends, -1)


@_operator(
    "_contrib_quantized_embedding",
    aliases=("_npx_quantized_embedding",),
    npx="quantized_embedding",
    infer=lambda specs, attrs: [
        Spec((*specs[0].shape, attrs["output_dim"]), specs[1].dtype), _ONE, _ONE
    ],
)  # fmt: skip
def quantized_embedding(
    data: Tensor,
    weight: Tensor,
    min_weight: Tensor,
    max_weight: Tensor,
    *,
    input_dim: int,
    output_dim: int,
    dtype: str = "float32",
    sparse_grad: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of an int8 table, with the table's range. Indices outside are clipped."""
    del dtype, sparse_grad
    _check("quantized_embedding: weight", weight, torch.int8, torch.uint8)
    if tuple(weight.shape) != (input_dim, output_dim):
        raise MXNetError(
            f"quantized_embedding: the weight is to be ({input_dim}, {output_dim}); received "
            f"{tuple(weight.shape)}"
        )
    rows = as_index(data).clamp(0, input_dim - 1)
    return weight[rows], _scalar(min_weight, data), _scalar(max_weight, data)


# Operators that keep the range ------------------------------------------------------------------


def _kept(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    return [specs[0], _ONE, _ONE]


@_operator(
    "_contrib_quantized_act",
    aliases=("_npx_quantized_act",),
    npx="quantized_act",
    infer=_kept,
)
def quantized_act(
    data: Tensor,
    min_data: Tensor,
    max_data: Tensor,
    *,
    act_type: Literal["log_sigmoid", "mish", "relu", "sigmoid", "softrelu", "softsign", "tanh"],
) -> tuple[Tensor, Tensor, Tensor]:
    """relu of int8 or uint8 data; the range stays. Other activations are refused."""
    _check("quantized_act", data, torch.int8, torch.uint8)
    if act_type != "relu":
        raise MXNetError(
            f"quantized_act: integers go through relu only; received act_type={act_type!r}. Dequantize before"
        )
    return data.clamp(min=0), _scalar(min_data, data), _scalar(max_data, data)


def _infer_pool(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    found = _infer_pooling([Spec(specs[0].shape, torch.float32)], {**attrs, "output_size": None})
    return [Spec(found[0].shape, specs[0].dtype), _ONE, _ONE]


@_operator(
    "_contrib_quantized_pooling",
    aliases=("_npx_quantized_pooling",),
    npx="quantized_pooling",
    infer=_infer_pool,
)
def quantized_pooling(
    data: Tensor,
    min_data: Tensor,
    max_data: Tensor,
    *,
    kernel: Shape = (),
    pool_type: Literal["avg", "lp", "max", "sum"] = "max",
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: Literal["full", "same", "valid"] = "valid",
    stride: Shape = (),
    pad: Shape = (),
    p_value: int | None = None,
    count_include_pad: bool | None = None,
    layout: Layout | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Pooling of int8 or uint8 data, ``max`` or ``avg`` (rounded to the nearest); the range stays."""
    del cudnn_off, p_value
    _check("quantized_pooling", data, torch.int8, torch.uint8)
    if pool_type not in ("max", "avg"):
        raise MXNetError(f"quantized_pooling: pool_type is max or avg; received {pool_type!r}")
    result = pooling(
        data.float(), kernel=kernel, pool_type=pool_type, global_pool=global_pool,
        pooling_convention=pooling_convention, stride=stride, pad=pad, count_include_pad=count_include_pad,
        layout=layout,
    )  # fmt: skip
    return rounded(result, data.dtype), _scalar(min_data, data), _scalar(max_data, data)


def _flattened(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    width: Any = 1
    for size in shape[1:]:
        width = width * size
    return [Spec((shape[0], width), specs[0].dtype), _ONE, _ONE]


@_operator(
    "_contrib_quantized_flatten",
    aliases=("_npx_quantized_flatten",),
    npx="quantized_flatten",
    infer=_flattened,
)
def quantized_flatten(data: Tensor, min_data: Tensor, max_data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(N, ...) as (N, D); integers and range stay."""
    _check("quantized_flatten", data, torch.int8, torch.uint8)
    flat = data.reshape(data.shape[0], math.prod(data.shape[1:]))
    return flat.clone(), _scalar(min_data, data), _scalar(max_data, data)


def _shaped(rule: Any) -> Any:
    return lambda specs, attrs: [Spec(rule(specs[0].shape, attrs), specs[0].dtype), _ONE, _ONE]


def _reshape_rule(shape: Any, attrs: Attrs) -> Any:
    return shaping.legacy_reshape(shape, attrs["shape"], attrs["reverse"])


@_operator(
    "_contrib_quantized_reshape",
    aliases=("quantized_reshape",),
    infer=_shaped(_reshape_rule),
)
def quantized_reshape(
    data: Tensor, min_data: Tensor, max_data: Tensor, *, shape: Shape = (), reverse: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """A new shape, by the codes of Reshape; integers and range stay."""
    target = _reshape_rule(tuple(data.shape), {"shape": shape, "reverse": reverse})
    return data.reshape(target).clone(), _scalar(min_data, data), _scalar(max_data, data)


def _npx_reshape_rule(shape: Any, attrs: Attrs) -> Any:
    return shaping.npx_reshape(shape, attrs["newshape"], attrs["reverse"])


@_operator(
    "_npx_quantized_reshape",
    npx="quantized_reshape",
    infer=_shaped(_npx_reshape_rule),
)
def npx_quantized_reshape(
    data: Tensor,
    min_data: Tensor,
    max_data: Tensor,
    *,
    newshape: Shape,
    reverse: bool = False,
    order: Literal["C"] = "C",
) -> tuple[Tensor, Tensor, Tensor]:
    """A new shape, by the codes of npx.reshape; integers and range stay."""
    del order
    target = _npx_reshape_rule(tuple(data.shape), {"newshape": newshape, "reverse": reverse})
    return data.reshape(target).clone(), _scalar(min_data, data), _scalar(max_data, data)


def _transpose_rule(shape: Any, attrs: Attrs) -> Any:
    return tuple(shape[axis] for axis in shaping.permutation(attrs["axes"] or None, len(shape)))


@_operator(
    "_contrib_quantized_transpose",
    aliases=("_npx_quantized_transpose", "quantized_transpose"),
    npx="quantized_transpose",
    infer=_shaped(_transpose_rule),
)
def quantized_transpose(
    data: Tensor, min_data: Tensor, max_data: Tensor, *, axes: Shape | None = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """The axes in another order, reversed by default; integers and range stay."""
    turned = data.permute(shaping.permutation(axes or None, data.dim())).contiguous()
    return turned, _scalar(min_data, data), _scalar(max_data, data)


# Operators that change the range ----------------------------------------------------------------


def _calibrated(name: str, low: float | None, high: float | None) -> bool:
    if (low is None) != (high is None):
        raise MXNetError(f"{name}: give both min_calib_range and max_calib_range, or neither")
    return low is not None


def _sum_type(specs: list[Spec], attrs: Attrs) -> torch.dtype:
    if attrs["min_calib_range"] is None:
        return torch.int32
    return torch.uint8 if specs[0].dtype == specs[1].dtype == torch.uint8 else torch.int8


@_operator(
    "_contrib_quantized_elemwise_add",
    aliases=("_npx_quantized_elemwise_add",),
    npx="quantized_elemwise_add",
    infer=lambda specs, attrs: [Spec(specs[0].shape, _sum_type(specs, attrs)), _ONE, _ONE],
)
def quantized_elemwise_add(
    lhs: Tensor,
    rhs: Tensor,
    lhs_min: Tensor,
    lhs_max: Tensor,
    rhs_min: Tensor,
    rhs_max: Tensor,
    *,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of two quantized values: int32, or with a calibrated range 8 bits (uint8 where both are)."""
    known = _calibrated("quantized_elemwise_add", min_calib_range, max_calib_range)
    _check("quantized_elemwise_add", lhs, torch.int8, torch.uint8)
    _check("quantized_elemwise_add", rhs, torch.int8, torch.uint8)
    total = _real(lhs, lhs_min, lhs_max) + _real(rhs, rhs_min, rhs_max)
    dtype = torch.int32
    if known:
        low, high = _scalar(min_calib_range, lhs), _scalar(max_calib_range, lhs)  # type: ignore[arg-type]
        dtype = torch.uint8 if lhs.dtype == rhs.dtype == torch.uint8 else torch.int8
    else:
        high = _scalar(_larger(lhs_min, lhs_max) + _larger(rhs_min, rhs_max), lhs)
        low = -high
    return rounded(total / quantum(low, high, dtype), dtype), low, high


def _product_type(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    if attrs["enable_float_output"]:
        return [Spec(specs[0].shape, torch.float32)]
    calibrated = attrs["min_calib_range"] is not None
    return [Spec(specs[0].shape, torch.int8 if calibrated else torch.int32), _ONE, _ONE]


@operator(
    "_contrib_quantized_elemwise_mul",
    aliases=("_npx_quantized_elemwise_mul",),
    npx="quantized_elemwise_mul",
    outputs=lambda attrs: 1 if attrs["enable_float_output"] else 3,
    gradient="zero",
    infer=_product_type,
)
def quantized_elemwise_mul(
    lhs: Tensor,
    rhs: Tensor,
    lhs_min: Tensor,
    lhs_max: Tensor,
    rhs_min: Tensor,
    rhs_max: Tensor,
    *,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
    enable_float_output: bool = False,
) -> Any:
    """The product of two int8 values: int32, int8 with a calibrated range, or float32."""
    known = _calibrated("quantized_elemwise_mul", min_calib_range, max_calib_range)
    _check("quantized_elemwise_mul", lhs, torch.int8)
    _check("quantized_elemwise_mul", rhs, torch.int8)
    step = quantum(lhs_min, lhs_max, torch.int8) * quantum(rhs_min, rhs_max, torch.int8)
    product = lhs.to(torch.int32) * rhs
    if enable_float_output:
        return (product.double() * step).float()
    if known:
        low, high = _scalar(min_calib_range, lhs), _scalar(max_calib_range, lhs)  # type: ignore[arg-type]
        return rounded(product.double() * step / quantum(low, high, torch.int8), torch.int8), low, high
    largest = _product_range(lhs, rhs, (lhs_min, lhs_max, rhs_min, rhs_max))
    return product, _scalar(-largest, lhs), _scalar(largest, lhs)


def _concat_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    count = len(specs) // 3
    shape = list(specs[0].shape)
    axis = shaping.normalise_axis(attrs["dim"], len(shape))
    for spec in specs[1:count]:
        shape[axis] = shape[axis] + spec.shape[axis]
    signed = any(spec.dtype is torch.int8 for spec in specs[:count])
    return [Spec(tuple(shape), torch.int8 if signed else torch.uint8), _ONE, _ONE]


@_operator(
    "_contrib_quantized_concat",
    aliases=("_npx_quantized_concat",),
    npx="quantized_concat",
    num_args_key="num_args",
    infer=_concat_infer,
)
def quantized_concat(*data: Tensor, dim: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Join n quantized values along ``dim``: the n values, then the two ends of each range.

    The result is int8 if one of them is, and has the smallest range that holds all of theirs.
    """
    if not data or len(data) % 3:
        raise MXNetError(
            f"quantized_concat: expected n values and then 2 n ends of their ranges; received {len(data)}"
        )
    count = len(data) // 3
    values, lows, highs = data[:count], data[count::2], data[count + 1 :: 2]
    for value in values:
        _check("quantized_concat", value, torch.int8, torch.uint8)
    dtype = torch.int8 if any(value.dtype is torch.int8 for value in values) else torch.uint8
    low, high = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
    step = quantum(low, high, dtype)
    parts = [
        value
        if value.dtype is dtype and bool(_larger(low, high) == _larger(own_low, own_high))
        else rounded(_real(value, own_low, own_high) / step, dtype)
        for value, own_low, own_high in zip(values, lows, highs, strict=True)
    ]
    return torch.cat(parts, dim), _scalar(low, values[0]), _scalar(high, values[0])


@_operator(
    "_contrib_quantized_batch_norm",
    aux=("moving_mean", "moving_var"),
    infer=lambda specs, attrs: [Spec(specs[0].shape, torch.int8), _ONE, _ONE],
)
def quantized_batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    min_data: Tensor,
    max_data: Tensor,
    *,
    eps: float = 1e-3,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """BatchNorm of int8 data with the moving statistics, quantized to the calibrated range (needed)."""
    del momentum, use_global_stats, output_mean_var, cudnn_off
    if min_calib_range is None or max_calib_range is None:
        raise MXNetError("quantized_batch_norm: min_calib_range and max_calib_range are needed")
    _check("quantized_batch_norm", data, torch.int8)
    shape = [1] * data.dim()
    shape[axis] = -1
    scale = torch.rsqrt(moving_var.double() + eps)
    if not fix_gamma:
        scale = scale * gamma.double()
    shift = beta.double() - moving_mean.double() * scale
    real = _real(data, min_data, max_data) * scale.reshape(shape) + shift.reshape(shape)
    low, high = _scalar(min_calib_range, data), _scalar(max_calib_range, data)
    return rounded(real / quantum(low, high, torch.int8), torch.int8), low, high
