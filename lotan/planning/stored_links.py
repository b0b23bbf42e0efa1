"""The preparation of a link task that trains from a disk: its links are read part by part, and no row is in memory yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from lotan.engines.choice import idle_settings
from lotan.errors import ConfigurationError, ModelError
from lotan.graph import Graph
from lotan.graph.arrays import GraphArrays
from lotan.links.decoders import Decoder, make_decoder
from lotan.links.memory import LINK_BYTES, ScoreSizes
from lotan.memory.limit import MemoryLimit
from lotan.nn.learned_features import LearnedFeatures
from lotan.planning.batches import plan_of_batch, sampling_of
from lotan.planning.job import BATCHES_HELD, Job, described_memory
from lotan.planning.learned import check_ids
from lotan.planning.models import model_outputs, traced
from lotan.planning.prepare import plan_for
from lotan.settings.config import TrainerConfig
from lotan.settings.metric_names import main_metric
from lotan.settings.regimes import MiniBatch
from lotan.settings.row_wise import ROW_STATES, check_row_wise
from lotan.settings.tasks import ALL, LinkPrediction
from lotan.storage.partitioned_graph import RECORD, LinkReader, Summary
from lotan.storage.stored import Stored
from planner.footprint import Footprint, footprint
from planner.neighbours import orders_neighbours
from planner.orders.division import Sizes, divide
from planner.regime import Sampling
from planner.shares import DRIVER_BYTES
from planner.spec import LossSpec
from planner.statistics import Statistics

VERTEX_BYTES = 64
"""The bytes of a vertex beside its rows: its id, its key twice, its place, and a label and a split that say nothing."""

READ_BYTES = 96 << 20
"""The bytes that reading links part by part takes, Arrow's own among them. Measured: 60 to 100 MB."""

SCORE_PRODUCTS = 3  # products of matrices for a score: itself, and the gradients of both ends
SCORE_OPERATIONS = 3  # operations on each score: the exponent, its sum, and the gradient
STEP_OPERATIONS = 4  # on each number of a row and its state: read, summed, changed, written

NUMBER = 4  # bytes


def prepare_stored(model: torch.nn.Module, graph: Graph, config: TrainerConfig, decoder: Decoder | None = None) -> Job:
    """Read the sizes of the links, trace the model, choose the partitions, and plan a batch.

    Args:
        model: The model, whose output reads learned rows alone.
        graph: The graph, in files or in this process.
        config: The settings of the run, whose order trains from a disk.
        decoder: The decoder of an earlier training of the same model, which goes on; None: a new one.

    Raises:
        GraphError: If the graph or its links cannot be trained on.
        ModelError: If the model cannot be traced, has no learned rows, or reads anything else.
        PlanError: If the model cannot be planned, or a rule is unknown.
        ConfigurationError: If the memory limit is too low, or there is none and the order says no sizes.
    """
    task, regime = config.task, config.regime
    assert isinstance(task, LinkPrediction)  # the caller has asked
    assert isinstance(regime, MiniBatch)
    reader = LinkReader(graph, task)
    summary = reader.summary()
    vertices = _vertices(reader)
    modules = learned_modules(model)
    main_metric(config.monitor, "link")
    with _as_if_drawn(modules, reader, summary):
        # a graph in files says its width without being read
        width = getattr(model, "in_channels", 0) or graph.estimate().width
        train, evaluate = traced(model, width, vertices)
    learned = {f"{name}.weight" if name else "weight": module.width for name, module in modules.items()}
    if set(train.learned) - set(learned):
        raise ModelError(
            f"order {regime.order!r} keeps rows of lotan.nn.LearnedFeatures on a disk, and the model learns "
            f"{', '.join(sorted(set(train.learned) - set(learned)))} too; use LearnedFeatures in their place"
        )
    outputs = model_outputs(evaluate)
    if decoder is None:
        decoder = make_decoder(task, outputs, max(1, len(summary.names)), config.seed)
    loss = LossSpec("link", outputs, normalizer=1.0)
    negatives = summary.vertices if task.negatives == ALL else int(task.negatives)
    ends = min(summary.vertices, 2 * (min(regime.batch_size, summary.training) + negatives))
    sampling = sampling_of(train, vertices, config)
    assert sampling is not None
    sampling = replace(sampling, examples=summary.training, targets=ends)
    statistics = vertices.statistics
    engine, planned, _ = plan_for(train, evaluate, loss, vertices, config, statistics, sampling, limited=False)
    planned = planned.described(weights="none")
    job = Job(
        graph=vertices,
        train=train,
        evaluate=evaluate,
        loss=loss,
        statistics=replace(statistics, edges=summary.training),
        planned=planned,
        engine=engine,
        warnings=(*graph.notes, *idle_settings(engine.name, config, vertices)),
        decoder=decoder,
    )
    job = replace(job, batch=plan_of_batch(job, sampling, config))
    _check_reads(job, regime)
    name = type(config.optimizer).__name__
    for parameter in learned:
        check_row_wise(name, parameter, {})  # its arguments are checked with the groups of parameters
    stored = _stored(job, reader, summary, learned, sampling, config)
    return described_memory(replace(job, stored=stored), config)


def learned_modules(model: torch.nn.Module) -> dict[str, LearnedFeatures]:
    """Return the modules of learned rows by name.

    Raises:
        ModelError: If there is none.
    """
    found = {name: one for name, one in model.named_modules() if isinstance(one, LearnedFeatures)}
    if not found:
        raise ModelError(
            "the model has no learned rows, which are what training from a disk keeps there; take lotan.nn.LearnedRows(64), or "
            "leave the regime's order out"
        )
    frozen = [name for name, module in found.items() if not module.weight.requires_grad]
    if frozen:
        raise ModelError(
            f"{frozen[0]}.weight is not trained (requires_grad is False), and training from a disk is for rows that are; leave "
            "the regime's order out"
        )
    return found


