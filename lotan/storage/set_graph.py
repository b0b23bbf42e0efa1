"""The graph of a set of partitions: their vertices, and the edges that have both ends there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lotan.graph.arrays import (
    EdgeColumns,
    GraphArrays,
    Ids,
    Positions,
    Types,
    Weights,
    add_reverses,
    some_of,
    sort_edges,
)
from lotan.graph.sorted_edges import runs_of_ends
from lotan.memory.mapped import MappedMemory
from lotan.memory.trim import give_back_freed
from lotan.storage.edge_readers import Numbers
from lotan.storage.partitioned_graph import PartitionedGraph, Records
from lotan.storage.placement import Placement
from lotan.storage.row_files import Moved
from planner.chunks import EDGES_READ
from planner.orders.order import Bucket


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
    graph: PartitionedGraph,
    memory: InMemory,
    held: Sequence[int],
    vertices: VertexRows,
    types: Types | None = None,
    moved: Moved | None = None,
) -> GraphArrays:
    """Return the graph of the partitions in memory, without features. Vertices are in the order of their positions.

    Args:
        graph: The graph on the disk, whose buckets are read.
        memory: The vertices in memory.
        held: The partitions in memory, ascending.
        vertices: The columns of all vertices.
        types: The type of an edge for each number of a relation; None: edges have no types.
        moved: The counts to which what is read is added; None: it is not counted.

    Raises:
        StorageError: If a bucket is cut short or was changed.
    """
    records, numbers = graph.edges([(a, b) for a in held for b in held], moved)
    src, dst = (memory.numbers(records[:, column].astype(np.int64)) for column in (0, 1))
    relations = records[:, 2].astype(np.int64)
    del records
    if graph.summary.both_ways:  # a link and its reverse are both in the set, or neither is
        src, dst, missing = add_reverses(src, dst, len(memory))
        relations = np.concatenate([relations, relations[missing]])
        numbers = np.concatenate([numbers, numbers[missing]])
    edges = _in_order(graph, src, dst, relations, numbers)
    del src, dst, relations, numbers
    rows = graph.placement.rows(memory.every)
    return GraphArrays(
        ids=vertices.ids[rows],
        features=np.empty((len(rows), 0), dtype=np.float32),
        label=vertices.label[rows],
        split=np.zeros(len(rows), dtype=np.int8),
        src=edges.src,
        dst=edges.dst,
        weight=edges.weight,
        edge_attr=edges.edge_attr,
        edge_type=None if types is None else types[edges.edge_type],
        flat=graph.summary.flat,
        vertex_weight=some_of(vertices.weight, rows),
    )


def arrays_in_files(
    graph: PartitionedGraph, vertices: VertexRows, mapped: MappedMemory, types: Types | None = None
) -> GraphArrays:
    """Return the graph of all partitions, whose edges lie in files. `EDGES_READ` of them are read and sorted at a time.

    Args:
        graph: The graph on the disk, whose buckets are read.
        vertices: The columns of all vertices.
        mapped: The files of this process that hold the edges.
        types: The type of an edge for each number of a relation; None: edges have no types.

    Raises:
        StorageError: If a bucket is cut short or was changed.
    """
    every, summary = range(graph.placement.partitions), graph.summary
    most = summary.training * (2 if summary.both_ways else 1)
    made = [mapped.new(most, torch.int64).numpy() for _ in range(2 if types is None else 3)]
    made += [mapped.new(most).numpy()] * summary.weighted
    attributes = None if summary.attributes is None else mapped.new(most * summary.attributes).view(most, -1).numpy()
    count = 0
    for into in (ends for partition in every for ends in _ends_to_read(graph, partition)):
        records, numbers = _edges_into(graph, into)
        src, dst, numbers_of_relations = records.astype(np.int64).T  # all vertices are there: positions are numbers
        edges = _in_order(graph, src, dst, numbers_of_relations, numbers)
        relations = [] if types is None else [types[edges.edge_type]]
        columns = [edges.src, edges.dst, *relations, *([] if edges.weight is None else [edges.weight])]
        some = slice(count, count + len(edges.src))
        for whole, column in zip(made, columns, strict=True):
            whole[some] = column
        if attributes is not None and edges.edge_attr is not None:
            attributes[some] = edges.edge_attr
        count = some.stop
        del records, numbers, src, dst, numbers_of_relations, edges, columns, relations
        mapped.give_all_back()
        give_back_freed()
    rows = graph.placement.rows(np.arange(graph.placement.vertices))
    return GraphArrays(
        ids=vertices.ids[rows],
        features=np.empty((len(rows), 0), dtype=np.float32),
        label=vertices.label[rows],
        split=np.zeros(len(rows), dtype=np.int8),
        src=made[0][:count],
        dst=made[1][:count],
        weight=made[-1][:count] if summary.weighted else None,
        edge_attr=None if attributes is None else attributes[:count],
        edge_type=None if types is None else made[2][:count],
        flat=summary.flat,
        vertex_weight=some_of(vertices.weight, rows),
    )


def _ends_to_read(graph: PartitionedGraph, partition: int) -> list[range]:
    """Return the vertices of a partition in runs that at most `EDGES_READ` edges end in, if no vertex has more."""
    first, count = graph.placement.first(partition), graph.placement.count(partition)
    buckets = _ending_in(graph, partition)
    if sum(graph.size(bucket) for bucket, _ in buckets) <= EDGES_READ:
        return [range(first, first + count)]
    counts = np.zeros(count, dtype=np.int64)
    for bucket, end in buckets:
        counts += np.bincount(graph.edges([bucket])[0][:, end] - first, minlength=count)
    return [range(first + run.start, first + run.stop) for run in runs_of_ends(counts, EDGES_READ)]


def _ending_in(graph: PartitionedGraph, partition: int) -> list[tuple[Bucket, int]]:
    """Return the buckets with edges that end in a partition, or whose reverses do, each with the column of that end."""
    every = range(graph.placement.partitions)
    reverses = [((partition, one), 0) for one in every] if graph.summary.both_ways else []
    return [*(((one, partition), 1) for one in every), *reverses]


def _edges_into(graph: PartitionedGraph, ends: range) -> tuple[Records, Numbers]:
    """Return the records and numbers of all edges that end in some vertices of one partition, with added reverses."""
    partition = int(graph.placement.partition_of(np.array([ends.start]))[0])
    found: tuple[list[Records], list[Records]] = [], []  # by the column of the end
    beside: tuple[list[Numbers], list[Numbers]] = [], []
    for bucket, end in _ending_in(graph, partition):
        records, numbers = graph.edges([bucket])
        kept = (records[:, end] >= ends.start) & (records[:, end] < ends.stop)
        found[end].append(records[kept])
        beside[end].append(numbers[kept])
    records, numbers = np.concatenate(found[1]), np.concatenate(beside[1])
    if not found[0]:
        return records, numbers
    reverses, count = np.concatenate(found[0])[:, [1, 0, 2]], graph.placement.vertices
    keys, of_reverses = (one[:, 0].astype(np.int64) * count + one[:, 1] for one in (records, reverses))
    missing = np.flatnonzero(~np.isin(of_reverses, keys))
    return np.concatenate([records, reverses[missing]]), np.concatenate([numbers, np.concatenate(beside[0])[missing]])


def _in_order(
    graph: PartitionedGraph, src: Positions, dst: Positions, relations: Positions, numbers: Numbers
) -> EdgeColumns:
    """Return edges by destination, then source, and then by what they have beside their ends. Relations are their types."""
    summary = graph.summary
    weight = numbers[:, 0] if summary.weighted else None
    attributes = None if summary.attributes is None else numbers[:, int(summary.weighted) :]
    return sort_edges(EdgeColumns(src, dst, weight, attributes, relations), graph.placement.vertices)
