"""Types over a graph without shapes: forward by the operators' rules, backward where an operator keeps types.

What an operator makes of the types of its inputs is found by asking its rule with stand-in shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from ..base import dtypes
from ..base.errors import MXNetError
from ..ops.infer import infer_specs
from ..ops.opdef import OpDef, Spec
from .infer import attributes_key
from .node import Node, topological

__all__ = ["infer_types", "output_types"]

Found = dict[tuple[int, int], torch.dtype]
# Shapes of the first input to try, those of the others follow by the operator's own rule.
_STAND_INS = ((2, 6, 8, 8), (2, 6), (2, 6, 8), (6,), (2, 6, 8, 8, 8))
# Inputs whose type says nothing about the others: places and choices.
_APART = frozenset(("indices", "index", "condition", "sequence_length", "data_lengths", "label_lengths"))
_READS_PLACES = frozenset(("Embedding", "_contrib_SparseEmbedding", "one_hot"))
_NORMALIZATION = frozenset(("BatchNorm", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU"))
_REFUSALS = (MXNetError, ValueError, TypeError, IndexError, ZeroDivisionError, NotImplementedError)


@lru_cache(maxsize=4096)
def _outputs(
    definition: OpDef, attrs: tuple[tuple[str, Any], ...], types: tuple[torch.dtype, ...]
) -> tuple[torch.dtype, ...] | None:
    """The types of the outputs, or None where no stand-in shapes fit."""
    if definition.dynamic:
        return None
    values = dict(attrs)
    for shape in _STAND_INS if types else ((),):
        try:
            shapes: list[Any] = [shape, *([None] * (len(types) - 1))] if types else []
            if definition.fill is not None and types:
                shapes = list(definition.fill(shapes, values))[: len(types)]
            filled = [tuple(s) if s is not None and all(n > 0 for n in s) else shape for s in shapes]
            specs = [Spec(s, dtype) for s, dtype in zip(filled, types, strict=True)]
            return tuple(spec.dtype for spec in infer_specs(definition, values, specs))
        except _REFUSALS:
            continue
    return None


def _together(node: Node) -> list[int]:
    """The places of the inputs that have one type."""
    definition = node.op
    assert definition is not None
    if definition.name in _READS_PLACES:
        return []
    names = definition.input_names(node.full_attrs, len(node.inputs))
    return [place for place, name in enumerate(names[: len(node.inputs)]) if name not in _APART]


def _of_weights(node: Node, dtype: torch.dtype) -> torch.dtype:
    """The type of an operator's parameters: batch normalization keeps float32 beside half data."""
    assert node.op is not None
    half = dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half and node.op.name in _NORMALIZATION else dtype


def _spread(node: Node, found: Found) -> bool:
    """Give the type of one input to those that are not known."""
    places = _together(node)
    keys = [(id(node.inputs[place].node), node.inputs[place].index) for place in places]
    known = [found[key] for key in keys if key in found]
    changed = False
    if node.op is not None and node.op.name in _READS_PLACES and len(node.inputs) > 1:
        weight = node.inputs[1]
        dtype = node.full_attrs.get("dtype") or torch.float32
        if (id(weight.node), weight.index) not in found:
            found[id(weight.node), weight.index] = dtypes.to_torch(dtype)
            changed = True
    if not known:
        return changed
    for place, key in zip(places, keys, strict=True):
        source = node.inputs[place].node
        if key not in found and (source.op is None or _keeps_type(source)):
            found[key] = known[0] if place == 0 else _of_weights(node, known[0])
            changed = True
    return changed


def _forward(node: Node, found: Found) -> bool:
    keys = [(id(entry.node), entry.index) for entry in node.inputs]
    attrs = attributes_key(node)
    assert node.op is not None
    if attrs is None or not all(key in found for key in keys):
        places = _together(node)
        if not places or not all(keys[place] in found for place in places):
            return False
    for index, dtype in enumerate(output_types(node, [found.get(key, torch.float32) for key in keys])):
        found[id(node), index] = dtype
    return True


