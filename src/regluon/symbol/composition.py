"""Applying operators to Symbols, and replacing a Symbol's variables by other Symbols."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import MXNetError
from ..base.naming import current_attributes, current_manager
from ..graph.node import Entry, Node, arguments_of, rebuild, topological
from ..ops.opdef import OpDef
from ..passes.amp import Caster, constraints_of
from ..runtime.handles import kinds, user_location
from ..runtime.invoke import definition_attrs
from ..runtime.state import state

__all__ = ["HIDDEN", "apply_operator", "compose", "user_attributes"]

# Attributes that are kept between double underscores, and read under both names.
HIDDEN = frozenset(("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope"))
# What the names of operators of the NumPy kind begin with.
_PREFIX = re.compile(r"^_np[ix]?_")


def _between_underscores(key: str) -> str:
    return key if key.startswith("__") else f"__{key}__"


def user_attributes(attr: Mapping[str, Any] | None, of_operator: bool = False) -> dict[str, str]:
    """Free attributes as they are kept, completed by the AttrScope that is open.

    Those of operators are all kept between double underscores, apart from the operator's parameters.

    Raises
    ------
    ValueError
        If a value is no string.
    """
    for key, value in (attr or {}).items():
        if not isinstance(value, str):
            raise ValueError(
                f"Set Attr only accepts string values: the attribute {key!r} is {type(value).__name__}"
            )
    merged = current_attributes(dict(attr or {}))
    return {
        _between_underscores(key) if of_operator or key in HIDDEN else key: value
        for key, value in merged.items()
    }


def apply_operator(
    cls: Any,
    definition: OpDef,
    arrays: Sequence[Any],
    attrs: dict[str, Any],
    name: str | None,
    user: Mapping[str, Any] | None,
    hint: str | None = None,
) -> Any:
    """An operator on Symbols; missing inputs become variables named after the node.

    ``hint`` is the name of the function that was called: nodes without a name are called after it.
    """
    free = {key for key in attrs if key[:2] == "__" or (key in HIDDEN and key not in definition.parameters)}
    given = definition_attrs(definition, {key: value for key, value in attrs.items() if key not in free})
    text = user_attributes(user, of_operator=True)
    text.update({_between_underscores(key): str(attrs[key]) for key in free})
    name = current_manager().get(name, (hint or _PREFIX.sub("", definition.name)).lower())
    entries = _entries(definition, arrays)
    if definition.variadic:
        present = [entry for entry in entries if entry is not None]
        kept = _variadic(definition, given, attrs, present, name, text)
    else:
        kept = _completed(definition, given, entries, name, text)
    if state.amp is not None:
        kept = _in_precision(definition, kept, given, text)
    node = Node(definition, name, kept, given, text, location=user_location())
    return cls._of([Entry(node, index) for index in range(node.visible)])


# Casts of Symbols that are composed under mixed precision, so that a value is cast once.
_casters: list[Caster] = []
_MOST_CASTS = 10_000


def _in_precision(
    definition: OpDef, entries: Sequence[Entry], given: dict[str, Any], text: Mapping[str, str]
) -> list[Entry]:
    """The inputs with the casts that the mixed precision of this thread wants."""
    if not _casters or len(_casters[0]) > _MOST_CASTS:
        _casters[:] = [Caster()]
    full = {**definition.defaults, **given}
    return list(_casters[0].inputs(state.amp, definition, entries, full, constraints_of(text)))


def _entries(definition: OpDef, arrays: Sequence[Any]) -> list[Entry | None]:
    entries: list[Entry | None] = []
    for place, array in enumerate(arrays):
        if array is None:
            entries.append(None)
        elif isinstance(array, kinds.symbol):
            entries.append(array._single())
        else:
            names = definition.inputs
            label = names[place] if place < len(names) and not definition.variadic else f"arg{place}"
            raise TypeError(
                f"type {type(array)} not supported: an operator takes all Symbols or all arrays, and "
                f"argument {label} of {definition.name} must be a Symbol"
            )
    return entries


def _variadic(
    definition: OpDef,
    given: dict[str, Any],
    attrs: Mapping[str, Any],
    entries: list[Entry],
    name: str,
    text: dict[str, str],
) -> list[Entry]:
    """The inputs of an operator that takes any number of them; a count alone makes variables."""
    if definition.active is not None:
        labels = definition.input_names({**definition.defaults, **given}, len(entries))
        inherited = {**definition.format(given), **text}
        for label in labels[len(entries) :]:
            entries.append(Entry(_variable(definition, name, label, inherited), 0))
    key = definition.num_args_key
    if key is None or key not in definition.parameters:
        return entries
    wanted = int(attrs.get(key) or 0)
    if not entries and wanted:
        names = definition.input_names(given, wanted)
        entries = [Entry(Node(None, f"{name}_{label}"), 0) for label in names]
    given[key] = len(entries)
    return entries


def _completed(
    definition: OpDef, given: dict[str, Any], entries: list[Entry | None], name: str, text: dict[str, str]
) -> list[Entry]:
    """The inputs with a variable for each that is missing and in use."""
    full = {**definition.defaults, **given}
    wanted = definition.input_names(full)
    optional_from = len(definition.inputs) - len(definition.optional)
    inherited = {**definition.format(given), **text}
    kept = []
    entries = definition.in_use(entries, full)
    for place, label in enumerate(wanted):
        entry = entries[place] if place < len(entries) else None
        if entry is None:
            if definition.active is None and label in definition.optional and place >= optional_from:
                continue
            entry = Entry(_variable(definition, name, label, inherited), 0)
        kept.append(entry)
    return kept


def _variable(definition: OpDef, name: str, label: str, inherited: Mapping[str, str]) -> Node:
    """The variable for a missing input of the node ``name``, with the node's attributes."""
    user = dict(inherited)
    if label in definition.initial:
        user["__init__"] = definition.initial[label]
    variable = Node(None, f"{name}_{label}", user=user)
    variable.is_aux = label in definition.aux
    return variable


def compose(symbol: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The graph with variables replaced; see `Symbol.__call__`."""
    name = kwargs.pop("name", None)
    if args and kwargs:
        raise TypeError(
            "compose only accept input Symbols either as positional or keyword arguments, not both"
        )
    entries = symbol._list()
    arguments = arguments_of(topological(entries))[0]
    by_name = {node.name: node for node in arguments}
    if len(args) > len(arguments):
        raise MXNetError(
            f"this Symbol has {len(arguments)} arguments ({', '.join(by_name)}); received {len(args)}"
        )
    pairs = [*zip(arguments, args, strict=False)]
    for key, value in kwargs.items():
        if key not in by_name:
            raise MXNetError(
                f"Symbol.Compose: Keyword argument name {key} not found. Candidate arguments: "
                f"{', '.join(by_name)}"
            )
        pairs += [(node, value) for node in arguments if node.name == key]
    replaced = {}
    for node, value in pairs:
        if not isinstance(value, kinds.symbol):
            raise TypeError(f"Compose expect `Symbol` as arguments: {node.name} is {type(value).__name__}")
        replaced[id(node)] = value._single()
    heads = {id(entry.node) for entry in entries} if name is not None else set()

    def substitute(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        if id(node) in replaced:
            return [replaced[id(node)]]
        if id(node) not in heads or node.op is None:
            return None
        renamed = node.__copy__()
        renamed.inputs, renamed.name = inputs, current_manager().get(name, node.op.name.lower())
        return [Entry(renamed, index) for index in range(renamed.outputs)]

    return type(symbol)._of(rebuild(entries, substitute))
