"""mx.np.random: samplers with NumPy's signatures.

Parameters are numbers, arrays or Symbols; ``size`` is the shape of the result, by default that of the
parameters broadcast together. ``device`` (or ``ctx``) places the result where no parameter is an array. A
value outside of a distribution's range raises ValueError (arrays on a GPU are not looked at: that would wait
for it). Samples are float32, or float64 under ``npx.set_np(dtype=True)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import dtypes
from ..random import seed
from ..runtime.handles import kinds
from ..runtime.samplers import bernoulli_values, dtype_of
from .tools import apply, as_array, float_dtype, is_value, sizes, where_to

__all__ = [
    "bernoulli", "beta", "chisquare", "choice", "exponential", "f", "gamma", "gumbel", "laplace", "logistic",
    "lognormal", "multinomial", "multivariate_normal", "normal", "pareto", "permutation", "power", "rand",
    "randint", "randn", "rayleigh", "seed", "shuffle", "uniform", "weibull",
]  # fmt: skip


def _number_or_array(name: str, value: Any) -> Any:
    """A float, or an array of what is a sequence."""
    if is_value(value):
        return value
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", False):
        return as_array(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array; received {value!r}") from None


def _sample(
    kind: str,
    parameters: dict[str, Any],
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    ctx: Any = None,
    out: Any = None,
) -> Any:
    """Run the sampler ``_npi_<kind>``: numbers are its attributes and arrays its inputs."""
    attrs: dict[str, Any] = {}
    arrays = []
    for name, value in parameters.items():
        value = _number_or_array(name, value)
        if is_value(value):
            arrays.append(value)
            value = None
        attrs[name] = value
    if size is None and out is not None:
        size = out.shape
    if size is not None:
        attrs["size"] = sizes(size)
    if dtype is None and out is not None:
        dtype = out.dtype
    attrs["dtype"] = dtypes.to_torch(float_dtype(dtype))
    return apply(f"_npi_{kind}", arrays, out, ctx=where_to(device, ctx), **attrs)


def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Samples uniform in [low, high)."""
    return _sample("uniform", {"low": low, "high": high}, size, dtype, device, ctx, out)


