"""Functions that merge a list of samples into one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from ...array import NDArray
from ...base.dtypes import to_torch
from ._arrays import batch_kind, wrap, wrap_numpy

__all__ = ["Append", "AsList", "Group", "Pad", "Stack", "default_batchify_fn"]


def _tensor(sample: Any) -> torch.Tensor:
    """One sample as a tensor that keeps its dtype."""
    if isinstance(sample, NDArray):
        return sample._t
    if isinstance(sample, torch.Tensor):
        return sample.detach()
    array = numpy.asarray(sample)
    if array.dtype.kind in "OSUV":
        raise TypeError(
            f"Cannot batch samples of type {type(sample).__name__} ({array.dtype}): arrays, numbers, or "
            "tuples of them were expected. Transform the dataset to numbers, or use batchify.AsList() for "
            "this field (in batchify.Group(...) when a sample has several)."
        )
    return torch.from_numpy(numpy.array(array, order="C"))


class Stack:
    """Stack samples of one shape along a new first axis.

    Arrays keep their kind and dtype, NumPy arrays and numbers keep NumPy's dtype (a Python float gives
    float64). A sample that is a tuple gives a list with one batch for each field, a dict a dict of batches.

    Raises
    ------
    ValueError
        When the samples' shapes differ; the message names two of them.
    TypeError
        For samples that are no numbers, such as strings.
    """

    def __init__(self, use_shared_mem: bool = False) -> None:
        # Memory of worker batches is always shared; the argument is taken so that old calls keep working.
        self._use_shared_mem = use_shared_mem

    def __call__(self, data: Sequence[Any]) -> Any:
        first = data[0]
        if isinstance(first, tuple):
            return [self(field) for field in zip(*data, strict=True)]
        if isinstance(first, dict):
            return {key: self([sample[key] for sample in data]) for key in first}
        if isinstance(first, (NDArray, torch.Tensor)):
            return self._stack([_tensor(sample) for sample in data], data)
        try:
            merged = numpy.asarray(data)
        except ValueError:  # ragged: let the shapes be named below
            return self._stack([_tensor(sample) for sample in data], data)
        if merged.dtype.kind in "OSUV":
            return self._stack([_tensor(sample) for sample in data], data)
        return wrap_numpy(merged, batch_kind(data))

    @staticmethod
    def _stack(tensors: list[torch.Tensor], data: Sequence[Any]) -> NDArray:
        for index, tensor in enumerate(tensors):
            if tensor.shape != tensors[0].shape:
                raise ValueError(
                    "Cannot stack samples of different shapes: sample 0 of the batch has "
                    f"{tuple(tensors[0].shape)}, sample {index} has {tuple(tensor.shape)}. Resize or crop "
                    "them in a transform, or pad them with batchify_fn=batchify.Pad()."
                )
        return wrap(torch.stack([tensor.to(tensors[0].device) for tensor in tensors]), batch_kind(data))


class Pad:
    """Pad samples with ``val`` at their ends to the largest size of each axis, then stack them.

    Parameters
    ----------
    val : number, optional
        The padding value, 0 by default.
    dtype : optional
        Type of the batch; that of the first sample by default.
    round_to : int, optional
        Round every padded size up to a multiple of this number.
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: Any = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,
    ) -> None:
        self._value = 0 if val is None else val
        self._dtype = dtype
        self._round_to = round_to
        self._use_shared_mem = use_shared_mem

    def __call__(self, data: Sequence[Any]) -> NDArray:
        if isinstance(data[0], tuple):
            raise TypeError(
                "Pad() merges one field, but the samples are tuples: use "
                "batchify.Group(batchify.Pad(), batchify.Stack(), ...) with one function for each field."
            )
        tensors = [_tensor(sample) for sample in data]
        if len({tensor.ndim for tensor in tensors}) > 1:
            raise ValueError(
                f"Pad() needs samples of one rank, got shapes {[tuple(t.shape) for t in tensors]}"
            )
        step = self._round_to or 1
        shape = [-(-max(sizes) // step) * step for sizes in zip(*(t.shape for t in tensors), strict=True)]
        dtype = tensors[0].dtype if self._dtype is None else to_torch(self._dtype)
        batch = torch.full((len(tensors), *shape), self._value, dtype=dtype)
        for row, tensor in zip(batch, tensors, strict=True):
            row[tuple(slice(size) for size in tensor.shape)] = tensor
        return wrap(batch, batch_kind(data))


class Append:
    """Keep samples of unlike shapes apart: a list of one array for each sample.

    With ``expand=True`` every array gets an axis of size 1 at ``batch_axis``.
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        self._expand = expand
        self._batch_axis = batch_axis
        self._use_shared_mem = use_shared_mem

    def __call__(self, data: Sequence[Any]) -> list[NDArray]:
        kind = batch_kind(data)
        tensors = (_tensor(sample) for sample in data)
        return [
            wrap(tensor.unsqueeze(self._batch_axis) if self._expand else tensor, kind) for tensor in tensors
        ]


class Group:
    """Apply one function to each field of tuple samples: ``Group(Stack(), Pad(val=-1))``."""

    def __init__(self, fn: Any, *args: Any) -> None:
        if isinstance(fn, (list, tuple)):
            if args:
                raise ValueError("Group takes either one list of functions or several functions, got both")
            self._fn: tuple[Callable[..., Any], ...] = tuple(fn)
        else:
            self._fn = (fn, *args)
        for position, function in enumerate(self._fn):
            if not callable(function):
                raise TypeError(
                    f"Group expected functions, but argument {position} is {type(function).__name__}"
                )

    def __call__(self, data: Sequence[Any]) -> tuple[Any, ...]:
        for sample in data:
            if not isinstance(sample, (list, tuple)) or len(sample) != len(self._fn):
                found = len(sample) if isinstance(sample, (list, tuple)) else type(sample).__name__
                raise ValueError(
                    f"Group has {len(self._fn)} functions and expects as many fields, got {found}"
                )
        return tuple(function([sample[i] for sample in data]) for i, function in enumerate(self._fn))


class AsList:
    """Give the samples of the batch as a list, untouched (for strings and other objects)."""

    def __call__(self, data: Sequence[Any]) -> list[Any]:
        return list(data)


default_batchify_fn = Stack()
