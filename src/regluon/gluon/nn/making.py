"""How layers make parameters and activation children, at both API levels."""

from __future__ import annotations

from typing import Any

from ..parameter import Parameter

__all__ = ["add_activation", "make_parameter"]


def make_parameter(block: Any, name: str, **keywords: Any) -> Any:
    """A parameter of ``block``: named with its prefix at level 1, by its attribute at level 2."""
    if block._level == 1:
        return block.params.get(name, **keywords)
    shared = block._params._shared
    if shared:
        for key in (name, shared.prefix + name):
            if key in shared:
                return shared[key]  # type: ignore[no-any-return]
    return Parameter(name, **keywords)


def add_activation(block: Any, activation: str | None) -> None:
    """The child ``act`` that applies an activation, or None."""
    from .activations import Activation

    if activation is None:
        block.act = None
    else:
        block.act = Activation(activation, prefix=f"{activation}_")
