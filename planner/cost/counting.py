"""Counts the work of a plan's steps: those on the graph say it themselves, that of stages is in `planner.cost.stages`."""

from __future__ import annotations

from math import ceil

from planner.cost.stages import beyond_memory, pipe_work
from planner.layout import Layout
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.step import GraphStep, Step
from planner.traits import EngineTraits
from planner.work import Work


def step_work(
    step: Step, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout, beyond: float | None = None
) -> Work:
    """The work of one step, but for its shuffles.

    Args:
        step: of `plan`.
        plan: see there.
        statistics: of the graph.
        traits: of the engine that runs it.
        layout: how its work is spread.
        beyond: as of `beyond_memory`, where that is known.
    """
    waves = 1 if traits.in_process else ceil(layout.partitions / max(1, layout.crew.tasks))
    if isinstance(step, PipeStep):
        beyond = beyond_memory(plan, statistics, traits, layout) if beyond is None else beyond
        found = pipe_work(step, plan, statistics, traits, layout, beyond)
        found.pipes = waves
        return found
    assert isinstance(step, GraphStep)  # there are no others
    found = step.work(plan, statistics, traits, layout)
    found.steps = waves
    return found
