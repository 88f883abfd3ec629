"""The operators of Python (+, -, <, ...) on values, from one table for arrays and Symbols of both kinds."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy
import torch

from ..base import config
from ..base.errors import MXNetError
from ..ops.registry import get
from ..runtime.handles import kinds
from ..runtime.invoke import invoke
from ..runtime.state import state

__all__ = ["BINARY", "UNARY", "apply_binary", "apply_unary", "install"]

_FLOATS = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))

# dunder: nd operator, nd scalar operator, np operator, np scalar operator, torch function of the short way.
# A reflected row has the operators of `scalar <op> array`.
BINARY: dict[str, tuple[str, str, str, str, Any]] = {
    "add": ("broadcast_add", "_plus_scalar", "_npi_add", "_npi_add_scalar", torch.add),
    "radd": ("broadcast_add", "_plus_scalar", "_npi_add", "_npi_add_scalar", None),
    "sub": ("broadcast_sub", "_minus_scalar", "_npi_subtract", "_npi_subtract_scalar", torch.sub),
    "rsub": ("broadcast_sub", "_rminus_scalar", "_npi_subtract", "_npi_rsubtract_scalar", None),
    "mul": ("broadcast_mul", "_mul_scalar", "_npi_multiply", "_npi_multiply_scalar", torch.mul),
    "rmul": ("broadcast_mul", "_mul_scalar", "_npi_multiply", "_npi_multiply_scalar", None),
    "truediv": ("broadcast_div", "_div_scalar", "_npi_true_divide", "_npi_true_divide_scalar", torch.div),
    "rtruediv": ("broadcast_div", "_rdiv_scalar", "_npi_true_divide", "_npi_rtrue_divide_scalar", None),
    "floordiv": ("", "", "_npi_floor_divide", "_npi_floor_divide_scalar", None),
    "rfloordiv": ("", "", "_npi_floor_divide", "_npi_rfloor_divide_scalar", None),
    "mod": ("broadcast_mod", "_mod_scalar", "_npi_mod", "_npi_mod_scalar", None),
    "rmod": ("broadcast_mod", "_rmod_scalar", "_npi_mod", "_npi_rmod_scalar", None),
    "pow": ("broadcast_power", "_power_scalar", "_npi_power", "_npi_power_scalar", None),
    "rpow": ("broadcast_power", "_rpower_scalar", "_npi_power", "_npi_rpower_scalar", None),
    "matmul": ("", "", "_npi_matmul", "", None),
    "rmatmul": ("", "", "_npi_matmul", "", None),
    "and": ("", "", "_npi_bitwise_and", "_npi_bitwise_and_scalar", None),
    "rand": ("", "", "_npi_bitwise_and", "_npi_bitwise_and_scalar", None),
    "or": ("", "", "_npi_bitwise_or", "_npi_bitwise_or_scalar", None),
    "ror": ("", "", "_npi_bitwise_or", "_npi_bitwise_or_scalar", None),
    "xor": ("", "", "_npi_bitwise_xor", "_npi_bitwise_xor_scalar", None),
    "rxor": ("", "", "_npi_bitwise_xor", "_npi_bitwise_xor_scalar", None),
    "lshift": ("", "", "_npi_bitwise_left_shift", "_npi_bitwise_left_shift_scalar", None),
    "rlshift": ("", "", "_npi_bitwise_left_shift", "_npi_rbitwise_left_shift_scalar", None),
    "rshift": ("", "", "_npi_bitwise_right_shift", "_npi_bitwise_right_shift_scalar", None),
    "rrshift": ("", "", "_npi_bitwise_right_shift", "_npi_rbitwise_right_shift_scalar", None),
    "eq": ("broadcast_equal", "_equal_scalar", "_npi_equal", "_npi_equal_scalar", None),
    "ne": ("broadcast_not_equal", "_not_equal_scalar", "_npi_not_equal", "_npi_not_equal_scalar", None),
    "gt": ("broadcast_greater", "_greater_scalar", "_npi_greater", "_npi_greater_scalar", None),
    "ge": (
        "broadcast_greater_equal",
        "_greater_equal_scalar",
        "_npi_greater_equal",
        "_npi_greater_equal_scalar",
        None,
    ),
    "lt": ("broadcast_lesser", "_lesser_scalar", "_npi_less", "_npi_less_scalar", None),
    "le": (
        "broadcast_lesser_equal",
        "_lesser_equal_scalar",
        "_npi_less_equal",
        "_npi_less_equal_scalar",
        None,
    ),
}
_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_INPLACE = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
UNARY = {
    "neg": ("negative", "_npi_negative"),
    "abs": ("abs", "_npi_absolute"),
    "invert": ("", "_npi_bitwise_not"),
}


# What 1.9.1 calls nodes of these operators: with an array, and with a number.
_HINTS = {
    "add": ("_plus", "_plusscalar"),
    "radd": ("_plus", "_plusscalar"),
    "sub": ("_minus", "_minusscalar"),
    "rsub": ("_minus", "_rminusscalar"),
    "mul": ("_mul", "_mulscalar"),
    "rmul": ("_mul", "_mulscalar"),
    "truediv": ("_div", "_divscalar"),
    "rtruediv": ("_div", "_rdivscalar"),
    "mod": ("_mod", "_modscalar"),
    "rmod": ("_mod", "_rmodscalar"),
    "pow": ("_power", "_powerscalar"),
    "rpow": ("_power", "_rpower_scalar"),
    "eq": ("_equal", "_equal_scalar"),
    "ne": ("_not_equal", "_not_equal_scalar"),
    "gt": ("_greater", "_greater_scalar"),
    "ge": ("_greater_equal", "_greater_equal_scalar"),
    "lt": ("_lesser", "_lesser_scalar"),
    "le": ("_lesser_equal", "_lesser_equal_scalar"),
}
_NO_HINTS = (None, None)
# What the operators of Python mean for Symbols of 1.x, which do not broadcast.
_ELEMENTWISE = {
    "broadcast_add": "elemwise_add",
    "broadcast_sub": "elemwise_sub",
    "broadcast_mul": "elemwise_mul",
    "broadcast_div": "elemwise_div",
}


def is_number(value: Any) -> bool:
    """A Python or NumPy number, or a size read while tracing."""
    return isinstance(value, (numbers.Number, numpy.bool_, numpy.generic)) or getattr(
        value, "_symbolic_dimension", False
    )


def _refuse(name: str, left: Any, right: Any) -> TypeError:
    sign = _SYMBOLS.get(name.removeprefix("r"), name)
    return TypeError(
        f"unsupported operand type(s) for {sign}: '{type(left).__name__}' and '{type(right).__name__}'"
    )


def apply_binary(name: str, left: Any, right: Any) -> Any:
    """``left <name> right`` where ``left`` is an array or Symbol; a name with r in front has them swapped."""
    nd_op, nd_scalar, np_op, np_scalar, _ = BINARY[name]
    cls = type(left)
    np_kind = cls is kinds.np or cls is kinds.np_symbol
    if is_number(right):
        operator = np_scalar if np_kind else nd_scalar
        if not operator:
            raise _refuse(name, left, right)
        if isinstance(right, numpy.generic):
            right = right.item()
        attrs = {"scalar": int(right) if isinstance(right, bool) else right}
        if np_kind and not isinstance(getattr(right, "size", right), int):
            attrs["is_int"] = False
        hint = None if np_kind else _HINTS.get(name, _NO_HINTS)[1]
        return invoke(get(operator), (left,), attrs, hint=hint)
    other = type(right)
    if other is kinds.np or other is kinds.np_symbol:
        np_kind = True
    operator = np_op if np_kind else nd_op
    if not operator:
        raise _refuse(name, left, right)
    if other not in (kinds.nd, kinds.np, kinds.symbol, kinds.np_symbol):
        if not isinstance(right, (numpy.ndarray, torch.Tensor, kinds.sparse or numpy.ndarray)):
            if right is None and name in ("eq", "ne"):
                return name == "ne"
            raise TypeError(f"type {type(right)} not supported")
    pair = (right, left) if name in _REFLECTED else (left, right)
    if cls is kinds.symbol and config.strict():
        operator = _ELEMENTWISE.get(operator, operator)
    return invoke(get(operator), pair, {}, hint=None if np_kind else _HINTS.get(name, _NO_HINTS)[0])


_REFLECTED = frozenset(name for name in BINARY if name[0] == "r" and name != "rshift")


def apply_unary(name: str, value: Any) -> Any:
    """A unary operator of Python on an array or Symbol."""
    nd_op, np_op = UNARY[name]
    operator = np_op if type(value) in (kinds.np, kinds.np_symbol) else nd_op
    if not operator:
        raise TypeError(f"bad operand type for unary {name}: '{type(value).__name__}'")
    # 1.9.1 negates by a multiplication, and its nodes are called so.
    return invoke(get(operator), (value,), {}, hint="_mulscalar" if operator == "negative" else None)


def _binary_method(
    name: str, torch_function: Callable[..., torch.Tensor] | None
) -> Callable[[Any, Any], Any]:
    if torch_function is None:

        def method(self: Any, other: Any) -> Any:
            return apply_binary(name, self, other)

    else:

        def method(self: Any, other: Any) -> Any:
            if state.plain:
                cls: Any = type(self)
                if type(other) is cls:
                    left, right = self._t, other._t
                    if left is not None and right is not None:
                        dtype = left.dtype
                        if dtype is right.dtype and dtype in _FLOATS:
                            try:
                                value = torch_function(left, right)
                            except RuntimeError as error:
                                raise _broadcast_error(left, right, error) from error
                            result = cls.__new__(cls)  # type: ignore[call-overload]
                            result._t = value
                            if self._ctx is not None:
                                result._ctx = self._ctx
                            return result
            return apply_binary(name, self, other)

    method.__name__ = f"__{name}__"
    method.__qualname__ = method.__name__
    return method


def _broadcast_error(left: Any, right: Any, error: RuntimeError) -> MXNetError:
    return MXNetError(
        f"operands could not be broadcast together with shapes {list(left.shape)} "
        f"{list(right.shape)}: {error}"
    )


def _inplace_method(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        self._assign_result(apply_binary(name, self, other), inplace=True)
        return self

    method.__name__ = f"__i{name}__"
    return method


def _unary_method(name: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return apply_unary(name, self)

    method.__name__ = f"__{name}__"
    return method


def install(cls: Any, inplace: bool = True) -> None:
    """Give a class of values the operators of Python."""
    for name, row in BINARY.items():
        setattr(cls, f"__{name}__", _binary_method(name, row[4] if inplace else None))
    for name in UNARY:
        setattr(cls, f"__{name}__", _unary_method(name))
    if inplace:
        for name in _INPLACE:
            setattr(cls, f"__i{name}__", _inplace_method(name))
