"""Layers in the common forms of `ops.internal`, then BatchNorm folded into the layer before or after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..base.zeros import untouched_zeros_like
from ..graph.node import Entry, Node
from ..ops.internal import ADD, AFFINE, CONVOLUTION, DENSE, UNARY, constant_op
from ..ops.opdef import Spec
from ..ops.registry import get
from .cleanup import is_float
from .rewrite import Reads, Settings, has_dims, make, rewrite, shape_of

__all__ = [
    "ADDITIONS",
    "COMMON",
    "LAYERS",
    "activation_of",
    "fold_batch_norm",
    "is_addition",
    "use_common_forms",
]

# Bytes of weights that are worth memory of their own.
_LARGE = 1 << 20
ADDITIONS = frozenset({"broadcast_add", "elemwise_add", "_npi_add"})
_PLAIN = {
    "relu": "relu",
    "_npx_relu": "relu",
    "sigmoid": "sigmoid",
    "_npx_sigmoid": "sigmoid",
    "tanh": "tanh",
    "_npi_tanh": "tanh",
}
BATCH_NORMS = frozenset({"BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm"})
# The operators that become layers which others are joined with, and their common forms.
LAYERS = BATCH_NORMS | {"Convolution", "Deconvolution", "FullyConnected", "convolution", "dense", "affine"}
# The operators that have a common form.
COMMON = LAYERS | ADDITIONS | _PLAIN.keys() | {"Activation", "clip", "LeakyReLU"}


def use_common_forms(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Convolution, dense, BatchNorm at prediction, activations and additions as internal operators."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        name = node.op.name if node.op else ""
        if has_dims(node):
            return None
        if name in ("Convolution", "Deconvolution"):
            return _convolution(node, inputs, name == "Deconvolution")
        if name == "FullyConnected":
            return _dense(node, inputs)
        if name in BATCH_NORMS:
            return _batch_norm(node, inputs, settings)
        activation = activation_of(node)
        if activation is not None and is_float(inputs[0]):
            kind, scalars = activation
            return [make(UNARY, node, inputs[:1], {"kind": kind, "scalars": scalars})]
        if is_addition(node, inputs):
            return [make(ADD, node, inputs)]
        if is_mixed_addition(node, inputs):
            own = node.specs[0].dtype if node.specs else None
            return [make(ADD, node, sorted(inputs, key=lambda e: e.spec is None or e.spec.dtype is not own))]
        return None

    return rewrite(entries, replace, COMMON)


def is_addition(node: Node, inputs: Sequence[Entry]) -> bool:
    """Whether a node adds two floating values of one shape and type."""
    if node.op is None or node.op.name not in ADDITIONS:
        return False
    first, second = inputs[0].spec, inputs[1].spec
    return first is not None and first == second and is_float(inputs[0])


def is_mixed_addition(node: Node, inputs: Sequence[Entry]) -> bool:
    """Whether a node adds values of one shape and of two floating types, in the wider of them."""
    if node.op is None or node.op.name not in ADDITIONS or node.specs is None:
        return False
    first, second, own = inputs[0].spec, inputs[1].spec, node.specs[0]
    if first is None or second is None or tuple(first.shape) != tuple(second.shape):
        return False
    return own.dtype is torch.float32 and own in (first, second) and all(map(is_float, inputs))


def activation_of(node: Node) -> tuple[str, tuple[float, ...]] | None:
    """The activation that a node computes, with its numbers, where it is one that fusion knows."""
    if node.op is None:
        return None
    name, attrs = node.op.name, node.full_attrs
    if name == "Activation":
        kind = attrs["act_type"]
        return (kind, ()) if kind in ("relu", "sigmoid", "tanh") else None
    if name in _PLAIN:
        return _PLAIN[name], ()
    if name == "clip" and attrs["a_min"] is not None and attrs["a_max"] is not None:
        return "clip", (attrs["a_min"], attrs["a_max"])
    if name == "LeakyReLU" and attrs["act_type"] in ("leaky", "gelu"):
        return ("leaky", (attrs["slope"],)) if attrs["act_type"] == "leaky" else ("gelu", ())
    return None


def _transposed(node: Node, entry: Entry, axes: tuple[int, ...]) -> Entry:
    spec = entry.spec
    specs = None if spec is None else [Spec(tuple(spec.shape[a] for a in axes), spec.dtype)]
    return make(get("transpose"), node, [entry], {"axes": axes}, specs)


def _first_to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _last_to_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _convolution(node: Node, inputs: tuple[Entry, ...], transposed: bool) -> Any:
    attrs = node.full_attrs
    shape = shape_of(inputs[0])
    rank = len(attrs["kernel"])
    if shape is None or len(shape) != rank + 2 or not is_float(inputs[0]):
        return None
    extra: tuple[int, ...] = ()
    if transposed:
        if attrs.get("target_shape"):
            return None
        extra = tuple(attrs.get("adj") or ())
    common = {
        "stride": tuple(attrs["stride"]) or (1,) * rank,
        "pad": tuple(attrs["pad"]) or (0,) * rank,
        "dilate": tuple(attrs["dilate"]) or (1,) * rank,
        "groups": attrs["num_group"],
        "transposed": transposed,
        "extra": extra,
        "bias": len(inputs) > 2,
    }
    layout = attrs["layout"]
    if layout is None or layout[1] == "C":
        return [make(CONVOLUTION, node, inputs, common)]
    data = _transposed(node, inputs[0], _last_to_first(rank + 2))
    weight = _transposed(node, inputs[1], _last_to_first(rank + 2))
    own = node.specs[0] if node.specs else None
    specs = None if own is None else [Spec(tuple(own.shape[a] for a in _last_to_first(rank + 2)), own.dtype)]
    result = make(CONVOLUTION, node, [data, weight, *inputs[2:]], common, specs)
    return [make(get("transpose"), node, [result], {"axes": _first_to_last(rank + 2)})]


def _dense(node: Node, inputs: tuple[Entry, ...]) -> Any:
    shape = shape_of(inputs[0])
    if shape is None or not is_float(inputs[0]):
        return None
    flatten = bool(node.full_attrs["flatten"]) and len(shape) != 2
    return [make(DENSE, node, inputs, {"flatten": flatten, "bias": len(inputs) > 2})]


# BatchNorm ----------------------------------------------------------------------


def _scale(gamma: Tensor, variance: Tensor, *, eps: float, fixed: bool) -> Tensor:
    scale = torch.rsqrt(variance.double() + eps)
    return (scale if fixed else scale * gamma.double()).to(gamma.dtype)


def _shift(beta: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return (beta.double() - mean.double() * scale.double()).to(beta.dtype)


def _scale_filters(weight: Tensor, scale: Tensor, *, axis: int, groups: int = 1) -> Tensor:
    if groups > 1:
        # Filters of a grouped transposed convolution: (groups * inputs, outputs per group, ...).
        blocks = weight.reshape(groups, -1, *weight.shape[1:])
        factors = scale.reshape(groups, 1, -1, *(1,) * (weight.dim() - 2))
        return (blocks * factors).reshape(weight.shape).to(weight.dtype)
    shape = [1] * weight.dim()
    shape[axis] = -1
    large = weight.numel() * weight.element_size() >= _LARGE
    if large and weight.dtype is scale.dtype and not torch.is_grad_enabled():
        # The result is packed and freed: in the heap it would leave a hole that nothing else fits into.
        return torch.mul(weight, scale.reshape(shape), out=untouched_zeros_like(weight))
    return (weight * scale.reshape(shape)).to(weight.dtype)


def _folded_bias(weight: Tensor, shift: Tensor, *scaled: Tensor) -> Tensor:
    """The bias of a layer with weights like ``weight``: ``shift``, plus bias times scale where it has one."""
    total = torch.addcmul(shift, scaled[0].to(shift.dtype), scaled[1]) if scaled else shift
    return total.to(weight.dtype)


def _shift_through(weight: Tensor, shift: Tensor, *bias: Tensor) -> Tensor:
    """What a constant added to every input channel adds to each filter's output."""
    total = (weight.reshape(*weight.shape[:2], -1).sum(-1) * shift).sum(-1)
    return (total + bias[0] if bias else total).to(weight.dtype)


