"""A training run that is checked and planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from lotan.engines.choice import ENGINES, EngineChoice
from lotan.graph.graph import Graph
from lotan.links.decoders import Decoder, LinkedModel
from lotan.links.examples import LinkGraph
from lotan.links.memory import ScoreSizes
from lotan.links.pairs import SCORES
from lotan.memory.limit import Advice, MemoryLimit, check_fits
from lotan.planning.advice import advice_on_batches, advice_on_processes
from lotan.planning.drawing import preparing_seconds
from lotan.planning.link_seconds import NO_LINKS, LinkSeconds
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import BATCHES_AHEAD, MiniBatch
from lotan.storage.disk_schedule import DiskSchedule
from lotan.storage.stored import Stored
from lotan.storage.stored_vertices import StoredVertices
from planner import Planned
from planner.chunks import PART_BYTES
from planner.cost.seconds import PassCost
from planner.estimate import column_bytes, row_bytes
from planner.explain.sizes import counted, duration, size
from planner.footprint import Footprint, without_rows
from planner.local_memory import ENDS_BYTES, batches_bytes
from planner.loss import LossSpec
from planner.options import EpochSeconds
from planner.physical import Plan
from planner.spec import SPLITS, Spec
from planner.statistics import Statistics
from planner.traits import EngineTraits

SAMPLE_VERTEX_BYTES, SAMPLE_EDGE_BYTES = 8, 24  # of a batch whose drawn edges are kept
# of the graph, for its sampler: the first edge, the place and the key of a vertex, and the order of edges by their sources
SAMPLER_VERTEX_BYTES, SAMPLER_EDGE_BYTES = 32, 24
ROWS_AT_BYTES = 2 * PART_BYTES  # of pages in memory, and of rows that were read from them


@dataclass(frozen=True)
class Job:
    """A checked and planned training run."""

    graph: Graph
    train: Spec  # the traced model in training mode
    evaluate: Spec  # the traced model in evaluation mode
    loss: LossSpec
    statistics: Statistics
    planned: Planned
    engine: EngineChoice
    warnings: tuple[str, ...] = ()  # messages about the graph or the settings that are legal but may surprise
    partitions: int | None = None  # the least number of partitions, chosen for the memory limit; None: as configured
    batch: Planned | None = None  # the plan of a mini-batch; None: an epoch is one pass of `planned` over the graph
    linked: LinkGraph | None = None  # the links of a link task, whose messages pass along `graph`
    decoder: Decoder | None = None  # the decoder of a link task
    own_decoder: Spec | None = None  # a decoder of the user's own for workers, traced
    scored: ScoreSizes | None = None  # the sizes of the scores of a link task
    stored: Stored | None = None  # the partitions of a link task that trains from a disk
    stored_vertices: StoredVertices | None = None  # those of a vertex task
    link_seconds: LinkSeconds = NO_LINKS  # of a link task, beside its plans
    scores: int = SCORES  # the most scores that a link task computes at one time

    @property
    def traits(self) -> EngineTraits:
        """The traits of its engine."""
        return ENGINES[self.engine.name]

    @property
    def plan(self) -> Plan:
        """The plan that the engine runs."""
        return self.planned.plan

    @property
    def shown(self) -> Planned:
        """The plan that trains, which explain shows."""
        return self.batch or self.planned

    @property
    def rows_in_spark(self) -> bool:
        """True if learned rows lie in Spark, with the state of their optimizer."""
        return self.planned.options.pricing.layout.rows_in_spark

    @property
    def both(self) -> bool:
        """True if batches have out-edges too, see `planner.regime.Sampling`."""
        sampling = self.planned.options.sampling
        return sampling is not None and sampling.both

    @property
    def epoch_seconds(self) -> float:
        """The estimated seconds of an epoch, with its share of the evaluations and the wait for a disk."""
        every = self.planned.options.eval_every
        beside = self.link_seconds.ranking / every if every else 0.0
        if self.batch is None:
            return self.planned.seconds + self.link_seconds.scoring + beside
        return self.training_seconds + self.planned.seconds + beside

    @property
    def training_seconds(self) -> float:
        """The estimated seconds of an epoch without evaluation, with the wait for a disk."""
        if self.batch is None:
            return self.planned.cost(self.plan.train).seconds + self.link_seconds.scoring
        schedule = self.schedule
        return self.batches_seconds + (0.0 if schedule is None else schedule.wait_seconds)

    @property
    def evaluation_seconds(self) -> float:
        """The estimated seconds of one evaluation that has a pass of its own."""
        return self.planned.cost(self.plan.evaluate).seconds + self.link_seconds.ranking

    def time_words(self, epochs: int) -> str:
        """Return the estimated seconds of training and evaluation in words, of one epoch and of several."""
        together = f"{duration(epochs * self.epoch_seconds)} for {counted(epochs, 'epoch')}"
        seconds = self.planned.options.seconds
        if seconds is None or not seconds.evaluation:
            return f"{duration(self.epoch_seconds)} estimated for an epoch with its evaluation, {together}"
        evaluation = f"{duration(seconds.evaluation)} for an evaluation"
        return (
            f"{duration(seconds.training)} estimated for an epoch's training, {evaluation}, {together} with evaluations"
        )

    @property
    def batches_seconds(self) -> float:
        """The estimated seconds of the mini-batches of an epoch, without the wait for a disk; 0 without mini-batches."""
        sampling = self.planned.options.sampling
        if self.batch is None or sampling is None:
            return 0.0
        drawing = self.batch.options.sampling.drawing_seconds if self.batch.options.sampling is not None else 0.0
        in_parts = self.in_parts
        making = 0.0 if in_parts is None else in_parts.making_seconds
        return sampling.batches * (self.batch.seconds + self._preparing) + drawing + self.link_seconds.scoring + making

    @property
    def _preparing(self) -> float:
        """The estimated seconds in which this process prepares a batch; 0 for one without neighbours."""
        assert self.batch is not None
        sampling = self.planned.options.sampling
        if sampling is None or not (sampling.fanouts and self.traits.in_process):
            return 0.0
        division = None if self.in_parts is None else self.in_parts.division
        share = 1.0 if division is None else division.capacity / division.partitions
        return preparing_seconds(self.batch.statistics, _row_bytes(self.batch), share)

    @property
    def validation(self) -> int:
        """The number of examples that the validation metrics are computed on."""
        if self.linked is not None:
            return len(self.linked.links.of("val"))
        if self.stored is not None:
            return self.stored.summary.validation
        return self.graph.labels.labelled[SPLITS.index("val")]

    @property
    def in_parts(self) -> Stored | StoredVertices | None:
        """The partitions of a run that trains from a disk; None: it trains in memory."""
        return self.stored or self.stored_vertices

    @property
    def schedule(self) -> DiskSchedule | None:
        """The schedule of the first epoch of a run that trains from a disk; None: it trains in memory."""
        return self.schedule_of(1)

    def schedule_of(self, epoch: int) -> DiskSchedule | None:
        """Return the schedule of an epoch, by its number from 1, as `schedule` does for the first."""
        in_parts = self.in_parts
        return None if in_parts is None else in_parts.schedule(self.batches_seconds, epoch)

    def learned(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return what an optimizer trains: the model, with the decoder of a link task."""
        return model if self.decoder is None else LinkedModel(model, self.decoder)

    def epoch(self, config: TrainerConfig) -> PassCost:
        """Return the estimated cost of an epoch's training pass, or of a mini-batch's.

        If only some epochs evaluate, it is that of the others.
        """
        if self.batch is not None:
            return self.batch.cost(self.batch.plan.train)
        return self.planned.cost(self.plan.training(config.eval_every == 1))

    def needs(self, config: TrainerConfig, plan: Plan | None = None) -> Footprint:
        """Return the estimated memory of the job's plan, or of the plan of a batch that the job is part of."""
        if self.stored is not None:
            return self.stored.footprint
        partitions = self.partitions or config.partitions
        limit = MemoryLimit.of(config, self.rows_in_spark)
        found = limit.needs(self.traits, plan or self.plan, self.statistics, partitions)
        if self.batch is not None:
            # a worker runs a batch as the local engine does
            layout = limit.layout(ENGINES["local"], partitions)
            held = batches_bytes(self.batch.plan, self.batch.statistics, layout, BATCHES_AHEAD)
            regime = config.regime
            if regime.is_stored:
                found = found if self.stored_vertices is None else without_rows(found, self.plan, self.statistics)
                held += 0 if self.stored_vertices is None else self.stored_vertices.bytes
                in_memory = None if found.in_memory is None else found.in_memory + held
                return replace(
                    found, peak=found.peak + held, least=found.least + held, in_memory=in_memory, alone=False
                )
            whole = (found.in_memory or found.least) + held
            in_memory = whole if self.traits.in_process else found.in_memory
            least = whole  # beside batches of links, columns of an evaluation stay in memory
            if self.linked is None and self.traits.in_process:
                sampler = SAMPLER_VERTEX_BYTES * self.statistics.vertices + ROWS_AT_BYTES
                by_relation = self.graph.vertex_types is not None
                sampler += (self.both + 2 * by_relation) * SAMPLER_EDGE_BYTES * self.statistics.edges
                once = limit.needs(self.traits, self.batch.plan.only_preparing, self.statistics, partitions)
                least = min(whole, max(found.least, once.least) + held + sampler)
                hoisted = sum(column_bytes(column, self.statistics) for column in self.batch.plan.hoisted)
                found = replace(found, on_disk=found.on_disk + hoisted)
            found = replace(found, peak=found.peak + held, least=least, in_memory=in_memory, alone=False)
            if not self.traits.in_process:
                rows = limit.rows_kept(_row_bytes(self.batch), self.statistics.vertices, self.batch.statistics.vertices)
                found = replace(found, peak=found.peak + rows)  # their share is in the least limit already
            if isinstance(regime, MiniBatch) and regime.is_fixed and self.planned.options.sampling is not None:
                one = (
                    SAMPLE_VERTEX_BYTES * self.batch.statistics.vertices
                    + SAMPLE_EDGE_BYTES * self.batch.statistics.edges
                )
                kept = self.planned.options.sampling.batches * int(one)
                found = replace(found, peak=found.peak + kept, least=found.least + kept, in_memory=whole + kept)
        if self.scored is not None:
            now, least = self.scored.bytes(self.scores), self.scored.bytes(self.scored.least)
            whole = (found.in_memory or found.least) + now
            found = replace(found, peak=found.peak + now, least=found.least + least, in_memory=whole, alone=False)
        return replace(found, partitions=self.partitions)

    def peak_bytes(self, config: TrainerConfig) -> int:
        """Return the estimated peak bytes of all processes on this host, which is at most the limit."""
        if self.planned.options.pricing.layout.within is not None:
            return self.planned.peak_bytes
        return MemoryLimit.of(config).peak(self.needs(config))


