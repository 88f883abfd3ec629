"""Attention in the ways people write it: fused, with the values of the plain operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import regluon as mx


class Attend(mx.gluon.HybridBlock):
    def __init__(self, write: Any) -> None:
        super().__init__()
        self.write = write

    def hybrid_forward(self, F: Any, *inputs: Any) -> Any:
        return self.write(F, *inputs)


def run(write: Any, *shapes: tuple[int, ...], np_kind: bool = False) -> list[str]:
    """Check compiled against plain values; the operators' names of the plan."""
    mx.random.seed(1)
    inputs = [mx.nd.random.normal(shape=shape) for shape in shapes]
    if np_kind:
        inputs = [value.as_np_ndarray() for value in inputs]
    net = Attend(write)
    expected = net(*inputs).asnumpy()
    net.optimize_for(*inputs, static_shape=True)
    np.testing.assert_allclose(net(*inputs).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    (call,) = net._cached.exact.values()
    return [node.op.name for node in call.chosen.program.nodes]


B, L, D, M = 6, 7, 8, 9


def test_factor_on_the_scores() -> None:
    def write(F, q, k, v):
        return F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) / np.sqrt(D)), v)

    assert run(write, (B, L, D), (B, M, D), (B, M, D)) == ["attention"]


def test_no_factor_or_one_on_the_queries() -> None:
    def write(F, q, k, v):
        return F.batch_dot(F.softmax(F.batch_dot(q * 0.3, k, transpose_b=True), axis=-1), v)

    assert run(write, (B, L, D), (B, M, D), (B, M, 5)) == ["attention"]


def test_heads_of_a_projection_are_not_copied() -> None:
    """Batch and heads stay two axes where the program joins them around the products only."""

    def write(F, q, k, v):
        def split(x):
            x = F.npx.reshape(x, (-2, -2, 4, -1))
            return F.npx.reshape(F.np.transpose(x, (0, 2, 1, 3)), (-5, -2, -2))

        scores = F.npx.batch_dot(split(q) * 0.25, split(k), transpose_b=True)
        mixed = F.npx.batch_dot(F.npx.softmax(scores, axis=-1), split(v))
        mixed = F.np.transpose(F.npx.reshape(mixed, (-6, -1, 4, -2, -2)), (0, 2, 1, 3))
        return F.npx.reshape(mixed, (-2, -2, -5))

    assert run(write, (2, L, 16), (2, M, 16), (2, M, 16), np_kind=True) == ["attention_by_rows"]


@pytest.mark.parametrize("mask", [(1, L, M), (B, L, M), (B, 1, M)])
@pytest.mark.parametrize("first", [False, True])
def test_added_mask(mask: tuple[int, ...], first: bool) -> None:
    def write(F, q, k, v, mask):
        scores = F.contrib.div_sqrt_dim(F.batch_dot(q, k, transpose_b=True))
        scores = F.broadcast_add(mask, scores) if first else F.broadcast_add(scores, mask)
        return F.batch_dot(F.Dropout(F.softmax(scores), p=0.1), v)

    assert run(write, (B, L, D), (B, M, D), (B, M, D), mask) == ["attention"]


def test_four_axes_with_matmul() -> None:
    def write(F, q, k, v):
        scores = F.np.matmul(q, F.np.swapaxes(k, 2, 3)) * 0.5
        return F.np.matmul(F.npx.softmax(scores, axis=-1), v)

    names = run(write, (2, 3, L, D), (2, 3, M, D), (2, 3, M, D), np_kind=True)
    assert names[-1] == "attention" and "softmax" not in " ".join(names)


def test_interleaved_projections() -> None:
    def write(F, x):
        scores = F.contrib.interleaved_matmul_selfatt_qk(x, heads=4)
        return F.contrib.interleaved_matmul_selfatt_valatt(x, F.softmax(scores, axis=-1), heads=4)

    assert run(write, (L, 2, 3 * 4 * D)) == ["attention_interleaved"]


def test_every_layer_of_a_stack_is_joined() -> None:
    def write(F, x):
        for _ in range(3):
            x = F.batch_dot(F.softmax(F.batch_dot(x, x, transpose_b=True)), x) + x
        return x

    assert run(write, (B, L, D)).count("attention") == 3


@pytest.mark.parametrize(
    "write",
    [
        lambda F, q, k, v: F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True), axis=1), v),
        lambda F, q, k, v: F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True), temperature=2.0), v),
        lambda F, q, k, v: F.batch_dot(F.softmax(F.relu(F.batch_dot(q, k, transpose_b=True))), v),
        lambda F, q, k, v: F.batch_dot(F.sigmoid(F.batch_dot(q, k, transpose_b=True)), v),
        lambda F, q, k, v: F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True)), v, transpose_a=True),
    ],
)
def test_other_expressions_stay(write: Any) -> None:
    assert "attention" not in run(write, (B, L, D), (B, L, D), (B, L, D))


def test_scores_that_are_read_elsewhere_stay() -> None:
    def write(F, q, k, v):
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True))
        return F.concat(F.batch_dot(weights, v), weights, dim=2)

    assert "attention" not in run(write, (B, L, D), (B, M, D), (B, M, D))
