"""The samplers of mx.nd.random, mx.sym.random and mx.random: numbers or arrays as parameters, one
implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import dtypes
from ..ops.registry import get
from .handles import kinds
from .invoke import invoke

__all__ = ["legacy_samplers"]


def _is_value(value: Any) -> bool:
    return isinstance(value, (kinds.nd, kinds.symbol))


def legacy_samplers(class_of: Callable[[], Any]) -> dict[str, Callable[..., Any]]:
    """The functions of one namespace; ``class_of()`` is the class of what they make from numbers."""

    def sample(
        kind: str, values: list[Any], names: list[str], shape: Any, dtype: Any, ctx: Any, out: Any
    ) -> Any:
        attrs: dict[str, Any] = {}
        if dtype is not None and dtype != "None":
            attrs["dtype"] = dtypes.to_torch(dtype)
        arrays = [value for value in values if _is_value(value)]
        if arrays:
            if len(arrays) != len(values):
                raise ValueError(
                    f"random.{kind}: the parameters must be all arrays or all numbers; received {values}"
                )
            if shape is not None:
                attrs["shape"] = _sizes(shape)
            return invoke(get(f"_sample_{kind}"), arrays, attrs, out=out)
        attrs.update(zip(names, values, strict=True))
        if shape is None:
            shape = tuple(out.shape) if out is not None else (1,)
        attrs["shape"] = _sizes(shape) or (1,)
        if ctx is not None:
            attrs["ctx"] = str(ctx)
        return invoke(get(f"_random_{kind}"), [], attrs, out=out, cls=class_of())

    def uniform(
        low: Any = 0,
        high: Any = 1,
        shape: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kw: Any,
    ) -> Any:
        """Samples uniform in [low, high)."""
        return sample("uniform", [low, high], ["low", "high"], shape, dtype, ctx, out)

    def normal(
        loc: Any = 0,
        scale: Any = 1,
        shape: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kw: Any,
    ) -> Any:
        """Samples of normal distributions with mean ``loc`` and standard deviation ``scale``."""
        return sample("normal", [loc, scale], ["loc", "scale"], shape, dtype, ctx, out)

    def randn(
        *shape: int, loc: Any = 0, scale: Any = 1, dtype: Any = None, ctx: Any = None, **kw: Any
    ) -> Any:
        """Normal samples of the given shape."""
        return normal(loc, scale, shape or None, dtype, ctx, **kw)

    def poisson(
        lam: Any = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None, **kw: Any
    ) -> Any:
        """Samples of Poisson distributions with mean ``lam``."""
        return sample("poisson", [lam], ["lam"], shape, dtype, ctx, out)

    def exponential(
        scale: Any = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None, **kw: Any
    ) -> Any:
        """Samples of exponential distributions with mean ``scale``."""
        return sample("exponential", [1.0 / scale], ["lam"], shape, dtype, ctx, out)

    def gamma(
        alpha: Any = 1,
        beta: Any = 1,
        shape: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kw: Any,
    ) -> Any:
        """Samples of gamma distributions with shape ``alpha`` and scale ``beta``."""
        return sample("gamma", [alpha, beta], ["alpha", "beta"], shape, dtype, ctx, out)

    def binomial(
        n: Any = 1,
        p: Any = 0.5,
        shape: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kw: Any,
    ) -> Any:
        """Successes in ``n`` trials with probability ``p``."""
        return sample("binomial", [n, p], ["n", "p"], shape, dtype, ctx, out)

    def negative_binomial(
        k: Any = 1,
        p: Any = 1,
        shape: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kw: Any,
    ) -> Any:
        """Failures before ``k`` successes with probability ``p``."""
        return sample("negative_binomial", [k, p], ["k", "p"], shape, dtype, ctx, out)

    def generalized_negative_binomial(
        mu: Any = 1,
        alpha: Any = 1,
        shape: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kw: Any,
    ) -> Any:
        """Negative binomial samples with mean ``mu`` and dispersion ``alpha``."""
        return sample("generalized_negative_binomial", [mu, alpha], ["mu", "alpha"], shape, dtype, ctx, out)

    def multinomial(
        data: Any, shape: Any = None, get_prob: bool = False, out: Any = None, dtype: Any = "int32", **kw: Any
    ) -> Any:
        """Indices drawn with the probabilities in the last axis of ``data``."""
        attrs: dict[str, Any] = {"get_prob": get_prob, "dtype": dtypes.to_torch(dtype)}
        if shape is not None and shape != 1:
            attrs["shape"] = _sizes(shape)
        return invoke(get("_sample_categorical"), [data], attrs, out=out)

    def shuffle(data: Any, **kw: Any) -> Any:
        """The rows of ``data`` in random order."""
        return invoke(get("_shuffle"), [data], {}, out=kw.get("out"))

    def randint(
        low: int, high: int, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None, **kw: Any
    ) -> Any:
        """Integers in [low, high)."""
        attrs: dict[str, Any] = {"low": low, "high": high}
        attrs["shape"] = (tuple(out.shape) if out is not None else (1,)) if shape is None else _sizes(shape)
        if dtype is not None:
            attrs["dtype"] = dtypes.to_torch(dtype)
        if ctx is not None:
            attrs["ctx"] = str(ctx)
        return invoke(get("_random_randint"), [], attrs, out=out, cls=class_of())

    def bernoulli(
        prob: Any = None,
        logit: Any = None,
        size: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
    ) -> Any:
        """0 and 1, 1 with probability ``prob`` or that of ``logit``."""
        if (prob is None) == (logit is None):
            raise ValueError("bernoulli needs either prob or logit")
        value = prob if logit is None else logit
        attrs: dict[str, Any] = {"is_logit": logit is not None, "prob": None, "logit": None}
        if size is not None:
            attrs["size"] = _sizes(size)
        if dtype is not None:
            attrs["dtype"] = dtypes.to_torch(dtype)
        if _is_value(value):
            return invoke(get("_npi_bernoulli"), [value], attrs, out=out)
        attrs["prob" if logit is None else "logit"] = value
        return invoke(get("_npi_bernoulli"), [], attrs, out=out, cls=class_of())

    functions = (
        uniform,
        normal,
        randn,
        poisson,
        exponential,
        gamma,
        binomial,
        negative_binomial,
        generalized_negative_binomial,
        multinomial,
        shuffle,
        randint,
        bernoulli,
    )
    return {function.__name__: function for function in functions}


def _sizes(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if hasattr(shape, "__iter__") else (shape,)
