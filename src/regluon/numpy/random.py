"""mx.np.random: samplers with NumPy's signatures."""

from __future__ import annotations

from typing import Any

from ..base import dtypes, rng
from ..ops.registry import get
from ..runtime.handles import kinds
from ..runtime.invoke import invoke


def _sizes(size: Any) -> Any:
    return None if size is None else tuple(size) if hasattr(size, "__iter__") else (size,)


def _where(ctx: Any, device: Any) -> dict[str, str]:
    chosen = device if device is not None else ctx
    return {} if chosen is None else {"ctx": str(chosen)}


def _sample(
    kind: str, parameters: dict[str, Any], size: Any, dtype: Any, place: dict[str, str], out: Any
) -> Any:
    attrs: dict[str, Any] = {}
    arrays = []
    for name, value in parameters.items():
        if isinstance(value, (kinds.nd, kinds.symbol)):
            arrays.append(value)
            attrs[name] = None
        elif hasattr(value, "__array__") and bool(getattr(value, "ndim", False)):
            from .functions import array

            arrays.append(array(value))
            attrs[name] = None
        else:
            attrs[name] = float(value)
    if size is None and out is not None:
        size = out.shape
    if size is not None:
        attrs["size"] = _sizes(size)
    if dtype is not None:
        attrs["dtype"] = dtypes.to_torch(dtype)
    return invoke(get(f"_npi_{kind}"), arrays, {**attrs, **place}, out=out, cls=kinds.np)


def seed(seed: int = 0, ctx: Any = None) -> None:
    """Start the sequence of random draws anew."""
    rng.seed(int(seed))


def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Samples uniform in [low, high)."""
    return _sample("uniform", {"low": low, "high": high}, size, dtype, _where(ctx, device), out)


def normal(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Normal samples with mean ``loc`` and standard deviation ``scale``."""
    return _sample("normal", {"loc": loc, "scale": scale}, size, dtype, _where(ctx, device), out)


