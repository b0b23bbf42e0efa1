"""The columns of a graph that a model is traced for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from planner.edge_columns import NO_EDGE_DATA, EdgeData
from planner.vertex_types import VertexTypes


class GivenColumns(TypedDict, total=False):
    """The fields of `GraphColumns` that callers of a trace give beside the width, each with its default if it is left out."""

    data: EdgeData
    weighted: bool
    types: VertexTypes | None
    vertices: tuple[int, ...]  # the number of vertices of each type, also if no parameter has a row for each
    groups: int | None
    label_rate: float | None
    further: tuple[str, ...]
    order: int | None


@dataclass(frozen=True)
class GraphColumns:
    """The columns of a graph that a model is traced for.

    Attributes:
        width: the width of the vertices' features.
        data: the attributes and types of edges.
        weighted: if True, the edges have weights, which a forward that takes `edge_weight` is given.
        types: the types of vertices and the relations of a graph that has several; None for others.
        learned: the names of the model's parameters that have a row for each vertex, each with the number of their type.
        vertices: the number of vertices of each type; () if no parameter has a row for each.
        groups: the number of groups of vertices, whose number is the last of the features; None for a graph without groups.
        label_rate: for a model that sees labels, the share of training vertices whose labels it sees in an epoch. The class of
            each training vertex is the last of the features then, and -1 of any other. None for other models.
        order: the number of the attribute of edges by which neighbours are in order; None for the order of their ids.
        further: the names of the tensors that forward returns beside its output, as the loss calls them.
    """

    width: int
    data: EdgeData = NO_EDGE_DATA
    weighted: bool = False
    types: VertexTypes | None = None
    learned: tuple[tuple[str, int], ...] = ()
    vertices: tuple[int, ...] = ()
    groups: int | None = None
    label_rate: float | None = None
    further: tuple[str, ...] = ()
    order: int | None = None

    @property
    def of_edges(self) -> tuple[str, ...]:
        """The names under which a forward takes the columns of edges that there are."""
        if self.types is not None:
            return ("edge_weight",) * self.weighted + ("edge_attr",) * bool(self.types.edge_widths)
        there = {"edge_weight": self.weighted, "edge_attr": self.data.width is not None, "edge_type": self.data.typed}
        return tuple(name for name, given in there.items() if given)
