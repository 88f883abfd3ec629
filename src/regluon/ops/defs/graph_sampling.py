"""Parts of graphs: the matrix (from, to) holds a number for each edge; vertices are whole numbers.

The operators take CSR arrays, where an edge is what is stored, and dense ones, where it is what is not zero.
`array/graph_operators.py` runs the functions on `Edges` below for CSR arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regluon.base.errors import MXNetError
from regluon.ops.opdef import Shape, Spec, operator

Attrs = dict[str, Any]


class Edges(NamedTuple):
    """Edges in the order of rows, then columns."""

    rows: Tensor
    columns: Tensor
    values: Tensor
    shape: tuple[int, int]


def _edges(matrix: Tensor) -> Edges:
    rows, columns = torch.nonzero(matrix, as_tuple=True)
    return Edges(rows, columns, matrix[rows, columns], (matrix.shape[0], matrix.shape[1]))


def _dense(edges: Edges) -> Tensor:
    matrix = torch.zeros(edges.shape, dtype=edges.values.dtype, device=edges.values.device)
    return matrix.index_put_((edges.rows, edges.columns), edges.values)


def _whole(vertices: Tensor) -> Tensor:
    return vertices.detach().to(torch.int64).reshape(-1)


def edge_values(edges: Edges, u: Tensor, v: Tensor) -> Tensor:
    """The number of each edge (u, v), -1 where there is none."""
    wanted = _whole(u) * edges.shape[1] + _whole(v)
    missing = edges.values.new_full((len(wanted),), -1)
    if not len(edges.values):
        return missing
    keys = edges.rows * edges.shape[1] + edges.columns
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[place] == wanted, edges.values[place], missing)


def adjacency_of(edges: Edges) -> Edges:
    """The same edges, each with the number 1."""
    return edges._replace(values=torch.ones_like(edges.values, dtype=torch.float32))


def induced(edges: Edges, vertices: Tensor) -> tuple[Edges, Edges]:
    """The edges between ``vertices``, which become 0, 1, ...: with new numbers from 0, and with the old."""
    vertices = _whole(vertices)
    if len(vertices) > 1 and not bool((vertices.diff() > 0).all()):
        raise MXNetError(
            f"dgl_subgraph: expected vertices in ascending order, each once; received {vertices.tolist()[:8]}"
        )
    size = max(edges.shape)
    if len(vertices) and (int(vertices[0]) < 0 or int(vertices[-1]) >= size):
        raise MXNetError(f"dgl_subgraph: a vertex of {vertices.tolist()[:8]} is outside of 0 to {size - 1}")
    place = torch.full((size,), -1, dtype=torch.int64, device=vertices.device)
    place[vertices] = torch.arange(len(vertices), device=vertices.device)
    rows, columns = place[edges.rows], place[edges.columns]
    kept = (rows >= 0) & (columns >= 0)
    shape = (len(vertices), len(vertices))
    old = Edges(rows[kept], columns[kept], edges.values[kept], shape)
    return old._replace(
        values=torch.arange(len(old.values), device=vertices.device).to(old.values.dtype)
    ), old


def compacted(edges: Edges, vertices: Tensor, size: int) -> tuple[Edges, Edges]:
    """What `sampled` gave without its empty rows, over ``size`` vertices: with new numbers, and the old."""
    vertices = _whole(vertices)
    if size < 0 or size > len(vertices) or size > edges.shape[0]:
        raise MXNetError(
            f"dgl_graph_compact: a size of {size} does not fit {len(vertices)} vertices and a graph of shape "
            f"{edges.shape}"
        )
    place = torch.full((edges.shape[1],), -1, dtype=torch.int64, device=vertices.device)
    place[vertices[:size]] = torch.arange(size, device=vertices.device)
    columns = place[edges.columns]
    kept = (edges.rows < size) & (columns >= 0)
    old = Edges(edges.rows[kept], columns[kept], edges.values[kept], (size, size))
    return old._replace(
        values=torch.arange(len(old.values), device=vertices.device).to(old.values.dtype)
    ), old


def sampled(
    edges: Edges, seeds: Tensor, weights: Tensor | None, attrs: Attrs, rng: torch.Generator
) -> tuple[Tensor, Edges, Tensor, Tensor | None]:
    """Vertices, edges, layers and probabilities of a neighbourhood; see the operators."""
    hops, neighbours, most = attrs["num_hops"], attrs["num_neighbor"], attrs["max_num_vertices"]
    starts = torch.zeros(edges.shape[0] + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(edges.rows.cpu(), minlength=edges.shape[0]).cumsum(0)
    begins, columns = starts.tolist(), edges.columns.tolist()
    layer = dict.fromkeys(_whole(seeds).tolist()[:most], 0)
    queue, chosen = list(layer), []
    for vertex in queue:
        if layer[vertex] >= hops or len(layer) >= most:
            break
        begin, end = begins[vertex], begins[vertex + 1]
        picked = list(range(end - begin))
        if end - begin > neighbours:
            if weights is None:
                picked = torch.randperm(end - begin, generator=rng, device=rng.device)[:neighbours].tolist()
            else:
                share = weights[edges.columns[begin:end]].to(torch.float64).to(rng.device)
                picked = torch.multinomial(share, neighbours, generator=rng).tolist()
        for number in sorted(begin + each for each in picked):
            other = columns[number]
            if other not in layer:
                if len(layer) >= most:
                    continue
                layer[other] = layer[vertex] + 1
                queue.append(other)
            chosen.append(number)
    device = edges.values.device
    found = sorted(layer)
    place = {vertex: number for number, vertex in enumerate(found)}
    numbers = torch.tensor(sorted(chosen), dtype=torch.int64, device=device)
    rows = torch.tensor([place[v] for v in edges.rows[numbers].tolist()], dtype=torch.int64, device=device)
    part = Edges(rows, edges.columns[numbers], edges.values[numbers], (most, edges.shape[1]))
    vertices = torch.full((most + 1,), -1, dtype=torch.int64, device=device)
    layers = torch.full((most,), -1, dtype=torch.int64, device=device)
    vertices[: len(found)] = torch.tensor(found, dtype=torch.int64, device=device)
    vertices[most] = len(found)
    layers[: len(found)] = torch.tensor([layer[v] for v in found], dtype=torch.int64, device=device)
    if weights is None:
        return vertices, part, layers, None
    shares = weights.new_zeros(most)
    shares[: len(found)] = weights[vertices[: len(found)]]
    return vertices, part, layers, shares


def grouped(found: Sequence[Sequence[Any]]) -> list[Any]:
    """The first results of all calls, then the second ones, and so on."""
    return [value for group in zip(*found, strict=True) for value in group]


# --- operators on dense matrices ------------------------------------------------------------------


def _one_or_all(found: list[Tensor]) -> Tensor | list[Tensor]:
    return found[0] if len(found) == 1 else found


def _check_matrix(shape: Any, name: str) -> None:
    if len(shape) != 2:
        raise MXNetError(f"{name}: expected a matrix of edges; received {tuple(shape)}")


@operator(
    "_contrib_edge_id",
    amp="widest",
    gradient="zero",
    infer=lambda specs, attrs: [Spec(specs[1].shape, specs[0].dtype)],
)
def edge_id(data: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """The numbers in ``data`` of the edges from ``u`` (N,) to ``v`` (N,), -1 where there is no edge."""
    _check_matrix(data.shape, "edge_id")
    if u.shape != v.shape or u.dim() != 1:
        raise MXNetError(f"edge_id: expected u and v (N,); received {tuple(u.shape)} and {tuple(v.shape)}")
    return edge_values(_edges(data), u, v)


@operator(
    "_contrib_dgl_adjacency",
    amp="widest",
    gradient="zero",
    infer=lambda specs, attrs: [Spec(specs[0].shape, torch.float32)],
)
def dgl_adjacency(data: Tensor) -> Tensor:
    """1 for each edge of ``data``, float32."""
    _check_matrix(data.shape, "dgl_adjacency")
    return _dense(adjacency_of(_edges(data)))


def _groups(attrs: Attrs, fixed: int) -> int:
    return int(attrs["num_args"]) - fixed


def _subgraph_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    found = [Spec((spec.shape[0], spec.shape[0]), specs[0].dtype) for spec in specs[1:]]
    return found * 2 if attrs["return_mapping"] else found


@operator(
    "_contrib_dgl_subgraph",
    amp="widest",
    num_args_key="num_args",
    gradient="zero",
    outputs=lambda attrs: _groups(attrs, 1) * (2 if attrs["return_mapping"] else 1),
    infer=_subgraph_infer,
)
def dgl_subgraph(graph: Tensor, *data: Tensor, num_args: int, return_mapping: bool) -> Tensor | list[Tensor]:
    """The edges between the vertices of each list in ``data``, ascending, with new numbers from 0.

    With ``return_mapping`` the same edges with their old numbers follow.
    """
    _check_matrix(graph.shape, "dgl_subgraph")
    found = grouped([[_dense(part) for part in induced(_edges(graph), one)] for one in data])
    return _one_or_all(found if return_mapping else found[: len(data)])


def _compact_infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
    found = [Spec((size, size), spec.dtype) for size, spec in zip(attrs["graph_sizes"], specs, strict=False)]
    return found * 2 if attrs["return_mapping"] else found


def check_sizes(count: int, attrs: Attrs) -> None:
    """Refuse inputs that are not as many graphs, as many lists of vertices and their sizes."""
    if count % 2 or len(attrs["graph_sizes"]) != count // 2:
        raise MXNetError(
            "dgl_graph_compact: expected graphs, as many arrays of vertices, and graph_sizes of each; "
            f"received {count} inputs and graph_sizes={attrs['graph_sizes']}"
        )


@operator(
    "_contrib_dgl_graph_compact",
    amp="widest",
    num_args_key="num_args",
    gradient="zero",
    outputs=lambda attrs: len(attrs["graph_sizes"]) * (2 if attrs["return_mapping"] else 1),
    infer=_compact_infer,
)
def dgl_graph_compact(
    *graph_data: Tensor, num_args: int, return_mapping: bool, graph_sizes: Shape
) -> Tensor | list[Tensor]:
    """Sampled graphs without their empty rows: the first half of the inputs, with the vertices in the second.

    Edges have new numbers from 0; with ``return_mapping`` the same edges with their old numbers follow.
    """
    check_sizes(len(graph_data), {"graph_sizes": graph_sizes})
    half = len(graph_data) // 2
    found = grouped(
        [
            [_dense(part) for part in compacted(_edges(graph), vertices, size)]
            for graph, vertices, size in zip(graph_data[:half], graph_data[half:], graph_sizes, strict=True)
        ]
    )
    return _one_or_all(found if return_mapping else found[:half])


def _sample_infer(fixed: int) -> Callable[[list[Spec], Attrs], list[Spec]]:
    def infer(specs: list[Spec], attrs: Attrs) -> list[Spec]:
        count, most = len(specs) - fixed, attrs["max_num_vertices"]
        found = [[Spec((most + 1,), torch.int64)] * count]
        found.append([Spec((most, specs[0].shape[1]), specs[0].dtype)] * count)
        if fixed == 2:
            found.append([Spec((most,), specs[1].dtype)] * count)
        found.append([Spec((most,), torch.int64)] * count)
        return [spec for group in found for spec in group]

    return infer


def in_order(found: tuple[Any, Any, Any, Any]) -> list[Any]:
    """The results of `sampled` as the operators return them: the layers last."""
    vertices, part, layers, shares = found
    return [vertices, part, layers] if shares is None else [vertices, part, shares, layers]


@operator(
    "_contrib_dgl_csr_neighbor_uniform_sample",
    amp="widest",
    num_args_key="num_args",
    gradient="zero",
    outputs=lambda attrs: 3 * _groups(attrs, 1),
    infer=_sample_infer(1),
)
def uniform_sample(
    csr_matrix: Tensor,
    *seed_arrays: Tensor,
    num_args: int,
    num_hops: int = 1,
    num_neighbor: int = 2,
    max_num_vertices: int = 100,
    _rng: torch.Generator,
) -> list[Tensor]:
    """Neighbourhoods of ``seed_arrays``: from each vertex at most ``num_neighbor`` edges, drawn evenly.

    Vertices up to ``num_hops`` edges away are taken, at most ``max_num_vertices``. For each seed array:
    the vertices, ascending, padded with -1, and their number at the end (max + 1,); the edges drawn, a row
    for each vertex and a column for each of the graph (max, N); the distance of each vertex (max,).
    """
    return _sample(csr_matrix, seed_arrays, None, num_hops, num_neighbor, max_num_vertices, _rng)


@operator(
    "_contrib_dgl_csr_neighbor_non_uniform_sample",
    amp="widest",
    num_args_key="num_args",
    gradient="zero",
    outputs=lambda attrs: 4 * _groups(attrs, 2),
    infer=_sample_infer(2),
)
def non_uniform_sample(
    csr_matrix: Tensor,
    probability: Tensor,
    *seed_arrays: Tensor,
    num_args: int,
    num_hops: int = 1,
    num_neighbor: int = 2,
    max_num_vertices: int = 100,
    _rng: torch.Generator,
) -> list[Tensor]:
    """As the uniform one, with edges drawn in proportion to the ``probability`` (N,) of where they lead.

    The probabilities of the vertices (max,) come before the distances.
    """
    return _sample(csr_matrix, seed_arrays, probability, num_hops, num_neighbor, max_num_vertices, _rng)


def _sample(
    matrix: Tensor,
    seeds: Sequence[Tensor],
    weights: Tensor | None,
    hops: int,
    neighbours: int,
    most: int,
    rng: torch.Generator,
) -> list[Tensor]:
    _check_matrix(matrix.shape, "dgl_csr_neighbor_sample")
    attrs = {"num_hops": hops, "num_neighbor": neighbours, "max_num_vertices": most}
    edges = _edges(matrix)
    found = [in_order(sampled(edges, one, weights, attrs, rng)) for one in seeds]
    return [_dense(value) if isinstance(value, Edges) else value for value in grouped(found)]
