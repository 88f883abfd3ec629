"""Functions of ``mx.np`` for indices, sorting, diagonals and questions about arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..base import dtypes
from .creation import array
from .shaping import broadcast_arrays, ravel
from .tools import apply, as_array, is_value, listed, only_c, sizes

__all__ = [
    "argsort",
    "argwhere",
    "can_cast",
    "delete",
    "diag",
    "diag_indices_from",
    "diagflat",
    "diagonal",
    "fill_diagonal",
    "flatnonzero",
    "in1d",
    "insert",
    "may_share_memory",
    "ndim",
    "nonzero",
    "result_type",
    "searchsorted",
    "shape",
    "shares_memory",
    "size",
    "sort",
    "take",
    "take_along_axis",
    "trace",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "triu_indices_from",
    "unique",
    "unique_all",
    "unique_inverse",
    "unique_values",
    "unravel_index",
    "vander",
    "where",
]


def diag(array: Any, k: int = 0) -> Any:
    """Diagonal ``k`` of a matrix, or the matrix with a vector on diagonal ``k``."""
    return apply("_npi_diag", [as_array(array)], k=k)


def diagflat(array: Any, k: int = 0) -> Any:
    """Square matrix with the flattened input on diagonal ``k``."""
    return apply("_npi_diagflat", [as_array(array)], k=k)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Diagonal ``offset`` of the planes (axis1, axis2), as the last dimension of the result."""
    return apply("_npi_diagonal", [as_array(a)], offset=offset, axis1=axis1, axis2=axis2)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, out: Any = None) -> Any:
    """Sum along a diagonal."""
    return apply("_npi_trace", [as_array(a)], out=out, offset=offset, axis1=axis1, axis2=axis2)


def tril(m: Any, k: int = 0) -> Any:
    """Zero the elements above diagonal ``k``."""
    return apply("_npi_tril", [as_array(m)], k=k)


def triu(m: Any, k: int = 0) -> Any:
    """Zero the elements below diagonal ``k``."""
    return apply("_npi_triu", [as_array(m)], k=k)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Set the main diagonal of ``a`` in place to a number or a sequence of numbers."""
    values = val.asnumpy() if is_value(val) else numpy.asarray(val)
    a[...] = apply("_npi_fill_diagonal", [a], val=tuple(float(v) for v in values.reshape(-1)), wrap=wrap)


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """Indices of the main diagonal of an array with all dimensions equal: one int64 vector per dimension."""
    arr = as_array(arr)
    return _rows(apply("_npi_diag_indices_from", [arr]), len(arr.shape))


def _rows(stacked: Any, count: int | None = None) -> tuple[Any, ...]:
    """The slices of an array along its first axis, as separate arrays."""
    count = int(stacked.shape[0]) if count is None else count
    parts = apply("SliceChannel", [stacked], num_outputs=count, axis=0, squeeze_axis=True)
    return tuple(listed(parts))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Row and column indices (int64) of the lower triangle of an (n, m) matrix."""
    rows, columns = apply("_npi_tril_indices", n=n, k=k, m=n if m is None else m)
    return rows, columns


def triu_indices(
    n: int, k: int = 0, m: int | None = None, device: Any = None, ctx: Any = None
) -> tuple[Any, Any]:
    """Row and column indices (int64) of the upper triangle of an (n, m) matrix."""
    rows, columns = numpy.triu_indices(n, k, m)
    return tuple(array(part, "int64", device, ctx) for part in (rows, columns))  # type: ignore[return-value]


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Row and column indices (int64) of the upper triangle of a matrix like ``arr``."""
    rows, columns = arr.shape
    return triu_indices(rows, k, columns)


def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise", out: Any = None) -> Any:
    """Read elements or slices at ``indices``; without an axis from the flattened array.

    ``mode``: "raise" (negative indices count from the end), "clip" or "wrap"; ValueError for another one.
    """
    if mode not in ("raise", "clip", "wrap"):
        raise ValueError(f"np.take: mode must be 'raise', 'clip' or 'wrap', received {mode!r}")
    a = as_array(a) if axis is not None else ravel(a)
    index = indices if is_value(indices) else array(indices, "int64")
    return apply("take", [a, index], out=out, axis=axis or 0, mode=mode)


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Take from ``x`` where ``condition`` is not 0, else from ``y``; both may be numbers and everything
    broadcasts.

    With the condition alone: the indices of its elements that are not 0. Raises ValueError for only one of x
    and y.
    """
    condition = as_array(condition)
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise ValueError("np.where: give both x and y, or neither")
    first, second = (isinstance(value, bool | int | float | numpy.number) for value in (x, y))
    if first and second:
        return apply("_npi_where_scalar2", [condition], x=float(x), y=float(y))
    if first:
        return apply("_npi_where_lscalar", [condition, as_array(y)], scalar=float(x))
    if second:
        return apply("_npi_where_rscalar", [condition, as_array(x)], scalar=float(y))
    return apply("_npi_where", [condition, as_array(x), as_array(y)])


