"""Which nodes there may be a primitive for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...graph.node import Entry, Node
from ...ops.internal import ADD, AFFINE, CONVOLUTION, DENSE, UNARY
from ...passes.attention import ATTENTION_BY_ROWS
from ...passes.cleanup import CASTS
from ...passes.integers import (
    DEQUANTIZE,
    QUANTIZE,
    QUANTIZED_CONCATENATE,
    QUANTIZED_CONVOLUTION,
    QUANTIZED_DENSE,
    QUANTIZED_MAX_POOL,
    QUANTIZED_RESHAPE,
)
from ...passes.rewrite import Settings, shape_of
from ..kernels import runs_here
from . import interface

__all__ = ["FLATTENINGS", "PRODUCTS", "is_work", "may_work", "pooling_window", "shape_at", "suits"]

FEW_CHANNELS = 3
FLATTENINGS = frozenset({"Flatten", "flatten", "_npx_batch_flatten"})
PRODUCTS = frozenset({"broadcast_mul", "elemwise_mul", "_npi_multiply"})
# Products with fewer multiplications than this are left to torch, whose call is cheaper.
_SMALL_PRODUCT = 20_000
# Bytes of the scores of attention that may be written to memory. With more, or half as many in 16 bits,
# torch is faster, which keeps parts of them only.
_MOST_SCORES = 16 << 20
# Layers and steps on integers.
_INTEGER_LAYERS = (QUANTIZED_CONVOLUTION, QUANTIZED_DENSE)
_INTEGERS = (
    *_INTEGER_LAYERS,
    QUANTIZE,
    DEQUANTIZE,
    QUANTIZED_CONCATENATE,
    QUANTIZED_MAX_POOL,
    QUANTIZED_RESHAPE,
)


def shape_at(entry: Entry) -> tuple[int, ...]:
    shape = shape_of(entry)
    assert shape is not None
    return shape


def suits(node: Node, settings: Settings) -> bool:
    """Whether there may be a primitive for a node."""
    specs = node.specs
    if specs is None or node.op is None:
        return False
    if node.op.name == "RNN":
        return _suits_lstm(node, settings)
    if node.outputs != 1:
        return False
    spec, shapes = specs[0], [shape_of(entry) for entry in node.inputs]
    if any(shape is None or 0 in shape for shape in [shape_of(Entry(node, 0)), *shapes]):
        return False
    attrs = node.full_attrs
    if attrs.get("kind") is not None and attrs["kind"] not in interface.ELTWISE:
        return False
    rank = len(spec.shape)
    constants = [settings.is_constant(entry) for entry in node.inputs]
    if node.op in _INTEGERS:
        return _suits_integers(node, constants)
    if node.op.name in CASTS or node.op is ADD:
        # Types may differ; each has its own kernels.
        each = all(runs_here([entry]) for entry in [*node.inputs, Entry(node, 0)])
        return each and 2 <= rank <= 5 and not any(constants)
    # Factors and offsets may be more precise than the data.
    mixed = node.op is AFFINE or node.op.name == "LayerNorm"
    if not runs_here([*(node.inputs[:1] if mixed else node.inputs), Entry(node, 0)]):
        return False
    weights = all(constants[1 : 3 if attrs.get("bias") else 2])
    residual = bool(attrs.get("residual")) and constants[-1]
    if node.op in (CONVOLUTION, DENSE):
        if attrs.get("transposed") or residual or constants[0] or not weights:
            return False
        return node.op is DENSE or _reads_data(node)
    if node.op is ATTENTION_BY_ROWS:
        return _has_few_scores(node) and not any(constants)
    if node.op is UNARY:
        return 2 <= rank <= 5 and not any(constants)
    if node.op is AFFINE:
        # On images of one pixel oneDNN 3.12 adds offsets by channel wrongly.
        if rank != 4 or tuple(spec.shape[2:]) == (1, 1):
            return False
        single = all(each.spec is not None and each.spec.dtype is torch.float32 for each in node.inputs)
        return attrs["axis"] == 1 and all(constants[1:]) and single
    if node.op.name == "LayerNorm":
        attrs = node.full_attrs
        last = attrs["axis"] % rank == rank - 1 and not attrs["output_mean_var"]
        return last and 2 <= rank <= 5 and all(constants[1:]) and not constants[0]
    if node.op.name == "Pooling":
        return rank == 4 and pooling_window(node) is not None
    if node.op.name == "Concat":
        return rank == 4 and attrs["dim"] == 1 and not any(constants)
    if node.op.name in FLATTENINGS:
        return True
    return node.op.name in PRODUCTS and rank == 4 and not any(constants) and _repeats(shapes)


def _has_few_scores(node: Node) -> bool:
    """Whether the scores of attention may be written to memory."""
    (batch, queries, _), (_, keys, _) = (shape_at(entry) for entry in node.inputs[:2])
    single = node.specs is not None and node.specs[0].dtype is torch.float32
    size: int = batch * node.attrs["heads"] * queries * keys * torch.float32.itemsize
    return (size if single else 2 * size) <= _MOST_SCORES


def _suits_lstm(node: Node, settings: Settings) -> bool:
    """An LSTM without what only some of them have."""
    attrs, inputs = node.full_attrs, node.inputs
    shape = shape_of(inputs[0])
    special = ("projection_size", "use_sequence_length", "lstm_state_clip_min", "lstm_state_clip_max")
    if attrs["mode"] != "lstm" or any(attrs[name] for name in special) or shape is None or 0 in shape:
        return False
    if not all(e.spec is not None and e.spec.dtype is torch.float32 for e in inputs):
        return False
    draws = settings.training and attrs["num_layers"] > 1 and attrs["p"] > 0
    return not draws and [settings.is_constant(entry) for entry in inputs] == [False, True, False, False]


def _reads_data(node: Node) -> bool:
    """Whether along each axis some output of a convolution reads data, and not padding alone.

    oneDNN 3.12 has kernels that end the process otherwise.
    """
    attrs, sizes = node.attrs, shape_at(node.inputs[0])[2:]
    kernel, made = shape_at(node.inputs[1])[2:], shape_at(Entry(node, 0))[2:]
    axes = zip(sizes, kernel, made, attrs["stride"], attrs["pad"], attrs["dilate"], strict=True)
    return all(
        any(0 <= place * stride - pad + tap * step < size for place in range(count) for tap in range(taps))
        for size, taps, count, stride, pad, step in axes
    )


def _suits_integers(node: Node, constants: list[bool]) -> bool:
    """The same for operators on integers."""
    if node.op is QUANTIZED_CONVOLUTION and not _reads_data(node):
        return False
    if node.op in _INTEGER_LAYERS:
        rest = 5 if node.attrs["bias"] else 4
        return not constants[0] and all(constants[1:rest]) and not any(constants[rest:])
    if node.op is QUANTIZED_CONCATENATE:
        return node.attrs["axis"] == 1 and len(shape_at(Entry(node, 0))) == 4 and not any(constants)
    return not any(constants)


def _repeats(shapes: Sequence[Any]) -> bool:
    """Whether the second operand of a product is repeated over the first."""
    first, second = shapes
    return len(first) == len(second) and all(b in (a, 1) for a, b in zip(first, second, strict=True))


def may_work(node: Node) -> bool:
    """Whether a node is of a kind that may be worth a region."""
    op = node.op
    return op is not None and (op in (CONVOLUTION, DENSE, *_INTEGER_LAYERS) or op.name == "RNN")


def is_work(node: Node) -> bool:
    """Whether a node alone is worth a region."""
    if node.op in (CONVOLUTION, *_INTEGER_LAYERS) or (node.op is not None and node.op.name == "RNN"):
        return True
    return (
        node.op is DENSE
        and math.prod(shape_at(Entry(node, 0))) * shape_at(node.inputs[1])[1] > _SMALL_PRODUCT
    )


def pooling_window(node: Node) -> tuple[Any, ...] | None:
    """Kind, kernel, stride, and padding before and after."""
    attrs = node.full_attrs
    size, made = shape_at(node.inputs[0])[2:], shape_at(Entry(node, 0))[2:]
    kind = attrs["pool_type"]
    layout = attrs.get("layout")
    if kind not in ("max", "avg") or attrs.get("output_size") or layout not in (None, "NCHW"):
        return None
    if attrs["global_pool"]:
        zeros = (0,) * len(size)
        return ("max" if kind == "max" else "avg_exclude"), size, (1,) * len(size), zeros, zeros
    kernel, rank = tuple(attrs["kernel"]), len(size)
    stride, pad = tuple(attrs["stride"]) or (1,) * rank, tuple(attrs["pad"]) or (0,) * rank
    convention = attrs["pooling_convention"]
    if any(p >= k for p, k in zip(pad, kernel, strict=True)):
        return None
    if convention == "valid":
        after = pad
    elif convention == "full" and kind == "max":
        after = tuple(
            max((m - 1) * s + k - n - p, 0)
            for m, s, k, n, p in zip(made, stride, kernel, size, pad, strict=True)
        )
    else:
        return None
    if kind == "avg":
        kind = "avg_exclude" if attrs.get("count_include_pad") is False else "avg_include"
    return kind, kernel, stride, pad, after
