"""mx.nd.sparse: sparse arrays, how they are made, and the operators that know them."""

from __future__ import annotations

from typing import Any

import torch

from ..array import NDArray
from ..array.sparse import (
    STORAGE_TYPES,
    BaseSparseNDArray,
    CSRNDArray,
    RowSparseNDArray,
    as_tensor,
)
from ..array.sparse import cast_storage as _cast
from ..base import dtypes
from ..base.device import device as _device
from ..base.errors import NotSupportedForSparseNDArray
from ..ops.registry import get as _get
from ..runtime.invoke import invoke as _invoke

__all__ = [
    "BaseSparseNDArray",
    "CSRNDArray",
    "NotSupportedForSparseNDArray",
    "RowSparseNDArray",
    "add",
    "array",
    "cast_storage",
    "csr_matrix",
    "divide",
    "empty",
    "multiply",
    "row_sparse_array",
    "subtract",
    "zeros",
]


def zeros(stype: str, shape: Any, ctx: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    """An array of zeros in a storage type: ``"csr"``, ``"row_sparse"`` or ``"default"``; float32 by default.

    Raises
    ------
    ValueError
        For an unknown storage type, or a shape that it cannot have.
    """
    sizes = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    if stype == "default":
        from .functions import zeros as dense_zeros

        return dense_zeros(sizes, ctx=ctx, dtype=dtype, **kwargs)
    if stype not in STORAGE_TYPES:
        raise ValueError(f"unknown storage type {stype!r}: expected 'default', 'csr' or 'row_sparse'")
    context = _device(ctx)
    kind = torch.float32 if dtype is None else dtypes.to_torch(dtype)
    none = torch.zeros(0, dtype=torch.int64, device=context.torch)
    if stype == "row_sparse":
        if not sizes:
            raise ValueError("a row_sparse array has at least one axis; received the shape ()")
        values = torch.zeros((0, *sizes[1:]), dtype=kind, device=context.torch)
        return RowSparseNDArray._made(values, (none,), sizes, context)
    if len(sizes) != 2:
        raise ValueError(f"a csr array has two axes; received the shape {sizes}")
    pointers = torch.zeros(sizes[0] + 1, dtype=torch.int64, device=context.torch)
    values = torch.zeros(0, dtype=kind, device=context.torch)
    return CSRNDArray._made(values, (pointers, none), sizes, context)


def empty(stype: str, shape: Any, ctx: Any = None, dtype: Any = None) -> Any:
    """The same as `zeros`: nothing is stored."""
    return zeros(stype, shape, ctx=ctx, dtype=dtype)


def cast_storage(data: Any, stype: str, **kwargs: Any) -> Any:
    """An array in the storage type ``"default"``, ``"csr"`` or ``"row_sparse"``; of a Symbol, the node."""
    if isinstance(data, NDArray) and data._s is None:
        return _cast(data, stype)
    return _invoke(_get("cast_storage"), (data,), {"stype": stype}, **kwargs)


def _is_scipy(value: Any) -> bool:
    return hasattr(value, "tocsr") and hasattr(value, "shape")


def _unexpected(array: Any) -> ValueError:
    return ValueError(f"Unexpected input type: {type(array).__name__}; use tostype('default') in between")


def _sized(made: Any, shape: Any) -> Any:
    if shape is not None and tuple(shape) != made.shape:
        raise ValueError(f"Shape mismatch detected: {made.shape}, where shape={tuple(shape)} was given")
    return made


def csr_matrix(arg1: Any, shape: Any = None, ctx: Any = None, dtype: Any = None) -> CSRNDArray:
    """A matrix in compressed sparse row form.

    Parameters
    ----------
    arg1 : tuple, matrix or array
        ``(data, indices, indptr)``; or ``(data, (rows, columns))``, where numbers at one place are added; or
        a shape ``(rows, columns)`` for zeros; or a CSRNDArray, SciPy matrix or dense values to convert.
    shape : tuple of int, optional
        Shape of the matrix; by default the smallest one that holds the indices.
    ctx : Context, optional
        Where it is stored.
    dtype : optional
        Data type; by default that of the data, float32 for numbers in lists.

    Raises
    ------
    ValueError
        If ``arg1`` is none of these, or ``shape`` is not that of the given matrix.
    """
    context = _device(ctx)
    if isinstance(arg1, tuple):
        return _csr_of_tuple(arg1, shape, context, dtype)
    if isinstance(arg1, BaseSparseNDArray):
        if not isinstance(arg1, CSRNDArray):
            raise _unexpected(arg1)
        return _sized(arg1.astype(arg1.dtype if dtype is None else dtype).copyto(context), shape)
    if _is_scipy(arg1):
        matrix = arg1.tocsr()
        matrix.sum_duplicates()
        return csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape or matrix.shape, ctx, dtype)
    return _sized(CSRNDArray._wrap(as_tensor(arg1, dtype, context), context), shape)


