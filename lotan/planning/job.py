"""The preparation of a training run: check the graph, trace the model, plan the epoch, choose the engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

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
from lotan.errors import ConfigurationError, GraphError, ModelError
from lotan.graph import Graph, fingerprint
from lotan.graph.seen_labels import require_one_kind, sees_labels, with_seen_labels
from lotan.links.decoders import Decoder, LinkedModel
from lotan.links.examples import LinkGraph
from lotan.links.memory import ScoreSizes
from lotan.links.pairs import SCORES
from lotan.memory.limit import MemoryLimit, check_fits
from lotan.planning import cost_cache
from lotan.planning.drawing import drawing_seconds
from lotan.planning.learned import draw_rows, for_learned_rows, place_of_rows, vertices_of
from lotan.planning.losses import loss_of
from lotan.planning.pricing import priced, spread_over
from lotan.settings.config import TrainerConfig
from lotan.settings.losses import further_of
from lotan.settings.named_calls import words_of
from lotan.settings.regimes import BATCHES_AHEAD, MiniBatch
from lotan.settings.tasks import LinkPrediction, excludes_targets, label_task
from lotan.storage.stored import Stored
from lotan.tracing import few_of, takes_tensors, trace_modes
from lotan.tracing.signature import takes_labels
from lotan.validation import check_graph
from planner import Options, Planned, compile_plan
from planner.cost import PassCost, Pricing
from planner.edge_columns import EdgeData, data_read, number_of_types
from planner.edge_sets import is_reversed
from planner.footprint import Footprint
from planner.neighbours import most_in_edges, orders_neighbours
from planner.physical import Plan
from planner.regime import Sampling, hops, statistics_of_batch
from planner.shares import DRIVER_BYTES
from planner.spec import SPLITS, LossForm, LossSpec, Spec, width_of
from planner.statistics import Statistics
from planner.traits import EngineTraits

Found = TypeVar("Found")

BATCHES_HELD = 1 + BATCHES_AHEAD  # mini-batches in memory at one time: the one that trains, and those prepared ahead
SAMPLE_VERTEX_BYTES, SAMPLE_EDGE_BYTES = 8, 24  # of a batch whose drawn edges are kept
GUESSED_OUTPUTS = 64  # the assumed number of outputs, while the labels in a file are not read yet


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
    scored: ScoreSizes | None = None  # the sizes of the scores of a link task
    stored: Stored | None = None  # the partitions of a link task that trains from a disk
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
    def both(self) -> bool:
        """True if batches have out-edges too, see `planner.regime.Sampling`."""
        sampling = self.planned.options.sampling
        return sampling is not None and sampling.both

    @property
    def epoch_seconds(self) -> float:
        """The estimated seconds of an epoch, with its share of the evaluations."""
        sampling = self.planned.options.sampling
        if self.batch is None or sampling is None:
            return self.planned.seconds
        drawing = self.batch.options.sampling.drawing_seconds if self.batch.options.sampling is not None else 0.0
        scoring = 0.0 if self.stored is None else self.stored.scoring_seconds
        return sampling.batches * self.batch.seconds + drawing + scoring + self.planned.seconds

    @property
    def validation(self) -> int:
        """The number of examples that the validation metrics are computed on."""
        if self.linked is not None:
            return len(self.linked.links.of("val"))
        if self.stored is not None:
            return self.stored.summary.validation
        return self.graph.labels.labelled[SPLITS.index("val")]

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
        limit = MemoryLimit.of(config)
        found = limit.needs(self.traits, plan or self.plan, self.statistics, partitions)
        if self.batch is not None:
            # a worker runs a batch as the local engine does
            of_batch = limit.needs(ENGINES["local"], self.batch.plan, self.batch.statistics, partitions)
            held = BATCHES_HELD * (of_batch.peak - DRIVER_BYTES)
            whole = (found.in_memory or found.least) + held  # beside batches, columns of evaluation stay in memory
            in_memory = whole if self.traits.in_process else found.in_memory
            found = replace(found, peak=found.peak + held, least=whole, in_memory=in_memory)
            regime = config.regime
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
            found = replace(found, peak=found.peak + now, least=found.least + least, in_memory=whole)
        return replace(found, partitions=self.partitions)


@spark_translated(GraphError, "Spark cannot read the graph's tables")
def prepare(model: torch.nn.Module, graph: Graph, config: TrainerConfig, opened: ExitStack, models: int = 1) -> Job:
    """Trace the model, let Spark open files that it should read, check the graph and plan the epoch.

    Args:
        model: The model to train.
        graph: The graph to train on.
        config: The settings of the run.
        opened: The stack that closes what the job has opened.
        models: The number of such models that may train together, which sizes Spark's heap.

    Raises:
        GraphError: If the graph cannot be trained on.
        ModelError: If the model cannot be traced.
        PlanError: If the model cannot be planned, or a rule is unknown.
        ConfigurationError: If there are too few partitions for blocks, or the memory limit is too low.
    """
    asked = label_task(config.task)
    draw_rows(model, graph, config)
    width = model_width(model, graph)
    train, evaluate = traced(model, width, graph, config)
    config = for_learned_rows(config, train)
    expected = foreseen(train, evaluate, graph, config)
    graph = opened.enter_context(placed(graph, config, None if expected is None else expected.times(models)))
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
    engine, planned, needs = plan_for(train, evaluate, loss, graph, config, sampling=sampling)
    weights = graph.names.weight_words(graph.statistics.weighted)
    if graph.has_vertex_weights:
        weights += ", and of vertices in the loss"
    several = "" if graph.vertex_types is None else graph.vertex_types.words
    planned = planned.described(weights=weights, types=several, **place_of_rows(config, train))
    warnings = (
        *graph.notes,
        *report.warnings,
        *slow_choice(engine, config),
        *idle_settings(engine.name, config, graph),
    )
    warnings = (*warnings, *limit_notes(engine.name, config, graph), *sampling_notes(sampling))
    job = Job(graph, train, evaluate, loss, graph.statistics, planned, engine, warnings, needs.partitions)
    return job if sampling is None else with_batches(job, sampling, config)


def sampling_of(train: Spec, graph: Graph, config: TrainerConfig) -> Sampling | None:
    """Return how the batches of an epoch are sampled; None for a full batch.

    Raises:
        ModelError: If the number of hops that the model needs cannot be told.
        ConfigurationError: If there is not one fanout for each hop, or the graph has several types of vertices.
    """
    regime = config.regime
    if not isinstance(regime, MiniBatch):
        return None
    if graph.vertex_types is not None:
        raise ConfigurationError(
            "regime MiniBatch draws from a graph of one type of vertices so far, and this graph has "
            f"{len(graph.vertex_types.names)} types; train on the full batch with regime=lotan.FullBatch()"
        )
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
    both = any(call.type.edges is not None and is_reversed(call.type.edges) for call in train.calls)
    examples = graph.labels.labelled[SPLITS.index("train")]
    return Sampling(regime.batch_size, tuple(regime.fanouts), examples, both=both)


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
        _check_drawn_by_spark(job, sampling, config)
    return described_memory(replace(job, batch=plan_of_batch(job, sampling, config)), config)


def _check_drawn_by_spark(job: Job, sampling: Sampling, config: TrainerConfig) -> None:
    """Refuse batches that Spark does not draw so far."""
    regime = config.regime
    assert isinstance(regime, MiniBatch)
    if sampling.both:
        reason = "draws the in-edges of a batch alone, and the model sums along edges turned round"
    elif job.train.tracked:
        reason = "counts no rows of a batch, and the model has running statistics, such as BatchNorm's"
    elif orders_neighbours(job.train):
        reason = "gives vertices other numbers, and the model takes neighbours in the order of their ids"
    elif regime.is_fixed:
        reason = f"draws other batches in each epoch, and the order is {regime.order!r}"
    else:
        return
    raise ConfigurationError(f"regime MiniBatch on engine {job.engine.name!r} {reason}: take engine 'local'")


def with_scores(job: Job, scored: ScoreSizes, config: TrainerConfig) -> Job:
    """Return a job of a link task that computes as many scores at one time as the memory limit leaves room for.

    Raises:
        ConfigurationError: If the memory limit is too low.
    """
    limit, bare = MemoryLimit.of(config).bytes, job.needs(config)
    room = None if limit is None else limit - (bare.in_memory or bare.least)
    return described_memory(replace(job, scored=scored, scores=scored.fitting(room)), config)


def described_memory(job: Job, config: TrainerConfig) -> Job:
    """Return a job whose plans say how much memory it needs.

    Raises:
        ConfigurationError: If the memory limit is too low.
    """
    limit, needs = MemoryLimit.of(config), job.needs(config)
    if limit.bytes is not None:
        check_fits(limit, job.engine.name, {job.engine.name: needs})
    said: dict[str, Any] = {"memory": limit.described(needs), "peak_bytes": limit.peak(needs)}
    planned = job.planned.described(**said)
    if job.batch is None:
        return replace(job, planned=planned)
    if not job.traits.in_process:
        said["engine_reason"] = (
            f"in workers, to which Spark sends whole batches; engine {job.engine.name}: {job.engine.reason}"
        )
    return replace(job, planned=planned, batch=job.batch.described(**said))


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
    if not job.traits.in_process:
        # a worker runs a batch as the local engine does, and has no column that was computed once for all batches
        known = cost_cache.load()
        local = priced(ENGINES["local"], config, known)
        drawn = replace(sampling, drawing_seconds=drawing_seconds(sampling, statistics, config, known))
        options = replace(options, pricing=local, sampling=drawn, disabled=(*options.disabled, "hoist_invariant"))
    task = config.task
    if job.train.tracked or sampling.both or (isinstance(task, LinkPrediction) and excludes_targets(task)):
        # a sum that is computed once goes over all edges, and so over the links that the batch is asked about; and
        # statistics are those of the batch's rows, of which the farthest have no in-edges; and a batch of both directions
        # is no graph in the order of its levels
        options = replace(options, disabled=(*options.disabled, "hoist_invariant"))
    return compile_plan(job.train, job.evaluate, loss, statistics, options)


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

    Returns:
        The engine, its plan, and the estimated memory of the plan.

    Raises:
        PlanError: If the model cannot be planned, or a rule is unknown.
        ConfigurationError: If there are too few partitions for blocks, or the memory limit is too low.
    """
    known, master = cost_cache.load(), session_master(graph, config)
    prices = {name: priced(traits, config, known, master) for name, traits in ENGINES.items()}
    statistics = statistics or _statistics(graph, prices["blocks"])
    limit = MemoryLimit.of(config)
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
    if train.learned:
        engine = EngineChoice("local", "learned rows run on it")
    else:
        engine = choose_engine(config, graph, needs, seconds, lambda name: lacks_room(name, plans[name]))
    check_edge_data(engine, train)
    check_able(engine, plans[engine.name])
    if limit.bytes is not None and limited:
        check_fits(limit, engine.name, {name: needs[name] for name in ENGINES})
    found, needed = plans[engine.name], needs[engine.name]
    memory, pricing = limit.described(needed), spread_over(found.options.pricing, needed)
    partitions = [f"{needed.partitions} partitions, for the memory limit"] * (needed.partitions is not None)
    choices = (*[f"{engine.name}, for speed"] * engine.for_speed, *partitions)
    said: dict[str, Any] = {
        "engine_reason": engine.reason,
        "free_bytes": engine.free_bytes,
        "memory": memory,
        "peak_bytes": limit.peak(needed),
        "choices": choices,
    }
    planned = found.described(pricing=pricing, **said)
    if engine.name == "blocks" and config.partitions is not None:
        check_partitions(config.partitions, planned.plan, statistics)
    return engine, planned, needed


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


