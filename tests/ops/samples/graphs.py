"""Samples of the operators on graphs, on dense matrices."""

from __future__ import annotations

import numpy as np

from . import Sample

GRAPH = np.int64([[0, 1, 0, 2], [0, 0, 3, 0], [4, 0, 0, 5], [0, 6, 7, 0]])
_U, _V = np.int64([0, 0, 3, 1]), np.int64([1, 2, 2, 2])
_VERTICES = np.int64([0, 2, 3])


def _numbers(graph: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    found = graph[u, v]
    return np.where(found != 0, found, -1)


def _renumbered(graph: np.ndarray) -> np.ndarray:
    result = np.zeros(graph.shape)
    result[graph != 0] = np.arange((graph != 0).sum())
    return result


def _between(graph: np.ndarray, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    part = graph[vertices][:, vertices]
    return _renumbered(part), part


# Rows are the vertices 1 and 3, whose edges lead to each other and elsewhere.
_SAMPLED = np.int64([[0, 8, 0, 9], [0, 5, 0, 0], [0, 0, 0, 0]])

SAMPLES: dict[str, list[Sample]] = {
    "_contrib_edge_id": [Sample([GRAPH, _U, _V], {}, _numbers)],
    "_contrib_dgl_adjacency": [Sample([GRAPH], {}, lambda graph: graph != 0)],
    "_contrib_dgl_subgraph": [
        Sample([GRAPH, _VERTICES], {"num_args": 2, "return_mapping": True}, _between),
        Sample(
            [GRAPH, _VERTICES],
            {"num_args": 2, "return_mapping": False},
            lambda graph, vertices: _between(graph, vertices)[0],
        ),
    ],
    "_contrib_dgl_graph_compact": [
        Sample(
            [_SAMPLED, np.int64([1, 3, -1, 2])],
            {"num_args": 2, "return_mapping": True, "graph_sizes": (2,)},
            lambda graph, vertices: (np.array([[0, 1], [2, 0]]), np.array([[8, 9], [5, 0]])),
        )
    ],
    "_contrib_dgl_csr_neighbor_uniform_sample": [
        Sample(
            [GRAPH, np.int64([0])],
            {"num_args": 2, "num_neighbor": 4, "max_num_vertices": 5},
            # Fewer edges than may be drawn: all of them.
            lambda graph, seeds: (
                np.array([0, 1, 3, -1, -1, 3]),
                np.array([[0, 1, 0, 2], *[[0] * 4] * 4]),
                np.array([0, 1, 1, -1, -1]),
            ),
        )
    ],
    "_contrib_dgl_csr_neighbor_non_uniform_sample": [
        Sample(
            [GRAPH, np.float32([0.1, 0.2, 0.3, 0.4]), np.int64([0])],
            {"num_args": 3, "num_neighbor": 4, "max_num_vertices": 5},
            lambda graph, chances, seeds: (
                np.array([0, 1, 3, -1, -1, 3]),
                np.array([[0, 1, 0, 2], *[[0] * 4] * 4]),
                np.array([0.1, 0.2, 0.4, 0, 0]),
                np.array([0, 1, 1, -1, -1]),
            ),
        )
    ],
}
