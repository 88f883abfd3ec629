"""Symbols and executors against what MXNet 1.9.1 gave for the same expressions."""

from __future__ import annotations

import json
from typing import Any

import numpy
import pytest
from symbol_goldens import GOLDENS, make, shapes

import regluon as mx
from regluon.base import dtypes


@pytest.mark.parametrize("case", GOLDENS["shapes"], ids=lambda case: case[0][:60])
def test_partial_shapes(case: Any) -> None:
    text, known, expected = case
    assert shapes(make(text).infer_shape_partial(**known)) == shapes(expected)


@pytest.mark.parametrize("case", GOLDENS["types"], ids=lambda case: case[0][:60])
def test_partial_types(case: Any) -> None:
    text, known, expected = case
    found = make(text).infer_type_partial(**known)
    assert [[None if t is None else dtypes.to_name(t) for t in group] for group in found] == expected


@pytest.mark.parametrize("case", GOLDENS["listings"], ids=lambda case: case[0][-60:])
def test_names(case: Any) -> None:
    text, expected = case
    symbol = make(text)
    assert {method: getattr(symbol, method)() for method in expected} == expected


def _values(attributes: dict[str, str]) -> dict[str, Any]:
    def read(value: str) -> Any:
        try:
            number = float(value)
        except ValueError:
            return value.replace("[", "(").replace("]", ")")
        return number

    return {key: read(value) for key, value in attributes.items()}


@pytest.mark.parametrize("case", GOLDENS["made"], ids=lambda case: case[0])
def test_nodes_that_operators_make(case: Any) -> None:
    text, (operator, name, attributes) = case
    node = json.loads(make(text).tojson())["nodes"][-1]
    assert (node["op"], node["name"]) == (operator, name)
    written = _values(node.get("attrs", {}))
    expected = _values(attributes)
    # Attributes at their defaults may be left out.
    assert written == {key: value for key, value in expected.items() if key in written}
    assert set(expected) - set(written) <= {"infer_range", "squeeze_axis", "sections", "stop"}


@pytest.mark.parametrize("case", GOLDENS["runs"], ids=lambda case: case[0][:50])
@pytest.mark.parametrize("monitored", [False, True], ids=["program", "monitored"])
def test_executors(case: Any, monitored: bool) -> None:
    text, arguments, auxiliary, request, training, heads, expected = case
    symbol = make(text)
    arrays = {name: mx.nd.array(value) for name, value in arguments.items()}
    grads = {name: mx.nd.ones(array.shape) for name, array in arrays.items()}
    states = {name: mx.nd.array(value) for name, value in auxiliary.items()}
    executor = symbol.bind(mx.cpu(), arrays, args_grad=grads, grad_req=request, aux_states=states)
    if monitored:
        executor.set_monitor_callback(lambda name, array: None, monitor_all=True)
    outputs = executor.forward(is_train=training)
    for output, value in zip(outputs, expected["outputs"], strict=True):
        numpy.testing.assert_allclose(output.asnumpy(), value, rtol=2e-5, atol=1e-6)
    executor.backward(None if heads is None else [mx.nd.array(head) for head in heads])
    for name, value in expected["grads"].items():
        if name == "l":
            # The original leaves the buffers of labels as they are; here they get the gradient, zeros.
            assert not grads[name].asnumpy().any()
            continue
        numpy.testing.assert_allclose(grads[name].asnumpy(), value, rtol=2e-4, atol=2e-5, err_msg=name)
    for name, value in expected["aux"].items():
        numpy.testing.assert_allclose(states[name].asnumpy(), value, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", GOLDENS["attributes"], ids=lambda case: case[0][:40])
def test_attributes(case: Any) -> None:
    text, expected = case
    assert make(text).attr_dict() == expected


def test_debug_str() -> None:
    text, expected = GOLDENS["debug_str"]
    assert make(text).debug_str() == expected


@pytest.mark.parametrize("case", GOLDENS["summaries"], ids=["default", "narrow"])
def test_print_summary(case: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text, options, expected = case
    symbol = make(text)
    mx.viz.print_summary(symbol, **options)
    assert capsys.readouterr().out == expected
