"""Types over a graph without shapes: what is unknown takes the type of what it meets, else float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .node import Node

__all__ = ["infer_types"]


def _output_type(node: Node, found: Mapping[tuple[int, int], torch.dtype]) -> torch.dtype:
    dtype = node.full_attrs.get("dtype")
    if isinstance(dtype, torch.dtype):
        return dtype
    types = [found[id(e.node), e.index] for e in node.inputs if (id(e.node), e.index) in found]
    return types[0] if types else torch.float32


def infer_types(
    order: Sequence[Node], given: Mapping[int, torch.dtype]
) -> dict[tuple[int, int], torch.dtype]:
    """The type of every output in a topological order; ``given`` maps variables' ids to known types."""
    found: dict[tuple[int, int], torch.dtype] = {(key, 0): dtype for key, dtype in given.items()}
    for node in order:
        if node.op is None:
            continue
        known = [found[id(e.node), e.index] for e in node.inputs if (id(e.node), e.index) in found]
        if known and node.op.name not in ("Embedding", "take", "pick"):
            for entry in node.inputs:
                if entry.node.op is None:
                    found.setdefault((id(entry.node), 0), known[0])
        for index in range(node.outputs):
            found[id(node), index] = _output_type(node, found)
    for node in order:
        if node.op is None:
            found.setdefault((id(node), 0), torch.float32)
    return found
