"""Regions put in the place of groups of layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...graph.node import Entry, Node, topological
from ...ops.internal import InternalOp, Slot, constant_op
from ...passes.rewrite import Settings, make
from ..kernels import Layouts, choose_kernels
from ..partition import Subgraph, partition
from ..program import Program
from ..splitting import split
from ..tuning import Tuner, random_value
from . import interface
from .builder import Refused, build
from .forms import is_work, shape_at, suits
from .interface import Descriptor, Library
from .region import Region

__all__ = ["use_regions"]


def use_regions(
    entries: Sequence[Entry], settings: Settings, layouts: Layouts, tuner: Tuner | None = None
) -> list[Entry]:
    """Put regions in the place of groups of layers; what oneDNN refuses stays as it is.

    With a tuner, a region must be faster than the kernels that run without it.
    """
    api = interface.library()
    if api is None or settings.device != "cpu":
        return list(entries)
    refused: set[str] = set()
    while True:
        try:
            return _placed(api, entries, settings, layouts, refused, tuner)
        except Refused as refusal:
            refused.add(refusal.name)


def _placed(
    api: Library,
    entries: Sequence[Entry],
    settings: Settings,
    layouts: Layouts,
    refused: set[str],
    tuner: Tuner | None,
) -> list[Entry]:
    finals = {(entry.node.name, entry.index) for entry in entries}

    def select(node: Node) -> bool:
        if node.name in refused or settings.is_constant(Entry(node, 0)):
            return False
        return suits(node, settings)

    def replace(group: Subgraph) -> Sequence[Entry] | None:
        if not any(is_work(node) for node in group.nodes):
            return None
        inputs = [entry for entry in group.inputs if not settings.is_constant(entry)]
        last = [layouts.is_last(entry) or _has_few_channels(entry) for entry in inputs]
        # Where torch goes on, images are left with their channels last.
        kept = [len(shape_at(e)) == 4 and (e.node.name, e.index) not in finals for e in group.outputs]
        region = Region(api, group, inputs, last, kept, lambda region: build(region, api))
        made = _node_of(region, group, inputs)
        if tuner is not None:
            ways = {
                "region": lambda: _trial(group, made, settings),
                "single kernels": lambda: _trial(
                    group, choose_kernels(group.outputs, settings, tuner), settings
                ),
            }
            if tuner.prefers(group, ways) != "region":
                return None
        return made

    return partition(entries, select, replace, settings.is_constant)


def _cut(outputs: Sequence[Entry], inputs: Sequence[Entry]) -> tuple[list[Entry], list[Node]]:
    """The graph of these outputs with variables in the place of ``inputs``."""
    variables = {
        (id(e.node), e.index): Node(None, f"v{i}", specs=None if e.spec is None else [e.spec])
        for i, e in enumerate(inputs)
    }
    twins: dict[int, Node] = {}

    def moved(entry: Entry) -> Entry:
        variable = variables.get((id(entry.node), entry.index))
        if variable is not None:
            return Entry(variable, 0)
        return Entry(twins.get(id(entry.node), entry.node), entry.index)

    for node in topological(outputs):
        if node.op is not None:
            twin = twins[id(node)] = node.__copy__()
            twin.inputs = tuple(moved(entry) for entry in node.inputs)
    return [moved(entry) for entry in outputs], list(variables.values())


def _trial(group: Subgraph, outputs: Sequence[Entry], settings: Settings) -> Callable[[], Any]:
    """A run, on random values, of nodes that compute a group's outputs."""
    cut, changing = _cut(outputs, [entry for entry in group.inputs if not settings.is_constant(entry)])
    entries, made, sources = split(cut, settings)
    variables = [node for node in topological(sources) if node.op is None]
    weights = {id(node): random_value(Entry(node, 0)) for node in variables}
    with torch.no_grad():
        packed = Program(variables, sources, False, False)(0, [weights[id(node)] for node in variables])
    known = {id(node) for node in (*changing, *made)}
    direct = [node for node in topological(entries) if node.op is None and id(node) not in known]
    program = Program([*changing, *direct, *made], entries, False, False)
    values = [*(random_value(Entry(node, 0)) for node in (*changing, *direct)), *packed]

    def run() -> Any:
        with torch.no_grad():
            return program(0, values)

    return run


def _has_few_channels(entry: Entry) -> bool:
    """Images of few channels are brought into order faster by torch than by oneDNN."""
    shape = shape_at(entry)
    return len(shape) == 4 and 1 < shape[1] < 8


def _node_of(region: Region, group: Subgraph, inputs: list[Entry]) -> list[Entry]:
    """The region as a node of the graph, with the weights packed for it."""
    packed = [
        make(
            PACK,
            entry.node,
            [entry],
            {"source": source, "target": target},
            [entry.spec],  # type: ignore[list-item]
            f"{entry.node.name}_packed",
        )
        for entry, source, target in region.packing
    ]
    operands = [*inputs, *packed, *region.constants]
    count = len(group.outputs)
    op = InternalOp("onednn", region, arguments=[Slot(i) for i in range(len(operands))], outputs=count)
    like = group.outputs[0].node
    specs = [entry.spec for entry in group.outputs]
    first = make(op, like, operands, {"last": tuple(region.last)}, specs)  # type: ignore[arg-type]
    first.node.covers = tuple(name for node in group.nodes for name in node.recorded)
    return [Entry(first.node, index) for index in range(count)]


def _pack(weight: Tensor, *, source: Descriptor, target: Descriptor) -> Tensor:
    """A weight in the format that a primitive wants."""
    api = interface.library()
    assert api is not None
    plain, packed = weight.contiguous(), torch.zeros(target.size, dtype=torch.uint8)
    api.run_once(
        api.reorder(source, target),
        {interface.SOURCE: plain.data_ptr(), interface.DESTINATION: packed.data_ptr()},
    )
    return packed


PACK = constant_op("pack_weight", _pack, "source", "target")
