"""The pricing of a run: its engine's rates on this machine, and the way its work would be divided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lotan.memory.limit import MemoryLimit, is_one_jvm
from lotan.planning.cost_cache import Known
from planner.cost.seconds import Pricing
from planner.footprint import Footprint
from planner.traits import EngineTraits

if TYPE_CHECKING:
    from lotan.settings.config import TrainerConfig


def priced(
    traits: EngineTraits, config: TrainerConfig, known: Known, master: str | None = None, rows_in_spark: bool = False
) -> Pricing:
    """Return the pricing that turns a plan for an engine into seconds.

    Args:
        traits: The traits of the engine that would run it.
        config: The settings of the run.
        known: The known costs of this machine.
        master: The master of the active Spark session; None: the configured master.
        rows_in_spark: True if learned rows lie in Spark on blocks.
    """
    limit = MemoryLimit.of(config, rows_in_spark)
    spread = replace(
        limit.layout(traits, config.partitions),
        saved=limit.saved if limit.shares is None else limit.shares.saved,
        shuffled=not is_one_jvm(master or config.master or "local"),
    )
    name = traits.name
    return Pricing(traits, spread, known.rates.get(name), known.corrections(name), len(known.runs.get(name, ())))


def spread_over(pricing: Pricing, needs: Footprint, limit: int | None = None, storage: int | None = None) -> Pricing:
    """Return the pricing with what memory requires: the spread over partitions, and columns in files or on Spark's disk.

    Args:
        pricing: The pricing of an engine.
        needs: The footprint of the plan there.
        limit: The memory limit; None: there is none, or it does not decide where columns lie.
        storage: The bytes of columns for which Spark has room; None: not known, or not on Spark.
    """
    partitions, within = needs.partitions or pricing.layout.partitions, limit if needs.spills(limit) else None
    spread = replace(pricing.layout, partitions=partitions, in_turn=needs.in_turn, within=within)
    if not pricing.traits.spills:  # otherwise, what Spark's own operators write is part of the rates
        spread = replace(spread, storage=storage)
    return replace(pricing, layout=spread)
