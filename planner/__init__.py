"""The Planner compiles a traced message-passing model into a physical plan. It imports neither torch nor Spark."""

from planner.compiler import Options, Planned, compile_plan
from planner.errors import PlanError
from planner.rules import RULES

__all__ = ["RULES", "Options", "PlanError", "Planned", "compile_plan"]
