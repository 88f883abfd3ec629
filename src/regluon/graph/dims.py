"""Numbers read while tracing. A Dim stands for a size of a traced value, or for a number that is an argument.

It stays symbolic through arithmetic. When Python needs the number (``range(n)``, ``float(n)``), the one that
this trace has is used and the trace notes a guard: the graph is only used where the number is the same. A
comparison (``if n > 3``) notes its answer only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

from ..base.errors import MXNetError

__all__ = [
    "Dim",
    "combined",
    "described",
    "dims_in",
    "evaluate",
    "numbers_known",
    "reads_numbers",
    "relocated",
    "source_of",
    "sources_of",
]

_SYMBOLS = {
    "add": ("+", operator.add),
    "sub": ("-", operator.sub),
    "mul": ("*", operator.mul),
    "floordiv": ("//", operator.floordiv),
    "mod": ("%", operator.mod),
    "truediv": ("/", operator.truediv),
    "pow": ("**", operator.pow),
    "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}


class Dim:
    """A size of a traced value, a number among the arguments, or an arithmetic expression of those.

    ``function`` says which: ``"size"`` of (entry, axis), ``"item"``, the value of (entry,), or an operator's
    name. ``size`` is the number in this trace.
    """

    __slots__ = ("arguments", "function", "note", "size")
    _symbolic_dimension = True

    def __init__(
        self, size: Any, function: str, arguments: tuple[Any, ...], note: Callable[[Dim], None]
    ) -> None:
        self.size = size
        self.function = function
        self.arguments = arguments
        self.note = note

    def _combine(self, name: str, left: Any, right: Any) -> Any:
        for side in (left, right):
            if not isinstance(side, (Dim, int, float)):
                return NotImplemented
        size = _SYMBOLS[name][1](_number(left), _number(right))
        return Dim(size, name, (left, right), self.note)

    def __add__(self, other: Any) -> Any:
        return self._combine("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._combine("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._combine("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._combine("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._combine("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._combine("mul", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._combine("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combine("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._combine("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._combine("mod", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._combine("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combine("truediv", other, self)

    def __neg__(self) -> Any:
        return self._combine("sub", 0, self)

    def __pos__(self) -> Any:
        return self

    def __pow__(self, other: Any) -> Any:
        return self._combine("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._combine("pow", other, self)

    def _known(self) -> Any:
        self.note(self)
        return self.size

    def __index__(self) -> int:
        if isinstance(self.size, float):
            raise TypeError("'float' object cannot be interpreted as an integer")
        return int(self._known())

    def __int__(self) -> int:
        return int(self._known())

    def __float__(self) -> float:
        return float(self._known())

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        return hash(self._known())

    def _compare(self, name: str, other: Any) -> Any:
        if not isinstance(other, (Dim, int, float)):
            return NotImplemented
        answer = bool(_SYMBOLS[name][1](self.size, _number(other)))
        self.note(Dim(answer, name, (self, other), self.note))
        return answer

    def __eq__(self, other: object) -> Any:
        return True if other is self else self._compare("eq", other)

    def __ne__(self, other: object) -> Any:
        return False if other is self else self._compare("ne", other)

    def __lt__(self, other: Any) -> Any:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare("ge", other)

    def __abs__(self) -> Any:
        return abs(self._known())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._known(), digits)

    def __floor__(self) -> int:
        return math.floor(float(self._known()))

    def __ceil__(self) -> int:
        return math.ceil(float(self._known()))

    def __trunc__(self) -> int:
        return int(self._known())

    def __format__(self, specification: str) -> str:
        return format(self.size, specification)

    def __repr__(self) -> str:
        return str(self.size)

    def __reduce__(self) -> Any:
        return type(self.size), (self._known(),)


def _number(value: Any) -> Any:
    return value.size if isinstance(value, Dim) else value


def dims_in(value: Any) -> list[Dim]:
    """All Dims inside an attribute's value."""
    if isinstance(value, Dim):
        return [value]
    if isinstance(value, (tuple, list)):
        return [dim for item in value for dim in dims_in(item)]
    return []


