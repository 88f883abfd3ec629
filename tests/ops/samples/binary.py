"""Samples of the binary operators: legacy (elementwise, broadcasting, with a scalar) and NumPy-style."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Sample
from .references import integers, spread

Function = Callable[..., Any]


def _mod(x: Any, y: Any) -> np.ndarray:
    y = np.asarray(y)
    return np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y)))


def _fmod(x: Any, y: Any) -> np.ndarray:
    y = np.asarray(y)
    return np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y)))


def _quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.trunc(x / y)


def _like_left(function: Function) -> Function:
    return lambda x, y: np.asarray(function(x, y)).astype(x.dtype)


def _clear_of_multiples(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Move x so that x / y stays a fifth away from an integer: remainders are smooth there."""
    ratio = np.floor(x / y) + 0.2 + 0.6 * (x / y - np.floor(x / y))
    return (ratio * y).astype(np.float32)


LEFT, RIGHT = spread(0.4, 3.0), spread(0.4, 3.0, seed=1)
SIGNED, OTHER = spread(-3.0, 3.0, seed=2), spread(-3.0, 3.0, seed=3)
WHOLE, DIVISOR = integers(-5, 6, seed=4), integers(1, 4, seed=5)
ROW, COLUMN = spread(0.4, 3.0, (1, 4), seed=6), spread(0.4, 3.0, (3, 1), seed=7)
CHOICES, OTHERS = integers(0, 3, seed=8).astype(np.float32), integers(0, 3, seed=9).astype(np.float32)

# Elementwise name, broadcasting name, reference, reference for integers, float operands.
ARITHMETIC: tuple[tuple[str, str, Function, Function, tuple[np.ndarray, np.ndarray]], ...] = (
    ("elemwise_add", "broadcast_add", np.add, np.add, (SIGNED, OTHER)),
    ("elemwise_sub", "broadcast_sub", np.subtract, np.subtract, (SIGNED, OTHER)),
    ("elemwise_mul", "broadcast_mul", np.multiply, np.multiply, (SIGNED, OTHER)),
    ("elemwise_div", "broadcast_div", np.divide, _quotient, (SIGNED, RIGHT)),
    ("_mod", "broadcast_mod", _mod, _mod, (_clear_of_multiples(SIGNED, RIGHT), RIGHT)),
    ("_power", "broadcast_power", np.power, np.power, (LEFT, OTHER)),
    ("_maximum", "broadcast_maximum", np.maximum, np.maximum, (SIGNED, OTHER)),
    ("_minimum", "broadcast_minimum", np.minimum, np.minimum, (SIGNED, OTHER)),
    ("_hypot", "broadcast_hypot", np.hypot, np.hypot, (SIGNED, OTHER)),
)

COMPARISONS: tuple[tuple[str, str, Function], ...] = (
    ("equal", "equal", np.equal),
    ("not_equal", "not_equal", np.not_equal),
    ("greater", "greater", np.greater),
    ("greater_equal", "greater_equal", np.greater_equal),
    ("lesser", "less", np.less),
    ("lesser_equal", "less_equal", np.less_equal),
    ("logical_and", "logical_and", np.logical_and),
    ("logical_or", "logical_or", np.logical_or),
    ("logical_xor", "logical_xor", np.logical_xor),
)

