"""Automatic mixed precision: which type an operator computes in, and the pass that writes the casts.

An operator's class is the field ``amp`` of its definition: ``"low"`` computes in the low precision (matrix
products and convolutions), ``"float32"`` in float32 (exponentials, sums, norms, losses), ``"widest"`` in
the widest type among its inputs; any other takes its inputs as they come. Values of 64 bits and integers are
never cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..base import dtypes
from ..graph.node import CONSTRAINT, Entry, Node, rebuild, topological
from ..graph.types import output_types
from ..ops.opdef import OpDef
from ..ops.registry import get

__all__ = [
    "CONDITIONAL",
    "Caster",
    "Policy",
    "Types",
    "cast_goals",
    "cast_name",
    "cast_parameters",
    "constraints_of",
    "insert_casts",
]

LOW = (torch.float16, torch.bfloat16)
# Operators that need float32 for some value of an attribute: they compute exponentials then.
CONDITIONAL: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Activation", "act_type", ("softrelu",)),
    ("LeakyReLU", "act_type", ("elu", "selu")),
)
_CASTS = frozenset(("Cast", "amp_cast", "amp_multicast"))
_DISABLED = 1
Make = Callable[[Entry, torch.dtype], Entry]


class Policy:
    """Which type every operator computes in.

    Parameters
    ----------
    target : torch.dtype
        The low precision: torch.float16 or torch.bfloat16.
    low, float32 : iterable of str, optional
        Names that take the place of all operators of that class.
    conditional : iterable of (name, attribute, values), optional
        Takes the place of `CONDITIONAL`.
    excluded : iterable of str
        Names of nodes that compute in float32.
    """

    __slots__ = ("_classes", "_conditional", "_hash", "_key", "excluded", "target")

    def __init__(
        self,
        target: torch.dtype,
        low: Iterable[str] | None = None,
        float32: Iterable[str] | None = None,
        conditional: Iterable[tuple[str, str, Sequence[str]]] | None = None,
        excluded: Iterable[str] = (),
    ) -> None:
        self.target = target
        self.excluded = frozenset(excluded)
        self._classes = {
            kind: None if names is None else frozenset(get(name).name for name in names)
            for kind, names in (("low", low), ("float32", float32))
        }
        rules: dict[str, list[tuple[str, frozenset[str]]]] = {}
        for name, attribute, values in CONDITIONAL if conditional is None else conditional:
            rules.setdefault(get(name).name, []).append((attribute, frozenset(map(str, values))))
        self._conditional = rules
        self._key = (target, *self._classes.values(), repr(sorted(rules.items(), key=repr)), self.excluded)
        self._hash = hash(self._key)

    # Hybridized blocks keep a graph for every policy they ran under.
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Policy) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<mixed precision with {dtypes.to_name(self.target)}>"

    def listed(self, definition: OpDef) -> str | None:
        """The class of an operator, whatever its attributes are."""
        low, float32 = self._classes["low"], self._classes["float32"]
        if low is not None and definition.name in low:
            return "low"
        if float32 is not None and definition.name in float32:
            return "float32"
        own = definition.amp
        return None if own in self._classes and self._classes[own] is not None else own

    def wanted(self, definition: OpDef, attrs: Mapping[str, Any], constraints: int = 0) -> str | None:
        """The class of one call of an operator with all its attributes."""
        if constraints & _DISABLED and definition.name not in _CASTS:
            return "float32"
        for attribute, values in self._conditional.get(definition.name, ()):
            if str(attrs.get(attribute)) in values:
                return "float32"
        return self.listed(definition)


def cast_goals(
    definition: OpDef, wanted: str, types: Sequence[torch.dtype | None], target: torch.dtype
) -> list[torch.dtype | None] | None:
    """What each input is to be cast to (None: left as it is); None where no input is cast.

    ``types`` has None for an absent input. Inputs that the operator writes to are never cast.
    """
    floats = {dtype for dtype in types if dtype is torch.float32 or dtype in LOW}
    if torch.float64 in types or not floats:
        return None
    if wanted == "low":
        goal = target
    elif wanted == "float32" or len(floats) > 1:
        goal = torch.float32
    else:
        return None
    kept = {*definition.aux, *definition.mutates}
    goals = [goal if dtype in floats and dtype is not goal else None for dtype in types]
    if kept and not definition.variadic:
        goals = [None if n in kept else g for n, g in zip(definition.inputs, goals, strict=False)]
    return goals if any(goal is not None for goal in goals) else None


def cast_name(entry: Any, goal: torch.dtype) -> str:
    """What the node that casts a value is called."""
    return f"{entry.node.output_name(entry.index)}_amp_cast_{dtypes.to_name(goal)}"


class Types:
    """The types of a graph's values: from their specs where known, else forward by the operators' rules.

    ``given`` are types of variables by their ids; a variable of which nothing is known is float32.
    """

    def __init__(self, given: Mapping[int, torch.dtype] | None = None, specs: bool = True) -> None:
        self._given = given or {}
        self._specs = specs
        # The nodes are kept so that their ids stay their own.
        self._found: dict[int, tuple[Node, Sequence[torch.dtype]]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def of(self, entry: Any) -> torch.dtype:
        """The type of one value."""
        if self._specs and entry.node.specs is not None:
            return entry.node.specs[entry.index].dtype  # type: ignore[no-any-return]
        stack = [entry.node]
        while stack:
            node = stack[-1]
            waiting = [e.node for e in node.inputs if id(e.node) not in self._found]
            if waiting and not self._knows(node):
                stack.extend(waiting)
                continue
            stack.pop()
            if id(node) not in self._found:
                self._found[id(node)] = (node, self._types(node))
        found = self._found[id(entry.node)][1]
        dtype: torch.dtype = found[min(entry.index, len(found) - 1)]
        return dtype

    def _knows(self, node: Node) -> bool:
        return id(node) in self._found or (self._specs and node.specs is not None)

    def _types(self, node: Node) -> Sequence[torch.dtype]:
        if self._specs and node.specs is not None:
            return [spec.dtype for spec in node.specs]
        if node.op is not None:
            return output_types(node, [self.of(entry) for entry in node.inputs])
        known = self._given.get(id(node))
        code = node.user.get("__dtype__")
        if known is None and getattr(node.value, "dtype", None) is not None:
            known = dtypes.to_torch(node.value.dtype)
        if known is None and code not in (None, "-1", "None"):
            known = dtypes.to_torch(int(code))
        return [known or torch.float32]


class Caster:
    """Casts the inputs of one operator after another; a value that is cast twice to one type is cast once."""

    def __init__(self, types: Types | None = None) -> None:
        self.types = Types() if types is None else types
        self._casts: dict[tuple[int, int, torch.dtype], tuple[Entry, Entry]] = {}

    def __len__(self) -> int:
        """How many values are remembered."""
        return len(self._casts) + len(self.types)

    def cast(self, entry: Entry, goal: torch.dtype, make: Make | None = None) -> Entry:
        """A value in another type, by ``make(entry, type)`` if it was not cast to that before."""
        key = (id(entry.node), entry.index, goal)
        if key not in self._casts:
            self._casts[key] = ((make or _cast_node)(entry, goal), entry)
        return self._casts[key][0]

    def inputs(
        self,
        policy: Policy,
        definition: OpDef,
        entries: Sequence[Entry],
        attrs: Mapping[str, Any],
        constraints: int = 0,
        make: Make | None = None,
    ) -> Sequence[Entry]:
        """The inputs of an operator with all its attributes in the types that ``policy`` wants."""
        wanted = policy.wanted(definition, attrs, constraints)
        if wanted is None:
            return entries
        found = [self.types.of(entry) for entry in entries]
        goals = cast_goals(definition, wanted, found, policy.target)
        if goals is None:
            return entries
        return [e if g is None else self.cast(e, g, make) for e, g in zip(entries, goals, strict=True)]


def _cast_node(entry: Any, goal: torch.dtype) -> Entry:
    return Entry(Node(get("amp_cast"), cast_name(entry, goal), [entry], {"dtype": goal}), 0)


def insert_casts(entries: Sequence[Entry], policy: Policy, given: Mapping[str, Any]) -> list[Entry]:
    """A copy of a graph with the casts that ``policy`` asks for.

    Its outputs have the types they had. ``given`` are torch types of variables by name. Marks of
    ``OptConstraint.disable_amp`` are heeded.
    """
    before = Types(_by_id(topological(entries), given))
    kept = [before.of(entry) for entry in entries]
    # A copy of our own, of which the inputs are then set: symbolic sizes among the attributes stay right.
    copies = rebuild(entries, fresh=True)
    order = topological(copies)
    caster = Caster(types=Types(_by_id(order, given), specs=False))
    for node in order:
        if node.op is not None:
            node.specs = None
            mask = constraints_of(node.user) | (_DISABLED if node.name in policy.excluded else 0)
            node.inputs = tuple(caster.inputs(policy, node.op, node.inputs, node.full_attrs, mask))
    return [
        caster.cast(entry, dtype) if dtype is torch.float32 and caster.types.of(entry) in LOW else entry
        for entry, dtype in zip(copies, kept, strict=True)
    ]


def constraints_of(user: Mapping[str, str] | None) -> int:
    """The constraint mask among the free attributes of a node."""
    return int(user.get(CONSTRAINT, "0")) if user else 0


def _by_id(order: Iterable[Node], given: Mapping[str, Any]) -> dict[int, torch.dtype]:
    return {id(node): given[node.name] for node in order if node.op is None and node.name in given}


def cast_parameters(
    entries: Sequence[Entry], names: Iterable[str], target: torch.dtype
) -> tuple[list[Entry], set[str]]:
    """The graph with variables of type ``target`` where all that is done with one is to cast it to that.

    Gives the new outputs and the names of these variables, which are among ``names``.
    """
    names = set(names)
    order = topological(entries)
    others: set[str] = {entry.node.name for entry in entries if entry.node.op is None}
    cast: set[str] = set()
    for node in order:
        ours = node.op is not None and node.op.name == "amp_cast" and node.attrs.get("dtype") is target
        (cast if ours else others).update(e.node.name for e in node.inputs if e.node.op is None)
    chosen = (cast & names) - others
    code = str(dtypes.to_flag(target))

    def replace(node: Node, inputs: tuple[Entry, ...]) -> Sequence[Entry] | None:
        if node.op is None:
            if node.name not in chosen:
                return None
            new = node.__copy__()
            new.specs, new.user = None, {**node.user, "__dtype__": code}
            return [Entry(new, 0)]
        ours = node.op.name == "amp_cast" and inputs[0].node.op is None and inputs[0].node.name in chosen
        return list(inputs) if ours else None

    return rebuild(entries, replace), chosen
