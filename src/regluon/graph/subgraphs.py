"""Operators that files of MXNet's oneDNN backend hold as a graph within a node."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..base.errors import MXNetError
from .json import NodeRecord, short
from .node import Node

__all__ = ["lifted", "with_auxiliary"]

_CONVOLUTIONS = ("_sg_mkldnn_conv", "_sg_onednn_conv")
# Attributes of the inner operators that the outer one has here.
_WANTED = {
    "Convolution": "kernel stride dilate pad num_filter num_group no_bias layout".split(),
    "BatchNorm": ["eps", "fix_gamma"],
}


def lifted(record: NodeRecord) -> NodeRecord:
    """The node with the attributes of the operators inside it, in place of its subgraph.

    Raises
    ------
    MXNetError
        If the subgraph is not one that such an operator has.
    """
    if record.operator not in _CONVOLUTIONS or not record.subgraphs:
        return record
    attributes = dict(record.attributes)
    try:
        nodes: list[Any] = record.subgraphs[0]["nodes"]
        for node in nodes:
            own = node.get("attrs") or node.get("param") or {}
            attributes.update({key: str(own[key]) for key in _WANTED.get(node["op"], ()) if key in own})
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise MXNetError(f"node {short(record.name)!r}: its subgraph is malformed") from error
    return dataclasses.replace(record, attributes=attributes, subgraphs=[])


def with_auxiliary(node: Node) -> Node:
    """The same node; variables that are its moving statistics are marked as auxiliary states."""
    if node.op is not None and node.op.name in _CONVOLUTIONS:
        for name, entry in zip(node.op.input_names(node.full_attrs), node.inputs, strict=False):
            if name in ("moving_mean", "moving_var") and entry.node.op is None:
                entry.node.is_aux = True
    return node
