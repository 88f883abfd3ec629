"""What does not work after hybridize in 1.x: it works here, and fails as told in strict mode."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon


def values(array: Any) -> Any:
    return array.asnumpy()


# Strict mode -------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["default", "strict"])
def strict(request: pytest.FixtureRequest) -> bool:
    mx.set_api(1)
    mx.base.config.set_strict(request.param)
    return bool(request.param)


def hybridized(body: Any) -> Any:
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
            return body(F, x, *args)

    net = Net()
    net.hybridize()
    return net


def test_shape_of_a_symbol(strict: bool) -> None:
    net = hybridized(lambda F, x: x.reshape((x.shape[0], -1)))
    x = mx.nd.ones((2, 3, 4))
    if strict:
        with pytest.raises(AttributeError, match=r"'Symbol' object has no attribute 'shape'"):
            net(x)
    else:
        assert net(x).shape == (2, 12)


def test_indexing_a_symbol(strict: bool) -> None:
    x = mx.nd.array([[1.0, 2.0], [3.0, 4.0]])
    # In 1.x the first output of a Symbol is the Symbol itself: the silent trap of the tutorial.
    numpy.testing.assert_array_equal(
        values(hybridized(lambda F, x: x[0] * 1)(x)), values(x) if strict else [1, 2]
    )


def test_adding_arrays_of_two_shapes(strict: bool) -> None:
    net = hybridized(lambda F, x: x + F.ones((1, 1)))
    x = mx.nd.array([[1.0, 2.0], [3.0, 4.0]])
    if strict:
        with pytest.raises(mx.base.MXNetError, match=r"(?i)elemwise_add|shape"):
            net(x)
    else:
        numpy.testing.assert_array_equal(values(net(x)), [[2, 3], [4, 5]])


def test_the_tutorials_spelling_works_in_both_modes(strict: bool) -> None:
    net = hybridized(lambda F, x: F.broadcast_add(x, F.ones((1, 1))))
    numpy.testing.assert_array_equal(values(net(mx.nd.zeros((2, 2)))), numpy.ones((2, 2)))


def test_numbers_as_arguments(strict: bool) -> None:
    net = hybridized(lambda F, x, k: x * k)
    if strict:
        with pytest.raises(ValueError, match=r"When hybridized, the input of HybridBlock.*got 2\.0 of type"):
            net(mx.nd.ones((2,)), 2.0)
    else:
        numpy.testing.assert_array_equal(values(net(mx.nd.ones((2,)), 2.0)), [2, 2])


def test_changed_argument_structure(strict: bool) -> None:
    net = hybridized(lambda F, x, y=None: x if y is None else x + y)
    x = mx.nd.ones((2,))
    net(x)
    if strict:
        with pytest.raises(ValueError, match=r"argument structure of HybridBlock does not match the cached"):
            net(x, x)
    else:
        numpy.testing.assert_array_equal(values(net(x, x)), [2, 2])
