"""Training of links from a disk: the passes over sets of partitions."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lotan.engines.base import Outcome, Pass, run
from lotan.engines.local.engine import LocalEngine
from lotan.errors import DivergedError
from lotan.graph.graph import Graph
from lotan.links.pairs import score
from lotan.links.training_pass import train_on_pairs
from lotan.memory.mapped import MappedMemory
from lotan.memory.trim import give_back_freed
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction, excludes_targets
from lotan.stages.metrics import metrics, statistics_of_links
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.feature_files import open_features
from lotan.storage.folder import claimed_with_room
from lotan.storage.link_batches import RowLoader, Sampled, StoredLinkBatches, types_of
from lotan.storage.partitioned_graph import PartitionedGraph, open_partitioned
from lotan.storage.ranks import StoredLinks, metrics_of_stored
from lotan.storage.row_files import RowFiles, Versions
from lotan.storage.set_graph import InMemory, VertexRows, arrays_in_files, arrays_of_set
from lotan.training.learner import Learner, Weights
from lotan.training.passes import Passes
from lotan.training.stored_rows import StoredLearner, check_checkpoint, open_rows
from planner.lower import OUTPUT
from planner.regime import hops_of_plan


class StoredLinkPasses(Passes):
    """Runs the passes of a link task from a disk.

    Args:
        learner: The learner.
        graph: The graph on the disk.
        buffer: The buffer of partitions.
    """

    def __init__(self, learner: StoredLearner, graph: PartitionedGraph, buffer: PartitionBuffer) -> None:
        job, config = learner.job, learner.config
        assert job.stored is not None
        assert job.batch is not None
        assert job.decoder is not None
        assert isinstance(config.regime, MiniBatch)
        assert isinstance(config.task, LinkPrediction)
        self._local = LocalEngine(config.chunk_rows)
        self._learner, self._task, self._stored = learner, config.task, job.stored
        learner.buffer = buffer
        self._decoder, self._scores = job.decoder, job.scores
        self._graph, self._buffer, self._links = graph, buffer, StoredLinks(graph)
        ids, plan = job.stored.reader.ids, job.batch.plan
        self._evaluation = job.plan
        self._loader = RowLoader(job.plan, ids, graph.placement, config.chunk_rows)
        self._whole = WholeGraph(job, graph, buffer, config) if config.regime.fanouts else None
        loader: RowLoader | Sampled
        if self._whole is None:
            loader = RowLoader(plan, ids, graph.placement, config.chunk_rows)
        else:
            fanouts = config.regime.fanouts[: hops_of_plan(plan)]
            loader = Sampled(plan, fanouts, job.both, excludes_targets(config.task), config.chunk_rows)
        self._batches = StoredLinkBatches(graph, buffer, ids, loader, config.regime, config.task)
        super().__init__(self._local, job.batch.plan, [learner])

    def train(self) -> Generator[Sequence[Outcome], None, None]:
        """Run the training passes that are left of the next epoch, and yield the result of each.

        At the end all rows are on the disk.
        """
        state = self._learner.state
        epoch = state.epoch + 1
        for batch in self._batches.of_epoch(epoch, self._stored.order(epoch), state.part.batches):
            self._local.turn_to(batch.graph)

            def scored(rows: Tensor, links: int = batch.links, pairs: Any = batch.pairs) -> Any:
                return score(self._decoder, rows, [pairs], links, self._task.loss, self._scores)

            def pass_of(number: int = batch.number) -> Outcome:
                return run(self._local, self.plan, self.plan.train, self._pass(epoch, number))

            yield [replace(train_on_pairs(self._local, pass_of, scored), rows=batch.graph.chunks.rows)]
        self._buffer.flush()
        give_back_freed()

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user on what was mended."""
        of_features = "" if self._buffer.fixed is None else self._buffer.fixed[0].mended
        return tuple(filter(None, (self._graph.mended, of_features)))

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Rank the links of validation among all vertices, partition by partition."""
        return [Outcome(evaluation=self._metrics("val", self._learner.files.versions))]

    def end(self, which: Sequence[Learner]) -> None:
        """Add the metrics of the split "test", of the best weights, to those of the best epoch."""
        learner = self._learner
        learner.restore_best()
        found = metrics(learner.job.loss, self._metrics("test", learner.best_versions or learner.files.versions))
        learner.state.history[learner.state.stopping.best_epoch - 1]["metrics"] |= found
        learner.go_on()

    def figures(self) -> dict[str, float]:
        """Return what was prepared and moved, as plain data for the report."""
        return {**asdict(self._batches.prepared), **asdict(self._buffer.moved)}

    def close(self) -> None:
        """Stop the preparation. This may be called twice."""
        self._batches.close()
        self._local.close()
        if self._whole is not None:
            self._whole.close()

    def _metrics(self, split: str, versions: Versions) -> np.ndarray:
        links, is_training = self._links.of(split), self._decoder.training
        self._decoder.eval()  # a decoder of the user's own may have dropout
        try:
            rows = self._rows_of(versions) if self._whole is None else self._rows_of_whole(self._whole, versions)
            found = metrics_of_stored(self._decoder, rows, self._links, split, self._graph, self._scores)
        finally:
            self._decoder.train(is_training)
            give_back_freed()
        return statistics_of_links(split, len(links), found)

    def _rows_of(self, versions: Versions) -> Any:
        """Return a function from a partition to the model's output for its vertices."""
        files, placement, names = self._learner.files, self._graph.placement, tuple(self._stored.learned)
        held = files.new(len(names))

        def rows_of(partition: int) -> Tensor:
            columns = files.cut(partition, held)
            files.read(partition, columns, versions)
            give_back_freed()  # what the partition before has left in pieces
            positions = placement.first(partition) + np.arange(placement.count(partition))
            self._local.turn_to(self._loader.load(positions, torch.arange(len(positions))))
            weights = {**self._learner.weights, **dict(zip(names, columns, strict=True))}
            epoch = self._learner.state.epoch
            a_pass = Pass(epoch, weights, self._learner.config.seed)
            output = run(self._local, self._evaluation, self._evaluation.evaluate, a_pass, keep=(OUTPUT,)).columns[
                OUTPUT
            ]
            rows = self._local.rows_of(output)
            _check_finite(rows, epoch)
            return rows

        return rows_of

    def _rows_of_whole(self, whole: WholeGraph, versions: Versions) -> Any:
        """Return such a function for a model whose output for all vertices is computed at once."""
        learner, placement = self._learner, self._graph.placement
        output = whole.output(learner.files, versions, learner.weights, learner.state.epoch)
        _check_finite(output, learner.state.epoch)

        def rows_of(partition: int) -> Tensor:
            first = placement.first(partition)
            return output[first : first + placement.count(partition)]

        return rows_of


