"""Samplers. The values of a draw come from a generator of its own, made from (seed, number of the draw)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regluon.base.device import torch_device
from regluon.base.errors import MXNetError
from regluon.ops.opdef import DType, Shape, Spec, operator

Generator = torch.Generator | None
Draw = Callable[..., Tensor]


def _uniform(size: Sequence[int], dtype: torch.dtype, device: Any, rng: Generator) -> Tensor:
    return torch.rand(tuple(size), dtype=dtype, device=device, generator=rng)


def _safe_uniform(size: Sequence[int], dtype: torch.dtype, device: Any, rng: Generator) -> Tensor:
    """Uniform in (0, 1): its logarithm is finite."""
    return _uniform(size, dtype, device, rng).clamp_(min=torch.finfo(dtype).tiny)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def gamma_values(alpha: Tensor, rng: Generator) -> Tensor:
    """Standard gamma variates by Marsaglia and Tsang (2000), in a fixed number of rounds of rejection."""
    if alpha.device.type == "meta":
        return torch.empty_like(alpha)
    boosted = torch.where(alpha < 1, alpha + 1, alpha)
    d = boosted - 1.0 / 3.0
    c = torch.rsqrt(9.0 * d)
    result = d.clone()
    open_places = torch.ones_like(alpha, dtype=torch.bool)
    for _ in range(24):
        x = torch.randn(alpha.shape, dtype=alpha.dtype, device=alpha.device, generator=rng)
        v = (1.0 + c * x) ** 3
        u = _safe_uniform(alpha.shape, alpha.dtype, alpha.device, rng)
        good = (v > 0) & (torch.log(u) < 0.5 * x * x + d - d * v + d * torch.log(v.clamp(min=1e-30)))
        result = torch.where(open_places & good, d * v, result)
        open_places &= ~good
    u = _safe_uniform(alpha.shape, alpha.dtype, alpha.device, rng)
    return torch.where(alpha < 1, result * u ** (1.0 / alpha), result)


def _poisson(rate: Tensor, rng: Generator) -> Tensor:
    return torch.empty_like(rate) if rate.device.type == "meta" else torch.poisson(rate, generator=rng)


def _draw_uniform(size: Any, dtype: Any, device: Any, rng: Generator, low: Any, high: Any) -> Tensor:
    return _uniform(size, dtype, device, rng) * (high - low) + low


def _draw_normal(size: Any, dtype: Any, device: Any, rng: Generator, loc: Any, scale: Any) -> Tensor:
    return torch.randn(tuple(size), dtype=dtype, device=device, generator=rng) * scale + loc


def _draw_exponential(size: Any, dtype: Any, device: Any, rng: Generator, lam: Any) -> Tensor:
    return -torch.log(_safe_uniform(size, dtype, device, rng)) / lam


def _full(size: Any, dtype: Any, device: Any, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(dtype).expand(tuple(size)).contiguous()
    return torch.full(tuple(size), float(value), dtype=dtype, device=device)


def _draw_gamma(size: Any, dtype: Any, device: Any, rng: Generator, alpha: Any, beta: Any) -> Tensor:
    if not isinstance(alpha, Tensor) and not isinstance(beta, Tensor) and not (alpha > 0 and beta > 0):
        raise MXNetError(f"gamma: alpha and beta must be positive; received alpha={alpha}, beta={beta}")
    return gamma_values(_full(size, dtype, device, alpha), rng) * beta


def _draw_poisson(size: Any, dtype: Any, device: Any, rng: Generator, lam: Any) -> Tensor:
    return _poisson(_full(size, dtype, device, lam), rng)


def _draw_negative_binomial(size: Any, dtype: Any, device: Any, rng: Generator, k: Any, p: Any) -> Tensor:
    rate = gamma_values(_full(size, dtype, device, k), rng) * ((1.0 - p) / p)
    return _poisson(rate, rng)


def _draw_generalized(size: Any, dtype: Any, device: Any, rng: Generator, mu: Any, alpha: Any) -> Tensor:
    if not isinstance(alpha, Tensor) and alpha == 0:
        return _draw_poisson(size, dtype, device, rng, mu)
    shape = 1.0 / alpha
    rate = gamma_values(_full(size, dtype, device, shape), rng) * (mu * alpha)
    return _poisson(rate, rng)


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
_EXTRA_ALIASES = {
    "uniform": ("uniform",),
    "normal": ("normal",),
    "poisson": ("_npx_scalar_poisson",),
}
_EXTRA_SAMPLE = {"poisson": ("_npx_tensor_poisson",)}


def _infer_creation(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(tuple(attrs["shape"] or (1,)), attrs["dtype"] or torch.float32)]


def _with_parameters(function: Callable[..., Any], names: dict[str, float], name: str, doc: str) -> Any:
    """The function with the distribution's parameters as keyword-only ones in its signature."""
    import inspect

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

    def sample(
        *,
        shape: Shape | None = None,
        ctx: str = "",
        dtype: DType | None = None,
        _rng: Generator = None,
        **parameters: float,
    ) -> Tensor:
        final = dtype or torch.float32
        size = shape if shape is not None and shape != () else (1,)
        values = draw(size, _wide(final), torch_device(ctx or None), _rng, **{**names, **parameters})
        return values.to(final)

    doc = f"Samples of the {kind.replace('_', ' ')} distribution with parameters {', '.join(names)}."
    name = f"_random_{kind}"
    aliases = (f"random_{kind}", *_EXTRA_ALIASES.get(kind, ()))
    operator(name, aliases=aliases, gradient="zero", infer=_infer_creation)(
        _with_parameters(sample, names, name, doc)
    )

    def like(data: Tensor, *, _rng: Generator = None, **parameters: float) -> Tensor:
        dtype = data.dtype if data.is_floating_point() else torch.float32
        values = draw(data.shape, _wide(dtype), data.device, _rng, **{**names, **parameters})
        return values.to(data.dtype)

    name = f"_random_{kind}_like"
    operator(name, gradient="zero")(
        _with_parameters(like, names, name, f"{doc[:-1]}, of the shape of the data.")
    )


