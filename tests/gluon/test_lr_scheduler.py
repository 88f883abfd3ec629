"""Learning rates, compared with the original's."""

from __future__ import annotations

import json
import pathlib

import pytest

from regluon import lr_scheduler

ROWS = json.loads((pathlib.Path(__file__).parent.parent / "golden" / "schedules.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['name']}-{row['options']}-{len(row['updates'])}")
def test_rates(row):
    scheduler = getattr(lr_scheduler, row["name"])(**row["options"])
    assert [scheduler(update) for update in row["updates"]] == pytest.approx(
        row["rates"], rel=1e-12, abs=1e-15
    )


def test_jumping_past_the_end_gives_the_final_rate():
    # The original keeps the last rate that it happened to compute.
    assert lr_scheduler.CosineScheduler(10, base_lr=0.5, final_lr=0.1)(50) == 0.1
    assert lr_scheduler.PolyScheduler(10, base_lr=0.5, final_lr=0.1, warmup_steps=10)(10) == 0.1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: lr_scheduler.FactorScheduler(0), ValueError, "step must be at least 1 update; received 0"),
        (lambda: lr_scheduler.FactorScheduler(1, 2), ValueError, "factor must be at most 1"),
        (lambda: lr_scheduler.MultiFactorScheduler([3, 2]), ValueError, "step must be increasing"),
        (lambda: lr_scheduler.MultiFactorScheduler([0, 3]), ValueError, "all at least 1"),
        (lambda: lr_scheduler.MultiFactorScheduler(3), ValueError, "step must be a list"),
        (lambda: lr_scheduler.PolyScheduler(0), ValueError, "max_update must be at least 1"),
        (lambda: lr_scheduler.CosineScheduler(1.5), TypeError, "max_update must be an int"),
        (lambda: lr_scheduler.CosineScheduler(5, warmup_begin_lr=5), ValueError, "must not be above base_lr"),
        (
            lambda: lr_scheduler.CosineScheduler(5, warmup_steps=-1),
            ValueError,
            "warmup_steps must be 0 or more",
        ),
        (lambda: lr_scheduler.CosineScheduler(5, warmup_mode="x"), ValueError, "'linear' or 'constant'"),
        (lambda: lr_scheduler.LRScheduler()(1), NotImplementedError, "must define __call__"),
    ],
)
def test_mistakes(make, error, message):
    with pytest.raises(error, match=message):
        make()
