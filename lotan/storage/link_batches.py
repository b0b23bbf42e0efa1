"""The batches of an epoch over partitions: links whose ends are in memory, and negatives that are drawn among these.

For an encoder, neighbours are drawn among the vertices in memory too, along any edge between them but the links asked about.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from lotan.batches.draws import order_words
from lotan.batches.loader import BatchLoader, Elsewhere
from lotan.batches.sampler import Sample, Sampler
from lotan.batches.schedule import Prepared, preparing_thread
from lotan.engines.local.batch_graph import load_batch, only_targets, sampled_edges
from lotan.engines.local.loaded_graph import FromGraph, LoadedGraph
from lotan.graph.arrays import Ids, Positions
from lotan.graph.graph import Graph
from lotan.graph.row_keys import vertex_keys
from lotan.links.examples import Links, edges_of_links
from lotan.links.pairs import DESTINATIONS, SOURCES, Pairs, Side
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import ALL, LinkPrediction
from lotan.stages.programs import make_program
from lotan.stages.randomness import Randomness, random_words
from lotan.stages.saved_values import Memory
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.partitioned_graph import PartitionedGraph, Records
from lotan.storage.placement import Placement
from lotan.storage.row_files import Moved
from lotan.storage.set_graph import InMemory, VertexRows, arrays_of_set
from lotan.storage.vertex_batches import numbers_left
from planner.orders.order import EdgeOrder, Set
from planner.physical import Plan
from planner.regime import Fanout


@dataclass(frozen=True)
class LinkSet:
    """The links that are trained while one set of partitions is in memory, in the order of their batches."""

    number: int  # of the set in its epoch
    held: Set
    then: Set  # the set after it; () if it is the last
    records: Records  # [links, 3]
    first: int  # the number of its first batch in the epoch


def sets_of_epoch(
    graph: PartitionedGraph,
    order: EdgeOrder,
    batch_size: int,
    of: Randomness,
    begun: int = 0,
    moved: Moved | None = None,
) -> Iterator[LinkSet]:
    """Yield the sets of an epoch with their links, which are read from the disk one set at a time.

    The links of a set are put in an order that depends on the seed, the epoch and the place of each link on the disk.

    Args:
        graph: The graph.
        order: The order of the epoch.
        batch_size: The links of a batch.
        of: The seed of the batches, and the epoch.
        begun: The batches of the epoch that are done. A set without others is neither read nor yielded.
        moved: The counts to which what is read is added; None: it is not counted.
    """
    first, partitions = 0, graph.placement.partitions
    following: Sequence[Set] = (*order.sets[1:], ())
    for number, (held, buckets, then) in enumerate(zip(order.sets, order.buckets, following, strict=True)):
        batches = -(-sum(map(graph.size, buckets)) // batch_size)
        if first + batches <= begun and begun:
            first += batches
            continue
        records, _ = graph.edges(buckets, moved)
        starts = [graph.offsets[a * partitions + b] for a, b in buckets]
        places = [start + np.arange(graph.size(bucket)) for start, bucket in zip(starts, buckets, strict=True)]
        places_of_links = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        words = order_words(places_of_links, of)  # [links, 2]
        turn = np.lexsort((places_of_links, words[:, 1], words[:, 0]))
        yield LinkSet(number, held, then, records[turn], first)
        first += batches


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


def types_of(graph: PartitionedGraph) -> Positions | None:
    """Return the type of an edge of messages for each number of a relation, which is that number; None: there are none."""
    return np.arange(len(graph.summary.names)) if graph.summary.names else None


class SampledSet:
    """The graph of one set of partitions, from which an encoder's batches are sampled.

    Args:
        graph: The graph on the disk.
        of_set: The set.
        buffer: The buffer, which holds the partitions of the set.
        ids: The ids of all vertices, ascending.
        sampled: The way in which batches are sampled.
    """

    def __init__(
        self, graph: PartitionedGraph, of_set: LinkSet, buffer: PartitionBuffer, ids: Ids, sampled: Sampled
    ) -> None:
        memory = InMemory(graph.placement, of_set.held)
        arrays = arrays_of_set(
            graph, memory, of_set.held, VertexRows.without_labels(ids), types_of(graph), buffer.moved
        )
        features = {} if buffer.fixed is None else {"features": buffer.fixed[1]}
        elsewhere = Elsewhere(buffer.rows(memory.every), features)
        self._loader = BatchLoader(Graph.of_arrays(arrays), sampled.plan, sampled.chunk_rows, elsewhere)
        self._sampler, self._fanouts = Sampler(arrays, sampled.both), sampled.fanouts
        self._memory, self._without = memory, None
        if sampled.excludes:
            src, dst = (memory.numbers(of_set.records[:, column].astype(np.int64)) for column in (0, 1))
            split = np.zeros(len(of_set.records), dtype=np.int8)
            both_ways = graph.summary.both_ways
            numbers = of_set.records[:, 2].astype(np.int64)
            links = Links(len(memory), src, dst, numbers, split, both_ways=both_ways)
            self._without = edges_of_links(links, numbers, arrays)

    def load(self, ends: Positions, links: slice, of: Randomness, prepared: Prepared) -> LoadedGraph:
        """Draw edges around the ends of some links, and return them as a graph.

        Args:
            ends: The positions of the ends and of negatives, ascending.
            links: The links of the batch, as places among those of the set.
            of: The seed, the epoch and the batch.
            prepared: The counts, to which it is added.
        """

        def draw() -> Sample:
            without = None
            if self._without is not None:
                order, first = self._without
                without = order[first[links.start] : first[links.stop]]
            return self._sampler.sample(self._memory.numbers(ends), self._fanouts, of, without)

        sample = prepared.drawn(draw)
        return prepared.loaded(lambda: self._loader.load(sample))


class PlainSet:
    """The rows of one set of partitions, for models that read nothing else.

    Args:
        loader: The loader for the plan of a batch.
        buffer: The buffer, which holds the partitions of the set.
    """

    def __init__(self, loader: RowLoader, buffer: PartitionBuffer) -> None:
        self._loader, self._buffer = loader, buffer

    def load(self, ends: Positions, links: slice, of: Randomness, prepared: Prepared) -> LoadedGraph:
        """Return the ends of links, and negatives, as a graph without edges, see `SampledSet.load`."""
        prepared.batches += 1
        prepared.vertices += len(ends)
        return prepared.loaded(lambda: self._loader.load(ends, self._buffer.rows(ends)))


@dataclass(frozen=True)
class Sampled:
    """The way in which an encoder's batches are sampled."""

    plan: Plan  # of a batch
    fanouts: Sequence[Fanout]
    both: bool  # True if out-edges are drawn too
    excludes: bool  # True if no message passes along the links of the batch
    chunk_rows: int | None = None


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
        ids: The ids of all vertices, ascending.
        loader: The loader for the plan of a batch that reads learned rows alone; or what an encoder samples.
        regime: The regime.
        task: The task.
    """

    def __init__(
        self,
        graph: PartitionedGraph,
        buffer: PartitionBuffer,
        ids: Ids,
        loader: RowLoader | Sampled,
        regime: MiniBatch,
        task: LinkPrediction,
    ) -> None:
        self._graph, self._buffer, self._ids, self._loader = graph, buffer, ids, loader
        self._regime, self._task = regime, task
        self.prepared = Prepared()
        self._thread = preparing_thread()

    def of_epoch(self, epoch: int, order: EdgeOrder, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch. The rows of a batch are in the buffer until the next one is asked for.

        Args:
            epoch: The number of the epoch, from 1.
            order: The order of its sets and links.
            first: The number of the first batch, if those before it are done.

        Raises:
            StorageError: If partitions or links cannot be read or written.
        """
        size, of = self._regime.batch_size, Randomness(self._regime.seed, epoch)
        self._buffer.begin_epoch()
        for found in sets_of_epoch(self._graph, order, size, of, first, self._buffer.moved):
            self._buffer.turn_to(found.held, found.then)
            if not len(found.records):
                continue
            batches = SetOfLinks(found, InMemory(self._graph.placement, found.held), self._graph_of(found))
            prepare = partial(self._prepare, batches, epoch)
            for batch in self.prepared.ahead(
                self._thread, prepare, numbers_left(found.first, len(found.records), size, first)
            ):
                self._buffer.changed()
                yield batch

    def _graph_of(self, of_set: LinkSet) -> PlainSet | SampledSet:
        if isinstance(self._loader, RowLoader):
            return PlainSet(self._loader, self._buffer)
        started = time.perf_counter()
        found = SampledSet(self._graph, of_set, self._buffer, self._ids, self._loader)
        self.prepared.wait_seconds += time.perf_counter() - started
        return found

    def _prepare(self, of: SetOfLinks, epoch: int, number: int) -> Batch:
        started = time.perf_counter()
        size, every = self._regime.batch_size, of.links.records
        links = slice(number * size, min(len(every), (number + 1) * size))
        batch = of.links.first + number
        drawn_as = Randomness(self._task.seed, epoch, batch=batch)
        pairs = pairs_of(every[links], every, of.memory, self._task, drawn_as, bool(self._graph.summary.names))
        ends = pairs.ends
        self.prepared.sample_seconds += time.perf_counter() - started
        graph = of.graph.load(ends, links, Randomness(self._regime.seed, epoch, batch=batch), self.prepared)
        return Batch(batch, graph, pairs.among(ends), links.stop - links.start)

    def close(self) -> None:
        """Stop the preparation. This may be called twice."""
        self._thread.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class SetOfLinks:
    """The links of a set, with the vertices in memory and what makes graphs of batches."""

    links: LinkSet
    memory: InMemory
    graph: PlainSet | SampledSet
