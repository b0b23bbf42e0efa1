"""What a training run is to do, settled before its first epoch: graph checked, model traced, epoch planned, engine chosen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from lotan import cost_cache
from lotan.borders import spark_translated, translated
from lotan.engines.blocks.sizes import check_partitions
from lotan.engines.choice import ABILITIES, EngineChoice, choose_engine, idle_settings, limit_notes, slow_choice
from lotan.engines.opening import placed
from lotan.errors import GraphError, ModelError
from lotan.graph import Graph, fingerprint
from lotan.memory_limit import MemoryLimit, check_fits
from lotan.pricing import priced, spread_over
from lotan.settings import TrainerConfig
from lotan.tracing import trace
from lotan.validation import check_graph
from planner import Options, Planned, compile_plan
from planner.cost import PassCost, Pricing
from planner.footprint import Footprint
from planner.physical import Plan
from planner.spec import LossSpec, Spec
from planner.statistics import Statistics

Found = TypeVar("Found")

GUESSED_OUTPUTS = 64  # of a model for files whose labels nobody has read yet


@dataclass(frozen=True)
class Job:
    """A checked and planned training run."""

    graph: Graph
    train: Spec  # the model in training mode
    evaluate: Spec  # and in evaluation mode
    loss: LossSpec
    statistics: Statistics
    planned: Planned
    engine: EngineChoice
    warnings: tuple[str, ...] = ()  # what is legal in the graph or the settings, and may be a surprise
    partitions: int | None = None  # at least so many, by the memory limit's choice; None: as asked for, or as usual

    @property
    def plan(self) -> Plan:
        """What the engine runs."""
        return self.planned.plan

    def epoch(self, config: TrainerConfig) -> PassCost:
        """What the training pass of an epoch is estimated to take: of the usual one, where some evaluate and others do not."""
        return self.planned.cost(self.plan.training(config.eval_every == 1))

    def needs(self, config: TrainerConfig, plan: Plan | None = None) -> Footprint:
        """The memory that the plan is estimated to need, or that of a batch which the job is a part of."""
        partitions = self.partitions or config.partitions
        found = MemoryLimit.of(config).needs(self.engine.name, plan or self.plan, self.statistics, partitions)
        return replace(found, partitions=self.partitions)


@spark_translated(GraphError, "Spark cannot read the graph's tables")
def prepare(model: torch.nn.Module, graph: Graph, config: TrainerConfig, opened: ExitStack, models: int = 1) -> Job:
    """Trace, have Spark open the files that it shall read, check and plan.

    Args:
        model: to train.
        graph: to train it on.
        config: as asked for.
        opened: closes what the job stands on.
        models: like this one that may train together, for Spark's heap.

    Raises:
        GraphError: a graph that cannot be trained on.
        ModelError: a model that cannot be traced.
        PlanError: one that cannot be planned, or an unknown rule.
        ConfigurationError: the partitions that were asked for are too few for blocks.
    """
    width = model_width(model, graph)
    train, evaluate = trace(model, width, training=True), trace(model, width, training=False)
    expected = foreseen(train, evaluate, graph, config)
    graph = opened.enter_context(placed(graph, config, None if expected is None else expected.times(models)))
    outputs, task = model_outputs(evaluate), config.task or graph.labels.task
    report = check_graph(graph, task, outputs, width, normalised_weights=takes_roots(train))
    loss = graph.loss_spec(task, outputs, config.class_weights)
    engine, planned, needs = plan_for(train, evaluate, loss, graph, config)
    warnings = (*report.warnings, *slow_choice(engine, config), *idle_settings(engine.name, config, graph))
    warnings = (*warnings, *limit_notes(engine.name, config, graph))
    return Job(graph, train, evaluate, loss, graph.statistics, planned, engine, warnings, needs.partitions)


@translated()
def plan_for(
    train: Spec,
    evaluate: Spec,
    loss: LossSpec,
    graph: Graph,
    config: TrainerConfig,
    statistics: Statistics | None = None,
) -> tuple[EngineChoice, Planned, Footprint]:
    """Choose the engine, plan for it and say what memory that needs. The choice rests on estimates for those in question.

    Args:
        train: the model in training mode.
        evaluate: and in evaluation mode.
        loss: what is minimised.
        graph: to train on.
        config: what was asked for.
        statistics: of the graph; None: its own.

    Raises:
        PlanError: a model that cannot be planned, or an unknown rule.
        ConfigurationError: the partitions that were asked for are too few for blocks, or the memory limit is.
    """
    known, master = cost_cache.load(), session_master(graph, config)
    prices = {name: priced(name, config, known, master) for name in ABILITIES}
    statistics = statistics or _statistics(graph, prices["blocks"])
    limit = MemoryLimit.of(config)
    options = Options(config.plan, tuple(config.disable), config.rgb, config.eval_every, memory_limit=limit.bytes)

    def plan(engine: str) -> Planned:
        priced_so = replace(options, engine=engine, abilities=ABILITIES[engine], pricing=prices[engine])
        for known in plans.values():  # what plans of one model have in common is made once
            return known.with_options(priced_so)
        return compile_plan(train, evaluate, loss, statistics, priced_so)

    plans = _OnDemand(plan)
    needs = _OnDemand(lambda engine: limit.needs(engine, plans[engine].plan, statistics, config.partitions))
    seconds = _OnDemand(lambda engine: plans[engine].seconds)
    engine = choose_engine(config, graph, needs, seconds)
    if limit.bytes is not None:
        check_fits(limit, engine.name, {name: needs[name] for name in ABILITIES})
    found, needed = plans[engine.name], needs[engine.name]
    memory, pricing = limit.described(needed), spread_over(found.options.pricing, needed)
    partitions = [f"{needed.partitions} partitions, for the memory limit"] * (needed.partitions is not None)
    choices = (*[f"{engine.name}, for speed"] * engine.for_speed, *partitions)
    said = {"engine_reason": engine.reason, "memory": memory, "peak_bytes": limit.peak(needed), "choices": choices}
    planned = found.described(pricing=pricing, **said)
    if engine.name == "blocks" and config.partitions is not None:
        check_partitions(config.partitions, planned.plan, statistics)
    return engine, planned, needed


class _OnDemand(dict[str, Found]):
    """What there is of each engine, found once somebody asks: a plan for each would take most of the time, for nothing."""

    def __init__(self, find: Callable[[str], Found]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, engine: str) -> Found:
        self[engine] = self._find(engine)
        return self[engine]


def session_master(graph: Graph, config: TrainerConfig) -> str | None:
    """Where Spark runs what it has of a graph; nobody asks where the graph is collected, which any Spark session can do."""
    if graph.origin != "spark" or config.engine == "local":
        return None
    return graph.tables()[0].sparkSession.sparkContext.master


def _statistics(graph: Graph, on_blocks: Pricing) -> Statistics:
    """Of a graph; with its degrees where they decide how much a shuffle moves, or a graph in memory has them anyway."""
    found = graph.statistics
    return replace(found, profile=graph.profile) if on_blocks.layout.shuffled and found.profile is None else found


def foreseen(train: Spec, evaluate: Spec, graph: Graph, config: TrainerConfig) -> Footprint | None:
    """What files are estimated to need, before a row of them is read; None for a graph elsewhere.

    Raises:
        ConfigurationError: more than the memory limit.
    """
    if graph.origin != "files" or (config.engine == "local" and config.memory_limit is None):
        return None
    statistics = graph.estimate()
    loss = LossSpec("classification", model_outputs(evaluate), normalizer=1.0)  # which one takes no other memory
    return plan_for(train, evaluate, loss, graph, config, statistics)[-1]


def foreseen_of(model: torch.nn.Module, graph: Graph, config: TrainerConfig) -> Footprint | None:
    """As `foreseen`, of a model of which only the shapes matter."""
    if graph.origin != "files":
        return None
    width = model_width(model, graph)
    return foreseen(trace(model, width, training=True), trace(model, width, training=False), graph, config)


def model_width(model: torch.nn.Module, graph: Graph) -> int:
    """Width of the features a model was made for, where it says so, as stock models do; else the graph's."""
    width = getattr(model, "in_channels", None)
    return width if isinstance(width, int) and width > 0 else graph.estimate().width or graph.statistics.width


