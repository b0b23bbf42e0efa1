"""The graph as a layer sees it: edge sets and static vertex columns.

They are real tensors when a layer runs eagerly, and fake tensors while a model is traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.graph.edge_sets import gcn_scale, replace_self_loops
from lotan.nn import operators  # noqa: F401  (registers torch.ops.lotan)
from planner.spec import AGGREGATES, EdgeSet


@dataclass(frozen=True)
class Edges:
    """One edge set: the argument `graph` of a layer's `aggregate(self, messages, graph)`."""

    name: EdgeSet
    index: Tensor  # int64 [2, num_edges]: sources, destinations
    weight: Tensor  # [num_edges], 1 where the graph has none
    num_vertices: int


class EdgeIndex:
    """A graph for layers that run eagerly.

    Args:
        edge_index: int64 [2, num_edges]. Messages flow from row 0 (sources) to row 1 (destinations).
        edge_weight: weights [num_edges], or None if every edge weighs 1 (default: None).
        num_vertices: number of vertices (default: one more than the greatest vertex in `edge_index`).
        dtype: dtype of the weights and of static columns (default: torch.float32).

    Raises:
        ModelError: edge_index has another shape or dtype.

    Example:
        >>> graph = EdgeIndex(torch.tensor([[0, 1], [1, 1]]))
        >>> graph.num_vertices
        2
        >>> graph.column("in_degree")
        tensor([1., 2.])
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        num_vertices: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
            raise ModelError(
                f"edge_index is {edge_index.dtype} of shape {list(edge_index.shape)}; "
                "expected int64 of shape [2, num_edges], sources above destinations"
            )
        if num_vertices is None:
            num_vertices = int(edge_index.max()) + 1 if edge_index.numel() else 0
        weight = torch.ones(edge_index.shape[1], dtype=dtype) if edge_weight is None else edge_weight.to(dtype)
        self.num_vertices = num_vertices
        self._edges: dict[EdgeSet, Edges] = {"graph": Edges("graph", edge_index, weight, num_vertices)}
        self._columns: dict[str, Tensor] = {}

    @classmethod
    def of(cls, edges: Mapping[EdgeSet, Edges], columns: Mapping[str, Tensor], num_vertices: int) -> EdgeIndex:
        """Return a graph made of edge sets and columns that exist already. Tracing passes such a graph to a model."""
        graph = cls.__new__(cls)
        graph.num_vertices = num_vertices
        graph._edges = dict(edges)
        graph._columns = dict(columns)
        return graph

    def edges(self, name: EdgeSet = "graph") -> Edges:
        """Return an edge set by its name, which is one of `planner.spec.EdgeSet`."""
        if name not in self._edges:
            given = self._edges["graph"]
            index, weight = replace_self_loops(given.index, given.weight, self.num_vertices)
            assert weight is not None  # because weights were given
            self._edges[name] = Edges(name, index, weight, self.num_vertices)
        return self._edges[name]

    def column(self, name: str) -> Tensor:
        """Return a static column [num_vertices].

        Args:
            name: "in_degree", "gcn_scale@graph" or "gcn_scale@self_loops"; `planner.spec.STATIC_COLUMNS` defines them.

        Raises:
            ModelError: there is no such column.
        """
        if name not in self._columns:
            self._columns[name] = self._compute(name)
        return cast(Tensor, torch.ops.lotan.vertex_input(self._columns[name], name))

    def _compute(self, name: str) -> Tensor:
        if name == "in_degree":
            edges = self.edges("graph")
            return torch.bincount(edges.index[1], minlength=self.num_vertices).clamp(min=1).to(edges.weight.dtype)
        if name in ("gcn_scale@graph", "gcn_scale@self_loops"):
            edges = self.edges("graph" if name.endswith("@graph") else "self_loops")
            return gcn_scale(edges.index[1], edges.weight, self.num_vertices).to(edges.weight.dtype)
        raise ModelError(
            f"a layer asked for the vertex column {name!r}; expected in_degree, gcn_scale@graph or gcn_scale@self_loops"
        )


Graph = Tensor | EdgeIndex
"""A graph as a layer's `forward(x, graph)` takes it."""


def as_edge_index(graph: Graph, x: Tensor) -> EdgeIndex:
    """Return the graph as an `EdgeIndex`, in which a plain edge_index tensor is wrapped.

    Args:
        graph: int64 [2, num_edges], or an `EdgeIndex`.
        x: vertex rows [num_vertices, *shape]. They give a wrapped graph its number of vertices and its dtype.

    Raises:
        ModelError: the graph is neither, or the tensor is no edge_index.
    """
    if isinstance(graph, EdgeIndex):
        return graph
    if isinstance(graph, Tensor):
        known = getattr(graph, "lotan_graph", None)  # the edge_index of a model that is traced
        if isinstance(known, EdgeIndex):
            return known
        return EdgeIndex(graph, num_vertices=x.shape[0], dtype=x.dtype)
    raise ModelError(
        f"a layer got {type(graph).__name__} as its graph; expected the `graph` that the model's forward(x, graph) got, "
        "an int64 edge_index [2, num_edges], or a lotan.nn.EdgeIndex"
    )


def aggregate(messages: Tensor, graph: Edges | EdgeIndex, kind: str) -> Tensor:
    """Aggregate edge rows to their destinations.

    Args:
        messages: edge rows [num_edges, *shape].
        graph: the edges, as a layer's `aggregate(self, messages, graph)` is given them.
        kind: "sum", "mean", "max" or "min".

    Returns:
        Vertex rows [num_vertices, *shape], which are zero for a vertex without in-edges.

    Raises:
        ModelError: `kind` has another value.

    Example:
        >>> graph = EdgeIndex(torch.tensor([[0, 1], [1, 1]]))
        >>> aggregate(torch.tensor([[1.0], [5.0]]), graph, "mean")
        tensor([[0.],
                [3.]])
    """
    if kind not in AGGREGATES:
        raise ModelError(f"aggregate got kind {kind!r}; expected one of {', '.join(AGGREGATES)}")
    edges = _edges_of(graph)
    return cast(Tensor, torch.ops.lotan.aggregate(messages, edges.index, edges.num_vertices, kind, edges.name))


def edge_softmax(scores: Tensor, graph: Edges | EdgeIndex) -> Tensor:
    """Return the softmax over the in-edges of each destination, for every number of an edge row by itself.

    Args:
        scores: edge rows [num_edges, *shape].
        graph: the edges, as a layer's `aggregate(self, messages, graph)` is given them.

    Returns:
        Edge rows [num_edges, *shape].
    """
    edges = _edges_of(graph)
    return cast(Tensor, torch.ops.lotan.edge_softmax(scores, edges.index, edges.num_vertices, edges.name))


def _edges_of(graph: Edges | EdgeIndex) -> Edges:
    return graph.edges() if isinstance(graph, EdgeIndex) else graph
