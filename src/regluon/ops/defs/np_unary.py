"""NumPy-style elementwise functions of one array.

Transcendental functions turn integers into real numbers (float16 up to 16 bits, float32 above, as MXNet 2.0
does); rounding and arithmetic keep the type, tests give booleans.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regluon.ops.defs import elementwise_math as special
from regluon.ops.defs.dtype_rules import (
    Inference,
    Unary,
    infer_bool,
    infer_math,
    infer_same,
    math_dtype,
    require_integers,
)
from regluon.ops.opdef import Spec, operator


@dataclass(frozen=True)
class _Row:
    """One function: operator name, public np names, torch kernel, documentation, gradient and AMP class."""

    name: str
    np: tuple[str, ...]
    function: Unary
    doc: str
    gradient: str = "torch"
    amp: str | None = None
    aliases: tuple[str, ...] = ()


_MATH = (
    _Row("_npi_exp", ("exp",), torch.exp, "Exponential ``e^x``.", amp="float32"),
    _Row("_npi_expm1", ("expm1",), torch.expm1, "``e^x - 1``, exact near 0.", amp="float32"),
    _Row("_npi_log", ("log",), torch.log, "Natural logarithm.", amp="float32"),
    _Row("_npi_log10", ("log10",), torch.log10, "Logarithm to base 10.", amp="float32"),
    _Row("_npi_log2", ("log2",), torch.log2, "Logarithm to base 2.", amp="float32"),
    _Row("_npi_log1p", ("log1p",), torch.log1p, "``log(1 + x)``, exact near 0.", amp="float32"),
    _Row("_npi_sqrt", ("sqrt",), torch.sqrt, "Square root."),
    _Row("_npi_cbrt", ("cbrt",), special.cbrt, "Real cube root."),
    _Row("_npi_sin", ("sin",), torch.sin, "Sine of an angle in radians."),
    _Row("_npi_cos", ("cos",), torch.cos, "Cosine of an angle in radians."),
    _Row("_npi_tan", ("tan",), torch.tan, "Tangent of an angle in radians.", amp="float32"),
    _Row("_npi_arcsin", ("arcsin", "asin"), torch.asin, "Inverse sine in [-pi/2, pi/2].", amp="float32"),
    _Row("_npi_arccos", ("arccos", "acos"), torch.acos, "Inverse cosine in [0, pi].", amp="float32"),
    _Row("_npi_arctan", ("arctan", "atan"), torch.atan, "Inverse tangent in (-pi/2, pi/2)."),
    _Row("_npi_sinh", ("sinh",), torch.sinh, "Hyperbolic sine.", amp="float32"),
    _Row("_npi_cosh", ("cosh",), torch.cosh, "Hyperbolic cosine.", amp="float32"),
    _Row("_npi_tanh", ("tanh",), torch.tanh, "Hyperbolic tangent."),
    _Row("_npi_arcsinh", ("arcsinh", "asinh"), torch.asinh, "Inverse hyperbolic sine."),
    _Row("_npi_arccosh", ("arccosh", "acosh"), torch.acosh, "Inverse hyperbolic cosine, for ``x >= 1``."),
    _Row("_npi_arctanh", ("arctanh", "atanh"), torch.atanh, "Inverse hyperbolic tangent.", amp="float32"),
    _Row("_npi_degrees", ("degrees", "rad2deg"), torch.rad2deg, "Convert radians to degrees."),
    _Row("_npi_radians", ("radians", "deg2rad"), torch.deg2rad, "Convert degrees to radians."),
    _Row("_npi_rint", ("rint",), special.round_half_down, "Nearest integer, halves down.", "zero"),
    _Row("_npi_fix", ("fix",), torch.trunc, "Round to the nearest integer towards 0.", "zero"),
)


def _define_math(row: _Row) -> None:
    function = row.function

    def elementwise(x: Tensor) -> Tensor:
        return function(x) if x.is_floating_point() else function(x.to(math_dtype(x.dtype)))

    _register(
        elementwise,
        row,
        "The result is a real number; an integer array gives float16 or float32.",
        infer_math,
    )


def _register(function: Callable[..., Tensor], row: _Row, note: str, infer: Inference) -> None:
    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = f"{row.doc}\n\nElement by element. {note}"
    operator(row.name, np=row.np, gradient=row.gradient, amp=row.amp, aliases=row.aliases, infer=infer)(
        function
    )


def _absolute(data: Tensor) -> Tensor:
    return data.clone() if data.dtype == torch.bool else torch.abs(data)


def _negative(data: Tensor) -> Tensor:
    # MXNet negates a boolean as the number it holds: True stays True.
    return data.clone() if data.dtype == torch.bool else torch.neg(data)


def _reciprocal(data: Tensor) -> Tensor:
    if data.is_floating_point():
        return torch.reciprocal(data)
    return torch.reciprocal(data.to(torch.float32)).to(data.dtype)


def _square(data: Tensor) -> Tensor:
    return data.clone() if data.dtype == torch.bool else torch.square(data)


_SAME = (
    _Row("_npi_absolute", ("absolute", "abs", "fabs"), _absolute, "``|x|``.", aliases=("_npi_abs",)),
    _Row("_npi_negative", ("negative",), _negative, "``-x``."),
    _Row("_npi_reciprocal", ("reciprocal",), _reciprocal, "``1 / x`` (integers: truncated).", amp="float32"),
    _Row("_npi_sign", ("sign",), torch.sign, "-1, 0 or 1; 0 for nan."),
    _Row("_npi_square", ("square",), _square, "``x^2``.", amp="float32"),
    _Row("_npi_copy", ("copy", "positive"), torch.clone, "A copy of the array.", aliases=("_np_copy",)),
)


def _define_same(row: _Row) -> None:
    function = row.function
    if row.name == "_npi_copy":

        def elementwise(a: Tensor) -> Tensor:
            return function(a)

    else:

        def elementwise(x: Tensor) -> Tensor:  # type: ignore[misc]
            return function(x)

    _register(elementwise, row, "The result has the type of the array.", infer_same)


_ROUNDING = (
    _Row("_npi_floor", ("floor",), torch.floor, "Largest integer not above x.", "zero"),
    _Row("_npi_ceil", ("ceil",), torch.ceil, "Smallest integer not below x.", "zero"),
    _Row("_npi_trunc", ("trunc",), torch.trunc, "Nearest integer towards 0.", "zero"),
)


def _infer_rounding(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    dtype = specs[0].dtype
    return [Spec(specs[0].shape, torch.float16 if dtype == torch.bool else dtype)]


def _define_rounding(row: _Row) -> None:
    function = row.function

    def elementwise(x: Tensor) -> Tensor:
        if x.is_floating_point():
            return function(x)
        return x.to(torch.float16) if x.dtype == torch.bool else x.clone()

    _register(elementwise, row, "Integers stay as they are; booleans give float16.", _infer_rounding)


_TESTS = (
    _Row("_npi_isnan", ("isnan",), torch.isnan, "True where x is nan.", "zero"),
    _Row("_npi_isinf", ("isinf",), torch.isinf, "True where x is inf or -inf.", "zero"),
    _Row("_npi_isfinite", ("isfinite",), torch.isfinite, "True where x is neither nan nor infinite.", "zero"),
    _Row("_npi_isposinf", ("isposinf",), torch.isposinf, "True where x is inf.", "zero"),
    _Row("_npi_isneginf", ("isneginf",), torch.isneginf, "True where x is -inf.", "zero"),
    _Row("_npi_logical_not", ("logical_not",), torch.logical_not, "True where x is 0.", "zero"),
)


def _define_test(row: _Row) -> None:
    function = row.function

    def elementwise(x: Tensor) -> Tensor:
        return function(x)

    _register(elementwise, row, "The result is boolean.", infer_bool)


for _row in _MATH:
    _define_math(_row)
for _row in _SAME:
    _define_same(_row)
for _row in _ROUNDING:
    _define_rounding(_row)
for _row in _TESTS:
    _define_test(_row)


@operator(
    "_npi_bitwise_not",
    np=("bitwise_not", "invert", "bitwise_invert"),
    gradient="zero",
    infer=infer_same,
)
def bitwise_not(x: Tensor) -> Tensor:
    """Invert every bit of an integer; ``not x`` of a boolean. Raises MXNetError for real numbers."""
    require_integers("bitwise_not", x)
    return torch.bitwise_not(x)


@operator(
    "_npi_around",
    np=("around", "round", "round_"),
    renamed={"decimal": "decimals"},
    gradient="zero",
    infer=infer_same,
)
def around(x: Tensor, *, decimals: int = 0) -> Tensor:
    """Round to ``decimals`` places after the point (before it when negative), halves to the even digit."""
    if x.is_floating_point():
        return torch.round(x) if decimals == 0 else torch.round(x, decimals=decimals)
    if decimals >= 0 or x.dtype == torch.bool:
        return x.clone()
    step = 10.0**-decimals
    return (torch.round(x.to(torch.float64) / step) * step).to(x.dtype)


@operator("_npi_nan_to_num", np="nan_to_num", infer=infer_same)
def nan_to_num(
    data: Tensor,
    *,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """Replace nan by ``nan``, inf and -inf by ``posinf`` and ``neginf`` (default: the largest and the lowest
    number of the type). The gradient is 0 at the replaced elements."""
    if not data.is_floating_point():
        return data.clone()
    return torch.nan_to_num(data, nan=nan, posinf=posinf, neginf=neginf)
