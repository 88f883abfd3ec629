"""Kernels for layers on integers: oneDNN's quantized convolution and product.

``torch.ops.onednn`` is private to torch. Each kernel is looked up and tried once; where one is missing or
gives wrong values, the plain function of `passes.integers` runs instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph.node import Entry, Node
from ..ops.internal import InternalOp, Slot, constant_op
from ..ops.opdef import Spec
from ..passes.integers import (
    DEQUANTIZE,
    QUANTIZED_CONVOLUTION,
    QUANTIZED_DENSE,
    Scale,
    convolution,
    dense,
    weight_steps,
)
from ..passes.rewrite import Settings, make, shape_of

__all__ = ["available", "filter_steps", "integer_candidates"]

_ONEDNN = {None: "none", "relu": "relu", "clip": "hardtanh", "silu": "swish"}


@functools.cache
def available() -> dict[str, Any]:
    """The private kernels that this torch has and that give right values on this machine, by short name."""
    found: dict[str, Any] = {}
    for short, trial in (("convolution", _try_convolution), ("dense", _try_dense)):
        try:
            found[short] = trial()
        except (AttributeError, RuntimeError, NotImplementedError, TypeError):
            continue
    return found


def _integers(low: int, high: int, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) * 37 % (high - low) + low).reshape(shape)


def _check(name: str, result: Tensor, expected: Tensor) -> None:
    if not torch.equal(result, expected):
        raise RuntimeError(f"the quantized {name} gives wrong values")


def _try_convolution() -> Any:
    kernel = torch.ops.onednn.qconv2d_pointwise
    pack = torch.ops.onednn.qconv_prepack.default
    data = _integers(0, 256, 1, 8, 4, 4).to(torch.uint8).contiguous(memory_format=torch.channels_last)
    weight = _integers(-127, 128, 8, 8, 3, 3).to(torch.int8)
    high = torch.arange(1, 9) / 16.0
    steps, zeros, bias = weight_steps(weight, high, high), torch.zeros(8, dtype=torch.int32), high - 0.25
    window = ([1, 1], [1, 1], [1, 1], 1)
    common: dict[str, Any] = dict(zip(("stride", "pad", "dilate", "groups"), window, strict=True))
    common |= {"bias": True, "kind": "relu"}
    for zero in (0, 128):
        scale, out = Scale(0.02, zero), Scale(0.05, zero)
        packed = pack(weight, steps, scale.step, zero, *window, list(data.shape))
        first = (data, scale.step, zero, packed, steps, zeros)
        result = kernel.default(*first, bias, *window, out.step, zero, torch.uint8, "relu", [], "")
        _check(
            "convolution", result, convolution(data, weight, high, high, bias, scale=scale, out=out, **common)
        )
        other = data.clone(memory_format=torch.preserve_format)
        tail: tuple[Any, ...] = (out.step, zero, torch.uint8, out.step, zero, "sum", 1.0, "relu", [], None)
        result = kernel.binary(*first, other, bias, *window, *tail)
        common["residual"] = out
        _check(
            "sum", result, convolution(data, weight, high, high, bias, data, scale=scale, out=out, **common)
        )
        del common["residual"]
    return kernel.default, kernel.binary, pack


def _try_dense() -> Any:
    kernel = torch.ops.onednn.qlinear_pointwise.default
    pack = torch.ops.onednn.qlinear_prepack.default
    data = _integers(0, 256, 4, 24).to(torch.uint8)
    weight = _integers(-127, 128, 8, 24).to(torch.int8)
    high = torch.arange(1, 9) / 16.0
    steps, zeros = weight_steps(weight, high, high), torch.zeros(8, dtype=torch.int32)
    for zero in (0, 128):
        scale, out = Scale(0.02, zero), Scale(0.05, zero)
        first = (data, scale.step, zero, pack(weight, list(data.shape)), steps, zeros, high)
        result = kernel(*first, out.step, zero, torch.uint8, "relu", [], "")
        _check(
            "product",
            result,
            dense(data, weight, high, high, high, scale=scale, bias=True, kind="relu", out=out),
        )
    return kernel, pack


def _pack_convolution(weight: Tensor, steps: Tensor, *, arguments: tuple[Any, ...]) -> Tensor:
    return available()["convolution"][2](weight, steps, *arguments)  # type: ignore[no-any-return]


def _pack_dense(weight: Tensor, *, shape: list[int]) -> Tensor:
    return available()["dense"][1](weight, shape)  # type: ignore[no-any-return]


def _zeros(steps: Tensor) -> Tensor:
    return torch.zeros(steps.shape, dtype=torch.int32)


PACK_CONVOLUTION = constant_op("pack_quantized_convolution", _pack_convolution, "arguments")
PACK_DENSE = constant_op("pack_quantized_dense", _pack_dense, "shape")
WEIGHT_STEPS = constant_op("weight_steps", weight_steps)
ZEROS = constant_op("weight_zeros", _zeros)


def integer_candidates(
    node: Node, inputs: tuple[Entry, ...], settings: Settings
) -> dict[str, Callable[[], Entry] | None]:
    """The kernels that can compute a node on integers; None is its plain function."""
    made = None
    if node.op is QUANTIZED_CONVOLUTION and "convolution" in available():
        made = _convolution(node, inputs, settings)
    elif node.op is QUANTIZED_DENSE and "dense" in available():
        made = _dense(node, inputs, settings)
    elif node.op is DEQUANTIZE and node.attrs["scale"].zero == 0:
        arguments = (Slot(0), node.attrs["scale"].step)
        made = make(InternalOp("dequantize", torch.mul, arguments=arguments), node, inputs)
    return {"plain": None} if made is None else {"integers": lambda: made}


def _weights(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> tuple[Entry, Entry] | None:
    """The steps of the filters and their zeros."""
    filters = shape_of(inputs[1])
    if filters is None or not all(settings.is_constant(entry) for entry in inputs[1:4]):
        return None
    steps = filter_steps(node, inputs, filters[0])
    zeros = make(ZEROS, node, [steps], {}, [Spec((filters[0],), torch.int32)], f"{node.name}_weight_zeros")
    return steps, zeros


def filter_steps(node: Node, inputs: Sequence[Entry], filters: int) -> Entry:
    """The real value of one step of each filter of a layer on integers."""
    spec = Spec((filters,), torch.float32)
    return make(WEIGHT_STEPS, node, inputs[1:4], {}, [spec], f"{node.name}_weight_steps")


def _output(attrs: dict[str, Any]) -> tuple[float, int, torch.dtype]:
    out = attrs["out"]
    return (1.0, 0, torch.float32) if out is None else (out.step, out.zero, torch.uint8)


def _convolution(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Entry | None:
    attrs, shape = node.attrs, shape_of(inputs[0])
    found = _weights(node, inputs, settings)
    if shape is None or 0 in shape or found is None:
        return None
    steps, zeros = found
    plain, binary, _ = available()["convolution"]
    scale, residual = attrs["scale"], attrs["residual"]
    window = (list(attrs["stride"]), list(attrs["pad"]), list(attrs["dilate"]), attrs["groups"])
    arguments = (scale.step, scale.zero, *window, list(shape))
    packed = make(
        PACK_CONVOLUTION, node, [inputs[1], steps], {"arguments": arguments},
        [inputs[1].spec], f"{node.name}_weight_packed",  # type: ignore[list-item]
    )  # fmt: skip
    operands = [inputs[0], packed, steps, zeros, *inputs[4:]]
    bias = Slot(4) if attrs["bias"] else None
    first = (Slot(0), scale.step, scale.zero, Slot(1), Slot(2), Slot(3))
    name, scalars = _ONEDNN[attrs["kind"]], list(attrs["scalars"])
    if not residual:
        whole: tuple[Any, ...] = (*first, bias, *window, *_output(attrs), name, scalars, "")
        return make(InternalOp("onednn_quantized_convolution", plain, arguments=whole), node, operands)
    other = Slot(len(operands) - 1)
    own = residual if isinstance(residual, Scale) else Scale(1.0, 0)
    tail = (own.step, own.zero, "sum", 1.0, None if name == "none" else name, scalars, None)
    whole = (*first, other, bias, *window, *_output(attrs), *tail)
    op = InternalOp(
        "onednn_quantized_convolution",
        functools.partial(_on_a_copy, binary),
        arguments=whole,
        in_place=(functools.partial(_in_place, binary), whole, other.index),
    )
    return make(op, node, operands)


# The kernel adds to its operand in place, which is to lie channels last.
def _on_a_copy(kernel: Any, *arguments: Any) -> Tensor:
    other = torch.empty_like(arguments[6], memory_format=torch.channels_last).copy_(arguments[6])
    return kernel(*arguments[:6], other, *arguments[7:])  # type: ignore[no-any-return]


def _in_place(kernel: Any, *arguments: Any) -> Tensor:
    other = arguments[6].contiguous(memory_format=torch.channels_last)
    return kernel(*arguments[:6], other, *arguments[7:])  # type: ignore[no-any-return]


def _dense(node: Node, inputs: tuple[Entry, ...], settings: Settings) -> Entry | None:
    attrs, shape, weight = node.attrs, shape_of(inputs[0]), shape_of(inputs[1])
    out = shape_of(Entry(node, 0))
    found = _weights(node, inputs, settings)
    if shape is None or weight is None or out is None or 0 in shape or found is None:
        return None
    steps, zeros = found
    rows = out[:-1] if len(out) == 2 else (torch.Size(out[:-1]).numel(),)
    data = inputs[0] if len(shape) == 2 else _reshaped(inputs[0], (*rows, weight[1]), torch.uint8)
    packed = make(
        PACK_DENSE, node, [inputs[1]], {"shape": [*rows, weight[1]]},
        [inputs[1].spec], f"{node.name}_weight_packed",  # type: ignore[list-item]
    )  # fmt: skip
    scale = attrs["scale"]
    bias = Slot(4) if attrs["bias"] else None
    first = (Slot(0), scale.step, scale.zero, Slot(1), Slot(2), Slot(3), bias)
    whole = (*first, *_output(attrs), _ONEDNN[attrs["kind"]], list(attrs["scalars"]), "")
    op = InternalOp("onednn_quantized_dense", available()["dense"][0], arguments=whole)
    dtype = _output(attrs)[2]
    operands = [data, packed, steps, zeros, *inputs[4:]]
    result = make(op, node, operands, {}, [Spec((*rows, weight[0]), dtype)])
    return result if len(out) == 2 else _reshaped(result, out, dtype)


def _reshaped(entry: Entry, shape: tuple[int, ...], dtype: torch.dtype) -> Entry:
    op = InternalOp("reshape", Tensor.reshape, arguments=(Slot(0), shape), fresh=False)
    return make(op, entry.node, [entry], {}, [Spec(shape, dtype)], f"{entry.node.name}_rows")
