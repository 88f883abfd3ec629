"""One counter that moves whenever an array is given another tensor, or a parameter other arrays.

Who keeps something made from the tensors of many parameters sees by it that they are still the same ones; of
writes into a tensor torch counts the versions.
"""

from __future__ import annotations

__all__ = ["rebound"]


class _Counter:
    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0

    def tick(self) -> None:
        """An array or a parameter has something else; to be called after that, never before."""
        self.now += 1


rebound = _Counter()
