"""Samples of the operators that index, sort and mask, and of the small contrib operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Sample
from .references import spread

M = spread(-2.0, 2.0, (4, 3), seed=31)
A = spread(-2.0, 2.0, (4, 3, 2), seed=32)
WEIGHT = spread(-2.0, 2.0, (5, 3), seed=33)
DISTINCT = (np.random.RandomState(34).permutation(15).reshape(3, 5) - 7.0).astype(np.float32)
ROWS = np.array([[2, 0], [1, 3]], np.int64)
PAIRS = np.array([[0, 3, 1], [2, 0, 1]], np.int64)
LENGTHS = np.array([2.0, 4.0, 1.0], np.float32)
MASK = np.array([True, False, True, True])
CHOICE = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]], np.float32)


def _masked(x: np.ndarray, lengths: np.ndarray, value: float = 0.0) -> np.ndarray:
    x = x.copy()
    for column, length in enumerate(lengths.astype(int)):
        x[length:, column] = value
    return x


def _last(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.stack([x[length - 1, column] for column, length in enumerate(lengths.astype(int))])


def _reversed(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    x = x.copy()
    for column, length in enumerate(lengths.astype(int)):
        x[:length, column] = x[:length, column][::-1].copy()
    return x


def _scattered(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    out = np.zeros((4, 3), values.dtype)
    out[tuple(index)] = values
    return out


def _written(x: np.ndarray, index: Any, value: Any) -> np.ndarray:
    x = x.copy()
    x[index] = value
    return x


def _added(x: np.ndarray, index: np.ndarray, value: np.ndarray) -> np.ndarray:
    x = x.copy()
    np.add.at(x, tuple(index), value)
    return x


def _top(x: np.ndarray, k: int, axis: int = -1) -> tuple[np.ndarray, np.ndarray]:
    order = np.take(np.argsort(-x, axis, kind="stable"), range(k), axis)
    return np.take_along_axis(x, order, axis), order


def _top_mask(x: np.ndarray) -> np.ndarray:
    mask = np.zeros_like(x)
    np.put_along_axis(mask, _top(x, 2)[1], 1, -1)
    return mask


def _one_hot(index: np.ndarray, depth: int, on: float = 1.0, off: float = 0.0) -> np.ndarray:
    return np.where(index[..., None].astype(int) == np.arange(depth), on, off).astype(np.float32)


def _unravel(index: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.stack(np.unravel_index(index, shape)).astype(index.dtype)


SELECT: dict[str, list[Sample]] = {
    "take": [
        Sample([M, ROWS], {"axis": 0}, lambda x, i: x[i]),
        Sample(
            [A, np.array([-4, 7], np.int64)], {"axis": 1, "mode": "wrap"}, lambda x, i: np.take(x, i % 3, 1)
        ),
        Sample([A, np.array([-4, 7], np.int64)], {"axis": -2}, lambda x, i: np.take(x, np.clip(i, 0, 2), 1)),
        Sample([M, np.array([-1, 0], np.int64)], {"mode": "raise"}, lambda x, i: x[i]),
    ],
    "Embedding": [
        Sample([ROWS, WEIGHT], {"input_dim": 5, "output_dim": 3}, lambda i, w: w[i]),
        Sample([np.array([-1, 9]), WEIGHT], {"input_dim": 5, "output_dim": 3}, lambda i, w: w[[0, 4]]),
    ],
    "_contrib_SparseEmbedding": [
        Sample([ROWS, WEIGHT], {"input_dim": 5, "output_dim": 3}, lambda i, w: w[i])
    ],
    "gather_nd": [
        Sample([M, PAIRS], {}, lambda x, i: x[tuple(i)]),
        Sample([A, PAIRS[:1]], {}, lambda x, i: x[i[0]]),
    ],
    "scatter_nd": [Sample([spread(-1.0, 1.0, (3,), seed=35), PAIRS], {"shape": (4, 3)}, _scattered)],
    "_scatter_set_nd": [
        Sample(
            [M, spread(-1.0, 1.0, (3,), seed=36), PAIRS],
            {"shape": (4, 3)},
            lambda x, v, i: _written(x, tuple(i), v),
        )
    ],
    "_ravel_multi_index": [
        Sample([PAIRS], {"shape": (4, 3)}, lambda i: np.ravel_multi_index(tuple(i), (4, 3)), gradient=False)
    ],
    "_unravel_index": [
        Sample([np.array([5, 0, 11])], {"shape": (4, 3)}, lambda i: _unravel(i, (4, 3)), gradient=False)
    ],
    "pick": [
        Sample([M, np.array([0, 2, 9, -1])], {}, lambda x, i: x[np.arange(4), np.clip(i, 0, 2)]),
        Sample(
            [M, np.array([0, 5, -1])],
            {"axis": 0, "mode": "wrap", "keepdims": True},
            lambda x, i: x[i % 4, np.arange(3)][None],
        ),
    ],
    "batch_take": [Sample([M, np.array([0, 2, 9, -1])], {}, lambda x, i: x[np.arange(4), np.clip(i, 0, 2)])],
    "fill_element_0index": [
        Sample(
            [M, spread(-1.0, 1.0, (4,), seed=37), np.array([0, 2, 1, 0])],
            {},
            lambda x, v, i: _written(x, (np.arange(4), i), v),
        )
    ],
    "one_hot": [
        Sample([np.array([1, 0, 7])], {"depth": 3}, lambda i: _one_hot(i, 3), gradient=False),
        Sample(
            [ROWS],
            {"depth": 4, "on_value": 2.0, "off_value": -1.0},
            lambda i: _one_hot(i, 4, 2.0, -1.0),
            gradient=False,
        ),
    ],
    "_onehot_encode": [
        Sample(
            [np.array([1.0, 0.0], np.float32), np.zeros((2, 3), np.float32)],
            {},
            lambda i, o: _one_hot(i, 3),
            False,
        )
    ],
    "where": [
        Sample([CHOICE, M, M + 1], {}, lambda c, x, y: np.where(c != 0, x, y), gradient=False),
        Sample([CHOICE[:, 0], M, M + 1], {}, lambda c, x, y: np.where(c[:, None] != 0, x, y), gradient=False),
    ],
    "_contrib_boolean_mask": [Sample([M, MASK.astype(np.int64)], {}, lambda x, m: x[m != 0])],
    "_contrib_index_copy": [
        Sample(
            [M, np.array([2, 0]), spread(-1.0, 1.0, (2, 3), seed=38)], {}, lambda x, i, v: _written(x, i, v)
        )
    ],
    "SequenceMask": [
        Sample(
            [A, LENGTHS], {"use_sequence_length": True, "value": 9.0}, lambda x, n: _masked(x, n, 9.0), False
        ),
        Sample([A], {}, lambda x: x),
    ],
    "SequenceLast": [
        Sample([A, LENGTHS], {"use_sequence_length": True}, _last, gradient=False),
        Sample([A], {"axis": 1}, lambda x: x[:, -1]),
    ],
    "SequenceReverse": [
        Sample([A, LENGTHS], {"use_sequence_length": True}, _reversed, gradient=False),
        Sample([A], {}, lambda x: x[::-1]),
    ],
}

NUMPY: dict[str, list[Sample]] = {
    "_npi_advanced_indexing": [
        Sample([M, np.array([2, 0, 2])], {}, lambda x, i: x[i]),
        Sample([M, MASK], {}, lambda x, m: x[m]),
    ],
    "_npi_advanced_indexing_multiple": [Sample([M, PAIRS], {}, lambda x, i: x[tuple(i)])],
    "_npi_boolean_mask_assign_scalar": [
        Sample([M, MASK], {"value": 7.0, "start_axis": 0}, lambda x, m: _written(x, m, 7.0)),
        Sample(
            [A, MASK[:3]], {"value": 7.0, "start_axis": 1}, lambda x, m: _written(x, (slice(None), m), 7.0)
        ),
    ],
    "_npi_boolean_mask_assign_tensor": [
        Sample([M, MASK, spread(-1.0, 1.0, (3, 3), seed=39)], {"start_axis": 0}, _written),
    ],
    "_npx_index_update": [
        Sample([M, PAIRS, spread(-1.0, 1.0, (3,), seed=40)], {}, lambda x, i, v: _written(x, tuple(i), v)),
    ],
    "_npx_index_add": [
        Sample([M, np.array([[1, 1, 0]]), spread(-1.0, 1.0, (3, 3), seed=41)], {}, _added),
        Sample([M, np.array([[1, 1, 0]]), spread(-1.0, 1.0, (1, 3), seed=42)], {}, _added),
    ],
    "_npx_nonzero": [Sample([CHOICE], {}, lambda x: np.stack(np.nonzero(x), 1), gradient=False)],
    "_npx_constraint_check": [
        Sample([np.array([True, True])], {"msg": "fine"}, lambda x: np.array(True), gradient=False)
    ],
    "_npi_unique": [
        Sample([np.array([3, 1, 3, 2])], {}, np.unique, gradient=False),
        Sample(
            [np.array([3, 1, 3, 2])],
            {"return_index": True, "return_inverse": True, "return_counts": True},
            lambda x: np.unique(x, True, True, True),
            gradient=False,
        ),
        Sample(
            [np.array([[1, 2], [0, 5], [1, 2]])], {"axis": 0}, lambda x: np.unique(x, axis=0), gradient=False
        ),
    ],
    "_npi_where": [
        Sample([CHOICE[:, :1], M, M[:1]], {}, lambda c, x, y: np.where(c != 0, x, y), gradient=False)
    ],
    "_npi_where_lscalar": [
        Sample([CHOICE, M], {"scalar": 2.0}, lambda c, x: np.where(c != 0, np.float32(2), x), gradient=False)
    ],
    "_npi_where_rscalar": [
        Sample([CHOICE, M], {"scalar": 2.0}, lambda c, x: np.where(c != 0, x, np.float32(2)), gradient=False)
    ],
    "_npi_where_scalar2": [
        Sample(
            [CHOICE], {"x": 1.5, "y": -1.0}, lambda c: np.where(c != 0, 1.5, -1.0).astype(np.float32), False
        )
    ],
    "_npi_delete": [
        Sample([M], {"int_ind": -1, "axis": 0}, lambda x: np.delete(x, -1, 0)),
        Sample([M], {"start": 0, "stop": 4, "step": 2}, lambda x: np.delete(x, slice(0, 4, 2))),
        Sample([M, np.array([2, 0])], {"axis": 1}, lambda x, i: np.delete(x, i, 1)),
    ],
    "_npi_insert_scalar": [
        Sample([M], {"int_ind": 1, "axis": 1, "val": 5.0}, lambda x: np.insert(x, 1, 5.0, 1)),
        Sample(
            [M, spread(-1.0, 1.0, (4,), seed=43)],
            {"int_ind": 1, "axis": 1},
            lambda x, v: np.insert(x, 1, v, 1),
        ),
    ],
    "_npi_insert_slice": [
        Sample(
            [M, spread(-1.0, 1.0, (2,), seed=44)],
            {"start": 0, "stop": 2, "step": 1, "axis": 1},
            lambda x, v: np.insert(x, slice(0, 2), v, 1),
        )
    ],
    "_npi_insert_tensor": [
        Sample(
            [M, spread(-1.0, 1.0, (3, 3), seed=45), np.array([4, 0, -1])],
            {"axis": 0},
            lambda x, v, i: np.insert(x, i, v, 0),
        ),
        Sample([M, np.array([2, 2, 0])], {"val": 1.0}, lambda x, i: np.insert(x, i, 1.0)),
    ],
}

SORT: dict[str, list[Sample]] = {
    "sort": [
        Sample([DISTINCT], {}, np.sort),
        Sample([DISTINCT], {"axis": 0, "is_ascend": False}, lambda x: -np.sort(-x, 0)),
        Sample([DISTINCT], {"axis": None}, lambda x: np.sort(x, None)),
    ],
    "argsort": [
        Sample([DISTINCT], {"dtype": "int64"}, np.argsort, gradient=False),
        Sample(
            [np.float32([2, 1, 2, 1])],
            {"is_ascend": False},
            lambda x: np.float32([0, 2, 1, 3]),
            gradient=False,
        ),
    ],
    "topk": [
        Sample([DISTINCT], {"k": 2, "ret_typ": "value"}, lambda x: _top(x, 2)[0]),
        Sample([DISTINCT], {"k": 2}, lambda x: _top(x, 2)[1].astype(np.float32), gradient=False),
        Sample(
            [DISTINCT],
            {"k": 2, "axis": 0, "ret_typ": "both", "dtype": "int64"},
            lambda x: _top(x, 2, 0),
            gradient=False,
        ),
        Sample([DISTINCT], {"k": 2, "ret_typ": "mask"}, _top_mask, gradient=False),
    ],
}


def _attention_parts(x: np.ndarray, heads: int, parts: int) -> list[np.ndarray]:
    """(length, batch, heads * parts * size) -> parts of (batch, heads, length, size)."""
    length, batch, width = x.shape
    split = x.reshape(length, batch, heads, parts, width // heads // parts)
    return [split[:, :, :, i].transpose(1, 2, 0, 3) for i in range(parts)]


def _scores(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / np.float32(np.sqrt(query.shape[-1]))
    return scores.reshape(-1, *scores.shape[2:])


def _context(weights: np.ndarray, value: np.ndarray) -> np.ndarray:
    batch, heads, length, width = value.shape
    weights = weights.reshape(batch, heads, -1, length)
    context = np.einsum("bhqk,bhkd->qbhd", weights, value)
    return context.reshape(context.shape[0], batch, heads * width)


QKV = spread(-1.0, 1.0, (3, 2, 12), seed=46)
QUERY, KEYS = spread(-1.0, 1.0, (4, 2, 4), seed=47), spread(-1.0, 1.0, (3, 2, 8), seed=48)
SELF_WEIGHTS, WEIGHTS = spread(0.0, 1.0, (4, 3, 3), seed=49), spread(0.0, 1.0, (4, 4, 3), seed=50)

CONTRIB: dict[str, list[Sample]] = {
    "_contrib_arange_like": [
        Sample(
            [M],
            {"start": 1.0, "step": 0.5},
            lambda x: (1 + 0.5 * np.arange(12)).reshape(4, 3).astype("f4"),
            False,
        ),
        Sample([M], {"axis": -1}, lambda x: np.arange(3, dtype=np.float32), gradient=False),
        Sample([M], {"axis": 0, "repeat": 2}, lambda x: np.float32([0, 0, 1, 1]), gradient=False),
    ],
    "_contrib_index_array": [
        Sample([M], {}, lambda x: np.stack(np.indices(x.shape), -1), gradient=False),
        Sample(
            [A], {"axes": (2, 0)}, lambda x: np.stack(np.indices(x.shape), -1)[..., [2, 0]], gradient=False
        ),
    ],
    "_contrib_div_sqrt_dim": [Sample([M], {}, lambda x: x / np.sqrt(np.float32(3)))],
    "_contrib_allclose": [
        Sample([M, M], {}, lambda x, y: np.array(1, np.uint8), gradient=False),
        Sample([M, M + 1], {}, lambda x, y: np.array(0, np.uint8), gradient=False),
    ],
    "_contrib_quadratic": [Sample([M], {"a": 1.0, "b": -2.0, "c": 3.0}, lambda x: x * x - 2 * x + 3)],
    "_contrib_gradientmultiplier": [Sample([M], {"scalar": -0.5}, lambda x: x, gradient=False)],
    "_contrib_getnnz": [
        Sample([CHOICE], {}, lambda x: np.array([np.count_nonzero(x)]), gradient=False),
        Sample([CHOICE], {"axis": 0}, lambda x: np.count_nonzero(x, 0), gradient=False),
    ],
    "cast_storage": [Sample([M], {"stype": "csr"}, lambda x: x)],
    "_sparse_retain": [
        Sample([M, np.array([0, 2])], {}, lambda x, i: x * np.isin(np.arange(4), i)[:, None]),
    ],
    "_contrib_interleaved_matmul_selfatt_qk": [
        Sample([QKV], {"heads": 2}, lambda x: _scores(*_attention_parts(x, 2, 3)[:2]))
    ],
    "_contrib_interleaved_matmul_selfatt_valatt": [
        Sample([QKV, SELF_WEIGHTS], {"heads": 2}, lambda x, w: _context(w, _attention_parts(x, 2, 3)[2]))
    ],
    "_contrib_interleaved_matmul_encdec_qk": [
        Sample(
            [QUERY, KEYS],
            {"heads": 2},
            lambda q, k: _scores(_attention_parts(q, 2, 1)[0], _attention_parts(k, 2, 2)[0]),
        )
    ],
    "_contrib_interleaved_matmul_encdec_valatt": [
        Sample([KEYS, WEIGHTS], {"heads": 2}, lambda k, w: _context(w, _attention_parts(k, 2, 2)[1]))
    ],
}

SAMPLES: dict[str, list[Sample]] = {**SELECT, **NUMPY, **SORT, **CONTRIB}
