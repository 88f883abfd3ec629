"""Kernels for the common forms: which torch kernel runs a fused node, and how weights are packed for it.

oneDNN's and MKL's packed kernels (``torch.ops.mkldnn``, ``torch.ops.mkl``) are private to torch. Each is
looked up and tried once; where one is missing or wrong, the plain function of `ops.internal` runs instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Entry, Node
from ..ops.internal import (
    CONVOLUTION,
    DENSE,
    UNARY,
    InternalOp,
    Slot,
    constant_op,
    unary_functions,
)
from ..ops.opdef import Spec
from ..passes.rewrite import Reads, Settings, make, rewrite, shape_of

__all__ = ["available", "choose_kernels", "contiguous_outputs"]

# An activation's name and algorithm for oneDNN.
_ONEDNN_UNARY: dict[str | None, tuple[str, str]] = {
    None: ("none", ""),
    "relu": ("relu", ""),
    "sigmoid": ("sigmoid", ""),
    "tanh": ("tanh", ""),
    "clip": ("hardtanh", ""),
    "leaky": ("leaky_relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
}
# Products with fewer multiplications than this are bound by the call, not by the work.
_SMALL_PRODUCT = 20_000
# A packed copy of a weight with more elements than this gains nothing: reading it is the work.
_LARGE_WEIGHT = 8_000_000


@functools.cache
def available() -> dict[str, Any]:
    """The private kernels that this torch has and that give right values on this machine, by short name."""
    found: dict[str, Any] = {}
    for short, trial in (
        ("convolution", _try_convolution),
        ("linear", _try_linear),
        ("addmm", _try_addmm),
        ("low_linear", _try_low_linear),
    ):
        try:
            found[short] = trial()
        except (AttributeError, RuntimeError, NotImplementedError):
            continue
    return found


def _try_convolution() -> Any:
    kernel = torch.ops.mkldnn._convolution_pointwise
    writing = torch.ops.mkldnn._convolution_pointwise_.binary
    pack = torch.ops.mkldnn._reorder_convolution_weight.default
    data, weight = torch.ones(1, 8, 4, 4), torch.ones(8, 8, 1, 1)
    packed = pack(weight, [0, 0], [1, 1], [1, 1], 1, [1, 8, 4, 4])
    result = kernel.default(data, packed, None, [0, 0], [1, 1], [1, 1], 1, "relu", [], "")
    if not torch.equal(result, torch.full_like(result, 8.0)):
        raise RuntimeError("the fused convolution gives wrong values")
    return kernel.default, kernel.binary, writing, pack


def _try_linear() -> Any:
    kernel = torch.ops.mkl._mkl_linear.default
    pack = torch.ops.mkl._mkl_reorder_linear_weight.default
    data, weight = torch.ones(4, 8), torch.ones(8, 8)
    result = kernel(data, pack(weight, 4), weight, None, 4)
    if not torch.equal(result, torch.full_like(result, 8.0)):
        raise RuntimeError("the packed product gives wrong values")
    return kernel, pack


def _try_low_linear() -> Any:
    kernel = torch.ops.mkldnn._linear_pointwise.default
    pack = torch.ops.mkldnn._reorder_linear_weight.default
    data, weight = torch.ones(4, 8).bfloat16(), torch.ones(8, 8).bfloat16()
    result = kernel(data, pack(weight, 4), None, "relu", [], "")
    if not torch.equal(result, torch.full_like(result, 8.0)):
        raise RuntimeError("the bfloat16 product gives wrong values")
    return kernel, pack


def _runs_low(dtype: torch.dtype) -> bool:
    """Whether oneDNN has kernels for this 16-bit type on this processor."""
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float16 and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def _try_addmm() -> Any:
    kernel = torch._addmm_activation
    data, weight = torch.ones(4, 8), torch.ones(8, 2)
    result = kernel(torch.tensor([-9.0, 1.0]), data, weight)
    if not torch.equal(result, torch.tensor([[0.0, 9.0]]).expand(4, 2)):
        raise RuntimeError("the fused product gives wrong values")
    return kernel


def choose_kernels(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Replace the common forms by kernels; runs after all passes."""
    if settings.device != "cpu":
        return list(entries)
    layouts = _Layouts()

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        op = node.op
        if op is CONVOLUTION:
            chosen = _convolution(node, inputs, settings, layouts)
        elif op is DENSE:
            chosen = _dense(node, inputs, settings)
        elif op is UNARY:
            chosen = _unary(node, inputs)
        else:
            chosen = None
        return None if chosen is None else [chosen]

    return rewrite(entries, replace)


