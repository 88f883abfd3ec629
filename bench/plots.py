"""The pictures of docs/benchmarks.md, by matplotlib where it is installed."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from .summary import verdicts
from .works import PEERS, WORKS

REACHED, MISSED, BAR = "#3a7d44", "#b5651d", "#222222"


def draw(results: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Write the pictures; returns (title, file name) of each, none without matplotlib or results."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    samples = {name: results["works"][name]["samples"] for name in WORKS if name in results["works"]}
    pictures = [
        ("Ratios to the best peer, and the bars", "benchmarks-bars.png", _bars),
        ("Every peer's median, as a multiple of the best one's", "benchmarks-peers.png", _peers),
    ]
    return [(title, name) for title, name, make in pictures if make(samples, title, folder / name)]


def _bars(samples: dict[str, Any], title: str, file: Path) -> bool:
    rows = []
    for name, found in samples.items():
        for verdict in verdicts(WORKS[name], found, samples):
            if verdict.ratio and verdict.bar in WORKS[name].bars and not verdict.bar.absolute:
                rows.append((f"{WORKS[name].title}  ({verdict.against})", verdict, verdict.ratio))
    if not rows:
        return False
    axes = _axes(len(rows))
    for height, (_, verdict, found) in enumerate(rows):
        color = REACHED if verdict.reached else MISSED
        axes.barh(height, found.value, color=color, height=0.6)
        axes.plot([found.low, found.high], [height, height], color=BAR, linewidth=1)
        axes.plot([verdict.bar.limit] * 2, [height - 0.42, height + 0.42], color=BAR, linewidth=2.5)
    _label(axes, [label for label, *_ in rows], "ratio of medians (lower is better); the mark is the bar")
    return _save(axes, title, file)


def _peers(samples: dict[str, Any], title: str, file: Path) -> bool:
    rows = [(WORKS[name].title, found) for name, found in samples.items() if found]
    if not rows:
        return False
    axes = _axes(len(rows))
    for number, peer in enumerate(PEERS):
        points = []
        for height, (_, found) in enumerate(rows):
            if found.get(peer):
                best = min(statistics.median(values) for values in found.values())
                points.append((statistics.median(found[peer]) / best, height))
        if points:
            style = {"s": 60, "color": "black", "zorder": 3} if number == 0 else {"s": 28, "alpha": 0.85}
            axes.scatter(*zip(*points, strict=True), label=peer, **style)
    _label(axes, [label for label, _ in rows], "multiple of the best median (1 is the best)")
    axes.legend(loc="lower right", fontsize=8)
    return _save(axes, title, file)


def _axes(rows: int) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(9, 1.4 + 0.28 * rows), layout="constrained").add_subplot()


def _label(axes: Any, names: list[str], meaning: str) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel(meaning)
    axes.grid(axis="x", which="both", alpha=0.25)


def _save(axes: Any, title: str, file: Path) -> bool:
    axes.set_title(title, fontsize=10)
    axes.figure.savefig(file, dpi=90, metadata={"Software": None})
    return True
