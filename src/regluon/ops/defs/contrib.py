"""Operators of the contrib name space that do not belong to a larger family."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops import shaping
from regluon.ops.defs.index import as_index
from regluon.ops.opdef import Shape, Spec, operator

Attrs = dict[str, Any]


def _arange_like_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    shape = specs[0].shape
    if attrs["axis"] is None:
        return [specs[0]]
    return [Spec((shape[shaping.normalise_axis(attrs["axis"], len(shape))],), specs[0].dtype)]


@operator(
    "_contrib_arange_like",
    aliases=("_npx_arange_like",),
    npx="arange_like",
    gradient="zero",
    infer=_arange_like_infer,
)
def arange_like(
    data: Tensor,
    *,
    start: float = 0.0,
    step: float = 1.0,
    repeat: int = 1,
    ctx: str = "",
    axis: int | None = None,
) -> Tensor:
    """Return start, start + step, ...: in the shape of ``data``, or as long as its ``axis``.

    Every value is repeated ``repeat`` times; the length does not change.
    """
    if repeat < 1:
        raise MXNetError(f"arange_like: repeat must be positive, received {repeat}")
    shape = tuple(data.shape) if axis is None else (data.shape[shaping.normalise_axis(axis, data.dim())],)
    count = math.prod(shape)
    position = torch.arange(count, dtype=torch.int64, device=data.device)
    if repeat > 1:
        position = torch.div(position, repeat, rounding_mode="floor")
    return (position.to(torch.float64) * step + start).to(data.dtype).reshape(shape)


def _index_array_axes(ndim: int, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(ndim))
    return tuple(shaping.normalise_axis(axis, ndim) for axis in axes)


@operator(
    "_contrib_index_array",
    gradient="zero",
    infer=lambda specs, attrs: [
        Spec((*specs[0].shape, len(_index_array_axes(len(specs[0].shape), attrs["axes"]))), torch.int64)
    ],
)
def index_array(data: Tensor, *, axes: Shape | None = None) -> Tensor:
    """Return int64 (..., n): at every position of ``data`` its index along each of the n ``axes``."""
    grids = []
    for axis in _index_array_axes(data.dim(), axes):
        view = [1] * data.dim()
        view[axis] = data.shape[axis]
        grids.append(torch.arange(data.shape[axis], device=data.device).reshape(view).expand(data.shape))
    if not grids:
        return torch.zeros((*data.shape, 0), dtype=torch.int64, device=data.device)
    return torch.stack(grids, -1)


@operator("_contrib_div_sqrt_dim", infer=lambda specs, attrs: [specs[0]])
def div_sqrt_dim(data: Tensor) -> Tensor:
    """Divide by the square root of the last dimension, as scaled dot-product attention does."""
    return (data / math.sqrt(data.shape[-1])).to(data.dtype)


@operator("_contrib_allclose", gradient="zero", infer=lambda specs, attrs: [Spec((), torch.uint8)])
def allclose(
    a: Tensor, b: Tensor, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = True
) -> Tensor:
    """Return 1 when ``|a - b| <= atol + rtol * |b|`` everywhere, else 0."""
    close = torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return close.all().to(torch.uint8)


@operator("_contrib_quadratic", infer=lambda specs, attrs: [specs[0]])
def quadratic(data: Tensor, *, a: float = 0.0, b: float = 0.0, c: float = 0.0) -> Tensor:
    """Return ``a * x**2 + b * x + c``."""
    return (a * data * data + b * data + c).to(data.dtype)


class _GradientMultiplier(torch.autograd.Function):
    """Identity whose gradient is multiplied by a number."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, scalar: float) -> Tensor:
        ctx.scalar = scalar
        return data.view_as(data)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.scalar, None


