"""Constraints on optimizations: scopes whose operators are marked in the recorded graph.

A mark is the node attribute ``__opt_constraint__``, a mask of `OptConstraint.Flag` as decimal digits. It is
written to files and read from them, so that whoever transforms the graph later knows.
"""

from __future__ import annotations

import enum
from typing import Any

from ..runtime.state import state

__all__ = ["OptConstraint", "get_optimization_constraints", "set_optimization_constraints"]


def get_optimization_constraints() -> int:
    """The constraint mask of this thread."""
    return state.constraints


def set_optimization_constraints(mask: int) -> int:
    """Set the constraint mask of this thread; gives what it was.

    Raises
    ------
    ValueError
        If the mask has unknown bits.
    """
    known = sum(flag.value for flag in OptConstraint.Flag)
    if int(mask) & ~known:
        raise ValueError(
            f"an optimization constraint is a mask of HybridBlock.OptConstraint.Flag (known bits: {known}); "
            f"received {mask!r}"
        )
    before, state.constraints = state.constraints, int(mask)
    return before


class OptConstraint:
    """A scope in which every recorded operator is marked with a constraint.

    Parameters
    ----------
    flag : OptConstraint.Flag
        The constraint, added to those of the scopes around.
    """

    class Flag(enum.IntFlag):
        """Bits of the constraint mask."""

        DisableAMP = 1

    def __init__(self, flag: int) -> None:
        self._flag = int(flag)
        self._before: list[int] = []

    def __enter__(self) -> OptConstraint:
        mask = get_optimization_constraints()
        self._before.append(mask)
        set_optimization_constraints(mask | self._flag)
        return self

    def __exit__(self, *exception: Any) -> None:
        set_optimization_constraints(self._before.pop())

    @staticmethod
    def disable_amp() -> OptConstraint:
        """The scope whose operators automatic mixed precision leaves in their type."""
        return OptConstraint(OptConstraint.Flag.DisableAMP)
