"""The demands of a job on its graph, and the report on a graph that meets them."""

from __future__ import annotations

from dataclasses import dataclass

from planner.edge_columns import NO_EDGE_DATA, EdgeData
from planner.loss import Task
from planner.spec import Bound


@dataclass(frozen=True)
class Demands:
    """A job's demands on its graph: the arguments of `lotan.validation.check.check_graph`."""

    task: Task | None
    outputs: int | None
    in_channels: int | None
    normalised_weights: bool
    reads: EdgeData = NO_EDGE_DATA  # the columns of edges that the model reads
    types: tuple[int, str] | None = None  # how many types of edges a layer distinguishes, and the layer; None: any
    bounds: tuple[Bound, ...] = ()  # columns of features and attributes whose numbers layers take as types
    in_edges: tuple[int, str] | None = (
        None  # the most in-edges of a vertex, and the layer that takes no more; None: any
    )


@dataclass(frozen=True)
class GraphReport:
    """Counts of a graph that can be trained on."""

    vertices: int
    edges: int  # number of edges, reverses included
    width: int  # width of the features
    self_loops: int
    parallel_edges: int  # number of edges beyond the first from one vertex to another
    without_in_edges: int  # number of vertices without in-edges

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about features of the graph that are legal and may surprise."""
        if self.edges == 0:
            return ("edges: there are none; every layer sees each vertex alone, as in an MLP.",)
        notes = (
            (
                self.without_in_edges,
                "vertices have no in-edges: they aggregate zero, or themselves where layers add self-loops.",
            ),
            (self.self_loops, "self-loops: legal, and kept; GCNConv and GATConv count each vertex's once."),
            (self.parallel_edges, "parallel edges beyond the first: legal, each one passes its own message."),
        )
        return tuple(f"edges: {count:,} {note}" for count, note in notes if count)
