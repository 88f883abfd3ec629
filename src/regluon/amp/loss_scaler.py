"""The dynamic scale of a loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..array.sparse import BaseSparseNDArray
from ..ops.registry import get
from ..runtime.invoke import invoke

__all__ = ["LossScaler"]


class LossScaler:
    """A factor for the loss that keeps small gradients within the range of float16.

    It starts at 65536. An overflow (a gradient that is infinite or NaN) halves it; after ``scale_seq_len``
    steps in a row without one it doubles, up to 2^24. The scheme is that of Micikevicius et al. 2018, "Mixed
    Precision Training".

    Parameters
    ----------
    init_scale, max_scale : float
        The scale at first and at most.
    scale_seq_len : int
        How many good steps double it.
    """

    def __init__(
        self, init_scale: float = 2.0**16, max_scale: float = 2.0**24, scale_seq_len: int = 2000
    ) -> None:
        self._loss_scale = float(init_scale)
        self._max_loss_scale = float(max_scale)
        self._scale_seq_len = int(scale_seq_len)
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        """What the next loss is multiplied by."""
        return self._loss_scale

    def has_overflow(self, params: Iterable[Any]) -> bool:
        """Whether a gradient of these parameters is infinite or NaN; adapts the scale accordingly."""
        overflow = not all(_finite(gradients) for gradients in _gradients(params))
        if overflow:
            self._loss_scale /= 2.0
            self._unskipped = 0
        else:
            self._unskipped += 1
            if self._unskipped >= self._scale_seq_len:
                self._loss_scale = min(self._max_loss_scale, self._loss_scale * 2.0)
                self._unskipped = 0
        return overflow

    def __repr__(self) -> str:
        return f"LossScaler({self._loss_scale:g})"


def _gradients(params: Iterable[Any]) -> list[list[Any]]:
    """The gradients, those of one device together."""
    found: dict[Any, list[Any]] = {}
    for parameter in params:
        if parameter.grad_req == "null":
            continue
        for gradient in parameter._grad or ():
            values = gradient.data if isinstance(gradient, BaseSparseNDArray) else gradient
            found.setdefault(gradient.context, []).append(values)
    return list(found.values())


def _finite(arrays: list[Any]) -> bool:
    flag = invoke(get("multi_all_finite"), arrays, {"num_arrays": len(arrays)})
    return bool(flag.asnumpy().item())
