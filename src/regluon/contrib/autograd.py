"""The autograd of 2016 (``mx.contrib.autograd``) on today's `mx.autograd`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd
from ..array import NDArray
from ..autograd import mark_variables
from ..ndarray import zeros_like

__all__ = [
    "TrainingStateScope",
    "backward",
    "compute_gradient",
    "grad",
    "grad_and_loss",
    "mark_variables",
    "set_is_training",
    "test_section",
    "train_section",
]


def set_is_training(is_train: bool) -> bool:
    """Switch recording and train mode on or off; gives what the mode was."""
    before = autograd.set_training(is_train)
    autograd.set_recording(is_train)
    return before


class TrainingStateScope:
    """A scope of recording in train mode, or of neither."""

    def __init__(self, enter_state: bool) -> None:
        self._state = enter_state
        self._before = (False, False)

    def __enter__(self) -> None:
        self._before = (autograd.set_recording(self._state), autograd.set_training(self._state))

    def __exit__(self, *exception: object) -> None:
        recording, training = self._before
        autograd.set_recording(recording)
        autograd.set_training(training)


def train_section() -> TrainingStateScope:
    """A scope of recording in train mode: ``with train_section(): ...``."""
    return TrainingStateScope(True)


def test_section() -> TrainingStateScope:
    """A scope without recording, in predict mode."""
    return TrainingStateScope(False)


# It is no test for those who collect tests by name.
test_section.__test__ = False  # type: ignore[attr-defined]


def backward(outputs: Any, out_grads: Any = None, retain_graph: bool = False) -> None:
    """Gradients of ``outputs`` into the buffers of the marked variables."""
    if isinstance(outputs, NDArray):
        outputs = [outputs]
        out_grads = None if out_grads is None else [out_grads]
    autograd.backward(outputs, out_grads, retain_graph=retain_graph)


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """The older name of `backward`."""
    backward(outputs)


def grad_and_loss(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., Any]:
    """A function that gives the gradients of ``func`` for its arguments, and its value.

    Parameters
    ----------
    func : callable
        From arrays to an array or a list of arrays.
    argnum : int or list of int, optional
        The arguments whose gradients are wanted; all by default.

    Raises
    ------
    TypeError
        By that function, for an argument that is no array.
    """

    @functools.wraps(func)
    def wrapped(*args: Any) -> tuple[list[NDArray], Any]:
        chosen = range(len(args)) if argnum is None else [argnum] if isinstance(argnum, int) else argnum
        variables = [args[place] for place in chosen]
        for variable in variables:
            if not isinstance(variable, NDArray):
                raise TypeError(
                    f"type of autograd input should be NDArray; received {type(variable).__name__}"
                )
        gradients = [zeros_like(variable) for variable in variables]
        mark_variables(variables, gradients)
        with train_section():
            outputs = func(*args)
        backward(outputs)
        return gradients, outputs

    return wrapped


def grad(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., Any]:
    """A function that gives the gradients of ``func`` for its arguments; see `grad_and_loss`."""
    both = grad_and_loss(func, argnum)

    @functools.wraps(both)
    def wrapped(*args: Any) -> list[NDArray]:
        gradients: list[NDArray] = both(*args)[0]
        return gradients

    return wrapped
