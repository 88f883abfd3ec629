"""Text of arrays: ``repr`` and ``str`` of both kinds, as the originals print them.

An "nd" array prints its values and a line with its shape and device; an "np" array prints like NumPy's, where
float32 is the dtype that goes without saying.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy
import torch

Kind = Literal["nd", "np"]


def _values(array: Any) -> numpy.ndarray[Any, Any]:
    tensor = array._t.detach()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.to(torch.float32)
    result: numpy.ndarray[Any, Any] = tensor.cpu().numpy()
    return result


def _dtype_name(array: Any) -> str:
    return str(array._t.dtype).removeprefix("torch.")


# Values from here on are printed with exponents by newer NumPy versions; the originals did so from 1e8 on
# only.
_NEWER_LIMIT = {"float16": 1e3, "float32": 1e6}


def _shown(values: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """The elements that are printed: all, or the edges of every dimension of a large array."""
    options = numpy.get_printoptions()
    edge = options["edgeitems"]
    if values.size <= options["threshold"]:
        return values
    for axis, size in enumerate(values.shape):
        if size > 2 * edge:
            values = numpy.take(values, [*range(edge), *range(size - edge, size)], axis=axis)
    return values


class _PlainNumbers:
    """Formats floating numbers without exponents, in columns aligned at the point."""

    def __init__(self, values: numpy.ndarray[Any, Any], precision: int) -> None:
        self.precision = precision
        texts = [self._digits(value).split(".") for value in values.ravel() if numpy.isfinite(value)]
        self.left = max(len(text[0]) for text in texts)
        self.right = max(len(text[1]) for text in texts)
        special = [str(value) for value in values.ravel() if not numpy.isfinite(value)]
        self.left = max([self.left, *(len(text) - self.right - 1 for text in special)])

    def _digits(self, value: Any) -> str:
        return numpy.format_float_positional(value, precision=self.precision, unique=True, trim=".")

    def __call__(self, value: Any) -> str:
        if not numpy.isfinite(value):
            return str(value).rjust(self.left + self.right + 1)
        whole, fraction = self._digits(value).split(".")
        return f"{whole.rjust(self.left)}.{fraction.ljust(self.right)}"


def _plain_formatter(values: numpy.ndarray[Any, Any]) -> Any:
    """A formatter for values that only newer NumPy versions would print with exponents; None for others."""
    shown = _shown(values)
    options = numpy.get_printoptions()
    sizes = numpy.abs(shown[numpy.isfinite(shown) & (shown != 0)])
    if not sizes.size or options["formatter"] is not None or options["floatmode"] != "maxprec":
        return None
    with numpy.errstate(over="ignore"):
        ragged = sizes.min() < 1e-4 or sizes.max() / sizes.min() > 1000
    if not _NEWER_LIMIT[values.dtype.name] <= float(sizes.max()) < 1e8 or (
        ragged and not options["suppress"]
    ):
        return None
    return {"float_kind": _PlainNumbers(shown, options["precision"])}


def _text(values: numpy.ndarray[Any, Any], separator: str, prefix: str = "", suffix: str = "") -> str:
    """``numpy.array2string`` with the older rule for exponents."""
    formatter = _plain_formatter(values) if values.dtype.name in _NEWER_LIMIT and values.size else None
    return numpy.array2string(values, separator=separator, prefix=prefix, suffix=suffix, formatter=formatter)


def _str(values: numpy.ndarray[Any, Any]) -> str:
    return str(values) if values.ndim == 0 else _text(values, " ")


# NumPy leaves these out of its repr; it prints them for empty arrays only.
_UNSAID_BY_NUMPY = ("float64", "int64", "bool")


def _numpy_repr(values: numpy.ndarray[Any, Any]) -> str:
    """Return the repr of a NumPy array as the 1.x series of NumPy lays it out."""
    name = values.dtype.name
    unsaid = name in _UNSAID_BY_NUMPY and values.size > 0
    if values.size > 0 or values.shape == (0,):
        body = _text(values, ", ", "array(", ")" if unsaid else ",")
    else:
        body = f"[], shape={values.shape}"
    text = f"array({body}"
    if unsaid:
        return f"{text})"
    ending = f"dtype={name})"
    last_line = len(text) - (text.rfind("\n") + 1)  # the comma and the space count too
    wraps = last_line + len(ending) + 2 > numpy.get_printoptions()["linewidth"]
    return f"{text},{chr(10) + ' ' * len('array(') if wraps else ' '}{ending}"


def _np_repr(array: Any) -> str:
    text = _numpy_repr(_values(array))
    name = _dtype_name(array)
    said = "dtype=" in text
    if name in ("float32", "bfloat16") and said:
        text = text[: text.rindex(",")] + ")"
    if name not in ("float32", "bool") and (not said or name == "bfloat16"):
        text = f"{text[:-1]}, dtype={name})"
    context = array.context
    if context.device_type == "gpu":
        text = f"{text[:-1]}, device={context})"
    return text


def _nd_text(array: Any) -> str:
    shape = "x".join(str(size) for size in array.shape)
    return f"\n{_str(_values(array))}\n<{type(array).__name__} {shape} @{array.context}>"


def array_repr(array: Any, kind: Kind) -> str:
    """Return ``repr`` of an array that has ``_t``, ``shape`` and ``context``."""
    return _np_repr(array) if kind == "np" else _nd_text(array)


def array_str(array: Any, kind: Kind) -> str:
    """Return ``str`` of an array: the values alone for the np kind, the same as ``repr`` for nd."""
    return _str(_values(array)) if kind == "np" else _nd_text(array)
