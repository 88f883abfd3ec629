"""What calls of one block teach: numbers that keep changing, and that it cannot be recorded as it is."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from ..runtime.handles import kinds
from .epoch import clock, fingerprint
from .structure import lifted_numbers, numbers_in, without_numbers

__all__ = ["Broken", "ChangingNumbers"]

# So many values of one number are recorded as constants before it becomes an input.
MOST_CONSTANTS = 3


class Broken:
    """That a block cannot be recorded, for as long as nothing of it changes."""

    __slots__ = ("block", "epoch", "mark", "reason")

    def __init__(self, reason: str, block: Any) -> None:
        self.reason, self.block = reason, block
        self.epoch, self.mark = clock.now, fingerprint(block)

    def holds(self) -> bool:
        """Whether the block is still the same."""
        if self.epoch != clock.now:
            if self.mark != fingerprint(self.block):
                return False
            self.epoch = clock.now
        return True


class ChangingNumbers:
    """Numbers among the arguments. One that keeps changing becomes an input instead of a constant."""

    def __init__(self) -> None:
        self.lifted: dict[Any, frozenset[int]] = {}
        self._seen: dict[Any, list[set[Any]]] = {}

    def notice(self, structure: Any) -> bool:
        """Note the numbers of a call that no graph was found for; tells whether some are now inputs."""
        numbers = numbers_in(structure)
        if not numbers:
            return False
        common = without_numbers(structure)
        if common in self.lifted:
            return False
        seen = self._seen.setdefault(common, [set() for _ in numbers])
        for known, number in zip(seen, numbers, strict=True):
            known.add(number)
        places = frozenset(place for place, known in enumerate(seen) if len(known) > MOST_CONSTANTS)
        if places:
            self.lifted[common] = places
            del self._seen[common]
        return bool(places)

    def lift(self, structure: Any, flat: list[Any]) -> Any:
        """The structure with its changing numbers taken out; they are appended to ``flat`` as 0-d arrays."""
        places = self.lifted.get(without_numbers(structure))
        if not places:
            return structure
        structure, taken = lifted_numbers(structure, places)
        context = flat[0]._ctx
        for number in taken:
            dtype = torch.int64 if isinstance(number, (int, numpy.integer)) else torch.float64
            flat.append(
                kinds.nd._wrap(
                    torch.tensor(number, dtype=dtype),
                    context,
                )
            )
        return structure

    def give_up(self, structure: Any) -> None:
        """Keep the numbers of such calls as constants from now on."""
        self.lifted[without_numbers(structure)] = frozenset()

    @staticmethod
    def count(structure: Any) -> int:
        """How many numbers of a structure are inputs."""
        if not isinstance(structure, tuple):
            return 0
        if structure[0] == "number":
            return 1
        items = (item for _, item in structure[1:]) if structure[0] in ("dict", "keywords") else structure[1:]
        return sum(ChangingNumbers.count(item) for item in items)
