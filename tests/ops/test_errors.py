"""Wrong calls of every operator: an MXNetError that names the operator, what it expects and what came."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import ops

from . import sample_records, samples

CASES = {name: cases[0] for name, cases in sample_records.all_samples().items()}
NAMES = sorted(CASES)
# Shapes that few operators expect.
SHAPES = ((), (0,), (5,), (2, 0, 3), (7, 3), (2, 3, 5, 1, 2, 1))


def arrays_of(name: str, sample: samples.Sample) -> list[Any]:
    make = mx.np.array if name.startswith("_np") else mx.nd.array
    return [make(value, dtype=value.dtype) for value in sample.inputs]


def refusal(name: str, arrays: list[Any], attrs: dict[str, Any]) -> str:
    """The text of the MXNetError that a call raises."""
    with pytest.raises(mx.MXNetError) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ops.invoke(name, arrays, attrs)
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_number_of_inputs(name: str) -> None:
    sample, definition = CASES[name], ops.get(name)
    if definition.variadic:
        return
    arrays = arrays_of(name, sample)
    spare = mx.nd.ones((2, 2))
    many = [*arrays, *[spare] * (len(definition.inputs) + 1 - len(arrays))]
    text = refusal(name, many, dict(sample.attrs))
    assert definition.name in text
    assert f"received {len(many)}" in text
    if arrays and definition.inputs[0] not in definition.optional:
        text = refusal(name, [], dict(sample.attrs))
        assert definition.name in text
        assert definition.inputs[0] in text
        assert "received 0" in text


@pytest.mark.parametrize("name", NAMES)
def test_attributes(name: str) -> None:
    sample, definition = CASES[name], ops.get(name)
    arrays = arrays_of(name, sample)
    text = refusal(name, arrays, {**sample.attrs, "no_such_thing": 1})
    assert definition.name in text
    assert "no attribute 'no_such_thing'" in text
    for key in definition.parameters:
        assert key in text, "the message lists what there is"
    for key, parameter in definition.parameters.items():
        if len(key) > 2:
            text = refusal(name, arrays, {**sample.attrs, f"{key}x": 1})
            assert "did you mean" in text
        if parameter.kind == "str" and parameter.choices is None:
            continue
        text = refusal(name, arrays, {**sample.attrs, key: "?!"})
        assert definition.name in text
        assert f"the attribute {key} expects" in text
        assert "received '?!'" in text
    for key in set(definition.required) - {definition.num_args_key}:
        text = refusal(name, arrays, {k: v for k, v in sample.attrs.items() if k != key})
        assert f"operator {definition.name} needs the attribute {key}" in text


@pytest.mark.parametrize("name", NAMES)
def test_shapes(name: str) -> None:
    """Whatever the shapes, an operator gives a result or an MXNetError that names it; nothing else."""
    sample = CASES[name]
    make = mx.np.array if name.startswith("_np") else mx.nd.array
    for place, value in enumerate(sample.inputs):
        for shape in SHAPES:
            arrays = arrays_of(name, sample)
            arrays[place] = make(np.ones(shape), dtype=value.dtype)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ops.invoke(name, arrays, dict(sample.attrs))
            except mx.MXNetError as error:
                assert sample_records.names_operator(str(error), ops.get(name).name), (shape, str(error))


def test_unknown_operator_names_the_nearest() -> None:
    pattern = r"'FullyConected' is not registered.*FullyConnected.*ops.list\(\)"
    with pytest.raises(mx.MXNetError, match=pattern):
        ops.invoke("FullyConected", [])


def test_list_is_what_can_be_invoked() -> None:
    names = ops.list()
    assert names == sorted(set(names))
    assert len(names) > 800
    for name in names:
        definition = ops.get(name)
        assert name in (definition.name, *definition.aliases)
    assert {"Convolution", "_npi_add", "broadcast_add", "_linalg_gemm2"} <= set(names)


def test_strings_are_attributes_of_every_type() -> None:
    data = mx.nd.ones((2, 3, 4, 4))
    weight, bias = mx.nd.ones((5, 3, 3, 3)), mx.nd.zeros((5,))
    attrs = {"kernel": "(3, 3)", "num_filter": "5", "pad": "[1,1]", "no_bias": "False", "stride": "(1L, 1L)"}
    result = ops.invoke("Convolution", [data, weight, bias], attrs)
    assert result.shape == (2, 5, 4, 4)
    assert ops.invoke("Cast", [data], {"dtype": "int32"}).dtype == np.int32
    assert ops.invoke("sum", [data], {"axis": "1", "keepdims": "1"}).shape == (2, 1, 4, 4)
    clipped = ops.invoke("clip", [data], {"a_min": "0", "a_max": "5e-1"})
    assert float(clipped.max().asscalar()) == 0.5
    assert isinstance(ops.invoke("relu", [mx.sym.var("x")], {}), mx.sym.Symbol)
    parts = ops.invoke("SliceChannel", [data], {"num_outputs": "2", "axis": "2"})
    assert [part.shape for part in parts] == [(2, 3, 2, 4)] * 2
    target = mx.nd.zeros((2, 3, 4, 4))
    assert ops.invoke("relu", [data], {}, out=target) is target
    np.testing.assert_array_equal(target.asnumpy(), data.asnumpy())
