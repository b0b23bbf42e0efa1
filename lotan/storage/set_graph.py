"""The graph of a set of partitions: their vertices, and the edges that have both ends there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lotan.graph.arrays import GraphArrays, Ids, Positions, Types, Weights, add_reverses, edge_order, some_of
from lotan.storage.partitioned_graph import PartitionedGraph
from lotan.storage.placement import Placement


class InMemory:
    """The vertices of the partitions in memory, numbered by their positions.

    Args:
        placement: The partitions.
        held: Those in memory, ascending.
    """

    def __init__(self, placement: Placement, held: Sequence[int]) -> None:
        self._firsts = np.array([placement.first(one) for one in held])
        self._ends = np.array([placement.count(one) for one in held]).cumsum()
        self._placement, self._held = placement, np.array(held)

    def __len__(self) -> int:
        """Return the number of vertices in memory."""
        return int(self._ends[-1])

    @property
    def every(self) -> Positions:
        """The positions of all vertices in memory, by their numbers."""
        return self.positions(np.arange(len(self)))

    def positions(self, numbers: Positions) -> Positions:
        """Return the positions of vertices by their numbers among those in memory."""
        place = np.searchsorted(self._ends, numbers, side="right")
        counts = np.diff(self._ends, prepend=0)
        found: Positions = self._firsts[place] + numbers - (self._ends[place] - counts[place])
        return found

    def numbers(self, positions: Positions) -> Positions:
        """Return the numbers of vertices among those in memory by their positions, the inverse of `positions`."""
        place = np.searchsorted(self._held, self._placement.partition_of(positions))
        counts = np.diff(self._ends, prepend=0)
        found: Positions = positions - self._firsts[place] + (self._ends[place] - counts[place])
        return found


@dataclass(frozen=True)
class VertexRows:
    """The columns of all vertices that stay in memory, in ascending order of ids."""

    ids: Ids  # [vertices]
    label: np.ndarray  # int64 [vertices], or float32 [vertices, targets]
    weight: Weights | None = None  # [vertices], in the loss

    @classmethod
    def without_labels(cls, ids: Ids) -> VertexRows:
        """Return the columns of the vertices of a link task."""
        return cls(ids, np.full(len(ids), -1))


def arrays_of_set(
    graph: PartitionedGraph, memory: InMemory, held: Sequence[int], vertices: VertexRows, types: Types | None = None
) -> GraphArrays:
    """Return the graph of the partitions in memory, without features. Vertices are in the order of their positions.

    Args:
        graph: The graph on the disk, whose buckets are read.
        memory: The vertices in memory.
        held: The partitions in memory, ascending.
        vertices: The columns of all vertices.
        types: The type of an edge for each number of a relation; None: edges have no types.

    Raises:
        StorageError: If a bucket is cut short or was changed.
    """
    summary = graph.summary
    records, numbers = graph.edges([(a, b) for a in held for b in held])
    src, dst = (memory.numbers(records[:, column].astype(np.int64)) for column in (0, 1))
    relations = records[:, 2].astype(np.int64)
    del records
    if summary.both_ways:  # a link and its reverse are both in the set, or neither is
        src, dst, missing = add_reverses(src, dst, len(memory))
        relations = np.concatenate([relations, relations[missing]])
        numbers = np.concatenate([numbers, numbers[missing]])
    weight = numbers[:, 0] if summary.weighted else None
    attributes = None if summary.attributes is None else numbers[:, int(summary.weighted) :]
    order = np.lexsort((*edge_order(weight, attributes, relations), src, dst))
    rows = graph.placement.rows(memory.every)
    return GraphArrays(
        ids=vertices.ids[rows],
        features=np.empty((len(rows), 0), dtype=np.float32),
        label=vertices.label[rows],
        split=np.zeros(len(rows), dtype=np.int8),
        src=src[order],
        dst=dst[order],
        weight=some_of(weight, order),
        edge_attr=some_of(attributes, order),
        edge_type=None if types is None else types[relations[order]],
        flat=summary.flat,
        vertex_weight=some_of(vertices.weight, rows),
    )
