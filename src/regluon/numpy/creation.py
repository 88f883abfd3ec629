"""Creation functions of ``mx.np``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..base import config, dtypes
from ..base import device as devices
from ..base.errors import MXNetError
from ..runtime.handles import kinds
from .tools import apply, as_array, float_dtype, is_value, only_c, sizes, where_to

__all__ = [
    "arange",
    "array",
    "asarray",
    "ascontiguousarray",
    "blackman",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "hamming",
    "hanning",
    "identity",
    "indices",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tri",
    "zeros",
    "zeros_like",
]


def _host(source: Any) -> numpy.ndarray[Any, Any]:
    """A NumPy array of nested sequences that may hold arrays."""
    if is_value(source):
        return numpy.asarray(source.asnumpy())
    if isinstance(source, list | tuple) and any(
        is_value(item) or isinstance(item, list | tuple) for item in source
    ):
        return numpy.array([_host(item) for item in source])
    return numpy.asarray(source)


def array(object: Any, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Create an array from numbers, nested sequences, NumPy arrays, torch tensors or other arrays (copied).

    Without ``dtype`` arrays of this package and NumPy scalars keep theirs and everything else becomes
    float32, or
    NumPy's own choice under ``npx.set_np(dtype=True)``. Raises TypeError for what cannot become numbers.
    """
    if is_value(object) and not isinstance(object, kinds.nd):
        return object
    if isinstance(object, list | tuple) and object and all(is_value(item) for item in object):
        stacked = apply("stack", object, axis=0)
        return stacked if dtype is None else stacked.astype(dtype)
    if isinstance(object, kinds.nd) and object._s is not None:
        # While a block is recorded, the copy is a part of its graph.
        recorded = object.copy().as_np_ndarray()
        return recorded if dtype is None else recorded.astype(dtype)
    if isinstance(object, kinds.nd):
        tensor = object._t
        wanted = dtypes.to_torch(dtype) if dtype is not None else tensor.dtype
        target = object._ctx if device is None and ctx is None else devices.device(device or ctx)
        copied = tensor.to(device=target.torch, dtype=wanted, copy=True)
        return kinds.np._wrap(copied, target)
    if isinstance(object, torch.Tensor):
        tensor = object.detach().clone()
        wanted = dtypes.to_torch(dtype) if dtype is not None else tensor.dtype
    else:
        tensor, wanted = _from_host(object, dtype)
    target = devices.device(device if device is not None else ctx)
    return kinds.np._wrap(tensor.to(device=target.torch, dtype=wanted), target)


def _from_host(source: Any, dtype: Any) -> tuple[torch.Tensor, torch.dtype]:
    """A tensor of its own memory for something that NumPy can read, and the dtype that it should get."""
    try:
        host = _host(source)
        if host.dtype.kind not in "biufV":
            host = host.astype(numpy.float64)
        tensor = dtypes.from_numpy(numpy.array(host))
    except (TypeError, ValueError, MXNetError) as error:
        raise TypeError(
            f"np.array: cannot make an array of numbers of {type(source).__name__}: {error}"
        ) from error
    if dtype is not None:
        return tensor, dtypes.to_torch(dtype)
    keeps = isinstance(source, numpy.generic) or config.is_np_default_dtype()
    return tensor, tensor.dtype if keeps else torch.float32


def asarray(
    obj: Any, dtype: Any = None, device: Any = None, copy: bool | None = None, ctx: Any = None
) -> Any:
    """Turn ``obj`` into an array; an array that already fits is returned itself unless ``copy`` is true.

    Raises ValueError when ``copy=False`` and a copy would be needed.
    """
    fits = isinstance(obj, kinds.np) and (dtype is None or obj.dtype == dtypes.to_numpy(dtype))
    target = device if device is not None else ctx
    if fits and not copy and (target is None or devices.device(target) == obj.context):
        return obj
    if copy is False and not isinstance(obj, kinds.np):
        raise ValueError("np.asarray: cannot make an array of this object without a copy; drop copy=False")
    return array(obj, dtype, device, ctx)


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    """Return ``a`` as an array; all arrays are row-major here."""
    return asarray(a, dtype)


def from_dlpack(x: Any) -> Any:
    """An array that shares memory with a DLPack capsule or with an object that has ``__dlpack__``."""
    return kinds.np._wrap(torch.from_dlpack(x))


def zeros(shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None) -> Any:
    """Return an array of zeros; float32 by default."""
    only_c(order, "zeros")
    return apply("_npi_zeros", shape=sizes(shape), dtype=float_dtype(dtype), ctx=where_to(device, ctx))


def ones(shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None) -> Any:
    """Return an array of ones; float32 by default."""
    only_c(order, "ones")
    return apply("_npi_ones", shape=sizes(shape), dtype=float_dtype(dtype), ctx=where_to(device, ctx))


def empty(shape: Any, dtype: Any = None, order: str = "C", device: Any = None, ctx: Any = None) -> Any:
    """Return an array whose values are not promised (they are zeros); float32 by default."""
    return zeros(shape, dtype, order, device, ctx)


