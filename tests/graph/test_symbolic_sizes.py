"""Sizes among attributes: the values that they are read from belong to the graph."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import regluon as mx
from regluon import gluon
from regluon.graph.dims import dims_in, sources_of
from regluon.graph.node import rebuild, topological


class SizeOfALaterOutput(gluon.HybridBlock):
    """zeros() has no input, and is an output before the value whose size it takes."""

    def forward(self, x: Any) -> Any:
        y = mx.npx.relu(x)[:, 1:]
        return mx.np.zeros((y.shape[1],)), y


class SizeOfNothingElse(gluon.HybridBlock):
    """Nothing but its size is used of y."""

    def forward(self, x: Any) -> Any:
        y = mx.npx.relu(x)[:, 1:]
        return x.sum() * y.shape[1]


@pytest.mark.parametrize("width", [4, 6])
def test_sizes_of_later_and_of_otherwise_unused_values(width: int) -> None:
    later, unused = SizeOfALaterOutput(), SizeOfNothingElse()
    for block in (later, unused):
        block.hybridize()
        block(mx.np.ones((2, 5)))
    zeros, y = later(mx.np.ones((2, width)))
    assert zeros.shape == (width - 1,) and y.shape == (2, width - 1)
    assert unused(mx.np.ones((2, width))).item() == 2 * width * (width - 1)
    assert unused._graph_cache().traces == 1


def graph() -> list[Any]:
    class Net(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            y = mx.np.exp(x)
            return y.reshape((y.shape[0] * 2, -1))

    net = Net()
    net.hybridize()
    net(mx.np.ones((2, 4)))
    return net._graph_cache().for_export().outputs


def read_from(entries: list[Any]) -> list[Any]:
    dims = [dim for value in entries[0].node.attrs.values() for dim in dims_in(value)]
    return [entry.node for entry in sources_of(dims)]


def test_a_rebuilt_graph_reads_its_own_sizes() -> None:
    entries = graph()
    before = [dict(node.attrs) for node in topological(entries)]
    copy = rebuild(entries, fresh=True)
    assert read_from(entries) == [entries[0].node.inputs[0].node]
    assert read_from(copy) == [copy[0].node.inputs[0].node]
    assert not {id(node) for node in topological(copy)} & {id(node) for node in topological(entries)}
    assert all(a == b.attrs for a, b in zip(before, topological(entries), strict=True))
    same = rebuild(entries)
    assert same[0].node is entries[0].node


def test_order_with_and_without_sizes() -> None:
    block = SizeOfNothingElse()
    block.hybridize()
    block(mx.np.ones((2, 4)))
    outputs = block._graph_cache().for_export().outputs
    names = [node.name for node in topological(outputs)]
    assert len(names) > len([node.name for node in topological(outputs, sizes=False)])
    for node in topological(outputs):
        for value in node.attrs.values():
            for source in sources_of(dims_in(value)):
                assert names.index(source.node.name) < names.index(node.name)
    numpy.testing.assert_array_equal(block(mx.np.ones((1, 3))).asnumpy(), 6)
