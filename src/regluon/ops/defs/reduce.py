"""Reductions of the 1.x kind: over ``axis`` (or all but those, with ``exclude``); over all axes the result
is (1,)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import DType, Floats, Shape, Spec, operator

__all__ = ["reduced_axes", "reduced_shape"]


def reduced_axes(rank: int, axis: Any, exclude: bool, name: str) -> tuple[int, ...]:
    """The axes that are reduced, as non-negative numbers; all of them for an empty ``axis``.

    Raises MXNetError for an axis that is not there or given twice.
    """
    if axis is None or axis == ():
        return () if exclude and axis is not None and axis != () else tuple(range(rank))
    chosen = []
    for one in axis if isinstance(axis, tuple) else (axis,):
        if not -rank <= one < rank:
            raise MXNetError(f"{name}: axis {one} is out of range for an array of {rank} dimension(s)")
        chosen.append(one % rank)
    if len(set(chosen)) != len(chosen):
        raise MXNetError(f"{name}: an axis is given twice in {axis}")
    if exclude:
        return tuple(place for place in range(rank) if place not in chosen)
    return tuple(chosen)


def reduced_shape(
    shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, legacy: bool
) -> tuple[int, ...]:
    """The shape after reducing ``axes``; a legacy result has at least one dimension."""
    if keepdims:
        return tuple(1 if place in axes else size for place, size in enumerate(shape))
    left = tuple(size for place, size in enumerate(shape) if place not in axes)
    return left if left or not legacy else (1,)


def _legacy(result: Tensor) -> Tensor:
    return result.reshape(1) if result.dim() == 0 else result


def _infer(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    shape = tuple(specs[0].shape)
    axes = reduced_axes(len(shape), attrs["axis"], attrs["exclude"], "reduction")
    return [Spec(reduced_shape(shape, axes, attrs["keepdims"], True), specs[0].dtype)]


def extreme(data: Tensor, axes: tuple[int, ...], keepdims: bool, largest: bool) -> Tensor:
    """The maximum or minimum over axes; every tied element gets the whole gradient."""
    if not axes:
        return data.clone()
    return _Extreme.apply(data, axes, keepdims, largest)  # type: ignore[no-any-return,no-untyped-call]


class _Extreme(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, data: Tensor, axes: tuple[int, ...], keepdims: bool, largest: bool) -> Tensor:
        result = torch.amax(data, axes, True) if largest else torch.amin(data, axes, True)
        context.save_for_backward(data, result)
        context.axes, context.keepdims = axes, keepdims
        return result if keepdims else squeezed(result, axes)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        data, result = context.saved_tensors
        gradient = gradients[0]
        if not context.keepdims:
            for axis in sorted(context.axes):
                gradient = gradient.unsqueeze(axis)
        return gradient * (data == result).to(gradient.dtype), None, None, None


def squeezed(data: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The array without these axes of size 1."""
    return data.reshape([size for place, size in enumerate(data.shape) if place not in axes])


