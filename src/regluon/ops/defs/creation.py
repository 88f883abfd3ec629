"""Operators that make arrays out of attributes alone: constants, ranges, identities, windows, index grids."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regluon.base.device import torch_device
from regluon.base.errors import MXNetError
from regluon.ops.opdef import DType, Shape, Spec, operator

Attrs = dict[str, Any]

DEFAULT_DTYPE = torch.float32


def _dtype(attrs: Attrs, default: torch.dtype = DEFAULT_DTYPE) -> torch.dtype:
    dtype = attrs.get("dtype")
    return dtype if isinstance(dtype, torch.dtype) else default


def _size(value: int, name: str) -> int:
    if value < 0:
        raise MXNetError(f"{name} must not be negative, received {value}")
    return value


def _checked_shape(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    dims = tuple(shape or ())
    if any(dim < 0 for dim in dims):
        raise MXNetError(f"cannot create an array of shape {dims}: a size must not be negative")
    return dims


# --- constants -----------------------------------------------------------------------------------


def _shape_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    return [Spec(_checked_shape(attrs["shape"]), _dtype(attrs))]


def _define_constant(name: str, value: float, text: str) -> None:
    def constant(*, shape: Shape = (), ctx: str = "", dtype: DType | None = None) -> Tensor:
        return torch.full(
            _checked_shape(shape), value, dtype=dtype or DEFAULT_DTYPE, device=torch_device(ctx)
        )

    constant.__name__ = constant.__qualname__ = name.lstrip("_")
    constant.__doc__ = f"Return an array of ``shape`` filled with {text} (float32 unless ``dtype`` is given)."
    operator(name, gradient="zero", infer=_shape_infer)(constant)


for _name, _value, _text in (
    ("_zeros", 0, "zeros"),
    ("_ones", 1, "ones"),
    ("_npi_zeros", 0, "zeros"),
    ("_npi_ones", 1, "ones"),
):
    _define_constant(_name, _value, _text)


@operator(
    "_zeros_without_dtype",
    gradient="zero",
    infer=lambda specs, attrs: [Spec(_checked_shape(attrs["shape"]), DEFAULT_DTYPE)],
)
def zeros_without_dtype(*, shape: Shape | None = None, ctx: str = "", dtype: int = -1) -> Tensor:
    """Return zeros whose dtype the surrounding graph would choose; float32 here."""
    return torch.zeros(_checked_shape(shape), dtype=DEFAULT_DTYPE, device=torch_device(ctx))


@operator("_full", gradient="zero", infer=_shape_infer)
def full(*, shape: Shape | None = None, ctx: str = "", dtype: DType | None = None, value: float) -> Tensor:
    """Return an array of ``shape`` filled with ``value`` (float32 unless ``dtype`` is given)."""
    return _filled(_checked_shape(shape), value, dtype or DEFAULT_DTYPE, torch_device(ctx))


def _filled(shape: tuple[int, ...], value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    if not dtype.is_floating_point and dtype is not torch.bool and math.isfinite(value):
        value = int(value)
    elif dtype is torch.bool:
        value = bool(value)
    return torch.full(shape, value, dtype=dtype, device=device)


# Kind of the value that `_npi_full` holds -> dtype of the result when none is asked for.
_VALUE_DTYPES = {0: torch.int64, 1: torch.uint64, 2: torch.float32, 3: torch.bool}


def _npi_full_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    dtype = _dtype(attrs, _VALUE_DTYPES.get(attrs["value_type"], DEFAULT_DTYPE))
    return [Spec(_checked_shape(attrs["shape"]), dtype)]


@operator("_npi_full", gradient="zero", infer=_npi_full_infer)
def npi_full(
    *,
    shape: Shape | None = None,
    ctx: str = "",
    dtype: DType | None = None,
    double_value: float = 0.0,
    int_value: int = 0,
    uint_value: int = 0,
    value_type: int = 2,
) -> Tensor:
    """Return an array filled with one of three values; ``value_type`` 0 = integer, 1 = unsigned, 2 =
    floating, 3 = bool."""
    value: float = {0: int_value, 1: uint_value, 3: int_value}.get(value_type, double_value)
    chosen = dtype or _VALUE_DTYPES.get(value_type, DEFAULT_DTYPE)
    return _filled(_checked_shape(shape), value, chosen, torch_device(ctx))


@operator(
    "_npi_full_like",
    gradient="zero",
    infer=lambda specs, attrs: [Spec(specs[0].shape, _dtype(attrs, specs[0].dtype))],
)
def npi_full_like(a: Tensor, *, fill_value: float, ctx: str = "", dtype: DType | None = None) -> Tensor:
    """Return an array of the shape (and, unless given, the dtype) of ``a`` filled with ``fill_value``."""
    return _filled(tuple(a.shape), fill_value, dtype or a.dtype, a.device)


# --- ranges --------------------------------------------------------------------------------------


def range_length(start: float, stop: float | None, step: float, repeat: int) -> tuple[float, int]:
    """Return the first value and the length of ``arange``; a missing stop makes start the stop."""
    if step == 0:
        raise MXNetError("arange: step must not be 0")
    if repeat < 1:
        raise MXNetError(f"arange: repeat must be positive, received {repeat}")
    if stop is None:
        start, stop = 0.0, start
    return start, max(math.ceil((stop - start) / step), 0) * repeat


def _arange_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    _, length = range_length(attrs["start"], attrs["stop"], attrs["step"], attrs["repeat"])
    return [Spec((length,), _dtype(attrs))]


def _ramp(start: float, step: float, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return start, start + step, ...: exact integers stay exact, the rest is computed in float64."""
    exact = not dtype.is_floating_point and float(start).is_integer() and float(step).is_integer()
    wide = torch.int64 if exact else torch.float64
    first: float = int(start) if exact else start
    factor: float = int(step) if exact else step
    return (torch.arange(count, dtype=wide, device=device) * factor + first).to(dtype)


