"""The partition of each vertex, and its place there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lotan.graph.arrays import Positions
from lotan.links.ranks_in_parts import Parts
from lotan.stages.draws import Randomness, random_words

FEW = 1 << 16
"""The vertices of a graph up to which each has a place of its own. Beyond that, runs of vertices stay together."""

RUN = 256
"""The vertices of such a run. The rows of a run are read and written as one piece, so it should not be short."""


@dataclass(frozen=True)
class Placement(Parts):
    """The vertices in a drawn order, which is cut into partitions. The *position* of a vertex is its place in that order.

    The order depends on the seed and the number of vertices alone.
    """

    seed: int

    def positions(self, rows: Positions) -> Positions:
        """Return the positions of vertices, which are given as rows in ascending order of ids."""
        return self._moved(self._places, rows)

    def rows(self, positions: Positions) -> Positions:
        """Return the rows of vertices, in ascending order of ids, by their positions."""
        return self._moved(self._runs, positions)

    @property
    def _run(self) -> int:
        return 1 if self.vertices <= FEW else RUN

    @cached_property
    def _runs(self) -> Positions:
        """The runs in their drawn order. The vertices after the last whole run stay at the end."""
        numbers = np.arange(self.vertices // self._run)
        words = random_words(Randomness(self.seed, 0), "partitions of vertices", numbers, 2)
        return np.lexsort((numbers, words[:, 1], words[:, 0]))

    @cached_property
    def _places(self) -> Positions:
        found = np.empty_like(self._runs)
        found[self._runs] = np.arange(len(found))
        return found

    def _moved(self, places: Positions, given: Positions) -> Positions:
        run, within = np.divmod(given, self._run)
        whole = run < len(places)
        run[whole] = places[run[whole]]
        found: Positions = run * self._run + within
        return found


@dataclass(frozen=True, eq=False)
class ExamplesFirst(Placement):
    """The same order, but the vertices that are trained on come before all others. So they fill the first partitions."""

    examples: Positions  # their rows

    def positions(self, rows: Positions) -> Positions:
        """Return the positions of vertices, which are given as rows in ascending order of ids."""
        found: Positions = self._position[rows]
        return found

    def rows(self, positions: Positions) -> Positions:
        """Return the rows of vertices, in ascending order of ids, by their positions."""
        found: Positions = self._order[positions]
        return found

    @cached_property
    def _order(self) -> Positions:
        drawn = super().rows(np.arange(self.vertices))
        is_example = np.zeros(self.vertices, dtype=bool)
        is_example[self.examples] = True
        return np.concatenate([drawn[is_example[drawn]], drawn[~is_example[drawn]]])

    @cached_property
    def _position(self) -> Positions:
        found = np.empty_like(self._order)
        found[self._order] = np.arange(self.vertices)
        return found