# Memory layout ----------------------------------------------------------------------

_KEEP_LAYOUT = frozenset(
    {"Pooling", "add", "unary", "relu", "clip", "sigmoid", "tanh", "Activation", "LeakyReLU", "affine"}
)


class _Layouts:
    """Which 4-dimensional values are known to lie channels last in memory."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, bool]] = {}

    def is_last(self, entry: Any) -> bool:
        """Whether this value lies channels last."""
        node = entry.node
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = (node, self._decide(node))
        return known[1]

    def _decide(self, node: Node) -> bool:
        op = node.op
        if op is None:
            return False
        if op.name in ("onednn_convolution", "channels_last"):
            return True
        spec = node.specs[0] if node.specs else None
        if spec is None or len(spec.shape) != 4:
            return False
        if op.name == "Concat":
            return node.full_attrs["dim"] == 1 and all(self.is_last(e) for e in node.inputs)
        if op.name == "add":
            return all(self.is_last(e) for e in node.inputs)
        return op.name in _KEEP_LAYOUT and self.is_last(node.inputs[0])


def _to_channels_last(data: Tensor) -> Tensor:
    return data.contiguous(memory_format=torch.channels_last)


CHANNELS_LAST = InternalOp("channels_last", _to_channels_last, fresh=False)
CONTIGUOUS = InternalOp("contiguous", Tensor.contiguous, fresh=False)


def _channels_last(entry: Entry, layouts: _Layouts) -> Entry:
    if layouts.is_last(entry):
        return entry
    specs = None if entry.spec is None else [entry.spec]
    return make(CHANNELS_LAST, entry.node, [entry], {}, specs, f"{entry.node.name}_channels_last")


def contiguous_outputs(entries: Sequence[Entry]) -> list[Entry]:
    """Outputs lie in memory as they do without compiling: channels first."""
    layouts = _Layouts()
    return [
        make(CONTIGUOUS, entry.node, [entry], {}, None if entry.spec is None else [entry.spec])
        if layouts.is_last(entry)
        else entry
        for entry in entries
    ]


# Convolution ----------------------------------------------------------------------


def _has_kernels(inputs: Sequence[Entry]) -> bool:
    """Whether all operands have one type, for which there are kernels here."""
    types = {entry.spec.dtype if entry.spec is not None else None for entry in inputs}
    if types == {torch.float32}:
        return True
    (dtype,) = types if len(types) == 1 else (None,)
    return dtype in (torch.bfloat16, torch.float16) and _runs_low(dtype)


def _pack_convolution(weight: Tensor, *, arguments: tuple[Any, ...]) -> Tensor:
    pack = available()["convolution"][3]
    return pack(weight.contiguous(memory_format=torch.channels_last), *arguments)  # type: ignore[no-any-return]


PACK_CONVOLUTION = constant_op("pack_convolution", _pack_convolution, "arguments")


def _convolution(
    node: Node, inputs: tuple[Entry, ...], settings: Settings, layouts: _Layouts
) -> Entry | None:
    attrs = node.attrs
    shape, filters = shape_of(inputs[0]), shape_of(inputs[1])
    if (
        "convolution" not in available()
        or attrs["transposed"]
        or shape is None
        or filters is None
        or len(shape) != 4
        or 0 in shape
        or not _has_kernels(inputs)
        or attrs.get("kind") not in _ONEDNN_UNARY
        or not settings.is_constant(inputs[1])
    ):
        return None
    plain, binary, writing, _ = available()["convolution"]
    pad, stride, dilate = list(attrs["pad"]), list(attrs["stride"]), list(attrs["dilate"])
    groups = attrs["groups"]
    packed = make(
        PACK_CONVOLUTION,
        node,
        [inputs[1]],
        {"arguments": (pad, stride, dilate, groups, list(shape))},
        [inputs[1].spec],  # type: ignore[list-item]
        f"{node.name}_weight_packed",
    )
    data = _channels_last(inputs[0], layouts)
    name, algorithm = _ONEDNN_UNARY[attrs.get("kind")]
    scalars = list(attrs.get("scalars") or ())
    operands = [data, packed]
    bias: Any = None
    if attrs.get("bias"):
        operands.append(inputs[2])
        bias = Slot(2)
    window = (pad, stride, dilate, groups)
    if not attrs.get("residual"):
        arguments = (Slot(0), Slot(1), bias, *window, name, scalars, algorithm)
        return make(InternalOp("onednn_convolution", plain, arguments=arguments), node, operands)
    operands.append(_channels_last(inputs[-1], layouts))
    other = Slot(len(operands) - 1)
    tail = ("add", 1.0, None if name == "none" else name, scalars, algorithm)
    op = InternalOp(
        "onednn_convolution",
        binary,
        arguments=(Slot(0), other, Slot(1), bias, *window, *tail),
        in_place=(writing, (other, Slot(0), Slot(1), bias, *window, *tail), other.index),
    )
    return make(op, node, operands)


# Products ----------------------------------------------------------------------


def _transpose_weight(weight: Tensor) -> Tensor:
    return weight.t().contiguous()


def _pack_linear(weight: Tensor, *, rows: int) -> Tensor:
    return available()["linear"][1](weight.contiguous(), rows)  # type: ignore[no-any-return]


TRANSPOSE_WEIGHT = constant_op("transpose_weight", _transpose_weight)
PACK_LINEAR = constant_op("pack_linear", _pack_linear, "rows")


def _reshaped(entry: Entry, shape: tuple[int, ...]) -> Entry:
    op = InternalOp("reshape", Tensor.reshape, arguments=(Slot(0), shape), fresh=False)
    spec = entry.spec
    assert spec is not None
    return make(op, entry.node, [entry], {}, [Spec(shape, spec.dtype)], f"{entry.node.name}_rows")


def _dense(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Entry | None:
    attrs = node.attrs
    shape, weight, out = shape_of(inputs[0]), shape_of(inputs[1]), shape_of(Entry(node, 0))
    if (
        shape is None
        or weight is None
        or out is None
        or 0 in shape
        or attrs.get("residual")
        or not _has_kernels(inputs)
        or not settings.is_constant(inputs[1])
    ):
        return None
    rows = math.prod(out[:-1])
    data = inputs[0] if len(shape) == 2 else _reshaped(inputs[0], (rows, weight[1]))
    flat = Spec((rows, weight[0]), inputs[0].spec.dtype)  # type: ignore[union-attr]
    work = rows * weight[0] * weight[1]
    bias = inputs[2] if attrs.get("bias") else None
    kind = attrs.get("kind")
    if flat.dtype is not torch.float32:
        if "low_linear" not in available() or kind not in _ONEDNN_UNARY:
            return None
        result = _low_product(node, data, inputs[1], bias, flat)
        return result if out == flat.shape else _reshaped(result, out)
    if work <= _SMALL_PRODUCT and bias is not None and "addmm" in available():
        result = _small_product(node, data, inputs[1], bias, flat, kind)
        kind = None if kind in ("relu", "gelu_tanh") else kind
    elif weight[0] * weight[1] <= _LARGE_WEIGHT and "linear" in available():
        result = _packed_product(node, data, inputs[1], bias, flat, rows)
    else:
        return None
    if kind is not None:
        result = _activated(node, result, kind, attrs.get("scalars") or ())
    return result if out == flat.shape else _reshaped(result, out)


def _small_product(
    node: Node, data: Entry, weight: Entry, bias: Entry, spec: Spec, kind: str | None
) -> Entry:
    assert weight.spec is not None
    turned = Spec((weight.spec.shape[1], weight.spec.shape[0]), weight.spec.dtype)
    right = make(TRANSPOSE_WEIGHT, node, [weight], {}, [turned], f"{node.name}_weight_transposed")
    operands = (Slot(0), Slot(1), Slot(2))
    if kind in ("relu", "gelu_tanh"):
        op = _ADDMM_RELU if kind == "relu" else _ADDMM_GELU
    else:
        op = InternalOp("addmm", torch.addmm, arguments=operands)
    return make(op, node, [bias, data, right], {}, [spec])


def _relu_product(bias: Tensor, data: Tensor, weight: Tensor) -> Tensor:
    return torch._addmm_activation(bias, data, weight)


def _gelu_product(bias: Tensor, data: Tensor, weight: Tensor) -> Tensor:
    return torch._addmm_activation(bias, data, weight, use_gelu=True)


_THREE = (Slot(0), Slot(1), Slot(2))
_ADDMM_RELU = InternalOp("addmm_relu", getattr(torch, "_addmm_activation", _relu_product), arguments=_THREE)
_ADDMM_GELU = InternalOp("addmm_gelu", _gelu_product, arguments=_THREE)


def _packed_product(
    node: Node, data: Entry, weight: Entry, bias: Entry | None, spec: Spec, rows: int
) -> Entry:
    packed = make(
        PACK_LINEAR,
        node,
        [weight],
        {"rows": rows},
        None if weight.spec is None else [weight.spec],
        f"{node.name}_weight_packed",
    )
    operands = [data, packed, weight, *([bias] if bias is not None else [])]
    arguments = (Slot(0), Slot(1), Slot(2), Slot(3) if bias is not None else None, rows)
    kernel = available()["linear"][0]
    return make(InternalOp("mkl_linear", kernel, arguments=arguments), node, operands, {}, [spec])


def _pack_low(weight: Tensor, *, rows: int) -> Tensor:
    return available()["low_linear"][1](weight.contiguous(), rows)  # type: ignore[no-any-return]


PACK_LOW = constant_op("pack_low_linear", _pack_low, "rows")


def _low_product(node: Node, data: Entry, weight: Entry, bias: Entry | None, spec: Spec) -> Entry:
    """A product in 16 bits with its activation."""
    packed = make(
        PACK_LOW,
        node,
        [weight],
        {"rows": spec.shape[0]},
        None if weight.spec is None else [weight.spec],
        f"{node.name}_weight_packed",
    )
    name, algorithm = _ONEDNN_UNARY[node.attrs.get("kind")]
    scalars = list(node.attrs.get("scalars") or ())
    operands = [data, packed, *([bias] if bias is not None else [])]
    arguments = (Slot(0), Slot(1), Slot(2) if bias is not None else None, name, scalars, algorithm)
    op = InternalOp("onednn_linear", available()["low_linear"][0], arguments=arguments)
    return make(op, node, operands, {}, [spec])


# Element by element ----------------------------------------------------------------------


def _activated(node: Node, value: Entry, kind: str, scalars: Sequence[float]) -> Entry:
    function, writing = unary_functions(kind)
    arguments = (Slot(0), *scalars)
    in_place = None if writing is None else (writing, arguments, 0)
    op = InternalOp(kind, function, arguments=arguments, in_place=in_place)
    return make(op, node, [value], {}, None if value.spec is None else [value.spec], f"{node.name}_{kind}")


def _unary(node: Node, inputs: tuple[Entry, ...]) -> Entry:
    return _activated(node, inputs[0], node.attrs["kind"], node.attrs.get("scalars") or ())