def foreseen(train: Spec, evaluate: Spec, graph: Graph, config: TrainerConfig) -> Footprint | None:
    """Return the estimated memory for a graph in files, before any row is read; None for a graph elsewhere.

    Raises:
        ConfigurationError: If the estimate exceeds the memory limit.
    """
    if graph.origin != "files" or (config.engine == "local" and config.memory_limit is None):
        return None
    statistics = graph.estimate()
    # the kind of loss does not change the memory
    loss = LossSpec("classification", model_outputs(evaluate), normalizer=1.0, further=evaluate.further)
    sampling, regime = None, config.regime
    if isinstance(regime, MiniBatch):  # the number of training vertices is not known yet, and does not matter here
        sampling = Sampling(regime.batch_size, tuple(regime.fanouts), statistics.vertices)
    return plan_for(train, evaluate, loss, graph, config, statistics, sampling)[-1]


def foreseen_of(model: torch.nn.Module, graph: Graph, config: TrainerConfig) -> Footprint | None:
    """Return the estimate of `foreseen` for a model of which only the shapes matter."""
    if graph.origin != "files":
        return None
    draw_rows(model, graph, config)
    width = model_width(model, graph)
    return foreseen(*traced(model, width, graph, config), graph, config)


def model_width(model: torch.nn.Module, graph: Graph) -> int:
    """Return the width of the features that the model was made for, if it says so, as stock models do; else the graph's."""
    if graph.vertex_types is not None:
        return graph.vertex_types.width  # the model knows the width of each type
    if graph.groups is not None:
        return (
            graph.estimate().width or graph.statistics.width
        )  # the number of the group is one of the features, of which the model does not know
    if takes_labels(model):
        return graph.estimate().width or graph.statistics.width
    width = getattr(model, "in_channels", None)
    return width if isinstance(width, int) and width > 0 else graph.estimate().width or graph.statistics.width


