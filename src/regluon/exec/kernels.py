"""Kernels for the common forms: which torch kernel runs a fused node, and how weights are packed for it.

oneDNN's and MKL's packed kernels (``torch.ops.mkldnn``, ``torch.ops.mkl``) are private to torch. Each is
looked up and tried once; where one is missing or wrong, the plain function of `ops.internal` runs instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Entry, Node
from ..ops.internal import (
    ADD,
    CONTIGUOUS,
    CONVOLUTION,
    DENSE,
    UNARY,
    InternalOp,
    Slot,
    channels_last,
    constant_op,
    unary_functions,
)
from ..ops.opdef import Spec
from ..passes.cleanup import RESHAPES, TRANSPOSES, permutation
from ..passes.rewrite import Reads, Settings, make, rewrite, shape_of
from .layouts import Layouts
from .quantized import integer_candidates

__all__ = ["Layouts", "available", "candidates", "choose_kernels", "contiguous_outputs", "runs_here"]

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
        ("onednn_linear", _try_onednn_linear),
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


def _try_onednn_linear() -> Any:
    kernel = torch.ops.mkldnn._linear_pointwise
    pack = torch.ops.mkldnn._reorder_linear_weight.default
    data, weight = torch.ones(4, 8), torch.ones(8, 8)
    result = kernel.default(data, pack(weight, 4), None, "relu", [], "")
    total = kernel.binary(data, torch.ones(4, 8), pack(weight, 4), None, "add")
    if not torch.equal(result, torch.full_like(result, 8.0)) or not torch.equal(total, result + 1):
        raise RuntimeError("the fused product gives wrong values")
    return kernel.default, kernel.binary, pack


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


# Ways to compute a node, the one that is taken unmeasured first. None is the plain function of the form.
Candidates = dict[str, Callable[[], Entry] | None]
Choose = Callable[[Node, tuple[Entry, ...], Candidates, bool], str]


def candidates(node: Node, inputs: tuple[Entry, ...], settings: Settings, layouts: Layouts) -> Candidates:
    """The kernels that can compute a node in one of the common forms."""
    if node.op is CONVOLUTION:
        return _convolution(node, inputs, settings, layouts)
    if node.op is DENSE:
        return _dense(node, inputs, settings)
    if node.op is UNARY:
        return {"unary": lambda: _unary(node, inputs)}
    view = _view(node, inputs)
    if view is not None:
        return {"view": lambda: view}
    return integer_candidates(node, inputs, settings)


# The names of the operators that have candidates.
_CHOSEN = (
    frozenset({"convolution", "dense", "unary", "quantized_convolution", "quantized_dense", "dequantize"})
    | RESHAPES
    | TRANSPOSES
)


def choose_kernels(entries: Sequence[Entry], settings: Settings, choose: Choose | None = None) -> list[Entry]:
    """Replace the common forms by kernels; runs after all passes.

    ``choose(node, inputs, candidates, channels_last)`` may pick among several candidates by measuring them.
    """
    if settings.device != "cpu":
        return list(entries)
    layouts = Layouts()

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        if node.op is UNARY:
            # The most frequent ones, of which there is one kind only.
            return [_unary(node, inputs)]
        found = candidates(node, inputs, settings, layouts)
        name = next(iter(found))
        if choose is not None and len(found) > 1:
            name = choose(node, inputs, found, layouts.is_last(inputs[0]))
        build = found[name]
        return None if build is None else [build()]

    return rewrite(entries, replace, _CHOSEN)


# Memory layout ----------------------------------------------------------------------

CHANNELS_LAST = InternalOp("channels_last", channels_last, fresh=False)


def _channels_last(entry: Entry, layouts: Layouts) -> Entry:
    if layouts.is_last(entry):
        return entry
    specs = None if entry.spec is None else [entry.spec]
    return make(CHANNELS_LAST, entry.node, [entry], {}, specs, f"{entry.node.name}_channels_last")


def contiguous_outputs(entries: Sequence[Entry]) -> list[Entry]:
    """Outputs lie in memory as they do without compiling: channels first."""
    layouts = Layouts()
    return [
        make(CONTIGUOUS, entry.node, [entry], {}, None if entry.spec is None else [entry.spec])
        if layouts.is_last(entry)
        else entry
        for entry in entries
    ]


# Convolution ----------------------------------------------------------------------


def runs_here(inputs: Sequence[Entry]) -> bool:
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


def _convolution(node: Node, inputs: tuple[Entry, ...], settings: Settings, layouts: Layouts) -> Candidates:
    attrs = node.attrs
    shape, filters = shape_of(inputs[0]), shape_of(inputs[1])
    if (
        "convolution" not in available()
        or attrs["transposed"]
        or shape is None
        or filters is None
        or len(shape) != 4
        or 0 in shape
        or not runs_here(inputs)
        or attrs.get("kind") not in _ONEDNN_UNARY
        or not settings.is_constant(inputs[1])
    ):
        return {"plain": None}
    return {"onednn": lambda: _onednn_convolution(node, inputs, shape, layouts), "plain": None}


def _onednn_convolution(
    node: Node, inputs: tuple[Entry, ...], shape: tuple[int, ...], layouts: Layouts
) -> Entry:
    """One call for convolution, bias, sum and activation, on channels-last images and a packed weight."""
    attrs = node.attrs
    plain, binary, writing, _ = available()["convolution"]
    window = (list(attrs["pad"]), list(attrs["stride"]), list(attrs["dilate"]), attrs["groups"])
    packed = make(
        PACK_CONVOLUTION,
        node,
        [inputs[1]],
        {"arguments": (*window, list(shape))},
        [inputs[1].spec],  # type: ignore[list-item]
        f"{node.name}_weight_packed",
    )
    operands = [_channels_last(inputs[0], layouts), packed]
    bias: Any = None
    if attrs.get("bias"):
        operands.append(inputs[2])
        bias = Slot(2)
    name, algorithm = _ONEDNN_UNARY[attrs.get("kind")]
    scalars = list(attrs.get("scalars") or ())
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


def _reshaped(entry: Entry, shape: tuple[int, ...], node: Node | None = None) -> Entry:
    op = InternalOp("reshape", Tensor.reshape, arguments=(Slot(0), shape), fresh=False)
    spec = entry.spec
    assert spec is not None
    like, name = (entry.node, f"{entry.node.name}_rows") if node is None else (node, None)
    return make(op, like, [entry], {}, [Spec(shape, spec.dtype)], name)


class _Product:
    """A dense layer as a product of two matrices."""

    def __init__(self, node: Node, inputs: tuple[Entry, ...], rows: int, out: tuple[int, ...]) -> None:
        attrs = node.attrs
        self.node, self.rows, self.out, self.weight = node, rows, out, inputs[1]
        spec = inputs[0].spec
        assert spec is not None and inputs[1].spec is not None
        units, width = inputs[1].spec.shape
        self.data = inputs[0] if len(spec.shape) == 2 else _reshaped(inputs[0], (rows, width))
        self.spec = Spec((rows, units), spec.dtype)
        self.work = rows * units * width
        self.bias = inputs[2] if attrs.get("bias") else None
        self.other = inputs[-1] if attrs.get("residual") else None
        self.kind, self.scalars = attrs.get("kind"), attrs.get("scalars") or ()

    def finish(self, result: Entry, activated: bool = False, added: bool = False) -> Entry:
        """What is left to do after a kernel: the sum, the activation, the shape."""
        if self.out != self.spec.shape:
            result = _reshaped(result, self.out)
        if self.other is not None and not added:
            result = make(ADD, self.node, [result, self.other], {}, None, f"{self.node.name}_sum")
        if self.kind is not None and not activated:
            result = _activated(self.node, result, self.kind, self.scalars)
        return result


def _dense(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Candidates:
    shape, weight, out = shape_of(inputs[0]), shape_of(inputs[1]), shape_of(Entry(node, 0))
    if (
        shape is None
        or weight is None
        or out is None
        or 0 in shape
        or not runs_here(inputs)
        or not settings.is_constant(inputs[1])
    ):
        return {"plain": None}
    product = _Product(node, inputs, math.prod(out[:-1]), out)
    found: Candidates = {}
    kernels = available()
    is_single = product.spec.dtype is torch.float32
    if is_single and product.bias is not None and "addmm" in kernels:
        found["small"] = lambda: _small_product(product)
    if is_single and "linear" in kernels:
        found["packed"] = lambda: _packed_product(product)
    if "onednn_linear" in kernels and product.kind in _ONEDNN_UNARY:
        found["onednn"] = lambda: _onednn_product(product)
    found["plain"] = None
    first = _usual(product, weight, found)
    return {first: found[first], **found}


def _usual(product: _Product, weight: tuple[int, ...], found: Candidates) -> str:
    """What is taken without measuring."""
    if product.spec.dtype is not torch.float32:
        return "onednn" if "onednn" in found else "plain"
    if product.work <= _SMALL_PRODUCT and "small" in found:
        return "small"
    return "packed" if math.prod(weight) <= _LARGE_WEIGHT and "packed" in found else "plain"


def _small_product(product: _Product) -> Entry:
    node, weight = product.node, product.weight
    assert weight.spec is not None and product.bias is not None
    turned = Spec((weight.spec.shape[1], weight.spec.shape[0]), weight.spec.dtype)
    right = make(TRANSPOSE_WEIGHT, node, [weight], {}, [turned], f"{node.name}_weight_transposed")
    fused = product.kind in ("relu", "gelu_tanh") and product.other is None
    if fused:
        op = _ADDMM_RELU if product.kind == "relu" else _ADDMM_GELU
    else:
        op = _ADDMM
    return product.finish(make(op, node, [product.bias, product.data, right], {}, [product.spec]), fused)


def _relu_product(bias: Tensor, data: Tensor, weight: Tensor) -> Tensor:
    return torch._addmm_activation(bias, data, weight)


def _gelu_product(bias: Tensor, data: Tensor, weight: Tensor) -> Tensor:
    return torch._addmm_activation(bias, data, weight, use_gelu=True)


_THREE = (Slot(0), Slot(1), Slot(2))
_ADDMM = InternalOp("addmm", torch.addmm, arguments=_THREE)
_ADDMM_RELU = InternalOp("addmm_relu", getattr(torch, "_addmm_activation", _relu_product), arguments=_THREE)
_ADDMM_GELU = InternalOp("addmm_gelu", _gelu_product, arguments=_THREE)


def _packed_product(product: _Product) -> Entry:
    node, weight, bias = product.node, product.weight, product.bias
    packed = make(
        PACK_LINEAR,
        node,
        [weight],
        {"rows": product.rows},
        None if weight.spec is None else [weight.spec],
        f"{node.name}_weight_packed",
    )
    operands = [product.data, packed, weight, *([bias] if bias is not None else [])]
    arguments = (Slot(0), Slot(1), Slot(2), Slot(3) if bias is not None else None, product.rows)
    op = InternalOp("mkl_linear", available()["linear"][0], arguments=arguments)
    return product.finish(make(op, node, operands, {}, [product.spec]))


def _pack_onednn(weight: Tensor, *, rows: int) -> Tensor:
    return available()["onednn_linear"][2](weight.contiguous(), rows)  # type: ignore[no-any-return]


PACK_ONEDNN = constant_op("pack_linear", _pack_onednn, "rows")


def _onednn_product(product: _Product) -> Entry:
    """A product with its activation, or with a sum."""
    node, weight, bias = product.node, product.weight, product.bias
    plain, binary, _ = available()["onednn_linear"]
    packed = make(
        PACK_ONEDNN,
        node,
        [weight],
        {"rows": product.rows},
        None if weight.spec is None else [weight.spec],
        f"{node.name}_weight_packed",
    )
    operands = [product.data, packed, *([bias] if bias is not None else [])]
    offset = Slot(2) if bias is not None else None
    if product.other is None:
        name, algorithm = _ONEDNN_UNARY[product.kind]
        arguments: tuple[Any, ...] = (Slot(0), Slot(1), offset, name, list(product.scalars), algorithm)
        op = InternalOp("onednn_linear", plain, arguments=arguments)
        return product.finish(make(op, node, operands, {}, [product.spec]), activated=True)
    other = (
        product.other if product.out == product.spec.shape else _reshaped(product.other, product.spec.shape)
    )
    operands.append(other)
    arguments = (Slot(0), Slot(len(operands) - 1), Slot(1), offset, "add")
    op = InternalOp("onednn_linear", binary, arguments=arguments)
    return product.finish(make(op, node, operands, {}, [product.spec]), added=True)


# Views ----------------------------------------------------------------------


def _view(node: Node, inputs: tuple[Entry, ...]) -> Entry | None:
    """A reshape or transpose of a known shape as one call of torch."""
    name = node.op.name if node.op is not None else ""
    if name in RESHAPES and node.full_attrs.get("order", "C") == "C":
        before, after = shape_of(inputs[0]), shape_of(Entry(node, 0))
        return None if before is None or after is None else _reshaped(inputs[0], after, node)
    if name not in TRANSPOSES:
        return None
    shape = shape_of(inputs[0])
    axes = None if shape is None else permutation(node, len(shape))
    if axes is None:
        return None
    op = InternalOp("transpose", Tensor.permute, arguments=(Slot(0), axes), fresh=False)
    return make(op, node, inputs, {}, node.specs)


# Element by element ----------------------------------------------------------------------


@functools.cache
def _plain_activation(kind: str) -> InternalOp:
    function, writing = unary_functions(kind)
    in_place = None if writing is None else (writing, (Slot(0),), 0)
    return InternalOp(kind, function, arguments=(Slot(0),), in_place=in_place)


def _activation(kind: str, scalars: Sequence[float]) -> InternalOp:
    if not scalars:
        return _plain_activation(kind)
    function, writing = unary_functions(kind)
    arguments = (Slot(0), *scalars)
    in_place = None if writing is None else (writing, arguments, 0)
    return InternalOp(kind, function, arguments=arguments, in_place=in_place)


def _activated(node: Node, value: Entry, kind: str, scalars: Sequence[float]) -> Entry:
    specs = None if value.spec is None else [value.spec]
    return make(_activation(kind, scalars), node, [value], {}, specs, f"{node.name}_{kind}")


def _unary(node: Node, inputs: tuple[Entry, ...]) -> Entry:
    return _activated(node, inputs[0], node.attrs["kind"], node.attrs.get("scalars") or ())
