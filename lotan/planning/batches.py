"""The mini-batches of a run: how they are sampled, and the plan of one."""

from __future__ import annotations

from dataclasses import replace

from lotan.borders import translated
from lotan.engines.choice import ENGINES
from lotan.errors import ConfigurationError, ModelError
from lotan.graph.graph import Graph
from lotan.planning import cost_cache
from lotan.planning.drawing import drawing_seconds
from lotan.planning.job import Job, described_memory
from lotan.planning.pricing import priced
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import LinkPrediction, excludes_targets
from planner import Planned, compile_plan
from planner.batch import by_content
from planner.edge_sets import is_reversed
from planner.neighbours import orders_neighbours
from planner.physical import Plan
from planner.regime import Sampling, hops, hops_of_plan, statistics_of_batch, statistics_within
from planner.spec import SPLITS, Spec


def sampling_of(train: Spec, graph: Graph, config: TrainerConfig) -> Sampling | None:
    """Return how the batches of an epoch are sampled; None for a full batch.

    Raises:
        ModelError: If the number of hops that the model needs cannot be told.
        ConfigurationError: If there is not one fanout for each hop, or batches are not drawn so from several types.
    """
    regime = config.regime
    if not isinstance(regime, MiniBatch):
        return None
    types = graph.vertex_types
    needed = hops(train)
    if isinstance(needed, str):
        raise ModelError(
            f"layer {needed}: reads the rows of all vertices, and a mini-batch has only some of them; use LayerNorm, or "
            "BatchNorm with running statistics, or train on the full batch with regime=lotan.FullBatch()"
        )
    if needed != len(regime.fanouts):
        fanouts = "fanout" if len(regime.fanouts) == 1 else "fanouts"
        given = f"{len(regime.fanouts)} {fanouts} ({', '.join(map(str, regime.fanouts))})"
        raise ConfigurationError(
            f"regime MiniBatch got {given}, but the model sums over neighbours {needed} times in a row; give one fanout for "
            f"each, such as fanouts={(10,) * max(1, needed)}"
            if needed
            else f"regime MiniBatch got {given}, but the model reads no neighbours; give fanouts=()"
        )
    both = draws_both(train)
    if types is not None:
        _check_drawn_by_relation(train, both, config)
    examples = graph.labels.labelled[SPLITS.index("train")]
    relations = 1 if types is None else len(types.relations)
    return Sampling(regime.batch_size, tuple(regime.fanouts), examples, both=both, relations=relations)


def draws_both(train: Spec) -> bool:
    """Return True if batches have out-edges too, because the model sums along edges turned round."""
    return any(call.type.edges is not None and is_reversed(call.type.edges) for call in train.calls)


def _check_drawn_by_relation(train: Spec, both: bool, config: TrainerConfig) -> None:
    """Refuse batches that are not drawn from a graph of several types of vertices so far."""
    if both:
        reason = "draws in-edges alone there, and the model sums along edges turned round: give the graph that relation"
    elif train.tracked:
        reason = (
            "takes no statistics of types there, and the model has running ones, such as BatchNorm's: use LayerNorm"
        )
    elif config.tables is not None:
        reason = "reads no rows from tables there: leave tables out"
    else:
        return
    raise ConfigurationError(
        f"regime MiniBatch on a graph of several types of vertices {reason}, or train on the full batch with "
        "regime=lotan.FullBatch()"
    )


def sampling_notes(sampling: Sampling | None) -> tuple[str, ...]:
    """Return a line if a batch has more room than there are examples."""
    if sampling is None or sampling.batch_size <= sampling.examples:
        return ()
    return (
        f"settings: batch_size is {sampling.batch_size:,}, but only {sampling.examples:,} training vertices have labels; each "
        "epoch has one batch of all of them",
    )


def with_batches(job: Job, sampling: Sampling, config: TrainerConfig) -> Job:
    """Return a job that trains on mini-batches, with the memory of the batches that are held at one time.

    Raises:
        PlanError: If a batch cannot be planned.
        ConfigurationError: If the memory limit is too low, or Spark does not draw such batches.
    """
    if not job.traits.in_process:
        check_drawn_by_spark(job)

    def planned(config: TrainerConfig) -> Job:
        return replace(job, batch=plan_of_batch(job, sampling_with(sampling, config), config))

    return described_memory(planned(config), config, planned)


def sampling_with(sampling: Sampling, config: TrainerConfig) -> Sampling:
    """Return the sampling of batches of the size that the settings say."""
    regime = config.regime
    return replace(sampling, batch_size=regime.batch_size) if isinstance(regime, MiniBatch) else sampling


def check_drawn_by_spark(job: Job) -> None:
    """Check that Spark can draw the batches of a job.

    Raises:
        ConfigurationError: If it cannot so far.
    """
    if orders_neighbours(job.train):
        raise ConfigurationError(
            f"regime MiniBatch on engine {job.engine.name!r} gives vertices other numbers, and the model takes neighbours in the "
            "order of their ids: take engine 'local'"
        )


@translated()
def plan_of_batch(job: Job, sampling: Sampling, config: TrainerConfig) -> Planned:
    """Return the plan of a batch, which trains on sampled vertices.

    Its loss is divided by what the terms of a batch are expected to add up to. The terms of a batch that are other than
    that are put right when its gradients are known: see `lotan.training.passes`.
    """
    share = min(1.0, sampling.batch_size / sampling.examples)
    loss = replace(job.loss, normalizer=job.loss.normalizer * share)
    statistics = statistics_of_batch(job.statistics, sampling)
    options = job.planned.options
    if not job.traits.in_process:  # a worker runs a batch as the local engine does
        options = replace(options, pricing=priced(ENGINES["local"], config, cost_cache.load()), sampling=sampling)
    task = config.task
    if config.regime.is_stored:
        # the graph of a batch is another one in each set of partitions, and the features are rows of a buffer
        options = replace(options, disabled=(*options.disabled, "hoist_invariant", "hold_sparse"))
    of_rows = job.train.tracked or job.train.groups is not None
    if of_rows or sampling.both or (isinstance(task, LinkPrediction) and excludes_targets(task)):
        # a sum that is computed once goes over all edges, and so over the links that the batch is asked about; and
        # statistics and sums by group are those of the batch's rows, of which the farthest have no in-edges; and a batch of
        # both directions is no graph in the order of its levels
        options = replace(options, disabled=(*options.disabled, "hoist_invariant"))
    planned = compile_plan(job.train, job.evaluate, loss, statistics, options)
    here = job.traits.in_process
    if not here and (job.train.learned or not _hoisted(planned.plan) <= _hoisted(job.plan)):
        # a worker has the columns that Spark computes once for evaluation, and no others; and a batch whose learned rows are
        # looked up ahead is not drawn again if these columns are lost
        without = replace(options, disabled=(*options.disabled, "hoist_invariant"))
        planned = planned.with_options(without)
    needed = hops_of_plan(planned.plan)
    planned = planned.with_statistics(statistics_within(statistics, needed))
    if here:
        return planned
    drawn = replace(sampling, fanouts=sampling.fanouts[:needed])
    seconds = drawing_seconds(drawn, planned.statistics, config, cost_cache.load())
    return planned.described(sampling=replace(sampling, drawing_seconds=seconds))


def _hoisted(plan: Plan) -> set[str]:
    """Return the names by content of the columns that a plan computes once."""
    return {column.name for column in by_content(plan).hoisted}
