"""Samplers of the NumPy kind: parameters are numbers or arrays, and ``size`` is the shape of the result."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from regluon.base.device import torch_device
from regluon.base.errors import MXNetError
from regluon.ops.defs.random import floating, gamma_values, multinomial_counts, open_uniform, wide
from regluon.ops.failure import ArgumentError
from regluon.ops.opdef import DType, Floats, Shape, operator
from regluon.ops.shaping import broadcast_shapes

Generator = torch.Generator | None
Transform = Callable[..., Tensor]


def _uniform(like: Tensor, rng: Generator) -> Tensor:
    return torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=rng)


def _open_uniform(like: Tensor, rng: Generator) -> Tensor:
    return open_uniform(like.shape, like.dtype, like.device, rng)


def _normal(like: Tensor, rng: Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=rng)


def _exponential(like: Tensor, rng: Generator) -> Tensor:
    return -torch.log(_open_uniform(like, rng))


def _laplace(like: Tensor, rng: Generator) -> Tensor:
    u = _open_uniform(like, rng) - 0.5
    return -torch.sign(u) * torch.log1p(-2 * u.abs())


def _logistic(like: Tensor, rng: Generator) -> Tensor:
    u = _open_uniform(like, rng)
    return torch.log(u) - torch.log1p(-u)


# name -> parameters in order, and the sample from broadcast parameters and standard noise
_TABLE: dict[str, tuple[tuple[str, ...], Transform]] = {
    "uniform": (("low", "high"), lambda rng, low, high: low + (high - low) * _uniform(low, rng)),
    "uniform_n": (("low", "high"), lambda rng, low, high: low + (high - low) * _uniform(low, rng)),
    "normal": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _normal(loc, rng)),
    "normal_n": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _normal(loc, rng)),
    "laplace": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _laplace(loc, rng)),
    "gumbel": (("loc", "scale"), lambda rng, loc, scale: loc - scale * torch.log(_exponential(loc, rng))),
    "logistic": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _logistic(loc, rng)),
    "exponential": (("scale",), lambda rng, scale: scale * _exponential(scale, rng)),
    "rayleigh": (("scale",), lambda rng, scale: scale * torch.sqrt(2 * _exponential(scale, rng))),
    "weibull": (("a",), lambda rng, a: _exponential(a, rng) ** (1 / a)),
    "pareto": (("a",), lambda rng, a: torch.expm1(_exponential(a, rng) / a)),
    "powerd": (("a",), lambda rng, a: torch.exp(-_exponential(a, rng) / a)),
    "gamma": (("shape", "scale"), lambda rng, shape, scale: gamma_values(shape.contiguous(), rng) * scale),
}
# The originals give these no gradient.
_WITHOUT_GRADIENT = ("uniform", "uniform_n", "laplace", "powerd")
# What the parameters must satisfy. Arrays on a GPU are not looked at: that would wait for it.
_NOT_NEGATIVE = ("normal", "normal_n", "gumbel", "logistic", "exponential", "rayleigh")
_POSITIVE = {"weibull": ("a",), "pareto": ("a",), "powerd": ("a",), "gamma": ("shape", "scale")}
_SCALAR: tuple[int, ...] = ()
_OPTIONAL = {"exponential": 1.0, "rayleigh": 1.0}


def _smallest(value: Any) -> float:
    """A number itself, or the smallest of an array on the CPU."""
    if not isinstance(value, Tensor):
        return float(value)
    return float(value.detach().min()) if value.device.type == "cpu" and value.numel() else math.inf


def _check(name: str, values: dict[str, float]) -> None:
    """Refuse parameters that the distribution does not have."""
    positive = _POSITIVE.get(name, ())
    for key, value in values.items():
        if key in positive and not value > 0:
            raise ArgumentError(f"random.{name.removesuffix('d')}: {key} must be positive; received {value}")
        if key == "scale" and name in _NOT_NEGATIVE and value < 0:
            raise ArgumentError(f"random.{name}: scale must not be negative; received {value}")


def _chosen(values: list[float | None], arrays: list[Tensor | None]) -> list[Any]:
    """The parameters: where a number is None, the next array."""
    given = iter([array for array in arrays if array is not None])
    chosen: list[Any] = [next(given, None) if value is None else value for value in values]
    if any(value is None for value in chosen):
        raise MXNetError(
            "random: each parameter of the distribution must be a number or an array; one is None"
        )
    return chosen


def _parameters(chosen: list[Any], size: Any, dtype: Any, ctx: str, appended: bool) -> list[Tensor]:
    """Numbers and arrays as tensors of the result's shape."""
    tensors = [value for value in chosen if isinstance(value, Tensor)]
    device = tensors[0].device if tensors else torch_device(ctx or None)
    kind = wide(dtype)
    common = reduce(broadcast_shapes, [tuple(tensor.shape) for tensor in tensors], _SCALAR)
    if size is None:
        shape = tuple(common)
    elif appended:
        shape = (*size, *common)
    else:
        shape = tuple(size)
    result = []
    for value in chosen:
        if isinstance(value, Tensor):
            try:
                result.append(value.to(kind).expand(shape))
            except RuntimeError as error:
                raise MXNetError(
                    f"random: size {shape} does not fit parameters of shape {tuple(value.shape)}"
                ) from error
        else:
            result.append(torch.full(shape, float(value), dtype=kind, device=device))
    return result


