"""Operators on graphs whose edges are CSR arrays."""

from __future__ import annotations

import numpy as np
import pytest

import regluon as mx

GRAPH = np.array([[0, 1, 0, 2], [0, 0, 3, 0], [4, 0, 0, 5], [0, 6, 7, 0]])


def graph() -> mx.nd.sparse.CSRNDArray:
    return mx.nd.array(GRAPH, dtype="int64").tostype("csr")


def complete(size: int) -> mx.nd.sparse.CSRNDArray:
    """Every vertex leads to all others."""
    matrix = np.arange(1, size * size + 1).reshape(size, size) * (1 - np.eye(size, dtype=int))
    return mx.nd.array(matrix, dtype="int64").tostype("csr")


def test_an_edge_that_is_stored_as_zero_is_an_edge() -> None:
    csr = mx.nd.sparse.csr_matrix(
        (np.int64([0, 1, 2]), np.int64([1, 0, 1]), np.int64([0, 1, 3])), shape=(2, 2), dtype="int64"
    )
    u, v = mx.nd.array([0, 0, 1], dtype="int64"), mx.nd.array([0, 1, 1], dtype="int64")
    assert mx.nd.contrib.edge_id(csr, u, v).asnumpy().tolist() == [-1, 0, 2]
    found = mx.nd.contrib.dgl_adjacency(csr)
    assert found.stype == "csr"
    assert found.asnumpy().tolist() == [[0, 1], [1, 1]]
    assert found.dtype == np.float32


def test_subgraphs_keep_the_first_edge_and_tell_old_numbers() -> None:
    vertices = mx.nd.array([0, 2, 3], dtype="int64")
    new, old = mx.nd.contrib.dgl_subgraph(graph(), vertices, return_mapping=True)
    assert (new.stype, old.stype) == ("csr", "csr")
    assert new.data.asnumpy().tolist() == [0, 1, 2, 3]
    assert old.asnumpy().tolist() == [[0, 0, 2], [4, 0, 5], [0, 7, 0]]
    pair = mx.nd.contrib.dgl_subgraph(
        graph(), vertices, mx.nd.array([1, 2], dtype="int64"), return_mapping=False
    )
    assert [one.shape for one in pair] == [(3, 3), (2, 2)]
    with pytest.raises(mx.MXNetError, match="ascending order"):
        mx.nd.contrib.dgl_subgraph(graph(), mx.nd.array([2, 0], dtype="int64"), return_mapping=False)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_has_as_many_edges_as_asked_and_only_real_ones(weighted: bool) -> None:
    mx.random.seed(5)
    size, source = 9, complete(9)
    dense = source.asnumpy()
    seeds = mx.nd.array([0, 4], dtype="int64")
    options = {"num_hops": 2, "num_neighbor": 3, "max_num_vertices": 9}
    # The last vertex is never drawn.
    chances = np.ones(size, np.float32)
    chances[-1] = 0
    for _ in range(5):
        if weighted:
            vertices, edges, shares, layers = mx.nd.contrib.dgl_csr_neighbor_non_uniform_sample(
                source, mx.nd.array(chances), seeds, **options
            )
            assert (shares.asnumpy()[: int(vertices[-1].asscalar())] == 1).all()
        else:
            vertices, edges, layers = mx.nd.contrib.dgl_csr_neighbor_uniform_sample(source, seeds, **options)
        count = int(vertices[-1].asscalar())
        found, matrix = vertices.asnumpy()[:count], edges.asnumpy()
        assert sorted(set(found.tolist())) == found.tolist()
        assert {0, 4} <= set(found.tolist())
        assert not weighted or size - 1 not in found
        for row, vertex in enumerate(found):
            taken = matrix[row] != 0
            assert taken.sum() in (0, 3)
            np.testing.assert_array_equal(matrix[row][taken], dense[vertex][taken])
        assert set(layers.asnumpy()[:count].tolist()) <= {0, 1, 2}
        compact, old = mx.nd.contrib.dgl_graph_compact(
            edges, vertices, graph_sizes=count, return_mapping=True
        )
        np.testing.assert_array_equal(old.asnumpy(), matrix[:count][:, found])
        assert compact.data.asnumpy().tolist() == list(range(len(old.data.asnumpy())))


def test_a_seed_gives_the_same_sample_again() -> None:
    def draw() -> list[list[int]]:
        mx.random.seed(11)
        found = mx.nd.contrib.dgl_csr_neighbor_uniform_sample(
            complete(12), mx.nd.array([3], dtype="int64"), num_hops=2, num_neighbor=2, max_num_vertices=12
        )
        return found[1].asnumpy().tolist()

    assert draw() == draw()
