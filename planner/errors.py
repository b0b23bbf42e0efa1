"""The errors that the planner raises."""

from __future__ import annotations


class PlanError(ValueError):
    """An error about a model or an option that cannot be planned. Its text says which, and what to do."""
