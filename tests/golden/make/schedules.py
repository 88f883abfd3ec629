"""Write the learning rates of the original's schedulers: ``python schedules.py ../schedules.json``."""

import json
import sys

import mxnet as mx

CASES = [
    ("FactorScheduler", {"step": 3, "factor": 0.5}),
    ("FactorScheduler", {"step": 3, "factor": 0.5, "stop_factor_lr": 0.01, "base_lr": 0.1}),
    (
        "FactorScheduler",
        {"step": 4, "factor": 0.3, "base_lr": 0.3, "warmup_steps": 5, "warmup_begin_lr": 0.05},
    ),
    (
        "FactorScheduler",
        {
            "step": 4,
            "factor": 0.3,
            "base_lr": 0.3,
            "warmup_steps": 5,
            "warmup_begin_lr": 0.05,
            "warmup_mode": "constant",
        },
    ),
    ("MultiFactorScheduler", {"step": [2, 5, 9], "factor": 0.1, "base_lr": 1.0}),
    (
        "MultiFactorScheduler",
        {"step": [4, 8], "factor": 0.5, "base_lr": 1.0, "warmup_steps": 3, "warmup_begin_lr": 0.1},
    ),
    ("PolyScheduler", {"max_update": 10, "base_lr": 0.5, "pwr": 2}),
    ("PolyScheduler", {"max_update": 12, "base_lr": 0.5, "pwr": 3, "final_lr": 0.1, "warmup_steps": 4}),
    ("CosineScheduler", {"max_update": 10, "base_lr": 0.5}),
    (
        "CosineScheduler",
        {"max_update": 12, "base_lr": 0.5, "final_lr": 0.05, "warmup_steps": 4, "warmup_begin_lr": 0.1},
    ),
    (
        "CosineScheduler",
        {
            "max_update": 12,
            "base_lr": 0.5,
            "warmup_steps": 4,
            "warmup_begin_lr": 0.1,
            "warmup_mode": "constant",
        },
    ),
]
UPDATES = [list(range(16)), [0, 1, 1, 4, 4, 9], [7, 3, 8, 2]]


def main(target):
    rows = []
    for name, options in CASES:
        for updates in UPDATES:
            scheduler = getattr(mx.lr_scheduler, name)(**options)
            rates = [scheduler(update) for update in updates]
            rows.append({"name": name, "options": options, "updates": updates, "rates": rates})
    with open(target, "w") as stream:
        stream.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
