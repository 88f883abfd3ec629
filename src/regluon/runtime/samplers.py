"""The samplers of mx.nd.random, mx.sym.random and mx.random, of numbers or arrays as parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ..base import config, dtypes
from ..base import device as devices
from ..base.errors import MXNetError
from ..ops.registry import get
from .handles import kinds
from .invoke import invoke

__all__ = ["bernoulli_values", "dtype_of", "legacy_samplers"]


def is_value(value: Any) -> bool:
    """Whether this is an array, a traced value or a Symbol."""
    return isinstance(value, (kinds.nd, kinds.symbol))


def sizes(shape: Any) -> tuple[Any, ...]:
    """A shape from a number or a sequence of numbers."""
    return tuple(shape) if hasattr(shape, "__iter__") else (shape,)


def _keywords(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """``name=`` and ``attr=``, which nodes of a Symbol take; nothing else is left to be given."""
    unknown = [key for key in given if key not in ("name", "attr")]
    if unknown:
        raise TypeError(f"random.{kind}() got an unexpected keyword argument {unknown[0]!r}")
    return {"name": given.get("name"), "user": given.get("attr")}


def _context(ctx: Any) -> dict[str, str]:
    return {} if ctx is None else {"ctx": str(devices.device(ctx))}


def _float_dtype(dtype: Any, out: Any) -> dict[str, Any]:
    """As `dtype_of`; by default float64 under ``npx.set_np(dtype=True)``, as in 2.0."""
    given = dtype_of(dtype, out)
    return given or ({"dtype": torch.float64} if config.is_np_default_dtype() else {})


def dtype_of(dtype: Any, out: Any) -> dict[str, Any]:
    """The type asked for, or that of the array to write to."""
    if dtype is None and out is not None and not isinstance(out, (list, tuple)):
        dtype = out.dtype
    return {} if dtype is None or dtype == "None" else {"dtype": dtypes.to_torch(dtype)}


class _Sampler:
    """Dispatch of one namespace: operators of numbers, or of arrays."""

    def __init__(self, class_of: Callable[[], Any]) -> None:
        self.class_of = class_of

    def create(self, name: str, attrs: dict[str, Any], shape: Any, ctx: Any, out: Any, kw: Any) -> Any:
        """A new array from the numbers in ``attrs``; of one element where no shape is given."""
        if shape is None:
            shape = (1,) if out is None else tuple(out.shape)
        attrs = {**attrs, "shape": sizes(shape), **_context(ctx)}
        return invoke(get(name), [], attrs, out=out, cls=self.class_of(), **kw)

    def sample(
        self, kind: str, values: dict[str, Any], shape: Any, dtype: Any, ctx: Any, out: Any, given: Any
    ) -> Any:
        """Samples of one distribution whose parameters are all numbers or all arrays."""
        kw = _keywords(kind, given)
        attrs = _float_dtype(dtype, out)
        arrays = [value for value in values.values() if is_value(value)]
        if not arrays:
            return self.create(f"_random_{kind}", {**values, **attrs}, shape, ctx, out, kw)
        if len(arrays) != len(values):
            types = ", ".join(f"{name} {type(value).__name__}" for name, value in values.items())
            raise ValueError(
                f"random.{kind}: the parameters must be all arrays or all numbers; received {types}"
            )
        if shape is not None:
            attrs["shape"] = sizes(shape)
        return invoke(get(f"_sample_{kind}"), arrays, attrs, out=out, **kw)


# Parameters with their defaults, and what is drawn.
_DISTRIBUTIONS: dict[str, tuple[dict[str, float], str]] = {
    "uniform": ({"low": 0, "high": 1}, "Samples uniform in [low, high)."),
    "normal": ({"loc": 0, "scale": 1}, "Normal samples with mean ``loc`` and standard deviation ``scale``."),
    "poisson": ({"lam": 1}, "Samples of Poisson distributions with mean ``lam``."),
    "gamma": ({"alpha": 1, "beta": 1}, "Samples of gamma distributions, shape ``alpha`` and scale ``beta``."),
    "binomial": ({"n": 1, "p": 0.5}, "Successes in ``n`` trials with probability ``p``."),
    "negative_binomial": ({"k": 1, "p": 1}, "Failures before ``k`` successes with probability ``p``."),
    "generalized_negative_binomial": (
        {"mu": 1, "alpha": 1},
        "Negative binomial samples with mean ``mu`` and dispersion ``alpha``.",
    ),
}


_REST = """