def product(data: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The product over axes."""
    for axis in sorted(axes, reverse=True):
        data = torch.prod(data, axis, keepdim=keepdims, dtype=data.dtype)
    return data


def _sum(data: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return torch.sum(data, axes, keepdim=keepdims, dtype=data.dtype) if axes else data.clone()


def _mean(data: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if not axes:
        return data.clone()
    if data.is_floating_point():
        return torch.mean(data, axes, keepdim=keepdims)
    return torch.mean(data.to(torch.float64), axes, keepdim=keepdims).to(data.dtype)


def _nansum(data: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return (
        torch.nansum(data, axes, keepdim=keepdims) if data.is_floating_point() else _sum(data, axes, keepdims)
    )


def _nanprod(data: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return product(torch.where(torch.isnan(data), torch.ones_like(data), data), axes, keepdims)


Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _define(name: str, function: Reduction, doc: str, aliases: tuple[str, ...] = (), **options: Any) -> None:
    def reduction(
        data: Tensor, *, axis: Shape | None = None, keepdims: bool = False, exclude: bool = False
    ) -> Tensor:
        axes = reduced_axes(data.dim(), axis, exclude, name)
        if not axes:
            return data.clone()
        return _legacy(function(data, axes, keepdims))

    reduction.__name__ = reduction.__qualname__ = name
    reduction.__doc__ = doc
    operator(name, aliases=aliases, infer=_infer, **options)(reduction)


_define("sum", _sum, "Sum of the elements over axes.", ("sum_axis", "_sparse_sum"), amp="float32")
_define("mean", _mean, "Mean of the elements over axes.", ("_sparse_mean",), amp="float32")
_define("prod", product, "Product of the elements over axes.", amp="float32")
_define("nansum", _nansum, "Sum over axes, NaN counted as 0.", amp="float32")
_define("nanprod", _nanprod, "Product over axes, NaN counted as 1.", amp="float32")
_define("max", lambda d, a, k: extreme(d, a, k, True), "Maximum over axes.", ("max_axis",))
_define("min", lambda d, a, k: extreme(d, a, k, False), "Minimum over axes.", ("min_axis",))
_define("_square_sum", lambda d, a, k: _sum(d * d, a, k), "Sum of squares over axes.", amp="float32")


def _infer_norm(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    shape, dtype = tuple(specs[0].shape), specs[0].dtype
    axes = reduced_axes(len(shape), attrs["axis"], False, "norm")
    found = dtype if dtype.is_floating_point else torch.float32
    return [Spec(reduced_shape(shape, axes, attrs["keepdims"], True), attrs["out_dtype"] or found)]


@operator("norm", aliases=("_npx_norm", "_sparse_norm"), npx="norm", amp="float32", infer=_infer_norm)
def norm(
    data: Tensor,
    *,
    ord: int = 2,
    axis: Shape | None = None,
    out_dtype: DType | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The L1 or L2 norm over axes (one or two of them; all by default)."""
    if ord not in (1, 2):
        raise MXNetError(f"norm: ord is 1 or 2; received {ord}")
    axes = reduced_axes(data.dim(), axis, False, "norm")
    values = data if data.is_floating_point() else data.to(torch.float32)
    total = _Norm.apply(values, axes, ord)  # type: ignore[no-untyped-call]
    result = total if keepdims else squeezed(total, axes)
    return _legacy(result.to(out_dtype) if out_dtype is not None else result)


class _Norm(torch.autograd.Function):
    """The norm with gradient 0 (and not NaN) at 0."""

    @staticmethod
    def forward(context: Any, data: Tensor, axes: tuple[int, ...], order: int) -> Tensor:
        if order == 1:
            result = data.abs().sum(axes, keepdim=True)
        else:
            result = torch.linalg.vector_norm(data, 2, axes, True)
        context.save_for_backward(data, result)
        context.order = order
        return result

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        data, result = context.saved_tensors
        if context.order == 1:
            return gradients[0] * data.sign(), None, None
        safe = torch.where(result == 0, torch.ones_like(result), result)
        return gradients[0] * data / safe, None, None


def _infer_arg(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    shape = tuple(specs[0].shape)
    axes = reduced_axes(len(shape), attrs["axis"], False, "argmax")
    return [Spec(reduced_shape(shape, axes, attrs["keepdims"], True), specs[0].dtype)]


def position(data: Tensor, axis: int | None, keepdims: bool, largest: bool) -> Tensor:
    """Where the first maximum or minimum is; over the flat array when ``axis`` is None."""
    values = data.to(torch.uint8) if data.dtype is torch.bool else data
    function = torch.argmax if largest else torch.argmin
    if axis is None:
        flat = function(values.reshape(-1), 0)
        return flat.reshape([1] * data.dim()) if keepdims else flat
    if not -data.dim() <= axis < data.dim():
        raise MXNetError(f"axis {axis} is out of range for an array of {data.dim()} dimension(s)")
    return function(values, axis, keepdim=keepdims)


def _define_position(name: str, largest: bool) -> None:
    word = "largest" if largest else "smallest"

    def find(data: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return _legacy(position(data, axis, keepdims, largest).to(data.dtype))

    find.__name__ = find.__qualname__ = name
    find.__doc__ = f"Where the {word} element along an axis is, as the data's type."
    operator(name, gradient="zero", infer=_infer_arg)(find)


_define_position("argmax", True)
_define_position("argmin", False)


@operator("argmax_channel", gradient="zero")
def argmax_channel(data: Tensor) -> Tensor:
    """Where the largest element along axis 1 is, as the data's type."""
    return torch.argmax(data, 1).to(data.dtype)


@operator("moments", outputs=2, amp="float32")
def moments(data: Tensor, *, axes: Shape | None = None, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance over axes, in the type of the data: those of integers are cut."""
    chosen = reduced_axes(data.dim(), axes, False, "moments")
    values = data if data.is_floating_point() else data.to(torch.float64)
    mean = values.mean(chosen, keepdim=True)
    variance = ((values - mean) ** 2).mean(chosen, keepdim=True).to(data.dtype)
    mean = mean.to(data.dtype)
    if keepdims:
        return mean, variance
    return _legacy(squeezed(mean, chosen)), _legacy(squeezed(variance, chosen))


@operator("_npi_cumsum", amp="float32", aliases=("_np_cumsum", "cumsum"), np="cumsum")
def cumsum(a: Tensor, *, axis: int | None = None, dtype: DType | None = None) -> Tensor:
    """Running sum along an axis, of the flat array when ``axis`` is None."""
    kind = dtype if dtype is not None else (torch.int64 if a.dtype is torch.bool else a.dtype)
    if axis is None:
        return torch.cumsum(a.reshape(-1), 0, dtype=kind)
    return torch.cumsum(a, axis, dtype=kind)


@operator("multi_sum_sq", num_args_key="num_arrays", gradient="zero")
def multi_sum_sq(*data: Tensor, num_arrays: int, scale: float = 1.0) -> Tensor:
    """The sum of squares of each array, of its elements times ``scale``, as one float32 vector."""
    return torch.stack([(array.to(torch.float32) * scale).square().sum() for array in data])


@operator(
    "_histogram",
    aliases=("_npi_histogram",),
    outputs=2,
    gradient="zero",
    active=lambda attrs: 1 if attrs["bin_cnt"] is not None else 2,
)
def histogram(
    data: Tensor, bins: Tensor | None = None, *, bin_cnt: int | None = None, range: Floats | None = None
) -> tuple[Tensor, Tensor]:
    """How many elements lie in each bin, as int64, and the edges of the bins.

    The edges are ``bins``, or ``bin_cnt`` bins of one width over ``range``. A bin holds its left edge and not
    its right one; the last bin holds both. Raises MXNetError where neither is given in full.
    """
    if bin_cnt is not None:
        if bin_cnt < 1 or range is None or len(range) != 2 or not range[0] < range[1]:
            raise MXNetError(
                "histogram: bin_cnt needs at least 1 bin and a range (low, high) with low < high; received "
                f"bin_cnt={bin_cnt}, range={range}"
            )
        edges = torch.linspace(*range, bin_cnt + 1, dtype=torch.float64, device=data.device)
    elif bins is not None and bins.dim() == 1 and bins.shape[0] > 1:
        edges = bins.to(torch.float64)
    else:
        raise MXNetError("histogram: give bins, a vector of at least 2 edges, or bin_cnt and range")
    values = data.reshape(-1).to(torch.float64)
    count = edges.shape[0] - 1
    places = torch.searchsorted(edges, values, right=True) - 1
    places = torch.where(values == edges[-1], count - 1, places)
    # What lies outside is counted in one more bin, which is dropped.
    places = torch.where((places < 0) | (places >= count), count, places)
    counts = torch.zeros(count + 1, dtype=torch.int64, device=data.device)
    counts = counts.scatter_add(0, places, torch.ones_like(places))[:count]
    return counts, bins.clone() if bins is not None and bin_cnt is None else edges.to(data.dtype)
