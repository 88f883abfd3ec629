"""Padding of any axis in NumPy's modes, for every dtype, differentiable, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from regluon.base.errors import MXNetError

_TORCH_MODES = {"edge": "replicate", "reflect": "reflect"}


def _source_index(size: int, before: int, after: int, mode: str, device: torch.device) -> Tensor:
    """For every position of a padded axis, the element of the axis that it shows."""
    index = torch.arange(-before, size + after, device=device)
    if mode == "edge":
        return index.clamp(0, size - 1)
    if mode == "reflect":
        period = max(2 * (size - 1), 1)
        index = index.remainder(period)
        return torch.minimum(index, (period - index).clamp(min=0)) if size > 1 else torch.zeros_like(index)
    index = index.remainder(2 * size)
    return torch.minimum(index, 2 * size - 1 - index)


def _pad_extremum(data: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    reduce = torch.amax if mode == "maximum" else torch.amin
    value = reduce(data, axis, keepdim=True)
    shape = list(data.shape)
    parts = []
    for count in (before, after):
        shape[axis] = count
        parts.append(value.expand(shape))
    return torch.cat([parts[0], data, parts[1]], axis)


def pad_axes(data: Tensor, pairs: Sequence[tuple[int, int]], mode: str, value: float = 0.0) -> Tensor:
    """Pad axis ``i`` by ``pairs[i] = (before, after)`` elements.

    Modes: constant, edge, reflect, symmetric, maximum, minimum, with the meaning they have in ``numpy.pad``.
    """
    if any(before < 0 or after < 0 for before, after in pairs):
        raise MXNetError(f"pad: widths must not be negative, received {list(pairs)}")
    if mode == "constant":
        widths = [width for pair in reversed(pairs) for width in pair]
        return functional.pad(data, widths, "constant", value)
    spatial = [width for pair in reversed(pairs[2:]) for width in pair]
    short = all(max(pair) < size for pair, size in zip(pairs, data.shape, strict=True))
    if mode in _TORCH_MODES and data.is_floating_point() and 3 <= data.dim() <= 5 and short:
        if not any(width for pair in pairs[:2] for width in pair):
            return functional.pad(data, spatial, _TORCH_MODES[mode])
    for axis, (before, after) in enumerate(pairs):
        if before == 0 and after == 0:
            continue
        if data.shape[axis] == 0:
            raise MXNetError(f"pad: axis {axis} is empty and mode {mode!r} takes values from the array")
        if mode in ("maximum", "minimum"):
            data = _pad_extremum(data, axis, before, after, mode)
        else:
            index = _source_index(data.shape[axis], before, after, mode, data.device)
            data = data.index_select(axis, index)
    return data
