"""Which engine to use, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from planner.estimate import peak_bytes_local
from planner.explain import size
from planner.physical import Plan
from planner.spec import Ability, Statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lotan.graph import Graph
    from lotan.settings import TrainerConfig

MEMORY_SHARE = 0.7  # of the memory now free; the rest is for what the estimate leaves out
FEATURE_COPIES = 3  # of the features at once: as read, as arrays, and what a first layer makes of them
EDGE_BYTES = 48  # of an edge at once: ids as read, positions, and both directions of the sparse matrix


ABILITIES: Mapping[str, tuple[Ability, ...]] = {
    "local": ("edge_columns", "extremes"),
    "rows": (),
    "blocks": ("edge_columns", "extremes"),
}
"""What each engine can beyond sums of rows and collecting; the Planner makes a plan for what there is."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine by name, and the reason in words, for explain."""

    name: str
    reason: str


def idle_settings(engine: str, config: TrainerConfig, graph: Graph) -> tuple[str, ...]:
    """A line for each setting that was given and changes nothing: not on this engine, or not for this graph."""
    if engine == "local":
        unset = {"workers": None, "partitions": None, "router": None, "keys": None, "master": None, "propagate": "join"}
        given = [name for name, value in unset.items() if getattr(config, name) != value]
        mend = "leave them out, or ask for engine blocks or rows"
        return (f"settings: {', '.join(given)} change nothing on the local engine; {mend}",) if given else ()
    if engine == "blocks" and config.propagate != "join":
        return (f"settings: propagate {config.propagate} changes nothing on the blocks engine; ask for engine rows",)
    if config.master is not None and graph.origin == "spark":
        running = graph.tables()[0].sparkSession.sparkContext.master
        if running != config.master:
            return (f"settings: master {config.master} changes nothing, as the graph lives in Spark on {running}",)
    return ()


def fits_in_memory(statistics: Statistics) -> bool:
    """Whether a graph in files can be read into this process at all; decided from the files' footers, before a row is."""
    features = FEATURE_COPIES * 4 * statistics.vertices * statistics.width
    return features + EDGE_BYTES * statistics.edges <= MEMORY_SHARE * psutil.virtual_memory().available


def choose_engine(config: TrainerConfig, graph: Graph, plan: Plan) -> EngineChoice:
    """What "auto" means for this graph: local if it is not in Spark and the estimated memory fits, else blocks if they can.

    Args:
        config: asks for an engine, and for what not every engine has.
        graph: to train on.
        plan: for the local engine; its memory is estimated.
    """
    if config.engine != "auto":
        return EngineChoice(config.engine, "asked for")
    if graph.origin == "spark":
        return _on_spark("the graph is in Spark", config, graph.tables()[0].sparkSession)
    needed, free = peak_bytes_local(plan, graph.statistics), psutil.virtual_memory().available
    comparison = f"about {size(needed)} needed, {size(free)} free"
    if needed <= MEMORY_SHARE * free:
        return EngineChoice("local", f"the graph is in memory and training fits there: {comparison}")
    return _on_spark(f"training does not fit in memory: {comparison}", config, None)


def _on_spark(reason: str, config: TrainerConfig, spark: SparkSession | None) -> EngineChoice:
    """Blocks, else rows and what keeps blocks from it; without a session, as one of our own would have it."""
    from lotan.engines.blocks.obstacles import obstacle

    found = obstacle(config, spark)
    if found is None:
        return EngineChoice("blocks", reason)
    return EngineChoice("rows", f"{reason}; not blocks, for {found}")
