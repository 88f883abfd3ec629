"""The base of initializers: their registry, what they are called with, and the draws that they share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from ..base import rng

__all__ = ["InitDesc", "Initializer", "InitializerError", "alias", "create", "register"]

REGISTRY: dict[str, type[Initializer]] = {}


class InitializerError(ValueError, AssertionError):
    """A description or argument that an initializer cannot use (an AssertionError too, as in MXNet)."""


class InitDesc(str):
    """Name of a parameter, with its attributes and the initializer to use where they name none."""

    attrs: dict[str, Any]
    global_init: Any

    def __new__(cls, name: str, attrs: Mapping[str, Any] | None = None, global_init: Any = None) -> InitDesc:
        result = super().__new__(cls, name)
        result.attrs = dict(attrs or {})
        result.global_init = global_init
        return result


def register(klass: type[Initializer]) -> type[Initializer]:
    """Class decorator that makes an initializer known by its lower-case class name."""
    REGISTRY[klass.__name__.lower()] = klass
    return klass


def alias(*aliases: str) -> Callable[[type[Initializer]], type[Initializer]]:
    """Class decorator that gives an initializer further names."""

    def decorate(klass: type[Initializer]) -> type[Initializer]:
        register(klass)
        for name in aliases:
            REGISTRY[name.lower()] = klass
        return klass

    return decorate


def create(initializer: Any, *args: Any, **kwargs: Any) -> Any:
    """Make an initializer from a name, from the text that :meth:`Initializer.dumps` writes, or from itself.

    Raises
    ------
    ValueError
        If no initializer of that name is registered.
    """
    if not isinstance(initializer, str):
        if callable(initializer):
            return initializer
        raise InitializerError(
            "An initializer or its name was expected, such as mx.init.Xavier() or 'xavier'; received "
            f"{initializer!r}."
        )
    name = initializer
    if name.lstrip().startswith("["):
        try:
            name, kwargs = json.loads(name)
        except ValueError as error:
            raise InitializerError(
                f"The initializer text {initializer!r} is not valid JSON: {error}."
            ) from error
    klass = REGISTRY.get(name.lower())
    if klass is None:
        raise InitializerError(
            f"No initializer is registered under '{name}'. Known are {', '.join(sorted(REGISTRY))}; "
            f"add your own class with mx.init.register."
        )
    return klass(*args, **kwargs)


def uniform(array: Any, scale: float) -> torch.Tensor:
    """Values uniform on [-scale, scale) of the array's shape; one draw of the library's random state."""
    values = torch.empty(tuple(array.shape), dtype=_drawn_type(array), device=array._t.device)
    return values.uniform_(-scale, scale, generator=rng.generator(rng.draw(), array._t.device))


def normal(array: Any, sigma: float) -> torch.Tensor:
    """Normal values of mean 0 and standard deviation ``sigma``; one draw of the library's random state."""
    values = torch.empty(tuple(array.shape), dtype=_drawn_type(array), device=array._t.device)
    return values.normal_(0.0, sigma, generator=rng.generator(rng.draw(), array._t.device))


def _drawn_type(array: Any) -> torch.dtype:
    return torch.float64 if array._t.dtype == torch.float64 else torch.float32


def write(array: Any, values: torch.Tensor) -> None:
    """Write a tensor of values into an array, in the array's own type."""
    values = values.to(array._t.dtype).reshape(tuple(array.shape))
    array[:] = type(array)._wrap(values.contiguous(), array._ctx)


class Initializer:
    """Base of all initializers. Override ``_init_weight(name, array)``.

    The keyword arguments are kept for :meth:`dumps`.
    """

    #: End of the name -> method that fills the array, tried in this order.
    _ENDINGS: ClassVar[tuple[tuple[tuple[str, ...], str], ...]] = (
        (("weight",), "_init_weight"),
        (("bias",), "_init_bias"),
        (("gamma",), "_init_gamma"),
        (("beta",), "_init_beta"),
        (("min", "moving_mean", "running_mean", "moving_inv_var", "moving_avg"), "_init_zero"),
        (("max", "moving_var", "running_var"), "_init_one"),
        (("weight_quantize",), "_init_quantized_weight"),
        (("bias_quantize",), "_init_quantized_bias"),
    )

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[Any], str] | None = None

    def set_verbosity(
        self, verbose: bool = False, print_func: Callable[[Any], str] | None = None
    ) -> Initializer:
        """Log every initialisation; ``print_func`` makes the text from the array.

        Without one, the text is the array's norm over the square root of its size.
        """
        self._verbose = verbose
        self._print_func = print_func
        return self

    def _report(self, desc: str, init: str, array: Any) -> None:
        if not self._verbose:
            return
        import logging

        show = self._print_func or (lambda a: str(float(a._t.double().norm() / math.sqrt(max(a.size, 1)))))
        logging.getLogger("regluon").info("Initialized %s as %s: %s", desc, init, show(array))

    def dumps(self) -> str:
        """JSON text from which :func:`create` makes an equal initializer."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._kwargs == getattr(other, "_kwargs", None)

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(self._kwargs.items(), key=lambda item: item[0]))))

    def __call__(self, desc: Any, array: Any) -> None:
        """Fill ``array``; ``desc`` is an :class:`InitDesc` (or a plain name).

        Raises
        ------
        ValueError
            If the name tells nothing and no explicit initializer is given.
        """
        if not isinstance(desc, str):
            raise InitializerError(
                f"The name of the parameter was expected as InitDesc or str; received {desc!r}."
            )
        if not isinstance(desc, InitDesc):
            desc = InitDesc(desc)
        if desc.global_init is None:
            desc.global_init = self
        explicit = desc.attrs.get("__init__")
        if explicit:
            chosen = create(explicit)
            if isinstance(chosen, Initializer):
                chosen._init_weight(desc, array)
            else:
                chosen(InitDesc(desc, global_init=desc.global_init), array)
            self._report(desc, str(explicit), array)
            return
        name = desc.lower()
        for endings, method in self._ENDINGS:
            if name.endswith(endings):
                getattr(self, method)(desc, array)
                self._report(desc, endings[0], array)
                return
        if name.startswith("upsampling"):
            self._init_bilinear(desc, array)
            return
        self._init_default(desc, array)

    def _init_bilinear(self, _: str, array: Any) -> None:
        write(array, bilinear(tuple(array.shape)))

    def _init_zero(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_one(self, _: str, array: Any) -> None:
        array[:] = 1

    def _init_bias(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_gamma(self, _: str, array: Any) -> None:
        array[:] = 1

    def _init_beta(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_quantized_bias(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_quantized_weight(self, _: str, array: Any) -> None:
        write(array, uniform(array, 127.0).trunc())

    def _init_weight(self, name: str, array: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} has no _init_weight(name, array): a class of initializers must define it."
        )

    def _init_default(self, name: str, array: Any) -> None:
        raise InitializerError(
            f"There is no default initialization for a parameter named '{name}'. Names must end in weight, "
            "bias, gamma, beta, moving_mean or moving_var; otherwise give it its own initializer with init=."
        )


def bilinear(shape: tuple[int, ...]) -> torch.Tensor:
    """Kernel of bilinear upsampling, the same for all channels: shape (..., height, width)."""
    factor = math.ceil(shape[-1] / 2.0)
    centre = (2 * factor - 1 - factor % 2) / (2.0 * factor)
    columns = 1 - (torch.arange(shape[-1], dtype=torch.float64) / factor - centre).abs()
    rows = 1 - (torch.arange(shape[-2], dtype=torch.float64) / factor - centre).abs()
    return (rows[:, None] * columns[None, :]).expand(shape)
