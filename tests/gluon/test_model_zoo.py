"""The networks of the model zoo: names, layout, files of pretrained parameters."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.base.naming import NameManager
from regluon.gluon import model_zoo, nn
from regluon.gluon.model_zoo import model_store, vision
from regluon.gluon.scope import reset_counters

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "param_names.json").read_text())
VERSIONS = {"1.9.1": 1, "2.0.0beta1": 2}
ALL = [
    pytest.param(version, case, id=f"{version}-{case['name']}-{case['arguments']}")
    for version in VERSIONS
    for case in GOLDEN[version]
]


@pytest.mark.parametrize(("version", "case"), ALL)
def test_parameters_have_the_originals_names_and_shapes(version: str, case: dict[str, Any]) -> None:
    mx.set_api(VERSIONS[version])
    reset_counters()
    with NameManager():
        net = vision.get_model(case["name"], **case["arguments"])
    # Shapes are inferred from the graph; no kernel needs to run.
    size = 224 if case["name"] == "alexnet" else 64
    net.infer_shape(mx.nd.zeros((1, 3, size, size)))
    found = [[name, list(parameter.shape)] for name, parameter in net.collect_params().items()]
    assert found == case["parameters"]


SIGNATURES = json.loads((Path(__file__).parent.parent / "golden" / "gluon_signatures.json").read_text())
# Differences on purpose: blocks as arguments of containers, and contexts that may be None.
OTHERWISE = {"nn.Sequential", "nn.HybridSequential", "nn.PReLU"}
PLACES = {"nn": nn, "loss": mx.gluon.loss, "vision": vision, "contrib": mx.gluon.contrib.nn, "deformable": nn}


@pytest.mark.parametrize("version", list(VERSIONS))
def test_signatures_are_the_originals(version: str) -> None:
    wrong = []
    for name, expected in SIGNATURES[version].items():
        place, short = name.split(".")
        if name in OTHERWISE or short in ("Block", "HybridBlock", "SymbolBlock"):
            continue
        value = getattr(PLACES[place], short, None)
        if value is None:
            wrong.append(f"{name} is missing")
            continue
        signature = inspect.signature(value)
        found = {item.name: item for item in signature.parameters.values()}
        takes_any = any(item.kind is item.VAR_KEYWORD for item in found.values())
        named = [item[0] for item in expected if item[1] == "POSITIONAL_OR_KEYWORD"]
        common = [item for item in named if item not in ("prefix", "params")]
        if [item for item in found if item in common] != common and not takes_any:
            wrong.append(f"{name}: expected {named}, found {list(found)}")
        for argument, _, default in expected:
            if argument in found and default is not None and argument not in ("ctx", "device", "root"):
                if repr(found[argument].default) != default:
                    wrong.append(f"{name}: {argument}={found[argument].default!r}, expected {default}")
    assert not wrong, "\n".join(wrong)
