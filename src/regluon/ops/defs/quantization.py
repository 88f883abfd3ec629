"""Quantization: real values as 8-bit and 32-bit integers with the range that they stand for.

A quantized value is three tensors: integers, and the smallest and largest real value of the range, each of
one element. int8 and int32 are symmetric around zero and take the larger magnitude T of the two: a step is
``T / 127.5`` or ``T / (2^31 - 1)``. uint8 starts at zero: a step is ``T / 255.5``. In `quantize`,
`requantize` and the range of a product a step is ``T / 127`` or ``T / 255``. That, rounding and clipping are
what MXNet 1.9.1 and 2.0.0b1 compute with oneDNN.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.calibration import best_threshold
from regluon.ops.opdef import Spec, operator

__all__ = ["exact_sum_limit", "quantum", "rounded", "whole"]

Attrs = dict[str, Any]
Narrow = Literal["auto", "int8", "uint8"]

_LARGEST = {torch.int8: 127.5, torch.uint8: 255.5, torch.int32: float(2**31 - 1)}
_WHOLE = {torch.int8: 127.0, torch.uint8: 255.0}
_LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int32: (-(2**31) + 1, 2**31 - 1)}
_NARROW = {"int8": torch.int8, "uint8": torch.uint8}
_ONE = Spec((1,), torch.float32)
# float32 holds every integer below 2^24.
exact_sum_limit = 2**24


def _larger(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(low.abs(), high.abs()).double()


def quantum(low: Tensor, high: Tensor, dtype: torch.dtype) -> Tensor:
    """The real value of one step, float64, for a range and an integer type."""
    return _larger(low, high) / _LARGEST[dtype]


def rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Real numbers of steps as integers: to the nearest, ties to even, clipped to what the type holds.

    What is no number becomes the lowest, as in the kernels of compiled graphs.
    """
    low, high = _LIMITS[dtype]
    return values.round().clamp(low, high).nan_to_num(low).to(dtype)


