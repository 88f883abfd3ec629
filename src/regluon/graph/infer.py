"""Shapes over a whole graph: forward by the operators' rules, backward where a rule can fill inputs.

A partly known shape has -1 for a size that is not known. What an operator makes of it is found by asking its
rule twice, with two different numbers for the unknown sizes: sizes that come out equal do not depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..base.errors import MXNetError
from ..ops.infer import infer_specs
from ..ops.opdef import OpDef, Spec
from .dims import dims_in, evaluate
from .node import Entry, Node, topological

__all__ = ["GraphShapes", "attributes_key", "has_open_sizes", "is_known", "merge"]

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


def _merged(first: Partial, second: Partial) -> Partial:
    """As `merge`, with -1 alone for unknown: 0 is a size."""
    if first is None or second is None:
        return second if first is None else first
    if len(first) != len(second) or any(
        -1 not in (a, b) and a != b for a, b in zip(first, second, strict=True)
    ):
        raise ValueError(f"{first} and {second}")
    return tuple(max(a, b) for a, b in zip(first, second, strict=True))


def _any_number(entry: Any) -> float:
    return 1.0


# Stand-ins for an unknown size: far from small sizes, and divisible by what networks split by.
_STAND_INS = (5040, 10080)
_REFUSALS = (MXNetError, ValueError, TypeError, IndexError, ZeroDivisionError, NotImplementedError)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


@lru_cache(maxsize=4096)
def _outcome(definition: OpDef, attrs: tuple[tuple[str, Any], ...], specs: tuple[Spec, ...]) -> Any:
    """The shapes that an operator gives, or None where it refuses."""
    try:
        return tuple(spec.shape for spec in infer_specs(definition, dict(attrs), specs))
    except _REFUSALS:
        return None


def attributes_key(node: Node) -> tuple[tuple[str, Any], ...] | None:
    """A node's attributes as a key, or None where they depend on sizes of the graph."""
    attrs = node.full_attrs
    if any(dims_in(value) for value in attrs.values()):
        return None
    key = tuple((name, _frozen(value)) for name, value in attrs.items())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _specs(shapes: Sequence[tuple[int, ...]]) -> tuple[Spec, ...]:
    return tuple(Spec(shape, torch.float32) for shape in shapes)


def has_open_sizes(node: Node) -> bool:
    """Whether a node makes an array of a shape with zeros, which the arrays it meets decide."""
    shape = node.attrs.get("shape")
    return node.op is not None and not node.inputs and isinstance(shape, tuple) and 0 in shape


def keeps_shape(node: Node) -> bool:
    """Whether all inputs and the first output have one shape, so that inference may run backward."""
    definition = node.op
    if definition is None or not node.inputs or definition.dynamic or definition.mutates or definition.opaque:
        return False
    attrs = attributes_key(node)
    return attrs is not None and _keeps_shape(definition, attrs, len(node.inputs))


@lru_cache(maxsize=4096)
def _keeps_shape(definition: OpDef, attrs: tuple[tuple[str, Any], ...], count: int) -> bool:
    for shape in ((7, 11), (3,), (2, 5, 3), (2, 3, 4, 5)):
        outcome = _outcome(definition, attrs, _specs([shape] * count))
        if outcome is None or outcome[0] != shape:
            return False
    # One that takes unequal shapes too (it broadcasts, or reads class labels) says nothing of its inputs.
    unequal = ((1, 11), (7, 1), (11,), (7,), (7, 11, 1))
    return count == 1 or not any(
        _outcome(definition, attrs, _specs([(7, 11)] + [shape] * (count - 1))) for shape in unequal
    )


