"""The choice of an engine, with its reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lotan.borders import spark_translated
from lotan.engines.blocks import traits as blocks
from lotan.engines.local import traits as local
from lotan.engines.rows import traits as rows
from lotan.errors import ConfigurationError, GraphError
from lotan.memory.free import free_memory
from lotan.memory.limit import MemoryLimit, heap_notes
from lotan.settings.config import PLANS
from lotan.settings.regimes import MiniBatch
from planner import Planned
from planner.choices.choose_physical import RULE, Candidate, choose_physical
from planner.edge_columns import data_read, reads_edge_columns
from planner.explain.sizes import duration, memory
from planner.footprint import Footprint
from planner.local_memory import reading_bytes
from planner.shares import DRIVER_BYTES, fixed_bytes
from planner.spec import Spec
from planner.statistics import Statistics
from planner.steps.total import TotalStep
from planner.traits import EngineTraits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lotan.graph.graph import Graph
    from lotan.settings.config import TrainerConfig

MEMORY_SHARE = 0.7  # share of the free memory; the rest is for what the estimate leaves out
SPARK_SECONDS = 15.0  # seconds to start Spark and workers and to load a graph there, which epochs must make up for

CONNECT = (
    "For engines on Spark, start a session without Connect: SparkSession.builder.master(...), in place of remote(...)"
)

ENGINES: Mapping[str, EngineTraits] = {one.name: one for one in (local.TRAITS, rows.TRAITS, blocks.TRAITS)}
"""Every engine by its name. The Planner makes plans that suit the engine's traits."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine by name, and the reason in words, for explain."""

    name: str
    reason: str
    for_speed: bool = False  # True if estimated seconds decided
    free_bytes: int | None = None  # free memory in bytes, if it decided


def idle_settings(engine: str, config: TrainerConfig, graph: Graph) -> tuple[str, ...]:
    """Return a line for each given setting that changes nothing on this engine or for this graph."""
    if ENGINES[engine].in_process:
        nothing = ("workers", "partitions", "router", "keys", "master", "worker_memory", "worker_rows")
        unset = dict.fromkeys(nothing) | {"propagate": "join"}
        given = [name for name, value in unset.items() if getattr(config, name) != value]
        mend = "leave them out, or ask for engine blocks or rows"
        change = "change" if len(given) > 1 else "changes"
        return (f"settings: {', '.join(given)} {change} nothing on the local engine; {mend}",) if given else ()
    if config.worker_rows is not None and not (engine == "blocks" and isinstance(config.regime, MiniBatch)):
        return ("settings: worker_rows changes nothing without mini-batches on the blocks engine; leave it out",)
    if engine == "blocks" and config.propagate != "join":
        return (f"settings: propagate {config.propagate} changes nothing on the blocks engine; ask for engine rows",)
    if config.master is not None and graph.origin == "spark":
        running = graph.tables()[0].sparkSession.sparkContext.master
        if running != config.master:
            return (f"settings: master {config.master} changes nothing, as the graph lives in Spark on {running}",)
    return ()


def slow_choice(engine: EngineChoice, config: TrainerConfig) -> tuple[str, ...]:
    """Return a warning if blocks cannot run and rows, which are slower, were not asked for."""
    if (config.engine, engine.name, config.rgb, config.propagate) != ("auto", "rows", True, "join"):
        return ()
    return (f"engine: rows, which is slower than blocks: {engine.reason}",)


def fits_in_memory(statistics: Statistics, limit: int | None = None) -> bool:
    """Return True if a graph in files can be read into this process. Only the files' footers are read for it.

    Args:
        statistics: The sizes of the graph.
        limit: The byte limit of the whole job; None: the free memory.
    """
    free = MEMORY_SHARE * free_memory()
    if limit is None:  # then it is not read part by part into a file
        return reading_bytes(replace(statistics, in_files=False)) <= free
    return reading_bytes(statistics) <= min(free, limit - DRIVER_BYTES)


@spark_translated(GraphError, "Spark cannot read the graph's tables")
def settled_for(config: TrainerConfig, graph: Graph) -> TrainerConfig:
    """Return the settings that take effect for a graph.

    Mini-batches and links run on local, which reads the graph into this process. If it does not fit there and no engine was
    asked for, they run on blocks, unless Spark lacks what these need.

    Raises:
        ConfigurationError: If the settings contradict each other, see `TrainerConfig.settled`.
        GraphError: If the sizes of the graph cannot be read.
    """
    settled, regime = config.settled(), config.regime
    chosen = config.engine == "auto" and config.plan in PLANS and settled.engine == "local"
    limit = MemoryLimit.of(config)
    too_low = limit.bytes is not None and limit.bytes < fixed_bytes(limit.crew)  # for blocks, whatever the graph
    if not chosen or regime.is_stored or graph.on_connect or too_low or _fits(graph, settled):
        return settled
    from lotan.engines.blocks.obstacles import obstacle

    on_blocks = replace(settled, engine="blocks")
    spark = graph.tables()[0].sparkSession if graph.origin == "spark" else None
    return on_blocks if obstacle(on_blocks, spark) is None else settled


