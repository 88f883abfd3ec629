"""Layers against what the originals say and compute (tests/golden/make/gluon_cases.py), and on their own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx
from regluon.base.naming import NameManager
from regluon.gluon import contrib, nn
from regluon.gluon.model_zoo import vision
from regluon.gluon.scope import reset_counters

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "gluon_nn.json").read_text())
VALUES = dict(numpy.load(GOLDEN / "gluon_nn.npz"))
VERSIONS = {"1.9.1": 1, "2.0.0beta1": 2}
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


def wave(shape: Any, phase: float) -> numpy.ndarray:
    """The same values as in the script that made the goldens."""
    size = int(numpy.prod(shape))
    return numpy.sin(2.3 * numpy.arange(size) + 1.7 * phase).astype("float32").reshape(shape)


def named(x: Any) -> Any:
    return x


def build(container: Any, *children: Any) -> Any:
    container.add(*children)
    return container


SCOPE = {
    "nn": nn,
    "contrib": contrib.nn,
    "build": build,
    "named": named,
    "concurrent": contrib.nn.Concurrent,
    "hybrid_concurrent": contrib.nn.HybridConcurrent,
    "sync_batch_norm": contrib.nn.SyncBatchNorm,
    "vision": vision,
    "deformable": nn,
}
ALL = [
    pytest.param(version, case, id=f"{version}-{case['expression']}")
    for version in VERSIONS
    for case in CASES[version]
]


def make(version: str, case: dict[str, Any]) -> Any:
    mx.set_api(VERSIONS[version])
    reset_counters()
    with NameManager():
        return eval(case["expression"], SCOPE)


def shown(text: str, version: str, expression: str) -> str:
    """What we print where an original is wrong or names a class otherwise.

    1.9.1 says the channels of a transposed convolution backwards, 2.0 not the input channels that are known.
    """
    if "Transpose" in expression and version == "1.9.1":
        text = re.sub(r"\((\w+) -> (\w+)", lambda match: f"({match[2]} -> {match[1]}", text)
        text = text.replace("(0 ->", "(None ->")
    if "in_channels=4" in expression and version != "1.9.1":
        text = text.replace("-1 ->", "4 ->")
    text = re.sub(r"key=[^,]*", "key", text)
    return text.replace("HybridConcurrent(", "HybridConcatenate(").replace("Concurrent(", "Concatenate(")


def without_key(net: Any) -> str:
    """SyncBatchNorm's key is made up anew for every layer."""
    return re.sub(r"key=[^,]*", "key", repr(net))


@pytest.mark.parametrize(("version", "case"), ALL)
def test_repr_is_the_originals(version: str, case: dict[str, Any]) -> None:
    net = make(version, case)
    found, expected = without_key(net), shown(case["repr"], version, case["expression"])
    if "vision." in case["expression"] and version != "1.9.1":
        found, expected = (re.sub(r"\(-?\d+ ->", "(", text) for text in (found, expected))
    assert found == expected


@pytest.mark.filterwarnings("ignore:All children of this Sequential")
@pytest.mark.parametrize("hybridize", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize(("version", "case"), [item for item in ALL if item.values[1]["input"]])
def test_values_are_the_originals(version: str, case: dict[str, Any], hybridize: bool) -> None:
    net = make(version, case)
    if hybridize:
        net.hybridize()
    net.initialize()
    value = wave(case["input"], 1)
    if case["integer"]:
        value = numpy.floor((value + 1) / 2 * case["integer"]).astype("float32")
    array = mx.nd.array if version == "1.9.1" else mx.np.array
    x = array(value, dtype="float32")
    net(x)
    parameters = net.collect_params()
    found = [[name, list(parameter.shape), parameter.grad_req] for name, parameter in parameters.items()]
    assert found == case["parameters"]
    assert without_key(net) == shown(case["shown"], version, case["expression"])
    for phase, (name, parameter) in enumerate(parameters.items()):
        values = wave(parameter.shape, phase + 5)
        if name.endswith(("gamma", "running_var")):
            values = 1 + 0.5 * values
        parameter.set_data(array(values, dtype=parameter.dtype))
    key = case["key"]
    out = net(x)
    assert type(out) is type(x)
    numpy.testing.assert_allclose(out.asnumpy(), VALUES[f"{key}/predict"], **TOLERANCE)
    if f"{key}/train" in VALUES:
        check_training(net, x, key)


def check_training(net: Any, x: Any, key: str) -> None:
    if f"{key}/grad" in VALUES:
        x.attach_grad()
    with mx.autograd.record():
        y = net(x)
    y.backward(head_like(y))
    numpy.testing.assert_allclose(y.asnumpy(), VALUES[f"{key}/train"], **TOLERANCE)
    # The originals' gradient of SELU is not the derivative of what it computes.
    if f"{key}/grad" in VALUES and not isinstance(net, nn.SELU):
        numpy.testing.assert_allclose(x.grad.asnumpy(), VALUES[f"{key}/grad"], rtol=1e-3, atol=1e-4)
    for place, parameter in enumerate(net.collect_params().values()):
        if f"{key}/grad{place}" in VALUES:
            found = parameter.grad().asnumpy()
            numpy.testing.assert_allclose(found, VALUES[f"{key}/grad{place}"], rtol=1e-3, atol=1e-4)
        if f"{key}/after{place}" in VALUES:
            found = parameter.data().asnumpy()
            numpy.testing.assert_allclose(found, VALUES[f"{key}/after{place}"], **TOLERANCE)


def head_like(y: Any) -> Any:
    array = mx.np.array if isinstance(y, mx.np.ndarray) else mx.nd.array
    return array(wave(y.shape, 2), dtype=y.dtype)
