"""Convolutions of a training program: forward and both backward kernels, created once for each form.

Images are channels last. Weights come and go rows first, as parameters lie in memory; every call packs them,
which is cheap beside the convolution, so that no packed weight can be outdated.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...ops.internal import channels_last
from . import interface
from .interface import Descriptor, Library, Primitive, Unsupported, execution_arguments

__all__ = ["Form", "Kernel", "convolution", "kernels_for"]

_CHANNELS_LAST = torch.channels_last
_MOST_FORMS = 1024


class Form(NamedTuple):
    """What the kernels of a convolution depend on; ``threads`` is the number of torch's threads."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    dtype: torch.dtype
    # Weights may be more precise: they are rounded while they are packed.
    weight_dtype: torch.dtype
    bias: bool
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilate: tuple[int, ...]
    groups: int
    threads: int

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        sizes = (
            (size + 2 * pad - dilate * (window - 1) - 1) // stride + 1
            for size, window, stride, pad, dilate in zip(
                self.data[2:], self.weight[2:], self.stride, self.pad, self.dilate, strict=True
            )
        )
        return (self.data[0], self.weight[0], *sizes)


class Kernel:
    """A primitive with the memory objects that one thread executes it on."""

    def __init__(self, api: Library, primitive: Primitive, places: dict[int, Descriptor]) -> None:
        self._primitive = primitive
        space = primitive.scratchpad
        self._space = 0 if space is None else space.size
        if space is not None and space.size:
            places = {**places, interface.SCRATCHPAD: space}
        memories = [(place, api.memory(descriptor, 0)) for place, descriptor in places.items()]
        self._memories = [memory for _, memory in memories]
        self._array = execution_arguments(memories)
        self._stream = api.stream()
        self._set, self._execute = api.memory_set_data_handle, api.primitive_execute

    def __call__(self, *tensors: Tensor) -> None:
        """Execute on tensors in the order of the places."""
        if self._space:
            tensors = (*tensors, torch.empty(self._space, dtype=torch.uint8))
        for memory, tensor in zip(self._memories, tensors, strict=True):
            self._set(memory.pointer, tensor.data_ptr())
        if self._execute(self._primitive.pointer, self._stream.pointer, len(self._array), self._array):
            raise RuntimeError("a primitive of oneDNN failed")


class _Packing(NamedTuple):
    """A change of the weights' format."""

    primitive: Primitive
    source: Descriptor
    target: Descriptor