# Scalar operator, reference of (x, s), float data, scalar.
SCALARS: tuple[tuple[str, Function, np.ndarray, float], ...] = (
    ("_plus_scalar", np.add, SIGNED, 1.7),
    ("_minus_scalar", np.subtract, SIGNED, 1.7),
    ("_rminus_scalar", lambda x, s: s - x, SIGNED, 1.7),
    ("_mul_scalar", np.multiply, SIGNED, -1.7),
    ("_div_scalar", np.divide, SIGNED, 1.6),
    ("_rdiv_scalar", lambda x, s: s / x, LEFT, 1.7),
    ("_mod_scalar", _mod, _clear_of_multiples(SIGNED, np.float32(1.5)), 1.5),
    ("_rmod_scalar", lambda x, s: _mod(s, x), 5.0 / (integers(2, 5) + spread(0.2, 0.8)), 5.0),
    ("_power_scalar", np.power, LEFT, 1.7),
    ("_rpower_scalar", lambda x, s: s**x, SIGNED, 1.7),
    ("_maximum_scalar", np.maximum, SIGNED, 0.7),
    ("_minimum_scalar", np.minimum, SIGNED, 0.7),
    ("_hypot_scalar", np.hypot, SIGNED, 1.7),
    ("_scatter_plus_scalar", np.add, SIGNED, 1.7),
    ("_scatter_minus_scalar", np.subtract, SIGNED, 1.7),
)

Samples = dict[str, list[Sample]]


def _arrays() -> Samples:
    samples: Samples = {}
    for elementwise, broadcast, function, whole, (left, right) in ARITHMETIC:
        records = [
            Sample([left, right], reference=function),
            Sample([WHOLE, DIVISOR], reference=_like_left(whole), gradient=False),
        ]
        samples[elementwise] = list(records)
        samples[broadcast] = [*records, Sample([right[:, :1] * 0 + COLUMN, ROW], reference=function)]
    # Where a broadcast operand could sit on a jump of the remainder, only values are compared.
    samples["broadcast_mod"][-1] = Sample([COLUMN, ROW], reference=_mod, gradient=False)
    samples["_grad_add"] = [Sample([SIGNED, OTHER], reference=np.add)]
    samples["_scatter_elemwise_div"] = [Sample([SIGNED, RIGHT], reference=np.divide)]
    for name, _, function in COMPARISONS:
        test = _like_left(function)
        records = [
            Sample([CHOICES, OTHERS], reference=test, gradient=False),
            Sample([WHOLE, DIVISOR], reference=test, gradient=False),
        ]
        samples[f"_{name}"] = list(records)
        samples[f"broadcast_{name}"] = [
            *records,
            Sample([CHOICES[:, :1], OTHERS[:1]], reference=test, gradient=False),
        ]
    return samples


def _with_scalar(function: Function, scalar: float) -> Function:
    return lambda x: np.asarray(function(x, scalar)).astype(x.dtype)


def _as_double(function: Function, scalar: float) -> Function:
    return lambda x: np.asarray(function(x.astype(np.float64), scalar)).astype(np.float64)


def _legacy_scalars() -> Samples:
    samples: Samples = {}
    for name, function, data, scalar in SCALARS:
        samples[name] = [
            Sample([data.astype(np.float32)], {"scalar": scalar}, _with_scalar(function, scalar)),
            Sample([DIVISOR], {"scalar": 2.5, "is_int": False}, _as_double(function, 2.5), gradient=False),
        ]
    samples["_plus_scalar"].append(
        Sample([integers(0, 256, dtype="uint8")], {"scalar": 3.0}, lambda x: x + np.uint8(3), gradient=False)
    )
    samples["_power_scalar"].append(Sample([DIVISOR], {"scalar": 2.0}, lambda x: x**2, gradient=False))
    for name, _, function in COMPARISONS:
        samples[f"_{name}_scalar"] = [
            Sample([CHOICES], {"scalar": 1.0}, _with_scalar(function, 1.0), gradient=False),
            Sample([DIVISOR], {"scalar": 2.0}, _with_scalar(function, 2), gradient=False),
            Sample([DIVISOR], {"scalar": 2.5, "is_int": False}, _as_double(function, 2.5), gradient=False),
        ]
    return samples


