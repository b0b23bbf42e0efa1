"""Names of places in a finished plan: the name of a stage, or of the column that a step on the graph makes."""

from __future__ import annotations

from collections.abc import Sequence

from planner.physical import Plan, Stage
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

SHOWN = 8
"""The most places that are named. Of the others, only the number is told."""


def listed(places: Sequence[str]) -> str:
    """Return names of places as one text.

    >>> listed(["train.0", "train.1"])
    'train.0, train.1'
    >>> listed([f"train.{number}" for number in range(17)])
    'train.0, train.1, train.2, train.3, train.4, train.5, train.6, train.7 and 9 more'
    """
    more = len(places) - SHOWN
    return ", ".join(places[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def forward_half(plan: Plan) -> tuple[Step, ...]:
    """Return the steps of training up to the turn, the turn included."""
    turn = next(at for at, step in enumerate(plan.train) if step.turns)
    return plan.train[: turn + 1]


def names(steps: Sequence[Step]) -> list[str]:
    """Return the names of the places of steps, each once."""
    return list(dict.fromkeys(step.stage if isinstance(step, PipeStep) else step.makes[0] for step in steps))


def stages_of(plan: Plan, steps: Sequence[Step]) -> list[Stage]:
    """Return the stages that steps run, each once, in the order of the steps."""
    found = dict.fromkeys(step.stage for step in steps if isinstance(step, PipeStep))
    return [plan.stage(name) for name in found]
