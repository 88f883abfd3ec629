"""mx.np: the NumPy kind of arrays and NumPy's functions on them."""

from __future__ import annotations

import sys

import numpy as _onp

from ..array import methods as _methods
from ..array import ndarray
from ..runtime import namespaces as _namespaces
from . import fallback as _fallback
from .functions import *  # noqa: F403
from .functions import __all__ as _own

__all__ = ["ndarray", *_own]

float16, float32, float64 = _onp.float16, _onp.float32, _onp.float64
int8, int16, int32, int64 = _onp.int8, _onp.int16, _onp.int32, _onp.int64
uint8, uint16, uint32, uint64 = _onp.uint8, _onp.uint16, _onp.uint32, _onp.uint64
bool = bool_ = _onp.bool_
pi, e, inf, nan, euler_gamma, newaxis = _onp.pi, _onp.e, _onp.inf, _onp.nan, _onp.euler_gamma, None
PZERO, NZERO, NAN, NaN, PINF, NINF = 0.0, -0.0, _onp.nan, _onp.nan, _onp.inf, -_onp.inf
finfo, iinfo, dtype = _onp.finfo, _onp.iinfo, _onp.dtype

from . import linalg as linalg  # noqa: E402
from . import random as random  # noqa: E402

_CONSTANTS = (
    "NAN NINF NZERO NaN PINF PZERO bool bool_ dtype e euler_gamma finfo float16 float32 float64 iinfo inf "
    "int16 int32 int64 int8 nan newaxis pi uint16 uint32 uint64 uint8"
).split()
_namespaces.fill_namespace(sys.modules[__name__], "np")
_host_functions = _fallback.install(sys.modules[__name__])
_namespaces.publish(sys.modules[__name__], [*_CONSTANTS, *_host_functions, "linalg", "random"])
_namespaces.publish(linalg)
_namespaces.publish(random)
_methods.install_np(sys.modules[__name__])
