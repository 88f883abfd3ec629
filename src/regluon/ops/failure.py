"""Errors of operators: what a kernel raised becomes an MXNetError that says what the operator received."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from ..base import dtypes
from ..base.errors import MXNetError

__all__ = ["ArgumentError", "describe_inputs", "reraise", "translated"]


class ArgumentError(MXNetError, ValueError):
    """A value given to an operator lies outside of what it takes; NumPy raises ValueError there."""


# What torch says where a kernel does not exist for the type of an input.
_TYPE_PROBLEM = re.compile(
    r"not implemented for '|[Ee]xpected (a floating|both inputs|tensor)|floating[- ]point|finfo|iinfo|Boolean"
    r"|bool tensor|could not infer output dtype|expected (m1|scalar type|input)|same dtype|dtype"
)
_SUBJECT = re.compile(r"[\w.]+: ")
# Left as they are: nothing about the call is wrong.
_PASSED_ON = (RecursionError, MemoryError, torch.OutOfMemoryError)


def describe_inputs(definition: Any, tensors: Sequence[Any]) -> str:
    """``data float32 (2, 3), weight float32 (5, 4)``: names, types and shapes, for messages."""
    names = definition.inputs
    shown = []
    for index, tensor in enumerate(tensors):
        name = names[index] if index < len(names) and not definition.variadic else f"input {index}"
        if tensor is None:
            shown.append(f"{name} None")
        else:
            kind = dtypes.to_name(tensor.dtype) if isinstance(tensor.dtype, torch.dtype) else tensor.dtype
            shown.append(f"{name} {kind} {tuple(tensor.shape)}")
    return ", ".join(shown) or "no inputs"


def _named(name: str, text: str) -> bool:
    """Whether a message says whose it is: ``resize: ...``, or a word of the operator's name in it."""
    return _SUBJECT.match(text) is not None or any(w in text for w in name.split("_") if len(w) > 2)


def translated(definition: Any, error: Exception, tensors: Sequence[Any] = ()) -> Exception:
    """The error of an operator as an MXNetError that names it; itself, if it is one that does.

    Parameters
    ----------
    definition : OpDef
        The operator.
    error : Exception
        What its function raised.
    tensors : sequence
        Its inputs: anything with ``shape`` and ``dtype``, or None.
    """
    if type(error) is MXNetError and not _named(definition.name, str(error)):
        return MXNetError(f"{definition.name}: {error}")
    if isinstance(error, (MXNetError, *_PASSED_ON)):
        return error
    received = describe_inputs(definition, tensors)
    text = str(error).strip().split("\n")[0].rstrip(".")
    if _TYPE_PROBLEM.search(text):
        return MXNetError(
            f"{definition.name}: inputs of this type are not supported; received {received}. Convert them, "
            f"for example with astype('float32') ({text})"
        )
    return MXNetError(f"{definition.name}: {text}; received {received}")


def reraise(definition: Any, error: Exception, tensors: Sequence[Any] = ()) -> NoReturn:
    """Raise what `translated` gives, from the error it stands for; the causes of both are kept."""
    found = translated(definition, error, tensors)
    if found is error:
        raise error
    raise found from error
