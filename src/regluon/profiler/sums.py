"""The sums of a profiler's events as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .collector import Group, Sums

__all__ = ["as_json", "table"]

_HEADS = {
    "Time": ("Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)"),
    "Value": ("Last", "Min", "Max", "Avg"),
    "Memory": ("Min Use  (kB)", "Max Use  (kB)", "Avg Use  (kB)"),
}


def _numbers(kind: str, row: Sums) -> dict[str, float]:
    found = {"Min": row.smallest, "Max": row.largest, "Avg": row.total / row.count}
    if kind == "Memory":
        return found
    return {"Total": row.total, **found} if kind == "Time" else {"Last": row.last, **found}


def table(sums: dict[str, Group]) -> str:
    """The sums as a table for people."""
    sections = sorted((category, kind) for kind, group in sums.items() for category in group)
    lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
    for category, kind in sections:
        heads = ["Total Count", *_HEADS[kind]]
        lines += [category, "================="]
        lines.append(_row("Name", heads))
        lines.append(_row("----", ["-" * len(head) for head in heads]))
        for name, row in sums[kind][category].items():
            numbers = [f"{value:.4f}" for value in _numbers(kind, row).values()]
            lines.append(_row(name, [str(row.count), *numbers]))
        lines.append("")
    return "\n".join(lines) + "\n"


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:<25}{cells[0]:>16}{''.join(f' {cell:>16}' for cell in cells[1:])}"


def as_json(sums: dict[str, Group]) -> str:
    """The same as JSON."""
    found: dict[str, Any] = {
        kind: {
            category: {name: {"Count": row.count, **_numbers(kind, row)} for name, row in rows.items()}
            for category, rows in sorted(group.items())
        }
        for kind, group in sums.items()
        if group or kind != "Value"
    }
    return json.dumps({**found, "Unit": {"Time": "ms", "Memory": "kB"}}, indent=4)
