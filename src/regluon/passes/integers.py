"""Quantized graphs on integers: what is quantized and dequantized around a layer becomes a layer on integers.

A quantized network holds real layers between ``_contrib_dequantize`` and ``_contrib_quantize_v2`` with fixed
ranges. Here such a layer, its dequantized data and weights before it and the quantization after it become one
operator from 8-bit integers to 8-bit integers. Data are uint8 throughout: a signed value is stored with 128
added, because that is what the kernels take. A real value is ``(integer - zero) * step``.

Each operator has a plain function that computes exactly in public torch operators; `exec.quantized` chooses
faster kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..graph.node import Entry, Node, topological
from ..ops.internal import ADD, CONVOLUTION, DENSE, UNARY, InternalOp, apply_unary
from ..ops.opdef import Spec
from .rewrite import Reads, Settings, make, rewrite, shape_of

__all__ = [
    "DEQUANTIZE",
    "QUANTIZE",
    "QUANTIZED_CONVOLUTION",
    "QUANTIZED_DENSE",
    "Scale",
    "use_integers",
    "weight_steps",
]


class Scale(NamedTuple):
    """What the integers of a value stand for: ``(integer - zero) * step``."""

    step: float
    zero: int


# Kinds of activation that are computed between the sum and its quantization.
FUSED_KINDS = (None, "relu", "clip", "silu")


def _largest(dtype: torch.dtype) -> float:
    return 127.5 if dtype is torch.int8 else 255.5


# The operators ------------------------------------------------------------------------------------


def quantize(data: Tensor, *, scale: Scale) -> Tensor:
    """Real values as uint8: rounded to the nearest, clipped."""
    shifted = torch.add(torch.tensor(float(scale.zero), device=data.device), data, alpha=1.0 / scale.step)
    return shifted.round_().clamp_(0, 255).to(torch.uint8)


def dequantize(data: Tensor, *, scale: Scale) -> Tensor:
    """uint8 as real values, float32."""
    if scale.zero == 0:
        return torch.mul(data, scale.step)
    return (data.to(torch.float32) - scale.zero).mul_(scale.step)


def weight_steps(weight: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The real value of one step of each filter of an int8 weight, float32."""
    steps = torch.maximum(low.abs(), high.abs()).double() / _largest(torch.int8)
    return steps.expand(weight.shape[0]).float().contiguous()


def _exact(terms: int) -> torch.dtype:
    """A floating type that adds ``terms`` products of two 8-bit integers without an error."""
    return torch.float32 if terms * 255 * 128 < 2**24 else torch.float64


def _completed(
    total: Tensor,
    steps: Tensor,
    axis: int,
    rest: Sequence[Tensor],
    bias: bool,
    residual: Scale | bool | None,
    kind: str | None,
    scalars: Sequence[float],
    out: Scale | None,
) -> Tensor:
    """Real values of an exact sum, with bias, residual and activation, quantized where ``out`` says so."""
    shape = [1] * total.dim()
    shape[axis] = -1
    real = total.double() * steps.double().reshape(shape)
    given = iter(rest)
    if bias:
        real += next(given).double().reshape(shape)
    if residual:
        other = next(given)
        real += dequantize(other, scale=residual) if isinstance(residual, Scale) else other
    real = apply_unary(real.float(), kind, scalars, in_place=True)
    return real if out is None else quantize(real, scale=out)


def convolution(
    data: Tensor,
    weight: Tensor,
    low: Tensor,
    high: Tensor,
    *rest: Tensor,
    scale: Scale,
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    dilate: tuple[int, ...],
    groups: int,
    bias: bool = False,
    residual: Scale | bool | None = None,
    kind: str | None = None,
    scalars: tuple[float, ...] = (),
    out: Scale | None = None,
) -> Tensor:
    """``kind(convolution(data, weight) + bias + residual)`` of uint8 data and int8 filters, (N, C, H, W)."""
    dtype = _exact(weight[0].numel())
    total = torch.conv2d(data.to(dtype) - scale.zero, weight.to(dtype), None, stride, pad, dilate, groups)
    steps = weight_steps(weight, low, high) * scale.step
    return _completed(total, steps, 1, rest, bias, residual, kind, scalars, out)


def dense(
    data: Tensor,
    weight: Tensor,
    low: Tensor,
    high: Tensor,
    *rest: Tensor,
    scale: Scale,
    flatten: bool = False,
    bias: bool = False,
    kind: str | None = None,
    scalars: tuple[float, ...] = (),
    out: Scale | None = None,
) -> Tensor:
    """``kind(data weight^T + bias)`` of uint8 data and an int8 weight."""
    if flatten and data.dim() != 2:
        data = data.flatten(1) if data.dim() > 2 else data.unsqueeze(1)
    dtype = _exact(weight.shape[-1])
    total = functional.linear(data.to(dtype) - scale.zero, weight.to(dtype))
    steps = weight_steps(weight, low, high) * scale.step
    return _completed(total, steps, -1, rest, bias, None, kind, scalars, out)


