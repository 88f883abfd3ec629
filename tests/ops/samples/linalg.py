"""Samples of products of arrays and of linear algebra, of both the 1.x and the NumPy family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Sample
from .references import spread

M = spread(-1.0, 1.0, (3, 4), seed=41)
N = spread(-1.0, 1.0, (4, 2), seed=42)
A = spread(-1.0, 1.0, (2, 3, 4), seed=43)
B = spread(-1.0, 1.0, (2, 4, 5), seed=44)
C = spread(-1.0, 1.0, (2, 3, 5), seed=45)
V = spread(-1.0, 1.0, (4,), seed=46)
SQUARE = spread(-1.0, 1.0, (2, 3, 3), seed=47) + 2 * np.eye(3, dtype=np.float32)
POSITIVE = np.matmul(SQUARE, SQUARE.transpose(0, 2, 1)) + np.eye(3, dtype=np.float32)
LOWER = np.tril(SQUARE)
RIGHT = spread(-1.0, 1.0, (2, 3, 2), seed=48)
DIAGONALS = spread(0.5, 1.0, (2, 3), seed=49)
SPATIAL = spread(-1.0, 1.0, (2, 3), seed=50)
PLANAR = spread(-1.0, 1.0, (2, 2), seed=51)
SYMMETRIC = np.array([[2, 0.5, 0], [0.5, 3, 0.3], [0, 0.3, 5]], np.float32)
REAL = np.array([[2, 1, 0], [0, 3, 0.5], [0, 0, 5]], np.float32)

Reference = Callable[..., Any]


def _t(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def _first_signs(vectors: np.ndarray) -> np.ndarray:
    """Columns turned so that the largest entry of each is positive."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(-2)[..., None, :], -2)
    return vectors * np.sign(largest)


def _product_samples() -> dict[str, list[Sample]]:
    first, second = {"transpose_a": True}, {"transpose_b": True}
    return {
        "dot": [
            Sample([M, N], {}, np.dot),
            Sample([M.T.copy(), N], first, lambda x, y: x.T @ y),
            Sample([M, N.T.copy()], second, lambda x, y: x @ y.T),
            Sample([V, V], {}, lambda x, y: np.atleast_1d(x @ y)),
            Sample([A, N], {}, lambda x, y: np.tensordot(x, y, 1)),
            Sample([M, V], {}, np.dot),
            Sample([A, N[:2].copy()], first, lambda x, y: np.tensordot(x.transpose(1, 2, 0), y, 1)),
        ],
        "batch_dot": [
            Sample([A, B], {}, np.matmul),
            Sample([_t(A).copy(), B], first, lambda x, y: _t(x) @ y),
            Sample([A, _t(B).copy()], second, lambda x, y: x @ _t(y)),
        ],
        "_npi_dot": [
            Sample([M, N], {}, np.dot),
            Sample([M, V], {}, np.dot),
            Sample([V, V], {}, np.dot),
            Sample([A, B], {}, np.dot),
            Sample([V, np.float32(2.0).reshape(())], {}, np.multiply),
        ],
        "_npi_matmul": [
            Sample([A, B], {}, np.matmul),
            Sample([A, N], {}, np.matmul),
            Sample([V, B], {}, np.matmul),
            Sample([M, V], {}, np.matmul),
            Sample([V, V], {}, np.matmul),
            Sample([A[:, None], B[None]], {}, np.matmul),
        ],
        "_npi_tensordot": [
            Sample(
                [A, C],
                {"a_axes_summed": (0, 1), "b_axes_summed": (0, 1)},
                lambda x, y: np.tensordot(x, y, ((0, 1), (0, 1))),
            )
        ],
        "_npi_tensordot_int_axes": [
            Sample([A, N], {"axes": 1}, lambda x, y: np.tensordot(x, y, 1)),
            Sample([V, V], {"axes": 0}, lambda x, y: np.tensordot(x, y, 0)),
        ],
        "_npi_einsum": [
            Sample(
                [A, B],
                {"num_args": 2, "subscripts": "bij,bjk->ik"},
                lambda x, y: np.einsum("bij,bjk->ik", x, y),
            ),
            Sample([SQUARE], {"num_args": 1, "subscripts": "bii"}, lambda x: np.einsum("bii", x)),
        ],
        "_npi_kron": [Sample([M, N], {}, np.kron), Sample([V, N], {}, np.kron)],
        "_npi_cross": _cross_samples(),
    }


