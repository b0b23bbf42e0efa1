"""The traits of the local engine: what the planner knows of it."""

from planner.rates import DEFAULT_RATES
from planner.traits import EngineTraits

TRAITS = EngineTraits(
    name="local",
    abilities=("edge_columns", "edge_data", "extremes", "learned_rows", "sparse_rows"),
    rates=DEFAULT_RATES["local"],
)