# Operator, reference, float operands, gradient, whether integers stay integers.
NUMPY: tuple[tuple[str, Function, tuple[np.ndarray, np.ndarray], bool, bool], ...] = (
    ("add", np.add, (SIGNED, OTHER), True, True),
    ("subtract", np.subtract, (SIGNED, OTHER), True, True),
    ("multiply", np.multiply, (SIGNED, OTHER), True, True),
    ("true_divide", np.divide, (SIGNED, RIGHT), True, False),
    ("mod", _mod, (_clear_of_multiples(SIGNED, RIGHT), RIGHT), True, True),
    ("power", np.power, (LEFT, OTHER), True, True),
    ("floor_divide", np.floor_divide, (_clear_of_multiples(SIGNED, RIGHT), RIGHT), True, True),
    ("fmax", np.fmax, (SIGNED, OTHER), True, True),
    ("fmin", np.fmin, (SIGNED, OTHER), True, True),
    ("fmod", _fmod, (_clear_of_multiples(LEFT, RIGHT), RIGHT), True, True),
    ("hypot", np.hypot, (SIGNED, OTHER), True, False),
    ("arctan2", np.arctan2, (SIGNED, RIGHT), True, False),
    ("logaddexp", np.logaddexp, (SIGNED, OTHER), True, False),
    ("copysign", np.copysign, (SIGNED, OTHER), True, True),
    ("ldexp", lambda x, y: x * np.exp2(y), (SIGNED, OTHER), True, True),
)

# Scalar operator, reference of (x, s), float data, scalar; integers with a float scalar give float64.
NUMPY_SCALARS: tuple[tuple[str, Function, np.ndarray, float], ...] = (
    ("add", np.add, SIGNED, 1.7),
    ("subtract", np.subtract, SIGNED, 1.7),
    ("rsubtract", lambda x, s: s - x, SIGNED, 1.7),
    ("multiply", np.multiply, SIGNED, 1.7),
    ("mod", _mod, _clear_of_multiples(SIGNED, np.float32(1.5)), 1.5),
    ("rmod", lambda x, s: _mod(s, x), 5.0 / (integers(2, 5) + spread(0.2, 0.8)), 5.0),
    ("power", np.power, LEFT, 1.7),
    ("rpower", lambda x, s: s**x, SIGNED, 1.7),
    ("floor_divide", np.floor_divide, _clear_of_multiples(SIGNED, np.float32(1.5)), 1.5),
    ("rfloor_divide", lambda x, s: np.floor_divide(s, x), 5.0 / (integers(2, 5) + spread(0.2, 0.8)), 5.0),
    ("fmax", np.fmax, SIGNED, 0.7),
    ("fmin", np.fmin, SIGNED, 0.7),
    ("fmod", _fmod, _clear_of_multiples(LEFT, np.float32(1.5)), 1.5),
    ("rfmod", lambda x, s: _fmod(s, x), 5.0 / (integers(2, 5) + spread(0.2, 0.8)), 5.0),
    ("arctan2", np.arctan2, SIGNED, 1.7),
    ("rarctan2", lambda x, s: np.arctan2(s, x), SIGNED, 1.7),
    ("logaddexp", np.logaddexp, SIGNED, 0.7),
    ("copysign", np.copysign, SIGNED, -1.7),
    ("rcopysign", lambda x, s: np.copysign(s, x), SIGNED, 1.7),
    ("ldexp", lambda x, s: x * np.exp2(s), SIGNED, 1.5),
    ("rldexp", lambda x, s: s * np.exp2(x), SIGNED, 1.5),
)


def _numpy_arrays() -> Samples:
    samples: Samples = {}
    for name, function, (left, right), gradient, keeps in NUMPY:
        dtype = np.int32 if keeps else np.float32
        samples[f"_npi_{name}"] = [
            Sample([left, right], reference=function, gradient=gradient),
            Sample([COLUMN, ROW], reference=function, gradient=False),
            Sample(
                [WHOLE, DIVISOR],
                reference=lambda x, y, f=function, d=dtype: np.asarray(f(x.astype(np.float64), y)).astype(d),
                gradient=False,
            ),
            Sample(
                [left, right[0, 0].astype(np.float64)],
                reference=lambda x, y, f=function: np.asarray(f(x.astype(np.float64), y)),
                gradient=False,
            ),
        ]
    for _, name, function in COMPARISONS:
        samples[f"_npi_{name}"] = [
            Sample([CHOICES, OTHERS], reference=function, gradient=False),
            Sample([WHOLE, OTHERS[:1]], reference=function, gradient=False),
        ]
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"):
        function = getattr(np, name)
        samples[f"_npi_{name}"] = [
            Sample([integers(0, 20), integers(1, 20, seed=1)], reference=function, gradient=False),
            Sample([integers(0, 20, (3, 1), dtype="int64"), DIVISOR], reference=function, gradient=False),
        ]
    for name, function in (("left", np.left_shift), ("right", np.right_shift)):
        samples[f"_npi_bitwise_{name}_shift"] = [
            Sample([integers(0, 20), DIVISOR], reference=function, gradient=False)
        ]
    return samples