def _cross_samples() -> list[Sample]:
    def flat(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]

    def raised(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.zeros_like(x[..., :1])], -1)

    columns = {"axisa": 0, "axisb": 0, "axisc": 0}
    return [
        Sample([SPATIAL, SPATIAL[::-1].copy()], {}, np.cross),
        Sample([PLANAR, PLANAR[::-1].copy()], {}, flat),
        Sample([PLANAR, SPATIAL], {}, lambda x, y: np.cross(raised(x), y)),
        Sample([SPATIAL.T.copy(), SPATIAL[::-1].T.copy()], columns, lambda x, y: np.cross(x, y, axis=0)),
    ]


def _pack(x: np.ndarray, offset: int, lower: bool) -> np.ndarray:
    size = x.shape[-1]
    places = [
        (row, column)
        for row in range(size)
        for column in range(size)
        if (column - row <= offset if offset < 0 or (offset == 0 and lower) else column - row >= offset)
    ]
    if offset > 0 or (offset == 0 and not lower):
        places.sort(key=lambda place: (place[1], place[0]))
    return np.stack([x[..., row, column] for row, column in places], -1)


def _unpack(x: np.ndarray, size: int, offset: int, lower: bool) -> np.ndarray:
    numbered = np.arange(size * size).reshape(size, size)
    out = np.zeros((*x.shape[:-1], size * size), x.dtype)
    out[..., _pack(numbered, offset, lower)] = x
    return out.reshape(*x.shape[:-1], size, size)


def _legacy_samples() -> dict[str, list[Sample]]:
    def lower_only(x: np.ndarray) -> np.ndarray:
        return np.linalg.inv(np.tril(x) @ _t(np.tril(x)))

    def triangle(upper: bool, turned: bool, x: np.ndarray) -> np.ndarray:
        factor = np.triu(x) if upper else np.tril(x)
        return _t(factor) if turned else factor

    six = spread(-1.0, 1.0, (2, 6), seed=52)
    samples = {
        "_linalg_gemm2": [
            Sample([A, B], {"alpha": 2.0}, lambda x, y: 2 * x @ y),
            Sample(
                [_t(A).copy(), _t(B).copy()], {"transpose_a": 1, "transpose_b": 1}, lambda x, y: _t(x) @ _t(y)
            ),
        ],
        "_linalg_gemm": [
            Sample([A, B, C], {"alpha": 2.0, "beta": 0.5}, lambda x, y, z: 2 * x @ y + 0.5 * z),
        ],
        "_linalg_syrk": [
            Sample([A], {"alpha": 0.5}, lambda x: 0.5 * x @ _t(x)),
            Sample([A], {"transpose": True}, lambda x: _t(x) @ x),
        ],
        # Gradients of these count one half of a symmetric matrix: finite differences do not apply.
        "_linalg_potrf": [Sample([POSITIVE], {}, np.linalg.cholesky, False)],
        "_linalg_potri": [Sample([LOWER], {}, lower_only, False, 1e-4, 1e-5)],
        "_linalg_trsm": [],
        "_linalg_trmm": [],
        "_linalg_sumlogdiag": [
            Sample([POSITIVE], {}, lambda x: np.log(np.diagonal(x, 0, -2, -1)).sum(-1)),
            Sample([POSITIVE[0]], {}, lambda x: np.atleast_1d(np.log(np.diagonal(x)).sum())),
        ],
        "_linalg_extractdiag": [
            Sample([SQUARE], {"offset": k}, lambda x, k=k: np.diagonal(x, k, -2, -1)) for k in (0, 1, -2)
        ],
        "_linalg_makediag": [
            Sample([DIAGONALS], {"offset": k}, lambda x, k=k: np.stack([np.diag(row, k) for row in x]))
            for k in (0, 2, -1)
        ],
        "_linalg_extracttrian": [
            Sample([SQUARE], {"offset": k, "lower": low}, lambda x, k=k, low=low: _pack(x, k, low))
            for k, low in ((0, True), (0, False), (1, True), (-1, False))
        ],
        "_linalg_maketrian": [
            Sample([six], {"offset": k, "lower": low}, lambda x, n=n, k=k, low=low: _unpack(x, n, k, low))
            for n, k, low in ((3, 0, True), (3, 0, False), (4, 1, True), (5, -2, False))
        ],
        "_linalg_inverse": [Sample([SQUARE], {}, np.linalg.inv, rtol=1e-4, atol=1e-5)],
        "_linalg_det": [
            Sample([SQUARE], {}, np.linalg.det, rtol=1e-4),
            Sample([SQUARE[0]], {}, lambda x: np.linalg.det(x).reshape(1), rtol=1e-4),
        ],
        "_npi_det": [
            Sample([SQUARE], {}, np.linalg.det, rtol=1e-4),
            Sample([SQUARE[0]], {}, np.linalg.det, rtol=1e-4),
        ],
        "_npi_slogdet": [Sample([SQUARE[0]], {}, lambda x: tuple(np.linalg.slogdet(x)), False, 1e-4)],
        "_linalg_slogdet": [Sample([SQUARE], {}, lambda x: tuple(np.linalg.slogdet(x)), False, 1e-4)],
        "_linalg_gelqf": [Sample([A], {}, _lq, False, 1e-4, 1e-5)],
        "_linalg_syevd": [Sample([SYMMETRIC], {}, _symmetric, False, 1e-4, 1e-5)],
    }
    for upper, turned in ((False, False), (True, False), (False, True)):
        attrs = {"lower": not upper, "transpose": turned, "alpha": 2.0}
        samples["_linalg_trmm"].append(
            Sample([SQUARE, RIGHT], attrs, lambda x, y, u=upper, t=turned: 2 * triangle(u, t, x) @ y)
        )
        samples["_linalg_trsm"].append(
            Sample(
                [SQUARE, RIGHT],
                attrs,
                lambda x, y, u=upper, t=turned: np.linalg.solve(triangle(u, t, x), 2 * y),
                rtol=1e-4,
                atol=1e-5,
            )
        )
    turned_right = _t(RIGHT).copy()
    samples["_linalg_trmm"].append(
        Sample([SQUARE, turned_right], {"rightside": True}, lambda x, y: y @ np.tril(x))
    )
    samples["_linalg_trsm"].append(
        Sample(
            [SQUARE, turned_right],
            {"rightside": True},
            lambda x, y: y @ np.linalg.inv(np.tril(x)),
            rtol=1e-4,
            atol=1e-5,
        )
    )
    return samples