def max_pool(
    data: Tensor, *, kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int]
) -> Tensor:
    """The largest value of windows of uint8 (N, C, H, W): over rows, then over columns."""
    if any(pad):
        data = functional.pad(data, (pad[1], pad[1], pad[0], pad[0]))
    for axis in (2, 3):
        size, step = kernel[axis - 2], stride[axis - 2]
        span = (data.shape[axis] - size) // step * step + 1
        data = _largest_of(data, axis, size, step, span)
    return data


def _largest_of(data: Tensor, axis: int, size: int, step: int, span: int) -> Tensor:
    strided = [slice(None)] * 4
    result: Tensor | None = None
    for start in range(size):
        strided[axis] = slice(start, start + span, step)
        part = data[tuple(strided)]
        result = part if result is None else torch.maximum(result, part)
    assert result is not None
    return result


def concatenate(*data: Tensor, axis: int) -> Tensor:
    """Join values that stand for reals in the same way."""
    return torch.cat(data, axis)


def reshape(data: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    """A new shape."""
    return data.reshape(shape)


_LAYER = ("scale", "bias", "kind", "scalars", "out")
QUANTIZE = InternalOp("quantize", quantize, ("scale",))
DEQUANTIZE = InternalOp("dequantize", dequantize, ("scale",))
QUANTIZED_CONVOLUTION = InternalOp(
    "quantized_convolution", convolution, ("stride", "pad", "dilate", "groups", "residual", *_LAYER)
)
QUANTIZED_DENSE = InternalOp("quantized_dense", dense, ("flatten", *_LAYER))
QUANTIZED_MAX_POOL = InternalOp("quantized_max_pool", max_pool, ("kernel", "stride", "pad"), fresh=False)
QUANTIZED_CONCATENATE = InternalOp("quantized_concatenate", concatenate, ("axis",))
QUANTIZED_RESHAPE = InternalOp("quantized_reshape", reshape, ("shape",), fresh=False)


# The pass -------------------------------------------------------------------------------------------


def use_integers(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Convolution and dense layers between dequantization and quantization as layers on integers."""
    order = topological(entries)
    if settings.device != "cpu":
        return list(entries)
    wanted = _quantizations(entries, order)

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if id(node) in wanted:
            result = _quantized(inputs[0], wanted[id(node)], reads)
            return [result, result, result]
        name = node.op.name if node.op else ""
        if name == "_contrib_dequantize":
            scale = wanted.get(id(node.inputs[0].node))
            return None if scale is None else [make(DEQUANTIZE, node, [inputs[0]], {"scale": scale})]
        if node.op is CONVOLUTION:
            return _convolution(node, inputs, settings)
        if node.op is DENSE:
            return _dense(node, inputs, settings)
        return None

    return rewrite(entries, replace, ("_contrib_quantize_v2", "_contrib_dequantize", "convolution", "dense"))


def _quantizations(entries: Sequence[Entry], order: Sequence[Node]) -> dict[int, Scale]:
    """Quantizations with a fixed range that nothing reads but dequantizations, by the id of their node."""
    found = {}
    for node in order:
        if node.op is not None and node.op.name == "_contrib_quantize_v2":
            scale = _scale_of(node)
            if scale is not None:
                found[id(node)] = scale
    for entry in entries:
        found.pop(id(entry.node), None)
    for node in order:
        if node.op is None or node.op.name != "_contrib_dequantize":
            for entry in node.inputs:
                found.pop(id(entry.node), None)
        elif [e.index for e in node.inputs] != [0, 1, 2] or len({id(e.node) for e in node.inputs}) > 1:
            for entry in node.inputs:
                found.pop(id(entry.node), None)
    return found


def _scale_of(node: Node) -> Scale | None:
    attrs, spec = node.full_attrs, node.inputs[0].spec
    low, high = attrs["min_calib_range"], attrs["max_calib_range"]
    if low is None or high is None or spec is None or spec.dtype is not torch.float32:
        return None
    signed = attrs["out_type"] == "int8" or (attrs["out_type"] == "auto" and low < 0)
    largest = max(abs(low), abs(high))
    if largest < torch.finfo(torch.float32).tiny:
        # Zeros only, or steps whose inverse is infinite.
        return None
    return Scale(largest / (127.5 if signed else 255.5), 128 if signed else 0)


def _bytes(entry: Entry) -> list[Spec] | None:
    return None if entry.spec is None else [Spec(entry.spec.shape, torch.uint8)]


def _quantized(entry: Entry, scale: Scale, reads: Reads) -> Entry:
    """A value of the new graph as integers of a scale."""
    node = entry.node
    if node.op is DEQUANTIZE and node.attrs["scale"] == scale:
        return node.inputs[0]
    if reads.once(entry):
        if node.op in (QUANTIZED_CONVOLUTION, QUANTIZED_DENSE) and node.attrs["out"] is None:
            finished = _with_output(node, scale, entry)
            if finished is not None:
                return finished
        moved = _through(entry, scale, reads)
        if moved is not None:
            return moved
    return make(QUANTIZE, node, [entry], {"scale": scale}, _bytes(entry), f"{node.name}_quantize")


def _with_output(node: Node, scale: Scale, entry: Entry) -> Entry | None:
    """The layer with quantized output, where its residual, if any, is quantized too."""
    attrs, inputs = {**node.attrs, "out": scale}, list(node.inputs)
    if node.attrs.get("residual"):
        other = inputs[-1].node
        if other.op is not DEQUANTIZE:
            return None
        attrs["residual"] = other.attrs["scale"]
        inputs[-1] = other.inputs[0]
    assert node.op is not None
    return make(node.op, node, inputs, attrs, _bytes(entry))


def _through(entry: Entry, scale: Scale, reads: Reads) -> Entry | None:
    """Quantization before an operator that only moves or selects values, instead of after it."""
    node = entry.node
    shape = shape_of(entry)
    if node.op is None or shape is None:
        return None
    name, attrs = node.op.name, node.full_attrs
    if name == "Pooling":
        window = _max_window(node)
        if window is None:
            return None
        source = _quantized(node.inputs[0], scale, reads)
        return make(QUANTIZED_MAX_POOL, node, [source], window, _bytes(entry))
    if name == "Concat":
        parts = [_quantized(part, scale, reads) for part in node.inputs]
        return make(QUANTIZED_CONCATENATE, node, parts, {"axis": attrs["dim"]}, _bytes(entry))
    if name in ("Flatten", "Reshape", "_npx_reshape"):
        source = _quantized(node.inputs[0], scale, reads)
        return make(QUANTIZED_RESHAPE, node, [source], {"shape": shape}, _bytes(entry))
    return None


def _max_window(node: Node) -> dict[str, Any] | None:
    """Kernel, stride and padding of a two-dimensional maximum over complete windows."""
    attrs = node.full_attrs
    shape = shape_of(node.inputs[0])
    if attrs["pool_type"] != "max" or attrs["global_pool"] or len(attrs["kernel"]) != 2 or shape is None:
        return None
    if attrs["layout"] not in (None, "NCHW"):
        return None
    kernel = tuple(attrs["kernel"])
    stride, pad = tuple(attrs["stride"]) or (1, 1), tuple(attrs["pad"]) or (0, 0)
    if attrs["pooling_convention"] != "valid":
        sizes = zip(shape[2:], kernel, stride, pad, strict=True)
        if attrs["pooling_convention"] != "full" or any((s + 2 * p - k) % step for s, k, step, p in sizes):
            return None
    return {"kernel": kernel, "stride": stride, "pad": pad}


def _operands(inputs: tuple[Entry, ...], settings: Settings) -> list[Entry] | None:
    """Integers, int8 weight and the ends of its ranges of a layer on dequantized values."""
    data, weight = inputs[0].node, inputs[1].node
    if data.op is not DEQUANTIZE or weight.op is None or weight.op.name != "_contrib_dequantize":
        return None
    spec = weight.inputs[0].spec
    if spec is None or spec.dtype is not torch.int8 or not settings.is_constant(inputs[1]):
        return None
    return [data.inputs[0], *weight.inputs]


def _convolution(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Any:
    attrs = node.attrs
    operands = _operands(inputs, settings)
    if operands is None or len(attrs["stride"]) != 2 or attrs["transposed"]:
        return None
    kind, scalars = attrs.get("kind"), attrs.get("scalars") or ()
    common = {key: attrs[key] for key in ("stride", "pad", "dilate", "groups")}
    common |= {
        "scale": inputs[0].node.attrs["scale"],
        "bias": bool(attrs.get("bias")),
        "residual": bool(attrs.get("residual")) or None,
        "kind": kind if kind in FUSED_KINDS else None,
        "scalars": scalars if kind in FUSED_KINDS else (),
        "out": None,
    }
    result = make(QUANTIZED_CONVOLUTION, node, [*operands, *inputs[2:]], common, node.specs)
    return [_activated(node, result, kind, scalars)]


def _activated(node: Node, result: Entry, kind: str | None, scalars: Any) -> Entry:
    if kind in FUSED_KINDS:
        return result
    return make(UNARY, node, [result], {"kind": kind, "scalars": scalars}, node.specs, f"{node.name}_{kind}")


def _dense(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Any:
    attrs = node.attrs
    operands = _operands(inputs, settings)
    if operands is None:
        return None
    kind, scalars, residual = attrs.get("kind"), attrs.get("scalars") or (), attrs.get("residual")
    own = None if residual else kind
    common = {
        "scale": inputs[0].node.attrs["scale"],
        "flatten": attrs["flatten"],
        "bias": bool(attrs.get("bias")),
        "kind": own if own in FUSED_KINDS else None,
        "scalars": scalars if own in FUSED_KINDS else (),
        "out": None,
    }
    rest = inputs[2:-1] if residual else inputs[2:]
    result = make(QUANTIZED_DENSE, node, [*operands, *rest], common, node.specs)
    if residual:
        result = make(ADD, node, [result, inputs[-1]], {}, node.specs, f"{node.name}_add")
        if kind is not None:
            more = {"kind": kind, "scalars": scalars}
            return [make(UNARY, node, [result], more, node.specs, f"{node.name}_{kind}")]
        return [result]
    return [_activated(node, result, kind, scalars)]