def _define(name: str) -> None:
    names, transform = _TABLE[name]
    appended = name.endswith("_n")

    def sample(
        input1: Tensor | None = None,
        input2: Tensor | None = None,
        *,
        size: Shape | None = None,
        ctx: str = "",
        dtype: DType | None = None,
        _rng: Generator = None,
        **values: float | None,
    ) -> Tensor:
        final = floating(dtype, f"random.{name}")
        given = _chosen([values.get(n, _OPTIONAL.get(name)) for n in names], [input1, input2])
        _check(name, {n: _smallest(value) for n, value in zip(names, given, strict=True)})
        tensors = _parameters(given, size, final, ctx, appended)
        return transform(_rng, *tensors).to(final)

    own = [
        inspect.Parameter(
            n,
            inspect.Parameter.KEYWORD_ONLY,
            default=_OPTIONAL.get(name),
            annotation="float | None",
        )
        for n in names
    ]
    signature = inspect.signature(sample)
    parameters = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    inputs = parameters[: len(names)]
    rest = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    sample.__signature__ = signature.replace(parameters=[*inputs, *own, *rest])  # type: ignore[attr-defined]
    sample.__annotations__ = {**sample.__annotations__, **{n: "float | None" for n in names}}
    sample.__name__ = sample.__qualname__ = f"_npi_{name}"
    sample.__doc__ = (
        f"Samples of the {name.removesuffix('_n')} distribution with parameters {', '.join(names)}; "
        "a parameter that is None is the next input."
    )
    operator(
        f"_npi_{name}",
        active=lambda attrs: sum(attrs[n] is None for n in names),
        gradient="zero" if name in _WITHOUT_GRADIENT else "torch",
    )(sample)


for _name in _TABLE:
    _define(_name)


@operator(
    "_npi_bernoulli",
    active=lambda attrs: int(attrs["prob"] is None and attrs["logit"] is None),
    gradient="zero",
)
def bernoulli(
    input1: Tensor | None = None,
    *,
    prob: float | None = None,
    logit: float | None = None,
    size: Shape | None = None,
    ctx: str = "",
    dtype: DType | None = None,
    is_logit: bool = False,
    _rng: Generator = None,
) -> Tensor:
    """0 and 1, 1 with the given probability (or that of a logit)."""
    given = _chosen([logit if is_logit else prob], [input1])
    (chance,) = _parameters(given, size, torch.float32, ctx, False)
    if not is_logit and (_smallest(chance) < 0 or _smallest(1.0 - chance) < 0):
        raise ArgumentError(f"random.bernoulli: prob must be in [0, 1]; received {given[0]}")
    chance = torch.sigmoid(chance) if is_logit else chance
    return (_uniform(chance, _rng) < chance).to(dtype or torch.float32)


@operator("_npi_choice", active=lambda attrs: int(attrs["a"] is None) + int(attrs["weighted"]))
def choice(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    a: int | None = None,
    size: Shape | None = None,
    ctx: str = "",
    replace: bool = True,
    weighted: bool = False,
    _rng: Generator = None,
) -> Tensor:
    """Rows of an array (or numbers of ``range(a)``), with or without putting them back.

    The inputs are the array, unless ``a`` is given, and with ``weighted`` the probability of each row.
    """
    pool = input1 if a is None else None
    weights = (input2 if a is None else input1) if weighted else None
    if a is None and (pool is None or pool.ndim == 0):
        raise MXNetError("choice: a is a number or an array with at least one axis")
    count = pool.shape[0] if pool is not None else int(a or 0)
    shape = tuple(size or ())
    number = math.prod(shape)
    device = pool.device if pool is not None else torch_device(ctx or None)
    if count <= 0 and number:
        raise MXNetError(f"choice: there must be something to choose from; received {count} elements")
    if not replace and number > count:
        raise MXNetError(f"choice: cannot take {number} of {count} elements without putting them back")
    if weights is not None and tuple(weights.shape) != (count,):
        raise MXNetError(f"choice: p needs the shape ({count},); received {tuple(weights.shape)}")
    if _rng is None or not number:
        index = torch.zeros(shape, dtype=torch.int64, device=device)
    elif weights is None and replace:
        index = torch.randint(0, count, shape, generator=_rng, device=device)
    elif weights is None:
        index = torch.randperm(count, generator=_rng, device=device)[:number].reshape(shape)
    else:
        chances = weights.detach().to(wide(weights.dtype))
        index = torch.multinomial(chances, number, replace, generator=_rng).reshape(shape)
    return index if pool is None else pool[index]


@operator("_npi_multinomial", gradient="zero", active=lambda attrs: int(attrs["pvals"] is None))
def multinomial(
    a: Tensor | None = None,
    *,
    n: int,
    pvals: Floats | None = None,
    size: Shape | None = None,
    _rng: Generator = None,
) -> Tensor:
    """Counts of ``n`` trials over categories, as int64; the last one takes what the others leave of 1."""
    if n < 0:
        raise MXNetError(f"multinomial: n must not be negative; received {n}")
    if a is None:
        chances = torch.tensor(pvals or (), dtype=torch.float64)
    else:
        chances = a.detach().to(torch.float64)
    if chances.ndim != 1 or not chances.shape[0]:
        raise MXNetError(
            f"multinomial: the probabilities are a vector; received the shape {tuple(chances.shape)}"
        )
    shape = tuple(size or ())
    if _rng is None:
        return torch.empty((*shape, chances.shape[0]), dtype=torch.int64, device=chances.device)
    if chances.device.type == "cpu" and (float(chances.sum()) > 1.0 + 1e-6 or float(chances.min()) < 0):
        given = chances.tolist()
        raise MXNetError(f"multinomial: the probabilities are not negative and sum to 1; received {given}")
    full = torch.cat([chances[:-1], (1 - chances[:-1].sum(0, keepdim=True)).clamp(min=0)])
    trials = torch.tensor(float(n), dtype=torch.float64, device=chances.device)
    return multinomial_counts(trials, full.expand(*shape, -1), _rng).to(torch.int64)
