"""The Planner compiles a traced message-passing model into a physical plan. It imports neither torch nor Spark."""

from planner.compiler import Planned, compile_plan, compile_until
from planner.errors import PlanError
from planner.options import Options
from planner.rules import RULE_NAMES, RULES

__all__ = ["RULES", "RULE_NAMES", "Options", "PlanError", "Planned", "compile_plan", "compile_until"]
