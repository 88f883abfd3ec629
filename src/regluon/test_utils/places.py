"""Where tests run: devices, environment variables, output streams."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy

from ..base.device import Context, current_context, num_gpus
from ..base.device import device as device_of
from ..util import setenv

__all__ = [
    "default_context",
    "default_device",
    "default_dtype",
    "discard_stderr",
    "environment",
    "list_gpus",
    "retry",
    "set_default_context",
    "set_default_device",
]


def default_context() -> Context:
    """Where arrays of tests are: the context in force."""
    return current_context()


default_device = default_context


def set_default_context(ctx: Any) -> None:
    """Make a context the one in force in this thread."""
    Context._current.value = device_of(ctx)


set_default_device = set_default_context


def default_dtype() -> type:
    """The type of test data."""
    return numpy.float32


def list_gpus() -> range:
    """The numbers of the GPUs."""
    return range(num_gpus())


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """A scope with other environment variables: ``environment(name, value)`` or ``environment({...})``.

    None as a value removes a variable. All are as before after it.
    """
    changes: Mapping[str, Any] = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {name: os.environ.get(name) for name in changes}
    try:
        for name, value in changes.items():
            setenv(name, None if value is None else str(value))
        yield
    finally:
        for name, value in before.items():
            setenv(name, value)


@contextmanager
def discard_stderr() -> Iterator[None]:
    """A scope in which what goes to the process's standard error stream is lost."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            # What Python calls so may be another file.
            with redirect_stderr(nowhere):
                yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: call a test again, at most ``n`` times in all, until it raises no AssertionError.

    Raises
    ------
    ValueError
        When ``n`` is not positive.
    """
    if n < 1:
        raise ValueError(f"retry needs a positive number of tries; received {n}")

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            for number in range(n):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    if number == n - 1:
                        raise
            return None

        return wrapped

    return decorate
