"""The graph as a layer sees it: edge sets and static vertex columns.

They are real tensors when a layer runs eagerly, and fake tensors while a model is traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor

from lotan.errors import ModelError
from lotan.graph.edge_sets import SelfLoops, gcn_scale, self_loops
from lotan.nn import operators  # noqa: F401  (registers torch.ops.lotan)
from planner.edge_columns import LOOP, ORDER, filled
from planner.edge_sets import as_given, has_added_loops, is_reversed, relation_of, reversed_set
from planner.spec import AGGREGATES, EdgeSet, edges_of_column, is_static_column


@dataclass(frozen=True)
class Edges:
    """One edge set: the argument `graph` of a layer's `aggregate(self, messages, graph)`."""

    name: EdgeSet
    index: Tensor  # int64 [2, num_edges]: sources, destinations
    weight: Tensor  # [num_edges], 1 where the graph has none
    num_vertices: int
    # what the graph has of attributes [num_edges, width] and types [num_edges], by the names of `planner.edge_columns`;
    # and perhaps "edge_loop" [num_edges, 1], which follows from the index
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    num_sources: int | None = None  # where edges begin at vertices of another type than they end at


class EdgeIndex:
    """A graph for layers that run eagerly.

    Args:
        edge_index: int64 [2, num_edges]. Messages flow from row 0 (sources) to row 1 (destinations).
        edge_weight: weights [num_edges], or None if every edge weighs 1 (default: None).
        num_vertices: number of vertices (default: one more than the greatest vertex in `edge_index`).
        dtype: dtype of the weights, of attributes and of static columns (default: torch.float32).
        edge_attr: attributes [num_edges, width], or None for none (default: None).
        edge_type: types, int64 [num_edges] from 0, or None for none (default: None).

    Raises:
        ModelError: edge_index has another shape or dtype, or a column of edges has another number of rows.

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
        edge_attr: Tensor | None = None,
        edge_type: Tensor | None = None,
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
        columns = _edge_columns(edge_index.shape[1], None if edge_attr is None else edge_attr.to(dtype), edge_type)
        self._edges: dict[EdgeSet, Edges] = {"graph": Edges("graph", edge_index, weight, num_vertices, columns)}
        self._loops: dict[EdgeSet, SelfLoops] = {}  # made on first use, by the set without them
        self._columns: dict[str, Tensor] = {}

    @classmethod
    def of(cls, edges: Mapping[EdgeSet, Edges], columns: Mapping[str, Tensor], num_vertices: int) -> EdgeIndex:
        """Return a graph made of edge sets and columns that exist already. Tracing passes such a graph to a model."""
        graph = cls.__new__(cls)
        graph.num_vertices = num_vertices
        graph._edges = dict(edges)
        graph._columns = dict(columns)
        graph._loops = {}
        return graph

    def edges(self, name: EdgeSet = "graph") -> Edges:
        """Return an edge set by its name, which is one of `planner.spec.EdgeSet`."""
        if name not in self._edges:
            self._edges[name] = self._made(name)
        return self._edges[name]

    @property
    def edge_sets(self) -> tuple[EdgeSet, ...]:
        """The names of the edge sets that were given or made so far."""
        return tuple(self._edges)

    def _made(self, name: EdgeSet) -> Edges:
        if is_reversed(name):
            other = self.edges(reversed_set(name))  # edges keep their order
            return replace(other, name=name, index=other.index.flip(0))
        if not has_added_loops(name):
            given, chosen = self._edges["graph"], self._of_type(name)
            columns = {key: column[chosen] for key, column in given.columns.items()}
            return Edges(name, given.index[:, chosen], given.weight[chosen], self.num_vertices, columns)
        loops = self._self_loops(name)
        weight = loops.weights(self.edges(as_given(name)).weight)
        return Edges(name, loops.index, weight, self.num_vertices, {})

    def _of_type(self, name: EdgeSet) -> Tensor:
        """Return True for each edge of the graph that is of the type of a set, bool [num_edges]."""
        types = self._edges["graph"].columns.get("edge_type")
        if types is None:
            raise ModelError(f"a layer reads the edges {name!r} of one type, but the graph's edges have no types")
        return types.eq(relation_of(name) or 0)

    def _self_loops(self, name: EdgeSet) -> SelfLoops:
        given = as_given(name)
        if given not in self._loops:
            self._loops[given] = self_loops(self.edges(given).index, self.num_vertices)
        return self._loops[given]

    def spread(self, values: Tensor, edges: EdgeSet) -> Tensor:
        """Return a number for each edge of the graph as one for each edge of an edge set. Added self-loops have 1.

        Args:
            values: the numbers [num_edges].
            edges: the edge set.
        """
        if relation_of(edges) is not None:
            values = values[self._of_type(edges)]
        if not has_added_loops(edges):
            return values
        ends = self.edges(as_given(edges)).index[1]
        return self._self_loops(edges).column(values.view(-1, 1), ends, 1.0).view(-1)

    def has_edge_column(self, name: str) -> bool:
        """Return True if the graph's edges have the column "edge_attr" or "edge_type"."""
        return name in self._edges["graph"].columns

    def edge_column(self, name: str, edges: EdgeSet = "graph", fill: float | str = 1.0) -> Tensor:
        """Return a column of edges.

        Args:
            name: "edge_attr", float [num_edges, width]; "edge_type", int64 [num_edges]; "edge_loop", which is 1 for a
                self-loop, else 0, [num_edges, 1]; or "edge_order", which counts the edges, [num_edges, 1].
            edges: the edge set (default: "graph").
            fill: the value of the loops that an edge set adds: a number, or for attributes "mean", "add", "max" or
                "min" of those of the vertex's in-edges (default: 1).

        Raises:
            ModelError: the edges have no such column.
        """
        if name == ORDER:
            of = self.edges(edges)
            numbers = torch.arange(of.index.shape[1], dtype=of.weight.dtype).view(-1, 1)
            return cast(Tensor, torch.ops.lotan.edge_column(numbers, name, edges))
        given = self._with_loops(as_given(edges)) if name == LOOP else self.edges(as_given(edges))
        if name not in given.columns:
            raise ModelError(
                f"a layer reads {name}, but the graph's edges have none: {GIVE[name]}"
                if name in GIVE
                else f"a layer asked for the column {name!r} of edges; expected {' or '.join(GIVE)}"
            )
        chosen, key = self.edges(edges), filled(name, edges, fill)
        column = chosen.columns.get(name)
        if column is None:
            column = given.columns[name]
            if has_added_loops(edges):
                column = self._self_loops(edges).column(column, given.index[1], fill)
        return cast(Tensor, torch.ops.lotan.edge_column(column, key, edges))

    def _with_loops(self, name: EdgeSet) -> Edges:
        """Return edges as given with their column "edge_loop", which is made at its first use."""
        given = self.edges(name)
        if LOOP not in given.columns:
            loop = (given.index[0] == given.index[1]).to(given.weight.dtype).view(-1, 1)
            given = self._edges[name] = replace(given, columns={**given.columns, LOOP: loop})
        return given

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
        if is_static_column(name) and (of := edges_of_column(name)) is not None:
            edges = self.edges(of)
            if name.startswith("gcn_scale"):
                return gcn_scale(edges.index[1], edges.weight, self.num_vertices).to(edges.weight.dtype)
            return torch.bincount(edges.index[1], minlength=self.num_vertices).clamp(min=1).to(edges.weight.dtype)
        raise ModelError(
            f"a layer asked for the vertex column {name!r}; expected in_degree, gcn_scale@graph or gcn_scale@self_loops"
        )


GIVE = {
    "edge_attr": (
        "name its columns of attributes, Graph(..., edge_features=...) or the Param edgeFeaturesCol, or pass edge_attr= to "
        "Graph.from_arrays"
    ),
    "edge_type": (
        "name its column of types, Graph(..., edge_type=...) or the Param edgeTypeCol, or pass edge_type= to Graph.from_arrays"
    ),
}
"""The advice, in words, for a graph that lacks a column of edges, by the name of the column."""


def _edge_columns(edges: int, attributes: Tensor | None, types: Tensor | None) -> dict[str, Tensor]:
    given = {"edge_attr": attributes, "edge_type": types}
    found = {name: column for name, column in given.items() if column is not None}
    for name, column in found.items():
        dims, kind = (2, "numbers [num_edges, width]") if name == "edge_attr" else (1, "int64 [num_edges]")
        if column.dim() != dims or len(column) != edges or (name == "edge_type" and column.dtype != torch.int64):
            raise ModelError(
                f"{name} is {column.dtype} of shape {list(column.shape)} for {edges} edges; expected {kind}"
            )
    return found


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
