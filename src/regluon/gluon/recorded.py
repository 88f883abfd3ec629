"""A recorded graph: what a trace of a block leaves behind, and for which inputs it may be used again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..array import NDArray
from ..base.device import Context
from ..base.errors import MXNetError
from ..exec import Program
from ..graph.dims import Dim, evaluate, sources_of
from ..graph.infer import GraphShapes
from ..graph.node import Entry, Node
from .structure import flatten

__all__ = ["InputSpec", "Recorded", "guarded", "pattern_of", "remember"]


class Recorded:
    """One recorded graph of a block, and its program."""

    def __init__(self) -> None:
        self.inputs: list[Node] = []
        self.parameters: list[tuple[Node, Any]] = []
        self.captured: list[tuple[Node, Any]] = []
        self.outputs: list[Entry] = []
        self.written: list[tuple[int, Entry]] = []
        self.in_structure: Any = None
        self.out_structure: Any = None
        self.guards: list[tuple[Dim, Any]] = []
        self.frozen: list[tuple[str, str | None]] = []
        self.pattern: Any = None
        self.mode: tuple[bool, bool] = (False, False)
        self.draws = 0
        self.volatile = False
        self.program: Program | None = None
        self.dead: list[int] = []
        self.epoch = -1
        self.mark: Any = None
        self.classes: list[Any] = []
        self.writes: list[tuple[tuple[str, int], Entry]] = []

    def holds(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether the guards hold for inputs of these shapes."""
        if not self.guards:
            return True
        entries = guarded(self.guards)
        given: dict[int, Any] = {}
        for node, shape in zip(self.inputs, shapes, strict=True):
            given[id(node)] = (tuple(shape), node.specs[0].dtype if node.specs else None)
        for node, _ in (*self.parameters, *self.captured):
            if node.specs:
                given[id(node)] = (node.specs[0].shape, node.specs[0].dtype)
        try:
            found = GraphShapes(entries, given, self.mode[0]).run()
            for dim, value in self.guards:
                if evaluate(dim, lambda entry: _shape_in(found, entry)) != value:
                    return False
        except (MXNetError, ValueError, TypeError, IndexError):
            return False
        return True


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
