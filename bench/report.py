"""The page docs/benchmarks.md, written from the results and nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from .measure import MOST_FRESH_ROUNDS
from .summary import Verdict, verdicts
from .works import MXNET, PEERS, WORKS, Bar, Work

INTRODUCTION = """\
# Benchmarks

regluon beside its peers, each in an environment and a process of its own. In every round each peer has a
turn, one after another, with the same number of threads. A turn is some calls, and gives the median of their
times; a number is the median of the rounds, a ratio that of two medians (lower is better), followed by the
quartiles of the ratios of single rounds. A bar is what
regluon set out to reach; every one is listed, reached or not. What can be measured once a process only (first
calls, compilation, peak memory) has {fresh} rounds at most. `python bench/run.py` makes this page.
"""
QUICK = "**A quick run: few rounds and calls. Its numbers show that everything runs, and nothing else.**\n"
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def quantity(value: float, unit: str) -> str:
    """A number with three digits and a unit that suits it: 8.31 ms, 4.30 us, 812 MiB."""
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    for size, name in UNITS:
        if value >= size or name == "ns":
            scaled = value / size
            return f"{scaled:.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {name}"
    raise AssertionError("the last unit takes every value")


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def page(results: dict[str, Any], plots: list[tuple[str, str]]) -> str:
    """The whole page. ``results`` is what `bench.run` stores; ``plots`` are (title, file) of the pictures."""
    works = [WORKS[name] for name in WORKS if name in results["works"]]
    samples = {work.name: results["works"][work.name]["samples"] for work in works}
    judged = {work.name: verdicts(work, samples[work.name], samples) for work in works}
    parts = [
        INTRODUCTION.format(fresh=MOST_FRESH_ROUNDS),
        *([QUICK] if results["quick"] else []),
        "## Machine and versions\n",
        _machine(results),
        "## Bars\n",
        _score(judged),
        _bars(works, samples, judged),
        *(f"![{title}]({file})\n" for title, file in plots),
        "## Never slower than MXNet\n",
        "Ratios to the originals; the bar is 1.02.\n",
        _originals(works, judged),
        "## Every peer\n",
        "Medians. A dash: the peer takes no part in the row, or gave no number for a reason told below.\n",
        _everybody(works, samples),
        _reasons(works, results),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _machine(results: dict[str, Any]) -> str:
    facts = {**results["machine"], "threads": str(results["threads"]), "rounds": str(results["rounds"])}
    versions: dict[str, set[str]] = {}
    for result in results["works"].values():
        for found in result["versions"].values():
            for package, version in found.items():
                versions.setdefault(package, set()).add(version)
    rows = [*facts.items(), *((name, ", ".join(sorted(found))) for name, found in sorted(versions.items()))]
    return table(["what", "which"], ([name, value] for name, value in rows))


def _score(judged: dict[str, list[Verdict]]) -> str:
    counted = [verdict for found in judged.values() for verdict in found if not verdict.bar.aim]
    reached = sum(verdict.reached is True for verdict in counted)
    missed = sum(verdict.reached is False for verdict in counted)
    unknown = len(counted) - reached - missed
    return (
        f"Of {len(counted)} bars, those of the next section included, {reached} are reached, {missed} are "
        f"not, and {unknown} could not be compared.\n"
    )


def _bars(works: list[Work], samples: dict[str, Any], judged: dict[str, list[Verdict]]) -> str:
    rows = []
    for work in works:
        ours = samples[work.name].get("regluon")
        for verdict in judged[work.name]:
            if verdict.bar not in work.bars:
                continue
            theirs = samples[work.name].get(verdict.against)
            rows.append(
                [
                    work.title,
                    quantity(statistics.median(ours), work.unit) if ours else "-",
                    _opponent(verdict, theirs, work),
                    _limit(verdict.bar),
                    _ratio(verdict),
                    _reached(verdict),
                ]
            )
    return table(["work", "regluon", "best peer", "bar", "ratio (quartiles)", "reached"], rows)


def _opponent(verdict: Verdict, theirs: list[float] | None, work: Work) -> str:
    if theirs:
        return f"{verdict.against}, {quantity(statistics.median(theirs), work.unit)}"
    if verdict.bar.work:
        return f"regluon at: {WORKS[verdict.bar.work].title}"
    return verdict.against or "-"


def _limit(bar: Bar) -> str:
    return f"{bar.limit:.2f}{' s' if bar.absolute else ''}{' (an aim)' if bar.aim else ''}"


def _ratio(verdict: Verdict) -> str:
    found = verdict.ratio
    if found is None:
        return "-"
    unit = " s" if verdict.bar.absolute else ""
    return f"{found.value:.2f}{unit} ({found.low:.2f} to {found.high:.2f})"


def _reached(verdict: Verdict) -> str:
    if verdict.reached is None:
        return verdict.reason
    return "yes" if verdict.reached else "**no**"


def _originals(works: list[Work], judged: dict[str, list[Verdict]]) -> str:
    rows = []
    for work in works:
        cells = {peer: "-" for peer in MXNET}
        for verdict in judged[work.name]:
            if (
                verdict.bar in work.bars
                or len(verdict.bar.against) != 1
                or verdict.bar.against[0] not in MXNET
            ):
                continue
            if verdict.ratio is not None:
                cells[verdict.bar.against[0]] = _ratio(verdict) + ("" if verdict.reached else " **slower**")
        rows.append([work.title, *cells.values()])
    return table(["work", *MXNET], rows)


def _everybody(works: list[Work], samples: dict[str, Any]) -> str:
    rows = []
    for work in works:
        found = samples[work.name]
        medians = [
            quantity(statistics.median(found[peer]), work.unit) if found.get(peer) else "-" for peer in PEERS
        ]
        rows.append([work.title, *medians])
    return table(["work", *PEERS], rows)


def _reasons(works: list[Work], results: dict[str, Any]) -> str:
    lines = [
        f"* {work.title}, {peer}: {' '.join(reason.split())}"
        for work in works
        for peer, reason in results["works"][work.name]["reasons"].items()
    ]
    return "Not measured:\n\n" + "\n".join(lines) + "\n" if lines else ""
