"""NumPy-style binary operators: arithmetic with promotion, comparisons and logic that give booleans,
integer operators, and the choice between two arrays.

The types are those of MXNet 2.0.0b1, with one extension: where that refuses two arrays of different types
(maximum, fmax, fmod, hypot, copysign, ldexp, gcd, lcm) or integers (arctan2, hypot, logaddexp), the arrays
are promoted as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs import elementwise_math as special
from regluon.ops.defs.binary import (
    LOGIC,
    add_scalar,
    mod_scalar,
    mul_scalar,
    power_scalar,
    rmod_scalar,
    rpower_scalar,
    rsub_scalar,
    scalar_tensor,
    sub_scalar,
)
from regluon.ops.defs.dtype_rules import (
    Binary,
    Inference,
    WithScalar,
    float_promoted,
    infer_bool,
    infer_broadcast_bool,
    infer_float_promoted,
    infer_promoted,
    infer_same,
    infer_scalar,
    promoted,
    require_integers,
    scalar_operands,
    shape_mismatch,
    unify_shapes,
)
from regluon.ops.opdef import Spec, operator
from regluon.ops.shaping import broadcast_shapes


def _register(function: Callable[..., Tensor], name: str, doc: str, **options: Any) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    operator(name, **options)(function)


def _explain(name: str, lhs: Tensor, rhs: Tensor, error: RuntimeError) -> MXNetError:
    try:
        broadcast_shapes(tuple(lhs.shape), tuple(rhs.shape))
    except MXNetError:
        return shape_mismatch(name, lhs, rhs)
    return MXNetError(f"{name}: {error}")


def _define_pair(
    name: str,
    function: Binary,
    doc: str,
    *,
    promote: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = promoted,
    infer: Inference = infer_promoted,
    arguments: str = "lhs",
    **options: Any,
) -> None:
    """Register a binary operator of two arrays, called ``lhs, rhs`` or ``x1, x2``."""
    public = name.removeprefix("_npi_")
    always = promote is float_promoted

    def compute(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.dtype is not rhs.dtype or (always and not lhs.is_floating_point()):
            lhs, rhs = promote(lhs, rhs)
        try:
            return function(lhs, rhs)
        except RuntimeError as error:
            raise _explain(public, lhs, rhs, error) from error

    def numbered(x1: Tensor, x2: Tensor) -> Tensor:
        return compute(x1, x2)

    text = f"{doc}, element by element; the shapes are broadcast together and the types promoted."
    _register(
        numbered if arguments == "x1" else compute, name, text, infer=infer, fill=unify_shapes, **options
    )


def _define_scalar(
    name: str, function: WithScalar, doc: str, *, infer: Inference = infer_scalar, **options: Any
) -> None:
    """Register an operator of an array and a Python number (an integer when ``is_int``)."""

    def with_scalar(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
        if data.is_floating_point():
            return function(data, scalar)
        return function(*scalar_operands(data, scalar, is_int))

    _register(with_scalar, name, f"{doc}, with a number s, element by element.", infer=infer, **options)


def _through_double(function: Binary) -> Binary:
    """Compute a real function of integers in float64 and truncate."""

    def compute(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.is_floating_point():
            return function(lhs, rhs)
        return function(lhs.to(torch.float64), rhs.to(torch.float64)).to(lhs.dtype)

    return compute


def _with_right(function: Binary) -> WithScalar:
    return lambda data, scalar: function(data, scalar_tensor(data, scalar))


def _with_left(function: Binary) -> WithScalar:
    return lambda data, scalar: function(scalar_tensor(data, scalar), data)


def _on_bytes(function: Binary) -> Binary:
    """Let booleans take part as the bytes 0 and 1."""

    def compute(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.dtype != torch.bool:
            return function(lhs, rhs)
        return function(lhs.to(torch.uint8), rhs.to(torch.uint8)).to(torch.bool)

    return compute


def _power(lhs: Tensor, rhs: Tensor) -> Tensor:
    return torch.pow(lhs, rhs) if lhs.is_floating_point() else special.integer_power(lhs, rhs)


def _ldexp(lhs: Tensor, rhs: Tensor) -> Tensor:
    return lhs * torch.exp2(rhs)


def _copysign(lhs: Tensor, rhs: Tensor) -> Tensor:
    return torch.copysign(lhs, rhs.detach())


_mod = _on_bytes(special.floor_mod)
_floor_divide = _on_bytes(special.floor_divide)
_fmod = _on_bytes(special.fmod)
_hypot = _through_double(torch.hypot)
_copysign_any = _through_double(_copysign)
_ldexp_any = _through_double(_ldexp)
_arctan2 = _through_double(torch.atan2)
_logaddexp = _through_double(torch.logaddexp)

# Columns: operator, public names, kernel, documentation, kernel with a right scalar, operator and kernel with
# a left scalar, AMP class.
_ARITHMETIC: tuple[
    tuple[str, tuple[str, ...], Binary, str, WithScalar, tuple[str, WithScalar] | None, str | None], ...
] = (
    ("add", ("add",), torch.add, "Sum", add_scalar, None, None),
    ("subtract", ("subtract",), torch.sub, "Difference", sub_scalar, ("rsubtract", rsub_scalar), None),
    ("multiply", ("multiply",), torch.mul, "Product", mul_scalar, None, None),
    ("mod", ("mod", "remainder"), _mod, "Remainder with the sign of the divisor (0 for divisor 0)",
     mod_scalar, ("rmod", rmod_scalar), None),
    ("power", ("power", "pow"), _power, "Left operand to the power of the right one",
     power_scalar, ("rpower", rpower_scalar), "float32"),
    ("floor_divide", ("floor_divide",), _floor_divide, "Largest integer not above the quotient",
     _with_right(special.floor_divide), ("rfloor_divide", _with_left(special.floor_divide)), None),
    ("fmax", ("fmax",), special.fmax, "Larger element, ignoring nan",
     _with_right(special.fmax), None, "widest"),
    ("fmin", ("fmin",), special.fmin, "Smaller element, ignoring nan",
     _with_right(special.fmin), None, "widest"),
    ("fmod", ("fmod",), _fmod, "Remainder with the sign of the dividend (0 for divisor 0)",
     _with_right(special.fmod), ("rfmod", _with_left(special.fmod)), "widest"),
    ("copysign", ("copysign",), _copysign_any, "Left operand with the sign of the right one",
     _with_right(_copysign_any), ("rcopysign", _with_left(_copysign_any)), "widest"),
    ("ldexp", ("ldexp",), _ldexp_any, "``x1 * 2^x2``",
     _with_right(_ldexp_any), ("rldexp", _with_left(_ldexp_any)), "float32"),
)  # fmt: skip

_ZERO_GRADIENT = frozenset({"floor_divide", "rfloor_divide", "rcopysign"})


def _gradient(name: str) -> str:
    return "zero" if name in _ZERO_GRADIENT else "torch"


def _define_arithmetic() -> None:
    for name, public, function, doc, right, left, amp in _ARITHMETIC:
        gradient = _gradient(name)
        scalar = f"_npi_{name}_scalar"
        rscalar = f"_npi_{left[0]}_scalar" if left else scalar
        _define_pair(
            f"_npi_{name}",
            function,
            doc,
            np=public,
            scalar=scalar,
            rscalar=rscalar,
            gradient=gradient,
            amp=amp,
        )
        _define_scalar(scalar, right, doc, gradient=gradient, amp=amp)
        if left:
            text = f"{doc}, s being the left operand"
            _define_scalar(rscalar, left[1], text, gradient=_gradient(left[0]), amp=amp)


def _true_divide_scalar(data: Tensor, scalar: float) -> Tensor:
    return data / scalar


def _rtrue_divide_scalar(data: Tensor, scalar: float) -> Tensor:
    return scalar / data


def _define_real(
    name: str, public: tuple[str, ...], function: Binary, doc: str,
    scalar: str, rscalar: str, amp: str | None, arguments: str,
) -> None:  # fmt: skip
    _define_pair(
        name, function, doc, promote=float_promoted, infer=infer_float_promoted, arguments=arguments,
        np=public, scalar=scalar, rscalar=rscalar, amp=amp,
    )  # fmt: skip


def _infer_division(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    dtype = specs[0].dtype
    return [Spec(specs[0].shape, dtype if dtype.is_floating_point else torch.float32)]


def _define_reals() -> None:
    """Operators whose result is a real number also for integers."""
    _define_real(
        "_npi_true_divide", ("true_divide", "divide"), torch.div, "Quotient",
        "_npi_true_divide_scalar", "_npi_rtrue_divide_scalar", None, "lhs",
    )  # fmt: skip
    _define_real(
        "_npi_arctan2", ("arctan2", "atan2"), torch.atan2,
        "Angle of the point (x2, x1) in radians, in (-pi, pi]",
        "_npi_arctan2_scalar", "_npi_rarctan2_scalar", None, "x1",
    )  # fmt: skip
    _define_real(
        "_npi_hypot", ("hypot",), torch.hypot, "Length ``sqrt(x1^2 + x2^2)`` of the hypotenuse",
        "_npi_hypot_scalar", "_npi_hypot_scalar", "widest", "x1",
    )  # fmt: skip
    _define_real(
        "_npi_logaddexp", ("logaddexp",), torch.logaddexp, "``log(e^x1 + e^x2)``",
        "_npi_logaddexp_scalar", "_npi_logaddexp_scalar", "float32", "x1",
    )  # fmt: skip
    _define_scalar("_npi_arctan2_scalar", _with_right(_arctan2), "Angle of the point (s, x)")
    _define_scalar("_npi_rarctan2_scalar", _with_left(_arctan2), "Angle of the point (x, s)")
    _define_scalar("_npi_logaddexp_scalar", _with_right(_logaddexp), "``log(e^x + e^s)``", amp="float32")
    for name, function, doc in (
        ("_npi_true_divide_scalar", _true_divide_scalar, "Quotient ``x / s``"),
        ("_npi_rtrue_divide_scalar", _rtrue_divide_scalar, "Quotient ``s / x``"),
    ):
        _define_division(name, function, doc)


def _define_division(name: str, function: WithScalar, doc: str) -> None:
    def with_scalar(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
        return function(data if data.is_floating_point() else data.to(torch.float32), scalar)

    text = f"{doc} with a number s, element by element; integers give float32."
    _register(with_scalar, name, text, infer=_infer_division)


_COMPARISONS: tuple[tuple[str, Callable[[Tensor, Any], Tensor], str, str], ...] = (
    ("equal", torch.eq, "``x == y``", "equal"),
    ("not_equal", torch.ne, "``x != y``", "not_equal"),
    ("greater", torch.gt, "``x > y``", "less"),
    ("greater_equal", torch.ge, "``x >= y``", "less_equal"),
    ("less", torch.lt, "``x < y``", "greater"),
    ("less_equal", torch.le, "``x <= y``", "greater_equal"),
)


def _define_tests() -> None:
    for name, compare, meaning, mirrored in _COMPARISONS:
        scalar = f"_npi_{name}_scalar"
        _define_pair(
            f"_npi_{name}", compare, f"True where {meaning}", infer=infer_broadcast_bool, gradient="zero",
            amp="widest", np=name, scalar=scalar, rscalar=f"_npi_{mirrored}_scalar",
        )  # fmt: skip
        _define_scalar(scalar, compare, f"True where {meaning}", infer=infer_bool, gradient="zero")
    for name, _, function, with_scalar, meaning in LOGIC:
        scalar = f"_npi_{name}_scalar"
        _define_pair(
            f"_npi_{name}", function, f"True where {meaning}", infer=infer_broadcast_bool, gradient="zero",
            amp="widest", np=name, scalar=scalar, rscalar=scalar,
        )  # fmt: skip
        _define_scalar(scalar, with_scalar, f"True where {meaning}", infer=infer_bool, gradient="zero")


_INTEGER: tuple[tuple[str, tuple[str, ...], Binary, str], ...] = (
    ("bitwise_and", ("bitwise_and",), torch.bitwise_and, "Bits that are set in both"),
    ("bitwise_or", ("bitwise_or",), torch.bitwise_or, "Bits that are set in one of them"),
    ("bitwise_xor", ("bitwise_xor",), torch.bitwise_xor, "Bits that are set in exactly one of them"),
    ("gcd", ("gcd",), _on_bytes(torch.gcd), "Greatest common divisor"),
    ("lcm", ("lcm",), _on_bytes(torch.lcm), "Least common multiple"),
)


def _shift(function: Callable[[Tensor, Tensor], Tensor]) -> Binary:
    def compute(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.dtype == torch.bool:
            raise MXNetError(
                "bitwise shifts work on integers, received boolean arrays; convert with astype('int64')"
            )
        return function(lhs, rhs)

    return compute


_SHIFTS: tuple[tuple[str, tuple[str, ...], Binary, str], ...] = (
    ("bitwise_left_shift", ("bitwise_left_shift", "left_shift"), _shift(torch.bitwise_left_shift),
     "Left operand shifted to the left by as many bits as the right one says"),
    ("bitwise_right_shift", ("bitwise_right_shift", "right_shift"), _shift(torch.bitwise_right_shift),
     "Left operand shifted to the right by as many bits as the right one says"),
)  # fmt: skip


def _define_integer_scalar(name: str, function: Binary, doc: str, reverse: bool = False) -> None:
    def with_scalar(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
        require_integers(name.removeprefix("_npi_"), data)
        number = scalar_tensor(data, bool(int(scalar)) if data.dtype == torch.bool else int(scalar))
        return function(number, data) if reverse else function(data, number)

    text = (
        f"{doc}, with a number s (truncated to an integer), element by element; the type is that of ``data``."
    )
    _register(with_scalar, name, text, infer=infer_same, gradient="zero")


def _define_integers() -> None:
    for name, public, function, doc in _INTEGER + _SHIFTS:
        checked = _integers_only(name, function)
        scalar = f"_npi_{name}_scalar"
        rscalar = scalar if (name, public, function, doc) in _INTEGER else f"_npi_r{name}_scalar"
        _define_pair(f"_npi_{name}", checked, doc, np=public, gradient="zero", scalar=scalar, rscalar=rscalar)
        _define_integer_scalar(scalar, function, doc)
        if rscalar != scalar:
            _define_integer_scalar(rscalar, function, f"{doc}; s is the left operand", reverse=True)


def _integers_only(name: str, function: Binary) -> Binary:
    def compute(lhs: Tensor, rhs: Tensor) -> Tensor:
        require_integers(name, lhs, rhs)
        return function(lhs, rhs)

    return compute


_define_arithmetic()
_define_reals()
_define_tests()
_define_integers()


def _infer_polyval(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(specs[1].shape, specs[1].dtype)]


@operator("_npi_polyval", np="polyval", amp="float32", infer=_infer_polyval)
def polyval(p: Tensor, x: Tensor) -> Tensor:
    """Value of the polynomial with coefficients ``p`` (1-d, highest power first) at each element of ``x``,
    by Horner's rule."""
    if p.ndim != 1:
        raise MXNetError(f"polyval: the coefficients must be a 1-d array, received shape {list(p.shape)}")
    value = torch.zeros_like(x)
    for coefficient in p.unbind(0):
        value = value * x + coefficient
    return value.to(x.dtype)