def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Return an array filled with a number, or with an array that is broadcast to ``shape``.

    Without ``dtype``: bool for a bool, int64 for an integer, else float32.
    """
    only_c(order, "full")
    if not isinstance(fill_value, bool | int | float | numpy.number | numpy.bool_):
        filled = apply("_npi_broadcast_to", [as_array(fill_value)], out=out, shape=sizes(shape))
        return filled if dtype is None else filled.astype(dtype)
    if dtype is None:
        kind = numpy.asarray(fill_value).dtype.kind
        dtype = "bool" if kind == "b" else "int64" if kind in "iu" else float_dtype(None)
    attrs: dict[str, Any] = {
        "shape": sizes(shape),
        "value": fill_value,
        "dtype": dtype,
        "ctx": where_to(device, ctx),
    }
    return apply("_full", out=out, **attrs)


def full_like(
    a: Any,
    fill_value: float,
    dtype: Any = None,
    order: str = "C",
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Return an array of the shape and (unless given) dtype of ``a`` filled with a number."""
    only_c(order, "full_like")
    attrs: dict[str, Any] = {"fill_value": fill_value, "dtype": dtype, "ctx": where_to(device, ctx)}
    return apply("_npi_full_like", [as_array(a)], out=out, **attrs)


def zeros_like(
    a: Any, dtype: Any = None, order: str = "C", device: Any = None, out: Any = None, ctx: Any = None
) -> Any:
    """Return zeros of the shape and (unless given) dtype of ``a``."""
    return full_like(a, 0, dtype, order, device, out, ctx)


def ones_like(
    a: Any, dtype: Any = None, order: str = "C", device: Any = None, out: Any = None, ctx: Any = None
) -> Any:
    """Return ones of the shape and (unless given) dtype of ``a``."""
    return full_like(a, 1, dtype, order, device, out, ctx)


def empty_like(
    prototype: Any,
    dtype: Any = None,
    device: Any = None,
    order: str = "C",
    subok: bool = False,
    shape: Any = None,
    ctx: Any = None,
) -> Any:
    """Return an array like ``prototype`` whose values are not promised."""
    if subok or shape is not None:
        raise NotImplementedError(
            "np.empty_like: subok and shape are not supported; use np.empty for another shape"
        )
    return full_like(prototype, 0, dtype, order, device, None, ctx)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Return start, start + step, ... up to but without ``stop``; float32 by default.

    With one number the range is [0, start).
    """
    if dtype is None and config.is_np_default_dtype():
        dtype = numpy.result_type(start, 0 if stop is None else stop, 1 if step is None else step).name
    attrs: dict[str, Any] = {"start": start, "stop": stop, "step": 1 if step is None else step}
    return apply("_npi_arange", dtype=float_dtype(dtype), ctx=where_to(device, ctx), **attrs)


def linspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Return ``num`` evenly spaced numbers from ``start`` to ``stop``; with ``retstep`` also their
    distance."""
    if axis != 0:
        raise NotImplementedError("np.linspace: only axis=0 is supported, as the bounds are numbers")
    attrs: dict[str, Any] = {"start": start, "stop": stop, "num": num, "endpoint": endpoint}
    values = apply("_linspace", dtype=float_dtype(dtype), ctx=where_to(device, ctx), **attrs)
    if not retstep:
        return values
    intervals = num - 1 if endpoint else num
    return values, (stop - start) / intervals if intervals > 0 else float("nan")


def logspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: Any = None,
    axis: int = 0,
    device: Any = None,
    ctx: Any = None,
) -> Any:
    """Return ``base ** x`` for ``num`` evenly spaced x from ``start`` to ``stop``."""
    if axis != 0:
        raise NotImplementedError("np.logspace: only axis=0 is supported, as the bounds are numbers")
    attrs: dict[str, Any] = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "base": base}
    return apply("_npi_logspace", dtype=float_dtype(dtype), ctx=where_to(device, ctx), **attrs)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    order: str = "C",
) -> Any:
    """Return (N, M) with ones on diagonal ``k``; square without ``M``."""
    only_c(order, "eye")
    return apply("_npi_eye", N=N, M=M, k=k, dtype=float_dtype(dtype), ctx=where_to(device, ctx))


def identity(n: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Return the identity matrix (n, n)."""
    return apply("_npi_identity", shape=(n, n), dtype=float_dtype(dtype), ctx=where_to(device, ctx))


def tri(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, device: Any = None, ctx: Any = None
) -> Any:
    """Return (N, M) with ones at and below diagonal ``k``."""
    return apply("_npi_tri", N=N, M=M, k=k, dtype=float_dtype(dtype), ctx=where_to(device, ctx))


def indices(dimensions: Sequence[int], dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Return (len(dimensions), *dimensions): the index along each dimension at every position; int64."""
    attrs: dict[str, Any] = {"dimensions": sizes(dimensions), "dtype": dtype or "int64"}
    return apply("_npi_indices", ctx=where_to(device, ctx), **attrs)


def hanning(M: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Return the Hann window of ``M`` points."""
    return apply("_npi_hanning", M=M, dtype=float_dtype(dtype), ctx=where_to(device, ctx))


def hamming(M: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Return the Hamming window of ``M`` points."""
    return apply("_npi_hamming", M=M, dtype=float_dtype(dtype), ctx=where_to(device, ctx))


def blackman(M: int, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Return the Blackman window of ``M`` points."""
    return apply("_npi_blackman", M=M, dtype=float_dtype(dtype), ctx=where_to(device, ctx))
