"""The golden cases of the original releases, per family: imperatively, as a program, through symbol JSON."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path

import load_cases
import pytest
import runner
from load_cases import VERSIONS, Case

FOLDER = Path(__file__).parent
# Families whose cases hold here. The others belong to operators that are not built yet.
IN_FORCE = (
    "act_dense", "amp", "binary", "contrib_misc", "control_flow", "conv", "conv_nomkldnn", "detection",
    "detection_options", "image", "index", "intgemm", "linalg", "loss", "norm", "norm_nomkldnn",
    "np_binary", "np_index", "np_linalg", "np_random", "np_reduce", "np_shape", "np_unary", "npx_nn",
    "optim", "quant", "random", "reduce", "rnn", "shape", "unary",
)  # fmt: skip
SHOWN = 40


@cache
def not_yet() -> dict[str, str]:
    """Operators and functions that golden cases call and that do not exist yet, each with its subject."""
    return json.loads((FOLDER / "not_yet.json").read_text())


@cache
def deviations() -> dict[str, str]:
    """Cases where the result differs on purpose, each with the reason."""
    return json.loads((FOLDER / "deviations.json").read_text())


def in_force(version: str, family: str) -> list[Case]:
    """The cases of a family that count: not superseded by the other release, and of operators that exist."""
    old = load_cases.superseded(version, family)
    cases = [case for case in load_cases.load_family(version, family) if case.id not in old]
    return [case for case in cases if runner.missing(case) not in not_yet()]


def outcome(case: Case, mode: str) -> str:
    """What is wrong with ``case`` in ``mode``; empty when nothing is."""
    absent = runner.missing(case)
    if absent is not None:
        return f"{absent} does not exist and is not listed in not_yet.json"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "; ".join(runner.run_case(case, mode))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"raised {type(error).__name__}: {lines[0][:160]}"


GRID = [
    pytest.param(version, family, mode, id=f"{version}-{family}-{mode}")
    for version in VERSIONS
    for family in load_cases.families(version)
    if family in IN_FORCE
    for mode in runner.MODES
]


@pytest.mark.parametrize("version, family, mode", GRID)
def test_family(version: str, family: str, mode: str) -> None:
    failures = []
    for case in in_force(version, family):
        if case.key in deviations() or not runner.applies(case, mode):
            continue
        problem = outcome(case, mode)
        if problem:
            failures.append(f"{case.key}: {problem}")
    text = "\n".join(failures[:SHOWN])
    assert not failures, f"{len(failures)} cases differ from MXNet {version} ({mode}):\n{text}"


def test_families_in_force_exist() -> None:
    known = {family for version in VERSIONS for family in load_cases.families(version)}
    assert set(IN_FORCE) <= known


def test_not_yet_names_only_what_is_missing() -> None:
    built = [name for name in not_yet() if runner.exists(name)]
    assert not built, f"these exist now, take them out of not_yet.json: {', '.join(sorted(built))}"


def test_not_yet_names_only_what_cases_call() -> None:
    called = {
        runner.missing(case)
        for version in VERSIONS
        for family in load_cases.families(version)
        for case in load_cases.load_family(version, family)
    }
    idle = sorted(set(not_yet()) - called)
    assert not idle, f"no golden case calls these, take them out of not_yet.json: {', '.join(idle)}"


def test_deviations_still_deviate() -> None:
    known = {
        case.key: case
        for version in VERSIONS
        for family in load_cases.families(version)
        for case in in_force(version, family)
    }
    unknown = sorted(set(deviations()) - set(known))
    assert not unknown, f"not a case in force: {', '.join(unknown)}"
    healed = [
        key
        for key in deviations()
        if not any(outcome(known[key], mode) for mode in runner.MODES if runner.applies(known[key], mode))
    ]
    assert not healed, f"these agree now, take them out of deviations.json: {', '.join(healed)}"


def test_every_deviation_has_a_reason() -> None:
    bare = [key for key, reason in deviations().items() if len(reason.split()) < 3]
    assert not bare, f"a deviation needs a reason: {', '.join(bare)}"
