"""Counts the work of a plan's steps. Steps on the graph count their own, and `planner.cost.stages` counts that of stages."""

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
    """Return the work of one step, without its shuffles.

    Args:
        step: A step of `plan`.
        plan: The plan.
        statistics: The statistics of the graph.
        traits: The traits of the engine that runs it.
        layout: The spread of the job over the host.
        beyond: The result of `beyond_memory`, if known.
    """
    waves = 1 if traits.in_process else ceil(layout.partitions / max(1, layout.crew.tasks))
    if isinstance(step, PipeStep):
        beyond = beyond_memory(plan, statistics, traits, layout) if beyond is None else beyond
        found = pipe_work(step, plan, statistics, traits, layout, beyond)
        found.pipes = waves
        return found
    assert isinstance(step, GraphStep)  # there are no other kinds
    found = step.work(plan, statistics, traits, layout)
    found.steps = waves
    return found
