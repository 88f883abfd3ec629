"""What a user says about precision, checked: the target type and lists of operators."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..base import dtypes
from ..base.errors import MXNetError
from ..ops import registry
from ..passes.amp import LOW, Policy

__all__ = ["AMPError", "policy_of", "target_of"]

Conditions = Iterable[tuple[str, str, Sequence[str]]]


class AMPError(MXNetError, AssertionError):
    """A wrong use of mixed precision (an AssertionError too, as in MXNet)."""


def target_of(target_dtype: Any) -> torch.dtype:
    """The low precision as a torch type.

    Raises
    ------
    AMPError
        If it is neither float16 nor bfloat16.
    """
    try:
        target = dtypes.to_torch(target_dtype)
    except (MXNetError, TypeError, ValueError):
        target = None
    if target not in LOW:
        raise AMPError(
            "AMP currently supports only float16 or bfloat16 as a target_dtype; received "
            f"{target_dtype!r}. On CPUs bfloat16 is the faster one"
        )
    return target


def _known(names: Iterable[str] | None, argument: str) -> list[str] | None:
    """Names of operators, each of which is there."""
    if names is None:
        return None
    if isinstance(names, str):
        raise TypeError(f"{argument} is a list of operator names; received the string {names!r}")
    result = list(names)
    unknown = [name for name in result if not registry.exists(name)]
    if unknown:
        near = difflib.get_close_matches(unknown[0], registry.list_names(), n=3)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        raise AMPError(f"{argument} names operators that are not there: {', '.join(unknown)}{hint}")
    return result


def policy_of(
    target_dtype: Any,
    low: Iterable[str] | None,
    float32: Iterable[str] | None,
    conditional: Conditions | None,
    excluded: Iterable[str] = (),
    argument: str = "target_dtype_ops",
) -> Policy:
    """The policy that a user's arguments ask for; each list that is given takes the place of the default one.

    Raises
    ------
    AMPError
        For an unknown type or operator, or an operator in two lists.
    """
    target = target_of(target_dtype)
    low = _known(low, argument)
    float32 = _known(float32, "fp32_ops")
    if conditional is not None:
        conditional = [tuple(rule) for rule in conditional]  # type: ignore[misc]
        if any(len(rule) != 3 for rule in conditional):
            raise AMPError(
                "conditional_fp32_ops is a list of (operator, attribute, list of values); received "
                f"{conditional!r}"
            )
        _known([rule[0] for rule in conditional], "conditional_fp32_ops")
    policy = Policy(target, low, float32, conditional, excluded)
    both = _in_both(low, float32, Policy(target))
    if both:
        raise AMPError(
            f"Ops cannot be in two or more lists. Common ops in {argument} and fp32_ops: {', '.join(both)}. "
            "A list that is given takes the place of the default one: give both lists, each operator in one"
        )
    return policy


def _in_both(low: list[str] | None, float32: list[str] | None, default: Policy) -> list[str]:
    """The names that a user put into one list while they are in the other too."""
    if low is not None and float32 is not None:
        own = {registry.get(name).name for name in float32}
        return [name for name in low if registry.get(name).name in own]
    names, other = (low, "float32") if low is not None else (float32 or [], "low")
    return [name for name in names if default.listed(registry.get(name)) == other]
