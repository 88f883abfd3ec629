"""Benchmark regluon beside its peers: ``python bench/run.py``. See README.md in this folder."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import environments, machine, plots, report, works  # noqa: E402
from bench.measure import Bench, Effort, Result  # noqa: E402
from bench.peer import ROOT  # noqa: E402

DATA = "benchmarks.json"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", action="append", default=[], metavar="NAME", help="a work, or part of its name")
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(works.PEERS)}; all by default")
    parser.add_argument("--rounds", type=int, default=None, help="turns of each peer; 7 by default")
    parser.add_argument("--quick", action="store_true", help="2 rounds of few calls; writes no documentation")
    parser.add_argument("--threads", type=int, default=machine.cores(), help="of every peer; all cores by default")
    parser.add_argument(
        "--environments",
        type=Path,
        default=environments.DEFAULT_FOLDER,
        metavar="DIR",
        help="where the peers are installed; %(default)s by default",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where page, plots and data go; docs by default")
    parser.add_argument("--list", action="store_true", help="list the works and stop")
    parser.add_argument("--report", action="store_true", help="write the page again from the data of earlier runs")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    given = arguments(words)
    try:
        chosen = works.chosen(given.work)
        peers = _peers(given.peers)
    except ValueError as mistake:
        print(mistake, file=sys.stderr)
        return 2
    if given.list:
        print("\n".join(f"{work.name:32} {work.title}" for work in chosen))
        return 0
    folder = given.environments.expanduser().resolve()
    out = (given.out or (folder / "quick" if given.quick else ROOT / "docs")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    effort = Effort(given.rounds or 7, threads=given.threads)
    if given.quick:
        effort = Effort(given.rounds or 2, seconds=0.05, least=1, threads=given.threads)
    results = _earlier(out / DATA, keep=bool(given.work) or given.report, quick=given.quick, effort=effort)
    if not given.report:
        bench = Bench(folder, effort, tell)
        for work in chosen:
            tell(work.title)
            result = bench.run(work, peers)
            results["works"][work.name] = asdict(result)
            _tell_result(work, result)
            _write(out / DATA, json.dumps(results, indent=1) + "\n")
    pictures = plots.draw(results, out)
    _write(out / "benchmarks.md", report.page(results, pictures))
    tell(f"{out / 'benchmarks.md'} is written")
    return 0


def tell(text: str) -> None:
    """Progress, on the error stream."""
    print(text, file=sys.stderr, flush=True)


def _tell_result(work: works.Work, result: Result) -> None:
    for peer in sorted(result.samples, key=lambda name: sorted(result.samples[name])):
        values = sorted(result.samples[peer])
        tell(f"  {peer:16} {report.quantity(values[len(values) // 2], work.unit)}")


def _peers(text: str | None) -> list[str]:
    if not text:
        return list(works.PEERS)
    peers = [name.strip() for name in text.split(",")]
    unknown = [name for name in peers if name not in works.PEERS]
    if unknown:
        raise ValueError(f"No peer is called {', '.join(unknown)}; there are {', '.join(works.PEERS)}")
    return peers


def _earlier(file: Path, keep: bool, quick: bool, effort: Effort) -> dict[str, Any]:
    """The results to add to: those of earlier runs on this machine if they are kept, else none."""
    now = {
        "machine": machine.describe(),
        "threads": effort.threads,
        "rounds": effort.rounds,
        "quick": quick,
        "works": {},
    }
    if keep and file.exists():
        earlier: dict[str, Any] = json.loads(file.read_text())
        same = all(earlier[name] == now[name] for name in ("machine", "threads", "quick"))
        if same or file.exists() and effort is None:
            now["works"] = {name: found for name, found in earlier["works"].items() if name in works.WORKS}
        else:
            tell("The earlier results are of another machine, number of threads or effort: they are dropped")
    return now


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(file.name + ".part")
    temporary.write_text(text)
    os.replace(temporary, file)


if __name__ == "__main__":
    sys.exit(main())
