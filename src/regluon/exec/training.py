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

from ..base.pool import empty_beside
from ..graph.node import Entry, Node, topological
from ..ops.defs.normalization import effective_gamma, move_statistics
from ..ops.internal import CONTIGUOUS, InternalOp, apply_unary, channels_last
from ..passes import TRAINING_PASSES, Watch, skipped
from ..passes.attention import (
    ATTENTION,
    ATTENTION_BY_ROWS,
    INTERLEAVED,
    attend_by_rows,
    join_attention,
    on_interleaved,
)
from ..passes.cleanup import simplify_shapes
from ..passes.fuse import sink_activations
from ..passes.layers import activation_of, is_addition
from ..passes.lint import lint
from ..passes.rewrite import Reads, Settings, has_dims, make, rewrite
from ..runtime.gradient import commit_values, once
from ..runtime.targets import is_spare
from .cuda import seam
from .dense import dense
from .losses import simplify_losses
from .onednn import training as onednn
from .onednn.attention import attend, attention_of_rows
from .onednn.norms import NormForm, NormKernels, norm_kernels_for
from .onednn.pools import is_worth_it, maximum_pooling

__all__ = ["for_training"]

Joined = Callable[[Sequence[Entry]], list[Entry]]
# Activations whose gradient needs their result only, so that the argument may be overwritten.
_BY_RESULT = frozenset({"relu", "sigmoid", "tanh"})
# Types of images whose convolutions are computed channels last.
_IMAGES = frozenset({torch.float32, torch.bfloat16})
# The sum of two values, rectified, written over the first; for float32.
_ADD_AND_RECTIFY: Any = getattr(getattr(torch.ops.aten, "_add_relu_", None), "Tensor", None)


def _images_on_cuda() -> frozenset[torch.dtype]:
    return frozenset(filter(seam.current().prefers_channels_last, {*_IMAGES, torch.float16}))


def for_training(
    entries: Sequence[Entry], training: bool, device: str, watch: Watch | None = None
) -> list[Entry]:
    """The graph with fused operators: results, gradients and updates of moving statistics are the same.

    ``watch(name, before, after)`` is told of what each pass did that is not switched off.
    """
    images = _IMAGES if device == "cpu" else _images_on_cuda()
    passes: dict[str, Joined | None] = {
        "attend": _attend if device == "cpu" else None,
        "simplify_losses": simplify_losses,
        "pool_first": _pool_first,
        "use_norms": _use_norms if training else None,
        "use_common_forms": lambda entries: _use_common_forms(entries, images),
        "join_activations": _join_activations,
        "use_pools": _use_pools,
    }
    # The names lie below, where they are switched off.
    assert tuple(passes) == TRAINING_PASSES
    current, off = list(entries), skipped()
    for name, each in passes.items():
        if each is not None and name not in off:
            before, current = current, each(current)
            lint(current, name)
            if watch is not None:
                watch(name, before, current)
    if any(node.op in (CONVOLUTION, NORM, POOL) for node in topological(current)):
        current = [_rows_first(entry, images) for entry in current]
        lint(current, "_rows_first")
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
    offset = bias[0] if bias else None
    window = (stride, pad, dilate, groups)
    result = None
    if data.device.type == "cpu":
        result = onednn.convolution(data, weight, offset, *window)
    if result is None:
        weight = channels_last(weight.to(data.dtype))
        result = torch.conv2d(channels_last(data), weight, offset, *window)
    return apply_unary(result, kind, in_place=True)


def _sum(first: Tensor, second: Tensor, *, kind: str | None = None) -> Tensor:
    return apply_unary(first + second, kind, in_place=True)


def _activation(data: Tensor, *, kind: str) -> Tensor:
    return apply_unary(data, kind, in_place=True)


def _maximum_pooling(data: Tensor, *, kernel: Any, stride: Any, pad: Any) -> Tensor:
    result = maximum_pooling(data, kernel, stride, pad) if data.device.type == "cpu" else None
    return torch.max_pool2d(data, kernel, stride, pad) if result is None else result


def _dense(data: Tensor, weight: Tensor, *bias: Tensor, flatten: bool, kind: str | None = None) -> Tensor:
    return dense(data, weight, bias[0] if bias else None, flatten, kind)


