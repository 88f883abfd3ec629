"""Data types: the names, NumPy types and codes of MXNet, and the torch types behind them."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from .errors import MXNetError

__all__ = [
    "FLAG_TO_TORCH",
    "NAME_TO_TORCH",
    "TORCH_TO_FLAG",
    "from_numpy",
    "to_flag",
    "to_name",
    "to_numpy",
    "to_torch",
]

_TABLE: tuple[tuple[int, str, torch.dtype], ...] = (
    (0, "float32", torch.float32),
    (1, "float64", torch.float64),
    (2, "float16", torch.float16),
    (3, "uint8", torch.uint8),
    (4, "int32", torch.int32),
    (5, "int8", torch.int8),
    (6, "int64", torch.int64),
    (7, "bool", torch.bool),
    (8, "int16", torch.int16),
    (9, "uint16", torch.uint16),
    (10, "uint32", torch.uint32),
    (11, "uint64", torch.uint64),
    (12, "bfloat16", torch.bfloat16),
)
FLAG_TO_TORCH: dict[int, torch.dtype] = {flag: dtype for flag, _, dtype in _TABLE}
TORCH_TO_FLAG: dict[torch.dtype, int] = {dtype: flag for flag, _, dtype in _TABLE}
NAME_TO_TORCH: dict[str, torch.dtype] = {name: dtype for _, name, dtype in _TABLE}
_TORCH_TO_NAME: dict[torch.dtype, str] = {dtype: name for _, name, dtype in _TABLE}
_TORCH_TO_NUMPY: dict[torch.dtype, Any] = {
    dtype: getattr(numpy, "bool_" if name == "bool" else name)
    for _, name, dtype in _TABLE
    if name != "bfloat16"
}
_KNOWN: dict[Any, torch.dtype] = {
    float: torch.float64,
    int: torch.int64,
    bool: torch.bool,
    "float": torch.float64,
    "int": torch.int64,
    "double": torch.float64,
    "half": torch.float16,
    "bool_": torch.bool,
    **NAME_TO_TORCH,
    **{dtype: dtype for dtype in _TORCH_TO_NAME},
    **{scalar: dtype for dtype, scalar in _TORCH_TO_NUMPY.items()},
}


def to_torch(dtype: Any) -> torch.dtype:
    """The torch type of a NumPy type, a name such as ``"float32"``, a Python type, an MXNet code or a
    torch type.

    ``float`` and ``int`` are float64 and int64, as in NumPy and MXNet.

    Raises
    ------
    TypeError
        If ``dtype`` names no type that arrays can have.
    """
    try:
        return _KNOWN[dtype]
    except (KeyError, TypeError):
        pass
    if isinstance(dtype, int) and dtype in FLAG_TO_TORCH:
        return FLAG_TO_TORCH[dtype]
    try:
        name = getattr(dtype, "name", None) or numpy.dtype(dtype).name
        return NAME_TO_TORCH[name]
    except (KeyError, TypeError) as error:
        raise TypeError(
            f"{dtype!r} is not a data type of arrays; expected one of {', '.join(NAME_TO_TORCH)}"
        ) from error


def to_name(dtype: Any) -> str:
    """The name of a type, ``"float32"`` for example."""
    if isinstance(dtype, torch.dtype) and dtype in _TORCH_TO_NAME:
        return _TORCH_TO_NAME[dtype]
    return _TORCH_TO_NAME[to_torch(dtype)]


def to_numpy(dtype: Any) -> Any:
    """The NumPy scalar class of a type; for bfloat16, which NumPy lacks, the torch type itself."""
    dtype = to_torch(dtype)
    return _TORCH_TO_NUMPY.get(dtype, dtype)


def to_flag(dtype: Any) -> int:
    """MXNet's integer code of a type."""
    return TORCH_TO_FLAG[to_torch(dtype)]


def from_numpy(array: Any) -> torch.Tensor:
    """A tensor with the values of a NumPy array: memory is shared where torch can.

    Raises
    ------
    MXNetError
        If the array's type has no counterpart (strings, objects, complex numbers).
    """
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        if not array.flags.writeable:
            array = array.copy()
        return torch.from_numpy(array)
    except TypeError as error:
        raise MXNetError(
            f"an array of NumPy type {array.dtype} cannot become an array here; expected numbers or booleans"
        ) from error
