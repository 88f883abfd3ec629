"""Attention written as products and a softmax, as one operator: torch's scaled_dot_product_attention.

The scores, of size (queries x keys) for each head, are then never written to memory (Dao et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..graph.node import Entry, Node
from ..ops.internal import InternalOp
from ..ops.opdef import Spec
from ..ops.registry import get
from .cleanup import CASTS, RESHAPES, TRANSPOSES, is_float, permutation
from .layers import ADDITIONS
from .rewrite import Reads, Settings, make, rewrite, shape_of

__all__ = [
    "ATTENTION",
    "ATTENTION_BY_ROWS",
    "INTERLEAVED",
    "attend_by_rows",
    "join_attention",
    "on_interleaved",
    "on_rows",
]

_FACTORS: dict[str, Callable[[float], float]] = {
    "_mul_scalar": lambda s: s,
    "_div_scalar": lambda s: 1.0 / s,
    "_npi_multiply_scalar": lambda s: s,
    "_npi_true_divide_scalar": lambda s: 1.0 / s,
}


def _attention(
    query: Tensor, key: Tensor, value: Tensor, *mask: Tensor, scale: float, turned: bool
) -> Tensor:
    """``softmax(scale query key^T + mask) value`` over the last two axes; ``turned`` keys are (D, keys)."""
    if turned:
        key = key.transpose(-1, -2)
    flat = query.dim() == 3
    bias = mask[0] if mask else None
    if flat:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        bias = None if bias is None else bias.unsqueeze(0)
    result = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
    return result.squeeze(0) if flat else result


def on_interleaved(attend: Callable[..., Tensor], joined: Tensor, heads: int) -> Tensor:
    """Self-attention on (length, batch, heads * 3 * D) projections that interleave query, key and value.

    ``attend`` is given the three as (batch, heads, length, D).
    """
    length, batch, width = joined.shape
    apart = joined.reshape(length, batch, heads, 3, width // (3 * heads)).permute(3, 1, 2, 0, 4)
    result = attend(*apart)
    return result.permute(2, 0, 1, 3).reshape(length, batch, width // 3)


def on_rows(attend: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Attention of (batch, length, heads * D) projections, whose heads lie one beside the other.

    ``attend`` is given the three as (batch, heads, length, D).
    """
    apart = (each.reshape(*each.shape[:2], heads, -1).transpose(1, 2) for each in (query, key, value))
    return attend(*apart).transpose(1, 2).flatten(2)


def _interleaved(joined: Tensor, *, heads: int) -> Tensor:
    return on_interleaved(functional.scaled_dot_product_attention, joined, heads)


def _by_rows(query: Tensor, key: Tensor, value: Tensor, *, scale: float, heads: int) -> Tensor:
    attend = partial(functional.scaled_dot_product_attention, scale=scale)
    return on_rows(attend, query, key, value, heads)


ATTENTION = InternalOp("attention", _attention, ("scale", "turned"))
ATTENTION_BY_ROWS = InternalOp("attention_by_rows", _by_rows, ("scale", "heads"))
INTERLEAVED = InternalOp("attention_interleaved", _interleaved, ("heads",))


