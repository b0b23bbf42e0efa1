"""The graph as a layer sees it: edge sets and static vertex columns, as tensors (real ones, or fake ones while tracing)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.graph.edge_sets import gcn_scale, replace_self_loops
from lotan.nn import operators  # noqa: F401  (registers torch.ops.lotan)
from planner.spec import AGGREGATES, EdgeSet


@dataclass(frozen=True)
class Edges:
    """One edge set. What `aggregate(self, messages, graph)` of a layer gets as `graph`."""

    name: EdgeSet
    index: Tensor  # int64 [2, num_edges]: sources, destinations
    weight: Tensor  # [num_edges], 1 where the graph has none
    num_vertices: int


class EdgeIndex:
    """A graph for layers that run eagerly.

    Args:
        edge_index: int64 [2, num_edges]; messages flow from row 0 (source) to row 1 (destination).
        edge_weight: [num_edges], or None: every edge weighs 1.
        num_vertices: number of rows of the features that come with it.
        dtype: of weights and static columns.

    Raises:
        ModelError: edge_index has another shape or dtype.
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
        """A graph whose edge sets and columns are given ready made: what tracing passes to a model."""
        graph = cls.__new__(cls)
        graph.num_vertices = num_vertices
        graph._edges = dict(edges)
        graph._columns = dict(columns)
        return graph

    def edges(self, name: EdgeSet = "graph") -> Edges:
        """An edge set by name, see `planner.spec.EdgeSet`."""
        if name not in self._edges:
            given = self._edges["graph"]
            index, weight = replace_self_loops(given.index, given.weight, self.num_vertices)
            assert weight is not None  # of given weights
            self._edges[name] = Edges(name, index, weight, self.num_vertices)
        return self._edges[name]

    def column(self, name: str) -> Tensor:
        """A static column by name, see `planner.spec.STATIC_COLUMNS`: `in_degree` or `gcn_scale@...`, [num_vertices].

        Raises:
            ModelError: there is no such column.
        """
        if name not in self._columns:
            self._columns[name] = self._compute(name)
        return torch.ops.lotan.vertex_input(self._columns[name], name)

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
"""What stands for the graph in a layer's `forward(x, graph)`."""


def as_edge_index(graph: Graph, x: Tensor) -> EdgeIndex:
    """The graph of vertex rows `x` as an `EdgeIndex`; a plain edge_index tensor is wrapped.

    Raises:
        ModelError: it is neither, or the tensor is no edge_index.
    """
    if isinstance(graph, EdgeIndex):
        return graph
    if isinstance(graph, Tensor):
        return EdgeIndex(graph, num_vertices=x.shape[0], dtype=x.dtype)
    raise ModelError(
        f"a layer got {type(graph).__name__} as its graph; expected the `graph` that the model's forward(x, graph) got, "
        "an int64 edge_index [2, num_edges], or a lotan.nn.EdgeIndex"
    )


def aggregate(messages: Tensor, graph: Edges | EdgeIndex, kind: str) -> Tensor:
    """Aggregate edge rows to their destinations.

    Args:
        messages: [num_edges, *shape].
        graph: the edges, as a layer's `aggregate(self, messages, graph)` got them.
        kind: "sum", "mean", "max" or "min"; zero for a vertex without in-edges.

    Returns:
        [num_vertices, *shape]

    Raises:
        ModelError: another `kind`.
    """
    if kind not in AGGREGATES:
        raise ModelError(f"aggregate got kind {kind!r}; expected one of {', '.join(AGGREGATES)}")
    edges = _edges_of(graph)
    return torch.ops.lotan.aggregate(messages, edges.index, edges.num_vertices, kind, edges.name)


def edge_softmax(scores: Tensor, graph: Edges | EdgeIndex) -> Tensor:
    """Softmax of edge rows over the in-edges of each destination, number by number: [num_edges, *shape] to the same."""
    edges = _edges_of(graph)
    return torch.ops.lotan.edge_softmax(scores, edges.index, edges.num_vertices, edges.name)


def _edges_of(graph: Edges | EdgeIndex) -> Edges:
    return graph.edges() if isinstance(graph, EdgeIndex) else graph
