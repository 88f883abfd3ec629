"""Functions of ``mx.nd`` for creation, joining and splitting whose signature differs from an operator's.

They are composed of operators, so they work on arrays, on values of a trace and on Symbols alike. A result
has the kind of its inputs; created arrays are of the nd kind.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..base import device as devices
from ..base import dtypes
from ..base.errors import MXNetError
from ..base.sharing import mark_shared
from ..ops import registry
from ..runtime.handles import kinds
from ..runtime.invoke import invoke

__all__ = [
    "arange",
    "array",
    "concatenate",
    "empty",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "histogram",
    "imdecode",
    "linspace",
    "moveaxis",
    "onehot_encode",
    "ones",
    "split_v2",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "true_divide",
    "zeros",
]


def _apply(name: str, arrays: Sequence[Any] = (), out: Any = None, **attrs: Any) -> Any:
    definition = registry.get(name)
    if definition.num_args_key:
        attrs[definition.num_args_key] = len(arrays)
    return invoke(definition, list(arrays), attrs, out=out)


def _context(ctx: Any, device: Any) -> str:
    chosen = ctx if ctx is not None else device
    return "" if chosen is None else str(devices.device(chosen))


def _sizes(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if hasattr(shape, "__iter__") else (shape,)


def array(source_array: Any, ctx: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Create an array from numbers, nested sequences, NumPy arrays, SciPy matrices or other arrays (copied).

    Without ``dtype`` an array of this package keeps its own and everything else becomes float32. Raises
    TypeError for what cannot become numbers.
    """
    if (
        isinstance(source_array, list | tuple)
        and source_array
        and all(isinstance(item, kinds.nd) for item in source_array)
    ):
        stacked = _apply("stack", source_array, axis=0)
        return stacked if dtype is None else stacked.astype(dtype)
    chosen = ctx if ctx is not None else device
    if isinstance(source_array, kinds.sparse) or hasattr(source_array, "tocsr"):
        from .sparse import array as sparse_array

        return sparse_array(source_array, chosen, dtype)
    if isinstance(source_array, kinds.nd):
        source = source_array._value("nd.array()")
        target = source_array.context if chosen is None else devices.device(chosen)
        wanted = source.dtype
    else:
        source, target, wanted = _host_tensor(source_array), devices.device(chosen), torch.float32
    if dtype is not None:
        wanted = dtypes.to_torch(dtype)
    return kinds.nd._wrap(source.to(device=target.torch, dtype=wanted, copy=True), target)


def _host_tensor(source: Any) -> torch.Tensor:
    if isinstance(source, torch.Tensor):
        return source.detach()
    try:
        if isinstance(source, list | tuple) and any(isinstance(item, kinds.nd) for item in source):
            source = [item.asnumpy() if isinstance(item, kinds.nd) else item for item in source]
        host = numpy.asarray(source)
        if host.dtype.kind not in "biufV":
            host = host.astype(numpy.float64)
        return dtypes.from_numpy(host)
    except (TypeError, ValueError, MXNetError) as error:
        raise TypeError(
            f"nd.array: source_array must be array like, received {type(source).__name__}: {error}"
        ) from error


def _sparse_zeros(stype: str | None, shape: Any, ctx: Any, dtype: Any) -> Any:
    """An array of zeros in a sparse storage type; None for the dense one."""
    if stype is None or stype == "default":
        return None
    from .sparse import zeros as sparse_zeros

    return sparse_zeros(stype, shape, ctx=ctx, dtype=dtype)


def zeros(
    shape: Any,
    ctx: Any = None,
    dtype: Any = None,
    stype: str | None = None,
    device: Any = None,
    out: Any = None,
    **kwargs: Any,
) -> Any:
    """Return an array of zeros; float32 by default. ``stype`` asks for a sparse storage type."""
    sparse = _sparse_zeros(stype, shape, ctx, dtype)
    if sparse is not None:
        return sparse
    attrs: dict[str, Any] = {
        "shape": _sizes(shape),
        "ctx": _context(ctx, device),
        "dtype": dtype or "float32",
    }
    return _apply("_zeros", out=out, **attrs, **kwargs)


