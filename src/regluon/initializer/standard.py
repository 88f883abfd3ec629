"""The common initializers: constants, random values, and values scaled by the sizes of a layer."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from .base import Initializer, InitializerError, alias, normal, register, uniform, write

__all__ = [
    "Bilinear",
    "Constant",
    "Fixed",
    "MSRAPrelu",
    "Normal",
    "One",
    "Orthogonal",
    "Uniform",
    "Xavier",
    "Zero",
]


@alias("zeros")
class Zero(Initializer):
    """All zeros."""

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = 0


@alias("ones")
class One(Initializer):
    """All ones."""

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = 1


@register
class Constant(Initializer):
    """One value, or an array of values, everywhere."""

    def __init__(self, value: Any) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = self.value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return False
        if hasattr(self.value, "shape") or hasattr(other.value, "shape"):
            return self.value is other.value
        return bool(self.value == other.value)

    __hash__ = Initializer.__hash__

    def dumps(self) -> str:
        value = self.value.tolist() if hasattr(self.value, "tolist") else self.value
        return json.dumps([type(self).__name__.lower(), {"value": value}])


@register
class Uniform(Initializer):
    """Uniform on [-scale, scale]."""

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, _: str, array: Any) -> None:
        write(array, uniform(array, self.scale))


@alias("gaussian")
class Normal(Initializer):
    """Normal with mean 0 and standard deviation sigma."""

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, _: str, array: Any) -> None:
        write(array, normal(array, self.sigma))


@register
class Orthogonal(Initializer):
    """Rows (or columns, whichever are fewer) orthogonal, of length ``scale``.

    Source: Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear
    neural networks", 2013.
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        if rand_type not in ("uniform", "normal"):
            raise InitializerError(f"rand_type must be 'uniform' or 'normal'; received {rand_type!r}.")
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, _: str, array: Any) -> None:
        if self.rand_type == "uniform":
            drawn = uniform(array, 1.0)
        else:
            drawn = normal(array, 1.0)
        matrix = drawn.reshape(drawn.shape[0], -1).double()
        left, _values, right = torch.linalg.svd(matrix, full_matrices=False)
        basis = left if left.shape == matrix.shape else right
        write(array, self.scale * basis)


@register
class Xavier(Initializer):
    """Random values scaled by the number of inputs and outputs: variance about ``magnitude / 3 / factor``.

    Parameters
    ----------
    rnd_type : {"uniform", "gaussian"}
        Uniform on [-s, s], or normal with standard deviation s, where s = sqrt(magnitude / factor).
    factor_type : {"avg", "in", "out"}
        Which fan is the factor.
    magnitude : float
        Scale of the variance.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
    2010.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, array: Any) -> None:
        shape = tuple(array.shape)
        if len(shape) < 2:
            raise InitializerError(
                f"{type(self).__name__} needs an array of at least 2 dimensions; '{name}' has shape {shape}. "
                f"Give this parameter another initializer with init=."
            )
        receptive = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * receptive, shape[0] * receptive
        factors = {"avg": (fan_in + fan_out) / 2.0, "in": float(fan_in), "out": float(fan_out)}
        if self.factor_type not in factors:
            raise InitializerError(
                f"factor_type must be 'avg', 'in' or 'out'; received {self.factor_type!r}."
            )
        scale = math.sqrt(self.magnitude / factors[self.factor_type])
        if self.rnd_type == "uniform":
            drawn = uniform(array, scale)
        elif self.rnd_type == "gaussian":
            drawn = normal(array, scale)
        else:
            raise InitializerError(f"rnd_type must be 'uniform' or 'gaussian'; received {self.rnd_type!r}.")
        write(array, drawn)


@register
class MSRAPrelu(Xavier):
    """Normal values for layers followed by a PReLU of the given slope.

    Source: He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015.
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Bilinear(Initializer):
    """Weights of a transposed convolution that upsamples bilinearly."""

    def _init_weight(self, name: str, array: Any) -> None:
        if len(array.shape) < 2:
            raise InitializerError(
                f"Bilinear needs an array of at least 2 dimensions; '{name}' has {array.shape}."
            )
        self._init_bilinear(name, array)


class Fixed(Initializer):
    """The value of a :class:`~regluon.gluon.Constant`; not written into symbols."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self.value is other.value

    __hash__ = Initializer.__hash__
