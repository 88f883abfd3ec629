"""Names of parameters in files: the spellings of both generations, and rules that turn one into another.

====================== =============================================
========================================== spelling               example
where ====================== =============================================
========================================== structural             ``features.0.weight``
save_parameters of both, exports of 2.0 full                   ``net0_conv0_weight``
ParameterDict.save of 1.x export                 ``arg:net0_conv0_weight``, ``aux:...``        export,
checkpoints ====================== =============================================
==========================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regluon.base.errors import MXNetError

__all__ = ["NamingError", "Rule", "bare", "matched", "renaming", "tagged"]

_TAGS = ("arg:", "aux:")
_AUXILIARY = re.compile(r"(?:^|[._])(?:running|moving)_(?:mean|var)$")
_ENDING = re.compile(
    r"(?:^|[._])((?:[a-z0-9]+2[a-z0-9]+_)?(?:weight|bias|gamma|beta|alpha|mean|var|parameters))$"
)


class NamingError(MXNetError, ValueError):
    """Names of a file cannot be turned into the wanted ones; the message says which."""


@dataclass(frozen=True)
class Rule:
    """A name and shape to match: ``shape`` is None, or has sizes of 0 or less, where unknown."""

    name: str
    shape: tuple[int, ...] | None = None


def bare(name: str) -> str:
    """A name without ``arg:`` or ``aux:``."""
    return name[4:] if name[:4] in _TAGS else name


def tagged(name: str, auxiliary: set[str] | None = None) -> str:
    """A name with ``arg:`` or ``aux:``; by its ending where it is not known which variables are auxiliary."""
    plain = bare(name)
    if auxiliary is None and name != plain:
        return name
    is_auxiliary = bool(_AUXILIARY.search(plain)) if auxiliary is None else plain in auxiliary
    return f"{'aux' if is_auxiliary else 'arg'}:{plain}"


def renaming(rules: Sequence[str]) -> Callable[[str], str]:
    """A function that applies ``PATTERN=TEXT`` rules (regular expressions, in order) to names.

    Raises
    ------
    NamingError
        If a rule has no ``=``, or is not a regular expression.
    """
    compiled = []
    for rule in rules:
        pattern, equals, text = rule.partition("=")
        if not equals or not pattern:
            raise NamingError(f"a renaming rule is PATTERN=TEXT; received {rule!r}")
        try:
            expression = re.compile(pattern)
            expression.sub(text, "")
        except (re.error, IndexError) as error:
            raise NamingError(f"the renaming rule {rule!r} is not a regular expression: {error}") from error
        compiled.append((expression, text))

    def rename(name: str) -> str:
        for expression, text in compiled:
            name = expression.sub(text, name)
        return name

    return rename


def _kind(name: str) -> str:
    """What a parameter is to its layer: the ending of its name."""
    found = _ENDING.search(bare(name).lower())
    return found.group(1) if found else ""


def _in_order(rules: Sequence[Rule]) -> list[Rule]:
    """The rules in the order of the network: alphabetical lists are sorted with their numbers as numbers."""
    names = [rule.name for rule in rules]
    if names != sorted(names):
        return list(rules)
    parts = re.compile(r"(\d+)")
    return sorted(rules, key=lambda rule: [int(p) if p.isdigit() else p for p in parts.split(rule.name)])


def _fits(shape: tuple[int, ...] | None, wanted: tuple[int, ...] | None) -> bool:
    if shape is None or wanted is None:
        return True
    return len(shape) == len(wanted) and all(
        one == other or one <= 0 or other <= 0 for one, other in zip(shape, wanted, strict=True)
    )


def matched(present: Sequence[Rule], wanted: Sequence[Rule]) -> Mapping[str, str]:
    """Names of one network in two spellings: {present: wanted}, by order, ending and shape.

    Raises
    ------
    NamingError
        If the lists cannot be of one network: they differ in length, or a shape or ending does not fit.
    """
    kept = {bare(rule.name) for rule in wanted}
    if all(bare(rule.name) in kept for rule in present):
        tags = {bare(rule.name): rule.name for rule in wanted}
        return {rule.name: tags[bare(rule.name)] for rule in present}
    if len(present) != len(wanted):
        raise NamingError(
            f"{len(present)} parameters cannot be given {len(wanted)} names: the two files are not of one "
            "network"
        )
    result: dict[str, str] = {}
    groups: dict[str, list[Rule]] = {}
    for rule in _in_order(wanted):
        groups.setdefault(_kind(rule.name), []).append(rule)
    for rule in _in_order(present):
        group = groups.get(_kind(rule.name)) or []
        if not group or not _fits(rule.shape, group[0].shape):
            received = f"'{group[0].name}' of shape {group[0].shape}" if group else "none left of that ending"
            raise NamingError(
                f"'{rule.name}' of shape {rule.shape} has no counterpart: the next name in order is "
                f"{received}. Compare with a file (best a -symbol.json) of the same network, or give names "
                "with --rename"
            )
        result[rule.name] = group.pop(0).name
    return result
