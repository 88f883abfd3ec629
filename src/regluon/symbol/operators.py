"""Python's operators between Symbols, and the functions of pairs: one table.

Outside a trace, Symbols of the 1.x kind compose the elementwise operators, whose operands have one shape, so
that shapes are inferred both ways. Traced values and Symbols of the NumPy kind take the operators of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy

from ..array import arithmetic
from ..array.arithmetic import is_number
from ..ops.registry import get
from ..runtime.handles import kinds
from ..runtime.invoke import invoke
from ..runtime.state import state

__all__ = ["PAIRS", "install", "pair_function"]

# Function: operator on two Symbols, name of its nodes, and what two numbers give.
PAIRS: dict[str, tuple[str, str, Callable[[Any, Any], Any] | None]] = {
    "add": ("elemwise_add", "_plus", None),
    "sub": ("elemwise_sub", "_minus", None),
    "mul": ("elemwise_mul", "_mul", None),
    "truediv": ("elemwise_div", "_div", None),
    "mod": ("_mod", "_mod", None),
    "pow": ("_power", "_power", pow),
    "eq": ("_equal", "_equal", None),
    "ne": ("_not_equal", "_not_equal", None),
    "gt": ("_greater", "_greater", None),
    "ge": ("_greater_equal", "_greater_equal", None),
    "lt": ("_lesser", "_lesser", None),
    "le": ("_lesser_equal", "_lesser_equal", None),
    "maximum": ("_maximum", "_maximum", max),
    "minimum": ("_minimum", "_minimum", min),
    "hypot": ("_hypot", "_hypot", math.hypot),
}


_COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")


def _scalar_operator(name: str, reflected: bool) -> str:
    """The operator of a Symbol and a number: the one that arrays use."""
    row = arithmetic.BINARY.get(("r" if reflected else "") + name)
    if row is not None:
        return row[1]
    if reflected and name in arithmetic.BINARY:
        return arithmetic.BINARY[{"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}.get(name, name)][1]
    definition = get(f"broadcast_{name}")
    return str(definition.rscalar if reflected and definition.rscalar else definition.scalar)


def _scalar_hint(name: str, operator: str, function: bool) -> str:
    """What nodes of a Symbol and a number are called: ``_plusscalar``, but ``_equal_scalar``.

    ``2 ** x`` is called ``_rpower_scalar``, and ``power(2, x)`` ``_rpowerscalar``.
    """
    keeps = name in _COMPARISONS or (operator == "_rpower_scalar" and not function)
    return operator if keeps else operator.replace("_scalar", "scalar")


def _compose_pair(
    name: str, left: Any, right: Any, label: str | None = None, user: Any = None, function: bool = False
) -> Any:
    operator, hint, _ = PAIRS[name]
    if is_number(left) or is_number(right):
        reflected = is_number(left)
        symbol, number = (right, left) if reflected else (left, right)
        number = number.item() if isinstance(number, numpy.generic) else number
        scalar = _scalar_operator(name, reflected)
        attrs = {"scalar": int(number) if isinstance(number, bool) else number}
        hint = _scalar_hint(name, scalar, function)
        return invoke(get(scalar), (symbol,), attrs, None, label, None, user, hint)
    return invoke(get(operator), (left, right), {}, None, label, None, user, hint)


def _plain(value: Any) -> bool:
    """Whether a value is a Symbol of the 1.x kind outside any trace, or a number."""
    return (type(value) is kinds.symbol and value._s is None) or is_number(value)


def _method(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    full = ("r" if reflected else "") + name

    def method(self: Any, other: Any) -> Any:
        if name in PAIRS and state.tracer is None and _plain(self) and _plain(other):
            return _compose_pair(name, other, self) if reflected else _compose_pair(name, self, other)
        return arithmetic.apply_binary(full, self, other)

    method.__name__ = method.__qualname__ = f"__{full}__"
    return method


def _inplace(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        result = getattr(self, f"__{name}__")(other)
        if self._s is None:
            return result
        self._s.tracer.assign(self, result)
        return self

    method.__name__ = method.__qualname__ = f"__i{name}__"
    return method


def _negative(self: Any) -> Any:
    if state.tracer is None and _plain(self):
        return _compose_pair("mul", self, -1.0)
    return arithmetic.apply_unary("neg", self)


def install(cls: Any) -> None:
    """Give Symbols the operators of Python."""
    arithmetic.install(cls, inplace=False)
    for name in arithmetic.BINARY:
        reflected = name[0] == "r" and name[1:] in arithmetic.BINARY
        setattr(cls, f"__{name}__", _method(name[1:] if reflected else name, reflected))
    for name in arithmetic._INPLACE:
        setattr(cls, f"__i{name}__", _inplace(name))
    cls.__neg__ = _negative


def pair_function(public: str, name: str, doc: str, home: str) -> Callable[..., Any]:
    """The function ``public`` of a Symbol or a number and another; of two numbers it is Python's.

    ``home`` is the module that has it.

    Raises
    ------
    TypeError
        If an operand is neither.
    """

    def function(left: Any, right: Any, name: str | None = None, attr: Any = None) -> Any:
        if is_number(left) and is_number(right):
            of_numbers = PAIRS[key][2]
            assert of_numbers is not None
            return of_numbers(left, right)
        for value in (left, right):
            if not is_number(value) and not isinstance(value, (kinds.symbol, kinds.nd)):
                raise TypeError(
                    f"{public} takes Symbols and numbers; received {type(left).__name__} and "
                    f"{type(right).__name__}"
                )
        return _compose_pair(key, left, right, name, attr, function=True)

    key = name
    function.__name__ = function.__qualname__ = public
    function.__module__, function.__doc__ = home, doc
    return function
