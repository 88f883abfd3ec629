"""Regions of a plan that oneDNN runs as one: primitives that are created once and called one after another.

A region is a connected group of layers in the common forms. The values between its layers lie in one piece of
memory that is planned ahead: two of them share a place where one is no longer needed when the other is made.
Inputs and outputs are tensors.

A region holds nothing that a call changes; each thread that calls it has memory of its own.
"""

from __future__ import annotations

import bisect
import ctypes
import math
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...base.memory import give_back, in_large_pages
from ...graph.node import Entry, Node
from ...ops.opdef import Spec
from .. import native
from ..partition import Subgraph
from . import interface
from .forms import shape_at
from .interface import Descriptor, Library, Primitive

__all__ = ["ALIGNMENT", "Built", "Place", "Region", "Step", "Value", "plan_memory", "region_of", "watched"]

ALIGNMENT = 64
# Bytes between layers for which the heap is tidied.
_MUCH = 16 << 20
# With more buffers than this, it takes long to place the largest ones first.
_MOST_BY_SIZE = 512
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
    ``first`` is the first of the images of a slice that it computes.
    """

    __slots__ = ("arguments", "first", "node", "primitive")

    def __init__(
        self, primitive: Primitive, arguments: list[tuple[int, Value]], node: Node, first: int = 0
    ) -> None:
        self.primitive, self.arguments, self.node, self.first = primitive, arguments, node, first

    @property
    def kernel(self) -> str:
        """What is called."""
        kind = self.primitive.kind
        is_layer = kind in ("convolution", "matmul")
        on_integers = is_layer and self.node.op is not None and self.node.op.name.startswith("quantized")
        return f"onednn_quantized_{kind}" if on_integers else f"onednn_{kind}"


class Built:
    """The steps of a region for one number of threads, and where its values lie.

    Where they are for a part of the images only, ``images`` is the number of these, and ``times`` how often
    the steps run, on one slice after another; ``rest`` is for the images that remain, if any do.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        # Bytes of each buffer; then its offset in the memory of a call.
        self.sizes: list[int] = []
        self.offsets: list[int] = []
        # Buffers that are a part of another: which one, and where in it.
        self.inside: dict[int, tuple[int, int]] = {}
        self.total = 0
        self.images, self.times = 0, 1
        self.rest: Built | None = None

    @property
    def parts(self) -> list[Built]:
        """These steps, and those for the images that remain."""
        return [self] if self.rest is None else [self, self.rest]

    def whole_of(self, buffer: int) -> tuple[int, int]:
        """The buffer that is no part of another in which this one lies, and where in it."""
        start = 0
        while buffer in self.inside:
            buffer, more = self.inside[buffer]
            start += more
        return buffer, start


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
        return [step for part in next(iter(self._built.values())).parts for step in part.steps]

    @property
    def memory(self) -> int:
        """Bytes that a call needs besides its inputs and outputs."""
        return max(part.total for part in next(iter(self._built.values())).parts)

    def constant(self, key: tuple[Any, ...], make: Callable[[], Entry]) -> int:
        """The place among the constants of one that is read as it is; ``key`` stands for it."""
        if key not in self._places:
            self._places[key] = len(self.constants)
            self.constants.append(make())
        return self._places[key]

    def reads_as_it_is(self, weight: Spec, rows: int) -> bool:
        """Whether a layer's weights of two dimensions are not packed, for so many rows."""
        return False

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

    def bound(self, constants: tuple[Tensor, ...]) -> Callable[[Tensor], Tensor] | None:
        """The region as a function of its input, where it has one, and one output; else None.

        ``constants`` are the packed weights and the constants, which are always the same tensors.
        """
        if len(self.inputs) != 1 or len(self._outputs) != 1:
            return None
        local, threads = self._local, torch.get_num_threads

        def call(tensor: Tensor) -> Tensor:
            try:
                run: _Run = local.runs[threads()]
            except (AttributeError, KeyError):
                run = self._start(threads())
            return run.one(tensor, constants)

        return call

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
    lives: dict[int, tuple[int, int]] = {}
    for time, step in enumerate(built.steps):
        for _, value in step.arguments:
            if value.place.where == "memory":
                buffer, _ = built.whole_of(value.place.index)
                lives[buffer] = (lives.get(buffer, (time,))[0], time)
    plans = [_in_turn(built.sizes, lives)]
    if len(lives) <= _MOST_BY_SIZE:
        plans.append(_by_size(built.sizes, lives))
    offsets, built.total = min(plans, key=operator.itemgetter(1))
    built.offsets = [offsets.get(buffer, 0) for buffer in range(len(built.sizes))]
    for buffer in built.inside:
        whole, start = built.whole_of(buffer)
        built.offsets[buffer] = built.offsets[whole] + start


