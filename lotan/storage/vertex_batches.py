"""The batches of an epoch over partitions whose examples are vertices. Neighbours are drawn among those in memory alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from lotan.batches.draws import Positions
from lotan.batches.examples import batches_of_epoch
from lotan.batches.loader import BatchLoader, Elsewhere
from lotan.batches.sampler import Sampler
from lotan.batches.schedule import PassOf, Prepared, preparing_thread
from lotan.engines.base import Outcome, run
from lotan.engines.local.engine import LocalEngine
from lotan.engines.local.loaded_graph import LoadedGraph
from lotan.graph.graph import Graph
from lotan.memory.trim import give_back_freed
from lotan.settings.regimes import MiniBatch
from lotan.stages.draws import Randomness
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.partitioned_graph import PartitionedGraph
from lotan.storage.set_graph import InMemory, VertexRows, arrays_of_set
from planner.orders.order import Set, VertexOrder
from planner.orders.vertex_division import VertexDivision
from planner.physical import Plan
from planner.regime import hops_of_plan


@dataclass(frozen=True)
class VertexSet:
    """The examples that are trained while one set of partitions is in memory."""

    held: Set
    then: Set  # the set after it; () if it is the last
    targets: Positions  # the examples, as positions, ascending
    first: int  # the number of its first batch in the epoch


def vertex_sets(graph: PartitionedGraph, order: VertexOrder, examples: Positions, batch_size: int) -> list[VertexSet]:
    """Return the sets of an epoch that have examples. Partitions that only others need are not read.

    Args:
        graph: The graph.
        order: The order of the epoch.
        examples: The positions of all examples, ascending.
        batch_size: The examples of a batch.
    """
    partition, found, first = graph.placement.partition_of(examples), [], 0
    starts = np.searchsorted(partition, np.arange(graph.placement.partitions + 1))
    for held, own in zip(order.sets, order.partitions, strict=True):
        targets = np.concatenate([examples[:0], *(examples[starts[one] : starts[one + 1]] for one in sorted(own))])
        if len(targets):
            found.append(VertexSet(held, (), targets, first))
            first += -(-len(targets) // batch_size)
    following: Sequence[Set] = (*(one.held for one in found[1:]), ())
    return [replace(one, then=then) for one, then in zip(found, following, strict=True)]


def numbers_left(of_set: int, examples: int, batch_size: int, first: int) -> range:
    """Return the numbers in its set of the batches that are left of it.

    Args:
        of_set: The number of the set's first batch in the epoch.
        examples: The examples of the set.
        batch_size: The examples of a batch.
        first: The number in the epoch of the first batch that is left.

    >>> numbers_left(of_set=4, examples=10, batch_size=5, first=5)
    range(1, 2)
    """
    return range(max(0, first - of_set), -(-examples // batch_size))


class SetBatches:
    """The batches of one set of partitions, whose features are in the buffer.

    Args:
        graph: The graph on the disk.
        of_set: The set.
        vertices: The columns of all vertices that stay in memory.
        buffer: The buffer, which holds the partitions of the set.
        plan: The plan of a batch.
        regime: The regime.
        epoch: The epoch.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
        both: True to draw out-edges too.
    """

    def __init__(
        self,
        graph: PartitionedGraph,
        of_set: VertexSet,
        vertices: VertexRows,
        buffer: PartitionBuffer,
        plan: Plan,
        regime: MiniBatch,
        epoch: int,
        chunk_rows: int | None,
        both: bool,
    ) -> None:
        memory = InMemory(graph.placement, of_set.held)
        types = np.array(graph.summary.names, dtype=np.int64) if graph.summary.names else None
        arrays = arrays_of_set(graph, memory, of_set.held, vertices, types, buffer.moved)
        self.of_set, self._epoch, self._seed = of_set, epoch, regime.seed
        self._fanouts = regime.fanouts[: hops_of_plan(plan)]
        self._sampler = Sampler(arrays, both)
        # beside learned rows, features are what nobody changes
        features = buffer.columns[0] if buffer.fixed is None else buffer.fixed[1]
        elsewhere = Elsewhere(buffer.rows(memory.every), {"features": features})
        self._loader = BatchLoader(Graph.of_arrays(arrays), plan, chunk_rows, elsewhere)
        of = Randomness(regime.seed, epoch)
        self.targets = batches_of_epoch(memory.numbers(of_set.targets), arrays.keys, regime.batch_size, of)

    def prepare(self, prepared: Prepared, number: int) -> LoadedGraph:
        """Sample a batch and load it.

        Args:
            prepared: The counts, to which it is added.
            number: The number of the batch in its set.
        """
        of = Randomness(self._seed, self._epoch, batch=self.of_set.first + number)
        sample = prepared.drawn(lambda: self._sampler.sample(self.targets[number], self._fanouts, of))
        return prepared.loaded(lambda: self._loader.load(sample))


class StoredVertexBatches:
    """The batches of a run whose features and learned rows lie on a disk. They are prepared ahead, within a set of partitions.

    Args:
        graph: The graph on the disk.
        buffer: The buffer of its features, or of learned rows with features that nobody changes.
        division: The division, with the order of each epoch.
        examples: The rows of the examples, in ascending order of ids.
        vertices: The columns of all vertices that stay in memory.
        plan: The plan of a batch.
        regime: The regime.
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the batch.
        both: True to draw out-edges too.
    """

    def __init__(
        self,
        graph: PartitionedGraph,
        buffer: PartitionBuffer,
        division: VertexDivision,
        examples: Positions,
        vertices: VertexRows,
        plan: Plan,
        regime: MiniBatch,
        chunk_rows: int | None = None,
        both: bool = False,
    ) -> None:
        self.plan, self.engine, self.prepared = plan, LocalEngine(chunk_rows), Prepared()
        self._graph, self._buffer, self._division, self._vertices = graph, buffer, division, vertices
        self._regime, self._chunk_rows, self._both = regime, chunk_rows, both
        self._examples = np.sort(graph.placement.positions(examples))
        of_features = buffer.files if buffer.fixed is None else buffer.fixed[0]
        self.notes = tuple(filter(None, (graph.mended, of_features.mended)))
        self._after = ExitStack()
        self._thread = preparing_thread()

    def outcomes(self, epoch: int, a_pass: PassOf, drawn_as: int | None = None, first: int = 0) -> Iterator[Outcome]:
        """Train on the batches of an epoch in order, and yield the result of each, see `Batches.outcomes`.

        Raises:
            StorageError: If partitions or edges cannot be read.
        """
        for number, graph in enumerate(self.of_epoch(epoch, first), first):
            self.engine.turn_to(graph)
            outcome = run(self.engine, self.plan, self.plan.train, a_pass(number))
            yield replace(outcome, rows=graph.chunks.rows)
        give_back_freed()

    def of_epoch(self, epoch: int, first: int = 0) -> Iterator[LoadedGraph]:
        """Yield the batches of an epoch in order, from a given number on. Sets before them are not read."""
        order, size = self._division.of_epoch(self._regime.seed, epoch), self._regime.batch_size
        self._buffer.begin_epoch()
        for of_set in vertex_sets(self._graph, order, self._examples, size):
            left = numbers_left(of_set.first, len(of_set.targets), size, first)
            if not left:
                continue
            self._buffer.turn_to(of_set.held, of_set.then)
            batches = SetBatches(
                self._graph,
                of_set,
                self._vertices,
                self._buffer,
                self.plan,
                self._regime,
                epoch,
                self._chunk_rows,
                self._both,
            )
            prepare = partial(batches.prepare, self.prepared)
            for batch in self.prepared.ahead(self._thread, prepare, left):
                if self._buffer.fixed is not None:
                    self._buffer.changed()
                yield batch

    def figures(self) -> dict[str, float]:
        """Return what was prepared and read, as plain data for the report."""
        return {**asdict(self.prepared), **asdict(self._buffer.moved)}

    def bytes_moved(self) -> dict[str, int]:
        """Return nothing: batches are in this process."""
        return {}

    def on_close(self, opened: ExitStack) -> None:
        """Close what was opened for these batches, after them."""
        self._after.push(opened)

    def close(self) -> None:
        """Stop the preparation and free all batches. This may be called twice."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self.engine.close()
        self._after.close()
