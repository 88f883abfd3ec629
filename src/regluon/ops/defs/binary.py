"""Legacy binary operators: elementwise, broadcasting, and array with scalar.

Both arrays must have one type, and the result keeps it, also for comparisons and logic (1.0 and 0.0).
Integer arrays wrap around, divide as C does, and take a scalar truncated to an integer, unless the call says
``is_int=False``: then they are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs import elementwise_math as special
from regluon.ops.defs.dtype_rules import (
    Binary,
    WithScalar,
    infer_broadcast,
    infer_same,
    infer_scalar,
    promoted,
    scalar_operands,
    shape_mismatch,
    type_mismatch,
    unify_shapes,
)
from regluon.ops.opdef import Spec, operator
from regluon.ops.shaping import broadcast_shapes


def define_broadcast(name: str, function: Binary, doc: str, *, promote: bool = False, **options: Any) -> None:
    """Register a binary operator that broadcasts; ``promote`` lets the arrays have two types."""

    def broadcast(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.dtype is not rhs.dtype:
            if not promote:
                raise type_mismatch(name, lhs, rhs)
            lhs, rhs = promoted(lhs, rhs)
        try:
            return function(lhs, rhs)
        except RuntimeError as error:
            raise _explain(name, lhs, rhs, error) from error

    _register(broadcast, name, doc, infer=infer_broadcast, fill=unify_shapes, **options)


def define_elementwise(name: str, function: Binary, doc: str, **options: Any) -> None:
    """Register a binary operator on two arrays of one shape and one type."""

    def elementwise(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.dtype is not rhs.dtype:
            raise type_mismatch(name, lhs, rhs)
        if lhs.shape != rhs.shape:
            raise shape_mismatch(name, lhs, rhs)
        return function(lhs, rhs)

    _register(elementwise, name, doc, infer=_infer_elementwise(name), fill=unify_shapes, **options)


def define_scalar(name: str, function: WithScalar, doc: str, **options: Any) -> None:
    """Register an operator of an array and a Python number."""

    def with_scalar(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
        if data.is_floating_point():
            return function(data, scalar)
        return function(*scalar_operands(data, scalar, is_int))

    _register(with_scalar, name, doc, infer=infer_scalar, **options)


def _infer_elementwise(name: str) -> Callable[[list[Spec], dict[str, Any]], list[Spec]]:
    def infer(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
        lhs, rhs = specs
        if tuple(lhs.shape) != tuple(rhs.shape):
            raise MXNetError(
                f"{name}: operands with shapes {list(lhs.shape)} and {list(rhs.shape)} do not fit together; "
                "the shapes must be equal"
            )
        return infer_same(specs, attrs)

    return infer


def _explain(name: str, lhs: Tensor, rhs: Tensor, error: RuntimeError) -> MXNetError:
    try:
        broadcast_shapes(tuple(lhs.shape), tuple(rhs.shape))
    except MXNetError:
        return shape_mismatch(name, lhs, rhs)
    return MXNetError(f"{name}: {error}")


def _register(function: Callable[..., Tensor], name: str, doc: str, **options: Any) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    operator(name, **options)(function)


def _result_like(compare: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    def compute(lhs: Tensor, rhs: Any) -> Tensor:
        return compare(lhs, rhs).to(lhs.dtype)

    return compute


def _divide(lhs: Tensor, rhs: Tensor) -> Tensor:
    return torch.div(lhs, rhs) if lhs.is_floating_point() else special.integer_divide(lhs, rhs)


def _power(lhs: Tensor, rhs: Tensor) -> Tensor:
    return torch.pow(lhs, rhs) if lhs.is_floating_point() else special.integer_power(lhs, rhs)


def _hypot(lhs: Tensor, rhs: Tensor) -> Tensor:
    if lhs.is_floating_point():
        return torch.hypot(lhs, rhs)
    return torch.hypot(lhs.to(torch.float64), rhs.to(torch.float64)).to(lhs.dtype)


@dataclass(frozen=True)
class _Row:
    """One binary function under its elementwise, broadcasting and public names."""

    elementwise: str
    elementwise_aliases: tuple[str, ...]
    broadcast: str
    aliases: tuple[str, ...]
    function: Binary
    doc: str
    public: str
    scalar: str
    rscalar: str
    gradient: str = "torch"
    amp: str | None = "widest"
    promote: bool = False
    np: str | None = None
    npx: str | None = None


_FUNCTIONS = (
    _Row("elemwise_add", ("_Plus", "_add", "_plus", "_sparse_elemwise_add"),
         "broadcast_add", ("_sparse_broadcast_add", "_sparse_broadcast_plus", "broadcast_plus"),
         torch.add, "Sum", "add", "_plus_scalar", "_plus_scalar"),
    _Row("elemwise_sub", ("_Minus", "_minus", "_sparse_elemwise_sub", "_sub"),
         "broadcast_sub", ("_sparse_broadcast_minus", "_sparse_broadcast_sub", "broadcast_minus"),
         torch.sub, "Difference", "subtract", "_minus_scalar", "_rminus_scalar"),
    _Row("elemwise_mul", ("_Mul", "_mul", "_sparse_elemwise_mul"),
         "broadcast_mul", ("_sparse_broadcast_mul",),
         torch.mul, "Product", "multiply", "_mul_scalar", "_mul_scalar"),
    _Row("elemwise_div", ("_Div", "_div", "_sparse_elemwise_div"),
         "broadcast_div", ("_sparse_broadcast_div",),
         _divide, "Quotient (integers: truncated towards 0)", "divide", "_div_scalar", "_rdiv_scalar"),
    _Row("_mod", ("_Mod",), "broadcast_mod", (),
         special.floor_mod, "Remainder with the sign of the divisor (0 for divisor 0)",
         "modulo", "_mod_scalar", "_rmod_scalar"),
    _Row("_power", ("_Power",), "broadcast_power", (),
         _power, "Left operand to the power of the right one", "power", "_power_scalar", "_rpower_scalar",
         amp="float32"),
    _Row("_maximum", ("_Maximum",), "broadcast_maximum", ("_npi_maximum",),
         special.maximum, "Larger element, nan if there is one; a tie sends the gradient to the left array",
         "maximum", "_maximum_scalar", "_maximum_scalar", promote=True, np="maximum"),
    _Row("_minimum", ("_Minimum",), "broadcast_minimum", ("_npi_minimum",),
         special.minimum, "Smaller element, nan if there is one; a tie sends the gradient to the left array",
         "minimum", "_minimum_scalar", "_minimum_scalar", promote=True, np="minimum"),
    _Row("_hypot", ("_Hypot",), "broadcast_hypot", (),
         _hypot, "Length ``sqrt(x^2 + y^2)`` of the hypotenuse", "hypot", "_hypot_scalar", "_hypot_scalar"),
)  # fmt: skip


def _define(row: _Row) -> None:
    doc = f"{row.doc}, element by element, of two arrays of one type"
    shared = {"gradient": row.gradient, "amp": row.amp}
    define_elementwise(
        row.elementwise, row.function, doc + " and one shape.", aliases=row.elementwise_aliases, **shared
    )
    names = {key: value for key, value in (("np", row.np), ("npx", row.npx)) if value}
    define_broadcast(
        row.broadcast,
        row.function,
        doc + "; the shapes are broadcast together.",
        promote=row.promote,
        aliases=row.aliases,
        nd=row.public,
        scalar=row.scalar,
        rscalar=row.rscalar,
        **names,
        **shared,
    )


_COMPARISONS: tuple[tuple[str, str, Callable[[Tensor, Any], Tensor], str, str], ...] = (
    ("equal", "Equal", torch.eq, "``x == y``", "equal"),
    ("not_equal", "Not_Equal", torch.ne, "``x != y``", "not_equal"),
    ("greater", "Greater", torch.gt, "``x > y``", "lesser"),
    ("greater_equal", "Greater_Equal", torch.ge, "``x >= y``", "lesser_equal"),
    ("lesser", "Lesser", torch.lt, "``x < y``", "greater"),
    ("lesser_equal", "Lesser_Equal", torch.le, "``x <= y``", "greater_equal"),
)


def _truth(data: Tensor, scalar: float) -> bool:
    # A scalar meets an integer array as an integer, so 0.5 has become 0 here already.
    return bool(scalar)


def _and_scalar(data: Tensor, scalar: float) -> Tensor:
    return torch.ne(data, 0) if _truth(data, scalar) else torch.zeros_like(data, dtype=torch.bool)


def _or_scalar(data: Tensor, scalar: float) -> Tensor:
    return torch.ones_like(data, dtype=torch.bool) if _truth(data, scalar) else torch.ne(data, 0)


def _xor_scalar(data: Tensor, scalar: float) -> Tensor:
    return torch.eq(data, 0) if _truth(data, scalar) else torch.ne(data, 0)


LOGIC: tuple[tuple[str, str, Binary, WithScalar, str], ...] = (
    ("logical_and", "Logical_And", torch.logical_and, _and_scalar, "both are not 0"),
    ("logical_or", "Logical_Or", torch.logical_or, _or_scalar, "one of them is not 0"),
    ("logical_xor", "Logical_Xor", torch.logical_xor, _xor_scalar, "exactly one of them is not 0"),
)


def _define_comparisons() -> None:
    for name, capital, compare, meaning, mirrored in _COMPARISONS:
        npx = "broadcast_greater" if name == "greater" else None
        _define(
            _Row(
                f"_{name}", (f"_{capital}",), f"broadcast_{name}", (f"_npx_{npx}",) if npx else (),
                _result_like(compare), f"1 where {meaning}, else 0", name,
                f"_{name}_scalar", f"_{mirrored}_scalar", gradient="zero", npx=npx,
            )
        )  # fmt: skip
        define_scalar(
            f"_{name}_scalar",
            _result_like(compare),
            f"1 where {meaning}, else 0, with a number y; the result has the type of ``data``.",
            aliases=(f"_{capital.replace('_', '')}Scalar",),
            gradient="zero",
        )
    for name, capital, function, with_scalar, meaning in LOGIC:
        scalar = f"_{name}_scalar"
        _define(
            _Row(
                f"_{name}", (f"_{capital}",), f"broadcast_{name}", (), _result_like(function),
                f"1 where {meaning}, else 0", name, scalar, scalar, gradient="zero",
            )
        )  # fmt: skip
        define_scalar(
            scalar,
            _result_like(with_scalar),
            f"1 where {meaning}, else 0, of an array and a number; the result has the type of ``data``.",
            aliases=(f"_{capital.replace('_', '')}Scalar",),
            gradient="zero",
        )


def add_scalar(data: Tensor, scalar: float) -> Tensor:
    """``x + s``."""
    return data + scalar


def sub_scalar(data: Tensor, scalar: float) -> Tensor:
    """``x - s``."""
    return data - scalar


def rsub_scalar(data: Tensor, scalar: float) -> Tensor:
    """``s - x``."""
    return scalar - data


def mul_scalar(data: Tensor, scalar: float) -> Tensor:
    """``x * s``."""
    return data * scalar


def scalar_tensor(data: Tensor, scalar: float) -> Tensor:
    """The number as a 0-d array of the type and on the device of ``data``."""
    return torch.full((), scalar, dtype=data.dtype, device=data.device)


def _div_scalar(data: Tensor, scalar: float) -> Tensor:
    if data.is_floating_point():
        return data / scalar
    if scalar == 0:
        return torch.zeros_like(data)
    return torch.div(data, scalar, rounding_mode="trunc")


def _rdiv_scalar(data: Tensor, scalar: float) -> Tensor:
    if data.is_floating_point():
        return scalar / data
    return (scalar / data.to(torch.float64)).to(data.dtype)


def mod_scalar(data: Tensor, scalar: float) -> Tensor:
    """Remainder of x by s with the sign of s; 0 for s = 0."""
    return torch.remainder(data, scalar) if scalar != 0 else torch.zeros_like(data)


def rmod_scalar(data: Tensor, scalar: float) -> Tensor:
    """Remainder of s by x with the sign of x; 0 where x is 0."""
    return special.floor_mod(scalar_tensor(data, scalar), data)


def power_scalar(data: Tensor, scalar: float) -> Tensor:
    """``x ** s``."""
    if data.is_floating_point():
        return torch.pow(data, scalar)
    return torch.pow(data.to(torch.float64), scalar).to(data.dtype)


def rpower_scalar(data: Tensor, scalar: float) -> Tensor:
    """``s ** x``."""
    if data.is_floating_point():
        return torch.pow(scalar, data)
    return torch.pow(scalar, data.to(torch.float64)).to(data.dtype)


def _maximum_scalar(data: Tensor, scalar: float) -> Tensor:
    # torch.clamp gives the gradient at equality to the array, as MXNet does.
    return torch.clamp(data, min=scalar)


def _minimum_scalar(data: Tensor, scalar: float) -> Tensor:
    return torch.clamp(data, max=scalar)


def _hypot_scalar(data: Tensor, scalar: float) -> Tensor:
    return _hypot(data, scalar_tensor(data, scalar))


_SCALARS: tuple[tuple[str, tuple[str, ...], WithScalar, str, str | None], ...] = (
    ("_plus_scalar", ("_PlusScalar",), add_scalar, "x + s", None),
    ("_minus_scalar", ("_MinusScalar",), sub_scalar, "x - s", None),
    ("_rminus_scalar", ("_RMinusScalar",), rsub_scalar, "s - x", None),
    ("_mul_scalar", ("_MulScalar",), mul_scalar, "x * s", None),
    ("_div_scalar", ("_DivScalar",), _div_scalar, "x / s", None),
    ("_rdiv_scalar", ("_RDivScalar",), _rdiv_scalar, "s / x", "float32"),
    ("_mod_scalar", ("_ModScalar",), mod_scalar, "x mod s", None),
    ("_rmod_scalar", ("_RModScalar",), rmod_scalar, "s mod x", None),
    ("_power_scalar", ("_PowerScalar",), power_scalar, "x ** s", "float32"),
    ("_rpower_scalar", ("_RPowerScalar",), rpower_scalar, "s ** x", "float32"),
    ("_maximum_scalar", ("_MaximumScalar", "_npi_maximum_scalar"), _maximum_scalar, "max(x, s)", None),
    ("_minimum_scalar", ("_MinimumScalar", "_npi_minimum_scalar"), _minimum_scalar, "min(x, s)", None),
    ("_hypot_scalar", ("_HypotScalar", "_npi_hypot_scalar"), _hypot_scalar, "sqrt(x^2 + s^2)", "float32"),
    ("_scatter_plus_scalar", (), add_scalar, "x + s (of the stored elements of a sparse array)", None),
    ("_scatter_minus_scalar", (), sub_scalar, "x - s (of the stored elements of a sparse array)", None),
)

for _row in _FUNCTIONS:
    _define(_row)
_define_comparisons()
for _name, _aliases, _function, _formula, _amp in _SCALARS:
    define_scalar(
        _name,
        _function,
        f"Compute ``{_formula}`` with a number s, element by element; the result has the type of ``data``.",
        aliases=_aliases,
        amp=_amp,
    )
define_elementwise("_grad_add", torch.add, "Sum of two gradients of one shape and one type.")
define_elementwise(
    "_scatter_elemwise_div",
    _divide,
    "Quotient of two arrays (of the stored elements of a sparse ``lhs``).",
    amp="widest",
)
