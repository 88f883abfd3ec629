"""Attention of a training program: the products and the softmax, forward and backward.

Queries, keys and values are rows of projections, (batch, length, heads * D), whose heads lie one beside the
other. The kernels read and write the heads where they are, so that nothing is transposed or copied. The
weights of the attention are kept for the gradient: with W = softmax(scale Q K^T) and the gradient G of W V,

    dV = W^T G,  dS = scale softmax'(W, G V^T),  dQ = dS K,  dK = dS^T Q.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...passes.attention import on_rows
from . import interface
from .interface import Descriptor, Library, Primitive, Unsupported
from .products import heads_of
from .training import BothWays

__all__ = ["AttentionForm", "attend", "attention_kernels_for", "attention_of_rows"]

_MOST_FORMS = 256
# A primitive, and what is where.
_Part = tuple[Primitive, dict[int, Descriptor]]


_empty = functools.partial(torch.empty, dtype=torch.float32)


class AttentionForm(NamedTuple):
    """What the kernels depend on; ``threads`` is the number of torch's threads."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    heads: int
    scale: float
    threads: int


class AttentionKernels:
    """The primitives of a form, in float32; many threads may use them at once."""

    def __init__(self, api: Library, form: AttentionForm) -> None:
        self.form = form
        single, heads = torch.float32, form.heads
        batch, queries, _ = form.query
        keys = form.key[1]
        self._weights, self._result = (batch, heads, queries, keys), (batch, queries, form.value[2])

        def rows(shape: tuple[int, ...], turned: bool = False) -> Descriptor:
            return heads_of(api, shape, heads, single, turned)

        def product(first: Descriptor, second: Descriptor, target: Descriptor, post: Any = ()) -> _Part:
            places = {interface.SOURCE: first, interface.WEIGHTS: second, interface.DESTINATION: target}
            return api.matmul(first, second, None, target, post=post), places

        weights = api.plain(self._weights, single)
        strides = (heads * queries * keys, queries * keys, 1, keys)
        turned = api.plain((batch, heads, keys, queries), single, strides)
        query, key, value, result = map(rows, (form.query, form.key, form.value, self._result))
        scaled = [("linear", (form.scale, 0.0))]
        softmax, by_scores = api.softmax_training(weights, 3)
        by_scores_places = {
            interface.DESTINATION: weights,
            interface.DESTINATION_GRADIENT: weights,
            interface.SOURCE_GRADIENT: weights,
        }
        self._forward = BothWays(
            api,
            product(query, rows(form.key, turned=True), weights, scaled),
            (softmax, {interface.SOURCE: weights, interface.DESTINATION: weights}),
            product(weights, value, result),
        )
        self._backward = BothWays(
            api,
            product(turned, result, value),
            product(result, rows(form.value, turned=True), weights, scaled),
            (by_scores, by_scores_places),
            product(weights, key, query),
            product(turned, query, key),
        )

    def run(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the result, and the weights."""
        score, softmax, mix = self._forward()
        weights, result = _empty(self._weights), _empty(self._result)
        place = weights.data_ptr()
        score(query.data_ptr(), key.data_ptr(), place)
        softmax(place, place)
        mix(place, value.data_ptr(), result.data_ptr())
        return result, weights

    def gradients(
        self,
        gradient: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        weights: Tensor,
        needed: tuple[bool, bool, bool],
    ) -> list[Tensor | None]:
        """The gradients of queries, keys and values, as far as they are needed."""
        by_value, score, softmax, by_query, by_key = self._backward()
        given = query, key, value
        found = [_empty(each.shape) if wanted else None for each, wanted in zip(given, needed, strict=True)]
        if found[2] is not None:
            by_value(weights.data_ptr(), gradient.data_ptr(), found[2].data_ptr())
        if found[0] is None and found[1] is None:
            return found
        scores = _empty(self._weights)
        place = scores.data_ptr()
        score(gradient.data_ptr(), value.data_ptr(), place)
        softmax(weights.data_ptr(), place, place)
        if found[0] is not None:
            by_query(place, key.data_ptr(), found[0].data_ptr())
        if found[1] is not None:
            by_key(place, query.data_ptr(), found[1].data_ptr())
        return found


@functools.lru_cache(maxsize=_MOST_FORMS)
def attention_kernels_for(form: AttentionForm) -> AttentionKernels | None:
    """The kernels of a form, or None where oneDNN lacks a fast one."""
    api = interface.library()
    if api is None or 0 in (*form.query, *form.key, *form.value):
        return None
    try:
        return AttentionKernels(api, form)
    except Unsupported:
        return None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *mask: Tensor,
    scale: float | None = None,
    turned: bool = False,
) -> Tensor:
    """``softmax(scale query key^T + mask) value`` over the last two axes, by torch's operators.

    ``turned`` keys are (D, keys); without a scale it is one over the root of D. Unlike torch's fused
    operator, this can be differentiated any number of times. In 16 bits the softmax is computed in float32.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(query * scale, key if turned else key.transpose(-1, -2))
    for each in mask:
        scores = scores + each
    exact = torch.float32 if scores.dtype.itemsize == 2 else scores.dtype
    weights = torch.softmax(scores, -1, dtype=exact).to(scores.dtype)
    return torch.matmul(weights, value)


def _plain(query: Tensor, key: Tensor, value: Tensor, scale: float, heads: int) -> Tensor:
    return on_rows(functools.partial(attend, scale=scale), query, key, value, heads)


class _Attention(torch.autograd.Function):
    """Attention of rows by oneDNN."""

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, kernels: AttentionKernels) -> Tensor:
        result, weights = kernels.run(query.contiguous(), key.contiguous(), value.contiguous())
        # The inputs themselves are kept: a gradient of the gradient passes through them.
        context.save_for_backward(query, key, value, weights)
        context.kernels = kernels
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        query, key, value, weights = context.saved_tensors
        (gradient,) = gradients
        kernels: AttentionKernels = context.kernels
        needed = context.needs_input_grad[:3]
        if torch.is_grad_enabled():
            # Aliases: one of these may depend on another, and its gradient here is the direct one only.
            query, key, value = query.view_as(query), key.view_as(key), value.view_as(value)
            result = _plain(query, key, value, kernels.form.scale, kernels.form.heads)
            every = zip((query, key, value), needed, strict=True)
            wanted = [each for each, is_needed in every if is_needed]
            found = iter(torch.autograd.grad(result, wanted, gradient, create_graph=True))
            return *(next(found) if each else None for each in needed), None
        rows = gradient.contiguous(), query.contiguous(), key.contiguous(), value.contiguous()
        return *kernels.gradients(*rows, weights, needed), None


def attention_of_rows(query: Tensor, key: Tensor, value: Tensor, *, scale: float, heads: int) -> Tensor:
    """Attention of (batch, length, heads * D) rows, whose gradient can be differentiated again."""
    every = (query, key, value)
    if all([each.dtype is torch.float32 and each.device.type == "cpu" for each in every]):
        shapes = (tuple(query.shape), tuple(key.shape), tuple(value.shape))
        kernels = attention_kernels_for(AttentionForm(*shapes, heads, scale, torch.get_num_threads()))
        if kernels is not None:
            return _Attention.apply(*every, kernels)  # type: ignore[no-any-return,no-untyped-call]
    return _plain(query, key, value, scale, heads)
