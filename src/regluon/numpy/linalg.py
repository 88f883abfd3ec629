"""``mx.np.linalg``: linear algebra with NumPy's signatures, composed of operators.

The functions take arrays, values of a trace and Symbols alike; matrices are in the last two axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import MXNetError
from . import products
from .tools import apply, as_array, as_arrays, axes_of

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]

_EPSILON = {"finfoEps32": 1.1920929e-07, "finfoEps64": 2.220446049250313e-16}

outer = products.outer
tensordot = products.tensordot


def cholesky(a: Any, upper: bool = False) -> Any:
    """The Cholesky factor of positive definite matrices: lower triangular, or upper."""
    return apply("_npi_cholesky", [as_array(a)], lower=not upper)


def inv(a: Any) -> Any:
    """The inverses of square matrices."""
    return apply("_npi_inv", [as_array(a)])


def det(a: Any) -> Any:
    """The determinants of square matrices."""
    return apply("_npi_det", [as_array(a)])


def slogdet(a: Any) -> Any:
    """Signs of the determinants, and logarithms of their absolute values."""
    return tuple(apply("_npi_slogdet", [as_array(a)]))


def svd(a: Any) -> Any:
    """``(U, L, V)`` with ``a = U diag(L) V``: L are the singular values, the rows of V are orthonormal."""
    return tuple(apply("_npi_svd", [as_array(a)]))


def svdvals(a: Any) -> Any:
    """The singular values, the largest first."""
    return svd(a)[1]


def qr(a: Any, mode: str = "reduced") -> Any:
    """``(Q, R)`` with ``a = Q R``: orthonormal columns of Q, and an upper triangular R.

    Raises NotImplementedError for another ``mode`` than "reduced".
    """
    if mode != "reduced":
        raise NotImplementedError(f"qr: only mode='reduced' is supported, received {mode!r}")
    return tuple(apply("_npi_qr", [as_array(a)]))


def _triangle(name: str, upper: Any, uplo: Any) -> str:
    chosen = uplo if uplo is not None else upper
    if isinstance(chosen, str):
        if chosen.upper() not in ("L", "U"):
            raise MXNetError(f"{name}: UPLO is 'L' or 'U'; received {chosen!r}")
        return chosen.upper()
    return "U" if chosen else "L"


def eigh(a: Any, upper: Any = False, UPLO: str | None = None) -> Any:
    """Eigenvalues and eigenvectors (columns) of symmetric matrices, read from their lower or upper triangle.

    ``UPLO`` ("L" or "U"), also as the second argument, is another way to name the triangle.
    """
    return tuple(apply("_npi_eigh", [as_array(a)], UPLO=_triangle("eigh", upper, UPLO)))


def eigvalsh(a: Any, upper: Any = False, UPLO: str | None = None) -> Any:
    """Eigenvalues of symmetric matrices; the arguments are those of `eigh`."""
    return apply("_npi_eigvalsh", [as_array(a)], UPLO=_triangle("eigvalsh", upper, UPLO))


def eig(a: Any) -> Any:
    """Eigenvalues and eigenvectors (columns) of square matrices; MXNetError where they are not real."""
    return tuple(apply("_npi_eig", [as_array(a)]))


def eigvals(a: Any) -> Any:
    """Eigenvalues of square matrices; MXNetError where they are not real."""
    return apply("_npi_eigvals", [as_array(a)])


def solve(a: Any, b: Any) -> Any:
    """The x with ``a x = b``."""
    return apply("_npi_solve", [as_array(a), as_array(b)])


def lstsq(a: Any, b: Any, rcond: Any = "warn") -> Any:
    """``(x, residuals, rank, singular values)`` of the least squares problem ``a x = b``.

    Singular values below ``rcond`` times the largest count as 0: the precision of the type for "warn" and
    -1, that times the larger side of ``a`` for None.
    """
    attrs: dict[str, Any] = dict(_EPSILON, new_default=rcond is None)
    attrs["rcond"] = 1.0 if rcond is None else (-1.0 if rcond == "warn" else float(rcond))
    return tuple(apply("_npi_lstsq", [as_array(a), as_array(b)], **attrs))


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, rcond: Any = None) -> Any:
    """The Moore-Penrose inverse; singular values up to ``rtol`` (or ``rcond``) times the largest count as 0.

    The tolerance is a number, 1e-15 by default, or an array with one for each matrix.
    """
    tolerance = rtol if rtol is not None else rcond
    if tolerance is None or isinstance(tolerance, (int, float)):
        cutoff = 1e-15 if tolerance is None else float(tolerance)
        return apply("_npi_pinv_scalar_rcond", [as_array(a)], rcond=cutoff, hermitian=hermitian)
    return apply("_npi_pinv", [as_array(a), as_array(tolerance)], hermitian=hermitian)


def matrix_rank(M: Any, rtol: Any = None, hermitian: bool = False, tol: Any = None) -> Any:
    """How many singular values exceed ``tol`` (``rtol`` is the same), as int64.

    Without a tolerance, it is the largest singular value times the larger side times the type's precision.
    """
    tolerance = tol if tol is not None else rtol
    if tolerance is None:
        return apply("_npi_matrix_rank_none_tol", [as_array(M)], hermitian=hermitian, **_EPSILON)
    return apply("_npi_matrix_rank", [as_array(M), as_array(tolerance)], hermitian=hermitian)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse of ``a`` for tensordot over ``ind`` axes."""
    return apply("_npi_tensorinv", [as_array(a)], ind=ind)


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """The x with ``tensordot(a, x, x.ndim) == b``; ``axes`` of ``a`` are moved to its end first."""
    return apply("_npi_tensorsolve", [as_array(a), as_array(b)], a_axes=axes_of(axes) or ())