def _infer_sample(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    dtype = attrs["dtype"] or (specs[0].dtype if specs[0].dtype.is_floating_point else torch.float32)
    return [Spec((*specs[0].shape, *(attrs["shape"] or ())), dtype)]


def _sample_arrays(draw: Draw, arrays: Sequence[Tensor], shape: Any, dtype: Any, rng: Generator) -> Tensor:
    extra = tuple(shape or ())
    final = dtype or (arrays[0].dtype if arrays[0].is_floating_point() else torch.float32)
    size = (*arrays[0].shape, *extra)
    wide = _wide(final)
    spread = [array.to(wide).reshape(*array.shape, *([1] * len(extra))) for array in arrays]
    return draw(size, wide, arrays[0].device, rng, *spread).to(final)


def _define_sample(kind: str) -> None:
    draw, _, inputs = _TABLE[kind]

    if len(inputs) == 1:

        def one(
            lam: Tensor, *, shape: Shape | None = None, dtype: DType | None = None, _rng: Generator = None
        ) -> Tensor:
            return _sample_arrays(draw, [lam], shape, dtype, _rng)

        function: Any = one
    else:

        def two(
            low: Tensor,
            high: Tensor,
            *,
            shape: Shape | None = None,
            dtype: DType | None = None,
            _rng: Generator = None,
        ) -> Tensor:
            return _sample_arrays(draw, [low, high], shape, dtype, _rng)

        function = two
    import inspect

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
    operator(f"_sample_{kind}", aliases=aliases, gradient="zero", infer=_infer_sample)(function)


for _kind in _TABLE:
    _define_scalar(_kind)
    _define_sample(_kind)


def _infer_randint(specs: list[Spec], attrs: dict[str, Any]) -> list[Spec]:
    return [Spec(tuple(attrs["shape"] or (1,)), attrs["dtype"] or torch.int32)]


@operator(
    "_random_randint",
    aliases=("random_randint", "_npi_random_randint"),
    gradient="zero",
    infer=_infer_randint,
)
def randint(
    *,
    low: int,
    high: int,
    shape: Shape | None = None,
    ctx: str = "",
    dtype: DType | None = None,
    _rng: Generator = None,
) -> Tensor:
    """Integers in [low, high)."""
    if high <= low:
        raise MXNetError(f"randint: high must be larger than low; received low={low}, high={high}")
    size = shape if shape is not None else (1,)
    return torch.randint(
        low, high, tuple(size), dtype=dtype or torch.int32, device=torch_device(ctx or None), generator=_rng
    )


@operator("_shuffle", aliases=("shuffle", "_npi_shuffle"))
def shuffle(data: Tensor, *, _rng: Generator = None) -> Tensor:
    """The rows in random order."""
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
    extra = tuple(shape or ())
    count = 1
    for size in extra:
        count *= size
    kind = dtype or torch.int32
    lead = tuple(data.shape[:-1])
    place = (*lead, *extra) or (1,)
    rows = data.detach().reshape(-1, data.shape[-1])
    if _rng is None:
        index = torch.zeros(place, dtype=torch.int64, device=data.device)
    else:
        index = torch.multinomial(rows.float(), count, True, generator=_rng).reshape(place)
    if not get_prob:
        return index.to(kind)
    probability = torch.gather(data.reshape(-1, data.shape[-1]), 1, index.reshape(rows.shape[0], count))
    return index.to(kind), torch.log(probability.reshape(place).clamp(min=1e-38))


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
    """With one input, as 1.x: indices drawn with the probabilities in its last axis (and with ``get_prob``
    their
    log-probabilities). With two, as 2.0: counts of ``data`` trials over the categories in the last axis of
    ``p``.
    """
    if p is None:
        return sample_categorical(data, shape=shape, get_prob=get_prob, dtype=dtype, _rng=_rng)
    n = data
    kind = dtype or torch.float32
    extra = tuple(shape or ())
    size = (*n.shape, *extra, p.shape[-1])
    if _rng is None:
        return torch.empty(size, dtype=kind, device=n.device)
    chances = (
        p.float().reshape(*n.shape, *([1] * len(extra)), p.shape[-1]).expand(size).reshape(-1, p.shape[-1])
    )
    left = n.float().reshape(*n.shape, *([1] * len(extra))).expand(size[:-1]).reshape(-1).contiguous()
    rest = torch.ones_like(left)
    counts = []
    for column in range(p.shape[-1]):
        share = (chances[:, column] / rest.clamp(min=1e-12)).clamp(0, 1)
        drawn = left if column == p.shape[-1] - 1 else torch.binomial(left, share, generator=_rng)
        counts.append(drawn)
        left, rest = left - drawn, rest - chances[:, column]
    return torch.stack(counts, -1).reshape(size).to(kind)


@operator("_sample_unique_zipfian", outputs=2, gradient="zero")
def sample_unique_zipfian(*, range_max: int, shape: Shape | None = None, _rng: Generator = None) -> Any:
    """Unique numbers of a log-uniform distribution, and how many trials each row took."""
    rows, count = (shape or (1, 1))[0], (shape or (1, 1))[-1]
    if _rng is None:
        return torch.empty((rows, count), dtype=torch.int64), torch.empty((rows,), dtype=torch.int64)
    result, trials = [], []
    for _ in range(rows):
        seen: dict[int, None] = {}
        tried = 0
        while len(seen) < count:
            u = torch.rand(1, dtype=torch.float64, generator=_rng)
            value = int(torch.exp(u * torch.log(torch.tensor(range_max + 1.0, dtype=torch.float64))) - 1)
            seen.setdefault(min(value, range_max - 1))
            tried += 1
        result.append(list(seen))
        trials.append(tried)
    return torch.tensor(result, dtype=torch.int64), torch.tensor(trials, dtype=torch.int64)
