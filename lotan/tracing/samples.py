"""Small graphs on which traces are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lotan.nn.edge_index import EdgeIndex
from planner.edge_columns import EdgeData
from planner.spec import Bound
from planner.vertex_types import VertexTypes

SAMPLE_VERTICES, SAMPLE_EDGES = 7, 17
SAMPLE_OF_TYPE, SAMPLE_OF_RELATION = 4, 5


@dataclass(frozen=True)
class Sample:
    """A small graph on which a trace is checked, and random features of its vertices."""

    features: Tensor  # [vertices, width]
    index: Tensor  # int64 [2, edges]
    attributes: Tensor | None = None  # [edges, width]
    types: Tensor | None = None  # int64 [edges]
    weight: Tensor | None = None  # [edges]; None: each edge weighs 1
    draws: bool = True  # False if a model and its trace draw random numbers in another order, so that neither draws any

    def graph(self) -> EdgeIndex:
        """Return the graph as layers take it."""
        return EdgeIndex(
            self.index,
            self.weight,
            num_vertices=len(self.features),
            dtype=self.features.dtype,
            edge_attr=self.attributes,
            edge_type=self.types,
        )

    def double(self) -> Sample:
        """Return this graph in float64."""
        attributes, weight = (None if one is None else one.double() for one in (self.attributes, self.weight))
        return replace(self, features=self.features.double(), attributes=attributes, weight=weight)

    def with_single_loops(self) -> Sample:
        """Return this graph with one self-loop at most for each vertex."""
        ends = [(src, dst) if src == dst else (at, -1) for at, (src, dst) in enumerate(self.index.t().tolist())]
        kept = torch.tensor([at for at, end in enumerate(ends) if end not in ends[:at]])
        attributes, types, weight = (
            None if column is None else column[kept] for column in (self.attributes, self.types, self.weight)
        )
        return Sample(self.features, self.index[:, kept], attributes, types, weight, self.draws)

    def by_destination(self, attribute: int | None = None) -> Sample:
        """Return this graph with its edges sorted by destination, as PyG wants them where neighbours have an order.

        Args:
            attribute: the number of the attribute by which the edges of a destination are sorted; None: they keep their order.
        """
        order = torch.arange(self.index.shape[1])
        if attribute is not None and self.attributes is not None:
            order = self.attributes[:, attribute].argsort(stable=True)
        order = order[self.index[1, order].argsort(stable=True)]
        columns = self.attributes, self.types, self.weight
        attributes, types, weight = (None if one is None else one[order] for one in columns)
        return replace(self, index=self.index[:, order], attributes=attributes, types=types, weight=weight)

    def bounded(self, bounds: Sequence[Bound]) -> Sample:
        """Return this graph with integers in the columns that layers take as types."""
        features = self.features.clone()
        attributes = None if self.attributes is None else self.attributes.clone()
        generator = torch.Generator().manual_seed(1)
        for bound in bounds:
            column = {"features": features, "edge_attr": attributes}.get(bound.column)
            if column is not None:
                drawn = torch.randint(0, bound.limit, (len(column),), generator=generator)
                column[:, bound.place] = drawn.to(column.dtype)
        return replace(self, features=features, attributes=attributes)

    def behind(self, features: Tensor, index: Tensor) -> Sample:
        """Return another graph followed by this one, as one graph without edges between the two.

        Args:
            features: the features of the other graph's vertices.
            index: the edges of the other graph, at most as many as this graph has. They get the weights, attributes and
                types of the first edges of this graph.
        """
        at = torch.arange(index.shape[1])
        attributes, types, weight = (
            None if column is None else torch.cat([column[at], column])
            for column in (self.attributes, self.types, self.weight)
        )
        shifted = torch.cat([index, self.index + len(features)], dim=1)
        return Sample(torch.cat([features, self.features]), shifted, attributes, types, weight)


def sample_by_type(types: VertexTypes, weighted: bool) -> Sample:
    """Return the graph of a check for a model of several types of vertices. Vertices of all types take turns.

    The last vertex of each type has no edges. Each relation has a doubled edge and, where both ends are of one type, loops.

    Args:
        types: the types of vertices and the relations.
        weighted: if True, each edge has another weight.
    """
    generator, several = torch.Generator().manual_seed(0), len(types.names)
    numbers = torch.arange(SAMPLE_OF_TYPE * several) % several
    features = torch.randn(len(numbers), types.width, generator=generator)
    beyond = torch.arange(types.type_column) >= torch.tensor(types.widths)[numbers].unsqueeze(1)
    features[:, : types.type_column][beyond] = 0
    features[:, types.type_column] = numbers
    found = []
    for relation in range(len(types.relations)):
        places = torch.randint(0, SAMPLE_OF_TYPE - 1, (2, SAMPLE_OF_RELATION), generator=generator)
        places = torch.cat([places, places[:, :1], torch.ones(2, 1, dtype=torch.int64)], dim=1)
        found.append(places * several + torch.tensor(types.ends(relation)).unsqueeze(1))
    index = torch.cat(found, dim=1)
    of_edges = torch.arange(len(types.relations)).repeat_interleave(SAMPLE_OF_RELATION + 2)
    weight = torch.linspace(0.5, 1.5, len(of_edges))[torch.randperm(len(of_edges), generator=generator)]
    width = max(types.edge_widths, default=0)
    attributes = torch.randn(len(of_edges), width, generator=generator) if width else None
    # the rows of other types draw as well
    return Sample(features, index, attributes, of_edges, weight if weighted else None, draws=False)


def sample_graph(
    width: int, data: EdgeData, types: int, vertices: int = SAMPLE_VERTICES, edges: int = SAMPLE_EDGES
) -> Sample:
    """Return the graph of a check. It has self-loops and parallel edges, and the last of several vertices has no edges.

    Args:
        width: width of the features.
        data: the attributes and types of edges.
        types: the number of types.
        vertices: the number of vertices.
        edges: the number of edges.
    """
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, max(1, vertices - 1), (2, edges), generator=generator)
    features = torch.randn(vertices, width, generator=generator)
    attributes = None if data.width is None else torch.randn(edges, data.width, generator=generator)
    return Sample(
        features, index, attributes, torch.randint(0, types, (edges,), generator=generator) if data.typed else None
    )
