"""Recorded graphs made faster for training: channels-last convolutions, activations written in place,
and BatchNorm joined with the sum and the activation after it.

Gradients still come from torch's engine, one operator after the other; what changes is which operators there
are. Each can be differentiated again: where a gradient is itself recorded, a fused backward computes the same
thing from plain operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Entry, Node
from ..ops.defs.normalization import effective_gamma
from ..ops.internal import CONTIGUOUS, DENSE, InternalOp, apply_unary, channels_last
from ..passes import Watch
from ..passes.fuse import sink_activations
from ..passes.layers import activation_of, is_addition
from ..passes.lint import lint
from ..passes.rewrite import Reads, has_dims, make, rewrite
from ..runtime.gradient import commit_now

__all__ = ["for_training"]

Joined = Callable[[Sequence[Entry]], list[Entry]]
# Activations whose gradient needs their result only, so that the argument may be overwritten.
_BY_RESULT = frozenset({"relu", "sigmoid", "tanh"})


def for_training(
    entries: Sequence[Entry], training: bool, device: str, watch: Watch | None = None
) -> list[Entry]:
    """The graph with fused operators: results, gradients and updates of moving statistics are the same.

    ``watch(name, before, after)`` is told of what each step did.
    """
    if device != "cpu":
        return list(entries)
    current = list(entries)
    norms: list[Joined] = [_use_norms] if training else []
    joins: list[Joined] = [_pool_first, *norms, _use_common_forms, _join_activations]
    for each in joins:
        before, current = current, each(current)
        lint(current, each.__name__)
        if watch is not None:
            watch(each.__name__.lstrip("_"), before, current)
    return current


# Layers ----------------------------------------------------------------------


def _convolution(
    data: Tensor,
    weight: Tensor,
    *bias: Tensor,
    stride: Any,
    pad: Any,
    dilate: Any,
    groups: int,
    kind: str | None = None,
) -> Tensor:
    result = torch.conv2d(
        channels_last(data),
        channels_last(weight),
        bias[0] if bias else None,
        stride,
        pad,
        dilate,
        groups,
    )
    return apply_unary(result, kind, in_place=True)


def _sum(first: Tensor, second: Tensor, *, kind: str | None = None) -> Tensor:
    return apply_unary(first + second, kind, in_place=True)


def _activation(data: Tensor, *, kind: str) -> Tensor:
    return apply_unary(data, kind, in_place=True)


CONVOLUTION = InternalOp(
    "convolution_channels_last", _convolution, ("stride", "pad", "dilate", "groups", "kind")
)
SUM = InternalOp("sum", _sum, ("kind",))
ACTIVATION = InternalOp("activation", _activation, ("kind",))


def _is_image(entry: Entry) -> bool:
    spec = entry.spec
    return spec is not None and len(spec.shape) == 4 and spec.dtype in (torch.float32, torch.bfloat16)


def _is_float(entry: Entry) -> bool:
    return entry.spec is not None and entry.spec.dtype in (torch.float32, torch.bfloat16, torch.float64)


def _use_common_forms(entries: Sequence[Entry]) -> list[Entry]:
    """Layers and sums in a form that an activation can join; two-dimensional convolutions channels last."""
    found = False

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        nonlocal found
        name = node.op.name if node.op else ""
        if has_dims(node) or not inputs or not _is_float(inputs[0]):
            return None
        if name == "Convolution" and _is_image(inputs[0]):
            new = _images(node, inputs)
            found = found or new is not None
            return new
        if name == "FullyConnected":
            flatten = bool(node.full_attrs["flatten"])
            return [make(DENSE, node, inputs, {"flatten": flatten, "bias": len(inputs) > 2})]
        if is_addition(node, inputs):
            return [make(SUM, node, inputs)]
        return None

    result = rewrite(entries, replace)
    return [_rows_first(entry) for entry in result] if found else result


def _rows_first(entry: Entry) -> Entry:
    """An output as it lies in memory without compiling."""
    if entry.node.op is None or not _is_image(entry):
        return entry
    assert entry.spec is not None
    return make(CONTIGUOUS, entry.node, [entry], {}, [entry.spec])


def _images(node: Node, inputs: tuple[Entry, ...]) -> Any:
    attrs = node.full_attrs
    if len(attrs["kernel"]) != 2 or (attrs["layout"] is not None and attrs["layout"][1] != "C"):
        return None
    chosen = {
        "stride": tuple(attrs["stride"]) or (1, 1),
        "pad": tuple(attrs["pad"]) or (0, 0),
        "dilate": tuple(attrs["dilate"]) or (1, 1),
        "groups": attrs["num_group"],
    }
    return [make(CONVOLUTION, node, inputs, chosen)]


def _pool_first(entries: Sequence[Entry]) -> list[Entry]:
    """The maximum of activations as the activation of the maximum, forward and backward."""
    return sink_activations(entries, _BY_RESULT)


def _join_activations(entries: Sequence[Entry]) -> list[Entry]:
    """An activation on a value that nothing else reads overwrites it."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        activation = activation_of(node)
        if activation is None or activation[0] not in _BY_RESULT or not reads(0):
            return None
        layer = inputs[0].node
        if layer.op is not None and layer.op.name == "Pooling":
            return [make(ACTIVATION, node, inputs[:1], {"kind": activation[0]})]
        if layer.op in (CONVOLUTION, DENSE, SUM) and not layer.attrs.get("kind"):
            assert layer.op is not None
            return [make(layer.op, layer, layer.inputs, {**layer.attrs, "kind": activation[0]})]
        return None

    return rewrite(entries, replace)


