"""Draws the edges of a batch: level by level, at most a fanout of in-edges for each vertex, each vertex once.

The result is a small graph in the order of its levels, as `lotan.engines.local.level_order` orders a whole graph. Source:
Waleffe et al., MariusGNN (EuroSys 2023), section 4, DENSE, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lotan.batches.draws import DRAWS, OUT_DRAWS, Positions, choose, keys_by_relation
from lotan.graph.arrays import GraphArrays, counted, runs
from lotan.memory.mapped import rows_at
from lotan.stages.draws import Randomness
from planner.regime import Fanout


@dataclass(frozen=True)
class Sample:
    """A sampled graph. Vertices are in the order of their levels, and within a level in the graph's order."""

    rows: Positions  # the vertices, as rows of the graph [vertices]
    counts: tuple[int, ...]  # the number of vertices within each level, from the targets to the last level
    edges: Positions  # the drawn edges, as positions in the graph's edges, by destination and then source [edges]
    src: Positions  # the places of their sources in `rows` [edges]
    dst: Positions  # the places of their destinations, ascending [edges]


@dataclass(frozen=True)
class _Outgoing:
    """The edges of a graph in the order of their sources."""

    edges: Positions  # positions in the graph's edges [edges]
    indptr: Positions  # the first of each vertex, and the number of all [vertices + 1]


@dataclass(frozen=True)
class _Related:
    """The in-edges of each vertex, relation by relation. Those of one vertex and one relation are a group."""

    edges: Positions  # positions in the graph's edges, by destination and then relation [edges]
    first: Positions  # the first edge of each group, and the number of all edges [groups + 1]
    relation: Positions  # [groups]
    indptr: Positions  # the first group of each vertex, and the number of all groups [vertices + 1]

    @staticmethod
    def of(arrays: GraphArrays) -> _Related:
        assert arrays.edge_type is not None, "each edge of a graph of several types is of a relation"
        edges = np.lexsort((arrays.edge_type, arrays.dst))  # stable: edges of a group stay in the graph's order
        ends, relation = arrays.dst[edges], arrays.edge_type[edges]
        new = np.ones(len(edges), dtype=np.bool_)
        new[1:] = (ends[1:] != ends[:-1]) | (relation[1:] != relation[:-1])
        first = np.flatnonzero(new)
        groups = np.bincount(ends[first], minlength=len(arrays.ids)).cumsum()
        zero = np.zeros(1, dtype=np.int64)
        return _Related(edges, np.append(first, len(edges)), relation[first], np.concatenate([zero, groups]))


