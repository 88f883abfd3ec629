"""Activations, softmax family and dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.defs.nn_shapes import complete, dimension, normal_axis
from regluon.ops.opdef import Shape, Spec, operator


def _infer_same(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(specs[0].shape, specs[0].dtype)]


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softrelu": functional.softplus,
    "softsign": functional.softsign,
    "log_sigmoid": functional.logsigmoid,
    "mish": functional.mish,
}


@operator("Activation", aliases=("_npx_activation",), npx="activation", infer=_infer_same)
def activation(
    data: Tensor,
    *,
    act_type: Literal["relu", "sigmoid", "tanh", "softrelu", "softsign", "log_sigmoid", "mish"],
) -> Tensor:
    """Apply an activation element by element: relu ``max(x, 0)``, sigmoid ``1/(1+e^-x)``, tanh, softrelu
    ``log(1+e^x)``, softsign ``x/(1+|x|)``, log_sigmoid, mish ``x tanh(log(1+e^x))`` (Misra 2019)."""
    return _ACTIVATIONS[act_type](data)


_LeakyType = Literal["elu", "gelu", "leaky", "prelu", "rrelu", "selu"]


def _fill_leaky(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    if len(shapes) < 2:
        return shapes
    data = shapes[0]
    channels = dimension(data, 1 if data is not None and len(data) > 1 else 0)
    return [data, complete(shapes[1], (channels,))]


def _random_slope(data: Tensor, low: float, high: float, generator: torch.Generator | None) -> Tensor:
    noise = torch.rand(data.shape, dtype=torch.float32, device=data.device, generator=generator)
    return (noise * (high - low) + low).to(data.dtype)


def _leaky_outputs(attrs: dict[str, Any]) -> int:
    """The random rectifier also gives its slopes."""
    return 2 if attrs["act_type"] == "rrelu" else 1


def _infer_leaky(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [specs[0]] * _leaky_outputs(attrs)


def _prelu(data: Tensor, gamma: Tensor) -> Tensor:
    slopes = gamma.reshape(-1)
    if data.dim() > 2 and slopes.shape[0] != 1:
        slopes = slopes.reshape(-1, *(1,) * (data.dim() - 2))
    return torch.where(data > 0, data, slopes * data)


@operator(
    "LeakyReLU",
    aliases=("_npx_leaky_relu",),
    npx="leaky_relu",
    active=lambda attrs: 2 if attrs["act_type"] == "prelu" else 1,
    fill=_fill_leaky,
    infer=_infer_leaky,
    outputs=_leaky_outputs,
    output_names=("output", "mask"),
)
def leaky_relu(
    data: Tensor,
    gamma: Tensor | None = None,
    *,
    act_type: _LeakyType = "leaky",
    slope: float = 0.25,
    lower_bound: float = 0.125,
    upper_bound: float = 0.333999991,
    _training: bool = False,
    _rng: torch.Generator | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Rectifiers with a non-zero negative side, element by element.

    leaky ``slope x``; prelu ``gamma x`` with one gamma per channel (axis 1) or a single one; elu
    ``slope (e^x - 1)`` (Clevert et al. 2015); selu (Klambauer et al. 2017); gelu ``x Phi(x)`` (Hendrycks and
    Gimpel 2016); rrelu a slope drawn from U(lower_bound, upper_bound) in training, their mean otherwise.
    """
    if act_type == "leaky":
        return functional.leaky_relu(data, slope)
    if act_type == "gelu":
        return functional.gelu(data)
    if act_type == "elu":
        return functional.elu(data, slope)
    if act_type == "selu":
        return functional.selu(data)
    if act_type == "prelu":
        if gamma is None:
            raise MXNetError(
                "LeakyReLU: act_type='prelu' expects a second input gamma, received none; pass gamma"
            )
        return _prelu(data, gamma)
    if _training:
        slopes = _random_slope(data, lower_bound, upper_bound, _rng)
    else:
        slopes = torch.full_like(data, (lower_bound + upper_bound) / 2)
    mask = torch.where(data > 0, torch.ones_like(data), slopes)
    return data * mask, mask


_SoftmaxType = Literal["float16", "float32", "float64"]
_SOFTMAX_TYPES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


