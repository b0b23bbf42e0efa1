"""Estimates the seconds that a plan's steps take on an engine: counted work times measured rates.

`counting`, `stages` and `shuffles` count the work of a step, and `planner.rates` has the seconds of a unit of work.
`seconds` adds them up, and lets work overlap that runs side by side. Together they stand for equations 13 to 17 of the
paper, with separate terms for the parts of a plan.
"""

from planner.cost.counting import step_work
from planner.cost.seconds import (
    PASS,
    Corrections,
    PassCost,
    Pricing,
    StepCost,
    epoch_seconds,
    pass_seconds,
    work_seconds,
)
from planner.rates import DEFAULT_RATES, GUESSES, Rates
from planner.work import GROUPS, UNITS, Work, total

__all__ = [
    "DEFAULT_RATES",
    "GROUPS",
    "GUESSES",
    "PASS",
    "UNITS",
    "Corrections",
    "PassCost",
    "Pricing",
    "Rates",
    "StepCost",
    "Work",
    "epoch_seconds",
    "pass_seconds",
    "step_work",
    "total",
    "work_seconds",
]