def _define_arange(name: str, default: torch.dtype) -> None:
    def arange(
        *,
        start: float,
        stop: float | None = None,
        step: float = 1.0,
        repeat: int = 1,
        infer_range: bool = False,
        ctx: str = "",
        dtype: DType | None = None,
    ) -> Tensor:
        first, length = range_length(start, stop, step, repeat)
        values = _ramp(first, step, length // repeat, dtype or default, torch_device(ctx))
        return values.repeat_interleave(repeat) if repeat > 1 else values

    arange.__name__ = arange.__qualname__ = name.lstrip("_")
    arange.__doc__ = (
        "Return start, start + step, ... up to but without ``stop``, each value ``repeat`` times.\n\n"
        "Without ``stop`` the range is [0, start). The number of values is ceil((stop - start) / step)."
    )
    operator(name, gradient="zero", infer=_arange_infer)(arange)


_define_arange("_arange", DEFAULT_DTYPE)
_define_arange("_npi_arange", DEFAULT_DTYPE)


def _linspace(
    start: float, stop: float, num: int, endpoint: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    _size(num, "num")
    intervals = num - 1 if endpoint else num
    step = (stop - start) / intervals if intervals > 0 else 0.0
    values = torch.arange(num, dtype=torch.float64, device=device) * step + start
    if endpoint and num > 1:
        values[-1] = stop
    return values.to(dtype)


@operator("_linspace", gradient="zero", infer=lambda specs, attrs: [Spec((attrs["num"],), _dtype(attrs))])
def linspace(
    *,
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    num: int = 50,
    endpoint: bool = True,
    ctx: str = "",
    dtype: DType | None = None,
) -> Tensor:
    """Return ``num`` evenly spaced values from ``start`` to ``stop`` (included if ``endpoint``).

    ``step``, ``repeat`` and ``infer_range`` are accepted for compatibility and have no effect.
    """
    if stop is None:
        start, stop = 0.0, start
    return _linspace(start, stop, num, endpoint, dtype or DEFAULT_DTYPE, torch_device(ctx))


@operator("_npi_linspace", gradient="zero", infer=lambda specs, attrs: [Spec((attrs["num"],), _dtype(attrs))])
def npi_linspace(
    *,
    start_double: float = 0.0,
    stop_double: float = 0.0,
    start_int: int = 0,
    stop_int: int = 0,
    start_uint: int = 0,
    stop_uint: int = 0,
    num: int = 50,
    endpoint: bool = True,
    ctx: str = "",
    dtype: DType | None = None,
    value_type: int = 0,
    start: float | None = None,
    stop: float | None = None,
) -> Tensor:
    """Return ``num`` evenly spaced values; every bound is the sum of its parts, as only one of them is not 0.

    ``start`` and ``stop`` are the form of 1.x.
    """
    first = start if start is not None else start_double + start_int + start_uint
    last = stop if stop is not None else stop_double + stop_int + stop_uint
    return _linspace(first, last, num, endpoint, dtype or DEFAULT_DTYPE, torch_device(ctx))


@operator("_npi_logspace", gradient="zero", infer=lambda specs, attrs: [Spec((attrs["num"],), _dtype(attrs))])
def npi_logspace(
    *,
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    base: float = 10.0,
    ctx: str = "",
    dtype: DType | None = None,
) -> Tensor:
    """Return ``base ** x`` for ``num`` evenly spaced x from ``start`` to ``stop``."""
    exponents = _linspace(start, stop, num, endpoint, torch.float64, torch_device(ctx))
    return torch.pow(base, exponents).to(dtype or DEFAULT_DTYPE)


# --- matrices ------------------------------------------------------------------------------------


def _eye(rows: int, columns: int, k: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    row = torch.arange(_size(rows, "N"), device=device).unsqueeze(1)
    column = torch.arange(_size(columns, "M"), device=device).unsqueeze(0)
    return (column - row == k).to(dtype)


@operator(
    "_eye",
    gradient="zero",
    infer=lambda specs, attrs: [Spec((attrs["N"], attrs["M"] or attrs["N"]), _dtype(attrs))],
)
def eye(*, N: int, M: int = 0, k: int = 0, ctx: str = "", dtype: DType | None = None) -> Tensor:
    """Return (N, M) with ones on diagonal ``k``; ``M`` of 0 stands for N."""
    return _eye(N, M or N, k, dtype or DEFAULT_DTYPE, torch_device(ctx))


def _npi_eye_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    columns = attrs["N"] if attrs["M"] is None else attrs["M"]
    return [Spec((attrs["N"], columns), _dtype(attrs))]


@operator("_npi_eye", gradient="zero", infer=_npi_eye_infer)
def npi_eye(*, N: int, M: int | None = None, k: int = 0, ctx: str = "", dtype: DType | None = None) -> Tensor:
    """Return (N, M) with ones on diagonal ``k``; without ``M`` it is square."""
    return _eye(N, N if M is None else M, k, dtype or DEFAULT_DTYPE, torch_device(ctx))


@operator("_npi_identity", gradient="zero", infer=_shape_infer)
def npi_identity(*, shape: Shape = (), ctx: str = "", dtype: DType | None = None) -> Tensor:
    """Return the identity matrix of ``shape`` (n, n)."""
    if len(shape) != 2:
        raise MXNetError(f"identity: shape must have two sizes, received {shape}")
    return _eye(shape[0], shape[1], 0, dtype or DEFAULT_DTYPE, torch_device(ctx))


@operator("_npi_tri", gradient="zero", infer=_npi_eye_infer)
def npi_tri(*, N: int, M: int | None = None, k: int = 0, dtype: DType | None = None, ctx: str = "") -> Tensor:
    """Return (N, M) with ones at and below diagonal ``k``."""
    columns = N if M is None else M
    device = torch_device(ctx)
    row = torch.arange(_size(N, "N"), device=device).unsqueeze(1)
    column = torch.arange(_size(columns, "M"), device=device).unsqueeze(0)
    return (column - row <= k).to(dtype or DEFAULT_DTYPE)


def _tril_size(rows: int, columns: int, k: int) -> int:
    return sum(min(max(row + k + 1, 0), columns) for row in range(rows))


@operator(
    "_npi_tril_indices",
    gradient="zero",
    outputs=2,
    infer=lambda specs, attrs: [Spec((_tril_size(attrs["n"], attrs["m"], attrs["k"]),), torch.int64)] * 2,
)
def npi_tril_indices(*, n: int, k: int = 0, m: int) -> tuple[Tensor, Tensor]:
    """Return the row and column indices (int64) of the lower triangle of an (n, m) matrix up to diagonal
    ``k``."""
    indices = torch.tril_indices(n, m, k)
    return indices[0], indices[1]


@operator(
    "_npi_indices",
    gradient="zero",
    infer=lambda specs, attrs: [
        Spec((len(attrs["dimensions"]), *attrs["dimensions"]), _dtype(attrs, torch.int64))
    ],
)
def npi_indices(*, dimensions: Shape, dtype: DType | None = None, ctx: str = "") -> Tensor:
    """Return (len(dimensions), *dimensions): the index along each dimension at every position; int64 by
    default."""
    device = torch_device(ctx)
    dims = _checked_shape(dimensions)
    grids = []
    for axis, size in enumerate(dims):
        view = [1] * len(dims)
        view[axis] = size
        grids.append(torch.arange(size, device=device).reshape(view).expand(dims))
    stacked = torch.stack(grids) if grids else torch.zeros((0,), dtype=torch.int64, device=device)
    return stacked.to(dtype or torch.int64)


# --- windows -------------------------------------------------------------------------------------

# Coefficients a_j of the cosine-sum windows w(i) = sum_j (-1)^j a_j cos(2 pi j i / (M - 1)),
# F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", 1978.
_WINDOWS: dict[str, tuple[float, ...]] = {
    "hanning": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
}


def _window(coefficients: tuple[float, ...], length: int, device: torch.device) -> Tensor:
    if length == 1:
        return torch.ones(1, dtype=torch.float64, device=device)
    angle = torch.arange(length, dtype=torch.float64, device=device) * (2 * math.pi / max(length - 1, 1))
    result = torch.zeros_like(angle)
    for order, coefficient in enumerate(coefficients):
        result = result + (-1) ** order * coefficient * torch.cos(order * angle)
    return result


def _window_operator(coefficients: tuple[float, ...]) -> Callable[..., Tensor]:
    def window(*, M: int | None = None, ctx: str = "", dtype: DType | None = None) -> Tensor:
        length = max(M or 0, 0)
        return _window(coefficients, length, torch_device(ctx)).to(dtype or DEFAULT_DTYPE)

    return window


for _name, _coefficients in _WINDOWS.items():
    _function = _window_operator(_coefficients)
    _function.__name__ = _function.__qualname__ = _name
    _function.__doc__ = f"Return the {_name} window of ``M`` points, symmetric, with maximum 1."
    operator(
        f"_npi_{_name}",
        gradient="zero",
        infer=lambda specs, attrs: [Spec((max(attrs["M"] or 0, 0),), _dtype(attrs))],
    )(_function)