def _infer_softmax(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data = specs[0]
    normal_axis(attrs["axis"], len(data.shape), "softmax")
    return [Spec(data.shape, _softmax_type(data.dtype, attrs.get("dtype")))]


def _softmax_type(data: torch.dtype, wanted: str | None) -> torch.dtype:
    if wanted is not None:
        return _SOFTMAX_TYPES[wanted]
    return data if data.is_floating_point else torch.float32


def _scaled(data: Tensor, temperature: float | None) -> Tensor:
    return data if temperature is None or temperature == 1.0 else data / temperature


def _length_mask(data: Tensor, length: Tensor, axis: int) -> Tensor:
    """True at positions along ``axis`` that come before ``length`` (data's shape without that axis)."""
    view = [1] * data.dim()
    view[axis] = data.shape[axis]
    positions = torch.arange(data.shape[axis], device=data.device).view(view)
    return positions < length.unsqueeze(axis)


def _masked_softmax(data: Tensor, mask: Tensor, axis: int, dtype: torch.dtype) -> Tensor:
    # A finite fill keeps rows without any valid entry free of NaN; the outer where makes them zero.
    lowest = torch.finfo(data.dtype).min
    weights = torch.softmax(torch.where(mask, data, lowest), axis, dtype=dtype)
    return torch.where(mask, weights, 0.0)


@operator(
    "softmax",
    aliases=("_npx_softmax",),
    npx="softmax",
    active=lambda attrs: 2 if attrs["use_length"] else 1,
    infer=_infer_softmax,
    amp="float32",
)
def softmax(
    data: Tensor,
    length: Tensor | None = None,
    *,
    axis: int = -1,
    temperature: float | None = None,
    dtype: _SoftmaxType | None = None,
    use_length: bool = False,
) -> Tensor:
    """``exp(x/t) / sum(exp(x/t))`` along ``axis``.

    With ``use_length``, ``length`` (data's shape without ``axis``) says how many leading entries count; the
    others become zero.  Raises MXNetError for an axis outside the data.
    """
    axis = normal_axis(axis, data.dim(), "softmax")
    if dtype is None and data.is_floating_point() and not use_length:
        return torch.softmax(_scaled(data, temperature), axis)
    result_type = _softmax_type(data.dtype, dtype)
    if not data.is_floating_point():
        data = data.to(result_type)
    if use_length and length is not None:
        return _masked_softmax(
            _scaled(data, temperature), _length_mask(data, length, axis), axis, result_type
        )
    return torch.softmax(_scaled(data, temperature), axis, dtype=result_type)


@operator("softmin", infer=_infer_softmax, amp="float32")
def softmin(
    data: Tensor,
    *,
    axis: int = -1,
    temperature: float | None = None,
    dtype: _SoftmaxType | None = None,
    use_length: bool = False,
) -> Tensor:
    """``exp(-x/t) / sum(exp(-x/t))`` along ``axis``."""
    axis = normal_axis(axis, data.dim(), "softmin")
    result_type = _softmax_type(data.dtype, dtype)
    return torch.softmax(_scaled(-data, temperature), axis, dtype=result_type)


@operator(
    "log_softmax", aliases=("_npx_log_softmax",), npx="log_softmax", infer=_infer_softmax, amp="float32"
)
def log_softmax(
    data: Tensor,
    *,
    axis: int = -1,
    temperature: float | None = None,
    dtype: _SoftmaxType | None = None,
    use_length: bool = False,
) -> Tensor:
    """Logarithm of softmax along ``axis``, computed without overflow."""
    axis = normal_axis(axis, data.dim(), "log_softmax")
    return torch.log_softmax(_scaled(data, temperature), axis, dtype=_softmax_type(data.dtype, dtype))


@operator(
    "masked_softmax", aliases=("_npx_masked_softmax",), npx="masked_softmax", infer=_infer_same, amp="float32"
)
def masked_softmax(
    data: Tensor,
    mask: Tensor,
    *,
    axis: int = -1,
    temperature: float | None = None,
    normalize: bool | None = True,
) -> Tensor:
    """Softmax over the entries whose boolean ``mask`` (broadcast to data) is true; the others become zero."""
    axis = normal_axis(axis, data.dim(), "masked_softmax")
    return _masked_softmax(_scaled(data, temperature), mask.to(torch.bool), axis, data.dtype)


@operator(
    "masked_log_softmax",
    aliases=("_npx_masked_log_softmax",),
    npx="masked_log_softmax",
    infer=_infer_same,
    amp="float32",
)
def masked_log_softmax(
    data: Tensor,
    mask: Tensor,
    *,
    axis: int = -1,
    temperature: float | None = None,
    normalize: bool | None = True,
) -> Tensor:
    """Log of the masked softmax; entries whose ``mask`` is false become minus infinity."""
    axis = normal_axis(axis, data.dim(), "masked_log_softmax")
    keep = mask.to(torch.bool)
    lowest = torch.finfo(data.dtype).min
    logs = torch.log_softmax(torch.where(keep, _scaled(data, temperature), lowest), axis)
    return torch.where(keep, logs, float("-inf"))


@operator("SoftmaxActivation", infer=_infer_same, amp="float32")
def softmax_activation(data: Tensor, *, mode: Literal["instance", "channel"] = "instance") -> Tensor:
    """Softmax over the last axis (``instance``) or over axis 1 at each position (``channel``)."""
    return torch.softmax(data, 1 if mode == "channel" else -1)


@operator("Dropout", aliases=("_npx_dropout",), npx="dropout", infer=_infer_same)
def dropout(
    data: Tensor,
    *,
    p: float = 0.5,
    mode: Literal["training", "always"] = "training",
    axes: Shape = (),
    cudnn_off: bool | None = False,
    _training: bool = False,
    _rng: torch.Generator | None = None,
) -> Tensor:
    """Set a share ``p`` of the entries to zero and scale the others by ``1/(1-p)`` (Srivastava et al. 2014).

    Active in training, or always with ``mode="always"``. Along ``axes`` one draw is shared (the mask has size
    1 there). Raises MXNetError when p is outside [0, 1].
    """
    if not 0.0 <= p <= 1.0:
        raise MXNetError(f"Dropout: p must be a probability, 0 <= p <= 1; received {p}")
    if p == 0.0 or not (_training or mode == "always"):
        return data
    shape = list(data.shape)
    for axis in axes:
        shape[normal_axis(axis, data.dim(), "Dropout")] = 1
    if p == 1.0:
        return data * 0.0
    # Drawn in a fixed type and in logical order, so the mask depends neither on dtype nor on memory layout.
    mask = _kept(shape, 1.0 - p, data.device, _rng).mul_(1.0 / (1.0 - p))
    return data * mask.to(data.dtype)


def _kept(
    shape: Sequence[int], probability: float, device: torch.device, rng: torch.Generator | None
) -> Tensor:
    """Ones with this probability and zeros, in float32.

    On the CPU, comparing integers of 31 random bits takes less time than torch's ``bernoulli_``.
    """
    if device.type != "cpu":
        mask = torch.empty(shape, dtype=torch.float32, device=device)
        return mask.bernoulli_(probability, generator=rng)
    bits = torch.empty(shape, dtype=torch.int32).random_(generator=rng)
    return (bits < min(round(probability * 2**31), 2**31 - 1)).to(torch.float32)