SCALE = constant_op("batch_norm_scale", _scale, "eps", "fixed")
SHIFT = constant_op("batch_norm_shift", _shift)
SCALE_FILTERS = constant_op("scale_filters", _scale_filters, "axis", "groups")
FOLDED_BIAS = constant_op("folded_bias", _folded_bias)
SHIFT_THROUGH = constant_op("shift_through", _shift_through)


def _batch_norm(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Any:
    attrs = node.full_attrs
    if (settings.training and not attrs["use_global_stats"]) or attrs.get("output_mean_var"):
        return None
    shape = shape_of(inputs[0])
    if shape is None or not is_float(inputs[0]) or inputs[0].spec.dtype is torch.float16:  # type: ignore[union-attr]
        return None
    _, gamma, beta, mean, variance = inputs
    vector = [gamma.spec] if gamma.spec is not None else None
    scale = make(
        SCALE,
        node,
        [gamma, variance],
        {"eps": attrs["eps"], "fixed": attrs["fix_gamma"]},
        vector,
        f"{node.name}_scale",
    )
    shift = make(SHIFT, node, [beta, mean, scale], {}, vector, f"{node.name}_shift")
    axis = attrs.get("axis", 1) % len(shape)
    result = make(AFFINE, node, [inputs[0], scale, shift], {"axis": axis})
    # The other outputs, the moving statistics, are hidden here: nothing can use them.
    return [result] * node.outputs


def fold_batch_norm(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Multiply BatchNorm's scale into the weights of the layer before it, or of the layer after it where
    nothing is padded."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if node.op is AFFINE:
            return _into_before(node, inputs, settings) if reads(0) else None
        if node.op in (CONVOLUTION, DENSE) and inputs[0].node.op is AFFINE and reads(0):
            return _into_after(node, inputs, settings)
        return None

    return rewrite(entries, replace, ("affine", "convolution", "dense"))


def _into_before(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Any:
    layer = inputs[0].node
    if layer.op not in (CONVOLUTION, DENSE):
        return None
    attrs, weight = layer.full_attrs, layer.inputs[1]
    rank = len(node.specs[0].shape) if node.specs else 0
    axis = 1 if layer.op is CONVOLUTION else rank - 1
    if (
        node.attrs["axis"] != axis
        or attrs.get("residual")
        or attrs.get("kind")
        or not all(settings.is_constant(e) for e in (weight, *inputs[1:], *layer.inputs[2:]))
    ):
        return None
    scale, shift = inputs[1], inputs[2]
    transposed = bool(attrs.get("transposed"))
    filters = make(
        SCALE_FILTERS,
        node,
        [weight, scale],
        {"axis": 1 if transposed else 0, "groups": attrs["groups"] if transposed else 1},
        [weight.spec] if weight.spec else None,
        f"{layer.name}_weight_folded",
    )
    dtype = weight.spec.dtype if weight.spec else torch.float32
    scaled = [layer.inputs[2], scale] if attrs["bias"] else []
    vector = None if shift.spec is None else [Spec(shift.spec.shape, dtype)]
    bias = make(FOLDED_BIAS, node, [weight, shift, *scaled], {}, vector, f"{layer.name}_bias_folded")
    return [
        make(layer.op, layer, [layer.inputs[0], filters, bias], {**layer.attrs, "bias": True}, node.specs)
    ]


def _into_after(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Any:
    norm = inputs[0].node
    attrs = node.full_attrs
    weight = inputs[1]
    source = shape_of(norm.inputs[0])
    if norm.attrs.get("kind") or source is None or not settings.is_constant(weight):
        return None
    if node.op is CONVOLUTION:
        if any(attrs["pad"]) or attrs["groups"] != 1 or attrs["transposed"] or norm.attrs["axis"] != 1:
            return None
    elif attrs["flatten"] or norm.attrs["axis"] != len(source) - 1:
        return None
    if not all(settings.is_constant(e) for e in (*norm.inputs[1:], *inputs[2:])):
        return None
    scale, shift = norm.inputs[1], norm.inputs[2]
    dtype = weight.spec.dtype if weight.spec else torch.float32
    outputs = shape_of(weight)
    vector = None if outputs is None else [Spec((outputs[0],), dtype)]
    filters = make(
        SCALE_FILTERS,
        node,
        [weight, scale],
        {"axis": 1, "groups": 1},
        [weight.spec] if weight.spec else None,
        f"{node.name}_weight_folded",
    )
    given = [inputs[2]] if attrs["bias"] else []
    bias = make(SHIFT_THROUGH, node, [weight, shift, *given], {}, vector, f"{node.name}_bias_folded")
    rest = inputs[3:] if attrs["bias"] else inputs[2:]
    assert node.op is not None
    return [make(node.op, node, [norm.inputs[0], filters, bias, *rest], {**node.attrs, "bias": True})]
