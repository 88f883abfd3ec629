"""Files travel both ways: five models, two styles, the two originals and the C predict interface of 1.9.1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import interop_models as models
import numpy as np
import pytest
from interop_support import Level, require

import regluon as mx

RTOL, ATOL = 1e-4, 1e-5
# Cells that an original itself cannot do, with the error that it gives.
IMPOSSIBLE: dict[tuple[str, int, int, str], str] = {}

GRID = [(name, style) for style in models.STYLES for name in models.NAMES]


def reference(folder: Path) -> tuple[list[np.ndarray], np.ndarray]:
    """The inputs and the imperative outputs that lie beside the files of a model."""
    with np.load(folder / "reference.npz") as archive:
        names = [name for name in archive.files if name.startswith("data")]
        return [archive[name] for name in sorted(names)], archive["output"]


def check_read(
    outcomes: dict[str, str], folder: Path, do: str, name: str, style: int, generation: int
) -> None:
    outcome = outcomes[f"{do}-{name}-{style}"]
    expected_error = IMPOSSIBLE.get((name, style, generation, do))
    if expected_error is not None:
        assert expected_error in outcome
        return
    assert outcome == ""
    theirs = np.load(folder / f"{do}-by-{generation}.npy")
    np.testing.assert_allclose(theirs, reference(folder)[1], RTOL, ATOL)


@pytest.mark.parametrize("name, style", GRID)
@pytest.mark.parametrize("generation", [1, 2])
def test_original_runs_our_export(
    name: str,
    style: int,
    generation: int,
    ours: Any,
    read_by_originals: Callable[[int], dict[str, str]],
) -> None:
    require(generation)
    folder = ours[name, style]
    check_read(read_by_originals(generation), folder, "load", name, style, generation)


@pytest.mark.parametrize("name, style", GRID)
def test_c_predict_interface_runs_our_export(
    name: str,
    style: int,
    ours: Any,
    read_by_originals: Callable[[int], dict[str, str]],
) -> None:
    require(1)
    folder = ours[name, style]
    check_read(read_by_originals(1), folder, "predict", name, style, 1)


@pytest.mark.parametrize("name, style", GRID)
def test_original_loads_our_parameters(
    name: str,
    style: int,
    ours: Any,
    read_by_originals: Callable[[int], dict[str, str]],
) -> None:
    require(style)
    folder = ours[name, style]
    check_read(read_by_originals(style), folder, "restore", name, style, style)


@pytest.mark.parametrize("array_style", models.STYLES)
@pytest.mark.parametrize("name, generation", GRID)
def test_we_run_the_export_of_an_original(
    name: str, generation: int, array_style: int, made_by_originals: Callable[[int], dict[str, Path]]
) -> None:
    require(generation)
    folder = made_by_originals(generation)[name]
    values, expected = reference(folder)
    path = str(folder / "model")
    with Level(array_style):
        net = mx.gluon.SymbolBlock.imports(
            f"{path}-symbol.json", models.input_names(name), f"{path}-{models.STEPS:04d}.params"
        )
        imperative = net(*models.arrays(mx, array_style, values)).asnumpy()
        np.testing.assert_allclose(imperative, expected, RTOL, ATOL)
        net.hybridize(static_alloc=True, static_shape=True)
        compiled = net(*models.arrays(mx, array_style, values)).asnumpy()
    np.testing.assert_allclose(compiled, expected, RTOL, ATOL)


@pytest.mark.parametrize("name, generation", GRID)
def test_we_load_the_parameters_of_an_original(
    name: str, generation: int, made_by_originals: Callable[[int], dict[str, Path]]
) -> None:
    require(generation)
    folder = made_by_originals(generation)[name]
    values, expected = reference(folder)
    with Level(generation):
        net = models.make(mx, name, generation)
        net.load_parameters(str(folder / "saved.params"))
        data = models.arrays(mx, generation, values)
        np.testing.assert_allclose(net(*data).asnumpy(), expected, RTOL, ATOL)
        net.hybridize()
        np.testing.assert_allclose(net(*data).asnumpy(), expected, RTOL, ATOL)


@pytest.mark.parametrize("name, style", GRID)
def test_we_run_our_own_export(name: str, style: int, ours: Any) -> None:
    folder = ours[name, style]
    values, expected = reference(folder)
    path = str(folder / "model")
    with Level(style):
        net = mx.gluon.SymbolBlock.imports(
            f"{path}-symbol.json", models.input_names(name), f"{path}-{models.STEPS:04d}.params"
        )
        output = net(*models.arrays(mx, style, values))
    np.testing.assert_allclose(output.asnumpy(), expected, RTOL, ATOL)
