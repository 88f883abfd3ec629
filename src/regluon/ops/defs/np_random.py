"""Samplers of the NumPy kind: parameters are numbers or arrays, and ``size`` is the shape of the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from regluon.base.device import torch_device
from regluon.base.errors import MXNetError
from regluon.ops.defs.random import gamma_values
from regluon.ops.opdef import DType, Floats, Shape, operator
from regluon.ops.shaping import broadcast_shapes

Generator = torch.Generator | None
Transform = Callable[..., Tensor]


def _uniform(like: Tensor, rng: Generator) -> Tensor:
    tiny = torch.finfo(like.dtype).tiny
    return torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=rng).clamp_(min=tiny)


def _normal(like: Tensor, rng: Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=rng)


def _laplace(like: Tensor, rng: Generator) -> Tensor:
    u = _uniform(like, rng) - 0.5
    return -torch.sign(u) * torch.log1p((-2 * u.abs()).clamp(min=-1 + 1e-7))


def _logistic(like: Tensor, rng: Generator) -> Tensor:
    u = _uniform(like, rng).clamp(max=1 - 1e-7)
    return torch.log(u) - torch.log1p(-u)


# name -> parameters in order, and the sample from broadcast parameters and standard noise
_TABLE: dict[str, tuple[tuple[str, ...], Transform]] = {
    "uniform": (("low", "high"), lambda rng, low, high: low + (high - low) * _uniform(low, rng)),
    "uniform_n": (("low", "high"), lambda rng, low, high: low + (high - low) * _uniform(low, rng)),
    "normal": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _normal(loc, rng)),
    "normal_n": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _normal(loc, rng)),
    "laplace": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _laplace(loc, rng)),
    "gumbel": (
        ("loc", "scale"),
        lambda rng, loc, scale: loc - scale * torch.log(-torch.log(_uniform(loc, rng))),
    ),
    "logistic": (("loc", "scale"), lambda rng, loc, scale: loc + scale * _logistic(loc, rng)),
    "exponential": (("scale",), lambda rng, scale: -scale * torch.log(_uniform(scale, rng))),
    "rayleigh": (("scale",), lambda rng, scale: scale * torch.sqrt(-2 * torch.log(_uniform(scale, rng)))),
    "weibull": (("a",), lambda rng, a: (-torch.log(_uniform(a, rng))) ** (1 / a)),
    "pareto": (("a",), lambda rng, a: _uniform(a, rng) ** (-1 / a) - 1),
    "powerd": (("a",), lambda rng, a: _uniform(a, rng) ** (1 / a)),
    "gamma": (("shape", "scale"), lambda rng, shape, scale: gamma_values(shape.detach(), rng) * scale),
}
_SCALAR: tuple[int, ...] = ()
_OPTIONAL = {"exponential": 1.0, "rayleigh": 1.0}


def _parameters(
    values: list[float | None], arrays: list[Tensor | None], size: Any, dtype: Any, ctx: str, appended: bool
) -> list[Tensor]:
    """Numbers and arrays as tensors of the result's shape."""
    given = iter([array for array in arrays if array is not None])
    chosen: list[Any] = [next(given) if value is None else value for value in values]
    tensors = [value for value in chosen if isinstance(value, Tensor)]
    device = tensors[0].device if tensors else torch_device(ctx if ctx not in ("", "cpu") else None)
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
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
                result.append(value.to(wide).expand(shape))
            except RuntimeError as error:
                raise MXNetError(
                    f"random: size {shape} does not fit parameters of shape {tuple(value.shape)}"
                ) from error
        else:
            result.append(torch.full(shape, float(value), dtype=wide, device=device))
    return result


def _define(name: str) -> None:
    names, transform = _TABLE[name]
    appended = name.endswith("_n")

    def sample(
        input1: Tensor | None = None,
        input2: Tensor | None = None,
        *,
        size: Shape | None = None,
        ctx: str = "cpu",
        dtype: DType | None = None,
        _rng: Generator = None,
        **values: float | None,
    ) -> Tensor:
        final = dtype or torch.float32
        tensors = _parameters([values[n] for n in names], [input1, input2], size, final, ctx, appended)
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
    sample.__doc__ = f"Samples of the {name.removesuffix('_n')} distribution."
    operator(
        f"_npi_{name}",
        active=lambda attrs: sum(attrs[n] is None for n in names),
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
    ctx: str = "cpu",
    dtype: DType | None = None,
    is_logit: bool = False,
    _rng: Generator = None,
) -> Tensor:
    """0 and 1, 1 with the given probability (or that of a logit)."""
    (chance,) = _parameters([logit if is_logit else prob], [input1], size, torch.float32, ctx, False)
    chance = torch.sigmoid(chance) if is_logit else chance
    return (_uniform(chance, _rng) < chance).to(dtype or torch.float32)


@operator(
    "_npi_choice", gradient="zero", active=lambda attrs: int(attrs["a"] is None) + int(attrs["weighted"])
)
def choice(
    input1: Tensor | None = None,
    input2: Tensor | None = None,
    *,
    a: int | None = None,
    size: Shape | None = None,
    ctx: str = "cpu",
    replace: bool = True,
    weighted: bool = False,
    _rng: Generator = None,
) -> Tensor:
    """Elements of a vector (or of ``range(a)``), with or without putting them back."""
    pool = None if a is not None else input1
    weights = (input1 if a is not None else input2) if weighted else None
    count = a if pool is None else pool.shape[0]
    assert count is not None
    shape = tuple(size or ())
    number = 1
    for one in shape:
        number *= one
    device = torch_device(None) if pool is None else pool.device
    if not replace and number > count:
        raise MXNetError(f"choice: cannot take {number} of {count} elements without putting them back")
    if _rng is None:
        index = torch.zeros(shape, dtype=torch.int64, device="meta" if pool is not None else device)
    elif weights is None and replace:
        index = torch.randint(0, count, shape, generator=_rng, device=device)
    elif weights is None:
        index = torch.randperm(count, generator=_rng, device=device)[:number].reshape(shape)
    else:
        index = torch.multinomial(weights.float(), number, replace, generator=_rng).reshape(shape)
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
    """Counts of ``n`` trials over categories, as int64."""
    chances = torch.tensor(pvals, dtype=torch.float64) if a is None else a
    shape = tuple(size or ())
    if _rng is None:
        return torch.empty((*shape, chances.shape[-1]), dtype=torch.int64, device=chances.device)
    number = 1
    for one in shape:
        number *= one
    if n == 0:
        return torch.zeros((*shape, chances.shape[-1]), dtype=torch.int64)
    drawn = torch.multinomial(chances.double().expand(number, -1), n, True, generator=_rng)
    counts = torch.zeros((number, chances.shape[-1]), dtype=torch.int64)
    counts.scatter_add_(1, drawn, torch.ones_like(drawn))
    return counts.reshape(*shape, chances.shape[-1])
