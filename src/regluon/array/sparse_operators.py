"""What operators do with sparse arrays: where the storage type is kept, and dense arrays everywhere else.

`runtime.invoke` comes here when an input is sparse. A handler keeps the storage type for the operators and
inputs for which MXNet 1.9.1 keeps it; for all others the inputs become dense, which is said once on the log
unless ``MXNET_STORAGE_FALLBACK_LOG_VERBOSE=0``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base.errors import MXNetError
from ..ops.opdef import OpDef, run
from ..runtime.handles import kinds
from ..runtime.invoke import invoke
from ..runtime.state import state
from . import graph_operators
from .ndarray import NDArray
from .sparse import (
    BaseSparseNDArray,
    CSRNDArray,
    RowSparseNDArray,
    cast_storage,
    pointers_of,
    rows_of,
)

__all__ = ["dispatch"]

Tensor = torch.Tensor
Handler = Callable[[OpDef, Sequence[Any], dict[str, Any]], Any]

# Operators of one array that map 0 to 0 and keep the storage type.
_KEEP = frozenset(
    "abs arcsin arcsinh arctan arctanh cbrt ceil degrees expm1 fix floor log1p negative radians relu rint "
    "round sign sin sinh sqrt square tan tanh trunc _copy BlockGrad make_loss _mul_scalar _div_scalar "
    "_scatter_plus_scalar _scatter_minus_scalar".split()
)
# The same where this value of the attributes maps 0 to 0.
_KEEP_IF_ZERO = frozenset(
    "clip _equal_scalar _not_equal_scalar _greater_scalar _greater_equal_scalar _lesser_scalar "
    "_lesser_equal_scalar".split()
)
# Dense results of these are what MXNet computes too: nothing to say.
_SILENT = frozenset(
    "sum mean norm where Embedding FullyConnected dot elemwise_add elemwise_sub broadcast_add broadcast_sub "
    "_square_sum add_n _plus_scalar _minus_scalar _rminus_scalar".split()
)


def dispatch(
    definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any], out: Any, cls: Any, name: str | None
) -> Any:
    """Run an operator of which an input is sparse."""
    full = definition.parse(attrs)
    arrays = [value.detach() if isinstance(value, Tensor) else value for value in arrays]
    if state.tracer is None and not (state.recording and _needs_gradient(arrays)):
        handler = _HANDLERS.get(definition.name, _elementwise)
        result = handler(definition, arrays, full)
        if result is not None:
            return _written(result, out)
        _say_fallback(definition, arrays)
    elif state.tracer is None and definition.name == "dot":
        result = _recorded_dot(arrays, full)
        if result is not None:
            return _written(result, out)
    dense = [value._dense_array() if isinstance(value, BaseSparseNDArray) else value for value in arrays]
    written = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    target = None if isinstance(written, BaseSparseNDArray) else out
    result = invoke(definition, dense, attrs, target, name, cls)
    for key, value, copied in zip(definition.inputs, arrays, dense, strict=False):
        if key in definition.mutates and isinstance(value, BaseSparseNDArray):
            value._assign(copied._t)
    if isinstance(written, BaseSparseNDArray):
        written._assign(result)
        return out
    return result


def _written(result: Any, out: Any) -> Any:
    if out is None:
        return result
    target = out[0] if isinstance(out, (list, tuple)) else out
    if isinstance(target, BaseSparseNDArray):
        target._assign(result if type(result) is type(target) else result._t)
    else:
        target._assign_result(cast_storage(result, "default"))
    return out


def _needs_gradient(arrays: Sequence[Any]) -> bool:
    for array in arrays:
        if isinstance(array, BaseSparseNDArray):
            if array._leaf is not None:
                return True
        elif isinstance(array, NDArray) and array._g is not None:
            return True
    return False


_said: set[tuple[Any, ...]] = set()


def _say_fallback(definition: OpDef, arrays: Sequence[Any]) -> None:
    kind = [getattr(array, "stype", "default") for array in arrays]
    key = (definition.name, *kind)
    if definition.name in _SILENT or key in _said:
        return
    _said.add(key)
    if os.environ.get("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "1") == "0":
        return
    logging.getLogger("regluon").warning(
        "Storage type fallback: operator %s knows dense arrays only, so its inputs of storage types %s are "
        "converted. The result is right, but time and memory are those of dense arrays. "
        "MXNET_STORAGE_FALLBACK_LOG_VERBOSE=0 silences this message.",
        definition.name,
        ", ".join(kind),
    )


def _run(definition: OpDef, tensors: Sequence[Tensor], attrs: dict[str, Any]) -> Tensor:
    result = run(definition, list(tensors), attrs, state.training, None)
    return result[0] if isinstance(result, (tuple, list)) else result  # type: ignore[no-any-return]


def _elementwise(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """An operator on the stored numbers alone."""
    if len(arrays) != 1:
        return None
    (array,) = arrays
    if definition.name in _KEEP_IF_ZERO:
        zero = torch.zeros(1, dtype=array._values.dtype)
        if bool(_run(definition, [zero], attrs)[0] != 0):
            return None
    elif definition.name not in _KEEP:
        return None
    return array._with_values(_run(definition, [array._values], attrs).clone())


# Two arrays ------------------------------------------------------------------------------------


def _same_type(arrays: Sequence[Any]) -> bool:
    first = arrays[0]
    return isinstance(first, BaseSparseNDArray) and all(
        type(one) is type(first) and one._sizes == first._sizes for one in arrays
    )


def _same_dtype(definition: OpDef, arrays: Sequence[Any]) -> None:
    kinds_found = {array._torch_dtype() for array in arrays}
    if len(kinds_found) > 1:
        raise MXNetError(
            f"{definition.name}: arrays of one data type were expected; received "
            f"{', '.join(sorted(str(kind)[6:] for kind in kinds_found))}. Convert one with astype()"
        )


def _add(sign: int) -> Handler:
    def handler(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        if not _same_type(arrays):
            return None
        _same_dtype(definition, arrays)
        return _sum_of([(array, 1 if place == 0 else sign) for place, array in enumerate(arrays)])

    return handler


def _sum_of(terms: Sequence[tuple[Any, int]]) -> Any:
    first = terms[0][0]
    values = torch.cat([array._values * sign if sign != 1 else array._values for array, sign in terms])
    if isinstance(first, CSRNDArray):
        rows = torch.cat([array._rows() for array, _ in terms])
        columns = torch.cat([array._places[1] for array, _ in terms])
        return CSRNDArray._from_places(rows, columns, values, first._sizes, first._ctx)
    rows, inverse = torch.unique(torch.cat([array._places[0] for array, _ in terms]), return_inverse=True)
    merged = values.new_zeros((len(rows), *first._sizes[1:])).index_add_(0, inverse, values)
    return RowSparseNDArray._made(merged, (rows,), first._sizes, first._ctx)


def _add_n(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    if not isinstance(arrays[0], RowSparseNDArray) or not _same_type(arrays):
        return None
    _same_dtype(definition, arrays)
    return _sum_of([(array, 1) for array in arrays])


def _multiply(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    left, right = arrays
    if isinstance(left, BaseSparseNDArray) and _same_type(arrays):
        _same_dtype(definition, arrays)
        if isinstance(left, RowSparseNDArray):
            rows = torch.unique(torch.cat([left._places[0], right._places[0]]))
            return RowSparseNDArray._made(
                rows_of(left, rows) * rows_of(right, rows), (rows,), left._sizes, left._ctx
            )
        return _shared_places(left, right)
    if not isinstance(left, BaseSparseNDArray):
        if definition.name == "broadcast_mul":
            return None
        left, right = right, left
    return _with_dense(definition, left, right)


def _shared_places(left: Any, right: Any) -> CSRNDArray:
    """The product of two matrices, stored where both are."""
    width = left._sizes[1]
    left_places = left._rows() * width + left._places[1]
    right_places = right._rows() * width + right._places[1]
    order = torch.argsort(right_places)
    if not len(order):
        return CSRNDArray._wrap(left._values.new_zeros(left._sizes), left._ctx)  # type: ignore[no-any-return]
    place = torch.searchsorted(right_places[order], left_places).clamp(max=len(order) - 1)
    found = right_places[order][place] == left_places
    values = left._values[found] * right._values[order[place[found]]]
    rows = left._rows()[found]
    places = (pointers_of(rows, left._sizes[0]), left._places[1][found])
    return CSRNDArray._made(values, places, left._sizes, left._ctx)  # type: ignore[no-any-return]


def _with_dense(definition: OpDef, left: Any, right: Any) -> Any:
    """A sparse array times or by a dense one: of the stored numbers only."""
    if not isinstance(right, NDArray) or isinstance(right, BaseSparseNDArray):
        return None
    other = right._t
    if left._torch_dtype() is not other.dtype or other.dim() != len(left._sizes):
        return None
    if isinstance(left, CSRNDArray):
        try:
            other = other.expand(left._sizes)
        except RuntimeError:
            return None
        other = other[left._rows(), left._places[1]]
    else:
        if tuple(other.shape) != left._sizes:
            return None
        other = other[left._places[0]]
    divides = "div" in definition.name
    return left._with_values(left._values / other if divides else left._values * other)


def _divide(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    left, right = arrays
    sparse = isinstance(left, CSRNDArray) or definition.name == "_scatter_elemwise_div"
    if not isinstance(left, BaseSparseNDArray) or not sparse or not left._values.dtype.is_floating_point:
        return None
    if definition.name == "broadcast_div" and right.shape == left._sizes:
        return None  # 0 / 0 is not 0
    return _with_dense(definition, left, right)


# Products ----------------------------------------------------------------------------------------


def _times_dense(matrix: CSRNDArray, transposed: bool, dense: Tensor) -> Tensor:
    """The product of a matrix (or its transpose) and a dense one; differentiable in the latter."""
    rows, columns = matrix._rows(), matrix._places[1]
    if transposed:
        rows, columns = columns, rows
    count = matrix._sizes[1 if transposed else 0]
    sizes = (count, matrix._sizes[0 if transposed else 1])
    if dense.dtype in (torch.float32, torch.float64):
        places = torch.stack([rows, columns])
        sparse = torch.sparse_coo_tensor(places, matrix._values, sizes, check_invariants=False)
        return torch.sparse.mm(sparse, dense)
    part = matrix._values.unsqueeze(1) * dense[columns]
    return torch.zeros((count, dense.shape[1]), dtype=part.dtype, device=part.device).index_add(0, rows, part)


def _checked(matrix: CSRNDArray, transposed: bool, dense: Tensor, rows: int) -> None:
    width = matrix._sizes[0 if transposed else 1]
    if rows != width:
        raise MXNetError(
            f"dot: the sizes do not match: {matrix._sizes}{'^T' if transposed else ''} and "
            f"{tuple(dense.shape)}"
        )
    if dense.dtype is not matrix._values.dtype:
        raise MXNetError(
            f"dot: arrays of one data type were expected; received {matrix._values.dtype} and {dense.dtype}. "
            "Convert one with astype()"
        )


def _product(arrays: Sequence[Any], attrs: dict[str, Any], dense: Tensor) -> Tensor | None:
    """The dense product of two arrays of which one is a csr matrix; None where that is not written here."""
    left, right = arrays
    if dense.dim() != 2:
        return None
    if isinstance(left, CSRNDArray):
        if attrs["transpose_b"]:
            dense = dense.T
        _checked(left, attrs["transpose_a"], dense, dense.shape[0])
        return _times_dense(left, attrs["transpose_a"], dense)
    if not isinstance(right, CSRNDArray) or attrs["transpose_a"]:
        return None
    _checked(right, not attrs["transpose_b"], dense, dense.shape[1])
    return _times_dense(right, not attrs["transpose_b"], dense.T).T


def _dot(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    left, right = arrays
    other = right if isinstance(left, CSRNDArray) else left
    if isinstance(other, CSRNDArray):
        return None
    product = _product(arrays, attrs, other._t)
    if product is None:
        return None
    context = left._ctx if left._ctx is not None else right._ctx
    if isinstance(left, CSRNDArray):
        natural = "row_sparse" if attrs["transpose_a"] else "default"
    else:
        natural = "csr"
    wanted = attrs.get("forward_stype") or natural
    if wanted == "row_sparse" and isinstance(left, CSRNDArray):
        # The rows of the result that can be other than zero are the columns in use.
        rows = torch.unique(left._places[1])
        return RowSparseNDArray._made(product[rows], (rows,), product.shape, context)
    return cast_storage(NDArray._wrap(product.contiguous(), context), wanted)


def _recorded_dot(arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The product of a constant csr matrix and a dense array whose gradient is wanted."""
    left, right = arrays
    matrix, other = (left, right) if isinstance(left, CSRNDArray) else (right, left)
    if not isinstance(matrix, CSRNDArray) or matrix._leaf is not None or isinstance(other, BaseSparseNDArray):
        return None
    handle = other._g
    if handle is None or handle.dtype is not other._t.dtype:
        return None
    with torch.enable_grad():
        product = _product(arrays, attrs, handle)
    if product is None:
        return None
    result = NDArray._wrap(product, other._ctx)
    result._g = product if product.requires_grad else None
    return result


