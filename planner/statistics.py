"""The facts about a graph that are known before planning."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from planner.degrees import Degrees, within_hops
from planner.edge_columns import NO_EDGE_DATA, EdgeData
from planner.edge_sets import has_added_loops, relation_of
from planner.spec import EdgeSet, Targets

LEVELS = 17
"""The number of levels whose sizes are estimated. Deeper levels count as the last of them.

They are the levels that may be pruned, and one more for the sources of the deepest one's edges.
"""

MOST_EVALUATED = 0.75
"""The largest share of all vertices, in any split, for which evaluation is pruned too. Beyond it, little would be left out."""

FEW_MORE = 1.5
"""The most vertices in any split, divided by those in training, for which training also computes what evaluation needs."""


@dataclass(frozen=True)
class Profile:
    """The properties of a graph, besides sizes, on which costs depend."""

    out_degrees: Degrees
    in_degrees: Degrees
    density: float  # share of the features that is not zero
    in_edges: tuple[int, ...] = ()  # edges that end at the vertices of each class of out_degrees; (): not counted


@dataclass(frozen=True)
class Statistics:
    """The sizes of a graph and of its splits."""

    vertices: int
    edges: int  # number of edges as given
    width: int  # number of features of a vertex
    self_loops: int = 0  # number of edges whose ends are equal
    weighted: bool = False
    training: int | None = field(default=None, repr=False)  # vertices in the training split; None: unknown
    profile: Profile | None = field(default=None, compare=False, repr=False)  # None: not measured
    evaluated: int | None = field(default=None, repr=False)  # vertices in any split; None: unknown
    # the attributes and types that edges have
    edge_data: EdgeData = field(default=NO_EDGE_DATA, repr=False)
    relations: tuple[int, ...] = field(default=(), repr=False)  # number of edges of each type; (): not counted
    # for a sampled batch: the estimated vertices within each level, and the edges that end there; see planner.regime
    sampled: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    # True if features and the ends of edges lie in files of the process, or can be read there part by part
    in_files: bool = field(default=False, compare=False, repr=False)

    @property
    def targets(self) -> Targets:
        """The vertices from which levels are counted. All passes share one order of vertices, so there is one choice.

        With "split", training and evaluation both leave out the vertices on which no vertex of a split depends. With
        "train", training leaves out more, and evaluation leaves out nothing.
        """
        if self.training is None or self.evaluated is None:
            return "train"
        few = self.evaluated <= FEW_MORE * self.training and self.evaluated < MOST_EVALUATED * self.vertices
        return "split" if few else "train"

    def edge_count(self, edges: EdgeSet, within: int | None = None) -> int:
        """Return the number of edges of an edge set, or an estimate of those that end within a level."""
        loops, share = has_added_loops(edges), self._share(edges)
        if within is None or not self._levels:
            found: float = (self.edges - self.self_loops) * share + self.vertices if loops else self.edges * share
            return round(found)
        rows, found = self._levels[min(within, len(self._levels) - 1)]
        found *= share
        return round(found * (1 - self.self_loops / max(1, self.edges)) + rows if loops else found)

    def _share(self, edges: EdgeSet) -> float:
        """Return the share of all edges that a relation has; 1 for an edge set of all types, or if they are not counted."""
        relation = relation_of(edges)
        if relation is None:
            return 1.0
        if relation < len(self.relations):
            return self.relations[relation] / max(1, self.edges)
        return 0.0 if self.relations else 1.0

    def rows_within(self, level: int | None) -> int:
        """Estimate the number of vertices from which a target can be reached in at most `level` edges. None: all vertices.

        The estimate takes targets as drawn at random: see `planner.degrees.within_hops`. If degrees are not counted, it
        takes them as equal.
        """
        if level is None or not self._levels:
            return self.vertices
        return round(self._levels[min(level, len(self._levels) - 1)][0])

    def sources_within(self, level: int | None) -> int:
        """Return the most vertices that can be sources of edges that end within a level."""
        return self.rows_within(None if level is None else level + 1)

    @cached_property
    def _levels(self) -> tuple[tuple[float, float], ...]:
        """The estimated vertices within each level, and edges that end there; () if the targets are not known."""
        if self.sampled:
            return self.sampled
        first = self.evaluated if self.targets == "split" else self.training
        if first is None or not self.vertices:
            return ()
        degrees = self.degrees()
        in_edges = self.profile.in_edges if self.profile is not None else ()
        found = within_hops(first / self.vertices, degrees, in_edges or degrees.edges)
        return tuple(islice(found, LEVELS))

    @property
    def density(self) -> float:
        """The share of the features that is not zero, or 1 if it is not counted."""
        return 1.0 if self.profile is None else self.profile.density

    def degrees(self, reverse: bool = False) -> Degrees:
        """Return the out-degrees of the vertices, or the in-degrees with `reverse`. They are equal if not counted."""
        if self.profile is None:
            return Degrees.even(self.vertices, self.edges)
        return self.profile.in_degrees if reverse else self.profile.out_degrees
