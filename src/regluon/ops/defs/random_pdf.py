"""Densities of the distributions that the samplers draw from, at given samples, per row of parameters.

Parameters have the leading dimensions of the samples: ``sample`` is (s, m), a parameter (s), the result
(s, m).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import operator

LogDensity = Callable[..., Tensor]


def _uniform(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    # Constant: samples outside of [low, high) are not told apart, as in MXNet.
    return (-torch.log(high - low)).expand(x.shape)


def _normal(x: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    return -0.5 * ((x - mu) / sigma) ** 2 - torch.log(sigma) - 0.5 * math.log(2 * math.pi)


def _exponential(x: Tensor, lam: Tensor) -> Tensor:
    return torch.log(lam) - lam * x


def _gamma(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha * torch.log(beta) + torch.xlogy(alpha - 1, x) - beta * x - torch.lgamma(alpha)


def _poisson(x: Tensor, lam: Tensor) -> Tensor:
    return torch.xlogy(x, lam) - torch.lgamma(x + 1) - lam


def _negative_binomial(x: Tensor, k: Tensor, p: Tensor) -> Tensor:
    ways = torch.lgamma(x + k) - torch.lgamma(x + 1) - torch.lgamma(k)
    return ways + k * torch.log(p) + torch.xlogy(x, 1 - p)


def _generalized_negative_binomial(x: Tensor, mu: Tensor, alpha: Tensor) -> Tensor:
    return _negative_binomial(x, 1 / alpha, 1 / (mu * alpha + 1))


# name: logarithm of the density, parameters, whether samples are counts (without gradient)
_TABLE: dict[str, tuple[LogDensity, tuple[str, ...], bool]] = {
    "uniform": (_uniform, ("low", "high"), False),
    "normal": (_normal, ("mu", "sigma"), False),
    "exponential": (_exponential, ("lam",), False),
    "gamma": (_gamma, ("alpha", "beta"), False),
    "poisson": (_poisson, ("lam",), True),
    "negative_binomial": (_negative_binomial, ("k", "p"), True),
    "generalized_negative_binomial": (_generalized_negative_binomial, ("mu", "alpha"), True),
}


def _spread(name: str, sample: Tensor, parameter: Tensor) -> Tensor:
    rank = parameter.dim()
    if tuple(parameter.shape) != tuple(sample.shape[:rank]):
        raise MXNetError(
            f"random_pdf_{name}: the shape of a parameter must be the leading part of the sample's shape "
            f"{tuple(sample.shape)}; received {tuple(parameter.shape)}"
        )
    return parameter.reshape(*parameter.shape, *([1] * (sample.dim() - rank)))


def _define(name: str) -> None:
    log_density, names, counts = _TABLE[name]

    def density(sample: Tensor, *parameters: Tensor, is_log: bool = False) -> Tensor:
        spread = [_spread(name, sample, parameter) for parameter in parameters]
        result = log_density(sample.detach() if counts else sample, *spread)
        return result if is_log else torch.exp(result)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter(one, kind, annotation="Tensor") for one in names]
    first, _, *rest = inspect.signature(density).parameters.values()
    density.__signature__ = inspect.Signature([first, *own, *rest], return_annotation="Tensor")  # type: ignore[attr-defined]
    density.__name__ = density.__qualname__ = f"random_pdf_{name}"
    density.__doc__ = (
        f"Density of {name.replace('_', ' ')} distributions at samples, its logarithm with ``is_log``."
    )
    operator(f"_random_pdf_{name}", amp="widest", aliases=(f"random_pdf_{name}",))(density)


for _name in _TABLE:
    _define(_name)


@operator("_random_pdf_dirichlet", amp="widest", aliases=("random_pdf_dirichlet",))
def dirichlet(sample: Tensor, alpha: Tensor, *, is_log: bool = False) -> Tensor:
    """Density of Dirichlet distributions at samples; the last axis of both arrays is the categories.

    ``sample`` is (s, m, k) and ``alpha`` (s, k) for a result of (s, m).
    """
    lead = alpha.shape[:-1]
    fits = alpha.dim() > 0 and sample.dim() >= alpha.dim() and alpha.shape[-1] == sample.shape[-1]
    if not fits or tuple(lead) != tuple(sample.shape[: len(lead)]):
        raise MXNetError(
            "random_pdf_dirichlet: alpha has the leading dimensions of the sample and its last one; received "
            f"sample {tuple(sample.shape)} and alpha {tuple(alpha.shape)}"
        )
    spread = alpha.reshape(*lead, *([1] * (sample.dim() - alpha.dim())), alpha.shape[-1])
    result = torch.xlogy(spread - 1, sample).sum(-1)
    result = result + torch.lgamma(spread.sum(-1)) - torch.lgamma(spread).sum(-1)
    return result if is_log else torch.exp(result)