def lognormal(
    mean: Any = 0.0,
    sigma: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Samples whose logarithm is normal."""
    import regluon.numpy as np

    result = np.exp(normal(mean, sigma, size, dtype, device, ctx))  # type: ignore[misc,attr-defined]
    if out is not None:
        out[...] = result
        return out
    return result


def laplace(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Samples of the Laplace distribution."""
    return _sample("laplace", {"loc": loc, "scale": scale}, size, dtype, _where(ctx, device), out)


def logistic(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> Any:
    """Samples of the logistic distribution."""
    return _sample("logistic", {"loc": loc, "scale": scale}, size, None, _where(ctx, device), out)


def gumbel(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> Any:
    """Samples of the Gumbel distribution."""
    return _sample("gumbel", {"loc": loc, "scale": scale}, size, None, _where(ctx, device), out)


def exponential(
    scale: Any = 1.0, size: Any = None, device: Any = None, ctx: Any = None, out: Any = None
) -> Any:
    """Samples of the exponential distribution with mean ``scale``."""
    return _sample("exponential", {"scale": scale}, size, None, _where(ctx, device), out)


def rayleigh(scale: Any = 1.0, size: Any = None, device: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Samples of the Rayleigh distribution."""
    return _sample("rayleigh", {"scale": scale}, size, None, _where(ctx, device), out)


def weibull(a: Any, size: Any = None, device: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Samples of the Weibull distribution."""
    return _sample("weibull", {"a": a}, size, None, _where(ctx, device), out)


def pareto(a: Any, size: Any = None, device: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Samples of the Pareto II distribution."""
    return _sample("pareto", {"a": a}, size, None, _where(ctx, device), out)


def power(a: Any, size: Any = None, device: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Samples in [0, 1] of a power distribution."""
    return _sample("powerd", {"a": a}, size, None, _where(ctx, device), out)


def gamma(
    shape: Any,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Samples of the gamma distribution."""
    return _sample("gamma", {"shape": shape, "scale": scale}, size, dtype, _where(ctx, device), out)


def beta(a: Any, b: Any, size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Samples of the beta distribution."""
    x = gamma(a, 1.0, size, dtype, device, ctx)
    return x / (x + gamma(b, 1.0, size, dtype, device, ctx))


def chisquare(df: Any, size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Samples of the chi-square distribution."""
    return gamma(df / 2, 2.0, size, dtype, device, ctx)


def f(dfnum: Any, dfden: Any, size: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Samples of the F distribution."""
    return (chisquare(dfnum, size) / dfnum) / (chisquare(dfden, size) / dfden)


def rand(*size: int, **kwargs: Any) -> Any:
    """Uniform samples in [0, 1) of the given shape."""
    return uniform(0.0, 1.0, size, **kwargs)


def randn(*size: int, **kwargs: Any) -> Any:
    """Standard normal samples of the given shape."""
    return normal(0.0, 1.0, size, **kwargs)


def randint(
    low: int,
    high: int | None = None,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Integers in [low, high), or in [0, low)."""
    if high is None:
        low, high = 0, low
    attrs: dict[str, Any] = {"low": int(low), "high": int(high), "shape": _sizes(size) or ()}
    attrs["dtype"] = dtypes.to_torch(dtype if dtype is not None else "int64")
    return invoke(get("_random_randint"), [], {**attrs, **_where(ctx, device)}, out=out, cls=kinds.np)


def choice(
    a: Any,
    size: Any = None,
    replace: bool = True,
    p: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Elements of ``a`` (or of ``range(a)``)."""
    arrays = [] if isinstance(a, int) else [a]
    attrs: dict[str, Any] = {"a": a if isinstance(a, int) else None, "size": _sizes(size), "replace": replace}
    if p is not None:
        arrays.append(p)
        attrs["weighted"] = True
    return invoke(get("_npi_choice"), arrays, {**attrs, **_where(ctx, device)}, out=out, cls=kinds.np)


def shuffle(x: Any) -> None:
    """Put the rows of ``x`` in random order, in place."""
    x[...] = invoke(get("_shuffle"), [x], {}, cls=kinds.np)


def permutation(x: Any, device: Any = None, ctx: Any = None) -> Any:
    """The rows of ``x`` (or ``range(x)``) in random order."""
    if isinstance(x, int):
        from .functions import arange

        x = arange(x, dtype="int64")
    return invoke(get("_shuffle"), [x], {}, cls=kinds.np)


def multinomial(n: int, pvals: Any, size: Any = None, **kwargs: Any) -> Any:
    """Counts of ``n`` trials over categories with probabilities ``pvals``."""
    attrs: dict[str, Any] = {"n": n}
    if size is not None:
        attrs["size"] = _sizes(size)
    if not isinstance(pvals, (kinds.nd, kinds.symbol)) and sum(pvals) > 1.0 + 1e-6:
        raise ValueError(f"multinomial: the probabilities must sum to at most 1; received {pvals}")
    if isinstance(pvals, (kinds.nd, kinds.symbol)):
        return invoke(get("_npi_multinomial"), [pvals], {**attrs, "pvals": None}, cls=kinds.np)
    return invoke(get("_npi_multinomial"), [], {**attrs, "pvals": tuple(pvals)}, cls=kinds.np)


def multivariate_normal(mean: Any, cov: Any, size: Any = None, **kwargs: Any) -> Any:
    """Normal vectors with mean ``mean`` and covariance ``cov``."""
    import regluon.numpy as np

    factor = np.linalg.cholesky(cov)  # type: ignore[misc,attr-defined]
    lead = () if size is None else _sizes(size)
    noise = normal(0.0, 1.0, (*lead, *mean.shape))
    return mean + np.matmul(factor, np.expand_dims(noise, -1)).squeeze(-1)  # type: ignore[misc,attr-defined]


def bernoulli(
    prob: Any = None,
    logit: Any = None,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """0 and 1, 1 with probability ``prob`` or that of ``logit``."""
    from ..runtime.samplers import legacy_samplers

    return legacy_samplers(lambda: kinds.np)["bernoulli"](prob, logit, size, dtype, ctx or device, out)
