"""Regions put in the place of groups of layers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, count
from typing import Any

import torch
from torch import Tensor

from ...base.memory import give_back
from ...base.pool import empty_bytes
from ...graph.node import Entry, Node, topological
from ...ops.internal import InternalOp, Slot, constant_op
from ...passes.rewrite import Settings, make
from ..kernels import Layouts, choose_kernels
from ..partition import Subgraph, partition
from ..program import Program
from ..splitting import split
from ..tuning import Tuner, Ways, random_value
from . import interface
from .blocks import counts_in_blocks, gains_by_blocks
from .builder import Refused, build
from .forms import is_work, may_work, shape_at, suits
from .interface import Descriptor, Library
from .region import ALIGNMENT, Built, Region
from .slices import build_in_slices, gains_by_slices, has_large_values, sizes_of_slices

__all__ = ["use_regions"]

_SINGLE = "single kernels"
# A region with so many layers, for which there are other formats, is not measured against single kernels.
_MANY = 10
# Bytes of parameters for which the heap is tidied before they are packed.
_MUCH = 32 << 20


def use_regions(
    entries: Sequence[Entry], settings: Settings, layouts: Layouts, tuner: Tuner | None = None
) -> list[Entry]:
    """Put regions in the place of groups of layers; what oneDNN refuses stays as it is.

    With a tuner, a region must be faster than the kernels that run without it.
    """
    order = topological(entries)
    if settings.device != "cpu" or not any(map(may_work, order)):
        return list(entries)
    api = interface.library()
    if api is None:
        return list(entries)
    parameters = [node for node in order if id(node) in settings.constants]
    if _weigh_much(parameters) and has_large_values([node for node in order if node.op is not None]):
        # What initializing left behind would stay below the packed weights. Where little memory is used,
        # large pages are worth more than what this saves.
        give_back()
    refused: set[str] = set()
    while True:
        try:
            return _placed(api, entries, settings, layouts, refused, tuner)
        except Refused as refusal:
            refused.add(refusal.name)


def _weigh_much(parameters: Sequence[Node]) -> bool:
    """Whether parameters take so much memory that holes between them are worth a search."""
    specs = [spec for node in parameters for spec in node.specs or ()]
    return sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in specs) >= _MUCH


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
        # Where torch goes on, images are left with their channels last.
        kept = [len(shape_at(e)) == 4 and (e.node.name, e.index) not in finals for e in group.outputs]

        forms = _forms(api, group, inputs)
        found: dict[str, list[Entry] | None] = {}

        def whole() -> list[Entry] | None:
            return made("region")

        def made(name: str) -> list[Entry] | None:
            if name not in found:
                in_blocks, images = forms.get(name, (0, 0))
                # A slice is brought into order when it is its turn.
                by_torch = not in_blocks and not images
                last = [layouts.is_last(e) or (by_torch and _has_few_channels(e)) for e in inputs]
                try:
                    region = Region(api, group, inputs, last, kept, _builder(api, in_blocks, images))
                    found[name] = _node_of(region, group, inputs)
                except Refused:
                    if name == "region":
                        raise
                    found[name] = None
            return found[name]

        usual = next(iter(forms))
        if tuner is None or (forms[usual][1] and has_large_values(group.nodes)):
            # To measure other ways would take the memory that slices save.
            gains = "blocks" in forms and gains_by_blocks(group.nodes)
            return made("blocks" if gains else usual) or whole()
        way = tuner.prefers(group, _ways(group, forms, made, settings, tuner))
        return None if way == _SINGLE else made(way) or whole()

    return partition(entries, select, replace, settings.is_constant)


def _forms(api: Library, group: Subgraph, inputs: list[Entry]) -> dict[str, tuple[int, int]]:
    """By name, the regions that can compute a group, the usual one first.

    Each is told by how many of its nodes, from the first, have channels in blocks, and by the number of
    images that it computes at a time, 0 for all of them.
    """
    whole = {"region": (0, 0)}
    whole |= {name: (count, 0) for name, count in counts_in_blocks(group.nodes, api).items()}
    sizes = sizes_of_slices(group, inputs)
    slices = {f"{size} images at a time": (0, size) for size in sizes}
    return {**slices, **whole} if slices and gains_by_slices(group) else {**whole, **slices}


def _builder(api: Library, in_blocks: int, images: int) -> Callable[[Region], Built]:
    def plain(region: Region) -> Built:
        return build(region, api, in_blocks)

    return (lambda region: build_in_slices(region, images, plain)) if images else plain


def _ways(
    group: Subgraph,
    names: Iterable[str],
    made: Callable[[str], list[Entry] | None],
    settings: Settings,
    tuner: Tuner,
) -> Ways:
    """How a group can be computed: as one of these regions, or by single kernels."""
    # Of the packed weights of every region, one after another.
    numbers: list[Tensor] = []

    def region(name: str) -> Callable[[], Any] | None:
        outputs = made(name)
        # For most of the weights that a region does not pack, only their type matters.
        return None if outputs is None else _trial(group, outputs, settings, numbers, _repeated)

    def single() -> Callable[[], Any]:
        return _trial(group, choose_kernels(group.outputs, settings, tuner), settings, numbers, random_value)

    ways: dict[str, Callable[[], Callable[[], Any] | None]] = {name: partial(region, name) for name in names}
    if len(ways) == 1 or sum(map(is_work, group.nodes)) < _MANY:
        # Elsewhere they are the same kernels, each called by itself.
        ways[_SINGLE] = single
    return ways


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


def _trial(
    group: Subgraph,
    outputs: Sequence[Entry],
    settings: Settings,
    numbers: list[Tensor],
    weight: Callable[[Entry], Tensor],
) -> Callable[[], Any]:
    """A run of nodes that compute a group's outputs, on random values.

    Packed weights, which take long to make, are any ``numbers``, which other trials use as well. All else
    that is made of parameters is made of what ``weight`` gives for them.
    """
    cut, changing = _cut(outputs, [entry for entry in group.inputs if not settings.is_constant(entry)])
    entries, made, sources = split(cut, settings)
    others = [entry for entry in sources if entry.node.op is not PACK]
    variables = [node for node in topological(others) if node.op is None]
    weights = [weight(Entry(node, 0)) for node in variables]
    with torch.no_grad():
        rest = iter(Program(variables, others, False, False)(0, weights) if others else ())
    places = count()
    packed = [
        _numbers(numbers, next(places), entry.node.attrs["target"].size)
        if entry.node.op is PACK
        else next(rest)
        for entry in sources
    ]
    known = {id(node) for node in (*changing, *made)}
    direct = [node for node in topological(entries) if node.op is None and id(node) not in known]
    program = Program([*changing, *direct, *made], entries, False, False)
    values = [*(random_value(Entry(node, 0)) for node in (*changing, *direct)), *packed]

    def run() -> Any:
        with torch.no_grad():
            return program(0, values)

    return run


def _repeated(entry: Entry) -> Tensor:
    """One number in the shape and type of an entry: filling memory would take most of a trial."""
    assert entry.spec is not None
    return torch.full((), 0.5).to(entry.spec.dtype).expand(entry.spec.shape)


def _numbers(known: list[Tensor], place: int, size: int) -> Tensor:
    """So many bytes of numbers of a usual size in any floating type."""
    if place == len(known):
        known.append(torch.empty(0, dtype=torch.uint8))
    if known[place].numel() < size:
        known[place] = torch.full((-(-size // 4),), 2.0**-9).view(torch.uint8)
    return known[place][:size]


def _has_few_channels(entry: Entry) -> bool:
    """Images of few channels are brought into order faster by torch than by oneDNN."""
    shape = shape_at(entry)
    return len(shape) == 4 and 1 < shape[1] < 8


def _node_of(region: Region, group: Subgraph, inputs: list[Entry]) -> list[Entry]:
    """The region as a node of the graph, with the weights packed for it."""
    together = _Together([target.size for _, _, target in region.packing])
    packed = [
        make(
            PACK,
            entry.node,
            [entry],
            {"source": source, "target": target, "place": (together, index)},
            [entry.spec],  # type: ignore[list-item]
            f"{entry.node.name}_packed",
        )
        for index, (entry, source, target) in enumerate(region.packing)
    ]
    operands = [*inputs, *packed, *region.constants]
    count = len(group.outputs)
    op = InternalOp("onednn", region, arguments=[Slot(i) for i in range(len(operands))], outputs=count)
    like = group.outputs[0].node
    specs = [entry.spec for entry in group.outputs]
    first = make(op, like, operands, {"last": tuple(region.last)}, specs)  # type: ignore[arg-type]
    first.node.covers = tuple(name for node in group.nodes for name in node.recorded)
    return [Entry(first.node, index) for index in range(count)]


class _Together:
    """The packed weights of a region as parts of one block, so that large pages have no gaps between them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._ends = list(accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))
        self._lock = threading.Lock()
        self._block: Tensor | None = None
        self._given: set[int] = set()

    def part(self, index: int, size: int) -> Tensor:
        """Memory for a weight, which no other part of the block in use overlaps."""
        with self._lock:
            if self._block is None or index in self._given:
                self._block, self._given = empty_bytes(self._ends[-1]), set()
            start = self._ends[index - 1] if index else 0
            made = self._block[start : start + size]
            self._given.add(index)
            if len(self._given) == len(self._ends):
                # From now on it lives as long as its parts do.
                self._block = None
            return made


def _pack(weight: Tensor, *, source: Descriptor, target: Descriptor, place: tuple[_Together, int]) -> Tensor:
    """A weight in the format that a primitive wants, where the others of its region lie."""
    api = interface.library()
    assert api is not None
    together, index = place
    plain, packed = weight.contiguous(), together.part(index, target.size).zero_()
    api.run_once(
        api.reorder(source, target),
        {interface.SOURCE: plain.data_ptr(), interface.DESTINATION: packed.data_ptr()},
    )
    return packed


PACK = constant_op("pack_weight", _pack, "source", "target", "place")
