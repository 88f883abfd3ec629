"""Benchmark regluon beside its peers: ``python bench/run.py``. See README.md in this folder."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import environments, machine, plots, report, works
from bench.measure import Bench, Effort, Result
from bench.peer import ROOT

DATA = "benchmarks.json"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work", action="append", default=[], metavar="NAME", help="a work, or how its name starts"
    )
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(works.PEERS)}; all by default")
    parser.add_argument("--rounds", type=int, default=None, help="turns of each peer; 7 by default")
    parser.add_argument("--quick", action="store_true", help="2 rounds of few calls; writes no documentation")
    parser.add_argument(
        "--threads", type=int, default=machine.cores(), help="of every peer; all cores by default"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        default=environments.DEFAULT_FOLDER,
        metavar="DIR",
        help="where the peers are installed; %(default)s by default",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where page, plots and data go; docs by default"
    )
    parser.add_argument("--list", action="store_true", help="list the works and stop")
    parser.add_argument(
        "--report", action="store_true", help="write the page again from the data of earlier runs"
    )
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
    if given.report:
        if not (out / DATA).exists():
            print(f"{out / DATA} is not there: run the benchmark without --report first", file=sys.stderr)
            return 2
        results = _stored(out / DATA)
    else:
        results = _started(out / DATA, keep=bool(given.work), quick=given.quick, effort=effort)
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
    medians = {peer: statistics.median(values) for peer, values in result.samples.items()}
    for peer, median in sorted(medians.items(), key=lambda pair: pair[1]):
        tell(f"  {peer:16} {report.quantity(median, work.unit)}")


def _peers(text: str | None) -> list[str]:
    if not text:
        return list(works.PEERS)
    peers = [name.strip() for name in text.split(",")]
    unknown = [name for name in peers if name not in works.PEERS]
    if unknown:
        raise ValueError(f"No peer is called {', '.join(unknown)}; there are {', '.join(works.PEERS)}")
    return peers


def _stored(file: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(file.read_text())
    results["works"] = {name: found for name, found in results["works"].items() if name in works.WORKS}
    return results


def _started(file: Path, keep: bool, quick: bool, effort: Effort) -> dict[str, Any]:
    """The results to add to: those of earlier runs like this one if they are kept, else none."""
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "threads": effort.threads,
        "rounds": effort.rounds,
        "quick": quick,
        "works": {},
    }
    if keep and file.exists():
        earlier = _stored(file)
        if all(earlier[name] == results[name] for name in ("machine", "threads", "rounds", "quick")):
            return earlier
        tell("The earlier results are of another machine, or of another number of threads or rounds: dropped")
    return results


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(file.name + ".part")
    temporary.write_text(text)
    os.replace(temporary, file)


if __name__ == "__main__":
    sys.exit(main())
