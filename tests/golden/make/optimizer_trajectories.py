"""Write the trajectories of the original's optimizers.

Run with a Python that has MXNet 1.9.1, then with one that has 2.0.0b1:
``python optimizer_trajectories.py ../optimizer_trajectories``; each run adds its version to the .json and
.npz.
"""

import json
import os
import sys

import mxnet as mx
import numpy as np

VERSION = "2.0.0b1" if mx.__version__.startswith("2") else "1.9.1"
STEPS = 5
NAMES = {0: "conv_weight", 1: "conv_bias", 2: "norm_gamma"}
SHAPES = {0: (4, 3), 1: (5,), 2: (2, 2, 2)}

BASE = [
    {},
    {"learning_rate": 0.05},
    {"learning_rate": 0.05, "wd": 0.02, "rescale_grad": 0.5},
    {"learning_rate": 0.05, "wd": 0.02, "rescale_grad": 2.0, "clip_gradient": 0.4},
    {"learning_rate": 0.05, "begin_num_update": 7},
    {"learning_rate": 0.05, "dtype": "float16", "multi_precision": True, "wd": 0.01},
    {"learning_rate": 0.05, "dtype": "float16"},
    {"learning_rate": 0.05, "dtype": "float64", "wd": 0.01},
    {"learning_rate": 0.2, "lr_scheduler": ["FactorScheduler", {"step": 2, "factor": 0.5}]},
    {"lr_scheduler": ["CosineScheduler", {"max_update": 6, "base_lr": 0.1, "warmup_steps": 2}]},
    {
        "learning_rate": 0.05,
        "wd": 0.1,
        "lr_mult": {"conv_bias": 2.0},
        "wd_mult": {"conv_weight": 0.5, "conv_bias": 3.0},
    },
    {"learning_rate": 0.05, "wd": 0.1, "param_idx2name": None},
]
OWN = {
    "SGD": [
        {"momentum": 0.9},
        {"momentum": 0.9, "wd": 0.1, "clip_gradient": 0.3},
        {"momentum": 0.5, "lazy_update": False},
        {"momentum": 0.9, "dtype": "float16", "multi_precision": True},
        {"momentum": 0.9, "dtype": "float16"},
    ],
    "NAG": [
        {"momentum": 0.9},
        {"momentum": 0.9, "wd": 0.1, "clip_gradient": 0.3},
        {"momentum": 0.0, "wd": 0.1},
        {"momentum": 0.9, "dtype": "float16", "multi_precision": True},
    ],
    "Adam": [
        {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-4},
        {"wd": 0.1, "clip_gradient": 0.3, "lazy_update": False},
    ],
    "AdamW": [
        {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-4, "wd": 0.1},
        {"correct_bias": False, "wd": 0.1},
        {"wd": 0.1, "clip_gradient": 0.3, "use_fused_step": False},
    ],
    "RMSProp": [
        {"centered": True},
        {"centered": True, "wd": 0.1, "clip_weights": 0.5},
        {"clip_weights": 0.5},
        {"gamma1": 0.8, "gamma2": 0.7},
        {"gamma1": 0.8, "gamma2": 0.7, "centered": True},
        {"rho": 0.8, "momentum": 0.7},
        {"rho": 0.8, "momentum": 0.7, "centered": True},
        {"epsilon": 1e-3},
        {"epsilon": 1e-2, "centered": True},
    ],
    "AdaGrad": [
        {"eps": 1e-3},
        {"epsilon": 1e-3},
        {"wd": 0.1, "clip_gradient": 0.3},
        {"use_fused_step": False},
    ],
    "AdaDelta": [{"rho": 0.8, "epsilon": 1e-3}, {"wd": 0.1, "clip_gradient": 0.3}, {"learning_rate": 0.3}],
    "Ftrl": [
        {"lamda1": 0.1, "beta": 0.5},
        {"wd": 0.1, "clip_gradient": 0.3},
        {"use_fused_step": False, "wd": 0.1},
    ],
    "Adamax": [{"beta1": 0.8, "beta2": 0.9, "wd": 0.1}],
    "Nadam": [{"beta1": 0.8, "beta2": 0.9, "wd": 0.1}, {"schedule_decay": 0.1}],
    "Signum": [{"momentum": 0.0}, {"momentum": 0.5, "wd_lh": 0.1}, {"wd": 0.1, "clip_gradient": 0.3}],
    "FTML": [{"beta1": 0.5, "wd": 0.1}, {"clip_gradient": 0.3, "wd": 0.1}],
    "DCASGD": [{"momentum": 0.9}, {"momentum": 0.9, "lamda": 0.5, "wd": 0.1}],
    "LARS": [
        {"momentum": 0.9, "learning_rate": 1.0},
        {"momentum": 0.9, "eta": 0.01, "wd": 0.1, "learning_rate": 1.0},
        {"eta": 0.01, "wd": 0.1, "learning_rate": 1.0, "clip_gradient": 0.3},
    ],
    "LAMB": [
        {"bias_correction": False},
        {"lower_bound": 0.5, "upper_bound": 2.0, "wd": 0.1},
        {"beta1": 0.8, "clip_gradient": 0.3},
        {"use_fused_step": False, "wd": 0.1},
    ],
    "LANS": [{"lower_bound": 0.5, "upper_bound": 2.0, "wd": 0.1}, {"beta1": 0.8, "clip_gradient": 0.3}],
    "AdaBelief": [
        {"beta1": 0.8, "epsilon": 1e-3, "wd": 0.1},
        {"correct_bias": False},
        {"clip_gradient": 0.3},
    ],
    "GroupAdaGrad": [{"eps": 1e-3}, {"epsilon": 1e-3}],
}


