"""Operators on graphs whose edges are CSR arrays: results are CSR arrays too, and a stored 0 is an edge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base import rng
from ..ops.defs import graph_sampling as graphs
from ..ops.opdef import OpDef
from .ndarray import NDArray
from .sparse import CSRNDArray, pointers_of

__all__ = ["HANDLERS"]

Handler = Callable[[OpDef, Sequence[Any], dict[str, Any]], Any]


def _edges(array: CSRNDArray) -> graphs.Edges:
    rows, columns = array._sizes
    return graphs.Edges(array._rows(), array._places[1], array._values, (rows, columns))


def _array(value: Any, context: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return NDArray._wrap(value, context)
    pointers = pointers_of(value.rows, value.shape[0])
    return CSRNDArray._made(value.values, (pointers, value.columns), value.shape, context)


def _arrays(values: Sequence[Any], context: Any) -> Any:
    made = [_array(value, context) for value in values]
    return made[0] if len(made) == 1 else made


def _edge_id(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    graph, u, v = arrays
    return _array(graphs.edge_values(_edges(graph), u._t, v._t), graph._ctx)


def _adjacency(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    (graph,) = arrays
    return _array(graphs.adjacency_of(_edges(graph)), graph._ctx)


def _subgraph(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    graph, *vertices = arrays
    found = graphs.grouped([graphs.induced(_edges(graph), one._t) for one in vertices])
    return _arrays(found if attrs["return_mapping"] else found[: len(vertices)], graph._ctx)


def _compact(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    graphs.check_sizes(len(arrays), attrs)
    half = len(arrays) // 2
    found = graphs.grouped(
        [
            graphs.compacted(_edges(graph), vertices._t, size)
            for graph, vertices, size in zip(arrays[:half], arrays[half:], attrs["graph_sizes"], strict=True)
        ]
    )
    return _arrays(found if attrs["return_mapping"] else found[:half], arrays[0]._ctx)


def _sample(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    graph, *rest = arrays
    weights = rest.pop(0)._t if "probability" in definition.inputs else None
    edges = _edges(graph)
    generator = rng.generator(rng.draw(), edges.values.device)
    found = [graphs.in_order(graphs.sampled(edges, seeds._t, weights, attrs, generator)) for seeds in rest]
    return _arrays(graphs.grouped(found), graph._ctx)


def _for_graphs(handler: Handler) -> Handler:
    """Run the handler where every graph is a CSR array; the dense definition serves all else."""

    def handle(definition: OpDef, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        count = len(arrays) // 2 if definition.inputs == ("graph_data",) else 1
        fits = all(isinstance(array, CSRNDArray) for array in arrays[:count])
        return handler(definition, arrays, attrs) if fits else None

    return handle


HANDLERS: dict[str, Handler] = {
    name: _for_graphs(handler)
    for name, handler in {
        "_contrib_edge_id": _edge_id,
        "_contrib_dgl_adjacency": _adjacency,
        "_contrib_dgl_subgraph": _subgraph,
        "_contrib_dgl_graph_compact": _compact,
        "_contrib_dgl_csr_neighbor_uniform_sample": _sample,
        "_contrib_dgl_csr_neighbor_non_uniform_sample": _sample,
    }.items()
}
