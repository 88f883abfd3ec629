"""Automatic mixed precision of operators that run at once: the casts of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ops.opdef import OpDef
from ..ops.registry import get
from ..passes.amp import cast_goals
from .state import state

__all__ = ["cast_arrays"]


def cast_arrays(
    definition: OpDef,
    arrays: Sequence[Any],
    attrs: Mapping[str, Any],
    run: Callable[[OpDef, Sequence[Any], dict[str, Any], Any], list[Any]],
) -> Sequence[Any]:
    """The inputs of an operator in the types that the mixed precision of this thread wants.

    ``run`` runs an operator on arrays, so that gradients pass: they come back in the type before the cast.
    """
    policy = state.amp
    wanted = policy.wanted(definition, attrs, state.constraints)
    if wanted is None:
        return arrays
    types = [None if array is None or array._t is None else array._t.dtype for array in arrays]
    goals = cast_goals(definition, wanted, types, policy.target)
    if goals is None:
        return arrays
    cast = get("amp_cast")
    return [
        array if goal is None else run(cast, [array], {"dtype": goal}, type(array))[0]
        for array, goal in zip(arrays, goals, strict=True)
    ]
