"""NumPy's dispatch protocols: ``numpy.mean(mx_array)`` calls ``mx.np.mean``."""

from __future__ import annotations

from typing import Any

import numpy

from ..runtime.handles import kinds

__all__ = ["array_function", "array_ufunc"]


def _host(value: Any) -> Any:
    if isinstance(value, kinds.nd):
        return value.asnumpy()
    if isinstance(value, (list, tuple)):
        return type(value)(_host(item) for item in value)
    return value


def _find(module: Any, name: str, where: str) -> Any:
    target = module
    for part in (*where.split(".")[1:], name):
        target = getattr(target, part, None)
        if target is None:
            return None
    return target


def array_function(module: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """Run a NumPy function on np arrays: our own function of that name, else NumPy's on copies."""
    own = _find(module, function.__name__, getattr(function, "__module__", "numpy") or "numpy")
    if own is not None:
        return own(*args, **kwargs)
    return _back(module, function(*_host(list(args)), **{k: _host(v) for k, v in kwargs.items()}))


def array_ufunc(module: Any, ufunc: Any, method: str, inputs: Any, kwargs: Any) -> Any:
    """Run a NumPy ufunc on np arrays."""
    out = kwargs.pop("out", None)
    own = getattr(module, ufunc.__name__, None) if method == "__call__" else None
    if own is not None and not kwargs:
        converted = [
            module.array(value, dtype=value.dtype) if isinstance(value, numpy.ndarray) else value
            for value in inputs
        ]
        result = own(*converted)
    else:
        result = _back(module, getattr(ufunc, method)(*_host(list(inputs)), **kwargs))
    if out is None:
        return result
    target = out[0]
    if isinstance(target, numpy.ndarray):
        target[...] = result.asnumpy()
    else:
        target[...] = result
    return target


def _back(module: Any, result: Any) -> Any:
    if isinstance(result, numpy.ndarray):
        return module.array(result, dtype=result.dtype)
    if isinstance(result, (tuple, list)):
        return type(result)(_back(module, item) for item in result)
    return result