def nonzero(a: Any) -> tuple[Any, ...]:
    """Indices of the elements that are not 0: one int64 vector per dimension."""
    a = as_array(a)
    if len(a.shape) == 0:
        a = apply("_np_reshape", [a], newshape=(1,))
    return _rows(apply("_npi_transpose", [apply("_npx_nonzero", [a])]), len(a.shape))


def flatnonzero(a: Any) -> Any:
    """Indices of the elements of the flattened array that are not 0."""
    return nonzero(ravel(a))[0]


def argwhere(a: Any) -> Any:
    """Indices of the elements that are not 0, one row each: (N, ndim) int64."""
    return apply("_npx_nonzero", [as_array(a)])


def take_along_axis(arr: Any, indices: Any, axis: int | None) -> Any:
    """Read along one axis at positions of their own for every other place; both arrays broadcast elsewhere.

    Raises ValueError when the numbers of dimensions differ.
    """
    index = indices if is_value(indices) else array(indices, "int64")
    if axis is None:
        arr, axis = ravel(arr), 0
    arr = as_array(arr)
    ndim = len(arr.shape)
    if len(index.shape) != ndim:
        raise ValueError(
            f"np.take_along_axis: indices need as many dimensions as the array ({ndim}), "
            f"received shape {tuple(index.shape)}"
        )
    axis = axis % ndim
    grids = []
    for place in range(ndim):
        if place == axis:
            grids.append(index)
            continue
        view = tuple(-1 if i == place else 1 for i in range(ndim))
        places = apply("_npi_arange", start=0, stop=int(arr.shape[place]), dtype="int64")
        grids.append(apply("_np_reshape", [places], newshape=view))
    return apply("gather_nd", [arr, apply("stack", broadcast_arrays(*grids), axis=0)])


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element of the flattened ``ar1`` is in ``ar2`` (with ``invert``: is not)."""
    column = apply("_npx_reshape", [as_array(ar1)], newshape=(-1, 1))
    row = apply("_npx_reshape", [as_array(ar2)], newshape=(1, -1))
    if invert:
        return apply("_npi_all", [apply("_npi_not_equal", [column, row])], axis=(1,))
    return apply("_npi_any", [apply("_npi_equal", [column, row])], axis=(1,))


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where to insert ``v`` into the sorted vector ``a`` so that it stays sorted; int64.

    ``side`` "left" gives the first such place, "right" the last. Raises ValueError for another one.
    """
    if side not in ("left", "right"):
        raise ValueError(f"np.searchsorted: side must be 'left' or 'right', received {side!r}")
    a = as_array(a)
    if sorter is not None:
        a = take(a, sorter, axis=0)
    values = apply("expand_dims", [as_array(v)], axis=-1)
    before = apply("_npi_less" if side == "left" else "_npi_less_equal", [a, values])
    return apply("_npi_sum", [apply("Cast", [before], dtype="int64")], axis=(-1,))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Matrix of powers of the vector ``x``, float64: x ** (N - 1), ..., x, 1, or the other way round."""
    x = as_array(x)
    count = int(x.shape[0]) if N is None else N
    first, last, step = (0, count, 1) if increasing else (count - 1, -1, -1)
    exponents = apply("_npi_arange", start=first, stop=last, step=step, dtype="float64")
    column = apply("expand_dims", [apply("Cast", [x], dtype="float64")], axis=1)
    return apply("_npi_power", [column, exponents])


def sort(a: Any, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Any:
    """Sort along ``axis``; ``None`` sorts the flattened array."""
    return apply("sort", [as_array(a)], axis=axis, is_ascend=not descending)


def argsort(a: Any, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Any:
    """Indices (int64) that sort along ``axis``; ties keep their order."""
    return apply("argsort", [as_array(a)], axis=axis, is_ascend=not descending, dtype="int64")


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """Sorted distinct elements, and as asked: first indices, the inverse and the counts (a tuple then)."""
    flags = {"return_index": return_index, "return_inverse": return_inverse, "return_counts": return_counts}
    results = listed(apply("_npi_unique", [as_array(ar)], axis=axis, **flags))
    return results[0] if len(results) == 1 else tuple(results)


def unique_all(x: Any) -> tuple[Any, ...]:
    """Distinct elements, their first indices, the inverse, and the counts."""
    result: tuple[Any, ...] = unique(x, True, True, True)
    return result


def unique_inverse(x: Any) -> tuple[Any, ...]:
    """Distinct elements and the inverse."""
    result: tuple[Any, ...] = unique(x, return_inverse=True)
    return result


def unique_values(x: Any) -> Any:
    """Distinct elements, sorted."""
    return unique(x)


def unravel_index(indices: Any, shape: Sequence[int], order: str = "C") -> tuple[Any, ...]:
    """Turn positions in a flattened array of ``shape`` into one index array per dimension."""
    only_c(order, "unravel_index")
    index = indices if is_value(indices) else array(indices, "int64")
    return _rows(apply("_unravel_index", [index], shape=sizes(shape)), len(sizes(shape)))


def _slice_or_int(obj: Any) -> dict[str, Any] | None:
    """Attributes for an index that is a number or a slice; None when it is an array."""
    if isinstance(obj, slice):
        return {"start": obj.start, "stop": obj.stop, "step": 1 if obj.step is None else obj.step}
    if isinstance(obj, int | numpy.integer) and not isinstance(obj, bool):
        return {"int_ind": int(obj)}
    return None


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Return ``arr`` without the elements or slices named by a number, a slice, or an array of indices or a
    mask."""
    attrs = _slice_or_int(obj)
    if attrs is not None:
        return apply("_npi_delete", [as_array(arr)], axis=axis, **attrs)
    index = obj if is_value(obj) else array(numpy.asarray(obj), "bool" if _boolean(obj) else "int64")
    return apply("_npi_delete", [as_array(arr), index], axis=axis)


