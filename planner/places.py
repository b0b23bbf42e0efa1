"""Words for places in a finished plan: a stage goes by its name, and a step on the graph by what it makes."""

from __future__ import annotations

from collections.abc import Sequence

from planner.physical import Plan, Stage
from planner.steps.pipe import PipeStep
from planner.steps.step import Step

SHOWN = 8
"""Places that are named; of more, how many there are."""


def listed(places: Sequence[str]) -> str:
    """Places in words.

    >>> listed(["train.0", "train.1"])
    'train.0, train.1'
    >>> listed([f"train.{number}" for number in range(17)])
    'train.0, train.1, train.2, train.3, train.4, train.5, train.6, train.7 and 9 more'
    """
    more = len(places) - SHOWN
    return ", ".join(places[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def forward_half(plan: Plan) -> tuple[Step, ...]:
    """The steps of training up to the turn, with it."""
    turn = next(at for at, step in enumerate(plan.train) if isinstance(step, PipeStep) and step.mode == "turn")
    return plan.train[: turn + 1]


def names(steps: Sequence[Step]) -> list[str]:
    """The stages of steps, and what steps on the graph make."""
    return list(dict.fromkeys(step.stage if isinstance(step, PipeStep) else step.makes[0] for step in steps))


def stages_of(plan: Plan, steps: Sequence[Step]) -> list[Stage]:
    """The stages that steps run, in their order."""
    found = dict.fromkeys(step.stage for step in steps if isinstance(step, PipeStep))
    return [plan.stage(name) for name in found]