def edge_data(graph: Graph) -> EdgeData:
    """Return the attributes and types that the graph's edges have.

    Rows of files are read only if their footers do not tell the number of attributes.
    """
    found = graph.estimate().edge_data
    return graph.statistics.edge_data if found.width == 0 else found


def edge_demands(spec: Spec) -> tuple[EdgeData, tuple[int, str] | None]:
    """Return the columns of edges that a model reads, and how many types it distinguishes, with the layer that does."""
    return data_read(spec), number_of_types(spec)


def traced(model: torch.nn.Module, width: int, graph: Graph, config: TrainerConfig | None = None) -> tuple[Spec, Spec]:
    """Return a model traced for a graph, in training and in evaluation mode.

    With settings, a model may take labels as input, and return what their loss reads beside the output.

    Raises:
        ModelError: If the model cannot be traced, or if its forward asks for a column that the graph lacks.
    """
    sizes, data = graph.estimate(), edge_data(graph)
    weighted = takes_tensors(model) and sizes.weighted
    given: dict[str, Any] = {"data": data, "weighted": weighted, "few": few_of(sizes.vertices, sizes.edges)}
    given |= {"types": graph.vertex_types, "vertices": vertices_of(model, graph), "groups": graph.groups}
    if config is not None and takes_labels(model):
        require_one_kind(graph)
        width += not sees_labels(graph)
        given["label_rate"] = config.label_rate
    if config is not None and (further := further_of(config.loss)):
        if graph.vertex_types is not None:
            raise ConfigurationError(
                f"loss asks for {', '.join(further)} beside the output, which a model of several types of vertices cannot return"
            )
        given["further"] = further
    return trace_modes(model, width, **given)