def cross(a: Any, b: Any, axis: int = -1) -> Any:
    """The cross product of vectors of 3 elements along ``axis``."""
    return apply("_npi_cross", [as_array(a), as_array(b)], axisa=axis, axisb=axis, axisc=axis)


def vecdot(a: Any, b: Any, axis: int | None = None) -> Any:
    """The dot products of vectors along ``axis``, the last one by default."""
    return _total(as_array(a) * as_array(b), (-1 if axis is None else axis,), False)


def matmul(a: Any, b: Any) -> Any:
    """The matrix product of the last two axes, the others broadcast."""
    return apply("_npi_matmul", [as_array(a), as_array(b)])


def matrix_transpose(a: Any) -> Any:
    """The array with its last two axes exchanged."""
    return apply("SwapAxis", [as_array(a)], dim1=-1, dim2=-2)


def diagonal(a: Any, offset: int = 0) -> Any:
    """The diagonals of matrices."""
    return apply("_npi_diagonal", [as_array(a)], offset=offset, axis1=-2, axis2=-1)


def trace(a: Any, offset: int = 0) -> Any:
    """The sums of the diagonals of matrices."""
    return apply("_npi_trace", [as_array(a)], offset=offset, axis1=-2, axis2=-1)


def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of a chain of matrices, in the order that needs the fewest multiplications.

    The first and the last may be vectors. Raises MXNetError for fewer than two.
    """
    chain = as_arrays(arrays)
    if len(chain) < 2:
        raise MXNetError(f"multi_dot: expected at least two arrays, received {len(chain)}")
    try:
        inner = [int(matrix.shape[0]) for matrix in chain[1:]]
    except (MXNetError, NotImplementedError, TypeError, IndexError):
        inner = [0] * (len(chain) - 1)  # Symbols of unknown shape: any order.
    while len(chain) > 1:
        # Contracting the longest inner side first is the greedy form of the matrix chain order.
        place = inner.index(max(inner))
        chain[place : place + 2] = [apply("_npi_dot", chain[place : place + 2])]
        del inner[place]
    return chain[0]


def matrix_power(a: Any, n: int) -> Any:
    """The n-th power of square matrices, that of the inverse for a negative ``n``."""
    a = as_array(a)
    if not isinstance(n, int):
        raise TypeError(f"matrix_power: n is an integer; received {n!r}")
    if n == 0:
        ones = apply("ones_like", [apply("_linalg_extractdiag", [a])])
        return apply("_linalg_makediag", [ones])
    base, count = (inv(a), -n) if n < 0 else (a, n)
    result = None
    while count:
        if count & 1:
            result = base if result is None else apply("_npi_matmul", [result, base])
        count >>= 1
        base = apply("_npi_matmul", [base, base]) if count else base
    return result if n != 1 else apply("_np_copy", [result])


def cond(x: Any, p: Any = None) -> Any:
    """The condition number: the ratio of the extreme singular values, or ``norm(x, p) * norm(inv(x), p)``."""
    x = as_array(x)
    if p in (None, 2, -2):
        values = svdvals(x)
        large, small = _limit(values, True, (-1,), False), _limit(values, False, (-1,), False)
        return apply("_npi_true_divide", [small, large] if p == -2 else [large, small])
    return norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors (one axis) or matrices (two axes); of all elements without ``ord`` and ``axis``.

    ``ord`` of a vector is a number, inf or -inf; of a matrix "fro", "nuc", 1, -1, 2, -2, inf or -inf.

    Raises
    ------
    MXNetError
        If ``axis`` names more than two axes, or ``ord`` is none of these.
    """
    x = as_array(x)
    axes = axes_of(axis)
    if ord is None and axes is None:
        return _of_operator(x, 2.0, None, keepdims, -2)
    if ord in (1, -1, float("inf"), float("-inf")):
        axes = tuple(range(x.ndim)) if axes is None else axes
        if len(axes) == 2:
            return _of_sums(x, ord, axes, keepdims)
        if len(axes) == 1 and abs(ord) > 1:
            return _limit(_size(x), ord > 0, axes, keepdims)
    if isinstance(ord, str):
        if ord not in ("fro", "nuc") or (axes is not None and len(axes) != 2):
            raise MXNetError(f"norm: order {ord!r} of axis {axis}; matrices have the orders 'fro' and 'nuc'")
        return _of_operator(x, 2.0, axes, keepdims, 1 if ord == "fro" else 2)
    if axes is not None and len(axes) > 2:
        raise MXNetError(f"norm: expected one axis or two, received {axis}")
    flag = 1 if ord is None else (0 if axes is not None and len(axes) == 2 else -1)
    return _of_operator(x, 2.0 if ord is None else float(ord), axes, keepdims, flag)


