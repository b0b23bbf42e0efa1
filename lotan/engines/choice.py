"""Which engine to use, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lotan.free_memory import free_memory
from lotan.memory_limit import MemoryLimit, heap_notes
from planner.choices.choose_physical import RULE, Candidate, choose_physical
from planner.explain import duration, size
from planner.footprint import Footprint, reading_bytes
from planner.shares import DRIVER_BYTES
from planner.spec import Ability
from planner.statistics import Statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lotan.graph import Graph
    from lotan.settings import TrainerConfig

MEMORY_SHARE = 0.7  # of the memory now free; the rest is for what the estimate leaves out
SPARK_SECONDS = (
    15.0  # that Spark and workers take to start, and a graph to be laid out there: epochs have to make up for it
)

ABILITIES: Mapping[str, tuple[Ability, ...]] = {
    "local": ("edge_columns", "extremes", "sparse_rows"),
    "rows": (),
    "blocks": ("edge_columns", "extremes"),
}
"""What each engine can beyond sums of rows and collecting; the Planner makes a plan for what there is."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine by name, and the reason in words, for explain."""

    name: str
    reason: str
    for_speed: bool = False  # whether estimated seconds decided


def idle_settings(engine: str, config: TrainerConfig, graph: Graph) -> tuple[str, ...]:
    """A line for each setting that was given and changes nothing: not on this engine, or not for this graph."""
    if engine == "local":
        nothing = ("workers", "partitions", "router", "keys", "master", "worker_memory")
        unset = dict.fromkeys(nothing) | {"propagate": "join"}
        given = [name for name, value in unset.items() if getattr(config, name) != value]
        mend = "leave them out, or ask for engine blocks or rows"
        change = "change" if len(given) > 1 else "changes"
        return (f"settings: {', '.join(given)} {change} nothing on the local engine; {mend}",) if given else ()
    if engine == "blocks" and config.propagate != "join":
        return (f"settings: propagate {config.propagate} changes nothing on the blocks engine; ask for engine rows",)
    if config.master is not None and graph.origin == "spark":
        running = graph.tables()[0].sparkSession.sparkContext.master
        if running != config.master:
            return (f"settings: master {config.master} changes nothing, as the graph lives in Spark on {running}",)
    return ()


def slow_choice(engine: EngineChoice, config: TrainerConfig) -> tuple[str, ...]:
    """A line where nobody asked for rows, nor for what only rows can, and blocks cannot run: an epoch takes longer there."""
    if (config.engine, engine.name, config.rgb, config.propagate) != ("auto", "rows", True, "join"):
        return ()
    return (f"engine: rows, which take longer than blocks: {engine.reason}",)


def fits_in_memory(statistics: Statistics, limit: int | None = None) -> bool:
    """Whether a graph in files can be read into this process at all; decided from the files' footers, before a row is.

    Args:
        statistics: of the graph.
        limit: bytes of the whole job; None: what is free.
    """
    free = MEMORY_SHARE * free_memory()
    return reading_bytes(statistics) <= (free if limit is None else min(free, limit - DRIVER_BYTES))


def choose_engine(
    config: TrainerConfig, graph: Graph, needs: Mapping[str, Footprint], seconds: Mapping[str, float]
) -> EngineChoice:
    """What "auto" means for this graph.

    One that is in Spark stays there: blocks, or rows where the session lacks the jar. Any other is local's, unless that does
    not fit in memory, or all epochs together are estimated to take over 15 s less on blocks.

    Args:
        config: asks for an engine, and for what not every engine has.
        graph: to train on.
        needs: estimated memory of each engine.
        seconds: estimated for an epoch on each.
    """
    if config.engine != "auto":
        return EngineChoice(config.engine, "asked for")
    limit = MemoryLimit.of(config).bytes
    if graph.origin == "spark":
        return _on_spark("the graph is in Spark", config, graph.tables()[0].sparkSession, needs, seconds)
    local, free = needs["local"], free_memory()
    if limit is not None and local.least > limit:
        reason = f"the memory limit is {size(limit)}, and local needs about {size(local.least)}"
        return _on_spark(reason, config, None, needs, seconds)
    needed = local.peak - DRIVER_BYTES  # this process runs already
    comparison = f"about {size(needed)} needed on top of this process, {size(free)} free"
    if needed > MEMORY_SHARE * free:
        return _on_spark(f"training does not fit in memory: {comparison}", config, None, needs, seconds)
    estimates = f"{duration(seconds['local'])} estimated for an epoch, on blocks {duration(seconds['blocks'])}"
    candidates = [Candidate(engine, config.epochs * seconds[engine]) for engine in ("local", "blocks")]
    faster = RULE.name not in config.disable and choose_physical(candidates, SPARK_SECONDS).what == "blocks"
    if faster and _obstacle(config, None, needs) is None:
        return EngineChoice("blocks", f"on local, {estimates}", for_speed=True)
    return EngineChoice("local", f"the graph is in memory and training fits there: {comparison}; {estimates}")


def _on_spark(
    reason: str,
    config: TrainerConfig,
    spark: SparkSession | None,
    needs: Mapping[str, Footprint],
    seconds: Mapping[str, float],
) -> EngineChoice:
    """Blocks, else rows and what keeps blocks from it; without a session, as one of our own would have it."""
    found = _obstacle(config, spark, needs)
    name = "blocks" if found is None else "rows"
    because = reason if found is None else f"{reason}; not blocks, for {found}"
    return EngineChoice(name, f"{because}; {duration(seconds[name])} estimated for an epoch")


def _obstacle(config: TrainerConfig, spark: SparkSession | None, needs: Mapping[str, Footprint]) -> str | None:
    from lotan.engines.blocks.obstacles import obstacle

    found, limit = obstacle(config, spark), MemoryLimit.of(config).bytes
    if found is None and limit is not None and needs["rows"].least <= limit < needs["blocks"].least:
        return f"the memory limit is {size(limit)}, and they need at least {size(needs['blocks'].least)}"
    return found


def limit_notes(engine: str, config: TrainerConfig, graph: Graph) -> tuple[str, ...]:
    """What a memory limit cannot do here, where a Spark session is there before.

    Raises:
        ConfigurationError: the heap of the Spark session that is there leaves too little of the limit.
    """
    if engine == "local" or config.memory_limit is None:
        return ()
    from lotan.spark_session import active_session

    spark = graph.tables()[0].sparkSession if graph.origin == "spark" else active_session()
    return () if spark is None else heap_notes(MemoryLimit.of(config), spark)
