"""Reductions of the NumPy kind: over all axes the result has no dimensions."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.defs.reduce import extreme, position, product, reduced_axes, reduced_shape
from regluon.ops.opdef import DType, Shape, Spec, operator


def _axes(rank: int, axis: Any, exclude: bool, name: str) -> tuple[int, ...]:
    """The axes that are reduced: none for an empty tuple, unlike with the 1.x operators."""
    return () if axis == () else reduced_axes(rank, axis, exclude, name)


def _infer(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    shape = tuple(specs[0].shape)
    axes = _axes(len(shape), attrs["axis"], False, "reduction")
    dtype = attrs.get("dtype") or specs[0].dtype
    return [Spec(reduced_shape(shape, axes, attrs["keepdims"], False), dtype)]


def _infer_total(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    spec = _infer(specs, attrs)[0]
    return [Spec(spec.shape, torch.int64 if spec.dtype is torch.bool and not attrs["dtype"] else spec.dtype)]


def _infer_mean(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    spec = _infer(specs, attrs)[0]
    return [Spec(spec.shape, attrs["dtype"] or _mean_type(spec.dtype))]


def _mean_type(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point and dtype is not torch.float16 else torch.float32


def _total_type(a: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return torch.int64 if a.dtype is torch.bool else a.dtype


@operator("_npi_sum", aliases=("_np_sum",), np="sum", infer=_infer_total, amp="float32")
def np_sum(
    a: Tensor,
    *,
    axis: Shape | None = None,
    dtype: DType | None = None,
    keepdims: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Sum of the elements over axes."""
    axes = _axes(a.dim(), axis, False, "sum")
    kind = _total_type(a, dtype)
    result = torch.sum(a, axes, keepdim=keepdims, dtype=kind) if axes else a.to(kind, copy=True)
    return result if initial is None else result + initial


