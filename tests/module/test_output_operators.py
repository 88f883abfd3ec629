"""The output operators in an executor: values, gradients and states of 1.9.1, for every option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import regluon as mx

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "output_operators.json").read_text())["cases"]
# Where 1.9.1 contradicts itself; each has its own test below.
WRONG_THERE = {
    ("SoftmaxOutput", "out_grad"): "1.9.1 multiplies by the output instead of the gradient",
    ("SoftmaxActivation", "3 axes"): "1.9.1 takes the last axis forward and axis 1 backward",
}


def known_wrong(case: dict[str, Any], data: numpy.ndarray) -> bool:
    if case["operator"] == "SoftmaxActivation":
        return case["attributes"]["mode"] == "instance" and data.ndim == 3
    return case["attributes"].get("out_grad") == "True"


def run(name: str, attributes: dict[str, str], arrays: dict[str, Any], head: Any) -> dict[str, numpy.ndarray]:
    symbol = getattr(mx.sym, name)(*(mx.sym.Variable(key) for key in arrays), name="out", **attributes)
    executor = symbol.simple_bind(mx.cpu(), **{key: value.shape for key, value in arrays.items()})
    for key, value in arrays.items():
        executor.arg_dict[key][:] = value
    for state in executor.aux_dict.values():
        state[:] = 0.2
    found = {"output": executor.forward(is_train=True)[0].asnumpy()}
    executor.backward(None if head is None else [mx.nd.array(head)])
    found["grad"] = executor.grad_dict["data"].asnumpy()
    found.update((f"aux:{key}", value.asnumpy()) for key, value in executor.aux_dict.items())
    found["predicted"] = executor.forward(is_train=False)[0].asnumpy()
    return found


def test_output_operators_equal_the_original() -> None:
    assert len(CASES) > 90
    skipped = 0
    with numpy.load(GOLDEN / "output_operators.npz") as archive:
        for number, case in enumerate(CASES):
            arrays = {key: archive[f"{number}/{key}"] for key in case["inputs"]}
            head = archive[f"{number}/head"] if case["head"] else None
            found = run(case["operator"], case["attributes"], arrays, head)
            assert list(found) == case["found"]
            for key, value in found.items():
                if key == "grad" and known_wrong(case, arrays["data"]):
                    skipped += 1
                    continue
                numpy.testing.assert_allclose(
                    value, archive[f"{number}/{key}"], rtol=1e-5, atol=1e-6, err_msg=f"{case} {key}"
                )
    assert skipped == len(WRONG_THERE)


def softmax(values: numpy.ndarray) -> numpy.ndarray:
    powers = numpy.exp(values - values.max(-1, keepdims=True))
    result: numpy.ndarray = powers / powers.sum(-1, keepdims=True)
    return result


def test_out_grad_multiplies_by_the_gradient_that_comes() -> None:
    data, label = numpy.random.randn(3, 4).astype("f"), numpy.array([1, 0, 3], "f")
    head = numpy.random.randn(3, 4).astype("f")
    found = run("SoftmaxOutput", {"out_grad": "True"}, {"data": data, "label": label}, head)
    wanted = (softmax(data) - numpy.eye(4)[label.astype(int)]) * head
    numpy.testing.assert_allclose(found["grad"], wanted, rtol=1e-5, atol=1e-6)


def test_softmax_activation_has_the_gradient_of_its_values() -> None:
    data, head = (numpy.random.randn(2, 3, 4).astype("f") for _ in range(2))
    found = run("SoftmaxActivation", {"mode": "instance"}, {"data": data}, head)
    output = softmax(data)
    wanted = output * (head - (head * output).sum(-1, keepdims=True))
    numpy.testing.assert_allclose(found["grad"], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["SVMOutput", "SoftmaxOutput", "MAERegressionOutput", "LinearRegressionOutput"]
)
def test_label_shapes_follow_from_the_data(name: str) -> None:
    symbol = getattr(mx.sym, name)(mx.sym.Variable("data"), name="out")
    shapes, outputs, _ = symbol.infer_shape(data=(4, 5))
    assert outputs == [(4, 5)]
    assert shapes[1] == ((4, 5) if "Regression" in name else (4,))