def _real(data: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The real values of a quantized value, float64. More than one range: one for each place of axis 0."""
    step = quantum(low, high, data.dtype)
    if step.numel() > 1:
        step = step.reshape(-1, *[1] * (data.dim() - 1))
    return data.double() * step


def _check(name: str, data: Tensor, *types: torch.dtype) -> None:
    if data.dtype not in types:
        expected = " or ".join(str(each).removeprefix("torch.") for each in types)
        raise MXNetError(
            f"{name}: the data are to be {expected}; received {str(data.dtype).removeprefix('torch.')}. "
            "Quantize them first: mx.nd.contrib.quantize_v2(data)"
        )


def _scalar(value: float | Tensor, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value.reshape(1).to(torch.float32)
    return torch.full((1,), value, dtype=torch.float32, device=like.device)


def _chosen(name: str, out_type: str, low: float | None, high: float | None) -> torch.dtype:
    """The type for ``auto``: uint8 where the calibrated range has no negative value."""
    if (low is None) != (high is None):
        raise MXNetError(f"{name}: give both min_calib_range and max_calib_range, or neither")
    if out_type == "auto":
        return torch.uint8 if low is not None and low >= 0 else torch.int8
    return _NARROW[out_type]


def whole(terms: int, data: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Integers in a floating type that adds ``terms`` products of 8-bit integers without an error."""
    dtype = torch.float32 if terms * 255 * 128 < exact_sum_limit else torch.float64
    return tuple(value.to(dtype) for value in (data, *weights))


# Between real and integer values ----------------------------------------------------------------


@operator(
    "_contrib_quantize",
    aliases=("_npx_contrib_quantize",),
    outputs=3,
    gradient="zero",
    infer=lambda specs, attrs: [Spec(specs[0].shape, _NARROW[attrs["out_type"]]), _ONE, _ONE],
)
def quantize(
    data: Tensor, min_range: Tensor, max_range: Tensor, *, out_type: Literal["int8", "uint8"] = "uint8"
) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize real data with a given range: (integers, low end, high end), the ends (1,) float32.

    Values outside are clipped. For uint8, negative values become 0. Steps are ``T / 127`` or ``T / 255``.
    """
    dtype = _NARROW[out_type]
    _check("quantize", data, torch.float32)
    step = _larger(min_range, max_range) / _WHOLE[dtype]
    result = rounded(data.double() / step, dtype)
    if dtype is torch.uint8:
        return result, _scalar(min_range, data), _scalar(max_range, data)
    largest = _larger(min_range, max_range)
    return result, _scalar(-largest, data), _scalar(largest, data)


def _quantize_v2_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    dtype = specs[0].dtype
    if dtype not in (torch.int8, torch.uint8):
        dtype = _chosen("quantize_v2", attrs["out_type"], attrs["min_calib_range"], attrs["max_calib_range"])
    return [Spec(specs[0].shape, dtype), _ONE, _ONE]


@operator(
    "_contrib_quantize_v2",
    aliases=("_npx_contrib_quantize_v2",),
    outputs=3,
    gradient="zero",
    infer=_quantize_v2_infer,
)
def quantize_v2(
    data: Tensor,
    *,
    out_type: Narrow = "int8",
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize real data: (integers, low end, high end of the range), the ends of shape (1,).

    Without a calibrated range it is taken from the data. Values outside are clipped; for uint8, negative
    ones become 0. ``auto`` is uint8 where the calibrated range has no negative value, else int8. Integers go
    through unchanged.
    """
    if data.dtype in (torch.int8, torch.uint8):
        end = 127.5 if data.dtype is torch.int8 else 255.5
        return data.clone(), _scalar(-end if data.dtype is torch.int8 else 0.0, data), _scalar(end, data)
    _check("quantize_v2", data, torch.float32)
    dtype = _chosen("quantize_v2", out_type, min_calib_range, max_calib_range)
    if min_calib_range is None or max_calib_range is None:
        low, high = data.amin().reshape(1), data.amax().reshape(1)
    else:
        low, high = _scalar(min_calib_range, data), _scalar(max_calib_range, data)
    step = quantum(low, high, dtype)
    result = rounded(data.double() / torch.where(step > 0, step, 1.0), dtype)
    if dtype is torch.int8:
        largest = _larger(low, high)
        low, high = -largest, largest
    return result, _scalar(low, data), _scalar(high, data)


@operator(
    "_contrib_dequantize",
    gradient="zero",
    infer=lambda specs, attrs: [Spec(specs[0].shape, torch.float32)],
)
def dequantize(
    data: Tensor, min_range: Tensor, max_range: Tensor, *, out_type: Literal["float32"] = "float32"
) -> Tensor:
    """The real values, float32, of int8 or uint8 integers with their range.

    A range of n elements belongs to the n places of axis 0, one each: so weights are kept, a range a filter.
    """
    del out_type
    _check("dequantize", data, torch.int8, torch.uint8)
    if min_range.numel() not in (1, *data.shape[:1]):
        raise MXNetError(
            f"dequantize: the range has {min_range.numel()} elements; expected 1, or one for each place of "
            f"axis 0 of {tuple(data.shape)}"
        )
    return _real(data, min_range, max_range).float()


@operator(
    "_contrib_requantize",
    aliases=("_npx_requantize",),
    npx="requantize",
    outputs=3,
    gradient="zero",
    infer=lambda specs, attrs: [
        Spec(
            specs[0].shape,
            _chosen("requantize", attrs["out_type"], attrs["min_calib_range"], attrs["max_calib_range"]),
        ),
        _ONE,
        _ONE,
    ],
)
def requantize(
    data: Tensor,
    min_range: Tensor,
    max_range: Tensor,
    *,
    out_type: Narrow = "int8",
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """int32 with its range as int8 or uint8: (integers, low end, high end of the range).

    Without a calibrated range it is that of the data. The range of uint8 starts at 0.
    """
    _check("requantize", data, torch.int32)
    dtype = _chosen("requantize", out_type, min_calib_range, max_calib_range)
    real = _real(data, min_range, max_range)
    if min_calib_range is None or max_calib_range is None:
        largest = real.abs().amax().reshape(1)
    else:
        largest = _larger(_scalar(min_calib_range, data), _scalar(max_calib_range, data))
    step = largest / _WHOLE[dtype]
    result = rounded(real / torch.where(step > 0, step, 1.0), dtype)
    low = -largest if dtype is torch.int8 else torch.zeros_like(largest)
    return result, _scalar(low, data), _scalar(largest, data)


# Calibration --------------------------------------------------------------------------------------


@operator(
    "_contrib_calibrate_entropy",
    aliases=("_npx_contrib_calibrate_entropy",),
    outputs=2,
    output_names=("threshold", "divergence"),
    gradient="zero",
    infer=lambda specs, attrs: [_ONE, _ONE],
)
def calibrate_entropy(
    hist: Tensor, hist_edges: Tensor, *, num_quantized_bins: int = 255
) -> tuple[Tensor, Tensor]:
    """The threshold (1,) that loses least when values are clipped at it, and the loss (1,).

    ``hist`` counts values in an odd number of equal bins around zero with ``hist_edges`` between them. The
    loss is the Kullback-Leibler divergence between the clipped distribution and its quantized form in
    ``num_quantized_bins`` steps.
    """
    if hist.device.type == "meta":
        return hist.new_empty(1), hist.new_empty(1)
    bins = hist.numel()
    if bins % 2 == 0 or hist_edges.numel() != bins + 1 or bins < num_quantized_bins:
        raise MXNetError(
            f"calibrate_entropy: expected an odd number of bins, at least {num_quantized_bins}, and one edge "
            f"more than bins; received {bins} bins and {hist_edges.numel()} edges"
        )
    threshold, loss = best_threshold(
        hist.double().cpu().numpy(), hist_edges.cpu().numpy(), num_quantized_bins
    )
    return _scalar(float(threshold), hist), _scalar(float(loss), hist)
