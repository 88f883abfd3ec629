"""Matrix products: dense layers and dot products."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.defs.nn_shapes import complete, dimension, flattened, is_known
from regluon.ops.opdef import Spec, operator

Storage = Literal["default", "row_sparse", "csr"]


def _fill_dense(shapes: list[Any], attrs: dict[str, Any]) -> list[Any]:
    hidden, data, weight = attrs["num_hidden"], shapes[0], shapes[1]
    units = flattened(data) if attrs["flatten"] else dimension(data, -1)
    filled = [data, complete(weight, (hidden, units)), *(complete(shape, (hidden,)) for shape in shapes[2:])]
    units = filled[1][1]
    if data is not None and is_known(units) and len(data) > 1:
        unknown = [axis for axis in range(1, len(data)) if not is_known(data[axis])]
        last = len(data) - 1
        if unknown == [last] and (not attrs["flatten"] or len(data) == 2):
            filled[0] = (*data[:-1], units)
    return filled


def _infer_dense(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    data, weight = specs[0], specs[1]
    units = flattened(data.shape) if attrs["flatten"] else data.shape[-1]
    if len(data.shape) == 1 and attrs["flatten"]:
        units = 1
    if tuple(weight.shape) != (attrs["num_hidden"], units) and is_known(units):
        raise MXNetError(_dense_mismatch(data.shape, weight.shape, attrs["num_hidden"], attrs["flatten"]))
    lead = data.shape[:1] if attrs["flatten"] else data.shape[:-1]
    return [Spec((*lead, attrs["num_hidden"]), data.dtype)]


def _dense_mismatch(data: Any, weight: Any, num_hidden: int, flatten: bool) -> str:
    units = flattened(tuple(data)) if flatten else data[-1]
    return (
        f"FullyConnected: the weight does not fit the data of shape {tuple(data)}: expected weight shape "
        f"({num_hidden}, {units}) for num_hidden={num_hidden}, flatten={flatten}; received {tuple(weight)}. "
        "Pass a weight of that shape, or change num_hidden or flatten"
    )


@operator(
    "FullyConnected",
    aliases=("_npx_fully_connected", "_sparse_FullyConnected"),
    npx="fully_connected",
    active=lambda attrs: 2 if attrs["no_bias"] else 3,
    fill=_fill_dense,
    infer=_infer_dense,
    amp="low",
)
def fully_connected(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    num_hidden: int,
    no_bias: bool = False,
    flatten: bool = True,
) -> Tensor:
    """Apply ``y = x W^T + b``.

    ``data`` is (N, ...) and becomes (N, D) when ``flatten`` is set, else the last axis of (..., D) is
    transformed; ``weight`` is (num_hidden, D), ``bias`` (num_hidden,).  Raises MXNetError when the weight
    does not fit the data.
    """
    if flatten and data.dim() != 2:
        data = data.flatten(1) if data.dim() > 2 else data.unsqueeze(1)
    if weight.shape[0] != num_hidden or weight.shape[-1] != data.shape[-1]:
        raise MXNetError(_dense_mismatch(data.shape, weight.shape, num_hidden, flatten))
    return functional.linear(data, weight, None if no_bias else bias)


@operator("dot", aliases=("_sparse_dot",), amp="low")
def dot(
    lhs: Tensor,
    rhs: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: Storage | None = None,
) -> Tensor:
    """Contract the last axis of ``lhs`` (first with ``transpose_a``) with the first of ``rhs`` (last with
    ``transpose_b``).

    Two vectors give an array of shape (1,).  The other axes of lhs come first, then those of rhs.  Raises
    MXNetError when the contracted sizes differ.
    """
    if lhs.dim() == 1 and rhs.dim() == 1:
        return torch.dot(lhs, rhs).reshape(1)
    left_axis = 0 if transpose_a else lhs.dim() - 1
    right_axis = rhs.dim() - 1 if transpose_b else 0
    if lhs.shape[left_axis] != rhs.shape[right_axis]:
        raise MXNetError(
            f"dot: cannot contract axis {left_axis} of shape {tuple(lhs.shape)} with axis {right_axis} of "
            "shape "
            f"{tuple(rhs.shape)}: expected equal sizes, received {lhs.shape[left_axis]} and "
            f"{rhs.shape[right_axis]}. Check transpose_a and transpose_b"
        )
    if lhs.dim() == 2 and rhs.dim() == 2:
        return torch.mm(lhs.t() if transpose_a else lhs, rhs.t() if transpose_b else rhs)
    product: Tensor = torch.tensordot(lhs, rhs, dims=([left_axis], [right_axis]))
    return product


@operator("batch_dot", aliases=("_npx_batch_dot",), npx="batch_dot", amp="low")
def batch_dot(
    lhs: Tensor,
    rhs: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: Storage | None = None,
) -> Tensor:
    """Matrix product of the last two axes, (..., n, k) x (..., k, m) -> (..., n, m), after optional
    transposes.

    The leading axes must be equal; raises MXNetError otherwise.
    """
    left = lhs.transpose(-1, -2) if transpose_a else lhs
    right = rhs.transpose(-1, -2) if transpose_b else rhs
    if lhs.dim() < 3 or left.shape[:-2] != right.shape[:-2] or left.shape[-1] != right.shape[-2]:
        raise MXNetError(
            f"batch_dot: expected (..., n, k) and (..., k, m) with equal leading sizes and at least 3 "
            f"dimensions; received {tuple(lhs.shape)} (transpose_a={transpose_a}) and {tuple(rhs.shape)} "
            f"(transpose_b={transpose_b}). Reshape or transpose the operands"
        )
    return torch.matmul(left, right)
