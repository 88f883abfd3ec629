"""Public reductions and linear algebra against NumPy; gradients and errors that samples do not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import autograd
from regluon.base.errors import MXNetError
from regluon.ops import invoke

RANDOM = np.random.default_rng(7)
MATRIX = RANDOM.uniform(-1, 1, (3, 4)).astype(np.float32)
BATCH = RANDOM.uniform(-1, 1, (2, 3, 3)).astype(np.float32)
SQUARE = (RANDOM.uniform(-1, 1, (3, 3)) + 3 * np.eye(3)).astype(np.float32)
SYMMETRIC = (SQUARE + SQUARE.T) / 2
VECTOR = RANDOM.uniform(-1, 1, 4).astype(np.float32)

Call = Callable[[Any, Any], Any]

# The same call on mx.np and on NumPy; xp is the namespace, x the array.
CALLS: dict[str, tuple[np.ndarray, Call]] = {
    "cond": (SQUARE, lambda xp, x: xp.linalg.cond(x)),
    "cond of another norm": (SQUARE, lambda xp, x: xp.linalg.cond(x, "fro")),
    "matrix_power": (SQUARE, lambda xp, x: xp.linalg.matrix_power(x, 5)),
    "matrix_power of the inverse": (SQUARE, lambda xp, x: xp.linalg.matrix_power(x, -2)),
    "matrix_power 0": (BATCH, lambda xp, x: xp.linalg.matrix_power(x, 0)),
    "multi_dot": (MATRIX, lambda xp, x: xp.linalg.multi_dot([x, x.T, x, x.T, x])),
    "norm": (MATRIX, lambda xp, x: xp.linalg.norm(x)),
    "norm spectral": (MATRIX, lambda xp, x: xp.linalg.norm(x, 2)),
    "norm inf of matrices": (BATCH, lambda xp, x: xp.linalg.norm(x, np.inf, (0, 2))),
    "norm inf of vectors": (MATRIX, lambda xp, x: xp.linalg.norm(x, np.inf, 1)),
    "norm -inf, kept": (MATRIX, lambda xp, x: xp.linalg.norm(x, -np.inf, 1, True)),
    "norm 1 of matrices": (BATCH, lambda xp, x: xp.linalg.norm(x, 1, (1, 0), True)),
    "norm 1 of a vector": (VECTOR, lambda xp, x: xp.linalg.norm(x, 1)),
    "norm 3": (MATRIX, lambda xp, x: xp.linalg.norm(x, 3, 0)),
    "norm nuclear": (MATRIX, lambda xp, x: xp.linalg.norm(x, "nuc")),
    "slogdet": (SQUARE, lambda xp, x: xp.linalg.slogdet(x)[1]),
    "eigvalsh": (SYMMETRIC, lambda xp, x: xp.linalg.eigvalsh(x, "U")),
    "cross": (BATCH, lambda xp, x: xp.cross(x, x[::-1], axis=1)),
    "vdot": (MATRIX, lambda xp, x: xp.vdot(x, x)),
    "diff": (MATRIX, lambda xp, x: xp.diff(x, 2, 0)),
    "diff with ends": (MATRIX, lambda xp, x: xp.diff(x, prepend=0, append=x)),
    "ediff1d": (MATRIX, lambda xp, x: xp.ediff1d(x, 1.0, x[0])),
    "std": (MATRIX, lambda xp, x: xp.std(x, axis=0, ddof=1)),
    "histogram": (VECTOR, lambda xp, x: xp.histogram(x, 4)[0]),
    "histogram edges": (VECTOR, lambda xp, x: xp.histogram(x, 3, (-1.0, 1.0))[1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy(name: str) -> None:
    data, call = CALLS[name]
    found, expected = call(mx.np, mx.np.array(data)).asnumpy(), np.asarray(call(np, data))
    assert found.shape == expected.shape
    assert found.dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(found, expected, 2e-4, 2e-5)


def test_array_api_names() -> None:
    x, batch = mx.np.array(MATRIX), mx.np.array(BATCH)
    linalg = mx.np.linalg
    for found, expected in (
        (linalg.matrix_transpose(batch), BATCH.transpose(0, 2, 1)),
        (linalg.diagonal(batch, 1), np.diagonal(BATCH, 1, 1, 2)),
        (linalg.trace(batch), np.trace(BATCH, 0, 1, 2)),
        (linalg.svdvals(x), np.linalg.svd(MATRIX)[1]),
        (linalg.vecdot(x, x), (MATRIX * MATRIX).sum(1)),
        (linalg.outer(x[0], x[1]), np.outer(MATRIX[0], MATRIX[1])),
        (linalg.matrix_norm(batch), np.linalg.norm(BATCH, "fro", (1, 2))),
        (linalg.vector_norm(x, 3, (0, 1)), (np.abs(MATRIX) ** 3).sum() ** (1 / 3)),
        (linalg.vector_norm(x, np.inf), np.abs(MATRIX).max()),
    ):
        np.testing.assert_allclose(found.asnumpy(), expected, 1e-4, 1e-5)


@pytest.mark.parametrize("upper", [False, True])
def test_eigh_reads_one_triangle(upper: bool) -> None:
    kept = np.triu(SYMMETRIC) if upper else np.tril(SYMMETRIC)
    values, vectors = mx.np.linalg.eigh(mx.np.array(kept), upper)
    rebuilt = (vectors * values.reshape(1, -1)).asnumpy() @ vectors.asnumpy().T
    np.testing.assert_allclose(rebuilt, SYMMETRIC, 1e-4, 1e-4)


def test_least_squares_of_too_low_a_rank() -> None:
    ones = np.ones((4, 2), np.float32)
    found = mx.np.linalg.lstsq(mx.np.array(ones), mx.np.array(ones[:, 0]), rcond=None)
    np.testing.assert_allclose(found[0].asnumpy(), [0.5, 0.5], 1e-5)
    assert found[1].shape == (0,)
    assert found[2].item() == 1


@pytest.mark.parametrize("name", ["max", "_npi_max"])
def test_every_tie_gets_the_whole_gradient(name: str) -> None:
    x = (mx.np if name.startswith("_") else mx.nd).array([[3.0, 1.0, 3.0], [2.0, 2.0, 2.0]])
    x.attach_grad()
    with autograd.record():
        y = invoke(name, [x], {"axis": 1}) * 5
    y.backward()
    assert x.grad.asnumpy().tolist() == [[5, 0, 5], [5, 5, 5]]


@pytest.mark.parametrize("name", ["norm", "_npi_norm"])
def test_the_norm_of_nothing_has_no_gradient(name: str) -> None:
    x = mx.nd.zeros((2, 3))
    x.attach_grad()
    with autograd.record():
        y = invoke(name, [x], {"axis": 1, "ord": 2})
    y.backward()
    assert x.grad.asnumpy().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_norms_compose_into_a_graph() -> None:
    x = mx.sym.var("x").as_np_ndarray()
    symbol = mx.sym.fromjson(mx.np.linalg.norm(x, "nuc", (0, 1)).tojson())
    assert '"_npi_norm"' in symbol.tojson()
    found = symbol.eval(x=mx.np.array(MATRIX))[0].asnumpy()
    np.testing.assert_allclose(found, np.linalg.norm(MATRIX, "nuc"), 1e-5)


@pytest.mark.parametrize(
    ("name", "arrays", "attrs", "text"),
    [
        ("sum", [MATRIX], {"axis": 2}, "axis 2 is out of range for an array of 2"),
        ("sum", [MATRIX], {"axis": (0, 0)}, "an axis is given twice"),
        ("norm", [MATRIX], {"ord": 3}, "ord is 1 or 2; received 3"),
        ("dot", [MATRIX, MATRIX], {}, r"\(3, 4\) and \(3, 4\) do not fit"),
        ("_npi_matmul", [MATRIX, MATRIX], {}, "inner sizes must agree"),
        ("_linalg_maketrian", [VECTOR], {}, "1, 3, 6, 10, ... elements; received 4"),
        ("_linalg_extracttrian", [MATRIX], {}, "expected square matrices"),
        ("_linalg_extracttrian", [SQUARE], {"offset": 3}, "no diagonal 3"),
        ("_histogram", [VECTOR], {"bin_cnt": 3}, r"range \(low, high\)"),
        ("_npi_bincount", [VECTOR], {}, "vector of integers, received 1 dimension.* float32"),
        ("_npi_bincount", [np.array([1, -2], np.int32)], {}, "no negative numbers, received -2"),
        ("_npi_norm", [BATCH], {"ord": 2}, "one axis or two"),
        ("_npi_norm", [MATRIX], {"ord": 5}, "order of a matrix is fro"),
        ("_npi_cross", [VECTOR, VECTOR], {}, "2 or 3 elements, received 4 and 4"),
        ("_npi_tensorinv", [BATCH], {"ind": 3}, "ind from 1 to 2, received 3"),
        ("_npi_tensorinv", [BATCH], {"ind": 1}, "received 2 and 9"),
        ("_npi_lstsq", [BATCH, VECTOR], {}, "expected a matrix and a vector"),
        ("_npi_eig", [np.array([[0, -1], [1, 0]], np.float32)], {}, "complex eigenvalues"),
    ],
)
def test_errors_say_what_is_wrong(name: str, arrays: list[np.ndarray], attrs: Any, text: str) -> None:
    with pytest.raises(MXNetError, match=text):
        invoke(name, [mx.nd.array(array, dtype=array.dtype) for array in arrays], attrs)