def takes_roots(spec: Spec) -> bool:
    """Whether a layer normalises by roots of summed edge weights."""
    reads = [call.arguments[0] for call in spec.calls if call.op == "lotan.vertex_input"]
    return any(str(name).startswith("gcn_scale") for name in reads)


def model_outputs(spec: Spec) -> int:
    """Width of the model's output rows.

    Raises:
        ModelError: if the output is not one vector per vertex.
    """
    types = {call.output: call.type for call in spec.calls}
    output = types.get(spec.output)
    if output is None or output.rows != "vertex" or len(output.shape) != 1:
        found = "its input" if output is None else f"{output.rows} rows of shape {output.shape}"
        raise ModelError(f"the model returns {found}; expected one vector per vertex, of shape [num_vertices, outputs]")
    return output.shape[0]


def identity(job: Job, config: TrainerConfig) -> dict[str, str]:
    """What makes a run this run and no other: a checkpoint resumes only where all of it is the same.

    Reads all of the graph once. The number of epochs is not part of it (more may be added), nor are workers and addresses
    (they change no number).
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
    if job.partitions is not None:
        settings["partitions"] = f"at least {job.partitions}, for the memory limit"
    return {
        **settings,
        "engine": job.engine.name,
        "plan": config.plan,
        "disable": ", ".join(sorted(config.disable)),
        "chosen by cost": ", ".join(job.planned.choices),
        "order of vertices": f"{job.plan.levels} levels from {job.plan.targets}",  # which sums follow
        "task": job.loss.task,
        # Not as given: a tensor prints rounded, and a list is no tuple.
        "class_weights": repr(job.loss.class_weights),
        "model": _digest(job.train) + _digest(job.evaluate),
        "graph": repr((job.statistics, job.graph.labels)),
        "contents of the graph": fingerprint(job.graph),
    }


def _digest(spec: Spec) -> str:
    """A short digest of what a model computes, wherever its lines stand in the user's files."""
    calls = tuple(replace(call, where="") for call in spec.calls)
    return hashlib.sha256(repr(replace(spec, calls=calls)).encode()).hexdigest()[:16]