@operator("_contrib_gradientmultiplier", infer=lambda specs, attrs: [specs[0]])
def gradientmultiplier(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
    """Return ``data``; its gradient is multiplied by ``scalar`` (a negative one reverses it)."""
    result: Tensor = _GradientMultiplier.apply(data, scalar)  # type: ignore[no-untyped-call]
    return result


@operator("_contrib_getnnz", gradient="zero")
def getnnz(data: Tensor, *, axis: int | None = None) -> Tensor:
    """Count the elements that are not 0, of the whole matrix ((1,) int64) or per row (axis 1) or column
    (axis 0)."""
    present = (data != 0).to(torch.int64)
    if axis is None:
        return present.sum().reshape(1)
    return present.sum(shaping.normalise_axis(axis, data.dim()))


@operator("_sparse_retain", infer=lambda specs, attrs: [specs[0]])
def sparse_retain(data: Tensor, indices: Tensor) -> Tensor:
    """Keep the rows ``indices`` of ``data`` and set all others to 0."""
    rows = torch.zeros(data.shape[0], dtype=torch.bool, device=data.device)
    rows = rows.index_fill(0, as_index(indices).reshape(-1), True)
    return torch.where(rows.reshape(-1, *([1] * (data.dim() - 1))), data, torch.zeros_like(data))


@operator("cast_storage", aliases=("_sparse_cast_storage",), infer=lambda specs, attrs: [specs[0]])
def cast_storage(data: Tensor, *, stype: Literal["csr", "default", "row_sparse"]) -> Tensor:
    """Change the storage type. In a graph all values are dense, so they go through unchanged."""
    del stype
    return data


# --- attention over interleaved projections ------------------------------------------------------
# Layout: (length, batch, heads * parts * size), the parts (query, key, value) of a head side by side.


def _parts(data: Tensor, heads: int, parts: int, name: str) -> tuple[Tensor, ...]:
    """Split into ``parts`` tensors of shape (batch * heads, length, size)."""
    if data.dim() != 3 or heads < 1 or data.shape[2] % (heads * parts):
        raise MXNetError(
            f"{name}: expected (length, batch, heads * {parts} * size) with heads={heads}, "
            f"received {tuple(data.shape)}"
        )
    length, batch, width = data.shape
    split = data.reshape(length, batch * heads, parts, width // (heads * parts))
    return tuple(part.transpose(0, 1) for part in split.unbind(2))


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return torch.bmm(query / math.sqrt(query.shape[-1]), key.transpose(1, 2))


def _merge(context: Tensor, batch: int) -> Tensor:
    return context.transpose(0, 1).reshape(context.shape[1], batch, -1)


@operator(
    "_contrib_interleaved_matmul_selfatt_qk",
    amp="widest",
    aliases=("_npx_interleaved_matmul_selfatt_qk",),
    npx="interleaved_matmul_selfatt_qk",
)
def interleaved_matmul_selfatt_qk(queries_keys_values: Tensor, *, heads: int) -> Tensor:
    """Scaled scores of self-attention: (L, B, heads * 3 * D) -> (B * heads, L, L)."""
    query, key, _ = _parts(queries_keys_values, heads, 3, "interleaved_matmul_selfatt_qk")
    return _scores(query, key)


@operator(
    "_contrib_interleaved_matmul_selfatt_valatt",
    amp="widest",
    aliases=("_npx_interleaved_matmul_selfatt_valatt",),
    npx="interleaved_matmul_selfatt_valatt",
)
def interleaved_matmul_selfatt_valatt(
    queries_keys_values: Tensor, attention: Tensor, *, heads: int
) -> Tensor:
    """Context of self-attention: weights (B * heads, L, L) times the values -> (L, B, heads * D)."""
    _, _, value = _parts(queries_keys_values, heads, 3, "interleaved_matmul_selfatt_valatt")
    return _merge(torch.bmm(attention, value), queries_keys_values.shape[1])


@operator(
    "_contrib_interleaved_matmul_encdec_qk",
    amp="widest",
    aliases=("_npx_interleaved_matmul_encdec_qk",),
    npx="interleaved_matmul_encdec_qk",
)
def interleaved_matmul_encdec_qk(queries: Tensor, keys_values: Tensor, *, heads: int) -> Tensor:
    """Scaled scores of encoder-decoder attention: -> (B * heads, query length, key length)."""
    (query,) = _parts(queries, heads, 1, "interleaved_matmul_encdec_qk")
    key, _ = _parts(keys_values, heads, 2, "interleaved_matmul_encdec_qk")
    return _scores(query, key)


@operator(
    "_contrib_interleaved_matmul_encdec_valatt",
    amp="widest",
    aliases=("_npx_interleaved_matmul_encdec_valatt",),
    npx="interleaved_matmul_encdec_valatt",
)
def interleaved_matmul_encdec_valatt(keys_values: Tensor, attention: Tensor, *, heads: int) -> Tensor:
    """Context of encoder-decoder attention: weights times the values -> (query length, B, heads * D)."""
    _, value = _parts(keys_values, heads, 2, "interleaved_matmul_encdec_valatt")
    return _merge(torch.bmm(attention, value), keys_values.shape[1])
