"""Ranks of the links of a graph on a disk, among vertices whose rows are read partition by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lotan.graph.arrays import Positions, places_of
from lotan.links.decoders import Decoder
from lotan.links.examples import TRAIN, Known, Links
from lotan.links.ranks import SCORES
from lotan.links.ranks_in_parts import RowsOf, known_in_parts, rank_in_parts
from lotan.storage.partitioned_graph import PartitionedGraph
from planner.spec import SPLITS


class StoredLinks:
    """The links of validation and test, and what is known of their ends.

    Args:
        graph: The graph on the disk. Its training links are read once, bucket by bucket.
    """

    def __init__(self, graph: PartitionedGraph) -> None:
        others = graph.others()
        self._links = graph.links_of(others, others[:, 3])
        self._graph = graph
        self._known: list[tuple[Known, Known]] = []

    def of(self, split: str) -> Links:
        """Return the links of a split, between positions."""
        return self._links.of(split)

    def known(self) -> Sequence[tuple[Known, Known]]:
        """Return for each partition the known destinations of the sources to rank, and the known sources of the destinations."""
        if not self._known:
            both = [self._answers(column) for column in (0, 1)]
            self._known = list(zip(*both, strict=True))
        return self._known

    def _answers(self, column: int) -> list[Known]:
        """Return the other ends of all links that begin (0) or end (1) where a link of validation or test does."""
        relations, links, placement = self._links.relations, self._links, self._graph.placement
        asked = np.unique((links.src, links.dst)[column] * relations + links.numbers)
        found = []
        for records in self._every():
            for some in (records, records[:, [1, 0, 2]])[: 1 + links.both_ways]:
                keys = some[:, column] * relations + some[:, 2]
                found.append(some[places_of(asked, keys) >= 0])  # np.isin would sort what is asked anew for each bucket
        return known_in_parts(np.concatenate(found), column, placement, relations)

    def _every(self) -> Iterator[Positions]:
        """Yield all links, part by part: positions of both ends, and relations. [links, 3]."""
        yield self._graph.others()[:, :3].astype(np.int64)
        partitions = self._graph.placement.partitions
        for number in range(partitions**2):
            yield self._graph.bucket(divmod(number, partitions)).astype(np.int64)


def metrics_of_stored(
    decoder: Decoder, rows_of: RowsOf, links: StoredLinks, split: str, graph: PartitionedGraph, most: int = SCORES
) -> dict[str, float]:
    """Return the ranks' metrics of a split, as `lotan.links.ranks` names them; {} if it has no links."""
    assert SPLITS.index(split) != TRAIN
    asked = links.of(split)
    return rank_in_parts(decoder, rows_of, asked, links.known(), graph.placement, most).metrics() if len(asked) else {}
