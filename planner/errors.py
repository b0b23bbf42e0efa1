"""The planner's errors."""

from __future__ import annotations


class PlanError(ValueError):
    """A model or option that cannot be planned; says which and what to do."""