def _infer_interp(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(() if attrs["x_is_scalar"] else specs[2].shape, torch.float64)]


def _periodic(xp: Tensor, fp: Tensor, x: Tensor, period: float) -> tuple[Tensor, Tensor, Tensor]:
    xp, order = torch.sort(torch.remainder(xp, period))
    fp = fp[order]
    xp = torch.cat((xp[-1:] - period, xp, xp[:1] + period))
    return xp, torch.cat((fp[-1:], fp, fp[:1])), torch.remainder(x, period)


@operator(
    "_npi_interp", gradient="zero", active=lambda attrs: 2 if attrs["x_is_scalar"] else 3, infer=_infer_interp
)
def interp(
    xp: Tensor,
    fp: Tensor,
    x: Tensor | None = None,
    *,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    x_scalar: float = 0.0,
    x_is_scalar: bool = False,
) -> Tensor:
    """Piecewise linear interpolation at ``x`` of the points ``(xp, fp)`` (1-d, xp increasing), in float64.

    Left and right of the points the value is ``left`` and ``right`` (default: that of the first and the last
    point); with ``period`` the abscissas are taken modulo it. The gradient is 0, as in MXNet."""
    if xp.ndim != 1 or xp.shape != fp.shape or xp.shape[0] == 0:
        raise MXNetError(
            "interp: xp and fp must be 1-d, of one length and not empty; received shapes "
            f"{list(xp.shape)} and {list(fp.shape)}"
        )
    xp, fp = xp.to(torch.float64), fp.to(torch.float64)
    at = torch.full((), x_scalar, dtype=torch.float64, device=xp.device) if x is None else x.to(torch.float64)
    if period is not None:
        xp, fp, at = _periodic(xp, fp, at, abs(period))
    last = xp.shape[0] - 1
    upper = torch.searchsorted(xp, at.contiguous(), right=True).clamp(1, max(last, 1)).clamp(max=last)
    lower = (upper - 1).clamp(min=0)
    step = xp[upper] - xp[lower]
    slope = torch.where(step == 0, 0.0, (fp[upper] - fp[lower]) / torch.where(step == 0, 1.0, step))
    value = fp[lower] + slope * (at - xp[lower])
    value = torch.where(at > xp[-1], fp[-1] if right is None or period is not None else right, value)
    value = torch.where(at < xp[0], fp[0] if left is None or period is not None else left, value)
    return torch.where(
        torch.isnan(at), torch.full((), math.nan, dtype=torch.float64, device=xp.device), value
    )