def ones(
    shape: Any, ctx: Any = None, dtype: Any = None, device: Any = None, out: Any = None, **kwargs: Any
) -> Any:
    """Return an array of ones; float32 by default."""
    attrs: dict[str, Any] = {
        "shape": _sizes(shape),
        "ctx": _context(ctx, device),
        "dtype": dtype or "float32",
    }
    return _apply("_ones", out=out, **attrs, **kwargs)


def empty(
    shape: Any, ctx: Any = None, dtype: Any = None, stype: str | None = None, device: Any = None
) -> Any:
    """Return an array whose values are not promised (they are zeros); float32 by default."""
    return zeros(shape, ctx, dtype, stype, device)


def full(
    shape: Any, val: float, ctx: Any = None, dtype: Any = None, out: Any = None, device: Any = None
) -> Any:
    """Return an array filled with the number ``val``; float32 by default."""
    attrs: dict[str, Any] = {
        "shape": _sizes(shape),
        "ctx": _context(ctx, device),
        "dtype": dtype or "float32",
        "value": val,
    }
    return _apply("_full", out=out, **attrs)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool | None = None,
    ctx: Any = None,
    dtype: Any = "float32",
    device: Any = None,
) -> Any:
    """Return start, start + step, ... up to but without ``stop``, each value ``repeat`` times; float32 by
    default.

    With one number the range is [0, start). ``infer_range`` is accepted for compatibility and has no effect.
    """
    attrs: dict[str, Any] = {"start": start, "stop": stop, "step": step, "repeat": repeat}
    return _apply("_arange", ctx=_context(ctx, device), dtype=dtype or "float64", **attrs)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Any = None,
    dtype: Any = "float32",
    device: Any = None,
) -> Any:
    """Return ``num`` evenly spaced numbers from ``start`` to ``stop``."""
    attrs: dict[str, Any] = {"start": start, "stop": stop, "num": num, "endpoint": endpoint}
    return _apply("_linspace", ctx=_context(ctx, device), dtype=dtype or "float64", **attrs)


def eye(
    N: int, M: int = 0, k: int = 0, ctx: Any = None, dtype: Any = None, device: Any = None, **kwargs: Any
) -> Any:
    """Return (N, M) with ones on diagonal ``k``; ``M`` of 0 stands for N."""
    attrs: dict[str, Any] = {
        "N": N,
        "M": M,
        "k": k,
        "ctx": _context(ctx, device),
        "dtype": dtype or "float32",
    }
    return _apply("_eye", **attrs, **kwargs)


def concatenate(arrays: Sequence[Any], axis: int = 0, always_copy: bool = True) -> Any:
    """Join arrays along an existing axis; a single array is returned itself unless ``always_copy``.

    Raises ValueError for an empty list.
    """
    if len(arrays) == 0:
        raise ValueError("nd.concatenate: at least one array is needed")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return _apply("Concat", arrays, dim=axis)


def moveaxis(tensor: Any, source: Any, destination: Any) -> Any:
    """Move axes to other positions; the others keep their order.

    Raises ValueError when the two lists do not fit or an axis does not exist.
    """
    ndim = len(tensor.shape)
    sources = _sizes(source)
    targets = _sizes(destination)
    if len(sources) != len(targets):
        raise ValueError(f"nd.moveaxis: source {source} and destination {destination} must have one length")
    for axis in (*sources, *targets):
        if not -ndim <= axis < ndim:
            raise ValueError(f"nd.moveaxis: axis {axis} is out of bounds for an array of {ndim} dimension(s)")
    origin = [axis % ndim for axis in sources]
    order = [axis for axis in range(ndim) if axis not in origin]
    for place, axis in sorted(zip((axis % ndim for axis in targets), origin, strict=True)):
        order.insert(place, axis)
    return _apply("transpose", [tensor], axes=tuple(order))


