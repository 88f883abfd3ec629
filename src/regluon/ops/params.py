"""Operator attributes: typed values on one side, MXNet's strings on the other."""

from __future__ import annotations

import ast
import inspect
import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy
import torch

from ..base import dtypes
from ..base.errors import MXNetError

__all__ = ["DType", "Floats", "Parameter", "Shape", "Shapes", "parameter_of"]


# Markers for annotations: a type checker sees the plain types.
Shape = tuple[int, ...]
Floats = tuple[float, ...]
Shapes = tuple[tuple[int, ...], ...]
DType = torch.dtype

_UNSET = inspect.Parameter.empty


_FLAT = re.compile(r"[(\[]([-+\s\d.,eE]*)[)\]]")
_INTEGERS = re.compile(r"[(\[]((?:\s*-?(?:0|[1-9]\d{0,17})\s*,)+)(\s*-?(?:0|[1-9]\d{0,17})\s*)?[)\]]")
# The parser's tree takes hundreds of times the size of a text; longer ones must be plain rows of numbers.
_LONGEST_LITERAL = 1 << 16


def _literal(text: str) -> Any:
    text = text.replace("L,", ",").replace("L)", ")") if "L" in text else text
    if len(text) <= _LONGEST_LITERAL:
        plain = _INTEGERS.fullmatch(text)
        if plain is not None:
            return tuple(map(int, (plain[1] + plain[2]).split(",") if plain[2] else plain[1].split(",")[:-1]))
        return ast.literal_eval(text)
    flat = _FLAT.fullmatch(text)
    if flat is None:
        raise ValueError(f"{len(text)} characters are too many for anything but a row of numbers")
    numbers = flat[1].rstrip().removesuffix(",").split(",")
    if not any(mark in text for mark in ".eE"):
        return tuple(map(int, numbers))
    return tuple(float(item) if {".", "e", "E"} & {*item} else int(item) for item in numbers)


