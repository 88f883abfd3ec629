"""Legacy elementwise functions of one array, casts, gradient control and the AMP casts.

A legacy function keeps the type of its data. Where the mathematics needs real numbers, an integer array is
computed in float32 and truncated back, as MXNet does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from regluon.base.errors import MXNetError
from regluon.ops.defs import elementwise_math as special
from regluon.ops.defs.dtype_rules import Shapes, Unary, infer_same, unify_shapes
from regluon.ops.opdef import DType, Spec, operator


def _integer_relu(data: Tensor) -> Tensor:
    return data.clone() if data.dtype is torch.bool else torch.relu(data)


@dataclass(frozen=True)
class _Row:
    """One elementwise function: its registered names, its torch kernel and its documentation."""

    name: str
    function: Unary
    doc: str
    aliases: tuple[str, ...] = ()
    npx: str | None = None
    amp: str | None = None
    gradient: str = "torch"
    integers: Unary | None = None


def _same(data: Tensor) -> Tensor:
    return data.clone()


def _is_zero(data: Tensor) -> Tensor:
    return torch.eq(data, 0).to(data.dtype)


def _rsqrt_cube(data: Tensor) -> Tensor:
    return torch.reciprocal(special.cbrt(data))


# ``integers`` is the kernel for integer arrays where it is exact; without one they pass through float32.
_FUNCTIONS = (
    _Row("abs", torch.abs, "Absolute value ``|x|``.", ("_sparse_abs",), integers=torch.abs),
    _Row("arccos", torch.acos, "Inverse cosine in [0, pi].", ("_sparse_arccos",), amp="float32"),
    _Row("arccosh", torch.acosh, "Inverse hyperbolic cosine, for ``x >= 1``.", ("_sparse_arccosh",)),
    _Row("arcsin", torch.asin, "Inverse sine in [-pi/2, pi/2].", ("_sparse_arcsin",), amp="float32"),
    _Row("arcsinh", torch.asinh, "Inverse hyperbolic sine.", ("_sparse_arcsinh",)),
    _Row("arctan", torch.atan, "Inverse tangent in (-pi/2, pi/2).", ("_sparse_arctan",)),
    _Row("arctanh", torch.atanh, "Inverse hyperbolic tangent.", ("_sparse_arctanh",), amp="float32"),
    _Row("cbrt", special.cbrt, "Real cube root.", ("_sparse_cbrt",)),
    _Row("ceil", torch.ceil, "Smallest integer not below x.", ("_sparse_ceil",), integers=_same),
    _Row("cos", torch.cos, "Cosine of an angle in radians.", ("_sparse_cos",)),
    _Row("cosh", torch.cosh, "Hyperbolic cosine.", ("_sparse_cosh",), amp="float32"),
    _Row("degrees", torch.rad2deg, "Convert radians to degrees.", ("_sparse_degrees",)),
    _Row(
        "digamma",
        special.digamma,
        "Logarithmic derivative of the gamma function.",
        ("_npx_digamma", "_sparse_digamma"),
        npx="digamma",
        amp="float32",
    ),
    _Row("erf", torch.erf, "Gauss error function.", ("_npx_erf",), npx="erf"),
    _Row("erfinv", torch.erfinv, "Inverse of erf.", ("_npx_erfinv",), npx="erfinv", amp="float32"),
    _Row("exp", torch.exp, "Exponential ``e^x``.", ("_sparse_exp",), amp="float32"),
    _Row("expm1", torch.expm1, "``e^x - 1``, exact near 0.", ("_sparse_expm1",), amp="float32"),
    _Row("fix", torch.trunc, "Round to the nearest integer towards 0.", ("_sparse_fix",), integers=_same),
    _Row("floor", torch.floor, "Largest integer not above x.", ("_sparse_floor",), integers=_same),
    _Row(
        "gamma", special.gamma, "Gamma function.", ("_npx_gamma", "_sparse_gamma"), npx="gamma", amp="float32"
    ),
    _Row(
        "gammaln",
        torch.lgamma,
        "Logarithm of the absolute value of the gamma function.",
        ("_npx_gammaln", "_sparse_gammaln"),
        npx="gammaln",
        amp="float32",
    ),
    _Row("log", torch.log, "Natural logarithm.", ("_sparse_log",), amp="float32"),
    _Row("log10", torch.log10, "Logarithm to base 10.", ("_sparse_log10",), amp="float32"),
    _Row("log1p", torch.log1p, "``log(1 + x)``, exact near 0.", ("_sparse_log1p",), amp="float32"),
    _Row("log2", torch.log2, "Logarithm to base 2.", ("_sparse_log2",), amp="float32"),
    _Row("log_sigmoid", functional.logsigmoid, "``log(1 / (1 + e^-x))``.", ("_sparse_log_sigmoid",)),
    _Row("logical_not", _is_zero, "1 where x is 0, else 0.", gradient="zero", integers=_is_zero),
    _Row("mish", functional.mish, "``x tanh(log(1 + e^x))`` (Misra 2019).", ("_sparse_mish",)),
    _Row("negative", torch.neg, "``-x``.", ("_sparse_negative",), integers=torch.neg),
    _Row("radians", torch.deg2rad, "Convert degrees to radians.", ("_sparse_radians",)),
    _Row("rcbrt", _rsqrt_cube, "Reciprocal of the cube root.", amp="float32"),
    _Row("reciprocal", torch.reciprocal, "``1 / x``.", amp="float32"),
    _Row("relu", torch.relu, "``max(x, 0)``.", ("_sparse_relu",), integers=torch.relu),
    _Row(
        "rint",
        special.round_half_down,
        "Nearest integer, halves to the lower one.",
        ("_sparse_rint",),
        gradient="zero",
        integers=_same,
    ),
    _Row(
        "round",
        special.round_half_away,
        "Nearest integer, halves away from 0.",
        ("_sparse_round",),
        gradient="zero",
        integers=_same,
    ),
    _Row("rsqrt", torch.rsqrt, "Reciprocal of the square root.", ("_sparse_rsqrt",), amp="float32"),
    _Row("sigmoid", torch.sigmoid, "``1 / (1 + e^-x)``.", ("_sparse_sigmoid",)),
    _Row("sign", torch.sign, "-1, 0 or 1; 0 for nan.", ("_sparse_sign",), integers=torch.sign),
    _Row("sin", torch.sin, "Sine of an angle in radians.", ("_sparse_sin",)),
    _Row("sinh", torch.sinh, "Hyperbolic sine.", ("_sparse_sinh",), amp="float32"),
    _Row("softsign", functional.softsign, "``x / (1 + |x|)``.", ("_npx_softsign",), npx="softsign"),
    _Row("sqrt", torch.sqrt, "Square root.", ("_sparse_sqrt",)),
    _Row("square", torch.square, "``x^2``.", ("_sparse_square",), amp="float32", integers=torch.square),
    _Row("tan", torch.tan, "Tangent of an angle in radians.", ("_sparse_tan",), amp="float32"),
    _Row("tanh", torch.tanh, "Hyperbolic tangent.", ("_sparse_tanh",)),
    _Row("trunc", torch.trunc, "Round to the nearest integer towards 0.", ("_sparse_trunc",), integers=_same),
    _Row("_npx_relu", torch.relu, "``max(x, 0)``.", npx="relu", integers=_integer_relu),
    _Row("_npx_sigmoid", torch.sigmoid, "``1 / (1 + e^-x)``.", npx="sigmoid"),
)  # fmt: skip


def _through_float32(function: Unary) -> Unary:
    def compute(data: Tensor) -> Tensor:
        return function(data.to(torch.float32)).to(data.dtype)

    return compute


def _define(row: _Row) -> Callable[..., Any]:
    function = row.function
    integers = row.integers or _through_float32(function)

    def elementwise(data: Tensor) -> Tensor:
        return function(data) if data.is_floating_point() else integers(data)

    elementwise.__name__ = elementwise.__qualname__ = row.name
    elementwise.__doc__ = (
        f"{row.doc}\n\nElement by element; the result has the shape and the type of ``data`` (an integer "
        "array gets the truncated value)."
    )
    return operator(
        row.name, aliases=row.aliases, npx=row.npx, gradient=row.gradient, amp=row.amp, infer=infer_same
    )(elementwise)


FUNCTIONS = {row.name: _define(row) for row in _FUNCTIONS}


@operator("hard_sigmoid", infer=infer_same)
def hard_sigmoid(data: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Compute ``clip(alpha * x + beta, 0, 1)``; the gradient is 0 where the result is 0 or 1."""
    if data.is_floating_point():
        return special.hard_sigmoid(data, alpha, beta)
    return special.hard_sigmoid(data.to(torch.float32), alpha, beta).to(data.dtype)