# BatchNorm ----------------------------------------------------------------------


class _Norm(torch.autograd.Function):
    """``relu(batch_norm(data) + other)``: keeps its input and its result, and nothing between.

    The moving statistics are committed once, when the gradient passes.
    """

    @staticmethod
    def forward(
        context: Any,
        data: Tensor,
        gamma: Tensor,
        beta: Tensor,
        other: Tensor | None,
        eps: float,
        relu: bool,
        commit: Callable[[Tensor, Tensor], None],
    ) -> Tensor:
        result, mean, inverse = torch.native_batch_norm(data, gamma, beta, None, None, True, 0.0, eps)
        if other is not None:
            result.add_(other)
        if relu:
            result.relu_()
        context.save_for_backward(data, gamma, beta, other, result if relu else None, mean, inverse)
        context.eps, context.relu, context.commit = eps, relu, commit
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        data, gamma, beta, other, result, mean, inverse = context.saved_tensors
        commit, context.commit = context.commit, None
        if commit is not None:
            commit(mean, inverse)
        if torch.is_grad_enabled():
            found = _again(data, gamma, beta, other, context.eps, context.relu, gradient)
        else:
            if context.relu:
                gradient = torch.ops.aten.threshold_backward(gradient, result, 0)
            needed = context.needs_input_grad
            parts = torch.ops.aten.native_batch_norm_backward(
                gradient, data, gamma, None, None, mean, inverse, True, context.eps, list(needed[:3])
            )
            found = (*parts, gradient if needed[3] else None)
        return (*found, None, None, None)


def _again(
    data: Tensor, gamma: Tensor, beta: Tensor, other: Tensor | None, eps: float, relu: bool, gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of `_Norm` from plain operators, which can be differentiated further."""
    given = (data, gamma, beta, other)
    # Aliases: one of these may depend on another, and its gradient here is the direct one only.
    alias: list[Any] = [t.view_as(t) if t is not None and t.requires_grad else t for t in given]
    result = torch.native_batch_norm(alias[0], alias[1], alias[2], None, None, True, 0.0, eps)[0]
    if alias[3] is not None:
        result = result + alias[3]
    if relu:
        result = result.relu()
    wanted = [t for t in alias if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(result, wanted, gradient, create_graph=True, allow_unused=True))
    return tuple(next(found) if t is not None and t.requires_grad else None for t in alias)


def _norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *other: Tensor,
    node: Node,
    relu: bool = False,
) -> Tensor:
    attrs = node.full_attrs
    definition = node.op
    assert definition is not None

    # Of the result, which is large, the update needs nothing.
    empty = data.detach().new_empty(0)

    def commit(mean: Tensor, inverse: Tensor) -> None:
        commit_now(definition, (moving_mean, moving_var), (empty, mean, inverse), attrs)

    gamma = effective_gamma(gamma, attrs["fix_gamma"])
    rest = other[0] if other else None
    return _Norm.apply(data, gamma, beta, rest, attrs["eps"], relu, commit)  # type: ignore[no-any-return,no-untyped-call]


NORM = InternalOp("batch_norm", _norm, ("node", "relu"))


def _use_norms(entries: Sequence[Entry]) -> list[Entry]:
    """BatchNorm of the batch, joined with a sum and then a rectifier that nothing else reads between."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        name = node.op.name if node.op else ""
        if name == "BatchNorm":
            return _as_norm(node, inputs)
        if is_addition(node, inputs):
            for own in (1, 0):
                norm = inputs[own].node
                if norm.op is NORM and reads(own) and len(norm.inputs) == 5 and not norm.attrs.get("relu"):
                    return [make(NORM, norm, [*norm.inputs, inputs[1 - own]], norm.attrs)]
        activation = activation_of(node)
        if activation == ("relu", ()) and reads(0):
            norm = inputs[0].node
            if norm.op is NORM and not norm.attrs.get("relu"):
                return [make(NORM, norm, norm.inputs, {**norm.attrs, "relu": True})]
        return None

    return rewrite(entries, replace)


def _as_norm(node: Node, inputs: tuple[Entry, ...]) -> Any:
    attrs = node.full_attrs
    spec = inputs[0].spec
    if attrs["use_global_stats"] or attrs["output_mean_var"] or attrs["axis"] != 1 or spec is None:
        return None
    if spec.dtype is not torch.float32 or len(spec.shape) < 2:
        return None
    # The other outputs are hidden: nothing can use them.
    return [make(NORM, node, inputs, {"node": node})] * node.outputs
