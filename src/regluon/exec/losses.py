"""Losses of a training program, with fewer values written to memory: squared errors and their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Entry, Node
from ..ops.defs.reduce import reduced_axes, reduced_shape
from ..ops.internal import InternalOp
from ..passes.rewrite import Reads, has_dims, make, rewrite, shape_of

__all__ = ["simplify_losses"]

_DIFFERENCES = frozenset({"broadcast_sub", "elemwise_sub", "_npi_subtract"})
_SQUARES = frozenset({"square", "_npi_square"})
_FACTORS = frozenset({"_mul_scalar", "_npi_multiply_scalar"})
_MEANS = frozenset({"mean", "_npi_mean"})
# With a factor far from one, the sum might overflow where the sum of the products would not.
_NEAR_ONE = (0.25, 4.0)
# torch's norm rounds more with each value that it adds up.
_MOST_OF_A_NORM = 1 << 18
# Where rounding and range leave no doubt.
_TYPES = frozenset({torch.float32, torch.float64})


# Operators ----------------------------------------------------------------------


# Like the operators that they replace, these keep the difference for backward, not what was subtracted: that
# may be written to before the gradient passes.


class _Square(torch.autograd.Function):
    """``data^2``, whose gradient takes one pass over the memory."""

    @staticmethod
    def forward(context: Any, data: Tensor) -> Tensor:
        context.save_for_backward(data)
        return data.square()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (data,) = context.saved_tensors
        return torch.addcmul(data.new_zeros(()), data, gradients[0], value=2.0)


class _MeanSquare(torch.autograd.Function):
    """The mean of ``data^2`` over axes, which stay as axes of size 1."""

    @staticmethod
    def forward(context: Any, data: Tensor, axes: tuple[int, ...]) -> Tensor:
        context.save_for_backward(data)
        count = math.prod(data.shape[axis] for axis in axes)
        context.factor = 2.0 / max(count, 1)
        if count > _MOST_OF_A_NORM:
            return data.square().mean(axes, keepdim=True)
        root: Tensor = torch.linalg.vector_norm(data, dim=axes, keepdim=True)
        return root.square_().div_(count)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (data,) = context.saved_tensors
        return data * (gradients[0] * context.factor), None


def _squared_difference(first: Tensor, second: Tensor) -> Tensor:
    return _Square.apply(first - second)  # type: ignore[no-any-return,no-untyped-call]


def _mean_square(first: Tensor, second: Tensor, *, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    # Not known before: a program may serve batches of any size.
    shape = reduced_shape(tuple(first.shape), axes, keepdims, True)
    return _MeanSquare.apply(first - second, axes).view(shape)  # type: ignore[no-any-return,no-untyped-call]


SQUARED_DIFFERENCE = InternalOp("squared_difference", _squared_difference)
MEAN_SQUARE = InternalOp("mean_square", _mean_square, ("axes", "keepdims"))


# The pass ----------------------------------------------------------------------


def simplify_losses(entries: Sequence[Entry]) -> list[Entry]:
    """``(a - b)^2``, and its mean, as one operator; ``mean(c x)`` as ``c mean(x)``."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        name = node.op.name if node.op else ""
        if not inputs or not reads(0) or has_dims(node):
            return None
        inside = inputs[0].node
        if inside.op is None or inputs[0].spec is None or inputs[0].spec.dtype not in _TYPES:
            return None
        if name in _SQUARES and inside.op.name in _DIFFERENCES and _alike(inside.inputs):
            return [make(SQUARED_DIFFERENCE, node, inside.inputs)]
        if name in _MEANS and inside.op.name in _FACTORS and reads.once(inside.inputs[0]):
            return _factor_last(node, inside)
        return _mean_of_squares(node, inputs[0])

    return rewrite(entries, replace, _SQUARES | _MEANS)


def _alike(inputs: Sequence[Entry]) -> bool:
    first, second = (each.spec for each in inputs)
    return first is not None and second is not None and first == second and shape_of(inputs[0]) is not None


def _factor_last(node: Node, factor: Node) -> list[Entry] | None:
    source, attrs = factor.inputs[0], node.full_attrs
    if source.spec is None or source.spec.dtype not in _TYPES or has_dims(factor):
        return None
    if attrs.get("dtype") or attrs.get("initial") is not None:
        return None
    if not _NEAR_ONE[0] <= abs(float(factor.full_attrs["scalar"])) <= _NEAR_ONE[1]:
        return None
    found = _mean_of_squares(node, source)
    mean = found[0] if found else make(node.op, node, [source], node.attrs)  # type: ignore[arg-type]
    return [make(factor.op, node, [mean], factor.attrs, node.specs, f"{node.name}_scaled")]  # type: ignore[arg-type]


def _mean_of_squares(node: Node, source: Entry) -> list[Entry] | None:
    """The mean of squared differences over one axis or more, in the 1.x form that losses have."""
    shape = shape_of(source)
    if node.op is None or node.op.name != "mean" or source.node.op is not SQUARED_DIFFERENCE or not shape:
        return None
    attrs = node.full_attrs
    axes = reduced_axes(len(shape), attrs["axis"], attrs["exclude"], "mean")
    if not axes or 0 in shape:
        return None
    return [make(MEAN_SQUARE, node, source.node.inputs, {"axes": axes, "keepdims": attrs["keepdims"]})]