CONVOLUTION = InternalOp(
    "convolution_channels_last", _convolution, ("stride", "pad", "dilate", "groups", "kind")
)
DENSE = InternalOp("training_dense", _dense, ("flatten", "kind"))
SUM = InternalOp("sum", _sum, ("kind",))
ACTIVATION = InternalOp("activation", _activation, ("kind",))
POOL = InternalOp("maximum_pooling", _maximum_pooling, ("kernel", "stride", "pad"))


def _is_image(entry: Entry, images: frozenset[torch.dtype]) -> bool:
    spec = entry.spec
    return spec is not None and len(spec.shape) == 4 and spec.dtype in images


def _use_common_forms(entries: Sequence[Entry], images: frozenset[torch.dtype]) -> list[Entry]:
    """Layers and sums in a form that an activation can join; two-dimensional convolutions channels last."""
    floats = images | _IMAGES | {torch.float64}

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        name = node.op.name if node.op else ""
        if has_dims(node) or not inputs or inputs[0].spec is None or inputs[0].spec.dtype not in floats:
            return None
        if name == "Convolution" and _is_image(inputs[0], images):
            return _images(node, inputs)
        if name == "FullyConnected":
            return [make(DENSE, node, inputs, {"flatten": bool(node.full_attrs["flatten"])})]
        if is_addition(node, inputs):
            return [make(SUM, node, inputs)]
        return None

    return rewrite(entries, replace)


def _rows_first(entry: Entry, images: frozenset[torch.dtype]) -> Entry:
    """An output as it lies in memory without compiling."""
    if entry.node.op is None or not _is_image(entry, images):
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
    return [make(CONVOLUTION, node, [inputs[0], _uncast(inputs[1]), *inputs[2:]], chosen)]


def _uncast(weight: Entry) -> Entry:
    """A float32 weight before mixed precision rounds it, which packing does as well."""
    node = weight.node
    if node.op is None or node.op.name != "amp_cast":
        return weight
    source = node.inputs[0]
    single = source.spec is not None and source.spec.dtype is torch.float32
    return source if single and weight.spec is not None and weight.spec.dtype in _IMAGES else weight


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


def _use_pools(entries: Sequence[Entry]) -> list[Entry]:
    """Maximum pooling of images by kernels that remember where the maxima are in a byte each."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if (
            node.op is None
            or node.op.name != "Pooling"
            or has_dims(node)
            or not _is_image(inputs[0], _IMAGES)
        ):
            return None
        assert inputs[0].spec is not None
        attrs = node.full_attrs
        kernel, pad = tuple(attrs["kernel"]), tuple(attrs["pad"]) or (0, 0)
        usual = attrs["pooling_convention"] == "valid" and not attrs["global_pool"]
        last = attrs["layout"] is not None and attrs["layout"][1] != "C"
        if attrs["pool_type"] != "max" or not usual or last or len(kernel) != 2:
            return None
        if not is_worth_it(inputs[0].spec.shape):
            return None
        if any(2 * amount > size for amount, size in zip(pad, kernel, strict=True)):
            return None
        window = {"kernel": kernel, "stride": tuple(attrs["stride"]) or (1, 1), "pad": pad}
        return [make(POOL, node, inputs, window)]

    return rewrite(entries, replace)


# Attention ----------------------------------------------------------------------


def _interleaved(joined: Tensor, *, heads: int) -> Tensor:
    return on_interleaved(attend, joined, heads)


# Joined attention of prediction, and what computes the same with a gradient that can be differentiated again.
_ATTENTIONS: dict[Any, InternalOp] = {
    ATTENTION: InternalOp("training_attention", attend, ("scale", "turned")),
    ATTENTION_BY_ROWS: InternalOp("training_attention_by_rows", attention_of_rows, ("scale", "heads")),
    INTERLEAVED: InternalOp("training_attention_interleaved", _interleaved, ("heads",)),
}


def _attend(entries: Sequence[Entry]) -> list[Entry]:
    """Attention as one operator; on rows whose heads lie side by side its kernels copy nothing."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        own = _ATTENTIONS.get(node.op)
        return None if own is None else [make(own, node, inputs, node.attrs)]

    settings, current, off = Settings(), list(entries), skipped()
    for each in (join_attention, simplify_shapes, attend_by_rows):
        current = current if each.__name__ in off else each(current, settings)
        if not any(node.op in _ATTENTIONS for node in topological(current)):
            return list(entries)
    # What is made in the graph stays made there, if only by reshaping an input.
    same = all(
        (new.node.op is None) == (old.node.op is None) for new, old in zip(current, entries, strict=True)
    )
    return rewrite(current, replace) if same else list(entries)


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
        found = None
        # With a sum between, the kernel does not rectify.
        kernels = _norm_kernels(data, gamma, beta, eps, relu and other is None)
        if kernels is not None:
            found = kernels.run(channels_last(data), gamma, beta)
        # `spread` is what a backward by the same library wants: the variance, or torch's inverse of its root.
        if found is None:
            kernels = None
            result, mean, spread = torch.native_batch_norm(data, gamma, beta, None, None, True, 0.0, eps)
            mask = None
        else:
            result, mean, spread, mask = found
        rectify = relu and (kernels is None or not kernels.form.relu)
        _finish(result, other, rectify)
        kept = result if rectify else None
        context.save_for_backward(data, gamma, beta, other, kept, mean, spread, mask)
        context.eps, context.relu, context.commit, context.kernels = eps, relu, commit, kernels
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        data, gamma, beta, other, result, mean, spread, mask = context.saved_tensors
        kernels: NormKernels | None = context.kernels
        commit, context.commit = context.commit, None
        if commit is not None:
            known = kernels is not None
            commit(mean, spread if known else spread.pow(-2).sub_(context.eps).clamp_(min=0.0))
        if torch.is_grad_enabled():
            return *_again(data, gamma, beta, other, context.eps, context.relu, gradient), None, None, None
        needed = context.needs_input_grad
        spare = gradient if kernels is not None and is_spare(gradient) else None
        if result is not None:
            gradient = _where_positive(gradient, result)
        parts: Sequence[Tensor]
        if kernels is not None:
            images = channels_last(gradient), channels_last(data)
            # The received gradient is overwritten, unless it is handed on as well or lies in another order.
            fits = spare is not None and spare.stride() == images[0].stride()
            into = spare if fits and not (spare is gradient and needed[3]) else None
            parts = kernels.gradients(*images, gamma, mean, spread, mask, into)
        else:
            parts = torch.ops.aten.native_batch_norm_backward(
                gradient, data, gamma, None, None, mean, spread, True, context.eps, list(needed[:3])
            )
        return *parts, gradient if needed[3] else None, None, None, None


