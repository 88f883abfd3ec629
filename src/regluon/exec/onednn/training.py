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

from ...base.pool import empty_images
from ...ops.internal import channels_last
from ...runtime import targets
from . import interface
from .interface import Descriptor, Library, Primitive, Unsupported, execution_arguments

__all__ = ["BothWays", "Form", "Kernel", "convolution", "kernels_for"]

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


class _Workspace(threading.local):
    """Memory that a thread's kernels use while they run, and nothing after."""

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[int, Tensor | None]] = {}

    def at(self, purpose: str, size: int) -> int:
        """The address of ``size`` bytes."""
        held, block = self._blocks.get(purpose, (0, None))
        if block is None or held < size:
            block = torch.empty(size, dtype=torch.uint8)
            self._blocks[purpose] = size, block
        return block.data_ptr()


workspace = _Workspace()


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
        self._pointers = [memory.pointer for memory in self._memories]
        self._array = execution_arguments(memories)
        self._stream = api.stream()
        self._given = (primitive.pointer, self._stream.pointer, len(self._array), self._array)
        self._set, self._execute = api.memory_set_data_handle, api.primitive_execute
        # Values lie where they lay in the last step, more often than not.
        self._last: tuple[int, ...] = (0,) * len(self._pointers)

    def __call__(self, *addresses: int) -> None:
        """Execute on values at these addresses, in the order of the places."""
        if self._space:
            addresses = (*addresses, workspace.at("scratchpad", self._space))
        if addresses != self._last:
            for pointer, address, last in zip(self._pointers, addresses, self._last, strict=True):
                if address != last:
                    self._set(pointer, address)
            self._last = addresses
        if self._execute(*self._given):
            raise RuntimeError("a primitive of oneDNN failed")


class BothWays:
    """The kernels of a layer, with memory objects for each thread: often the forward and the backward one.

    ``parts`` are primitives, each with what is where.
    """

    def __init__(self, api: Library, *parts: tuple[Primitive, dict[int, Descriptor]]) -> None:
        self._api, self._parts = api, parts
        self._local = threading.local()

    def __call__(self) -> tuple[Kernel, ...]:
        """The kernels in their order, with this thread's memory objects."""
        try:
            return self._local.kernels  # type: ignore[no-any-return]
        except AttributeError:
            self._local.kernels = tuple([Kernel(self._api, *part) for part in self._parts])
            return self._local.kernels  # type: ignore[no-any-return]


# A primitive, and what is where; places without a value are left out.
_Step = tuple[Primitive, dict[int, Descriptor | None]]