def split_v2(ary: Any, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Any:
    """Split into equal parts, or at the given indices; a list, or the one part alone.

    Raises ValueError when equal parts are not possible.
    """
    if hasattr(indices_or_sections, "__iter__"):
        starts = (0, *(int(index) for index in indices_or_sections))
        return _apply("_split_v2", [ary], indices=starts, axis=axis, squeeze_axis=squeeze_axis)
    sections = operator.index(indices_or_sections)
    if sections < 1 or ary.shape[axis] % sections:
        raise ValueError(
            f"nd.split_v2: an axis of size {ary.shape[axis]} does not divide into {sections} equal parts"
        )
    attrs: dict[str, Any] = {"indices": (), "axis": axis, "squeeze_axis": squeeze_axis, "sections": sections}
    return _apply("_split_v2", [ary], **attrs)


def onehot_encode(indices: Any, out: Any) -> Any:
    """Write the one-hot rows of ``indices`` into ``out`` (n, depth) and return it."""
    return _apply("_onehot_encode", [indices, out], out=out)


def from_numpy(ndarray: Any, zero_copy: bool = True, array_cls: Any = None) -> Any:
    """An array of the values of a NumPy array; with ``zero_copy`` both share memory.

    Raises ValueError when memory is to be shared and the NumPy array is not C-contiguous.
    """
    cls = kinds.nd if array_cls is None else array_cls
    if not zero_copy:
        return cls._wrap(dtypes.from_numpy(numpy.array(ndarray, order="C")))
    if not ndarray.flags["C_CONTIGUOUS"]:
        raise ValueError("from_numpy: only C-contiguous arrays can share memory; use zero_copy=False")
    # As in the originals, the NumPy side may no longer be written once the memory is shared.
    result = cls._wrap(mark_shared(dtypes.from_numpy(ndarray)))
    ndarray.flags.writeable = False
    return result


def from_dlpack(dlpack: Any) -> Any:
    """An array that shares memory with a DLPack capsule or with an object that has ``__dlpack__``."""
    return kinds.nd._wrap(mark_shared(torch.from_dlpack(dlpack)))


def to_dlpack_for_read(data: Any) -> Any:
    """A DLPack capsule that shares memory with an array."""
    return data.to_dlpack_for_read()


to_dlpack_for_write = to_dlpack_for_read


def true_divide(lhs: Any, rhs: Any) -> Any:
    """``lhs / rhs`` of arrays or of an array and a number, broadcast; integers stay integers."""
    return lhs / rhs


def histogram(a: Any, bins: Any = 10, range: tuple[float, float] | None = None) -> list[Any]:
    """``[counts, edges]``: how many elements lie in each bin, as int64, and the edges of the bins.

    ``bins`` is the number of bins of one width over ``range`` (low, high), or an array with their edges.
    Without a range they go from the smallest to the largest element, which needs values: not inside a
    recorded graph.

    Raises
    ------
    ValueError
        If ``bins`` is neither an integer nor an array.
    MXNetError
        For fewer than one bin, a range that is empty, or an empty array without a range.
    """
    if isinstance(bins, kinds.nd | kinds.symbol):
        return list(_apply("_histogram", [a, bins]))
    if not hasattr(bins, "__index__"):
        raise ValueError(f"histogram: bins is an integer or an array of edges; received {bins!r}")
    if range is None:
        if isinstance(a, kinds.symbol):
            raise ValueError("histogram: the range of a Symbol is not known; give range=(low, high)")
        if not a.size:
            raise MXNetError("histogram: an empty array has no range; give range=(low, high)")
        low, high = a.min().item(), a.max().item()
        range = (low, high) if low < high else (low - 0.5, high + 0.5)
    return list(_apply("_histogram", [a], bin_cnt=int(bins), range=tuple(range)))


def imdecode(
    str_img: bytes,
    clip_rect: tuple[int, int, int, int] = (0, 0, 0, 0),
    out: Any = None,
    index: int = 0,
    channels: int = 3,
    mean: Any = None,
) -> Any:
    """Decode the bytes of an image file to float32 (1, channels, height, width), the layout of old data
    iterators.

    ``clip_rect`` (x0, y0, x1, y1) cuts a part out; ``mean`` is subtracted; ``out[index]`` receives the
    result.
    """
    content = kinds.nd._wrap(torch.frombuffer(bytearray(str_img), dtype=torch.uint8))
    image = _apply("_cvimdecode", [content], flag=1 if channels == 3 else 0, to_rgb=True)
    x0, y0, x1, y1 = clip_rect
    if any(clip_rect):
        image = _apply("slice", [image], begin=(y0, x0), end=(y1, x1))
    values = image.astype("float32").transpose((2, 0, 1)).expand_dims(0)
    if mean is not None:
        values = values - mean
    if out is None:
        return values
    out[index] = values[0]
    return out
