"""Products of 8-bit integer matrices with floating scales.

A weight is kept row by row as it is: the arrangement of the originals depends on the processor and is only
good for their own product.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import Spec, operator

Attrs = dict[str, Any]


@operator(
    "_contrib_intgemm_maxabsolute",
    aliases=("_npx_intgemm_maxabsolute",),
    npx="intgemm_maxabsolute",
    gradient="zero",
    infer=lambda specs, attrs: [Spec((1,), torch.float32)],
)
def max_absolute(data: Tensor) -> Tensor:
    """The largest absolute value, (1,) float32: the scale with which data become 8-bit integers."""
    if data.numel() == 0:
        raise MXNetError(f"intgemm_maxabsolute: expected at least one element; received {tuple(data.shape)}")
    return data.to(torch.float32).abs().amax().reshape(1)


def _quantized(data: Tensor, maxabs: Tensor, name: str) -> Tensor:
    if maxabs.numel() != 1:
        raise MXNetError(f"{name}: maxabs expects one number; received {tuple(maxabs.shape)}")
    scaled = data.to(torch.float32) * (127.0 / maxabs.to(torch.float32).reshape(()))
    return torch.round(scaled).clamp(-127, 127).to(torch.int8)


@operator(
    "_contrib_intgemm_prepare_data",
    aliases=("_npx_intgemm_prepare_data",),
    npx="intgemm_prepare_data",
    gradient="zero",
    infer=lambda specs, attrs: [Spec(specs[0].shape, torch.int8)],
)
def prepare_data(data: Tensor, maxabs: Tensor) -> Tensor:
    """Data as int8: 127 stands for ``maxabs`` (1,); halves go to the even neighbour."""
    return _quantized(data, maxabs, "intgemm_prepare_data")


@operator(
    "_contrib_intgemm_prepare_weight",
    aliases=("_npx_intgemm_prepare_weight",),
    npx="intgemm_prepare_weight",
    gradient="zero",
    active=lambda attrs: 1 if attrs["already_quantized"] else 2,
    infer=lambda specs, attrs: [Spec(specs[0].shape, torch.int8)],
)
def prepare_weight(
    weight: Tensor, maxabs: Tensor | None = None, *, already_quantized: bool = False
) -> Tensor:
    """A weight (rows, columns) as int8, as `prepare_data` does; int8 as it is with ``already_quantized``."""
    if weight.dim() < 2:
        raise MXNetError(f"intgemm_prepare_weight: expected a matrix; received {tuple(weight.shape)}")
    if already_quantized:
        if weight.dtype != torch.int8:
            raise MXNetError(
                f"intgemm_prepare_weight: already_quantized expects int8; received {weight.dtype}"
            )
        return weight.clone()
    if maxabs is None:
        raise MXNetError("intgemm_prepare_weight: needs maxabs unless already_quantized is set")
    return _quantized(weight, maxabs, "intgemm_prepare_weight")


def _take_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    return [Spec((*specs[1].shape, *specs[0].shape[1:]), torch.int8)]


@operator(
    "_contrib_intgemm_take_weight",
    aliases=("_npx_intgemm_take_weight",),
    npx="intgemm_take_weight",
    gradient="zero",
    infer=_take_infer,
)
def take_weight(weight: Tensor, indices: Tensor) -> Tensor:
    """The rows ``indices`` of a prepared weight (rows, columns), for a short list of a vocabulary."""
    if weight.dtype != torch.int8:
        raise MXNetError(f"intgemm_take_weight: expected a prepared weight of int8; received {weight.dtype}")
    return weight[indices.to(torch.int64)]


def _dense_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    lead = (shape[0],) if attrs["flatten"] else tuple(shape[:-1])
    dtype = torch.float32 if attrs["out_type"] == "float32" else torch.int32
    return [Spec((*lead, attrs["num_hidden"]), dtype)]


def _dense_inputs(attrs: Attrs) -> list[str]:
    names = ["data", "weight"]
    if attrs["out_type"] == "float32":
        names.append("scaling")
    return names if attrs["no_bias"] else [*names, "bias"]


@operator(
    "_contrib_intgemm_fully_connected",
    aliases=("_npx_intgemm_fully_connected",),
    npx="intgemm_fully_connected",
    gradient="zero",
    active=_dense_inputs,
    infer=_dense_infer,
)
def fully_connected(
    data: Tensor,
    weight: Tensor,
    scaling: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    num_hidden: int,
    no_bias: bool = False,
    flatten: bool = True,
    out_type: Literal["float32", "int32"] = "float32",
) -> Tensor:
    """``data`` times the transposed prepared weight (num_hidden, columns), over 8-bit integers.

    Sums are whole numbers. With out_type="float32" they are multiplied by ``scaling`` (1,), usually
    maxabs(data) * maxabs(weight) / 127^2, and ``bias`` is added. Floating data become int8 by their largest
    absolute value first, and ``scaling`` leaves the data's part, maxabs(data) / 127, out.
    """
    name = "intgemm_fully_connected"
    rows = data.flatten(1) if flatten else data
    if weight.dtype != torch.int8 or weight.dim() != 2 or weight.shape != (num_hidden, rows.shape[-1]):
        raise MXNetError(
            f"{name}: expected a prepared weight ({num_hidden}, {rows.shape[-1]}) of int8; received "
            f"{tuple(weight.shape)} of {weight.dtype}"
        )
    if data.dtype != torch.int8:
        if out_type == "int32":
            raise MXNetError(f"{name}: out_type='int32' expects data of int8; received {data.dtype}")
        largest = max_absolute(data)
        rows = _quantized(rows, largest, name)
        scaling = largest / 127.0 if scaling is None else scaling * largest / 127.0
    if out_type == "int32":
        # The second place holds the bias where no scaling is in use.
        sums = torch.matmul(rows.to(torch.int32), weight.t().to(torch.int32))
        return sums if bias is None or no_bias else sums + bias.to(torch.int32)
    # Sums of float64 are exact: far below 2^53.
    sums = torch.matmul(rows.to(torch.float64), weight.t().to(torch.float64))
    factor = 1.0 if scaling is None else scaling.to(torch.float64).reshape(())
    result = sums * factor
    return (result if bias is None or no_bias else result + bias).to(torch.float32)
