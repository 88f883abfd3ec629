"""Linear algebra of the NumPy kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.linalg import column_signs
from regluon.ops.defs.reduce import reduced_axes
from regluon.ops.opdef import Shape, Spec, operator
from regluon.ops.shaping import broadcast_shapes


def _same_type(*tensors: Tensor) -> list[Tensor]:
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def _tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    a, b = _same_type(a, b)
    return torch.tensordot(a, b, axes)  # type: ignore[no-any-return]


def _infer_dot(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    left, right = tuple(specs[0].shape), tuple(specs[1].shape)
    dtype = torch.promote_types(specs[0].dtype, specs[1].dtype)
    if not left or not right:
        return [Spec((*left, *right), dtype)]
    inner = right[-2:][0]
    if left[-1] != inner:
        raise MXNetError(f"dot: shapes {left} and {right} do not fit: the inner sizes must agree")
    return [Spec((*left[:-1], *right[:-2], *right[-1:][len(right) == 1 :]), dtype)]


@operator("_npi_dot", aliases=("_np_dot",), np="dot", infer=_infer_dot, amp="low")
def np_dot(a: Tensor, b: Tensor) -> Tensor:
    """Dot product as in NumPy: last axis of ``a`` with the last but one of ``b``."""
    a, b = _same_type(a, b)
    if a.dim() == 0 or b.dim() == 0:
        return a * b
    if a.dim() == 2 and b.dim() <= 2:
        return torch.matmul(a, b)
    if a.shape[-1] != b.shape[-2 if b.dim() > 1 else -1]:
        raise MXNetError(f"dot: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
    return torch.tensordot(a, b, ([a.dim() - 1], [b.dim() - 2 if b.dim() > 1 else 0]))  # type: ignore[no-any-return]


def _infer_matmul(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    left, right = tuple(specs[0].shape), tuple(specs[1].shape)
    if not left or not right:
        raise MXNetError("matmul: a scalar operand is not allowed; use * instead")
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner:
        raise MXNetError(f"matmul: shapes {left} and {right} do not fit: the inner sizes must agree")
    rows = left[-2:-1]
    columns = right[-1:] if len(right) > 1 else ()
    dtype = torch.promote_types(specs[0].dtype, specs[1].dtype)
    return [Spec((*broadcast_shapes(left[:-2], right[:-2]), *rows, *columns), dtype)]


@operator("_npi_matmul", aliases=("_npx_matmul",), np="matmul", infer=_infer_matmul, amp="low")
def np_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product of the last two axes, the others broadcast."""
    a, b = _same_type(a, b)
    if a.dim() == 0 or b.dim() == 0:
        raise MXNetError("matmul: a scalar operand is not allowed; use * instead")
    try:
        return torch.matmul(a, b)
    except RuntimeError as error:
        raise MXNetError(
            f"matmul: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit: the inner sizes must agree"
        ) from error


@operator("_npi_tensordot_int_axes", amp="low")
def tensordot_int_axes(a: Tensor, b: Tensor, *, axes: int) -> Tensor:
    """Sum over the last ``axes`` axes of ``a`` and the first of ``b``."""
    return _tensordot(a, b, axes)


@operator("_npi_tensordot", amp="low")
def tensordot(a: Tensor, b: Tensor, *, a_axes_summed: Shape, b_axes_summed: Shape) -> Tensor:
    """Sum over the named axes of both arrays."""
    return _tensordot(a, b, (list(a_axes_summed), list(b_axes_summed)))


@operator("_npi_einsum", num_args_key="num_args", amp="low")
def einsum(*data: Tensor, num_args: int = 0, subscripts: str = "", optimize: int = 0) -> Tensor:
    """Einstein summation; the result has the type that the operands promote to."""
    operands = _same_type(*data)
    kind = operands[0].dtype
    if kind is torch.bool:
        operands = [operand.to(torch.int32) for operand in operands]
    return torch.einsum(subscripts, *operands).to(kind)


@operator("_npi_kron", amp="widest", np="kron")
def kron(a: Tensor, b: Tensor) -> Tensor:
    """Kronecker product."""
    return torch.kron(*_same_type(a, b))


