"""The functions of ``runtime.cpp``: callables that run native code in one call, once they are compiled.

Compiling them, or loading what was compiled before, is done in the background; until then, and for good where
there is no compiler, `runtime` gives None and what they do is done in Python.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from . import background, compiler

__all__ = ["MOST_ADDRESSES", "Run", "Runtime", "runtime", "runtime_now"]

# Of a callable; kMostAddresses in runtime.cpp.
MOST_ADDRESSES = 64
_pointer, _long = ctypes.c_void_p, ctypes.c_int64
# Takes addresses; gives 0, or the status of what failed.
Run = Callable[..., int]


class _Step(ctypes.Structure):
    _fields_ = (("primitive", _pointer), ("stream", _pointer), ("arguments", _pointer), ("count", _long))


class _Pointed(ctypes.Structure):
    _fields_ = (("memory", _pointer), ("place", _long))


class Runtime:
    """Makes callables of native code."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._region, self._generated = library.regluon_region, library.regluon_generated
        for made in (self._region, self._generated):
            made.restype = ctypes.py_object
        self._region.argtypes = (_pointer, _pointer, _long, _long, _pointer, _long, _pointer)
        self._generated.argtypes = (_pointer, _pointer, _long, _long, _long, _long)
        self._parallel = _openmp()

    def region(
        self,
        functions: tuple[int, int],
        memories: Sequence[Sequence[int]],
        steps: Sequence[tuple[int, int, int, int]],
    ) -> Run:
        """A callable that executes primitives.

        Parameters
        ----------
        functions : (int, int)
            The addresses of ``memory_set_data_handle`` and ``primitive_execute``.
        memories : sequence of sequence of int
            For each address that it takes, the memories that are to point there.
        steps : sequence of (primitive, stream, count, arguments)
            What is executed, in order.
        """
        pointed = [(memory, place) for place, each in enumerate(memories) for memory in each]
        calls = [(primitive, stream, address, count) for primitive, stream, count, address in steps]
        return self._region(  # type: ignore[no-any-return]
            *functions,
            len(memories),
            len(pointed),
            (_Pointed * max(len(pointed), 1))(*(_Pointed(*each) for each in pointed)),
            len(calls),
            (_Step * len(calls))(*(_Step(*each) for each in calls)),
        )

    def generated(self, function: int, addresses: int, batch: int, block: int, release: bool) -> Run:
        """A callable that takes a number of threads and addresses, and runs a function on blocks of a batch.

        With ``release`` other threads of Python run meanwhile.
        """
        return self._generated(function, self._parallel, addresses, batch, block, release)  # type: ignore[no-any-return]


def _openmp() -> int | None:
    """How the OpenMP that torch brings runs a function in many threads: in those that torch has too."""
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(library.GOMP_parallel, _pointer).value
    except (OSError, AttributeError):
        return None


class _Shared:
    """The runtime of the process."""

    found: Runtime | None = None
    asked = False
    lock = threading.Lock()


def _ask_again() -> None:
    """In a child made by ``fork``: what its parent had begun is not going to end there."""
    _Shared.lock, _Shared.asked = threading.Lock(), _Shared.found is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ask_again)


def runtime() -> Runtime | None:
    """What was made ready so far; the first call begins to make it ready."""
    if not _Shared.asked:
        _Shared.asked = True
        if compiler.compiler() is not None:
            background.submit(_make_ready)
    return _Shared.found


def _make_ready() -> None:
    runtime_now()


def runtime_now() -> Runtime | None:
    """The runtime, waited for; to be called in the background."""
    with _Shared.lock:
        if _Shared.found is None:
            library = compiler.library(Path(__file__).with_name("runtime.cpp").read_text(encoding="utf-8"))
            if library is not None:
                _Shared.found = Runtime(library)
        return _Shared.found