def _lq(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = [np.linalg.qr(matrix.T) for matrix in x]
    return np.stack([q.T for q, _ in found]), np.stack([r.T for _, r in found])


def _symmetric(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(x)
    return _t(_first_signs(vectors)), values


def _svd(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    left, values, right = np.linalg.svd(x, full_matrices=False)
    largest = np.take_along_axis(right, np.abs(right).argmax(-1)[..., None], -1)
    signs = np.sign(largest)
    return left * _t(signs), values, right * signs


def _eig(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eig(x)
    return values, vectors


def _qr(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    q, r = np.linalg.qr(x)
    return q, r


def _least_squares(x: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    found, residuals, rank, values = np.linalg.lstsq(x, y, rcond=None)
    return found, residuals.astype(x.dtype), np.int64(rank), values


def _decomposition_samples() -> dict[str, list[Sample]]:
    near = {"rtol": 1e-4, "atol": 1e-5}
    low_rank = np.array([[1, 2, 3], [2, 4, 6], [0, 1, 1]], np.float32)
    tensor = spread(-1.0, 1.0, (2, 3, 6), seed=53)
    return {
        "_npi_cholesky": [
            Sample([POSITIVE], {}, np.linalg.cholesky, False, **near),
            Sample([POSITIVE], {"lower": False}, lambda x: _t(np.linalg.cholesky(x)), False, **near),
        ],
        "_npi_solve": [
            Sample([SQUARE, RIGHT], {}, np.linalg.solve, **near),
            Sample([SQUARE[0], RIGHT[0, :, 0].copy()], {}, np.linalg.solve, **near),
        ],
        "_npi_svd": [Sample([A], {}, _svd, False, **near), Sample([N], {}, _svd, False, **near)],
        "_npi_eigh": [
            Sample([SYMMETRIC], {}, _ascending, False, **near),
            Sample([SYMMETRIC], {"UPLO": "U"}, _ascending, False, **near),
        ],
        "_npi_eigvalsh": [Sample([SYMMETRIC], {}, np.linalg.eigvalsh, False, **near)],
        "_npi_eig": [Sample([REAL], {}, _eig, False, **near)],
        "_npi_eigvals": [
            Sample([REAL], {}, np.linalg.eigvals, False, **near),
            Sample([REAL.astype(np.int32)], {}, np.linalg.eigvals, False, **near),
        ],
        "_npi_qr": [Sample([N], {}, _qr, False, **near)],
        "_npi_pinv_scalar_rcond": [
            Sample([A], {}, np.linalg.pinv, **near),
            Sample([low_rank], {"rcond": 1e-4}, lambda x: np.linalg.pinv(x, rcond=1e-4), False, **near),
        ],
        "_npi_pinv": [
            Sample(
                [A, np.array([0.5, 0.1], np.float32)],
                {},
                lambda x, rcond: np.linalg.pinv(x, rcond=rcond),
                False,
                **near,
            )
        ],
        "_npi_norm": _norm_samples(),
        "_npi_tensorinv": [
            Sample(
                [tensor.reshape(2, 3, 6)],
                {"ind": 2},
                lambda x: np.linalg.inv(x.reshape(6, 6)).reshape(6, 2, 3),
                False,
                1e-3,
                1e-4,
            )
        ],
        "_npi_tensorsolve": [
            Sample([tensor, SPATIAL], {}, np.linalg.tensorsolve, False, 1e-3, 1e-4),
            Sample(
                [tensor.transpose(0, 2, 1).copy(), SPATIAL],
                {"a_axes": (1,)},
                lambda x, y: np.linalg.tensorsolve(x, y, (1,)),
                False,
                1e-3,
                1e-4,
            ),
        ],
        "_npi_lstsq": [
            Sample([N, V], {"rcond": 1.0, "new_default": True}, _least_squares, False, **near),
            Sample([N, spread(-1, 1, (4, 3), seed=54)], {"rcond": 1e-5}, _least_squares, False, **near),
            Sample([M, V[:3].copy()], {}, _least_squares, False, **near),
        ],
        "_npi_matrix_rank": [
            Sample(
                [SYMMETRIC, np.float32(2.5).reshape(())],
                {},
                lambda x, tol: np.int64(np.linalg.matrix_rank(x, tol)),
                False,
            ),
            Sample(
                [SQUARE, np.array([0.1, 2.0], np.float32)],
                {},
                lambda x, tol: np.linalg.matrix_rank(x, tol).astype(np.int64),
                False,
            ),
        ],
        "_npi_matrix_rank_none_tol": [
            Sample([low_rank], {}, lambda x: np.int64(2), False),
            Sample([SYMMETRIC], {"hermitian": True}, lambda x: np.int64(3), False),
            Sample([V * 0], {}, lambda x: np.int64(0), False),
        ],
    }


def _ascending(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(x)
    return values, _first_signs(vectors)


def _norm_samples() -> list[Sample]:
    def of(order: Any, axis: Any, keepdims: bool = False) -> Reference:
        return lambda x: np.linalg.norm(x, order, axis, keepdims)

    samples = [
        Sample([A], {"flag": -2}, lambda x: np.sqrt((x * x).sum())),
        Sample([A], {"flag": 1, "axis": (0, 2), "keepdims": True}, of("fro", (0, 2), True), rtol=1e-4),
        Sample([A], {"flag": 2, "axis": (2, 1)}, of("nuc", (2, 1)), rtol=1e-4),
        Sample([M], {"ord": 0.0, "axis": (1,)}, of(0, 1), False),
    ]
    for order in (1.0, 3.0, -1.0, np.inf, -np.inf):
        samples.append(Sample([M], {"ord": order, "axis": (1,), "flag": -1}, of(order, 1), rtol=1e-4))
    for order in (1, -1, 2, -2, np.inf, -np.inf):
        samples.append(Sample([A], {"ord": float(order), "axis": (0, 2)}, of(order, (0, 2)), rtol=1e-4))
    return samples


SAMPLES: dict[str, list[Sample]] = {
    **_product_samples(),
    **_legacy_samples(),
    **_decomposition_samples(),
}
