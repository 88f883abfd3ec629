"""Layers on integers that MXNet wrote to files give the integers that it computed."""

from __future__ import annotations

from pathlib import Path

import numpy

import regluon as mx

GOLDEN = Path(__file__).parents[1] / "golden" / "quantized_convolution"


def test_a_convolution_gives_the_integers_of_the_original() -> None:
    """The largest value of each of 64 filters is on a tie: every rounding has to be the original's."""
    symbol = mx.sym.load(f"{GOLDEN}.json")
    with numpy.load(f"{GOLDEN}.npz") as archive:
        values = {name: archive[name] for name in archive.files}
    expected = values.pop("output")
    arrays = {name: mx.nd.array(value, dtype=value.dtype) for name, value in values.items()}
    auxiliary = {name: arrays.pop(name) for name in symbol.list_auxiliary_states()}
    (result,) = symbol.bind(mx.cpu(), arrays, aux_states=auxiliary, grad_req="null").forward()
    assert result.dtype == numpy.uint8 and expected.std() > 10
    numpy.testing.assert_array_equal(result.asnumpy(), expected)
