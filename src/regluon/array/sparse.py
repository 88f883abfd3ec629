"""Sparse arrays: `CSRNDArray` (a matrix by rows) and `RowSparseNDArray` (the rows that are not zero).

The stored numbers and their places are torch tensors; the dense array exists only while something asks for
it. What operators do with these classes is in `sparse_operators.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..base import dtypes
from ..base.device import Context, device
from ..base.errors import MXNetError, NotSupportedForSparseNDArray
from ..runtime.handles import kinds
from ..runtime.state import state
from . import arithmetic
from .ndarray import NDArray

__all__ = ["STORAGE_TYPES", "BaseSparseNDArray", "CSRNDArray", "RowSparseNDArray", "cast_storage", "shown_as"]

Tensor = torch.Tensor


class BaseSparseNDArray(NDArray):
    """What both storage types share. Made by `mx.nd.sparse`, ``tostype`` or operators on sparse arrays.

    ``_values`` are the stored numbers, ``_places`` the index tensors of the storage type (int64), ``_sizes``
    the shape of the whole array.
    """

    _stype = ""
    _values: Tensor
    _places: tuple[Tensor, ...]
    _sizes: tuple[int, ...]
    # The dense array that carries gradients: of attach_grad, or what a recorded array was made from.
    _leaf: NDArray | None = None
    # The dense array that this one shows, and that is written to with it.
    _shown: NDArray | None = None

    def __init__(self, handle: Any = None, writable: bool = True, *, ctx: Any = None) -> None:
        raise TypeError(
            f"{type(self).__name__} is not made directly: use mx.nd.sparse.csr_matrix, row_sparse_array or "
            "zeros, or tostype() of a dense array"
        )

    @classmethod
    def _made(
        cls, values: Tensor, places: Sequence[Tensor], sizes: Sequence[int], context: Any = None
    ) -> Any:
        """An array of this class around its parts."""
        result = cls.__new__(cls)
        result._take(values, places, sizes)
        if context is not None:
            result._ctx = context
        return result

    def _take(self, values: Tensor, places: Sequence[Tensor], sizes: Sequence[int]) -> None:
        self._values, self._places = values.detach(), tuple(places)
        self._sizes = tuple(int(size) for size in sizes)
        self._leaf = None

    @classmethod
    def _wrap(cls, tensor: Tensor, context: Context | None = None) -> Any:
        """The entries of a dense tensor that are not zero."""
        raise NotImplementedError

    def _dense_tensor(self) -> Tensor:
        raise NotImplementedError

    @property
    def _t(self) -> Tensor:  # type: ignore[override]
        """The dense values: those of the leaf if there is one, else made now."""
        return self._dense_tensor() if self._leaf is None else self._leaf._t

    def _dense_array(self) -> NDArray:
        """The dense array for operators that know dense ones only; gradients reach it."""
        if self._leaf is not None:
            return self._leaf
        return NDArray._wrap(self._dense_tensor(), self._ctx)  # type: ignore[no-any-return]

    # What it is ------------------------------------------------------------------------

    @property
    def stype(self) -> str:
        """The storage type: ``"csr"`` or ``"row_sparse"``."""
        return self._stype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes of the whole array."""
        return self._sizes

    def _spec_shape(self) -> tuple[int, ...]:
        return self._sizes

    def _torch_dtype(self) -> torch.dtype:
        return self._values.dtype

    @property
    def size(self) -> int:
        """Number of elements, zeros included."""
        return math.prod(self._sizes)

    @property
    def data(self) -> NDArray:
        """The stored numbers (a copy)."""
        return NDArray._wrap(self._values.clone(), self._ctx)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        sizes = "x".join(str(size) for size in self._sizes)
        return f"\n<{type(self).__name__} {sizes} @{self.context}>"

    __str__ = __repr__
    __hash__ = NDArray.__hash__

    # Copies ----------------------------------------------------------------------------

    def copy(self, order: str = "C") -> Any:
        """A copy on the same device."""
        del order
        return self._with_values(self._values.clone())

    def _with_values(self, values: Tensor) -> Any:
        """Other numbers at the same places."""
        return self._made(values, [place.clone() for place in self._places], self._sizes, self._ctx)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """The array converted to ``dtype``; itself when nothing changes and ``copy`` is False."""
        wanted = dtypes.to_torch(dtype)
        if not copy and wanted is self._values.dtype:
            return self
        return self._with_values(self._values.to(wanted, copy=True))

    def copyto(self, other: Any) -> Any:
        """Copy into an array of the same shape, dense or of the same storage type, or onto a context."""
        if isinstance(other, BaseSparseNDArray) and type(other) is not type(self):
            raise TypeError(
                f"copyto does not support destination NDArray stype {other.stype} from {self.stype}: use "
                "tostype('default') in between"
            )
        if isinstance(other, Context):
            result = self.copy()
            result._ctx = other
            result._values = result._values.to(other.torch)
            result._places = tuple(place.to(other.torch) for place in result._places)
            return result
        return super().copyto(other)

    def detach(self) -> Any:
        """The same numbers outside of any recorded graph; memory is shared."""
        return self._made(self._values, self._places, self._sizes, self._ctx)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        result = memory[id(self)] = self.copy()
        if self._leaf is not None:
            result.attach_grad(self._leaf._request)
        return result

    def __reduce__(self) -> Any:
        return _restore, (type(self), self._values, self._places, self._sizes, self._ctx)

    def _as(self, cls: Any) -> Any:
        return self if cls is kinds.nd else self._dense_array()._as(cls)

    def tostype(self, stype: str) -> Any:
        """The array in another storage type: ``"default"`` (dense) or its own.

        Raises
        ------
        ValueError
            For the other sparse type, which is reached over ``"default"`` only.
        """
        return cast_storage(self, stype)

    def reshape(self, *shape: Any, **keywords: Any) -> Any:
        """Not there for sparse arrays; raises NotSupportedForSparseNDArray."""
        raise NotSupportedForSparseNDArray(
            f"reshape is not supported for {type(self).__name__}: use tostype('default').reshape(...)"
        )

    # Writing -----------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not Ellipsis and not (isinstance(key, slice) and key == slice(None)):
            raise ValueError(
                f"{type(self).__name__} only supports [:] for assignment; received the index {key!r}. Use "
                "tostype('default') to write single elements"
            )
        if isinstance(value, BaseSparseNDArray) and type(value) is not type(self):
            raise TypeError(
                f"an array of storage type {value.stype} cannot be assigned to one of type {self.stype}: use "
                "tostype('default') in between"
            )
        if arithmetic.is_number(value):
            if value != 0:
                raise ValueError(
                    f"Assigning the number {value} would fill the {type(self).__name__}; only 0 can be "
                    "assigned. Use a dense array"
                )
            value = torch.zeros(self._sizes, dtype=self._values.dtype)
        self._assign(value)

    def _assign(self, value: Any) -> None:
        """Take the numbers of an array of the same shape, in this array's type."""
        if not isinstance(value, BaseSparseNDArray):
            if isinstance(value, NDArray):
                value = value._value("assigning it")
            value = type(self)._wrap(torch.as_tensor(value))
        if value._sizes != self._sizes:
            raise MXNetError(f"an array of shape {value._sizes} cannot be assigned to shape {self._sizes}")
        place = self._values.device
        values = value._values.to(place, self._values.dtype, copy=True)
        self._take(values, [part.to(place, copy=True) for part in value._places], self._sizes)
        if self._shown is not None:
            self._shown._t.copy_(self._dense_tensor())

    def _assign_result(self, value: Any, inplace: bool = False) -> None:
        del inplace
        self._assign(value)

    # Gradients -----------------------------------------------------------------------------

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Give the array a gradient; ``grad`` is of the array's own storage type.

        While something is recorded, operators see the array as a dense one.
        """
        del stype
        self._leaf = NDArray._wrap(self._dense_tensor(), self._ctx)
        self._leaf.attach_grad(grad_req)

    @property
    def grad(self) -> Any:
        """The gradient in this storage type, or None."""
        gradient = None if self._leaf is None else self._leaf._grad
        return None if gradient is None else type(self)._wrap(gradient._t, self._ctx)

    def drop_grad(self) -> None:
        """Take the gradient away."""
        self._leaf = None

    def zero_grad(self) -> None:
        """Fill the gradient with zeros."""
        if self._leaf is not None:
            self._leaf.zero_grad()

    def _format_error(self, problem: str) -> MXNetError:
        return MXNetError(f"this {type(self).__name__} of shape {self._sizes} is malformed: {problem}")


class CSRNDArray(BaseSparseNDArray):
    """A matrix in compressed sparse row form: numbers, their columns, and where each row begins.

    ``indptr`` has one entry more than there are rows; row i holds ``data[indptr[i]:indptr[i + 1]]`` in the
    columns ``indices[indptr[i]:indptr[i + 1]]``, which increase.
    """

    _stype = "csr"

    @classmethod
    def _wrap(cls, tensor: Tensor, context: Context | None = None) -> Any:
        if tensor.dim() != 2:
            raise ValueError(
                "To convert to a CSR, the NDArray should be 2 Dimensional. Current shape is "
                f"{tuple(tensor.shape)}"
            )
        rows, columns = torch.nonzero(tensor, as_tuple=True)
        return cls._made(
            tensor[rows, columns], (pointers_of(rows, len(tensor)), columns), tensor.shape, context
        )

    @classmethod
    def _from_places(
        cls, rows: Tensor, columns: Tensor, values: Tensor, sizes: Sequence[int], context: Any
    ) -> Any:
        """From numbers at (row, column), in any order; those at one place are added."""
        places, inverse = torch.unique(rows * sizes[1] + columns, return_inverse=True)
        if len(places) == len(values):
            merged = torch.empty_like(values)
            merged[inverse] = values
        else:
            merged = torch.zeros(len(places), dtype=values.dtype, device=values.device)
            merged.index_put_((inverse,), values, accumulate=True)
        width = max(int(sizes[1]), 1)
        pointers = pointers_of(places // width, int(sizes[0]))
        return cls._made(merged, (pointers, places % width), sizes, context)

    @property
    def indptr(self) -> NDArray:
        """Where each row begins in ``indices`` and ``data``: int64, one more than there are rows."""
        return NDArray._wrap(self._places[0].clone(), self._ctx)  # type: ignore[no-any-return]

    @property
    def indices(self) -> NDArray:
        """The column of each stored number: int64."""
        return NDArray._wrap(self._places[1].clone(), self._ctx)  # type: ignore[no-any-return]

    def _rows(self) -> Tensor:
        """The row of each stored number."""
        pointers = self._places[0]
        return torch.repeat_interleave(
            torch.arange(len(pointers) - 1, device=pointers.device), pointers.diff()
        )

    def _dense_tensor(self) -> Tensor:
        dense = torch.zeros(self._sizes, dtype=self._values.dtype, device=self._values.device)
        return dense.index_put_((self._rows(), self._places[1]), self._values, accumulate=True)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 1:
            key = key[0]
        if isinstance(key, tuple):
            raise ValueError(
                f"Multi-dimension indexing is not supported for CSRNDArray; received {key!r}. Use rows only, "
                "or tostype('default')"
            )
        if isinstance(key, slice):
            begin, end, step = key.indices(self._sizes[0])
            if step != 1:
                raise ValueError(f"CSRNDArray only supports continuous slicing on axis 0; the step is {step}")
            return self._row_range(begin, max(begin, end))
        try:
            row = key.__index__()
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"a CSRNDArray is indexed by a row number or a slice of rows; received {key!r}"
            ) from error
        if not -self._sizes[0] <= row < self._sizes[0]:
            raise IndexError(f"row {row} is outside of an array with {self._sizes[0]} rows")
        row %= self._sizes[0]
        return self._row_range(row, row + 1)

    def _row_range(self, begin: int, end: int) -> Any:
        pointers = self._places[0][begin : end + 1]
        first, last = int(pointers[0]), int(pointers[-1])
        places = (pointers - first, self._places[1][first:last].clone())
        return self._made(self._values[first:last].clone(), places, (end - begin, self._sizes[1]), self._ctx)

    def asscipy(self) -> Any:
        """The same matrix as a ``scipy.sparse.csr_matrix``.

        Raises
        ------
        ImportError
            If SciPy is not installed.
        """
        try:
            from scipy import sparse
        except ImportError as error:
            raise ImportError("asscipy() needs SciPy: pip install scipy") from error
        pointers, columns = (part.cpu().numpy().copy() for part in self._places)
        return sparse.csr_matrix((self.data.asnumpy(), columns, pointers), shape=self._sizes)

    def check_format(self, full_check: bool = True) -> None:
        """Raise MXNetError if the row pointers or (with ``full_check``) the columns are not in order."""
        pointers, columns = self._places
        if len(pointers) != self._sizes[0] + 1 or len(columns) != len(self._values):
            raise self._format_error(
                f"{len(pointers)} row pointers, {len(columns)} columns and {len(self._values)} numbers"
            )
        if int(pointers[0]) != 0 or int(pointers[-1]) != len(columns) or bool((pointers.diff() < 0).any()):
            raise self._format_error("the row pointers do not increase from 0 to the number of values")
        if full_check and len(columns):
            if int(columns.min()) < 0 or int(columns.max()) >= self._sizes[1]:
                raise self._format_error(f"a column is outside of 0 to {self._sizes[1] - 1}")
            same_row = self._rows().diff() == 0
            if bool((same_row & (columns.diff() <= 0)).any()):
                raise self._format_error("the columns of a row are not in ascending order")


class RowSparseNDArray(BaseSparseNDArray):
    """An array of which few rows (along axis 0) are not zero: these rows, and their numbers in order."""

    _stype = "row_sparse"

    @classmethod
    def _wrap(cls, tensor: Tensor, context: Context | None = None) -> Any:
        if tensor.dim() == 0:
            raise ValueError("a scalar has no rows: row_sparse arrays have at least one axis")
        rows = torch.nonzero((tensor != 0).reshape(len(tensor), -1).any(1)).reshape(-1)
        return cls._made(tensor[rows], (rows,), tensor.shape, context)

    @property
    def indices(self) -> NDArray:
        """The numbers of the stored rows, in order: int64."""
        return NDArray._wrap(self._places[0].clone(), self._ctx)  # type: ignore[no-any-return]

    def _dense_tensor(self) -> Tensor:
        dense = torch.zeros(self._sizes, dtype=self._values.dtype, device=self._values.device)
        dense[self._places[0]] = self._values
        return dense

    def __getitem__(self, key: Any) -> Any:
        if key is Ellipsis or (isinstance(key, slice) and key == slice(None)):
            return self
        raise ValueError(
            f"RowSparseNDArray only supports [:] for reading; received {key!r}. Use retain() for some of the "
            "rows, or tostype('default')"
        )

    def retain(self, indices: Any) -> Any:
        """The rows ``indices`` only, in that order; rows that are not stored become stored zeros."""
        wanted = indices._value("retain") if isinstance(indices, NDArray) else torch.as_tensor(indices)
        wanted = wanted.reshape(-1).long().to(self._values.device)
        if len(wanted) and (int(wanted.min()) < 0 or int(wanted.max()) >= self._sizes[0]):
            raise MXNetError(
                f"retain: rows {wanted.tolist()[:10]} were asked for; the array has {self._sizes[0]} rows"
            )
        return self._made(rows_of(self, wanted), (wanted,), self._sizes, self._ctx)

    def check_format(self, full_check: bool = True) -> None:
        """Raise MXNetError if rows and their numbers do not match, or (``full_check``) are not in order."""
        (rows,) = self._places
        if tuple(self._values.shape) != (len(rows), *self._sizes[1:]):
            raise self._format_error(f"{len(rows)} row numbers for rows of shape {tuple(self._values.shape)}")
        if full_check and len(rows):
            if int(rows.min()) < 0 or int(rows.max()) >= self._sizes[0]:
                raise self._format_error(f"a row number is outside of 0 to {self._sizes[0] - 1}")
            if bool((rows.diff() <= 0).any()):
                raise self._format_error("the row numbers are not in ascending order")


STORAGE_TYPES: dict[str, type[BaseSparseNDArray]] = {"csr": CSRNDArray, "row_sparse": RowSparseNDArray}


def pointers_of(rows: Tensor, count: int) -> Tensor:
    """Row pointers of numbers whose rows are in order."""
    counts = torch.bincount(rows, minlength=count)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def rows_of(array: RowSparseNDArray, wanted: Tensor) -> Tensor:
    """The rows ``wanted`` of a row_sparse array; zeros where they are not stored."""
    (rows,) = array._places
    result = torch.zeros(
        (len(wanted), *array._sizes[1:]), dtype=array._values.dtype, device=array._values.device
    )
    if not len(rows):
        return result
    order = torch.argsort(rows)
    place = torch.searchsorted(rows[order], wanted).clamp(max=len(rows) - 1)
    found = rows[order][place] == wanted
    result[found] = array._values[order[place[found]]]
    return result


def cast_storage(array: Any, stype: str) -> Any:
    """An array in the storage type ``"default"``, ``"csr"`` or ``"row_sparse"``.

    Raises
    ------
    ValueError
        For an unknown type, and from one sparse type to the other.
    """
    if stype != "default" and stype not in STORAGE_TYPES:
        raise ValueError(f"unknown storage type {stype!r}: expected 'default', 'csr' or 'row_sparse'")
    if isinstance(array, BaseSparseNDArray):
        if stype == array.stype:
            return array.copy()
        if stype == "default":
            return array._dense_array().copy()
        raise ValueError(
            f"cast_storage from {array.stype} to {stype} is not supported: use tostype('default') in between"
        )
    if stype == "default":
        return array
    result = STORAGE_TYPES[stype]._wrap(array._value("tostype()"), array._ctx)
    if state.recording and array._g is not None:
        result._leaf = array
    return result


def shown_as(array: NDArray, stype: str) -> Any:
    """A dense array in a storage type: its present values; what is assigned is written to it too."""
    result = cast_storage(array, stype)
    if result is not array:
        result._shown = array
    return result


def _restore(
    cls: type[BaseSparseNDArray], values: Tensor, places: Any, sizes: Any, context: Context | None
) -> Any:
    return cls._made(values, places, sizes, context)


def as_tensor(value: Any, dtype: Any, context: Any) -> Tensor:
    """A tensor of one part of a sparse array; numbers in lists become ``dtype`` or float32."""
    if isinstance(value, NDArray):
        tensor = value._value("making a sparse array")
    elif isinstance(value, Tensor):
        tensor = value.detach()
    else:
        host = numpy.asarray(value)
        if not hasattr(value, "dtype") and dtype is None:
            dtype = torch.float32
        tensor = dtypes.from_numpy(host.copy())
    wanted = tensor.dtype if dtype is None else dtypes.to_torch(dtype)
    return tensor.to(device=device(context).torch, dtype=wanted, copy=True)


def _inplace(name: str) -> Any:
    def method(self: Any, other: Any) -> Any:
        self._assign(arithmetic.apply_binary(name, self, other))
        return self

    method.__name__ = f"__i{name}__"
    return method


arithmetic.install(BaseSparseNDArray, inplace=False)
for _name in ("add", "sub", "mul", "truediv", "mod", "pow"):
    setattr(BaseSparseNDArray, f"__i{_name}__", _inplace(_name))