# Other operators -----------------------------------------------------------------------------------


def _reduce(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Sums and means of a csr matrix over one axis, without the dense matrix."""
    (array,) = arrays
    axes = attrs.get("axis")
    axes = (axes,) if isinstance(axes, int) else axes
    if not isinstance(array, CSRNDArray) or axes is None or len(axes) != 1 or attrs.get("exclude"):
        return None
    if not array._values.dtype.is_floating_point:
        return None
    axis = axes[0] % 2
    places = array._places[1] if axis == 0 else array._rows()
    total = torch.zeros(array._sizes[1 - axis], dtype=array._values.dtype, device=array._values.device)
    total.index_add_(0, places, array._values)
    if definition.name == "mean":
        total /= array._sizes[axis]
    return NDArray._wrap(total.unsqueeze(axis) if attrs.get("keepdims") else total, array._ctx)


def _square_sum(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    (array,) = arrays
    if (
        not isinstance(array, RowSparseNDArray)
        or tuple(attrs.get("axis") or ()) != (1,)
        or len(array._sizes) != 2
    ):
        return None
    sums = array._values.square().sum(1, keepdim=True)
    if attrs.get("keepdims"):
        return RowSparseNDArray._made(sums, array._places, (array._sizes[0], 1), array._ctx)
    dense = sums.new_zeros(array._sizes[0])
    dense[array._places[0]] = sums[:, 0]
    return NDArray._wrap(dense, array._ctx)


def _zeros_like(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    (array,) = arrays
    values, places = array._values[:0].clone(), [place[:0].clone() for place in array._places]
    if isinstance(array, CSRNDArray):
        places[0] = torch.zeros_like(array._places[0])
    return array._made(values, places, array._sizes, array._ctx)


def _slice(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    (array,) = arrays
    step = attrs.get("step") or ()
    if not isinstance(array, CSRNDArray) or any(one not in (None, 1) for one in step):
        return None
    ends = list(zip(attrs["begin"], attrs["end"], strict=True))
    bounds = [slice(*pair).indices(size)[:2] for pair, size in zip(ends, array._sizes, strict=False)]
    part = array._row_range(bounds[0][0], max(bounds[0]))
    if len(bounds) < 2:
        return part
    begin, end = bounds[1][0], max(bounds[1])
    columns = part._places[1]
    inside = (columns >= begin) & (columns < end)
    places = (pointers_of(part._rows()[inside], part._sizes[0]), columns[inside] - begin)
    return CSRNDArray._made(part._values[inside], places, (part._sizes[0], end - begin), array._ctx)


def _concat(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    if attrs.get("dim") != 0 or not all(isinstance(array, CSRNDArray) for array in arrays):
        return None
    first = arrays[0]
    if len({array._sizes[1] for array in arrays}) > 1:
        return None
    _same_dtype(definition, arrays)
    counts = torch.cat([array._places[0].diff() for array in arrays])
    places = (
        torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        torch.cat([array._places[1] for array in arrays]),
    )
    sizes = (sum(array._sizes[0] for array in arrays), first._sizes[1])
    return CSRNDArray._made(torch.cat([array._values for array in arrays]), places, sizes, first._ctx)


def _retain(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    array, indices = arrays
    return array.retain(indices) if isinstance(array, RowSparseNDArray) else None


def _cast_storage(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    return cast_storage(arrays[0], attrs["stype"])


def _update(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """An optimizer's update with a row_sparse gradient: only of the rows that the gradient has."""
    gradient = arrays[1]
    others = [array for place, array in enumerate(arrays) if place != 1]
    if not isinstance(gradient, RowSparseNDArray) or attrs.get("lazy_update", True) is False:
        return None
    if any(isinstance(array, BaseSparseNDArray) for array in others):
        return None
    (rows,) = gradient._places
    parts = [NDArray._wrap(array._t[rows], array._ctx) for array in others]
    inputs = [parts[0], NDArray._wrap(gradient._values, gradient._ctx), *parts[1:]]
    own = {key: value for key, value in attrs.items() if key != "lazy_update"}
    updated = invoke(definition, inputs, own)
    for array, part in zip(others[1:], parts[1:], strict=True):
        array._t[rows] = part._t
    result = others[0]._t.clone()
    result[rows] = (updated[0] if isinstance(updated, list) else updated)._t
    return NDArray._wrap(result, others[0]._ctx)


def _custom(definition: Any, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """An operator written in Python, which says itself what storage types it takes."""
    return definition.run_stored(arrays, cast_storage)


_HANDLERS: dict[str, Handler] = {
    "Custom": _custom,
    "elemwise_add": _add(1),
    "broadcast_add": _add(1),
    "elemwise_sub": _add(-1),
    "broadcast_sub": _add(-1),
    "add_n": _add_n,
    "elemwise_mul": _multiply,
    "broadcast_mul": _multiply,
    "broadcast_div": _divide,
    "_scatter_elemwise_div": _divide,
    "dot": _dot,
    "sum": _reduce,
    "mean": _reduce,
    "_square_sum": _square_sum,
    "zeros_like": _zeros_like,
    "slice": _slice,
    "Concat": _concat,
    "_sparse_retain": _retain,
    "cast_storage": _cast_storage,
    "sgd_update": _update,
    "sgd_mom_update": _update,
    "adam_update": _update,
    "ftrl_update": _update,
    "_sparse_adagrad_update": _update,
    **graph_operators.HANDLERS,
}

kinds.sparse = BaseSparseNDArray
kinds.sparse_dispatch = dispatch
