"""``regluon demo``: one network trained, hybridized, exported and reloaded, with times and pictures.

Imports of the plotting library stay inside, so that importing this package costs nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy

__all__ = ["run_demo"]

REQUIRED_ACCURACY = 0.97


def run_demo(out: Path, data: Path | None = None, epochs: int = 15, seed: int = 42) -> int:
    """Run the whole demo and return its exit status: 0 when every check held, else 1.

    Parameters
    ----------
    out : Path
        Folder for ``lenet-symbol.json``, ``lenet-0000.params``, ``loss.png``, ``predictions.png`` and
        ``results.json``; made when missing.
    data : Path, optional
        Folder with MNIST's four IDX files (plain or gzipped); the bundled sample of 5,000 digits otherwise.
    epochs, seed : int
        Passes over the training images in each of the three modes, and the seed that all three start from.
    """
    from rich.console import Console

    from . import digits, report, training

    console = Console()
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    split = digits.load(data)
    console.print(
        f"{len(split.train_labels)} training and {len(split.test_labels)} held-out images from {split.source}"
    )

    runs = [training.train(mode, split, epochs, seed) for mode in training.MODES]
    console.print(report.table_of_times(runs))
    spread = max(float(numpy.abs(numpy.subtract(run.losses, runs[0].losses)).max()) for run in runs)

    final = runs[-1]
    training.export(final, out)
    sample = split.test_images[:1000]
    here = training.probabilities(final.network, sample)
    there = _predict_in_new_process(out, sample)
    difference = float(numpy.abs(here - there).max())

    report.loss_curve(runs, out / "loss.png")
    report.prediction_pictures(split.test_images, split.test_labels, here, out / "predictions.png")
    checks = {
        f"held-out accuracy {final.accuracy:.2%} is at least {REQUIRED_ACCURACY:.0%}": final.accuracy
        >= REQUIRED_ACCURACY,
        f"the three modes give one loss curve (largest difference {spread:.1e})": spread < 0.1,
        f"the reloaded model predicts the same in a new process (by {difference:.1e})": difference < 1e-4,
    }
    for text, holds in checks.items():
        console.print(("[green]yes[/green] " if holds else "[red]NO [/red] ") + text, highlight=False)
    seconds = time.perf_counter() - start
    results = {
        "accuracy": final.accuracy,
        "seconds": seconds,
        "modes": {run.mode.name: run.times() for run in runs},
        "largest_difference_after_reload": difference,
    }
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    console.print(
        f"Model, loss.png, predictions.png and results.json are in {out.resolve()} ({seconds:.0f} s in all)",
        highlight=False,
    )
    return 0 if all(checks.values()) else 1


def _predict_in_new_process(folder: Path, images: numpy.ndarray) -> numpy.ndarray:
    """Class probabilities of ``images``, computed from the exported files by an interpreter of its own."""
    questions, answers = folder / "reload-input.npy", folder / "reload-output.npy"
    numpy.save(questions, images)
    command = [
        sys.executable,
        "-m",
        "regluon.demo.reload",
        str(folder / "lenet"),
        str(questions),
        str(answers),
    ]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode != 0:
        raise RuntimeError(f"Reloading the exported model in a new process failed:\n{finished.stderr}")
    predictions = numpy.load(answers)
    questions.unlink()
    answers.unlink()
    return predictions