def vector_norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of the elements over axes (all by default) as one vector; ``ord`` is a number, inf or -inf."""
    x, axes, order = as_array(x), axes_of(axis), 2 if ord is None else ord
    if isinstance(order, str):
        raise MXNetError(f"vector_norm: ord is a number, inf or -inf; received {order!r}")
    if order == 2:
        return _of_operator(x, 2.0, axes, keepdims, 1)
    if order in (float("inf"), float("-inf")):
        return _limit(_size(x), order > 0, axes, keepdims)
    if axes is not None and len(axes) == 1:
        return _of_operator(x, float(order), axes, keepdims, -1)
    if order == 0:
        return _total((x != 0).astype(x.dtype), axes, keepdims)
    return _total(_size(x) ** order, axes, keepdims) ** (1.0 / order)


def matrix_norm(x: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    """The norm of matrices: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    return norm(x, "fro" if ord is None else ord, axis, keepdims)


def _of_operator(x: Any, order: float, axes: Any, keepdims: bool, flag: int) -> Any:
    return apply("_npi_norm", [x], ord=order, axis=axes, keepdims=keepdims, flag=flag)


def _total(value: Any, axes: Any, keepdims: bool) -> Any:
    return apply("_npi_sum", [value], axis=axes, keepdims=keepdims)


def _size(x: Any) -> Any:
    return apply("_npi_absolute", [x])


def _limit(value: Any, largest: bool, axes: Any, keepdims: bool) -> Any:
    return apply("_npi_max" if largest else "_npi_min", [value], axis=axes, keepdims=keepdims)


def _of_sums(x: Any, order: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest or smallest sum of sizes down the columns (1) or along the rows (inf)."""
    down, along = axes if abs(order) == 1 else axes[::-1]
    result = _limit(_total(_size(x), (down,), True), order > 0, (along,), True)
    return result if keepdims else apply("_npi_squeeze", [result], axis=axes)
