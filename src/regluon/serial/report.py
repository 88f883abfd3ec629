"""Tables of what `inspection` finds, for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["print_report", "size_text"]


def size_text(count: int) -> str:
    """A number of bytes for people."""
    if count < 1000:
        return f"{count} bytes"
    power = min((len(str(count)) - 1) // 3, 4)
    return f"{count / 1000**power:.1f} {' KMGT'[power]}B"


def print_report(found: Sequence[dict[str, Any]], console: Console, every: bool = False) -> None:
    """Print a table for each file that could be read; long lists are cut unless ``every`` line is wanted."""
    for facts in found:
        if facts["kind"] == "unreadable":
            continue
        console.print(f"[bold]{escape(facts['file'])}[/bold]", soft_wrap=True)
        table = Table(show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        limit = None if every else 12
        for title, lines in _rows(facts, limit):
            table.add_row(title, escape("\n".join(lines)))
        console.print(table)


def _rows(facts: dict[str, Any], limit: int | None) -> list[tuple[str, list[str]]]:
    rows: list[tuple[str, list[str]]] = [("kind", [_kind(facts)]), ("size", [size_text(facts["bytes"])])]
    if facts["kind"] == "symbol":
        return rows + _symbol_rows(facts, limit)
    if facts["kind"] == "arrays":
        return rows + _array_rows(facts, limit)
    if facts["kind"] == "records":
        text = f"{facts['count']} of {facts['smallest']} to {facts['largest']} bytes"
        return [*rows, ("records", [text])]
    lines = [f"{index}: {_state(state)}" for index, state in facts["states"].items()]
    return [*rows, ("optimizer", [facts["optimizer"] or "not kept"]), ("states", _cut(lines, limit))]


def _kind(facts: dict[str, Any]) -> str:
    if facts["kind"] == "symbol":
        return f"symbol, MXNet {facts['mxnet_version']}, attributes under {facts['form']!r}"
    text = f"{facts['kind']}, {facts['format']}"
    return f"{text} {', '.join(facts['array_versions'])}" if facts.get("array_versions") else text


def _symbol_rows(facts: dict[str, Any], limit: int | None) -> list[tuple[str, list[str]]]:
    operators = [f"{count:5d} {name}" for name, count in facts["operators"].items()]
    rows = [("nodes", [str(facts["nodes"])]), ("operators", operators or ["none"])]
    if facts["unknown_operators"]:
        rows.append(("unknown here", facts["unknown_operators"]))
    rows.append(("inputs", [_variable(one) for one in facts["inputs"]] or ["none"]))
    for part in ("parameters", "auxiliary"):
        lines = [_variable(one) for one in facts[part]]
        rows.append((part, [f"{len(lines)}", *_cut(lines, limit)]))
    rows.append(("outputs", _cut(facts["outputs"], limit)))
    for part in ("without_value", "unused"):
        if facts.get(part):
            rows.append((part.replace("_", " "), _cut(facts[part], limit)))
    return rows


def _array_rows(facts: dict[str, Any], limit: int | None) -> list[tuple[str, list[str]]]:
    types = [f"{count} {name}" for name, count in facts["dtypes"].items()]
    rows = [
        ("arrays", [f"{facts['count']} in a {facts['container']}, {facts['elements']} elements"]),
        ("types", [", ".join(types) or "none"]),
    ]
    if set(facts["storage_types"]) - {"default"}:
        stored = [f"{count} {name}" for name, count in facts["storage_types"].items()]
        rows.append(("storage", [", ".join(stored)]))
    lines = [
        f"{index if array['name'] is None else array['name']} {_shape(array['shape'])} {array['dtype']}"
        f"{'' if array['storage'] == 'default' else ' ' + array['storage']} {size_text(array['bytes'])}"
        for index, array in enumerate(facts["arrays"])
    ]
    return [*rows, ("names" if facts["container"] == "dict" else "places", _cut(lines, limit))]


def _shape(shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return "(unknown)"
    return "(" + ", ".join("?" if size is None else str(size) for size in shape) + ")"


def _variable(variable: dict[str, Any]) -> str:
    return " ".join(filter(None, [variable["name"], _shape(variable["shape"]), variable["dtype"]]))


def _state(state: Any) -> str:
    if isinstance(state, list):
        return ", ".join(_state(part) for part in state)
    return f"{_shape(state['shape'])} {state['dtype']}" if isinstance(state, dict) else str(state)


def _cut(lines: list[str], limit: int | None) -> list[str]:
    if limit is None or len(lines) <= limit:
        return lines
    half = limit // 2
    return [*lines[:half], f"... {len(lines) - 2 * half} more (--all shows them)", *lines[-half:]]
