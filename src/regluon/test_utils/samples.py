"""Shapes and arrays for tests: random ones, sparse ones, and small helpers on NumPy arrays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .. import ndarray as nd
from .. import numpy as np

__all__ = [
    "assign_each",
    "assign_each2",
    "collapse_sum_like",
    "create_2d_np_tensor",
    "create_2d_tensor",
    "create_sparse_array",
    "create_sparse_array_zd",
    "create_vector",
    "np_reduce",
    "rand_coord_2d",
    "rand_ndarray",
    "rand_shape_2d",
    "rand_shape_3d",
    "rand_shape_nd",
    "rand_sparse_ndarray",
    "random_arrays",
    "random_sample",
    "random_uniform_arrays",
    "shuffle_csr_column_indices",
]

Array = numpy.ndarray[Any, Any]


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, int]:
    """A shape of two sizes from 1 (or 0) to the given ones."""
    low = 0 if allow_zero_size else 1
    return random.randint(low, dim0), random.randint(low, dim1)


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> tuple[int, int, int]:
    """A shape of three sizes from 1 (or 0) to the given ones."""
    low = 0 if allow_zero_size else 1
    return random.randint(low, dim0), random.randint(low, dim1), random.randint(low, dim2)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """A shape of ``num_dim`` sizes from 1 (or 0) to ``dim``."""
    low = 0 if allow_zero_size else 1
    return tuple(random.randint(low, dim) for _ in range(num_dim))


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """A point with each number from its low end up to, without, its high end."""
    return random.randrange(x_low, x_high), random.randrange(y_low, y_high)


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """``k`` elements in an order of chance, each at most once."""
    return random.sample(list(population), k)


def random_arrays(*shapes: Any) -> Any:
    """Float32 NumPy arrays of standard normal numbers; one alone is no list."""
    arrays = [numpy.asarray(numpy.random.randn(*shape), dtype=numpy.float32) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(*shapes: Any, **kwargs: Any) -> list[Array]:
    """NumPy arrays of uniform numbers from ``low=0.0`` to ``high=1.0`` of type ``dtype="float32"``."""
    low, high = kwargs.pop("low", 0.0), kwargs.pop("high", 1.0)
    dtype = kwargs.pop("dtype", numpy.float32)
    if kwargs:
        raise TypeError(
            f"Got unexpected argument(s) {', '.join(kwargs)}; random_uniform_arrays takes low, high and dtype"
        )
    return [numpy.asarray(numpy.random.uniform(low, high, size=shape)).astype(dtype) for shape in shapes]


# Sparse arrays -----------------------------------------------------------------------------------


def _rows(shape: Sequence[int], density: float) -> Array:
    """Numbers of rows in order, each there with a probability."""
    return numpy.flatnonzero(numpy.random.rand(shape[0]) < density)


def _values(shape: Sequence[int], distribution: str | None) -> Array:
    if distribution not in (None, "uniform", "powerlaw"):
        raise ValueError(f"distribution is 'uniform' or 'powerlaw'; received {distribution!r}")
    return numpy.random.uniform(-1, 1, size=tuple(shape))


def _power_law(shape: Sequence[int], density: float) -> Array:
    """Which elements are there: each row has twice as many as the one before, until all are used."""
    left = int(density * shape[0] * shape[1])
    mask = numpy.zeros(shape, bool)
    for row in range(shape[0]):
        count = min(2**row, shape[1], left)
        mask[row, :count] = True
        left -= count
    return mask


def _changed(values: Array, modifier_func: Callable[[Any], Any] | None) -> Array:
    return values if modifier_func is None else assign_each(values, modifier_func)


def rand_sparse_ndarray(
    shape: Any,
    stype: str,
    density: float | None = None,
    dtype: Any = None,
    distribution: str | None = None,
    data_init: float | None = None,
    rsp_indices: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
    ctx: Any = None,
) -> tuple[Any, Any]:
    """A random sparse array.

    Parameters
    ----------
    shape : tuple of int
        The shape; two sizes for csr.
    stype : {"csr", "row_sparse"}
        The storage.
    density : float, optional
        Share of elements (csr) or rows that are there; drawn by default.
    dtype : dtype
        Type of the values, float32 by default.
    distribution : {"uniform", "powerlaw"}, optional
        Where elements of csr are.
    data_init : float, optional
        One value for all elements that are there.
    rsp_indices : array of int, optional
        The rows of a row_sparse array.
    modifier_func : callable, optional
        Applied to each value.
    shuffle_csr_indices : bool
        Whether the columns within a row lie in an order of chance.
    ctx : Context, optional
        Where the array is.

    Returns
    -------
    array, parts
        The parts are (values, indices) for row_sparse and (indptr, indices, values) for csr, from NumPy.

    Raises
    ------
    ValueError
        For another storage or distribution.
    """
    density = numpy.random.rand() if density is None else density
    dtype = numpy.float32 if dtype is None else dtype
    shape = tuple(shape)
    if stype == "row_sparse":
        rows = _rows(shape, density) if rsp_indices is None else numpy.asarray(rsp_indices, dtype="int64")
        values = _values((len(rows), *shape[1:]), distribution)
        if data_init is not None:
            values = numpy.full_like(values, data_init)
        values = _changed(values, modifier_func).astype(dtype)
        array = nd.sparse.row_sparse_array((values, rows), shape=shape, dtype=dtype, ctx=ctx)
        return array, (values, rows)
    if stype != "csr":
        raise ValueError(f"unknown storage type {stype!r}; it is 'csr' or 'row_sparse'")
    mask = _power_law(shape, density) if distribution == "powerlaw" else numpy.random.rand(*shape) < density
    columns = numpy.nonzero(mask)[1]
    values = _values((len(columns),), distribution)
    if data_init is not None:
        values = numpy.full_like(values, data_init)
    values = _changed(values, modifier_func).astype(dtype)
    indptr = numpy.concatenate([[0], numpy.cumsum(mask.sum(axis=1))])
    if shuffle_csr_indices:
        columns, values = _shuffled(indptr, columns, values)
    array = nd.sparse.csr_matrix((values, columns, indptr), shape=shape, dtype=dtype, ctx=ctx)
    return array, (indptr, columns, values)


def _shuffled(indptr: Array, columns: Array, values: Array) -> tuple[Array, Array]:
    order = numpy.concatenate(
        [numpy.random.permutation(numpy.arange(a, b)) for a, b in itertools.pairwise(indptr)]
    ).astype("int64")
    return columns[order], values[order]


def shuffle_csr_column_indices(csr: Any) -> None:
    """Put the columns within each row of SciPy's csr matrix into an order of chance, without their values."""
    for begin, end in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        numpy.random.shuffle(csr.indices[begin:end])


