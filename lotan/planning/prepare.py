"""The preparation of a training run: check the graph, trace the model, plan the epoch, choose the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar, cast

import numpy as np
import torch

from lotan.borders import spark_translated, translated
from lotan.engines.blocks.sizes import check_partitions
from lotan.engines.choice import (
    ENGINES,
    EngineChoice,
    check_able,
    check_edge_data,
    choose_engine,
    idle_settings,
    lacks_room,
    limit_notes,
    slow_choice,
)
from lotan.engines.opening import placed
from lotan.errors import ConfigurationError, GraphError
from lotan.graph.graph import Graph
from lotan.graph.labels import class_notes
from lotan.graph.seen_labels import with_seen_labels
from lotan.memory.limit import Advice, MemoryLimit, check_fits
from lotan.planning import cost_cache
from lotan.planning.advice import advice_on_processes
from lotan.planning.batches import draws_both, plan_of_batch, sampling_notes, sampling_of, with_batches
from lotan.planning.job import Job
from lotan.planning.learned import check_learned_rows, draw_rows, place_of_rows, rows_in_spark
from lotan.planning.losses import loss_of
from lotan.planning.models import (
    check_statistics,
    check_variances_of_types,
    edge_demands,
    hook_notes,
    model_outputs,
    model_width,
    takes_roots,
    traced,
)
from lotan.planning.pricing import priced, spread_over
from lotan.planning.stored_rows import as_if_drawn, learned_modules
from lotan.planning.stored_vertices import refuse_foreseen, with_stored_vertices
from lotan.settings.config import TrainerConfig
from lotan.settings.regimes import MiniBatch
from lotan.settings.tasks import label_task
from lotan.validation.check import check_graph
from planner import Options, Planned, compile_plan
from planner.cost.seconds import Pricing
from planner.footprint import Footprint
from planner.holding.budget import Budget
from planner.loss import LossSpec
from planner.neighbours import most_in_edges
from planner.regime import Sampling
from planner.spec import Spec
from planner.statistics import Statistics

READ_FIRST = 0.8
"""The share of the estimated least limit from which a graph is read before a limit is refused."""

Found = TypeVar("Found")


@spark_translated(GraphError, "Spark cannot read the graph's tables")
def prepare(
    model: torch.nn.Module,
    graph: Graph,
    config: TrainerConfig,
    opened: ExitStack,
    models: int | None = None,
    earlier: str | None = None,
) -> Job:
    """Trace the model, let Spark open files that it should read, check the graph and plan the epoch.

    Args:
        model: The model to train.
        graph: The graph to train on.
        config: The settings of the run.
        opened: The stack that closes what the job has opened.
        models: The number of such models that may train together, which sizes Spark's heap; None: it trains alone.
        earlier: The division of the run that goes on, in words, if its mini-batches come from a disk; None: a new run.

    Raises:
        GraphError: If the graph cannot be trained on.
        ModelError: If the model cannot be traced.
        PlanError: If the model cannot be planned, or a rule is unknown.
        ConfigurationError: If there are too few partitions for blocks, or the memory limit is too low.
    """
    asked = label_task(config.task)
    stored = config.regime.is_stored
    with rows_for_trace(model, graph, config):
        width = model_width(model, graph)
        train, evaluate = traced(model, width, graph, config)
    check_learned_rows(config, train)
    # what a run from a disk needs beside learned rows there is known later
    limited = not (stored and train.learned)
    alone = models is None
    expected = foreseen(train, evaluate, graph, config, limited, alone)
    graph = opened.enter_context(placed(graph, config, None if expected is None else expected.times(models or 1)))
    graph = graph.for_task(asked)
    if train.sees_labels:
        graph, width = with_seen_labels(graph), train.width
    outputs, task = model_outputs(evaluate), asked or graph.labels.task
    reads, types = edge_demands(train)
    classes = LossSpec(task, outputs, normalizer=1.0).classes
    report = check_graph(
        graph, task, classes, width, takes_roots(train), reads, types, train.bounds, most_in_edges(train)
    )
    check_statistics(train, report.vertices)
    check_variances_of_types(train, graph)
    loss = loss_of(graph, task, outputs, config, train.further)
    if train.sees_labels:
        loss = replace(loss, shown=config.label_rate)
    sampling = sampling_of(train, graph, config)
    # the limit is checked again below, when the plan of a batch is known
    limited = limited and sampling is None
    engine, planned, needs = plan_for(train, evaluate, loss, graph, config, None, sampling, limited, alone)
    weights = graph.names.weight_words(graph.statistics.weighted)
    if graph.has_vertex_weights:
        weights += ", and of vertices in the loss"
    several = "" if graph.vertex_types is None else graph.vertex_types.words
    place = place_of_rows(config, train, planned.options.pricing.layout.rows_in_spark)
    planned = planned.described(weights=weights, types=several, **place)
    warnings = (
        *graph.notes,
        *report.warnings,
        *class_notes(graph.labels, graph.names.as_given("vertices", "label"), outputs),
        *hook_notes(model),
        *slow_choice(engine, config),
        *idle_settings(engine.name, config, graph),
    )
    warnings = (*warnings, *limit_notes(engine.name, config, graph), *sampling_notes(sampling))
    job = Job(graph, train, evaluate, loss, graph.statistics, planned, engine, warnings, needs.partitions)
    if sampling is None:
        return job
    if stored:
        return with_stored_vertices(job, model, sampling, config, earlier)
    return with_batches(job, sampling, config)


@contextmanager
def rows_for_trace(model: torch.nn.Module, graph: Graph, config: TrainerConfig) -> Iterator[None]:
    """Give a model its learned rows. If they are to lie on a disk, they have only their shape, until the block ends."""
    if config.regime.is_stored:
        modules = learned_modules(model)
        with as_if_drawn(modules, graph.ids if modules else np.zeros(0, dtype=np.int64)):
            yield
        return
    draw_rows(model, graph, config)
    yield


@translated()
def plan_for(
    train: Spec,
    evaluate: Spec,
    loss: LossSpec,
    graph: Graph,
    config: TrainerConfig,
    statistics: Statistics | None = None,
    sampling: Sampling | None = None,
    limited: bool = True,
    alone: bool = False,
) -> tuple[EngineChoice, Planned, Footprint]:
    """Choose the engine, make its plan and estimate its memory. The choice compares estimates for the engines in question.

    Args:
        train: The traced model in training mode.
        evaluate: The traced model in evaluation mode.
        loss: The loss to minimise.
        graph: The graph to train on.
        config: The settings of the run.
        statistics: The sizes of the graph; None: read them from the graph.
        sampling: How the batches of an epoch are sampled. Then the plan evaluates and does not train. None: full batch.
        limited: False if the memory limit is checked later, when all that a run needs is known.
        alone: True if the model is trained, and no other with it. Then its learned rows may lie in Spark.

    Returns:
        The engine, its plan, and the estimated memory of the plan.

    Raises:
        PlanError: If the model cannot be planned, or a rule is unknown.
        ConfigurationError: If there are too few partitions for blocks, or the memory limit is too low.
    """
    known, master = cost_cache.load(), session_master(graph, config)
    in_spark = alone and rows_in_spark(config, train, (statistics or graph.statistics).vertices)
    prices = {name: priced(traits, config, known, master, in_spark) for name, traits in ENGINES.items()}
    statistics = statistics or _statistics(graph, prices["blocks"])
    limit = MemoryLimit.of(config, in_spark)
    form = cast(Literal["auto", "general"], config.plan)  # TrainerConfig knows no other once it is made
    options = Options(form, tuple(config.disable), config.rgb, config.eval_every, memory_limit=limit.bytes)
    options = replace(options, sampling=sampling)

    def plan(engine: str) -> Planned:
        priced_so = replace(options, pricing=prices[engine])
        for known in plans.values():  # what plans of one model have in common is made once
            return known.with_options(priced_so)
        return compile_plan(train, evaluate, loss, statistics, priced_so)

    plans = _OnDemand(plan)
    needs = _OnDemand(lambda engine: limit.needs(ENGINES[engine], plans[engine].plan, statistics, config.partitions))
    seconds = _OnDemand(lambda engine: plans[engine].seconds)
    able = [name for name, traits in ENGINES.items() if not train.learned or "learned_rows" in traits.abilities]

    def chosen(config: TrainerConfig) -> EngineChoice:
        return choose_engine(config, graph, needs, seconds, lambda name: lacks_room(name, plans[name]), able)

    engine = chosen(config)
    check_edge_data(engine, train)
    check_able(engine, plans[engine.name])
    if limit.bytes is not None and limited and needs[engine.name].least > limit.bytes:

        def least(name: str, other: TrainerConfig) -> int:
            asked = MemoryLimit.of(other, in_spark)
            return asked.needs(ENGINES[name], plans[name].plan, statistics, other.partitions).least

        _refuse(config, engine.name, {name: needs[name] for name in able}, chosen, least)
    found, needed = plans[engine.name], needs[engine.name]
    spread = limit.bytes if limited and sampling is None else None
    planned = _described(found, engine, needed, limit, spread, statistics)
    if engine.name == "blocks" and config.partitions is not None:
        check_partitions(config.partitions, planned.plan, statistics)
    return engine, planned, needed


def _refuse(
    config: TrainerConfig,
    engine: str,
    needs: Mapping[str, Footprint],
    chosen: Callable[[TrainerConfig], EngineChoice],
    least: Callable[[str, TrainerConfig], int],
) -> None:
    """Refuse a memory limit that is too low, with the least limit that would be accepted, and advice.

    Args:
        config: The settings.
        engine: The name of the engine that was chosen.
        needs: The estimated memory on each engine that can run the model.
        chosen: Returns the engine for other settings.
        least: Returns the least limit of an engine for other settings.
    """
    if config.engine == "auto":
        best = min(needs, key=lambda name: needs[name].least)
        if chosen(replace(config, memory_limit=needs[best].least)).name == best:
            engine = best

    def advice() -> list[Advice]:
        if engine == "local":
            return []
        found = advice_on_processes(config, partial(least, engine))
        if config.router is None and needs["local"].least < needs[engine].least:
            found.append(("give engine='local'", needs["local"].least))
        return found

    asked = needs if config.engine == "auto" else {engine: needs[engine]}
    check_fits(MemoryLimit.of(config), engine, asked, advice)


def _described(
    found: Planned,
    engine: EngineChoice,
    needed: Footprint,
    limit: MemoryLimit,
    spread: int | None,
    statistics: Statistics,
) -> Planned:
    """Return a plan whose steps are in the order of least memory where that counts, and which says what it needs and why.

    Args:
        found: The plan of the chosen engine.
        engine: The choice.
        needed: The estimated memory of the plan.
        limit: The memory limit.
        spread: The bytes over which columns may spread; None: their places do not follow the limit.
        statistics: The sizes of the graph.
    """
    storage = limit.storage(found.options.traits, needed)
    pricing = spread_over(found.options.pricing, needed, spread, storage)
    budget, peak = Budget.of(pricing.traits, pricing.layout), limit.peak(needed)
    if budget is not None:
        found = found.with_plan(budget.ordered(found.plan, statistics))
        peak = budget.peak(found.plan, statistics)
    partitions = [f"{needed.partitions} partitions, for the memory limit"] * (needed.partitions is not None)
    choices = (*[f"{engine.name}, for speed"] * engine.for_speed, *partitions)
    return found.described(
        pricing=pricing,
        engine_reason=engine.reason,
        free_bytes=engine.free_bytes,
        memory=limit.described(needed),
        peak_bytes=peak,
        choices=choices,
    )


class _OnDemand(dict[str, Found]):
    """A value for each engine, computed when it is first asked for: plans for all engines would take time for nothing."""

    def __init__(self, find: Callable[[str], Found]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, engine: str) -> Found:
        self[engine] = self._find(engine)
        return self[engine]


def session_master(graph: Graph, config: TrainerConfig) -> str | None:
    """Return the Spark master of the graph's session; None if the graph is elsewhere or will be collected for local."""
    if graph.origin != "spark" or config.engine == "local" or graph.on_connect:
        return None
    return graph.tables()[0].sparkSession.sparkContext.master


