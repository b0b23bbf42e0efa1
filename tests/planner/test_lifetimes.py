"""The columns that exist while a step runs, against a search for their readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from planner.compiler import Options, compile_plan
from planner.cost.seconds import Pricing
from planner.estimate import column_bytes
from planner.lifetimes import alive_bytes
from planner.physical import Plan
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from tests.exactness.cases import EVERY, sample
from tests.exactness.steps import plan_of
from tests.planner.engines import BLOCKS
from tests.planner.test_footprint import LARGE


def there(plan: Plan, steps: Sequence[Step], place: int) -> set[str]:
    """The columns that are there while a step runs: a sum over edges is what it is of until somebody reads it."""
    held = {column.name for column in plan.hoisted} if steps is plan.prepare else set()
    made = (step for step in steps if isinstance(step, PropagateStep))
    sums = {step.output.name: step.input for step in made if step.output.name not in held}
    found = set()
    for born, step in enumerate(steps[: place + 1]):
        for name in set(step.makes) - sums.keys():
            readers = {
                at: isinstance(later, PipeStep | PropagateStep)
                for at, later in enumerate(steps)
                if name in {sums.get(read, read) for read in later.reads}
            }
            if born == place or name in held or (readers and (max(readers) >= place or not readers[max(readers)])):
                found.add(name)
    return found


@pytest.mark.parametrize("name", sorted(EVERY))
@pytest.mark.parametrize("graph", [LARGE, replace(LARGE, training=1_000)])
def test_what_is_there_while_a_step_runs(name: str, graph: Statistics) -> None:
    options = Options(pricing=Pricing(BLOCKS))
    plan = compile_plan(*plan_of(name, sample(3, weighted=EVERY[name].weights), options).given, graph, options).plan
    for steps in plan.passes:
        made = (column for step in steps for column in step.columns_made)
        columns = {c.name: c for c in (*plan.static_columns, *plan.hoisted, *made)}
        static = {c.name for c in plan.static_columns} if steps is plan.prepare else plan.lasting
        expected = [
            sum(column_bytes(columns[n], graph) for n in (there(plan, steps, place) & columns.keys()) | static)
            for place in range(len(steps))
        ]
        assert alive_bytes(plan, steps, graph) == expected