class Kernels:
    """The primitives of a form; many threads may use them at once."""

    def __init__(self, api: Library, form: Form) -> None:
        self._api, self.form = api, form
        dtype, weight = form.dtype, form.weight
        if form.groups > 1:
            weight = (form.groups, weight[0] // form.groups, *weight[1:])
        rows, any_weight = api.plain(weight, form.weight_dtype), api.any(weight, dtype)
        data, result = (api.images(shape, form.dtype) for shape in (form.data, form.result))
        bias = api.plain((form.weight[0],), dtype) if form.bias else None
        settings = (form.stride, form.dilate, form.pad)
        primitives = api.convolution_training(data, any_weight, bias, result, *settings)
        self.forward, self.by_data, self.by_weight = primitives
        steps: dict[str, _Step] = {
            "forward": (self.forward, _forward_places(self.forward, data, bias, result)),
            "data": (self.by_data, _data_places(self.by_data, data, result)),
            "weight": (self.by_weight, _weight_places(self.by_weight, data, bias, result)),
        }
        # Bytes of the weights as a kernel wants them, 0 where they may stay as they are.
        self._sizes = {
            "pack": self._add_packing(steps, "pack", rows, self.forward.weights),
            "pack_data": self._add_packing(steps, "pack_data", rows, self.by_data.weights),
            "unpack": self._add_packing(steps, "unpack", self.by_weight.weights_gradient, rows),
        }
        self._steps = {
            name: (primitive, {place: each for place, each in places.items() if each is not None})
            for name, (primitive, places) in steps.items()
        }
        self._result_shape = form.result
        self._local = threading.local()

    def _add_packing(
        self, steps: dict[str, _Step], name: str, source: Descriptor | None, target: Descriptor | None
    ) -> int:
        """Add a change of the weights' format where one is needed; gives the packed size."""
        assert source is not None and target is not None
        if source == target:
            return 0
        places: dict[int, Descriptor | None] = {interface.SOURCE: source, interface.DESTINATION: target}
        steps[name] = self._api.reorder(source, target), places
        return source.size if name == "unpack" else target.size

    def _kernel(self, name: str) -> Kernel:
        """The kernel with this thread's memory objects."""
        kernels = self._local.__dict__
        found: Kernel | None = kernels.get(name)
        if found is None:
            found = kernels[name] = Kernel(self._api, *self._steps[name])
        return found

    def _packed(self, name: str, weight: Tensor) -> int:
        """Where the weights lie as a kernel wants them."""
        size = self._sizes[name]
        if not size:
            return weight.data_ptr()
        address = workspace.at("weights", size)
        self._kernel(name)(weight.data_ptr(), address)
        return address

    def run(self, data: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of channels-last images with rows-first weights."""
        packed = self._packed("pack", weight)
        result = empty_images(self._result_shape, self.form.dtype)
        offset = () if bias is None else (bias.data_ptr(),)
        self._kernel("forward")(data.data_ptr(), packed, *offset, result.data_ptr())
        return result

    def data_gradient(self, gradient: Tensor, weight: Tensor) -> Tensor:
        """The gradient of the images."""
        packed = self._packed("pack_data", weight)
        result = empty_images(self.form.data, self.form.dtype)
        self._kernel("data")(gradient.data_ptr(), packed, result.data_ptr())
        return result

    def weight_gradient(
        self, gradient: Tensor, data: Tensor, into: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of the weights, rows first and in ``into`` if that is given, and of the bias."""
        form, size = self.form, self._sizes["unpack"]
        result = torch.empty(form.weight, dtype=form.weight_dtype) if into is None else into
        packed = workspace.at("weights", size) if size else result.data_ptr()
        bias = torch.empty(form.weight[0], dtype=form.dtype) if form.bias else None
        offset = () if bias is None else (bias.data_ptr(),)
        self._kernel("weight")(data.data_ptr(), gradient.data_ptr(), packed, *offset)
        if size:
            self._kernel("unpack")(packed, result.data_ptr())
        return result, bias


def _forward_places(
    forward: Primitive, data: Descriptor, bias: Descriptor | None, result: Descriptor
) -> dict[int, Descriptor | None]:
    return {
        interface.SOURCE: data,
        interface.WEIGHTS: forward.weights,
        interface.BIAS: bias,
        interface.DESTINATION: result,
    }


def _data_places(by_data: Primitive, data: Descriptor, result: Descriptor) -> dict[int, Descriptor | None]:
    return {
        interface.DESTINATION_GRADIENT: result,
        interface.WEIGHTS: by_data.weights,
        interface.SOURCE_GRADIENT: data,
    }


def _weight_places(
    by_weight: Primitive, data: Descriptor, bias: Descriptor | None, result: Descriptor
) -> dict[int, Descriptor | None]:
    return {
        interface.SOURCE: data,
        interface.DESTINATION_GRADIENT: result,
        interface.WEIGHTS_GRADIENT: by_weight.weights_gradient,
        interface.BIAS_GRADIENT: bias,
    }


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
        images = channels_last(data)
        # The inputs themselves are kept: a gradient of the gradient passes through them.
        context.save_for_backward(data if context.needs_input_grad[0] else images, weight, bias)
        context.kernels = kernels
        bias = None if bias is None else bias.contiguous()
        return kernels.run(images, weight.contiguous(), bias)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        data, weight, bias = context.saved_tensors
        kernels: Kernels = context.kernels
        (gradient,) = gradients
        needed = context.needs_input_grad[:3]
        if torch.is_grad_enabled():
            weight = weight.to(data.dtype)
            by_data, by_weight, by_bias = _plain_gradients(kernels.form, gradient, data, weight, bias, needed)
            by_weight = None if by_weight is None else by_weight.to(kernels.form.weight_dtype)
            return by_data, by_weight, by_bias, None
        gradient = channels_last(gradient)
        by_data = kernels.data_gradient(gradient, weight.contiguous()) if needed[0] else None
        by_weight, by_bias = None, None
        if any(needed[1:]):
            into = targets.take(weight)
            by_weight, by_bias = kernels.weight_gradient(gradient, channels_last(data), into)
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
