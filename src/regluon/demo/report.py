"""The demo's table and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from rich.box import SIMPLE
from rich.table import Table

from .training import Run

__all__ = ["loss_curve", "prediction_pictures", "table_of_times"]

ROWS, COLUMNS = 4, 8


def table_of_times(runs: Sequence[Run]) -> Table:
    """One row for each mode: time of a training epoch, and of a call on one image and on a batch."""
    names = list(runs[0].times())
    table = Table(title="Median times (speed-up over imperative)", box=SIMPLE, pad_edge=False)
    table.add_column("mode", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("accuracy", justify="right")
    for run in runs:
        cells = []
        for name, seconds in run.times().items():
            factor = runs[0].times()[name] / seconds
            cells.append(f"{_duration(seconds)} ({factor:.2f}x)")
        table.add_row(run.mode.name, *cells, f"{run.accuracy:.2%}")
    return table


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.3f} ms"


def loss_curve(runs: Sequence[Run], path: Path) -> None:
    """Write the mean training loss of every epoch, one line for each mode (they lie on each other)."""
    figure = _figure(6, 4)
    axes = figure.add_subplot()
    for width, run in zip((5, 3, 1), runs, strict=True):
        axes.plot(range(1, len(run.losses) + 1), run.losses, linewidth=width, alpha=0.7, label=run.mode.name)
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean training loss")
    axes.set_yscale("log")
    axes.legend()
    figure.savefig(path, dpi=120)


def prediction_pictures(
    images: numpy.ndarray, labels: numpy.ndarray, predicted: numpy.ndarray, path: Path
) -> None:
    """Write held-out images with the predicted digit and its probability; wrong ones in red, and first."""
    guesses = predicted.argmax(axis=1)
    wrong_first = numpy.argsort(guesses == labels[: len(guesses)], kind="stable")
    figure = _figure(COLUMNS * 1.2, ROWS * 1.4)
    for place, number in enumerate(wrong_first[: ROWS * COLUMNS]):
        axes = figure.add_subplot(ROWS, COLUMNS, place + 1)
        axes.imshow(images[number, 0], cmap="gray_r")
        axes.set_axis_off()
        right = guesses[number] == labels[number]
        text = f"{guesses[number]} ({predicted[number].max():.0%})" + (
            "" if right else f", is {labels[number]}"
        )
        axes.set_title(text, fontsize=8, color="black" if right else "red")
    figure.savefig(path, dpi=120)


def _figure(width: float, height: float) -> Any:
    # The object interface: no window system and no global state of pyplot.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
