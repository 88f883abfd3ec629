"""Every operator with a sample: eager against its reference, inference against a real run, and JSON round
trips."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import regluon as mx
from regluon import ops
from regluon.ops.infer import infer_specs
from regluon.ops.opdef import Spec, run
from regluon.symbol import convert

from . import sample_records, samples

SAMPLES = sample_records.all_samples()
GRID = [
    pytest.param(name, sample, id=f"{name}-{number}")
    for name, cases in sorted(SAMPLES.items())
    for number, sample in enumerate(cases)
    # reset_arrays has no output: it fills its inputs with zeros (see the golden cases).
    if name != "reset_arrays"
]


def _run(name: str, sample: samples.Sample) -> list[np.ndarray]:
    arrays = [mx.nd.array(value, dtype=value.dtype) for value in sample.inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = ops.invoke(name, arrays, dict(sample.attrs))
    return [value.asnumpy() for value in (result if isinstance(result, list) else [result])]


@pytest.mark.parametrize("name, sample", GRID)
def test_eager_is_the_reference(name: str, sample: samples.Sample) -> None:
    definition = ops.get(name)
    if sample.reference is None:
        assert _run(name, sample)
        return
    results = _run(name, sample)
    with np.errstate(all="ignore"):
        expected = sample.reference(*sample.inputs)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    if definition.mutates:
        results, expected = results[:1], expected[:1]
    for result, wanted in zip(results, expected, strict=False):
        wanted = np.asarray(wanted)
        np.testing.assert_allclose(
            result.reshape(wanted.shape).astype(np.float64),
            wanted.astype(np.float64),
            rtol=max(sample.rtol, 1e-4),
            atol=max(sample.atol, 1e-5),
        )


DETERMINISTIC = [param for param in GRID if not ops.get(str(param.values[0])).uses_rng]


class _Call(mx.gluon.HybridBlock):
    """One operator call as a block."""

    def __init__(self, name: str, attrs: dict[str, Any]) -> None:
        super().__init__()
        self.operator = name
        self.attrs = attrs

    def forward(self, *inputs: Any) -> Any:
        return ops.invoke(self.operator, list(inputs), dict(self.attrs))


@pytest.mark.parametrize("name, sample", DETERMINISTIC)
def test_program_and_np_kind_are_the_eager_result(name: str, sample: samples.Sample) -> None:
    if ops.get(name).mutates or not sample.inputs:
        return
    expected = _run(name, sample)
    block = _Call(name, dict(sample.attrs))
    block.hybridize()
    for make in (mx.nd.array, mx.np.array):
        inputs = [make(value, dtype=value.dtype) for value in sample.inputs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = block(*inputs)
        for value, wanted in zip(result if isinstance(result, list) else [result], expected, strict=True):
            assert type(value) is type(inputs[0])
            np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name, sample", DETERMINISTIC)
def test_gradient_is_that_of_finite_differences(name: str, sample: samples.Sample) -> None:
    definition = ops.get(name)
    # Labels are class numbers; batch normalization's statistics have no gradient (the goldens check it).
    labels = {i for i, name in enumerate(definition.inputs) if "label" in name}
    floats = [value.dtype.kind == "f" and i not in labels for i, value in enumerate(sample.inputs)]
    if definition.aux or definition.gradient != "torch" or definition.mutates:
        return
    if not sample.gradient or not any(floats):
        return
    tensors = [
        torch.tensor(value, dtype=torch.float64 if value.dtype.kind == "f" else None, requires_grad=real)
        for value, real in zip(sample.inputs, floats, strict=True)
    ]
    attrs = definition.parse(sample.attrs)

    def function(*inputs: torch.Tensor) -> Any:
        results = run(definition, inputs, attrs, False, None)
        results = (results,) if isinstance(results, torch.Tensor) else tuple(results)
        return tuple(result for result in results if result.requires_grad)

    assert torch.autograd.gradcheck(function, tensors, fast_mode=True, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name, sample", GRID)
def test_inference_is_a_real_run(name: str, sample: samples.Sample) -> None:
    definition = ops.get(name)
    if definition.dynamic:
        with pytest.raises(mx.MXNetError, match="depends on"):
            infer_specs(definition, definition.parse(sample.attrs), [])
        return
    specs = [
        Spec(tuple(value.shape), mx.nd.array(value, dtype=value.dtype)._t.dtype) for value in sample.inputs
    ]
    inferred = infer_specs(definition, definition.parse(sample.attrs), specs)
    arrays = [mx.nd.array(value, dtype=value.dtype) for value in sample.inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real: Any = ops.invoke(name, arrays, dict(sample.attrs))
    for spec, value in zip(inferred, real if isinstance(real, list) else [real], strict=False):
        assert (tuple(spec.shape), spec.dtype) == (tuple(value._t.shape), value._t.dtype)


@pytest.mark.parametrize("name, sample", GRID)
def test_attributes_survive_json(name: str, sample: samples.Sample) -> None:
    definition = ops.get(name)
    inputs = [mx.sym.var(f"in{i}") for i in range(len(sample.inputs))]
    composed = mx.symbol.Symbol._compose(definition, inputs, dict(sample.attrs), "node", None)
    entries, _ = convert.from_json(composed.tojson(remove_amp_cast=False))
    again = entries[0].node
    assert again.op is definition
    first = composed._list()[0].node
    for key, value in first.full_attrs.items():
        if isinstance(value, float):
            assert again.full_attrs[key] == pytest.approx(value)
        else:
            assert again.full_attrs[key] == value
    assert len(again.inputs) == len(first.inputs)


def test_every_operator_has_a_sample() -> None:
    # What custom operators do is the user's: tests/custom. Those of bodies: tests/control_flow.
    names = {
        definition.name
        for definition in ops.registry.all_definitions()
        if not definition.specialise
        and not any(parameter.kind == "graphs" for parameter in definition.parameters.values())
    }
    sampled = {ops.get(name).name for name in SAMPLES}
    missing = sorted(names - sampled)
    assert not missing, f"{len(missing)} operators without a sample record: {', '.join(missing)}"


def test_samples_name_operators() -> None:
    unknown = [name for name in SAMPLES if not ops.registry.exists(name)]
    assert not unknown




def _nodes(symbol: Any) -> list[dict[str, Any]]:
    """The operator nodes of a Symbol's JSON without their names, which differ by where they were made."""
    found = []
    for node in json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]:
        if node["op"] == "null":
            continue
        operator, attrs = node["op"], node.get("attrs", {})
        # Where ranks are known, files spell some operators in a way that both originals read.
        if "__regluon_op__" in attrs:
            operator, attrs = json.loads(attrs["__regluon_op__"])
        found.append({"op": operator, "attrs": attrs, "inputs": len(node["inputs"])})
    return found


@pytest.mark.parametrize("name, sample", GRID)
def test_composing_writes_the_node_that_tracing_records(name: str, sample: samples.Sample) -> None:
    definition = ops.get(name)
    if not sample.inputs or definition.dynamic:
        return
    variables = [mx.sym.var(f"data{i}") for i in range(len(sample.inputs))]
    composed = mx.symbol.Symbol._compose(definition, variables, dict(sample.attrs), None, None)
    block = _Call(name, dict(sample.attrs))
    block.hybridize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block(*(mx.nd.array(value, dtype=value.dtype) for value in sample.inputs))
        traced, _ = block.export(None)
    assert _nodes(traced) == _nodes(composed)
    assert len(_nodes(composed)) == 1
