"""Samples of the shape operators, of both the 1.x and the NumPy family."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Sample
from .references import spread

A = spread(-2.0, 2.0, (2, 3, 4), seed=11)
M = spread(-2.0, 2.0, (3, 4), seed=12)
SQUARE = spread(-2.0, 2.0, (3, 3), seed=13)
V = spread(-2.0, 2.0, (5,), seed=14)
IMAGE = spread(-2.0, 2.0, (2, 4, 4, 6), seed=15)
ONES = spread(-2.0, 2.0, (1, 3, 1), seed=16)
LIKE = np.zeros((2, 2, 4), np.float32)


def _same(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [spread(-2.0, 2.0, shape, seed=20 + i) for i, shape in enumerate(shapes)]


def _blocks_to_space(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    out = np.zeros((n, c // 4, 2 * h, 2 * w), x.dtype)
    for row in range(2):
        for column in range(2):
            part = (row * 2 + column) * (c // 4)
            out[:, :, row::2, column::2] = x[:, part : part + c // 4]
    return out


def _space_to_blocks(x: np.ndarray) -> np.ndarray:
    parts = [x[:, :, row::2, column::2] for row in range(2) for column in range(2)]
    return np.concatenate(parts, 1)


def _columns(x: np.ndarray, kernel: tuple[int, int], stride: int = 1) -> np.ndarray:
    n, c, h, w = x.shape
    rows, cols = (h - kernel[0]) // stride + 1, (w - kernel[1]) // stride + 1
    out = np.zeros((n, c * kernel[0] * kernel[1], rows * cols), x.dtype)
    for i in range(rows):
        for j in range(cols):
            window = x[:, :, i * stride : i * stride + kernel[0], j * stride : j * stride + kernel[1]]
            out[:, :, i * cols + j] = window.reshape(n, -1)
    return out


def _uncolumns(x: np.ndarray) -> np.ndarray:
    """Adjoint of 2x3 windows on (4, 5)."""
    out = np.zeros((1, 2, 4, 5), x.dtype)
    for i in range(3):
        for j in range(3):
            out[:, :, i : i + 2, j : j + 3] += x[:, :, i * 3 + j].reshape(1, 2, 2, 3)
    return out


def _assigned(x: np.ndarray, value: Any) -> np.ndarray:
    x = x.copy()
    x[1:, 0:4:2] = value
    return x


def _diagonal_filled(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    np.fill_diagonal(x, [1.0, 2.0])
    return x


def _pad_sample(mode: str, width: tuple[int, int] = (1, 2), **attrs: float) -> Sample:
    options: dict[str, Any] = (
        {"constant_values": attrs.get("constant_value", 0.0)} if mode == "constant" else {}
    )
    pairs = ((0, 0), (0, 0), width, (2, 1))
    flat = tuple(number for pair in pairs for number in pair)
    return Sample(
        [IMAGE], {"mode": mode, "pad_width": flat, **attrs}, lambda x: np.pad(x, pairs, mode, **options)
    )


def _np_pad_sample(mode: str, gradient: bool = True) -> Sample:
    pairs = ((1, 2), (3, 1))
    return Sample([M], {"pad_width": pairs, "mode": mode}, lambda x: np.pad(x, pairs, mode), gradient)


LEGACY: dict[str, list[Sample]] = {
    "Reshape": [
        Sample([A], {"shape": (0, -1)}, lambda x: x.reshape(2, 12)),
        Sample([A], {"shape": (-4, 1, 2, -2)}, lambda x: x.reshape(1, 2, 3, 4)),
        Sample([A], {"shape": (-3, 0)}, lambda x: x.reshape(6, 4)),
        Sample([A], {"shape": (-1, 0), "reverse": True}, lambda x: x.reshape(6, 4)),
        Sample([A], {"target_shape": (2, 0)}, lambda x: x.reshape(2, 12)),
    ],
    "reshape_like": [
        Sample(
            [A, M.reshape(6, 2, 1)[:, :, 0].repeat(2, 1)], {}, lambda x, y: x.reshape(6, 4), gradient=False
        ),
        Sample(
            [A, M],
            {"lhs_begin": 1, "lhs_end": 3, "rhs_begin": 0, "rhs_end": 2},
            lambda x, y: x.reshape(2, 3, 4),
            gradient=False,
        ),
    ],
    "Flatten": [Sample([A], {}, lambda x: x.reshape(2, 12))],
    "expand_dims": [Sample([A], {"axis": -2}, lambda x: np.expand_dims(x, -2))],
    "squeeze": [
        Sample([ONES], {}, np.squeeze),
        Sample([ONES], {"axis": (-1,)}, lambda x: x[:, :, 0]),
    ],
    "transpose": [
        Sample([A], {}, np.transpose),
        Sample([A], {"axes": (1, -1, 0)}, lambda x: x.transpose(1, 2, 0)),
    ],
    "SwapAxis": [Sample([A], {"dim1": 0, "dim2": -1}, lambda x: x.swapaxes(0, 2))],
    "reverse": [Sample([A], {"axis": (0, -1)}, lambda x: np.flip(x, (0, 2)))],
    "depth_to_space": [Sample([IMAGE], {"block_size": 2}, _blocks_to_space)],
    "space_to_depth": [Sample([IMAGE], {"block_size": 2}, _space_to_blocks)],
    "slice": [
        Sample([A], {"begin": (0, None, -3), "end": (2, 2, None)}, lambda x: x[0:2, :2, -3:]),
        Sample(
            [A],
            {"begin": (None, -1), "end": (None, None), "step": (1, -2)},
            lambda x: x[:, -1::-2],
        ),
    ],
    "slice_axis": [Sample([A], {"axis": -1, "begin": -3, "end": None}, lambda x: x[..., -3:])],
    "slice_like": [
        Sample([A, LIKE], {}, lambda x, y: x[:2, :2, :4], gradient=False),
        Sample([A, LIKE], {"axes": (-2,)}, lambda x, y: x[:, :2], gradient=False),
    ],
    "_slice_assign": [
        Sample(
            [M, spread(-2.0, 2.0, (2, 2), seed=17)],
            {"begin": (1, 0), "end": (None, 4), "step": (None, 2)},
            _assigned,
        )
    ],
    "_slice_assign_scalar": [
        Sample(
            [M],
            {"scalar": 2.5, "begin": (1, 0), "end": (None, 4), "step": (None, 2)},
            lambda x: _assigned(x, 2.5),
        )
    ],
    "Crop": [
        Sample([IMAGE], {"offset": (1, 2), "h_w": (2, 3)}, lambda x: x[:, :, 1:3, 2:5]),
        Sample(
            [IMAGE, IMAGE[:, :, :2, :4]],
            {"center_crop": True},
            lambda x, y: x[:, :, 1:3, 1:5],
            gradient=False,
        ),
    ],
    "Concat": [
        Sample(_same((2, 3), (2, 1)), {}, lambda *x: np.concatenate(x, 1)),
        Sample(_same((2, 3), (1, 3), (4, 3)), {"dim": -2}, lambda *x: np.concatenate(x, 0)),
        Sample(_same((2, 3), (4,)), {"dim": None}, lambda *x: np.concatenate(x, None)),
    ],
    "_rnn_param_concat": [Sample(_same((6,), (4,)), {"dim": 0}, lambda *x: np.concatenate(x, 0))],
    "stack": [Sample(_same((2, 3), (2, 3)), {"axis": -1}, lambda *x: np.stack(x, -1))],
    "SliceChannel": [
        Sample([A], {"num_outputs": 2, "axis": -1}, lambda x: tuple(np.split(x, 2, -1))),
        Sample(
            [A],
            {"num_outputs": 3, "axis": 1, "squeeze_axis": True},
            lambda x: (x[:, 0], x[:, 1], x[:, 2]),
        ),
    ],
    "_split_v2": [
        Sample([A], {"indices": (0, 1, 3), "axis": 2}, lambda x: tuple(np.split(x, [1, 3], 2))),
        Sample([A], {"indices": (), "sections": 2, "axis": 0}, lambda x: tuple(np.split(x, 2, 0))),
    ],
    "tile": [Sample([M], {"reps": (2, 1, 3)}, lambda x: np.tile(x, (2, 1, 3)))],
    "repeat": [
        Sample([M], {"repeats": 2, "axis": -1}, lambda x: np.repeat(x, 2, -1)),
        Sample([M], {"repeats": 3}, lambda x: np.repeat(x, 3)),
    ],
    "broadcast_to": [Sample([ONES], {"shape": (2, 0, 4)}, lambda x: np.broadcast_to(x, (2, 3, 4)))],
    "broadcast_axis": [
        Sample([ONES], {"axis": (0, -1), "size": (2, 4)}, lambda x: np.broadcast_to(x, (2, 3, 4)))
    ],
    "broadcast_like": [
        Sample([ONES, A], {}, lambda x, y: np.broadcast_to(x, (2, 3, 4)), gradient=False),
        Sample(
            [ONES, A],
            {"lhs_axes": (0,), "rhs_axes": (-1,)},
            lambda x, y: np.broadcast_to(x, (4, 3, 1)),
            gradient=False,
        ),
    ],
    "Pad": [_pad_sample("constant", constant_value=1.5), _pad_sample("edge"), _pad_sample("reflect")],
    "_identity_with_attr_like_rhs": [Sample([M, M], {}, lambda x, y: x, gradient=False)],
    "diag": [
        Sample([V], {"k": 1}, lambda x: np.diag(x, 1)),
        Sample([A], {"axis1": -1, "axis2": 0}, lambda x: np.diagonal(x, 0, -1, 0)),
    ],
    "shape_array": [Sample([A], {}, lambda x: np.array(x.shape, np.int64), gradient=False)],
    "size_array": [Sample([A], {}, lambda x: np.array([x.size], np.int64), gradient=False)],
    "_contrib_dynamic_reshape": [
        Sample([A, np.array([6, -1], np.int64)], {}, lambda x, s: x.reshape(6, 4), gradient=False)
    ],
    "im2col": [
        Sample([IMAGE], {"kernel": (2, 3)}, lambda x: _columns(x, (2, 3))),
        Sample([IMAGE], {"kernel": (2, 2), "stride": (2, 2)}, lambda x: _columns(x, (2, 2), 2)),
    ],
    "col2im": [
        Sample(
            [spread(-2.0, 2.0, (1, 12, 9), seed=18)], {"output_size": (4, 5), "kernel": (2, 3)}, _uncolumns
        )
    ],
}

NUMPY: dict[str, list[Sample]] = {
    "_npx_reshape": [
        Sample([A], {"newshape": (-2, -1)}, lambda x: x.reshape(2, 12)),
        Sample([A], {"newshape": (-6, 1, -1, -5)}, lambda x: x.reshape(1, 2, 12)),
        Sample([ONES], {"newshape": (-3, -4)}, lambda x: x.reshape(3, 1)),
        Sample([A], {"newshape": (-1, -2), "reverse": True}, lambda x: x.reshape(6, 4)),
    ],
    "_np_reshape": [Sample([A], {"newshape": (4, -1)}, lambda x: x.reshape(4, 6))],
    "_npi_transpose": [Sample([A], {"axes": (-1, 0, 1)}, lambda x: x.transpose(2, 0, 1))],
    "_npi_squeeze": [Sample([ONES[:, :1]], {}, np.squeeze), Sample([ONES], {"axis": (0,)}, lambda x: x[0])],
    "_npi_moveaxis": [
        Sample([A], {"source": (0, 1), "destination": (-1, 0)}, lambda x: np.moveaxis(x, (0, 1), (-1, 0)))
    ],
    "_npi_rollaxis": [
        Sample([A], {"axis": 2, "start": 1}, lambda x: np.rollaxis(x, 2, 1)),
        Sample([A], {"axis": 0, "start": 2}, lambda x: np.rollaxis(x, 0, 2)),
    ],
    "_npi_roll": [
        Sample([M], {"shift": (2,)}, lambda x: np.roll(x, 2)),
        Sample([M], {"shift": (1, -1), "axis": (0, 1)}, lambda x: np.roll(x, (1, -1), (0, 1))),
    ],
    "_npi_rot90": [
        Sample([M], {"k": 1}, np.rot90),
        Sample([A], {"k": 3, "axes": (0, 2)}, lambda x: np.rot90(x, 3, (0, 2))),
    ],
    "_npi_flip": [Sample([A], {}, np.flip), Sample([A], {"axis": (-1,)}, lambda x: np.flip(x, -1))],
    "_npi_atleast_1d": [Sample([V, np.float32([[2.0]])[0, 0:1].reshape(())], {}, np.atleast_1d)],
    "_npi_atleast_2d": [Sample([V, M], {}, np.atleast_2d)],
    "_npi_atleast_3d": [Sample([V, M], {}, np.atleast_3d)],
    "_npi_hstack": [Sample(_same((2, 3), (2, 1)), {}, lambda *x: np.hstack(x))],
    "_npi_vstack": [Sample(_same((3,), (3,)), {}, lambda *x: np.vstack(x))],
    "_npi_dstack": [Sample(_same((2, 3), (2, 3)), {}, lambda *x: np.dstack(x))],
    "_npi_column_stack": [Sample(_same((3,), (3, 2)), {}, lambda *x: np.column_stack(x))],
    "_npi_hsplit": [
        Sample([A], {"indices": (0, 1)}, lambda x: tuple(np.hsplit(x, [1]))),
        Sample([A], {"indices": (), "sections": 3}, lambda x: tuple(np.hsplit(x, 3))),
    ],
    "_npi_dsplit": [Sample([A], {"indices": (), "sections": 2}, lambda x: tuple(np.dsplit(x, 2)))],
    "_npi_repeats": [
        Sample([M], {"repeats": (1, 0, 2), "axis": 0}, lambda x: np.repeat(x, [1, 0, 2], 0)),
        Sample([M], {"repeats": (2,)}, lambda x: np.repeat(x, 2)),
    ],
    "_npi_broadcast_to": [Sample([M[:, :1]], {"shape": (2, 3, 4)}, lambda x: np.broadcast_to(x, (2, 3, 4)))],
    "_npi_pad": [
        *(_np_pad_sample(mode) for mode in ("constant", "edge", "reflect", "symmetric")),
        *(_np_pad_sample(mode, gradient=False) for mode in ("maximum", "minimum")),
    ],
    "_npi_diag": [
        Sample([V], {"k": -1}, lambda x: np.diag(x, -1)),
        Sample([M], {"k": 1}, lambda x: np.diag(x, 1)),
    ],
    "_npi_diagflat": [Sample([M], {"k": 1}, lambda x: np.diagflat(x, 1))],
    "_npi_diagonal": [
        Sample([A], {"offset": 1, "axis1": -1, "axis2": 0}, lambda x: np.diagonal(x, 1, -1, 0))
    ],
    "_npi_trace": [Sample([A], {"offset": 1, "axis1": 1, "axis2": 2}, lambda x: np.trace(x, 1, 1, 2))],
    "_npi_tril": [Sample([M], {"k": 1}, lambda x: np.tril(x, 1)), Sample([V], {}, np.tril)],
    "_npi_triu": [Sample([A], {"k": -1}, lambda x: np.triu(x, -1))],
    "_npi_diag_indices_from": [
        Sample([SQUARE], {}, lambda x: np.stack(np.diag_indices_from(x)), gradient=False)
    ],
    "_npi_fill_diagonal": [Sample([SQUARE], {"val": (1.0, 2.0)}, _diagonal_filled)],
    "_npi_share_memory": [Sample([M, A], {}, lambda x, y: np.array([False]), gradient=False)],
}

SAMPLES: dict[str, list[Sample]] = {**LEGACY, **NUMPY}
