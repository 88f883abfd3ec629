"""Regions of a plan that oneDNN runs as one: primitives that are created once and called one after another.

A region is a connected group of layers in the common forms. The values between its layers lie in one piece of
memory that is planned ahead: two of them share a place where one is no longer needed when the other is made.
Inputs and outputs are tensors.

A region holds nothing that a call changes; each thread that calls it has memory of its own.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...graph.node import Entry, Node
from ..partition import Subgraph
from . import interface
from .forms import shape_at
from .interface import Descriptor, Library, Primitive

__all__ = ["Built", "Place", "Region", "Step", "Value", "plan_memory", "region_of", "watched"]

_ALIGNMENT = 64
_CHANNELS_LAST = torch.channels_last


class Place:
    """Where values of a region are; several may share it, one after the other or as another shape.

    ``where`` is "input", "packed", "constant", "fixed", "output" or "memory", and ``index`` says which one:
    which of the tensors of that kind, or which buffer of the memory of a call.
    """

    __slots__ = ("index", "where")

    def __init__(self, where: str, index: int) -> None:
        self.where, self.index = where, index


class Value:
    """A value of a region: where it is, and in which format."""

    __slots__ = ("descriptor", "place")

    def __init__(self, descriptor: Descriptor, place: Place) -> None:
        self.descriptor, self.place = descriptor, place


class Step:
    """One primitive of a region, and the values it is executed on.

    ``node`` is the layer that it computes; a change of format belongs to the layer that wants it.
    """

    __slots__ = ("arguments", "node", "primitive")

    def __init__(self, primitive: Primitive, arguments: list[tuple[int, Value]], node: Node) -> None:
        self.primitive, self.arguments, self.node = primitive, arguments, node

    @property
    def kernel(self) -> str:
        """What is called."""
        kind = self.primitive.kind
        is_layer = kind in ("convolution", "matmul")
        on_integers = is_layer and self.node.op is not None and self.node.op.name.startswith("quantized")
        return f"onednn_quantized_{kind}" if on_integers else f"onednn_{kind}"


class Built:
    """The steps of a region for one number of threads, and where its values lie."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        # Bytes of each buffer; then its offset in the memory of a call.
        self.sizes: list[int] = []
        self.offsets: list[int] = []
        self.total = 0


class Region:
    """A group of layers as one function of tensors.

    Parameters
    ----------
    api : Library
        oneDNN.
    group : Subgraph
        The layers.
    inputs : list of Entry
        The values from outside that change between calls.
    last : list of bool
        Which of them lie channels last in memory.
    kept : list of bool
        Which outputs are to lie channels last.
    build : callable
        Makes the steps for the number of threads that torch has now.
    """

    def __init__(
        self,
        api: Library,
        group: Subgraph,
        inputs: list[Entry],
        last: list[bool],
        kept: list[bool],
        build: Callable[[Region], Built],
    ) -> None:
        self._api, self.group, self.inputs = api, group, inputs
        self.formats, self.last = last, kept
        # Weights to be packed: the weight, its plain descriptor, the descriptor that its primitive wants.
        self.packing: list[tuple[Entry, Descriptor, Descriptor]] = []
        # Constants that primitives read as they are.
        self.constants: list[Entry] = []
        self._places: dict[tuple[Any, ...], int] = {}
        # Numbers that are the same in every call.
        self.fixed: list[Tensor] = []
        self._build = build
        self._built = {torch.get_num_threads(): build(self)}
        self._lock = threading.Lock()
        self._local = threading.local()
        self._outputs = [
            (shape_at(entry), entry.spec.dtype, _CHANNELS_LAST if channels_last else torch.contiguous_format)
            for entry, channels_last in zip(group.outputs, kept, strict=True)
            if entry.spec is not None
        ]

    @property
    def steps(self) -> list[Step]:
        """The primitives, in order."""
        return next(iter(self._built.values())).steps

    @property
    def memory(self) -> int:
        """Bytes that a call needs besides its inputs and outputs."""
        return next(iter(self._built.values())).total

    def constant(self, key: tuple[Any, ...], make: Callable[[], Entry]) -> int:
        """The place among the constants of one that is read as it is; ``key`` stands for it."""
        if key not in self._places:
            self._places[key] = len(self.constants)
            self.constants.append(make())
        return self._places[key]

    def number(self, value: float, dtype: torch.dtype) -> int:
        """The place among the fixed numbers."""
        key = ("fixed", value, dtype)
        if key not in self._places:
            self._places[key] = len(self.fixed)
            self.fixed.append(torch.tensor([value], dtype=dtype))
        return self._places[key]

    def __call__(self, *tensors: Tensor) -> Any:
        """The outputs for the inputs, the packed weights and the constants."""
        threads = torch.get_num_threads()
        local = self._local
        try:
            run = local.runs[threads]
        except (AttributeError, KeyError):
            run = self._start(threads)
        return run(tensors)

    def _start(self, threads: int) -> _Run:
        """Memory of this thread's own."""
        with self._lock:
            built = self._built.get(threads)
            if built is None:
                # Weights stay as they were packed.
                built = self._built[threads] = self._build(self)
        runs = getattr(self._local, "runs", None)
        if runs is None:
            runs = self._local.runs = {}
        runs[threads] = _Run(self._api, self, built, self._outputs)
        return runs[threads]  # type: ignore[no-any-return]