def takes_roots(spec: Spec) -> bool:
    """Return True if a layer normalises by roots of summed edge weights."""
    reads = [call.arguments[0] for call in spec.calls if call.op == "lotan.vertex_input"]
    return any(str(name).startswith("gcn_scale") for name in reads)


def check_statistics(train: Spec, vertices: int) -> None:
    """Check that there are enough vertices for the variances that the model takes over all of them.

    Raises:
        ModelError: If there is one vertex, whose variance torch's layers refuse in training as well. It names the layer.
    """
    layers = {call.layer: None for call in train.totals if call.arguments[1] in ("moments", "sample")}
    if layers and vertices < 2:
        names = ", ".join(repr(layer) if layer else "the model itself" for layer in layers)
        raise ModelError(
            f"layer {names}: normalises by the variance of all vertices, but the graph has {vertices}; training needs at least 2"
        )


def check_variances_of_types(train: Spec, graph: Graph) -> None:
    """Check that there are enough vertices of each type for the variances that the model takes over them.

    Raises:
        ModelError: If a type has one vertex. It names the layer and the type.
    """
    types = graph.vertex_types
    for number, layer in train.varied:
        if types is not None and graph.vertices_of_type(number) < 2:
            raise ModelError(
                f"layer {layer!r}: normalises by the variance of the vertices of type {types.names[number]!r}, of which the "
                "graph has 1; training needs at least 2"
            )