class GraphShapes:
    """Inference over the graph of ``entries``.

    ``given`` maps variable nodes' ids to (shape or None, dtype or None). After `run`, `spec` gives the known
    outputs, and ``shapes`` holds the partly known ones.

    Parameters
    ----------
    entries : sequence of Entry
        The outputs.
    given : dict
        What is known of the variables.
    training : bool
        The mode that operators are asked in.
    zero_is_unknown : bool
        Whether 0 in a shape that is given, or among the attributes of an operator without inputs, stands
        for an unknown size.
    assume_equal : bool
        Whether an unknown operand of a broadcasting operator has the other operand's shape.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        given: Mapping[int, tuple[Partial, torch.dtype | None]],
        training: bool = False,
        zero_is_unknown: bool = False,
        assume_equal: bool = True,
    ) -> None:
        self.order = topological(entries)
        self.training = training
        self.zero_is_unknown = zero_is_unknown
        self.assume_equal = assume_equal
        self.shapes: dict[tuple[int, int], Partial] = {}
        self.dtypes: dict[tuple[int, int], torch.dtype] = {}
        self.done: set[int] = set()
        for node in self.order:
            if node.op is None:
                shape, dtype = given.get(id(node), (None, None))
                if shape is not None and zero_is_unknown:
                    shape = tuple(size if size > 0 else -1 for size in shape)
                self.shapes[id(node), 0] = shape
                if dtype is not None:
                    self.dtypes[id(node), 0] = dtype
                self._settle(node)

    def _settle(self, node: Node) -> None:
        shape = self.shapes[id(node), 0]
        if shape is not None and -1 not in shape:
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
                if node.op is not None and id(node) not in self.done:
                    changed |= self._back(node)
        return self

    def _shape_of(self, entry: Any) -> tuple[int, ...]:
        shape = self.shapes.get((id(entry.node), entry.index))
        if shape is None:
            raise MXNetError(f"the shape of {entry.node.name} is not known")
        return shape

    def _step(self, node: Node) -> bool:
        assert node.op is not None
        specs = [self.spec(entry) for entry in node.inputs]
        if any(spec is None for spec in specs):
            return self._fill(node) or self._guess(node)
        if node.op.dynamic:
            return False
        # No shape depends on a number among the arguments: the trace freezes those that could matter.
        attrs = {k: evaluate(v, self._shape_of, _any_number) for k, v in node.full_attrs.items()}
        try:
            outputs = infer_specs(node.op, attrs, specs, self.training)
        except MXNetError as error:
            raise self._located(error, node) from error
        if not node.inputs and self.zero_is_unknown and any(0 in spec.shape for spec in outputs):
            return self._incomplete(node, outputs)
        for index, spec in enumerate(outputs):
            self._check(node, index, spec.shape)
            self.shapes[id(node), index] = spec.shape
            self.dtypes[id(node), index] = spec.dtype
        self.done.add(id(node))
        return True

    def _incomplete(self, node: Node, outputs: Sequence[Spec]) -> bool:
        """An operator that makes an array of a shape with zeros: what it meets gives the sizes."""
        changed = False
        for index, spec in enumerate(outputs):
            self.dtypes[id(node), index] = spec.dtype
            changed |= self._learn(Entry(node, index), [size or -1 for size in spec.shape], node)
        if all(-1 not in (self.shapes.get((id(node), i)) or (-1,)) for i in range(len(outputs))):
            self.done.add(id(node))
            changed = True
        return changed

    @staticmethod
    def _located(error: MXNetError, node: Node) -> MXNetError:
        place = f", at {node.location}" if node.location else ""
        located = type(error)(f"{error} (in node {node.name}{place})")
        return located

    def _check(self, node: Node, index: int, shape: tuple[int, ...]) -> None:
        """Refuse a shape that contradicts what the operators after it need."""
        expected = self.shapes.get((id(node), index))
        try:
            _merged(shape, expected)
        except ValueError:
            assert node.op is not None
            raise self._located(
                MXNetError(
                    f"{node.output_name(index)} has shape {shape}, but what uses it needs {expected}: shapes "
                    "inferred from the outputs and from the inputs contradict each other"
                ),
                node,
            ) from None

    def _partial_inputs(self, node: Node) -> list[Partial]:
        return [self.shapes.get((id(e.node), e.index)) for e in node.inputs]

    def _fill(self, node: Node) -> bool:
        """Let the operator complete shapes of its inputs."""
        if (
            node.op is None
            or node.op.fill is None
            or any(getattr(v, "_symbolic_dimension", False) for v in node.attrs.values())
        ):
            return False
        known = self._partial_inputs(node)
        if all(shape is None for shape in known) or (not self.assume_equal and self._broadcasts(node)):
            return False
        try:
            filled = node.op.fill(known, node.full_attrs)
        except MXNetError as error:
            raise self._located(error, node) from error
        changed = False
        for entry, new in zip(node.inputs, filled, strict=False):
            changed |= self._learn(entry, new, node)
        return changed

    def _broadcasts(self, node: Node) -> bool:
        """Whether the operator takes two operands of unequal shapes."""
        attrs = attributes_key(node)
        if node.op is None or node.op.opaque or attrs is None or len(node.inputs) != 2:
            return False
        # Both ways round: other operators only look at their first operand's shape.
        orders = [(7, 11), (1, 11)], [(1, 11), (7, 11)]
        outcomes = [_outcome(node.op, attrs, _specs(shapes)) for shapes in orders]
        return all(outcome is not None and outcome[0] == (7, 11) for outcome in outcomes)

    def _guess(self, node: Node) -> bool:
        """Outputs of partly known inputs: what does not depend on the unknown sizes."""
        shapes = self._partial_inputs(node)
        attrs = attributes_key(node)
        if node.op is None or attrs is None or node.op.dynamic or any(shape is None for shape in shapes):
            return False
        outcomes = [
            _outcome(node.op, attrs, _specs([tuple(n if d == -1 else d for d in s or ()) for s in shapes]))
            for n in _STAND_INS
        ]
        if outcomes[0] is None or outcomes[1] is None:
            return False
        changed = False
        for index, (first, second) in enumerate(zip(*outcomes, strict=True)):
            if len(first) == len(second):
                shape = tuple(a if a == b else -1 for a, b in zip(first, second, strict=True))
                changed |= self._learn(Entry(node, index), shape, node)
        return changed

    def _learn(self, entry: Entry, shape: Any, node: Node) -> bool:
        key = (id(entry.node), entry.index)
        if shape is None or (entry.node.op is not None and id(entry.node) in self.done):
            return False
        least = 1 if self.zero_is_unknown else 0
        shape = tuple(-1 if size is None or size < least else size for size in shape)
        old = self.shapes.get(key)
        try:
            new = _merged(old, shape)
        except ValueError as error:
            if self.assume_equal and id(entry.node) not in self.done:
                return False
            raise MXNetError(
                f"{entry.node.name} has shape {old}, but operator {node.op.name if node.op else ''} "
                f"({node.name}) needs {tuple(shape)}" + (f", at {node.location}" if node.location else "")
            ) from error
        if new == old:
            return False
        self.shapes[key] = new
        if entry.node.op is None:
            self._settle(entry.node)
        return True

    def _back(self, node: Node) -> bool:
        """Through an operator that keeps the shape, what is known of its output holds for its inputs."""
        shape = self.shapes.get((id(node), 0))
        if shape is None:
            return False
        if not keeps_shape(node):
            return self.zero_is_unknown and self._back_sizes(node)
        changed = False
        for entry in node.inputs:
            changed |= self._learn(entry, shape, node)
        return changed

    def _back_sizes(self, node: Node) -> bool:
        """An unknown size of an input that appears unchanged in an output, such as the batch, from there."""
        shapes, attrs = self._partial_inputs(node), attributes_key(node)
        if node.op is None or attrs is None or node.op.dynamic or any(shape is None for shape in shapes):
            return False
        changed = False
        for place, shape in enumerate(shapes):
            for axis in [axis for axis, size in enumerate(shape or ()) if size == -1]:
                size = self._size_after(node, attrs, shapes, (place, axis))
                if size is not None:
                    learnt = [size if i == axis else -1 for i in range(len(shape or ()))]
                    changed |= self._learn(node.inputs[place], learnt, node)
        return changed

    def _size_after(
        self, node: Node, attrs: Any, shapes: Sequence[Partial], unknown: tuple[int, int]
    ) -> int | None:
        """The known size, in an output, that one unknown size of an input is."""
        assert node.op is not None
        outcomes = []
        for number in _STAND_INS:
            tried = [
                tuple(
                    size if size != -1 else number if (place, axis) == unknown else _STAND_INS[0]
                    for axis, size in enumerate(shape or ())
                )
                for place, shape in enumerate(shapes)
            ]
            outcomes.append(_outcome(node.op, attrs, _specs(tried)))
        for index, (first, second) in enumerate(zip(*(found or () for found in outcomes), strict=False)):
            known = self.shapes.get((id(node), index)) or ()
            for a, b, size in zip(first, second, known, strict=False):
                if (a, b) == _STAND_INS and size != -1:
                    return size
        return None