class WholeGraph:
    """The graph of all partitions, over which an encoder is evaluated. Vertices are in the order of their positions.

    Its features, and the learned rows of an evaluation, lie in files of this process. If columns do, edges do too.

    Args:
        job: The job.
        graph: The graph on the disk.
        buffer: The buffer, which knows the files of features.
        config: The settings of the run.
    """

    def __init__(self, job: Job, graph: PartitionedGraph, buffer: PartitionBuffer, config: TrainerConfig) -> None:
        assert job.stored is not None
        placement, ids = graph.placement, job.stored.reader.ids
        self._mapped, self._placement, self._job = MappedMemory(str(graph.folder)), placement, job
        self._seed = config.seed
        vertices, types = VertexRows.without_labels(ids), types_of(graph)
        if job.stored.evaluates_on_disk:
            arrays = arrays_in_files(graph, vertices, self._mapped, types)
        else:
            every = range(placement.partitions)
            arrays = arrays_of_set(graph, InMemory(placement, every), every, vertices, types)
        if buffer.fixed is not None:
            files = buffer.fixed[0]
            (features,) = self._gathered(files, files.versions, 1)
            arrays = replace(arrays, features=features.numpy())
        self._engine = LocalEngine(config.chunk_rows, on_disk=job.stored.evaluates_on_disk)
        self._engine.load(Graph.of_arrays(arrays), job.plan)
        give_back_freed()

    def output(self, files: RowFiles, versions: Versions, weights: Weights, epoch: int) -> Tensor:
        """Return the model's output for all vertices. [vertices, width].

        Args:
            files: The files of learned rows.
            versions: Those to read.
            weights: The parameters and buffers by name, of which those of rows are read from the files.
            epoch: The epoch, for the pass.
        """
        assert self._job.stored is not None
        names, plan = tuple(self._job.stored.learned), self._job.plan
        rows = dict(zip(names, self._gathered(files, versions, len(names)), strict=True))
        a_pass = Pass(epoch, {**weights, **rows}, self._seed)
        found = run(self._engine, plan, plan.evaluate, a_pass, keep=(OUTPUT,)).columns[OUTPUT]
        self._mapped.give_all_back()
        return self._engine.rows_of(found)

    def close(self) -> None:
        """Free the graph. This may be called twice."""
        self._engine.close()

    def _gathered(self, files: RowFiles, versions: Versions, columns: int) -> list[Tensor]:
        """Return the first columns of all partitions, one after the other, in files of this process."""
        count, placement = self._placement.vertices, self._placement
        found = [self._mapped.new(count * width).view(count, width) for width in files.widths[:columns]]
        for partition in range(placement.partitions if found else 0):
            first = placement.first(partition)
            rows = slice(first, first + placement.count(partition))
            files.read(partition, [column[rows] for column in found], versions)
            self._mapped.give_all_back()
        return found


def _check_finite(rows: Tensor, epoch: int) -> None:
    if not bool(torch.isfinite(rows).all()):
        raise DivergedError(
            f"epoch {epoch}: the model's rows hold numbers that are not finite. Training diverged: lower the learning rate"
        )


@contextmanager
def open_stored(model: torch.nn.Module, job: Job, config: TrainerConfig) -> Iterator[tuple[StoredLearner, Passes]]:
    """Open the partitions of a link task, which are written if they are not there, and a learner that trains on them.

    At the end of the block the model's learned rows are those of the best epoch, see `open_rows`.

    Args:
        model: The user's model.
        job: The job.
        config: The settings of the run.

    Raises:
        StorageError: If the folder cannot be used, or has too little room, before anything is written.
        CheckpointError: If the checkpoint to resume from belongs to a different run, or cannot be read.
    """
    stored = job.stored
    assert stored is not None
    check_checkpoint(job, config)
    with ExitStack() as opened:
        what = "the links, the features and three versions of the learned rows"
        folder = opened.enter_context(claimed_with_room(stored.folder, stored.disk_bytes, what))
        division = stored.division
        graph, _ = open_partitioned(folder, stored.reader, stored.summary, division.partitions, stored.seed)
        give_back_freed()
        learner, columns = opened.enter_context(
            open_rows(model, job, config, folder, graph.placement, division.slots, stored.reader.ids)
        )
        fixed = None
        if stored.features is not None:
            of_features, _ = open_features(folder, stored.features, graph.placement)
            fixed = of_features, torch.empty(division.slots * graph.placement.capacity, *of_features.widths)
        buffer = opened.enter_context(closing(PartitionBuffer(learner.files, division.slots, columns, fixed)))
        passes = opened.enter_context(closing(StoredLinkPasses(learner, graph, buffer)))
        yield learner, passes
