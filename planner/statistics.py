"""What is known of a graph before planning."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from planner.degrees import Degrees, within_hops
from planner.spec import EdgeSet, Targets

LEVELS = 17
"""Whose sizes are estimated: those that may be pruned, and one for the sources of the deepest one's edges; beyond, the last."""

PRUNED_SHARE = 0.75
"""Of all vertices: where more than that are needed, little would be left out."""

FEW_MORE = 1.5
"""Times as many vertices as in training may be in any split, for training to compute what evaluation needs as well."""


@dataclass(frozen=True)
class Profile:
    """What costs depend on beside sizes."""

    out_degrees: Degrees
    in_degrees: Degrees
    density: float  # of the features: the share that is not zero
    in_edges: tuple[int, ...] = ()  # that end at the vertices of each class of out_degrees; (): nobody has counted


@dataclass(frozen=True)
class Statistics:
    """Of a graph."""

    vertices: int
    edges: int  # as given
    width: int  # of the features
    self_loops: int = 0  # edges whose ends are equal
    weighted: bool = False
    training: int | None = field(default=None, repr=False)  # vertices whose split is "train"; None: not known
    profile: Profile | None = field(default=None, compare=False, repr=False)  # where it was looked for
    evaluated: int | None = field(default=None, repr=False)  # vertices in any split; None: not known

    @property
    def targets(self) -> Targets:
        """From which vertices levels are counted: one order of vertices has to do for all passes.

        Of all in a split, both training and evaluation leave out what none of these depends on; of those in training, training
        leaves out more, and evaluation nothing.
        """
        if self.training is None or self.evaluated is None:
            return "train"
        few = self.evaluated <= FEW_MORE * self.training and self.evaluated < PRUNED_SHARE * self.vertices
        return "split" if few else "train"

    def edge_count(self, edges: EdgeSet, within: int | None = None) -> int:
        """Number of edges of an edge set; estimated of those that end within a level, as of `rows_within`."""
        loops = edges != "graph"
        if within is None or not self._levels:
            return self.edges - self.self_loops + self.vertices if loops else self.edges
        rows, found = self._levels[min(within, LEVELS - 1)]
        return round(found * (1 - self.self_loops / max(1, self.edges)) + rows if loops else found)

    def rows_within(self, level: int | None) -> int:
        """Vertices from which edges lead to one of the targets in at most so many hops; None: all vertices.

        Estimated: see `planner.degrees.within_hops`; as if targets were drawn, and where nobody has counted degrees, as if all
        vertices had the same.
        """
        if level is None or not self._levels:
            return self.vertices
        return round(self._levels[min(level, LEVELS - 1)][0])

    def sources_within(self, level: int | None) -> int:
        """Vertices at which edges begin that end within a level, at the most."""
        return self.rows_within(None if level is None else level + 1)

    @cached_property
    def _levels(self) -> tuple[tuple[float, float], ...]:
        """Vertices within each level, and edges that end there; (): the targets are not known."""
        first = self.evaluated if self.targets == "split" else self.training
        if first is None or not self.vertices:
            return ()
        degrees = self.degrees()
        in_edges = self.profile.in_edges if self.profile is not None else ()
        found = within_hops(first / self.vertices, degrees, in_edges or degrees.edges)
        return tuple(islice(found, LEVELS))

    @property
    def density(self) -> float:
        """The share of the features that is not zero; 1 where nobody has counted."""
        return 1.0 if self.profile is None else self.profile.density

    def degrees(self, reverse: bool = False) -> Degrees:
        """How many edges begin, or with `reverse` end, at vertices; evenly spread where nobody has counted."""
        if self.profile is None:
            return Degrees.even(self.vertices, self.edges)
        return self.profile.in_degrees if reverse else self.profile.out_degrees
