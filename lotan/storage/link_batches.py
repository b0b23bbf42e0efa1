"""The batches of an epoch over partitions: links whose ends are in memory, and negatives that are drawn among these."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lotan.batches.draws import order_words
from lotan.batches.schedule import Prepared
from lotan.engines.local.batch_graph import load_batch, only_targets, sampled_edges
from lotan.engines.local.loaded_graph import FromGraph, LoadedGraph
from lotan.graph.arrays import Ids, Positions
from lotan.graph.row_keys import vertex_keys
from lotan.links.pairs import DESTINATIONS, SOURCES, Pairs, Side
from lotan.settings.regimes import BATCHES_AHEAD, MiniBatch
from lotan.settings.tasks import ALL, LinkPrediction
from lotan.stages.programs import make_program
from lotan.stages.randomness import Randomness, random_words
from lotan.stages.saved_values import Memory
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.partitioned_graph import PartitionedGraph, Records
from lotan.storage.placement import Placement
from planner.orders.order import EdgeOrder, Set
from planner.physical import Plan


@dataclass(frozen=True)
class LinkSet:
    """The links that are trained while one set of partitions is in memory, in the order of their batches."""

    number: int  # of the set in its epoch
    held: Set
    then: Set  # the set after it; () if it is the last
    records: Records  # [links, 3]
    first: int  # the number of its first batch in the epoch


def sets_of_epoch(graph: PartitionedGraph, order: EdgeOrder, batch_size: int, of: Randomness) -> Iterator[LinkSet]:
    """Yield the sets of an epoch with their links, which are read from the disk one set at a time.

    The links of a set are put in an order that depends on the seed, the epoch and the place of each link on the disk.

    Args:
        graph: The graph.
        order: The order of the epoch.
        batch_size: The links of a batch.
        of: The seed of the batches, and the epoch.
    """
    first, partitions = 0, graph.placement.partitions
    following: Sequence[Set] = (*order.sets[1:], ())
    for number, (held, buckets, then) in enumerate(zip(order.sets, order.buckets, following, strict=True)):
        found = [graph.bucket(bucket) for bucket in buckets]
        starts = [graph.offsets[a * partitions + b] for a, b in buckets]
        places = [start + np.arange(len(records)) for start, records in zip(starts, found, strict=True)]
        records = np.concatenate(found) if found else np.zeros((0, 3), dtype=np.int32)
        del found
        places_of_links = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        words = order_words(places_of_links, of)  # [links, 2]
        turn = np.lexsort((places_of_links, words[:, 1], words[:, 0]))
        yield LinkSet(number, held, then, records[turn], first)
        first += -(-len(records) // batch_size)


class InMemory:
    """The vertices of the partitions that are in memory, numbered one after the other.

    Args:
        placement: The partitions.
        held: Those in memory, ascending.
    """

    def __init__(self, placement: Placement, held: Set) -> None:
        self._firsts = np.array([placement.first(one) for one in held])
        self._ends = np.array([placement.count(one) for one in held]).cumsum()
        self._placement, self._held = placement, np.array(held)

    def __len__(self) -> int:
        """Return the number of vertices in memory."""
        return int(self._ends[-1])

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


def pairs_of(
    records: Records, of_set: Records, memory: InMemory, task: LinkPrediction, of: Randomness, relations: bool
) -> Pairs:
    """Return the links of a batch with negatives among the vertices in memory. Both are positions.

    A draw depends on the seed, the epoch and the batch alone.

    Args:
        records: The links of the batch. [links, 3]
        of_set: Those of the whole set, in proportion to whose ends "degree" draws. [links of the set, 3]
        memory: The vertices in memory.
        task: The task.
        of: The seed of the task, the epoch and the batch.
        relations: True if links have relations.
    """
    src, dst, numbers = (records[:, column].astype(np.int64) for column in range(3))

    def side(name: str, own: Positions, ends: NDArray[np.int32]) -> Side:
        nothing = torch.zeros(0, dtype=torch.int64)
        if task.negatives == ALL:
            every = torch.from_numpy(memory.positions(np.arange(len(memory))))
            return Side(every, torch.arange(len(own)), torch.from_numpy(memory.numbers(own)))
        words = random_words(of, name, np.arange(int(task.negatives)), 1)[:, 0].astype(np.uint64)
        uniform = task.negative_sampling == "uniform"
        count = len(memory) if uniform else len(ends)
        drawn = ((words * np.uint64(count)) >> np.uint64(32)).astype(np.int64)
        found = memory.positions(drawn) if uniform else ends[drawn].astype(np.int64)
        return Side(torch.from_numpy(found), nothing, nothing)

    return Pairs(
        torch.from_numpy(src),
        torch.from_numpy(dst),
        torch.from_numpy(numbers) if relations else None,
        side(DESTINATIONS, dst, of_set[:, 1]),
        side(SOURCES, src, of_set[:, 0]),
    )


class RowLoader:
    """Makes graphs without edges, whose rows are those of a buffer, for a plan that reads nothing but learned rows.

    Args:
        plan: The plan of a batch.
        ids: The ids of all vertices, ascending.
        placement: The partitions.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
    """

    def __init__(self, plan: Plan, ids: Ids, placement: Placement, chunk_rows: int | None = None) -> None:
        self._plan, self._ids, self._placement, self._chunk_rows = plan, ids, placement, chunk_rows
        memory = Memory()
        self._programs = {stage.name: make_program(stage, plan.source_gradients, memory) for stage in plan.stages}

    def load(self, positions: Positions, rows: torch.Tensor) -> LoadedGraph:
        """Return a graph of some vertices.

        Args:
            positions: The vertices.
            rows: Their rows in the tensors of learned rows, int64.
        """
        nothing = np.zeros(0, dtype=np.int64)
        edges = sampled_edges(positions, nothing, nothing, None, None, None)
        keys = torch.from_numpy(vertex_keys(self._ids[self._placement.rows(positions)]))
        static = {"split": only_targets(len(positions), len(positions)), "label": torch.zeros(len(positions))}
        counts = (len(positions),) * (1 + (self._plan.levels or 0))
        return load_batch(
            edges, self._plan, self._chunk_rows, FromGraph(counts, rows, keys, static, self._programs, {})
        )


@dataclass(frozen=True)
class Batch:
    """A batch that is ready to train on."""

    number: int  # in its epoch
    graph: LoadedGraph
    pairs: Pairs  # as places among the rows of the graph
    links: int


class StoredLinkBatches:
    """The batches of a run over partitions. They are prepared ahead, within a set of partitions.

    Args:
        graph: The graph on the disk.
        buffer: The buffer of partitions.
        loader: The loader for the plan of a batch.
        regime: The regime.
        task: The task.
    """

    def __init__(
        self,
        graph: PartitionedGraph,
        buffer: PartitionBuffer,
        loader: RowLoader,
        regime: MiniBatch,
        task: LinkPrediction,
    ) -> None:
        self._graph, self._buffer, self._loader, self._regime, self._task = graph, buffer, loader, regime, task
        self.prepared = Prepared()
        self._thread = ThreadPoolExecutor(1, "lotan-batches", initializer=torch.set_num_threads, initargs=(1,))

    def of_epoch(self, epoch: int, order: EdgeOrder) -> Iterator[Batch]:
        """Yield the batches of an epoch. The rows of a batch are in the buffer until the next one is asked for.

        Raises:
            StorageError: If partitions or links cannot be read or written.
        """
        self._buffer.begin(epoch)
        size, of = self._regime.batch_size, Randomness(self._regime.seed, epoch)
        for found in sets_of_epoch(self._graph, order, size, of):
            self._buffer.turn_to(found.held, found.then)
            if not len(found.records):
                continue
            memory = InMemory(self._graph.placement, found.held)
            waiting: deque[Future[Batch]] = deque()
            starts = range(0, len(found.records), size)
            for number, start in enumerate(starts):
                waiting.append(self._thread.submit(self._prepare, found, memory, epoch, number, start))
                if len(waiting) > BATCHES_AHEAD:
                    yield self._taken(waiting)
            while waiting:
                yield self._taken(waiting)
            self._buffer.changed()

    def _taken(self, waiting: deque[Future[Batch]]) -> Batch:
        started = time.perf_counter()
        found = waiting.popleft().result()
        self.prepared.wait_seconds += time.perf_counter() - started
        return found

    def _prepare(self, of_set: LinkSet, memory: InMemory, epoch: int, number: int, start: int) -> Batch:
        started = time.perf_counter()
        records = of_set.records[start : start + self._regime.batch_size]
        batch = of_set.first + number
        of = Randomness(self._task.seed, epoch, batch=batch)
        pairs = pairs_of(records, of_set.records, memory, self._task, of, bool(self._graph.summary.names))
        ends = pairs.ends
        drawn = time.perf_counter()
        graph = self._loader.load(ends, self._buffer.rows(ends))
        found = Batch(batch, graph, pairs.among(ends), len(records))
        self.prepared.batches += 1
        self.prepared.vertices += len(ends)
        self.prepared.sample_seconds += drawn - started
        self.prepared.load_seconds += time.perf_counter() - drawn
        return found

    def close(self) -> None:
        """Stop the preparation. This may be called twice."""
        self._thread.shutdown(wait=True, cancel_futures=True)
