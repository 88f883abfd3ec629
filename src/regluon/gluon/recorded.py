"""A recorded graph: what a trace of a block leaves behind, and for which inputs it may be used again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..array import NDArray
from ..base.device import Context
from ..base.errors import MXNetError
from ..base.sharing import with_own_memory
from ..exec import Program
from ..graph.dims import Dim, evaluate, reads_numbers, sources_of
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node, topological
from .structure import flatten

__all__ = ["InputSpec", "Recorded", "guarded", "pattern_of", "remember"]


class Recorded:
    """One recorded graph of a block, its program, and what it depends on.

    ``reads`` are the sizes and numbers that Python asked for, as (text, file and line); ``frozen`` adds those
    that a file can only hold as constants.
    """

    def __init__(self, structure: Any, mode: tuple[bool, bool]) -> None:
        self.in_structure = structure
        self.mode = mode
        self.inputs: list[Node] = []
        self.parameters: list[tuple[Node, Any]] = []
        self.captured: list[tuple[Node, Any]] = []
        self.outputs: list[Entry] = []
        self.out_structure: Any = None
        self.classes: list[Any] = []
        self.writes: list[tuple[tuple[str, int], Entry]] = []
        self.written: list[tuple[int, Entry]] = []
        self.guards: list[tuple[Dim, Any]] = []
        self.reads: list[tuple[str, str | None]] = []
        self.frozen: list[tuple[str, str | None]] = []
        self.pattern: Any = None
        self.signature: tuple[Any, list[InputSpec]] | None = None
        self.mark: Any = None
        self.epoch = -1
        self.draws = 0
        self.volatile = False
        self.program: Program | None = None
        self.dead: list[int] = []
        self.integers: list[int] = []  # places of the variables whose gradients pass through integers

    def arrays(self, inputs: Sequence[Any], context: Context) -> list[Any]:
        """The inputs, and the parameters on a device and arrays from outside that the program reads."""
        arrays = list(inputs)
        for _, parameter in self.parameters:
            data = parameter._data
            if data is not None and len(data) == 1 and parameter._contexts[0] is context:
                arrays.append(data[0])
            else:
                arrays.append(parameter._select(data, context))
        for _, array in self.captured:
            arrays.append(array)
        return arrays

    def shapes(self) -> list[tuple[int, ...]]:
        """The inputs' shapes in the recording."""
        return [tuple(node.specs[0].shape if node.specs else ()) for node in self.inputs]

    def holds(self, arrays: Sequence[Any]) -> bool:
        """Whether the guards hold for these inputs."""
        return self.failing(arrays) is None

    def failing(self, arrays: Sequence[Any]) -> tuple[int, Any] | None:
        """The first guard that does not hold for these inputs: its place, and what is there instead.

        The place is -1 where the inputs do not fit the graph.
        """
        if not self.guards:
            return None
        given: dict[int, Any] = {}
        values: dict[int, Any] = {}
        for node, array in zip(self.inputs, arrays, strict=True):
            given[id(node)] = (tuple(array._t.shape), node.specs[0].dtype if node.specs else None)
            values[id(node)] = array
        for node, _ in (*self.parameters, *self.captured):
            if node.specs:
                given[id(node)] = (node.specs[0].shape, node.specs[0].dtype)
        try:
            found = GraphShapes(guarded(self.guards), given, self.mode[0]).run()
            for place, (dim, value) in enumerate(self.guards):
                held = evaluate(
                    dim,
                    lambda entry: _shape_in(found, entry),
                    lambda entry: values[id(entry.node)]._t.item(),
                )
                if held != value:
                    return place, held
        except (MXNetError, ValueError, TypeError, IndexError, ArithmeticError):
            return -1, None
        return None

    def owned(self, results: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A program's results with memory of their own: a caller may write to them."""
        count = len(self.outputs)
        return [*with_own_memory(results[:count], tensors), *results[count:]]

    def writes_outside(self) -> bool:
        """Whether a parameter or an array from outside is written to, which may not be packed then."""
        return any(place >= len(self.inputs) for place, _ in self.written)

    def reads_numbers(self) -> bool:
        """Whether Python code depends on the value of a number among the arguments."""
        return any(reads_numbers(dim) for dim, _ in self.guards)

    def dynamic_operator(self) -> str:
        """The name of the first operator whose output shape depends on values."""
        order = topological([*self.outputs, *guarded(self.guards)])
        return next((node.op.name for node in order if node.op is not None and node.op.dynamic), "")


def _shape_in(found: GraphShapes, entry: Any) -> tuple[int, ...]:
    spec = found.spec(entry)
    if spec is None:
        raise MXNetError("unknown")
    return spec.shape


def guarded(guards: Sequence[tuple[Dim, Any]]) -> list[Entry]:
    """The entries whose sizes guards are about."""
    return sources_of(dim for dim, _ in guards)


def pattern_of(arrays: Sequence[NDArray]) -> Any:
    """What of the inputs is guarded always: kinds, types, devices, ranks, and which sizes are 0 or 1."""
    return tuple(
        (type(a), a._t.dtype, a.context, tuple(size if size < 2 else 2 for size in a._t.shape))
        for a in arrays
    )


class InputSpec:
    """Kind, shape, type and device of an input, to record again without it."""

    __slots__ = ("cls", "context", "dtype", "shape")

    def __init__(self, cls: Any, shape: tuple[int, ...], dtype: torch.dtype, context: Context | None) -> None:
        self.cls, self.shape, self.dtype, self.context = cls, shape, dtype, context

    @classmethod
    def of(cls, array: Any) -> InputSpec:
        return cls(type(array), tuple(array._t.shape), array._t.dtype, array._ctx)

    def zeros(self) -> Any:
        device = self.context.torch if self.context is not None else torch.device("cpu")
        return self.cls._wrap(torch.zeros(self.shape, dtype=self.dtype, device=device), self.context)


def remember(block: Any, args: tuple[Any, ...]) -> None:
    """Keep the signature of a call (not its arrays) for a later export."""
    flat: list[Any] = []
    try:
        structure = flatten(args, flat)
    except TypeError:
        return
    if all(isinstance(array, NDArray) and array._t is not None for array in flat):
        block.__dict__["_last_signature"] = (structure, [InputSpec.of(array) for array in flat])