class Kernels:
    """The primitives of a form; many threads may use them at once."""

    def __init__(self, api: Library, form: Form) -> None:
        self._api, self.form = api, form
        dtype, weight = form.dtype, form.weight
        if form.groups > 1:
            weight = (form.groups, weight[0] // form.groups, *weight[1:])
        rows, any_weight = api.plain(weight, form.weight_dtype), api.any(weight, dtype)
        self._data, self._result = (self._images(shape) for shape in (form.data, form.result))
        self._bias = api.plain((form.weight[0],), dtype) if form.bias else None
        settings = (form.stride, form.dilate, form.pad)
        given = (self._data, any_weight, self._bias, self._result, *settings)
        self.forward, self.by_data, self.by_weight = api.convolution_training(*given)
        self._to_forward = self._packing(rows, self.forward.weights)
        self._to_data = self._packing(rows, self.by_data.weights)
        self._from_weight = self._packing(self.by_weight.weights_gradient, rows)
        self._local = threading.local()

    def _images(self, shape: tuple[int, ...]) -> Descriptor:
        _, channels, height, width = shape
        strides = (channels * height * width, 1, channels * width, channels)
        return self._api.plain(shape, self.form.dtype, strides)

    def _packing(self, source: Descriptor | None, target: Descriptor | None) -> _Packing | None:
        assert source is not None and target is not None
        if source == target:
            return None
        return _Packing(self._api.reorder(source, target), source, target)

    def _kernel(self, name: str, primitive: Primitive, places: dict[int, Descriptor | None]) -> Kernel:
        """The kernel with this thread's memory objects."""
        kernels = self._local.__dict__
        found = kernels.get(name)
        if found is None:
            there = {place: each for place, each in places.items() if each is not None}
            found = kernels[name] = Kernel(self._api, primitive, there)
        return found

    def _packed(self, name: str, packing: _Packing | None, weight: Tensor) -> Tensor:
        if packing is None:
            return weight
        places: dict[int, Descriptor | None] = {
            interface.SOURCE: packing.source,
            interface.DESTINATION: packing.target,
        }
        result = torch.empty(packing.target.size, dtype=torch.uint8)
        self._kernel(name, packing.primitive, places)(weight, result)
        return result

    def run(self, data: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of channels-last images with rows-first weights."""
        packed = self._packed("pack", self._to_forward, weight)
        result = torch.empty(self.form.result, dtype=self.form.dtype, memory_format=_CHANNELS_LAST)
        places = {
            interface.SOURCE: self._data,
            interface.WEIGHTS: self.forward.weights,
            interface.BIAS: self._bias,
            interface.DESTINATION: self._result,
        }
        given = [data, packed, result] if bias is None else [data, packed, bias, result]
        self._kernel("forward", self.forward, places)(*given)
        return result

    def data_gradient(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient of the images."""
        packed = self._packed("pack_data", self._to_data, weight)
        result = torch.empty(self.form.data, dtype=self.form.dtype, memory_format=_CHANNELS_LAST)
        places = {
            interface.DESTINATION_GRADIENT: self._result,
            interface.WEIGHTS: self.by_data.weights,
            interface.SOURCE_GRADIENT: self._data,
        }
        self._kernel("data", self.by_data, places)(gradient, packed, result)
        return result

    def weight_gradient(self, gradient: Tensor, data: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradients of the weights, rows first, and of the bias."""
        form, packing = self.form, self._from_weight
        result = torch.empty(form.weight, dtype=form.weight_dtype)
        packed = result if packing is None else torch.empty(packing.source.size, dtype=torch.uint8)
        bias = torch.empty(form.weight[0], dtype=form.dtype) if form.bias else None
        places = {
            interface.SOURCE: self._data,
            interface.DESTINATION_GRADIENT: self._result,
            interface.WEIGHTS_GRADIENT: self.by_weight.weights_gradient,
            interface.BIAS_GRADIENT: self._bias,
        }
        given = [data, gradient, packed] if bias is None else [data, gradient, packed, bias]
        self._kernel("weight", self.by_weight, places)(*given)
        if packing is not None:
            both: dict[int, Descriptor | None] = {
                interface.SOURCE: packing.source,
                interface.DESTINATION: packing.target,
            }
            self._kernel("unpack", packing.primitive, both)(packed, result)
        return result, bias


@functools.lru_cache(maxsize=_MOST_FORMS)
def kernels_for(form: Form) -> Kernels | None:
    """The kernels of a form, or None where oneDNN lacks a fast one."""
    api = interface.library()
    if api is None or 0 in form.data or 0 in form.result:
        return None
    try:
        return Kernels(api, form)
    except Unsupported:
        return None


class _Convolution(torch.autograd.Function):
    """``convolution(data, weight) + bias``."""

    @staticmethod
    def forward(context: Any, data: Tensor, weight: Tensor, bias: Tensor | None, kernels: Kernels) -> Tensor:
        # The inputs themselves are kept: a gradient of the gradient passes through them.
        context.save_for_backward(data, weight, bias)
        context.kernels = kernels
        bias = None if bias is None else bias.contiguous()
        return kernels.run(channels_last(data), weight.contiguous(), bias)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        data, weight, bias = context.saved_tensors
        kernels: Kernels = context.kernels
        (gradient,) = gradients
        needed = context.needs_input_grad[:3]
        if torch.is_grad_enabled():
            weight = weight.to(data.dtype)
            by_data, by_weight, by_bias = _plain_gradients(
                kernels.form, gradient, data, weight, bias, needed
            )
            by_weight = None if by_weight is None else by_weight.to(kernels.form.weight_dtype)
            return by_data, by_weight, by_bias, None
        gradient = channels_last(gradient)
        by_data = kernels.data_gradient(gradient, weight.contiguous()) if needed[0] else None
        by_weight, by_bias = None, None
        if any(needed[1:]):
            by_weight, by_bias = kernels.weight_gradient(gradient, channels_last(data))
        return by_data, by_weight, by_bias, None


def _plain_gradients(
    form: Form,
    gradient: Tensor,
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    needed: Sequence[bool],
) -> Sequence[Tensor | None]:
    """The gradients by torch's operator, which can be differentiated further."""
    found: Sequence[Tensor | None] = torch.ops.aten.convolution_backward(
        gradient,
        data,
        weight,
        None if bias is None else list(bias.shape),
        form.stride,
        form.pad,
        form.dilate,
        False,
        (0,) * len(form.stride),
        form.groups,
        list(needed),
    )
    return found


def convolution(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    dilate: tuple[int, ...],
    groups: int,
) -> Tensor | None:
    """The convolution with channels-last images; None where torch is to compute it.

    Parameters
    ----------
    data : Tensor
        Images of shape (N, C, H, W), on the CPU.
    weight : Tensor
        Of shape (O, C / groups, KH, KW), of the images' type or float32.
    bias : Tensor or None
        Of shape (O,).
    """
    dtype = data.dtype
    if weight.dtype not in (dtype, torch.float32) or (bias is not None and bias.dtype is not dtype):
        return None
    form = Form(
        tuple(data.shape),
        tuple(weight.shape),
        dtype,
        weight.dtype,
        bias is not None,
        stride,
        pad,
        dilate,
        groups,
        torch.get_num_threads(),
    )
    kernels = kernels_for(form)
    if kernels is None:
        return None
    return _Convolution.apply(data, weight, bias, kernels)  # type: ignore[no-any-return,no-untyped-call]
