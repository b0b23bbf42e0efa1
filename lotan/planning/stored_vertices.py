"""The partitions of a vertex task that trains from a disk: how many there are, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from lotan.batches.examples import examples_of
from lotan.errors import ConfigurationError, ModelError
from lotan.graph.arrays import GraphArrays
from lotan.memory.limit import MemoryLimit
from lotan.planning.batches import plan_of_batch, sampling_with
from lotan.planning.job import Job, described_memory
from lotan.planning.stored_rows import check_stored_rows, learned_modules, row_widths, states_of_rows, storage_place
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.storage import OF_ALL_ROWS
from lotan.storage.disk_probe import block_of
from lotan.storage.divided import partitions_there
from lotan.storage.edge_readers import record_bytes
from lotan.storage.folder import remote_notes
from lotan.storage.stored_vertices import StoredVertices
from lotan.storage.vertex_partitions import check_storable
from planner.footprint import without_rows
from planner.local_memory import edges_in_files
from planner.neighbours import orders_neighbours
from planner.orders.vertex_division import VertexDivision, VertexSizes, divide_vertices
from planner.regime import Sampling
from planner.scratch import NUMBER_BYTES


def with_stored_vertices(
    job: Job, model: torch.nn.Module, sampling: Sampling, config: TrainerConfig, earlier: str | None = None
) -> Job:
    """Return a job that trains on mini-batches from partitions on a disk.

    Args:
        job: The job, whose plan evaluates.
        model: The model.
        sampling: The way in which batches are sampled.
        config: The settings of the run.
        earlier: The division of the run that goes on, in words. It is taken again if it fits into the limit; None: a new run.

    Raises:
        GraphError: If the graph is of a kind that is not stored in partitions so far.
        ModelError: If the model learns rows in a form that is not stored, or takes neighbours in the order of ids.
        PlanError: If a batch cannot be planned.
        ConfigurationError: If the memory limit is too low, or there is none and the order says no sizes.
    """
    learned = row_widths(learned_modules(model))
    _check(job, learned, config)
    return _described(job, _sizes(job.graph.arrays(), learned, config), learned, sampling, config, earlier)


def refuse_foreseen(job: Job, sampling: Sampling, config: TrainerConfig) -> None:
    """Refuse a memory limit that is too low, before a row of the files is read.

    Args:
        job: The job, whose model learns no rows, and whose sizes are those that the files say.
        sampling: The way in which batches are sampled.
        config: The settings of the run.

    Raises:
        ConfigurationError: If the limit is too low. With "cached_nodes" a run may need more than it says, because the training
            vertices are not known yet.
    """
    known, regime = job.statistics, config.regime
    assert isinstance(regime, MiniBatch)
    numbers = known.weighted + (known.edge_data.width or 0)
    sizes = VertexSizes(
        vertices=known.vertices,
        edges=known.edges,
        examples=1 if regime.vertex_order == "cached_nodes" else known.vertices,
        row_bytes=NUMBER_BYTES * known.width,
        edge_bytes=record_bytes(numbers) * known.edges,
        edge_numbers=numbers,
    )
    _described(job, sizes, {}, sampling, config, None)


def _described(
    job: Job,
    sizes: VertexSizes,
    learned: Mapping[str, int],
    sampling: Sampling,
    config: TrainerConfig,
    earlier: str | None,
) -> Job:
    """Return the job with its partitions and the plan of its batches, which is checked against the memory limit."""

    def planned(config: TrainerConfig) -> Job:
        found = replace(job, batch=plan_of_batch(job, sampling_with(sampling, config), config))
        stored = _stored(found, sizes, learned, config, earlier)
        spills = replace(found, stored_vertices=stored).needs(config).spills(MemoryLimit.of(config).bytes)
        stored = replace(stored, evaluates_on_disk=spills)
        return replace(found, stored_vertices=stored, warnings=(*job.warnings, *remote_notes(stored.folder)))

    return described_memory(planned(config), config, planned)


def _check(job: Job, learned: Mapping[str, int], config: TrainerConfig) -> None:
    regime = config.regime
    assert isinstance(regime, MiniBatch)
    order = f"order {regime.order!r}"
    check_storable(job.graph, order)
    check_stored_rows(job.train, learned, config)
    given = {"penalty": config.penalty, "clip_grad_norm": config.clip_grad_norm}
    for name in (name for name, value in given.items() if learned and value is not None):
        raise ConfigurationError(f"{order} keeps learned rows on a disk, and {name} {OF_ALL_ROWS[name]}: leave one out")
    if orders_neighbours(job.train):
        raise ModelError(
            f"{order} gives vertices other numbers, and the model takes neighbours in the order of their ids: leave order out of "
            "the regime"
        )


def _sizes(arrays: GraphArrays, learned: Mapping[str, int], config: TrainerConfig) -> VertexSizes:
    """Return the sizes of a graph on which the partitions depend."""
    numbers = (arrays.weight is not None) + (arrays.edge_data.width or 0)
    return VertexSizes(
        vertices=len(arrays.ids),
        edges=len(arrays.src),
        examples=len(examples_of(arrays)),
        row_bytes=NUMBER_BYTES * arrays.features.shape[1],
        edge_bytes=record_bytes(numbers) * len(arrays.src),
        edge_numbers=numbers,
        learned_bytes=NUMBER_BYTES * sum(learned.values()) * (1 + states_of_rows(config)),
    )


def _stored(
    job: Job, sizes: VertexSizes, learned: Mapping[str, int], config: TrainerConfig, earlier: str | None
) -> StoredVertices:
    regime, limit, place = config.regime, MemoryLimit.of(config), storage_place(config)
    assert isinstance(regime, MiniBatch)
    given, name = regime.stored_sizes, regime.vertex_order
    if given is None and limit.bytes is None:
        raise ConfigurationError(
            f"order {regime.order!r} needs memory_limit, which decides how many partitions are in memory; or give their number, "
            f"as in order='{name}(partitions=16, buffer=4)'"
        )
    if given is None:
        assert limit.bytes is not None
        room = limit.bytes - without_rows(job.needs(config), job.plan, job.statistics).least
        there = partitions_there(place, regime.seed, name == "cached_nodes")
        division = divide_vertices(name, sizes, room, block_of(place), earlier, there)
    else:
        partitions, capacity = given
        if partitions > sizes.vertices:
            raise ConfigurationError(
                f"order {regime.order!r} has more partitions than the graph has vertices ({sizes.vertices:,}); give fewer"
            )
        training = sizes.least_training(partitions) if name == "cached_nodes" else partitions
        division = VertexDivision(name, partitions, capacity, training)
        if name == "cached_nodes" and training > capacity:
            raise ConfigurationError(
                f"order {regime.order!r} keeps all training vertices in memory, and they fill {training} of the partitions: give "
                f"a buffer of at least {training}, or order='each_once(partitions={partitions}, buffer={max(2, capacity)})'"
            )
    on_disk = edges_in_files(job.plan, job.statistics)
    return StoredVertices(division, sizes, learned, regime.seed, place, on_disk)