def combined(function: str, left: Any, right: Any) -> Any:
    """The operation of that name (``add``, ``floordiv``, ...) on sizes and numbers."""
    return _SYMBOLS[function][1](left, right)


def sources_of(dims: Iterable[Any]) -> list[Any]:
    """The graph entries whose sizes or values these Dims are made of."""
    found: list[Any] = []
    stack = list(dims)
    while stack:
        dim = stack.pop()
        if isinstance(dim, Dim):
            if dim.function in ("size", "item"):
                found.append(dim.arguments[0])
            else:
                stack.extend(dim.arguments)
    return found


def reads_numbers(value: Any) -> bool:
    """Whether an attribute depends on a number among the arguments."""
    return any(
        dim.function == "item" or any(reads_numbers(item) for item in dim.arguments) for dim in dims_in(value)
    )


def numbers_known(value: Any) -> Any:
    """An attribute in which numbers among the arguments are those of this trace, with a guard on each."""
    if isinstance(value, Dim):
        return value._known() if reads_numbers(value) else value
    if isinstance(value, (tuple, list)) and reads_numbers(value):
        return type(value)(numbers_known(item) for item in value)
    return value


def relocated(value: Any, place: Callable[[Any], Any]) -> Any:
    """An attribute whose Dims read their sizes from ``place(entry)``; the same object where nothing moves."""
    if isinstance(value, Dim):
        if value.function == "size":
            entry, axis = value.arguments
            new = place(entry)
            if new.node is entry.node and new.index == entry.index:
                return value
            return Dim(value.size, "size", (new, axis), value.note)
        if value.function == "item":
            new = place(value.arguments[0])
            old = value.arguments[0]
            unmoved = new.node is old.node and new.index == old.index
            return value if unmoved else Dim(value.size, "item", (new,), value.note)
        arguments = tuple(relocated(item, place) for item in value.arguments)
        if all(a is b for a, b in zip(arguments, value.arguments, strict=True)):
            return value
        return Dim(value.size, value.function, arguments, value.note)
    if isinstance(value, (tuple, list)):
        items = [relocated(item, place) for item in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return type(value)(items)
    return value


def evaluate(
    value: Any,
    shape_of: Callable[[Any], tuple[int, ...]] | None = None,
    number_of: Callable[[Any], Any] | None = None,
) -> Any:
    """An attribute with its Dims replaced by numbers: this trace's, or those of ``shape_of(entry)``.

    ``number_of(entry)`` gives the numbers among the arguments.

    Raises
    ------
    MXNetError
        If a number among the arguments is needed and ``number_of`` is not given.
    """
    if isinstance(value, Dim):
        if shape_of is None:
            return value.size
        if value.function == "size":
            entry, axis = value.arguments
            return shape_of(entry)[axis]
        if value.function == "item":
            entry = value.arguments[0]
            if number_of is None:
                raise MXNetError(f"{entry.node.name} is a number that is known when the graph runs only")
            return number_of(entry)
        left, right = (evaluate(item, shape_of, number_of) for item in value.arguments)
        return _SYMBOLS[value.function][1](left, right)
    if isinstance(value, tuple):
        return tuple(evaluate(item, shape_of, number_of) for item in value)
    if isinstance(value, list):
        return [evaluate(item, shape_of, number_of) for item in value]
    return value


def described(dim: Dim) -> str:
    """A Dim in words: ``data.shape[0]``."""
    text = source_of(dim, lambda entry: entry.node.name)
    return text if dim.function in ("size", "item") else text[1:-1]


def source_of(value: Any, name_of: Callable[[Any], str]) -> str:
    """Python source of an attribute with Dims, over the variables that ``name_of(entry)`` names."""
    if isinstance(value, Dim):
        if value.function == "size":
            entry, axis = value.arguments
            return f"{name_of(entry)}.shape[{axis}]"
        if value.function == "item":
            return f"{name_of(value.arguments[0])}.item()"
        left, right = (source_of(item, name_of) for item in value.arguments)
        return f"({left} {_SYMBOLS[value.function][0]} {right})"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(source_of(item, name_of) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