def output_types(node: Node, types: Sequence[torch.dtype]) -> tuple[torch.dtype, ...]:
    """The types of all outputs of an operator for inputs of these types."""
    assert node.op is not None
    attrs = attributes_key(node)
    outputs = _outputs(node.op, attrs, tuple(types)) if attrs is not None else None
    if outputs is None:
        dtype = node.full_attrs.get("dtype")
        outputs = (dtype if isinstance(dtype, torch.dtype) else types[0] if types else torch.float32,)
        outputs *= node.outputs
    return outputs


def _keeps_type(node: Node) -> bool:
    attrs = attributes_key(node)
    if node.op is None or attrs is None or not _together(node) or len(_together(node)) != len(node.inputs):
        return False
    for dtype in (torch.float64, torch.float16):
        outputs = _outputs(node.op, attrs, (dtype,) * len(node.inputs))
        if outputs is None or outputs[0] is not dtype:
            return False
    return True


def _backward(node: Node, found: Found) -> bool:
    """Through an operator that keeps types, the type of the output is that of its inputs."""
    dtype = found.get((id(node), 0))
    keys = [(id(entry.node), entry.index) for entry in node.inputs]
    if dtype is None or all(key in found for key in keys) or not _keeps_type(node):
        return False
    for place, key in enumerate(keys):
        found.setdefault(key, dtype if place == 0 else _of_weights(node, dtype))
    return True


def infer_types(order: Sequence[Node], given: Mapping[int, torch.dtype]) -> Found:
    """The types of variables and outputs in a topological order, as far as they follow.

    Parameters
    ----------
    order : sequence of Node
        The graph.
    given : dict
        Types of variables by their ids.

    Raises
    ------
    MXNetError
        If an operator's inputs have types that do not go together; the message names the node.
    """
    found: Found = {(key, 0): dtype for key, dtype in given.items()}
    operators = [node for node in order if node.op is not None]
    computed: set[int] = set()
    changed = True
    while changed:
        changed = False
        for node in operators:
            if "subgraphs" in node.attrs:
                changed |= _through_bodies(node, found)
                continue
            changed |= _spread(node, found)
            if id(node) not in computed and _forward(node, found):
                computed.add(id(node))
                changed = True
        for node in reversed(operators):
            changed |= "subgraphs" not in node.attrs and _backward(node, found)
    for node in operators:
        _check(node, found)
    return found


def _through_bodies(node: Node, found: Found) -> bool:
    """Types into the bodies of a loop or branch and out of them again; states keep theirs."""
    bodies = node.attrs["subgraphs"]
    # The condition of a cond is no input of its bodies.
    inputs = node.inputs[len(node.inputs) - len(bodies[0].inputs) :]
    before = len(found)
    for body in bodies:
        keys = [(id(entry.node), entry.index) for entry in inputs]
        given = {id(v): found[key] for v, key in zip(body.inputs, keys, strict=True) if key in found}
        inner = infer_types(topological(body.outputs), given)
        for variable, key in zip(body.inputs, keys, strict=True):
            if (id(variable), 0) in inner:
                found.setdefault(key, inner[id(variable), 0])
        if len(body.outputs) == node.outputs:
            for index, entry in enumerate(body.outputs):
                if (id(entry.node), entry.index) in inner:
                    found.setdefault((id(node), index), inner[id(entry.node), entry.index])
    states = node.outputs - node.attrs.get("num_out_data", node.outputs)
    first = node.attrs.get("num_data", 0)
    for place in range(states):
        source = inputs[first + place]
        key = (id(node), node.outputs - states + place)
        if key in found:
            found.setdefault((id(source.node), source.index), found[key])
    return len(found) > before


def _check(node: Node, found: Found) -> None:
    """Elementwise operators of the 1.x kind take one type."""
    if node.op is None or not node.op.name.startswith(("elemwise_", "broadcast_")):
        return
    types = [found.get((id(entry.node), entry.index)) for entry in node.inputs]
    known = [dtype for dtype in types if dtype is not None]
    if any(dtype is not known[0] for dtype in known):
        shown = ", ".join(dtypes.to_name(dtype) for dtype in known)
        raise MXNetError(
            f"operator {node.op.name} (node {node.name}) takes inputs of one type; they are {shown}. Convert "
            "one with cast"
        )