@contextmanager
def _as_if_drawn(modules: Mapping[str, LearnedFeatures], reader: LinkReader, summary: Summary) -> Iterator[None]:
    """Give modules rows in the shape of those on the disk, which take no memory, until the block ends."""
    before = {name: module.weight for name, module in modules.items()}
    for name, module in modules.items():
        if module.has_rows:
            check_ids(f"{name}.weight", module.ids, len(module.weight), reader.ids)
        else:
            shape = torch.zeros(1, 1).expand(summary.vertices, module.width)
            module.weight = torch.nn.Parameter(shape, requires_grad=module.weight.requires_grad)
    try:
        yield
    finally:
        for name, module in modules.items():
            module.weight = before[name]


def _vertices(reader: LinkReader) -> Graph:
    """Return the vertices as a graph without edges and features."""
    count = len(reader.ids)
    nothing = np.zeros(0, dtype=np.int64)
    return Graph.of_arrays(
        GraphArrays(
            ids=reader.ids,
            features=np.zeros((count, 0), dtype=np.float32),
            label=np.full(count, -1),
            split=np.zeros(count, dtype=np.int8),
            src=nothing,
            dst=nothing,
            weight=None,
        )
    )


def _check_reads(job: Job, regime: MiniBatch) -> None:
    """Refuse a model that reads more than learned rows."""
    plan = job.shown.plan
    more = sorted({column.name for column in plan.static_columns} - {"label", "split"})
    more += ["the order of neighbours"] * orders_neighbours(job.train)  # there, vertices lie in another order
    if more or job.train.tracked:
        what = ", ".join(more) or "running statistics of all rows"
        raise ModelError(
            f"order {regime.order!r} trains models of learned rows alone so far, and this one reads {what}; leave it out of the "
            "model, or leave order out of the regime"
        )


def _stored(
    job: Job,
    reader: LinkReader,
    summary: Summary,
    learned: Mapping[str, int],
    sampling: Sampling,
    config: TrainerConfig,
) -> Stored:
    regime, limit = config.regime, MemoryLimit.of(config)
    assert isinstance(regime, MiniBatch)
    states = len(ROW_STATES[type(config.optimizer).__name__])
    sizes = Sizes(
        vertices=summary.vertices,
        rows=summary.vertices * sum(learned.values()) * NUMBER * (1 + states),
        links=RECORD * summary.training,
    )
    fixed = _fixed_bytes(job, summary, sampling, config)
    division = regime.division
    if division is None and limit.bytes is None:
        raise ConfigurationError(
            f"order {regime.order!r} needs memory_limit, which decides how many partitions are in memory; or give their number, "
            "as in order='comet(partitions=16, buffer=4, groups=8)'"
        )
    least = divide(regime.stored_order, sizes, 0) if division is None else division
    if division is None:
        assert limit.bytes is not None
        division = divide(regime.stored_order, sizes, limit.bytes - fixed)
    if division.partitions > summary.vertices:
        raise ConfigurationError(
            f"order {regime.order!r} has more partitions than the graph has vertices ({summary.vertices:,}); give fewer"
        )
    needed = Footprint("local", peak=fixed + division.bytes(sizes), least=fixed + least.bytes(sizes))
    folder = config.storage_dir
    if folder is None and config.checkpoint_dir is not None:
        folder = Path(config.checkpoint_dir) / "storage"
    return Stored(
        reader=reader,
        summary=summary,
        division=division,
        sizes=sizes,
        learned=learned,
        states=states,
        footprint=needed,
        scoring_seconds=_scoring_seconds(job, summary, sampling, config, states),
        seed=regime.seed,
        batch_size=regime.batch_size,
        folder=None if folder is None else Path(folder),
    )


def _scoring_seconds(job: Job, summary: Summary, sampling: Sampling, config: TrainerConfig, states: int) -> float:
    """Return the estimated seconds of an epoch beside its plan: the scores of both ends, and the optimizer's step."""
    task = config.task
    assert isinstance(task, LinkPrediction)
    assert job.batch is not None
    rates, width = job.batch.options.pricing.rates, job.loss.outputs
    scores = 2 * summary.training * (summary.vertices if task.negatives == ALL else int(task.negatives))
    changed = sampling.batches * (sampling.targets or 0) * width
    products = SCORE_PRODUCTS * scores * width * rates.multiply_adds
    terms = SCORE_OPERATIONS * scores * rates.autograd_numbers
    return products + terms + STEP_OPERATIONS * (1 + states) * changed * rates.parameter_numbers


def _fixed_bytes(job: Job, summary: Summary, sampling: Sampling, config: TrainerConfig) -> int:
    """Return the bytes that do not depend on the partitions: the process, the vertices, batches, and scores."""
    assert job.batch is not None
    limit = MemoryLimit.of(config)
    small: Statistics = job.batch.statistics
    of_batch = footprint(job.traits, job.batch.plan, small, limit.layout(job.traits, None))
    task = config.task
    assert isinstance(task, LinkPrediction)
    scored = ScoreSizes(
        links=0,
        batch=min(summary.training, sampling.batch_size),
        candidates=summary.vertices if task.negatives == ALL else int(task.negatives),
        rows=sampling.targets or 0,
        vertices=0,
        width=job.loss.outputs,
    )
    held = BATCHES_HELD * (of_batch.peak - DRIVER_BYTES)
    return (
        DRIVER_BYTES
        + READ_BYTES
        + VERTEX_BYTES * summary.vertices
        + held
        + scored.bytes(job.scores)
        + LINK_BYTES * summary.others
    )