def _fits(graph: Graph, config: TrainerConfig) -> bool:
    """Return True if this process holds a graph, or can read it from where it is."""
    return graph.origin == "memory" or fits_in_memory(graph.estimate(), MemoryLimit.of(config).bytes)


def choose_engine(
    config: TrainerConfig,
    graph: Graph,
    needs: Mapping[str, Footprint],
    seconds: Mapping[str, float],
    unable: Callable[[str], str | None] = lambda engine: None,
    able: Collection[str] = tuple(ENGINES),
) -> EngineChoice:
    """Return the engine for a graph, which "auto" leaves to this function.

    A graph in Spark stays there: on blocks, or on rows if the session lacks the jar. Any other graph is trained on
    local, unless it does not fit in memory, or all epochs together are estimated to take over 15 s less on blocks. A model
    for which rows lack an ability runs on local wherever rows would be chosen.

    Args:
        config: The settings, which may name an engine or need an ability of one.
        graph: The graph to train on.
        needs: The estimated memory on each engine.
        seconds: The estimated seconds of an epoch on each engine.
        unable: A function of an engine's name that returns the reason why it cannot run the model, or None.
        able: The names of the engines that have the abilities that the model needs.
    """
    if isinstance(config.regime, MiniBatch) and config.engine == "local":
        return EngineChoice(config.engine, "mini-batches run on it")
    if config.engine != "auto":
        if config.engine == "blocks" and config.reads_graph_here and not _fits(graph, config):
            return EngineChoice("blocks", "the graph does not fit into this process, where local would read it")
        return EngineChoice(config.engine, "asked for")
    limit, other = MemoryLimit.of(config).bytes, "rows" if "rows" in able else "local"

    def on_spark(reason: str, spark: SparkSession | None = None) -> EngineChoice:
        return _on_spark(reason, config, spark, needs, seconds, unable, other)

    if graph.on_connect:
        return _on_connect(needs["local"], limit)
    if graph.origin == "spark":
        return on_spark("the graph is in Spark", graph.tables()[0].sparkSession)
    here, free = needs["local"], free_memory()
    if limit is not None and (here.least > limit or here.spills(limit)):
        reason = f"the memory limit is {memory(limit)}, and local needs about {memory(here.in_memory or here.least)}"
        if here.least <= limit < min(needs[name].least for name in able if name != "local"):
            return EngineChoice("local", f"{reason}, unless its columns lie in files; engines on Spark need more")
        if here.least <= limit and needs["blocks"].in_turn:
            slower = "blocks would read partitions one at a time, which is slower"
            return EngineChoice("local", f"{reason}, unless its columns lie in files; {slower}")
        return on_spark(reason)
    needed = here.peak - DRIVER_BYTES  # this process is running already
    # Free memory changes from one second to the next: printed, it would make two plans of one model look different.
    comparison = f"about {memory(needed)} needed on top of this process"
    if needed > MEMORY_SHARE * free:
        reason = f"training does not fit in memory: {comparison}"
        return replace(on_spark(reason), free_bytes=free)
    of_local, of_blocks = (duration(seconds[engine]) for engine in ("local", "blocks"))
    estimates = f"{of_local} estimated for an epoch with its evaluation, on blocks {of_blocks}"
    candidates = [Candidate(engine, config.epochs * seconds[engine]) for engine in ("local", "blocks")]
    faster = RULE.name not in config.disable and choose_physical(candidates, SPARK_SECONDS).what == "blocks"
    if faster and _obstacle(config, None, needs, unable, other) is None:
        return EngineChoice("blocks", f"on local, {estimates}", for_speed=True, free_bytes=free)
    reason = f"the graph is in memory and training fits there: {comparison}; {estimates}"
    return EngineChoice("local", reason, free_bytes=free)


