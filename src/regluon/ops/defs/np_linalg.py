"""Linear algebra of the NumPy kind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.linalg import column_signs
from regluon.ops.opdef import Shape, operator


def _same_type(*tensors: Tensor) -> list[Tensor]:
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def _tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    a, b = _same_type(a, b)
    return torch.tensordot(a, b, axes)


@operator("_npi_dot", aliases=("_np_dot",), np="dot", amp="low")
def np_dot(a: Tensor, b: Tensor) -> Tensor:
    """Dot product as in NumPy: last axis of ``a`` with the last but one of ``b``."""
    a, b = _same_type(a, b)
    if a.dim() == 0 or b.dim() == 0:
        return a * b
    if a.dim() == 2 and b.dim() <= 2:
        return torch.matmul(a, b)
    if a.shape[-1] != b.shape[-2 if b.dim() > 1 else -1]:
        raise MXNetError(f"dot: shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
    return torch.tensordot(a, b, ([a.dim() - 1], [b.dim() - 2 if b.dim() > 1 else 0]))


@operator("_npi_matmul", aliases=("_npx_matmul",), np="matmul", amp="low")
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
    """Einstein summation."""
    return torch.einsum(subscripts, *_same_type(*data))


@operator("_npi_kron", np="kron")
def kron(a: Tensor, b: Tensor) -> Tensor:
    """Kronecker product."""
    return torch.kron(*_same_type(a, b))


@operator("_npi_cholesky", np="linalg.cholesky")
def cholesky(A: Tensor, *, lower: bool = True) -> Tensor:
    """The lower (or upper) Cholesky factor of positive definite matrices."""
    factor = torch.linalg.cholesky(A)
    return factor if lower else factor.mT


@operator("_npi_solve", np="linalg.solve")
def solve(A: Tensor, B: Tensor) -> Tensor:
    """Solve ``A x = B``."""
    return torch.linalg.solve(A, B)


@operator("_npi_svd", np="linalg.svd", outputs=3)
def svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular values: ``A = U diag(L) V``, with orthonormal rows of V, their largest entry positive."""
    left, values, right = torch.linalg.svd(A, full_matrices=False)
    signs = column_signs(right.mT)
    return left * signs, values, right * signs.mT


@operator("_npi_eigh", np="linalg.eigh", outputs=2)
def eigh(A: Tensor, *, UPLO: str = "L") -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors (columns, their largest entry positive) of symmetric matrices."""
    values, vectors = torch.linalg.eigh(A, UPLO)
    return values, vectors * column_signs(vectors)


@operator("_npi_eigvalsh", np="linalg.eigvalsh")
def eigvalsh(A: Tensor, *, UPLO: str = "L") -> Tensor:
    """Eigenvalues of symmetric matrices."""
    return torch.linalg.eigvalsh(A, UPLO)


@operator("_npi_qr", np="linalg.qr", outputs=2)
def qr(A: Tensor) -> tuple[Tensor, Tensor]:
    """``A = Q R`` with orthonormal columns of Q."""
    q, r = torch.linalg.qr(A)
    return q, r


@operator("_npi_pinv_scalar_rcond")
def pinv(A: Tensor, *, rcond: float = 1e-15, hermitian: bool = False) -> Tensor:
    """The Moore-Penrose inverse."""
    return torch.linalg.pinv(A, rtol=rcond, hermitian=hermitian)
