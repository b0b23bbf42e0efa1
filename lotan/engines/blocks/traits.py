"""The traits of the blocks engine: what the planner knows of it."""

from planner.rates import DEFAULT_RATES
from planner.traits import EngineTraits

TRAITS = EngineTraits(
    name="blocks",
    abilities=("edge_columns", "edge_data", "extremes", "learned_rows"),
    in_process=False,
    chunking="partitions",
    memory="workers",
    more_partitions_fit=True,  # a task holds whole blocks of its partition
    counts_shuffles=True,
    needs_rgb=True,
    rates=DEFAULT_RATES["blocks"],
)