def join_attention(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """``softmax(Q K^T) V``, with a factor and an added mask, where nothing else reads the scores."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        name = node.op.name if node.op else ""
        if name == "_contrib_interleaved_matmul_selfatt_valatt" and reads(1):
            return _join_interleaved(node, inputs, reads)
        if name in ("batch_dot", "_npi_matmul") and reads(0) and is_float(inputs[0]):
            if node.full_attrs.get("transpose_a") or node.full_attrs.get("transpose_b"):
                return None
            return _join(node, inputs, reads)
        return None

    products = ("_contrib_interleaved_matmul_selfatt_valatt", "batch_dot", "_npi_matmul")
    return rewrite(entries, replace, products)


def _softmax_of(entry: Entry, reads: Reads) -> Entry | None:
    """What a plain softmax over the last axis is taken of.

    A softmax in float32 between two casts counts: attention in 16 bits computes it in float32 itself.
    """
    node = entry.node
    if _is_cast(node):
        inside = node.inputs[0]
        scores = _softmax_of(inside, reads) if reads.once(inside) else None
        if scores is None or not _is_cast(scores.node) or not reads.once(scores):
            return None
        source = scores.node.inputs[0]
        low = source.spec is not None and entry.spec is not None and source.spec.dtype is entry.spec.dtype
        return source if low and is_float(source) else None
    if node.op is None or node.op.name not in ("softmax", "_npx_softmax") or len(node.inputs) != 1:
        return None
    attrs = node.full_attrs
    shape = shape_of(node.inputs[0])
    if shape is None or attrs["axis"] % len(shape) != len(shape) - 1:
        return None
    if attrs["temperature"] not in (None, 1.0) or attrs.get("dtype") or attrs.get("use_length"):
        return None
    return node.inputs[0]


def _is_cast(node: Node) -> bool:
    return node.op is not None and node.op.name in CASTS


def _product(entry: Entry) -> Node | None:
    node = entry.node
    if node.op is None or node.op.name not in ("batch_dot", "_npi_matmul"):
        return None
    return None if node.full_attrs.get("transpose_a") else node


def _join(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
    scores = _softmax_of(inputs[0], reads)
    if scores is None or not reads.once(scores):
        return None
    mask: list[Entry] = []
    name = scores.node.op.name if scores.node.op else ""
    if name in ADDITIONS:
        first, second = scores.node.inputs
        chosen, other = (first, second) if _scaled(first)[0] is not None else (second, first)
        if not reads.once(chosen) or len(shape_of(other) or ()) != len(shape_of(scores) or ()):
            return None
        scores, mask = chosen, [other]
    product, scale = _scaled(scores, reads)
    if product is None or not reads.once(Entry(product, 0)):
        return None
    query, key = product.inputs
    shapes = [shape_of(e) for e in (query, key, inputs[1])]
    if any(shape is None or len(shape) not in (3, 4) for shape in shapes):
        return None
    if len({len(shape or ()) for shape in shapes}) != 1 or len({(shape or ())[:-2] for shape in shapes}) != 1:
        return None
    if any(e.spec is None or e.spec.dtype is not query.spec.dtype for e in (key, inputs[1], *mask)):  # type: ignore[union-attr]
        return None
    factor = query.node.op is not None and _FACTORS.get(query.node.op.name)
    if factor and reads.once(query):
        scale *= factor(float(query.node.full_attrs["scalar"]))
        query = query.node.inputs[0]
    attrs = {"scale": scale, "turned": not product.full_attrs.get("transpose_b")}
    operands = [query, key, inputs[1]]
    by_head = None if mask else _by_head(operands)
    if by_head is None:
        return [make(ATTENTION, node, [*operands, *mask], attrs)]
    heads, values, result = (shape_of(e) for e in (by_head[0], by_head[2], Entry(node, 0)))
    if heads is None or values is None or result is None or query.spec is None:
        return None
    spec = Spec((*heads[:-1], values[-1]), query.spec.dtype)
    joined = make(ATTENTION, node, by_head, attrs, [spec])
    return [make(get("Reshape"), node, [joined], {"shape": result}, name=f"{node.name}_joined")]


def _by_head(operands: Sequence[Entry]) -> list[Entry] | None:
    """What queries, keys and values were with batch and heads as two axes, where these were made one.

    They may lie in memory in any order then; as one axis they are copied.
    """
    sources = []
    for entry in operands:
        node, shape = entry.node, shape_of(entry)
        source = node.inputs[0] if node.op is not None and node.op.name in RESHAPES else None
        before = None if source is None else shape_of(source)
        if source is None or before is None or shape is None or len(before) != 4 or len(shape) != 3:
            return None
        if before[0] * before[1] != shape[0] or before[2:] != shape[1:]:
            return None
        sources.append((source, before[:2]))
    return [source for source, _ in sources] if len({heads for _, heads in sources}) == 1 else None


def _scaled(entry: Entry, reads: Reads | None = None) -> tuple[Node | None, float]:
    """The product under a factor, and the factor."""
    scale = 1.0
    node = entry.node
    while node.op is not None and (node.op.name in _FACTORS or node.op.name == "_contrib_div_sqrt_dim"):
        if reads is not None and not reads.once(node.inputs[0]):
            return None, 1.0
        if node.op.name in _FACTORS:
            scale *= _FACTORS[node.op.name](float(node.full_attrs["scalar"]))
        else:
            shape = shape_of(node.inputs[0])
            if shape is None:
                return None, 1.0
            scale /= math.sqrt(shape[-1])
        entry = node.inputs[0]
        node = entry.node
    return _product(entry), scale


def _join_interleaved(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
    scores = _softmax_of(inputs[1], reads)
    if scores is None or not reads.once(scores):
        return None
    product = scores.node
    if product.op is None or product.op.name != "_contrib_interleaved_matmul_selfatt_qk":
        return None
    same = product.inputs[0].node is inputs[0].node and product.inputs[0].index == inputs[0].index
    heads = node.full_attrs["heads"]
    spec = inputs[0].spec
    if not same or product.full_attrs["heads"] != heads or spec is None or spec.dtype is torch.float16:
        return None
    return [make(INTERLEAVED, node, [inputs[0]], {"heads": heads})]


def attend_by_rows(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Attention whose heads are cut out of projections, and put beside one another again, as one operator."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        turned = inputs[0]
        if node.op is None or node.op.name not in RESHAPES or not reads(0) or not _swaps_heads(turned.node):
            return None
        joined = turned.node.inputs[0]
        if joined.node.op is not ATTENTION or not reads.once(joined):
            return None
        return _as_rows(node, joined.node)

    return rewrite(entries, replace, RESHAPES)


def _swaps_heads(node: Node) -> bool:
    return node.op is not None and node.op.name in TRANSPOSES and permutation(node, 4) == (0, 2, 1, 3)


def _as_rows(node: Node, attention: Node) -> Any:
    attrs, shape = attention.attrs, shape_of(Entry(attention, 0))
    if attrs["turned"] or len(attention.inputs) != 3 or shape is None or len(shape) != 4:
        return None
    batch, heads, length, depth = shape
    if shape_of(Entry(node, 0)) != (batch, length, heads * depth):
        return None
    sources = [_joined_heads(entry) for entry in attention.inputs]
    if None in sources:
        return None
    return [make(ATTENTION_BY_ROWS, node, sources, {"scale": attrs["scale"], "heads": heads})]  # type: ignore[arg-type]


def _joined_heads(entry: Entry) -> Entry | None:
    """The projection, of shape (batch, length, heads * D), of which these are the heads."""
    node, shape = entry.node, shape_of(entry)
    cut = node.inputs[0].node if _swaps_heads(node) else None
    if cut is None or cut.op is None or cut.op.name not in RESHAPES or shape is None or 0 in shape:
        return None
    if cut.full_attrs.get("order", "C") != "C":
        return None
    source, (batch, heads, length, depth) = cut.inputs[0], shape
    return source if shape_of(source) == (batch, length, heads * depth) else None
