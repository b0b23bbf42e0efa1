"""Writes steps along edges turned round as steps along the edges themselves, with the two ends exchanged.

All engines hold edges in both directions, because backward runs against them. So a sum over edges turned round needs no
edges of its own, as long as every value on these edges is made and read by such steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.edge_sets import is_reversed
from planner.lower import Forward
from planner.physical import Plan
from planner.spec import EdgeSet
from planner.steps.edge_step import EdgeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step


def turned(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps of a pass with as few edges turned round as possible.

    An edge column has the order of its edge set. So the steps on the columns of a set are exchanged all together, or none.

    >>> from planner.physical import Column
    >>> (step,) = turned([PropagateStep("x", Column("sums", (4,)), "reversed")])
    >>> step.edges, step.reverse
    ('graph', True)
    """
    fixed = {step.edges for step in steps if isinstance(step, EdgeStep) and step.turned() is None}
    found: list[Step] = []
    for step in steps:
        other = None
        if isinstance(step, PropagateStep) or (isinstance(step, EdgeStep) and step.edges not in fixed):
            other = step.turned() if is_reversed(step.edges) else None
        found.append(step if other is None else other)
    return tuple(found)


def sums_reversed(forward: Forward) -> bool:
    """Return True if a step or a stage of a forward pass reads edges turned round."""
    of_steps = [step.edges for step in forward.steps if isinstance(step, PropagateStep | EdgeStep)]
    of_stages = [edges for stage in forward.stages for edges in stage.edge_sets]
    return any(map(is_reversed, (*of_steps, *of_stages)))


def reversed_sets(plan: Plan) -> tuple[EdgeSet, ...]:
    """Return the edge sets turned round that an engine needs for a finished plan, in alphabetical order."""
    steps = [step for steps in plan.passes for step in steps]
    of_steps = {step.edges for step in steps if isinstance(step, PropagateStep | EdgeStep)}
    of_stages = {edges for stage in plan.stages for edges in stage.edge_sets}
    return tuple(sorted(filter(is_reversed, of_steps | of_stages)))