def _boolean(obj: Any) -> bool:
    return bool(numpy.asarray(obj).dtype.kind == "b")


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Insert ``values`` before the index, the slice or the array of indices ``obj``; flattened without an
    axis."""
    attrs = _slice_or_int(obj)
    number = isinstance(values, bool | int | float | numpy.number)
    inputs = [as_array(arr)] if number else [as_array(arr), as_array(values)]
    if number:
        attrs = None if attrs is None else {**attrs, "val": float(values)}
    if attrs is not None:
        name = "_npi_insert_scalar" if "int_ind" in attrs else "_npi_insert_slice"
        return apply(name, inputs, axis=axis, **attrs)
    index = obj if is_value(obj) else array(numpy.asarray(obj), "int64")
    value = {"val": float(values)} if number else {}
    return apply("_npi_insert_tensor", [*inputs, index], axis=axis, **value)


def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array or of anything that could become one."""
    return tuple(a.shape) if hasattr(a, "shape") else numpy.shape(a)


def ndim(a: Any) -> int:
    """The number of dimensions."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, in all or along ``axis``."""
    dims = shape(a)
    return int(numpy.prod(dims, dtype=numpy.int64)) if axis is None else dims[axis]


def shares_memory(a: Any, b: Any, max_work: int | None = None) -> bool:
    """Whether two arrays lie in one piece of memory."""
    return bool(a._t.untyped_storage().data_ptr() == b._t.untyped_storage().data_ptr())


def may_share_memory(a: Any, b: Any, max_work: int | None = None) -> bool:
    """Whether two arrays may lie in one piece of memory."""
    return shares_memory(a, b, max_work)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that an operation of these arrays and dtypes gives.

    Floating types win over integers whatever their width; otherwise NumPy's rule holds.
    """
    found = [
        dtypes.to_torch(value.dtype if hasattr(value, "dtype") else value) for value in arrays_and_dtypes
    ]
    result = found[0]
    for dtype in found[1:]:
        result = torch.promote_types(result, dtype)
    found_type = dtypes.to_numpy(result)
    return found_type if isinstance(found_type, torch.dtype) else numpy.dtype(found_type)


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a conversion keeps all values, as ``numpy.can_cast`` judges it."""
    source = from_.dtype if hasattr(from_, "dtype") else from_
    return bool(numpy.can_cast(numpy.dtype(dtypes.to_numpy(source)), numpy.dtype(dtypes.to_numpy(to))))
