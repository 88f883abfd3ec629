"""Samples of the elementwise functions of one array, legacy and NumPy-style, casts and gradient control."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import Sample
from .references import digamma, elementwise, erfinv, integers, off_grid, spread

Function = Callable[[np.ndarray], Any]

POSITIVE = (0.3, 3.0)
SMALL = (-0.9, 0.9)
ANY = (-3.0, 3.0)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _half_away(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _half_down(x: np.ndarray) -> np.ndarray:
    return np.ceil(x - 0.5)


# Legacy name, NumPy-style name (None: there is none), domain, reference.
MATH: tuple[tuple[str | None, str | None, tuple[float, float], Function], ...] = (
    ("exp", "_npi_exp", ANY, np.exp),
    ("expm1", "_npi_expm1", ANY, np.expm1),
    ("log", "_npi_log", POSITIVE, np.log),
    ("log10", "_npi_log10", POSITIVE, np.log10),
    ("log2", "_npi_log2", POSITIVE, np.log2),
    ("log1p", "_npi_log1p", POSITIVE, np.log1p),
    ("sqrt", "_npi_sqrt", POSITIVE, np.sqrt),
    ("cbrt", "_npi_cbrt", ANY, np.cbrt),
    ("sin", "_npi_sin", ANY, np.sin),
    ("cos", "_npi_cos", ANY, np.cos),
    ("tan", "_npi_tan", (-1.2, 1.2), np.tan),
    ("arcsin", "_npi_arcsin", SMALL, np.arcsin),
    ("arccos", "_npi_arccos", SMALL, np.arccos),
    ("arctan", "_npi_arctan", ANY, np.arctan),
    ("sinh", "_npi_sinh", ANY, np.sinh),
    ("cosh", "_npi_cosh", ANY, np.cosh),
    ("tanh", "_npi_tanh", ANY, np.tanh),
    ("arcsinh", "_npi_arcsinh", ANY, np.arcsinh),
    ("arccosh", "_npi_arccosh", (1.2, 4.0), np.arccosh),
    ("arctanh", "_npi_arctanh", SMALL, np.arctanh),
    ("degrees", "_npi_degrees", ANY, np.degrees),
    ("radians", "_npi_radians", (-180.0, 180.0), np.radians),
    ("abs", "_npi_absolute", ANY, np.abs),
    ("negative", "_npi_negative", ANY, np.negative),
    ("reciprocal", "_npi_reciprocal", POSITIVE, np.reciprocal),
    ("square", "_npi_square", ANY, np.square),
    ("rsqrt", None, POSITIVE, lambda x: 1 / np.sqrt(x)),
    ("rcbrt", None, POSITIVE, lambda x: 1 / np.cbrt(x)),
    ("digamma", None, POSITIVE, elementwise(digamma)),
    ("erf", None, ANY, elementwise(math.erf)),
    ("erfinv", None, SMALL, elementwise(erfinv)),
    ("gamma", None, POSITIVE, elementwise(math.gamma)),
    ("gammaln", None, POSITIVE, elementwise(math.lgamma)),
    ("relu", "_npx_relu", ANY, lambda x: np.maximum(x, 0)),
    ("sigmoid", "_npx_sigmoid", ANY, _sigmoid),
    ("log_sigmoid", None, ANY, lambda x: -np.log1p(np.exp(-x))),
    ("mish", None, ANY, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    ("softsign", None, ANY, lambda x: x / (1 + np.abs(x))),
)

ROUNDING: tuple[tuple[str, str | None, Function], ...] = (
    ("floor", "_npi_floor", np.floor),
    ("ceil", "_npi_ceil", np.ceil),
    ("trunc", "_npi_trunc", np.trunc),
    ("fix", "_npi_fix", np.trunc),
    ("rint", "_npi_rint", _half_down),
    ("round", None, _half_away),
    ("sign", "_npi_sign", np.sign),
)

TESTS: tuple[tuple[str, Function], ...] = (
    ("_npi_isnan", np.isnan),
    ("_npi_isinf", np.isinf),
    ("_npi_isfinite", np.isfinite),
    ("_npi_isposinf", np.isposinf),
    ("_npi_isneginf", np.isneginf),
    ("_npi_logical_not", np.logical_not),
)

SPECIAL = np.array([0.0, 1.0, -2.5, np.inf, -np.inf, np.nan], dtype=np.float32)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], dtype=np.float32)


def _math_samples() -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for legacy, numpy_name, (low, high), function in MATH:
        records = [
            Sample([spread(low, high)], reference=function),
            Sample([spread(low, high, (2, 1, 3), seed=1).astype(np.float64)], reference=function),
        ]
        for name in (legacy, numpy_name):
            if name is not None:
                samples[name] = list(records)
        if numpy_name is not None:
            samples[numpy_name].append(Sample([spread(low, high, ())], reference=function))
            empty = Sample([spread(low, high, (0, 3))], reference=function, gradient=False)
            samples[numpy_name].append(empty)
    samples["gamma"].append(
        Sample([np.array([-0.5, -1.5, -2.25, 4.0], np.float32)], reference=elementwise(math.gamma))
    )
    samples["exp"].append(
        Sample([integers(0, 5)], reference=lambda x: np.exp(x).astype(np.int32), gradient=False)
    )
    samples["_npi_exp"].append(
        Sample([integers(0, 5)], reference=lambda x: np.exp(x).astype(np.float32), gradient=False)
    )
    samples["_npi_sqrt"].append(
        Sample(
            [integers(0, 9, dtype="uint8")],
            reference=lambda x: np.sqrt(x.astype(np.float32)).astype(np.float16),
            gradient=False,
            rtol=1e-3,
        )
    )
    return samples


def _rounding_samples() -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for legacy, numpy_name, function in ROUNDING:
        records = [
            Sample([off_grid(-3, 3)], reference=function),
            Sample([HALVES], reference=function, gradient=False),
        ]
        for name in (legacy, numpy_name):
            if name is not None:
                samples[name] = list(records)
    samples["floor"].append(Sample([integers(-3, 4)], reference=lambda x: x, gradient=False))
    samples["_npi_floor"].append(Sample([integers(-3, 4)], reference=lambda x: x, gradient=False))
    samples["_npi_around"] = [
        Sample([off_grid(-3, 3)], reference=np.round),
        Sample([spread(-3, 3)], {"decimals": 2}, lambda x: np.round(x, 2), gradient=False),
        Sample([integers(-300, 300)], {"decimals": -2}, lambda x: np.round(x, -2), gradient=False),
    ]
    for name, function in TESTS:
        samples[name] = [
            Sample([SPECIAL], reference=function, gradient=False),
            Sample([integers(-1, 2)], reference=function, gradient=False),
        ]
    samples["logical_not"] = [
        Sample(
            [np.array([0.0, 1.0, -0.5], np.float32)],
            reference=lambda x: (x == 0).astype(x.dtype),
            gradient=False,
        )
    ]
    samples["_npi_bitwise_not"] = [
        Sample([integers(-9, 9)], reference=np.bitwise_not, gradient=False),
        Sample([integers(0, 2) == 1], reference=np.logical_not, gradient=False),
    ]
    return samples


def _parametric_samples() -> dict[str, list[Sample]]:
    wide = spread(-3.0, 3.0)

    def hard(alpha: float, beta: float) -> Function:
        return lambda x: np.clip(alpha * x + beta, 0, 1).astype(x.dtype)

    def smooth(sigma: float) -> Function:
        return lambda x: np.where(
            np.abs(x) < 1 / sigma**2, 0.5 * (sigma * x) ** 2, np.abs(x) - 0.5 / sigma**2
        ).astype(x.dtype)

    return {
        "hard_sigmoid": [
            Sample([wide], reference=hard(0.2, 0.5)),
            Sample([wide], {"alpha": 0.4, "beta": 0.1}, hard(0.4, 0.1)),
        ],
        "smooth_l1": [
            Sample([wide], {"scalar": 1.0}, smooth(1.0)),
            Sample([wide], {"scalar": 3.0}, smooth(3.0)),
        ],
        "clip": [
            Sample([wide], {"a_min": -1.0, "a_max": 1.5}, lambda x: np.clip(x, -1, 1.5)),
            Sample(
                [integers(-5, 6)], {"a_min": -2.0, "a_max": 3.0}, lambda x: np.clip(x, -2, 3), gradient=False
            ),
        ],
        "_npi_nan_to_num": [
            Sample([wide], reference=lambda x: x),
            Sample(
                [SPECIAL],
                {"nan": 7.0, "posinf": 8.0, "neginf": -9.0},
                lambda x: np.nan_to_num(x, nan=7.0, posinf=8.0, neginf=-9.0),
                gradient=False,
            ),
        ],
        "Cast": [
            Sample([wide], {"dtype": "float64"}, lambda x: x.astype(np.float64)),
            Sample([wide], {"dtype": "int32"}, lambda x: x.astype(np.int32), gradient=False),
            Sample([SPECIAL], {"dtype": "bool"}, lambda x: x.astype(bool), gradient=False),
        ],
        "amp_cast": [
            Sample([wide], {"dtype": "float16"}, lambda x: x.astype(np.float16), gradient=False),
            Sample([integers(0, 3)], {"dtype": "float16"}, lambda x: x, gradient=False),
        ],
        "amp_multicast": [
            Sample(
                [wide.astype(np.float16), wide, integers(0, 3)],
                {"num_outputs": 3},
                lambda x, y, z: (x.astype(np.float32), y, z),
                gradient=False,
            ),
            Sample(
                [wide.astype(np.float16), wide],
                {"num_outputs": 2, "cast_narrow": True},
                lambda x, y: (x, y.astype(np.float16)),
                gradient=False,
            ),
        ],
    }


def _copies() -> dict[str, list[Sample]]:
    data = off_grid(-3, 3)
    same = Sample([data], reference=lambda x: x)
    unlike = Sample([data], reference=lambda x: x, gradient=False)
    samples = {name: [same] for name in ("_copy", "_copyto", "_npi_copy")}
    samples.update({name: [unlike] for name in ("BlockGrad", "make_loss")})
    samples["zeros_like"] = [Sample([data], reference=np.zeros_like)]
    samples["ones_like"] = [Sample([data], reference=np.ones_like)]
    samples["_contrib_round_ste"] = [Sample([data], reference=_half_away, gradient=False)]
    samples["_contrib_sign_ste"] = [Sample([data], reference=np.sign, gradient=False)]
    samples["IdentityAttachKLSparseReg"] = [
        Sample([spread(0.1, 0.9), spread(0.2, 0.8, (4,))], reference=lambda x, average: x, gradient=False)
    ]
    return samples


def _variadic() -> dict[str, list[Sample]]:
    first, second, third = (spread(-1, 1, seed=seed) for seed in range(3))
    broken = np.array([1.0, np.nan], np.float32)

    def khatri_rao(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.stack([np.kron(x[:, k], y[:, k]) for k in range(x.shape[1])], axis=1)

    return {
        "add_n": [
            Sample([first, second, third], {"num_args": 3}, lambda x, y, z: x + y + z),
            Sample([first], {"num_args": 1}, lambda x: x),
        ],
        "khatri_rao": [
            Sample([spread(-1, 1, (2, 3)), spread(-1, 1, (4, 3), 1)], {"num_args": 2}, khatri_rao)
        ],
        "all_finite": [
            Sample([first], reference=lambda x: np.ones(1, np.float32), gradient=False),
            Sample([broken], reference=lambda x: np.zeros(1, np.float32), gradient=False),
        ],
        "multi_all_finite": [
            Sample([first, broken], {"num_arrays": 2}, lambda x, y: np.zeros(1, np.float32), gradient=False)
        ],
        "reset_arrays": [Sample([first, second], {"num_arrays": 2}, None, gradient=False)],
    }


SAMPLES: dict[str, list[Sample]] = {
    **_math_samples(),
    **_rounding_samples(),
    **_parametric_samples(),
    **_copies(),
    **_variadic(),
}
