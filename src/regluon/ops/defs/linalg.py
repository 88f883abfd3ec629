"""Products of matrices and arrays: dot, batch_dot, and the linalg operators of the 1.x kind."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import Spec, operator

Storage = Literal["default", "row_sparse", "csr"]


def _dot_shapes(lhs: Any, rhs: Any, a: bool, b: bool) -> tuple[Any, Any]:
    left = tuple(reversed(lhs)) if a and len(lhs) == 2 else (lhs[1:] + lhs[:1] if a else lhs)
    right = tuple(reversed(rhs)) if b and len(rhs) == 2 else (rhs[-1:] + rhs[:-1] if b else rhs)
    return left, right


def _infer_dot(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    left, right = _dot_shapes(
        tuple(specs[0].shape), tuple(specs[1].shape), attrs["transpose_a"], attrs["transpose_b"]
    )
    if not left or not right:
        raise MXNetError("dot: both arrays need at least one dimension")
    if left[-1] != right[0]:
        raise MXNetError(f"dot: shapes {left} and {right} do not fit: the inner sizes differ")
    return [Spec((*left[:-1], *right[1:]) or (1,), specs[0].dtype)]


@operator("dot", aliases=("_sparse_dot",), infer=_infer_dot, amp="low")
def dot(
    lhs: Tensor,
    rhs: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: Storage | None = None,
) -> Tensor:
    """Sum over the last axis of ``lhs`` and the first of ``rhs``."""
    if lhs.dim() == 2 and rhs.dim() == 2:
        try:
            return torch.mm(lhs.t() if transpose_a else lhs, rhs.t() if transpose_b else rhs)
        except RuntimeError as error:
            raise MXNetError(
                f"dot: shapes {tuple(lhs.shape)} and {tuple(rhs.shape)} do not fit "
                f"(transpose_a={transpose_a}, transpose_b={transpose_b})"
            ) from error
    if lhs.dim() == 0 or rhs.dim() == 0:
        raise MXNetError("dot: both arrays need at least one dimension")
    left = lhs.movedim(0, -1) if transpose_a and lhs.dim() > 1 else lhs
    right = rhs.movedim(-1, 0) if transpose_b and rhs.dim() > 1 else rhs
    if left.shape[-1] != right.shape[0]:
        raise MXNetError(f"dot: shapes {tuple(left.shape)} and {tuple(right.shape)} do not fit")
    result = torch.tensordot(left, right, 1)
    return result.reshape(1) if result.dim() == 0 else result  # type: ignore[no-any-return]


def _infer_batch_dot(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    left, right = tuple(specs[0].shape), tuple(specs[1].shape)
    rows, inner = (left[-1], left[-2]) if attrs["transpose_a"] else (left[-2], left[-1])
    other, columns = (right[-1], right[-2]) if attrs["transpose_b"] else (right[-2], right[-1])
    if left[:-2] != right[:-2] or inner != other:
        raise MXNetError(f"batch_dot: shapes {left} and {right} do not fit")
    return [Spec((*left[:-2], rows, columns), specs[0].dtype)]


@operator("batch_dot", aliases=("_npx_batch_dot",), npx="batch_dot", infer=_infer_batch_dot, amp="low")
def batch_dot(
    lhs: Tensor,
    rhs: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: Storage | None = None,
) -> Tensor:
    """Matrix products of the last two axes, for every index of the others."""
    if lhs.shape[:-2] != rhs.shape[:-2]:
        raise MXNetError(f"batch_dot: shapes {tuple(lhs.shape)} and {tuple(rhs.shape)} do not fit")
    return torch.matmul(lhs.mT if transpose_a else lhs, rhs.mT if transpose_b else rhs)


@operator("_linalg_gemm2", aliases=("linalg_gemm2",), amp="low")
def gemm2(
    A: Tensor,
    B: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    axis: int = -2,
) -> Tensor:
    """``alpha * op(A) op(B)`` of the matrices in the last two axes."""
    if axis != -2:
        A, B = A.movedim(axis, -2), B.movedim(axis, -2)
    result = torch.matmul(A.mT if transpose_a else A, B.mT if transpose_b else B)
    result = result if alpha == 1.0 else result * alpha
    return result if axis == -2 else result.movedim(-2, axis)


@operator("_linalg_gemm", aliases=("linalg_gemm",), amp="low")
def gemm(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
    axis: int = -2,
) -> Tensor:
    """``alpha * op(A) op(B) + beta * C`` of the matrices in the last two axes."""
    product = gemm2(A, B, transpose_a=transpose_a, transpose_b=transpose_b, alpha=alpha, axis=axis)
    return product + beta * C  # type: ignore[no-any-return]


@operator("_linalg_syrk", amp="float32", aliases=("linalg_syrk",))
def syrk(A: Tensor, *, transpose: bool = False, alpha: float = 1.0) -> Tensor:
    """``alpha * A A^T`` (or ``A^T A``)."""
    return alpha * (torch.matmul(A.mT, A) if transpose else torch.matmul(A, A.mT))


@operator("_linalg_potrf", amp="float32", aliases=("linalg_potrf",))
def potrf(A: Tensor) -> Tensor:
    """The lower Cholesky factor."""
    return torch.linalg.cholesky(A)  # type: ignore[no-any-return]


@operator("_linalg_potri", amp="float32", aliases=("linalg_potri",))
def potri(A: Tensor) -> Tensor:
    """The inverse of ``A A^T`` from its Cholesky factor A."""
    inverse = torch.linalg.inv(torch.tril(A))
    return torch.matmul(inverse.mT, inverse)


@operator("_linalg_trsm", amp="float32", aliases=("linalg_trsm",))
def trsm(
    A: Tensor,
    B: Tensor,
    *,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
) -> Tensor:
    """Solve ``op(A) X = alpha B`` (or ``X op(A) = alpha B``) with a triangular A."""
    factor = torch.tril(A) if lower else torch.triu(A)
    upper = not lower
    if transpose:
        factor, upper = factor.mT, not upper
    return torch.linalg.solve_triangular(factor, alpha * B, upper=upper, left=not rightside)  # type: ignore[no-any-return]


@operator("_linalg_trmm", amp="float32", aliases=("linalg_trmm",))
def trmm(
    A: Tensor,
    B: Tensor,
    *,
    transpose: bool = False,
    rightside: bool = False,
    lower: bool = True,
    alpha: float = 1.0,
) -> Tensor:
    """``alpha * op(A) B`` (or ``B op(A)``) with a triangular A."""
    factor = torch.tril(A) if lower else torch.triu(A)
    factor = factor.mT if transpose else factor
    return alpha * (torch.matmul(B, factor) if rightside else torch.matmul(factor, B))


@operator("_linalg_sumlogdiag", amp="float32", aliases=("linalg_sumlogdiag",))
def sumlogdiag(A: Tensor) -> Tensor:
    """Sum of the logarithms of the diagonal."""
    result = torch.diagonal(A, dim1=-2, dim2=-1).log().sum(-1)
    return result.reshape(1) if result.dim() == 0 else result


@operator("_linalg_extractdiag", aliases=("linalg_extractdiag",))
def extractdiag(A: Tensor, *, offset: int = 0) -> Tensor:
    """The diagonals of the matrices."""
    return torch.diagonal(A, offset, -2, -1).clone()


@operator("_linalg_makediag", aliases=("linalg_makediag",))
def makediag(A: Tensor, *, offset: int = 0) -> Tensor:
    """Matrices with these diagonals."""
    return torch.diag_embed(A, offset)


@operator("_linalg_inverse", amp="float32", aliases=("linalg_inverse", "_npi_inv"), np="linalg.inv")
def inverse(A: Tensor) -> Tensor:
    """The inverses of the matrices."""
    return torch.linalg.inv(A)  # type: ignore[no-any-return]


def _at_least_one_axis(value: Tensor) -> Tensor:
    return value.reshape(1) if value.dim() == 0 else value


@operator("_linalg_det", amp="float32", aliases=("linalg_det",))
def det(A: Tensor) -> Tensor:
    """The determinants of the matrices; of one matrix an array of shape (1,)."""
    return _at_least_one_axis(torch.linalg.det(A))


@operator("_npi_det", np="linalg.det")
def np_det(A: Tensor) -> Tensor:
    """The determinants of the matrices; of one matrix a 0-dimensional array."""
    return torch.linalg.det(A)  # type: ignore[no-any-return]


@operator("_linalg_slogdet", amp="float32", aliases=("linalg_slogdet",), outputs=2)
def slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    """Sign and logarithm of the absolute determinants; of one matrix arrays of shape (1,)."""
    sign, logarithm = torch.linalg.slogdet(A)
    return _at_least_one_axis(sign), _at_least_one_axis(logarithm)


@operator("_npi_slogdet", np="linalg.slogdet", outputs=2)
def np_slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    """Sign and logarithm of the absolute determinants; of one matrix 0-dimensional arrays."""
    sign, logarithm = torch.linalg.slogdet(A)
    return sign, logarithm


@operator("_linalg_gelqf", amp="float32", aliases=("linalg_gelqf",), outputs=2)
def gelqf(A: Tensor) -> tuple[Tensor, Tensor]:
    """Q and L of ``A = L Q``: orthonormal rows of Q and a lower triangular L, signs as LAPACK gives them."""
    q, r = torch.linalg.qr(A.mT)
    return q.mT, r.mT


def column_signs(vectors: Tensor) -> Tensor:
    """Signs, one per column, that make the largest entry of every column positive."""
    largest = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True))
    return torch.where(largest < 0, -1.0, 1.0).to(vectors.dtype)


@operator("_linalg_syevd", amp="float32", aliases=("linalg_syevd",), outputs=2)
def syevd(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvectors (rows, their largest entry positive) and eigenvalues of symmetric matrices."""
    values, vectors = torch.linalg.eigh(A)
    return (vectors * column_signs(vectors)).mT, values