@operator(
    "_npi_prod",
    aliases=("_np_prod", "_np_product"),
    np=("prod", "product"),
    infer=_infer_total,
    amp="float32",
)
def np_prod(
    a: Tensor,
    *,
    axis: Shape | None = None,
    dtype: DType | None = None,
    keepdims: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Product of the elements over axes."""
    result = product(a.to(_total_type(a, dtype)), _axes(a.dim(), axis, False, "prod"), keepdims)
    return result if initial is None else result * initial


@operator("_npi_mean", np="mean", infer=_infer_mean, amp="float32")
def np_mean(
    a: Tensor,
    *,
    axis: Shape | None = None,
    dtype: DType | None = None,
    keepdims: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Mean of the elements over axes; integers and float16 give float32."""
    axes = _axes(a.dim(), axis, False, "mean")
    kind = dtype or _mean_type(a.dtype)
    work = kind if kind.is_floating_point else torch.float64
    result = torch.mean(a.to(work), axes, keepdim=keepdims) if axes else a.to(work, copy=True)
    return result.to(kind)


def _define_extreme(name: str, public: tuple[str, ...], aliases: tuple[str, ...], largest: bool) -> None:
    def find(
        a: Tensor, *, axis: Shape | None = None, keepdims: bool = False, initial: float | None = None
    ) -> Tensor:
        if a.numel() == 0 and initial is None:
            raise MXNetError(f"zero-size array to reduction operation {public[0]} which has no identity")
        axes = _axes(a.dim(), axis, False, public[0])
        values = a.to(torch.uint8) if a.dtype is torch.bool else a
        result = extreme(values, axes, keepdims, largest).to(a.dtype)
        if initial is None:
            return result
        return torch.clamp(result, min=initial) if largest else torch.clamp(result, max=initial)

    find.__name__ = find.__qualname__ = name
    find.__doc__ = f"{'Maximum' if largest else 'Minimum'} over axes."
    operator(name, aliases=aliases, np=public, infer=_infer)(find)


_define_extreme("_npi_max", ("max", "amax"), ("_npi_amax", "_np_max", "_np_amax"), True)
_define_extreme("_npi_min", ("min", "amin"), ("_npi_amin", "_np_min", "_np_amin"), False)


def _infer_truth(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(_infer(specs, attrs)[0].shape, torch.bool)]


@operator("_npi_all", aliases=("_np_all",), np="all", gradient="zero", infer=_infer_truth)
def np_all(data: Tensor, *, axis: Shape | None = None, keepdims: bool = False) -> Tensor:
    """Whether all elements over axes are true."""
    axes = _axes(data.dim(), axis, False, "all")
    return torch.all(data != 0, axes, keepdim=keepdims) if axes else data != 0


@operator(
    "_npi_any",
    aliases=("_np_any", "_np_sometrue"),
    np=("any", "sometrue"),
    gradient="zero",
    infer=_infer_truth,
)
def np_any(data: Tensor, *, axis: Shape | None = None, keepdims: bool = False) -> Tensor:
    """Whether any element over axes is true."""
    axes = _axes(data.dim(), axis, False, "any")
    return torch.any(data != 0, axes, keepdim=keepdims) if axes else data != 0


@operator("_npi_argmax", np="argmax", gradient="zero")
def np_argmax(data: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the largest element along an axis is, as int64."""
    return position(data, axis, keepdims, True)


@operator("_npi_argmin", np="argmin", gradient="zero")
def np_argmin(data: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the smallest element along an axis is, as int64."""
    return position(data, axis, keepdims, False)


def _spread(a: Tensor, axis: Any, dtype: Any, keepdims: bool, ddof: int, root: bool) -> Tensor:
    axes = _axes(a.dim(), axis, False, "var")
    kind = dtype or a.dtype
    values = a if a.is_floating_point() else a.to(torch.float64)
    if not axes:
        return torch.zeros_like(a, dtype=kind)
    result = torch.var(values, axes, correction=ddof, keepdim=keepdims)
    return (torch.sqrt(result) if root else result).to(kind)


@operator("_npi_std", np="std", infer=_infer, amp="float32", renamed={"correction": "ddof"})
def np_std(
    a: Tensor, *, axis: Shape | None = None, dtype: DType | None = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """Standard deviation over axes, with ``ddof`` taken from the count."""
    return _spread(a, axis, dtype, keepdims, ddof, True)


@operator("_npi_var", np="var", infer=_infer, amp="float32", renamed={"correction": "ddof"})
def np_var(
    a: Tensor, *, axis: Shape | None = None, dtype: DType | None = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """Variance over axes, with ``ddof`` taken from the count."""
    return _spread(a, axis, dtype, keepdims, ddof, False)


@operator(
    "_npi_average",
    amp="float32",
    outputs=2,
    visible=lambda attrs: 2 if attrs["returned"] else 1,
    active=lambda attrs: 2 if attrs["weighted"] else 1,
)
def np_average(
    a: Tensor,
    weights: Tensor | None = None,
    *,
    axis: Shape | None = None,
    returned: bool = False,
    weighted: bool = True,
) -> tuple[Tensor, Tensor]:
    """Weighted mean over axes, and the sum of the weights."""
    axes = _axes(a.dim(), axis, False, "average")
    if weights is None or not weighted:
        # As in the originals, an average of integers stays one.
        result = torch.mean(a, axes, dtype=None if a.is_floating_point() else torch.float64).to(a.dtype)
        count = a.numel() / max(result.numel(), 1)
        return result, torch.full_like(result, count)
    if weights.dim() != a.dim():
        shape = [1] * a.dim()
        shape[axes[0]] = weights.numel()
        weights = weights.reshape(shape)
    total = torch.sum(weights.expand(a.shape), axes)
    return torch.sum(a * weights, axes) / total, total


@operator("_npi_diff", np="diff")
def np_diff(a: Tensor, *, n: int = 1, axis: int = -1) -> Tensor:
    """The n-th difference along an axis."""
    return torch.diff(a, n, axis)


@operator("_npi_percentile", active=lambda attrs: 1 if attrs["q_scalar"] is not None else 2, gradient="zero")
def np_percentile(
    a: Tensor,
    q: Tensor | None = None,
    *,
    axis: Shape | None = None,
    interpolation: Literal["linear", "lower", "higher", "midpoint", "nearest"] = "linear",
    keepdims: bool = False,
    q_scalar: float | None = None,
) -> Tensor:
    """Percentiles over axes."""
    axes = _axes(a.dim(), axis, False, "percentile")
    values = a if a.dtype in (torch.float32, torch.float64) else a.to(torch.float32)
    kept = [place for place in range(a.dim()) if place not in axes]
    flat = values.permute(*kept, *axes).reshape(*[a.shape[place] for place in kept], -1)
    wanted = torch.as_tensor(q_scalar, dtype=flat.dtype, device=a.device) if q is None else q.to(flat.dtype)
    result = torch.quantile(flat, wanted / 100.0, dim=-1, interpolation=interpolation)
    if keepdims:
        shape = [1 if place in axes else a.shape[place] for place in range(a.dim())]
        result = result.reshape([*wanted.shape, *shape])
    return result


@operator(
    "_npi_bincount", dynamic=True, gradient="zero", active=lambda attrs: 2 if attrs["has_weights"] else 1
)
def np_bincount(
    data: Tensor, weights: Tensor | None = None, *, minlength: int = 0, has_weights: bool = False
) -> Tensor:
    """How often each number of a vector occurs, in the vector's type, or the sum of its weights, in theirs.

    Raises MXNetError for anything but a vector of non-negative integers with as many weights.
    """
    if data.dim() != 1 or data.is_floating_point():
        raise MXNetError(
            "bincount: expected a vector of integers, received "
            f"{data.dim()} dimension(s) of {str(data.dtype)[6:]}; convert it with astype('int64')"
        )
    if data.numel() and int(data.min()) < 0:
        raise MXNetError(f"bincount: expected no negative numbers, received {int(data.min())}")
    if not has_weights or weights is None:
        return torch.bincount(data.to(torch.int64), None, minlength).to(data.dtype)
    if weights.shape != data.shape:
        raise MXNetError(
            f"bincount: expected {data.shape[0]} weights, received an array of shape {tuple(weights.shape)}"
        )
    return torch.bincount(data.to(torch.int64), weights, minlength).to(weights.dtype)


@operator(
    "_npi_ediff1d",
    amp="widest",
    active=lambda attrs: 1 + int(attrs["to_begin_arr_given"]) + int(attrs["to_end_arr_given"]),
)
def ediff1d(
    input1: Tensor,
    input2: Tensor | None = None,
    input3: Tensor | None = None,
    *,
    to_begin_arr_given: bool = False,
    to_end_arr_given: bool = False,
    to_begin_scalar: float | None = None,
    to_end_scalar: float | None = None,
) -> Tensor:
    """The differences of neighbours in the flattened array, between something to begin and to end with.

    The arrays to begin and to end with are the further inputs, in this order, if they are given.
    """
    flat = input1.reshape(-1)
    begin = input2 if to_begin_arr_given else _single(flat, to_begin_scalar)
    end = (input3 if to_begin_arr_given else input2) if to_end_arr_given else _single(flat, to_end_scalar)
    parts = [part.reshape(-1).to(flat.dtype) for part in (begin, torch.diff(flat), end) if part is not None]
    return torch.cat(parts)


def _single(data: Tensor, value: float | None) -> Tensor | None:
    return None if value is None else torch.full((1,), value, dtype=data.dtype, device=data.device)


def _infer_interp(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(() if attrs["x_is_scalar"] else specs[2].shape, torch.float64)]


@operator(
    "_npi_interp",
    gradient="zero",
    infer=_infer_interp,
    active=lambda attrs: 2 if attrs["x_is_scalar"] else 3,
)
def np_interp(
    xp: Tensor,
    fp: Tensor,
    x: Tensor | None = None,
    *,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
    x_scalar: float = 0.0,
    x_is_scalar: bool = False,
) -> Tensor:
    """The piecewise linear function through the points (xp, fp) at ``x`` (or at ``x_scalar``), as float64.

    ``xp`` increases; outside of it the value is ``left`` or ``right``, by default that of the nearest point.
    With ``period`` the points repeat and need no order. The gradient is zero, as in 2.0.0b1.
    """
    if xp.dim() != 1 or xp.shape != fp.shape or xp.shape[0] == 0:
        raise MXNetError(
            f"interp: xp and fp are vectors of one length, at least 1; received the shapes {tuple(xp.shape)} "
            f"and {tuple(fp.shape)}"
        )
    places, values = xp.to(torch.float64), fp.to(torch.float64)
    at = torch.full((), x_scalar, dtype=torch.float64, device=xp.device) if x_is_scalar else _needed(x)
    if period is not None:
        if period == 0:
            raise MXNetError("interp: period must not be 0")
        span = abs(period)
        at, places = torch.remainder(at, span), torch.remainder(places, span)
        places, order = torch.sort(places, stable=True)
        values = values[order]
        places = torch.cat((places[-1:] - span, places, places[:1] + span))
        values = torch.cat((values[-1:], values, values[:1]))
    upper = torch.searchsorted(places, at.contiguous(), right=True).clamp(1, max(places.shape[0] - 1, 1))
    upper = upper.clamp(max=places.shape[0] - 1)
    lower = (upper - 1).clamp(min=0)
    width = places[upper] - places[lower]
    share = torch.where(width > 0, (at - places[lower]) / width, torch.zeros_like(width))
    result = values[lower] + share * (values[upper] - values[lower])
    result = torch.where(at < places[0], values[0] if left is None or period is not None else left, result)
    return torch.where(at > places[-1], values[-1] if right is None or period is not None else right, result)


def _needed(x: Tensor | None) -> Tensor:
    if x is None:
        raise MXNetError("interp: x is an array, or the number x_scalar with x_is_scalar=True; it is missing")
    return x.to(torch.float64)
