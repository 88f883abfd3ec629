"""Transforms made of operators, and the ways to combine transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from ....block import Block, HybridBlock
from ....nn import HybridSequential, Sequential
from . import kernels

__all__ = ["Cast", "Compose", "HybridCompose", "HybridRandomApply", "Normalize", "RandomApply", "ToTensor"]


class Compose(Sequential):
    """Apply several transforms one after the other."""

    def __init__(self, transforms: Sequence[Block]) -> None:
        super().__init__()
        self.add(*transforms)


class HybridCompose(HybridSequential):
    """Apply several transforms made of operators one after the other; it can be hybridized and exported."""

    def __init__(self, transforms: Sequence[HybridBlock]) -> None:
        super().__init__()
        self.add(*transforms)


class RandomApply(Sequential):
    """Apply a transform (or a list of them, in order) with probability ``p``."""

    def __init__(self, transforms: Block | Sequence[Block], p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms if isinstance(transforms, Block) else Compose(transforms)
        self.p = p

    def forward(self, x: Any) -> Any:
        return self.transforms(x) if kernels.uniform(0, 1) < self.p else x


class HybridRandomApply(RandomApply):
    """`RandomApply` under its 2.0 name."""


class Cast(HybridBlock):
    """Convert to a dtype."""

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.cast(x, dtype=self._dtype)


class ToTensor(HybridBlock):
    """From (height, width, channels) in 0..255 to (channels, height, width) in float32 0..1; also for a
    batch."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        rank = len(x.shape)
        if rank not in (3, 4):
            raise ValueError(
                "ToTensor expected an image of shape (height, width, channels) or a batch of them, "
                f"got {x.shape}"
            )
        axes = (2, 0, 1) if rank == 3 else (0, 3, 1, 2)
        return F.transpose(F.cast(x, dtype="float32"), axes=axes) / 255


class Normalize(HybridBlock):
    """Subtract ``mean`` and divide by ``std``, numbers or one for each channel, of (channels, height,
    width)."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        self._mean = self._channels(mean)
        self._std = self._channels(std)

    @staticmethod
    def _channels(value: Any) -> tuple[float, ...]:
        return tuple(numpy.asarray(value, dtype=numpy.float64).reshape(-1).tolist())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.broadcast_div(
            F.broadcast_sub(x, self._constant(F, self._mean)), self._constant(F, self._std)
        )

    @staticmethod
    def _constant(F: Any, values: tuple[float, ...]) -> Any:
        """The values as an array of shape (channels, 1, 1) that both F.nd and F.sym can make."""
        parts = [F.full((1, 1, 1), value, dtype="float32") for value in values]
        return parts[0] if len(parts) == 1 else F.concat(*parts, dim=0)