@operator("smooth_l1", aliases=("_npx_smooth_l1",), npx="smooth_l1", amp="float32", infer=infer_same)
def smooth_l1(data: Tensor, *, scalar: float = 1.0) -> Tensor:
    """Compute ``(s x)^2 / 2`` where ``|x| < 1 / s^2``, else ``|x| - 1 / (2 s^2)``, with ``s = scalar``
    (Girshick 2015, Fast R-CNN)."""
    if data.is_floating_point():
        return special.smooth_l1(data, scalar)
    return special.smooth_l1(data.to(torch.float32), scalar).to(data.dtype)


def _integer_bound(bound: float | None, default: int, limits: torch.iinfo) -> int:
    return default if bound is None else int(min(max(bound, limits.min), limits.max))


@operator("clip", aliases=("_npi_clip", "_sparse_clip"), np="clip", infer=infer_same)
def clip(data: Tensor, *, a_min: float | None, a_max: float | None) -> Tensor:
    """Limit every element to ``[a_min, a_max]`` (None: no limit); the gradient is 0 outside. Integer arrays
    get integer bounds (truncated, and limited to what the type holds)."""
    if data.is_floating_point():
        return data.clone() if a_min is None and a_max is None else torch.clamp(data, a_min, a_max)
    if data.dtype == torch.bool:
        limits = torch.iinfo(torch.uint8)
        low, high = _integer_bound(a_min, limits.min, limits), _integer_bound(a_max, limits.max, limits)
        return torch.clamp(data.to(torch.uint8), low, high).to(torch.bool)
    limits = torch.iinfo(data.dtype)
    return torch.clamp(
        data, _integer_bound(a_min, limits.min, limits), _integer_bound(a_max, limits.max, limits)
    )


