"""Shapes and types over a whole graph: forward by the operators' rules, backward where a rule can fill
inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base.errors import MXNetError
from ..ops.infer import infer_specs
from ..ops.opdef import Spec
from .dims import evaluate
from .node import Entry, Node, topological

__all__ = ["GraphShapes", "merge", "same_shape"]

Partial = tuple[int, ...] | None


def is_known(shape: Partial) -> bool:
    """Whether every size is known; -1 (and 0 while inferring) stand for unknown."""
    return shape is not None and all(size > 0 for size in shape)


def merge(first: Partial, second: Any) -> Partial:
    """Two partly known shapes as one; raises ValueError when they contradict."""
    if second is None:
        return first
    second = tuple(second)
    if first is None:
        return second  # type: ignore[no-any-return]
    if len(first) != len(second):
        raise ValueError(f"{first} and {second}")
    merged = []
    for a, b in zip(first, second, strict=True):
        known_a, known_b = a is not None and a > 0, b is not None and b > 0
        if known_a and known_b and a != b:
            raise ValueError(f"{first} and {second}")
        merged.append(a if known_a else b if known_b else -1)
    return tuple(merged)


def same_shape(node: Node) -> bool:
    """Whether the first output has the shape of the first input, so that inference may run backward."""
    rule = getattr(node.op, "infer", None)
    return getattr(rule, "__name__", "") in ("infer_same", "infer_scalar")


class GraphShapes:
    """Inference over the graph of ``entries``.

    ``given`` maps variable nodes' ids to (shape or None, dtype or None). After `run`, ``specs`` holds the
    known
    outputs, and ``shapes`` the partly known ones.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        given: Mapping[int, tuple[Partial, torch.dtype | None]],
        training: bool = False,
        zero_is_unknown: bool = False,
    ) -> None:
        self.order = topological(entries)
        self.training = training
        self.zero_is_unknown = zero_is_unknown
        self.shapes: dict[tuple[int, int], Partial] = {}
        self.dtypes: dict[tuple[int, int], torch.dtype] = {}
        self.done: set[int] = set()
        self.values: dict[int, list[Spec]] = {}
        for node in self.order:
            if node.op is None:
                shape, dtype = given.get(id(node), (None, None))
                self.shapes[id(node), 0] = shape
                if dtype is not None:
                    self.dtypes[id(node), 0] = dtype
                self._settle(node)

    def _settle(self, node: Node) -> None:
        shape = self.shapes[id(node), 0]
        if shape is None or id(node) in self.done:
            return
        unknown = (-1, 0) if self.zero_is_unknown else (-1,)
        if not any(size in unknown for size in shape):
            self.done.add(id(node))

    def spec(self, entry: Entry) -> Spec | None:
        """The spec of an entry, when its shape is known."""
        key = (id(entry.node), entry.index)
        shape = self.shapes.get(key)
        if shape is None or id(entry.node) not in self.done:
            return None
        return Spec(shape, self.dtypes.get(key, torch.float32))

    def run(self) -> GraphShapes:
        """Repeat forward and backward steps until nothing changes."""
        changed = True
        while changed:
            changed = False
            for node in self.order:
                if node.op is not None and id(node) not in self.done:
                    changed |= self._step(node)
            for node in reversed(self.order):
                if node.op is not None and id(node) in self.done:
                    continue
                if node.op is not None:
                    changed |= self._back(node)
        return self

    def _shape_of(self, entry: Any) -> tuple[int, ...]:
        shape = self.shapes.get((id(entry.node), entry.index))
        if shape is None:
            raise MXNetError(f"the shape of {entry.node.name} is not known")
        return shape

    def _step(self, node: Node) -> bool:
        specs = [self.spec(entry) for entry in node.inputs]
        if all(spec is not None for spec in specs):
            attrs = {k: evaluate(v, self._shape_of) for k, v in node.full_attrs.items()}
            outputs = infer_specs(node.op, attrs, specs, self.training)  # type: ignore[arg-type]
            for index, spec in enumerate(outputs):
                self.shapes[id(node), index] = spec.shape
                self.dtypes[id(node), index] = spec.dtype
            self.done.add(id(node))
            return True
        return self._fill(node)

    def _fill(self, node: Node) -> bool:
        if (
            node.op is None
            or node.op.fill is None
            or any(getattr(v, "_symbolic_dimension", False) for v in node.attrs.values())
        ):
            return False
        shapes = [self.shapes.get((id(e.node), e.index)) for e in node.inputs]
        if all(shape is None for shape in shapes):
            return False
        known = [
            None if s is None else tuple(-1 if d == 0 and self.zero_is_unknown else d for d in s)
            for s in shapes
        ]
        filled = node.op.fill(known, node.full_attrs)
        changed = False
        for entry, new in zip(node.inputs, filled, strict=False):
            changed |= self._learn(entry, new, node)
        return changed

    def _learn(self, entry: Entry, shape: Any, node: Node) -> bool:
        key = (id(entry.node), entry.index)
        if (entry.node.op is not None and id(entry.node) in self.done) or shape is None:
            return False
        old = self.shapes.get(key)
        try:
            new = merge(old, shape)
        except ValueError as error:
            if entry.node.op is None and id(entry.node) in self.done:
                raise MXNetError(
                    f"{entry.node.name} has shape {old}, but operator {node.op.name if node.op else ''} "
                    f"({node.name}) needs {tuple(shape)}" + (f", at {node.location}" if node.location else "")
                ) from error
            return False
        if new == old:
            return False
        self.shapes[key] = new
        if entry.node.op is None:
            self._settle(entry.node)
        return True

    def _back(self, node: Node) -> bool:
        if same_shape(node) and node.inputs:
            shape = self.shapes.get((id(node), 0))
            if shape is not None:
                return self._learn(node.inputs[0], shape, node)
        return False
