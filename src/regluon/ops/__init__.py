"""The operator table. One definition an operator (`defs/`); everything else is derived from it."""

from __future__ import annotations

from typing import Any

from . import registry
from .opdef import OpDef, Spec, operator
from .registry import get

__all__ = ["OpDef", "Spec", "get", "invoke", "list", "operator", "registry"]


def invoke(name: str, arrays: Any, attrs: dict[str, Any] | None = None, out: Any = None) -> Any:
    """Run the operator ``name`` on arrays (or compose Symbols).

    Parameters
    ----------
    name : str
        Any registered name or alias.
    arrays : sequence of NDArray or Symbol
        The inputs in order; None where an optional one is left out.
    attrs : dict, optional
        Attributes, typed or as MXNet's strings.
    out : array or list of arrays, optional
        Where the result is written.

    Returns
    -------
    array or list of arrays
        A list where the operator shows several outputs.

    Raises
    ------
    MXNetError
        For an unknown operator or attribute, or inputs that the operator refuses.
    """
    from ..runtime.invoke import invoke as run

    definition: Any = get(name)
    if definition.specialise is not None:
        definition = definition.specialise(attrs or {})
        arrays = definition.arrange(arrays, {})
    return run(definition, arrays, attrs or {}, out=out)


def list() -> Any:
    """All registered operator names and aliases, sorted."""
    return registry.list_names()