def make(name, options):
    options = dict(options)
    dtype = options.pop("dtype", "float32")
    lr_mult, wd_mult = options.pop("lr_mult", None), options.pop("wd_mult", None)
    if "lr_scheduler" in options:
        kind, arguments = options["lr_scheduler"]
        options["lr_scheduler"] = getattr(mx.lr_scheduler, kind)(**arguments)
    options.setdefault("param_idx2name", NAMES)
    optimizer = mx.optimizer.create(name.lower(), **options)
    if lr_mult:
        optimizer.set_lr_mult(lr_mult)
    if wd_mult:
        optimizer.set_wd_mult(wd_mult)
    return optimizer, dtype


def run(name, options, arrays):
    optimizer, dtype = make(name, options)
    updater = mx.optimizer.get_updater(optimizer)
    create = mx.nd.array if VERSION == "1.9.1" else mx.np.array
    draw = np.random.RandomState(3)
    shapes = {0: (4, 3)} if name == "GroupAdaGrad" else SHAPES
    weights = {i: create(draw.normal(0, 1, s), dtype=dtype) for i, s in shapes.items()}
    for step in range(STEPS):
        for i, shape in shapes.items():
            gradient = create(draw.normal(0, 1, shape), dtype=dtype)
            updater(i, gradient, weights[i])
            arrays[f"{i}_{step}"] = weights[i].asnumpy()


def main(target):
    cases, arrays = [], {}
    if os.path.exists(target + ".json"):
        with open(target + ".json") as stream:
            cases = [case for case in json.load(stream) if case["version"] != VERSION]
        with np.load(target + ".npz") as stored:
            arrays = {key: stored[key] for key in stored.files if not key.startswith(VERSION)}
    for name, own in OWN.items():
        for number, options in enumerate(BASE + own):
            if number >= len(BASE):
                options = {"learning_rate": 0.05, **options}
            found = {}
            try:
                run(name, options, found)
            except BaseException as error:
                print(VERSION, name, options, type(error).__name__, str(error).strip().splitlines()[-1][:90])
                continue
            case = f"{VERSION}/{name}/{number}"
            if not all(np.isfinite(value).all() for value in found.values()):
                print(case, options, "is not finite")
                continue
            cases.append({"id": case, "version": VERSION, "name": name, "options": options})
            shapes = sorted({int(key[0]) for key in found})
            for index in shapes:
                arrays[f"{case}/{index}"] = np.stack([found[f"{index}_{step}"] for step in range(STEPS)])
    cases.sort(key=lambda case: case["id"])
    with open(target + ".json", "w") as stream:
        stream.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    np.savez_compressed(target + ".npz", **arrays)
    print(len(cases), "cases")


if __name__ == "__main__":
    main(sys.argv[1])
