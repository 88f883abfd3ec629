"""Activations as layers."""

from __future__ import annotations

from typing import Any

from ... import initializer
from ..hybrid import HybridBlock
from .making import make_parameter

__all__ = ["ELU", "GELU", "SELU", "Activation", "LeakyReLU", "PReLU", "SiLU", "Swish"]


class Activation(HybridBlock):
    """An activation by name: ``relu``, ``sigmoid``, ``tanh``, ``softrelu``, ``softsign``, ...

    Parameters
    ----------
    activation : str
        Its name. Input and output have the same shape.
    """

    def __init__(self, activation: str, prefix: str | None = None, params: Any = None) -> None:
        self.__dict__["_act_type"] = activation
        super().__init__(prefix=prefix, params=params)
        self._act_type = activation

    def _alias(self) -> str:
        return self._act_type  # type: ignore[no-any-return]

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(HybridBlock):
    """``x`` where positive, ``alpha * x`` elsewhere.

    Parameters
    ----------
    alpha : float
        Slope for negative values, at least 0.
    """

    def __init__(self, alpha: float, prefix: str | None = None, params: Any = None) -> None:
        if alpha < 0:
            raise ValueError(f"Slope coefficient for LeakyReLU must be no less than 0; received {alpha}")
        super().__init__(prefix=prefix, params=params)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


class PReLU(HybridBlock):
    """Leaky rectifier with a learned slope (He et al., 2015).

    Parameters
    ----------
    alpha_initializer : Initializer
        Of the slope; 0.25 by default.
    in_channels : int
        Number of slopes: 1, or one for each channel (axis 1).
    """

    def __init__(
        self,
        alpha_initializer: Any = None,
        in_channels: int = 1,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        init = alpha_initializer if alpha_initializer is not None else initializer.Constant(0.25)
        with self.name_scope():
            self.alpha = make_parameter(self, "alpha", shape=(in_channels,), init=init)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, gamma=alpha, act_type="prelu", name="fwd")


class ELU(HybridBlock):
    """``x`` where positive, ``alpha * (exp(x) - 1)`` elsewhere (Clevert et al., 2016)."""

    def __init__(self, alpha: float = 1.0, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(HybridBlock):
    """Scaled exponential linear unit (Klambauer et al., 2017)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """Gaussian error linear unit ``x * Phi(x)`` (Hendrycks and Gimpel, 2016)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(HybridBlock):
    """``x * sigmoid(beta * x)`` (Ramachandran et al., 2017)."""

    def __init__(self, beta: float = 1.0, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.broadcast_mul(x, F.sigmoid(x * self._beta), name="fwd")


class SiLU(HybridBlock):
    """``x * sigmoid(x)`` (Elfwing et al., 2018)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.broadcast_mul(x, F.sigmoid(x), name="fwd")