def _where_positive(gradient: Tensor, result: Tensor) -> Tensor:
    """The gradient of what was rectified."""
    if gradient.device.type != "cpu" or gradient.stride() != result.stride():
        return torch.ops.aten.threshold_backward(gradient, result, 0)  # type: ignore[no-any-return]
    made = empty_beside(result)
    return torch.ops.aten.threshold_backward.grad_input(gradient, result, 0, grad_input=made)  # type: ignore[no-any-return]


def _finish(result: Tensor, other: Tensor | None, rectify: bool) -> None:
    """Add and rectify in place, in one pass over the memory where torch has one."""
    if other is None:
        if rectify:
            result.relu_()
    elif rectify and _ADD_AND_RECTIFY is not None and result.dtype is other.dtype is torch.float32:
        _ADD_AND_RECTIFY(result, other)
    else:
        result.add_(other)
        if rectify:
            result.relu_()


def _norm_kernels(data: Tensor, gamma: Tensor, beta: Tensor, eps: float, relu: bool) -> NormKernels | None:
    """oneDNN's kernels for images on the CPU, where there are any."""
    plain = gamma.dtype is beta.dtype is torch.float32 and gamma.is_contiguous() and beta.is_contiguous()
    if data.dim() != 4 or data.device.type != "cpu" or data.dtype not in _IMAGES or not plain:
        return None
    if eps < torch.finfo(torch.float32).tiny:
        # These kernels make NaN of a constant channel, where torch makes zeros.
        return None
    return norm_kernels_for(NormForm(tuple(data.shape), data.dtype, eps, relu, torch.get_num_threads()))


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

    def commit(mean: Tensor, variance: Tensor) -> None:
        commit_values(move_statistics, (moving_mean, moving_var), (mean, variance), attrs["momentum"])

    gamma = effective_gamma(gamma, attrs["fix_gamma"])
    rest = other[0] if other else None
    return _Norm.apply(data, gamma, beta, rest, attrs["eps"], relu, once(commit))  # type: ignore[no-any-return,no-untyped-call]


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
    single = inputs[1].spec is not None and inputs[1].spec.dtype is torch.float32
    if spec.dtype not in _IMAGES or not single or len(spec.shape) < 2:
        return None
    # The other outputs are hidden: nothing can use them.
    return [make(NORM, node, inputs, {"node": node})] * node.outputs