def model_outputs(spec: Spec) -> int:
    """Return the width of the model's output rows.

    Raises:
        ModelError: If the output is not one vector per vertex.
    """
    types = {call.output: call.type for call in spec.calls}
    output = types.get(spec.output)
    if output is None or output.rows != "vertex" or len(output.shape) != 1:
        found = "its input" if output is None else f"{output.rows} rows of shape {output.shape}"
        raise ModelError(f"the model returns {found}; expected one vector per vertex, of shape [num_vertices, outputs]")
    return output.shape[0] - width_of(spec.further)


def identity(job: Job, config: TrainerConfig) -> dict[str, str]:
    """Return what identifies a run. A checkpoint resumes only if all of it is the same.

    The whole graph is read once. The number of epochs is not included, since more may be added. Workers and addresses
    are not included either, since they change no number.
    """
    same = (
        "optimizer",
        "eval_every",
        "monitor",
        "patience",
        "seed",
        "partitions",
        "chunk_rows",
        "rgb",
        "propagate",
    )
    settings = {name: repr(getattr(config, name)) for name in same}
    # Settings that an earlier version did not have are left out where they are not used.
    if config.lr_scheduler is not None:
        settings["lr_scheduler"] = words_of(config.lr_scheduler)
    if config.clip_grad_norm is not None:
        settings["clip_grad_norm"] = repr(config.clip_grad_norm)
    if job.loss.thresholds is not None:
        settings["threshold"] = repr(job.loss.thresholds)
    if job.batch is not None:
        settings["regime"] = repr(config.regime)
        settings["order of vertices in a batch"] = f"{job.batch.plan.levels} levels"
        settings["chosen by cost for a batch"] = ", ".join(job.batch.choices)
    if config.tables is not None and config.asynchrony == "plain":
        settings["asynchrony"] = config.asynchrony
    if job.scores != SCORES:
        settings["scores at one time"] = f"{job.scores}, for the memory limit"
    if job.linked is not None:
        settings["links"] = f"{config.task!r} on {job.linked.links.digest}"
    if job.stored is not None:
        settings["links"] = f"{config.task!r} on {job.stored.summary.training:,} links {job.stored.summary.digest}"
        settings["storage"] = str(job.stored.division)
    if config.penalty is not None:
        settings["penalty"] = words_of(config.penalty)
    if job.loss.form is not None:
        settings["loss"] = _digest_of(job.loss.form)
    if job.loss.shown is not None:
        settings["label_rate"] = repr(job.loss.shown)
    if job.partitions is not None:
        settings["partitions"] = f"at least {job.partitions}, for the memory limit"
    return {
        **settings,
        "engine": job.engine.name,
        "plan": config.plan,
        "disable": ", ".join(sorted(config.disable)),
        "chosen by cost": ", ".join(job.planned.choices),
        "order of vertices": f"{job.plan.levels} levels from {job.plan.targets}",  # sums follow this order
        "task": job.loss.task,
        # Not the given value: a tensor prints rounded, and a list differs from a tuple.
        "class_weights": repr(job.loss.class_weights),
        "model": _digest(job.train) + _digest(job.evaluate),
        "graph": repr((job.statistics, job.graph.labels)),
        "contents of the graph": fingerprint(job.graph),
    }


def _digest_of(form: LossForm) -> str:
    """Return the words for a named loss, and a short digest of what a traced one computes."""
    calls = tuple(replace(call, where="") for call in form.calls)
    return f"traced {hashlib.sha256(repr(calls).encode()).hexdigest()[:16]}" if calls else str(form)


def _digest(spec: Spec) -> str:
    """Return a short digest of what a model computes, independent of line numbers in the user's files."""
    calls = tuple(replace(call, where="") for call in spec.calls)
    return hashlib.sha256(repr(replace(spec, calls=calls)).encode()).hexdigest()[:16]