def _in_turn(sizes: list[int], lives: dict[int, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Offsets by buffer, and the end of all, where each buffer is placed when it is first used."""
    # Start and end in bytes of the buffers in use, in this order, with the step after which each is free.
    used: list[tuple[int, int, int]] = []
    offsets: dict[int, int] = {}
    for buffer, (time, last) in lives.items():
        used = [each for each in used if each[2] >= time]
        offsets[buffer] = offset = _smallest_gap(used, sizes[buffer])
        bisect.insort(used, (offset, offset + sizes[buffer], last))
    return offsets, _end(sizes, offsets)


def _by_size(sizes: list[int], lives: dict[int, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """The same, where the largest buffers are placed first."""
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[int, int] = {}
    for buffer in sorted(lives, key=lambda buffer: -sizes[buffer]):
        time, last = lives[buffer]
        used = sorted((low, high, 0) for low, high, start, end in placed if start <= last and time <= end)
        offsets[buffer] = offset = _smallest_gap(used, sizes[buffer])
        placed.append((offset, offset + sizes[buffer], time, last))
    return offsets, _end(sizes, offsets)


def _end(sizes: list[int], offsets: dict[int, int]) -> int:
    return max((offset + sizes[buffer] for buffer, offset in offsets.items()), default=0)


def _smallest_gap(used: list[tuple[int, int, int]], size: int) -> int:
    """The offset of the smallest gap that is large enough, else the end."""
    best, found, free = 0, -1, 0
    for low, high, _ in used:
        if size <= low - free and (found < 0 or low - free < best):
            best, found = low - free, free
        free = max(free, -(-high // ALIGNMENT) * ALIGNMENT)
    return free if found < 0 else found


# Running ----------------------------------------------------------------------


class _Watching(threading.local):
    """What this thread is to call after each step."""

    watch: Callable[[Step], None] | None = None


_watching = _Watching()


@contextmanager
def watched(watch: Callable[[Step], None]) -> Iterator[None]:
    """Call ``watch(step)`` after each step of the regions that this thread runs inside."""
    before = _watching.watch
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
        total = max(part.total for part in built.parts)
        if total >= _MUCH:
            # What packing left behind is not of use to a block of this size.
            give_back()
        self._memory = torch.empty(total + ALIGNMENT, dtype=torch.uint8)
        in_large_pages(self._memory.data_ptr(), total)
        base = -(-self._memory.data_ptr() // ALIGNMENT) * ALIGNMENT
        self._calls = _Calls(api, region, built, base)
        self._outputs = [native.maker(*each) for each in outputs]
        self._inputs = len(region.inputs)
        # Given with the call of `contiguous`.
        self._formats: list[dict[str, Any]] = [
            {"memory_format": _CHANNELS_LAST} if channels_last else {} for channels_last in region.formats
        ]
        self._constants: tuple[Tensor, ...] = ()
        self._set, self._execute = api.memory_set_data_handle, api.primitive_execute
        self._native: native.Run | None = None

    def __call__(self, tensors: tuple[Tensor, ...]) -> Any:
        constants = tensors[self._inputs :]
        known = _same(self._constants, constants)
        if not known:
            self._point_constants(constants)
        # Inputs in another order are copied, and the copies are kept until the end.
        held = [
            tensor.contiguous(**layout)
            for tensor, layout in zip(tensors, self._formats)  # noqa: B905
        ]
        made = [make() for make in self._outputs]
        addresses = [tensor.data_ptr() for tensor in (*held, *made)]
        if self._calls.slices is not None:
            addresses = [addresses[place] + offset for place, offset in self._calls.slices]
        run = None
        if _watching.watch is None:
            # In the first call, and while steps are timed, no compiler is started: it would take a processor.
            run = self._native or (self._made_native() if known else None)
        if run is not None:
            failed = run(*addresses)
        else:
            failed = self._step_by_step(addresses)
        if failed:
            raise RuntimeError("a primitive of oneDNN failed")
        return made[0] if len(made) == 1 else tuple(made)

    def one(self, tensor: Tensor, constants: tuple[Tensor, ...]) -> Tensor:
        """The one output for the one input. What runs here runs on cold caches: there is little of it."""
        run = self._native
        if run is None or self._constants is not constants or self._calls.slices or _watching.watch:
            made: Tensor = self((tensor, *constants))
            if _same(self._constants, constants):
                self._constants = constants
            return made
        tensor = tensor.contiguous(**self._formats[0])
        made = self._outputs[0]()
        if run(tensor.data_ptr(), made.data_ptr()):
            raise RuntimeError("a primitive of oneDNN failed")
        return made

    def _point_constants(self, constants: tuple[Tensor, ...]) -> None:
        for tensor, memories in zip(constants, self._calls.constant, strict=True):
            for memory in memories:
                self._set(memory, tensor.data_ptr())
        self._constants = constants

    def _step_by_step(self, addresses: list[int]) -> bool:
        for address, memories in zip(addresses, self._calls.changing, strict=True):
            for memory in memories:
                self._set(memory, address)
        execute, watch = self._execute, _watching.watch
        for step, call in zip(self._calls.steps, self._calls.calls, strict=True):
            if execute(*call):
                return True
            if watch is not None:
                watch(step)
        return False

    def _made_native(self) -> native.Run | None:
        """All of a call of oneDNN's functions as one function, once that can be had."""
        runtime, changing = native.runtime(), self._calls.changing
        if runtime is not None and len(changing) <= native.MOST_ADDRESSES:
            functions = (_address(self._set), _address(self._execute))
            self._native = runtime.region(functions, changing, self._calls.calls)
        return self._native


class _Calls:
    """What a region executes, in order, in memory at one address.

    Attributes
    ----------
    calls : list of tuple
        The arguments of ``primitive_execute``.
    steps : list of Step
        The step of each call.
    constant, changing : list of list of int
        The memories that are to point to each weight and constant; and to each input and output, or to each
        slice of them.
    slices : list of (int, int), optional
        Which input or output, and where in it, for each list of memories in ``changing``; None where it is
        all of one after the other.
    """

    def __init__(self, api: Library, region: Region, built: Built, base: int) -> None:
        self._api, self._region, self._base = api, region, base
        self._stream, self._owned = api.stream(), []  # type: tuple[Any, list[Any]]
        self.calls: list[tuple[Any, ...]] = []
        self.steps: list[Step] = []
        self.constant: list[list[int]] = [[] for _ in range(len(region.packing) + len(region.constants))]
        count = len(region.inputs)
        # Bytes of one image of each input and output.
        values = [*region.inputs, *region.group.outputs]
        images = [_bytes_of_one(entry) for entry in values]
        targets: dict[tuple[int, int], list[int]] = {}
        if not built.images:
            targets = {(place, 0): [] for place in range(len(values))}
        first = 0
        for part in built.parts:
            shared: dict[int, Any] = {}
            for _ in range(part.times):

                def point(place: Place, memory: int, image: int, first: int = first) -> None:
                    index = place.index + (count if place.where == "output" else 0)
                    targets.setdefault((index, (first + image) * images[index]), []).append(memory)

                self._add(part, shared, point)
                first += part.images
        self.changing = list(targets.values())
        self.slices = list(targets) if built.images else None

    def _add(self, part: Built, shared: dict[int, Any], point: Callable[[Place, int, int], None]) -> None:
        """All steps once; what does not read or write inputs or outputs is ``shared`` with other slices."""
        for step in part.steps:
            self.steps.append(step)
            if id(step) in shared:
                self.calls.append(shared[id(step)])
                continue
            arguments = []
            for place, value in step.arguments:
                memory = shared.get(id(value))
                if memory is None:
                    memory = self._memory(part, value)
                if value.place.where in ("input", "output"):
                    point(value.place, memory.pointer, step.first)
                else:
                    shared[id(value)] = memory
                arguments.append((place, memory))
            array = interface.execution_arguments(arguments)
            self._owned.append((array, arguments, step.primitive))
            address = ctypes.addressof(array)
            call = (step.primitive.pointer, self._stream.pointer, len(array), address)
            self.calls.append(call)
            if not any(value.place.where in ("input", "output") for _, value in step.arguments):
                shared[id(step)] = call

    def _memory(self, part: Built, value: Value) -> Any:
        where, index = value.place.where, value.place.index
        address = self._base
        if where == "memory":
            address += part.offsets[index]
        elif where == "fixed":
            address = self._region.fixed[index].data_ptr()
        memory = self._api.memory(value.descriptor, address)
        if where in ("packed", "constant"):
            place = index + (len(self._region.packing) if where == "constant" else 0)
            self.constant[place].append(memory.pointer)  # type: ignore[arg-type]
        return memory


def _bytes_of_one(entry: Entry) -> int:
    """What one image takes, of values that have images along their first axis."""
    assert entry.spec is not None
    return math.prod(shape_at(entry)[1:]) * entry.spec.dtype.itemsize


def _address(function: Any) -> int:
    """Where a function of the library lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return len(first) == len(second) and all(map(operator.is_, first, second))
