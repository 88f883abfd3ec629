"""Which variables of a graph are parameters, told by names, attributes and the operators that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["parameter_names"]

# How layers name the inputs that are parameters, as slots of operators and at the end of variables' names.
_ENDINGS = ("_weight", "_bias", "_gamma", "_beta", "_alpha", "_mean", "_var", "_parameters")
# Attributes that Gluon writes on the variables of parameters; in old files, inputs may carry some of them.
_ATTRIBUTES = ("__lr_mult__", "__wd_mult__", "__init__")


def parameter_names(variables: Mapping[str, Mapping[str, str]], uses: Iterable[tuple[str, str]]) -> set[str]:
    """Names of the variables that are parameters; all others are inputs, or labels of old networks.

    Parameters
    ----------
    variables : mapping
        Attributes of every variable by name.
    uses : iterable of (slot, name)
        For each use of a variable by a known operator, the name of the operator's input and the variable's.
    """
    found = {name for name in variables if f"_{name}".replace(".", "_").endswith(_ENDINGS)}
    data = set()
    for slot, name in uses:
        if f"_{slot}".endswith(_ENDINGS):
            found.add(name)
        elif slot == "data":
            data.add(name)
    for name, attributes in variables.items():
        if name not in data and any(key in attributes for key in _ATTRIBUTES):
            found.add(name)
    return found
