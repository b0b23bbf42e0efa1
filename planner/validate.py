"""The last check of a plan, which refuses a plan that no engine can run. It changes nothing."""

from __future__ import annotations

from planner.errors import PlanError
from planner.physical import Plan, Stage
from planner.steps.step import Step


def validate(plan: Plan) -> None:
    """Check that each value is made exactly once, and before it is read, by steps and inside stages.

    Raises:
        PlanError: If a check fails. The text names the step or stage. The cause is a defect of the planner, never of
            the user's model.
    """
    static = {column.name for column in plan.static_columns}
    hoisted = {column.name for column in plan.hoisted}
    made = _check_steps(plan.prepare, static)
    if missing := hoisted - made:
        raise PlanError(f"no step makes {sorted(missing)}, which the plan computes once, before the first epoch")
    for steps in plan.passes[1:]:
        _check_steps(steps, static | hoisted)
    names = [stage.name for stage in plan.stages]
    if len(set(names)) != len(names):
        raise PlanError(f"two stages have the same name: {names}")
    for stage in plan.stages:
        for one in stage.each:
            _check_stage(one)


def _check_steps(steps: tuple[Step, ...], static: set[str]) -> set[str]:
    """Check the steps of a pass, and return the names of all columns and collections there are after them."""
    made = set(static)
    for step in steps:
        read, own = step.reads, step.makes
        if not made.issuperset(read):
            raise PlanError(f"step {step} reads {sorted(set(read) - made)}, which nothing before it makes")
        if not made.isdisjoint(own):
            raise PlanError(f"step {step} makes {sorted(made.intersection(own))} a second time")
        made.update(own)
    return made


def _check_stage(stage: Stage) -> None:
    known = {value.value for value in stage.inputs} | {parameter.name for parameter in stage.parameters}
    for call in stage.calls:
        if not known.issuperset(call.reads):
            missing = sorted(set(call.reads) - known)
            raise PlanError(f"{call.op} in stage {stage.name} reads {missing}, which nothing before it makes")
        known.add(call.output)
    if unknown := [output.value for output in stage.outputs if output.value not in known]:
        raise PlanError(f"stage {stage.name} yields {sorted(unknown)}, which it does not compute")
