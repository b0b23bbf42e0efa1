"""Opens the partitions of a vertex task: they are written if they are not there, and batches come from them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import torch

from lotan.batches.examples import examples_of
from lotan.engines.base import Engine, Outcome, Pass, run
from lotan.engines.opening import open_engine
from lotan.memory.mapped import MappedMemory
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.folder import claimed_with_room
from lotan.storage.partitioned_graph import PartitionedGraph
from lotan.storage.set_graph import VertexRows
from lotan.storage.vertex_batches import StoredVertexBatches
from lotan.storage.vertex_partitions import open_vertex_partitions
from lotan.training.learner import Learner
from lotan.training.passes import Passes
from lotan.training.stored_rows import StoredLearner, check_checkpoint, open_rows, rows_by_id


def open_stored_vertices(job: Job, config: TrainerConfig) -> StoredVertexBatches:
    """Return the batches of a run over partitions on a disk. Whoever opens them closes them.

    Raises:
        StorageError: If the folder cannot be used, or has too little room, before anything is written.
    """
    stored = job.stored_vertices
    assert stored is not None
    with ExitStack() as opened:
        what = "the features and the edges"
        folder = opened.enter_context(claimed_with_room(stored.folder, stored.disk_bytes, what, only_reads=True))
        division = stored.division
        graph, files, _ = open_vertex_partitions(folder, job.graph, division.order, division.partitions, stored.seed)
        rows = torch.empty(division.slots * graph.placement.capacity, *files.widths)
        buffer = PartitionBuffer(files, division.slots, [rows])
        opened.callback(buffer.close)
        batches = _batches(job, config, graph, buffer)
        batches.on_close(opened.pop_all())
        return batches


def _batches(job: Job, config: TrainerConfig, graph: PartitionedGraph, buffer: PartitionBuffer) -> StoredVertexBatches:
    """Return the batches of a run, whose features and learned rows are those of a buffer."""
    stored, regime, arrays = job.stored_vertices, config.regime, job.graph.arrays()
    assert stored is not None
    assert job.batch is not None
    assert isinstance(regime, MiniBatch)
    vertices = VertexRows(arrays.ids, arrays.label, arrays.vertex_weight)
    given = stored.division, examples_of(arrays), vertices, job.batch.plan, regime, config.chunk_rows, job.both
    return StoredVertexBatches(graph, buffer, *given)


class StoredVertexPasses(Passes):
    """Runs the passes of a vertex task whose learned rows lie on a disk.

    Args:
        engine: The local engine, with the whole graph loaded, which evaluates.
        learner: The learner.
        buffer: The buffer of partitions.
        batches: The mini-batches.
        folder: The folder of the storage, for the files that an evaluation reads rows from.
    """

    def __init__(
        self,
        engine: Engine,
        learner: StoredLearner,
        buffer: PartitionBuffer,
        batches: StoredVertexBatches,
        folder: Path,
    ) -> None:
        super().__init__(engine, learner.job.plan, [learner], batches=batches)
        self._learner, self._buffer, self._folder = learner, buffer, folder
        learner.buffer = buffer

    def train(self) -> Generator[Sequence[Outcome], None, None]:
        """Run the training passes that are left of the next epoch, see `Passes.train`. At the end all rows are on the disk."""
        yield from super().train()
        self._buffer.flush()

    def evaluate(self, which: Sequence[Learner]) -> Sequence[Outcome]:
        """Run an evaluation pass over the whole graph, with all learned rows in files of this process."""
        learner, mapped = self._learner, MappedMemory(str(self._folder))
        stored = learner.job.stored_vertices
        assert stored is not None
        names = tuple(stored.learned)
        rows = dict(zip(names, rows_by_id(learner.files, learner.files.versions, len(names), mapped), strict=True))
        a_pass = Pass(learner.state.epoch, {**learner.weights, **rows}, learner.config.seed)
        return self._outcomes(run(self._engine, self.plan, self.plan.evaluate, a_pass))


@contextmanager
def open_vertices_with_rows(
    model: torch.nn.Module, job: Job, config: TrainerConfig
) -> Iterator[tuple[StoredLearner, Passes]]:
    """Open the partitions of a vertex task whose model learns rows, and a learner that trains on them.

    At the end of the block the model's learned rows are those of the best epoch, see `open_rows`.

    Args:
        model: The user's model.
        job: The job.
        config: The settings of the run.

    Raises:
        StorageError: If the folder cannot be used, or has too little room, before anything is written.
        CheckpointError: If the checkpoint to resume from belongs to a different run, or cannot be read.
    """
    stored = job.stored_vertices
    assert stored is not None
    check_checkpoint(job, config)
    with ExitStack() as opened:
        what = "the features, the edges and three versions of the learned rows"
        folder = opened.enter_context(claimed_with_room(stored.folder, stored.disk_bytes, what))
        division = stored.division
        graph, files, _ = open_vertex_partitions(folder, job.graph, division.order, division.partitions, stored.seed)
        capacity, ids = graph.placement.capacity, job.graph.arrays().ids
        learner, columns = opened.enter_context(
            open_rows(model, job, config, folder, graph.placement, division.slots, ids)
        )
        fixed = files, torch.empty(division.slots * capacity, *files.widths)
        buffer = opened.enter_context(closing(PartitionBuffer(learner.files, division.slots, columns, fixed)))
        engine = opened.enter_context(closing(open_engine(job.needs(config), job.graph, config)))
        engine.load(job.graph, job.plan)
        batches = _batches(job, config, graph, buffer)
        yield learner, opened.enter_context(closing(StoredVertexPasses(engine, learner, buffer, batches, folder)))