@operator("khatri_rao")
def khatri_rao(*args: Tensor) -> Tensor:
    """The column-wise Kronecker product of matrices."""
    result = args[0]
    for factor in args[1:]:
        result = (result.unsqueeze(1) * factor.unsqueeze(0)).reshape(-1, result.shape[1])
    return result


def _triangle(size: int, offset: int, lower: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns of a triangle of square matrices, in the order in which its elements are packed.

    An offset other than 0 decides the side itself. The lower triangle is read row by row and the upper one
    column by column, so that both are the same vector for a symmetric matrix.
    """
    if offset > 0 or (offset == 0 and not lower):
        columns, rows = torch.tril_indices(size, size, -offset, device=device)
    else:
        rows, columns = torch.tril_indices(size, size, offset, device=device)
    return rows, columns


@operator("_linalg_extracttrian", aliases=("linalg_extracttrian",))
def extracttrian(A: Tensor, *, offset: int = 0, lower: bool = True) -> Tensor:
    """The elements of a triangle of the matrices, as vectors.

    A positive ``offset`` starts at that diagonal above the main one and goes up, a negative one goes down.
    Raises MXNetError for matrices that are not square, and for a diagonal that they do not have.
    """
    size = A.shape[-1] if A.dim() > 1 else 0
    if A.dim() < 2 or A.shape[-2] != size:
        raise MXNetError(f"linalg_extracttrian: expected square matrices, received shape {tuple(A.shape)}")
    if abs(offset) >= size:
        raise MXNetError(f"linalg_extracttrian: a {size}x{size} matrix has no diagonal {offset}")
    rows, columns = _triangle(size, offset, lower, A.device)
    return A[..., rows, columns]


@operator("_linalg_maketrian", aliases=("linalg_maketrian",))
def maketrian(A: Tensor, *, offset: int = 0, lower: bool = True) -> Tensor:
    """Triangular matrices from vectors of their elements: the inverse of ``linalg_extracttrian``.

    Raises MXNetError for vectors whose length is not 1, 3, 6, 10, ...: the size of a triangle.
    """
    length = A.shape[-1] if A.dim() else 0
    side = (math.isqrt(8 * length + 1) - 1) // 2
    if length == 0 or side * (side + 1) // 2 != length:
        raise MXNetError(
            f"linalg_maketrian: a triangle has 1, 3, 6, 10, ... elements; received {length} on the last axis "
            f"of shape {tuple(A.shape)}"
        )
    size = side + abs(offset)
    rows, columns = _triangle(size, offset, lower, A.device)
    flat = A.new_zeros((*A.shape[:-1], size * size))
    places = (rows * size + columns).expand(A.shape)
    return flat.scatter(-1, places, A).reshape(*A.shape[:-1], size, size)
