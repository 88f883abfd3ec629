"""Sorting operators: sort, argsort, topk."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.opdef import DType, Spec, operator

Attrs = dict[str, Any]


def _axis_and_data(data: Tensor, axis: int | None) -> tuple[Tensor, int]:
    if axis is None:
        return data.reshape(-1), 0
    return data, shaping.normalise_axis(axis, data.dim())


def _sorted_shape(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    if axis is not None:
        shaping.normalise_axis(axis, len(shape))
        return shape
    size = 1
    for dim in shape:
        size *= dim
    return (size,)


def _sort(data: Tensor, axis: int, ascending: bool) -> tuple[Tensor, Tensor]:
    """Sort stably; ties keep their order in both directions."""
    if data.dtype is torch.bool:
        values, order = data.to(torch.uint8).sort(dim=axis, descending=not ascending, stable=True)
        return values.to(torch.bool), order
    values, order = data.sort(dim=axis, descending=not ascending, stable=True)
    return values, order


@operator(
    "sort",
    aliases=("_npi_sort",),
    output_names=("output0",),  # of two in the originals: the second are the places
    infer=lambda specs, attrs: [Spec(_sorted_shape(specs[0].shape, attrs["axis"]), specs[0].dtype)],
)
def sort(data: Tensor, *, axis: int | None = -1, is_ascend: bool = True) -> Tensor:
    """Sort along ``axis``; None sorts the flattened array."""
    if data.dim() == 0:
        return data
    data, axis = _axis_and_data(data, axis)
    return _sort(data, axis, is_ascend)[0]


@operator(
    "argsort",
    amp="float32",
    aliases=("_npi_argsort",),
    gradient="zero",
    infer=lambda specs, attrs: [
        Spec(_sorted_shape(specs[0].shape, attrs["axis"]), attrs["dtype"] or torch.float32)
    ],
)
def argsort(
    data: Tensor, *, axis: int | None = -1, is_ascend: bool = True, dtype: DType | None = torch.float32
) -> Tensor:
    """Return the indices that sort along ``axis`` (None: the flattened array), as ``dtype``; ties keep their
    order."""
    chosen = dtype or torch.float32
    if data.dim() == 0:
        return torch.zeros((), dtype=chosen, device=data.device)
    data, axis = _axis_and_data(data, axis)
    return _sort(data, axis, is_ascend)[1].to(chosen)


def _count(k: int, size: int) -> int:
    """Number of elements asked for: all of them when k is 0."""
    if not 0 <= k <= size:
        raise MXNetError(f"topk: k must be between 0 (all) and {size}, the size of the axis; received k={k}")
    return k or size


def _topk_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    index_dtype = attrs["dtype"] or torch.float32
    flat = _sorted_shape(shape, attrs["axis"])
    axis = 0 if attrs["axis"] is None else shaping.normalise_axis(attrs["axis"], len(shape))
    count = _count(attrs["k"], flat[axis])
    if attrs["ret_typ"] == "mask":
        return [Spec(shape, specs[0].dtype)]
    result = (*flat[:axis], count, *flat[axis + 1 :])
    values, indices = Spec(result, specs[0].dtype), Spec(result, index_dtype)
    return {"value": [values], "indices": [indices], "both": [values, indices]}[attrs["ret_typ"]]


@operator(
    "topk",
    amp="float32",
    aliases=("_npx_topk",),
    npx="topk",
    outputs=lambda attrs: 2 if attrs["ret_typ"] == "both" else 1,
    infer=_topk_infer,
)
def topk(
    data: Tensor,
    *,
    axis: int | None = -1,
    k: int = 1,
    ret_typ: Literal["both", "indices", "mask", "value"] = "indices",
    is_ascend: bool = False,
    dtype: DType | None = torch.float32,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the ``k`` largest (``is_ascend``: smallest) elements along ``axis``, in order; ``k=0`` means
    all.

    ``ret_typ``: their indices (as ``dtype``), their values, both, or a mask of ones of the shape of ``data``.
    Ties keep their order. Raises MXNetError when k exceeds the axis.
    """
    flat, dim = _axis_and_data(data, axis)
    count = _count(k, flat.shape[dim])
    values, order = _sort(flat, dim, is_ascend)
    values, order = values.narrow(dim, 0, count), order.narrow(dim, 0, count)
    if ret_typ == "mask":
        mask = torch.zeros(flat.shape, dtype=data.dtype, device=data.device)
        return mask.scatter(dim, order, 1).reshape(data.shape)
    indices = order.to(dtype or torch.float32)
    if ret_typ == "both":
        return values, indices
    return values if ret_typ == "value" else indices