def _statistics(graph: Graph, on_blocks: Pricing) -> Statistics:
    """Return the sizes of a graph. Degrees are included if shuffled bytes depend on them, or if the graph already has them."""
    found = graph.statistics
    return replace(found, profile=graph.profile) if on_blocks.layout.shuffled and found.profile is None else found


def foreseen(
    train: Spec, evaluate: Spec, graph: Graph, config: TrainerConfig, limited: bool = True, alone: bool = False
) -> Footprint | None:
    """Return the estimated memory for a graph in files, before any row is read; None for a graph elsewhere.

    Args:
        train: The traced model in training mode.
        evaluate: The traced model in evaluation mode.
        graph: The graph to train on.
        config: The settings of the run.
        limited: False if the memory limit is checked later, when all that a run needs is known.
        alone: The same as for `plan_for`.

    Raises:
        ConfigurationError: If the estimate exceeds the memory limit.
    """
    if graph.origin != "files" or (config.engine == "local" and config.memory_limit is None):
        return None
    statistics = graph.estimate()
    # the kind of loss does not change the memory
    loss = LossSpec("classification", model_outputs(evaluate), normalizer=1.0, further=evaluate.further)
    regime = config.regime
    limit = MemoryLimit.of(config).bytes
    if not isinstance(regime, MiniBatch):
        given = train, evaluate, loss, graph, config, statistics, None
        engine, _, needs = plan_for(*given, False, alone)
        if limited and _far_below(limit, needs, engine):
            with _before_reading(engine):
                plan_for(*given, True, alone)
        return needs
    # the number of training vertices is not known yet, and so what batches need is checked once more later
    sampling = Sampling(regime.batch_size, tuple(regime.fanouts), statistics.vertices, both=draws_both(train))
    engine, planned, needs = plan_for(train, evaluate, loss, graph, config, statistics, sampling, False, alone)
    if limit is None or not limited:
        return needs
    job = Job(graph, train, evaluate, loss, statistics, planned, engine)
    if _far_below(limit, needs, engine):  # the error counts batches and partitions at once
        refuse = refuse_foreseen if regime.is_stored else with_batches
        with _before_reading(engine):
            refuse(job, sampling, config)
    return needs if regime.is_stored else replace(job, batch=plan_of_batch(job, sampling, config)).needs(config)


def _far_below(limit: int | None, needs: Footprint, engine: EngineChoice) -> bool:
    """Return True if a limit is so low that it will not do, whatever is read of the graph.

    A graph that this process reads is read part by part. What it needs exactly is known then: a little less, if few of its
    vertices are trained on.
    """
    share = READ_FIRST if ENGINES[engine.name].in_process else 1.0
    return limit is not None and limit < share * needs.least


@contextmanager
def _before_reading(engine: EngineChoice) -> Iterator[None]:
    """Say in the error about a limit that it was estimated before the graph was read."""
    try:
        yield
    except ConfigurationError as error:
        if not ENGINES[engine.name].in_process:
            raise
        raise ConfigurationError(
            f"{error}. This is estimated before the graph is read; somewhat less may do, if few vertices are trained on"
        ) from None


def foreseen_of(model: torch.nn.Module, graph: Graph, config: TrainerConfig) -> Footprint | None:
    """Return the estimate of `foreseen` for a model of which only the shapes matter."""
    if graph.origin != "files":
        return None
    with rows_for_trace(model, graph, config):
        width = model_width(model, graph)
        specs = traced(model, width, graph, config)
    return foreseen(*specs, graph, config)