def _read_int(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("true", "false"):
            return int(text.lower() == "true")
        return int(text.rstrip("L")) if "." not in text and "e" not in text else _whole(float(text))
    if isinstance(value, float):
        return _whole(value)
    if not hasattr(value, "__index__"):
        raise ValueError(f"not a whole number: {type(value).__name__}")
    return value.__index__()  # type: ignore[no-any-return]


def _whole(value: float) -> int:
    if value != int(value):
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def _read_float(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip().lower()
        return {"true": 1.0, "false": 0.0}.get(text) if text in ("true", "false") else float(text)
    if isinstance(value, (bool, int, float)):
        return value
    return float(value)


def _read_bool(value: Any) -> bool:
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("true", "1"):
            return True
        if text in ("false", "0", "none"):
            return False
        raise ValueError("not a truth value")
    return bool(value)


def _read_str(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _tuple_of(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_tuple(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = _literal(value.strip()) if value.strip() else ()
        if isinstance(value, (int, float, numpy.integer, numpy.floating)) or not hasattr(value, "__iter__"):
            return (read(value),)
        if read is _read_int and type(value) in (tuple, list) and set(map(type, value)) == {int}:
            return tuple(value)
        return tuple(None if item is None else read(item) for item in value)

    return read_tuple


def _read_shapes(value: Any) -> Any:
    if isinstance(value, str):
        value = _literal(value.strip())
    read = _tuple_of(_read_int)
    return tuple(read(item) for item in value)


def _read_dtype(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return value
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        code = int(value)
        return None if code == -1 else dtypes.FLAG_TO_TORCH[code]
    return dtypes.to_torch(value)


def _write_plain(value: Any) -> str:
    return str(value)


def _write_tuple(value: Any) -> str:
    return str(tuple(value)) if hasattr(value, "__iter__") else str(value)


def _write_float(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value) if isinstance(value, float) else str(value)


_KINDS: dict[Any, tuple[str, Callable[[Any], Any], Callable[[Any], str]]] = {
    int: ("int", _read_int, _write_plain),
    float: ("float", _read_float, _write_float),
    bool: ("bool", _read_bool, _write_plain),
    str: ("str", _read_str, _write_plain),
    Shape: ("tuple of int", _tuple_of(_read_int), _write_tuple),
    Floats: ("tuple of float", _tuple_of(_read_float), _write_tuple),
    Shapes: ("tuple of shapes", _read_shapes, _write_tuple),
    DType: ("dtype", _read_dtype, dtypes.to_name),
}


@dataclass(frozen=True)
class Parameter:
    """One attribute of an operator: its type, default, and how its string form is read and written."""

    name: str
    kind: str
    default: Any
    optional: bool
    choices: tuple[Any, ...] | None
    reader: Callable[[Any], Any]
    writer: Callable[[Any], str]

    @property
    def required(self) -> bool:
        return self.default is _UNSET

    def describe(self) -> str:
        """The type in words, for messages and documentation."""
        text = self.kind if self.choices is None else "one of " + ", ".join(map(repr, self.choices))
        return f"{text} or None" if self.optional else text

    def read(self, value: Any, operator: str) -> Any:
        """The typed value of ``value``; raises MXNetError naming the operator when it cannot be read."""
        if value is None or (isinstance(value, str) and value == "None"):
            if self.optional or (self.default is None):
                return None
            if not isinstance(value, str):
                # MXNet's callers pass None for "the default".
                if self.required:
                    raise MXNetError(f"operator {operator}: the attribute {self.name} must not be None")
                return self.default
        symbolic = getattr(value, "_symbolic_dimension", False)
        if symbolic or (type(value) in (tuple, list) and any(_symbolic(item) for item in value)):
            return tuple(value) if type(value) is list else value
        try:
            result = self.reader(value)
        except (ValueError, TypeError, SyntaxError, KeyError, OverflowError) as error:
            raise MXNetError(
                f"operator {operator}: the attribute {self.name} expects {self.describe()}; received "
                f"{_shown(value)}"
            ) from error
        if self.choices is not None and result not in self.choices:
            raise MXNetError(
                f"operator {operator}: the attribute {self.name} expects {self.describe()}; received "
                f"{_shown(value)}"
            )
        return result

    def write(self, value: Any) -> str:
        """MXNet's string for a typed value."""
        return "None" if value is None else self.writer(value)


def _shown(value: Any) -> str:
    """A value in an error text: at most a few lines."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _symbolic(item: Any) -> bool:
    return getattr(item, "_symbolic_dimension", False) or (
        type(item) in (tuple, list) and any(_symbolic(part) for part in item)
    )


def parameter_of(parameter: inspect.Parameter, annotation: Any, operator: str) -> Parameter:
    """The attribute that one keyword-only parameter of an operator's function stands for."""
    optional = False
    choices: tuple[Any, ...] | None = None
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        optional = len(parts) < len(typing.get_args(annotation))
        if len(parts) != 1:
            annotation = _join(parts)
        else:
            annotation = parts[0]
    if typing.get_origin(annotation) is Literal:
        choices = typing.get_args(annotation)
        if None in choices:
            choices, optional = tuple(choice for choice in choices if choice is not None), True
        annotation = type(choices[0])
    if isinstance(annotation, tuple):
        kind, reader, writer = annotation
    elif annotation in _KINDS:
        kind, reader, writer = _KINDS[annotation]
    elif typing.get_origin(annotation) is tuple:
        kind, reader, writer = _KINDS[Shape]
    else:
        raise TypeError(f"operator {operator}: no string form is known for {parameter.name}: {annotation!r}")
    return Parameter(parameter.name, kind, parameter.default, optional, choices, reader, writer)


def _join(parts: list[Any]) -> Any:
    """A union such as ``int | Shape``: a tuple when it looks like one, else the other type."""
    if Shape in parts and int in parts:
        read_tuple = _KINDS[Shape][1]

        def read(value: Any) -> Any:
            if isinstance(value, str):
                value = _literal(value.strip())
            return read_tuple(value) if hasattr(value, "__iter__") else _read_int(value)

        return ("int or tuple of int", read, _write_tuple)
    if float in parts:
        return _KINDS[float]
    return _KINDS[parts[0]]
