"""Samplers. The values of a draw come from a generator of its own, made from (seed, number of the draw)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regluon.base.device import torch_device
from regluon.base.dtypes import to_name
from regluon.base.errors import MXNetError
from regluon.ops.opdef import DType, Shape, Spec, operator

Generator = torch.Generator | None
Draw = Callable[..., Tensor]
_FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type that samples of ``dtype`` are computed in."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def floating(dtype: torch.dtype | None, name: str, default: torch.dtype = torch.float32) -> torch.dtype:
    """The type of the samples: ``dtype``, which must be a floating one, or the default."""
    if dtype is None:
        return default
    if dtype not in _FLOATING:
        raise MXNetError(f"{name}: the samples are of a floating type; received dtype={to_name(dtype)!r}")
    return dtype


def open_uniform(size: Sequence[int], dtype: torch.dtype, device: Any, rng: Generator) -> Tensor:
    """Uniform in (0, 1): both its logarithm and that of its complement are finite."""
    values = torch.rand(tuple(size), dtype=dtype, device=device, generator=rng)
    return values.clamp_(min=torch.finfo(dtype).eps / 4)


def gamma_values(alpha: Tensor, rng: Generator) -> Tensor:
    """Standard gamma variates; their gradient in ``alpha`` is the implicit one (Figurnov et al. 2018)."""
    return torch._standard_gamma(alpha, generator=rng)


def _poisson(rate: Tensor, rng: Generator) -> Tensor:
    return torch.empty_like(rate) if rng is None else torch.poisson(rate, generator=rng)


def _full(size: Any, dtype: Any, device: Any, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(dtype).expand(tuple(size)).contiguous()
    return torch.full(tuple(size), float(value), dtype=dtype, device=device)


def _draw_uniform(size: Any, dtype: Any, device: Any, rng: Generator, low: Any, high: Any) -> Tensor:
    return torch.rand(tuple(size), dtype=dtype, device=device, generator=rng) * (high - low) + low  # type: ignore[no-any-return]


def _draw_normal(size: Any, dtype: Any, device: Any, rng: Generator, loc: Any, scale: Any) -> Tensor:
    return torch.randn(tuple(size), dtype=dtype, device=device, generator=rng) * scale + loc  # type: ignore[no-any-return]


def _draw_exponential(size: Any, dtype: Any, device: Any, rng: Generator, lam: Any) -> Tensor:
    return -torch.log(open_uniform(size, dtype, device, rng)) / lam  # type: ignore[no-any-return]


def _draw_gamma(size: Any, dtype: Any, device: Any, rng: Generator, alpha: Any, beta: Any) -> Tensor:
    return gamma_values(_full(size, dtype, device, alpha), rng) * beta  # type: ignore[no-any-return]


def _draw_poisson(size: Any, dtype: Any, device: Any, rng: Generator, lam: Any) -> Tensor:
    return _poisson(_full(size, dtype, device, lam), rng)


def _draw_negative_binomial(size: Any, dtype: Any, device: Any, rng: Generator, k: Any, p: Any) -> Tensor:
    """A Poisson variate whose rate is a gamma variate."""
    return _poisson(gamma_values(_full(size, dtype, device, k), rng) * ((1.0 - p) / p), rng)


def _draw_generalized(size: Any, dtype: Any, device: Any, rng: Generator, mu: Any, alpha: Any) -> Tensor:
    """A Poisson variate whose rate is a gamma variate of mean ``mu`` and variance ``alpha mu^2``."""
    mean, spread = _full(size, dtype, device, mu), _full(size, dtype, device, alpha)
    fixed = spread == 0
    spread = spread.masked_fill(fixed, 1.0)
    rate = gamma_values(1.0 / spread, rng) * (mean * spread)
    return _poisson(torch.where(fixed, mean, rate), rng)


def _draw_binomial(size: Any, dtype: Any, device: Any, rng: Generator, n: Any, p: Any) -> Tensor:
    count, chance = _full(size, dtype, device, n), _full(size, dtype, device, p)
    return torch.empty_like(count) if rng is None else torch.binomial(count, chance, generator=rng)


# name: draw, parameters with defaults, input names of the array form
_TABLE: dict[str, tuple[Draw, dict[str, float], tuple[str, ...]]] = {
    "uniform": (_draw_uniform, {"low": 0.0, "high": 1.0}, ("low", "high")),
    "normal": (_draw_normal, {"loc": 0.0, "scale": 1.0}, ("mu", "sigma")),
    "exponential": (_draw_exponential, {"lam": 1.0}, ("lam",)),
    "gamma": (_draw_gamma, {"alpha": 1.0, "beta": 1.0}, ("alpha", "beta")),
    "poisson": (_draw_poisson, {"lam": 1.0}, ("lam",)),
    "negative_binomial": (_draw_negative_binomial, {"k": 1, "p": 1.0}, ("k", "p")),
    "generalized_negative_binomial": (_draw_generalized, {"mu": 1.0, "alpha": 1.0}, ("mu", "alpha")),
    "binomial": (_draw_binomial, {"n": 1, "p": 1.0}, ("n", "p")),
}
# What numbers must satisfy. Arrays are not looked at: that would wait for the device.
_RULES: dict[str, tuple[Callable[..., bool], str]] = {
    "uniform": (lambda low, high: high >= low, "low must not be larger than high"),
    "normal": (lambda loc, scale: scale > 0, "scale must be positive"),
    "exponential": (lambda lam: lam > 0, "lam must be positive"),
    "gamma": (lambda alpha, beta: alpha > 0 and beta > 0, "alpha and beta must be positive"),
    "poisson": (lambda lam: lam >= 0, "lam must not be negative"),
    "negative_binomial": (
        lambda k, p: k >= 0 and 0 < p <= 1,
        "k must not be negative, and p must be in (0, 1]",
    ),
    "generalized_negative_binomial": (
        lambda mu, alpha: mu >= 0 and alpha >= 0,
        "mu and alpha must not be negative",
    ),
    "binomial": (lambda n, p: n >= 0 and 0 <= p <= 1, "n must not be negative, and p must be in [0, 1]"),
}
_EXTRA_ALIASES = {
    "uniform": ("uniform",),
    "normal": ("normal",),
    "poisson": ("_npx_scalar_poisson",),
}
_EXTRA_SAMPLE = {"poisson": ("_npx_tensor_poisson",)}


def _checked(kind: str, values: dict[str, float]) -> dict[str, float]:
    holds, text = _RULES[kind]
    if not holds(**values):
        given = ", ".join(f"{name}={value}" for name, value in values.items())
        raise MXNetError(f"{kind}: {text}; received {given}")
    return values


def _with_parameters(function: Callable[..., Any], names: dict[str, float], name: str, doc: str) -> Any:
    """The function with the distribution's parameters as keyword-only ones in its signature."""
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    own = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            default=value,
            annotation=int if isinstance(value, int) else float,
        )
        for key, value in names.items()
    ]
    fixed = [p for p in kept if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    rest = [p for p in kept if p.kind is inspect.Parameter.KEYWORD_ONLY]
    function.__signature__ = signature.replace(parameters=[*fixed, *own, *rest])  # type: ignore[attr-defined]
    function.__annotations__ = {**function.__annotations__, **{p.name: p.annotation for p in own}}
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _define_scalar(kind: str) -> None:
    draw, names, _ = _TABLE[kind]

    def infer(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
        _checked(kind, {name: attrs[name] for name in names})
        shape = (1,) if attrs["shape"] is None else tuple(attrs["shape"])
        return [Spec(shape, floating(attrs["dtype"], kind))]

    def sample(
        *,
        shape: Shape | None = None,
        ctx: str = "",
        dtype: DType | None = None,
        _rng: Generator = None,
        **parameters: float,
    ) -> Tensor:
        final = floating(dtype, kind)
        values = _checked(kind, {**names, **parameters})
        size = (1,) if shape is None else shape
        return draw(size, wide(final), torch_device(ctx or None), _rng, **values).to(final)

    doc = f"Samples of the {kind.replace('_', ' ')} distribution with parameters {', '.join(names)}."
    name = f"_random_{kind}"
    aliases = (f"random_{kind}", *_EXTRA_ALIASES.get(kind, ()))
    operator(name, aliases=aliases, gradient="zero", infer=infer)(_with_parameters(sample, names, name, doc))

    def like(data: Tensor, *, _rng: Generator = None, **parameters: float) -> Tensor:
        final = floating(data.dtype, f"{kind}_like")
        values = _checked(kind, {**names, **parameters})
        return draw(data.shape, wide(final), data.device, _rng, **values).to(final)

    name = f"_random_{kind}_like"
    operator(name, gradient="zero")(
        _with_parameters(like, names, name, f"{doc[:-1]}, of the shape and type of the data.")
    )


def _define_sample(kind: str) -> None:
    draw, _, inputs = _TABLE[kind]

    def infer(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
        return [Spec((*specs[0].shape, *(attrs["shape"] or ())), floating(attrs["dtype"], kind))]

    def sample_arrays(arrays: Sequence[Tensor], shape: Any, dtype: Any, rng: Generator) -> Tensor:
        if any(array.shape != arrays[0].shape for array in arrays):
            shapes = ", ".join(str(tuple(array.shape)) for array in arrays)
            raise MXNetError(f"sample_{kind}: the parameters must be of one shape; received {shapes}")
        extra = tuple(shape or ())
        final = floating(dtype, kind)
        spread = [array.to(wide(final)).reshape(*array.shape, *([1] * len(extra))) for array in arrays]
        return draw((*arrays[0].shape, *extra), wide(final), arrays[0].device, rng, *spread).to(final)

    def one(
        lam: Tensor, *, shape: Shape | None = None, dtype: DType | None = None, _rng: Generator = None
    ) -> Tensor:
        return sample_arrays([lam], shape, dtype, _rng)

    def two(
        low: Tensor,
        high: Tensor,
        *,
        shape: Shape | None = None,
        dtype: DType | None = None,
        _rng: Generator = None,
    ) -> Tensor:
        return sample_arrays([low, high], shape, dtype, _rng)

    function: Any = one if len(inputs) == 1 else two
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    for place, name in enumerate(inputs):
        parameters[place] = parameters[place].replace(name=name)
    function.__signature__ = signature.replace(parameters=parameters)
    function.__name__ = function.__qualname__ = f"_sample_{kind}"
    function.__doc__ = (
        f"Samples of {kind.replace('_', ' ')} distributions, ``shape`` of them for each parameter."
    )
    aliases = (f"sample_{kind}", *_EXTRA_SAMPLE.get(kind, ()))
    operator(f"_sample_{kind}", aliases=aliases, gradient="zero", infer=infer)(function)


for _kind in _TABLE:
    _define_scalar(_kind)
    _define_sample(_kind)


@operator("_random_randint", aliases=("random_randint", "_npi_random_randint"), gradient="zero")
def randint(
    *,
    low: int,
    high: int,
    shape: Shape | None = None,
    ctx: str = "",
    dtype: DType | None = None,
    _rng: Generator = None,
) -> Tensor:
    """Integers in [low, high), as int32 (the default) or int64."""
    final = dtype or torch.int32
    if final not in (torch.int32, torch.int64):
        raise MXNetError(f"randint: dtype is int32 or int64; received {to_name(final)}")
    if high <= low:
        raise MXNetError(f"randint: high must be larger than low; received low={low}, high={high}")
    size = (1,) if shape is None else tuple(shape)
    return torch.randint(low, high, size, dtype=final, device=torch_device(ctx or None), generator=_rng)


@operator("_shuffle", aliases=("shuffle", "_npi_shuffle"))
def shuffle(data: Tensor, *, _rng: Generator = None) -> Tensor:
    """The rows in random order."""
    if data.ndim == 0:
        raise MXNetError("shuffle: the data needs at least one axis; received a scalar array")
    if _rng is None:
        return data.clone()
    order = torch.randperm(data.shape[0], generator=_rng, device=data.device)
    return data.index_select(0, order)


@operator(
    "_sample_categorical",
    aliases=("sample_categorical", "_npx__random_categorical"),
    outputs=lambda attrs: 2 if attrs["get_prob"] else 1,
)
def sample_categorical(
    data: Tensor,
    *,
    shape: Shape | None = None,
    get_prob: bool = False,
    dtype: DType | None = None,
    _rng: Generator = None,
) -> Any:
    """Indices drawn with the probabilities in the last axis; their log-probabilities with ``get_prob``."""
    if data.ndim == 0:
        raise MXNetError(
            "categorical: the probabilities are the last axis of the data; received a scalar array"
        )
    extra = tuple(shape or ())
    kind = dtype or torch.int32
    size = (*data.shape[:-1], *extra) or (1,)
    rows = data.reshape(-1, data.shape[-1])
    count = math.prod(extra)
    if _rng is None or 0 in size:
        index = torch.zeros(size, dtype=torch.int64, device=data.device)
    else:
        chances = rows.detach().to(wide(data.dtype))
        index = torch.multinomial(chances, count, True, generator=_rng).reshape(size)
    if not get_prob:
        return index.to(kind)
    probability = torch.gather(rows, 1, index.reshape(rows.shape[0], count))
    return index.to(kind), torch.log(probability.reshape(size))


def multinomial_counts(trials: Tensor, chances: Tensor, rng: Generator) -> Tensor:
    """Counts of ``trials`` (...) over the categories in the last axis of ``chances`` (..., k), as float64.

    Category by category, each a binomial draw of what is left; the last one takes the rest.
    """
    chances = chances.to(torch.float64)
    left = trials.to(torch.float64).expand(chances.shape[:-1]).contiguous()
    tails = chances.flip(-1).cumsum(-1).flip(-1)
    counts = []
    for column in range(chances.shape[-1] - 1):
        # No probability left: nothing is left to draw either, whatever the share.
        share = torch.nan_to_num(chances[..., column] / tails[..., column]).clamp(0, 1)
        drawn = torch.binomial(left, share.contiguous(), generator=rng)
        counts.append(drawn)
        left = left - drawn
    return torch.stack([*counts, left], -1)


@operator(
    "_sample_multinomial",
    aliases=("sample_multinomial", "_npx__random_multinomial"),
    outputs=lambda attrs: 2 if attrs["get_prob"] else 1,
)
def sample_multinomial(
    data: Tensor,
    p: Tensor | None = None,
    *,
    shape: Shape | None = None,
    get_prob: bool = False,
    ctx: str = "",
    dtype: DType | None = None,
    _rng: Generator = None,
) -> Any:
    """Indices or counts, by the number of inputs.

    With one input, as in 1.x: indices drawn with the probabilities in its last axis, and with ``get_prob``
    their log-probabilities. With two, as in 2.0: counts of ``data`` trials over the categories in the last
    axis of ``p``, of the type of ``data``.
    """
    if p is None:
        return sample_categorical(data, shape=shape, get_prob=get_prob, dtype=dtype, _rng=_rng)
    if get_prob:
        raise MXNetError("multinomial: get_prob belongs to the form with one array; received two")
    if tuple(p.shape[:-1]) != tuple(data.shape):
        raise MXNetError(
            f"multinomial: p needs one axis more than n; received n of shape {tuple(data.shape)} "
            f"and p of shape {tuple(p.shape)}"
        )
    extra = tuple(shape or ())
    size = (*data.shape, *extra, p.shape[-1])
    if _rng is None or 0 in size:
        return torch.empty(size, dtype=data.dtype, device=data.device)
    ones = [1] * len(extra)
    chances = p.detach().reshape(*data.shape, *ones, p.shape[-1]).expand(size)
    trials = data.detach().reshape(*data.shape, *ones)
    return multinomial_counts(trials, chances, _rng).to(data.dtype)


@operator("_sample_unique_zipfian", outputs=2, gradient="zero")
def sample_unique_zipfian(*, range_max: int, shape: Shape | None = None, _rng: Generator = None) -> Any:
    """Different numbers in [0, range_max), ``k`` with probability ``log((k+2)/(k+1)) / log(range_max+1)``.

    ``shape`` is (rows, numbers of a row). The second output is how many draws each row took, repeated ones
    included.
    """
    if shape and len(shape) != 2:
        raise MXNetError(f"unique_zipfian: shape is (rows, numbers of a row); received {shape}")
    rows, count = shape or (1, 1)
    if count > range_max:
        raise MXNetError(
            f"unique_zipfian: there are only {range_max} numbers below {range_max}; asked for {count}"
        )
    if _rng is None:
        return tuple(torch.empty(size, dtype=torch.int64) for size in ((rows, count), (rows,)))
    found = torch.empty((rows, count), dtype=torch.int64, device=_rng.device)
    tries = torch.empty((rows,), dtype=torch.int64, device=_rng.device)
    for row in range(rows):
        found[row], tries[row] = _unique_zipfian(range_max, count, _rng)
    return found, tries


def _unique_zipfian(range_max: int, count: int, rng: torch.Generator) -> tuple[Tensor, int]:
    """The first ``count`` different numbers of a sequence of draws, and the length of the sequence."""
    sequence = torch.empty(0, dtype=torch.int64, device=rng.device)
    while True:
        u = torch.rand(2 * count, dtype=torch.float64, generator=rng, device=rng.device)
        fresh = torch.expm1(u * math.log(range_max + 1.0)).long().clamp(max=range_max - 1)
        sequence = torch.cat([sequence, fresh])
        values, places = torch.unique(sequence, return_inverse=True)
        if len(values) >= count:
            break
    first = torch.full_like(values, len(sequence))
    first.scatter_reduce_(0, places, torch.arange(len(sequence), device=rng.device), "amin")
    kept = first.sort().values[:count]
    return sequence[kept], int(kept[-1]) + 1 if count else 0