def _infer_cast(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(specs[0].shape, attrs["dtype"])]


@operator(
    "Cast", aliases=("_npi_cast", "_npx_cast", "cast"), npx="cast", infer=_infer_cast, gradient="identity"
)
def cast(data: Tensor, *, dtype: DType) -> Tensor:
    """Convert to another type, always into a new array; a real number becomes an integer by truncation.
    The gradient is cast back."""
    return data.to(dtype, copy=True)


def _infer_amp_cast(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    dtype = specs[0].dtype
    return [Spec(specs[0].shape, attrs["dtype"] if dtype.is_floating_point else dtype)]


@operator("amp_cast", aliases=("_npi_amp_cast",), infer=_infer_amp_cast)
def amp_cast(data: Tensor, *, dtype: DType) -> Tensor:
    """Cast written by automatic mixed precision; integer arrays stay as they are."""
    if not data.is_floating_point():
        return data.clone()
    return data.to(dtype, copy=True)


def _multicast_target(dtypes: list[torch.dtype], narrow: bool) -> torch.dtype | None:
    floating = sorted((dtype for dtype in dtypes if dtype.is_floating_point), key=lambda d: d.itemsize)
    if not floating:
        return None
    return floating[0 if narrow else -1]


def _infer_multicast(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    target = _multicast_target([spec.dtype for spec in specs], attrs["cast_narrow"])
    return [
        Spec(spec.shape, target if target is not None and spec.dtype.is_floating_point else spec.dtype)
        for spec in specs
    ]


@operator(
    "amp_multicast",
    aliases=("_npi_amp_multicast",),
    outputs=lambda attrs: attrs["num_outputs"],
    infer=_infer_multicast,
)
def amp_multicast(*data: Tensor, num_outputs: int, cast_narrow: bool = False) -> tuple[Tensor, ...]:
    """Cast all floating-point inputs to the widest (or, with ``cast_narrow``, the narrowest) type among
    them; integer inputs stay as they are."""
    if len(data) != num_outputs:
        raise MXNetError(f"amp_multicast: num_outputs is {num_outputs}, received {len(data)} arrays")
    target = _multicast_target([array.dtype for array in data], cast_narrow)
    return tuple(
        array.to(target, copy=True) if target is not None and array.is_floating_point() else array.clone()
        for array in data
    )


@operator("_copy", aliases=("identity",), infer=infer_same)
def copy(data: Tensor) -> Tensor:
    """Return a copy."""
    return data.clone()


@operator("_copyto", aliases=("_npi_copyto",), infer=infer_same)
def copyto(data: Tensor) -> Tensor:
    """Return a copy (the destination is the ``out`` array)."""
    return data.clone()


@operator(
    "BlockGrad",
    aliases=("_npx_stop_gradient", "_sparse_stop_gradient", "stop_gradient"),
    npx="stop_gradient",
    gradient="zero",
    infer=infer_same,
)
def block_grad(data: Tensor) -> Tensor:
    """Return a copy through which no gradient flows."""
    return data.detach().clone()


@operator(
    "make_loss", aliases=("_sparse_make_loss",), output_names=("loss",), amp="float32", infer=infer_same
)
def make_loss(data: Tensor) -> Tensor:
    """Mark ``data`` as a loss: its gradient is 1, whatever gradient arrives from above."""
    return special.loss_gradient(data, 1.0)


@operator("zeros_like", aliases=("_sparse_zeros_like",), gradient="zero", infer=infer_same)
def zeros_like(data: Tensor) -> Tensor:
    """Zeros of the shape and type of ``data``."""
    return torch.zeros_like(data)


@operator("ones_like", gradient="zero", infer=infer_same)
def ones_like(data: Tensor) -> Tensor:
    """Ones of the shape and type of ``data``."""
    return torch.ones_like(data)


@operator(
    "_contrib_round_ste",
    aliases=("_npx_round_ste", "_sparse__contrib_round_ste"),
    npx="round_ste",
    infer=infer_same,
)
def round_ste(data: Tensor) -> Tensor:
    """Round, halves away from 0, with the gradient of the identity (straight-through estimator)."""
    if not data.is_floating_point():
        return data.clone()
    return special.straight_through(data, special.round_half_away(data))


@operator(
    "_contrib_sign_ste",
    aliases=("_npx_sign_ste", "_sparse__contrib_sign_ste"),
    npx="sign_ste",
    infer=infer_same,
)
def sign_ste(data: Tensor) -> Tensor:
    """Sign, with the gradient of the identity (straight-through estimator)."""
    return special.straight_through(data, torch.sign(data))


class _SparseRegularizer(Function):
    """Identity that adds the Kullback-Leibler penalty to the gradient and moves the average in backward."""

    @staticmethod
    def forward(
        ctx: Any, data: Tensor, average: Tensor, target: float, penalty: float, momentum: float
    ) -> Tensor:
        ctx.mean = data.detach().mean(dim=0)
        ctx.settings = (average, target, penalty, momentum)
        return data.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        average, target, penalty, momentum = ctx.settings
        with torch.no_grad():
            if ctx.mean is not None:
                average.mul_(momentum).add_(ctx.mean, alpha=1.0 - momentum)
                ctx.mean = None
            slope = penalty * ((1.0 - target) / (1.0 - average) - target / average)
        return gradient + slope, None, None, None, None


def _fill_average(shapes: Shapes, attrs: dict[str, Any]) -> Shapes:
    data = shapes[0]
    return [data, None if data is None else tuple(data[1:])]


@operator(
    "IdentityAttachKLSparseReg", aux=("moving_avg",), amp="float32", infer=infer_same, fill=_fill_average
)
def identity_attach_kl_sparse_reg(
    data: Tensor,
    moving_avg: Tensor,
    *,
    sparseness_target: float = 0.1,
    penalty: float = 0.001,
    momentum: float = 0.9,
) -> Tensor:
    """Identity for sigmoid outputs whose gradient carries a penalty ``penalty * KL(sparseness_target || p)``
    on the mean activation p, a moving average with the given momentum that is updated in backward."""
    if not data.requires_grad:
        return data.clone()
    return _SparseRegularizer.apply(  # type: ignore[no-any-return, no-untyped-call]
        data, moving_avg, sparseness_target, penalty, momentum
    )


@operator(
    "add_n",
    aliases=("ElementWiseSum", "_npx_add_n", "_sparse_ElementWiseSum", "_sparse_add_n"),
    npx="add_n",
    num_args_key="num_args",
    amp="widest",
    infer=infer_same,
    fill=unify_shapes,
)
def add_n(*args: Tensor) -> Tensor:
    """Sum of all inputs, which have one shape and one type."""
    if not args:
        raise MXNetError("add_n needs at least one array, received none")
    total = args[0]
    for array in args[1:]:
        if array.shape != total.shape:
            raise MXNetError(
                f"add_n: all arrays must have shape {list(total.shape)}, received {list(array.shape)}"
            )
        total = torch.add(total, array)
    return total if len(args) > 1 else total.clone()


def _infer_flag(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec((1,), torch.float32)]


def _is_finite(array: Tensor) -> Tensor:
    """Whether all values are finite, as an array of one value without dimensions."""
    if array.is_floating_point() and array.numel() and array.device.type == "cpu":
        # In a sum no infinity and no NaN can hide; that of large values may overflow, so it only rules out.
        total = torch.isfinite(array.sum(dtype=torch.float32))
        if bool(total):
            return total
    return torch.isfinite(array).all()


def _finite(arrays: tuple[Tensor, ...]) -> Tensor:
    flags = [_is_finite(array) for array in arrays]
    return torch.stack(flags).all().to(torch.float32).reshape(1)


@operator("all_finite", aliases=("_npi_all_finite",), gradient="zero", infer=_infer_flag)
def all_finite(data: Tensor, *, init_output: bool = True) -> Tensor:
    """1 if every element is finite, else 0, as a float32 array of shape (1,)."""
    return _finite((data,))


@operator(
    "multi_all_finite",
    aliases=("_npi_multi_all_finite",),
    num_args_key="num_arrays",
    gradient="zero",
    infer=_infer_flag,
)
def multi_all_finite(*data: Tensor, init_output: bool = True) -> Tensor:
    """1 if every element of every array is finite, else 0, as a float32 array of shape (1,)."""
    return _finite(data)


@operator(
    "reset_arrays", num_args_key="num_arrays", outputs=0, mutates=("data",), infer=lambda specs, attrs: []
)
def reset_arrays(*data: Tensor) -> tuple[Tensor, ...]:
    """Set every array to 0 in place."""
    for array in data:
        array.zero_()
    return ()


def _infer_khatri_rao(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec((math.prod(spec.shape[0] for spec in specs), specs[0].shape[1]), specs[0].dtype)]


@operator("khatri_rao", num_args_key="num_args", amp="float32", infer=_infer_khatri_rao)
def khatri_rao(*args: Tensor) -> Tensor:
    """Column-wise Kronecker product of matrices (r_i, k) -> (r_1 r_2 ..., k)."""
    columns = {matrix.shape[-1] for matrix in args}
    if not args or len(columns) != 1 or any(matrix.ndim != 2 for matrix in args):
        received = ", ".join(str(list(matrix.shape)) for matrix in args) or "nothing"
        raise MXNetError(f"khatri_rao needs matrices with one number of columns, received {received}")
    product = args[0].clone()
    for matrix in args[1:]:
        product = (product.unsqueeze(1) * matrix.unsqueeze(0)).flatten(0, 1)
    return product
