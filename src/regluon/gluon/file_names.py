"""Which array of a file belongs to which parameter: every way in which MXNet has written names."""

from __future__ import annotations

import json
import re
import struct
from typing import Any, BinaryIO

__all__ = ["append_aliases", "bare", "match", "read_aliases"]

_COUNTED = re.compile(r"([A-Za-z][A-Za-z0-9]*?)(\d+)_")
_MARK = b"regluon aliases\x00"


def bare(name: str) -> str:
    """A name without the ``arg:`` or ``aux:`` of an export."""
    return name[4:] if name[:4] in ("arg:", "aux:") else name


def match(block: Any, parameters: dict[str, Any], values: dict[str, Any]) -> dict[str, str]:
    """For each parameter (by structural name) the name in the file.

    Structural names, full names, names with another or no common prefix are tried in this order. Where
    nothing fits, names that differ by the counters of blocks only (``dense0_weight``, ``dense3_weight``) are
    taken in the order of these counters.
    """
    prefix = block.prefix or _common_prefix([p.name for p in parameters.values()])
    common = _common_prefix(list(values))
    by_id: dict[int, str] = {}
    chosen: dict[str, str] = {}
    for name, parameter in parameters.items():
        full = parameter.name
        candidates = [name]
        if full != name and (block._level == 1 or full not in ("weight", "bias")):
            candidates.append(full)
            if prefix and full.startswith(prefix):
                candidates += [full[len(prefix) :], common + full[len(prefix) :]]
        for candidate in candidates:
            if candidate in values:
                chosen[name] = candidate
                by_id.setdefault(id(parameter), candidate)
                break
    if not chosen and block._level == 1:
        chosen = _match_counters(parameters, values)
    for name, parameter in parameters.items():
        if name not in chosen and id(parameter) in by_id:
            chosen[name] = by_id[id(parameter)]
    return chosen


def _match_counters(parameters: dict[str, Any], values: dict[str, Any]) -> dict[str, str]:
    """Match names that are the same but for counters; nothing unless all of them fit, with their shapes."""
    by_order = dict(zip(_without_counters(list(values)), values, strict=True))
    own = _without_counters([parameter.name for parameter in parameters.values()])
    if set(own) != set(by_order) or len(by_order) != len(values):
        return {}
    chosen = {name: by_order[key] for name, key in zip(parameters, own, strict=True)}
    for name, key in chosen.items():
        shape = parameters[name]._shape
        sizes = tuple(values[key].shape)
        if shape is not None and (
            len(shape) != len(sizes)
            or any(size > 0 and size != other for size, other in zip(shape, sizes, strict=True))
        ):
            return {}
    return chosen


def _without_counters(names: list[str]) -> list[str]:
    """The names with each block's counter replaced by its place among the counters of its siblings."""
    split = []
    for name in names:
        end, parts = 0, []
        while (found := _COUNTED.match(name, end)) is not None:
            parts.append((found[1], int(found[2])))
            end = found.end()
        split.append((parts, name[end:]))
    siblings: dict[Any, set[int]] = {}
    for parts, _ in split:
        for depth, (kind, number) in enumerate(parts):
            siblings.setdefault((tuple(parts[:depth]), kind), set()).add(number)
    results = []
    for parts, rest in split:
        text = ""
        for depth, (kind, number) in enumerate(parts):
            place = sorted(siblings[tuple(parts[:depth]), kind]).index(number)
            text += f"{kind}{place}_"
        results.append(text + rest)
    return results


def _common_prefix(names: list[str]) -> str:
    """The block prefix that all names share, up to an underscore."""
    if len(names) < 2:
        return ""
    common = _shared_start(names)
    return common[: common.rfind("_") + 1]


def _shared_start(names: list[str]) -> str:
    first, last = min(names), max(names)
    length = next(
        (i for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first)
    )
    return first[:length]


def append_aliases(stream: BinaryIO, aliases: dict[str, str]) -> None:
    """Note, behind a binary list, further names of its arrays; other readers end before it."""
    if aliases:
        text = json.dumps(aliases).encode()
        stream.write(text + struct.pack("<I", len(text)) + _MARK)


def read_aliases(path: Any) -> dict[str, str]:
    """Further names of the arrays in a file: ``{another name: name}``, if `append_aliases` wrote some."""
    with open(path, "rb") as stream:
        size = stream.seek(0, 2)
        tail = len(_MARK) + 4
        if size < tail:
            return {}
        stream.seek(size - tail)
        end = stream.read(tail)
        (length,) = struct.unpack("<I", end[:4])
        if end[4:] != _MARK or length > size - tail:
            return {}
        stream.seek(size - tail - length)
        try:
            found = json.loads(stream.read(length))
        except ValueError:
            return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
