"""Sample traits of engines and what they cost, so that tests of the planner need none of the engines themselves."""

from __future__ import annotations

from dataclasses import replace

from planner.cost.seconds import Pricing
from planner.rates import DEFAULT_RATES
from planner.spec import Ability
from planner.traits import ONE_PROCESS, EngineTraits

_ON_SPARK = EngineTraits("rows", in_process=False, chunking="partitions", memory="workers")

LOCAL = replace(ONE_PROCESS, abilities=("edge_columns", "edge_data", "extremes", "learned_rows", "sparse_rows"))
ROWS = replace(
    _ON_SPARK,
    widest_total=4096,
    abilities=("edge_data",),
    spills=True,
    python_tasks=True,
    rates=DEFAULT_RATES["rows"],
)
BLOCKS = replace(
    _ON_SPARK,
    name="blocks",
    abilities=("edge_columns", "edge_data", "extremes", "learned_rows"),
    more_partitions_fit=True,
    counts_shuffles=True,
    needs_rgb=True,
    rates=DEFAULT_RATES["blocks"],
)
SAMPLES = {traits.name: traits for traits in (LOCAL, ROWS, BLOCKS)}

ON_BLOCKS = Pricing(replace(BLOCKS, abilities=()))
"""The prices of an engine on Spark that can do no more than any."""


def able(*abilities: Ability) -> Pricing:
    """The prices of an engine that is one process and has these abilities."""
    return Pricing(replace(ONE_PROCESS, abilities=abilities))


ON_EDGES = able("edge_columns", "extremes")