def _csr_of_tuple(parts: tuple[Any, ...], shape: Any, context: Any, dtype: Any) -> Any:
    if len(parts) == 2 and not isinstance(parts[1], (tuple, list)):
        return _sized(zeros("csr", parts, context, dtype), shape)
    if len(parts) == 2:
        values = as_tensor(parts[0], dtype, context)
        rows, columns = (as_tensor(part, "int64", context) for part in parts[1])
        if not len(values) == len(rows) == len(columns):
            raise ValueError(
                f"(data, (rows, columns)) must have one length; received {len(values)}, {len(rows)} and "
                f"{len(columns)}"
            )
        if shape is None:
            shape = (int(rows.max()) + 1, int(columns.max()) + 1) if len(rows) else (0, 0)
        inside = bool(((rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])).all())
        if not inside:
            raise ValueError(f"rows and columns must be inside of the shape {tuple(shape)}")
        return CSRNDArray._from_places(rows, columns, values, shape, context)
    if len(parts) != 3:
        raise ValueError(
            f"Unexpected length of input tuple: {len(parts)}. Expected (data, indices, indptr), "
            "(data, (rows, columns)) or a shape (rows, columns)"
        )
    values = as_tensor(parts[0], dtype, context)
    columns, pointers = (as_tensor(part, "int64", context) for part in parts[1:])
    if values.dim() != 1 or columns.dim() != 1 or pointers.dim() != 1 or not len(pointers):
        raise ValueError("data, indices and indptr must be vectors, and indptr has at least one entry")
    if shape is None:
        shape = (len(pointers) - 1, int(columns.max()) + 1 if len(columns) else 0)
    return CSRNDArray._made(values, (pointers, columns), shape, context)


def row_sparse_array(arg1: Any, shape: Any = None, ctx: Any = None, dtype: Any = None) -> RowSparseNDArray:
    """An array of which few rows are not zero.

    Parameters
    ----------
    arg1 : tuple, array or nested list
        ``(data, indices)``: rows of numbers and where they belong; or a shape for zeros; or a
        RowSparseNDArray, or dense values to convert.
    shape : tuple of int, optional
        Shape of the whole array; by default it ends with the last given row.
    ctx : Context, optional
        Where it is stored.
    dtype : optional
        Data type; by default that of the data, float32 for numbers in lists.

    Raises
    ------
    ValueError
        If ``arg1`` is none of these, or ``shape`` is not that of the given array.
    """
    context = _device(ctx)
    if isinstance(arg1, tuple):
        if len(arg1) != 2 or all(isinstance(part, int) for part in arg1):
            if not all(isinstance(part, int) for part in arg1):
                raise ValueError(
                    f"Unexpected length of input tuple: {len(arg1)}. Expected (data, indices), or a shape"
                )
            return _sized(zeros("row_sparse", arg1, context, dtype), shape)
        values = as_tensor(arg1[0], dtype, context)
        rows = as_tensor(arg1[1], "int64", context).reshape(-1)
        if values.dim() == 0 or len(values) != len(rows):
            raise ValueError(f"{len(rows)} row numbers were given for data of shape {tuple(values.shape)}")
        if shape is None:
            shape = (int(rows.max()) + 1 if len(rows) else 0, *values.shape[1:])
        return RowSparseNDArray._made(values, (rows,), shape, context)
    if isinstance(arg1, BaseSparseNDArray):
        if not isinstance(arg1, RowSparseNDArray):
            raise _unexpected(arg1)
        return _sized(arg1.astype(arg1.dtype if dtype is None else dtype).copyto(context), shape)
    return _sized(RowSparseNDArray._wrap(as_tensor(arg1, dtype, context), context), shape)


def array(source_array: Any, ctx: Any = None, dtype: Any = None) -> Any:
    """A copy of a sparse array or SciPy matrix.

    Raises
    ------
    ValueError
        For anything else: dense values are converted with ``tostype``, `csr_matrix` or `row_sparse_array`.
    """
    if isinstance(source_array, RowSparseNDArray):
        return row_sparse_array(source_array, ctx=ctx, dtype=dtype)
    if isinstance(source_array, CSRNDArray) or _is_scipy(source_array):
        return csr_matrix(source_array, ctx=ctx, dtype=dtype)
    if isinstance(source_array, NDArray):
        raise ValueError("Please use `tostype` to make a sparse array of a dense one")
    raise ValueError(
        f"Unexpected source_array type: {type(source_array).__name__}. Use mx.nd.array for dense values, or "
        "csr_matrix or row_sparse_array to convert them"
    )


def add(lhs: Any, rhs: Any) -> Any:
    """``lhs + rhs``; sparse when both are of one storage type and shape."""
    return lhs + rhs


def subtract(lhs: Any, rhs: Any) -> Any:
    """``lhs - rhs``; sparse when both are of one storage type and shape."""
    return lhs - rhs


def multiply(lhs: Any, rhs: Any) -> Any:
    """``lhs * rhs``; sparse when ``lhs`` is."""
    return lhs * rhs


def divide(lhs: Any, rhs: Any) -> Any:
    """``lhs / rhs``; sparse when ``rhs`` is a number, or dense and broadcast to a csr ``lhs``."""
    return lhs / rhs