def _as_float(A: Tensor) -> Tensor:
    """Integers as float64, as in NumPy."""
    return A if A.is_floating_point() else A.to(torch.float64)


@operator("_npi_cholesky", amp="float32", np="linalg.cholesky")
def cholesky(A: Tensor, *, lower: bool = True) -> Tensor:
    """The lower (or upper) Cholesky factor of positive definite matrices."""
    factor = torch.linalg.cholesky(_as_float(A))
    return factor if lower else factor.mT  # type: ignore[no-any-return]


@operator("_npi_solve", amp="float32", np="linalg.solve")
def solve(A: Tensor, B: Tensor) -> Tensor:
    """Solve ``A x = B``."""
    return torch.linalg.solve(*map(_as_float, _same_type(A, B)))  # type: ignore[no-any-return]


@operator("_npi_svd", amp="float32", np="linalg.svd", outputs=3)
def svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular values: ``A = U diag(L) V``, with orthonormal rows of V, their largest entry positive."""
    left, values, right = torch.linalg.svd(_as_float(A), full_matrices=False)
    signs = column_signs(right.mT)
    return left * signs, values, right * signs.mT


@operator("_npi_eigh", amp="float32", np="linalg.eigh", outputs=2)
def eigh(A: Tensor, *, UPLO: str = "L") -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors (columns, their largest entry positive) of symmetric matrices."""
    values, vectors = torch.linalg.eigh(_as_float(A), UPLO)
    return values, vectors * column_signs(vectors)


@operator("_npi_eigvalsh", amp="float32", np="linalg.eigvalsh")
def eigvalsh(A: Tensor, *, UPLO: str = "L") -> Tensor:
    """Eigenvalues of symmetric matrices."""
    return torch.linalg.eigvalsh(_as_float(A), UPLO)  # type: ignore[no-any-return]


@operator("_npi_qr", amp="float32", np="linalg.qr", outputs=2)
def qr(A: Tensor) -> tuple[Tensor, Tensor]:
    """``A = Q R`` with orthonormal columns of Q."""
    q, r = torch.linalg.qr(_as_float(A))
    return q, r


@operator("_npi_pinv_scalar_rcond", amp="float32")
def pinv(A: Tensor, *, rcond: float = 1e-15, hermitian: bool = False) -> Tensor:
    """The Moore-Penrose inverse."""
    return torch.linalg.pinv(A, rtol=rcond, hermitian=hermitian)  # type: ignore[no-any-return]


@operator("_npi_pinv", amp="float32")
def pinv_array(A: Tensor, rcond: Tensor, *, hermitian: bool = False) -> Tensor:
    """The Moore-Penrose inverse, with a cutoff for each matrix, as a part of its largest singular value."""
    return torch.linalg.pinv(A, rtol=rcond.to(A.dtype), hermitian=hermitian)  # type: ignore[no-any-return]


def _real(found: Tensor, name: str) -> Tensor:
    """The real part; MXNetError for matrices with complex eigenvalues, which no dtype here can hold."""
    if not found.is_meta and bool((found.imag != 0).any()):
        raise MXNetError(f"{name}: the matrix has complex eigenvalues, and there are no complex arrays")
    return found.real.contiguous()


