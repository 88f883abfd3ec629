"""Samples of the creation operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Sample

F4 = np.float32


def _made(reference: Callable[[], Any], **attrs: Any) -> Sample:
    return Sample([], attrs, reference, gradient=False)


def _f4(values: Any) -> np.ndarray:
    return np.asarray(values).astype(F4)


SAMPLES: dict[str, list[Sample]] = {
    "_zeros": [
        _made(lambda: np.zeros((2, 3), F4), shape=(2, 3)),
        _made(lambda: np.zeros((2, 0)), shape=(2, 0), dtype="float64"),
    ],
    "_ones": [_made(lambda: np.ones((2,), np.int32), shape=(2,), dtype="int32")],
    "_npi_zeros": [_made(lambda: np.zeros((), F4), shape=())],
    "_npi_ones": [_made(lambda: np.ones((2, 3), bool), shape=(2, 3), dtype="bool")],
    "_zeros_without_dtype": [_made(lambda: np.zeros((2,), F4), shape=(2,))],
    "_full": [
        _made(lambda: np.full((2, 2), 2.5, F4), shape=(2, 2), value=2.5),
        _made(lambda: np.full((2,), 2, np.int32), shape=(2,), value=2.7, dtype="int32"),
    ],
    "_npi_full": [
        _made(lambda: np.full((2,), 7), shape=(2,), int_value=7, value_type=0),
        _made(lambda: np.full((2,), True), shape=(2,), int_value=1, value_type=3),
        _made(lambda: np.full((2,), 1.5, F4), shape=(2,), double_value=1.5, value_type=2),
    ],
    "_npi_full_like": [
        Sample([np.zeros((2, 3), F4)], {"fill_value": 3.0}, lambda x: np.full((2, 3), 3, F4), False),
        Sample(
            [np.zeros((2,), F4)], {"fill_value": 3.0, "dtype": "bool"}, lambda x: np.full((2,), True), False
        ),
    ],
    "_arange": [
        _made(lambda: np.arange(5, dtype=F4), start=5),
        _made(lambda: np.arange(1, 2, 0.25).repeat(2).astype(F4), start=1, stop=2, step=0.25, repeat=2),
        _made(lambda: np.arange(10, 1, -3, dtype=np.int32), start=10, stop=1, step=-3, dtype="int32"),
    ],
    "_npi_arange": [
        _made(lambda: np.arange(0, 1, 0.3).astype(F4), start=0, stop=1, step=0.3),
        _made(lambda: np.zeros((0,), F4), start=3, stop=0),
    ],
    "_linspace": [
        _made(lambda: np.linspace(0, 1, 5, dtype=F4), start=0, stop=1, num=5),
        _made(lambda: np.linspace(2, 1, 3).astype(np.int32), start=2, stop=1, num=3, dtype="int32"),
    ],
    "_npi_linspace": [
        _made(
            lambda: np.linspace(0.5, 3, 4, False).astype(F4),
            start_double=0.5,
            stop_int=3,
            num=4,
            endpoint=False,
        ),
        _made(lambda: np.linspace(0, 1, 1).astype(F4), start=0, stop=1, num=1),
    ],
    "_npi_logspace": [
        _made(lambda: _f4(np.logspace(0, 3, 4, False, 2.0)), start=0, stop=3, num=4, endpoint=False, base=2.0)
    ],
    "_eye": [_made(lambda: np.eye(3, 4, 1, F4), N=3, M=4, k=1), _made(lambda: np.eye(2, dtype=F4), N=2)],
    "_npi_eye": [_made(lambda: np.eye(3, 2, -1, np.int32), N=3, M=2, k=-1, dtype="int32")],
    "_npi_identity": [_made(lambda: np.identity(3, F4), shape=(3, 3))],
    "_npi_tri": [_made(lambda: np.tri(3, 4, 1, F4), N=3, M=4, k=1), _made(lambda: np.tri(3, dtype=F4), N=3)],
    "_npi_tril_indices": [_made(lambda: np.tril_indices(3, -1, 4), n=3, k=-1, m=4)],
    "_npi_indices": [
        _made(lambda: np.indices((2, 3)), dimensions=(2, 3)),
        _made(lambda: np.indices((2, 3), F4), dimensions=(2, 3), dtype="float32"),
    ],
    "_npi_hanning": [_made(lambda: _f4(np.hanning(6)), M=6), _made(lambda: np.ones((1,), F4), M=1)],
    "_npi_hamming": [_made(lambda: np.hamming(5), M=5, dtype="float64")],
    "_npi_blackman": [_made(lambda: _f4(np.blackman(6)), M=6), _made(lambda: np.zeros((0,), F4), M=0)],
}