Parameters
----------
{names} : float or array
    All numbers, or all arrays of one shape (or Symbols).
shape : int or tuple of int, optional
    The shape of the result; with arrays, of the samples for each element.
dtype : str or type, optional
    A floating type, float32 by default.
ctx : Context, optional
    Where the result is, for numbers as parameters.
out : array, optional
    An array to write to.

Raises
------
ValueError
    If arrays and numbers are mixed.
MXNetError
    If a number is none that the distribution takes.
"""


def _distribution(sampler: _Sampler, kind: str) -> Callable[..., Any]:
    defaults, text = _DISTRIBUTIONS[kind]
    names = (*defaults, "shape", "dtype", "ctx", "out")
    values: dict[str, Any] = {**defaults, "shape": None, "dtype": None, "ctx": None, "out": None}

    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            raise TypeError(f"random.{kind}() takes at most {len(names)} arguments; received {len(args)}")
        given = dict(zip(names, args, strict=False))
        for key in given.keys() & kwargs.keys():
            raise TypeError(f"random.{kind}() got multiple values for argument {key!r}")
        given = {**values, **given, **kwargs}
        parameters = {name: given.pop(name) for name in defaults}
        shape, dtype, ctx, out = (given.pop(name) for name in ("shape", "dtype", "ctx", "out"))
        return sampler.sample(kind, parameters, shape, dtype, ctx, out, given)

    kinds_of = inspect.Parameter
    signature = [kinds_of(n, kinds_of.POSITIONAL_OR_KEYWORD, default=values[n]) for n in names]
    signature.append(kinds_of("kwargs", kinds_of.VAR_KEYWORD))
    function.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = kind
    function.__doc__ = text + _REST.format(names=", ".join(defaults))
    return function


def legacy_samplers(class_of: Callable[[], Any], home: str) -> dict[str, Callable[..., Any]]:
    """The functions of the module ``home``; ``class_of()`` is the class of what they make from numbers."""
    sampler = _Sampler(class_of)
    made = {kind: _distribution(sampler, kind) for kind in _DISTRIBUTIONS}
    for function in (*_derived(sampler, made["normal"]), *_of_data()):
        made[function.__name__] = function
    for name, function in made.items():
        # By these they are found again, as by pickle.
        function.__module__, function.__qualname__ = home, name
    return made


def bernoulli_values(
    prob: Any, logit: Any, size: Any, attrs: dict[str, Any], ctx: Any, out: Any, cls: Any, keywords: Any
) -> Any:
    """The Bernoulli sampler of all namespaces; numbers make an array of ``cls``, arrays one of their kind."""
    if (prob is None) == (logit is None):
        raise ValueError(f"bernoulli needs either prob or logit; received prob={prob}, logit={logit}")
    value = prob if logit is None else logit
    attrs = {"is_logit": logit is not None, "prob": None, "logit": None, **attrs}
    attrs.update({} if size is None else {"size": sizes(size)})
    if is_value(value):
        return invoke(get("_npi_bernoulli"), [value], attrs, out=out, **keywords)
    attrs["prob" if logit is None else "logit"] = value
    return invoke(get("_npi_bernoulli"), [], {**attrs, **_context(ctx)}, out=out, cls=cls, **keywords)


def _derived(sampler: _Sampler, normal: Callable[..., Any]) -> list[Callable[..., Any]]:
    def randn(
        *shape: int, loc: Any = 0, scale: Any = 1, dtype: Any = None, ctx: Any = None, **kwargs: Any
    ) -> Any:
        """Normal samples of the given shape."""
        if any(isinstance(size, (tuple, list)) for size in shape):
            raise MXNetError(f"random.randn: the sizes are arguments of their own; received {shape}")
        return normal(loc, scale, shape, dtype, ctx, **kwargs)

    def exponential(
        scale: Any = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None, **kwargs: Any
    ) -> Any:
        """Samples of exponential distributions with mean ``scale``, a number or an array."""
        if not is_value(scale) and scale == 0:
            raise MXNetError("random.exponential: scale must be positive; received 0")
        return sampler.sample("exponential", {"lam": 1.0 / scale}, shape, dtype, ctx, out, kwargs)

    def randint(
        low: int,
        high: int,
        shape: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Integers in [low, high), as int32 (the default) or int64."""
        for name, value in (("low", low), ("high", high)):
            if not hasattr(value, "__index__"):
                raise MXNetError(f"random.randint: {name} is an integer; received {value!r}")
        attrs: dict[str, Any] = {"low": int(low), "high": int(high), **dtype_of(dtype, out)}
        return sampler.create("_random_randint", attrs, shape, ctx, out, _keywords("randint", kwargs))

    def bernoulli(
        prob: Any = None,
        logit: Any = None,
        size: Any = None,
        dtype: Any = None,
        ctx: Any = None,
        out: Any = None,
        **kwargs: Any,
    ) -> Any:
        """0 and 1, 1 with probability ``prob`` or that of ``logit``: numbers or arrays.

        Raises
        ------
        ValueError
            If both or none are given, or ``prob`` is a number outside of [0, 1].
        """
        kw = _keywords("bernoulli", kwargs)
        return bernoulli_values(prob, logit, size, dtype_of(dtype, out), ctx, out, sampler.class_of(), kw)

    return [randn, exponential, randint, bernoulli]