@operator("_npi_eig", amp="float32", outputs=2)
def eig(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors (columns of length 1) of square matrices; integers give float64."""
    values, vectors = torch.linalg.eig(_as_float(A))
    return _real(values, "eig"), vectors.real.contiguous()


@operator("_npi_eigvals", amp="float32")
def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues of square matrices; integers give float64."""
    return _real(torch.linalg.eigvals(_as_float(A)), "eigvals")


_ELEMENTS, _FROBENIUS, _NUCLEAR = -2, 1, 2


@operator("_npi_norm", amp="float32")
def np_norm(
    data: Tensor, *, ord: float = 2.0, axis: Shape | None = None, keepdims: bool = False, flag: int = 0
) -> Tensor:
    """The norm over axes: of vectors for one axis, of matrices for two; all axes by default.

    ``flag`` 1 is the Frobenius norm, 2 the nuclear norm, -2 the length of all elements as one vector; with
    any other ``ord`` counts.
    Raises MXNetError for an order that there is not, and for more than two axes.
    """
    values = data if data.is_floating_point() else data.to(torch.float32)
    axes = list(reduced_axes(data.dim(), axis, False, "norm"))
    if flag in (_ELEMENTS, _FROBENIUS):
        return torch.linalg.vector_norm(values, 2, axes, keepdims)  # type: ignore[no-any-return]
    if flag == _NUCLEAR and len(axes) == 2:
        return _of_singular_values(values, axes, keepdims, lambda found: found.sum(-1))
    if flag == _NUCLEAR or len(axes) not in (1, 2):
        raise MXNetError(
            f"norm: expected one axis or two{' for the nuclear norm' if flag == _NUCLEAR else ''}, received "
            f"axis={axis} for an array of {data.dim()} dimension(s)"
        )
    if len(axes) == 1:
        return torch.linalg.vector_norm(values, ord, axes, keepdims)  # type: ignore[no-any-return]
    if ord in (2, -2):
        return _of_singular_values(
            values, axes, keepdims, lambda found: found.amax(-1) if ord == 2 else found.amin(-1)
        )
    if ord not in (1, -1, math.inf, -math.inf):
        raise MXNetError(f"norm: order of a matrix is fro, nuc, 1, -1, 2, -2, inf, -inf; received {ord}")
    return torch.linalg.matrix_norm(values, ord, axes, keepdims)  # type: ignore[no-any-return]


def _of_singular_values(
    data: Tensor, axes: list[int], keepdims: bool, reduce: Callable[[Tensor], Tensor]
) -> Tensor:
    matrices = data.movedim(axes, (-2, -1))
    work = matrices.to(torch.float32) if matrices.dtype in (torch.float16, torch.bfloat16) else matrices
    result = reduce(torch.linalg.svdvals(work)).to(data.dtype)
    if keepdims:
        for place in sorted(axes):
            result = result.unsqueeze(place)
    return result


def _side(shape: Sequence[int], split: int, name: str) -> int:
    """The number of rows of a tensor read as a square matrix, whose rows are the first ``split`` axes."""
    rows, columns = math.prod(shape[:split]), math.prod(shape[split:])
    if rows != columns:
        raise MXNetError(
            f"{name}: expected as many elements in the first {split} axes as in the others, received "
            f"{rows} and {columns} for shape {tuple(shape)}"
        )
    return rows


@operator("_npi_tensorinv", amp="float32")
def tensorinv(a: Tensor, *, ind: int = 2) -> Tensor:
    """The inverse of ``a`` for tensordot over ``ind`` axes; its first ``ind`` axes are a matrix's rows."""
    if not 0 < ind < max(a.dim(), 1):
        raise MXNetError(f"tensorinv: expected ind from 1 to {a.dim() - 1}, received {ind}")
    side = _side(a.shape, ind, "tensorinv")
    return torch.linalg.inv(a.reshape(side, side)).reshape(*a.shape[ind:], *a.shape[:ind])  # type: ignore[no-any-return]


@operator("_npi_tensorsolve", amp="float32")
def tensorsolve(a: Tensor, b: Tensor, *, a_axes: Shape | None = ()) -> Tensor:
    """The x with ``tensordot(a, x, x.ndim) == b``; ``a_axes`` are moved to the end of ``a`` first."""
    a, b = _same_type(a, b)
    moved = reduced_axes(a.dim(), a_axes, False, "tensorsolve") if a_axes else ()
    order = [place for place in range(a.dim()) if place not in moved]
    a = a.permute(*order, *moved)
    side = _side(a.shape, b.dim(), "tensorsolve")
    if side != b.numel():
        raise MXNetError(f"tensorsolve: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
    found = torch.linalg.solve(a.reshape(side, side), b.reshape(side, 1))
    return found.reshape(a.shape[b.dim() :])  # type: ignore[no-any-return]


@operator("_npi_lstsq", amp="float32", outputs=4, dynamic=True, gradient="zero")
def lstsq(
    A: Tensor,
    B: Tensor,
    *,
    rcond: float = -1.0,
    finfoEps32: float = 0.0,
    finfoEps64: float = 0.0,
    new_default: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Least squares: the shortest x with the least ``|A x - B|``, the squared residuals, the rank of A and
    its singular values.

    Singular values below ``rcond`` times the largest count as 0. A negative ``rcond`` is the precision of the
    type, ``new_default`` that times the larger side of A. There are residuals where A has more rows than
    columns and full rank.
    """
    if A.dim() != 2 or B.dim() not in (1, 2) or A.shape[0] != B.shape[0]:
        raise MXNetError(
            "lstsq: expected a matrix and a vector or matrix of as many rows, received shapes "
            f"{tuple(A.shape)} and {tuple(B.shape)}"
        )
    A, B = _same_type(A, B)
    if not A.is_floating_point():
        raise MXNetError(f"lstsq: expected float32 or float64 arrays, received {str(A.dtype)[6:]}")
    rows, columns = A.shape
    precision = torch.finfo(A.dtype).eps
    cutoff = precision * max(rows, columns) if new_default else (precision if rcond < 0 else rcond)
    left, values, right = torch.linalg.svd(_as_float(A), full_matrices=False)
    kept = values > cutoff * values[:1]
    rank = kept.sum()
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1), 0)
    sides = B.reshape(rows, -1)
    found = right.mT @ (inverse[:, None] * (left.mT @ sides))
    full = rows > columns and int(rank) == columns
    residuals = (A @ found - sides).square().sum(0) if full else A.new_zeros(0)
    return found.reshape(columns, *B.shape[1:]), residuals, rank, values


def _rank(M: Tensor, tolerance: Tensor | None, hermitian: bool) -> Tensor:
    """How many singular values exceed the tolerance, by default one relative to the largest of them."""
    M = _as_float(M)
    if M.dim() < 2:
        return (M != 0).any().to(torch.int64)
    values = torch.linalg.eigvalsh(M).abs() if hermitian else torch.linalg.svdvals(M)
    if tolerance is None:
        largest = values.amax(-1, keepdim=True)
        limit = largest * (max(M.shape[-2:]) * torch.finfo(M.dtype).eps)
    else:
        limit = tolerance.to(values.dtype).unsqueeze(-1)
    return (values > limit).sum(-1)  # type: ignore[no-any-return]


@operator("_npi_matrix_rank", amp="float32", gradient="zero")
def matrix_rank(M: Tensor, tol: Tensor, *, hermitian: bool = False) -> Tensor:
    """The rank of matrices, as int64: how many singular values exceed ``tol``, one for each matrix."""
    return _rank(M, tol, hermitian)


@operator("_npi_matrix_rank_none_tol", amp="float32", gradient="zero")
def matrix_rank_default(
    M: Tensor, *, finfoEps32: float = 0.0, finfoEps64: float = 0.0, hermitian: bool = False
) -> Tensor:
    """The rank of matrices, as int64: singular values up to the rounding error of the largest count as 0."""
    return _rank(M, None, hermitian)


@operator("_npi_cross", amp="widest")
def cross(a: Tensor, b: Tensor, *, axisa: int = -1, axisb: int = -1, axisc: int = -1) -> Tensor:
    """The cross product of vectors of 2 or 3 elements along ``axisa`` and ``axisb``.

    The result has its vectors along ``axisc``; two vectors of 2 elements give a number, the third element.
    """
    a, b = _same_type(a, b)
    first, second = a.movedim(axisa, -1), b.movedim(axisb, -1)
    if not {first.shape[-1], second.shape[-1]} <= {2, 3}:
        raise MXNetError(
            f"cross: expected vectors of 2 or 3 elements, received {first.shape[-1]} and {second.shape[-1]}"
        )
    if first.shape[-1] == second.shape[-1] == 2:
        return first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
    return torch.linalg.cross(_in_space(first), _in_space(second), dim=-1).movedim(-1, axisc)  # type: ignore[no-any-return]


def _in_space(vectors: Tensor) -> Tensor:
    """Vectors of 2 elements with a 0 after them."""
    if vectors.shape[-1] == 3:
        return vectors
    return torch.cat((vectors, torch.zeros_like(vectors[..., :1])), -1)