def _numpy_scalars() -> Samples:
    samples: Samples = {}
    for name, function, data, scalar in NUMPY_SCALARS:
        samples[f"_npi_{name}_scalar"] = [
            Sample(
                [data.astype(np.float32)], {"scalar": scalar, "is_int": False}, _with_scalar(function, scalar)
            ),
            Sample([DIVISOR], {"scalar": 2.5, "is_int": False}, _as_double(function, 2.5), gradient=False),
        ]
    for name, function in (("true_divide", np.divide), ("rtrue_divide", lambda x, s: s / x)):
        samples[f"_npi_{name}_scalar"] = [
            Sample([LEFT], {"scalar": 1.7, "is_int": False}, _with_scalar(function, 1.7)),
            Sample(
                [DIVISOR], {"scalar": 2.0},
                lambda x, f=function: f(x, 2.0).astype(np.float32), gradient=False,
            ),
        ]  # fmt: skip
    for _, name, function in COMPARISONS:
        samples[f"_npi_{name}_scalar"] = [
            Sample(
                [CHOICES], {"scalar": 1.0, "is_int": False}, lambda x, f=function: f(x, 1.0), gradient=False
            ),
            Sample([DIVISOR], {"scalar": 2.0}, lambda x, f=function: f(x, 2), gradient=False),
        ]
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"):
        function = getattr(np, name)
        samples[f"_npi_{name}_scalar"] = [
            Sample(
                [integers(0, 20)], {"scalar": 6.0},
                lambda x, f=function: f(x, np.int32(6)), gradient=False,
            )
        ]  # fmt: skip
    for name, function in (("left", np.left_shift), ("right", np.right_shift)):
        samples[f"_npi_bitwise_{name}_shift_scalar"] = [
            Sample([DIVISOR], {"scalar": 2.0}, lambda x, f=function: f(x, np.int32(2)), gradient=False)
        ]
        samples[f"_npi_rbitwise_{name}_shift_scalar"] = [
            Sample([DIVISOR], {"scalar": 9.0}, lambda x, f=function: f(np.int32(9), x), gradient=False)
        ]
    return samples


def _composed() -> Samples:
    points = np.array([0.0, 1.0, 2.5], np.float32)
    values = np.array([0.0, 10.0, 5.0], np.float32)
    at = np.array([-1.0, 0.5, 1.0, 2.0, 7.0], np.float32)
    return {
        "_npi_polyval": [Sample([spread(-1, 1, (4,)), SIGNED], reference=np.polyval, rtol=1e-4, atol=1e-5)],
        "_npi_interp": [
            Sample([points, values, at], reference=lambda xp, fp, x: np.interp(x, xp, fp), gradient=False),
            Sample(
                [points, values, at],
                {"left": -1.0, "right": 9.0},
                lambda xp, fp, x: np.interp(x, xp, fp, left=-1.0, right=9.0),
                gradient=False,
            ),
            Sample(
                [points, values, at],
                {"period": 3.0},
                lambda xp, fp, x: np.interp(x, xp, fp, period=3.0),
                gradient=False,
            ),
        ],
    }


SAMPLES: Samples = {
    **_arrays(),
    **_legacy_scalars(),
    **_numpy_arrays(),
    **_numpy_scalars(),
    **_composed(),
}