def create_sparse_array(
    shape: Any,
    stype: str,
    data_init: float | None = None,
    rsp_indices: Any = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    density: float = 0.5,
    shuffle_csr_indices: bool = False,
) -> Any:
    """As `rand_sparse_ndarray`, without the parts."""
    array, _ = rand_sparse_ndarray(
        shape,
        stype,
        density=density,
        dtype=dtype,
        data_init=data_init,
        rsp_indices=rsp_indices,
        modifier_func=modifier_func,
        shuffle_csr_indices=shuffle_csr_indices,
    )
    return array


def create_sparse_array_zd(
    shape: Any,
    stype: str,
    density: float,
    data_init: float | None = None,
    rsp_indices: Any = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
) -> Any:
    """As `create_sparse_array`; a density of 0 makes a row_sparse array without rows."""
    if stype == "row_sparse" and density == 0.0:
        rsp_indices = []
    return create_sparse_array(
        shape, stype, data_init, rsp_indices, dtype, modifier_func, density, shuffle_csr_indices
    )


def rand_ndarray(
    shape: Any,
    stype: str = "default",
    density: float | None = None,
    dtype: Any = None,
    modifier_func: Callable[[Any], Any] | None = None,
    shuffle_csr_indices: bool = False,
    distribution: str | None = None,
    ctx: Any = None,
) -> Any:
    """A random array of a storage: standard normal numbers, or see `rand_sparse_ndarray`."""
    if stype == "default":
        return nd.array(random_arrays(shape), dtype=dtype, ctx=ctx)
    array, _ = rand_sparse_ndarray(
        shape,
        stype,
        density=density,
        dtype=dtype,
        modifier_func=modifier_func,
        shuffle_csr_indices=shuffle_csr_indices,
        distribution=distribution,
        ctx=ctx,
    )
    return array


# Plain arrays ------------------------------------------------------------------------------------


def create_vector(size: int, dtype: Any = numpy.int64) -> Any:
    """The numbers from 0 on."""
    return nd.arange(0, size, dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = numpy.int64) -> Any:
    """An array whose elements are the numbers of their rows."""
    return nd.broadcast_to(nd.arange(0, rows, dtype=dtype).reshape((rows, 1)), shape=(rows, columns))


def create_2d_np_tensor(rows: int, columns: int, dtype: Any = numpy.int64) -> Any:
    """As `create_2d_tensor`, an np array."""
    return np.broadcast_to(np.arange(0, rows, dtype=dtype).reshape((rows, 1)), (rows, columns))


def assign_each(the_input: Any, function: Callable[[Any], Any] | None) -> Array:
    """A NumPy array with a function applied to each element."""
    values = numpy.array(the_input)
    return values if function is None else _elementwise(function, values)


def assign_each2(input1: Any, input2: Any, function: Callable[[Any, Any], Any] | None) -> Array:
    """A NumPy array with a function applied to each pair of elements."""
    first = numpy.array(input1)
    return first if function is None else _elementwise(function, first, numpy.array(input2))


def _elementwise(function: Callable[..., Any], first: Array, *others: Array) -> Array:
    if first.size == 0:
        return first
    results = [function(*each) for each in zip(first.flat, *(other.flat for other in others), strict=True)]
    return numpy.array(results).reshape(first.shape)


def np_reduce(dat: Array, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> Array:
    """A NumPy reduction along one axis, several, or all (None)."""
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    wanted = sorted((a % dat.ndim for a in axes), reverse=True)
    result = dat
    for each in wanted:
        result = numpy_reduce_func(result, axis=each)
    if keepdims:
        result = numpy.asarray(result).reshape(
            [1 if a in wanted else size for a, size in enumerate(dat.shape)]
        )
    return numpy.asarray(result)


def collapse_sum_like(a: Array, shape: Sequence[int]) -> Array:
    """The sum of ``a`` over the axes along which an array of ``shape`` would be broadcast to it.

    Raises
    ------
    ValueError
        When it would not be.
    """
    lead = a.ndim - len(shape)
    if lead < 0 or any(size not in (1, whole) for size, whole in zip(shape, a.shape[lead:], strict=True)):
        raise ValueError(f"an array of shape {tuple(shape)} cannot be broadcast to {a.shape}")
    axes = [lead + axis for axis, size in enumerate(shape) if size == 1 and a.shape[lead + axis] != 1]
    return numpy.asarray(a.sum(axis=(*range(lead), *axes), keepdims=False)).reshape(tuple(shape))
