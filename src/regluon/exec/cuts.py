"""Where a graph is cut into segments, so that few bytes cross the cuts and no segment is large."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..graph.dims import dims_in, sources_of
from ..graph.node import Entry, Node
from ..ops.opdef import Spec

__all__ = ["Cost", "choose_cuts", "entries_read", "spec_of"]

# Cuts are chosen among so many places at most, which keeps the search short for a graph of any size.
_MOST_PLACES = 160
# Recomputing is worth a forward pass where it lowers the memory of activations at least to this part.
_WORTH = 0.9
# Their results lie in their inputs' memory.
_VIEWS = frozenset(
    {"Reshape", "Flatten", "expand_dims", "squeeze", "transpose", "SwapAxis", "reshape_like", "activation"}
    | {"_np_reshape", "_npx_reshape", "_npi_squeeze", "_np_transpose", "_npi_swapaxes", "_np_squeeze"}
    | {"slice", "slice_axis", "_copy", "identity", "BlockGrad", "contiguous"}
)


def entries_read(node: Node) -> list[Entry]:
    """The inputs of a node, and values whose sizes its attributes are made of."""
    dims = [dim for value in node.attrs.values() for dim in dims_in(value)]
    return [*node.inputs, *(Entry(entry.node, entry.index) for entry in sources_of(dims))]


def spec_of(entry: Any) -> Spec | None:
    """Shape and type of a value, where known; hidden outputs may have none."""
    specs = entry.node.specs
    return specs[entry.index] if specs is not None and entry.index < len(specs) else None


class Cost:
    """Bytes of a graph's values, and from where to where they are in use.

    Parameters
    ----------
    order : sequence of Node
        The nodes as they run.
    outputs : sequence of Entry
        What the graph computes; it is kept in any case.
    alone : callable
        Whether a node must stay outside of segments.
    writes : callable
        Whether a node overwrites its first input, with which it must stay together.
    """

    def __init__(
        self,
        order: Sequence[Node],
        outputs: Sequence[Entry],
        alone: Callable[[Node], bool],
        writes: Callable[[Node], bool],
    ) -> None:
        count = self.count = len(order)
        place = {id(node): index for index, node in enumerate(order)}
        self._last: dict[tuple[int, int], int] = {}
        for index, node in enumerate(order):
            for entry in entries_read(node):
                self._last[id(entry.node), entry.index] = index
        kept = {(id(entry.node), entry.index) for entry in outputs}
        self._last.update(dict.fromkeys(kept, count))
        # Values that would cross cuts: (first place, last place before its last use, bytes).
        self.spans: list[tuple[int, int, int]] = []
        self._sums = [0]
        for index, node in enumerate(order):
            inner = 0
            for output in range(node.outputs):
                entry = Entry(node, output)
                size = self.size(entry)
                inner += 0 if node.op is not None and node.op.name in _VIEWS else size
                key = (id(node), output)
                if key not in kept and self.last_use(entry) > index:
                    self.spans.append((index, self._last[key] - 1, size))
            self._sums.append(self._sums[-1] + inner)
        self.crossing = self._crossing(count)
        self.alone = [alone(node) for node in order]
        # Cuts that would part a value from the node that overwrites it.
        self.closed: set[int] = set()
        for index, node in enumerate(order):
            first = place.get(id(node.inputs[0].node)) if node.inputs else None
            if writes(node) and first is not None:
                if any(self.alone[first:index]):
                    self.alone[index] = True
                else:
                    self.closed.update(range(first, index))

    def _crossing(self, count: int) -> list[int]:
        changes = [0] * (count + 1)
        for first, last, size in self.spans:
            changes[first] += size
            changes[last + 1] -= size
        total, found = 0, []
        for change in changes[:count]:
            total += change
            found.append(total)
        return found

    def size(self, entry: Any) -> int:
        """The bytes of a value; 0 where its shape is not known."""
        spec = spec_of(entry)
        if spec is None or not all(isinstance(size, int) for size in spec.shape):
            return 0
        return math.prod(spec.shape) * int(spec.dtype.itemsize)

    def last_use(self, entry: Any) -> int:
        """The place of the last node that reads a value; ``count`` for an output, -1 if nothing does."""
        return self._last.get((id(entry.node), entry.index), -1)

    def between(self, begin: int, end: int) -> int:
        """The bytes of the values that the nodes from ``begin`` to ``end`` make."""
        return self._sums[end + 1] - self._sums[begin]

    def kept(self, ends: Sequence[int]) -> int:
        """The bytes of all values that cross one of the cuts behind ``ends``."""
        places = sorted(ends)
        total, following = 0, []
        reach = self.count
        for index in range(self.count - 1, -1, -1):
            while places and places[-1] >= index:
                reach = places.pop()
            following.append(reach)
        following.reverse()
        for first, last, size in self.spans:
            total += size if following[first] <= last else 0
        return total


@dataclass
class _Run:
    """Neighbouring nodes that may be segments, and the places where they may be cut."""

    begin: int
    places: list[int]


def choose_cuts(cost: Cost) -> list[int] | None:
    """The places of the last nodes of segments, or None where nothing would be gained.

    For several bounds on the bytes of a segment, the cuts that the fewest bytes cross are found by dynamic
    programming; of these, those are taken with the least memory: what crosses, and the largest segment.
    """
    total = cost.between(0, cost.count - 1) if cost.count > 1 else 0
    if not total:
        return None
    runs = _runs(cost)
    best: tuple[float, int, list[int]] | None = None
    for parts in _numbers(cost.count):
        ends = [end for run in runs for end in _cut(cost, run, total / parts)]
        largest = max(
            (cost.between(begin, end) for begin, end in _ranges(ends) if not cost.alone[end]), default=0
        )
        peak = cost.kept(ends) + largest
        if best is None or (peak, len(ends)) < best[:2]:
            best = (peak, len(ends), ends)
    assert best is not None
    return best[2] if best[0] < _WORTH * total else None


def _numbers(count: int) -> list[int]:
    most = max(2, round(4 * math.sqrt(count)))
    return sorted({round(2 * 1.3**power) for power in range(16) if 2 * 1.3**power <= most})


def _ranges(ends: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


def _runs(cost: Cost) -> list[_Run]:
    """The graph without the nodes that stand alone, which are runs of one node each."""
    runs: list[_Run] = []
    begin = 0
    share = max(1.0, cost.between(0, cost.count - 1) / _MOST_PLACES)
    for index, alone in enumerate([*cost.alone, True]):
        if not alone:
            continue
        if index > begin:
            runs.append(_Run(begin, _places(cost, begin, index - 1, share)))
        if index < cost.count:
            runs.append(_Run(index, [index]))
        begin = index + 1
    return runs


def _places(cost: Cost, begin: int, end: int, share: float) -> list[int]:
    """The last place, and of the others that with the fewest bytes across in each ``share`` of the bytes."""
    best: dict[int, int] = {}
    for place in range(begin, end):
        if place in cost.closed:
            continue
        bin_ = int(cost.between(begin, place) / share)
        known = best.get(bin_)
        if known is None or cost.crossing[place] <= cost.crossing[known]:
            best[bin_] = place
    return [*best.values(), end]


def _cut(cost: Cost, run: _Run, bound: float) -> list[int]:
    """The cheapest cuts of a run into segments of at most ``bound`` bytes, where the places allow that."""
    starts = [run.begin, *(place + 1 for place in run.places)]
    least = [0.0] + [math.inf] * len(run.places)
    before = [0] * (len(run.places) + 1)
    for number, place in enumerate(run.places, 1):
        crossing = cost.crossing[place]
        for earlier in range(number - 1, -1, -1):
            if earlier < number - 1 and cost.between(starts[earlier], place) > bound:
                break
            if least[earlier] + crossing < least[number]:
                least[number], before[number] = least[earlier] + crossing, earlier
    ends: list[int] = []
    number = len(run.places)
    while number:
        ends.append(run.places[number - 1])
        number = before[number]
    return ends[::-1]
