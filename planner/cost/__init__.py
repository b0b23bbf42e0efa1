"""Seconds that a plan's steps take on an engine: counted work times rates that were measured.

`counting`, `stages` and `shuffles` count what a step does, `rates` says what a unit of it takes, `seconds` adds up and lets
overlap what runs side by side. It is equations 13 to 17 of the paper, with their constants taken apart into what a plan has.
"""

from planner.cost.counting import step_work
from planner.cost.seconds import PASS, Corrections, PassCost, Pricing, StepCost, epoch_seconds, pass_seconds
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
]