def with_scores(job: Job, scored: ScoreSizes, config: TrainerConfig) -> Job:
    """Return a job of a link task that computes as many scores at one time as the memory limit leaves room for."""
    limit, bare = MemoryLimit.of(config).bytes, job.needs(config)
    room = None if limit is None else limit - (bare.in_memory or bare.least)
    return replace(job, scored=scored, scores=scored.fitting(room))


def described_memory(job: Job, config: TrainerConfig, planned_again: Callable[[TrainerConfig], Job]) -> Job:
    """Return a job of mini-batches or links whose plans say how much memory and how many seconds it needs.

    Args:
        job: The job.
        config: The settings of the run.
        planned_again: Returns the job with other settings of batches and negatives, whose memory is not described.

    Raises:
        ConfigurationError: If the memory limit is too low.
    """
    limit, needs = MemoryLimit.of(config), job.needs(config)
    if limit.bytes is not None:

        def advice() -> list[Advice]:
            found = [] if job.traits.in_process else advice_on_processes(config, lambda other: job.needs(other).least)
            return found + advice_on_batches(config, lambda other: planned_again(other).needs(other).least)

        check_fits(limit, job.engine.name, {job.engine.name: needs}, advice)
    memory = limit.described(needs) + (_files_read(job) if needs.spills(limit.bytes) else "")
    said: dict[str, Any] = {"memory": memory, "peak_bytes": limit.peak(needs)}
    said["seconds"] = EpochSeconds(job.training_seconds, job.evaluation_seconds, job.link_seconds.ranking)
    planned = job.planned.described(**said)
    if job.batch is None:
        return replace(job, planned=planned)
    if not job.traits.in_process:
        said["engine_reason"] = (
            f"in workers, to which Spark sends whole batches; engine {job.engine.name}: {job.engine.reason}"
        )
    return replace(job, planned=planned, batch=job.batch.described(**said))


def _row_bytes(batch: Planned) -> int:
    """Return the bytes of a vertex's static columns, of which a batch has the rows of its vertices."""
    return sum(row_bytes(column) for column in batch.plan.static_columns)


def _files_read(job: Job) -> str:
    """Return what a batch reads of features and edges that lie in files beside columns, in words; "" if it reads none there."""
    if job.batch is None or job.in_parts is not None or not job.statistics.in_files:
        return ""
    of_batch = job.batch.statistics
    rows = sum(column_bytes(column, of_batch) for column in job.batch.plan.static_columns)
    return (
        f", and so do features and edges, of which a batch reads about {size(rows + ENDS_BYTES // 2 * of_batch.edges)}"
    )