def _on_connect(here: Footprint, limit: int | None) -> EngineChoice:
    """Return the local engine, to which the graph is collected.

    Raises:
        ConfigurationError: If training does not fit in the memory of this process.
    """
    free = free_memory()
    fits = here.peak - DRIVER_BYTES <= MEMORY_SHARE * free if limit is None else here.least <= limit
    if not fits:
        raise ConfigurationError(
            f"the graph is in Spark Connect, where only engine local trains, and training does not fit in memory: it needs "
            f"about {memory(here.peak)}. {CONNECT}"
        )
    return EngineChoice("local", "the graph is in Spark Connect, where no other engine runs", free_bytes=free)


def check_connect(engine: str, graph: Graph | None) -> None:
    """Check that an engine that was asked for runs where the graph is.

    Raises:
        ConfigurationError: If the graph is in Spark Connect, and the engine runs in Spark.
    """
    if engine in ENGINES and not ENGINES[engine].in_process and graph is not None and graph.on_connect:
        raise ConfigurationError(
            f"engine {engine} needs Spark's own process, and this graph is in Spark Connect; use engine='local', which "
            f"collects it. {CONNECT}"
        )


def _on_spark(
    reason: str,
    config: TrainerConfig,
    spark: SparkSession | None,
    needs: Mapping[str, Footprint],
    seconds: Mapping[str, float],
    unable: Callable[[str], str | None],
    other: str,
) -> EngineChoice:
    """Choose blocks, or else another engine with the reason against blocks. Without a session, one of our own is assumed."""
    found = _obstacle(config, spark, needs, unable, other)
    name = "blocks" if found is None else other
    because = reason if found is None else f"{reason}; not blocks, because {found}"
    if name == "local":
        because += "; not rows, which have no learned rows"
    return EngineChoice(name, f"{because}; {duration(seconds[name])} estimated for an epoch with its evaluation")


def _obstacle(
    config: TrainerConfig,
    spark: SparkSession | None,
    needs: Mapping[str, Footprint],
    unable: Callable[[str], str | None],
    other: str,
) -> str | None:
    from lotan.engines.blocks.obstacles import obstacle

    found, limit = obstacle(config, spark) or unable("blocks"), MemoryLimit.of(config).bytes
    if found is None and limit is not None and needs[other].least <= limit < needs["blocks"].least:
        return f"the memory limit is {memory(limit)}, and they need at least {memory(needs['blocks'].least)}"
    return found


def check_edge_data(choice: EngineChoice, spec: Spec) -> None:
    """Check that an engine can give stages the columns of edges that a model reads.

    Raises:
        ConfigurationError: If it cannot.
    """
    if not reads_edge_columns(spec) or "edge_data" in ENGINES[choice.name].abilities:
        return
    reads = data_read(spec)
    names = " and ".join([*["edge_attr"] * (reads.width is not None), *["edge_type"] * reads.typed])
    names = names or "which edges are self-loops"
    able = " or ".join(name for name, traits in ENGINES.items() if "edge_data" in traits.abilities)
    why = "" if choice.reason == "asked for" else f" ({choice.name} was chosen because {choice.reason})"
    raise ConfigurationError(
        f"engine {choice.name} brings no columns of edges to the stages, but the model reads {names}; use engine {able}{why}"
    )


def lacks_room(engine: str, planned: Planned) -> str | None:
    """Return the reason why an engine cannot run a plan that has a wide reduction over all vertices, or None if it can."""
    most = ENGINES[engine].widest_total
    steps = (step for steps in planned.plan.passes for step in steps)
    widest = max((step.output.width for step in steps if isinstance(step, TotalStep)), default=0)
    if most is None or widest <= most:
        return None
    return (
        f"each vertex has a copy of what is reduced over all vertices, of at most {most:,} numbers, and here it has "
        f"{widest:,}, such as the groups of vertices times the width of a row"
    )


def check_able(choice: EngineChoice, planned: Planned) -> None:
    """Check that an engine can run a plan.

    Raises:
        ConfigurationError: If it cannot.
    """
    reason = lacks_room(choice.name, planned)
    if reason is not None:
        able = " or ".join(name for name, traits in ENGINES.items() if traits.widest_total is None)
        raise ConfigurationError(f"engine {choice.name} cannot train this model: {reason}; use engine {able}")


def limit_notes(engine: str, config: TrainerConfig, graph: Graph) -> tuple[str, ...]:
    """Return warnings about what a memory limit cannot change in a Spark session that was started before.

    Raises:
        ConfigurationError: If the heap of that session leaves too little of the limit.
    """
    if ENGINES[engine].in_process or config.memory_limit is None:
        return ()
    from lotan.hosts.spark_session import active_session

    spark = graph.tables()[0].sparkSession if graph.origin == "spark" else active_session()
    return () if spark is None else heap_notes(MemoryLimit.of(config), spark)