def plan_memory(built: Built) -> None:
    """An offset for every buffer, such that those that are in use at the same time do not overlap."""
    end: dict[int, int] = {}
    for time, step in enumerate(built.steps):
        for _, value in step.arguments:
            if value.place.where == "memory":
                end[value.place.index] = time
    built.offsets = [0] * len(built.sizes)
    # Start and end in bytes of the buffers in use, in this order, with the step after which each is free.
    used: list[tuple[int, int, int]] = []
    placed: set[int] = set()
    for time, step in enumerate(built.steps):
        used = [each for each in used if each[2] >= time]
        for _, value in step.arguments:
            buffer = value.place.index
            if value.place.where != "memory" or buffer in placed:
                continue
            placed.add(buffer)
            size = built.sizes[buffer]
            offset = _smallest_gap(used, size)
            built.offsets[buffer] = offset
            built.total = max(built.total, offset + size)
            bisect.insort(used, (offset, offset + size, end[buffer]))


def _smallest_gap(used: list[tuple[int, int, int]], size: int) -> int:
    """The offset of the smallest gap that is large enough, else the end."""
    best, found, free = 0, -1, 0
    for low, high, _ in used:
        if size <= low - free and (found < 0 or low - free < best):
            best, found = low - free, free
        free = max(free, -(-high // _ALIGNMENT) * _ALIGNMENT)
    return free if found < 0 else found


# Running ----------------------------------------------------------------------

_watching = threading.local()


@contextmanager
def watched(watch: Callable[[Step], None]) -> Iterator[None]:
    """Call ``watch(step)`` after each step of the regions that this thread runs inside."""
    before = getattr(_watching, "watch", None)
    _watching.watch = watch
    try:
        yield
    finally:
        _watching.watch = before


def region_of(node: Node) -> Region | None:
    """The region that a node of a plan runs, if it is one."""
    function = None if node.op is None else node.op.function
    return function if isinstance(function, Region) else None


class _Run:
    """A region with one thread's memory."""

    def __init__(
        self,
        api: Library,
        region: Region,
        built: Built,
        outputs: list[tuple[tuple[int, ...], torch.dtype, torch.memory_format]],
    ) -> None:
        self._memory = torch.empty(built.total + _ALIGNMENT, dtype=torch.uint8)
        base = -(-self._memory.data_ptr() // _ALIGNMENT) * _ALIGNMENT
        self._stream = api.stream()
        self._owned: list[Any] = []
        count = (len(region.inputs), len(region.packing), len(region.constants))
        offsets = {"input": 0, "packed": count[0], "constant": count[0] + count[1]}
        # For each tensor given, and each output: the memory objects that are to point to it.
        self._given: list[list[int]] = [[] for _ in range(sum(count))]
        self._made: list[list[int]] = [[] for _ in outputs]
        self._outputs = outputs
        self._inputs = count[0]
        self._formats = [
            _CHANNELS_LAST if channels_last else torch.contiguous_format for channels_last in region.formats
        ]
        self._constants: tuple[Tensor, ...] = ()
        self._set, self._execute = api.memory_set_data_handle, api.primitive_execute
        self._steps = built.steps
        self.calls: list[tuple[Any, ...]] = []
        for step in built.steps:
            arguments = []
            for place, value in step.arguments:
                where, index = value.place.where, value.place.index
                address = base
                if where == "memory":
                    address += built.offsets[index]
                elif where == "fixed":
                    address = region.fixed[index].data_ptr()
                memory = api.memory(value.descriptor, address)
                self._owned.append(memory)
                if where == "output":
                    self._made[index].append(memory.pointer)  # type: ignore[arg-type]
                elif where in offsets:
                    self._given[offsets[where] + index].append(memory.pointer)  # type: ignore[arg-type]
                arguments.append((place, memory))
            array = interface.execution_arguments(arguments)
            self._owned.append((array, step.primitive))
            address = ctypes.addressof(array)
            self.calls.append((step.primitive.pointer, self._stream.pointer, len(array), address))

    def __call__(self, tensors: tuple[Tensor, ...]) -> Any:
        write, given = self._set, self._given
        constants = tensors[self._inputs :]
        if not _same(self._constants, constants):
            for tensor, memories in zip(constants, given[self._inputs :], strict=True):
                for memory in memories:
                    write(memory, tensor.data_ptr())
            self._constants = constants
        held = []
        for tensor, memories, layout in zip(tensors, given, self._formats):  # noqa: B905
            plain = tensor.contiguous(memory_format=layout)
            held.append(plain)
            address = plain.data_ptr()
            for memory in memories:
                write(memory, address)
        made = []
        for (shape, dtype, layout), memories in zip(self._outputs, self._made, strict=True):
            output = torch.empty(shape, dtype=dtype, memory_format=layout)
            made.append(output)
            address = output.data_ptr()
            for memory in memories:
                write(memory, address)
        execute, watch = self._execute, getattr(_watching, "watch", None)
        for place, call in enumerate(self.calls):
            if execute(*call):
                raise RuntimeError("a primitive of oneDNN failed")
            if watch is not None:
                watch(self._steps[place])
        return made[0] if len(made) == 1 else tuple(made)


def _same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))
