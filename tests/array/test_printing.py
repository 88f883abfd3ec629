"""Arrays print exactly as MXNet 1.9.1 (nd) and 2.0.0b1 (np) print them; the texts were recorded from
those."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

import regluon as mx
from regluon.array.printing import array_repr, array_str

CASES = json.loads((Path(__file__).parents[1] / "golden" / "printing.json").read_text())


class NDArray(SimpleNamespace):
    """The part of an array that printing reads."""


def _array(values: numpy.ndarray[Any, Any], device_type: str = "cpu") -> NDArray:
    class Device:
        def __str__(self) -> str:
            return f"{device_type}(0)"

    device = Device()
    device.device_type = device_type  # type: ignore[attr-defined]
    tensor = torch.from_numpy(numpy.ascontiguousarray(values)).reshape(values.shape)
    return NDArray(_t=tensor, shape=values.shape, context=device)


def _decode(case: dict[str, Any]) -> numpy.ndarray[Any, Any]:
    values = case["values"]
    if isinstance(values, dict):
        values = list(range(values["arange"]))
    numbers = [float(value) if isinstance(value, str) else value for value in values]
    return numpy.array(numbers, dtype=case["dtype"]).reshape(case["shape"])


@pytest.mark.parametrize("kind", ["nd", "np"])
def test_recorded_texts(kind: str) -> None:
    cases = [case for case in CASES if case["kind"] == kind]
    assert len(cases) > 100
    for case in cases:
        with numpy.printoptions(**case["options"]):
            array = _array(_decode(case))
            assert array_repr(array, kind) == case["repr"], case  # type: ignore[arg-type]
            assert array_str(array, kind) == case["str"], case  # type: ignore[arg-type]


def test_bfloat16_prints_its_values() -> None:
    array = _array(numpy.array([1.5, 2.5], dtype="float32"))
    array._t = array._t.to(torch.bfloat16)
    assert array_repr(array, "nd") == "\n[1.5 2.5]\n<NDArray 2 @cpu(0)>"
    assert array_repr(array, "np") == "array([1.5, 2.5], dtype=bfloat16)"


def test_np_names_a_gpu() -> None:
    array = _array(numpy.array([1.0], dtype="float32"), "gpu")
    assert array_repr(array, "np") == "array([1.], device=gpu(0))"


@pytest.mark.parametrize("kind", ["nd", "np"])
def test_arrays_print_the_recorded_texts(kind: str) -> None:
    """The same through whole arrays, made by the public functions."""
    space = mx.nd if kind == "nd" else mx.np
    for case in CASES:
        if case["kind"] == kind and not case["options"]:
            values = _decode(case)
            array = space.array(values, dtype=values.dtype)
            assert repr(array) == case["repr"], case
            assert str(array) == case["str"], case
            assert f"{array}" == case["str"], case
