"""Opens the partitions of a vertex task: they are written if they are not there, and batches come from them."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from lotan.batches.examples import examples_of
from lotan.planning.job import Job
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.storage.buffer import PartitionBuffer
from lotan.storage.folder import check_room, claimed_storage, missing_bytes
from lotan.storage.set_graph import VertexRows
from lotan.storage.vertex_batches import StoredVertexBatches
from lotan.storage.vertex_partitions import open_vertex_partitions


def open_stored_vertices(job: Job, config: TrainerConfig) -> StoredVertexBatches:
    """Return the batches of a run over partitions on a disk. Whoever opens them closes them.

    Raises:
        StorageError: If the folder cannot be used, or has too little room, before anything is written.
    """
    stored, regime, arrays = job.stored_vertices, config.regime, job.graph.arrays()
    assert stored is not None
    assert job.batch is not None
    assert isinstance(regime, MiniBatch)
    division, examples = stored.division, examples_of(arrays)
    with ExitStack() as opened:
        folder = opened.enter_context(claimed_storage(stored.folder))
        check_room(folder, missing_bytes(folder, stored.disk_bytes), "the features and the edges")
        graph, files, _ = open_vertex_partitions(folder, job.graph, division.order, division.partitions, stored.seed)
        rows = torch.empty(division.slots * graph.placement.capacity, arrays.features.shape[1])
        buffer = PartitionBuffer(files, division.slots, [rows])
        opened.callback(buffer.close)
        vertices = VertexRows(arrays.ids, arrays.label, arrays.vertex_weight)
        batches = StoredVertexBatches(
            graph, buffer, division, examples, vertices, job.batch.plan, regime, config.chunk_rows, job.both
        )
        batches.on_close(opened.pop_all())
        return batches
