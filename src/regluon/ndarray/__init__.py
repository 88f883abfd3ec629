"""mx.nd: arrays of the 1.x kind and a function for every operator."""

from __future__ import annotations

import sys

from ..array import NDArray, methods, waitall
from ..runtime import namespaces as _namespaces
from .functions import *  # noqa: F403
from .functions import __all__ as _own
from .sparse import cast_storage

__all__ = ["NDArray", "cast_storage", "load", "load_frombuffer", "save", "waitall", *_own]


def save(fname, data, format=None):  # type: ignore[no-untyped-def]
    """Write an array, a list or a dict of arrays to a ``.params`` file (``.npz`` with ``format="npz"``)."""
    from .. import serial

    serial.nd_save(fname, data, format)


def load(fname):  # type: ignore[no-untyped-def]
    """Read what `save` (or MXNet of any version) wrote: a list or a dict of arrays."""
    from .. import serial

    return serial.nd_load(fname)


def load_frombuffer(buf):  # type: ignore[no-untyped-def]
    """Read the bytes of a ``.params`` file."""
    from .. import serial

    return serial.nd_load_frombuffer(buf)


from . import random as random  # noqa: E402

_namespaces.fill_namespace(sys.modules[__name__], "nd")
methods.install(sys.modules[__name__])


def _link() -> None:
    """F.np and F.npx of hybrid_forward, which take a ``name`` as those of Symbols do."""
    from .. import numpy, numpy_extension
    from ..symbol.named import named_module

    module = sys.modules[__name__]
    module.np = named_module(numpy, f"{__name__}.numpy")  # type: ignore[attr-defined]
    module.npx = named_module(numpy_extension, f"{__name__}.numpy_extension")  # type: ignore[attr-defined]
