"""From a traced message-passing model to a physical plan. Knows neither torch nor Spark."""

from planner.compiler import Planned, compile_plan, compile_until
from planner.errors import PlanError
from planner.options import Options
from planner.rules import RULE_NAMES, RULES

__all__ = ["RULES", "RULE_NAMES", "Options", "PlanError", "Planned", "compile_plan", "compile_until"]
