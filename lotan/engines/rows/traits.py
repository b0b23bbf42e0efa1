"""The traits of the rows engine: what the planner knows of it."""

from planner.rates import DEFAULT_RATES
from planner.traits import EngineTraits

TRAITS = EngineTraits(
    name="rows",
    abilities=("edge_data",),
    in_process=False,
    chunking="partitions",
    memory="workers",
    spills=True,  # Spark's joins and groups
    widest_total=4096,  # each vertex has a copy of the row
    python_tasks=True,  # which pipe rows to the workers
    rates=DEFAULT_RATES["rows"],
)
