"""The names of vertices and edges in errors: the ids that the tables of a graph were given with."""

from __future__ import annotations

from typing import NamedTuple

from lotan.graph.arrays import GraphArrays
from lotan.graph.given_types import GivenTypes


class _OfType(NamedTuple):
    """A vertex of one of several types, as errors write it."""

    type: str
    id: object
    relation: str = ""  # the name of the relation, if it is the source of an edge

    def __repr__(self) -> str:
        return f"{self.type} {self.id!r}" + f" -> {self.relation}" * bool(self.relation)


class Names(NamedTuple):
    """The names of the vertices and edges of a graph in memory."""

    graph: GraphArrays
    types: GivenTypes | None

    def vertex(self, row: int, relation: str = "") -> object:
        """Return the id of a vertex, with its type if there are several."""
        if self.types is None:
            return self.graph.ids[row]
        (name,), (identifier,) = self.types.given_ids(self.graph.ids[row : row + 1])
        return _OfType(name, identifier, relation)

    def ends(self, edge: int) -> tuple[object, object]:
        """Return the ids of both ends of an edge, with their types and the relation if there are several."""
        graph, relation = self.graph, ""
        if self.types is not None and graph.edge_type is not None:
            relation = self.types.types.relations[graph.edge_type[edge]][1]
        return self.vertex(graph.src[edge], relation), self.vertex(graph.dst[edge])
