"""The exceptions of regluon. Every message says the situation, what was expected, what came, and what to
do."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CHANGED_IN_PLACE",
    "DeferredInitializationError",
    "MXNetError",
    "NotImplementedForSymbol",
    "NotSupportedForSparseNDArray",
    "ValueReadError",
    "early_end",
]


class MXNetError(RuntimeError):
    """Base class of the errors that regluon raises for a wrong operation."""


class DeferredInitializationError(MXNetError):
    """A parameter is read whose shape is not known yet."""


class NotSupportedForSparseNDArray(MXNetError):
    """A dense-only operation was asked of a sparse array."""


class ValueReadError(MXNetError):
    """A value was asked for while a block is being recorded, where only shapes and types are known."""


class NotImplementedForSymbol(MXNetError, NotImplementedError):
    """An operation that needs values was asked of a Symbol."""

    def __init__(self, function: Any, alias: str | None = None, *arguments: Any) -> None:
        name = function if isinstance(function, str) else getattr(function, "__name__", str(function))
        shown = f' (namely operator "{alias}")' if alias else ""
        super().__init__(
            f"Function {name}{shown} is not implemented for Symbol and only available in NDArray: a Symbol "
            "stands for a computation and has no values. Bind or evaluate it first, or leave the block that "
            "needs the value unhybridized."
        )


# In torch's error for a value that a backward needs and that was written to.
CHANGED_IN_PLACE = "modified by an inplace operation"


def early_end(what: str) -> RuntimeError:
    """The error for a StopIteration of code of the user, which would end the loop that calls it silently."""
    return RuntimeError(
        f"{what} raised StopIteration, which would end the loop over the data without a word. It often comes "
        "from next() of an iterator that has nothing left: give next() a default, or raise another error"
    )
