"""Cleaning: nodes that pass their input on, repeated computations, and shape changes that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..base.sharing import with_own_memory
from ..graph.node import Entry, Node, rebuild, topological
from ..ops.internal import InternalOp, Slot
from ..ops.registry import get
from .rewrite import Reads, Settings, has_dims, make, rewrite, shape_of

__all__ = ["merge_repeats", "permutation", "protect_outputs", "remove_identities", "simplify_shapes"]

# At prediction these give their first input on, value for value.
IDENTITIES = frozenset({"_copy", "_npi_copy", "BlockGrad", "_np_copy", "MakeLoss", "make_loss"})
CASTS = frozenset({"Cast", "amp_cast", "_npi_cast", "_npx_cast"})
RESHAPES = frozenset(
    {"Reshape", "_npx_reshape", "_np_reshape", "Flatten", "expand_dims", "squeeze", "_npi_squeeze"}
)
TRANSPOSES = frozenset({"transpose", "_npi_transpose", "SwapAxis"})


def remove_identities(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Dropout at prediction, copies, gradient stops and casts to the type a value has already."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        name = node.op.name if node.op else ""
        if name in IDENTITIES:
            return [inputs[0]]
        if name == "Dropout" and not settings.training and node.full_attrs["mode"] != "always":
            return [inputs[0]] if node.outputs == 1 else None
        if name in CASTS:
            spec = inputs[0].spec
            if spec is not None and node.specs is not None and node.specs[0].dtype is spec.dtype:
                return [inputs[0]]
        return None

    return rewrite(entries, replace, IDENTITIES | CASTS | {"Dropout"})


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    return (type(value), value)


def merge_repeats(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Compute what is written twice once (common subexpressions). Random operators are never merged."""
    order = topological(entries)
    first = _repeats(order)
    if not first:
        return list(entries)
    moved: dict[Node, Sequence[Entry]] = {}

    def replace(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        same = first.get(node)
        if same is None:
            return None
        return moved.get(same) or [Entry(same, index) for index in range(same.outputs)]

    return rebuild(entries, replace, placed=moved.__setitem__, order=order)


def _repeats(order: Sequence[Node]) -> dict[Node, Node]:
    """For each node that computes what one before it does, that one."""
    found: dict[Any, Node] = {}
    first: dict[Node, Node] = {}
    for node in order:
        op = node.op
        if op is None or op.uses_rng or op.dynamic or op.mutates or op.opaque or op.aux or has_dims(node):
            continue
        inputs: Sequence[Entry] = node.inputs
        if first:
            inputs = [Entry(first.get(entry.node, entry.node), entry.index) for entry in inputs]
        attrs = node.attrs
        given = tuple([(k, _frozen(attrs[k])) for k in sorted(attrs)]) if attrs else ()
        try:
            known = found.setdefault((id(op), given, tuple(inputs)), node)
        except TypeError:
            continue
        if known is not node:
            first[node] = known
    return first


def permutation(node: Node, rank: int) -> tuple[int, ...] | None:
    """The permutation that a transposing node does."""
    attrs = node.full_attrs
    if node.op is not None and node.op.name == "SwapAxis":
        order = list(range(rank))
        first, second = attrs["dim1"] % rank, attrs["dim2"] % rank
        order[first], order[second] = order[second], order[first]
        return tuple(order)
    axes = attrs.get("axes")
    if not axes:
        return tuple(reversed(range(rank)))
    return tuple(axis % rank for axis in axes)


def simplify_shapes(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Reshapes and transposes that change nothing go; a reshape of a reshape and a transpose of a transpose
    become one."""

    def replace(node: Node, inputs: tuple[Entry, ...], reads: Reads) -> Any:
        name = node.op.name if node.op else ""
        if name in RESHAPES and node.full_attrs.get("order", "C") == "C":
            return _reshape(node, inputs[0])
        if name in TRANSPOSES:
            return _transpose(node, inputs[0])
        return None

    return rewrite(entries, replace, RESHAPES | TRANSPOSES)


def _reshape(node: Node, source: Entry) -> Any:
    before = shape_of(source)
    after = shape_of(Entry(node, 0))
    if before is None or after is None:
        return None
    if before == after:
        return [source]
    inner = source.node
    if inner.op is not None and inner.op.name in RESHAPES and 0 not in after:
        first = shape_of(inner.inputs[0])
        if first == after:
            return [inner.inputs[0]]
        if first is not None:
            return [make(get("Reshape"), node, [inner.inputs[0]], {"shape": after})]
    return None


def _transpose(node: Node, source: Entry) -> Any:
    before = shape_of(source)
    if before is None:
        return None
    axes = permutation(node, len(before))
    if axes is None:
        return None
    inner = source.node
    if inner.op is not None and inner.op.name in TRANSPOSES:
        first = permutation(inner, len(before))
        if first is not None:
            axes = tuple(first[axis] for axis in axes)
            source = inner.inputs[0]
    if axes == tuple(range(len(axes))):
        return [source]
    if source.node is not node.inputs[0].node:
        return [make(get("transpose"), node, [source], {"axes": axes})]
    return None


def protect_outputs(entries: Sequence[Entry], settings: Settings) -> list[Entry]:
    """Outputs own their memory: an input, a weight, a view of one, or of another output is copied.

    Where that cannot be told from the graph, it is looked at when the values are there.
    """
    copy = get("_copy")
    taken: set[tuple[int, int]] = set()
    result = []
    known = True
    for entry in entries:
        root = _root(entry)
        key = (id(root.node), root.index)
        if root.node.op is None or key in taken:
            entry = make(copy, entry.node, [entry], specs=None if entry.spec is None else [entry.spec])
        elif not _is_new(root.node):
            known = False
        taken.add(key)
        result.append(entry)
    return result if known else _looked_at(result)


# What gives all or some of the elements of its input, each of them once, or the input itself.
_VIEWS = (
    RESHAPES
    | TRANSPOSES
    | CASTS
    | frozenset({"slice_axis", "slice", "SliceChannel", "_npi_split", "Dropout"})
)
# Frequent last operators that always make new memory; of others it is not known.
_NEW = frozenset(
    {
        *("Activation", "BatchNorm", "Concat", "Convolution", "Embedding", "FullyConnected", "LayerNorm"),
        *("Pooling", "batch_dot", "dot", "log_softmax", "softmax", "mean", "_npi_mean", "_copy", "_npi_copy"),
        *(f"{kind}_{name}" for kind in ("broadcast", "elemwise") for name in ("add", "sub", "mul")),
        *("_npi_add", "_npi_subtract", "_npi_multiply"),
    }
)


def _root(entry: Entry) -> Entry:
    """The value whose memory this one may be a part of."""
    while entry.node.op is not None:
        op = entry.node.op
        passes_on = not op.fresh if isinstance(op, InternalOp) else op.name in _VIEWS
        if not passes_on:
            break
        entry = entry.node.inputs[0]
    return entry


def _is_new(node: Node) -> bool:
    return isinstance(node.op, InternalOp) or (node.op is not None and node.op.name in _NEW)


def _looked_at(entries: Sequence[Entry]) -> list[Entry]:
    """The same outputs by way of a node that copies those which share memory."""
    given = [Entry(node, 0) for node in topological(entries) if node.op is None]
    count = len(entries)

    def own(*tensors: Any) -> Any:
        made = with_own_memory(tensors[:count], tensors[count:])
        return made[0] if count == 1 else tuple(made)

    operands = [*entries, *given]
    op = InternalOp("own_memory", own, arguments=[Slot(i) for i in range(len(operands))], outputs=count)
    first = make(op, entries[0].node, operands)
    specs = [entry.spec for entry in entries]
    first.node.specs = None if None in specs else specs  # type: ignore[assignment]
    return [Entry(first.node, index) for index in range(count)]


def is_float(entry: Entry) -> bool:
    """Whether a value is known to be of a floating type."""
    spec = entry.spec
    return spec is not None and isinstance(spec.dtype, torch.dtype) and spec.dtype.is_floating_point
