"""Losses against the originals' values (tests/golden/make/gluon_cases.py), and what they promise beyond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "gluon_loss.json").read_text())
VALUES = dict(numpy.load(GOLDEN / "gluon_loss.npz"))
VERSIONS = {"1.9.1": 1, "2.0.0beta1": 2}
ALL = [
    pytest.param(version, case, id=f"{version}-{case['key'].split('/')[1]}-{case['expression']}")
    for version in VERSIONS
    for case in CASES[version]
]


def arguments(version: str, case: dict[str, Any]) -> list[Any]:
    array = mx.nd.array if version == "1.9.1" else mx.np.array
    return [
        None if item is None else array(VALUES[f"{case['key']}/input{place}"])
        for place, item in enumerate(case["inputs"])
    ]


@pytest.mark.parametrize("hybridize", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize(("version", "case"), ALL)
def test_values_are_the_originals(version: str, case: dict[str, Any], hybridize: bool) -> None:
    mx.set_api(VERSIONS[version])
    function = eval("loss." + case["expression"], {"loss": mx.gluon.loss})
    assert repr(function) == case["repr"]
    if hybridize:
        function.hybridize()
    values = arguments(version, case)
    values[0].attach_grad()
    with mx.autograd.record():
        found = function(*values)
    found.backward()
    assert type(found) is type(values[0])
    expected = VALUES[f"{case['key']}/value"]
    assert found.shape == expected.shape
    numpy.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-4, atol=1e-5)
    if f"{case['key']}/grad" in VALUES:
        gradient = VALUES[f"{case['key']}/grad"]
        numpy.testing.assert_allclose(values[0].grad.asnumpy(), gradient, rtol=1e-3, atol=1e-5)
