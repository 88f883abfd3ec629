"""Every operator in every type.

What the originals take is taken, with their output types. Floating results agree with the reference in
float64, whole-number results with those of the originals, and a refusal names the operator.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import regluon as mx
from regluon import ops

from . import sample_records, samples

# Relative to the largest element of the result: one rounding of an input moves every element by that much.
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "float64": 1e-5}
TYPES = (*TOLERANCE, "int8", "uint8", "int32", "int64", "bool")
NAMES = sorted(name for name, cases in sample_records.all_samples().items() if cases[0].inputs)


@cache
def deviations() -> dict[str, dict[str, str]]:
    """``values`` and ``types`` where the result differs on purpose: operator (and type) -> reason."""
    return json.loads((sample_records.RECORDS / "deviations.json").read_text())  # type: ignore[no-any-return]


def deviates(what: str, name: str, kind: str) -> bool:
    known = deviations().get(what, {})
    return name in known or f"{name} {kind}" in known


def cast(sample: samples.Sample, kind: str) -> list[np.ndarray]:
    """The inputs that have the type of the first one in another type; bfloat16 stays float32 for NumPy."""
    base = sample.inputs[0].dtype
    with np.errstate(invalid="ignore"):
        return [
            value.astype("float32" if kind == "bfloat16" else kind) if value.dtype == base else value
            for value in sample.inputs
        ]


def call(name: str, sample: samples.Sample, kind: str) -> list[Any] | str:
    """The outputs, or the text of the refusal; anything but an MXNetError is a failure."""
    make = mx.np.array if name.startswith("_np") else mx.nd.array
    base = sample.inputs[0].dtype
    arrays = [
        make(value, dtype=kind if old.dtype == base else old.dtype)
        for value, old in zip(cast(sample, kind), sample.inputs, strict=True)
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = ops.invoke(name, arrays, dict(sample.attrs))
    except mx.MXNetError as error:
        return str(error)
    return list(result) if isinstance(result, list) else [result]


def name_of(array: Any) -> str:
    return str(array._t.dtype).removeprefix("torch.")


def check_floats(
    name: str, sample: samples.Sample, kind: str, results: list[Any]
) -> Iterator[tuple[str, str, str]]:
    """What differs from the reference on float64 copies of the very values."""
    if sample.reference is None or sample.inputs[0].dtype not in (np.float32, np.float64):
        return  # A reference of whole numbers, or one that rounds to float16 itself, is for those types.
    inputs = [value.astype(np.float64) if value.dtype.kind == "f" else value for value in cast(sample, kind)]
    if kind == "bfloat16":
        inputs = [
            mx.nd.array(value, dtype="bfloat16").asnumpy().astype(np.float64)
            if value.dtype == np.float64
            else value
            for value in inputs
        ]
    with np.errstate(all="ignore"):
        expected = sample.reference(*inputs)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    if ops.get(name).mutates:
        results, expected = results[:1], expected[:1]
    for result, wanted in zip(results, expected, strict=False):
        wanted = np.asarray(wanted, dtype=np.float64)
        values = result.asnumpy().astype(np.float64).reshape(wanted.shape)
        tolerance = TOLERANCE[kind]
        finite = np.abs(wanted[np.isfinite(wanted)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        near = np.isclose(values, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        if not near.all():
            place = tuple(int(i) for i in np.argwhere(~near)[0])
            yield "values", kind, f"{values[place]!r} at {place} instead of {wanted[place]!r}"


def check_record(
    kind: str, recorded: dict[str, Any], results: list[Any], random: bool
) -> Iterator[tuple[str, str, str]]:
    """What differs from the record of the original; of a random operator only the types are compared."""
    types = [name_of(result) for result in results]
    if types != recorded["types"][: len(types)]:
        yield "types", kind, f"gives {types}, the original {recorded['types']}"
    if random or types != recorded["types"][: len(types)]:
        return
    for result, wanted in zip(results, recorded.get("values", ()), strict=False):
        wanted = np.asarray(wanted, dtype=np.float64)
        values = result.asnumpy().astype(np.float64).ravel()
        tolerance = TOLERANCE.get(name_of(result), 0.0)
        if len(values) != len(wanted):
            yield "values", kind, f"{len(values)} elements instead of {len(wanted)}"
        elif not np.allclose(values, wanted, rtol=tolerance, atol=tolerance, equal_nan=True):
            yield "values", kind, f"{values.tolist()} instead of {wanted.tolist()}"


def problems_of(name: str) -> Iterator[tuple[str, str, str]]:
    """(kind of problem, type, text) of everything that differs, on purpose or not."""
    for sample in sample_records.all_samples()[name]:
        recorded = sample_records.record(name, sample)
        for kind in TYPES:
            results = call(name, sample, kind)
            original = recorded.get(kind)
            if isinstance(results, str):
                if original is not None:
                    yield "refused", kind, results
                elif not sample_records.names_operator(results, ops.get(name).name):
                    yield "text", kind, f"the refusal names no operator: {results}"
            else:
                if original is not None:
                    yield from check_record(kind, original, results, ops.get(name).uses_rng)
                if kind in TOLERANCE and not ops.get(name).uses_rng:
                    yield from check_floats(name, sample, kind, results)


@pytest.mark.parametrize("name", NAMES)
def test_types(name: str) -> None:
    problems = [
        f"{kind} {what}: {text}" for what, kind, text in problems_of(name) if not deviates(what, name, kind)
    ]
    assert not problems, "\n".join(problems)


def test_deviations_still_deviate() -> None:
    for what, entries in deviations().items():
        for entry in entries:
            name, _, wanted = entry.partition(" ")
            found = [kind for problem, kind, _ in problems_of(name) if problem == what]
            assert found if not wanted else wanted in found, f"{entry} agrees now, take it out of {what}"


def test_records_cover_the_operators_of_the_originals() -> None:
    known = {name for version in ("1.9.1", "2.0.0b1") for name in sample_records.records(version)}
    cases = sample_records.all_samples()
    absent = [
        name
        for name in NAMES
        if name in known and not any(sample_records.record(name, sample) for sample in cases[name])
    ]
    assert len(known & set(NAMES)) > 400
    assert not absent, f"samples changed; run tests/golden/make/operator_types.py again: {absent}"


def test_deviations_have_reasons_and_operators() -> None:
    for what, entries in deviations().items():
        assert what in ("types", "values", "refused")
        for key, reason in entries.items():
            assert ops.registry.exists(key.split()[0]), key
            assert len(reason.split()) >= 4, key
