"""BatchNorm of a training program: forward and backward kernels that rectify on the way.

Images are channels last. Means and variances are those of the batch.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...base.pool import empty_images
from . import interface
from .interface import Descriptor, Library, Unsupported
from .pools import is_worth_it, mark_without_nan
from .training import BothWays

__all__ = ["NormForm", "Normalized", "norm_kernels_for"]

_MOST_FORMS = 1024
_ADDRESS = Tensor.data_ptr


class NormForm(NamedTuple):
    """What the kernels depend on; ``threads`` is the number of torch's threads."""

    data: tuple[int, ...]
    dtype: torch.dtype
    eps: float
    relu: bool
    threads: int


class Normalized(NamedTuple):
    """What a forward gives: the result, the statistics, and which values were rectified."""

    result: Tensor
    mean: Tensor
    variance: Tensor
    mask: Tensor


class NormKernels:
    """The primitives of a form; many threads may use them at once."""

    def __init__(self, api: Library, form: NormForm) -> None:
        self.form = form
        data, vector = api.images(form.data, form.dtype), api.plain(form.data[1:2], torch.float32)
        forward, backward = api.batch_norm_training(data, form.eps, form.relu)
        mask = forward.workspace
        self._mask = 0 if mask is None else mask.size
        statistics = {interface.MEAN: vector, interface.VARIANCE: vector, interface.GAMMA: vector}
        common: dict[int, Descriptor] = {interface.SOURCE: data, **statistics}
        if mask is not None and mask.size:
            common[interface.WORKSPACE] = mask
        forward_places = {**common, interface.BETA: vector, interface.DESTINATION: data}
        backward_places = {
            **common,
            interface.DESTINATION_GRADIENT: data,
            interface.SOURCE_GRADIENT: data,
            interface.GAMMA_GRADIENT: vector,
            interface.BETA_GRADIENT: vector,
        }
        self._kernels = BothWays(api, (forward, forward_places), (backward, backward_places))

    def run(self, data: Tensor, gamma: Tensor, beta: Tensor) -> Normalized | None:
        """The normalized images; None where they are rectified and not finite: NaN would be taken for 0."""
        mean, variance = torch.empty_like(gamma), torch.empty_like(gamma)
        result = empty_images(self.form.data, self.form.dtype)
        mask = torch.empty(self._mask, dtype=torch.uint8)
        held = (mask,) if self._mask else ()
        self._kernels()[0](*map(_ADDRESS, (data, mean, variance, gamma, *held, beta, result)))
        if self.form.relu or is_worth_it(self.form.data):
            # A factor or an offset that is not finite makes such values, too.
            finite = math.isfinite(float(torch.dot(mean, variance) + torch.dot(gamma, beta)))
            if finite:
                mark_without_nan(result)
            elif self.form.relu:
                return None
        return Normalized(result, mean, variance, mask)

    def gradients(
        self,
        gradient: Tensor,
        data: Tensor,
        gamma: Tensor,
        mean: Tensor,
        variance: Tensor,
        mask: Tensor,
        into: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of the images, in ``into`` if that is given, of gamma and of beta."""
        by_data = empty_images(self.form.data, self.form.dtype) if into is None else into
        by_gamma, by_beta = torch.empty_like(gamma), torch.empty_like(gamma)
        held = (mask,) if self._mask else ()
        given = (data, mean, variance, gamma, *held, gradient, by_data, by_gamma, by_beta)
        self._kernels()[1](*map(_ADDRESS, given))
        return by_data, by_gamma, by_beta


@functools.lru_cache(maxsize=_MOST_FORMS)
def norm_kernels_for(form: NormForm) -> NormKernels | None:
    """The kernels of a form, or None where oneDNN lacks a fast one."""
    api = interface.library()
    if api is None or 0 in form.data:
        return None
    try:
        return NormKernels(api, form)
    except Unsupported:
        return None