def _indices(operator: str) -> Callable[..., Any]:
    def categorical(
        data: Any,
        shape: Any = None,
        get_prob: bool = False,
        out: Any = None,
        dtype: Any = "int32",
        **kwargs: Any,
    ) -> Any:
        """Indices drawn with the probabilities in the last axis of ``data``, ``shape`` of them for each row.

        With ``get_prob`` also their log-probabilities, which have a gradient in ``data``.
        """
        attrs: dict[str, Any] = {"get_prob": get_prob, **dtype_of(dtype, None)}
        if shape is not None:
            attrs["shape"] = sizes(shape)
        return invoke(get(operator), [data], attrs, out=out, **_keywords("categorical", kwargs))

    return categorical


def _of_data() -> list[Callable[..., Any]]:
    # 1.9.1 knows the first operator alone, 2.0.0b1 the second.
    indices, categorical = _indices("_sample_multinomial"), _indices("_sample_categorical")

    def counts(
        n: Any, p: Any, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None, **kwargs: Any
    ) -> Any:
        attrs = {} if shape is None else {"shape": sizes(shape)}
        kw = _keywords("multinomial", kwargs)
        result = invoke(get("_sample_multinomial"), [n, p], attrs, out=out, **kw)
        return result if dtype is None or out is not None else result.astype(dtype)

    def multinomial(*args: Any, **kwargs: Any) -> Any:
        """Indices drawn with the probabilities in the last axis of ``data``, as in 1.x (see `categorical`).

        ``multinomial(n, p, shape)`` with two arrays counts the outcomes of ``n`` trials, as in 2.0.
        """
        if "p" in kwargs or (len(args) > 1 and is_value(args[1])):
            return counts(*args, **kwargs)
        return indices(*args, **kwargs)

    multinomial.__signature__ = inspect.signature(categorical)  # type: ignore[attr-defined]

    def shuffle(data: Any, out: Any = None, **kwargs: Any) -> Any:
        """A copy of ``data`` with its rows in random order."""
        return invoke(get("_shuffle"), [data], {}, out=out, **_keywords("shuffle", kwargs))

    return [categorical, multinomial, shuffle]
