"""``mx.util``: NumPy-mode switches, environment variables and small helpers, for both generations."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

import torch

from .base import config
from .base.config import is_np_array, is_np_default_dtype, is_np_shape

__all__ = [
    "default_array",
    "get_cuda_compute_capability",
    "get_gpu_count",
    "get_gpu_memory",
    "getenv",
    "is_np_array",
    "is_np_default_dtype",
    "is_np_shape",
    "np_array",
    "np_default_dtype",
    "np_shape",
    "reset_np",
    "set_flush_denorms",
    "set_module",
    "set_np",
    "set_np_default_dtype",
    "set_np_shape",
    "setenv",
    "use_np",
    "use_np_array",
    "use_np_default_dtype",
    "use_np_shape",
    "wrap_ctx_to_device_func",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Switch NumPy semantics on, for all threads.

    Parameters
    ----------
    shape : bool
        Shapes may be ``()`` and have sizes of 0.
    array : bool
        Parameters and data loaders give ``np.ndarray``.
    dtype : bool
        New np arrays are float64 and int64 by default, as in NumPy.

    Raises
    ------
    ValueError
        For ``array`` without ``shape``: np arrays need NumPy's shapes.
    """
    if array and not shape:
        raise ValueError("set_np(shape=False, array=True): np arrays need NumPy's shapes, use shape=True")
    config.set_np_shape(shape, everywhere=True)
    config.set_np_array(array, everywhere=True)
    config.set_np_default_dtype(dtype)


def reset_np() -> None:
    """Switch NumPy semantics off, for all threads."""
    set_np(shape=False, array=False, dtype=False)


def set_np_default_dtype(is_np_default_dtype: bool = True) -> bool:
    """Switch NumPy's default types (float64, int64) of new np arrays on or off; gives what it was."""
    return config.set_np_default_dtype(is_np_default_dtype)


def set_np_shape(active: bool) -> bool:
    """Switch NumPy's shape semantics for all threads; gives what it was."""
    before = is_np_shape()
    config.set_np_shape(bool(active), everywhere=True)
    return before


@contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """A scope of this thread with NumPy's shape semantics switched on or off."""
    before = config.set_np_shape(active)
    try:
        yield
    finally:
        config.set_np_shape(before)


@contextmanager
def np_array(active: bool = True) -> Iterator[None]:
    """A scope of this thread in which parameters and data loaders give ``np.ndarray``, or do not."""
    before = config.set_np_array(active)
    try:
        yield
    finally:
        config.set_np_array(before)


@contextmanager
def np_default_dtype(active: bool = True) -> Iterator[None]:
    """A scope in which new np arrays are float64 and int64 by default, or are not."""
    before = set_np_default_dtype(active)
    try:
        yield
    finally:
        set_np_default_dtype(before)


@contextmanager
def _np_shape_and_array(active: bool = True) -> Iterator[None]:
    with np_shape(active), np_array(active):
        yield


def use_np_shape(func: Function) -> Function:
    """A decorator of a function or class: its code runs in a scope of `np_shape`."""
    return _in_scope(func, np_shape)


def use_np_array(func: Function) -> Function:
    """A decorator of a function or class: its code runs in a scope of `np_array`."""
    return _in_scope(func, np_array)


def use_np(func: Function) -> Function:
    """A decorator of a function or class: its code runs in scopes of `np_shape` and `np_array`."""
    return _in_scope(func, _np_shape_and_array)


def use_np_default_dtype(func: Function) -> Function:
    """A decorator of a function or class: its code runs in a scope of `np_default_dtype`."""
    return _in_scope(func, np_default_dtype)


def _in_scope(target: Any, scope: Callable[[], Any]) -> Any:
    """A function that runs inside ``scope()``; for a class, all functions and properties that it defines."""
    if isinstance(target, type):
        for name, member in list(vars(target).items()):
            if isinstance(member, FunctionType):
                setattr(target, name, _in_scope(member, scope))
            elif isinstance(member, property):
                parts = (member.fget, member.fset, member.fdel)
                setattr(target, name, property(*(part and _in_scope(part, scope) for part in parts)))
        return target
    if not callable(target):
        raise TypeError(f"expected a function or a class to decorate, got {type(target).__name__}")

    @functools.wraps(target)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with scope():
            return target(*args, **kwargs)

    return wrapped


def default_array(source_array: Any, device: Any = None, dtype: Any = None, ctx: Any = None) -> Any:
    """An ``np.ndarray`` while ``npx.is_np_array()``, else an ``NDArray``, with the values of
    ``source_array``."""
    from . import nd, np

    device = ctx if device is None else device
    return (np if is_np_array() else nd).array(source_array, ctx=device, dtype=dtype)


def getenv(name: str) -> str | None:
    """The value of an environment variable, None when it is not set."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable, or remove it with None."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def get_gpu_count() -> int:
    """The number of GPUs."""
    return torch.cuda.device_count()


def get_gpu_memory(gpu_dev_id: int) -> tuple[int, int]:
    """Free and total memory of a GPU, in bytes.

    Raises
    ------
    ValueError
        When there is no such GPU.
    """
    if not 0 <= gpu_dev_id < get_gpu_count():
        raise ValueError(f"get_gpu_memory({gpu_dev_id}): there are {get_gpu_count()} GPUs")
    return torch.cuda.mem_get_info(gpu_dev_id)


def get_cuda_compute_capability(device: Any = None, ctx: Any = None) -> int:
    """The compute capability of a GPU context as one number, 80 for 8.0.

    Raises
    ------
    ValueError
        When ``device`` (or ``ctx``, its name in 1.x) is no GPU.
    """
    device = ctx if device is None else device
    if getattr(device, "device_type", None) != "gpu":
        raise ValueError(f"get_cuda_compute_capability expected a gpu context, got {device}")
    major, minor = torch.cuda.get_device_capability(device.device_id)
    return 10 * major + minor


def set_flush_denorms(value: bool) -> bool:
    """Treat denormal numbers as zero (faster on some processors); returns whether that is supported here."""
    return torch.set_flush_denormal(value)


def set_module(module: str) -> Callable[[Function], Function]:
    """A decorator that sets ``__module__``, so that a name shows as public."""

    def decorate(function: Function) -> Function:
        function.__module__ = module
        return function

    return decorate


def wrap_ctx_to_device_func(func: Function) -> Function:
    """A decorator that lets a function with a ``device`` argument take it as ``ctx`` too."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if "ctx" in kwargs:
            if kwargs.get("device") is not None:
                raise TypeError(
                    f"{func.__name__} got both ctx and device: they are one argument, pass one of them"
                )
            kwargs["device"] = kwargs.pop("ctx")
        return func(*args, **kwargs)

    return wrapped  # type: ignore[return-value]