def normal(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Normal samples with mean ``loc`` and standard deviation ``scale``, differentiable in both."""
    return _sample("normal", {"loc": loc, "scale": scale}, size, dtype, device, ctx, out)


def _written(result: Any, out: Any) -> Any:
    if out is None:
        return result
    out[...] = result
    return out


def lognormal(
    mean: Any = 0.0,
    sigma: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Samples whose logarithm is normal with mean ``mean`` and standard deviation ``sigma``."""
    return _written(apply("_npi_exp", [normal(mean, sigma, size, dtype, device, None, ctx)]), out)


def laplace(
    loc: Any = 0.0,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Samples of the Laplace distribution."""
    return _sample("laplace", {"loc": loc, "scale": scale}, size, dtype, device, ctx, out)


def logistic(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, device: Any = None, out: Any = None, ctx: Any = None
) -> Any:
    """Samples of the logistic distribution."""
    return _sample("logistic", {"loc": loc, "scale": scale}, size, None, device, ctx, out)


def gumbel(
    loc: Any = 0.0, scale: Any = 1.0, size: Any = None, device: Any = None, out: Any = None, ctx: Any = None
) -> Any:
    """Samples of the Gumbel distribution."""
    return _sample("gumbel", {"loc": loc, "scale": scale}, size, None, device, ctx, out)


def exponential(
    scale: Any = 1.0, size: Any = None, device: Any = None, out: Any = None, ctx: Any = None
) -> Any:
    """Samples of the exponential distribution with mean ``scale``."""
    return _sample("exponential", {"scale": scale}, size, None, device, ctx, out)


def rayleigh(scale: Any = 1.0, size: Any = None, device: Any = None, out: Any = None, ctx: Any = None) -> Any:
    """Samples of the Rayleigh distribution."""
    return _sample("rayleigh", {"scale": scale}, size, None, device, ctx, out)


def weibull(a: Any, size: Any = None, device: Any = None, out: Any = None, ctx: Any = None) -> Any:
    """Samples of the Weibull distribution with shape ``a`` and scale 1."""
    return _sample("weibull", {"a": a}, size, None, device, ctx, out)


def pareto(a: Any, size: Any = None, device: Any = None, out: Any = None, ctx: Any = None) -> Any:
    """Samples of the Pareto II (Lomax) distribution with shape ``a``."""
    return _sample("pareto", {"a": a}, size, None, device, ctx, out)


def power(a: Any, size: Any = None, device: Any = None, out: Any = None, ctx: Any = None) -> Any:
    """Samples in [0, 1] with density ``a x^(a-1)``."""
    return _sample("powerd", {"a": a}, size, None, device, ctx, out)


def gamma(
    shape: Any,
    scale: Any = 1.0,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Samples of the gamma distribution, differentiable in both parameters."""
    return _sample("gamma", {"shape": shape, "scale": scale}, size, dtype, device, ctx, out)


def beta(a: Any, b: Any, size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Samples of the beta distribution: ``X / (X + Y)`` with gamma variates ``X`` and ``Y``."""
    a, b = _number_or_array("a", a), _number_or_array("b", b)
    # Small parameters give variates that float32 does not hold.
    x = gamma(a, 1.0, size, "float64", device, None, ctx)
    y = gamma(b, 1.0, size, "float64", device, None, ctx)
    return (x / (x + y)).astype(float_dtype(dtype))


def chisquare(df: Any, size: Any = None, dtype: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Samples of the chi-square distribution with ``df`` degrees of freedom."""
    return gamma(_number_or_array("df", df) / 2, 2.0, size, dtype, device, None, ctx)


def f(dfnum: Any, dfden: Any, size: Any = None, device: Any = None, ctx: Any = None) -> Any:
    """Samples of the F distribution with ``dfnum`` and ``dfden`` degrees of freedom."""
    dfnum, dfden = _number_or_array("dfnum", dfnum), _number_or_array("dfden", dfden)
    above = chisquare(dfnum, size, None, device, ctx) / dfnum
    return above / (chisquare(dfden, size, None, device, ctx) / dfden)


def rand(*size: int, **kwargs: Any) -> Any:
    """Uniform samples in [0, 1) of the given shape; ``dtype``, ``device`` and ``out`` as in `uniform`."""
    return _shaped(uniform, size, kwargs)


def randn(*size: int, **kwargs: Any) -> Any:
    """Standard normal samples of the given shape; ``dtype``, ``device`` and ``out`` as in `normal`."""
    return _shaped(normal, size, kwargs)


def _shaped(function: Callable[..., Any], size: tuple[int, ...], kwargs: dict[str, Any]) -> Any:
    for name in ("size", "low", "high", "loc", "scale"):
        if name in kwargs:
            raise TypeError(
                f"the sizes are the positional arguments, and {name}= is none; use random.{function.__name__}"
            )
    return function(size=size, **kwargs)


def randint(
    low: int,
    high: int | None = None,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Integers in [low, high), or in [0, low), as int64 (the default) or int32."""
    if high is None:
        low, high = 0, low
    for name, value in (("low", low), ("high", high)):
        if not hasattr(value, "__index__"):
            raise ValueError(f"random.randint: {name} is an integer; received {value!r}")
    if size is None and out is not None:
        size = out.shape
    kind = dtypes.to_torch(dtype if dtype is not None else "int64" if out is None else out.dtype)
    attrs: dict[str, Any] = {"low": int(low), "high": int(high)}
    attrs |= {"shape": () if size is None else sizes(size), "dtype": kind}
    return apply("_random_randint", out=out, ctx=where_to(device, ctx), **attrs)


def choice(
    a: Any,
    size: Any = None,
    replace: bool = True,
    p: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """Rows of the array ``a`` (or numbers of ``range(a)``), with the probabilities ``p``.

    Raises
    ------
    MXNetError
        If ``replace`` is False and more rows are asked for than there are, or ``p`` is not as long as ``a``.
    """
    number = None if is_value(a) or not hasattr(a, "__index__") or getattr(a, "ndim", False) else int(a)
    arrays = [] if number is not None else [as_array(a)]
    if p is not None:
        arrays.append(as_array(p))
    attrs = {"a": number, "size": () if size is None else sizes(size), "replace": replace}
    return apply("_npi_choice", arrays, out, weighted=p is not None, ctx=where_to(device, ctx), **attrs)


def shuffle(x: Any) -> None:
    """Put the rows of ``x`` in random order, in place."""
    if x.ndim:
        x[...] = apply("_shuffle", [x])


def permutation(x: Any, device: Any = None, ctx: Any = None) -> Any:
    """The rows of ``x`` (or the numbers of ``range(x)``) in random order, as a new array."""
    if not is_value(x) and hasattr(x, "__index__") and not getattr(x, "ndim", False):
        x = apply("_npi_arange", start=0, stop=int(x), dtype="int64", ctx=where_to(device, ctx))
    return apply("_shuffle", [as_array(x)])


def multinomial(n: int, pvals: Any, size: Any = None, **kwargs: Any) -> Any:
    """Counts of ``n`` trials over categories with the probabilities ``pvals``, as int64.

    The last category takes what the others leave of 1.

    Raises
    ------
    MXNetError
        If numbers in ``pvals`` are negative or their sum is more than 1.
    """
    attrs: dict[str, Any] = {"n": n, "size": () if size is None else sizes(size)}
    if is_value(pvals):
        return apply("_npi_multinomial", [pvals], pvals=None, **attrs)
    return apply("_npi_multinomial", pvals=tuple(float(value) for value in pvals), **attrs)


def multivariate_normal(
    mean: Any, cov: Any, size: Any = None, check_valid: Any = None, tol: Any = None
) -> Any:
    """Normal vectors with mean ``mean`` (..., k) and covariance ``cov`` (..., k, k).

    ``size`` comes before the shape that the leading axes of both broadcast to. The covariance must be
    positive definite; ``check_valid`` and ``tol`` are accepted for NumPy's sake.
    """
    del check_valid, tol
    mean, cov = as_array(mean), as_array(cov)
    factor = apply("_npi_cholesky", [cov])
    # Operators alone find the shape, so that Symbols of unknown shape do as well.
    vectors = mean + apply("_npi_sum", [factor], axis=-1)
    zeros = apply("_npi_full_like", [vectors], fill_value=0.0)
    noise = _sample("normal_n", {"loc": zeros, "scale": 1.0}, () if size is None else size)
    column = apply("_npi_matmul", [factor, apply("_npi_expand_dims", [noise], axis=-1)])
    return mean + apply("_npi_squeeze", [column], axis=-1)


def bernoulli(
    prob: Any = None,
    logit: Any = None,
    size: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    ctx: Any = None,
) -> Any:
    """0 and 1, 1 with probability ``prob`` or that of ``logit``: numbers or arrays."""
    if size is None and out is not None:
        size = out.shape
    kind = dtype if dtype is not None or out is not None else float_dtype(None)
    prob = None if prob is None else _number_or_array("prob", prob)
    logit = None if logit is None else _number_or_array("logit", logit)
    place = device if device is not None else ctx
    given = dtype_of(kind, out)
    return bernoulli_values(prob, logit, size, given, place, out, kinds.np, {})
