"""Regions put in the place of groups of layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from ...base.memory import give_back
from ...graph.node import Entry, Node, topological
from ...ops.internal import InternalOp, Slot, constant_op
from ...passes.rewrite import Settings, make
from ..kernels import Layouts, choose_kernels
from ..partition import Subgraph, partition
from ..tuning import Tuner, Ways, random_value
from . import interface
from .blocks import counts_in_blocks, gains_by_blocks
from .builder import Refused, build
from .forms import is_work, may_work, shape_at, suits
from .interface import Descriptor, Library
from .packing import Numbers, Together
from .region import Built, Region, region_of
from .slices import build_in_slices, gains_by_slices, has_large_values, sizes_of_slices
from .trials import Joined, StepTimes, repeated, trial

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
    large = has_large_values([node for node in order if node.op is not None])
    sparing = large and _weigh_much([node for node in order if id(node) in settings.constants])
    if sparing:
        # What initializing left behind would stay below what is read now and packed later. Where little
        # memory is used, large pages are worth more than what this saves.
        give_back()
    api = interface.library()
    if api is None:
        return list(entries)
    numbers, refused = Numbers(), set[str]()
    while True:
        try:
            placed = _placed(api, entries, settings, layouts, refused, tuner, numbers)
        except Refused as refusal:
            refused.add(refusal.name)
            continue
        if sparing:
            # Kernels for whole batches, from which those for slices were found.
            api.forget_unused()
        return placed


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
    numbers: Numbers,
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

        def given(region: list[Entry] | None) -> list[Entry] | None:
            together = None if region is None else _together(region)
            if together is not None:
                numbers.give(together)
            return region

        def made(name: str) -> list[Entry] | None:
            if name not in found:
                in_blocks, images = forms.get(name, (0, 0))
                last = [layouts.is_last(e) for e in inputs]
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
            return given(made("blocks" if gains else usual) or whole())
        way = tuner.prefers(group, _ways(group, forms, made, settings, tuner, numbers))
        return None if way == _SINGLE else given(made(way) or whole())

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
    forms: Mapping[str, tuple[int, int]],
    made: Callable[[str], list[Entry] | None],
    settings: Settings,
    tuner: Tuner,
    numbers: Numbers,
) -> Ways:
    """How a group can be computed: as one of these regions, or by single kernels."""
    several = len(forms) > 1 and sum(map(is_work, group.nodes)) >= _MANY
    by_step = several and not any(images for _, images in forms.values())
    timed: dict[int, StepTimes] = {}

    def run_of(name: str) -> Any:
        outputs = made(name)
        if outputs is None:
            return None
        # For most of the weights that a region does not pack, only their type matters.
        run = trial(group, outputs, settings, partial(_stand_in, numbers, _together(outputs)), repeated)
        # Single kernels, and slices of different sizes, are not comparable step by step.
        region = region_of(outputs[0].node) if by_step else None
        return run if region is None else StepTimes(run, region.steps)

    def region(name: str) -> Callable[[], Any] | None:
        count, last = forms[name][0], len(group.nodes)
        if by_step and 0 < count < last and 0 in timed and last in timed:
            return Joined(timed[last], timed[0], group.nodes, count, partial(run_of, name))
        run = run_of(name)
        if isinstance(run, StepTimes):
            timed[count] = run
        return run  # type: ignore[no-any-return]

    def single() -> Callable[[], Any]:
        kernels = choose_kernels(group.outputs, settings, tuner)
        return trial(group, kernels, settings, partial(_stand_in, numbers, None), random_value)

    ways: dict[str, Callable[[], Callable[[], Any] | None]] = {name: partial(region, name) for name in forms}
    if not several:
        # Elsewhere they are the same kernels, each called by itself.
        ways[_SINGLE] = single
    return ways


def _stand_in(numbers: Numbers, together: Together | None, entry: Entry) -> Tensor | None:
    """What stands for a packed weight in a trial; None for another constant."""
    if entry.node.op is not PACK or together is None:
        return None
    _, index = entry.node.attrs["place"]
    return together.piece(numbers.numbers(together.size), index, entry.node.attrs["target"].size)


def _together(region: list[Entry]) -> Together | None:
    """Where the packed weights of a region lie."""
    packed = (entry.node for entry in region[0].node.inputs if entry.node.op is PACK)
    return next((node.attrs["place"][0] for node in packed), None)


def _node_of(region: Region, group: Subgraph, inputs: list[Entry]) -> list[Entry]:
    """The region as a node of the graph, with the weights packed for it."""
    together = Together([target.size for _, _, target in region.packing])
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


def _pack(weight: Tensor, *, source: Descriptor, target: Descriptor, place: tuple[Together, int]) -> Tensor:
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
