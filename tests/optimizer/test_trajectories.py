"""Five steps of every optimizer with many settings, compared with the original of the same API level."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
import torch

from regluon import lr_scheduler, optimizer
from regluon.array import NDArray
from regluon.base import config

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "optimizer_trajectories"
CASES = json.loads(GOLDEN.with_suffix(".json").read_text())
ARRAYS = dict(np.load(GOLDEN.with_suffix(".npz")))
NAMES = {0: "conv_weight", 1: "conv_bias", 2: "norm_gamma"}
SHAPES = {0: (4, 3), 1: (5,), 2: (2, 2, 2)}

#: Where the original is wrong, and why.
DEVIATIONS = {
    "1.9.1/Ftrl/8": "ignores learning_rate when there is a scheduler",
    "1.9.1/NAG/13": "the kernel with clipping decays a weight that it has already changed",
}


@pytest.fixture(params=["single", "list"])
def together(request):
    return request.param == "list"


def build(case):
    options = dict(case["options"])
    dtype = options.pop("dtype", "float32")
    multipliers = options.pop("lr_mult", None), options.pop("wd_mult", None)
    if "lr_scheduler" in options:
        name, arguments = options["lr_scheduler"]
        options["lr_scheduler"] = getattr(lr_scheduler, name)(**arguments)
    options.setdefault("param_idx2name", NAMES)
    rule = optimizer.create(case["name"], **options)
    if multipliers[0]:
        rule.set_lr_mult(multipliers[0])
    if multipliers[1]:
        rule.set_wd_mult(multipliers[1])
    return rule, getattr(torch, dtype)


def run(case, together):
    rule, dtype = build(case)
    updater = optimizer.get_updater(rule)
    draw = np.random.RandomState(3)
    shapes = {0: (4, 3)} if case["name"] == "GroupAdaGrad" else SHAPES

    def array(shape):
        return NDArray._wrap(torch.from_numpy(np.asarray(draw.normal(0, 1, shape))).to(dtype), None)

    weights = {index: array(shape) for index, shape in shapes.items()}
    found = {index: [] for index in shapes}
    for _ in range(5):
        gradients = {index: array(shape) for index, shape in shapes.items()}
        if together:
            updater(list(shapes), list(gradients.values()), list(weights.values()))
        else:
            for index in shapes:
                updater(index, gradients[index], weights[index])
        for index in shapes:
            found[index].append(weights[index].asnumpy().astype("float64"))
    return found, dtype


@pytest.mark.filterwarnings("ignore:The optimizer's learning rate:UserWarning")
@pytest.mark.filterwarnings("ignore:The optimizer accumulates in:UserWarning")
@pytest.mark.parametrize("name", sorted({case["name"] for case in CASES}))
def test_trajectories(name, together):
    checked = 0
    for case in CASES:
        if case["name"] != name or case["id"] in DEVIATIONS:
            continue
        if together and "lr_scheduler" in case["options"]:
            continue  # A scheduler is asked once a call, so lists see the rate of the last count.
        config.set_api(1 if case["version"] == "1.9.1" else 2)
        found, dtype = run(case, together)
        rtol, atol = (8e-3, 2e-3) if dtype == torch.float16 else (2e-4, 1e-5)
        for index, values in found.items():
            expected = ARRAYS[f"{case['id']}/{index}"].astype("float64")
            message = f"{case['id']} {case['options']} parameter {index}"
            np.testing.assert_allclose(np.stack(values), expected, rtol=rtol, atol=atol, err_msg=message)
        checked += 1
    assert checked >= 2
