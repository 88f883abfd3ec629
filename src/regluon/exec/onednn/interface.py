"""oneDNN's C interface, inside the library that torch brings with it.

torch's own operators create a oneDNN primitive at every call, which takes some 40 microseconds. Through
oneDNN's interface a primitive is created once, and executed in one or two. torch exports none of this, but
its library for Linux names them in its symbol table: they are looked up there, checked against functions that
are exported, and tried once. Where anything does not fit, `library` gives None and torch's operators run.

Numbers are those of oneDNN's headers (``dnnl_types.h``, version 3).
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .lookup import addresses

__all__ = ["Descriptor", "Library", "Primitive", "Unsupported", "contiguous_strides", "library"]

_pointer, _int, _float = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
_Dims = ctypes.c_int64 * 12

TYPES: dict[torch.dtype, int] = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3}
TYPES |= {torch.int32: 4, torch.int8: 5, torch.uint8: 6}
# Places of arguments.
SOURCE, SOURCE_1, DESTINATION, WEIGHTS, BIAS, SCRATCHPAD = 1, 2, 17, 33, 41, 80
MULTIPLE_SOURCE, POST_OPERATION = 1024, 32768
SCALES, ZERO_POINTS = 4096, 8192
GAMMA, BETA = 51, 52
# Places of gradients.
SOURCE_GRADIENT, DESTINATION_GRADIENT, WEIGHTS_GRADIENT, BIAS_GRADIENT = 129, 145, 161, 169
MEAN, VARIANCE, WORKSPACE, GAMMA_GRADIENT, BETA_GRADIENT = 49, 50, 64, 255, 256
STATE, CELL, LAST_STATE, LAST_CELL, RECURRENT_WEIGHTS = 2, 3, 18, 19, 34
# Queries.
_IMPLEMENTATION = 8
_SOURCE_MD, _WEIGHTS_MD, _DESTINATION_MD, _SCRATCHPAD_MD, _ARGUMENT_MD = 129, 131, 133, 136, 255
_WEIGHTS_GRADIENT_MD, _WORKSPACE_MD = 132, 135
# Algorithms.
BINARY = {"add": 0x1FFF0, "mul": 0x1FFF1}
POOLING = {"max": 0x1FF, "avg_include": 0x2FF, "avg_exclude": 0x3FF}
_CONVOLUTION_DIRECT, _ANY, _FORWARD_INFERENCE, _USER_SCRATCHPAD, _SCALE_AND_SHIFT = 1, 1, 96, 1, 6
_FORWARD_TRAINING, _BACKWARD, _RECTIFIED = 64, 128, 8
_FORWARD, _BOTH_WAYS = 1, 3
_SOFTMAX = 0x30000
# Activations by our names: the algorithm, and where its two numbers come from: the scalars given, or these.
ELTWISE: dict[str, tuple[int, tuple[float, float]]] = {
    "relu": (0x20, (0.0, 0.0)),
    "leaky": (0x20, (0.0, 0.0)),
    "tanh": (0x21, (0.0, 0.0)),
    "linear": (0x26, (1.0, 0.0)),
    "sigmoid": (0x29, (0.0, 0.0)),
    "gelu_tanh": (0x2B, (0.0, 0.0)),
    "silu": (0x2C, (1.0, 0.0)),
    "clip": (0x2E, (0.0, 0.0)),
    "gelu": (0x31, (0.0, 0.0)),
}

# name: argument types after the pointer that receives what is made, or all of them.
_p = _pointer
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (_p, ()),
    "engine_create": (_int, (_p, _int, ctypes.c_size_t)),
    "stream_create": (_int, (_p, _p, ctypes.c_uint)),
    "stream_destroy": (_int, (_p,)),
    "memory_desc_create_with_tag": (_int, (_p, _int, _p, _int, _int)),
    "memory_desc_create_with_strides": (_int, (_p, _int, _p, _int, _p)),
    "memory_desc_create_submemory": (_int, (_p, _p, _p, _p)),
    "memory_desc_clone": (_int, (_p, _p)),
    "memory_desc_destroy": (_int, (_p,)),
    "memory_desc_get_size": (ctypes.c_size_t, (_p,)),
    "memory_desc_equal": (_int, (_p, _p)),
    "memory_create": (_int, (_p, _p, _p, _p)),
    "memory_destroy": (_int, (_p,)),
    "memory_set_data_handle": (_int, (_p, _p)),
    "primitive_desc_query": (_int, (_p, _int, _int, _p)),
    "primitive_desc_query_md": (_p, (_p, _int, _int)),
    "primitive_desc_destroy": (_int, (_p,)),
    "primitive_create": (_int, (_p, _p)),
    "get_primitive_cache_capacity": (_int, (_p,)),
    "set_primitive_cache_capacity": (_int, (_int,)),
    "primitive_destroy": (_int, (_p,)),
    "primitive_execute": (_int, (_p, _p, _int, _p)),
    "primitive_attr_create": (_int, (_p,)),
    "primitive_attr_destroy": (_int, (_p,)),
    "primitive_attr_set_post_ops": (_int, (_p, _p)),
    "primitive_attr_set_scratchpad_mode": (_int, (_p, _int)),
    "primitive_attr_set_scales_mask": (_int, (_p, _int, _int)),
    "primitive_attr_set_zero_points_mask": (_int, (_p, _int, _int)),
    "post_ops_create": (_int, (_p,)),
    "post_ops_destroy": (_int, (_p,)),
    "post_ops_append_sum": (_int, (_p, _float, ctypes.c_int32, _int)),
    "post_ops_append_eltwise": (_int, (_p, _int, _float, _float)),
    "post_ops_append_binary": (_int, (_p, _int, _p)),
    "convolution_forward_primitive_desc_create": (_int, (_p, _p, _int, _int, *[_p] * 9)),
    "convolution_backward_data_primitive_desc_create": (_int, (_p, _p, _int, *[_p] * 9)),
    "convolution_backward_weights_primitive_desc_create": (_int, (_p, _p, _int, *[_p] * 10)),
    "batch_normalization_forward_primitive_desc_create": (
        _int,
        (_p, _p, _int, _p, _p, _float, ctypes.c_uint, _p),
    ),
    "batch_normalization_backward_primitive_desc_create": (
        _int,
        (_p, _p, _int, _p, _p, _p, _float, ctypes.c_uint, _p, _p),
    ),
    "pooling_forward_primitive_desc_create": (_int, (_p, _p, _int, _int, *[_p] * 8)),
    "pooling_backward_primitive_desc_create": (_int, (_p, _p, _int, *[_p] * 9)),
    "eltwise_forward_primitive_desc_create": (_int, (_p, _p, _int, _int, _p, _p, _float, _float, _p)),
    "binary_primitive_desc_create": (_int, (_p, _p, _int, _p, _p, _p, _p)),
    "concat_primitive_desc_create": (_int, (_p, _p, _p, _int, _int, _p, _p)),
    "layer_normalization_forward_primitive_desc_create_v2": (
        _int,
        (_p, _p, _int, _p, _p, _p, _int, _float, ctypes.c_uint, _p),
    ),
    "lstm_forward_primitive_desc_create": (
        _int,
        (_p, _p, _int, _int, *[_p] * 11, ctypes.c_uint, _p),
    ),
    "softmax_forward_primitive_desc_create": (_int, (_p, _p, _int, _int, _p, _p, _int, _p)),
    "softmax_backward_primitive_desc_create": (_int, (_p, _p, _int, _p, _p, _p, _int, _p, _p)),
    "matmul_primitive_desc_create": (_int, (_p, _p, _p, _p, _p, _p, _p)),
    "reorder_primitive_desc_create": (_int, (_p, _p, _p, _p, _p, _p)),
}


class Unsupported(RuntimeError):
    """oneDNN has no fast kernel for this."""


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of rows-first memory, in elements."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))


# Looking up ----------------------------------------------------------------------


def _addresses(path: Path) -> dict[str, int]:
    """Where the functions of ``_FUNCTIONS`` are in this process."""
    found = addresses(path, [f"dnnl_{name}" for name in _FUNCTIONS], "dnnl_")
    return {name: found[f"dnnl_{name}"] for name in _FUNCTIONS}


@functools.cache
def library() -> Library | None:
    """oneDNN's interface, or None where it cannot be had."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    try:
        found = Library(_addresses(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return found if found.works() else None
    except (OSError, ValueError, Unsupported):
        return None


# Objects ----------------------------------------------------------------------


class _Owned:
    """An object of oneDNN that is destroyed with this one."""

    __slots__ = ("_destroy", "pointer")

    def __init__(self, pointer: int | None, destroy: Any) -> None:
        self.pointer = pointer
        self._destroy = destroy

    def __del__(self) -> None:
        self._destroy(self.pointer)


class Descriptor(_Owned):
    """A memory descriptor: shape, type and format of a value in memory."""

    __slots__ = ("_equal", "size")

    def __init__(self, pointer: int | None, api: Library) -> None:
        super().__init__(pointer, api.memory_desc_destroy)
        self._equal = api.memory_desc_equal
        # Bytes.
        self.size: int = api.memory_desc_get_size(pointer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descriptor) and bool(self._equal(self.pointer, other.pointer))

    __hash__ = None  # type: ignore[assignment]


class Primitive(_Owned):
    """A kernel for given memory descriptors; many threads may execute it at once."""

    __slots__ = (
        "destination",
        "implementation",
        "kind",
        "recurrent_weights",
        "scratchpad",
        "source",
        "weights",
        "weights_gradient",
        "workspace",
    )

    def __init__(self, api: Library, description: int | None, kind: str) -> None:
        # "convolution", "pooling", ...
        self.kind = kind
        try:
            super().__init__(api.create("primitive_create", description), api.primitive_destroy)
            text = ctypes.c_char_p()
            api.primitive_desc_query(description, _IMPLEMENTATION, 0, ctypes.byref(text))
            # The name of the kernel that oneDNN chose.
            self.implementation = (text.value or b"").decode()
            self.source = api.queried(description, _SOURCE_MD)
            self.weights = api.queried(description, _WEIGHTS_MD)
            self.weights_gradient = api.queried(description, _WEIGHTS_GRADIENT_MD)
            self.workspace = api.queried(description, _WORKSPACE_MD)
            self.recurrent_weights = (
                api.queried(description, _ARGUMENT_MD, RECURRENT_WEIGHTS) if kind == "lstm" else None
            )
            self.destination = api.queried(description, _DESTINATION_MD)
            self.scratchpad = api.queried(description, _SCRATCHPAD_MD)
        finally:
            api.primitive_desc_destroy(description)
        if self.implementation.startswith("ref"):
            raise Unsupported("only the reference kernel")


class Library:
    """oneDNN's functions, and the primitives that programs are made of."""

    def __init__(self, addresses: dict[str, int]) -> None:
        for name, (result, arguments) in _FUNCTIONS.items():
            setattr(self, name, ctypes.CFUNCTYPE(result, *arguments)(addresses[name]))
        version = ctypes.cast(self.version(), ctypes.POINTER(_int * 2)).contents
        if version[0] != 3:
            raise OSError(f"oneDNN {version[0]} has another interface")
        self.engine: int | None = self.create("engine_create", 1, 0)
        # Of oneDNN's cache, which other threads may have emptied when it is asked for later.
        capacity = _int()
        self._capacity = None if self.get_primitive_cache_capacity(ctypes.byref(capacity)) else capacity.value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def works(self) -> bool:
        """Whether a small program gives the right values."""
        # NumPy's memory, since this may be called while torch works on tensors without memory.
        data = np.arange(-64, 64, dtype=np.float32)
        result = np.empty_like(data)
        step = self.eltwise(self.plain((1, 8, 4, 4), torch.float32), "leaky", (0.5,))
        self.run_once(step, {SOURCE: data.ctypes.data, DESTINATION: result.ctypes.data})
        return np.array_equal(result, np.where(data > 0, data, 0.5 * data))

    def create(self, name: str, *arguments: Any) -> int | None:
        """What a function of oneDNN makes; raises `Unsupported` where it refuses."""
        made = _pointer()
        status = getattr(self, name)(ctypes.byref(made), *arguments)
        if status:
            raise Unsupported(f"{name} gave status {status}")
        return made.value

    def queried(self, description: int | None, what: int, index: int = 0) -> Descriptor | None:
        """A memory descriptor of a primitive, None where it has none."""
        found = self.primitive_desc_query_md(description, what, index)
        if not found:
            return None
        return Descriptor(self.create("memory_desc_clone", found), self)

    def forget_unused(self) -> None:
        """Free the kernels that nothing but oneDNN's cache holds."""
        if self._capacity:
            self.set_primitive_cache_capacity(0)
            self.set_primitive_cache_capacity(self._capacity)

    # Descriptors ----------------------------------------------------------------------

    def any(self, shape: Sequence[int], dtype: torch.dtype) -> Descriptor:
        """A value in the format that the primitive likes best."""
        made = self.create("memory_desc_create_with_tag", len(shape), _Dims(*shape), TYPES[dtype], _ANY)
        return Descriptor(made, self)

    def plain(
        self, shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int] | None = None
    ) -> Descriptor:
        """A value in rows-first memory, or with these strides (in elements)."""
        where = contiguous_strides(shape) if strides is None else strides
        made = self.create(
            "memory_desc_create_with_strides", len(shape), _Dims(*shape), TYPES[dtype], _Dims(*where)
        )
        return Descriptor(made, self)

    def images(self, shape: Sequence[int], dtype: torch.dtype) -> Descriptor:
        """Images of shape (N, C, H, W) with their channels last in memory."""
        _, channels, height, width = shape
        return self.plain(shape, dtype, (channels * height * width, 1, channels * width, channels))

    def part(self, whole: Descriptor, shape: Sequence[int], first: Sequence[int]) -> Descriptor:
        """A part of a value that starts at these indices; its address is still that of the whole."""
        name = "memory_desc_create_submemory"
        return Descriptor(self.create(name, whole.pointer, _Dims(*shape), _Dims(*first)), self)

    # Primitives ----------------------------------------------------------------------

    def _attributes(
        self,
        post: Sequence[tuple[Any, ...]] = (),
        scales: Sequence[tuple[int, int]] = (),
        zeros: Sequence[int] = (),
    ) -> _Owned:
        """What a primitive does besides.

        ``post`` are ("sum", scale, zero), (activation, scalars) or (binary operation, descriptor), in order.
        ``scales`` are the arguments that have scales, with a bit for each axis along which they differ,
        ``zeros`` those that have a zero point.
        """
        attributes = _Owned(self.create("primitive_attr_create"), self.primitive_attr_destroy)
        self.primitive_attr_set_scratchpad_mode(attributes.pointer, _USER_SCRATCHPAD)
        if post:
            operations = _Owned(self.create("post_ops_create"), self.post_ops_destroy)
            for kind, *rest in post:
                if kind == "sum":
                    status = self.post_ops_append_sum(operations.pointer, *rest, 0)
                elif kind in BINARY:
                    status = self.post_ops_append_binary(operations.pointer, BINARY[kind], rest[0].pointer)
                else:
                    status = self.post_ops_append_eltwise(operations.pointer, *_algorithm(kind, rest[0]))
                if status:
                    raise Unsupported(f"the post operation {kind} gave status {status}")
            self.primitive_attr_set_post_ops(attributes.pointer, operations.pointer)
        for place, mask in scales:
            if self.primitive_attr_set_scales_mask(attributes.pointer, place, mask):
                raise Unsupported(f"no scales of argument {place}")
        for place in zeros:
            if self.primitive_attr_set_zero_points_mask(attributes.pointer, place, 0):
                raise Unsupported(f"no zero point of argument {place}")
        return attributes

    def _primitive(self, name: str, *arguments: Any, version: str = "", **more: Any) -> Primitive:
        attributes = self._attributes(**more)
        given = [a.pointer if isinstance(a, Descriptor) else a for a in arguments]
        description = self.create(f"{name}_primitive_desc_create{version}", *given, attributes.pointer)
        return Primitive(self, description, name.removesuffix("_forward"))

    def convolution(
        self,
        source: Descriptor,
        weights: Descriptor,
        bias: Descriptor | None,
        destination: Descriptor,
        stride: Sequence[int],
        dilate: Sequence[int],
        pad: Sequence[int],
        **more: Any,
    ) -> Primitive:
        """Convolution with padding ``pad`` on both sides; a dilation of 1 leaves no gaps."""
        window = (_Dims(*stride), _Dims(*(d - 1 for d in dilate)), _Dims(*pad), _Dims(*pad))
        return self._primitive(
            "convolution_forward",
            self.engine,
            _FORWARD_INFERENCE,
            _CONVOLUTION_DIRECT,
            source,
            weights,
            bias,
            destination,
            *window,
            **more,
        )

    def convolution_training(
        self,
        data: Descriptor,
        weights: Descriptor,
        bias: Descriptor | None,
        result: Descriptor,
        stride: Sequence[int],
        dilate: Sequence[int],
        pad: Sequence[int],
    ) -> tuple[Primitive, Primitive, Primitive]:
        """A convolution for training, and the gradients of its data and of its weights."""
        window = (_Dims(*stride), _Dims(*(d - 1 for d in dilate)), _Dims(*pad), _Dims(*pad))
        given = [None if each is None else each.pointer for each in (data, weights, bias, result)]
        kind = (self.engine, _CONVOLUTION_DIRECT)
        forward = (self.engine, _FORWARD_TRAINING, _CONVOLUTION_DIRECT, *given, *window)
        plain = self._attributes()

        def made(name: str, *arguments: Any) -> Primitive:
            description = self.create(f"convolution_{name}_primitive_desc_create", *arguments)
            return Primitive(self, description, f"convolution_{name}")

        create = "convolution_forward_primitive_desc_create"
        hint = _Owned(self.create(create, *forward, plain.pointer), self.primitive_desc_destroy)
        last = (*window, hint.pointer, plain.pointer)
        return (
            made("forward", *forward, plain.pointer),
            made("backward_data", *kind, given[0], given[1], given[3], *last),
            made("backward_weights", *kind, *given, *last),
        )

    def batch_norm_training(
        self, data: Descriptor, epsilon: float, relu: bool
    ) -> tuple[Primitive, Primitive]:
        """Normalization over the batch with a factor and an offset, rectified or not, and its gradients."""
        plain, name = self._attributes(), "batch_normalization"
        flags = _SCALE_AND_SHIFT | (_RECTIFIED if relu else 0)
        forward = (self.engine, _FORWARD_TRAINING, data.pointer, data.pointer, epsilon, flags, plain.pointer)
        create = f"{name}_forward_primitive_desc_create"
        hint = _Owned(self.create(create, *forward), self.primitive_desc_destroy)
        backward = (self.engine, _BACKWARD, *[data.pointer] * 3, epsilon, flags, hint.pointer, plain.pointer)
        return (
            Primitive(self, self.create(create, *forward), name),
            Primitive(
                self,
                self.create(f"{name}_backward_primitive_desc_create", *backward),
                f"{name}_backward",
            ),
        )

    def pooling(
        self,
        source: Descriptor,
        destination: Descriptor,
        kind: str,
        kernel: Sequence[int],
        stride: Sequence[int],
        before: Sequence[int],
        after: Sequence[int],
    ) -> Primitive:
        """Pooling of a kind of ``POOLING``, with padding before and after."""
        gaps = _Dims(*[0] * len(kernel))
        window = (_Dims(*stride), _Dims(*kernel), gaps, _Dims(*before), _Dims(*after))
        return self._primitive(
            "pooling_forward", self.engine, _FORWARD_INFERENCE, POOLING[kind], source, destination, *window
        )

    def pooling_training(
        self,
        data: Descriptor,
        result: Descriptor,
        kernel: Sequence[int],
        stride: Sequence[int],
        before: Sequence[int],
        after: Sequence[int],
    ) -> tuple[Primitive, Primitive]:
        """Maximum pooling that tells where the maxima are, and the gradient of its data."""
        window = (_Dims(*stride), _Dims(*kernel), _Dims(*[0] * len(kernel)), _Dims(*before), _Dims(*after))
        plain, images = self._attributes(), (data.pointer, result.pointer)
        forward = (self.engine, _FORWARD_TRAINING, POOLING["max"], *images, *window, plain.pointer)
        create = "pooling_forward_primitive_desc_create"
        hint = _Owned(self.create(create, *forward), self.primitive_desc_destroy)
        backward = (self.engine, POOLING["max"], *images, *window, hint.pointer, plain.pointer)
        return (
            Primitive(self, self.create(create, *forward), "pooling"),
            Primitive(
                self, self.create("pooling_backward_primitive_desc_create", *backward), "pooling_backward"
            ),
        )

    def eltwise(self, source: Descriptor, kind: str, scalars: Sequence[float]) -> Primitive:
        """An activation of ``ELTWISE``."""
        number, first, second = _algorithm(kind, scalars)
        return self._primitive(
            "eltwise_forward", self.engine, _FORWARD_INFERENCE, number, source, source, first, second
        )

    def binary(
        self,
        kind: str,
        first: Descriptor,
        second: Descriptor,
        destination: Descriptor,
        **more: Any,
    ) -> Primitive:
        """A sum or a product; sizes of 1 in the second operand are repeated."""
        return self._primitive("binary", self.engine, BINARY[kind], first, second, destination, **more)

    def concat(self, sources: Sequence[Descriptor], destination: Descriptor, axis: int) -> Primitive:
        """Values one after another along an axis."""
        pointers = (_pointer * len(sources))(*[source.pointer for source in sources])
        return self._primitive("concat", self.engine, destination, len(sources), axis, pointers)

    def matmul(
        self,
        source: Descriptor,
        weights: Descriptor,
        bias: Descriptor | None,
        destination: Descriptor,
        **more: Any,
    ) -> Primitive:
        """A product of matrices, of shapes (m, k), (k, n), (1, n) and (m, n)."""
        return self._primitive("matmul", self.engine, source, weights, bias, destination, **more)

    def softmax(self, source: Descriptor, destination: Descriptor, axis: int) -> Primitive:
        """The softmax along an axis."""
        settings = (self.engine, _FORWARD_INFERENCE, _SOFTMAX)
        return self._primitive("softmax_forward", *settings, source, destination, axis)

    def softmax_training(self, data: Descriptor, axis: int) -> tuple[Primitive, Primitive]:
        """The softmax along an axis for training, and its gradient; both may overwrite what they read."""
        plain, place = self._attributes(), data.pointer
        forward = (self.engine, _FORWARD_TRAINING, _SOFTMAX, place, place, axis, plain.pointer)
        create = "softmax_forward_primitive_desc_create"
        hint = _Owned(self.create(create, *forward), self.primitive_desc_destroy)
        backward = (self.engine, _SOFTMAX, place, place, place, axis, hint.pointer, plain.pointer)
        return (
            Primitive(self, self.create(create, *forward), "softmax"),
            Primitive(
                self, self.create("softmax_backward_primitive_desc_create", *backward), "softmax_backward"
            ),
        )

    def layer_norm(self, source: Descriptor, epsilon: float) -> Primitive:
        """Normalization over the last axis, with a factor and an offset in float32."""
        return self._primitive(
            "layer_normalization_forward",
            self.engine,
            _FORWARD_INFERENCE,
            source,
            source,
            None,
            TYPES[torch.float32],
            epsilon,
            _SCALE_AND_SHIFT,
            version="_v2",
        )

    def lstm(
        self,
        data: Descriptor,
        states: Descriptor,
        weights: tuple[Descriptor, Descriptor],
        bias: Descriptor,
        result: Descriptor,
        both_ways: bool,
        gives_states: bool,
    ) -> Primitive:
        """A layer of LSTM cells on (length, batch, width) data, with (1, directions, ...) weights."""
        last = states if gives_states else None
        direction = _BOTH_WAYS if both_ways else _FORWARD
        inputs = (data, states, states, *weights, None, None, bias)
        settings = (self.engine, _FORWARD_INFERENCE, direction)
        return self._primitive("lstm_forward", *settings, *inputs, result, last, last, 0)

    def reorder(self, source: Descriptor, destination: Descriptor, **more: Any) -> Primitive:
        """A copy into another format or type."""
        return self._primitive("reorder", source, self.engine, destination, self.engine, **more)

    # Running ----------------------------------------------------------------------

    def memory(self, descriptor: Descriptor, address: int) -> _Owned:
        """Memory of a descriptor's format at an address."""
        made = self.create("memory_create", descriptor.pointer, self.engine, address)
        return _Owned(made, self.memory_destroy)

    def stream(self) -> _Owned:
        """Where primitives are executed, one after another."""
        return _Owned(self.create("stream_create", self.engine, 1), self.stream_destroy)

    def run_once(self, primitive: Primitive, addresses: dict[int, int]) -> None:
        """Execute a primitive that has one source on values at these addresses."""
        descriptors = {SOURCE: primitive.source, DESTINATION: primitive.destination}
        if primitive.scratchpad is not None and primitive.scratchpad.size:
            space = np.empty(primitive.scratchpad.size, np.uint8)
            addresses = {**addresses, SCRATCHPAD: space.ctypes.data}
            descriptors[SCRATCHPAD] = primitive.scratchpad
        memories = []
        for place, address in addresses.items():
            descriptor = descriptors[place]
            assert descriptor is not None
            memories.append((place, self.memory(descriptor, address)))
        arguments = execution_arguments(memories)
        stream = self.stream()
        if self.primitive_execute(primitive.pointer, stream.pointer, len(arguments), arguments):
            raise RuntimeError(f"oneDNN's {primitive.implementation} failed")


class _Argument(ctypes.Structure):
    _fields_ = (("place", _int), ("memory", _pointer))


def execution_arguments(memories: Sequence[tuple[int, _Owned]]) -> Any:
    """An array of arguments for ``primitive_execute``."""
    return (_Argument * len(memories))(*[_Argument(place, each.pointer) for place, each in memories])


def _algorithm(kind: str, scalars: Sequence[float]) -> tuple[int, float, float]:
    number, usual = ELTWISE[kind]
    first, second = (*map(float, scalars), *usual[len(scalars) :])
    return number, first, second
