"""Maximum pooling of a training program: forward and backward kernels.

Images are channels last. oneDNN passes NaN over where torch gives it: images that are not finite are torch's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...base.pool import empty_images
from ...ops.internal import channels_last
from . import interface
from .interface import Library, Unsupported
from .training import BothWays

__all__ = ["PoolForm", "is_marked", "is_worth_it", "mark_without_nan", "maximum_pooling", "pool_kernels_for"]

_MOST_FORMS = 256
# Images of fewer values are pooled before a function of Python is entered and left.
_FEWEST = 1 << 20
_MARK = "_regluon_without_nan"


class PoolForm(NamedTuple):
    """What the kernels depend on; ``threads`` is the number of torch's threads."""

    data: tuple[int, ...]
    dtype: torch.dtype
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    threads: int

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        sizes = (
            (size + 2 * pad - window) // stride + 1
            for size, window, stride, pad in zip(
                self.data[2:], self.kernel, self.stride, self.pad, strict=True
            )
        )
        return (*self.data[:2], *sizes)


class PoolKernels:
    """The primitives of a form; many threads may use them at once."""

    def __init__(self, api: Library, form: PoolForm) -> None:
        self.form = form
        data, result = (api.images(shape, form.dtype) for shape in (form.data, form.result))
        after = [
            (length - 1) * stride + window - size - pad
            for length, stride, window, size, pad in zip(
                form.result[2:], form.stride, form.kernel, form.data[2:], form.pad, strict=True
            )
        ]
        window = (form.kernel, form.stride, form.pad, after)
        forward, backward = api.pooling_training(data, result, *window)
        places = forward.workspace
        if places is None or not places.size:
            raise Unsupported("the places of the maxima are not told")
        # Bytes of the places where the maxima are.
        self._size = places.size
        forward_places = {
            interface.SOURCE: data,
            interface.DESTINATION: result,
            interface.WORKSPACE: places,
        }
        backward_places = {
            interface.DESTINATION_GRADIENT: result,
            interface.SOURCE_GRADIENT: data,
            interface.WORKSPACE: places,
        }
        self._kernels = BothWays(api, (forward, forward_places), (backward, backward_places))

    def run(self, data: Tensor) -> tuple[Tensor, Tensor] | None:
        """The maxima, and where they are; None where the images may have NaN."""
        if not is_marked(data) and not math.isfinite(float(data.sum())):
            return None
        form = self.form
        result = empty_images(form.result, form.dtype)
        places = torch.empty(self._size, dtype=torch.uint8)
        self._kernels()[0](data.data_ptr(), result.data_ptr(), places.data_ptr())
        return result, places

    def gradient(self, gradient: Tensor, places: Tensor) -> Tensor:
        """The gradient of the images."""
        result = empty_images(self.form.data, self.form.dtype)
        self._kernels()[1](gradient.data_ptr(), result.data_ptr(), places.data_ptr())
        return result


@functools.lru_cache(maxsize=_MOST_FORMS)
def pool_kernels_for(form: PoolForm) -> PoolKernels | None:
    """The kernels of a form, or None where oneDNN lacks a fast one."""
    api = interface.library()
    if api is None or 0 in form.data or min(form.result) < 1:
        return None
    try:
        return PoolKernels(api, form)
    except Unsupported:
        return None


class _Pool(torch.autograd.Function):
    """The maximum of each window."""

    @staticmethod
    def forward(context: Any, data: Tensor, kernels: PoolKernels) -> Tensor:
        form = kernels.form
        found = kernels.run(channels_last(data))
        context.by_torch = found is None
        if found is None:
            found = torch.ops.aten.max_pool2d_with_indices(data, form.kernel, form.stride, form.pad)
        result, places = found
        context.save_for_backward(data, places)
        context.kernels = kernels
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        data, places = context.saved_tensors
        (gradient,) = gradients
        kernels: PoolKernels = context.kernels
        window = (kernels.form.kernel, kernels.form.stride, kernels.form.pad)
        if torch.is_grad_enabled():
            # An alias: the gradient may depend on the data, and what is wanted here is the direct one only.
            alias = data.view_as(data)
            result = torch.max_pool2d(alias, *window)
            return *torch.autograd.grad(result, alias, gradient, create_graph=True), None
        if context.by_torch:
            given = (gradient, data, *window, (1, 1), False, places)
            return torch.ops.aten.max_pool2d_with_indices_backward(*given), None
        return kernels.gradient(channels_last(gradient), places), None


def mark_without_nan(images: Tensor) -> None:
    """Note that images have no NaN as they are now, which saves looking for it."""
    setattr(images, _MARK, images._version)


def is_marked(images: Tensor) -> bool:
    """Whether it was noted that images have no NaN, and nothing wrote to them since."""
    return bool(getattr(images, _MARK, None) == images._version)


def is_worth_it(shape: Sequence[int]) -> bool:
    """Whether images of a shape are so large that these kernels gain more than they cost."""
    return math.prod(shape) >= _FEWEST


def maximum_pooling(
    data: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...]
) -> Tensor | None:
    """The maximum of each window of large images on the CPU; None where torch is to compute it."""
    if not is_worth_it(data.shape) or not data.requires_grad:
        return None
    form = PoolForm(tuple(data.shape), data.dtype, kernel, stride, pad, torch.get_num_threads())
    kernels = pool_kernels_for(form)
    return None if kernels is None else _Pool.apply(data, kernels)  # type: ignore[no-untyped-call]