class Sampler:
    """Draws batches of one graph. It has memory of its own, so only one thread may use it.

    Args:
        arrays: The graph, whose edges are sorted by destination.
        both: True to draw as many out-edges of each vertex as in-edges, for models that sum along edges turned round. A
            batch then has the edges that were drawn from either end.
        by_relation: True to draw the in-edges of each relation apart, so that a fanout is the most of one relation.
    """

    def __init__(self, arrays: GraphArrays, both: bool = False, by_relation: bool = False) -> None:
        vertices = len(arrays.ids)
        self._src, self._keys = arrays.src, arrays.keys
        ends = counted(arrays.dst, vertices).cumsum()
        self._indptr = np.concatenate([np.zeros(1, dtype=np.int64), ends])  # the first in-edge of each vertex
        self._dst, self._both = arrays.dst, both
        self._outgoing: _Outgoing | None = None
        if both:
            outgoing = np.argsort(arrays.src, kind="stable")
            counts = counted(arrays.src, vertices).cumsum()
            self._outgoing = _Outgoing(outgoing, np.concatenate([np.zeros(1, dtype=np.int64), counts]))
        self._related = _Related.of(arrays) if by_relation else None
        self._places = np.full(vertices, -1, dtype=np.int64)  # the place of each vertex in the batch, or -1
        self._left_out: NDArray[np.bool_] | None = None  # marks edges that are left out, while a level is drawn

    def sample(
        self, targets: Positions, fanouts: Sequence[Fanout], of: Randomness, without: Positions | None = None
    ) -> Sample:
        """Return a batch. The cost grows with the edges that are drawn, and not with the graph.

        Args:
            targets: The rows of the targets, each once, ascending. [targets]
            fanouts: For each level the most in-edges of a vertex, or "all"; the first is for the targets.
            of: The seed, the epoch and the batch.
            without: Edges that are left out after the draws, as positions in the graph's edges; None: none.
        """
        none = np.zeros(0, dtype=np.int64)  # a plan may read no neighbours, if all its sums are computed once
        levels, edges, degrees = [targets], [none], [none]
        self._places[targets] = np.arange(len(targets))
        count = len(targets)
        try:
            for fanout in fanouts:
                drawn, of_vertex = self._drawn(levels[-1], fanout, of)
                if without is not None:
                    drawn, of_vertex = self._kept(drawn, of_vertex, without)
                ends = rows_at(self._src, drawn)
                if self._outgoing is not None:
                    out = self._drawn_out(self._outgoing, levels[-1], fanout, of)
                    if without is not None:
                        out, _ = self._kept(out, np.array([len(out)]), without)
                    ends = np.concatenate([ends, rows_at(self._dst, out)])
                    edges.append(out)
                edges.append(drawn)
                degrees.append(of_vertex)
                new = self._unmet(ends)
                self._places[new] = np.arange(count, count + len(new))
                count += len(new)
                levels.append(new)
            rows, counts = np.concatenate(levels), np.cumsum([len(level) for level in levels])
            if self._both:
                return self._of_both(rows, counts, np.unique(np.concatenate(edges)))
            return self._sorted(rows, counts, np.concatenate(edges), np.concatenate(degrees))
        finally:
            for level in levels:
                self._places[level] = -1

    def _kept(self, drawn: Positions, degrees: Positions, without: Positions) -> tuple[Positions, Positions]:
        """Return the drawn edges that are not among `without`, and their number for each vertex."""
        if self._left_out is None:
            self._left_out = np.zeros(len(self._src), dtype=bool)
        self._left_out[without] = True
        kept = ~self._left_out[drawn]
        self._left_out[without] = False
        of_vertex = np.repeat(np.arange(len(degrees)), degrees)
        return drawn[kept], np.bincount(of_vertex[kept], minlength=len(degrees))

    def _unmet(self, sources: Positions) -> Positions:
        """Return those of the vertices that have no place yet, each once, ascending."""
        new = sources[self._places[sources] < 0]
        turns = np.arange(len(new))
        self._places[new] = turns  # of a vertex that is there several times, the last turn stays
        return np.sort(new[self._places[new] == turns])

    def _sorted(self, rows: Positions, counts: Positions, edges: Positions, degrees: Positions) -> Sample:
        """Return the sample with its edges sorted by source within each destination."""
        src, dst = self._places[rows_at(self._src, edges)], np.repeat(np.arange(len(degrees)), degrees)
        order = np.argsort(dst * len(rows) + src, kind="stable")  # parallel edges stay in the graph's order
        return Sample(rows, tuple(counts.tolist()), edges[order], src[order], dst)

    def _of_both(self, rows: Positions, counts: Positions, edges: Positions) -> Sample:
        """Return a sample of edges that were drawn from either end, each once."""
        src, dst = (self._places[rows_at(ends, edges)] for ends in (self._src, self._dst))
        order = np.lexsort((src, dst))  # stable: parallel edges stay in the graph's order
        return Sample(rows, tuple(counts.tolist()), edges[order], src[order], dst[order])

    def _drawn_out(self, outgoing: _Outgoing, vertices: Positions, fanout: Fanout, of: Randomness) -> Positions:
        """Return the positions of the out-edges that are drawn."""
        places, _ = self._drawn(vertices, fanout, of, outgoing.indptr, OUT_DRAWS)
        return outgoing.edges[places]

    def _drawn(
        self,
        vertices: Positions,
        fanout: Fanout,
        of: Randomness,
        indptr: Positions | None = None,
        name: str = DRAWS,
    ) -> tuple[Positions, Positions]:
        """Return the positions of the edges that are drawn, vertex by vertex, and their number for each vertex.

        Args:
            vertices: The vertices. [vertices]
            fanout: The most edges of a vertex, or "all".
            of: The seed, the epoch and the batch.
            indptr: The first edge of each vertex in an order of edges, and their number; None: those of in-edges.
            name: The name of the draws.
        """
        if self._related is not None and indptr is None:
            return self._drawn_by_relation(self._related, vertices, fanout, of)
        indptr = self._indptr if indptr is None else indptr
        first = indptr[vertices]
        return self._chosen(first, indptr[vertices + 1] - first, fanout, self._keys[vertices], of, name)

    def _drawn_by_relation(
        self, related: _Related, vertices: Positions, fanout: Fanout, of: Randomness
    ) -> tuple[Positions, Positions]:
        """Return the same for a fanout of each relation."""
        of_vertex = related.indptr[vertices + 1] - related.indptr[vertices]
        groups = runs(related.indptr[vertices], of_vertex)
        place = np.repeat(np.arange(len(vertices)), of_vertex)
        first = related.first[groups]
        keys = keys_by_relation(self._keys[vertices[place]], related.relation[groups])
        places, taken = self._chosen(first, related.first[groups + 1] - first, fanout, keys, of, DRAWS)
        degrees = np.zeros(len(vertices), dtype=np.int64)
        np.add.at(degrees, place, taken)
        return related.edges[places], degrees

    def _chosen(
        self, first: Positions, degrees: Positions, fanout: Fanout, keys: Positions, of: Randomness, name: str
    ) -> tuple[Positions, Positions]:
        """Return the places of chosen edges of runs of edges, and their number for each run.

        Args:
            first: The first place of each run. [runs]
            degrees: The number of its edges. [runs]
            fanout: The most edges of a run, or "all".
            keys: The row key of its draws. [runs]
            of: The seed, the epoch and the batch.
            name: The name of the draws.
        """
        if fanout == "all" or fanout > len(self._src):  # no vertex has so many, and numpy has no numbers beyond 64 bits
            return runs(first, degrees), degrees
        taken = np.minimum(degrees, fanout)
        edges = runs(first, taken)
        many = np.flatnonzero(degrees > fanout)
        if len(many):
            chosen = choose(degrees[many], fanout, keys[many], of, name)  # [many, fanout]
            ends = np.cumsum(taken)[many]
            edges[(ends - fanout)[:, None] + np.arange(fanout)] = first[many][:, None] + chosen
        return edges, taken
