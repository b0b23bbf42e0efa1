"""The preparation of a link task: its links, the graph without those of validation and test, the decoder, and the plan."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import torch

from lotan.borders import spark_translated
from lotan.engines.choice import ENGINES, idle_settings, limit_notes
from lotan.engines.opening import placed
from lotan.errors import ConfigurationError, GraphError
from lotan.graph.graph import Graph
from lotan.links.decoders import Decoder, OwnDecoder, decoder_of
from lotan.links.examples import LinkGraph, Links, link_graph
from lotan.links.memory import LINK_BYTES_ON_SPARK, ScoreSizes, ranked_rows
from lotan.links.pairs import FULL_BATCH_LINKS
from lotan.links.traced_decoder import decoder_spec
from lotan.planning.batches import check_drawn_by_spark, plan_of_batch, sampling_of, sampling_with
from lotan.planning.job import Job, described_memory, with_scores
from lotan.planning.learned import draw_rows, place_of_rows
from lotan.planning.link_seconds import LinkSeconds, ranking_seconds, scoring_seconds
from lotan.planning.models import (
    check_statistics,
    edge_demands,
    hook_notes,
    model_outputs,
    model_width,
    takes_roots,
    traced,
)
from lotan.planning.prepare import plan_for
from lotan.settings.config import TrainerConfig
from lotan.settings.metric_names import main_metric
from lotan.settings.tasks import ALL, LinkPrediction
from lotan.validation.check import check_graph
from planner.loss import LossSpec
from planner.neighbours import most_in_edges
from planner.regime import Sampling


@spark_translated(GraphError, "Spark cannot read the graph's tables")
def prepare_links(
    model: torch.nn.Module,
    graph: Graph,
    config: TrainerConfig,
    opened: ExitStack,
    decoder: Decoder | None = None,
    linked: LinkGraph | None = None,
) -> Job:
    """Read the links, trace the encoder, make the decoder, and plan the epoch.

    Args:
        model: The encoder.
        graph: The graph to train on, whose edges are the links. It is read into this process; on blocks, only its links are.
        config: The settings of the run, whose task is a link task.
        opened: The stack that closes what the job has opened.
        decoder: The decoder of an earlier training of the same model, which goes on; None: a new one.
        linked: The links of the graph, if another model of the same fractions has read them; None: they are read.

    Raises:
        GraphError: If the graph or its links cannot be trained on.
        ModelError: If the model cannot be traced, or the decoder does not fit its outputs.
        PlanError: If the model cannot be planned, or a rule is unknown.
        ConfigurationError: If the settings do not fit the links, or the memory limit is too low.
    """
    task = config.task
    assert isinstance(task, LinkPrediction)  # the caller has asked
    if linked is None:
        linked = read_links(opened.enter_context(placed(graph, config, None)), task, config)
    _check_negatives(task, linked.links)
    if config.monitor == "auc" and linked.links.relation is not None:
        raise ConfigurationError("monitor is 'auc', which links with relations do not have; monitor 'mrr'")
    main_metric(config.monitor, "link")
    draw_rows(model, linked.graph, config)
    width = model_width(model, linked.graph)
    train, evaluate = traced(model, width, linked.graph, order=config.neighbour_order)
    outputs, (reads, types) = model_outputs(evaluate), edge_demands(train)
    report = check_graph(
        linked.graph, None, None, width, takes_roots(train), reads, types, train.bounds, most_in_edges(train)
    )
    check_statistics(train, report.vertices)
    numbers = None if linked.links.relation is None else linked.links.relations
    decoder = decoder_of(task, outputs, numbers, config.seed, decoder)
    loss = LossSpec("link", outputs, normalizer=1.0)
    sampling = _sampling(sampling_of(train, linked.graph, config), linked, task)
    engine, planned, needs = plan_for(train, evaluate, loss, linked.graph, config, sampling=sampling, limited=False)
    weights = linked.graph.names.weight_words(linked.graph.statistics.weighted)
    planned = planned.described(weights=weights, **place_of_rows(config, train))
    warnings = (*graph.notes, *report.warnings, *hook_notes(model), *idle_settings(engine.name, config, linked.graph))
    warnings = (*warnings, *limit_notes(engine.name, config, linked.graph))
    job = Job(
        graph=linked.graph,
        train=train,
        evaluate=evaluate,
        loss=loss,
        statistics=linked.graph.statistics,
        planned=planned,
        engine=engine,
        warnings=(*warnings, *_notes(task, linked.links)),
        partitions=needs.partitions,
        linked=linked,
        decoder=decoder,
    )

    def planned_for(config: TrainerConfig) -> Job:
        return _with_scores(job, sampling, config, numbers)

    return described_memory(planned_for(config), config, planned_for)


def _with_scores(job: Job, sampling: Sampling | None, config: TrainerConfig, relations: int | None) -> Job:
    """Return the job with the plan of its batches, if it has any, and with the scores that it computes at one time."""
    task, linked, outputs = config.task, job.linked, job.loss.outputs
    assert isinstance(task, LinkPrediction)
    assert linked is not None
    if sampling is not None:
        sampling = _sampling(sampling_with(sampling, config), linked, task)
        assert sampling is not None
        job = _with_batches(job, sampling, config, outputs, relations)
    job = replace(job, link_seconds=_seconds(task, linked.links, job))
    sizes = _sizes(task, linked.links, sampling, outputs)
    return with_scores(job, sizes if job.traits.in_process else _on_spark(sizes, linked.links), config)


def _with_batches(job: Job, sampling: Sampling, config: TrainerConfig, outputs: int, relations: int | None) -> Job:
    """Return the job with the plan of its batches, and on an engine on Spark with the decoder as data."""
    if not job.traits.in_process:
        check_drawn_by_spark(job)
        if isinstance(job.decoder, OwnDecoder):
            job = replace(job, own_decoder=decoder_spec(job.decoder, outputs, relations))
    return replace(job, batch=plan_of_batch(job, sampling, config))


def read_links(graph: Graph, task: LinkPrediction, config: TrainerConfig) -> LinkGraph:
    """Return the links of a graph. A graph in Spark stays there for an engine on Spark."""
    if graph.origin != "spark" or ENGINES[config.engine].in_process:
        return link_graph(graph, task)
    from lotan.links.on_spark import links_on_spark  # imported here, because the local engine needs no Spark

    return links_on_spark(graph, task)


def _on_spark(sizes: ScoreSizes, links: Links) -> ScoreSizes:
    """Return the sizes for an engine on Spark, from which rows come chunk by chunk to be ranked."""
    ranked = max(len(links.of(split)) for split in ("val", "test"))
    ends = min(2 * ranked * (1 + (links.relation is None)), links.vertices)
    chunk = min(links.vertices, ranked_rows(sizes.width))
    return replace(sizes, vertices=chunk, ends=ends, link_bytes=LINK_BYTES_ON_SPARK)


def _sizes(task: LinkPrediction, links: Links, sampling: Sampling | None, width: int) -> ScoreSizes:
    """Return the sizes of the scores of a training pass and of an evaluation."""
    training, vertices = len(links.of("train")), links.vertices
    return ScoreSizes(
        links=len(links),
        batch=min(training, FULL_BATCH_LINKS if sampling is None else sampling.batch_size),
        candidates=vertices if task.negatives == ALL else int(task.negatives),
        rows=vertices if sampling is None else sampling.targets or vertices,
        vertices=vertices,
        width=width,
    )


def _seconds(task: LinkPrediction, links: Links, job: Job) -> LinkSeconds:
    """Return the estimated seconds beside the plans: the scores of training, and the ranks of an evaluation."""
    pricing, width = job.shown.options.pricing, job.loss.outputs
    training, validation = len(links.of("train")), len(links.of("val"))
    sampling = job.planned.options.sampling
    batches = 1 if sampling is None else sampling.batches
    return LinkSeconds(
        scoring=scoring_seconds(task, training, batches, links.vertices, width, pricing),
        ranking=ranking_seconds(task, validation, links.vertices, width, pricing),
    )


def _check_negatives(task: LinkPrediction, links: Links) -> None:
    if task.negatives != ALL and int(task.negatives) > links.vertices:
        raise ConfigurationError(
            f"LinkPrediction got negatives={task.negatives:,}, but the graph has {links.vertices:,} vertices; give at most as "
            'many, or negatives="all"'
        )


def _sampling(sampling: Sampling | None, linked: LinkGraph, task: LinkPrediction) -> Sampling | None:
    """Return the sampling of batches of links. The targets of a batch are the ends of its links and its negatives."""
    if sampling is None:
        return None
    training = len(linked.links.of("train"))
    drawn = linked.links.vertices if task.negatives == ALL else int(task.negatives)
    ends = 2 * (min(sampling.batch_size, training) + drawn)
    return replace(sampling, examples=training, targets=min(linked.links.vertices, ends))


def _notes(task: LinkPrediction, links: Links) -> tuple[str, ...]:
    found = []
    if task.decoder == "dot" and links.relation is not None:
        found.append(f"task: decoder 'dot' does not read the {links.relations:,} relations of the links")
    missing = [split for split in ("val", "test") if not (links.of(split).split >= 0).any()]
    if missing:
        found.append(
            f"edges.split: no link is of split {' or '.join(map(repr, missing))}, so there are no metrics of it"
        )
    return tuple(found)
