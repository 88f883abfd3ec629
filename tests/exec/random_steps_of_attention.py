"""More steps of random networks: attention in its forms, and products of values."""

from __future__ import annotations

import math
from typing import Any

import regluon as mx
from regluon.gluon import nn

from .random_steps import axes, step

# Attention ----------------------------------------------------------------------


@step
def attention(m: Any) -> None:
    """Written with batch_dot: heads, a scale on any of the operands, a mask or none."""
    place = m.pick(axes(3))
    _, length, width = m.shape(place)
    heads = m.choose(*[n for n in (1, 2, 4) if width % n == 0])
    options = (
        heads,
        m.choose("query", "scores", "divided", "none"),
        m.choose("none", "added", "where"),
        length,
    )
    m.layer(lambda: Attention(width, *options), place)


class Attention(mx.gluon.HybridBlock):
    def __init__(self, width: int, heads: int, scaled: str, mask: str, length: int) -> None:
        super().__init__()
        self.heads, self.scaled, self.mask, self.length = heads, scaled, mask, length
        self.factor = math.sqrt(width / heads)
        self.query, self.key, self.value, self.last = (
            nn.Dense(width, flatten=False, in_units=width, use_bias=place != 1) for place in range(4)
        )

    def split(self, F: Any, x: Any) -> Any:
        x = F.transpose(F.reshape(x, shape=(0, 0, self.heads, -1)), axes=(0, 2, 1, 3))
        return F.reshape(x, shape=(-1, 0, 0), reverse=True)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        query, key, value = (self.split(F, layer(x)) for layer in (self.query, self.key, self.value))
        if self.scaled == "query":
            query = query / self.factor
        scores = F.batch_dot(query, key, transpose_b=True)
        if self.scaled == "scores":
            scores = scores * (1 / self.factor)
        if self.scaled == "divided":
            scores = scores / self.factor
        steps = F.arange(self.length)
        causal = F.broadcast_lesser_equal(
            F.reshape(steps, shape=(1, 1, -1)), F.reshape(steps, shape=(1, -1, 1))
        )
        if self.mask == "added":
            scores = F.broadcast_add(scores, (1 - causal) * -1e4)
        if self.mask == "where":
            scores = F.where(F.broadcast_like(causal, scores), scores, F.ones_like(scores) * -1e9)
        made = F.batch_dot(F.softmax(scores, axis=-1), value)
        made = F.transpose(F.reshape(made, shape=(-1, self.heads, 0, 0), reverse=True), axes=(0, 2, 1, 3))
        return self.last(F.reshape(made, shape=(0, 0, -1)))


@step
def interleaved(m: Any) -> None:
    """The interleaved operators of 1.x, on (length, batch, 3 * width)."""
    place = m.pick(axes(3))
    width = m.shape(place)[2]
    heads = m.choose(*[n for n in (1, 2, 4) if width % n == 0])
    m.layer(lambda: Interleaved(width, heads), place)


class Interleaved(mx.gluon.HybridBlock):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.all = nn.Dense(3 * width, flatten=False, in_units=width)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        joined = F.transpose(self.all(x), axes=(1, 0, 2))
        scores = F.contrib.interleaved_matmul_selfatt_qk(joined, heads=self.heads)
        made = F.contrib.interleaved_matmul_selfatt_valatt(joined, F.softmax(scores), heads=self.heads)
        return F.swapaxes(made, dim1=0, dim2=1)


@step
def product(m: Any) -> None:
    place = m.pick(axes(3))
    batch, _, columns = m.shape(place)
    other = m.pick(
        lambda v: v.is_float and len(v.shape) == 3 and v.shape[0] == batch and columns in v.shape[1:],
        late=False,
    )
    turned = m.shape(other)[1] != columns
    m.call(lambda F, x, y: F.batch_dot(x, y, transpose_b=turned) * 0.3, place, other)
